"""Writing under a local Spark session: modes, SQL, what the helpers do, and tables of pylance and ours alternating."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row

import lance_io
from lance_io.errors import UsageError
from lance_io.spark import cleanup_job, read_table, write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t.lance")


def test_types_there_and_back(spark: SparkSession, path: str) -> None:
    """Written by Spark: pylance reads what went in. Read again: so does Spark."""
    schema = (
        "b boolean, i8 tinyint, i16 smallint, i32 int, i64 bigint, f float, d double, s string, x binary, "
        "dec decimal(20,3), day date, ts timestamp, ntz timestamp_ntz, l array<int>, st struct<a: int, b: string>, "
        "m map<string, bigint>, ls array<struct<a: int>>"
    )
    moment = datetime(2026, 1, 31, 12, 0, 0, 123456)
    full = Row(
        True, -1, 2, 3, 2**40, 1.5, -2.5, "ä", b"\x00\x01", Decimal("12345678901234567.125"), date(1969, 12, 31),
        moment.replace(tzinfo=UTC), moment, [1, None], Row(a=1, b=None), {"k": 1, "n": None}, [Row(a=1), None],
    )  # fmt: skip
    empty = Row(
        False, 0, 0, 0, 0, 0.0, 0.0, "", b"", Decimal(0), date(2000, 1, 1), moment.replace(tzinfo=UTC), moment,
        [], Row(a=None, b=""), {}, [],
    )  # fmt: skip
    rows = [full, Row(*[None] * 17), empty] * 7
    df = spark.createDataFrame(rows, schema).coalesce(1)
    write_table(df, path)
    table = lance.dataset(path).to_table()
    assert table.num_rows == 21
    first = table.slice(0, 3).to_pylist()
    assert first[0]["dec"] == Decimal("12345678901234567.125") and first[0]["ts"] == moment.replace(tzinfo=UTC)
    assert dict(first[0]["m"]) == {"k": 1, "n": None} and first[0]["ls"] == [{"a": 1}, None]
    assert all(value is None for value in first[1].values())
    assert (first[2]["l"], first[2]["st"], first[2]["m"]) == ([], {"a": None, "b": ""}, [])
    assert read_table(spark, path).collect() == df.collect()
    assert lance_io.dataset(path).to_table() == table


def test_sql_inserts_through_a_view(spark: SparkSession, path: str) -> None:
    write_table(spark.range(3), path)
    spark.sql(f"CREATE OR REPLACE TEMP VIEW v USING lance_io OPTIONS (path '{path}', batch_size '7')")
    spark.sql("INSERT INTO v VALUES (7)")
    assert sorted(lance.dataset(path).to_table()["id"].to_pylist()) == [0, 1, 2, 7]
    spark.sql("INSERT OVERWRITE v VALUES (8)")
    assert lance.dataset(path).to_table()["id"].to_pylist() == [8]
    spark.sql(f"CREATE OR REPLACE TEMP VIEW old USING lance_io OPTIONS (path '{path}', version '1')")
    with pytest.raises(PySparkException, match="a past version cannot be written to"):
        spark.sql("INSERT INTO old VALUES (9)")


def test_modes_that_spark_does_not_have_for_such_sources(spark: SparkSession, path: str) -> None:
    writer = spark.range(3).write.format("lance_io")
    with pytest.raises(PySparkException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        writer.save(path)
    with pytest.raises(PySparkException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        writer.mode("ignore").save(path)
    with pytest.raises(UsageError, match="mode must be append or overwrite"):
        write_table(spark.range(3), path, mode="ignore")
    with pytest.raises(UsageError, match="did you mean 'mergeSchema'"):
        write_table(spark.range(3), path, merge_schem=True)
    with pytest.raises(PySparkException, match="overwrite_where comes with a later release"):
        writer.mode("overwrite").option("overwrite_where", "id = 1").save(path)


@pytest.mark.parametrize(
    ("how", "has_path"),  # with a path the tasks refuse, and each attempt costs a worker
    [("saveAsTable", True), ("createOrReplace", True), ("saveAsTable", False), ("create", False), ("SQL", False)],
)
def test_catalog_tables_are_refused(spark: SparkSession, path: str, how: str, has_path: bool) -> None:
    """Before a row is written, with what to use instead; and Spark's catalog does not keep the table."""
    df, options = spark.range(3).coalesce(1), {"path": path} if has_path else {}

    def make() -> None:
        if how == "saveAsTable":
            df.write.format("lance_io").options(**options).saveAsTable("refused")
        elif how == "SQL":
            spark.sql("create table refused using lance_io as select 1 as id")  # whose options Spark keeps to itself
        else:
            getattr(df.writeTo("refused").using("lance_io").options(**options), how)()

    with pytest.raises(PySparkException, match=r"saveAsTable[\s\S]*mode\('append'\)\.save\(path\)"):
        make()
    assert not spark.catalog.tableExists("refused")
    assert not Path(path).exists()


def test_batches_of_streams_may_be_saved(spark: SparkSession, tmp_path: Path, path: str) -> None:
    """Although such a write, too, runs inside of another one."""
    spark.range(7).write.parquet(str(tmp_path / "given"))
    given = spark.readStream.schema("id long").parquet(str(tmp_path / "given"))
    query = (
        given.writeStream.foreachBatch(lambda rows, _: rows.write.format("lance_io").mode("append").save(path))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted(lance.dataset(path).to_table()["id"].to_pylist()) == list(range(7))


def test_helpers(spark: SparkSession, path: str) -> None:
    write_table(spark.range(1000), path, files=1, job_id="first", max_rows_per_file=400, properties={"team": "a"})
    assert [one.count_rows() for one in lance.dataset(path).get_fragments()] == [400, 400, 200]
    assert lance.dataset(path).read_transaction(1).transaction_properties["team"] == "a"
    write_table(spark.range(1000), path, job_id="first")
    assert lance.dataset(path).version == 1
    assert cleanup_job(path, "first") == []
    write_table(spark.range(5), path, mode="overwrite")
    assert lance.dataset(path).count_rows() == 5


def test_pylance_and_spark_take_turns(spark: SparkSession, path: str) -> None:
    lance.write_dataset(
        pa.table({"id": pa.array([0], pa.int64()), "v": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2))}), path
    )
    write_table(spark.createDataFrame([(1, [3.0, 4.0])], "id long, v array<float>"), path)
    lance.write_dataset(
        pa.table({"id": pa.array([2], pa.int64()), "v": pa.array([None], pa.list_(pa.float32(), 2))}),
        path,
        mode="append",
    )
    write_table(spark.createDataFrame([(3, "x")], "id long, new string"), path, mergeSchema=True)
    lance.dataset(path).delete("id = 0")
    expected = [
        {"id": 1, "v": [3.0, 4.0], "new": None},
        {"id": 2, "v": None, "new": None},
        {"id": 3, "v": None, "new": "x"},
    ]
    assert lance.dataset(path).to_table().to_pylist() == expected
    assert [row.asDict() for row in read_table(spark, path).orderBy("id").collect()] == expected
    names = [type(lance.dataset(path).read_transaction(number).operation).__name__ for number in range(1, 6)]
    assert names == ["Overwrite", "Append", "Append", "Merge", "Delete"]
