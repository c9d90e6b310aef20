"""Indices that may still need the fragment reuse index's records of earlier compactions (spec: indices, 1).

Bitmaps and version numbers are no criterion: rewriting the files of an index keeps both. It changes the UUID, so UUIDs
are compared. A segment that did not exist directly after a compaction by this package was created later and uses the
row addresses after the compaction: an index build over the moved fragments would have been in conflict with it. Zone
maps and Bloom filters are the exception: their merges keep old addresses (`IndexMetadata.maps_when_merged`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lance_io.errors import NotFound
from lance_io.reads.open_version import check_out
from lance_io.reads.version.index_entries import load_indices
from lance_io.table.manifest.fragment_reuse import compaction_versions, find_reuse, is_large, is_readable
from lance_io.table.manifest.manifest import LIBRARY

if TYPE_CHECKING:
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState

_VERSIONS_READ_MAX: Final = 4  # earlier versions that one compaction reads


def segments_after_compactions(state: DatasetState) -> Plan[dict[int, frozenset[str]]]:
    """The segments directly after recorded compactions, by the version that each compaction was committed on.

    Empty while the record is small. Otherwise checks the oldest compactions whose versions still exist and were written
    by this package, up to the first one that may still be needed.
    """
    segments: dict[int, frozenset[str]] = {}
    if state.has_stable_row_ids:
        return segments
    indices = yield from load_indices(state)
    record = find_reuse(indices)
    if record is None or not is_readable(record) or not is_large(record):
        return segments
    present = {index.uuid for index in indices if not index.is_system}
    for version in compaction_versions(record)[:_VERSIONS_READ_MAX]:
        try:
            after = yield from check_out(state, version + 1)
        except NotFound:  # cleaned up
            continue
        if after.manifest.message.writer_version.library != LIBRARY:
            continue
        segments[version] = frozenset(index.uuid for index in (yield from load_indices(after)) if not index.is_system)
        if not present.isdisjoint(segments[version]):
            break
    return segments
