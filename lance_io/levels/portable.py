"""Arrays that are safe to filter and take from, and to pass to other engines.

`pyarrow` (26.0) selects wrong rows, or memory beyond the array, from a sliced fixed-size list of fixed-size lists: it
looks up the inner lists as if the slice began at row 0. Such a list may be nested anywhere in the array. Structs pass
their own slice down to their fields. The values of a list can be a slice that the list itself does not show, as in the
result of `list_flatten`. Decoded arrays are no slices. To select rows of other arrays, use `taken` and `kept`, or copy
them first with `compact`.
"""

from __future__ import annotations

import pyarrow as pa


def taken(array: pa.Array, indices: pa.Array) -> pa.Array:
    """The rows at these indices, null for a null index."""
    return compact(array).take(indices)


def kept(array: pa.Array, mask: pa.BooleanArray) -> pa.Array:
    """The rows where the mask is true."""
    return compact(array).filter(mask)


def compact(array: pa.Array) -> pa.Array:
    """The array, or a copy if selecting rows from it is unsafe."""
    # No cache over the types: hashing a type costs half as much as walking it, and Python's extensions have no hash.
    return copy_array(array) if _has_nested_vectors(array.type) and _has_slice(array) else array


def compact_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, with copies of the columns from which selecting rows is unsafe."""
    for number, array in enumerate(batch.columns):
        if (whole := compact(array)) is not array:
            batch = batch.set_column(number, batch.schema.field(number), whole)
    return batch


class Portable:
    """Copies the columns of record batches whose slices other engines misread.

    DuckDB (2.0) refuses structs inside a sliced struct; Polars (2.1) misreads sliced fixed-size lists with nulls.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._suspects = [number for number, dtype in enumerate(schema.types) if _may_be_misread(_storage_type(dtype))]

    @property
    def is_needed(self) -> bool:
        """Whether batches of the schema may need copies."""
        return bool(self._suspects)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch, with copies of misread slices."""
        for number in self._suspects:
            array = batch.column(number)
            if _is_misread(array):
                batch = batch.set_column(number, batch.schema.field(number), copy_array(array))
        return batch


def _storage_type(dtype: pa.DataType) -> pa.DataType:
    return dtype.storage_type if isinstance(dtype, pa.BaseExtensionType) else dtype


def _may_be_misread(dtype: pa.DataType) -> bool:
    if pa.types.is_fixed_size_list(dtype):
        return True
    return pa.types.is_struct(dtype) and any(pa.types.is_struct(_storage_type(field.type)) for field in dtype)


def _is_misread(array: pa.Array) -> bool:
    """Whether an array of a suspect type is a misread slice."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if isinstance(array, pa.StructArray):
        return bool(array.offset)
    is_slice = len(array.values) > len(array) * array.type.list_size
    return is_slice and bool(array.null_count or pa.types.is_nested(array.type.value_type))


def copy_array(array: pa.Array) -> pa.Array:
    """The same rows in memory of their own."""
    return pa.concat_arrays([array, array.slice(0, 0)])  # a single array would not be copied


def _has_nested_vectors(dtype: pa.DataType) -> bool:
    dtype = _storage_type(dtype)
    if pa.types.is_fixed_size_list(dtype) and pa.types.is_fixed_size_list(_storage_type(dtype.value_type)):
        return True
    return pa.types.is_nested(dtype) and any(_has_nested_vectors(dtype.field(i).type) for i in range(dtype.num_fields))


def _has_slice(array: pa.Array) -> bool:
    """Whether the array, or an array inside it, has an offset into its memory."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if array.offset:
        return True
    return any(_has_slice(child) for child in _children(array))


def _children(array: pa.Array) -> list[pa.Array]:
    """The direct child arrays, as they lie in memory."""
    if isinstance(array, pa.StructArray):
        return [array.field(i) for i in range(array.type.num_fields)]
    # Lists of any layout and maps: other types with nested vectors do not look up values by row.
    return [array.values] if hasattr(array, "values") else []
