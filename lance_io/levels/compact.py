"""Arrays that may be filtered and taken from, and given to other engines.

`pyarrow` (26.0) selects wrong rows from a fixed-size list of fixed-size lists that is a slice: its inner lists are
looked up as if the slice began at row 0. Structs around such a list hand their own slice down to it. Arrays as they
are decoded are no slices; whoever slices them and then selects rows copies them first, here.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa


def compact(array: pa.Array) -> pa.Array:
    """The same rows as an array from which rows may be selected: itself, or a copy where that would go wrong."""
    if array.offset == 0 or not _has_nested_vectors(array.type):
        return array
    return copied(array)


class Portable:
    """Record batches for engines that misread some slices: the same rows, with copies of the columns concerned.

    DuckDB (2.0) refuses structs within a struct that is a slice; Polars (2.1) fixed-size lists with nulls that are one.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._suspects = [number for number, dtype in enumerate(schema.types) if _may_be_misread(_stored(dtype))]

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of the schema, without slices that are misread."""
        for number in self._suspects:
            array = batch.column(number)
            if _is_misread(array):
                batch = batch.set_column(number, batch.schema.field(number), copied(array))
        return batch


def _stored(dtype: pa.DataType) -> pa.DataType:
    return dtype.storage_type if isinstance(dtype, pa.BaseExtensionType) else dtype


def _may_be_misread(dtype: pa.DataType) -> bool:
    if pa.types.is_fixed_size_list(dtype):
        return True
    return pa.types.is_struct(dtype) and any(pa.types.is_struct(_stored(field.type)) for field in dtype)


def _is_misread(array: pa.Array) -> bool:
    """Whether an array of a type that may be misread is a slice that is."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if isinstance(array, pa.StructArray):
        return bool(array.offset)
    is_slice = len(array.values) > len(array) * array.type.list_size
    return is_slice and bool(array.null_count or pa.types.is_nested(array.type.value_type))


def copied(array: pa.Array) -> pa.Array:
    """The same rows in memory of their own."""
    return pa.concat_arrays([array, array.slice(0, 0)])  # one array alone would not be copied


@lru_cache(maxsize=1024)
def _has_nested_vectors(dtype: pa.DataType) -> bool:
    if pa.types.is_fixed_size_list(dtype) and pa.types.is_fixed_size_list(dtype.value_type):
        return True
    return pa.types.is_nested(dtype) and any(_has_nested_vectors(dtype.field(i).type) for i in range(dtype.num_fields))
