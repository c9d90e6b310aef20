"""Cleaning up where nothing can be written: disks without a free byte, or without room for one more file.

Real ones where this process may mount them, and calls that fail as such disks let them fail.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.commit.cleanups.cleanup import plan_cleanup, run_cleanup
from lance_io.commit.target import CommitTarget
from lance_io.errors import StoreError
from lance_io.plans.plan import drive_sync
from lance_io.store.failures import StoreFull
from lance_io.store.local import atomic_writes
from lance_io.store.memory import MemoryStore
from lance_io.store.url import Location
from lance_io.table.transaction import operations as ops
from lance_io.table.transaction.garbage import CleanupPolicy
from lance_io.table.transaction.transaction import Transaction
from tests.commit.tables import Sample, commit_sync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lance_io.commit.cleanups.cleanup_values import CleanupStats

ROWS: Final = pa.table({"a": range(2000)})
NOW: Final = timedelta(0)
STALE: Final = 8 * 24 * 3600
DISKS: Final = {"no byte": "size=1m", "no file": "size=8m,nr_inodes=80"}


@contextmanager
def small_disk(path: Path, options: str) -> Iterator[None]:
    """A file system of limited size; skips the test where none can be mounted."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "none", str(path)]
    if sys.platform != "linux" or os.geteuid() or subprocess.run(command, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("needs to mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(disk: Path, *, with_files: bool) -> None:
    """Use up every byte, or every file that the disk can have."""
    with suppress(OSError):
        for number in range(1000 if with_files else 1):
            with open(disk / f"others{number}", "wb", buffering=0) as file:
                while not with_files:
                    file.write(b"x" * 4096)
    with pytest.raises(OSError, match="No space left"):
        (disk / "more").write_bytes(b"x")
    with suppress(FileNotFoundError):
        (disk / "more").unlink()


def make_table(uri: str, *, with_orphans: bool) -> None:
    """Five versions; the orphans are those of a writer that died a week ago, and of one that died just now."""
    table = lance_io.write_dataset(ROWS, uri, durability="none")
    table.insert(ROWS, mode="overwrite")
    for number in range(3):
        table.delete(f"a = {number}")
    if with_orphans:
        for name in ("data/.lance-io-dead", "data/dead.lance", "_transactions/4-dead.txn"):
            Path(uri, name).write_bytes(b"dead")
        old = os.stat(uri).st_mtime - STALE
        os.utime(Path(uri, "data/.lance-io-dead"), (old, old))


def files(uri: str | Path) -> set[str]:
    return {str(one.relative_to(uri)) for one in Path(uri).rglob("*") if one.is_file()}


async def clean(uri: str, is_async: bool, **how: Any) -> CleanupStats:
    if is_async:
        return await (await lance_io.AsyncDataset.open(uri)).cleanup_old_versions(NOW, **how)
    return lance_io.dataset(uri).cleanup_old_versions(NOW, **how)


@pytest.mark.parametrize("is_async", [False, True], ids=["now", "later"])
@pytest.mark.parametrize("with_orphans", [False, True], ids=["", "orphans"])
@pytest.mark.parametrize("kind", DISKS)
async def test_a_full_disk_is_cleaned_up(tmp_path: Path, kind: str, with_orphans: bool, is_async: bool) -> None:
    make_table(str(tmp_path / "twin"), with_orphans=with_orphans)
    disk = tmp_path / "disk"
    with small_disk(disk, DISKS[kind]):
        uri = shutil.copytree(tmp_path / "twin", str(disk / "t"))
        fill(disk, with_files=kind == "no file")
        with pytest.raises(OSError, match="No space left"):
            lance_io.dataset(uri).insert(ROWS)
        expected = lance_io.dataset(tmp_path / "twin").cleanup_old_versions(NOW)
        done = await clean(uri, is_async)
        assert done == expected and done.old_versions == 4
        assert files(uri) == files(tmp_path / "twin")
        for reader in (lance, lance_io):
            assert reader.dataset(uri).to_table()["a"].to_pylist() == list(range(3, 2000))
        lance_io.dataset(uri).delete("a = 3")  # there is room again
        assert lance.dataset(uri).count_rows() == 1996


# -- calls that fail ---------------------------------------------------------------------------------------------------


class FullSystem:
    """The module `os` on a full disk: some calls find no room, `times` times; None: however often."""

    def __init__(self, calls: frozenset[str], times: int | None, code: int) -> None:
        self.calls, self.times, self.code = calls, times, code
        self.num_refused = 0

    def __getattr__(self, name: str) -> Any:
        function = getattr(os, name)
        return (lambda *args, **how: self._call(function, args, how)) if name in self.calls else function

    def _call(self, function: Callable[..., Any], args: Any, how: Any) -> Any:
        writes = function is not os.open or args[1] & (os.O_CREAT | os.O_WRONLY)
        if not writes or (self.times is not None and self.num_refused >= self.times):
            return function(*args, **how)
        self.num_refused += 1
        raise OSError(self.code, os.strerror(self.code))


BYTES: Final = frozenset({"pwritev", "pwrite"})
ANYTHING: Final = frozenset({"open", "link", "replace", "mkdir", "makedirs"}) | BYTES


@pytest.mark.parametrize("with_orphans", [False, True], ids=["", "orphans"])
@pytest.mark.parametrize("delete_unverified", [False, True], ids=["", "unverified"])
@pytest.mark.parametrize(
    ("calls", "times", "code"),
    [
        (BYTES, None, errno.ENOSPC),
        (ANYTHING, 1, errno.ENOSPC),
        (ANYTHING, 2, errno.ENOSPC),
        (ANYTHING, 5, errno.ENOSPC),
        (ANYTHING, None, errno.EDQUOT),
    ],
    ids=["bytes", "once", "twice", "five times", "quota"],
)
async def test_what_cannot_be_written_stops_no_cleanup(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    calls: frozenset[str],
    times: int | None,
    code: int,
    delete_unverified: bool,
    with_orphans: bool,
) -> None:
    uri, theirs = str(tmp_path / "t"), tmp_path / "theirs"
    make_table(uri, with_orphans=with_orphans)
    for number in range(3):  # more versions than are removed at first
        lance_io.dataset(uri).delete(f"a = {10 + number}")
    shutil.copytree(uri, theirs)
    lance.dataset(theirs).cleanup_old_versions(NOW, delete_unverified=delete_unverified)
    system = FullSystem(calls, times, code)
    with monkeypatch.context() as patch:
        patch.setattr(atomic_writes, "os", system)
        patch.setattr("lance_io.store.local.disk.os", system)
        if times is None and calls is ANYTHING:
            patch.setattr(atomic_writes, "_renameat2", None)
        done = await clean(uri, False, delete_unverified=delete_unverified)
    assert done.old_versions == 7 and done.failed_deletes == 0
    assert system.num_refused == times or times is None
    late = {"_transactions/4-dead.txn"} & files(theirs) if delete_unverified else set()
    assert files(uri) - files(theirs) == set()
    assert files(theirs) - files(uri) == late | {"data/.lance-io-dead"} & files(theirs)
    assert lance.dataset(uri).count_rows() == 1994


def test_a_branch_is_removed_from_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = str(tmp_path / "t")
    table = lance_io.write_dataset(ROWS, uri)
    table.create_branch("side").delete("a < 10")
    with monkeypatch.context() as patch:
        patch.setattr(atomic_writes, "os", FullSystem(BYTES, None, errno.ENOSPC))
        table.branches.delete("side")
    assert not any(name.startswith(("tree/", "_refs/branches/")) for name in files(uri))


def test_what_a_full_disk_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic_writes, "os", FullSystem(ANYTHING, None, errno.ENOSPC))
    with pytest.raises(StoreError, match="No space left") as found:
        lance_io.write_dataset(ROWS, tmp_path / "t")
    assert isinstance(found.value, StoreFull) and not found.value.retryable


# -- beside others -----------------------------------------------------------------------------------------------------


class RoomForOthers(MemoryStore):
    """A store that takes no note of the cleanup, and lets another party act just before or after manifests go."""

    before: Callable[[], None] | None = None
    after: Callable[[], None] | None = None
    is_full = False

    def put_sync(self, key: str, *args: Any, **how: Any) -> Any:
        if self.is_full and "/.cleanup-intent-" in key:
            raise StoreFull("scripted", path=key)
        return super().put_sync(key, *args, **how)

    def delete_sync(self, keys: Any) -> None:
        keys = tuple(keys)
        acts = (self.before, self.after) if any(key.endswith(".manifest") for key in keys) else (None, None)
        for act, work in zip(acts, (lambda: None, lambda: super(RoomForOthers, self).delete_sync(keys)), strict=True):
            if act is not None:
                self.before = self.after = None
                act()
            work()


@pytest.fixture
def target(tmp_path: Path) -> CommitTarget:
    """Two versions whose files the third one does not have."""
    sample = Sample(tmp_path / "sample")
    made = CommitTarget(Location(RoomForOthers(), "t", "memory://t"))
    sample.create_sync(made)
    commit_sync(made, Transaction(1, ops.Delete((), (0,), "all")))
    return made


def cleaned(target: CommitTarget) -> CleanupStats:
    store: Any = target.location.store
    store.is_full = True
    plan = drive_sync(plan_cleanup(target, CleanupPolicy(older_than_s=0.0)))
    assert plan.stats.old_versions == 1 and plan.stats.data_files_removed == 1
    return drive_sync(run_cleanup(target, plan))


def is_whole(target: CommitTarget, version: int) -> bool:
    """Whether a version is there with its data file."""
    store: Any = target.location.store
    keys = {one.key for one in store.list_sync("")}
    is_there = f"t/_versions/{2**64 - 1 - version:020}.manifest" in keys
    return is_there and any(key.startswith("t/data/") for key in keys)


def test_without_others_everything_goes(target: CommitTarget) -> None:
    done = cleaned(target)
    assert (done.old_versions, done.data_files_removed, done.failed_deletes) == (1, 1, 0)


@pytest.mark.parametrize("key", ["_versions/.cleanup-pin-1-x", "_refs/tags/one.json"], ids=["pin", "tag"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_who_held_on_to_a_version_that_could_not_be_announced_has_it_back(
    target: CommitTarget, key: str, moment: str
) -> None:
    """A pin was there, or a tag is, whose maker had read the manifest before it went."""
    store: Any = target.location.store
    content = b'{"branch": null, "version": 1, "manifestSize": 1}'
    setattr(store, moment, lambda: store.put_sync(f"t/{key}", content))
    done = cleaned(target)
    assert (done.old_versions, done.data_files_removed) == (0, 0)
    assert is_whole(target, 1)


def test_who_restored_a_version_that_could_not_be_announced_has_its_files(target: CommitTarget) -> None:
    store: Any = target.location.store
    store.before = lambda: commit_sync(target, Transaction(2, ops.Restore(1)))
    done = cleaned(target)
    assert (done.old_versions, done.data_files_removed) == (1, 0)
    assert is_whole(target, 3)


def test_what_cannot_be_put_back_is_told(target: CommitTarget) -> None:
    store: Any = target.location.store

    def pin() -> None:
        store.put_sync("t/_versions/.cleanup-pin-1-x", b"{}")
        store.put_sync = lambda key, *args, **how: (_ for _ in ()).throw(StoreFull("scripted", path=key))

    store.before = pin
    with pytest.raises(StoreError, match="putting it back failed"):
        cleaned(target)
    del store.put_sync
    assert any(one.key.startswith("t/data/") for one in store.list_sync("t/"))


def test_the_loop_is_not_needed(target: CommitTarget) -> None:
    """The same on an event loop."""
    from lance_io.plans.plan import drive_async

    async def run() -> CleanupStats:
        plan = await drive_async(plan_cleanup(target, CleanupPolicy(older_than_s=0.0)))
        return await drive_async(run_cleanup(target, plan))

    assert asyncio.run(run()).old_versions == 1
