"""Columns of SQL as they are stored: types, NOT NULL, comments, and lengths of CHAR and VARCHAR.

Comments and lengths are metadata of a field, under Spark's own keys, so that Spark goes on padding and checking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import types as spark

from lance_io.spark.types import CHAR_TYPE, COMMENT, spark_to_arrow

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEPT: Final = (COMMENT, CHAR_TYPE)


def created_schema(struct: spark.StructType, vector_sizes: Mapping[str, int]) -> pa.Schema:
    """The schema of a new table, or of columns that a table gets.

    Raises as `spark_to_arrow`.
    """
    plain = plain_struct(struct)
    arrow = spark_to_arrow(plain, None, vector_sizes=vector_sizes)
    return pa.schema([_described(stored, given) for stored, given in zip(arrow, plain.fields, strict=True)])


def plain_struct(struct: spark.StructType) -> spark.StructType:
    """The struct with STRING for CHAR and VARCHAR, whose lengths stand in the metadata."""
    return spark.StructType([_plain_field(field) for field in struct.fields])


def _plain_field(field: spark.StructField) -> spark.StructField:
    metadata, dtype = dict(field.metadata or {}), _plain_type(field.dataType)
    if dtype != field.dataType and not isinstance(field.dataType, spark.StructType):
        metadata[CHAR_TYPE] = field.dataType.simpleString()
    return spark.StructField(field.name, dtype, field.nullable, metadata)


def _plain_type(dtype: spark.DataType) -> spark.DataType:
    match dtype:
        case spark.CharType() | spark.VarcharType():
            return spark.StringType()
        case spark.StructType():
            return plain_struct(dtype)
        case spark.ArrayType():
            return spark.ArrayType(_plain_type(dtype.elementType), dtype.containsNull)
        case spark.MapType():
            return spark.MapType(_plain_type(dtype.keyType), _plain_type(dtype.valueType), dtype.valueContainsNull)
    return dtype


def _described(stored: pa.Field[Any], given: spark.StructField) -> pa.Field[Any]:
    """The stored field with what Spark says of it."""
    dtype = stored.type
    if pa.types.is_struct(dtype) and isinstance(given.dataType, spark.StructType):
        members = zip(dtype, given.dataType.fields, strict=True)
        dtype = pa.struct([_described(member, field) for member, field in members])
    texts = {key: str(given.metadata[key]) for key in _KEPT if key in (given.metadata or {})}
    return pa.field(stored.name, dtype, given.nullable, {**(stored.metadata or {}), **texts} or None)
