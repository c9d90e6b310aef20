"""Converts Arrow arrays of users to stored arrays. No I/O.

    extension types      their storage
    structs              members in the order of the field's
    JSON text            JSONB in large binary
    string, binary views string, binary; also as the values of dictionaries
    blobs                a struct of data and uri, also for plain values
    everything else      unchanged, zero-copy

Also checks for nulls where none may be: in non-nullable fields, and in the members of packed structs, whose rows are
their members' bytes. A null counts only if its parents are valid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_io.errors import SchemaError, UnsupportedDataError
from lance_io.format.schema import number_names
from lance_io.levels.blob_source import is_blob_source
from lance_io.levels.jsonb_write import jsonb_values
from lance_io.levels.lists import items_of, with_items

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.format.schema import Field

_STORED_AS_THEY_ARE: Final = frozenset(
    dtype.id
    for dtype in (
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64(), pa.date32(), pa.date64(), pa.string(), pa.binary()),
    )
)
Visible: TypeAlias = npt.NDArray[np.bool_] | None
"""Slots of an array whose parents are valid; None for all of them."""


def ingester(field: Field, dtype: pa.DataType, given: Field) -> Callable[[pa.Array], pa.Array]:
    """The function that converts arrays of a type to the stored arrays of `field`.

    given  the field that would be stored for such arrays (`schema_from_arrow`)

    Raises `SchemaError` for a type that does not match the field, `UnsupportedError` for types that cannot be stored.
    The returned function raises `SchemaError` for nulls in a non-nullable field and for text that is not JSON, and
    `UnsupportedDataError` for nulls in the members of packed structs.
    """
    _check_same(given, field, field.name)
    is_plain = dtype.id in _STORED_AS_THEY_ARE and not field.metadata  # metadata may mark blobs
    if is_plain and field.nullable and field.logical_type != "json":
        return _unchanged
    is_changed = _is_changed(field, dtype)
    is_strict = any(map(_forbids_nulls, field.walk()))

    def ingest(array: pa.Array) -> pa.Array:
        stored = _to_storage(field, array) if is_changed else array
        if is_strict:
            _check_nulls(field, stored, None)
        return stored

    return ingest


def _unchanged(array: pa.Array) -> pa.Array:
    return array


def _check_same(given: Field, field: Field, path: str, *, by_position: bool = False) -> None:
    """Raise SchemaError unless the types match. by_position: for the entries of a map, whose names do not matter."""
    if not (given.children or field.children) and given.logical_type == field.logical_type:
        return
    if (field.is_blob_v2 and given.holds_blobs) or (field.holds_blobs and is_blob_source(given)):
        return
    is_stored_json = field.logical_type == "json" and given.logical_type == "large_binary"
    is_text = field.is_json_text and given.logical_type == "json"
    if given.logical_type != field.logical_type and not (is_stored_json or is_text):
        expected, actual = field.logical_type, given.logical_type
        raise SchemaError(f"field `{path}` does not match the file schema: expected {expected}, got {actual}")
    is_struct = field.logical_type == "struct" and not by_position
    known = number_names(given.children)
    if is_struct and known.keys() != number_names(field.children).keys():
        expected, actual = _member_names(field), _member_names(given)
        raise SchemaError(f"field `{path}` does not match the file schema: expected members {expected}, got {actual}")
    for i, (key, other) in enumerate(number_names(field.children).items()):
        child = known[key] if is_struct else given.children[i]
        _check_same(child, other, f"{path}.{other.name}", by_position=field.logical_type == "map")


def _member_names(field: Field) -> str:
    return ", ".join(child.name for child in field.children)


# -- to storage -------------------------------------------------------------------------------------------------------


def _is_changed(field: Field, dtype: pa.DataType) -> bool:
    """Whether arrays of this type need conversion."""
    if isinstance(dtype, pa.BaseExtensionType) or _is_view(dtype):
        return True
    if isinstance(dtype, pa.DictionaryType):
        return _is_view(dtype.value_type)
    if field.logical_type == "json" and not pa.types.is_large_binary(dtype):
        return True
    if field.is_blob_v2:
        return not pa.types.is_struct(dtype)
    if not field.children:
        return _is_fixed_size_list(dtype) and isinstance(_innermost(dtype), pa.BaseExtensionType)
    if pa.types.is_map(dtype):
        members = [pa.struct([dtype.key_field, dtype.item_field])]
    else:
        members = [dtype.field(i).type for i in range(dtype.num_fields)]
        if pa.types.is_struct(dtype) and [member.name for member in dtype] != [child.name for child in field.children]:
            return True
    return any(_is_changed(child, member) for child, member in zip(field.children, members, strict=True))


def _is_fixed_size_list(dtype: pa.DataType) -> bool:
    return isinstance(dtype, pa.FixedSizeListType)


def _innermost(dtype: pa.DataType) -> pa.DataType:
    while isinstance(dtype, pa.FixedSizeListType):
        dtype = dtype.value_type
    return dtype


def _to_storage(field: Field, array: pa.Array) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    dtype = array.type
    if field.logical_type == "json":
        return array if pa.types.is_large_binary(dtype) else jsonb_values(array, field.name)
    if field.is_json_text:
        jsonb_values(array, field.name)  # raises for text that is not JSON
        return array.cast(field.arrow_type)
    if not _is_changed(field, dtype):
        return array
    if _is_view(dtype):
        return _without_views(array)
    if pa.types.is_dictionary(dtype):
        return pa.DictionaryArray.from_arrays(array.indices, _without_views(array.dictionary))
    if field.is_blob_v2:
        return _blobs_of_values(array)
    if pa.types.is_struct(dtype):
        return _stored_struct(field, array)
    if _is_fixed_size_list(dtype):
        return _stored_vectors(field, array)
    return _stored_lists(field, array)


def _stored_struct(field: Field, array: pa.StructArray) -> pa.Array:
    positions = {key: position for position, key in enumerate(number_names(array.type))}
    members = [_to_storage(child, array.field(positions[key])) for key, child in number_names(field.children).items()]
    fields = [pa.field(child.name, member.type) for child, member in zip(field.children, members, strict=True)]
    return pa.StructArray.from_arrays(members, fields=fields, mask=_null_mask(array))


def _blobs_of_values(array: pa.Array) -> pa.Array:
    """Plain binary values as blobs of the second kind without references."""
    uris = pa.nulls(len(array), pa.string())
    return pa.StructArray.from_arrays([array, uris], ["data", "uri"], mask=_null_mask(array))


def _stored_vectors(field: Field, array: pa.FixedSizeListArray) -> pa.Array:
    size = array.type.list_size
    items = array.values.slice(array.offset * size, len(array) * size)
    if field.children:
        items = _to_storage(field.children[0], items)
    else:
        items = _plain_vectors(items)
    return pa.FixedSizeListArray.from_arrays(items, size, mask=_null_mask(array))


def _plain_vectors(items: pa.Array) -> pa.Array:
    """Items of a fixed-size list, nested at any depth, without their extension type."""
    if isinstance(items, pa.ExtensionArray):
        return items.storage
    size = items.type.list_size
    inner = _plain_vectors(items.values.slice(items.offset * size, len(items) * size))
    return pa.FixedSizeListArray.from_arrays(inner, size, mask=_null_mask(items))


def _stored_lists(field: Field, array: pa.Array) -> pa.Array:
    items, offsets = items_of(array)
    (item,) = field.children
    is_map = field.logical_type == "map"
    return with_items(array, offsets, _stored_entries(item, items) if is_map else _to_storage(item, items))


def _stored_entries(field: Field, array: pa.StructArray) -> pa.Array:
    """Entries of a map: key and value, regardless of their names."""
    members = [_to_storage(child, array.field(i)) for i, child in enumerate(field.children)]
    fields = [pa.field(child.name, member.type) for child, member in zip(field.children, members, strict=True)]
    return pa.StructArray.from_arrays(members, fields=fields)


def _null_mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _is_view(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(dtype) or pa.types.is_binary_view(dtype))


def _without_views(array: pa.Array) -> pa.Array:
    return array.cast(pa.string() if pa.types.is_string_view(array.type) else pa.binary())


# -- nulls ------------------------------------------------------------------------------------------------------------


def _check_nulls(field: Field, array: pa.Array, visible: Visible) -> None:
    if not field.nullable and array.null_count and _has_visible_nulls(array, visible):
        raise SchemaError(
            f"The field `{field.name}` contained null values even though the field is marked non-null in the schema"
        )
    if not field.is_packed and not any(_forbids_nulls(each) for child in field.children for each in child.walk()):
        return
    if array.null_count:
        is_valid = array.is_valid().to_numpy(zero_copy_only=False)
        visible = is_valid if visible is None else visible & is_valid
    if field.is_packed:
        _check_packed(field, array, visible)
        return
    if pa.types.is_struct(array.type):
        for i, child in enumerate(field.children):
            _check_nulls(child, array.field(i), visible)
    elif _is_fixed_size_list(array.type):
        size = array.type.list_size
        items = array.values.slice(array.offset * size, len(array) * size)
        _check_nulls(field.children[0], items, None if visible is None else np.repeat(visible, size))
    else:
        items, offsets = items_of(array)
        _check_nulls(field.children[0], items, None if visible is None else np.repeat(visible, np.diff(offsets)))


def _forbids_nulls(field: Field) -> bool:
    return not field.nullable or field.is_packed


def _check_packed(field: Field, array: pa.StructArray, visible: Visible) -> None:
    for i, child in enumerate(field.children):
        member = array.field(i)
        if member.null_count and _has_visible_nulls(member, visible):
            raise UnsupportedDataError(f"nulls in member `{child.name}` of the packed struct `{field.name}`")


def _has_visible_nulls(array: pa.Array, visible: Visible) -> bool:
    if visible is None:
        return True
    is_null = array.is_null().to_numpy(zero_copy_only=False)
    return bool((is_null & visible).any())
