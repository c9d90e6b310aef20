"""Reading through the JAR: by SQL, with what Spark pushes down, from tables of a catalog; and the worker behind it."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sys
import tarfile
import time
from contextlib import suppress
from datetime import UTC, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import AnalysisException, IllegalArgumentException

import lance_io.spark
from lance_io.errors import UsageError
from tests.seeds import seed_of
from tests.spark.sessions import TASK_ERRORS, run_driver
from tests.spark.spark_predicates import Draw, make_table, sql_text
from tests.spark.sql_predicates import CREATE, SETTINGS, SqlDraw, make_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(600)

NUM_PREDICATES = int(os.environ.get("LANCE_IO_SPARK_PREDICATES", "40"))  # of each test that draws
AT_ONCE = 20  # predicates of one query, each with a scan of its own


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """The folder of the catalog `lance`."""
    path = tmp_path_factory.mktemp("warehouse")
    lance_io.spark.enable(spark, catalog="lance", path=str(path))
    return path


@pytest.fixture(scope="module")
def uri(folder: Path) -> str:
    """A hundred rows in four fragments, two versions, a tag and a branch."""
    path = str(folder / "t.lance")
    lance.write_dataset(table_of(0, 60), path, max_rows_per_file=25)
    lance.write_dataset(table_of(60, 100), path, mode="append", max_rows_per_file=25)
    lance.dataset(path).tags.create("first", 1)
    lance.dataset(path).create_branch("side", 1)
    return path


def table_of(start: int, end: int) -> pa.Table:
    ids = range(start, end)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(8 * len(ids), "f4")), 8)
    points = [None if number % 5 == 0 else {"x": number, "y": f"y{number}", "z": {"deep": number}} for number in ids]
    texts, scores = [f"t{number % 7}" for number in ids], [number / 3 for number in ids]
    return pa.table({"id": ids, "text": texts, "score": scores, "point": points, "vector": vectors})


def rows(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.sql(query).collect()]


def plan_of(df: DataFrame) -> str:
    """The physical plan, as EXPLAIN shows it."""
    return str(df._jdf.queryExecution().executedPlan().toString())


# -- what is pushed ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("is_ansi", "zone"), [("true", "UTC"), ("false", "America/St_Johns")])
def test_random_predicates_give_the_rows_of_spark(spark: SparkSession, folder: Path, is_ansi: str, zone: str) -> None:
    """As without pushing: the same rows, held by Spark."""
    lance.write_dataset(make_table(Random(1582), 300), str(folder / "random.lance"), mode="overwrite")
    before = {name: spark.conf.get(name) for name in ("spark.sql.ansi.enabled", "spark.sql.session.timeZone")}
    spark.conf.set("spark.sql.ansi.enabled", is_ansi)
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        spark.table("lance.random").createOrReplaceTempView("pushed")
        kept = spark.table("lance.random").repartition(1).localCheckpoint()
        kept.createOrReplaceTempView("kept")
        draw = Draw(Random(seed_of(f"spark {zone}")))
        predicates = [sql_text(draw.predicate()) for _ in range(NUM_PREDICATES)]
        for start in range(0, NUM_PREDICATES, AT_ONCE):
            some = predicates[start : start + AT_ONCE]
            ours, theirs = (
                spark.sql(" union all ".join(f"select {n} n, id from {view} where {p}" for n, p in enumerate(some)))
                for view in ("pushed", "kept")
            )
            assert "pushed [" in plan_of(ours)
            assert "lance_io" not in plan_of(theirs)
            difference = set(map(tuple, ours.collect())) ^ set(map(tuple, theirs.collect()))
            assert not difference, [(some[n], id) for n, id in sorted(difference)[:3]]
    finally:
        for name, text in before.items():
            spark.conf.set(name, text)


def test_random_predicates_that_spark_changes(spark: SparkSession, folder: Path) -> None:
    """Padded, under collations, of the session's zone: the rows are those of a read that nothing is pushed to."""
    random = Random(seed_of("spark changes"))
    spark.sql(CREATE.format("lance.changed"))
    path = str(folder / "changed.lance")
    lance.write_dataset(make_rows(random, 300, lance.dataset(path).schema), path, mode="append")
    draw, num_pushed = SqlDraw(random), 0
    names = ("spark.sql.ansi.enabled", "spark.sql.session.timeZone", "spark.sql.readSideCharPadding")
    before = {name: spark.conf.get(name) for name in names}
    try:
        for start in range(0, NUM_PREDICATES, AT_ONCE):
            for name, text in zip(names, SETTINGS[start // AT_ONCE % len(SETTINGS)], strict=True):
                spark.conf.set(name, text)
            predicates = [draw.predicate() for _ in range(AT_ONCE)]
            ours, theirs = (
                spark.sql(" union all ".join(f"select {n} n, id from {of} where {p}" for n, p in enumerate(predicates)))
                for of in ("lance.changed", "lance.changed with (filter = 'id >= 0')")
            )
            num_pushed += plan_of(ours).replace("pushed []", "").count("pushed [")
            assert "pushed [" not in plan_of(theirs).replace("pushed []", "")
            difference = set(map(tuple, ours.collect())) ^ set(map(tuple, theirs.collect()))
            assert not difference, [(predicates[n], id, spark.conf.get(names[1])) for n, id in sorted(difference)[:3]]
        assert num_pushed > NUM_PREDICATES // 4
    finally:
        for name, text in before.items():
            spark.conf.set(name, text)


def test_explain_says_what_was_pushed(spark: SparkSession, uri: str) -> None:
    plan = plan_of(spark.sql("select id from lance.t where text = 't1' and id % 2 = 0 and (id > 5 or id % 3 = 0)"))
    assert "lance.t version 2, columns [id]" in plan  # the text is used by the predicate only, which is not Spark's
    assert "text = 't1'" in plan
    assert "ColumnarToRow" in plan
    scan, left = plan[plan.index("BatchScan") :], plan[: plan.index("BatchScan")]
    assert "Filter" in left  # the remainders are Spark's
    assert "pushed [" in scan


def test_counts(spark: SparkSession, uri: str) -> None:
    whole = spark.sql("select count(*) from lance.t")
    assert "LocalTableScan" in plan_of(whole)
    assert whole.collect() == [(100,)]
    filtered = spark.sql("select count(*) from lance.t where text = 't1' or id = 3")
    assert "count, pushed [" in plan_of(filtered)
    assert filtered.collect() == [(16,)]
    left = spark.sql("select count(*) from lance.t where id % 7 = 1")
    assert left.collect() == [(15,)]
    assert rows(spark, "select text, count(*) from lance.t where id < 3 group by text order by 1") == [
        ("t0", 1),
        ("t1", 1),
        ("t2", 1),
    ]
    assert rows(spark, "select count(*) from lance.t where id < 0") == [(0,)]


def test_limits(spark: SparkSession, uri: str) -> None:
    df = spark.sql("select id from lance.t limit 3")
    assert "limit 3" in plan_of(df)
    assert len(df.collect()) == 3
    assert len(rows(spark, "select id from lance.t where id > 50 limit 60")) == 49
    assert rows(spark, "select id from lance.t order by id desc limit 2") == [(99,), (98,)]
    assert rows(spark, "select id from lance.t limit 2 offset 98") != []


def test_metadata_columns_are_there_when_named(spark: SparkSession, uri: str) -> None:
    assert "_rowid" not in spark.table("lance.t").columns
    found = rows(spark, "select id, _rowaddr, _fragid from lance.t where id in (24, 25)")
    assert found == [(24, 24, 0), (25, 1 << 32, 1)]
    assert spark.table("lance.t").where("id = 99").select("_rowid").collect() != [(None,)]


def test_joins_know_sizes_and_filter_at_run_time(spark: SparkSession, uri: str) -> None:
    spark.createDataFrame([(7, "x"), (93, "y")], "k bigint, name string").createOrReplaceTempView("few")
    df = spark.sql("select t.id, t.text, few.name from lance.t t join few on t.id = few.k")
    assert "BroadcastHashJoin" in plan_of(df)
    assert sorted(map(tuple, df.collect())) == [(7, "t0", "x"), (93, "t2", "y")]
    size = spark.sql("select id from lance.t")._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()
    assert int(str(size)) == 100 * 8


def test_equal_scans_share_an_exchange(spark: SparkSession, uri: str) -> None:
    """By value: two loads of one version are one scan."""
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try:
        one = "(select id, count(*) c from lance.t group by id)"
        df = spark.sql(f"select a.id from {one} a join {one} b on a.id = b.id")
        assert len(df.collect()) == 100
        assert "ReusedExchange" in plan_of(df)
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


def test_options_of_a_read_go_together_with_predicates(spark: SparkSession, uri: str) -> None:
    def load(**options: str) -> DataFrame:
        return spark.read.format("lance_io").options(**options).load(uri)

    assert load(filter="id < 50 -- half").where("id > 40").count() == 9
    assert load(limit="10").where("id > 5").count() == 4
    assert load(columns="point.x, id").where("`point.x` = 7").collect() == [(7, 7)]
    assert load(with_row_id="true").where("id = 1").select("_rowid").collect() == [(1,)]
    assert load(num_partitions="3").rdd.getNumPartitions() == 3
    assert load(filter="id < 50").count() == 50
    assert load(limit="7").count() == 7


def test_nested_members(spark: SparkSession, uri: str) -> None:
    assert rows(spark, "select point.x from lance.t where point.y = 'y7'") == [(7,)]
    assert rows(spark, "select count(point.z.deep), count(point) from lance.t") == [(80, 80)]
    assert rows(spark, "select id from lance.t where point is null and id < 6 order by id") == [(0,), (5,)]


# -- the catalog -------------------------------------------------------------------------------------------------------


def test_tables_are_listed_and_described(spark: SparkSession, uri: str) -> None:
    assert ("default", "t", False) in rows(spark, "show tables in lance")
    assert rows(spark, "show namespaces in lance") == [("default",)]
    described = {row[0]: row[1] for row in spark.sql("describe lance.t").collect()}
    assert (described["id"], described["vector"]) == ("bigint", "array<float>")
    extended = {row[0]: row[1] for row in spark.sql("describe extended lance.t").collect()}
    assert (extended["Location"], extended["Provider"]) == (uri, "lance_io")
    assert spark.catalog.tableExists("lance.default.t")
    assert not spark.catalog.tableExists("lance.default.none")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.table("lance.none")


def test_versions_by_number_tag_branch_and_time(spark: SparkSession, uri: str) -> None:
    for name in ("1", "'first'", "'side'"):
        assert rows(spark, f"select count(*) from lance.t version as of {name}") == [(60,)]
    assert spark.read.option("versionAsOf", 1).table("lance.t").count() == 60
    time = lance.dataset(uri).versions()[0]["timestamp"] + timedelta(milliseconds=1)  # its microseconds are rounded
    first = time.astimezone().isoformat(sep=" ")
    assert rows(spark, f"select count(*) from lance.t timestamp as of '{first}'")[0][0] in (60, 100)
    with pytest.raises(IllegalArgumentException, match=r"the oldest version kept is 1 of .*, the newest 2 of "):
        spark.sql("select * from lance.t version as of 9")
    with pytest.raises(IllegalArgumentException, match=r"no version is as old as .*the oldest version kept is 1 of "):
        spark.sql("select * from lance.t timestamp as of '2001-01-01'")
    with pytest.raises(IllegalArgumentException, match=r"no tag or branch 'x'; the oldest version kept is 1"):
        spark.sql("select * from lance.t version as of 'x'")


def test_a_dataframe_whose_version_is_gone_says_so(spark: SparkSession, folder: Path) -> None:
    """An overwrite leaves it its rows; a drop does not, nor a new table of the name, nor a cleanup."""
    path = str(folder / "held.lance")

    def hold() -> DataFrame:
        lance.write_dataset(pa.table({"a": [1, 2, 3]}), path, mode="overwrite", max_rows_per_file=2)
        df = spark.read.format("lance_io").load(path)
        assert df.agg({"a": "sum"}).collect() == [(6,)]
        return df

    overwritten = hold()
    lance.write_dataset(pa.table({"a": ["x"]}), path, mode="overwrite")
    assert overwritten.agg({"a": "sum"}).collect() == [(6,)]
    assert spark.table("lance.held").collect() == [("x",)]
    lance.dataset(path).cleanup_old_versions(timedelta(microseconds=1))
    with pytest.raises(
        TASK_ERRORS, match=r"version 1 of .*held\.lance was removed by a cleanup; the oldest one left is 2"
    ):
        overwritten.agg({"a": "sum"}).collect()
    for again in (False, True):
        dropped = hold()
        lance.LanceDataset.drop(path)
        if again:
            lance.write_dataset(pa.table({"a": [10, 20, 30]}), path)
        with pytest.raises(TASK_ERRORS, match=r"NotFound: (?!.*cleanup)[\s\S]*held\.lance version \d+: fragment"):
            dropped.agg({"a": "sum"}).collect()


def test_tables_by_path(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    elsewhere = str(tmp_path / "elsewhere.lance")
    lance.write_dataset(pa.table({"a": [1, 2]}), elsewhere)
    assert rows(spark, f"select sum(a) from lance.`{elsewhere}`") == [(3,)]
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql(f"select * from lance.`{elsewhere}x`")


def test_tables_about_a_table(spark: SparkSession, uri: str) -> None:
    assert rows(spark, "select version, metadata is not null from lance.t.history") == [(1, True), (2, True)]
    assert rows(spark, "select sum(num_rows), count(*) from lance.default.t.fragments") == [(100, 5)]
    assert rows(spark, "select count(path) from lance.t.files version as of 1") == [(3,)]
    assert rows(spark, "select name from lance.t.indices") == []
    for name in ("lance.t.nothing", "lance.none.history"):
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            spark.sql(f"select * from {name}")


def test_appends(spark: SparkSession, folder: Path) -> None:
    path = str(folder / "written.lance")
    lance.write_dataset(pa.table({"a": [1]}), path)
    spark.sql("insert into lance.written values (2), (3)")
    spark.createDataFrame([(4,)], "a bigint").writeTo("lance.written").append()
    assert sorted(lance.dataset(path).to_table()["a"].to_pylist()) == [1, 2, 3, 4]
    spark.sql("insert overwrite lance.written values (9)")
    assert rows(spark, "select a from lance.written") == [(9,)]
    assert lance.dataset(path).version == 4


def test_a_catalog_has_a_folder(spark: SparkSession) -> None:
    with pytest.raises(UsageError, match="give both, catalog and path"):
        lance_io.spark.enable(spark, catalog="lance")
    with pytest.raises(UsageError, match="give both, catalog and path"):
        lance_io.spark.configure(type(spark).builder, path="/tmp")
    lance_io.spark.enable(spark, catalog="kept", path="/tmp/one")
    with pytest.raises(UsageError, match="the catalog kept in the folder /tmp/one, and keeps it"):
        lance_io.spark.enable(spark, catalog="kept", path="/tmp/another")
    spark.conf.set("spark.sql.catalog.empty", "lance_io.spark.Catalog")
    with pytest.raises(IllegalArgumentException, match=r"set spark\.sql\.catalog\.empty\.path"):
        spark.sql("show tables in empty")


# -- the worker --------------------------------------------------------------------------------------------------------


def worker_pids(spark: SparkSession) -> list[int]:
    """The workers of the driver's virtual machine, which are its children."""
    return workers_of(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())


def workers_of(jvm: int) -> list[int]:
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # processes end
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == jvm and b"lance_io.spark.worker" in (entry / "cmdline").read_bytes():
                pids.append(int(entry.name))
    return pids


def test_one_worker_for_all_reads(spark: SparkSession, uri: str) -> None:
    assert spark.table("lance.t").groupBy("text").count().count() == 7
    before = worker_pids(spark)
    assert len(before) == 1
    assert spark.read.format("lance_io").load(uri).count() == 100
    assert worker_pids(spark) == before


def test_a_killed_worker_is_replaced(spark: SparkSession, uri: str) -> None:
    df = spark.table("lance.t")
    assert df.agg({"id": "sum"}).collect() == [(4950,)]
    (pid,) = worker_pids(spark)
    os.kill(pid, signal.SIGKILL)
    assert df.agg({"id": "sum"}).collect() == [(4950,)]
    assert worker_pids(spark) != [pid]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two thousand rows of 8 kB, which sockets do not hold."""
    path = str(tmp_path_factory.mktemp("wide") / "t.lance")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(2_000 * 2048, "f4")), 2048)
    lance.write_dataset(pa.table({"a": np.arange(2_000), "v": vectors}), path)
    return path


def test_all_tasks_of_a_killed_worker_run_again(spark: SparkSession, wide: str, tmp_path: Path) -> None:
    """Two tasks are in the middle of their rows when it dies; each row is there once."""
    df = spark.read.format("lance_io").options(batch_bytes="64k", num_partitions="2").load(wide)
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()

    def read(number: int, rows: Iterator[Any]) -> Iterator[tuple[int, int]]:
        attempt = TaskContext.get().attemptNumber()
        yield attempt, next(rows)[0]
        (tmp_path / f"{attempt}.{number}").touch()
        while attempt == 0 and len(list(tmp_path.glob("0.*"))) < 2:
            time.sleep(0.01)
        if attempt == 0 and number == 0:
            for pid in workers_of(jvm):
                os.kill(pid, signal.SIGKILL)
        yield from ((attempt, row[0]) for row in rows)

    pairs = df.rdd.mapPartitionsWithIndex(read).collect()
    assert sorted(id for _, id in pairs) == list(range(2_000))
    assert {attempt for attempt, _ in pairs} == {1}
    assert {path.name for path in tmp_path.iterdir()} == {"0.0", "0.1", "1.0", "1.1"}


def test_a_worker_that_dies_in_every_read_is_named(spark: SparkSession, wide: str) -> None:
    df = spark.read.format("lance_io").options(batch_bytes="64k", num_partitions="1").load(wide)
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()

    def kill(rows: Iterator[Any]) -> Iterator[int]:
        yield next(rows)[0]
        for pid in workers_of(jvm):  # of each attempt
            os.kill(pid, signal.SIGKILL)
        yield from (row[0] for row in rows)

    with pytest.raises(TASK_ERRORS, match=r"the lance_io worker of executor driver ended with signal 9"):
        df.rdd.mapPartitions(kill).collect()
    assert df.agg({"a": "sum"}).collect() == [(1_999_000,)]


def test_another_python_in_the_same_jvm_is_an_error(spark: SparkSession, uri: str) -> None:
    spark.table("lance.t").count()
    with pytest.raises((Py4JJavaError, IllegalArgumentException), match=r"give all catalogs and reads the same option"):
        spark.read.format("lance_io").option("python", "/usr/bin/other").load(uri)


NO_PYTHON = """
import socket
spark.sparkContext._jvm.java.lang.System.setProperty("lance_io.startSeconds", "5")
def message(python):
    try:
        spark.read.format("lance_io").option("python", python).load(sys.argv[2])
    except Exception as error:
        return str(error)
for python in ("/no/such/python", "/bin/sh", "/bin/false"):
    text = message(python)
    named = f"on {socket.gethostname()} with Python {python} (" in text
    print(python, named and "option python of the catalog" in text)
print(message(sys.argv[3] + "/other"))
for _ in range(3):
    print("not ready after 5 seconds" in message(sys.argv[3] + "/late"))
"""


def test_no_python_or_one_without_the_package(uri: str, tmp_path: Path) -> None:
    """One of another version, too; and one that gets not ready: those that wait for it do not try it again."""
    answer = json.dumps({"protocol": 1, "package": "9.8.7", "socket": "/none"})
    for name, then in {"other": f"echo '{answer}'", "late": f"echo >>{tmp_path}/starts; exec sleep 600"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{then}\n")
        (tmp_path / name).chmod(0o700)
    shown = run_driver(NO_PYTHON, tmp_path, uri, str(tmp_path), spark__jars=str(lance_io.spark.sessions.JAR))
    assert re.findall(r"^(/\S+) True$", shown, re.MULTILINE) == ["/no/such/python", "/bin/sh", "/bin/false"]
    ours = re.escape(lance_io.__version__)
    assert re.search(rf"the JAR is of lance_io {ours}, and {tmp_path}/other on \S+ has lance_io 9\.8\.7: ", shown)
    assert shown.splitlines()[-3:] == ["True"] * 3
    assert (tmp_path / "starts").read_text() == "\n"


def of_jar(spark: SparkSession, class_name: str, name: str, *texts: str | None) -> str | None:
    """The result of a static method of the JAR that takes texts; its classes are not public."""
    java, gateway = spark.sparkContext._jvm.java.lang, spark.sparkContext._gateway
    types = gateway.new_array(java.Class, len(texts))
    values = gateway.new_array(java.Object, len(texts))
    for number, text in enumerate(texts):
        types[number], values[number] = java.Class.forName("java.lang.String"), text
    catalog = spark._jsparkSession.sessionState().catalogManager().catalog("lance")
    loader = catalog.getClass().getClassLoader()
    method = java.Class.forName(f"lance_io.spark.{class_name}", True, loader).getDeclaredMethod(name, types)
    method.setAccessible(True)
    return method.invoke(None, values)


def test_the_jar_refuses_older_sparks_by_name(spark: SparkSession, uri: str) -> None:
    """A newer one, which it was not tested with, is served while its internal classes are as they were."""

    def refusal(version: str) -> str | None:
        return of_jar(spark, "Release", "refusal", version)

    assert refusal("4.0.2") == "lance_io needs Spark 4.1 or later; this is 4.0.2"
    assert refusal("3.5.7") == "lance_io needs Spark 4.1 or later; this is 3.5.7"
    assert [refusal(version) for version in ("4.1.4", spark.version, "4.99.0", "5.0.0")] == [None] * 4


def test_which_python_is_chosen(spark: SparkSession, uri: str) -> None:
    """The option, Spark's setting, the environment, the program in local mode, and else python3."""

    def first(*pythons: str | None) -> str | None:
        return of_jar(spark, "PythonChoice", "first", *pythons)

    assert [first(*["", None, "  "][:number], *"abcd"[number:]) for number in range(4)] == [*"abcd"]
    assert first(None, "", "", " ") == "python3"


ENABLED = """
from concurrent.futures import ThreadPoolExecutor
import lance_io.spark
def in_thread(call):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()
before = spark.read.format("lance_io").load(sys.argv[2]).count()
for _ in range(2):
    lance_io.spark.enable(spark, catalog="lance", path=sys.argv[3], python="./environment/bin/python")
df = in_thread(lambda: spark.sql("select count(*) from lance.t"))  # the first use of the catalog
print(before, df.collect()[0][0], "LocalTableScan" in df._jdf.queryExecution().toString())
def load():
    lance_io.spark.enable(spark)
    return spark.read.format("lance_io").option("python", "./environment/bin/python").load(sys.argv[2])
df = in_thread(load).where("id = 3")
plan = df._jdf.queryExecution()
print("lance_io" in plan.toString(), "pushed" in plan.toString(), spark.sql("LIST JARS").count(), df.count())
scan = plan.optimizedPlan().collectLeaves().apply(0).scan()
print("metrics", len(scan.supportedCustomMetrics()))
"""


def test_a_running_session_is_enabled(uri: str, folder: Path, tmp_path: Path) -> None:
    """One that began without the JAR; its Python is one of an archive, as on YARN."""
    program = f'#!/bin/sh\ntouch {tmp_path}/used\nexec "{sys.executable}" "$@"\n'.encode()
    with tarfile.open(tmp_path / "packed.tar.gz", "w:gz") as archive:
        entry = tarfile.TarInfo("bin/python")
        entry.size, entry.mode = len(program), 0o755
        archive.addfile(entry, io.BytesIO(program))
    archives = f"{tmp_path}/packed.tar.gz#environment"
    shown = run_driver(ENABLED, tmp_path, uri, str(folder), spark__archives=archives)
    assert shown.splitlines()[-3:] == ["100 100 True", "True True 1 1", "metrics 0"]
    assert (tmp_path / "used").exists()


def test_samples_are_drawn_by_spark(spark: SparkSession, uri: str) -> None:
    query = "select id from {} tablesample (30 percent) repeatable (7)"
    assert "tablesample" not in plan_of(spark.sql(query.format("lance.t"))).lower().partition("batchscan")[2]
    assert 10 < len(rows(spark, query.format("lance.t"))) < 50
    assert rows(spark, query.format("lance.t")) == rows(spark, query.format("lance.t"))


def test_times_are_of_the_zone_of_the_session(spark: SparkSession, uri: str) -> None:
    second = lance.dataset(uri).versions()[1]["timestamp"].astimezone(UTC)
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        for zone, hours in (("UTC", 0), ("Pacific/Kiritimati", 14), ("Pacific/Honolulu", -10)):
            spark.conf.set("spark.sql.session.timeZone", zone)
            shown = (second + timedelta(hours=hours, milliseconds=1)).replace(tzinfo=None)
            assert rows(spark, f"select count(*) from lance.t timestamp as of '{shown}'") == [(100,)]
            earlier = shown - timedelta(days=1)
            with pytest.raises(IllegalArgumentException, match=r"no version is as old as"):
                spark.sql(f"select * from lance.t timestamp as of '{earlier}'")
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
