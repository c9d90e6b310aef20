"""Which leaves a projection needs, which file of a fragment has them, and how they become fields.

A field's leaf columns may lie in several files of a fragment, or in none: then the field reads as null there.
"""

from __future__ import annotations

from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import FormatError
from lance_io.format.schema import PACKED_KEYS
from lance_io.levels.assemble import merge
from lance_io.levels.chunks import LIST_KINDS
from lance_io.levels.path import leaf_paths
from lance_io.levels.row_bytes import fixed_bits
from lance_io.records import dataclass
from lance_io.turns import MANY, give_way, in_turns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from lance_io.file.open.file_source import FileRef, FragmentSource
    from lance_io.format.schema import Field
    from lance_io.levels.path import LeafPath

LOCATED_PER_TURN: Final = 128  # fragments: some microseconds each
LEAF_COLUMNS_MAX: Final = 64  # sets of columns that files have; a table gets another with each change of its schema


@dataclass(frozen=True, slots=True, eq=False)
class LeafColumns:
    """What a projection reads of every file that has the same leaves in the same columns: parallel lists of leaf field
    ids, column indices, and how the table declares the leaves: paths, and types (`LeafPath.skeleton`).

    is_all  such a file has every leaf of the projection
    places  where each leaf is in the lists, by field id
    made    what readers of a file version made of them, by its name, and what else is known of them
    """

    leaf_ids: list[int]
    columns: list[int]
    paths: list[LeafPath]
    types: list[pa.DataType]
    is_all: bool
    places: dict[int, int]
    made: dict[str, Any] = field(default_factory=dict)

    @property
    def fixed_row_bytes(self) -> float | None:
        """What a row takes in memory where types say it; None where values differ."""
        if "row bytes" not in self.made:
            self.made["row bytes"] = _fixed_row_bytes(self.paths)
        found: float | None = self.made["row bytes"]
        return found


def _fixed_row_bytes(paths: list[LeafPath]) -> float | None:
    num_bits = 0
    for path in paths:
        bits = None if any(node.kind in LIST_KINDS for node in path.nodes) else fixed_bits(path.leaf_type)
        if bits is None:
            return None
        num_bits += path.slots_per_row * bits
    return num_bits / 8


class FileColumns:
    """What to read of one file.

    of_leaves  the leaves and their columns; its lists are here as well
    """

    __slots__ = ("columns", "is_all", "leaf_ids", "of_leaves", "places", "ref")

    def __init__(self, ref: FileRef, of_leaves: LeafColumns) -> None:
        self.ref = ref
        self.of_leaves = of_leaves
        self.leaf_ids = of_leaves.leaf_ids
        self.columns = of_leaves.columns
        self.is_all = of_leaves.is_all
        self.places = of_leaves.places


class Projection:
    """Projected fields and the leaves they need.

    fields   pruned top-level schema fields, blobs replaced by their descriptions; results come in this order
    paths    the ways to the leaves of each field
    leaves   all of them by field id, in that order
    lone     of each field that is a leaf, as most are, its id; None for others
    is_flat  every field is a leaf
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        self.fields = [field.describe_blobs() for field in fields]
        turns = iter if len(self.fields) < MANY else in_turns
        self.paths: list[list[LeafPath]] = [leaf_paths(field) for field in turns(self.fields)]
        self.leaves = {path.leaf.id: path for paths in self.paths for path in paths}
        self._types = {leaf: path.skeleton for leaf, path in self.leaves.items()}
        self.lone = [paths[0].leaf.id if len(paths) == 1 == len(paths[0].nodes) else None for paths in self.paths]
        self.is_flat = None not in self.lone
        self._located: dict[int, tuple[FragmentSource, list[FileColumns]]] = {}  # by identity: sources are long tuples
        self._leaf_columns_of: dict[tuple[tuple[int, ...], tuple[int, ...]], LeafColumns] = {}

    @cached_property
    def has_width(self) -> bool:
        """Whether types say how much memory each row takes."""
        return _fixed_row_bytes(list(self.leaves.values())) is not None

    def again(self) -> Projection:
        """The same projection for another table version."""
        found = Projection.__new__(Projection)
        found.__dict__.update(self.__dict__, _located={})
        return found

    def locate(self, source: FragmentSource, *, keep: bool = True) -> list[FileColumns]:
        """Which file of a fragment holds which leaves; leaves that no file has are left out.

        keep  remember it, as takes come back to it
        """
        known = self._located.get(id(source))
        if known is not None:
            return known[1]
        found = []
        is_wide = len(self.leaves) >= MANY
        if len(self._located) % LOCATED_PER_TURN == LOCATED_PER_TURN - 1:
            give_way()
        for ref in source.files:
            if is_wide:
                give_way()  # of such a file it is milliseconds
            of_leaves = self.leaf_columns(ref)
            if of_leaves.columns:
                found.append(FileColumns(ref, of_leaves))
        if keep:
            self._located[id(source)] = source, found
        return found

    def leaf_columns(self, ref: FileRef) -> LeafColumns:
        """Which leaves a file has. Most files of a table have the same in the same columns."""
        known = self._leaf_columns_of.get((ref.field_ids, ref.column_indices))
        if known is not None:
            return known
        columns_of = ref.columns_of(self.leaves)
        here = list(columns_of)
        if len(here) < len(self.leaves):
            self._check_packing(ref)
        paths, types = [self.leaves[leaf] for leaf in here], [self._types[leaf] for leaf in here]
        columns, places = list(columns_of.values()), {leaf: at for at, leaf in enumerate(here)}
        found = LeafColumns(here, columns, paths, types, len(here) == len(self.leaves), places)
        if len(self._leaf_columns_of) >= LEAF_COLUMNS_MAX:
            self._leaf_columns_of.clear()
        self._leaf_columns_of[ref.field_ids, ref.column_indices] = found
        return found

    def _check_packing(self, ref: FileRef) -> None:
        """Raise `FormatError` for a struct whose members are packed in the file and columns of their own in the schema.

        For a mark of "false" pylance writes such files of version 2.0, which it cannot read; as members that the file
        does not name they would be null.
        """
        for path in self.leaves.values():
            for node in path.nodes:
                here = node.field
                is_marked = any(key in here.metadata for key in PACKED_KEYS) and not here.is_packed
                if is_marked and here.id in ref.columns and not any(one.id in ref.columns for one in _below(here)):
                    text = (
                        f"struct {here.name!r} is packed in the file, and its metadata say that it is not: pylance "
                        "writes this for a mark that is neither absent nor true, and does not read it. Write it again"
                    )
                    raise FormatError(text, path=ref.key)

    def assemble_field(self, number: int, leaves: Mapping[int, pa.Array], num_rows: int) -> pa.Array:
        """The array of a field from leaf arrays of `num_rows` each. Most fields have one leaf, whose array it is."""
        lone = self.lone[number]
        if lone is not None and lone in leaves:
            return leaves[lone]
        field, paths = self.fields[number], self.paths[number]
        array = leaves.get(paths[0].leaf.id) if len(paths) == 1 else None
        is_whole = array is not None and array.type == field.arrow_type
        return array if is_whole else merge(field, leaves, num_rows)


def _below(field: Field) -> Iterator[Field]:
    for child in field.children:
        yield from child.walk()
