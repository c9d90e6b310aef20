"""Arrays of one type joined to one, where `pyarrow` alone would give up.

Dictionaries of arrays are unified, whole, when these are joined. Those of several pages may name more values together
than narrow indices can tell apart, though the rows that are joined hold only a few of them.
"""

from __future__ import annotations

import pyarrow as pa


def joined(arrays: list[pa.Array]) -> pa.Array:
    """The rows of all arrays, which have one type, one after the other.

    Raises `pa.ArrowInvalid` where the values of a dictionary column, without those that no row has, are too many for
    its indices.
    """
    if len(arrays) == 1:
        return arrays[0]
    try:
        return pa.concat_arrays(arrays)
    except pa.ArrowInvalid as error:
        dtype = arrays[0].type
        plain = _without_dictionaries(dtype)
        if plain == dtype:
            raise
        values = pa.concat_arrays([array.cast(plain) for array in arrays])
        try:
            return values.cast(dtype)
        except pa.ArrowInvalid:
            raise error from None


def _without_dictionaries(dtype: pa.DataType) -> pa.DataType:
    """The type with the values of dictionaries in their places."""
    if pa.types.is_dictionary(dtype):
        return dtype.value_type
    if pa.types.is_struct(dtype):
        return pa.struct([_plain(field) for field in dtype.fields])
    if pa.types.is_list(dtype):
        return pa.list_(_plain(dtype.value_field))
    if pa.types.is_large_list(dtype):
        return pa.large_list(_plain(dtype.value_field))
    if pa.types.is_map(dtype):
        return pa.map_(_plain(dtype.key_field), _plain(dtype.item_field))
    return dtype


def _plain(field: pa.Field) -> pa.Field:
    return field.with_type(_without_dictionaries(field.type))
