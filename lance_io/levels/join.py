"""Arrays of one type joined to one, where `pyarrow` alone would give up or give other values.

Dictionaries of arrays are unified, whole, when these are joined. Those of several pages may name more values together
than narrow indices can tell apart, though the rows that are joined hold only a few of them. Dictionaries of `float16`
would be unified as if the bits of their values were integers to be converted: here they are integers meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

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
    except pa.ArrowInvalid as error:
        plain = _replaced(dtype, _values)
        if plain == dtype:
            raise
        values = pa.concat_arrays([array.cast(plain) for array in arrays])
        try:  # only texts and bytes are cast to dictionaries of their own
            return (values.dictionary_encode() if pa.types.is_dictionary(dtype) else values).cast(dtype)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise error from None


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


def _values(dtype: pa.DictionaryType) -> pa.DataType:
    return dtype.value_type


def _with_bits_of_halves(dtype: pa.DictionaryType) -> pa.DataType:
    is_half = pa.types.is_float16(dtype.value_type)
    return pa.dictionary(dtype.index_type, pa.uint16(), dtype.ordered) if is_half else dtype


def _replaced(dtype: pa.DataType, change: Callable[[pa.DictionaryType], pa.DataType]) -> pa.DataType:
    """The type with others for its dictionaries."""

    def member(field: pa.Field) -> pa.Field:
        return field.with_type(_replaced(field.type, change))

    if pa.types.is_dictionary(dtype):
        return change(dtype)
    if pa.types.is_struct(dtype):
        return pa.struct([member(field) for field in dtype.fields])
    if pa.types.is_list(dtype):
        return pa.list_(member(dtype.value_field))
    if pa.types.is_large_list(dtype):
        return pa.large_list(member(dtype.value_field))
    if pa.types.is_map(dtype):
        return pa.map_(member(dtype.key_field), member(dtype.item_field))
    return dtype
