"""What the JAR leaves to indices and to tasks: rows by index, aggregates, limits, orders; costs that Spark shows."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException

import lance_io.spark
from tests.spark.sessions import release
from tests.spark.test_jar_reading import plan_of, rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.sessions import Sessions

pytestmark = pytest.mark.timeout(600)

NUM_ROWS = 2000
NAMES = ["b", "a'b", "", "\U0001d11e", "\uffff", "é", "Z" * 3000, 'q"', "\\"]
AMOUNT = 12_345_678_901_234_567_890_123_456_789_125  # more digits than Python computes with


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """The folder of the catalog `indexed`."""
    path = tmp_path_factory.mktemp("indexed")
    lance_io.spark.enable(spark, catalog="indexed", path=str(path))
    return path


def table_of(num_rows: int) -> pa.Table:
    random = np.random.default_rng(11)
    floats = random.integers(-40, 40, num_rows) / 7
    floats[:4] = [math.nan, -0.0, 0.0, -math.nan][:num_rows]
    amounts = [None if number % 7 == 3 else Decimal(f"{(number - 30) * AMOUNT}e-3") for number in range(num_rows)]
    return pa.table(
        {
            "id": random.permutation(num_rows),
            "cat": [f"c{number % 5}" for number in range(num_rows)],
            "score": pa.array(floats, mask=random.random(num_rows) < 0.1),
            "plain": np.arange(num_rows) / 3,
            "day": pa.array(random.permutation(num_rows).astype("i4")).cast(pa.date32()),
            "small": pa.array(random.integers(-100, 100, num_rows), pa.int8()),
            "name": [None if number % 9 == 4 else NAMES[number % len(NAMES)] for number in range(num_rows)],
            "zoned": [NAMES[number % len(NAMES)] for number in range(num_rows)],
            "price": pa.array(amounts, pa.decimal128(38, 3)),
            "flag": pa.array(random.random(num_rows) < 0.5),
            "wide": ["x" * 200] * num_rows,
            "empty": pa.nulls(num_rows, pa.float64()),
        }
    )


@pytest.fixture(scope="module")
def uri(folder: Path) -> str:
    """Four fragments with indices, all rows there."""
    path = str(folder / "t.lance")
    data = lance.write_dataset(table_of(NUM_ROWS), path, max_rows_per_file=500)
    kinds = dict.fromkeys(("id", "score", "day", "empty", "name", "price"), "BTREE")
    kinds |= {"cat": "BITMAP", "small": "ZONEMAP", "zoned": "ZONEMAP", "flag": "ZONEMAP"}
    for name, kind in kinds.items():
        data.create_scalar_index(name, kind)
    return path


@pytest.fixture(scope="module")
def kept(spark: SparkSession, uri: str) -> str:
    """The same rows, held by Spark."""
    spark.table("indexed.t").repartition(2).localCheckpoint().createOrReplaceTempView("kept")
    return "kept"


# -- indices -----------------------------------------------------------------------------------------------------------


def test_filters_use_indices(spark: SparkSession, uri: str, kept: str) -> None:
    for filter, index in {
        "id = 77": "[id = 77]@id_idx(BTree)",
        "id in (3, 5, 1999) and plain >= 0": "id_idx",
        "cat = 'c3' and id < 100": "AND(",
        "id = -1": "id_idx",
    }.items():
        df = spark.sql(f"select * from indexed.t where {filter}")
        assert f"rows by index {index}" in plan_of(df) or index in plan_of(df).partition("rows by index ")[2]
        assert sorted(df.collect()) == sorted(spark.sql(f"select * from {kept} where {filter}").collect())
    assert "by index" not in plan_of(spark.sql("select * from indexed.t where plain = 1"))
    size = spark.sql("select id from indexed.t where id = 77")._jdf.queryExecution().optimizedPlan().stats()
    assert int(str(size.sizeInBytes())) == 8


def test_joins_read_rows_by_index(spark: SparkSession, uri: str, folder: Path) -> None:
    """The other side is read first; its keys are looked up in the index of the larger one."""
    lance.write_dataset(pa.table({"k": [7, 1993, 3], "name": ["x", "y", "z"]}), str(folder / "few.lance"))
    few = "indexed.few with (recheck_filters = true) few on t.id = few.k where few.name <> 'z'"
    df = spark.sql(f"select t.id, t.wide, few.name from indexed.t t join {few}")
    assert sorted((row.id, row.name) for row in df.collect()) == [(7, "x"), (1993, "y")]
    executed = plan_of(df)
    assert "RuntimeFilters: [dynamicpruning" in executed
    assert "id IN (7, 1993)" in executed
    assert scanned_rows(df) == 2 + 2


def scanned_rows(df: DataFrame) -> int:
    """Rows that the scans of an executed query gave."""
    plan: Any = df._jdf.queryExecution().executedPlan()
    plan = plan.executedPlan() if "Adaptive" in plan.getClass().getName() else plan
    return sum(int(metrics_of(scan)["numOutputRows"]) for scan in scans_of(plan))


def scans_of(plan: Any) -> list[Any]:
    """The scans below a physical plan."""
    name = plan.getClass().getSimpleName()
    if name == "BatchScanExec":
        return [plan]
    below = plan.plan() if name.endswith("QueryStageExec") else None
    children = plan.children()
    found = [] if below is None else scans_of(below)
    return found + [scan for number in range(children.length()) for scan in scans_of(children.apply(number))]


def metrics_of(scan: Any) -> dict[str, str]:
    """The metrics of a scan by their short names."""
    keys = scan.metrics().keysIterator()
    found = {}
    while keys.hasNext():
        key = keys.next()
        found[key] = str(scan.metrics().apply(key).value())
    return found


def test_scans_are_equal_by_value_after_filters_of_joins(spark: SparkSession, uri: str) -> None:
    jvm = spark.sparkContext._jvm

    def scan() -> Any:
        (only,) = scans_of(spark.sql("select id, wide from indexed.t where id < 50")._jdf.queryExecution().sparkPlan())
        return only.scan()

    def filter(scan: Any, value: int) -> None:
        column = jvm.org.apache.spark.sql.connector.expressions.Expressions.column("id")
        literal = jvm.org.apache.spark.sql.connector.expressions.Expressions.literal(value)
        expressions = spark.sparkContext._gateway.new_array(
            jvm.org.apache.spark.sql.connector.expressions.Expression, 2
        )
        expressions[0], expressions[1] = column, literal
        predicate = jvm.org.apache.spark.sql.connector.expressions.filter.Predicate
        predicates = spark.sparkContext._gateway.new_array(predicate, 1)
        predicates[0] = predicate("=", expressions)
        scan.filter(predicates)

    first, second = scan(), scan()
    assert first.equals(second)
    filter(first, 5)
    assert not first.equals(second)
    filter(second, 5)
    assert first.equals(second)
    assert first.hashCode() == second.hashCode()
    filter(second, 6)
    assert not first.equals(second)


# -- aggregates --------------------------------------------------------------------------------------------------------


def is_answered(df: DataFrame) -> bool:
    return "LocalTableScan" in plan_of(df) and "BatchScan" not in plan_of(df)


def test_aggregates_are_those_of_spark(spark: SparkSession, uri: str, kept: str) -> None:
    """Answered without data where an index knows them; NaN, zeros and texts are left to Spark."""
    for query, answered in {
        "select count(*), min(id), max(id), count(score), min(day), max(small), max(empty) from {}": True,
        "select min(name), max(name), count(name) from {}": True,
        "select min(price), max(price) from {}": True,
        "select max(zoned), min(zoned), min(flag), max(flag) from {}": True,
        "select count(*) from {} where id between 5 and 300": True,
        "select count(*) from {} where cat = 'c2' and id < 300": True,
        "select count(score) from {} where id >= 1000": True,
        "select min(score), max(score) from {}": False,
        "select min(plain) from {}": False,
        "select max(cat) from {}": False,
        "select min(name collate UTF8_LCASE) from {}": False,
        "select max(price + 1) from {}": False,
        "select count(distinct cat) from {}": False,
        "select max(id) from {} where cat = 'c1'": False,
        "select count(*) from {} where plain < 5": False,
        "select cat, max(id) from {} group by cat": False,
        "select sum(id), count(*) from {}": False,
    }.items():
        df = spark.sql(query.format("indexed.t"))
        assert is_answered(df) is answered, query
        assert str(sorted(df.collect())) == str(sorted(spark.sql(query.format(kept)).collect()))


def test_deleted_and_new_rows_make_extremes_inexact(spark: SparkSession, folder: Path) -> None:
    data = lance.write_dataset(table_of(500), str(folder / "changed.lance"), max_rows_per_file=100)
    data.create_scalar_index("id", "BTREE")
    data.delete("id = 0 or id = 499 or id = 250")
    least, greatest = (spark.sql(f"select {name}(id) from indexed.changed") for name in ("min", "max"))
    assert (least.collect(), greatest.collect()) == ([(1,)], [(498,)])
    assert is_answered(least)  # by the pages at the ends of the index
    counted = spark.sql("select count(*) from indexed.changed where id >= 240 and id < 260")
    assert (is_answered(counted), counted.collect()) == (True, [(19,)])
    lance.write_dataset(table_of(3), data.uri, mode="append")
    counted = spark.sql("select count(*) from indexed.changed where id >= 0 and id < 10")
    assert (is_answered(counted), counted.collect()) == (False, [(12,)])
    least = spark.sql("select min(id) from indexed.changed")
    assert (is_answered(least), least.collect()) == (False, [(0,)])


# -- limits and orders -------------------------------------------------------------------------------------------------


def test_limit_and_offset_are_planned(spark: SparkSession, uri: str, folder: Path) -> None:
    """Rows that the manifest counts; Spark cuts nothing more."""
    df = spark.sql("select plain from indexed.t limit 5 offset 498")
    assert "limit 503, offset 498" in plan_of(df)
    assert "Limit" not in plan_of(df).replace("CollectLimit", "")
    assert [row.plain for row in df.collect()] == [(498 + number) / 3 for number in range(5)]
    assert [row.plain for row in spark.sql("select plain from indexed.t offset 1998").collect()] == [666.0, 1999 / 3]
    assert rows(spark, "select plain from indexed.t limit 5 offset 99999") == []
    filtered = spark.sql("select id from indexed.t where id < 1000 limit 7 offset 3")
    assert "limit 10 for each task" in plan_of(filtered)
    assert len(filtered.collect()) == 7
    limited = spark.read.format("lance_io").option("limit", 20).load(uri).offset(15)
    assert [row.plain for row in limited.select("plain").collect()] == [number / 3 for number in range(15, 20)]


@pytest.mark.parametrize("direction", ["asc", "desc", "asc nulls last", "desc nulls first"])
def test_first_rows_of_an_order(spark: SparkSession, uri: str, kept: str, direction: str) -> None:
    for filter in ("", "where id % 2 = 1", "where id < 1500"):
        query = f"select id, score, wide from {{}} {filter} order by score {direction}, id limit 30"
        df = spark.sql(query.format("indexed.t"))
        pushed = "first 30 rows of each task by [score" in plan_of(df)
        assert pushed is ("%" not in filter)
        assert str(df.collect()) == str(spark.sql(query.format(kept)).collect())
        assert not pushed or scanned_rows(df) <= 30 * df.rdd.getNumPartitions() * 4


def test_orders_that_only_spark_knows(spark: SparkSession, uri: str, kept: str) -> None:
    for query in (
        "select id from {} order by id + 1 limit 3",
        "select id from {} order by id limit 20000",
        "select id from {} order by cat collate UTF8_LCASE, id limit 3",
    ):
        df = spark.sql(query.format("indexed.t"))
        assert "rows of each task" not in plan_of(df)
        assert df.collect() == spark.sql(query.format(kept)).collect()


# -- options, columns and costs ----------------------------------------------------------------------------------------


def test_options_of_one_query(spark: SparkSession, uri: str) -> None:
    assert spark.read.option("num_partitions", "3").table("indexed.t").rdd.getNumPartitions() == 3
    assert spark.sql("select * from indexed.t with (`num_partitions` = 5)").rdd.getNumPartitions() == 5
    assert spark.sql("select * from indexed.t with (filter = 'id < 12')").count() == 12
    assert spark.table("indexed.t").count() == NUM_ROWS
    with pytest.raises(IllegalArgumentException, match="option columns is one of a load or a catalog"):
        spark.sql("select * from indexed.t with (columns = 'id')").collect()
    with pytest.raises(IllegalArgumentException, match=r"unknown option 'num_partition'.*num_partitions"):
        spark.sql("select * from indexed.t with (num_partition = 3)").collect()


def test_versions_of_rows(spark: SparkSession, folder: Path) -> None:
    path = str(folder / "lineage.lance")
    data = lance.write_dataset(pa.table({"a": [1, 2, 3]}), path, enable_stable_row_ids=True)
    data.update({"a": "9"}, where="a = 2")
    lance.write_dataset(pa.table({"a": [4]}), path, mode="append")
    query = "select a, _row_created_at_version, _row_last_updated_at_version from indexed.lineage order by a"
    assert rows(spark, query) == [(1, 1, 1), (3, 1, 1), (4, 3, 3), (9, 1, 2)]
    assert rows(spark, "select a from indexed.lineage where _row_last_updated_at_version = 2") == [(9,)]
    assert spark.table("indexed.lineage").columns == ["a"]


def test_costs_are_metrics(spark: SparkSession, uri: str, sessions: Sessions) -> None:
    df = spark.sql("select sum(id), sum(plain) from indexed.t where plain >= 0")
    assert df.collect()[0][0] == NUM_ROWS * (NUM_ROWS - 1) // 2
    plan = df._jdf.queryExecution().executedPlan().executedPlan()
    (scan,) = scans_of(plan)
    spent = metrics_of(scan)
    assert int(spent["lanceBytes"]) >= NUM_ROWS * 16 * 0.5
    assert int(spent["lanceRequests"]) > 0
    assert int(spent["lanceWaitedMs"]) >= 0
    assert spent["lanceCached"] == "0"
    spark._jsc.sc().listenerBus().waitUntilEmpty()  # the log of events is written by a thread
    logs = [path.read_text() for path in (sessions.folder / "events").rglob("*") if path.is_file()]
    assert any('"Event"' in line and "bytes read from the store" in line for log in logs for line in log.splitlines())


# -- samples -----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(release() < (4, 2), reason="TABLESAMPLE SYSTEM came with 4.2")
def test_samples_of_whole_fragments(spark: SparkSession, uri: str, folder: Path) -> None:
    """Of four fragments of 500 rows; which ones is random."""
    for percent in (0, 50, 100):
        sample = f"indexed.t tablesample system ({percent} percent)"
        df = spark.sql(f"select plain from {sample}")
        assert f"fragments sampled from 0.0 to {percent / 100}" in plan_of(df)
        fragments = Counter(round(row.plain * 3) // 500 for row in df.collect())
        assert set(fragments.values()) <= {500}
        assert len(fragments) in {0: [0], 100: [4]}.get(percent, range(5))
        ((num_rows,),) = rows(spark, f"select count(*) from {sample}")
        assert num_rows // 500 in {0: [0], 100: [4]}.get(percent, range(5))
        assert num_rows % 500 == 0
        assert len(rows(spark, f"select id from {sample} limit 7")) in {0: [0], 100: [7]}.get(percent, [0, 7])
    filtered = "select id from indexed.t tablesample system (100 percent) where id < 20 and plain >= 0"
    assert sorted(rows(spark, filtered)) == [(id,) for id in range(20)]
    few = rows(spark, "select id from indexed.t tablesample system (50 percent) where id < 20")
    assert set(few) <= {(id,) for id in range(20)}
    limited = "indexed.t with (`limit` = 600) tablesample system (50 percent)"
    with pytest.raises(AnalysisException, match="TABLESAMPLE"):
        spark.sql(f"select id from {limited}").collect()
