"""Converts stored arrays to arrays of the types that users see.

Files yield storage arrays: without extension types and without metadata on members. Their memory layout is that of the
declared type, so a batch passes through Arrow's C interface with the declared schema instead of its own, zero-copy.
Only JSON has another stored form: such columns, at any depth of a nested type, are converted to text first.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lance_io.format.extensions import EXTENSION_NAMES, known_extensions
from lance_io.lazy_names import lazy_module
from lance_io.levels.join import join_arrays
from lance_io.levels.lists import items_of, with_inner, with_items

if TYPE_CHECKING:
    from lance_io.levels import jsonb
else:
    jsonb = lazy_module("lance_io.levels.jsonb")

_JSON: Final = "arrow.json"


class _Declared:
    """A batch or array exported with another type of the same physical layout."""

    def __init__(self, stored: pa.RecordBatch | pa.Array, dtype: pa.DataType) -> None:
        self._stored = stored
        self._dtype = dtype

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]:
        _, memory = self._stored.__arrow_c_array__()
        return self._dtype.__arrow_c_schema__(), memory


def needs_retyping(schema: pa.Schema) -> bool:
    """Whether a schema declares types other than their storage: extensions, or members with metadata."""
    return any(_is_declared(field.type) for field in schema)


def _is_declared(dtype: pa.DataType) -> bool:
    if isinstance(dtype, pa.BaseExtensionType):
        return True
    members = [dtype.field(i) for i in range(dtype.num_fields)]
    return any(member.metadata or _is_declared(member.type) for member in members)


def batch_as(arrays: list[pa.Array], schema: pa.Schema, *, retype: bool) -> pa.RecordBatch:
    """A record batch of `schema` over storage arrays.

    retype  `needs_retyping` of the schema

    Raises `FormatError` for damaged JSON values.
    """
    if not retype:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    shown = [
        _with_texts(array, field.type) if holds_json(field.type) else array
        for array, field in zip(arrays, schema, strict=True)
    ]
    stored = pa.RecordBatch.from_arrays(shown, [field.name for field in schema])
    with known_extensions() if any(_names_extension(field.type) for field in schema) else nullcontext():
        declared = pa.record_batch(_Declared(stored, pa.struct(list(schema))))
    return declared.replace_schema_metadata(schema.metadata)


def as_type(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """The same values as another type, which may be an extension type over their storage, or another library's."""
    if array.type == dtype:
        return array
    stored = array.storage if isinstance(array, pa.ExtensionArray) else array
    if isinstance(dtype, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(dtype, as_type(stored, dtype.storage_type))
    if dtype.num_fields and (is_alike(stored.type, dtype) or is_alike(_as_stored(stored.type), _as_stored(dtype))):
        with known_extensions():
            return pa.array(_Declared(stored, dtype))
    return stored.cast(dtype)


def _as_stored(dtype: pa.DataType) -> pa.DataType:
    """The type with extension types replaced by their storage types, at any depth."""
    return _as_stored(dtype.storage_type) if isinstance(dtype, pa.BaseExtensionType) else with_inner(dtype, _as_stored)


def is_alike(dtype: pa.DataType, other: pa.DataType) -> bool:
    """Whether two types are equal except for nullability and for the library that defines an extension."""
    if dtype == other:
        return True
    if isinstance(dtype, pa.ExtensionType) and isinstance(other, pa.ExtensionType):  # Python extensions
        has_same_name = dtype.extension_name == other.extension_name
        return has_same_name and bool(dtype.storage_type == other.storage_type)
    if isinstance(dtype, pa.DictionaryType) or dtype.id != other.id or not dtype.num_fields:
        return False
    if pa.types.is_fixed_size_list(dtype) and dtype.list_size != other.list_size:
        return False
    pairs = [(dtype.field(i), other.field(i)) for i in range(min(dtype.num_fields, other.num_fields))]
    if pa.types.is_struct(dtype) and [member.name for member in dtype] != [member.name for member in other]:
        return False
    return dtype.num_fields == other.num_fields and all(is_alike(mine.type, theirs.type) for mine, theirs in pairs)


def narrowed(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """A storage array without struct members, at any depth, that the declared type lacks."""
    if not dtype.num_fields:
        return array
    if isinstance(array, pa.StructArray):
        indexes = [array.type.get_field_index(dtype.field(i).name) for i in range(dtype.num_fields)]
        members = [narrowed(array.field(at), dtype.field(i).type) for i, at in enumerate(indexes)]
        fields = [array.type.field(at).with_type(member.type) for at, member in zip(indexes, members, strict=True)]
        return pa.StructArray.from_arrays(members, fields=fields, mask=array.is_null() if array.null_count else None)
    if isinstance(array, (pa.ListArray, pa.LargeListArray)):
        items, offsets = items_of(array)
        return with_items(array, offsets, narrowed(items, dtype.value_type))
    return array


def concat(arrays: list[pa.Array]) -> pa.Array:
    """Join arrays to one of the first array's type, as `join_arrays`.

    The others have the same physical layout. Their members may have other names or nullability, as in files that were
    written before a member was renamed.
    """
    if len(arrays) == 1:
        return arrays[0]
    dtype = arrays[0].type
    return join_arrays([array if array.type == dtype else pa.array(_Declared(array, dtype)) for array in arrays])


def holds_json(dtype: pa.DataType) -> bool:
    """Whether a declared type is JSON, or has JSON inside."""
    if isinstance(dtype, pa.BaseExtensionType):
        return bool(dtype.extension_name == _JSON)
    return any(holds_json(dtype.field(i).type) for i in range(dtype.num_fields))


def _names_extension(dtype: pa.DataType) -> bool:
    if isinstance(dtype, pa.BaseExtensionType):
        return dtype.extension_name in EXTENSION_NAMES
    return any(_names_extension(dtype.field(i).type) for i in range(dtype.num_fields))


def _with_texts(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """A storage array of the declared `dtype`, with JSON values converted to text."""
    if not holds_json(dtype):
        return array
    if isinstance(dtype, pa.BaseExtensionType):
        is_stored = pa.types.is_large_binary(array.type)
        return jsonb.json_texts(array) if is_stored else array  # pylance stores some JSON as text
    nulls = array.is_null() if array.null_count else None
    if isinstance(array, pa.StructArray):
        members = [_with_texts(array.field(i), dtype.field(i).type) for i in range(dtype.num_fields)]
        return pa.StructArray.from_arrays(members, [member.name for member in dtype], mask=nulls)
    if isinstance(array, pa.FixedSizeListArray):
        items = array.values.slice(array.offset * dtype.list_size, len(array) * dtype.list_size)
        return pa.FixedSizeListArray.from_arrays(_with_texts(items, dtype.value_type), dtype.list_size, mask=nulls)
    items, offsets = items_of(array)
    declared = pa.struct([dtype.key_field, dtype.item_field]) if pa.types.is_map(dtype) else dtype.value_type
    return with_items(array, offsets, _with_texts(items, declared))
