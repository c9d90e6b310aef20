"""Joins arrays of one type, also where `pyarrow` alone would fail or return other values.

To join dictionary arrays, `pyarrow` unifies their whole dictionaries. The dictionaries of several pages may have more
values together than narrow indices can address, although the joined rows use only a few; and pylance builds other
dictionaries, so that its table would not be equal. `pyarrow` would also unify `float16` dictionaries by converting the
bits of their values as integers: here they are viewed as integers meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_io.errors import SchemaError
from lance_io.levels.lists import with_inner
from lance_io.levels.portable import copy_array
from lance_io.spans import distinct

if TYPE_CHECKING:
    from collections.abc import Callable


class TooManyValues(pa.ArrowInvalid):  # type: ignore[misc]  # pyarrow has no types
    """The rows of a dictionary column use more values than its indices can address."""


def join_arrays(arrays: list[pa.Array]) -> pa.Array:
    """Concatenate arrays of one type. Raises `TooManyValues`."""
    if len(arrays) == 1:
        return arrays[0]
    dtype = arrays[0].type
    if not holds_dictionary(dtype):
        return pa.concat_arrays(arrays)
    bits = _replace_dictionaries(dtype, _float16_as_bits)
    if bits != dtype:
        return join_arrays([array.view(bits) for array in arrays]).view(dtype)
    return pa.concat_arrays(_over_one_dictionary(arrays))


def join_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate batches of one schema.

    Raises `SchemaError` if a dictionary column would have more values than its indices can address.
    """
    if len(batches) == 1:
        return batches[0]
    schema, arrays = batches[0].schema, []
    if not any(map(holds_dictionary, schema.types)):
        return pa.concat_batches(batches)
    for index, name in enumerate(schema.names):
        try:
            arrays.append(join_arrays([batch.column(index) for batch in batches]))
        except TooManyValues as error:
            raise SchemaError(f"column {name!r}: {error}") from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def join_rows(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """As `join_batches`, but returns several batches if one would have more values than indices can address."""
    try:
        return [join_batches(batches)]
    except SchemaError:
        half = len(batches) // 2
        return [*join_rows(batches[:half]), *join_rows(batches[half:])]


def holds_dictionary(dtype: pa.DataType) -> bool:
    """Whether a type is a dictionary, or has one inside."""
    return isinstance(dtype, pa.DictionaryType) or any(
        holds_dictionary(dtype.field(i).type) for i in range(dtype.num_fields)
    )


def _over_one_dictionary(arrays: list[pa.Array]) -> list[pa.Array]:
    """The same arrays, with one common dictionary per dictionary column."""
    dtype = arrays[0].type
    if pa.types.is_dictionary(dtype):
        return _dictionaries(arrays)
    if pa.types.is_struct(dtype):
        arrays = [copy_array(array) for array in arrays]  # the children of a slice would be unsliced
        columns = ([array.field(at) for array in arrays] for at in range(dtype.num_fields))
        members = [_over_one_dictionary(column) for column in columns]
        below = [list(children) for children in zip(*members, strict=True)]
        num_buffers = 1
    elif pa.types.is_list(dtype) or pa.types.is_large_list(dtype) or pa.types.is_map(dtype):
        arrays = [copy_array(array) for array in arrays]
        is_map = pa.types.is_map(dtype)
        items = [_entries(array) if is_map else array.values for array in arrays]
        below = [[array] for array in _over_one_dictionary(items)]
        num_buffers = 2
    elif pa.types.is_fixed_size_list(dtype):
        arrays = [copy_array(array) for array in arrays]
        below = [[array] for array in _over_one_dictionary([array.values for array in arrays])]
        num_buffers = 1
    else:
        return arrays
    return [
        pa.Array.from_buffers(dtype, len(array), array.buffers()[:num_buffers], array.null_count, children=children)
        for array, children in zip(arrays, below, strict=True)
    ]


def _dictionaries(arrays: list[pa.DictionaryArray]) -> list[pa.DictionaryArray]:
    """The same rows over one common dictionary, equal to pylance's.

    If the dictionaries have fewer values than there are rows (for booleans always), and the indices suffice, the common
    one is their concatenation. Otherwise it has each used value once.
    """
    dtype = arrays[0].type
    dictionaries = [array.dictionary for array in arrays]
    memory = {
        (len(values), values.offset, *(None if buffer is None else buffer.address for buffer in values.buffers()))
        for values in dictionaries
    }
    if len(memory) == 1:
        return arrays
    num_values, num_rows = sum(map(len, dictionaries)), sum(map(len, arrays))
    is_small = num_values < num_rows or pa.types.is_boolean(dtype.value_type)
    if not is_small or num_values > _indices_of(dtype.index_type):
        return _with_used_values(arrays)
    starts = np.cumsum([0, *map(len, dictionaries)])
    indices = [_shift(array.indices, start) for array, start in zip(arrays, starts[:-1], strict=True)]
    return _from_indices(dtype, indices, pa.concat_arrays(dictionaries))


def _with_used_values(arrays: list[pa.DictionaryArray]) -> list[pa.DictionaryArray]:
    used = [distinct(array.indices.drop_null().to_numpy()) for array in arrays]
    pairs = list(zip(arrays, used, strict=True))
    values = pa.concat_arrays([array.dictionary.take(pa.array(entries)) for array, entries in pairs])
    encoded = values.dictionary_encode("encode")
    codes, start, indices = encoded.indices.to_numpy(), 0, []
    for array, entries in pairs:
        numbers = np.zeros(len(array.dictionary), dtype=np.int64)
        numbers[entries] = codes[start : start + len(entries)]
        start += len(entries)
        indices.append(pa.array(numbers).take(array.indices))
    return _from_indices(arrays[0].type, indices, encoded.dictionary)


def _from_indices(dtype: pa.DictionaryType, indices: list[pa.Array], values: pa.Array) -> list[pa.DictionaryArray]:
    if len(values) > _indices_of(dtype.index_type):
        raise TooManyValues(f"the rows have {len(values)} values, which need a larger index type than {dtype}")
    return [
        pa.DictionaryArray.from_arrays(numbers.cast(dtype.index_type), values, ordered=dtype.ordered)
        for numbers in indices
    ]


def _shift(indices: pa.Array, by: int) -> pa.Array:
    numbers = indices.fill_null(0).to_numpy().astype(np.int64) + by
    return pa.array(numbers, mask=indices.is_null().to_numpy(zero_copy_only=False) if indices.null_count else None)


def _indices_of(dtype: pa.DataType) -> int:
    """How many values indices of a type can address."""
    return 1 << int(dtype.bit_width - pa.types.is_signed_integer(dtype))


def _entries(array: pa.MapArray) -> pa.StructArray:
    fields = [array.type.key_field, array.type.item_field]
    return pa.StructArray.from_arrays([array.keys, array.items], fields=fields)


def unify_dictionaries(arrays: list[pa.Array]) -> list[pa.Array]:
    """Arrays of one dictionary type without null entries, over one common dictionary.

    Raises `pa.ArrowInvalid` if they have more values together than indices can address.
    """
    dtype = arrays[0].type
    if pa.types.is_null(dtype.value_type):  # without entries
        return arrays
    bits = _float16_as_bits(dtype)
    chunks = pa.chunked_array([array.view(bits) for array in arrays]).unify_dictionaries().chunks
    return [chunk.view(dtype) for chunk in chunks]


def _float16_as_bits(dtype: pa.DictionaryType) -> pa.DataType:
    is_half = pa.types.is_float16(dtype.value_type)
    return pa.dictionary(dtype.index_type, pa.uint16(), dtype.ordered) if is_half else dtype


def _replace_dictionaries(dtype: pa.DataType, change: Callable[[pa.DictionaryType], pa.DataType]) -> pa.DataType:
    """The type with `change` applied to its dictionary types."""
    return (
        change(dtype)
        if pa.types.is_dictionary(dtype)
        else with_inner(dtype, lambda inner: _replace_dictionaries(inner, change))
    )
