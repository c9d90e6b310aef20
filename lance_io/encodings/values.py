"""Builds leaf arrays from decoded buffers.

The kernels return raw buffers in the order of a codec's shape (`lance_io/_kernels.pyi`, "A decoded leaf"). This module
wraps them in an Arrow array of the field's type, zero-copy. `check_shape` runs once per page, when its messages are
parsed: a page whose codec cannot produce the declared type is rejected before anything is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_io.codecs.tree import ChildrenShape, FixedShape, ListShape, Shape, VariableShape
from lance_io.errors import FormatError
from lance_io.levels.assemble import arrow_buffer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def check_shape(dtype: pa.DataType, shape: Shape) -> None:
    """Raise FormatError unless values of this shape are values of this Arrow type."""
    if not _fits(dtype, shape):
        raise FormatError(f"the page holds {describe_shape(shape)}, which is not how a column of {dtype} is stored")


def _fits(dtype: pa.DataType, shape: Shape) -> bool:
    match shape:
        case FixedShape(bits):
            if bits == 0:  # fixed-size list items that are all null fit any type
                return True
            if pa.types.is_boolean(dtype):
                return bits in (1, 8)
            return not pa.types.is_nested(dtype) and _bits(dtype) == bits
        case VariableShape(offset_bits):
            return offset_bits == _offset_bits(dtype)
        case ListShape(items, _, inner):
            return pa.types.is_fixed_size_list(dtype) and dtype.list_size == items and _fits(dtype.value_type, inner)
        case ChildrenShape(children):
            return (
                pa.types.is_struct(dtype)
                and dtype.num_fields == len(children)
                and all(_fits(dtype.field(i).type, child) for i, child in enumerate(children))
            )


def _bits(dtype: pa.DataType) -> int:
    try:
        return int(dtype.bit_width)
    except ValueError:
        return 0


def _offset_bits(dtype: pa.DataType) -> int:
    if pa.types.is_string(dtype) or pa.types.is_binary(dtype):
        return 32
    if pa.types.is_large_string(dtype) or pa.types.is_large_binary(dtype):
        return 64
    return 0


def describe_shape(shape: Shape) -> str:
    """A shape in words, for messages."""
    match shape:
        case FixedShape(0):
            return "nulls"
        case FixedShape(bits):
            return f"values of {bits} bits"
        case VariableShape(offset_bits):
            return f"variable values with {offset_bits}-bit offsets"
        case ListShape(items, _, inner):
            return f"lists of {items} {describe_shape(inner)}"
        case ChildrenShape(children):
            return f"packed rows of {len(children)} members"


def buffer_count(shape: Shape) -> int:
    """Number of buffers that a kernel returns for values of this shape."""
    match shape:
        case FixedShape():
            return 1
        case VariableShape():
            return 2
        case ListShape(_, _, inner):
            return 1 + buffer_count(inner)
        case ChildrenShape(children):
            return sum(map(buffer_count, children))


def build_values(
    dtype: pa.DataType, shape: Shape, buffers: Sequence[Any], length: int, validity: Any | None, null_count: int
) -> pa.Array:
    """Wrap decoded buffers in a leaf array.

    buffers   from the kernel, `buffer_count(shape)` of them
    validity  bitmap of the leaf, or None when nothing is null
    """
    bitmap = None if validity is None else pa.py_buffer(validity)
    if type(shape) is VariableShape or (type(shape) is FixedShape and shape.bits != 8):  # fast path: no recursion
        return pa.Array.from_buffers(dtype, length, [bitmap, *map(pa.py_buffer, buffers)], null_count)
    return _build(dtype, shape, iter(buffers), length, bitmap, null_count)


def _build(
    dtype: pa.DataType, shape: Shape, buffers: Iterator[Any], length: int, bitmap: pa.Buffer | None, nulls: int
) -> pa.Array:
    match shape:
        case FixedShape(bits):
            data = next(buffers)
            if bits == 8 and pa.types.is_boolean(dtype):  # full-zip widens booleans to bytes (spec: 5.1)
                data = np.packbits(np.frombuffer(data, dtype=np.uint8) != 0, bitorder="little")
            return pa.Array.from_buffers(dtype, length, [bitmap, pa.py_buffer(data)], nulls)
        case VariableShape():
            offsets, data = arrow_buffer(next(buffers)), arrow_buffer(next(buffers))
            return pa.Array.from_buffers(dtype, length, [bitmap, offsets, data], nulls)
        case ListShape(items, _, inner):
            item_bitmap = arrow_buffer(next(buffers))
            if inner == FixedShape(0):
                return _lists_of_nulls(dtype, length, bitmap, nulls, item_bitmap, next(buffers))
            unknown = 0 if item_bitmap is None else -1
            child = _build(dtype.value_type, inner, buffers, length * items, item_bitmap, unknown)
            return pa.Array.from_buffers(dtype, length, [bitmap], nulls, children=[child])
        case ChildrenShape(children):
            members = [_build(dtype.field(i).type, child, buffers, length, None, 0) for i, child in enumerate(children)]
            return pa.Array.from_buffers(dtype, length, [bitmap], nulls, children=members)


def _lists_of_nulls(
    dtype: pa.DataType, length: int, bitmap: pa.Buffer | None, nulls: int, item_bitmap: pa.Buffer | None, _data: Any
) -> pa.Array:
    """Fixed-size lists of only null items, for which the page stores no values."""
    if item_bitmap is None or np.frombuffer(item_bitmap, dtype=np.uint8).any():
        raise FormatError(f"valid items in lists of {dtype.list_size}, but the page has no values")
    items = pa.nulls(length * dtype.list_size, dtype.value_type)
    return pa.Array.from_buffers(dtype, length, [bitmap], nulls, children=[items])
