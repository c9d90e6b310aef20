"""The scalar indices of a version that this release reads, and the fragments that their segments cover."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from lance_io.index.details import Kind, Space
from lance_io.index.rows.moves import Move
from lance_io.index.rows.tree_maps import decode_treemap64
from lance_io.reads.version.index_entries import details_of, group_by_name, load_indices
from lance_io.records import dataclass
from lance_io.table.manifest.fragment_reuse import find_reuse, is_readable, recorded_moves
from lance_io.table.transaction.index_coverage import with_current_coverage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lance_io.format.schema import Field
    from lance_io.index.details import IndexDetails
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.fragment_reuse import RecordedMove
    from lance_io.table.manifest.index_section import IndexMetadata

KEY_KINDS: Final = (Kind.BTREE, Kind.BITMAP)
_OTHER: Final = ("inverted", "vector", "fragmentreuse", "memwal")  # kinds that other parts of a release know

Path = tuple[str, ...]
DetailsT = TypeVar("DetailsT")


@dataclass(frozen=True, slots=True, eq=False)
class IndexPart(Generic[DetailsT]):
    """One segment of an index, as the index section describes it.

    uuid     name of its folder
    base_id  base path that it lies below, or None
    details  kind and settings
    space    of the row numbers in its files
    sizes    of its files, by name, as far as they are recorded
    covered  ids of the fragments of the version that it covers
    """

    uuid: str
    base_id: int | None
    details: DetailsT
    space: Space
    sizes: Mapping[str, int]
    covered: frozenset[int]

    @classmethod
    def of(cls, entry: IndexMetadata, details: DetailsT, space: Space, covered: frozenset[int]) -> IndexPart[DetailsT]:
        """The segment of an entry."""
        assert entry.message is not None, "it has the details"
        sizes = {file.path: file.size_bytes for file in entry.message.files}
        return cls(entry.uuid, entry.base_id, details, space, sizes, covered)


@dataclass(frozen=True, slots=True, eq=False)
class TableIndex:
    """An index of one column.

    name   of the index
    path   of the column
    field  its field
    parts  its segments that cover fragments
    """

    name: str
    path: Path
    field: Field
    parts: tuple[IndexPart[IndexDetails], ...]

    @property
    def kind(self) -> Kind:
        """Kind of the segments."""
        return self.parts[0].details.kind

    @property
    def json_path(self) -> str | None:
        """The path in JSON documents whose values are indexed; None for the column's own values."""
        return self.parts[0].details.json_path

    @property
    def covered(self) -> frozenset[int]:
        """Ids of the fragments that one of its segments covers."""
        if len(self.parts) == 1:
            return self.parts[0].covered
        return frozenset().union(*(part.covered for part in self.parts))


@dataclass(frozen=True, slots=True, eq=False)
class TableIndices:
    """The indices of a version.

    indices  that this release reads
    moves    by which addresses in their files become current ones, oldest first
    """

    indices: tuple[TableIndex, ...] = ()
    moves: tuple[Move, ...] = ()


def load_table_indices(state: DatasetState) -> Plan[TableIndices]:
    """The indices of the version that answer filters; at most one request, the first time. Raises `FormatError`."""
    known: TableIndices | None = state.__dict__.get("table_indices")
    if known is None:
        entries = (yield from load_indices(state)) if state.has_index and not state.shared_ids else []
        known = state.__dict__["table_indices"] = _table_indices(state, entries)
    return known


def key_indices(state: DatasetState, path: Path) -> Plan[list[TableIndex]]:
    """The indices of a column by which the rows of a key are looked up, the best one first. Raises `FormatError`."""
    indices = (yield from load_table_indices(state)).indices
    usable = [index for index in indices if index.path == path and index.kind in KEY_KINDS and index.json_path is None]
    return sorted(usable, key=lambda index: KEY_KINDS.index(index.kind))


def _table_indices(state: DatasetState, entries: Sequence[IndexMetadata]) -> TableIndices:
    usable, moves = usable_entries(state, entries)
    return TableIndices(tuple(_indices(state, usable)), moves)


def usable_entries(
    state: DatasetState, entries: Sequence[IndexMetadata]
) -> tuple[Sequence[IndexMetadata], tuple[Move, ...]]:
    """The entries whose files name rows that can be found, with current coverage, and the moves of these rows.

    Raises `FormatError` for a damaged record of moves.
    """
    reuse = None if state.has_stable_row_ids else find_reuse(entries)
    if not is_readable(reuse):
        return [], ()  # index files may name addresses of fragments that are gone
    moves = () if reuse is None else tuple(map(_move, recorded_moves(reuse)))
    usable = [entry for entry in entries if entry.follows_moves or not _is_interrupted(state, moves)]
    return with_current_coverage(usable), moves


def _is_interrupted(state: DatasetState, moves: Sequence[Move]) -> bool:
    """Whether recorded rows moved on, or went, without a record.

    pylance 14's compaction then rewrites B-trees as if nothing had been recorded, and these find no row any more, while
    their entries claim to cover the new fragments.
    """
    old = frozenset[int]().union(*(move.old for move in moves))
    new = {fragment_id for move in moves for fragment_id, _ in move.new}
    return not new <= old.union(state.fragment_ids)


def _move(recorded: RecordedMove) -> Move:
    return Move(recorded.old, decode_treemap64(recorded.addresses, Space.ADDRESSES), recorded.new).check()


def _indices(state: DatasetState, entries: Sequence[IndexMetadata]) -> Iterator[TableIndex]:
    columns = {field.id: (path, field) for path, field in _walk(state.schema.fields)}
    for name, segments in group_by_name(of_one_column(entries)).items():
        field_id = segments[0].fields[0]
        column = columns.get(field_id)
        if field_id not in state.schema.by_id:
            warnings.warn(
                f"index {name!r} is of a column that is gone (field {field_id}); it is not used: drop it", stacklevel=2
            )
        if column is None or any(segment.fields != segments[0].fields for segment in segments):
            continue
        parts = _parts(state, name, segments)
        kinds = {(part.details.kind, part.details.json_path) for part in parts}
        if len(kinds) == 1:
            yield TableIndex(name, *column, parts)


def of_one_column(entries: Iterable[IndexMetadata]) -> Iterator[IndexMetadata]:
    """The entries of indices over a single column."""
    return (entry for entry in entries if not entry.is_system and len(entry.fields) == 1)


def _parts(state: DatasetState, name: str, segments: Sequence[IndexMetadata]) -> tuple[IndexPart[IndexDetails], ...]:
    """The segments that cover fragments; none of those that cover a fragment that another one covers, too."""
    parts: list[IndexPart[IndexDetails]] = []
    seen: set[int] = set()
    for segment in segments:
        message = segment.message
        if message is None or segment.fragment_ids is None:
            continue
        url = segment.type_url
        details = details_of(segment)
        if details is None:
            if not any(kind in url.lower() for kind in _OTHER):
                warnings.warn(
                    f"index {name!r} of type {url.rpartition('/')[2] or 'unknown'}, version {message.index_version}: "
                    "this release does not read it, and does without it",
                    stacklevel=2,
                )
            return ()
        covered = frozenset(segment.fragment_ids.intersection(state.fragment_ids)) - seen
        seen |= covered
        if covered:
            space = details.space(stable_row_ids=state.has_stable_row_ids)
            parts.append(IndexPart.of(segment, details, space, covered))
    return tuple(parts)


def _walk(fields: Sequence[Field], above: Path = ()) -> Iterator[tuple[Path, Field]]:
    """The fields of the schema with their paths; members of structs, not of lists."""
    for field in fields:
        path = (*above, field.name)
        yield path, field
        yield from _walk(field.members, path)
