"""Power fails at any moment of a write to the local disk: what was acknowledged is there, and what is there is whole.

The system calls of real writes are recorded. Every prefix of the record is replayed on a disk that loses what nobody
flushed, in every way it may, and the table is opened from what is left.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import LanceError
from tests.simulate.disk import Disk, write_state
from tests.simulate.syscalls import Call, can_trace, parse, record
from tests.simulate.world import SIZE

pytestmark = pytest.mark.skipif(
    not os.environ.get("CI") and not can_trace(),  # there, nothing is left out in silence
    reason="system calls are recorded by strace, which is not installed or may not trace here",
)

ROOT = Path(__file__).resolve().parents[2]
FIRST = list(range(6))
BEFORE = "import lance_io, pyarrow as pa\nlance_io.write_dataset(pa.table({'a': list(range(6))}), URI)\n"
WRITES = {
    "create": ("", "lance_io.write_dataset(pa.table({'a': list(range(6))}), URI)", FIRST),
    "append": (BEFORE, "lance_io.write_dataset(pa.table({'a': [6, 7]}), URI, mode='append')", [*FIRST, 6, 7]),
    "delete": (BEFORE, "lance_io.dataset(URI).delete('a < 4')", [4, 5]),
    "update": (BEFORE, "lance_io.dataset(URI).update({'a': 'a + 10'}, 'a < 4')", [4, 5, 10, 11, 12, 13]),
    "add values": (BEFORE, "lance_io.dataset(URI).add_columns(lambda rows: rows.rename_columns(['b']))", FIRST),
    "async append": (
        BEFORE,
        "import asyncio; asyncio.run(lance_io.AsyncDataset.write(pa.table({'a': [6, 7]}), URI, mode='append'))",
        [*FIRST, 6, 7],
    ),
}
PYLANCE_EVERY = max(1, 8 // SIZE)  # states that pylance looks at, too


class Recorded:
    """A write: what was there before, its system calls, and its rows."""

    def __init__(self, name: str, folder: Path, *, options: str = "") -> None:
        before, write, self.after = WRITES[name]
        self.root = folder / "t"
        head = f"import lance_io, pyarrow as pa\nURI = {str(self.root)!r}\n"
        self.before: list[int] = []
        if before:
            exec(head + before, {})
            self.before = FIRST
        self.base = folder / "base"
        if before:
            shutil.copytree(self.root, self.base)
        write = write if not options else f"{write[:-1]}, {options})"
        self.calls = record(head + write, self.root)
        self.version = 2 if before else 1

    def disk(self) -> Disk:
        """The disk before the write."""
        contents = {str(path): path.read_bytes() for path in self.root.rglob("*") if path.is_file()}
        for call in self.calls[::-1]:  # temporary names hold what their final ones do
            if call.kind in ("link", "rename", "exchange"):
                contents[call.path] = contents[call.target]
        disk = Disk(contents)
        if self.before:
            disk = Disk.of(self.base, contents)
            for names in (disk.names, disk.safe_names):
                moved = {f"{self.root}{path[len(str(self.base)) :]}": number for path, number in names.items()}
                names.clear()
                names.update({path: number for path, number in moved.items() if path.startswith(str(self.root))})
        for names in (disk.names, disk.safe_names):
            names[str(self.root.parent)] = -1
        return disk


@pytest.fixture(scope="module", params=WRITES)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(request.param, tmp_path_factory.mktemp("power"))


def at(calls: list[Call], kind: str, part: str) -> list[int]:
    """Places of calls of a kind whose (target's) path has a part."""
    return [place for place, call in enumerate(calls) if call.kind == kind and part in (call.target or call.path)]


def test_the_order_of_system_calls(recorded: Recorded) -> None:
    calls, root = recorded.calls, str(recorded.root)
    [decisive] = at(calls, "link", "/_versions/")
    for place, call in enumerate(calls[:decisive]):
        if call.kind == "write":
            flushed = [later for later in calls[place:decisive] if later == Call("fsync", call.path)]
            assert flushed, f"{call.path} is written, and not flushed before the version is visible"
        if call.kind == "rename":
            folder = call.target.rpartition("/")[0]
            assert Call("fsync", folder) in calls[place:decisive], f"{folder}: new names are not flushed in time"
        if call.kind == "mkdir":
            folder = call.path.rpartition("/")[0]
            assert Call("fsync", folder) in calls[place:decisive], f"{folder}: new folders are not flushed in time"
    assert Call("fsync", f"{root}/_versions") in calls[decisive:]
    data = "/_deletions/" if recorded.after == [4, 5] else "/data/"
    assert at(calls[:decisive], "rename", data) and at(calls[:decisive], "rename", "/_transactions/")


def test_any_loss_of_power(recorded: Recorded, tmp_path: Path) -> None:
    disk = recorded.disk()
    seen: set[frozenset[tuple[str, bytes | None]]] = set()
    [decisive] = at(recorded.calls, "link", "/_versions/")
    flushed = [place for place in at(recorded.calls, "fsync", "/_versions") if place > decisive]
    for place, call in enumerate(recorded.calls):
        disk.apply(call)
        for state in disk.states():
            frozen = frozenset(state.items())
            if frozen not in seen or place >= flushed[-1]:
                check(recorded, state, tmp_path / f"{len(seen)}", number=len(seen), acknowledged=place >= flushed[-1])
            seen.add(frozen)
    assert len(seen) > 10


def check(recorded: Recorded, state: dict[str, bytes | None], copy: Path, *, number: int, acknowledged: bool) -> None:
    """The table is the old or the new one; the new one, once its writer was told so."""
    write_state(state, recorded.root, copy)
    try:
        table = lance_io.dataset(copy)
        version, rows = table.version, sorted(table.to_table()["a"].to_pylist())
    except ValueError:
        version, rows = 0, []
    new = (recorded.version, recorded.after)
    assert (version, rows) == new or (not acknowledged and (version, rows) == (recorded.version - 1, recorded.before))
    if version and number % PYLANCE_EVERY == 0:
        theirs = lance.dataset(copy)
        assert (theirs.version, sorted(theirs.to_table()["a"].to_pylist())) == (version, rows)
    shutil.rmtree(copy, ignore_errors=True)


def test_without_durability_nothing_is_flushed(tmp_path: Path) -> None:
    recorded = Recorded("append", tmp_path, options="durability='none'")
    assert {call.kind for call in recorded.calls} >= {"create", "write", "rename"}
    assert [call for call in recorded.calls if call.kind == "fsync"] == []
    assert lance_io.dataset(recorded.root).count_rows() == 8


def test_the_simulator_finds_what_is_not_flushed(recorded: Recorded, tmp_path: Path) -> None:
    """Without the flush of a data file, of its folder, or of the manifest a table is lost somewhere."""
    if recorded.version == 1:
        return  # the table's folder is then lost with them
    calls = recorded.calls
    part = "/_deletions" if at(calls, "rename", "/_deletions/") else "/data"
    needed = {call for call in calls if call.kind == "fsync" and (part in call.path or "/_versions/." in call.path)}
    assert len(needed) == 3
    for number, missing in enumerate(sorted(needed, key=str)):
        recorded.calls = [call for call in calls if call != missing]
        try:
            with pytest.raises((AssertionError, LanceError, OSError, pa.ArrowInvalid)):
                test_any_loss_of_power(recorded, tmp_path / f"{number}")
        finally:
            recorded.calls = calls


def test_parsing() -> None:
    log = """12 openat(AT_FDCWD</w>, "/t/.tmp", O_WRONLY|O_CREAT|O_EXCL|O_CLOEXEC, 0666) = 5</t/.tmp>
12 pwritev(5</t/.tmp>, [{iov_base=""..., iov_len=5}], 1, 0 <unfinished ...>
13 mkdir("/t/data", 0777) = -1 EEXIST (File exists)
12 <... pwritev resumed>) = 5
12 fsync(5</t/.tmp>) = 0
12 link("/t/.tmp", "/t/a") = 0"""
    assert parse(log) == [
        Call("create", "/t/.tmp"),
        Call("write", "/t/.tmp"),
        Call("fsync", "/t/.tmp"),
        Call("link", "/t/.tmp", "/t/a"),
    ]


def test_in_ci_a_missing_strace_fails(tmp_path: Path) -> None:
    test = f"{__file__}::test_without_durability_nothing_is_flushed"
    command = [sys.executable, "-m", "pytest", "-n0", "-x", "-q", "-p", "no:cacheprovider", test]
    environment = {**os.environ, "PATH": str(tmp_path), "CI": "true"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1, done.stdout
    assert "apt install strace" in done.stdout
