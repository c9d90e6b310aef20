"""A driver killed at three moments of a statement: while tasks run, before the commit, and after it.

`LANCE_IO_SPARK_BLOWS` says how often, and then all statements and procedures are struck; without it CTAS, RTAS and
MERGE are, once.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

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
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.timeout(3600),
    pytest.mark.skipif(sys.platform != "linux", reason="waits for a process by its descriptor"),
]

BLOWS: Final = int(os.environ.get("LANCE_IO_SPARK_BLOWS", "0"))
WAIT_S: Final = 600.0
SOURCE: Final = "select id, 'new' as text from range(0, 100, 1, 2)"  # two tasks
OLD: Final = pa.table({"id": range(40, 60), "text": ["old"] * 20})
OLD_FILE_ROWS: Final = 5

Rows = list[tuple[int, str]]
OLD_ROWS: Final[Rows] = [(id, "old") for id in range(40, 60)]
NEW_ROWS: Final[Rows] = [(id, "new") for id in range(100)]


@dataclass(frozen=True)
class Kind:
    """A statement.

    sql         its text; `{rows}` are new rows, `{held}` is true
    rows        the rows after it
    versions    versions that it makes
    again       the rows after a second run
    versions_again  versions that the second run makes
    """

    sql: str
    rows: Rows
    versions: int = 1
    again: Rows | None = None
    versions_again: int = 1

    def rows_after(self, runs: int) -> Rows:
        return self.rows if runs == 1 or self.again is None else self.again

    def versions_after(self, runs: int) -> int:
        return self.versions + (runs - 1) * self.versions_again


CHANGED: Final = [(id, "old" if id % 2 else "new") for id, _ in OLD_ROWS]
KINDS: Final = {
    "made": Kind("create table {table} as {rows}", NEW_ROWS, versions_again=0),
    "replaced": Kind("create or replace table {table} as {rows}", NEW_ROWS),
    "merged": Kind(
        "merge into {table} t using ({rows}) s on t.id = s.id "
        "when matched then update set text = s.text when not matched then insert *",
        NEW_ROWS,
    ),
    "inserted": Kind("insert into {table} {rows}", OLD_ROWS + NEW_ROWS, again=OLD_ROWS + NEW_ROWS * 2),
    "updated": Kind("update {table} set text = 'new' where id % 2 = 0 and {held}", CHANGED),
    "deleted": Kind(
        "delete from {table} where id % 2 = 0 and {held}", [row for row in OLD_ROWS if row[0] % 2], versions_again=0
    ),
    "compacted": Kind(
        "call {lake}.system.compact('{name}', target_rows_per_fragment => 10)", OLD_ROWS, versions=2, versions_again=0
    ),
    "indexed": Kind("call {lake}.system.create_index('{name}', 'id', 'BTREE', num_segments => 2)", OLD_ROWS),
}
STRUCK: Final = [*KINDS] if BLOWS else ["made", "replaced", "merged"]
# Of two tasks the first has written files when the second is held.
WRITTEN: Final = {f"{kind}_tasks" for kind in ("made", "replaced", "inserted", "compacted", "indexed")}
# The data files of these are there before the commit.
WITH_FILES: Final = {f"{kind}_before" for kind in ("made", "replaced", "merged", "inserted", "updated", "compacted")}

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
    held = f"passes('{name}', id)" if holds and moment == "tasks" else "true"
    return KINDS[kind].sql.format(
        lake=lake, name=name, table=f"{lake}.{name}", rows=f"{SOURCE} where {held}", held=held
    )


@contextmanager
def driver(folder: Path, events: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A driver program, killed at the end with the virtual machine and the worker behind it."""
    settings = spark_settings(folder, spark__master="local[16]" if BLOWS else "local[8]", spark__jars=str(JAR))
    environment = {**os.environ, **spark_environment(folder), "PYTHONPATH": path_of(folder, events)}
    command = [sys.executable, "-c", START + DRIVER, json.dumps(settings), *arguments]
    with (folder / "driver.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True)
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):  # it has ended
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(expected: set[str], pipe: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until all lines have come; no longer than the driver lives."""
    ended, text = os.pidfd_open(process.pid), b""
    try:
        while missing := expected - set(text.decode().splitlines()):
            ready, _, _ = select.select([pipe, ended], [], [], WAIT_S)
            assert ready, f"nothing happened after {text!r}, and not {missing}"
            assert ended not in ready, f"the driver ended after {text!r}"
            text += os.read(pipe, 1 << 12)
    finally:
        os.close(ended)


def named_files(data: lance_io.LanceDataset) -> set[str]:
    """Data files, and folders of indices, of a version."""
    segments = {segment.uuid for index in data.describe_indices() for segment in index.segments}
    return segments | {file.path for fragment in data.get_fragments() for file in fragment.data_files()}


class Tables:
    """The tables of the folder, as pylance sees them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def peer(self, name: str) -> lance.LanceDataset:
        return lance.dataset(str(self.folder / f"{name}.lance"))

    def exists(self, name: str) -> bool:
        return (self.folder / f"{name}.lance" / "_versions").exists()

    def files(self, name: str) -> set[str]:
        """Data files, and folders of indices, on disk."""
        parts = [self.folder / f"{name}.lance" / part for part in ("data", "_indices")]
        return {path.name for part in parts if part.exists() for path in part.iterdir()}

    def live_files(self, name: str) -> set[str]:
        """Those of the newest version."""
        return named_files(lance_io.dataset(self.peer(name).uri))

    def kept_files(self, name: str) -> set[str]:
        """Those of all versions."""
        data = lance_io.dataset(str(self.folder / f"{name}.lance"))
        return set().union(*(named_files(data.checkout_version(old["version"])) for old in data.versions()))

    def state(self, name: str) -> tuple[int, Rows]:
        """Version and rows."""
        peer = self.peer(name)
        return peer.version, sorted((row["id"], row["text"]) for row in peer.to_table().to_pylist())


def make_tables(lake: Path, moments: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Kinds and moments by the names of their tables, which are there but for those that are to be made."""
    names = {f"{kind}_{moment}": (kind, moment) for kind in STRUCK for moment in moments}
    for name, (kind, _) in names.items():
        if kind != "made":
            lance.write_dataset(OLD, str(lake / f"{name}.lance"), max_rows_per_file=OLD_FILE_ROWS)
    return names


@pytest.mark.parametrize("round_", range(max(1, BLOWS)))
def test_a_killed_driver(spark: SparkSession, tmp_path: Path, round_: int) -> None:
    lake, events = tmp_path / "lake", tmp_path / "events"
    tables = Tables(lake)
    names = make_tables(lake, MOMENTS)
    os.mkfifo(events)
    pipe = os.open(events, os.O_RDWR)  # writers never find it without a reader
    statements = [statement("lake", kind, moment, holds=True) for kind, moment in names.values()]
    written = {f"{name} written" for name in WRITTEN & names.keys()}
    with driver(tmp_path, events, str(lake), str(events), json.dumps(statements)) as process:
        try:
            wait_for({*names, *written}, pipe, process)
        except AssertionError as error:
            error.add_note((tmp_path / "driver.log").read_text())
            raise
    os.close(pipe)
    for name, (kind, moment) in names.items():
        check_after_the_blow(tables, name, kind, moment)
    # the same statements again, by another driver
    catalog = f"killed{round_}"
    lance_io.spark.enable(spark, catalog=catalog, path=str(lake))
    for name, (kind, moment) in names.items():
        again = statement(catalog, kind, moment, holds=False)
        if name == "made_after":
            with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
                spark.sql(again)
        else:
            spark.sql(again)
        runs = 2 if moment == "after" else 1
        first = 0 if kind == "made" else 1
        expected = (first + KINDS[kind].versions_after(runs), sorted(KINDS[kind].rows_after(runs)))
        assert tables.state(name) == expected, name
        # nothing is left of the first run
        lance_io.dataset(str(lake / f"{name}.lance")).cleanup_old_versions(timedelta(0), delete_unverified=True)
        assert tables.files(name) == tables.live_files(name), name
        assert tables.state(name) == expected, name
        if kind == "indexed":
            assert tables.peer(name).stats.index_stats("id_idx")["num_unindexed_rows"] == 0


def check_after_the_blow(tables: Tables, name: str, kind: str, moment: str) -> None:
    """The table is the new one after the commit, else the old one, with files that no version names."""
    first = 0 if kind == "made" else 1
    if moment == "after":
        assert tables.state(name) == (first + KINDS[kind].versions, sorted(KINDS[kind].rows)), name
        return
    if first:
        assert tables.state(name) == (1, OLD_ROWS), name
    else:
        assert not tables.exists(name), name
    if name in WRITTEN | WITH_FILES:
        assert tables.files(name) > (tables.live_files(name) if first else set()), name


def worker_of(process: subprocess.Popen[bytes]) -> int:
    """The worker beside the virtual machine of a driver."""
    workers = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # processes end
            if b"lance_io.spark.worker" in (entry / "cmdline").read_bytes():
                workers.append(int(entry.name))
    (worker,) = [pid for pid in workers if os.getpgid(pid) == process.pid]
    return worker


@pytest.mark.skipif(not BLOWS, reason="another driver: in the campaign only")
@pytest.mark.parametrize("round_", range(max(1, BLOWS)))
def test_a_killed_worker_of_the_driver(tmp_path: Path, round_: int) -> None:
    """Spark aborts the statements, by another worker, which sees whether their versions are there."""
    lake, events = tmp_path / "lake", tmp_path / "events"
    tables = Tables(lake)
    names = make_tables(lake, ("before", "after"))
    os.mkfifo(events)
    pipe = os.open(events, os.O_RDWR)
    statements = [statement("lake", kind, moment, holds=True) for kind, moment in names.values()]
    with driver(tmp_path, events, str(lake), str(events), json.dumps(statements)) as process:
        wait_for({*names}, pipe, process)
        os.kill(worker_of(process), signal.SIGKILL)
        process.wait(WAIT_S)
    os.close(pipe)
    for name, (kind, moment) in names.items():
        first = 0 if kind == "made" else 1
        if moment == "after":
            assert tables.state(name) == (first + KINDS[kind].versions, sorted(KINDS[kind].rows)), name
        elif first:
            assert tables.state(name) == (1, OLD_ROWS), name
        else:
            assert not tables.exists(name), name
        if kind in ("compacted", "indexed"):  # a cleanup removes the files of a procedure whose commit was not seen
            lance_io.dataset(str(lake / f"{name}.lance")).cleanup_old_versions(timedelta(0), delete_unverified=True)
        assert tables.files(name) == (tables.kept_files(name) if tables.exists(name) else set()), name
