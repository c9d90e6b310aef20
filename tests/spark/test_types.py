"""Types and casts: each row of the type table, sliced and with nulls, beside Spark's own idea of Arrow."""

from __future__ import annotations

import decimal
import inspect
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from lance_io.errors import SchemaError, UnsupportedDataError, UnsupportedError, UsageError
from lance_io.levels.jsonb import json_texts
from lance_io.spark.read.read_casts import ReadCast
from lance_io.spark.types import arrow_to_spark, carried_schema, spark_to_arrow
from lance_io.spark.write.write_casts import RowMisfit, WriteCast

ARRAYS: dict[str, tuple[pa.Array, str]] = {
    "bool": (pa.array([True, None, False]), "boolean"),
    "int8": (pa.array([-1, None, 127], pa.int8()), "tinyint"),
    "int16": (pa.array([-1, None, 1], pa.int16()), "smallint"),
    "int32": (pa.array([-1, None, 1], pa.int32()), "int"),
    "int64": (pa.array([-1, None, 1], pa.int64()), "bigint"),
    "uint8": (pa.array([0, None, 255], pa.uint8()), "smallint"),
    "uint16": (pa.array([0, None, 65535], pa.uint16()), "int"),
    "uint32": (pa.array([0, None, 2**32 - 1], pa.uint32()), "bigint"),
    "uint64": (pa.array([0, None, 2**64 - 1], pa.uint64()), "decimal(20,0)"),
    "float16": (pa.array([1.5, None, -2.0], pa.float16()), "float"),
    "float32": (pa.array([1.5, None, -2.0], pa.float32()), "float"),
    "float64": (pa.array([1.5, None, -2.0]), "double"),
    "decimal32": (pa.array([Decimal("1.25"), None, Decimal("-3.50")], pa.decimal32(5, 2)), "decimal(5,2)"),
    "decimal64": (pa.array([Decimal("1.25"), None, Decimal("-3.50")], pa.decimal64(12, 2)), "decimal(12,2)"),
    "decimal128": (pa.array([Decimal("1.25"), None, Decimal("-3.50")], pa.decimal128(20, 2)), "decimal(20,2)"),
    "decimal256": (pa.array([Decimal("1.25"), None, Decimal("-3.50")], pa.decimal256(60, 2)), "decimal(38,2)"),
    "string": (pa.array(["ä", None, ""]), "string"),
    "large_string": (pa.array(["ä", None, ""], pa.large_string()), "string"),
    "binary": (pa.array([b"a", None, b""]), "binary"),
    "large_binary": (pa.array([b"a", None, b""], pa.large_binary()), "binary"),
    "fixed_binary": (pa.array([b"ab", None, b"cd"], pa.binary(2)), "binary"),
    "date32": (pa.array([date(2020, 1, 1), None, date(1960, 2, 3)]), "date"),
    "date64": (pa.array([date(2020, 1, 1), None, date(1960, 2, 3)], pa.date64()), "date"),
    "time32": (pa.array([1, None, 86_399], pa.time32("s")), "time(6)"),
    "time64_us": (pa.array([1, None, 2], pa.time64("us")), "time(6)"),
    "time64_ns": (pa.array([1000, None, 2000], pa.time64("ns")), "time(6)"),
    "timestamp_s": (pa.array([1, None, -1], pa.timestamp("s")), "timestamp_ntz"),
    "timestamp_us": (pa.array([1, None, -1], pa.timestamp("us")), "timestamp_ntz"),
    "timestamp_ns": (pa.array([1000, None, -1000], pa.timestamp("ns")), "timestamp_ntz"),
    "timestamp_utc": (pa.array([1, None, -1], pa.timestamp("us", "UTC")), "timestamp"),
    "timestamp_zone": (pa.array([1, None, -1], pa.timestamp("ms", "Asia/Tokyo")), "timestamp"),
    "duration": (pa.array([1, None, -1], pa.duration("ms")), "interval day to second"),
    "list": (pa.array([[1], None, [2, None]]), "array<bigint>"),
    "large_list": (pa.array([[1], None, []], pa.large_list(pa.uint8())), "array<smallint>"),
    "vector": (pa.array([[1, 2], None, [3, 4]], pa.list_(pa.float32(), 2)), "array<float>"),
    "struct": (
        pa.array(
            [{"x": 1, "y": [1.0, 2.0]}, None, {"x": None, "y": None}],
            pa.struct([("x", pa.uint16()), ("y", pa.list_(pa.float32(), 2))]),
        ),
        "struct<x:int,y:array<float>>",
    ),
    "list_of_struct": (
        pa.array([[{"x": 1}, None], None, [{"x": 2}]], pa.large_list(pa.struct([("x", pa.uint32())]))),
        "array<struct<x:bigint>>",
    ),
    "map": (
        pa.array([[("a", 1)], None, [("b", 2), ("c", None)]], pa.map_(pa.large_string(), pa.uint32())),
        "map<string,bigint>",
    ),
    "dictionary": (pa.array(["a", None, "b"]).dictionary_encode(), "string"),
    "null": (pa.nulls(3), "void"),
    "json": (pa.array(['{"a":1}', None, "1"], pa.json_()), "string"),
}
BATCH = pa.RecordBatch.from_pydict({name: array for name, (array, _) in ARRAYS.items()})
DECLARED = arrow_to_spark(BATCH.schema)
CUTS = {
    "whole": BATCH,
    "empty": BATCH.slice(1, 0),
    "tail": BATCH.slice(1),
    "one": BATCH.slice(2, 1),
    "inside": pa.concat_batches([BATCH] * 5).slice(4, 9),
}


def sparks_own(schema: spark.StructType) -> pa.Schema:
    """The Arrow schema that Spark itself makes of one of its own."""
    named = "timezone" in inspect.signature(to_arrow_schema).parameters  # it came with pyspark 4.2
    return to_arrow_schema(schema, timezone="UTC") if named else to_arrow_schema(schema)


def test_the_type_table() -> None:
    assert {field.name: field.dataType.simpleString() for field in DECLARED} == {
        name: shown for name, (_, shown) in ARRAYS.items()
    }
    assert all(field.nullable for field in DECLARED)
    assert DECLARED["vector"].metadata == {"arrow.fixed-size-list.size": 2}
    assert DECLARED["timestamp_zone"].metadata == {"arrow.timestamp.timezone": "Asia/Tokyo"}


def test_spark_agrees_on_the_arrow_types() -> None:
    assert carried_schema(DECLARED).equals(sparks_own(DECLARED))


@pytest.mark.parametrize("cut", CUTS)
def test_values_come_through_both_ways(cut: str) -> None:
    batch = CUTS[cut]
    read = ReadCast(batch.schema, DECLARED).cast(batch)
    read.validate(full=True)
    assert read.schema.equals(sparks_own(DECLARED))
    assert read.to_pylist() == batch.to_pylist()

    stored = spark_to_arrow(DECLARED, batch.schema, narrow_floats=True)
    assert stored.equals(batch.schema)
    written = WriteCast(DECLARED, stored).cast(read, 0)
    written.validate(full=True)
    texts = json_texts(written["json"].cast(pa.large_binary()))
    assert written.set_column(written.schema.names.index("json"), "json", texts).to_pylist() == batch.to_pylist()


def test_vectors_share_their_values() -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(8, dtype=np.float32)), 2)
    batch = pa.RecordBatch.from_pydict({"v": vectors})
    read = ReadCast(batch.schema, arrow_to_spark(batch.schema)).cast(batch)
    assert read["v"].values.buffers()[1].address == vectors.values.buffers()[1].address


def test_bfloat16_is_float() -> None:
    halves = np.array([1.0, -2.5, float("inf"), 3.140625], np.float32).view(np.uint32) >> 16
    storage = pa.Array.from_buffers(pa.binary(2), 4, [None, pa.py_buffer(halves.astype("<u2").tobytes())])
    field = pa.field("b", pa.binary(2), metadata={"ARROW:extension:name": "lance.bfloat16"})
    batch = pa.RecordBatch.from_arrays([storage], schema=pa.schema([field])).slice(1)
    declared = arrow_to_spark(batch.schema)
    assert declared["b"].dataType == spark.FloatType()
    read = ReadCast(batch.schema, declared).cast(batch)
    assert read["b"].to_pylist() == [-2.5, float("inf"), 3.140625]
    stored = spark_to_arrow(declared, batch.schema, narrow_floats=True)
    assert WriteCast(declared, stored).cast(read, 0)["b"].equals(batch["b"])
    with pytest.raises(SchemaError, match="narrow_floats"):
        spark_to_arrow(declared, batch.schema)


# -- options of reads ------------------------------------------------------------------------------------------------


def cast(array: pa.Array, **options: str) -> list[Any]:
    schema = pa.schema([("c", array.type)])
    declared = arrow_to_spark(schema, **options)
    batch = pa.RecordBatch.from_arrays([array], schema=schema)
    values: list[Any] = (
        ReadCast(schema, declared, timestamp_ns=options.get("timestamp_ns", "")).cast(batch)["c"].to_pylist()
    )
    return values


def test_uint64_as_long() -> None:
    assert cast(pa.array([1, 2**63 - 1], pa.uint64()), uint64="long") == [1, 2**63 - 1]
    with pytest.raises(pa.ArrowInvalid, match="column c: "):
        cast(pa.array([2**63], pa.uint64()), uint64="long")


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_nanoseconds_are_cut_downwards(nanoseconds: list[int]) -> None:
    found = cast(pa.array(nanoseconds, pa.int64()).view(pa.timestamp("ns")), timestamp_ns="truncate")
    assert pa.array(found, pa.timestamp("us")).view(pa.int64()).to_pylist() == [one // 1000 for one in nanoseconds]


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_nanoseconds_that_would_be_lost_are_an_error_or_numbers(zone: str | None) -> None:
    array = pa.array([1, None], pa.timestamp("ns", zone))
    with pytest.raises(pa.ArrowInvalid, match=r"column c: .*lose data.*timestamp_ns"):
        cast(array)
    assert cast(array, timestamp_ns="long") == [1, None]


def test_decimals_that_spark_cannot_hold() -> None:
    with decimal.localcontext() as context:
        context.prec = 60
        with pytest.raises(pa.ArrowInvalid, match="column c"):
            cast(pa.array([Decimal(10) ** 40], pa.decimal256(60, 0)))
    with pytest.raises(UnsupportedError, match="column c"):
        arrow_to_spark(pa.schema([("c", pa.decimal256(60, 40))]))


def test_types_that_spark_lacks_name_the_column() -> None:
    schema = pa.schema([("s", pa.struct([("m", pa.list_(pa.month_day_nano_interval()))]))])
    with pytest.raises(UnsupportedError, match=r"column s\.m\.element"):
        arrow_to_spark(schema)


def test_not_null_declarations_are_kept() -> None:
    batch = pa.RecordBatch.from_pydict({"a": pa.array([1, None])})
    declared = spark.StructType([spark.StructField("a", spark.LongType(), nullable=False)])
    convert = ReadCast(batch.schema, declared)
    assert convert.cast(batch.slice(0, 1)).schema.equals(sparks_own(declared))
    with pytest.raises(pa.ArrowInvalid, match="NOT NULL"):
        convert.cast(batch)


@pytest.mark.parametrize(
    ("dtype", "fitting", "null", "declared"),
    [
        (pa.list_(pa.int64()), [[1], None, []], [None], spark.ArrayType(spark.LongType(), containsNull=False)),
        (
            pa.struct([("a", pa.int64())]),
            [{"a": 1}, None],
            {"a": None},
            spark.StructType([spark.StructField("a", spark.LongType(), nullable=False)]),
        ),
        (
            pa.map_(pa.string(), pa.int64()),
            [[("k", 1)], None, []],
            [("k", None)],
            spark.MapType(spark.StringType(), spark.LongType(), valueContainsNull=False),
        ),
    ],
)
def test_nulls_below_a_column_that_declares_none(
    dtype: pa.DataType, fitting: list[Any], null: Any, declared: spark.DataType
) -> None:
    """Spark believes the declaration: it would fail inside, or take the null for a number."""
    struct = spark.StructType([spark.StructField("c", declared)])
    convert = ReadCast(pa.schema([("c", dtype)]), struct)
    batch = pa.RecordBatch.from_pydict({"c": pa.array(fitting, dtype)})
    assert convert.cast(batch)["c"].to_pylist() == fitting
    with pytest.raises(pa.ArrowInvalid, match=r"column c: its .* is declared NOT NULL, and has a null"):
        convert.cast(pa.RecordBatch.from_pydict({"c": pa.array([*fitting, null], dtype)}))


# -- writes ----------------------------------------------------------------------------------------------------------


def test_new_tables_are_nullable_and_keep_what_metadata_says() -> None:
    item = spark.ArrayType(spark.FloatType(), containsNull=False)
    struct = spark.StructType(
        [
            spark.StructField("id", spark.LongType(), nullable=False),
            spark.StructField("v", item, nullable=False, metadata={"arrow.fixed-size-list.size": 4}),
            spark.StructField("w", item),
            spark.StructField("t", spark.TimestampType(), metadata={"arrow.timestamp.timezone": "Asia/Tokyo"}),
            spark.StructField("s", spark.StructType([spark.StructField("x", spark.ByteType(), nullable=False)])),
            spark.StructField("_rowid", spark.LongType()),
        ]
    )
    vector = pa.list_(pa.float32(), 4)
    expected = [
        ("id", pa.int64()),
        ("v", vector),
        ("w", pa.list_(pa.float32(), 8)),
        ("t", pa.timestamp("us", "Asia/Tokyo")),
        ("s", pa.struct([("x", pa.int8())])),
    ]
    assert spark_to_arrow(struct, vector_sizes={"W": 8}).equals(pa.schema(expected))


def test_vector_sizes_need_one_column() -> None:
    item = spark.ArrayType(spark.FloatType())
    struct = spark.StructType([spark.StructField("v", item), spark.StructField("V", item)])
    with pytest.raises(UsageError, match=r"2 columns \(v, V\) .*withMetadata"):
        spark_to_arrow(struct, vector_sizes={"v": 4})
    with pytest.raises(UsageError, match="no column"):
        spark_to_arrow(struct, vector_sizes={"x": 4})
    with pytest.raises(SchemaError, match="only an ARRAY"):
        spark_to_arrow(spark.StructType([spark.StructField("v", spark.LongType())]), vector_sizes={"v": 4})


def test_columns_go_by_name() -> None:
    table = pa.schema([("a", pa.int32()), ("b", pa.string()), ("c", pa.list_(pa.float32(), 2))])
    given_ = spark.StructType(
        [spark.StructField("c", spark.ArrayType(spark.FloatType())), spark.StructField("a", spark.LongType())]
    )
    batch = pa.RecordBatch.from_pydict({"c": pa.array([[1, 2]], pa.list_(pa.float32())), "a": pa.array([7])})
    found = WriteCast(given_, spark_to_arrow(given_, table)).cast(batch, 0)
    assert found.schema.equals(table)
    assert found.to_pylist() == [{"a": 7, "b": None, "c": [1.0, 2.0]}]


@pytest.mark.parametrize(
    ("field", "table", "message"),
    [
        (spark.StructField("A", spark.LongType()), [("a", pa.int64())], r"A \(the table has a\)"),
        (spark.StructField("x", spark.LongType()), [("a", pa.int64())], "mergeSchema"),
        (spark.StructField("a", spark.StringType()), [("a", pa.int64())], "string does not fit the table's int64"),
        (spark.StructField("a", spark.DoubleType()), [("a", pa.float32())], "narrow_floats"),
        (spark.StructField("a", spark.TimestampType()), [("a", pa.timestamp("us"))], "does not fit"),
        (spark.StructField("a", spark.LongType()), [("a", pa.int64()), ("b", pa.int64(), False)], "b is missing"),
    ],
)
def test_schemas_that_do_not_fit(field: spark.StructField, table: list[Any], message: str) -> None:
    schema = pa.schema([pa.field(*one) for one in table])
    with pytest.raises(SchemaError, match=message):
        spark_to_arrow(spark.StructType([field]), schema)


def test_merged_columns_come_last() -> None:
    table = pa.schema([("a", pa.int32())])
    new, known = spark.StructField("x", spark.StringType(), False), spark.StructField("a", spark.LongType())
    found = spark_to_arrow(spark.StructType([new, known]), table, merge_schema=True)
    assert found.equals(pa.schema([("a", pa.int32()), ("x", pa.string())]))


def test_spark_types_without_an_arrow_form() -> None:
    interval = spark.StructType([spark.StructField("i", spark.YearMonthIntervalType())])
    with pytest.raises(UnsupportedDataError, match="column i"):
        carried_schema(interval)


# -- rows that do not fit --------------------------------------------------------------------------------------------


def misfit(values: pa.Array, stored: pa.Field) -> RowMisfit:
    given_ = arrow_to_spark(pa.schema([("c", values.type)]))
    batch = pa.RecordBatch.from_pydict({"c": values})
    with pytest.raises(RowMisfit) as caught:
        WriteCast(given_, pa.schema([stored]), partition=3).cast(batch, 1000)
    return caught.value


ROWS = 1000


@given(st.integers(0, ROWS - 1), st.integers(0, ROWS - 1))
def test_the_first_misfit_is_named(first: int, second: int) -> None:
    numbers = np.zeros(ROWS, np.int64)
    numbers[[first, second]] = 300
    error = misfit(pa.array(numbers), pa.field("c", pa.uint8()))
    assert (error.row, error.partition, error.column, error.found) == (1000 + min(first, second), 3, "c", "300")
    assert "partition 3, row" in str(error) and "uint8" in str(error)


@pytest.mark.parametrize(
    ("values", "stored", "row", "expected"),
    [
        (
            pa.array([[1, 2], None, [3]], pa.list_(pa.float32())),
            pa.field("c", pa.list_(pa.float32(), 2)),
            2,
            "2 items, not 1",
        ),
        (
            pa.array([[1, 2], None, [3, None]], pa.list_(pa.float32())),
            pa.field("c", pa.list_(pa.float32(), 2)),
            2,
            "no null among the items",
        ),
        (pa.array([1, None, 2]), pa.field("c", pa.int64(), False), 1, "no null"),
        (
            pa.array([{"x": 1}, None, {"x": None}]),
            pa.field("c", pa.struct([pa.field("x", pa.int64(), False)])),
            2,
            "no null in member x",
        ),
        (pa.array([b"ab", b"c"]), pa.field("c", pa.binary(2)), 1, "fixed_size_binary"),
        (pa.array(["1", None, "not json"]), pa.field("c", pa.json_()), 2, "JSON (expected a value at byte 0)"),
        (
            pa.array([[{"x": "1"}], [{"x": "2"}, {"x": "{"}]]),
            pa.field("c", pa.list_(pa.struct([("x", pa.json_())]))),
            1,
            "list<item: struct",
        ),
        (
            pa.array([timedelta(0), timedelta(microseconds=1)], pa.duration("us")),
            pa.field("c", pa.duration("s")),
            1,
            "lose data",
        ),
        (
            pa.array([0, 2**63 - 1], pa.int64()).view(pa.timestamp("us")),  # Python has no such year
            pa.field("c", pa.timestamp("ns")),
            1,
            "out of bounds",
        ),
        (pa.array([999, 1000], pa.int32()), pa.field("c", pa.decimal128(5, 2)), 1, "does not fit in precision 5"),
        (
            pa.array([Decimal(1), Decimal(2**63 - 1)], pa.decimal128(38, 0)),  # times 10**30, modulo 2**128
            pa.field("c", pa.decimal128(38, 30)),
            1,
            "decimal128(38, 30) (",
        ),
        (
            pa.array([None, [None, None]], pa.list_(pa.null())),
            pa.field("c", pa.list_(pa.float32(), 2)),
            1,
            "no null among the items",
        ),
    ],
)
def test_misfits(values: pa.Array, stored: pa.Field, row: int, expected: str) -> None:
    error = misfit(values, stored)
    assert error.row == 1000 + row
    assert expected in error.expected


@pytest.mark.parametrize(
    ("dtype", "stored", "value"),
    [
        (pa.large_string(), pa.string(), "ä"),
        (pa.large_string(), pa.json_(), "[1]"),
        (pa.large_string(), pa.dictionary(pa.int8(), pa.string()), "a"),
        (pa.large_binary(), pa.binary(1), b"a"),
        (pa.list_(pa.large_string()), pa.list_(pa.string()), ["a", None]),
        (pa.struct([("a", pa.large_binary())]), pa.struct([("a", pa.binary())]), {"a": b"b"}),
        (pa.map_(pa.large_string(), pa.large_string()), pa.map_(pa.string(), pa.string()), [("k", "v")]),
    ],
)
def test_large_texts_and_bytes(dtype: pa.DataType, stored: pa.DataType, value: Any) -> None:
    """Spark hands them over with `spark.sql.execution.arrow.useLargeVarTypes`."""
    batch = pa.RecordBatch.from_pydict({"c": pa.array([value, None], dtype)})
    found = WriteCast(arrow_to_spark(batch.schema), pa.schema([("c", stored)])).cast(batch, 0)["c"]
    found.validate(full=True)
    texts = json_texts(found) if stored == pa.json_() else found
    assert texts.to_pylist() == [value, None]


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)), st.integers(1, 38), st.integers(0, 38))
def test_integers_become_decimals_that_have_room(numbers: list[int | None], digits: int, scale: int) -> None:
    target = pa.decimal128(max(digits, scale), scale)
    room = 10 ** (target.precision - scale)
    fitting = pa.array([one for one in numbers if one is None or -room < one < room], pa.int64())
    stored = pa.schema([("c", target)])
    batch = pa.RecordBatch.from_pydict({"c": fitting})
    found = WriteCast(arrow_to_spark(batch.schema), stored).cast(batch, 0)["c"]
    assert found.to_pylist() == fitting.to_pylist()
    if len(fitting) < len(numbers):
        misfit(pa.array(numbers, pa.int64()), stored.field("c"))


@pytest.mark.parametrize("item", [pa.list_(pa.float32(), 2), pa.struct([("a", pa.int32())])])
def test_vectors_of_vectors_that_are_all_null(item: pa.DataType) -> None:
    stored = pa.schema([("c", pa.list_(item, 2))])
    for given_type in (pa.list_(item), pa.list_(pa.null())):
        batch = pa.RecordBatch.from_pydict({"c": pa.nulls(2, given_type)})
        found = WriteCast(arrow_to_spark(batch.schema), stored).cast(batch, 0)["c"]
        found.validate(full=True)
        assert found.null_count == 2


@pytest.mark.parametrize(("index", "most"), [(pa.int8(), 128), (pa.uint8(), 256), (pa.int16(), 1 << 15)])
@pytest.mark.parametrize("rows", [60, 50_000])
def test_narrow_dictionaries_hold_so_many_values(index: pa.DataType, most: int, rows: int) -> None:
    """However the rows of a task come in batches; values that come again and nulls do not count."""
    texts = pa.array([None, *(f"k{number // 2}" for number in range(2 * most + 2))])
    batch = pa.RecordBatch.from_pydict({"c": texts})
    stored = pa.schema([("c", pa.dictionary(index, pa.string()))])
    cast_ = WriteCast(arrow_to_spark(batch.schema), stored, partition=3)
    fitting = range(0, 2 * most - rows, rows)
    seen = [cast_.cast(batch.slice(start, rows), start) for start in fitting]
    at = rows * len(seen)
    with pytest.raises(RowMisfit) as caught:
        for start in range(at, len(texts), rows):
            cast_.cast(batch.slice(start, rows), start)
    assert (caught.value.row, caught.value.found) == (2 * most + 1, f"'k{most}'")
    assert f"at most {most} values" in caught.value.expected
    assert pa.Table.from_batches(seen, stored)["c"].to_pylist() == texts.to_pylist()[:at]


def test_null_vectors_keep_their_place() -> None:
    lists = pa.array([None, [1, 2], None, [3, 4]], pa.list_(pa.float32()))
    given_ = arrow_to_spark(pa.schema([("c", lists.type)]))
    stored = pa.schema([("c", pa.list_(pa.float32(), 2))])
    for start in range(5):
        batch = pa.RecordBatch.from_pydict({"c": lists}).slice(start)
        found = WriteCast(given_, stored).cast(batch, 0)
        found.validate(full=True)
        assert found["c"].to_pylist() == batch["c"].to_pylist()


@pytest.mark.parametrize("stored", [pa.float16(), pa.float32(), pa.list_(pa.float16(), 2)])
def test_nulls_fit_narrow_floats(stored: pa.DataType) -> None:
    """Rows that are written again have all columns, also those whose values are all null."""
    given_type = pa.list_(pa.float64()) if pa.types.is_fixed_size_list(stored) else pa.float64()
    batch = pa.RecordBatch.from_pydict({"c": pa.nulls(3, given_type)})
    schema = pa.schema([("c", stored)])
    cast_ = WriteCast(arrow_to_spark(batch.schema), schema, exact_floats=True)
    for num_rows in (3, 1, 0):
        assert cast_.cast(batch.slice(0, num_rows), 0)["c"].equals(pa.nulls(num_rows, stored))
    value = pa.array([[0.1, 0.5]] if pa.types.is_fixed_size_list(stored) else [0.1], given_type)
    with pytest.raises(RowMisfit) as caught:
        cast_.cast(pa.RecordBatch.from_arrays([pa.concat_arrays([batch["c"], value])], ["c"]), 10)
    assert caught.value.row == 13
