"""Arrays that may be filtered and taken from, and given to other engines.

`pyarrow` (26.0) selects wrong rows, or memory behind the array, from a fixed-size list of fixed-size lists that is a
slice: its inner lists are looked up as if the slice began at row 0. The list may lie anywhere inside the array. Structs
hand their own slice down to their fields; and the values of a list can be a slice of which the list itself shows
nothing, as what `list_flatten` gives is one. Arrays as they are decoded are no slices; whoever has others and selects
rows does so with `taken` and `kept`, or copies them first with `compact`.
"""

from __future__ import annotations

import pyarrow as pa


def taken(array: pa.Array, places: pa.Array) -> pa.Array:
    """The rows at the places, a null for a null."""
    return compact(array).take(places)


def kept(array: pa.Array, mask: pa.BooleanArray) -> pa.Array:
    """The rows where the mask is true."""
    return compact(array).filter(mask)


def compact(array: pa.Array) -> pa.Array:
    """The same rows as an array from which rows may be selected: itself, or a copy where that would go wrong."""
    # No cache over the types: to hash one costs half as much as to walk it, and Python's extensions have no hash.
    return copy_array(array) if _has_nested_vectors(array.type) and _has_slice(array) else array


def compact_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows as a batch from which rows may be selected."""
    for number, array in enumerate(batch.columns):
        if (whole := compact(array)) is not array:
            batch = batch.set_column(number, batch.schema.field(number), whole)
    return batch


class Portable:
    """Record batches for engines that misread some slices: the same rows, with copies of the columns concerned.

    DuckDB (2.0) refuses structs within a struct that is a slice; Polars (2.1) fixed-size lists with nulls that are one.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._suspects = [number for number, dtype in enumerate(schema.types) if _may_be_misread(_storage_type(dtype))]

    @property
    def is_needed(self) -> bool:
        """Whether a batch of the schema may have to be changed."""
        return bool(self._suspects)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of the schema, without slices that are misread."""
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
    """Whether an array of a type that may be misread is a slice that is."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if isinstance(array, pa.StructArray):
        return bool(array.offset)
    is_slice = len(array.values) > len(array) * array.type.list_size
    return is_slice and bool(array.null_count or pa.types.is_nested(array.type.value_type))


def copy_array(array: pa.Array) -> pa.Array:
    """The same rows in memory of their own."""
    return pa.concat_arrays([array, array.slice(0, 0)])  # one array alone would not be copied


def _has_nested_vectors(dtype: pa.DataType) -> bool:
    dtype = _storage_type(dtype)
    if pa.types.is_fixed_size_list(dtype) and pa.types.is_fixed_size_list(_storage_type(dtype.value_type)):
        return True
    return pa.types.is_nested(dtype) and any(_has_nested_vectors(dtype.field(i).type) for i in range(dtype.num_fields))


def _has_slice(array: pa.Array) -> bool:
    """Whether the array, or one with nested vectors inside it, does not begin where its memory does."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if array.offset:
        return True
    return any(_has_slice(child) for child in _children(array))


def _children(array: pa.Array) -> list[pa.Array]:
    """The arrays directly inside one, as they lie in memory."""
    if isinstance(array, pa.StructArray):
        return [array.field(i) for i in range(array.type.num_fields)]
    # of lists in any layout and maps; nothing else that may hold nested vectors has its values looked up by row
    return [array.values] if hasattr(array, "values") else []
