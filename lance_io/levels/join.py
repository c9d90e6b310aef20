"""Arrays of one type joined to one, where `pyarrow` alone would give up or give other values.

`pyarrow` unifies the dictionaries of arrays, whole, when these are joined. Those of several pages may name more values
together than narrow indices can tell apart, though the rows that are joined hold only a few of them; and pylance makes
other dictionaries, so that its table would not be equal. Dictionaries of `float16` would be unified as if the bits of
their values were integers to be converted: here they are integers meanwhile.
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


class TooManyValues(pa.ArrowInvalid):  # type: ignore[misc]  # which has no types
    """A dictionary column would have more values, without those that no row has, than its indices can tell apart."""


def join_arrays(arrays: list[pa.Array]) -> pa.Array:
    """The rows of all arrays, which have one type, one after the other. Raises `TooManyValues`."""
    if len(arrays) == 1:
        return arrays[0]
    dtype = arrays[0].type
    if not holds_dictionary(dtype):
        return pa.concat_arrays(arrays)
    bits = _replace_dictionaries(dtype, _with_bits_of_halves)
    if bits != dtype:
        return join_arrays([array.view(bits) for array in arrays]).view(dtype)
    return pa.concat_arrays(_over_one_dictionary(arrays))


def join_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of all batches, which have one schema, one after the other.

    Raises `SchemaError` where a dictionary column would have more values than its indices can tell apart.
    """
    if len(batches) == 1:
        return batches[0]
    schema, arrays = batches[0].schema, []
    if not any(map(holds_dictionary, schema.types)):
        return pa.concat_batches(batches)
    for place, name in enumerate(schema.names):
        try:
            arrays.append(join_arrays([batch.column(place) for batch in batches]))
        except TooManyValues as error:
            raise SchemaError(f"column {name!r}: {error}") from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def join_rows(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The same as one batch, or as several where one would have more values than indices can tell apart."""
    try:
        return [join_batches(batches)]
    except SchemaError:
        half = len(batches) // 2
        return [*join_rows(batches[:half]), *join_rows(batches[half:])]


def holds_dictionary(dtype: pa.DataType) -> bool:
    """Whether a type is a dictionary, or has one inside."""
    return isinstance(dtype, pa.DictionaryType) or any(
        holds_dictionary(dtype.field(place).type) for place in range(dtype.num_fields)
    )


def _over_one_dictionary(arrays: list[pa.Array]) -> list[pa.Array]:
    """The same rows; each dictionary column of the arrays has one dictionary for all of them."""
    dtype = arrays[0].type
    if pa.types.is_dictionary(dtype):
        return _dictionaries(arrays)
    if pa.types.is_struct(dtype):
        arrays = [copy_array(array) for array in arrays]  # of a slice, children would be whole
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
    """The same rows over one dictionary, which is the one that pylance makes.

    Where they name fewer values than there are rows it is all of them one behind the other, for flags always, if there
    are indices enough. Else it names each value that a row has once.
    """
    dtype = arrays[0].type
    dictionaries = [array.dictionary for array in arrays]
    memory = {
        (len(one), one.offset, *(None if each is None else each.address for each in one.buffers()))
        for one in dictionaries
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
    values = pa.concat_arrays([array.dictionary.take(pa.array(one)) for array, one in zip(arrays, used, strict=True)])
    encoded = values.dictionary_encode("encode")
    codes, start, indices = encoded.indices.to_numpy(), 0, []
    for array, one in zip(arrays, used, strict=True):
        numbers = np.zeros(len(array.dictionary), dtype=np.int64)
        numbers[one] = codes[start : start + len(one)]
        start += len(one)
        indices.append(pa.array(numbers).take(array.indices))
    return _from_indices(arrays[0].type, indices, encoded.dictionary)


def _from_indices(dtype: pa.DictionaryType, indices: list[pa.Array], values: pa.Array) -> list[pa.DictionaryArray]:
    if len(values) > _indices_of(dtype.index_type):
        raise TooManyValues(f"the rows have {len(values)} values, which need a larger index type than {dtype}")
    return [
        pa.DictionaryArray.from_arrays(one.cast(dtype.index_type), values, ordered=dtype.ordered) for one in indices
    ]


def _shift(indices: pa.Array, by: int) -> pa.Array:
    numbers = indices.fill_null(0).to_numpy().astype(np.int64) + by
    return pa.array(numbers, mask=indices.is_null().to_numpy(zero_copy_only=False) if indices.null_count else None)


def _indices_of(dtype: pa.DataType) -> int:
    """How many values indices of a type can tell apart."""
    return 1 << int(dtype.bit_width - pa.types.is_signed_integer(dtype))


def _entries(array: pa.MapArray) -> pa.StructArray:
    fields = [array.type.key_field, array.type.item_field]
    return pa.StructArray.from_arrays([array.keys, array.items], fields=fields)


def unify_dictionaries(arrays: list[pa.Array]) -> list[pa.Array]:
    """The same arrays, of one dictionary type and without null entries, over one dictionary.

    Raises `pa.ArrowInvalid` where there are more values together than indices can tell apart.
    """
    dtype = arrays[0].type
    if pa.types.is_null(dtype.value_type):  # without entries
        return arrays
    bits = _with_bits_of_halves(dtype)
    chunks = pa.chunked_array([array.view(bits) for array in arrays]).unify_dictionaries().chunks
    return [chunk.view(dtype) for chunk in chunks]


def _with_bits_of_halves(dtype: pa.DictionaryType) -> pa.DataType:
    is_half = pa.types.is_float16(dtype.value_type)
    return pa.dictionary(dtype.index_type, pa.uint16(), dtype.ordered) if is_half else dtype


def _replace_dictionaries(dtype: pa.DataType, change: Callable[[pa.DictionaryType], pa.DataType]) -> pa.DataType:
    """The type with others for its dictionaries."""
    return (
        change(dtype)
        if pa.types.is_dictionary(dtype)
        else with_inner(dtype, lambda one: _replace_dictionaries(one, change))
    )
