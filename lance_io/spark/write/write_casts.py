"""Casts batches from the types that Spark carries to stored types (see the table in `types`).

`WriteCast` checks values: numbers that do not fit, vectors of the wrong length and nulls in required columns raise
`RowMisfit`, which names the first such row. A batch that fits is converted column by column without checking single
rows. Only if that fails, a binary search finds the row. The search also works for conversions with state
(`_Dictionary`): a half that fits has become a part of their state when the next half is tried.

JSON text becomes JSONB here and not in the file writer, which gets several batches at once and cannot name Spark's
rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lance_io.errors import SchemaError
from lance_io.format.logical_types import EXTENSION_NAME
from lance_io.format.schema import BLOB_V2_EXTENSION
from lance_io.levels.jsonb_write import jsonb_values
from lance_io.levels.lists import validity
from lance_io.spark.nested_arrays import items_of, list_convert, rebuilt_map
from lance_io.spark.types import BFLOAT16, JSON, extension_name, is_variable_list

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from lance_io.spark.nested_arrays import Convert

_SHOWN_CHARS_MAX: Final = 80
_JSONB: Final = "lance.json"
_DECIMAL_OF_INTEGERS: Final = pa.decimal128(19, 0)  # has room for every int64


class Misfit(Exception):
    """A value that cannot be stored. `RowMisfit` names its row."""


class RowMisfit(SchemaError):
    """Data that does not fit the table.

    partition   number of the Spark partition, None outside of Spark
    row         index of the row in that task's input
    column      name
    expected    the stored type or rule
    found       the value, shortened
    """

    def __init__(self, column: str, row: int, expected: str, value: str, partition: int | None) -> None:
        where = f"row {row}" if partition is None else f"partition {partition}, row {row} of its input"
        super().__init__(f"{where}, column {column}: expected {expected}, found {value}")
        self.column, self.row, self.expected, self.partition = column, row, expected, partition
        self.found = value  # plain: callers read this attribute

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.column, self.row, self.expected, self.found, self.partition)


class WriteCast:
    """Casts Spark's batches to the schema in which they are stored.

    given      Spark's schema of the input
    stored     schema of the table, from `types.spark_to_arrow`; `schema` is the same with JSON as JSONB
    partition  number of the Spark partition, for errors
    exact_floats  whether floats must fit narrower ones exactly; otherwise the nearest value is stored
    """

    def __init__(
        self, given: StructType, stored: pa.Schema, *, partition: int | None = None, exact_floats: bool = False
    ) -> None:
        self.schema = pa.schema([_with_jsonb(field) for field in stored], stored.metadata)
        self._names = set(given.names)
        self._partition = partition
        self._exact_floats = exact_floats
        self._converts: list[Convert | None] | None = None

    def cast(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        """The rows in stored form; columns that Spark does not have are null.

        first_row  position of the batch's first row in the task's input
        Raises `RowMisfit` for the first row that does not fit.
        """
        if self._converts is None:  # the batch decides: spark.sql.execution.arrow.useLargeVarTypes makes texts large
            self._converts = [
                _to_stored(batch.schema.field(field.name), field, self._exact_floats)
                if field.name in self._names
                else None
                for field in self.schema
            ]
        columns = [
            pa.nulls(batch.num_rows, field.type) if convert is None else self._column(batch, field, convert, first_row)
            for convert, field in zip(self._converts, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _column(self, batch: pa.RecordBatch, field: pa.Field[Any], convert: Convert, first_row: int) -> pa.Array:
        array = batch.column(field.name)
        try:
            return convert(array)
        except (Misfit, pa.ArrowInvalid) as error:
            row = _first_misfit(array, convert)
            reason = _reason(array.slice(row, 1), convert) or str(error)
            expected = f"{_show_type(field)} ({reason})" if reason else _show_type(field)
            value = _show_row(array.slice(row, 1))
            raise RowMisfit(field.name, first_row + row, expected, value, self._partition) from error


def _first_misfit(array: pa.Array, convert: Convert) -> int:
    """The first row that cannot be converted, of an array that cannot, by binary search."""
    fits, fails = 0, len(array)  # rows before `fits` convert together, rows before `fails` do not
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if _reason(array.slice(fits, middle - fits), convert) is None:
            fits = middle
        else:
            fails = middle
    return fits


def _reason(array: pa.Array, convert: Convert) -> str | None:
    """The reason why an array cannot be converted; None if it can."""
    try:
        convert(array)
    except (Misfit, pa.ArrowInvalid) as error:
        return str(error)
    return None


def _show_type(field: pa.Field[Any]) -> str:
    name = "JSON" if _is_jsonb(field) else str(field.type)
    return name if field.nullable else f"{name} not null"


def _show_row(row: pa.Array) -> str:
    """The value of a one-row array, as text."""
    value = row[0]
    if isinstance(value, pa.ListScalar) and value.is_valid and len(value.values) > 8:
        return f"{len(value.values)} items"
    try:
        text = repr(value.as_py())
    except (ValueError, OverflowError):  # a time beyond Python's range, such as the year 294247
        text = row.to_string(indent=0, skip_new_lines=True)
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}..."


def _is_jsonb(field: pa.Field[Any]) -> bool:
    return extension_name(field) == _JSONB


def _with_jsonb(field: pa.Field[Any]) -> pa.Field[Any]:
    """The same field with JSONB for JSON text, at any depth."""
    dtype = field.type
    if extension_name(field) == JSON:
        metadata = {**(field.metadata or {}), EXTENSION_NAME: _JSONB}
        return pa.field(field.name, pa.large_binary(), field.nullable, metadata)
    if pa.types.is_struct(dtype):
        return field.with_type(pa.struct([_with_jsonb(member) for member in dtype]))
    if is_variable_list(dtype):
        kind = pa.large_list if pa.types.is_large_list(dtype) else pa.list_
        return field.with_type(kind(_with_jsonb(dtype.value_field)))
    if pa.types.is_map(dtype):
        return field.with_type(pa.map_(dtype.key_field, _with_jsonb(dtype.item_field), dtype.keys_sorted))
    return field


def _to_stored(given: pa.Field[Any], stored: pa.Field[Any], exact: bool) -> Convert:
    convert = _to_stored_type(given, stored, exact)
    if stored.nullable:
        return convert

    def without_nulls(array: pa.Array) -> pa.Array:
        if array.null_count:
            raise Misfit("no null")
        return convert(array)

    return without_nulls


def _to_stored_type(given: pa.Field[Any], stored: pa.Field[Any], exact: bool) -> Convert:
    dtype, target = given.type, stored.type
    if pa.types.is_null(dtype):
        return lambda array: pa.nulls(len(array), target)
    if _is_jsonb(stored):
        return _text_to_jsonb
    if extension_name(stored) == BFLOAT16:
        return lambda array: _float_to_bfloat16(array, target, exact)
    if extension_name(stored) == BLOB_V2_EXTENSION:
        return lambda array: _bytes_to_blobs(array, target)
    if isinstance(target, pa.BaseExtensionType):
        inner = _to_stored_type(given, pa.field(stored.name, target.storage_type), exact)
        return lambda array: pa.ExtensionArray.from_storage(target, inner(array))
    if pa.types.is_dictionary(target):
        return _Dictionary(target, _to_stored_type(given, pa.field(stored.name, target.value_type), exact))
    if pa.types.is_fixed_size_list(target):
        return _vector_convert(target, _to_stored_type(dtype.value_field, target.value_field, exact))
    if is_variable_list(target):
        return list_convert(target, _to_stored(dtype.value_field, target.value_field, exact))
    if pa.types.is_struct(target):
        return _struct_convert(dtype, target, exact)
    if pa.types.is_map(target):
        keys = _to_stored_type(dtype.key_field, target.key_field, exact)
        values = _to_stored(dtype.item_field, target.item_field, exact)
        return lambda array: rebuilt_map(array, keys, values, target)
    if dtype == target:
        return lambda array: array
    if pa.types.is_floating(dtype) and pa.types.is_floating(target):
        return lambda array: _to_float(array, target, exact)
    if pa.types.is_decimal(target):
        return lambda array: _to_decimal(array, target)
    return lambda array: pc.cast(array, target)


def _to_float(array: pa.Array, target: pa.DataType, exact: bool) -> pa.Array:
    floats = pc.cast(array, target, safe=False)
    if exact and target.bit_width < array.type.bit_width:
        same = pc.or_(pc.equal(pc.cast(floats, array.type), array), pc.is_nan(array))
        if not pc.all(same, min_count=0).as_py():  # also of no rows, and of nulls alone
            raise _inexact(target)
    return floats


def _inexact(target: pa.DataType) -> Misfit:
    return Misfit(f"only what {target} holds exactly; narrow_floats=true stores the nearest value")


def _to_decimal(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Integers and decimals as decimals of type `target`.

    Arrow refuses integers by type even if their values fit, and rescales decimals without checking for overflow. So
    values that do not survive a round trip did not fit.
    """
    numbers = pc.cast(array, _DECIMAL_OF_INTEGERS) if pa.types.is_integer(array.type) else array
    decimals = pc.cast(numbers, target)
    if not pc.cast(decimals, numbers.type).equals(numbers):
        raise Misfit("no more digits than there is room for")
    return decimals


def _text_to_jsonb(array: pa.Array) -> pa.Array:
    try:
        return jsonb_values(array, "")
    except SchemaError as error:
        _, _, problem = str(error.__cause__ or error).partition(": ")  # without the row, as `RowMisfit` names Spark's
        raise Misfit(problem) from error


def _float_to_bfloat16(array: pa.Array, target: pa.DataType, exact: bool) -> pa.Array:
    """The nearest bfloat16, ties to even, like float arithmetic."""
    floats = np.ascontiguousarray(pc.fill_null(pc.cast(array, pa.float32()), 0.0).to_numpy(zero_copy_only=False))
    bits = floats.view("<u4").astype(np.uint64)
    if exact and ((bits & 0xFFFF != 0) & ~np.isnan(floats)).any():
        raise _inexact(target)
    rounded = np.where(np.isnan(floats), (bits >> 16) | 0x40, (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)
    values = pa.py_buffer(rounded.astype("<u2").tobytes())
    storage = pa.Array.from_buffers(pa.binary(2), len(array), [validity(array), values], array.null_count)
    is_extension = isinstance(target, pa.BaseExtensionType)
    return pa.ExtensionArray.from_storage(target, storage) if is_extension else storage


def _bytes_to_blobs(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Blobs whose bytes are stored with the table."""
    is_extension = isinstance(target, pa.BaseExtensionType)
    members = target.storage_type if is_extension else target
    children = [
        pc.cast(array, member.type) if member.name == "data" else pa.nulls(len(array), member.type)
        for member in members
    ]
    storage = pa.Array.from_buffers(members, len(array), [validity(array)], array.null_count, children=children)
    return pa.ExtensionArray.from_storage(target, storage) if is_extension else storage


def _struct_convert(given: pa.DataType, target: pa.DataType, exact: bool) -> Convert:
    names = [member.name for member in given]
    converts = [
        _to_stored_type(given.field(names.index(field.name)), field, exact) if field.name in names else None
        for field in target
    ]

    def rebuilt(array: pa.Array) -> pa.Array:
        children = []
        for convert, member in zip(converts, target, strict=True):
            if convert is None:
                children.append(pa.nulls(len(array), member.type))
                continue
            child = array.field(names.index(member.name))
            if not member.nullable and child.null_count:
                _refuse_nulls_below(array, child, member.name)
            children.append(convert(child))
        return pa.Array.from_buffers(target, len(array), [validity(array)], array.null_count, children=children)

    return rebuilt


def _refuse_nulls_below(array: pa.Array, child: pa.Array, name: str) -> None:
    if pc.any(pc.and_(array.is_valid(), child.is_null())).as_py():
        raise Misfit(f"no null in member {name}")


class _Dictionary:
    """Conversion to dictionaries of type `target`; `convert` converts the values.

    All batches of a task share a growing dictionary. With narrow indices, the rows of a file with more values than the
    indices can number cannot be read into one array, even if every page has fewer values.
    """

    def __init__(self, target: pa.DataType, convert: Convert) -> None:
        self._target = target
        self._convert = convert
        width = target.index_type.bit_width - pa.types.is_signed_integer(target.index_type)
        self._values_max = 1 << width
        self._is_narrow = width <= 16
        self._values = pa.array([], target.value_type)

    def __call__(self, array: pa.Array) -> pa.Array:
        encoded = self._convert(array).dictionary_encode()
        if not self._is_narrow:
            return pc.cast(encoded, self._target)
        values = encoded.dictionary
        new = values.filter(pc.invert(pc.is_in(values, self._values)))
        if len(self._values) + len(new) > self._values_max:
            raise Misfit(f"at most {self._values_max} values in the rows of a task")
        if len(new):
            self._values = pa.concat_arrays([self._values, new])
        positions = pc.cast(pc.index_in(values, self._values), self._target.index_type)
        return pa.DictionaryArray.from_arrays(positions.take(encoded.indices), self._values)


def _vector_convert(target: pa.DataType, convert: Convert) -> Convert:
    size = target.list_size

    def rebuilt(array: pa.Array) -> pa.Array:
        items, offsets = items_of(array)
        lengths = np.diff(offsets)
        valid = None if not array.null_count else np.asarray(array.is_valid())
        wrong = lengths != size if valid is None else (lengths != size) & valid
        if wrong.any():
            raise Misfit(f"{size} items, not {int(lengths[int(np.argmax(wrong))])}")
        if valid is not None and (lengths != size).any():
            items = _items_with_gaps(items, offsets, valid, size)
        elif items.null_count and (valid is None or _null_items(items, valid, size)):
            raise Misfit("no null among the items")
        is_leaf = not (pa.types.is_nested(items.type) or pa.types.is_null(items.type))
        if valid is not None and items.null_count and is_leaf:  # only below null rows
            items = pc.fill_null(items, pa.scalar(0, items.type))
        buffers = [validity(array)]
        return pa.Array.from_buffers(target, len(array), buffers, array.null_count, children=[convert(items)])

    return rebuilt


def _null_items(items: pa.Array, valid: Any, size: int) -> bool:
    return bool((np.asarray(items.is_null()).reshape(-1, size).any(axis=1) & valid).any())


def _items_with_gaps(items: pa.Array, offsets: Any, valid: Any, size: int) -> pa.Array:
    """Items with gaps for null rows without items: a fixed-size list has items below every row."""
    positions = np.zeros((len(valid), size), dtype=np.int64)
    positions[valid] = offsets[:-1][valid][:, None] + np.arange(size)
    if not valid.any():
        return pa.nulls(len(valid) * size, items.type)
    taken = items.take(pa.array(positions.reshape(-1)))
    if _null_items(taken, valid, size):
        raise Misfit("no null among the items")
    return taken
