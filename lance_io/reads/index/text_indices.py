"""The full-text indices of a version, and the fragments that their segments cover."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Final

from lance_io.index.details import Space
from lance_io.index.text.text_parameters import is_of_elements
from lance_io.reads.index.table_indices import IndexPart, of_one_column, usable_entries
from lance_io.reads.version.index_entries import by_name, load_indices
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_io.format.schema import Field
    from lance_io.index.rows.moves import Move
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.index_section import IndexMetadata

_MESSAGE: Final = "invertedindexdetails"
VERSION_MAX: Final = 3

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TextIndex:
    """A full-text index.

    name   of the index
    path   of its column
    field  its field
    parts  its segments that cover fragments
    moves  by which addresses in their files become current ones, oldest first
    of_elements  whether its documents are elements of lists, not rows
    details      message of its first segment
    """

    name: str
    path: Path
    field: Field
    parts: tuple[IndexPart[bytes], ...]
    moves: tuple[Move, ...]
    of_elements: bool = False
    details: bytes = b""

    @property
    def covered(self) -> frozenset[int]:
        """Ids of the fragments that one of its segments covers."""
        return frozenset().union(*(part.covered for part in self.parts))


def load_text_indices(state: DatasetState) -> Plan[tuple[TextIndex, ...]]:
    """The full-text indices of the version; at most one request, the first time. Raises `FormatError`."""
    known: tuple[TextIndex, ...] | None = state.__dict__.get("text_indices")
    if known is None:
        entries = (yield from load_indices(state)) if state.has_index and not state.shared_ids else []
        usable, moves = usable_entries(state, entries)
        known = state.__dict__["text_indices"] = tuple(_indices(state, usable, moves))
    return known


def _indices(state: DatasetState, entries: Sequence[IndexMetadata], moves: tuple[Move, ...]) -> Iterator[TextIndex]:
    space = Space.IDS if state.has_stable_row_ids else Space.ADDRESSES
    columns = {field.id: (path, column) for path, column, field in _walk(state.schema.fields)}
    for name, segments in by_name(of_one_column(entries)).items():
        column = columns.get(segments[0].fields[0])
        if column is None or any(segment.fields != segments[0].fields for segment in segments):
            continue
        parts = _parts(state, name, segments, space)
        if parts is not None and segments[0].message is not None:
            details = segments[0].message.index_details.value
            yield TextIndex(name, *column, parts, moves, is_of_elements(details), details)


def _parts(
    state: DatasetState, name: str, segments: Sequence[IndexMetadata], space: Space
) -> tuple[IndexPart[bytes], ...] | None:
    """The segments that cover fragments; None for an index of another kind, or that this release does not read."""
    parts: list[IndexPart[bytes]] = []
    seen: set[int] = set()
    for segment in segments:
        message = segment.message
        if message is None or segment.fragment_ids is None:
            continue
        if message.index_details.type_url.rpartition("/")[2].rpartition(".")[2].lower() != _MESSAGE:
            return None
        if message.index_version > VERSION_MAX:
            warn_text_index_unused(name, f"this release does not read version {message.index_version} of its kind")
            return None
        covered = frozenset(segment.fragment_ids.intersection(state.fragment_ids)) - seen
        seen |= covered
        if covered:
            parts.append(IndexPart.of(segment, message.index_details.value, space, covered))
    return tuple(parts)


def _walk(fields: Sequence[Field], above: Path = ()) -> Iterator[tuple[Path, Field, Field]]:
    """The fields of the schema, each with the column that an index of it is asked by, and its path."""
    for field in fields:
        path = (*above, field.name)
        yield path, field, field
        yield from _walk(field.members, path)
        if not field.members:
            yield from ((path, field, inner) for inner in field.walk() if inner is not field)


def warn_text_index_unused(name: str, reason: str) -> None:
    """Warn that an index is not used; Python shows the same warning once."""
    warnings.warn(f"full text index {name!r} is not used, all texts are searched: {reason}", stacklevel=2)
