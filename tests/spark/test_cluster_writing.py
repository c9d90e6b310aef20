"""Writing under Spark with several executors, on a real store, while tasks, workers, executors and commits die.

`LANCE_IO_TEST_CHAOS_ROWS` makes the tables larger.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSourceStreamReader

from lance_io.spark import cleanup_job, write_table
from tests.s3.proxy import FaultyProxy, HttpProxy

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.s3.proxy import Message
    from tests.servers import S3Server

ROWS = int(os.environ.get("LANCE_IO_TEST_CHAOS_ROWS", "40000"))
TASKS = 4
FAILURES = (PySparkException, Py4JJavaError)  # the second one when a process of Spark's own is gone

pytestmark = pytest.mark.timeout(900)


class Table:
    """A table on the test server, and what pylance finds in it."""

    def __init__(self, server: S3Server, uri: str) -> None:
        self.uri = uri
        self.storage = server.options()
        self.options = {f"storage.{name}": value for name, value in self.storage.items()}

    def open(self) -> Any:
        return lance.dataset(self.uri, storage_options=self.storage)

    def ids(self) -> list[int]:
        found: list[int] = self.open().to_table(columns=["id"])["id"].to_pylist()
        return sorted(found)

    @property
    def version(self) -> int:
        return int(self.open().version)

    def begin(self) -> None:
        """Make the first version, ten rows in a file."""
        lance.write_dataset(plain(-10, 10), self.uri, storage_options=self.storage)


@pytest.fixture
def table(s3: S3Server, s3_uri: str) -> Table:
    return Table(s3, f"{s3_uri}/t.lance")


def plain(first: int, number: int) -> pa.Table:
    """Rows as `rows` gives them, without Spark."""
    ids = range(first, first + number)
    return pa.table({"id": pa.array(ids, pa.int64()), "text": [str(one) for one in ids]})


def rows(spark: SparkSession, first: int = 0, number: int = ROWS) -> DataFrame:
    return spark.range(first, first + number, 1, TASKS).selectExpr("id", "cast(id as string) as text")


def rows_of_thread(spark: SparkSession, first: int, number: int) -> DataFrame:
    """The same for a thread that the test has started: `createDataFrame` makes the session active in it."""
    given = [(one, str(one)) for one in range(first, first + number)]
    return spark.createDataFrame(given, "id long, text string")


def write(df: DataFrame, table: Table, chaos: str = "", once: Path | None = None, **options: str) -> None:
    writer = df.write.format("chaotic").options(**table.options, **options)
    writer.mode("append").option("chaos", chaos).option("chaos_once", str(once)).save(table.uri)


@pytest.mark.parametrize("chaos", ["raise", "kill", "executor"])
def test_tasks_that_die_lose_and_double_nothing(
    cluster: SparkSession, table: Table, tmp_path: Path, chaos: str
) -> None:
    table.begin()
    write(rows(cluster), table, chaos, tmp_path / "once", job_id="night")
    assert (tmp_path / "once").exists()
    assert table.ids() == list(range(-10, ROWS))
    assert table.version == 2
    fragments = table.open().get_fragments()[1:]
    assert len(fragments) == TASKS  # one for each task, none for what was lost
    orphans = cleanup_job(table.uri, "night", storage=table.storage)
    assert len(orphans) <= 2
    assert cleanup_job(table.uri, "night", storage=table.storage) == []
    assert table.ids() == list(range(-10, ROWS))


@pytest.mark.parametrize("chaos", ["commit_before", "commit_after"])
def test_commits_that_die(cluster: SparkSession, table: Table, tmp_path: Path, chaos: str) -> None:
    """The job fails either way; its rows are there all or none, and a rerun under its id adds what is missing."""
    table.begin()
    with pytest.raises(FAILURES):
        write(rows(cluster), table, chaos, tmp_path / "once", job_id="night")
    there = range(-10, 0 if chaos == "commit_before" else ROWS)
    assert table.ids() == list(there)
    write(rows(cluster), table, job_id="night")
    assert table.ids() == list(range(-10, ROWS))
    assert table.version == 2
    assert cleanup_job(table.uri, "night", storage=table.storage) == []


def test_two_jobs_at_once_both_land(cluster: SparkSession, table: Table) -> None:
    table.begin()

    def append(first: int) -> None:
        write_table(rows_of_thread(cluster, first, 1000), table.uri, storage=table.storage)

    with ThreadPoolExecutor(2) as pool:
        for job in [pool.submit(append, first) for first in (0, 1000)]:
            job.result()
    assert table.ids() == list(range(-10, 2000))
    assert table.version == 3


def test_an_overwrite_beside_an_append(cluster: SparkSession, table: Table, tmp_path: Path) -> None:
    """Whichever waits with its commit until the other one has committed: the overwrite wins, the append fails."""
    table.begin()

    def beside(waiting: str, other: str) -> None:
        """One job until its commit, then another one, then the commit."""
        at = tmp_path / waiting

        def slow() -> None:
            writer = rows_of_thread(cluster, 0, 1000).write.format("chaotic").mode(waiting)
            chaos = {"chaos": "commit_waits", "chaos_once": str(at), "job_id": waiting}
            writer.options(**table.options, **chaos).save(table.uri)

        with ThreadPoolExecutor(1) as pool:
            job = pool.submit(slow)
            while not at.exists() and not job.done():
                time.sleep(0.05)
            write_table(rows(cluster, -20, 20), table.uri, mode=other, storage=table.storage)
            at.with_suffix(".over").touch()
            job.result()

    beside("overwrite", "append")
    assert table.ids() == list(range(1000)) and table.version == 3
    with pytest.raises(FAILURES, match="CommitConflictError"):
        beside("append", "overwrite")
    assert table.ids() == list(range(-20, 0)) and table.version == 4
    assert cleanup_job(table.uri, "append", storage=table.storage) == []  # the abort has removed its files


# -- a network that fails ----------------------------------------------------------------------------------------------


class LosingProxy(HttpProxy):
    """Loses the answer to the request that makes the next version, after the store has made it.

    for_good  nothing else passes afterwards, either
    """

    def __init__(self, target: str, *, for_good: bool) -> None:
        super().__init__(target)
        self.for_good = for_good
        self.has_lost = False

    async def exchange(self, request: Message, to_client: Any, server: Any, to_server: Any) -> bool:
        if self.has_lost and self.for_good:
            return False
        if not self.has_lost and request.method == "PUT" and ".manifest" in request.line:
            await self.answer(request, server, to_server)
            self.has_lost = True
            return False
        return await super().exchange(request, to_client, server, to_server)


def behind(table: Table, proxy: HttpProxy) -> dict[str, str]:
    """Options of a client that soon gives up."""
    return {**table.storage, "aws_endpoint": proxy.endpoint, "client_max_retries": "1", "request_timeout": "10s"}


def test_an_answer_that_is_lost(cluster: SparkSession, table: Table, s3: S3Server) -> None:
    """The commit finds its own version, and does not make another one."""
    table.begin()
    with LosingProxy(s3.endpoint, for_good=False) as proxy:
        write_table(rows(cluster), table.uri, storage=behind(table, proxy))
        assert proxy.has_lost
    assert table.ids() == list(range(-10, ROWS))
    assert table.version == 2


def test_nobody_knows_how_a_commit_ended(cluster: SparkSession, table: Table, s3: S3Server) -> None:
    """The job fails, nothing is removed, and a rerun under its id adds nothing."""
    table.begin()
    with LosingProxy(s3.endpoint, for_good=True) as proxy, pytest.raises(FAILURES, match="CommitUnknownError"):
        write_table(rows(cluster), table.uri, storage=behind(table, proxy), job_id="night")
    assert table.ids() == list(range(-10, ROWS))
    write_table(rows(cluster), table.uri, storage=table.storage, job_id="night")
    assert table.ids() == list(range(-10, ROWS))
    assert table.version == 2
    assert cleanup_job(table.uri, "night", storage=table.storage) == []


def test_a_job_through_a_bad_network(cluster: SparkSession, table: Table, s3: S3Server) -> None:
    """Answers lost, cut, late, connections refused: whatever fails is run again, and each row is there once."""
    table.begin()
    with FaultyProxy(s3.endpoint, seed=7, rate=0.1) as proxy:
        for _ in range(10):
            try:
                write_table(rows(cluster), table.uri, storage=behind(table, proxy), job_id="night")
                break
            except FAILURES:
                continue
        assert sum(number for harm, number in proxy.done.items() if harm is not None) > 0
    assert table.ids() == list(range(-10, ROWS))
    assert table.version == 2


# -- data and streams --------------------------------------------------------------------------------------------------


def test_a_misfit_names_partition_row_and_column(cluster: SparkSession, table: Table) -> None:
    given = rows(cluster, 0, 100).selectExpr("id", "array(cast(id as float), cast(id as float)) as v")
    write_table(given, table.uri, storage=table.storage, **{"v.arrow.fixed-size-list.size": 2})
    bad = given.selectExpr("id", "if(id = 60, slice(v, 1, 1), v) as v")
    with pytest.raises(PySparkException, match=r"partition 2, row 10 of its input, column v: expected .*2 items, not"):
        write_table(bad, table.uri, storage=table.storage)
    assert table.version == 1


def test_a_stream_whose_commits_die(cluster: SparkSession, table: Table, tmp_path: Path) -> None:
    """Each increment once: dying before and after publishing, restarts, and a new checkpoint that is refused."""
    source, part = tmp_path / "increments", ROWS // 4
    source.mkdir()

    def run(checkpoint: str, chaos: str = "", once: str = "") -> None:
        stream = cluster.readStream.schema("id long, text string").option("maxFilesPerTrigger", 1)
        query = (
            stream.parquet(str(source))
            .writeStream.format("chaotic")
            .options(**table.options, stream_id="rows", chaos=chaos, chaos_once=str(tmp_path / once))
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start(table.uri)
        )
        query.awaitTermination()

    def add(number: int) -> None:
        pq.write_table(plain(number * part, part), source / f"{number}.parquet")

    add(0)
    run("checkpoint")
    for number, chaos in ((1, "commit_after"), (2, "commit_before"), (3, "kill")):
        add(number)
        if chaos == "kill":
            run("checkpoint", chaos, chaos)
        else:
            with pytest.raises(FAILURES):
                run("checkpoint", chaos, chaos)
            assert table.ids() == list(range(part * (number + (chaos == "commit_after"))))
            run("checkpoint")
        assert table.ids() == list(range(part * (number + 1)))
    assert table.version == 4
    with pytest.raises(PySparkException, match="already committed up to batch 3"):
        run("another checkpoint")
    assert table.ids() == list(range(part * 4)) and table.version == 4


def test_a_table_as_a_stream(cluster: SparkSession, table: Table, tmp_path: Path) -> None:
    """Snapshot, then increments, into another table, in batches of bounded size; no credential is left behind."""
    has_limits = hasattr(DataSourceStreamReader, "getDefaultReadLimit")  # which came with pyspark 4.2
    copy = Table.__new__(Table)
    copy.__dict__ = {**table.__dict__, "uri": f"{table.uri}.copy"}

    limit = {"max_rows_per_trigger": "500"} if has_limits else {}
    told = ""

    def run() -> list[int]:
        nonlocal told
        query = (
            cluster.readStream.format("lance_io")
            .options(**table.options, **limit)
            .load(table.uri)
            .writeStream.format("lance_io")
            .options(**table.options, stream_id="copy")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(copy.uri)
        )
        query.awaitTermination()
        told += "".join(progress.json for progress in query.recentProgress)
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    write_table(rows(cluster, 0, 1000), table.uri, storage=table.storage)
    assert run() == ([500] * 2 if has_limits else [1000])
    write_table(rows(cluster, 1000, 100), table.uri, storage=table.storage, files=1)
    write_table(rows(cluster, 1100, 100), table.uri, storage=table.storage, files=1)
    assert run() == [200]
    assert copy.ids() == list(range(1200))
    kept = [one.read_bytes().decode(errors="replace") for one in (tmp_path / "checkpoint").rglob("*") if one.is_file()]
    assert kept and table.storage["aws_secret_access_key"] not in told + "".join(kept)


def test_no_credential_in_what_a_failure_says(cluster: SparkSession, table: Table) -> None:
    storage = {**table.storage, "aws_secret_access_key": "s3cr3t-of-nobody"}
    with pytest.raises(FAILURES) as caught:
        write_table(rows(cluster), table.uri, storage=storage)
    assert "s3cr3t-of-nobody" not in str(caught.value)
