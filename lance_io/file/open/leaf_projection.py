"""The leaves of a projection, the files of a fragment that hold them, and the assembly of fields from leaf arrays.

A field's leaf columns may lie in several files of a fragment, or in none: then the field reads as null there.
"""

from __future__ import annotations

from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import FormatError
from lance_io.format.schema import PACKED_KEYS
from lance_io.gil import MANY, yield_gil, yielding
from lance_io.levels.assemble import merge
from lance_io.levels.chunks import LIST_KINDS
from lance_io.levels.path import leaf_paths
from lance_io.levels.row_bytes import fixed_bits
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from lance_io.file.open.file_source import FileRef, FragmentSource
    from lance_io.format.schema import Field
    from lance_io.levels.path import LeafPath

LOCATED_PER_TURN: Final = 128  # fragments: some microseconds each
LEAF_COLUMNS_MAX: Final = 64  # distinct column layouts of files; each schema change of a table adds one


@dataclass(frozen=True, slots=True, eq=False)
class LeafColumns:
    """The columns that a projection reads from all files with the same leaves in the same columns.

    Parallel lists: ids of the leaf fields, column indices, and paths and types (`LeafPath.skeleton`) as the table
    declares them.

    is_all     whether such a file has every leaf of the projection
    positions  position of each leaf in the lists, by field id
    derived    cache of values derived from these lists, by name, such as those of readers of a file version
    """

    leaf_ids: list[int]
    columns: list[int]
    paths: list[LeafPath]
    types: list[pa.DataType]
    is_all: bool
    positions: dict[int, int]
    derived: dict[str, Any] = field(default_factory=dict)

    @property
    def fixed_row_bytes(self) -> float | None:
        """Memory of a row in bytes, if the types fix it; None if values differ in size."""
        if "row bytes" not in self.derived:
            self.derived["row bytes"] = _fixed_row_bytes(self.paths)
        row_bytes: float | None = self.derived["row bytes"]
        return row_bytes


def _fixed_row_bytes(paths: list[LeafPath]) -> float | None:
    num_bits = 0
    for path in paths:
        has_lists = len(path.nodes) > 1 and any([node.kind in LIST_KINDS for node in path.nodes])
        bits = None if has_lists else fixed_bits(path.leaf_type)
        if bits is None:
            return None
        num_bits += path.slots_per_row * bits
    return num_bits / 8


class FileColumns:
    """The columns to read from one file.

    leaf_columns  the leaves and their columns; its lists are attributes of this class as well
    """

    __slots__ = ("columns", "is_all", "leaf_columns", "leaf_ids", "positions", "ref")

    def __init__(self, ref: FileRef, leaf_columns: LeafColumns) -> None:
        self.ref = ref
        self.leaf_columns = leaf_columns
        self.leaf_ids = leaf_columns.leaf_ids
        self.columns = leaf_columns.columns
        self.is_all = leaf_columns.is_all
        self.positions = leaf_columns.positions


class Projection:
    """Projected fields and the leaves they need.

    fields         pruned top-level schema fields in result order, blobs replaced by their descriptions
    paths          paths to the leaves of each field
    leaves         paths of all leaves by field id, in that order
    flat_leaf_ids  per field: its id if it is a leaf (most are), otherwise None
    is_flat        whether every field is a leaf
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        self.fields = [field.describe_blobs() for field in fields]
        turns = iter if len(self.fields) < MANY else yielding
        self.paths: list[list[LeafPath]] = [leaf_paths(field) for field in turns(self.fields)]
        self.leaves = {path.leaf.id: path for paths in self.paths for path in paths}
        self._types = {leaf: path.skeleton for leaf, path in self.leaves.items()}
        self.flat_leaf_ids = [
            paths[0].leaf.id if len(paths) == 1 == len(paths[0].nodes) else None for paths in self.paths
        ]
        self.is_flat = None not in self.flat_leaf_ids
        self._located: dict[int, tuple[FragmentSource, list[FileColumns]]] = {}  # by identity: sources are long tuples
        self._columns_by_layout: dict[tuple[tuple[int, ...], tuple[int, ...]], LeafColumns] = {}

    @cached_property
    def row_bytes(self) -> float | None:
        """Memory of a row, if the types fix it."""
        return _fixed_row_bytes(list(self.leaves.values()))

    @property
    def has_width(self) -> bool:
        """Whether the types fix the memory of a row."""
        return self.row_bytes is not None

    def again(self) -> Projection:
        """The same projection for another table version."""
        copy = Projection.__new__(Projection)
        copy.__dict__.update(self.__dict__, _located={})
        return copy

    def locate(self, source: FragmentSource, *, keep: bool = True) -> list[FileColumns]:
        """The files of a fragment, each with its projected leaves. Leaves that no file has are left out.

        keep  cache the result, because takes need it again
        """
        known = self._located.get(id(source))
        if known is not None:
            return known[1]
        located = []
        is_wide = len(self.leaves) >= MANY
        if len(self._located) % LOCATED_PER_TURN == LOCATED_PER_TURN - 1:
            yield_gil()
        for ref in source.files:
            if is_wide:
                yield_gil()  # locating the leaves of such a file takes milliseconds
            leaf_columns = self.leaf_columns(ref)
            if leaf_columns.columns:
                located.append(FileColumns(ref, leaf_columns))
        if keep:
            self._located[id(source)] = source, located
        return located

    def leaf_columns(self, ref: FileRef) -> LeafColumns:
        """The projected leaves of a file. Cached: most files of a table have the same leaves in the same columns."""
        known = self._columns_by_layout.get((ref.field_ids, ref.column_indices))
        if known is not None:
            return known
        columns_of = ref.columns_of(self.leaves)
        leaf_ids = list(columns_of)
        if len(leaf_ids) < len(self.leaves):
            self._check_packing(ref)
        paths, types = [self.leaves[leaf] for leaf in leaf_ids], [self._types[leaf] for leaf in leaf_ids]
        columns, positions = list(columns_of.values()), {leaf: at for at, leaf in enumerate(leaf_ids)}
        leaf_columns = LeafColumns(leaf_ids, columns, paths, types, len(leaf_ids) == len(self.leaves), positions)
        if len(self._columns_by_layout) >= LEAF_COLUMNS_MAX:
            self._columns_by_layout.clear()
        self._columns_by_layout[ref.field_ids, ref.column_indices] = leaf_columns
        return leaf_columns

    def _check_packing(self, ref: FileRef) -> None:
        """Raise `FormatError` for a struct that is packed in the file but whose members are columns in the schema.

        pylance writes such files of version 2.0 for a mark of "false" and cannot read them. Without this check the
        members would read as null, because the file does not name them.
        """
        for path in self.leaves.values():
            for node in path.nodes:
                struct = node.field
                is_marked = any(key in struct.metadata for key in PACKED_KEYS) and not struct.is_packed
                if (
                    is_marked
                    and struct.id in ref.columns
                    and not any(member.id in ref.columns for member in _below(struct))
                ):
                    text = (
                        f"struct {struct.name!r} is packed in the file, and its metadata say that it is not: pylance "
                        "writes this for a mark that is neither absent nor true, and does not read it. Write it again"
                    )
                    raise FormatError(text, path=ref.key)

    def assemble_field(self, number: int, leaves: Mapping[int, pa.Array], num_rows: int) -> pa.Array:
        """The array of a field from leaf arrays of `num_rows` each. Fast path: the array of its only leaf."""
        leaf_id = self.flat_leaf_ids[number]
        if leaf_id is not None and leaf_id in leaves:
            return leaves[leaf_id]
        field, paths = self.fields[number], self.paths[number]
        array = leaves.get(paths[0].leaf.id) if len(paths) == 1 else None
        is_whole = array is not None and array.type == field.arrow_type
        return array if is_whole else merge(field, leaves, num_rows)


def _below(field: Field) -> Iterator[Field]:
    for child in field.children:
        yield from child.walk()
