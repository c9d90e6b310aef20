"""Arrays of one type joined to one, where `pyarrow` alone would give up or give other values.

Dictionaries of arrays are unified, whole, when these are joined. Those of several pages may name more values together
than narrow indices can tell apart, though the rows that are joined hold only a few of them. Dictionaries of `float16`
would be unified as if the bits of their values were integers to be converted: here they are integers meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lance_io.levels.compact import copied
from lance_io.levels.lists import with_inner

if TYPE_CHECKING:
    from collections.abc import Callable


def joined(arrays: list[pa.Array]) -> pa.Array:
    """The rows of all arrays, which have one type, one after the other.

    Raises `pa.ArrowInvalid` where the values of a dictionary column, without those that no row has, are too many for
    its indices.
    """
    if len(arrays) == 1:
        return arrays[0]
    dtype = arrays[0].type
    bits = _replaced(dtype, _with_bits_of_halves)
    if bits != dtype:
        return joined([array.view(bits) for array in arrays]).view(dtype)
    try:
        return pa.concat_arrays(arrays)
    except pa.ArrowInvalid:
        if _replaced(dtype, lambda one: one.value_type) == dtype:  # no dictionaries
            raise
        return pa.concat_arrays([_with_used_values(array) for array in arrays])


def _with_used_values(array: pa.Array) -> pa.Array:
    """The same rows, over dictionaries of the values that they have."""
    dtype = array.type
    if pa.types.is_dictionary(dtype):
        used = array.dictionary_decode().dictionary_encode()
        return pa.DictionaryArray.from_arrays(
            used.indices.cast(dtype.index_type), used.dictionary, ordered=dtype.ordered
        )
    if pa.types.is_struct(dtype):
        array = copied(array)  # of a slice, children would be whole
        children = [_with_used_values(array.field(number)) for number in range(dtype.num_fields)]
        return pa.Array.from_buffers(dtype, len(array), array.buffers()[:1], array.null_count, children=children)
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype) or pa.types.is_map(dtype):
        array = copied(array)
        items = _with_used_values(_entries(array) if pa.types.is_map(dtype) else array.values)
        return pa.Array.from_buffers(dtype, len(array), array.buffers()[:2], array.null_count, children=[items])
    return array


def _entries(array: pa.MapArray) -> pa.StructArray:
    fields = [array.type.key_field, array.type.item_field]
    return pa.StructArray.from_arrays([array.keys, array.items], fields=fields)


def unified(arrays: list[pa.Array]) -> list[pa.Array]:
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


def _replaced(dtype: pa.DataType, change: Callable[[pa.DictionaryType], pa.DataType]) -> pa.DataType:
    """The type with others for its dictionaries."""
    return change(dtype) if pa.types.is_dictionary(dtype) else with_inner(dtype, lambda one: _replaced(one, change))
