"""A driver killed at three moments of CTAS, RTAS and MERGE: while tasks run, before the commit, and after it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

import lance_io
import lance_io.spark
from lance_io.spark.sessions import JAR
from tests.spark.held_commits import MOMENTS, path_of
from tests.spark.sessions import START, spark_environment, spark_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.platform != "linux", reason="waits for a process by its descriptor"),
]

WAIT_S: Final = 600.0
SOURCE: Final = "select id, 'new' as text from range(0, 100, 1, 2)"  # two tasks
STATEMENTS: Final = {
    "made": "create table {lake}.{name} as {rows}",
    "replaced": "create or replace table {lake}.{name} as {rows}",
    "merged": "merge into {lake}.{name} t using ({rows}) s on t.id = s.id "
    "when matched then update set text = s.text when not matched then insert *",
}
OLD: Final = pa.table({"id": range(40, 60), "text": ["old"] * 20})
NEW: Final = [{"id": id, "text": "new"} for id in range(100)]

# All statements at once. The workers hold those that are to stop at their commits; a function holds the second task of
# the others.
DRIVER: Final = """
import threading
import lance_io.spark
from tests.spark.held_commits import stop
folder, events, statements = sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
lance_io.spark.enable(spark, catalog="lake", path=folder)
def passes(name, id):
    if id >= 50:
        stop(events, name)
    return True
spark.udf.register("passes", passes, "boolean")
threads = [threading.Thread(target=spark.sql, args=(statement,)) for statement in statements]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def statement(lake: str, kind: str, moment: str, *, holds: bool) -> str:
    name = f"{kind}_{moment}"
    rows = f"{SOURCE} where passes('{name}', id)" if holds and moment == "tasks" else SOURCE
    return STATEMENTS[kind].format(lake=lake, name=name, rows=rows)


@contextmanager
def driver(folder: Path, events: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A driver program, killed at the end with the virtual machine and the worker behind it."""
    settings = spark_settings(folder, spark__master="local[8]", spark__jars=str(JAR))
    environment = {**os.environ, **spark_environment(folder), "PYTHONPATH": path_of(folder, events)}
    command = [sys.executable, "-c", START + DRIVER, json.dumps(settings), *arguments]
    with (folder / "driver.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True)
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(expected: set[str], pipe: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until all lines have come; no longer than the driver lives."""
    ended, text = os.pidfd_open(process.pid), b""
    try:
        while expected - set(text.decode().splitlines()):
            ready, _, _ = select.select([pipe, ended], [], [], WAIT_S)
            assert ready, f"nothing happened after {text!r}"
            assert ended not in ready, f"the driver ended after {text!r}"
            text += os.read(pipe, 1 << 12)
    finally:
        os.close(ended)


class Tables:
    """The tables of the folder, as pylance sees them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def exists(self, name: str) -> bool:
        return (self.folder / f"{name}.lance" / "_versions").exists()

    def files(self, name: str) -> set[str]:
        """Data files on disk."""
        data = self.folder / f"{name}.lance" / "data"
        return {path.name for path in data.iterdir()} if data.exists() else set()

    def live_files(self, name: str) -> set[str]:
        peer = lance.dataset(str(self.folder / f"{name}.lance"))
        return {file.path for fragment in peer.get_fragments() for file in fragment.data_files()}

    def state(self, name: str) -> tuple[int, list[dict[str, Any]]]:
        """Version and rows."""
        peer = lance.dataset(str(self.folder / f"{name}.lance"))
        return peer.version, peer.to_table().sort_by("id").to_pylist()


def test_a_killed_driver(spark: SparkSession, tmp_path: Path) -> None:
    lake, events = tmp_path / "lake", tmp_path / "events"
    tables = Tables(lake)
    names = {f"{kind}_{moment}": (kind, moment) for kind in STATEMENTS for moment in MOMENTS}
    for name, (kind, _) in names.items():
        if kind != "made":
            lance.write_dataset(OLD, str(lake / f"{name}.lance"))
    os.mkfifo(events)
    pipe = os.open(events, os.O_RDWR)  # writers never find it without a reader
    statements = [statement("lake", kind, moment, holds=True) for kind, moment in names.values()]
    written = {"made_tasks written", "replaced_tasks written"}  # the first of two tasks
    with driver(tmp_path, events, str(lake), str(events), json.dumps(statements)) as process:
        try:
            wait_for({*names, *written}, pipe, process)
        except AssertionError as error:
            error.add_note((tmp_path / "driver.log").read_text())
            raise
    os.close(pipe)
    for name, (kind, moment) in names.items():
        if moment == "after":
            assert tables.state(name) == (1 if kind == "made" else 2, NEW), name
            continue
        if kind == "made":
            assert not tables.exists(name), name
        else:
            assert tables.state(name) == (1, OLD.to_pylist()), name
        if name != "merged_tasks":  # whose rows are held before any is written
            assert tables.files(name) > (tables.live_files(name) if kind != "made" else set()), name
    # the same statements again, by another driver
    lance_io.spark.enable(spark, catalog="killed", path=str(lake))
    for name, (kind, moment) in names.items():
        again = statement("killed", kind, moment, holds=False)
        if name == "made_after":
            with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
                spark.sql(again)
        else:
            spark.sql(again)
        expected = (0 if name == "made_after" else 1) + (kind != "made") + (moment == "after")
        assert tables.state(name) == (expected, NEW), name
        # nothing is left of the first run
        lance_io.dataset(str(lake / f"{name}.lance")).cleanup_old_versions(timedelta(0), delete_unverified=True)
        assert tables.files(name) == tables.live_files(name), name
        assert tables.state(name) == (expected, NEW), name
