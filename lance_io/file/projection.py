"""Which leaves a projection needs, which file of a fragment has them, and how they become fields.

A field's leaf columns may lie in several files of a fragment, or in none: then the field reads as null there.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from lance_io.levels.assemble import merge
from lance_io.levels.path import leaf_paths
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from lance_io.file.source import FileRef, FragmentSource
    from lance_io.format.schema import Field
    from lance_io.levels.path import LeafPath


@dataclass(frozen=True, slots=True)
class FileColumns:
    """What to read of one file: parallel lists of leaf field ids, column indices, and how the table declares
    the leaves: paths, and types (`LeafPath.skeleton`).

    is_all  the file has every leaf of the projection
    places  where each leaf is in the lists, by field id
    """

    ref: FileRef
    leaf_ids: list[int]
    columns: list[int]
    paths: list[LeafPath]
    types: list[pa.DataType]
    is_all: bool
    places: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "places", {leaf: at for at, leaf in enumerate(self.leaf_ids)})


class Projection:
    """Projected fields and the leaves they need.

    fields  pruned top-level schema fields, blobs replaced by their descriptions; results come in this order
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        self.fields = [field.described() for field in fields]
        self.paths: list[list[LeafPath]] = [leaf_paths(field) for field in self.fields]
        self.leaves = {path.leaf.id: path for paths in self.paths for path in paths}
        self._types = {leaf: path.skeleton for leaf, path in self.leaves.items()}
        # of fields that are a leaf, as most are: its id
        self._lone = [paths[0].leaf.id if len(paths) == 1 == len(paths[0].nodes) else None for paths in self.paths]
        self._located: dict[int, tuple[FragmentSource, list[FileColumns]]] = {}  # by identity: sources are long tuples

    def again(self) -> Projection:
        """The same projection for another table version."""
        found = Projection.__new__(Projection)
        found.__dict__.update(self.__dict__, _located={})
        return found

    def locate(self, source: FragmentSource) -> list[FileColumns]:
        """Which file of a fragment holds which leaves; leaves that no file has are left out."""
        known = self._located.get(id(source))
        if known is not None:
            return known[1]
        found = []
        for ref in source.files:
            here = [leaf for leaf in self.leaves if leaf in ref.columns]
            if here:
                paths = [self.leaves[leaf] for leaf in here]
                types = [self._types[leaf] for leaf in here]
                is_all = len(here) == len(self.leaves)
                found.append(FileColumns(ref, here, [ref.columns[leaf] for leaf in here], paths, types, is_all))
        self._located[id(source)] = source, found
        return found

    def assemble_field(self, number: int, leaves: Mapping[int, pa.Array], num_rows: int) -> pa.Array:
        """The array of a field from leaf arrays of `num_rows` each. Most fields have one leaf, whose array it is."""
        lone = self._lone[number]
        if lone is not None and lone in leaves:
            return leaves[lone]
        field, paths = self.fields[number], self.paths[number]
        array = leaves.get(paths[0].leaf.id) if len(paths) == 1 else None
        is_whole = array is not None and array.type == field.arrow_type
        return array if is_whole else merge(field, leaves, num_rows)
