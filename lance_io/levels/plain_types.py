"""Converts arrays to layouts that support taking rows. No I/O.

    string_view, binary_view    string, binary; also as the values of dictionaries and inside other types
    JSON over other text        JSON over string
    opaque types over views     opaque types over string, binary

Types that cannot be stored at all, such as list views and run-end encoded ones, stay as they are.
"""

from __future__ import annotations

import pyarrow as pa

from lance_io.levels.lists import items_of, with_inner, with_items


def is_plain(dtype: pa.DataType) -> bool:
    """Whether a type needs no conversion."""
    if pa.types.is_string_view(dtype) or pa.types.is_binary_view(dtype):
        return False
    if isinstance(dtype, pa.DictionaryType):
        return is_plain(dtype.value_type)
    if isinstance(dtype, pa.JsonType):
        return bool(pa.types.is_string(dtype.storage_type))
    if isinstance(dtype, pa.OpaqueType):
        return is_plain(dtype.storage_type)
    return all(is_plain(dtype.field(i).type) for i in range(dtype.num_fields))


def plain_type(dtype: pa.DataType) -> pa.DataType:
    """The converted type."""
    if pa.types.is_string_view(dtype):
        return pa.string()
    if pa.types.is_binary_view(dtype):
        return pa.binary()
    if isinstance(dtype, pa.DictionaryType):
        return pa.dictionary(dtype.index_type, plain_type(dtype.value_type), dtype.ordered)
    if isinstance(dtype, pa.JsonType):
        return pa.json_()
    if isinstance(dtype, pa.OpaqueType):
        return pa.opaque(plain_type(dtype.storage_type), dtype.type_name, dtype.vendor_name)
    return with_inner(dtype, plain_type)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The converted schema; the same object if it needs no conversion."""
    if all(map(is_plain, schema.types)):
        return schema
    return pa.schema([field.with_type(plain_type(field.type)) for field in schema], metadata=schema.metadata)


def plain_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The converted batch. schema: `plain_schema` of the batch's schema."""
    arrays = [plain_array(array, field.type) for array, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def plain_array(array: pa.Array, to: pa.DataType) -> pa.Array:
    """The converted array. to: `plain_type` of the array's type."""
    if array.type == to:
        return array
    if isinstance(to, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(to, plain_array(array.storage, to.storage_type))
    if isinstance(to, pa.DictionaryType):
        values = plain_array(array.dictionary, to.value_type)
        return pa.DictionaryArray.from_arrays(array.indices, values, ordered=to.ordered)
    if pa.types.is_struct(to):
        members = [plain_array(array.field(i), field.type) for i, field in enumerate(to)]
        return pa.StructArray.from_arrays(members, fields=list(to), mask=_null_mask(array))
    if pa.types.is_fixed_size_list(to):
        size = to.list_size
        items = plain_array(array.values.slice(array.offset * size, len(array) * size), to.value_type)
        return pa.FixedSizeListArray.from_arrays(items, type=to, mask=_null_mask(array))
    if to.num_fields:
        items, offsets = items_of(array)
        inner = pa.struct([to.key_field, to.item_field]) if pa.types.is_map(to) else to.value_type
        return with_items(array, offsets, plain_array(items, inner))
    return array.cast(to)


def _null_mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None
