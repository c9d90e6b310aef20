"""Estimated bytes of values, from their types."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

VARIABLE_BYTES: Final = 64  # estimate for a string or list without a fixed width


def width_bytes(dtype: pa.DataType) -> float:
    """Bytes of one value, estimated if the type has no fixed width."""
    if isinstance(dtype, pa.BaseExtensionType):
        return width_bytes(dtype.storage_type)
    if pa.types.is_struct(dtype):
        return sum(width_bytes(dtype.field(i).type) for i in range(dtype.num_fields))
    if pa.types.is_fixed_size_list(dtype):
        return float(dtype.list_size * width_bytes(dtype.value_type))
    if pa.types.is_dictionary(dtype):
        return width_bytes(dtype.index_type)
    try:
        return float(dtype.bit_width) / 8
    except ValueError:  # no fixed width
        return VARIABLE_BYTES
