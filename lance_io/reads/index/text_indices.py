"""The full-text indices of a version, and the fragments that their segments cover."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lance_io.index.details import Space, names_text_index
from lance_io.index.text.text_parameters import is_of_elements
from lance_io.index.text.text_paths import text_paths
from lance_io.reads.index.table_indices import IndexPart, of_one_column, usable_entries
from lance_io.reads.version.column_lists import OutputColumn, prune
from lance_io.reads.version.index_entries import group_by_name, load_indices
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_io.format.schema import Field, Schema
    from lance_io.index.rows.moves import Move
    from lance_io.index.text.text_paths import TextPath
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.index_section import IndexMetadata

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
    columns = dict(text_paths(state.schema.fields))
    for name, segments in group_by_name(of_one_column(entries)).items():
        column = columns.get(segments[0].fields[0])
        if column is None or any(segment.fields != segments[0].fields for segment in segments):
            continue
        parts = _parts(state, name, segments, space)
        if parts is not None and segments[0].message is not None:
            details = segments[0].message.index_details.value
            yield TextIndex(name, column.names, column.field, parts, moves, is_of_elements(details), details)


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
        if not names_text_index(segment.type_url):
            return None
        if message.index_version > VERSION_MAX:
            warn_text_index_unused(name, f"this release does not read version {message.index_version} of its kind")
            return None
        covered = frozenset(segment.fragment_ids.intersection(state.fragment_ids)) - seen
        seen |= covered
        if covered:
            parts.append(IndexPart.of(segment, message.index_details.value, space, covered))
    return tuple(parts)


def text_output(schema: Schema, path: TextPath, name: str) -> OutputColumn:
    """The column that is read for texts, under a name; `member_lists` makes texts of its values."""
    if not path.below:
        return OutputColumn(name, path.column, pa.field(name, path.field.arrow_type))
    (field,) = prune(schema, [path.stored])
    for step in path.column[1:]:
        field = next(member for member in field.children if member.name == step)
    return OutputColumn(name, path.column, pa.field(name, field.arrow_type), parts=(path.stored,))


def warn_text_index_unused(name: str, reason: str) -> None:
    """Warn that an index is not used; Python shows the same warning once."""
    warnings.warn(f"full text index {name!r} is not used, all texts are searched: {reason}", stacklevel=2)
