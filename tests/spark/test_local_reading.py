"""Reading through Spark itself, from local disk: `format("lance_io")` found by its package."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import lance
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException

import lance_io.spark
from lance_io.errors import UsageError
from lance_io.io.budget import process_bytes
from lance_io.spark import engine
from tests.spark.probing import probes
from tests.spark.sessions import TASK_ERRORS
from tests.spark.test_types import ARRAYS, BATCH

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(600)  # the first query starts a virtual machine and several Pythons


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Ten rows in three fragments, as in the design's table of queries."""
    place = str(tmp_path_factory.mktemp("tables") / "t.lance")
    table = pa.table({"a": [1, 1, 2, 2, 2, 3, 4, 5, 6, 7], "b": [f"b{i}" for i in range(10)]})
    lance.write_dataset(table, place, max_rows_per_file=4)
    return place


def load(spark: SparkSession, uri: str, **options: Any) -> DataFrame:
    return spark.read.format("lance_io").options(**options).load(uri)


# -- types -----------------------------------------------------------------------------------------------------------

STORABLE = [name for name in ARRAYS if name not in ("decimal32", "decimal64", "null")]  # what pylance can write


def test_every_type_comes_through(spark: SparkSession, tmp_path: Path) -> None:
    """Written by pylance and read by Spark; appended by Spark and read by pylance, in the types of the table."""
    table = pa.Table.from_batches([BATCH.select(STORABLE)] * 3)
    place = str(tmp_path / "types.lance")
    lance.write_dataset(table, place, data_storage_version="2.2")
    found = load(spark, place).toArrow()
    assert found.num_rows == 9
    for name in STORABLE:
        assert found[name].to_pylist() == table[name].to_pylist(), name
    df = load(spark, place, version="1", num_partitions="1")
    lance_io.spark.write_table(df, place, narrow_floats=True)
    both = lance.dataset(place).to_table()
    assert both.schema == lance.dataset(place, version=1).to_table().schema
    for name in STORABLE:
        assert both[name].to_pylist() == table[name].to_pylist() * 2, name


# -- one DataFrame, several uses ---------------------------------------------------------------------------------------


def test_uses_of_one_dataframe_do_not_share_filters(spark: SparkSession, uri: str) -> None:
    df = load(spark, uri)
    assert (df.where("a = 1").count(), df.count()) == (2, 10)
    both = df.where("a = 1").union(df.where("a = 2")).groupBy("a").count().collect()
    assert sorted((row["a"], row["count"]) for row in both) == [(1, 2), (2, 3)]
    assert df.where("a = 3").crossJoin(df.select("b")).count() == 10
    first, second = df.where("a = 1").select("a"), df.where("a = 2").select("a")
    assert second.collect() != first.collect() == [(1,), (1,)]
    df.createOrReplaceTempView("shared")
    rows = spark.sql("select a from shared where a = 1 union all select a from shared where a = 3").collect()
    assert sorted(row["a"] for row in rows) == [1, 1, 3]
    loads = load(spark, uri).where("a = 1").union(load(spark, uri).where("a = 2"))
    assert sorted(row["a"] for row in loads.collect()) == [1, 1, 2, 2, 2]


def test_views_and_options_from_sql(spark: SparkSession, uri: str) -> None:
    spark.sql(
        f"create or replace temp view sql_view using lance_io options (path '{uri}', columns 'b,a', filter 'a>5')"
    )
    assert [tuple(row) for row in spark.sql("select * from sql_view order by a").collect()] == [("b8", 6), ("b9", 7)]


def test_helpers(spark: SparkSession, uri: str) -> None:
    df = lance_io.spark.read_table(spark, uri, columns=["a"], num_partitions=3, with_row_address=True)
    assert df.rdd.getNumPartitions() == 3
    assert df.schema.simpleString() == "struct<a:bigint,_rowaddr:bigint>"
    assert df.agg({"_rowaddr": "max"}).collect() == [((2 << 32) + 1,)]
    lance_io.spark.register(spark, "lakeside")
    assert spark.read.format("lakeside").schema("b string").load(uri).where("b = 'b3'").count() == 1


@pytest.mark.parametrize(
    "options", [{}, {"filter": "a > 1 and a < 5", "columns": "b"}, {"limit": 3}, {"limit": 3, "filter": "a = 1"}]
)
def test_counts_are_those_of_spark(spark: SparkSession, uri: str, options: dict[str, Any]) -> None:
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup()
    counted = lance_io.spark.count(uri, **options)
    assert spark.sparkContext.statusTracker().getJobIdsForGroup() == jobs
    assert counted == load(spark, uri, **options).count() > 0


def test_workers_of_local_mode_share_the_machine(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    """As many as the master's name says, although nobody gave `spark.executor.cores`."""
    assert spark.conf.get("spark.executor.cores", "nobody") == "nobody"
    assert spark.read.format("probed").options(probes=str(tmp_path), num_partitions="2").load(uri).count() == 10
    tasks = probes(tmp_path)
    assert [one["workers"] for one in tasks] == [2, 2]
    assert {one["pool_bytes"] for one in tasks} == {process_bytes(engine.memory_bytes() // 2)}


# -- versions --------------------------------------------------------------------------------------------------------


def test_a_dataframe_keeps_its_version(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "versions.lance")
    lance.write_dataset(pa.table({"a": range(5)}), place)
    df = load(spark, place)
    lance.write_dataset(pa.table({"a": range(5, 12)}), place, mode="append")
    assert df.count() == 5
    assert df.agg({"a": "sum"}).collect() == [(10,)]
    assert load(spark, place).count() == 12
    assert load(spark, place, versionAsOf="1").count() == 5


@pytest.mark.parametrize(
    ("option", "name"),
    [("timestampAsOf", "Pacific/Kiritimati"), ("asoftimestamp", "+14:00"), ("timestamp_As_Of", "GMT+14")],
)
def test_times_without_a_zone_are_the_sessions(spark: SparkSession, uri: str, option: str, name: str) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", name)  # 14 hours ahead
    try:
        committed = lance.dataset(uri).versions()[0]["timestamp"].astimezone(ZoneInfo("Pacific/Kiritimati"))
        shown = committed.replace(tzinfo=None) + timedelta(milliseconds=1)  # pylance's times may lose a microsecond
        read_table = partial(lance_io.spark.read_table, spark, uri)
        assert read_table(**{option: shown}).schema.names == ["a", "b"]
        with pytest.raises(PySparkException, match="no version is as old as"):
            read_table(**{option: shown - timedelta(minutes=1)})
        spark.conf.set("spark.sql.session.timeZone", "PST")  # a name that only Java knows
        with pytest.raises(UsageError, match="'PST' is unknown: give the time a zone"):
            read_table(**{option: shown})
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_versions_that_were_cleaned_up_say_so(spark: SparkSession, tmp_path: Path) -> None:
    """Of one that is asked for, and of one that was there when the query was planned."""
    place = str(tmp_path / "cleaned.lance")
    for number in range(4):
        lance.write_dataset(pa.table({"a": [number]}), place, mode="overwrite")
    df = load(spark, place, version=2)
    lance.dataset(place).tags.create("kept", 3)
    lance.dataset(place).cleanup_old_versions(timedelta(microseconds=1), error_if_tagged_old_versions=False)
    told = r"version 2 of .*cleaned.lance was removed by a cleanup; the oldest one left is 3"
    with pytest.raises(PySparkException, match=told):
        load(spark, place, version=2)
    with pytest.raises(PySparkException, match=r"version 9 was not found"):
        load(spark, place, version=9)
    with pytest.raises(TASK_ERRORS, match=rf"{told}[\s\S]*fragment 1 rows 0 to 1"):
        df.collect()


# -- errors ----------------------------------------------------------------------------------------------------------


def test_errors_reach_the_user(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="did you mean 'columns'"):
        load(spark, uri, colums="a")
    with pytest.raises(PySparkException, match="pushdown comes with a later release"):
        load(spark, uri, pushdown="unsafe")
    with pytest.raises(PySparkException, match="NotFound"):
        load(spark, str(tmp_path / "nothing.lance"))
    df = load(spark, uri, filter="nothing = 1")  # looked at when rows are asked for
    with pytest.raises(PySparkException, match="nothing"):
        df.count()
    with pytest.raises(PySparkException, match="one table"):
        spark.read.format("lance_io").load([uri, uri])
    with pytest.raises(AnalysisException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        load(spark, uri).write.format("lance_io").save(str(tmp_path / "out.lance"))


def test_a_catalog_table_says_what_to_do_instead(spark: SparkSession, uri: str) -> None:
    spark.sql("drop table if exists useless")
    with pytest.raises(PySparkException, match=r"(option path is missing|does not work)[\s\S]*CREATE TEMP VIEW"):
        spark.sql(f"create table useless (a bigint, b string) using lance_io options (path '{uri}')")
        spark.sql("select * from useless").collect()
    with pytest.raises(PySparkException, match=r"CREATE TABLE ... USING lance_io does not work[\s\S]*CREATE TEMP VIEW"):
        spark.sql(f"create table refused using lance_io options (path '{uri}')")  # whose schema Spark asks for
    assert not spark.catalog.tableExists("refused")


def test_errors_of_tasks_name_table_and_rows(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "nanoseconds.lance")
    lance.write_dataset(pa.table({"t": pa.array([1], pa.timestamp("ns"))}), place)
    with pytest.raises(TASK_ERRORS, match=r"column t[\s\S]*nanoseconds.lance version 1: fragment 0 rows 0 to 1"):
        load(spark, place).collect()
