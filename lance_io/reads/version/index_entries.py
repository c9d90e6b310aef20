"""Loads the entries of a version's index section: one entry for each segment of each index.

Opening a table reads only the last bytes of the manifest file, and the index section may begin earlier in the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.commit.latest import read_named
from lance_io.index.details import decode_details
from lance_io.table.manifest.index_section import decode_indices
from lance_io.table.manifest.manifest import decode_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_io.index.details import IndexDetails
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.index_section import IndexMetadata


def load_indices(state: DatasetState) -> Plan[list[IndexMetadata]]:
    """The index segments of the open version. Reads the manifest file again if opening did not read the index section.

    Raises `FormatError`.
    """
    if not state.has_index:
        return []
    section = state.manifest.index_section
    if section is None:
        file = yield from state.session.handler(state.location).find_version(state.location, state.manifest.version)
        section = decode_manifest((yield from read_named(state.location.store, file.key))).index_section
    return [] if section is None else decode_indices(section)


def details_of(entry: IndexMetadata) -> IndexDetails | None:
    """The kind and the parameters of a segment's index; None for a kind or an index version that is not supported.

    Raises `FormatError`.
    """
    if entry.message is None:
        return None
    details = entry.message.index_details
    return decode_details(details.type_url, details.value, entry.message.index_version)


def group_by_name(entries: Iterable[IndexMetadata]) -> dict[str, list[IndexMetadata]]:
    """The segments of each index, by the index's name; the order of segments is that of `entries`."""
    indices: dict[str, list[IndexMetadata]] = {}
    for entry in entries:
        indices.setdefault(entry.name, []).append(entry)
    return indices
