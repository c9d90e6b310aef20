"""Tasks whose worker or executor is killed, and stragglers that are overtaken, in writes and in reads of each kind.

`LANCE_IO_SPARK_CHAOS` says how often each kind of read meets each of the three; 0, the default, is the shortest list
that has all of them.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io.spark
from lance_io.spark import cleanup_job, register
from tests.spark.chaotic import ChaoticSource
from tests.spark.chaotic_worker import path_of
from tests.spark.standalone import standalone_session
from tests.spark.test_jar_reading import plan_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from tests.spark.sessions import Sessions

pytestmark = [pytest.mark.timeout(900), pytest.mark.skipif(sys.platform != "linux", reason="needs 127.0.0.2")]

TASKS = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the cluster, the catalog `chaos`, and the files that its workers obey."""
    return tmp_path_factory.mktemp("standalone")


@pytest.fixture(scope="module")
def standalone(sessions: Sessions, folder: Path) -> Iterator[SparkSession]:
    """Two executors on two hosts, whose workers obey the files of a folder."""
    sessions.stop()
    with standalone_session(folder, spark__executorEnv__PYTHONPATH=path_of(folder)) as spark:
        spark.sparkContext.addPyFile(str(Path(__file__).with_name("chaotic.py")))
        register(spark)
        spark.dataSource.register(ChaoticSource)
        yield spark


# -- writes by the source in Python ------------------------------------------------------------------------------------


def test_a_straggler_is_overtaken(standalone: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    rows = standalone.range(0, 40_000, 1, TASKS)
    lance.write_dataset(pa.table({"id": range(-10, 0)}), path)
    slow = {"chaos": "slow", "chaos_once": str(tmp_path / "once"), "job_id": "night"}
    rows.write.format("chaotic").mode("append").options(**slow).save(path)
    assert (tmp_path / "once").exists()
    table = lance.dataset(path)
    assert table.version == 2
    assert sorted(table.to_table()["id"].to_pylist()) == list(range(-10, 40_000))
    assert len(table.get_fragments()) == 1 + TASKS
    cleanup_job(path, "night")
    assert sorted(table.to_table()["id"].to_pylist()) == list(range(-10, 40_000))
    assert len(list(Path(path, "data").iterdir())) == 1 + TASKS


# -- reads through the JAR ---------------------------------------------------------------------------------------------

NUM_ROWS = 40_000
READS = {  # queries by the kind of their read, with a part of its description in the plan
    "rows": ("select sum(id), count(distinct text) from chaos.t", "columns [id, text]"),
    "predicate": ("select sum(id), max(text) from chaos.t where text like '%7'", "pushed ["),
    "left predicate": ("select count(id), sum(length(text)) from chaos.t where id % 3 = 1", "columns [id, text]"),
    "count": ("select count(*) from chaos.t where text like '%7'", "count, pushed ["),
    "index": ("select sum(score), count(*) from chaos.t where id between 500 and 38000", "rows by index"),
    "order": ("select id, text from chaos.t order by score desc, id limit 300", "first 300 rows of each task"),
    "limit": ("select count(*) from (select id from chaos.t where score >= 0 limit 30000)", "for each task"),
    "join": ("select sum(t.score) from chaos.t t join few on t.id = few.k", "columns [id, score]"),
    "metadata columns": ("select sum(_rowaddr), sum(id) from chaos.t", "_rowaddr"),
}
ROUNDS = int(os.environ.get("LANCE_IO_SPARK_CHAOS", "0"))
CHAOS = [
    *((kind, "kill") for kind in READS),
    *((kind, order) for order in ("slow", "executor") for kind in (READS if ROUNDS else ["rows"])),
]


@pytest.fixture(scope="module")
def expected(standalone: SparkSession, folder: Path) -> dict[str, list[Any]]:
    """The rows of the queries by DuckDB; and the tables that they read."""
    random = np.random.default_rng(45)
    ids, scores = random.permutation(NUM_ROWS), random.integers(0, 10_000, NUM_ROWS) / 4
    table = pa.table({"id": ids, "text": [f"text {id % 1000}" for id in ids], "score": scores})
    file_rows = NUM_ROWS // TASKS
    data = lance.write_dataset(table, str(folder / "t.lance"), max_rows_per_file=file_rows)
    data.create_scalar_index("id", "BTREE")
    lance_io.spark.enable(standalone, catalog="chaos", path=str(folder), num_partitions=TASKS, batch_bytes="64k")
    few = "select 7 * id as k from range(500)"
    standalone.sql(few).createOrReplaceTempView("few")
    positions = np.arange(NUM_ROWS)
    peer = duckdb.connect()
    peer.register("t", table.append_column("_rowaddr", [(positions // file_rows << 32) + positions % file_rows]))
    peer.execute(f"create table few as {few.replace('id', 'range')}")
    for kind, (query, shown) in READS.items():
        assert shown in plan_of(standalone.sql(query)), kind
    return {kind: sorted(peer.execute(query.replace("chaos.t", "t")).fetchall()) for kind, (query, _) in READS.items()}


@pytest.mark.parametrize(("kind", "order"), CHAOS)
def test_reads_that_lose_a_task_give_each_row_once(
    standalone: SparkSession, folder: Path, expected: dict[str, list[Any]], kind: str, order: str
) -> None:
    for _ in range(max(1, ROUNDS)):
        (folder / order).touch()
        assert sorted(map(tuple, standalone.sql(READS[kind][0]).collect())) == expected[kind]
        assert not (folder / order).exists()
        if order == "slow":  # the task that was overtaken does not go on
            wait_until((folder / "released").exists)
            (folder / "released").unlink()


def test_no_worker_outlives_its_virtual_machine(folder: Path, expected: dict[str, list[Any]]) -> None:
    """Those of executors that were killed before are gone: an orphan would have another parent."""
    assert workers_in(folder)
    backend = "CoarseGrainedExecutorBackend"
    wait_until(lambda: all(backend in command_of(parent) for parent in workers_in(folder).values()))


def workers_in(folder: Path) -> dict[int, int]:
    """The workers of a folder, and their parents."""
    workers = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # processes end
            is_of_folder = f":{folder}:" in (entry / "environ").read_text()
            if is_of_folder and "lance_io.spark.worker" in (entry / "cmdline").read_text():
                workers[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    return workers


def command_of(pid: int) -> str:
    """The command line of a process."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    for _ in range(600):
        if is_so():
            return
        time.sleep(0.1)
    raise TimeoutError
