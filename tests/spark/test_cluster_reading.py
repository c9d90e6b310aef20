"""Reading on a cluster of real executors from MinIO: what it costs, counted there and inside of the workers.

`LANCE_IO_TEST_SPARK_MIB` is the size of the tables that are read and written with bounded memory.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from lance_io.io.stats import process_stats
from lance_io.limits import MIB
from lance_io.spark import plan, register, write_table
from lance_io.spark.read.reader import HEAD_BYTES
from lance_io.spark.source import LanceDataSource
from lance_io.store.upload import PART_BYTES, PARTS_IN_FLIGHT
from tests.spark.probing import probes
from tests.spark.sessions import HIDDEN, executors_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.s3.proxy import CountingProxy
    from tests.servers import S3Server
    from tests.spark.sessions import Sessions, WideTable

pytestmark = pytest.mark.timeout(900)

METADATA_BYTES = 80 * 1024  # of a small file: its last 64 KiB, and page indexes
EXECUTORS = 2
ENDS_WITHIN_S = 30.0  # Spark ends those that had nothing to do only after a minute
SIZE_MIB = int(os.environ.get("LANCE_IO_TEST_SPARK_MIB", "384"))
GROWTH_MAX = {  # bytes of a worker, whatever it reads or writes
    "read": 192 * MIB,
    "written": (PARTS_IN_FLIGHT + 1) * PART_BYTES + 160 * MIB,
}


def load(spark: SparkSession, uri: str, **options: Any) -> DataFrame:
    return spark.read.format("lance_io").options(**options).load(uri)


def manifests(proxy: CountingProxy) -> int:
    """Requests for manifests, or for what there is of them, since last asked."""
    return sum("_versions" in line for line in proxy.take().lines)


# -- versions --------------------------------------------------------------------------------------------------------


def test_a_dataframe_keeps_its_version(
    cluster: SparkSession, s3: S3Server, s3_uri: str, storage: dict[str, str], proxy: CountingProxy
) -> None:
    uri, options = f"{s3_uri}/t.lance", s3.options()
    lance.write_dataset(pa.table({"a": range(50)}), uri, storage_options=options, max_rows_per_file=10)
    df = load(cluster, uri, num_partitions="5", **storage)
    lance.write_dataset(pa.table({"a": range(50, 70)}), uri, storage_options=options, mode="append")
    assert df.count() == 50
    proxy.take()
    assert df.agg({"a": "sum"}).collect() == [(sum(range(50)),)]
    assert manifests(proxy) == 0  # partitions are planned once, and bring what tasks need of the manifest
    assert load(cluster, uri, **storage).count() == 70


# -- bytes and requests ------------------------------------------------------------------------------------------------


def test_one_column_reads_its_bytes(
    cluster: SparkSession, s3: S3Server, wide: WideTable, storage: dict[str, str], proxy: CountingProxy
) -> None:
    planned = plan(wide.uri, columns=["id"], num_partitions=4, storage=s3.options())
    df = load(cluster, wide.uri, columns="id", num_partitions="4", **storage)
    assert df.rdd.getNumPartitions() == len(planned.partitions) == 4
    proxy.take()
    assert df.agg({"id": "sum"}).collect() == [(wide.num_rows * (wide.num_rows - 1) // 2,)]
    spent = proxy.take()
    files = wide.num_rows // wide.file_rows + 3  # a file that is cut may be opened by two tasks
    assert spent.body_bytes < wide.num_rows * 8 + files * METADATA_BYTES
    assert not [line for line in spent.lines if "_versions" in line]  # the partitions brought the manifest
    assert 0 < spent.requests <= planned.requests  # a worker that has read a file's metadata keeps it
    assert load(cluster, wide.uri, num_partitions="4", **storage).count() == wide.num_rows
    assert not [line for line in proxy.take().lines if "/data/" in line]  # the manifest has the count
    register(cluster, "lance_python")
    plain = cluster.read.format("lance_python").options(num_partitions="4", **storage).load(wide.uri)
    assert plain.count() == wide.num_rows
    assert proxy.take().body_bytes >= wide.num_rows * wide.dimension * 4  # Spark tells it nothing of a query


def test_a_limit_ends_the_scan(
    cluster: SparkSession, wide: WideTable, storage: dict[str, str], proxy: CountingProxy
) -> None:
    small = {"num_partitions": "1", "batch_bytes": "256k", "io_buffer_bytes": "1m"}
    df = load(cluster, wide.uri, **small, **storage)
    assert len(df.limit(5).collect()) == 5
    processes = worker_processes()
    for _ in range(4):
        proxy.take()
        assert len(df.limit(5).collect()) == 5
        assert proxy.take().body_bytes < wide.num_rows * wide.dimension * 4 // 2
    ends_at = time.monotonic() + ENDS_WITHIN_S
    while worker_processes() > processes + EXECUTORS and time.monotonic() < ends_at:
        time.sleep(0.1)
    assert worker_processes() <= processes + EXECUTORS  # Spark ends the workers that it has interrupted
    assert df.select("id").limit(7).count() == 7  # and the next query finds a working worker


def test_the_first_rows_take_kilobytes(
    cluster: SparkSession,
    wide: WideTable,
    storage: dict[str, str],
    proxy: CountingProxy,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of 24 MiB, for `limit` and `show`; what a worker that is new reads of the file comes on top."""
    df = load(cluster, wide.uri, num_partitions="2", **storage)
    for few in (lambda: df.limit(5).collect(), lambda: df.select("id").show()):
        proxy.take()
        few()
        spent = proxy.take()
        assert 0 < spent.body_bytes < HEAD_BYTES + wide.file_rows * 8 + METADATA_BYTES
    assert df.count() == wide.num_rows
    assert "only showing top 20 rows" in capsys.readouterr().out


def worker_processes() -> int:
    """Python processes of all executors of this machine that are ours."""
    found = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid = int(stat.parent.name)
            found += b"pyspark.daemon" in (stat.parent / "cmdline").read_bytes() and _is_ours(pid)
        except OSError:  # has ended meanwhile
            continue
    return found


def _is_ours(pid: int) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


# -- what workers keep -------------------------------------------------------------------------------------------------


def test_a_worker_keeps_one_engine(
    cluster: SparkSession, s3: S3Server, s3_uri: str, storage: dict[str, str], tmp_path: Path
) -> None:
    """One session, loop and client for fifty tasks; and what it knows of files is still there in the next query.

    A process that Spark has kept from a query before may have clients for that query's tables, too, and this one's.
    """
    uri = f"{s3_uri}/t.lance"
    numbers = np.random.default_rng(9).integers(-(2**40), 2**40, 100_000)
    lance.write_dataset(pa.table({"a": numbers}), uri, storage_options=s3.options())
    cold, warm = reads_here(uri, storage), reads_here(uri, storage)
    assert cold > warm
    probed = cluster.read.format("probed").options(num_partitions="50", probes=str(tmp_path), **storage)
    for _ in range(2):
        df = probed.load(uri)
        assert df.agg({"a": "sum"}).collect() == [(int(numbers.sum()),)]
    told = probes(tmp_path)
    assert len(told) == 100
    by_process = [[one for one in told if one["pid"] == pid] for pid in {one["pid"] for one in told}]
    assert len(by_process) < len(told) // 5  # two, unless Spark ends one that had nothing to do for a minute
    for tasks in by_process:
        for kept in ("sessions", "loops", "clients", "engines"):
            assert all(one[kept] == tasks[0][kept] for one in tasks), kept
            made = set(tasks[0][kept]) - set(tasks[0].get(f"{kept}_before", []))
            assert len(made) == 1 or (kept == "clients" and tasks[0][kept] and not made), kept
        assert all(one["cpus"] == 1 and one["hidden"] == HIDDEN for one in tasks)
        assert all(one["workers"] == 1 for one in tasks)  # of two executors of one core each
    reads = sum(one["reads"] for one in told)
    assert reads == 2 * warm + len(by_process) * (cold - warm)  # each process has read the file's metadata once


def test_workers_are_tuned_where_that_is_asked_for(
    cluster: SparkSession, s3: S3Server, s3_uri: str, storage: dict[str, str], tmp_path: Path
) -> None:
    """And nowhere else: workers that have read without the option are as Spark has made them."""
    uri = f"{s3_uri}/t.lance"
    lance.write_dataset(pa.table({"a": range(1000)}), uri, storage_options=s3.options(), max_rows_per_file=100)
    probed = cluster.read.format("probed").options(num_partitions="10", **storage)
    told = {}
    for tuned in ("false", "true"):
        (tmp_path / tuned).mkdir()
        df = probed.options(probes=str(tmp_path / tuned), tune_worker=tuned).load(uri)
        assert df.agg({"a": "sum"}).collect() == [(sum(range(1000)),)]
        told[tuned] = probes(tmp_path / tuned)
        assert len(told[tuned]) == 10
    assert all(one["frozen"] > 10_000 for one in told["true"])
    assert all(one["delays"] and not any(one["delays"]) for one in told["true"])
    assert not any(one["frozen"] for one in told["false"])
    assert all(one["delays"] and any(one["delays"]) for one in told["false"])


@pytest.mark.parametrize("how", ["union", "coalesce"])
def test_tasks_whose_partitions_have_other_numbers(
    cluster: SparkSession, s3: S3Server, s3_uri: str, storage: dict[str, str], tmp_path: Path, how: str
) -> None:
    """Each row once for each time that it is asked for, and no partition is read that a task was not given."""
    uri = f"{s3_uri}/t.lance"
    lance.write_dataset(pa.table({"a": range(1000)}), uri, storage_options=s3.options(), max_rows_per_file=100)
    probed = cluster.read.format("probed").options(probes=str(tmp_path), **storage)
    first, second = probed.option("num_partitions", "5").load(uri), probed.option("num_partitions", "10").load(uri)
    df = first.union(second) if how == "union" else second.coalesce(3)
    times = 2 if how == "union" else 1
    assert df.agg({"a": "count"}).collect() == [(times * 1000,)]
    assert df.agg({"a": "sum"}).collect() == [(times * sum(range(1000)),)]
    assert len(probes(tmp_path)) == (30 if how == "union" else 20)


def reads_here(uri: str, storage: dict[str, str]) -> int:
    """Requests of a read of fifty tasks in this process."""
    source = LanceDataSource({"path": uri, "num_partitions": "50", **storage})
    reader = source.reader(source.schema())
    before = process_stats().num_reads
    for partition in reader.partitions():
        for _ in reader.read(partition):
            pass
    return process_stats().num_reads - before


@pytest.fixture(scope="module")
def large(s3: S3Server) -> str:
    """Vectors in two fragments."""
    uri = f"s3://{s3.bucket}/test-spark-large/t.lance"
    values = pa.array(np.random.default_rng(8).random(SIZE_MIB << 18, dtype=np.float32))
    table = pa.table({"v": pa.FixedSizeListArray.from_arrays(values, 256)})
    lance.write_dataset(
        table, uri, storage_options=s3.options(), mode="overwrite", max_rows_per_file=table.num_rows // 2
    )
    return uri


def test_what_a_worker_holds_is_bounded(
    cluster: SparkSession, wide: WideTable, large: str, s3_uri: str, storage: dict[str, str], tmp_path: Path
) -> None:
    """Reading and writing more than that in one task, whose workers have loaded all that they need.

    A small copy is first. Which of an executor's processes then reads, Spark says: it may be one that has written.
    """

    def copy(uri: str, num_partitions: int, name: str) -> None:
        for what in ("read", "written"):
            (tmp_path / name / what).mkdir(parents=True)
        small = {"num_partitions": str(num_partitions), "batch_bytes": "4m", "io_buffer_bytes": "8m", **storage}
        read = cluster.read.format("probed").options(probes=str(tmp_path / name / "read"), warm="true")
        df = read.options(**small).load(uri)
        writer = df.write.format("probed").options(probes=str(tmp_path / name / "written"), **storage)
        writer.mode("append").save(f"{s3_uri}/{name}.lance")

    copy(wide.uri, EXECUTORS, "small")
    copy(large, 1, "large")
    for what in ("read", "written"):
        (told,) = probes(tmp_path / "large" / what)
        assert told["grown"] < GROWTH_MAX[what] < SIZE_MIB * MIB, what


# -- credentials -------------------------------------------------------------------------------------------------------


def test_secrets_do_not_show(
    cluster: SparkSession,
    sessions: Sessions,
    wide: WideTable,
    storage: dict[str, str],
    s3: S3Server,
    s3_uri: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Not in plans, errors, event logs, nor in what executors leave behind."""
    df = load(cluster, wide.uri, columns="id", **storage)
    df.explain("extended")
    shown = capsys.readouterr().out + repr(df) + str(df.schema)
    with pytest.raises(PySparkException) as caught:
        load(cluster, wide.uri + "x", **storage)
    shown += str(caught.value)
    with pytest.raises(PySparkException) as caught:
        load(cluster, wide.uri, **{**storage, "storage.allow_http": "perhaps"})
    shown += str(caught.value)
    write_table(df.limit(3), f"{s3_uri}/t.lance", storage=s3.options())
    register(cluster, "lance_python")  # whose tasks warn of names that Spark shows
    assert cluster.read.format("lance_python").options(columns="id", **storage).load(wide.uri).count() == wide.num_rows
    assert wide.uri in shown or "lance_io" in shown
    assert s3.secret not in shown
    for folder in (sessions.folder / "events", executors_folder(cluster)):
        left = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
        assert left
        assert all(s3.secret.encode() not in text for text in left)
    warnings = [
        path.read_text().count("Let spark.redaction.regex") for path in executors_folder(cluster).rglob("stderr")
    ]
    assert sum(warnings) > 0, "the name of the access key is not among those that Spark hides by default"
