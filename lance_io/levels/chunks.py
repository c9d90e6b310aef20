"""The part of a batch that belongs to one leaf column: the leaf array and the arrays above it.

A `LeafChunk` is a range of rows of a top-level array, seen from one leaf: a `Nest` per struct, list, map or fixed-size
list of structs on the path, outermost first, and the leaf array. Slicing it is zero-copy and changes two numbers; the
offsets locate the items of its rows. Arrow allows garbage under nulls; it stays until `shred` processes a page of
chunks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io.levels.path import NodeKind
from lance_io.levels.portable import copy_array
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_io.format.schema import Field
    from lance_io.spans import IntArray

LIST_KINDS: Final = (NodeKind.LIST, NodeKind.MAP)
OFFSET_BYTES: Final = {pa.string().id: 4, pa.binary().id: 4, pa.large_string().id: 8, pa.large_binary().id: 8}
"""Bytes per offset, by the ids of the string and binary types."""
_BYTES_EACH: Final = {
    **{dtype.id: 1 for dtype in (pa.null(), pa.bool_(), pa.int8(), pa.uint8())},
    **{dtype.id: 2 for dtype in (pa.int16(), pa.uint16(), pa.float16())},
    **{dtype.id: 4 for dtype in (pa.int32(), pa.uint32(), pa.float32(), pa.date32())},
    **{dtype.id: 8 for dtype in (pa.int64(), pa.uint64(), pa.float64(), pa.date64())},
}
"""Bytes per value, by type id; a boolean or null counts as one byte."""


@dataclass(frozen=True, slots=True, eq=False)
class Nest:
    """The array of one node above a leaf.

    length      number of slots
    validity    bitmap, bit `bit_offset + i` for slot i; None without nulls
    offsets     for lists and maps: i32 or i64[length + 1] into the slots of the node below
    list_size   for fixed-size lists: slots below per slot
    nullable    whether the field allows nulls
    """

    kind: NodeKind
    length: int
    validity: pa.Buffer | None
    bit_offset: int
    offsets: IntArray | None = None
    list_size: int = 1
    nullable: bool = True

    def below(self, start: int, end: int) -> tuple[int, int]:
        """The slots of the node below slots `start` to `end`, including those under nulls."""
        if self.offsets is not None:
            return int(self.offsets[start]), int(self.offsets[end])
        return start * self.list_size, end * self.list_size

    def cut(self, start: int, end: int) -> Nest:
        """A copy of slots `start` to `end`; its offsets into the node below start at 0."""
        validity, first = None, self.bit_offset + start
        if self.validity is not None:
            bits = memoryview(self.validity)[first // 8 : (self.bit_offset + end + 7) // 8]
            validity = pa.py_buffer(bytes(bits))
        offsets = None if self.offsets is None else self.offsets[start : end + 1] - self.offsets[start]
        return replace(self, length=end - start, validity=validity, bit_offset=first % 8, offsets=offsets)


@dataclass(frozen=True, slots=True, eq=False)
class LeafChunk:
    """Rows of one leaf column.

    nests     the nodes above the leaf, outermost first
    leaf      the leaf array, which has all slots that the nests refer to
    start     first row, as a slot of the outermost node
    num_rows  number of rows
    """

    nests: tuple[Nest, ...]
    leaf: pa.Array
    start: int
    num_rows: int

    @property
    def num_bytes(self) -> int:
        """Raw size of these rows: leaf data, and the offsets of lists on the path.

        Includes the offsets of strings; a boolean or null counts as one byte. So a page has at most as many items or
        lists as bytes.
        """
        return self._bytes(self.num_rows)

    def slice(self, start: int, num_rows: int) -> LeafChunk:
        """`num_rows` rows from row `start` on, zero-copy."""
        if not 0 <= start <= start + num_rows <= self.num_rows:
            raise IndexError(f"rows {start} to {start + num_rows} of {self.num_rows}")
        return replace(self, start=self.start + start, num_rows=num_rows)

    def rows_within(self, num_bytes: int) -> int:
        """Number of leading rows within a limit of bytes; 1 if even the first exceeds it."""
        low, high = min(1, self.num_rows), self.num_rows
        while low < high:
            middle = (low + high + 1) // 2
            if self._bytes(middle) <= num_bytes:
                low = middle
            else:
                high = middle - 1
        return low

    def copy(self) -> LeafChunk:
        """A copy that shares no memory with the original array, except the values of a dictionary."""
        start, end = self.start, self.start + self.num_rows
        nests = []
        for nest in self.nests:
            nests.append(nest.cut(start, end))
            start, end = nest.below(start, end)
        items = self.leaf.slice(start, end - start)
        return LeafChunk(tuple(nests), copy_array(items), 0, self.num_rows)

    def _bytes(self, num_rows: int) -> int:
        start, end = self.start, self.start + num_rows
        if not self.nests:
            return _raw_bytes(self.leaf, start, end)
        total = 0
        for nest in self.nests:
            if nest.offsets is not None:
                total += (end - start) * nest.offsets.itemsize
            start, end = nest.below(start, end)
        return total + _raw_bytes(self.leaf, start, end)


def leaf_chunks(top: Field, array: pa.Array) -> list[LeafChunk]:
    """All rows of a top-level array, by leaf column, in the order of `levels.path.leaf_paths(top)`.

    top    the field; its members are those of the array, in the same order
    array  its array, sliced or not: of its storage type, or an extension type over it; with descriptions of blobs
    """
    if not (top.children or isinstance(array.type, pa.BaseExtensionType)):  # fast path
        return [LeafChunk((), leaf_array(array), 0, len(array))]
    return [LeafChunk(nests, leaf, 0, len(array)) for nests, leaf in _walk(top, array)]


def _walk(field: Field, array: pa.Array) -> Iterator[tuple[tuple[Nest, ...], pa.Array]]:
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if field.has_column:
        yield (), leaf_array(array)
        return
    nest, members = _open(array)
    nest = replace(nest, nullable=field.nullable)
    for child, member in zip(field.children, members, strict=True):
        for nests, leaf in _walk(child, member):
            yield (nest, *nests), leaf


def _open(array: pa.Array) -> tuple[Nest, list[pa.Array]]:
    """A nested array as a node and the arrays of its members, which begin at slot 0 of the node."""
    dtype, length = array.type, len(array)
    validity = array.buffers()[0] if array.null_count else None
    if pa.types.is_struct(dtype):
        members = [array.field(i) for i in range(dtype.num_fields)]
        return Nest(NodeKind.STRUCT, length, validity, array.offset), members
    if pa.types.is_fixed_size_list(dtype):
        size = dtype.list_size
        items = array.values.slice(array.offset * size, length * size)
        return Nest(NodeKind.FIXED_SIZE_LIST, length, validity, array.offset, list_size=size), [items]
    kind = NodeKind.MAP if pa.types.is_map(dtype) else NodeKind.LIST
    return Nest(kind, length, validity, array.offset, _offsets(array)), [array.values]


def _offsets(array: pa.Array) -> IntArray:
    width: Any = np.int64 if pa.types.is_large_list(array.type) else np.int32
    buffer = array.buffers()[1]
    if buffer is None or buffer.size == 0:  # Arrow allows this for an empty array
        return np.zeros(1, dtype=width)
    start = array.offset * np.dtype(width).itemsize
    offsets: IntArray = np.frombuffer(buffer, dtype=width, count=len(array) + 1, offset=start)
    return offsets


def leaf_array(leaf: pa.Array) -> pa.Array:
    """A leaf array in stored form: dictionaries have all nulls in their indices (spec: encodings 2.1, 3.5)."""
    if not isinstance(leaf, pa.DictionaryArray) or not leaf.dictionary.null_count:
        return leaf
    is_valid = leaf.dictionary.is_valid().to_numpy(zero_copy_only=False)
    new_indices = pa.array(np.cumsum(is_valid) - 1, leaf.type.index_type, mask=~is_valid)
    return pa.DictionaryArray.from_arrays(new_indices.take(leaf.indices), leaf.dictionary.drop_null())


def array_bytes(array: pa.Array) -> int:
    """Size of a top-level array in bytes: raw size as for pages; Arrow's `nbytes` if it is nested."""
    return int(array.nbytes) if array.type.num_fields else _raw_bytes(array, 0, len(array))


def _raw_bytes(array: pa.Array, start: int, end: int) -> int:
    """Raw size of slots `start` to `end` of a leaf array, in bytes."""
    dtype = array.type
    kind = dtype.id  # comparing numbers is fast, which matters for small batches
    if kind in OFFSET_BYTES:
        if start == end:
            return 0
        width, offsets, slot = OFFSET_BYTES[kind], memoryview(array.buffers()[1]), array.offset
        first = _int_at(offsets, (slot + start) * width, width)
        return _int_at(offsets, (slot + end) * width, width) - first + (end - start) * width
    if kind in _BYTES_EACH:
        return (end - start) * _BYTES_EACH[kind]
    if pa.types.is_struct(dtype):
        return sum(_raw_bytes(array.field(i), start, end) for i in range(dtype.num_fields))
    if pa.types.is_fixed_size_list(dtype):
        size, offset = dtype.list_size, array.offset
        return _raw_bytes(array.values, (offset + start) * size, (offset + end) * size)
    if pa.types.is_dictionary(dtype):
        dtype = dtype.index_type
    return (end - start) * int(dtype.bit_width) // 8


def _int_at(buffer: memoryview, position: int, width: int) -> int:
    return int.from_bytes(buffer[position : position + width], "little")
