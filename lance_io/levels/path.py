"""The path from a top-level field to one leaf column.

Every node on the path owns one layer of the page: a struct or the leaf an item layer, a list or map a list layer. Pages
list their layers innermost first (spec: structural encodings 2.1, section 2.1); paths are outermost first, as schemas.
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
DEFINITION_LEVELS: Final = (0, 0, 0, 1, 1, 1, 2)  # number of levels per layer value
WIDE_OFFSETS: Final = 128  # flag in kernel programs: this list has 64-bit offsets


class NodeKind(Enum):
    """Kind of nesting that a field adds to the leaves below it."""

    LEAF = "leaf"
    STRUCT = "struct"
    LIST = "list"
    MAP = "map"
    FIXED_SIZE_LIST = "fixed_size_list"  # of structs; of primitives it is a leaf


@dataclass(frozen=True, slots=True)
class PathNode:
    """One field on a path. `arrow_type` is the type of an array of this node that holds only this leaf."""

    kind: NodeKind
    field: Field
    arrow_type: pa.DataType


@dataclass(frozen=True, slots=True)
class StoredMembers:
    """A packed struct as stored in pages, if the table now declares other members.

    dtype      type of the stored struct
    positions  positions of the table's members in the stored struct, in the table's order
    """

    dtype: pa.DataType
    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LeafPath:
    """The path to a leaf column.

    nodes            from the top-level field (first) to the leaf (last)
    members          the stored packed struct, if it differs from the leaf's node
    leaf             the field that owns the column
    leaf_type        Arrow type of the stored leaf arrays
    value_bytes_max  limit of the decoded bytes of a value
    slots_per_row    page rows per table row: more than 1 only below a fixed-size list of structs (spec: 10.6)
    """

    nodes: tuple[PathNode, ...]
    members: StoredMembers | None = None
    value_bytes_max: int = field(default=VALUE_BYTES_MAX, repr=False, compare=False)
    leaf: Field = field(init=False, repr=False, compare=False)
    leaf_type: pa.DataType = field(init=False, repr=False, compare=False)
    slots_per_row: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        above, last = self.nodes[:-1], self.nodes[-1]  # plain columns have only the leaf
        lists = [node.arrow_type for node in self.nodes if node.kind is NodeKind.FIXED_SIZE_LIST] if above else []
        object.__setattr__(self, "leaf", last.field)
        object.__setattr__(self, "leaf_type", self.members.dtype if self.members else last.arrow_type)
        object.__setattr__(self, "slots_per_row", math.prod([dtype.list_size for dtype in lists]) if lists else 1)

    @property
    def skeleton(self) -> pa.DataType:
        """Leaf type and nesting without names, which may change. A table and its files must agree on it."""
        dtype = self.nodes[-1].arrow_type
        for node in reversed(self.nodes[:-1]):
            dtype = _single(node.kind, node.field, pa.field("", dtype))
        return dtype

    @property
    def array_kind(self) -> str:
        """The schema's part of a page's `join_key`: pages can be joined only if it is equal."""
        kind = str(self.nodes[0].arrow_type)
        return f"{kind} of {self.members.positions}" if self.members else kind

    def as_declared(self, declared: LeafPath) -> LeafPath | None:
        """The path that reads this column of a file as the table declares it; None if the types do not match.

        This is the path itself, unless members of a packed struct were dropped, renamed or made nullable after the
        file was written: then it is a path to the table's members, matched by the field ids in the file. If these ids
        are not the table's, names and nullability must be equal.
        """
        positions = self._positions_of(declared)
        if positions is not None:
            stored, dtype = self.leaf_type, declared.leaf_type
            is_same = dtype == stored and positions == tuple(range(stored.num_fields))
            path = self if is_same else self._with(dtype, positions)
            if path.skeleton == declared.skeleton:
                return path
        return self if self.skeleton == declared.skeleton else None

    def _positions_of(self, declared: LeafPath) -> tuple[int, ...] | None:
        """Positions of the declared members in a packed struct. None for other leaves, and if a member is missing."""
        leaf, wanted = self.leaf, declared.leaf
        if not (leaf.is_packed and wanted.is_packed) or leaf.holds_blobs or leaf.id != wanted.id:
            return None
        by_id = {child.id: position for position, child in enumerate(leaf.children)}
        if len(by_id) < len(leaf.children):
            return None
        positions = [by_id.get(child.id, -1) for child in wanted.children]
        is_stored = all(
            position >= 0 and leaf.children[position].arrow_type == child.arrow_type
            for position, child in zip(positions, wanted.children, strict=True)
        )
        return tuple(positions) if is_stored else None

    def _with(self, dtype: pa.DataType, positions: tuple[int, ...]) -> LeafPath:
        """This path with its packed struct reduced to the members at `positions`, as type `dtype`."""
        nodes = [replace(self.nodes[-1], arrow_type=dtype)]
        for node in reversed(self.nodes[:-1]):
            below = nodes[0].field.arrow_field(nodes[0].arrow_type)
            nodes.insert(0, replace(node, arrow_type=_single(node.kind, node.field, below)))
        return LeafPath(tuple(nodes), StoredMembers(self.leaf_type, positions), self.value_bytes_max)

    def allowing(self, value_bytes_max: int) -> LeafPath:
        """The same path with another limit of the decoded bytes of a value."""
        return self if value_bytes_max == self.value_bytes_max else replace(self, value_bytes_max=value_bytes_max)

    @property
    def list_depth(self) -> int | None:
        """Index of the outermost list or map among the nodes; None without lists."""
        return next((at for at, node in enumerate(self.nodes) if node.kind in (NodeKind.LIST, NodeKind.MAP)), None)

    @property
    def num_lists(self) -> int:
        """Number of lists and maps above the leaf."""
        return sum([node.kind in (NodeKind.LIST, NodeKind.MAP) for node in self.nodes])

    @property
    def num_below_list(self) -> int:
        """Number of nodes below the outermost list."""
        depth = self.list_depth
        return 0 if depth is None else len(self.nodes) - depth - 1

    def below_list(self) -> LeafPath:
        """The path to the leaf from the items of the outermost list."""
        return LeafPath(self.nodes[-self.num_below_list :], self.members, self.value_bytes_max)

    @property
    def top(self) -> Field:
        """The top-level field."""
        return self.nodes[0].field

    @property
    def name(self) -> str:
        """The dotted path, for error messages."""
        return ".".join(node.field.name for node in self.nodes)

    def compile_layers(self, layers: Sequence[int]) -> bytes:
        """Compile the layers of a page to a kernel program, checked against this path.

        Raises FormatError if their number or kinds differ from the schema's nesting, UnsupportedError for
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
    if not (top.children or top.metadata):  # fast path: a leaf that is no blob
        return [LeafPath((PathNode(NodeKind.LEAF, top, top.arrow_type),))]
    return [LeafPath(nodes) for nodes in _walk(top)]


def column_paths(top: Field) -> list[LeafPath]:
    """The paths to all columns below a top-level field in a file of version 2.0, in column order.

    Structs and lists have columns there, too (spec: encodings 2.0, section 2): they are the leaves of their paths.
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
    """The type of a node with `item` as its only member: the full type without the other leaves."""
    if kind is NodeKind.STRUCT:
        return pa.struct([item])
    if kind is NodeKind.FIXED_SIZE_LIST:
        return pa.list_(item, field.arrow_type.list_size)
    return pa.large_list(item) if field.logical_type.startswith("large_list") else pa.list_(item)
