"""The mapping between Spark and Arrow types, in both directions, and the Arrow types that Spark carries.

    table                                        Spark                    carried between Python and the JVM as
    bool, int8 .. int64, float32, float64        the same                 the same
    uint8, uint16, uint32                        SMALLINT, INT, BIGINT    int16, int32, int64
    uint64                                       DECIMAL(20,0) or BIGINT  decimal128(20, 0) or int64
    float16, bfloat16                            FLOAT                    float32
    decimal32 .. decimal256                      DECIMAL(p,s)             decimal128(p, s)
    string, large_string, views, JSON            STRING                   string
    binary, large, fixed-size, views, blobs      BINARY                   binary
    date32, date64                               DATE                     date32
    time32, time64                               TIME(6)                  time64[ns]
    timestamp without zone                       TIMESTAMP_NTZ            timestamp[us]
    timestamp with a zone                        TIMESTAMP                timestamp[us, UTC]
    duration                                     INTERVAL DAY TO SECOND   duration[us]
    list, large_list, fixed_size_list            ARRAY                    list<element>
    struct, map                                  STRUCT, MAP              struct, map
    dictionary                                   the type of its values   the type of its values
    null                                         VOID                     null

Spark compares the first batch of a task with the schema it expects, including types and nullability. So all columns are
declared nullable, and every batch is cast to exactly `carried_schema`. The metadata of a Spark column has the number of
items of vectors, and the zone of timestamps; a table created from such columns gets them back. A column's comment and
the length of its CHAR or VARCHAR are metadata of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import types as spark

from lance_io.errors import SchemaError, UnsupportedDataError, UnsupportedError, UsageError
from lance_io.format.schema import BLOB_V2_EXTENSION
from lance_io.spark.options import SYSTEM_COLUMNS, VECTOR_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ZONE: Final = "arrow.timestamp.timezone"  # metadata key of a Spark column
COMMENT: Final = "comment"  # Spark's own keys, also of stored fields
CHAR_TYPE: Final = "__CHAR_VARCHAR_TYPE_STRING"
BFLOAT16: Final = "lance.bfloat16"
JSON: Final = "arrow.json"
DECIMAL_DIGITS_MAX: Final = 38

_EXTENSION_NAME: Final = b"ARROW:extension:name"
_UINT64: Final = spark.DecimalType(20, 0)
_PLAIN: Final[Mapping[pa.DataType, spark.DataType]] = {
    pa.null(): spark.NullType(),
    pa.bool_(): spark.BooleanType(),
    pa.int8(): spark.ByteType(),
    pa.int16(): spark.ShortType(),
    pa.int32(): spark.IntegerType(),
    pa.int64(): spark.LongType(),
    pa.uint8(): spark.ShortType(),
    pa.uint16(): spark.IntegerType(),
    pa.uint32(): spark.LongType(),
    pa.float16(): spark.FloatType(),
    pa.float32(): spark.FloatType(),
    pa.float64(): spark.DoubleType(),
    pa.date32(): spark.DateType(),
    pa.date64(): spark.DateType(),
}


def extension_name(field: pa.Field[Any]) -> str | None:
    """The name of a field's extension type, registered or not; None for other types."""
    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name)
    name = (field.metadata or {}).get(_EXTENSION_NAME)
    return None if name is None else name.decode()


def is_variable_list(dtype: pa.DataType) -> bool:
    """Whether it is a list without a fixed size. The format has no list views."""
    return bool(pa.types.is_list(dtype) or pa.types.is_large_list(dtype))


def is_text(dtype: pa.DataType) -> bool:
    """Whether it is a string of any form."""
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(kind(dtype) for kind in kinds)


def is_bytes(dtype: pa.DataType) -> bool:
    """Whether it is a binary of any form."""
    kinds = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
    return any(kind(dtype) for kind in kinds)


# -- reading: Arrow to Spark -----------------------------------------------------------------------------------------


def arrow_to_spark(
    schema: pa.Schema, *, uint64: str = "decimal", timestamp_ns: str = "error_on_loss"
) -> spark.StructType:
    """The Spark schema for the columns of a scan; all nullable.

    uint64        "decimal" or "long"
    timestamp_ns  "long" for BIGINT, anything else for a timestamp
    Raises `UnsupportedError` for a column of a type that Spark does not have.
    """
    return spark.StructType([_spark_field(field, field.name, uint64, timestamp_ns) for field in schema])


def _spark_field(field: pa.Field[Any], where: str, uint64: str, timestamp_ns: str) -> spark.StructField:
    dtype = _spark_type(field, where, uint64, timestamp_ns)
    return spark.StructField(field.name, dtype, nullable=True, metadata=_metadata(field, dtype) or None)


def _metadata(field: pa.Field[Any], shown: spark.DataType) -> dict[str, Any]:
    dtype, stored = field.type, field.metadata or {}
    metadata = {key: stored[key.encode()].decode() for key in (COMMENT, CHAR_TYPE) if key.encode() in stored}
    if pa.types.is_fixed_size_list(dtype):
        return {**metadata, VECTOR_SIZE: dtype.list_size}
    if isinstance(shown, spark.TimestampType) and pa.types.is_timestamp(dtype) and dtype.tz != "UTC":
        return {**metadata, ZONE: dtype.tz}
    return metadata


def _spark_type(field: pa.Field[Any], where: str, uint64: str, timestamp_ns: str) -> spark.DataType:
    dtype = field.type
    if extension_name(field) == BFLOAT16:
        return spark.FloatType()
    if isinstance(dtype, pa.BaseExtensionType):
        dtype = dtype.storage_type
    if pa.types.is_dictionary(dtype):
        dtype = dtype.value_type
    if dtype in _PLAIN:
        return _PLAIN[dtype]
    if pa.types.is_uint64(dtype):
        return spark.LongType() if uint64 == "long" else _UINT64
    if pa.types.is_decimal(dtype):
        return _spark_decimal(dtype, where)
    if is_text(dtype):
        return spark.StringType()
    if is_bytes(dtype):
        return spark.BinaryType()
    if pa.types.is_timestamp(dtype):
        if dtype.unit == "ns" and timestamp_ns == "long":
            return spark.LongType()
        return spark.TimestampNTZType() if dtype.tz is None else spark.TimestampType()
    if pa.types.is_time(dtype):
        return spark.TimeType(6)
    if pa.types.is_duration(dtype):
        return spark.DayTimeIntervalType()
    return _spark_nested(dtype, where, uint64, timestamp_ns)


def _spark_nested(dtype: pa.DataType, where: str, uint64: str, timestamp_ns: str) -> spark.DataType:
    if is_variable_list(dtype) or pa.types.is_fixed_size_list(dtype):
        item = _spark_type(dtype.value_field, f"{where}.element", uint64, timestamp_ns)
        return spark.ArrayType(item, containsNull=True)
    if pa.types.is_struct(dtype):
        members = [_spark_field(member, f"{where}.{member.name}", uint64, timestamp_ns) for member in dtype]
        return spark.StructType(members)
    if pa.types.is_map(dtype):
        key = _spark_type(dtype.key_field, f"{where}.key", uint64, timestamp_ns)
        value = _spark_type(dtype.item_field, f"{where}.value", uint64, timestamp_ns)
        return spark.MapType(key, value, valueContainsNull=True)
    raise UnsupportedError(f"column {where}: Spark has no type for {dtype}; leave it out with the option `columns`")


def _spark_decimal(dtype: pa.DataType, where: str) -> spark.DecimalType:
    precision, scale = dtype.precision, dtype.scale
    if not 0 <= scale <= DECIMAL_DIGITS_MAX:
        raise UnsupportedError(f"column {where}: Spark has no type for {dtype}; leave it out with the option `columns`")
    return spark.DecimalType(min(precision, DECIMAL_DIGITS_MAX), scale)


# -- carried types ---------------------------------------------------------------------------------------------------

_CARRIED: Final[Mapping[type[spark.DataType], pa.DataType]] = {
    spark.NullType: pa.null(),
    spark.BooleanType: pa.bool_(),
    spark.ByteType: pa.int8(),
    spark.ShortType: pa.int16(),
    spark.IntegerType: pa.int32(),
    spark.LongType: pa.int64(),
    spark.FloatType: pa.float32(),
    spark.DoubleType: pa.float64(),
    spark.BinaryType: pa.binary(),
    spark.DateType: pa.date32(),
    spark.TimeType: pa.time64("ns"),
    spark.TimestampType: pa.timestamp("us", tz="UTC"),
    spark.TimestampNTZType: pa.timestamp("us"),
    spark.DayTimeIntervalType: pa.duration("us"),
}


def carried_schema(struct: spark.StructType) -> pa.Schema:
    """The Arrow schema, including nullability, of the batches that Spark exchanges for a Spark schema.

    Raises `UnsupportedDataError` for a Spark type without an Arrow form.
    """
    return pa.schema([_carry_field(field) for field in struct.fields])


def _carry_field(field: spark.StructField) -> pa.Field[Any]:
    return pa.field(field.name, _carry_type(field.dataType, field.name), field.nullable)


def _carry_type(dtype: spark.DataType, where: str) -> pa.DataType:
    plain = _CARRIED.get(type(dtype))
    if plain is not None:
        return plain
    match dtype:
        case spark.CharType() | spark.VarcharType():
            pass
        case spark.StringType():
            return pa.string()
        case spark.DecimalType():
            return pa.decimal128(dtype.precision, dtype.scale)
        case spark.ArrayType():
            return pa.list_(_carry_item("element", dtype.elementType, where, dtype.containsNull))
        case spark.MapType():
            key = _key_field(_carry_type(dtype.keyType, f"{where}.key"), where)
            return pa.map_(key, _carry_item("value", dtype.valueType, where, dtype.valueContainsNull))
        case spark.StructType():
            return pa.struct([_carry_field(member) for member in dtype.fields])
    raise UnsupportedDataError(
        f"column {where}: Spark does not hand over {dtype.simpleString()}; cast it first, for example to STRING"
    )


def _carry_item(name: str, dtype: spark.DataType, where: str, nullable: bool) -> pa.Field[Any]:
    """The field of the items of a list or map.

    Items of VOID are nullable, although Spark declares those of `array()` not null: Arrow's null type must be nullable.
    """
    item = _carry_type(dtype, f"{where}.{name}")
    return pa.field(name, item, nullable or pa.types.is_null(item))


def _key_field(dtype: pa.DataType, where: str) -> pa.Field[Any]:
    if pa.types.is_null(dtype):
        raise UnsupportedDataError(f"column {where}: maps with keys of VOID are not stored; cast the column first")
    return pa.field("key", dtype, nullable=False)


# -- writing: Spark to Arrow -----------------------------------------------------------------------------------------


def spark_to_arrow(
    struct: spark.StructType,
    table: pa.Schema | None = None,
    *,
    vector_sizes: Mapping[str, int] | None = None,
    merge_schema: bool = False,
    case_sensitive: bool = False,
    narrow_floats: bool = False,
) -> pa.Schema:
    """The schema in which the rows of a Spark schema are stored.

    struct         Spark's schema; system columns in it are left out
    table          schema of the existing table, None for a new table
    vector_sizes   items per vector of columns to store as vectors, by name in any case
    merge_schema   whether to add columns that the table lacks, at the end, and members that its structs lack
    case_sensitive  whether that adds those whose names differ from the table's in case only
    narrow_floats  whether floats may be stored in narrower floats

    Columns of the table keep their order, type and nullability. Columns that Spark does not have become null. New
    columns are always nullable, so that two jobs never create different schemas from the same query.
    Raises `SchemaError` for columns that the table lacks, for values that it cannot store, and for missing columns that
    must not be null; `UnsupportedDataError` for Spark types without an Arrow form; `UsageError` for a vector size that
    matches no column.
    """
    left_out = set(SYSTEM_COLUMNS) - set([] if table is None else table.names)  # a table may have a column `_fragid`
    given = {field.name: field for field in struct.fields if field.name not in left_out}
    if len(given) < len([name for name in struct.names if name not in left_out]):
        twice = next(name for name in struct.names if struct.names.count(name) > 1)
        raise SchemaError(f"column {twice} occurs twice")
    sizes = _sizes_by_name(list(given), vector_sizes or {})
    fields = (
        []
        if table is None
        else [_keep_field(stored, given, sizes, narrow_floats, merge_schema, case_sensitive) for stored in table]
    )
    known = {field.name for field in fields}
    new = [field for name, field in given.items() if name not in known]
    if new and table is not None and not merge_schema:
        raise SchemaError(_unknown_columns([field.name for field in new], table.names))
    if table is not None and not case_sensitive:
        _check_case([field.name for field in new], table.names)
    fields += [_new_field(field, sizes.get(field.name)) for field in new]
    return pa.schema(fields, None if table is None else table.metadata)


def _unknown_columns(names: list[str], known: list[str]) -> str:
    folded = {name.lower(): name for name in known}
    close = [f"{name} (the table has {folded[name.lower()]})" for name in names if name.lower() in folded]
    shown = ", ".join(close or names)
    return f"the table has no column {shown}; names are case-sensitive, and mergeSchema=true adds new columns"


def _check_case(new: Iterable[str], known: Iterable[str], parent: str = "") -> None:
    """Raise `SchemaError` for a new name that differs from another one in case only."""
    folded = {name.lower(): name for name in known}
    for name in new:
        other = folded.setdefault(name.lower(), name)
        if other != name:
            raise SchemaError(
                f"column {parent}{name} differs from {parent}{other} in case only: give it that name, or the write the "
                "option caseSensitive=true, by which it is another column"
            )


def _sizes_by_name(names: list[str], sizes: Mapping[str, int]) -> dict[str, int]:
    by_name: dict[str, int] = {}
    for lower, size in sizes.items():
        matches = [name for name in names if name.lower() == lower.lower()]
        if len(matches) != 1:
            columns = "no column" if not matches else f"{len(matches)} columns ({', '.join(matches)})"
            hint = f"; give each its own with df.withMetadata(name, {{{VECTOR_SIZE!r}: items}})" if matches else ""
            raise UsageError(f"option {lower}.{VECTOR_SIZE} fits {columns} of the data{hint}")
        by_name[matches[0]] = size
    return by_name


def _keep_field(
    stored: pa.Field[Any],
    given: Mapping[str, spark.StructField],
    sizes: Mapping[str, int],
    narrow_floats: bool,
    merge_schema: bool,
    case_sensitive: bool,
) -> pa.Field[Any]:
    field = given.get(stored.name)
    if field is None:
        if not stored.nullable:
            raise SchemaError(f"column {stored.name} is missing, and the table takes no null in it")
        return stored
    size = sizes.get(stored.name)
    if size is not None and not (pa.types.is_fixed_size_list(stored.type) and stored.type.list_size == size):
        raise SchemaError(f"column {stored.name} is stored as {stored.type}, not as vectors of {size} items")
    if merge_schema:
        stored = _with_new_members(stored, field, field.name, case_sensitive)
    check_storable(_carry_field(field), stored, field.name, narrow_floats=narrow_floats)
    return stored


def _with_new_members(
    stored: pa.Field[Any], field: spark.StructField, where: str, case_sensitive: bool
) -> pa.Field[Any]:
    """A struct with the members that it lacks, at the end; other columns as they are."""
    if not (pa.types.is_struct(stored.type) and isinstance(field.dataType, spark.StructType)):
        return stored
    given = {member.name: member for member in field.dataType.fields}
    known = {member.name for member in stored.type}
    new = [member for name, member in given.items() if name not in known]
    if not case_sensitive:
        _check_case([member.name for member in new], known, f"{where}.")
    members = [
        _with_new_members(member, given[member.name], f"{where}.{member.name}", case_sensitive)
        if member.name in given
        else member
        for member in stored.type
    ]
    members += [_new_field(member, None) for member in new]
    return stored.with_type(pa.struct(members))


def _new_field(field: spark.StructField, size: int | None) -> pa.Field[Any]:
    return pa.field(field.name, _new_type(field, size), nullable=True)


def _new_type(field: spark.StructField, size: int | None = None) -> pa.DataType:
    dtype, metadata = field.dataType, field.metadata or {}
    size = size if size is not None else _size_in(metadata, field.name)
    if size is not None:
        if not isinstance(dtype, spark.ArrayType):
            raise SchemaError(
                f"column {field.name}: only an ARRAY can be stored as vectors, not {dtype.simpleString()}"
            )
        return pa.list_(pa.field("item", _stored_type(dtype.elementType, field.name)), size)
    if isinstance(dtype, spark.TimestampType) and isinstance(metadata.get(ZONE), str):
        return pa.timestamp("us", tz=metadata[ZONE])
    return _stored_type(dtype, field.name)


def _size_in(metadata: Mapping[str, Any], where: str) -> int | None:
    text = metadata.get(VECTOR_SIZE)
    if text is None:
        return None
    if not str(text).isdecimal() or int(text) < 1:
        raise SchemaError(f"column {where}: its metadata {VECTOR_SIZE} is {text!r}, expected a number of items")
    return int(text)


def _stored_type(dtype: spark.DataType, where: str) -> pa.DataType:
    match dtype:
        case spark.ArrayType():
            return pa.list_(pa.field("item", _stored_type(dtype.elementType, f"{where}.element")))
        case spark.MapType():
            key = _key_field(_stored_type(dtype.keyType, f"{where}.key"), where)
            return pa.map_(key, pa.field("value", _stored_type(dtype.valueType, f"{where}.value")))
        case spark.StructType():
            return pa.struct([pa.field(member.name, _new_type(member)) for member in dtype.fields])
    return _carry_type(dtype, where)


def check_storable(given: pa.Field[Any], stored: pa.Field[Any], where: str, *, narrow_floats: bool) -> None:
    """Raise `SchemaError` unless a column of the stored type can store values of a type that Spark carries.

    Values are checked later: this refuses only types whose values never fit.
    """
    if not _fits(given.type, stored, narrow_floats):
        hint = ""
        if pa.types.is_floating(given.type) and (pa.types.is_floating(stored.type) or _is_bfloat16(stored)):
            hint = "; narrow_floats=true stores the nearest value"
        member = _unknown_member(given.type, stored.type)
        if member is not None:
            hint = f"; the table has no member {where}.{member}, which mergeSchema=true adds"
        raise SchemaError(f"column {where}: {given.type} does not fit the table's {stored.type}{hint}")


def _unknown_member(given: pa.DataType, stored: pa.DataType) -> str | None:
    """The path of a member that the stored struct lacks; None if it lacks none."""
    if not (pa.types.is_struct(given) and pa.types.is_struct(stored)):
        return None
    known = {member.name: member.type for member in stored}
    for member in given:
        if member.name not in known:
            return str(member.name)
        below = _unknown_member(member.type, known[member.name])
        if below is not None:
            return f"{member.name}.{below}"
    return None


def _is_bfloat16(field: pa.Field[Any]) -> bool:
    return extension_name(field) == BFLOAT16


def _fits(given: pa.DataType, stored: pa.Field[Any], narrow_floats: bool) -> bool:
    dtype = stored.type
    if given == dtype or pa.types.is_null(given):
        return True
    if _is_bfloat16(stored):
        return narrow_floats and pa.types.is_floating(given)
    if extension_name(stored) == BLOB_V2_EXTENSION:
        return is_bytes(given)
    if isinstance(dtype, pa.BaseExtensionType):
        return extension_name(stored) == JSON and is_text(given)
    if pa.types.is_dictionary(dtype):
        return _fits(given, pa.field("values", dtype.value_type), narrow_floats)
    if is_variable_list(given):
        if not (is_variable_list(dtype) or pa.types.is_fixed_size_list(dtype)):
            return False
        return _fits(given.value_type, dtype.value_field, narrow_floats)
    if pa.types.is_struct(given):
        return pa.types.is_struct(dtype) and _members_fit(given, dtype, narrow_floats)
    if pa.types.is_map(given):
        return pa.types.is_map(dtype) and all(
            (
                _fits(given.key_type, dtype.key_field, narrow_floats),
                _fits(given.item_type, dtype.item_field, narrow_floats),
            )
        )
    return _leaf_fits(given, dtype, narrow_floats)


def _members_fit(given: pa.DataType, stored: pa.DataType, narrow_floats: bool) -> bool:
    names = {member.name for member in given}
    if names - {member.name for member in stored}:
        return False
    members = {member.name: member for member in given}
    return all(
        _fits(members[field.name].type, field, narrow_floats) if field.name in members else field.nullable
        for field in stored
    )


def _leaf_fits(given: pa.DataType, stored: pa.DataType, narrow_floats: bool) -> bool:
    if pa.types.is_integer(given) or pa.types.is_decimal(given):
        return bool(pa.types.is_integer(stored) or pa.types.is_decimal(stored))
    if pa.types.is_floating(given):
        return bool(pa.types.is_floating(stored) and (narrow_floats or stored.bit_width >= given.bit_width))
    if pa.types.is_timestamp(given):
        return bool(pa.types.is_timestamp(stored) and (given.tz is None) == (stored.tz is None))
    return any(
        (
            is_text(given) and is_text(stored),
            is_bytes(given) and is_bytes(stored),
            pa.types.is_date(given) and pa.types.is_date(stored),
            pa.types.is_time(given) and pa.types.is_time(stored),
            pa.types.is_duration(given) and pa.types.is_duration(stored),
        )
    )
