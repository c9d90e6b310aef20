"""The JAR on real executors and MinIO: SQL, what a query reads, and queries that end early.

`LANCE_IO_TEST_SPARK_FACTS` is the number of rows of the table; 1,860,000 are 1 GB.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io.spark
from tests.spark.sessions import TASK_ERRORS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.s3.proxy import CountingProxy
    from tests.servers import S3Server
    from tests.spark.sessions import Sessions

pytestmark = pytest.mark.timeout(900)

NUM_ROWS = int(os.environ.get("LANCE_IO_TEST_SPARK_FACTS", "40000"))
DIMENSION = 128
TEXT_MODULUS = 977


@pytest.fixture(scope="module")
def catalog(cluster: SparkSession, s3: S3Server, proxy: CountingProxy) -> str:
    """A catalog `lance` with the table `facts`: an id, a score, a text and a vector in four fragments, 22 MB.

    `indexed` is a clone of it with a B-tree of the ids.
    """
    ids = np.arange(NUM_ROWS)
    random = np.random.default_rng(3)
    vectors = random.random(NUM_ROWS * DIMENSION, dtype=np.float32)
    table = pa.table(
        {
            "id": ids,
            "score": random.random(NUM_ROWS),
            "text": [f"text {id % TEXT_MODULUS}" for id in ids],
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors), DIMENSION),
        }
    )
    root = f"s3://{s3.bucket}/test-spark-jar"
    data = lance.write_dataset(
        table, f"{root}/facts.lance", storage_options=s3.options(), mode="overwrite", max_rows_per_file=NUM_ROWS // 4
    )
    clone = f"{root}/indexed.lance"
    with suppress(OSError, ValueError):  # of a test run before on this server
        lance.LanceDataset.drop(clone, storage_options=s3.options())
    data.shallow_clone(clone, data.version, storage_options=s3.options()).create_scalar_index("id", "BTREE")
    options = s3.options(aws_endpoint=proxy.endpoint)
    lance_io.spark.enable(cluster, catalog="lance", path=root, storage=options, num_partitions=4)
    return root


def test_sql_on_executors(cluster: SparkSession, catalog: str) -> None:
    rows = cluster.sql("select text, count(*) n from lance.facts where id < 3000 group by text order by n desc, text")
    assert [tuple(row) for row in rows.limit(2).collect()] == [("text 0", 4), ("text 1", 4)]
    assert [row.tableName for row in cluster.sql("show tables in lance").collect()] == ["facts", "indexed"]


def test_credentials_of_the_catalog_do_not_show(
    cluster: SparkSession, catalog: str, sessions: Sessions, s3: S3Server
) -> None:
    """Settings of a running session are properties of its jobs, of which Spark hides nothing."""
    assert cluster.sql("select sum(id) from lance.facts").collect() == [(NUM_ROWS * (NUM_ROWS - 1) // 2,)]
    assert s3.secret not in str(cluster.sql("set -v").collect() + cluster.sql("set").collect())
    logs = [path.read_bytes() for path in (sessions.folder / "events").rglob("*") if path.is_file()]
    assert any(b"lance.facts" in text for text in logs)
    assert all(s3.secret.encode() not in text for text in logs)


OTHER_BYTES = 64 << 10  # page indexes, and the first rows of a page
JOIN = "select sum(f.id) from lance.facts f join range(100) r on f.id = r.id"


@pytest.fixture(scope="module")
def id_bytes(catalog: str, s3: S3Server) -> int:
    """The stored bytes of the ids, by pylance."""
    data = lance.dataset(f"{catalog}/facts.lance", storage_options=s3.options())
    (stored,) = (field.bytes_on_disk for field in data.stats.data_stats().fields if field.id == 0)
    return stored


@pytest.mark.parametrize(
    ("query", "share_of_ids", "more_bytes"),
    [
        ("select sum(id) from lance.facts", 1.05, OTHER_BYTES),
        ("select count(*) from lance.facts", 0, 0),
        ("select count(*) from lance.facts where id % 2 = 0 and id < 100", 1.05, OTHER_BYTES),
        ("select * from lance.facts limit 5", 0, 1 << 20),
        ("select * from lance.facts where id = 12345", 1, 2 << 20),
        ("select * from lance.indexed where id = 12345", 0, 1 << 20),
        ("select count(*), min(id), max(id) from lance.indexed", 0, 0),
        (JOIN, 1.05, OTHER_BYTES),
    ],
)
def test_queries_read_what_they_use(
    cluster: SparkSession,
    catalog: str,
    proxy: CountingProxy,
    id_bytes: int,
    query: str,
    share_of_ids: float,
    more_bytes: int,
) -> None:
    """Warm: metadata of the files is in the caches of both executors. Bytes of data files, counted at MinIO."""
    for _ in range(3):
        assert cluster.sql(query).collect()
    proxy.take()
    assert cluster.sql(query).collect()
    spent = proxy.take()
    data = [line for line in spent.lines if "/data/" in line]
    assert spent.body_bytes <= share_of_ids * id_bytes + more_bytes + OTHER_BYTES
    assert len(data) <= 40
    assert bool(data) == bool(share_of_ids or more_bytes)


def test_few_rows_of_a_join_are_broadcast(cluster: SparkSession, catalog: str) -> None:
    """The other side is the one that reads the table, the ids alone."""
    ((plan,),) = cluster.sql(f"explain {JOIN}").collect()
    assert re.search(r"BroadcastHashJoin .*, Build(Left|Right)", plan)
    assert re.search(r"BroadcastExchange .*\n.*Range \(0, 100", plan)
    assert re.search(r"BatchScan lance\.facts\[id#\d+L\]", plan)


def test_show_reads_little(
    cluster: SparkSession, catalog: str, proxy: CountingProxy, capsys: pytest.CaptureFixture[str]
) -> None:
    """And so does `limit`."""
    df = cluster.table("lance.facts")
    for give in (df.show, df.limit(5).collect):
        give()
        proxy.take()
        give()
        spent = proxy.take()
        assert spent.body_bytes < 1 << 20
        assert spent.requests < 40
    assert "only showing top 20 rows" in capsys.readouterr().out


@pytest.mark.parametrize("interrupts", ["true", "false"])
def test_a_cancelled_query_ends(cluster: SparkSession, catalog: str, interrupts: str) -> None:
    """Also where Spark does not interrupt the threads of its tasks."""
    sc = cluster.sparkContext
    group = f"killed {interrupts}"
    before = cluster.conf.get("spark.sql.execution.interruptOnCancel")
    cluster.conf.set("spark.sql.execution.interruptOnCancel", interrupts)
    failed: list[BaseException] = []

    def slow() -> None:
        sc.setJobGroup(group, group, interruptOnCancel=interrupts == "true")
        endless = "select sum(hash(f.vector, r.id)) from lance.facts f cross join range(1000000) r"
        try:
            cluster.sql(endless).collect()
        except TASK_ERRORS as error:
            failed.append(error)

    try:
        thread = threading.Thread(target=slow)
        thread.start()
        while not sc.statusTracker().getJobIdsForGroup(group):
            thread.join(0.05)
        sc.cancelJobGroup(group)
        thread.join(60)
        assert failed
    finally:
        cluster.conf.set("spark.sql.execution.interruptOnCancel", before)
    assert cluster.sql("select count(*) from lance.facts where id >= 0").collect() == [(NUM_ROWS,)]


SITE = """
import os, sys
if "lance_io.spark.worker" in sys.orig_argv and os.path.exists({flag!r}):
    print("No module named lance_io", file=sys.stderr)
    os._exit(1)
"""


def test_an_executor_without_the_package_says_so(
    sessions: Sessions, cluster: SparkSession, catalog: str, tmp_path: Path
) -> None:
    """As soon as a task asks, and not before others have: its executors have lost it, and get it back."""
    flag = tmp_path / "lost"
    module = sessions.folder / "sitecustomize.py"  # executors that start later ask for it, too
    module.write_text(SITE.format(flag=str(flag)))
    cluster.sparkContext.addPyFile(str(module))  # executors put it on the path of workers
    query = "select sum(id) from lance.facts"
    expected = cluster.sql(query).collect()
    flag.touch()
    killed = kill_workers_of_executors()
    assert killed
    with pytest.raises(TASK_ERRORS) as caught:
        cluster.sql(query).collect()
    text = str(caught.value)
    assert f"the lance_io worker did not start on {socket.gethostname()} with Python {sys.executable} (" in text
    assert "exit code 1; it wrote: No module named lance_io" in text
    assert "The option python of the catalog or read, or spark.pyspark.python, names a Python that has lance_io" in text
    flag.unlink()
    assert cluster.sql(query).collect() == expected


def kill_workers_of_executors() -> int:
    """Kill the workers of this program's executors; gives their number."""
    killed = 0
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # processes end
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            is_worker = b"lance_io.spark.worker" in (entry / "cmdline").read_bytes()
            if is_worker and b"CoarseGrainedExecutorBackend" in Path(f"/proc/{parent}/cmdline").read_bytes():
                if descends_from_this(parent):
                    os.kill(int(entry.name), signal.SIGKILL)
                    killed += 1
    return killed


def descends_from_this(pid: int) -> bool:
    while pid > 1 and pid != os.getpid():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid == os.getpid()
