"""The way from a top-level field down to one leaf column.

Every node on it owns one layer of the page: a struct or the leaf an item layer, a list or map a list layer. Pages name
their layers innermost first (spec: structural encodings 2.1, section 2.1); paths are outermost first, like schemas.
"""

from __future__ import annotations

import math
from dataclasses import field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lance_io.errors import FormatError, UnsupportedError
from lance_io.limits import VALUE_BYTES_MAX
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_io.format.schema import Field

ALL_VALID_ITEM: Final = 1
ITEM_LAYERS: Final = (ALL_VALID_ITEM, 3)  # the latter is a nullable item
LIST_LAYERS: Final = (2, 4, 5, 6)  # all valid, nullable, emptyable, null and empty
DEFINITION_LEVELS: Final = (0, 0, 0, 1, 1, 1, 2)  # levels that each layer value owns
WIDE_OFFSETS: Final = 128  # kernel programs: this list has 64-bit offsets


class NodeKind(Enum):
    """What a field adds to the nesting of the leaves below it."""

    LEAF = "leaf"
    STRUCT = "struct"
    LIST = "list"
    MAP = "map"
    FIXED_SIZE_LIST = "fixed_size_list"  # of structs; of primitives it is a leaf


@dataclass(frozen=True, slots=True)
class PathNode:
    """One field on the way. `arrow_type` is what an array of this node has when it holds this one leaf only."""

    kind: NodeKind
    field: Field
    arrow_type: pa.DataType


@dataclass(frozen=True, slots=True)
class StoredMembers:
    """A packed struct as the pages of a file hold it, where the table has other members now.

    dtype   type of all that is stored
    places  where the members of the table's struct are among these, in its order
    """

    dtype: pa.DataType
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LeafPath:
    """The way to a leaf column.

    nodes          from the top-level field (first) to the leaf (last)
    members        what pages hold of a packed struct, unless that is what its node says
    leaf           the field that owns the column
    leaf_type      Arrow type of the leaf arrays as pages hold them
    value_bytes_max  that a value may decode to
    slots_per_row  page rows per table row: more than 1 only below a fixed-size list of structs (spec: 10.6)
    """

    nodes: tuple[PathNode, ...]
    members: StoredMembers | None = None
    value_bytes_max: int = field(default=VALUE_BYTES_MAX, repr=False, compare=False)
    leaf: Field = field(init=False, repr=False, compare=False)
    leaf_type: pa.DataType = field(init=False, repr=False, compare=False)
    slots_per_row: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        above, last = self.nodes[:-1], self.nodes[-1]  # of plain columns the latter only
        lists = [node.arrow_type for node in self.nodes if node.kind is NodeKind.FIXED_SIZE_LIST] if above else []
        object.__setattr__(self, "leaf", last.field)
        object.__setattr__(self, "leaf_type", self.members.dtype if self.members else last.arrow_type)
        object.__setattr__(self, "slots_per_row", math.prod([dtype.list_size for dtype in lists]) if lists else 1)

    @property
    def skeleton(self) -> pa.DataType:
        """Leaf type and nesting without names, which may change: what a table and its files must agree about."""
        dtype = self.nodes[-1].arrow_type
        for node in reversed(self.nodes[:-1]):
            dtype = _single(node.kind, node.field, pa.field("", dtype))
        return dtype

    @property
    def array_kind(self) -> str:
        """What decoded pages must have in common to make one array, as far as it is up to the schema."""
        kind = str(self.nodes[0].arrow_type)
        return f"{kind} of {self.members.places}" if self.members else kind

    def as_declared(self, declared: LeafPath) -> LeafPath | None:
        """How a column of a file, which this is, gives what a table declares for it; None when it does not.

        That is this path itself, unless members of a packed struct were dropped, renamed or made nullable after the
        file was written: then it is a path that leads to the table's members. They are found by their field ids, which
        files note. Only when these are not the table's must names and nullability be the same.
        """
        places = self._places_of(declared)
        if places is not None:
            stored, dtype = self.leaf_type, declared.leaf_type
            found = self if dtype == stored and places == tuple(range(stored.num_fields)) else self._with(dtype, places)
            if found.skeleton == declared.skeleton:
                return found
        return self if self.skeleton == declared.skeleton else None

    def _places_of(self, declared: LeafPath) -> tuple[int, ...] | None:
        """Where the members of a packed struct are here; None for other leaves, and unless all of them are."""
        leaf, wanted = self.leaf, declared.leaf
        if not (leaf.is_packed and wanted.is_packed) or leaf.holds_blobs or leaf.id != wanted.id:
            return None
        places = {child.id: place for place, child in enumerate(leaf.children)}
        if len(places) < len(leaf.children):
            return None
        found = [places.get(child.id, -1) for child in wanted.children]
        is_stored = all(
            place >= 0 and leaf.children[place].arrow_type == child.arrow_type
            for place, child in zip(found, wanted.children, strict=True)
        )
        return tuple(found) if is_stored else None

    def _with(self, dtype: pa.DataType, places: tuple[int, ...]) -> LeafPath:
        """This path, to some members of its packed struct, which become a struct of another type."""
        nodes = [replace(self.nodes[-1], arrow_type=dtype)]
        for node in reversed(self.nodes[:-1]):
            below = nodes[0].field.arrow_field(nodes[0].arrow_type)
            nodes.insert(0, replace(node, arrow_type=_single(node.kind, node.field, below)))
        return LeafPath(tuple(nodes), StoredMembers(self.leaf_type, places), self.value_bytes_max)

    def allowing(self, value_bytes_max: int) -> LeafPath:
        """The same path to values that may decode to so many bytes."""
        return self if value_bytes_max == self.value_bytes_max else replace(self, value_bytes_max=value_bytes_max)

    @property
    def list_depth(self) -> int | None:
        """Place of the outermost list or map among the nodes; None where there is none."""
        return next((at for at, node in enumerate(self.nodes) if node.kind in (NodeKind.LIST, NodeKind.MAP)), None)

    @property
    def num_lists(self) -> int:
        """How many lists and maps are above the leaf."""
        return sum([node.kind in (NodeKind.LIST, NodeKind.MAP) for node in self.nodes])

    @property
    def num_below_list(self) -> int:
        """How many nodes are below the outermost list."""
        depth = self.list_depth
        return 0 if depth is None else len(self.nodes) - depth - 1

    def below_list(self) -> LeafPath:
        """The way to the leaf from the items of the outermost list."""
        return LeafPath(self.nodes[-self.num_below_list :], self.members, self.value_bytes_max)

    @property
    def top(self) -> Field:
        """The top-level field."""
        return self.nodes[0].field

    @property
    def name(self) -> str:
        """The dotted path, for messages."""
        return ".".join(node.field.name for node in self.nodes)

    def compile_layers(self, layers: Sequence[int]) -> bytes:
        """The layers of a page, checked against this path, as a kernel program.

        Raises FormatError when their number or kinds differ from the schema's nesting, UnsupportedError for
        fixed-size lists of structs inside lists, which no release reads.
        """
        kinds = [node.kind for node in self.nodes]
        if NodeKind.FIXED_SIZE_LIST in kinds:
            above = kinds[: kinds.index(NodeKind.FIXED_SIZE_LIST)]
            if NodeKind.LIST in above or NodeKind.MAP in above:
                raise UnsupportedError("fixed-size lists of structs inside lists: their pages do not tell rows apart")
        if len(layers) != len(self.nodes):
            raise FormatError(f"{len(layers)} layers for a field nested {len(self.nodes)} deep ({self.name})")
        program = bytearray([len(layers)])
        for layer, node in zip(layers, reversed(self.nodes), strict=True):
            is_list = node.kind in (NodeKind.LIST, NodeKind.MAP)
            if layer not in (LIST_LAYERS if is_list else ITEM_LAYERS):
                raise FormatError(f"layer {layer} where the schema has {node.kind.value} {node.field.name!r}")
            program.append(layer | (WIDE_OFFSETS if pa.types.is_large_list(node.arrow_type) else 0))
        return bytes(program)


def leaf_paths(top: Field) -> list[LeafPath]:
    """The leaf columns below a top-level field, in column order (spec: file container, section 2.2)."""
    if not (top.children or top.metadata):  # the leaf itself, and no blob, as nearly all are
        return [LeafPath((PathNode(NodeKind.LEAF, top, top.arrow_type),))]
    return [LeafPath(nodes) for nodes in _walk(top)]


def column_paths(top: Field) -> list[LeafPath]:
    """The ways to all columns below a top-level field in a file of version 2.0, in column order: structs and lists have
    columns there, too (spec: encodings 2.0, section 2). A way that ends at a struct or list has that for its leaf.
    """
    return [LeafPath(nodes) for nodes in _walk_columns(top)]


def _walk_columns(field: Field) -> Iterator[tuple[PathNode, ...]]:
    if field.has_column:
        yield (PathNode(NodeKind.LEAF, field, field.describe_blobs().arrow_type),)
        return
    kind = _kind(field)
    yield (PathNode(kind, field, field.describe_blobs().arrow_type),)
    for child in field.children:
        for below in _walk_columns(child):
            item = child.arrow_field(below[0].arrow_type)
            yield (PathNode(kind, field, _single(kind, field, item)), *below)


def _walk(field: Field) -> Iterator[tuple[PathNode, ...]]:
    if field.has_column:
        yield (PathNode(NodeKind.LEAF, field, field.describe_blobs().arrow_type),)
        return
    kind = _kind(field)
    for child in field.children:
        for below in _walk(child):
            item = child.arrow_field(below[0].arrow_type)
            yield (PathNode(kind, field, _single(kind, field, item)), *below)


def _kind(field: Field) -> NodeKind:
    logical = field.logical_type
    if logical == "struct":
        return NodeKind.STRUCT
    if logical.startswith(("list", "large_list")):
        return NodeKind.LIST
    if logical == "map":
        return NodeKind.MAP
    if logical.startswith("fixed_size_list:"):
        return NodeKind.FIXED_SIZE_LIST
    raise FormatError(f"field {field.name!r} of type {logical!r} has children")


def _single(kind: NodeKind, field: Field, item: pa.Field[Any]) -> pa.DataType:
    """The type of a node that holds one leaf, in its member `item`: the full type without the other leaves."""
    if kind is NodeKind.STRUCT:
        return pa.struct([item])
    if kind is NodeKind.FIXED_SIZE_LIST:
        return pa.list_(item, field.arrow_type.list_size)
    return pa.large_list(item) if field.logical_type.startswith("large_list") else pa.list_(item)
