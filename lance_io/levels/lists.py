"""Takes nested arrays and types apart, and builds them over other items. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_io.levels.portable import kept

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.spans import IntArray


def items_of(array: pa.Array) -> tuple[pa.Array, IntArray]:
    """The items of an array of lists or maps, and i64[n + 1] offsets into them, from 0 on.

    Includes the items of null rows. The items of maps are structs of key and value.
    """
    if not len(array):  # may have no offsets: Arrow's Java library leaves them out up to version 18
        return array.values.slice(0, 0), np.zeros(1, np.int64)
    offsets: IntArray = array.offsets.to_numpy().astype(np.int64)
    first, end = int(offsets[0]), int(offsets[-1])
    return array.values.slice(first, end - first), offsets - first


def with_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch whose arrays of lists and maps all have offsets, also those without rows; mostly the same object.

    Arrow allows to leave them out, and its Java library does so. pyarrow reads them all the same in `nbytes`, which may
    end the process.
    """
    nested = [index for index, dtype in enumerate(batch.schema.types) if _is_nested(dtype)]
    if all(_has_offsets(batch.column(index)) for index in nested):
        return batch
    return pa.RecordBatch.from_arrays([_with_offsets(array) for array in batch.columns], schema=batch.schema)


def _has_offsets(array: pa.Array) -> bool:
    """Whether that holds for an array of a nested type."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    dtype = array.type
    if pa.types.is_struct(dtype):
        return all(_has_offsets(array.field(at)) for at, member in enumerate(dtype) if _is_nested(member.type))
    is_list = _is_list(dtype)
    if is_list and not len(array) and not array.buffers()[1]:
        return False
    if not (is_list or pa.types.is_fixed_size_list(dtype)):
        return True
    return not any(_is_nested(dtype.field(at).type) for at in range(dtype.num_fields)) or _has_offsets(array.values)


def _is_nested(dtype: pa.DataType) -> bool:
    return bool((dtype.storage_type if isinstance(dtype, pa.BaseExtensionType) else dtype).num_fields)


def _with_offsets(array: pa.Array) -> pa.Array:
    dtype = array.type
    if isinstance(dtype, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(dtype, _with_offsets(array.storage))
    buffers = [validity(array)] if dtype.num_fields else []
    if pa.types.is_struct(dtype):
        children = [_with_offsets(array.field(index)) for index in range(dtype.num_fields)]
    elif pa.types.is_fixed_size_list(dtype):
        size = dtype.list_size
        children = [_with_offsets(array.values.slice(array.offset * size, len(array) * size))]
    elif _is_list(dtype):
        items, offsets = items_of(array)
        buffers.append(pa.py_buffer(offsets.astype(np.int64 if pa.types.is_large_list(dtype) else np.int32)))
        children = [_with_offsets(items)]
    else:
        return array
    return pa.Array.from_buffers(dtype, len(array), buffers, array.null_count, children=children)


def _is_list(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_list(dtype) or pa.types.is_large_list(dtype) or pa.types.is_map(dtype))


def visible_items(array: pa.Array) -> tuple[pa.Array, IntArray]:
    """As `items_of`, without the items of null rows."""
    items, offsets = items_of(array)
    if not array.null_count:
        return items, offsets
    is_there = array.is_valid().to_numpy(zero_copy_only=False)
    lengths = np.diff(offsets)
    if lengths[~is_there].any():
        items = kept(items, pa.array(np.repeat(is_there, lengths)))
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(np.where(is_there, lengths, 0), out=offsets[1:])
    return items, offsets


def with_items(array: pa.Array, offsets: IntArray, items: pa.Array) -> pa.Array:
    """An array with the rows and nulls of `array`, over other items: those of row i are `offsets[i]` to `[i + 1]`."""
    dtype = array.type
    width: type[np.signedinteger] = np.int32
    if pa.types.is_map(dtype):
        key, value = items.type
        target: pa.DataType = pa.map_(key.with_nullable(False), value)
    elif pa.types.is_large_list(dtype):
        target, width = pa.large_list(dtype.value_field.with_type(items.type)), np.int64
    else:
        target = pa.list_(dtype.value_field.with_type(items.type))
    buffers = [validity(array), pa.py_buffer(offsets.astype(width))]
    return pa.Array.from_buffers(target, len(array), buffers, array.null_count, children=[items])


def validity(array: pa.Array) -> pa.Buffer | None:
    """The validity bitmap of an array from its first row on, None without nulls."""
    if not array.null_count:
        return None
    if array.offset == 0:
        buffer: pa.Buffer | None = array.buffers()[0]
        return buffer
    bits: pa.Buffer = pa.concat_arrays([array.is_valid()]).buffers()[1]
    return bits


def with_inner(dtype: pa.DataType, changed: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A list, map or struct type with `changed` applied to its item, entry or field types; other types unchanged."""

    def of(field: pa.Field) -> pa.Field:
        return field.with_type(changed(field.type))

    if pa.types.is_map(dtype):
        return pa.map_(of(dtype.key_field), of(dtype.item_field))
    if pa.types.is_struct(dtype):
        return pa.struct([of(member) for member in dtype])
    if pa.types.is_fixed_size_list(dtype):
        return pa.list_(of(dtype.value_field), dtype.list_size)
    if pa.types.is_large_list(dtype):
        return pa.large_list(of(dtype.value_field))
    return pa.list_(of(dtype.value_field)) if pa.types.is_list(dtype) else dtype
