"""Loads the entries of a version's index section: one entry for each segment of each index.

Opening a table reads only the last bytes of the manifest file, and the index section may begin earlier in the file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.types as pt

from lance_io.commit.latest import read_named
from lance_io.index.details import decode_details, infer_type_url
from lance_io.plans.store_requests import List
from lance_io.table.manifest.index_section import decode_indices
from lance_io.table.manifest.manifest import decode_manifest
from lance_io.table.manifest.paths import INDICES, check_relative

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lance_io.index.details import IndexDetails
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.store.api import ObjectMeta
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
    entries = [] if section is None else decode_indices(section)
    return (yield from _with_kinds(state, entries)) if any(entry.lacks_kind for entry in entries) else entries


def _with_kinds(state: DatasetState, entries: Sequence[IndexMetadata]) -> Plan[list[IndexMetadata]]:
    """The entries, with the kinds of those without details, as far as their files tell.

    The first releases wrote such entries, and so does a commit of `CreateIndex` with an `Index` that has no details.
    If an entry lists no files, its folder is listed in the store, once for an open version.
    """
    known: dict[str, str] = state.__dict__.setdefault("inferred_kinds", {})
    for entry in entries:
        field = state.schema.by_id.get(entry.fields[0]) if entry.lacks_kind else None
        if field is not None and entry.uuid not in known:
            names = entry.file_paths or (yield from _listed_files(state, entry))
            is_list = pt.is_list(field.arrow_type) or pt.is_large_list(field.arrow_type)
            known[entry.uuid] = infer_type_url(names, is_list=is_list)
    return [replace(entry, inferred_url=known.get(entry.uuid, "")) if entry.lacks_kind else entry for entry in entries]


def _listed_files(state: DatasetState, entry: IndexMetadata) -> Plan[list[str]]:
    folder = state.location
    if entry.base_id is not None:
        folder = state.object_keys.base_folder(state.manifest.base_paths[entry.base_id])
    path = f"{folder.below(INDICES, check_relative(entry.uuid, 'index')).path}/"
    metas: list[ObjectMeta] = yield List(folder.store, path)
    return [meta.key.rpartition("/")[2] for meta in metas]


def details_of(entry: IndexMetadata) -> IndexDetails | None:
    """The kind and the parameters of a segment's index; None for a kind or an index version that is not supported.

    Raises `FormatError`.
    """
    if entry.message is None:
        return None
    return decode_details(entry.type_url, entry.message.index_details.value, entry.message.index_version)


def group_by_name(entries: Iterable[IndexMetadata]) -> dict[str, list[IndexMetadata]]:
    """The segments of each index, by the index's name; the order of segments is that of `entries`."""
    indices: dict[str, list[IndexMetadata]] = {}
    for entry in entries:
        indices.setdefault(entry.name, []).append(entry)
    return indices
