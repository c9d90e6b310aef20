"""Processes of a compaction are killed: the table is the old or the new version, and only what was lost is done again.

A child is killed when it is about to give a file its final name, which Python tells its audit hooks.
"""

from __future__ import annotations

import pickle
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest
from lance.optimize import Compaction as PeerCompaction

import lance_io
from lance_io.errors import CommitConflictError
from lance_io.optimize import Compaction, CompactionTask, RewriteResult

if TYPE_CHECKING:
    from pathlib import Path

_HEAD = """
import os, pickle, signal, sys

def kill(event, arguments, names=[]):
    if event in ("os.rename", "os.link") and sys.argv[2] in os.fspath(arguments[1]):
        names.append(arguments[1])
        if len(names) == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(kill)
import lance_io
table = lance_io.dataset(sys.argv[1])
"""
_EXECUTE = f"""{_HEAD}
result = pickle.load(sys.stdin.buffer).execute(table)
sys.stdout.buffer.write(pickle.dumps(result))
"""
_COMPACT = f"""{_HEAD}
table.optimize.compact_files(target_rows_per_fragment=19)
"""
NEVER = 1000


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Forty rows in four fragments, which make two tasks of a plan; one row is deleted."""
    path = tmp_path / "t"
    lance_io.write_dataset(pa.table({"a": range(40)}), path, max_rows_per_file=10)
    lance_io.dataset(path).delete("a = 7")
    return path


def execute(place: Path, task: CompactionTask, kill_at: int) -> RewriteResult | None:
    """What a child makes of a task; None when it was killed at its data file of a number."""
    command = [sys.executable, "-c", _EXECUTE, str(place), "/data/", str(kill_at)]
    done = subprocess.run(command, input=pickle.dumps(task), capture_output=True, check=False)
    if done.returncode == -signal.SIGKILL:
        return None
    assert done.returncode == 0, done.stderr.decode()
    found: RewriteResult = pickle.loads(done.stdout)
    return found


def check_rows(place: Path) -> None:
    for library in (lance, lance_io):
        assert sorted(library.dataset(place).to_table()["a"].to_pylist()) == [*range(7), *range(8, 40)]


def test_a_killed_task_alone_is_executed_again(place: Path) -> None:
    table = lance_io.dataset(place)
    first, second = Compaction.plan(table, {"target_rows_per_fragment": 19}).tasks
    before = {path.name for path in (place / "data").glob("*.lance")}
    result = execute(place, first, NEVER)
    assert result is not None
    of_first = {path: path.stat().st_mtime_ns for path in (place / "data").glob("*.lance") if path.name not in before}
    assert execute(place, second, 1) is None
    assert lance_io.dataset(place).version == table.version
    assert len(lance.dataset(place).get_fragments()) == 4
    check_rows(place)
    again = execute(place, second, NEVER)
    assert again is not None
    Compaction.commit(table, [result, again])
    assert {path: path.stat().st_mtime_ns for path in of_first} == of_first
    used = {file.path for fragment in lance.dataset(place).get_fragments() for file in fragment.metadata.files}
    assert {path.name for path in of_first} < used
    assert len(used) == 2
    assert not used & before
    check_rows(place)


def test_results_of_a_table_that_changed_are_refused(place: Path) -> None:
    table = lance_io.dataset(place)
    first, second = Compaction.plan(table, {"target_rows_per_fragment": 19}).tasks
    lost = execute(place, first, 1)
    assert lost is None
    lance.dataset(place).delete("a = 3")
    results = [one for task in (first, second) if (one := execute(place, task, NEVER)) is not None]
    with pytest.raises(CommitConflictError):
        Compaction.commit(table, results)
    assert sorted(lance.dataset(place).to_table()["a"].to_pylist()) == [*range(3), *range(4, 7), *range(8, 40)]
    table.checkout_latest()
    Compaction.commit(table, results[1:])  # whose fragments nobody changed
    assert sorted(lance.dataset(place).to_table()["a"].to_pylist()) == [*range(3), *range(4, 7), *range(8, 40)]


@pytest.mark.parametrize(
    ("folder", "kill_at", "versions"),
    [("/data/", 2, 0), ("/_versions/", 1, 0), ("/_transactions/", 2, 1), ("/_versions/", 2, 1)],
    ids=["the second file", "reserving ids", "the transaction", "the manifest"],
)
def test_a_killed_compaction(place: Path, folder: str, kill_at: int, versions: int) -> None:
    """Ids may be reserved; all else is as it was, and compacting again does it."""
    version = lance_io.dataset(place).version
    command = [sys.executable, "-c", _COMPACT, str(place), folder, str(kill_at)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    table = lance_io.dataset(place)
    assert table.version == version + versions
    assert len(table.get_fragments()) == 4
    check_rows(place)
    table.optimize.compact_files(target_rows_per_fragment=19)
    assert len(lance.dataset(place).get_fragments()) == 2
    check_rows(place)


def test_between_its_commits_a_compaction_leaves_what_pylance_leaves(place: Path) -> None:
    """A version that has reserved ids, and the same fragments. Pylance's ends there for a change that comes between."""
    theirs = place.parent / "theirs"
    shutil.copytree(place, theirs)
    dataset = lance.dataset(theirs)
    tasks = PeerCompaction.plan(dataset, {"target_rows_per_fragment": 19}).tasks
    results = [task.execute(dataset) for task in tasks]
    lance.dataset(theirs).delete("a = 3")
    before = {path: lance_io.dataset(path)._state.manifest for path in (place, theirs)}
    with pytest.raises(OSError, match="conflict"):
        PeerCompaction.commit(lance.dataset(theirs), results)
    command = [sys.executable, "-c", _COMPACT, str(place), "/_versions/", "2"]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    for path, old in before.items():
        new = lance_io.dataset(path)._state.manifest
        assert new.version == old.version + 1
        assert new.message.fragments[:] == old.message.fragments[:]
        assert old.max_fragment_id is not None and new.max_fragment_id == old.max_fragment_id + len(results)
