"""Splits a leaf array into the buffers that the writing kernels take: the reverse of `values.py`.

    fixed width       [values]; booleans are a bitmap
    variable width    [offsets, bytes]
    fixed-size list   [bitmap of the items] for each level of lists that has null items, then the buffers of the
                      innermost items; items of type null have no buffers
    packed struct     [rows]: members of fixed width, back to back

Zero-copy except for the rows of packed structs. Bitmaps may begin inside a byte, so every buffer comes with the bit
at which its first value begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from lance_io import _kernels
from lance_io.codecs.tree import ChildrenShape, FixedShape, ListShape, Shape, VariableShape, shape_bits
from lance_io.errors import UnsupportedError
from lance_io.levels.chunks import OFFSET_BYTES
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

_VARIABLE: Final = {kind: VariableShape(8 * width) for kind, width in OFFSET_BYTES.items()}
Source: TypeAlias = tuple[Any, int]
"""A buffer that a kernel takes, and the bit at which its first value begins."""


@dataclass(frozen=True, slots=True, eq=False)
class LeafValues:
    """The values of a page, without their nulls.

    shape    how the values are stored
    sources  one buffer after the other, in the order of the shape
    """

    shape: Shape
    num_values: int
    sources: list[Source]

    @property
    def data(self) -> Any:
        """The bytes of fixed-width values."""
        return self.sources[0][0]

    @property
    def num_bytes(self) -> int:
        """Bytes of all values: bitmaps rounded up, offsets included."""
        match self.shape:
            case VariableShape():
                offsets, data = self.sources
                return int(memoryview(offsets[0]).nbytes + memoryview(data[0]).nbytes)
            case shape:
                return (shape_bits(shape) * self.num_values + 7) // 8


def leaf_values(array: pa.Array) -> LeafValues:
    """The buffers of a leaf array; its own nulls are ignored.

    Raises UnsupportedError for a type that pages do not store.
    """
    shape = _shape(array)
    return LeafValues(shape, len(array), list(_sources(array, shape)))


def has_plain_rows(dtype: pa.StructType) -> bool:
    """Whether the members of a packed struct are of a fixed number of whole bytes each."""
    members = (dtype.field(index).type for index in range(dtype.num_fields))
    return all(not pa.types.is_nested(each) and _byte_width(each) > 0 for each in members)


def _byte_width(dtype: pa.DataType) -> int:
    """Bytes of a value; 0 for values that are not whole bytes of one width."""
    try:
        return 0 if dtype.bit_width % 8 else dtype.bit_width // 8
    except ValueError:
        return 0


def _shape(array: pa.Array) -> Shape:
    dtype = array.type
    if (variable := _VARIABLE.get(dtype.id)) is not None:
        return variable
    if pa.types.is_fixed_size_list(dtype):
        items = _items(array)
        if pa.types.is_null(items.type):
            return ListShape(dtype.list_size, True, FixedShape(0))
        return ListShape(dtype.list_size, items.null_count > 0, _shape(items))
    if pa.types.is_struct(dtype):
        return ChildrenShape(tuple(_shape(_member(array, i)) for i in range(dtype.num_fields)))
    try:
        return FixedShape(dtype.bit_width)
    except ValueError:
        raise UnsupportedError(f"values of type {dtype} are not stored in pages") from None


def _sources(array: pa.Array, shape: Shape) -> Iterator[Source]:
    start, stop = array.offset, array.offset + len(array)
    match shape:
        case FixedShape(0):
            yield b"", 0
        case FixedShape(bits) if bits % 8:
            yield _bitmap(array.buffers()[1], start, len(array))
        case FixedShape(bits):
            yield _slice(array.buffers()[1], start * bits // 8, stop * bits // 8), 0
        case VariableShape(offset_bits):
            _, offsets, data = array.buffers()
            width = offset_bits // 8
            if not len(array) or offsets is None:
                yield bytes(width), 0
            else:
                yield _slice(offsets, start * width, (stop + 1) * width), 0
            yield (b"" if data is None else memoryview(data)), 0
        case ListShape(_, has_validity, inner):
            items = _items(array)
            if has_validity and pa.types.is_null(items.type):
                yield bytes((len(items) + 7) // 8), 0
            elif has_validity:
                yield _bitmap(items.buffers()[0], items.offset, len(items))
            yield from _sources(items, inner)
        case ChildrenShape(children):
            yield _packed_rows(array, children), 0


def _items(array: pa.Array) -> pa.Array:
    size = array.type.list_size
    return array.values.slice(array.offset * size, len(array) * size)


def _member(array: pa.Array, index: int) -> pa.Array:
    """A member of a packed struct. `field` respects the struct's offset; `flatten` would also apply its nulls."""
    return array.field(index)


def _slice(buffer: pa.Buffer | None, start: int, stop: int) -> memoryview:
    return memoryview(b"") if buffer is None else memoryview(buffer)[start:stop]


def _bitmap(buffer: pa.Buffer | None, start: int, count: int) -> Source:
    """The bytes that contain the bits `start` to `start + count`, and the first bit's position."""
    return _slice(buffer, start // 8, (start + count + 7) // 8), start % 8


def _packed_rows(array: pa.Array, children: tuple[Shape, ...]) -> Any:
    members = []
    for index, child in enumerate(children):
        if not isinstance(child, FixedShape) or child.bits % 8:
            dtype = array.type.field(index).type
            raise UnsupportedError(f"packed struct with a member of type {dtype}; its rows hold whole bytes only")
        members.append((next(_sources(_member(array, index), child))[0], child.bits // 8))
    return _kernels.pack_rows(members, len(array))
