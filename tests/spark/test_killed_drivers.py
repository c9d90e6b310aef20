"""A driver that is killed while tasks of CTAS, RTAS and MERGE run, and one that is killed after their commits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
import pytest

import lance_io
from tests.spark.sessions import CHECKOUT, START, spark_environment, spark_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(600)

# All three run at once. The first of their tasks ends, and the second one waits where that is asked for.
DRIVER: Final = """
import os, threading, time
import lance_io.spark
folder, flags, waits = sys.argv[2], sys.argv[3], sys.argv[4] == "wait"
lance_io.spark.enable(spark, catalog="lake", path=folder)
def held(name):
    open(os.path.join(flags, name), "w").close()
    while waits:
        time.sleep(0.05)
    return True
spark.udf.register("held", held, "boolean")
rows = "(select id, 'new' as text from range(0, 100, 1, 2) where id < 50 or held('{}'))"
statements = [
    "create table lake.made as select * from " + rows.format("made"),
    "create or replace table lake.replaced as select * from " + rows.format("replaced"),
    "merge into lake.merged t using " + rows.format("merged") + " s on t.id = s.id "
    "when matched then update set text = s.text when not matched then insert *",
]
threads = [threading.Thread(target=spark.sql, args=(statement,)) for statement in statements]
for thread in threads:
    thread.start()
while True:
    time.sleep(1)
"""


@contextmanager
def driver(folder: Path, flags: Path, mode: str) -> Iterator[subprocess.Popen[bytes]]:
    """A driver program, killed at the end with all of its processes."""
    settings = spark_settings(folder, spark__master="local[6]")
    environment = {**os.environ, **spark_environment(folder), "PYTHONPATH": str(CHECKOUT)}
    command = [sys.executable, "-c", START + DRIVER, json.dumps(settings), str(folder / "lake"), str(flags), mode]
    with (folder / f"{mode}.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True)
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_until(event: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    while not event():
        assert process.poll() is None, "the driver has ended"
        time.sleep(0.05)


def test_a_killed_driver(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    old = pa.table({"id": range(40, 60), "text": ["old"] * 20})
    for name in ("replaced", "merged"):
        lance.write_dataset(old, str(lake / f"{name}.lance"))
    names = ("made", "replaced", "merged")

    def files(name: str) -> set[str]:
        folder = lake / f"{name}.lance" / "data"
        return {path.name for path in folder.iterdir() if path.suffix == ".lance"} if folder.exists() else set()

    def rows(name: str) -> list[dict[str, Any]]:
        return lance.dataset(str(lake / f"{name}.lance")).to_table().sort_by("id").to_pylist()

    before = {name: files(name) for name in names}
    flags = tmp_path / "flags"
    flags.mkdir()
    with driver(tmp_path, flags, "wait") as process:
        wait_until(lambda: {path.name for path in flags.iterdir()} == set(names), process)
        wait_until(lambda: all(files(name) > before[name] for name in names), process)
    assert not (lake / "made.lance" / "_versions").exists()
    assert rows("replaced") == rows("merged") == old.to_pylist()
    with driver(tmp_path, flags, "go") as process:  # the same statements again
        expected = {"made": 1, "replaced": 2, "merged": 2}
        wait_until(lambda: all(newest(lake / f"{name}.lance") == expected[name] for name in names), process)
    new = [{"id": id, "text": "new"} for id in range(100)]
    assert all(rows(name) == new for name in names)
    for name in names:  # of the first run there is nothing left
        data = lance_io.dataset(str(lake / f"{name}.lance"))
        assert data.version == expected[name]
        data.cleanup_old_versions(timedelta(0), delete_unverified=True)
        live = {file.path for fragment in data.get_fragments() for file in fragment.data_files()}
        assert files(name) == live
        assert rows(name) == new


def newest(table: Path) -> int:
    return len([path for path in (table / "_versions").glob("*.manifest")]) if table.exists() else 0
