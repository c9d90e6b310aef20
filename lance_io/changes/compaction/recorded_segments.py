"""Which indices may still need what the fragment reuse index says of earlier compactions (spec: indices, 1).

Bitmaps and version numbers do not tell: both are carried on when the files of an index are written anew. The identifier
does, which is new then. A segment that was not there right after a compaction of ours came later, and names rows as
they were after it: an index over the fragments that it moved was in conflict with it. But for zone maps and Bloom
filters: their merges keep the addresses that they had (`IndexMetadata.maps_when_merged`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lance_io.errors import NotFound
from lance_io.reads.open_version import check_out
from lance_io.reads.version.index_entries import load_indices
from lance_io.table.manifest.fragment_reuse import find_reuse, is_readable, is_roomy, moved_on
from lance_io.table.manifest.manifest import LIBRARY

if TYPE_CHECKING:
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState

_LOOKED_AT_MAX: Final = 4  # earlier versions that one compaction reads


def segments_then(state: DatasetState) -> Plan[dict[int, frozenset[str]]]:
    """By the version that a recorded compaction was committed on: the segments that there were right after it.

    Nothing while the record is small. Of a larger one the oldest compactions are looked at, as far as their versions
    are there and were made here, up to the first that may be needed.
    """
    found: dict[int, frozenset[str]] = {}
    if state.has_stable_row_ids:
        return found
    indices = yield from load_indices(state)
    record = find_reuse(indices)
    if record is None or not is_readable(record) or not is_roomy(record):
        return found
    present = {index.uuid for index in indices if not index.is_system}
    for version in moved_on(record)[:_LOOKED_AT_MAX]:
        try:
            after = yield from check_out(state, version + 1)
        except NotFound:  # cleaned up
            continue
        if after.manifest.message.writer_version.library != LIBRARY:
            continue
        found[version] = frozenset(index.uuid for index in (yield from load_indices(after)) if not index.is_system)
        if not present.isdisjoint(found[version]):
            break
    return found
