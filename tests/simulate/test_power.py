"""Power fails at any moment of a write to the local disk: what was acknowledged is there, and what is there is whole.

The system calls of real writes are recorded. Every prefix of the record is replayed on a disk that loses what nobody
flushed, in every way it may, and the table is opened from what is left.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import LanceError
from tests.simulate.disk import Disk, write_state
from tests.simulate.syscalls import Call, can_trace, parse, record
from tests.simulate.world import SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(
    not os.environ.get("CI") and not can_trace(),  # there, nothing is left out in silence
    reason="system calls are recorded by strace, which is not installed or may not trace here",
)

ROOT = Path(__file__).resolve().parents[2]
BEFORE = "lance_io.write_dataset(pa.table({'a': list(range(6))}), URI)\n"
TWO_FILES = f"{BEFORE}lance_io.write_dataset(pa.table({{'a': [6, 7]}}), URI, mode='append')\n"
DATA, DELETIONS, TRANSACTIONS = "/data/", "/_deletions/", "/_transactions/"


def rows_of(ds: Any) -> object:
    """All rows, whatever their columns."""
    return sorted(map(repr, ds.to_table().to_pylist()))


def branches_of(ds: Any) -> object:
    return [rows_of(ds), {name: rows_of(ds.checkout_version((name, None))) for name in ds.branches.list()}]


def tags_of(ds: Any) -> object:
    return [rows_of(ds), {name: rows_of(ds.checkout_version(name)) for name in ds.tags.list()}]


@dataclass(frozen=True)
class Write:
    """What is done to a table.

    before    what was done before
    change    what is done
    folders   where files get their names before the version is there
    look      what tells the old table from the new one
    decisive  in the name of what makes it the new one
    """

    before: str
    change: str
    folders: tuple[str, ...] = (DATA, TRANSACTIONS)
    look: Callable[[Any], object] = rows_of
    decisive: str = "/_versions/"


WRITES = {
    "create": Write("", "lance_io.write_dataset(pa.table({'a': list(range(6))}), URI)"),
    "append": Write(BEFORE, "lance_io.write_dataset(pa.table({'a': [6, 7]}), URI, mode='append')"),
    "overwrite": Write(BEFORE, "lance_io.write_dataset(pa.table({'b': ['x']}), URI, mode='overwrite')"),
    "delete": Write(BEFORE, "lance_io.dataset(URI).delete('a < 4')", (DELETIONS, TRANSACTIONS)),
    "delete in files": Write(TWO_FILES, "lance_io.dataset(URI).delete('a % 2 = 0')", (DELETIONS, TRANSACTIONS)),
    "update": Write(BEFORE, "lance_io.dataset(URI).update({'a': 'a + 10'}, 'a < 4')", (DATA, DELETIONS, TRANSACTIONS)),
    "merge_insert": Write(
        BEFORE,
        "lance_io.dataset(URI).merge_insert('a').when_matched_delete().when_not_matched_insert_all()"
        ".execute(pa.table({'a': [1, 2, 9]}))",
        (DATA, DELETIONS, TRANSACTIONS),
    ),
    "add values": Write(BEFORE, "lance_io.dataset(URI).add_columns(lambda rows: rows.rename_columns(['b']))"),
    "add by SQL": Write(TWO_FILES, "lance_io.dataset(URI).add_columns({'b': 'a * 2'})"),
    "add nulls": Write(BEFORE, "lance_io.dataset(URI).add_columns(pa.field('b', pa.int8()))", (TRANSACTIONS,)),
    "cast": Write(BEFORE, "lance_io.dataset(URI).alter_columns({'path': 'a', 'data_type': pa.int32()})"),
    "rename": Write(BEFORE, "lance_io.dataset(URI).alter_columns({'path': 'a', 'name': 'b'})", (TRANSACTIONS,)),
    "drop": Write(
        f"{BEFORE}lance_io.dataset(URI).add_columns({{'b': 'a * 2'}})\n",
        "lance_io.dataset(URI).drop_columns(['a'])",
        (TRANSACTIONS,),
    ),
    "merge": Write(BEFORE, "lance_io.dataset(URI).merge(pa.table({'a': [1, 2], 'b': [3, 4]}), 'a')"),
    "compact": Write(TWO_FILES, "lance_io.dataset(URI).optimize.compact_files()"),
    "truncate": Write(BEFORE, "lance_io.dataset(URI).truncate_table()", (TRANSACTIONS,)),
    "restore": Write(TWO_FILES, "lance_io.dataset(URI, version=1).restore()", (TRANSACTIONS,)),
    "tag": Write(BEFORE, "lance_io.dataset(URI).tags.create('t', 1)", (), tags_of, "/tags/t.json"),
    "branch": Write(TWO_FILES, "lance_io.dataset(URI).create_branch('b', 1)", (), branches_of, "/branches/b.json"),
    "shallow clone": Write(
        "", f"{BEFORE.replace('URI', 'OTHER')}lance_io.dataset(OTHER).shallow_clone(URI, 1)", (TRANSACTIONS,)
    ),
    "deep clone": Write(
        "", f"{BEFORE.replace('URI', 'OTHER')}lance_io.dataset(OTHER).deep_clone(URI, 1)", (DATA, TRANSACTIONS)
    ),
    "async append": Write(
        BEFORE,
        "import asyncio; asyncio.run(lance_io.AsyncDataset.write(pa.table({'a': [6, 7]}), URI, mode='append'))",
    ),
}
PYLANCE_EVERY = max(1, 8 // SIZE)  # states that pylance looks at, too


class Recorded:
    """A write, its system calls, and what there was before, in between, and is after it."""

    def __init__(self, name: str, folder: Path, *, options: str = "") -> None:
        self.write = write = WRITES[name]
        self.root = folder / "t"
        head = f"import lance_io, pyarrow as pa\nURI, OTHER = {str(self.root)!r}, {str(folder / 'other')!r}\n"
        self.base = folder / "base"
        if write.before:
            exec(head + write.before, {})
            shutil.copytree(self.root, self.base)
        first = self._look()
        change = write.change if not options else f"{write.change[:-1]}, {options})"
        self.calls = record(head + change, self.root)
        self.after = self._look()
        between = range(first[0] + 1, self.after[0])
        self.allowed = [first, *(self._look(version) for version in between), self.after]

    def _look(self, version: int | None = None) -> tuple[int, object]:
        if not (self.root / "_versions").exists():
            return 0, None
        ds = lance_io.dataset(self.root, version=version)
        return ds.version, self.write.look(ds)

    def disk(self) -> Disk:
        """The disk before the write."""
        contents = {str(path): path.read_bytes() for path in self.root.rglob("*") if path.is_file()}
        for call in self.calls[::-1]:  # temporary names hold what their final ones do
            if call.kind in ("link", "rename", "exchange"):
                contents[call.path] = contents[call.target]
            elif call.kind == "unlink":  # a pin, which nobody reads
                contents.setdefault(call.path, b"{}")
        disk = Disk(contents)
        if self.write.before:
            disk = Disk.of(self.base, contents)
            for names in (disk.names, disk.safe_names):
                moved = {f"{self.root}{path[len(str(self.base)) :]}": number for path, number in names.items()}
                names.clear()
                names.update({path: number for path, number in moved.items() if path.startswith(str(self.root))})
        for names in (disk.names, disk.safe_names):
            names[str(self.root.parent)] = -1
        return disk

    @property
    def decisive(self) -> int:
        """The place of the call that makes the table the new one."""
        return at(self.calls, "link", self.write.decisive)[-1]

    @property
    def acknowledged(self) -> int:
        """The place of the last flush of the decisive name."""
        call = self.calls[self.decisive]
        folder = call.target.rpartition("/")[0]
        return max(place for place, each in enumerate(self.calls) if each == Call("fsync", folder))


@pytest.fixture(scope="module", params=WRITES)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(request.param, tmp_path_factory.mktemp("power"))


def at(calls: list[Call], kind: str, part: str) -> list[int]:
    """Places of calls of a kind whose (target's) path has a part."""
    return [place for place, call in enumerate(calls) if call.kind == kind and part in (call.target or call.path)]


def test_the_order_of_system_calls(recorded: Recorded) -> None:
    calls, decisive = recorded.calls, recorded.decisive
    names = {call.path: call.target for call in calls if call.kind in ("link", "rename")}
    for place, call in enumerate(calls[:decisive]):
        name = names.get(call.path, call.path)
        is_passing = "/.cleanup-" in name or name.endswith("hint.json")  # pins and hints are nothing to lose
        if call.kind == "write" and not is_passing:
            flushed = [later for later in calls[place:decisive] if later == Call("fsync", call.path)]
            assert flushed, f"{call.path} is written, and not flushed before the version is visible"
        if call.kind == "rename" and not is_passing:
            folder = call.target.rpartition("/")[0]
            assert Call("fsync", folder) in calls[place:decisive], f"{folder}: new names are not flushed in time"
        if call.kind == "mkdir":
            folder = call.path.rpartition("/")[0]
            assert Call("fsync", folder) in calls[place:decisive], f"{folder}: new folders are not flushed in time"
    assert recorded.acknowledged > decisive
    for folder in recorded.write.folders:
        assert at(calls[:decisive], "rename", folder), folder


def test_any_loss_of_power(recorded: Recorded, tmp_path: Path) -> None:
    disk = recorded.disk()
    seen: set[tuple[bool, frozenset[tuple[str, bytes | None]]]] = set()
    acknowledged_at = recorded.acknowledged
    for place, call in enumerate(recorded.calls):
        disk.apply(call)
        acknowledged = place >= acknowledged_at  # then the old table is no longer allowed
        for state in disk.states():
            if (frozen := (acknowledged, frozenset(state.items()))) not in seen:
                check(recorded, state, tmp_path / f"{len(seen)}", number=len(seen), acknowledged=acknowledged)
                seen.add(frozen)
    assert len(seen) > 10


def check(recorded: Recorded, state: dict[str, bytes | None], copy: Path, *, number: int, acknowledged: bool) -> None:
    """The table is the old or the new one; the new one, once its writer was told so."""
    write_state(state, recorded.root, copy)
    found: tuple[int, object] = 0, None
    try:
        table = lance_io.dataset(copy)
    except ValueError:
        table = None
    if table is not None:
        found = table.version, recorded.write.look(table)
    assert found in (recorded.allowed if not acknowledged else [recorded.after])
    if table is not None and number % PYLANCE_EVERY == 0:
        theirs = lance.dataset(copy)
        assert (theirs.version, recorded.write.look(theirs)) == found
    shutil.rmtree(copy, ignore_errors=True)


def test_a_cleanup_leaves_no_version_without_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it had removed when the power failed: all versions that are still there can be read."""
    cleanup = Write(
        f"{TWO_FILES}lance_io.dataset(URI).delete('a = 6')\nlance_io.dataset(URI).optimize.compact_files()\n",
        "import datetime\nlance_io.dataset(URI).cleanup_old_versions(datetime.timedelta(0))",
    )
    monkeypatch.setitem(WRITES, "cleanup", cleanup)
    recorded = Recorded("cleanup", tmp_path)
    disk, seen = recorded.disk(), set()
    for call in recorded.calls:
        disk.apply(call)
        for state in disk.states():
            if (frozen := frozenset(state.items())) in seen:
                continue
            seen.add(frozen)
            copy = tmp_path / f"{len(seen)}"
            write_state(state, recorded.root, copy)
            assert (lance_io.dataset(copy).version, rows_of(lance_io.dataset(copy))) == recorded.after
            for version in lance_io.dataset(copy).versions():
                lance_io.dataset(copy, version=version["version"]).to_table()
            shutil.rmtree(copy)
    assert len(lance_io.dataset(recorded.root).versions()) == 1
    assert len(seen) > 10


def test_without_durability_nothing_is_flushed(tmp_path: Path) -> None:
    recorded = Recorded("append", tmp_path, options="durability='none'")
    assert {call.kind for call in recorded.calls} >= {"create", "write", "rename"}
    assert [call for call in recorded.calls if call.kind == "fsync"] == []
    assert lance_io.dataset(recorded.root).count_rows() == 8


def test_the_simulator_finds_what_is_not_flushed(recorded: Recorded, tmp_path: Path) -> None:
    """Without the flush of a file, of its folder, or of the manifest a table is lost somewhere: writes take turns."""
    if recorded.allowed[0][0] == 0:
        return  # the table's folder is then lost with them
    calls = recorded.calls
    parts = {"/_versions/.", *(folder[:-1] for folder in recorded.write.folders if folder != TRANSACTIONS)}
    if recorded.write.decisive != "/_versions/":
        parts = {"/tags/." if "tag" in recorded.write.decisive else "/branches/."}
    needed = {call for call in calls if call.kind == "fsync" and any(part in call.path for part in parts)}
    assert len(needed) >= len(parts)
    missed = sorted(needed, key=calls.index)
    if SIZE == 1:
        missed = [missed[crc32(recorded.write.change.encode()) % len(missed)]]
    for number, missing in enumerate(missed):
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
