"""Procedures whose executors or workers are killed, or whose tasks are overtaken, while they write to MinIO.

The answer to the first write of a task is held back until the blow, so it always strikes in the middle of the work.
`LANCE_IO_SPARK_BLOWS` says how often each case is struck; without it one is, once.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow.fs
import pytest

import lance_io
import lance_io.spark
from tests.s3.proxy import HttpProxy, Message
from tests.seeds import seed_of
from tests.spark.sessions import Sessions, spark_session
from tests.spark.test_speculation import DEPLOY, address, spark_process
from tests.spark.test_table_jobs import make_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.servers import S3Server

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc"),
]

BLOWS: Final = int(os.environ.get("LANCE_IO_SPARK_BLOWS", "0"))
WAIT_S: Final = 300.0
FILE_ROWS: Final = 100
WRITES: Final = {"create_index": r"/_indices/", "compact": r"/data/", "add_columns": r"/data/"}
CALLS: Final = {
    "create_index": "create_index('{t}', 'id', 'BTREE', num_segments => 4)",
    "compact": "compact('{t}', target_rows_per_fragment => 300)",
    "add_columns": "add_columns('{t}', map('twice', 'id * 2'))",
}


class HeldWrites(HttpProxy):
    """Holds back the answer to the first write, or read, whose line has a pattern, once it is told to.

    held  set as soon as it is
    """

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self._pattern: str | None = None
        self._methods: tuple[str, ...] = ()
        self._gone = asyncio.Event()
        self.held = threading.Event()

    def hold(self, pattern: str, methods: tuple[str, ...] = ("PUT", "POST")) -> None:
        """Hold the next one."""
        self.held.clear()
        self._methods = methods
        self._loop.call_soon_threadsafe(self._gone.clear)
        self._pattern = pattern

    def let_go(self) -> None:
        """Send the answer."""
        self._pattern = None
        self._loop.call_soon_threadsafe(self._gone.set)

    async def answer(self, request: Message, server: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> Message:
        """What the server answers, in time."""
        answer = await super().answer(request, server, to_server)
        if self._pattern and request.method in self._methods and re.search(self._pattern, request.line):
            self._pattern = None
            self.held.set()
            await self._gone.wait()
        return answer


class Struck:
    """A table in a catalog whose store is behind the proxy."""

    def __init__(self, spark: SparkSession, s3: S3Server, proxy: HeldWrites, catalog: str, root: str) -> None:
        self.spark, self.s3, self.proxy, self.catalog = spark, s3, proxy, catalog
        self.name = "t"
        self.uri = f"{root}/t.lance"
        storage = s3.through(proxy.endpoint)
        lance_io.spark.enable(spark, catalog=catalog, path=root, storage=storage)

    def begin(self, procedure: str) -> None:
        """A new table of twelve small fragments."""
        self._keys = pyarrow.fs.S3FileSystem(
            access_key=self.s3.user,
            secret_key=self.s3.secret,
            endpoint_override=self.s3.endpoint.removeprefix("http://"),
            scheme="http",
            region=self.s3.region,
        )
        self.procedure = procedure
        lance.write_dataset(
            make_rows(0, 12 * FILE_ROWS),
            self.uri,
            mode="overwrite",
            max_rows_per_file=FILE_ROWS,
            storage_options=self.s3.options(),
        )
        self.before = self.open().version

    def open(self, version: int | None = None) -> Any:
        return lance_io.dataset(self.uri, version=version, storage_options=self.s3.options())

    def call(self) -> dict[str, Any]:
        """Call the procedure; the row that it gives."""
        text = f"CALL {self.catalog}.system.{CALLS[self.procedure].format(t=self.name)}"
        (row,) = self.spark.sql(text).collect()
        return row.asDict()

    def names(self, folder: str) -> set[str]:
        """Names directly below a folder of the table."""
        selector = pyarrow.fs.FileSelector(f"{self.uri.removeprefix('s3://')}/{folder}", allow_not_found=True)
        return {Path(entry.path).name for entry in self._keys.get_file_info(selector)}

    def left(self) -> set[str]:
        """Files and segments that no version names."""
        files, segments = set(), set()
        for version in self.open().versions():
            dataset = self.open(version["version"])
            files |= {file.path for fragment in dataset.get_fragments() for file in fragment.data_files()}
            segments |= {segment.uuid for index in dataset.describe_indices() for segment in index.segments}
        return (self.names("data") - files) | (self.names("_indices") - segments)

    def check(self, row: dict[str, Any]) -> None:
        """The table is that of one process, and nothing else is left."""
        dataset = lance.dataset(self.uri, storage_options=self.s3.options())
        assert dataset.version == row["version"] > self.before
        rows = dataset.to_table()
        expected = make_rows(0, 12 * FILE_ROWS)
        assert rows.select(expected.column_names).sort_by("id").equals(expected)
        if self.procedure == "create_index":
            assert row["segments"] == 4
            assert dataset.stats.index_stats("id_idx")["num_unindexed_rows"] == 0
            for number in (0, 377, 12 * FILE_ROWS - 1):
                assert dataset.to_table(filter=f"id = {number}")["id"].to_pylist() == [number]
        elif self.procedure == "compact":
            assert len(dataset.get_fragments()) == row["fragments_added"] == 4
        else:
            assert rows["twice"].to_pylist() == [2 * number for number in rows["id"].to_pylist()]
        deadline = time.monotonic() + WAIT_S
        while left := self.left():  # an overtaken task removes its files when it notices
            assert time.monotonic() < deadline, left
            time.sleep(0.1)


@pytest.fixture(scope="module")
def held(s3: S3Server) -> Iterator[HeldWrites]:
    with HeldWrites(s3.endpoint) as proxy:
        yield proxy


def processes(words: tuple[str, ...], parent: int | None = None) -> list[int]:
    """Processes whose command has all of these words."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_text()
            own_parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if all(word in command for word in words) and parent in (None, own_parent):
            pids.append(int(folder.name))
    return sorted(pids)


def victims(spark: SparkSession, kind: str) -> list[int]:
    """Executors, or their workers."""
    executors = processes(("CoarseGrainedExecutorBackend", spark.sparkContext.applicationId, "java"))
    if kind == "executor":
        return executors
    return [pid for executor in executors for pid in processes(("lance_io.spark.worker",), executor)]


def strike(struck: Struck, kind: str, random: Random) -> dict[str, Any]:
    """Call the procedure, and kill a process while it writes."""
    struck.proxy.hold(WRITES[struck.procedure])
    with ThreadPoolExecutor(1) as pool:
        called = pool.submit(struck.call)
        try:
            while not struck.proxy.held.wait(0.1):
                assert not called.done(), called.result()
            os.kill(random.choice(victims(struck.spark, kind)), signal.SIGKILL)
        finally:
            struck.proxy.let_go()
        return called.result(WAIT_S)


CASES = [(procedure, kind) for procedure in CALLS for kind in ("executor", "worker")]


@pytest.mark.parametrize(("procedure", "kind"), CASES if BLOWS else [("create_index", "worker")])
def test_killed_processes(
    cluster: SparkSession, s3: S3Server, held: HeldWrites, s3_uri: str, procedure: str, kind: str
) -> None:
    struck = Struck(cluster, s3, held, f"struck_{procedure}_{kind}", s3_uri)  # a session keeps the path of a catalog
    random = Random(seed_of(f"{procedure} {kind}"))
    for _ in range(max(1, BLOWS)):
        struck.begin(procedure)
        struck.check(strike(struck, kind, random))


@pytest.mark.skipif(not BLOWS, reason="a cluster of its own: in the campaign only")
@pytest.mark.skipif(sys.platform != "linux", reason="needs 127.0.0.2")
def test_overtaken_tasks(
    sessions: Sessions,
    s3: S3Server,
    held: HeldWrites,
    s3_uri: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The task that writes first waits until another attempt has taken its place."""
    sessions.stop()
    monkeypatch.chdir(tmp_path)
    settings = {
        "spark__executor__memory": "512m",
        "spark__executor__cores": "1",
        "spark__speculation": "true",
        "spark__speculation__interval": "200ms",
        "spark__speculation__quantile": "0.3",
        "spark__speculation__multiplier": "1.2",
        "spark__jars": str(lance_io.spark.sessions.JAR),
    }
    with ExitStack() as stack:
        at = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        master = address(stack.enter_context(spark_process(tmp_path, f"{DEPLOY}.master.Master", *at)))
        for host in ("127.0.0.2", "127.0.0.3"):
            own = ["--host", host, "--cores", "1", "--memory", "600m", "--webui-port", "0", "-d", str(tmp_path / host)]
            stack.enter_context(spark_process(tmp_path, f"{DEPLOY}.worker.Worker", *own, master))
        spark = stack.enter_context(spark_session(tmp_path, master, **settings))
        struck = Struck(spark, s3, held, "struck", s3_uri)
        for procedure in CALLS:
            for _ in range(BLOWS):
                struck.begin(procedure)
                held.hold(WRITES[procedure])
                try:
                    row = struck.call()
                    assert held.held.is_set()
                finally:
                    held.let_go()
                struck.check(row)
