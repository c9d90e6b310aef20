"""Loading an index into memory before it is asked: its lookup, and its pages or bitmaps as far as memory allows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lance_io.errors import UsageError
from lance_io.file.take.take_files import WARMED_SHARE
from lance_io.index.scalar.kinds import READERS
from lance_io.plans.plan import Together
from lance_io.reads.index.segments import load_blocks, open_segments
from lance_io.reads.index.table_indices import load_table_indices
from lance_io.reads.index.text_indices import load_text_indices
from lance_io.reads.index.text_segments import load_all_postings, open_text_segments
from lance_io.reads.version.index_entries import details_of, load_indices

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.index_section import IndexMetadata


def prewarm(state: DatasetState, name: str, segments: Iterable[Any] | None = None) -> Plan[None]:
    """Load the segments of an index, all of them or those with these UUIDs.

    Raises `UsageError` for a name that no readable index has, and for a segment that the index does not have.
    """
    segments = None if segments is None else [*segments]
    indices = {index.name: index for index in (yield from load_table_indices(state)).indices}
    index: Any = indices.get(name)
    if index is None:
        texts = {other.name: other for other in (yield from load_text_indices(state))}
        if name in texts:
            chosen = replace(texts[name], parts=tuple(_chosen(texts[name], segments)))
            yield from load_all_postings(state, chosen, (yield from open_text_segments(state, chosen)))
            return
    if index is None and (yield from _covers_nothing(state, name, segments)):
        return
    if index is None or index.kind not in READERS:
        readable = ", ".join(other.name for other in indices.values() if other.kind in READERS) or "none"
        raise UsageError(f"there is no index {name!r} that this release reads; there are: {readable}")
    parts = [(index, part) for part in _chosen(index, segments)]
    opened = yield from open_segments(state, parts)
    bytes_max = int(WARMED_SHARE * state.session.index_cache.capacity_bytes)
    yield Together([load_blocks(state, part, segment, bytes_max) for part, segment in zip(parts, opened, strict=True)])


def _chosen(index: Any, segments: list[Any] | None) -> list[Any]:
    """All segments of an index, or those with these UUIDs."""
    by_uuid = {part.uuid: part for part in index.parts}
    wanted = [*by_uuid] if segments is None else [str(segment) for segment in segments]
    unknown = [uuid for uuid in wanted if uuid not in by_uuid]
    if unknown:
        raise UsageError(f"index {index.name!r} has no segment {unknown[0]} that covers fragments of this version")
    return [by_uuid[uuid] for uuid in wanted]


def _covers_nothing(state: DatasetState, name: str, segments: Iterable[Any] | None) -> Plan[bool]:
    """Whether an index of the name is of a known kind, and none of its segments covers a fragment: nothing to load."""
    entries = [entry for entry in (yield from load_indices(state)) if entry.name == name]
    known = {entry.uuid for entry in entries if (details := details_of(entry)) and details.kind in READERS}
    wanted = known if segments is None else {str(segment) for segment in segments}
    return bool(known) and wanted <= known and all(_is_uncovered(state, entry) for entry in entries)


def _is_uncovered(state: DatasetState, entry: IndexMetadata) -> bool:
    return entry.fragment_ids is not None and not entry.fragment_ids.intersection(state.fragment_ids)
