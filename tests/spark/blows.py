"""Blows that strike a task at a known moment: a proxy holds back the answer to one of its requests until they have.

`LANCE_IO_SPARK_BLOWS` says how often each case is struck; without it each module strikes one case, once.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import pyarrow.fs

import lance_io
import lance_io.spark
from tests.s3.proxy import HttpProxy, Message

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from pyspark.sql import SparkSession

    from tests.servers import S3Server

T = TypeVar("T")
Victim: TypeAlias = Literal["executor", "worker"]

BLOWS: Final = int(os.environ.get("LANCE_IO_SPARK_BLOWS", "0"))
WAIT_S: Final = 300.0
READS: Final = ("GET",)
WRITES: Final = ("PUT", "POST")


class HoldingProxy(HttpProxy):
    """Holds back the answer to the first request, after a call of `hold`, that has a method and a pattern.

    held  set as soon as the proxy holds one
    """

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self._methods: tuple[str, ...] = ()
        self._pattern: str | None = None
        self._gone = asyncio.Event()
        self.held = threading.Event()

    def hold(self, methods: tuple[str, ...], pattern: str) -> None:
        """Hold the next answer to one of the methods whose line has the pattern."""
        self.held.clear()
        self._loop.call_soon_threadsafe(self._gone.clear)
        self._methods, self._pattern = methods, pattern

    def let_go(self) -> None:
        """Send the answer."""
        self._pattern = None
        self._loop.call_soon_threadsafe(self._gone.set)

    async def answer(self, request: Message, server: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> Message:
        """The server's answer, in time."""
        answer = await super().answer(request, server, to_server)
        if self._pattern and request.method in self._methods and re.search(self._pattern, request.line):
            self._pattern = None
            self.held.set()
            await self._gone.wait()
        return answer


class StruckTable:
    """A table in a catalog whose store is behind the proxy; the test itself reads it past the proxy."""

    def __init__(
        self, spark: SparkSession, s3: S3Server, proxy: HoldingProxy, catalog: str, root: str, **options: Any
    ) -> None:
        self.spark, self.s3, self.proxy, self.catalog, self.root = spark, s3, proxy, catalog, root
        self.uri = f"{root}/t.lance"
        lance_io.spark.enable(spark, catalog=catalog, path=root, storage=s3.through(proxy.endpoint), **options)
        self._store = pyarrow.fs.S3FileSystem(
            access_key=s3.user,
            secret_key=s3.secret,
            endpoint_override=s3.endpoint.removeprefix("http://"),
            scheme="http",
            region=s3.region,
        )

    def open(self, version: int | None = None) -> lance_io.LanceDataset:
        return lance_io.dataset(self.uri, version=version, storage_options=self.s3.options())

    def names(self, folder: str) -> set[str]:
        """Names directly below a folder of the table."""
        selector = pyarrow.fs.FileSelector(f"{self.uri.removeprefix('s3://')}/{folder}", allow_not_found=True)
        return {Path(entry.path).name for entry in self._store.get_file_info(selector)}

    def left(self) -> set[str]:
        """Files and segments that no version names."""
        files, segments = set(), set()
        for version in self.open().versions():
            dataset = self.open(version["version"])
            files |= {file.path for fragment in dataset.get_fragments() for file in fragment.data_files()}
            segments |= {segment.uuid for index in dataset.describe_indices() for segment in index.segments}
        return (self.names("data") - files) | (self.names("_indices") - segments)

    def check_nothing_is_left(self) -> None:
        """Wait until no such file is there: an overtaken task removes its files when it notices."""
        deadline = time.monotonic() + WAIT_S
        while left := self.left():
            assert time.monotonic() < deadline, left
            time.sleep(0.1)


# -- processes ---------------------------------------------------------------------------------------------------------


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


def victims(spark: SparkSession) -> list[tuple[int, int]]:
    """Executors that have begun to work, each with its worker."""
    executors = processes(("CoarseGrainedExecutorBackend", spark.sparkContext.applicationId, "java"))
    return [(executor, pid) for executor in executors for pid in processes(("lance_io.spark.worker",), executor)]


def kill(executor: int, worker: int, victim: Victim) -> None:
    """Kill an executor or its worker, and wait for the end of the worker: it writes no more."""
    end = os.pidfd_open(worker)
    try:
        os.kill(executor if victim == "executor" else worker, signal.SIGKILL)
        ready, _, _ = select.select([end], [], [], WAIT_S)
        assert ready, f"worker {worker} goes on after its {victim} was killed"
    finally:
        os.close(end)


def strike(spark: SparkSession, proxy: HoldingProxy, run: Callable[[], T], victim: Victim, random: Random) -> T:
    """Run a statement, and kill a process of its cluster while the proxy holds an answer."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        try:
            while not proxy.held.wait(0.1):
                assert not running.done(), f"it has ended, and no request was held: {running.result()}"
            kill(*random.choice(victims(spark)), victim)
        finally:
            proxy.let_go()
        return running.result(WAIT_S)


def overtake(proxy: HoldingProxy, run: Callable[[], T]) -> T:
    """Run a statement one of whose tasks is held until its end: another attempt of this task has taken its place."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        try:
            result = running.result(WAIT_S)
            assert proxy.held.is_set(), "no request was held"
        finally:
            proxy.let_go()
        return result
