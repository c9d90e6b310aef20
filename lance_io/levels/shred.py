"""Converts chunks of a leaf column to a page: levels, and the values of visible items.

One kernel call flattens the nesting and drops garbage: values in null lists, in lists of null structs and outside of
slices are not part of a page, and values of null items are overwritten. If there is nothing to drop, overwrite or join,
the values are a zero-copy slice of the input; plain columns do not need the kernel call.
Specification: structural encodings 2.1, section 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io import _kernels
from lance_io.errors import UnsupportedError
from lance_io.levels.assemble import arrow_buffer
from lance_io.levels.chunks import LIST_KINDS
from lance_io.levels.join import unify_dictionaries
from lance_io.levels.leafpage import LeafPage
from lance_io.levels.path import ALL_VALID_ITEM, NodeKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_io.levels.chunks import LeafChunk, Nest
    from lance_io.levels.leafpage import Levels

_ITEM: Final = 0
_NARROW_LIST: Final = 1
_WIDE_LIST: Final = 2
_REPEATED: Final = 3
_NULLS: Final = 4
_NULLABLE_STRUCT: Final = 5

_FIXED: Final = 0
_BITS: Final = 1
_NARROW: Final = 2
_WIDE: Final = 3
_VALIDITY: Final = 4


def shred(chunks: Sequence[LeafChunk]) -> LeafPage:
    """Convert chunks of one leaf column to one page.

    chunks  at least one, all of one column

    A layer is nullable if one of its slots is null, or one of the struct above it. A struct around a list is always
    nullable if its field allows nulls. Raises UnsupportedError for fixed-size lists of structs inside lists, and for
    dictionaries with more values together than their indices can address.
    """
    if len(chunks) == 1 and _is_plain(chunks[0]):
        (chunk,) = chunks
        leaf = _without_validity(chunk.leaf.slice(chunk.start, chunk.num_rows))
        return LeafPage(chunk.num_rows, (ALL_VALID_ITEM,), None, None, leaf)
    leaves = _one_dictionary([chunk.leaf for chunk in chunks])
    parts = [_parts(chunk, leaf) for chunk, leaf in zip(chunks, leaves, strict=True)]
    try:
        num_slots, num_items, rep, definition, layers, origin, values = _kernels.shred(parts)
    except NotImplementedError as error:
        raise UnsupportedError(str(error)) from None
    if values is None:
        leaf = _without_validity(leaves[origin[0]].slice(origin[1], num_items))
    else:
        leaf = _build(leaves[0], iter(values), num_items)
    return LeafPage(num_slots, tuple(layers), _levels(rep), _levels(definition), leaf)


def _is_plain(chunk: LeafChunk) -> bool:
    """Whether there is no nesting and no null: one value per row."""
    return not chunk.nests and not chunk.leaf.null_count and not pa.types.is_nested(chunk.leaf.type)


def _levels(memory: Any | None) -> Levels | None:
    return None if memory is None else np.frombuffer(memory, dtype=np.uint16)


# -- chunks as the kernel takes them ------------------------------------------------------------------------------


def _one_dictionary(leaves: list[pa.Array]) -> list[pa.Array]:
    """Dictionary arrays over one common dictionary; other arrays unchanged."""
    if not pa.types.is_dictionary(leaves[0].type) or len(leaves) == 1:
        return leaves
    try:
        return unify_dictionaries(leaves)
    except pa.ArrowInvalid:
        raise UnsupportedError(
            f"dictionaries with more values together than indices of {leaves[0].type.index_type} can tell apart"
        ) from None


def _parts(chunk: LeafChunk, leaf: pa.Array) -> tuple[int, int, list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    nodes = [_node(nest) for nest in chunk.nests]
    kind = _NULLS if pa.types.is_null(leaf.type) else _ITEM
    nodes.append((kind, len(leaf), _bitmap(leaf), leaf.offset, None, 1))
    return chunk.start, chunk.num_rows, nodes, list(_streams(leaf, leaf.offset, 1))


def _node(nest: Nest) -> tuple[Any, ...]:
    kind = _NULLABLE_STRUCT if nest.nullable else _ITEM
    if nest.kind in LIST_KINDS:
        assert nest.offsets is not None, "lists have offsets"
        kind = _WIDE_LIST if nest.offsets.itemsize == 8 else _NARROW_LIST
    elif nest.kind is NodeKind.FIXED_SIZE_LIST:
        kind = _REPEATED
    return kind, nest.length, nest.validity, nest.bit_offset, nest.offsets, nest.list_size


def _bitmap(array: pa.Array) -> pa.Buffer | None:
    """The validity bitmap of an array with nulls; None without nulls and for the null type."""
    return array.buffers()[0] if array.null_count else None


def _streams(array: pa.Array, first: int, units: int) -> Iterator[tuple[Any, ...]]:
    """The buffers of a leaf array.

    first  unit of slot 0 in the array's buffers
    units  units per slot of the leaf
    """
    dtype = array.type
    if pa.types.is_null(dtype):
        return
    if pa.types.is_struct(dtype):
        for i in range(dtype.num_fields):
            member = array.field(i)  # sliced like the struct
            start = first - array.offset + member.offset
            yield _VALIDITY, 0, units, start, _bitmap(member), None
            yield from _streams(member, start, units)
    elif pa.types.is_fixed_size_list(dtype):
        items = array.values
        start, units = items.offset + first * dtype.list_size, units * dtype.list_size
        yield _VALIDITY, 0, units, start, _bitmap(items), None
        yield from _streams(items, start, units)
    elif pa.types.is_boolean(dtype):
        yield _BITS, 0, units, first, array.buffers()[1], None
    elif (offset_bits := _offset_bits(dtype)) != 0:
        _, offsets, data = array.buffers()
        yield _WIDE if offset_bits == 64 else _NARROW, 0, units, first, offsets, data
    else:
        width = (dtype.index_type if pa.types.is_dictionary(dtype) else dtype).bit_width // 8
        yield _FIXED, width, units, first, array.buffers()[1], None


def _offset_bits(dtype: pa.DataType) -> int:
    if pa.types.is_string(dtype) or pa.types.is_binary(dtype):
        return 32
    return 64 if pa.types.is_large_string(dtype) or pa.types.is_large_binary(dtype) else 0


# -- arrays from the kernel's buffers -----------------------------------------------------------------------------


def _build(like: pa.Array, buffers: Iterator[Any], length: int) -> pa.Array:
    """An array of the type of `like` from the streams of its type."""
    dtype = like.type
    if pa.types.is_null(dtype):
        return pa.nulls(length)
    if pa.types.is_dictionary(dtype):
        indices = pa.Array.from_buffers(dtype.index_type, length, [None, arrow_buffer(next(buffers))], 0)
        return pa.DictionaryArray.from_arrays(indices, like.dictionary, ordered=dtype.ordered, safe=False)
    return _array(dtype, buffers, length, None)


def _array(dtype: pa.DataType, buffers: Iterator[Any], length: int, validity: pa.Buffer | None) -> pa.Array:
    nulls = 0 if validity is None else -1
    if pa.types.is_struct(dtype) or pa.types.is_fixed_size_list(dtype):
        slots = length * dtype.list_size if pa.types.is_fixed_size_list(dtype) else length
        children = []
        for i in range(dtype.num_fields):
            bitmap = arrow_buffer(next(buffers))
            children.append(_array(dtype.field(i).type, buffers, slots, bitmap))
        return pa.Array.from_buffers(dtype, length, [validity], nulls, children=children)
    if pa.types.is_null(dtype):
        return pa.nulls(length)
    count = 2 if _offset_bits(dtype) else 1
    data = [arrow_buffer(next(buffers)) for _ in range(count)]
    return pa.Array.from_buffers(dtype, length, [validity, *data], nulls)


def _without_validity(array: pa.Array) -> pa.Array:
    """An array without nulls, without its validity bitmap; its items may still have one."""
    dtype = array.type
    if pa.types.is_null(dtype) or array.buffers()[0] is None:
        return array
    if pa.types.is_dictionary(dtype):
        return pa.DictionaryArray.from_arrays(_without_validity(array.indices), array.dictionary, ordered=dtype.ordered)
    length, offset = len(array), array.offset
    if pa.types.is_struct(dtype):
        members = [array.field(i) for i in range(dtype.num_fields)]
        return pa.Array.from_buffers(dtype, length, [None], 0, children=members)
    if pa.types.is_fixed_size_list(dtype):
        return pa.Array.from_buffers(dtype, length, [None], 0, offset, children=[array.values])
    return pa.Array.from_buffers(dtype, length, [None, *array.buffers()[1:]], 0, offset)
