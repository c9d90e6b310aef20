"""Converts values to JSON columns, which store JSONB in large binary. Pure.

Here a type with `pyarrow.json_` at some depth stands for such a column; its arrays have the stored form.

    from                    to JSON
    text in any layout      the parsed document; empty text is the document `null`
    binary                  itself; must be a stored document
    null                    null
    anything else           an error: pylance stores the bytes of numbers as a document, which is then damaged
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from lance_io.errors import FormatError, SchemaError, UnsupportedError
from lance_io.filters.expressions.sql_types import is_string
from lance_io.levels.arrays import numbers
from lance_io.levels.jsonb import json_texts
from lance_io.levels.jsonb_write import jsonb_values
from lance_io.levels.lists import visible_items, with_inner, with_items
from lance_io.levels.portable import taken

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.format.schema import Field

_JSON: Final = pa.json_()


def value_type(field: Field) -> pa.DataType:
    """The stored type of a field, but with `pyarrow.json_` for JSON."""
    if field.logical_type == "json":
        return _JSON
    if all(each.logical_type != "json" for each in field.walk()):
        return field.arrow_type
    members = field.children[0].children if field.logical_type == "map" else field.children
    types = map(value_type, members)
    return with_inner(field.arrow_type, lambda _: next(types))


def holds_documents(dtype: pa.DataType) -> bool:
    """Whether a type has JSON inside."""
    if isinstance(dtype, pa.JsonType):
        return True
    return any(holds_documents(dtype.field(index).type) for index in range(dtype.num_fields))


def stored_type(dtype: pa.DataType) -> pa.DataType:
    """The stored type: large binary in place of JSON."""
    return pa.large_binary() if isinstance(dtype, pa.JsonType) else with_inner(dtype, stored_type)


def as_stored(array: pa.Array) -> pa.Array:
    """A caller's values, with JSON as text, in their stored form. Arrays without JSON are returned unchanged.

    Raises `pa.ArrowInvalid` for text that is not JSON.
    """
    return to_documents(array, array.type, lambda value, _: value) if holds_documents(array.type) else array


def to_documents(value: pa.Array, to: pa.DataType, convert: Callable[[pa.Array, pa.DataType], pa.Array]) -> pa.Array:
    """Values for a column whose type contains JSON, in their stored form.

    convert  converts the parts without JSON
    Raises `pa.ArrowInvalid` for values that are not documents, `pa.ArrowNotImplementedError` for types that cannot be
    converted to JSON.
    """
    source = value.type
    if not holds_documents(to):
        return convert(value, to)
    if pt.is_null(source):
        return pa.nulls(len(value), stored_type(to))
    if isinstance(to, pa.JsonType):
        return _documents(value)
    if pt.is_struct(to) and pt.is_struct(source):
        return _members(value, to, convert)
    if pt.is_fixed_size_list(to) and pt.is_fixed_size_list(source) and to.list_size == source.list_size:
        return _vectors(value, to, convert)
    if (pt.is_map(to) and pt.is_map(source)) or (_is_list(to) and _is_list(source)):
        items, offsets = visible_items(value)
        inner = pa.struct([to.key_field, to.item_field]) if pt.is_map(to) else to.value_type
        lists = with_items(value, offsets, to_documents(items, inner, convert))
        return lists if lists.type == stored_type(to) else lists.cast(stored_type(to))
    raise _no_cast(source, to)


def _is_list(dtype: pa.DataType) -> bool:
    return bool(pt.is_list(dtype) or pt.is_large_list(dtype))


def _members(value: pa.Array, to: pa.DataType, convert: Callable[[pa.Array, pa.DataType], pa.Array]) -> pa.Array:
    names = [field.name for field in value.type]
    if sorted(names) != sorted(field.name for field in to):
        raise _no_cast(value.type, to)
    members = [to_documents(_member(value, names.index(field.name)), field.type, convert) for field in to]
    mask = value.is_null() if value.null_count else None
    return pa.StructArray.from_arrays(members, fields=list(stored_type(to)), mask=mask)


def _member(value: pa.Array, index: int) -> pa.Array:
    member = value.field(index)
    if not value.null_count:
        return member
    is_null = value.is_null().to_numpy(zero_copy_only=False)
    return taken(member, numbers(np.arange(len(value)), is_null))  # values under nulls need not be JSON


def _vectors(value: pa.Array, to: pa.DataType, convert: Callable[[pa.Array, pa.DataType], pa.Array]) -> pa.Array:
    size = to.list_size
    items = value.values.slice(value.offset * size, len(value) * size)
    mask = None
    if value.null_count:
        mask = value.is_null()
        is_null = np.repeat(mask.to_numpy(zero_copy_only=False), size)
        items = taken(items, numbers(np.arange(len(items)), is_null))
    return pa.FixedSizeListArray.from_arrays(to_documents(items, to.value_type, convert), size, mask=mask)


def _no_cast(source: pa.DataType, to: pa.DataType) -> pa.ArrowNotImplementedError:
    shown = "JSON" if isinstance(to, pa.JsonType) else to
    return pa.ArrowNotImplementedError(f"Cannot automatically convert {source} to {shown}; JSON is given as text")


def _documents(value: pa.Array) -> pa.Array:
    if isinstance(value, pa.ExtensionArray):
        value = value.storage
    if pt.is_dictionary(value.type):
        value = value.dictionary_decode()
    if is_string(value.type):
        try:
            return jsonb_values(value, "value")
        except SchemaError as error:
            raise pa.ArrowInvalid(error.message) from error
    if not (pt.is_binary(value.type) or pt.is_large_binary(value.type) or pt.is_binary_view(value.type)):
        raise _no_cast(value.type, _JSON)
    stored = value.cast(pa.large_binary())
    document_texts(stored)
    return stored


def document_texts(stored: pa.Array) -> pa.Array:
    """Stored documents as text. Raises `pa.ArrowInvalid` for bytes that are not a document."""
    try:
        return json_texts(stored)
    except (FormatError, UnsupportedError) as error:
        raise pa.ArrowInvalid(f"a value is no stored JSON document: {error.message}") from error
