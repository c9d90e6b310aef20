"""Reading through Spark itself, from local disk and from MinIO: `format("lance_io")` found by its package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException

import lance_io.spark
from tests.s3.proxy import CountingProxy
from tests.spark.test_types import ARRAYS, BATCH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from servers import S3Server

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
    table = pa.Table.from_batches([BATCH.select(STORABLE)] * 3)
    place = str(tmp_path / "types.lance")
    lance.write_dataset(table, place, data_storage_version="2.2")
    found = load(spark, place).toArrow()
    assert found.num_rows == 9
    for name in STORABLE:
        assert found[name].to_pylist() == table[name].to_pylist(), name


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


def test_times_without_a_zone_are_the_sessions(spark: SparkSession, uri: str) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Kiritimati")  # 14 hours ahead
    try:
        committed = lance.dataset(uri).versions()[0]["timestamp"].astimezone(ZoneInfo("Pacific/Kiritimati"))
        shown = committed.replace(tzinfo=None)
        assert lance_io.spark.read_table(spark, uri, timestampAsOf=shown).schema.names == ["a", "b"]
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


# -- errors ----------------------------------------------------------------------------------------------------------


def test_errors_reach_the_user(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="did you mean 'columns'"):
        load(spark, uri, colums="a")
    with pytest.raises(AnalysisException, match="pushdown comes with a later release"):
        load(spark, uri, pushdown="unsafe")
    with pytest.raises(AnalysisException, match="NotFound"):
        load(spark, str(tmp_path / "nothing.lance"))
    with pytest.raises(AnalysisException, match="one table"):
        spark.read.format("lance_io").load([uri, uri])
    with pytest.raises(AnalysisException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        load(spark, uri).write.format("lance_io").save(str(tmp_path / "out.lance"))


def test_a_catalog_table_says_what_to_do_instead(spark: SparkSession, uri: str) -> None:
    spark.sql("drop table if exists useless")
    with pytest.raises(PySparkException, match=r"option path is missing[\s\S]*CREATE TEMP VIEW"):
        spark.sql(f"create table useless (a bigint, b string) using lance_io options (path '{uri}')")
        spark.sql("select * from useless").collect()


def test_errors_of_tasks_name_table_and_rows(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "nanoseconds.lance")
    lance.write_dataset(pa.table({"t": pa.array([1], pa.timestamp("ns"))}), place)
    with pytest.raises(PySparkException, match=r"column t[\s\S]*nanoseconds.lance version 1: fragment 0 rows 0 to 1"):
        load(spark, place).collect()


# -- what it costs, counted at MinIO -----------------------------------------------------------------------------------

VECTOR_ROWS = 24_000
FILE_ROWS = 2_000
METADATA_BYTES = 80 * 1024  # of a small file: its last 64 KiB, and page indexes
DIMENSION = 256


@pytest.fixture(scope="module")
def proxy(s3: S3Server) -> Iterator[CountingProxy]:
    with CountingProxy(s3.endpoint) as counting:
        yield counting


@pytest.fixture(scope="module")
def storage(s3: S3Server, proxy: CountingProxy) -> dict[str, str]:
    options = s3.options(aws_endpoint=proxy.endpoint)
    return {f"storage.{name}": text for name, text in options.items()}


@pytest.fixture(scope="module")
def wide(s3: S3Server) -> str:
    """24 MiB of vectors and 0.2 MB of numbers in twelve fragments."""
    place = f"s3://{s3.bucket}/test-spark-wide/t.lance"
    dice = np.random.default_rng(7)
    values = pa.array(dice.random(VECTOR_ROWS * DIMENSION, dtype=np.float32))
    table = pa.table({"id": np.arange(VECTOR_ROWS), "v": pa.FixedSizeListArray.from_arrays(values, DIMENSION)})
    lance.write_dataset(table, place, storage_options=s3.options(), mode="overwrite", max_rows_per_file=FILE_ROWS)
    return place


def test_one_column_reads_its_bytes(
    spark: SparkSession, wide: str, storage: dict[str, str], proxy: CountingProxy
) -> None:
    df = load(spark, wide, columns="id", num_partitions="4", **storage)
    assert df.rdd.getNumPartitions() == 4
    proxy.take()
    assert df.agg({"id": "sum"}).collect() == [(VECTOR_ROWS * (VECTOR_ROWS - 1) // 2,)]
    spent = proxy.take()
    files = VECTOR_ROWS // FILE_ROWS + 3  # a file that is cut may be opened by two tasks
    assert spent.body_bytes < VECTOR_ROWS * 8 + files * METADATA_BYTES
    assert not [line for line in spent.lines if "_versions" in line]  # the partitions brought the manifest


def test_tasks_ask_for_no_manifest_however_many(
    spark: SparkSession, wide: str, storage: dict[str, str], proxy: CountingProxy
) -> None:
    manifests = []
    for num_partitions in ("1", "8"):
        proxy.take()
        load(spark, wide, columns="id", num_partitions=num_partitions, **storage).count()
        manifests.append(sum("_versions" in line for line in proxy.take().lines))
    assert manifests[0] == manifests[1] <= 4


def test_a_limit_ends_the_scan(spark: SparkSession, wide: str, storage: dict[str, str], proxy: CountingProxy) -> None:
    small = {"num_partitions": "1", "batch_bytes": "256k", "io_buffer_bytes": "1m"}
    df = load(spark, wide, **small, **storage)
    proxy.take()
    assert len(df.limit(5).collect()) == 5
    assert proxy.take().body_bytes < VECTOR_ROWS * DIMENSION * 4 // 2
    assert df.select("id").limit(7).count() == 7  # and the next query finds a working worker


def test_secrets_do_not_show(
    spark: SparkSession,
    wide: str,
    storage: dict[str, str],
    s3: S3Server,
    capsys: pytest.CaptureFixture[str],
) -> None:
    df = load(spark, wide, columns="id", **storage)
    df.explain("extended")
    shown = capsys.readouterr().out + repr(df) + str(df.schema)
    with pytest.raises(AnalysisException) as caught:
        load(spark, wide + "x", **storage)
    shown += str(caught.value)
    with pytest.raises(AnalysisException) as caught:
        load(spark, wide, **{**storage, "storage.allow_http": "perhaps"})
    shown += str(caught.value)
    df.count()
    assert wide in shown or "lance_io" in shown
    assert s3.secret not in shown
    folder = Path(str(spark.conf.get("spark.eventLog.dir")).removeprefix("file://"))
    logs = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert logs
    assert all(s3.secret.encode() not in log for log in logs)
