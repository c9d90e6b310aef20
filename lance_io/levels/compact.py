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
    return pa.concat_arrays([array, array.slice(0, 0)])  # one array alone would not be copied


def portable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows for engines that misread some slices: those columns as copies.

    DuckDB (2.0) refuses structs within a struct that is a slice; Polars (2.1) fixed-size lists with nulls that are one.
    """
    misread = [_is_misread(array) for array in batch.columns]
    if not any(misread):
        return batch
    arrays = [
        pa.concat_arrays([array, array.slice(0, 0)]) if wrong else array
        for array, wrong in zip(batch.columns, misread, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _is_misread(array: pa.Array) -> bool:
    t = array.type
    if pa.types.is_fixed_size_list(t):
        is_slice = len(array.values) > len(array) * t.list_size
        return is_slice and bool(pa.types.is_nested(t.value_type) or array.null_count)
    return array.offset > 0 and any(pa.types.is_nested(t.field(i).type) for i in range(t.num_fields))


@lru_cache(maxsize=1024)
def _has_nested_vectors(dtype: pa.DataType) -> bool:
    if pa.types.is_fixed_size_list(dtype) and pa.types.is_fixed_size_list(dtype.value_type):
        return True
    return pa.types.is_nested(dtype) and any(_has_nested_vectors(dtype.field(i).type) for i in range(dtype.num_fields))
