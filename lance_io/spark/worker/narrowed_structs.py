"""Structs of which a query uses some members: only these are read.

Structs inside lists and maps stay whole, and so do those that are not stored as plain structs, such as blobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BLOB_KEY = b"lance-encoding:blob"


def narrowable_columns(schema: pa.Schema) -> list[str]:
    """The columns that are structs through and through, down to the first list, map or value."""
    return [field.name for field in schema if _is_plain(field) and pa.types.is_struct(field.type)]


def _is_plain(field: pa.Field[Any]) -> bool:
    if isinstance(field.type, pa.BaseExtensionType) or _BLOB_KEY in (field.metadata or {}):
        return False
    return not pa.types.is_struct(field.type) or all(map(_is_plain, field.type))


def narrowed_members(declared: StructType, schema: pa.Schema) -> list[tuple[str, ...]]:
    """The paths of the members that Spark declares, of each struct that it declares without some."""
    paths: list[tuple[str, ...]] = []
    for field in declared.fields:
        index = schema.get_field_index(field.name)
        if index < 0 or not isinstance(field.dataType, StructType) or not pa.types.is_struct(schema.field(index).type):
            continue
        wanted = [*_leaves(field.dataType, (field.name,))]
        if len(wanted) < len([*_stored_leaves(schema.field(index).type)]):
            paths += wanted
    return paths


def _leaves(struct: StructType, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for member in struct.fields:
        path = (*above, member.name)
        if isinstance(member.dataType, StructType):
            yield from _leaves(member.dataType, path)
        else:
            yield path


def _stored_leaves(dtype: pa.DataType) -> Iterator[Sequence[str]]:
    for member in dtype:
        if pa.types.is_struct(member.type):
            yield from _stored_leaves(member.type)
        else:
            yield (member.name,)
