"""Casts batches from stored types to the types that Spark carries (see the table in `types`).

`ReadCast` gives every batch exactly the schema that Spark expects. Casts that change only the type (time zones, list
offsets, vectors) are zero-copy for the values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io.levels.lists import validity
from lance_io.spark.nested_arrays import list_convert, rebuilt_map
from lance_io.spark.types import BFLOAT16, carried_schema, extension_name

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from lance_io.spark.nested_arrays import Convert

MS_PER_DAY: Final = 86_400_000


class ReadCast:
    """Casts batches of a scan to the schema that Spark declared for it.

    source        schema of the scan
    declared      Spark's schema; the same names in the same order
    timestamp_ns  "truncate" cuts nanoseconds off; otherwise a loss raises
    """

    def __init__(self, source: pa.Schema, declared: StructType, *, timestamp_ns: str = "error_on_loss") -> None:
        self.schema = carried_schema(declared)
        truncates_ns = timestamp_ns == "truncate"
        self._converts = [
            _to_carried_type(field, target_field, truncates_ns)
            for field, target_field in zip(source, self.schema, strict=True)
        ]

    def cast(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch in Spark's schema. Raises `pa.ArrowInvalid` for a value that does not fit."""
        if not self._converts:
            return batch.select([]).replace_schema_metadata(None)
        arrays = [
            _carry(convert, column, field)
            for convert, column, field in zip(self._converts, batch.columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _carry(convert: Convert, column: pa.Array, field: pa.Field[Any]) -> pa.Array:
    try:
        array = convert(column)
    except pa.ArrowInvalid as error:
        hint = "; the option timestamp_ns offers truncate and long" if "timestamp[ns" in str(column.type) else ""
        raise pa.ArrowInvalid(f"column {field.name}: {error}{hint}") from error
    if not field.nullable and array.null_count:
        raise pa.ArrowInvalid(f"column {field.name}: declared NOT NULL, and has a null")
    return array


def _to_carried(source: pa.Field[Any], target_field: pa.Field[Any], truncates_ns: bool) -> Convert:
    """The conversion of list items, map keys or map values. It checks for nulls, because Spark does not."""
    convert = _to_carried_type(source, target_field, truncates_ns)
    if target_field.nullable:
        return convert

    def without_nulls(array: pa.Array) -> pa.Array:
        if array.null_count:
            raise _null_in(target_field)
        return convert(array)

    return without_nulls


def _null_in(field: pa.Field[Any]) -> pa.ArrowInvalid:
    return pa.ArrowInvalid(f"its {field.name} is declared NOT NULL, and has a null")


def _to_carried_type(source: pa.Field[Any], target_field: pa.Field[Any], truncates_ns: bool) -> Convert:
    """The conversion from a type in the left column of the table in `types` to the right column."""
    dtype, target = source.type, target_field.type
    if extension_name(source) == BFLOAT16:
        return _bfloat16_to_float
    if isinstance(dtype, pa.BaseExtensionType):
        inner = _to_carried_type(pa.field(source.name, dtype.storage_type), target_field, truncates_ns)
        return lambda array: inner(array.storage)
    if pa.types.is_dictionary(dtype):
        inner = _to_carried_type(pa.field(source.name, dtype.value_type), target_field, truncates_ns)
        return lambda array: inner(array.dictionary_decode())
    if dtype == target:
        return lambda array: array
    if pa.types.is_list(target):
        return list_convert(target, _to_carried(dtype.value_field, target.value_field, truncates_ns))
    if pa.types.is_struct(target):
        members = [
            _to_carried_type(member, target_member, truncates_ns)
            for member, target_member in zip(dtype, target, strict=True)
        ]
        return lambda array: _rebuilt_struct(array, members, target)
    if pa.types.is_map(target):
        keys = _to_carried(dtype.key_field, target.key_field, truncates_ns)
        values = _to_carried(dtype.item_field, target.item_field, truncates_ns)
        return lambda array: rebuilt_map(array, keys, values, target)
    if pa.types.is_timestamp(dtype) and pa.types.is_integer(target):
        return lambda array: array.view(pa.int64())
    if truncates_ns and pa.types.is_timestamp(dtype) and dtype.unit == "ns":
        return lambda array: _divide(array, 1000).view(target)
    if pa.types.is_date64(dtype):
        return lambda array: _divide(array, MS_PER_DAY).cast(pa.int32()).view(pa.date32())
    return lambda array: array.cast(target)


def _divide(array: pa.Array, by: int) -> pa.Array:
    """The integers of a time array, divided and rounded down, so that times before 1970 keep their order."""
    if not len(array):
        return pa.array([], pa.int64())
    numbers = np.frombuffer(array.buffers()[1], dtype="<i8", count=array.offset + len(array))[array.offset :]
    values = pa.py_buffer(numbers // by)
    return pa.Array.from_buffers(pa.int64(), len(array), [validity(array), values], array.null_count)


def _bfloat16_to_float(array: pa.Array) -> pa.Array:
    storage = array.storage if isinstance(array, pa.ExtensionArray) else array
    raw = storage.buffers()[1]
    if not len(storage):
        return pa.array([], pa.float32())
    halves = np.frombuffer(raw, dtype="<u2", count=storage.offset + len(storage))[storage.offset :]
    values = pa.py_buffer((halves.astype("<u4") << 16).tobytes())
    return pa.Array.from_buffers(pa.float32(), len(storage), [validity(storage), values], storage.null_count)


def _rebuilt_struct(array: pa.Array, converts: list[Convert], target: pa.DataType) -> pa.Array:
    members = []
    for number, convert in enumerate(converts):
        member = array.field(number)
        is_suspect = not target.field(number).nullable and member.null_count  # nulls may be those of the struct
        if is_suspect and member.filter(array.is_valid()).null_count:
            raise _null_in(target.field(number))
        members.append(convert(member))
    return pa.Array.from_buffers(target, len(array), [validity(array)], array.null_count, children=members)
