"""What is particular about the local disk: names, links, replaced files, half-written files, forks."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import AccessDenied, AlreadyExists, LanceError, NotFound, StoreError, UnsupportedError, UsageError
from lance_io.spans import Ranges
from lance_io.store.api import Selection
from lance_io.store.counters import StoreStats
from lance_io.store.failures import InvalidRange, ShortRead
from lance_io.store.local import disk
from lance_io.store.local.disk import LocalStore
from lance_io.store.local.system_calls import list_files
from lance_io.store.url import resolve_uri

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.store.api import Durability

TABLE = pa.table({"a": [1, 2, 3]})


@pytest.fixture
def store() -> LocalStore:
    return LocalStore()


def read(store: LocalStore, path: Path, start: int, end: int) -> bytes:
    (fetched,) = store.read_sync([(str(path), Ranges.of((start, end)))], 0)
    return bytes(fetched.piece(0, end - start))


# -- where a URI leads ------------------------------------------------------------------------------------------------


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    here = str(tmp_path)
    assert resolve_uri("a/../b.lance/").path == f"{here}/b.lance"
    assert resolve_uri(Path("b.lance")).path == f"{here}/b.lance"
    assert resolve_uri("~/b.lance").path == "/home/somebody/b.lance"
    assert resolve_uri("/x/y").path == "/x/y"
    assert resolve_uri("file:///x/with%20space").path == "/x/with space"
    assert resolve_uri("file-object-store:///x").path == "/x"
    assert resolve_uri("odd:name").path == f"{here}/odd:name"
    assert resolve_uri("/").key("a", "b") == "/a/b"
    assert resolve_uri("x").below("_versions").uri == f"{here}/x/_versions"
    with pytest.raises(ValueError, match="absolute"):
        resolve_uri("file://relative/path")


def test_memory_uris() -> None:
    assert resolve_uri("memory://x").store is not resolve_uri("memory://x").store
    first, second = resolve_uri("shared-memory://b/x/"), resolve_uri("shared-memory://b/y")
    assert first.store is second.store
    assert (first.path, second.key("z")) == ("x", "y/z")


# -- files that change ------------------------------------------------------------------------------------------------


def test_a_replaced_file_is_read_anew_and_a_deleted_one_is_gone(store: LocalStore, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"before")
    assert read(store, path, 0, 6) == b"before"
    (tmp_path / "g").write_bytes(b"after!")
    os.replace(tmp_path / "g", path)
    assert read(store, path, 0, 6) == b"after!"
    path.unlink()
    with pytest.raises(NotFound):
        read(store, path, 0, 6)


@pytest.mark.parametrize("num_files", [3, 300])
def test_files_are_removed_together_and_missing_ones_count(store: LocalStore, tmp_path: Path, num_files: int) -> None:
    keys = [str(tmp_path / str(number)) for number in range(num_files)]
    for key in keys[1:]:
        Path(key).touch()
    store.delete_sync(keys)
    assert not any(tmp_path.iterdir())
    assert store.stats.snapshot().operations["delete"].requests == num_files


@pytest.mark.parametrize("num_files", [3, 300])
def test_a_file_that_cannot_be_removed_is_named(store: LocalStore, tmp_path: Path, num_files: int) -> None:
    keys = [str(tmp_path / str(number)) for number in range(num_files)]
    for key in keys:
        Path(key).touch()
    folder = Path(keys[num_files // 2])
    folder.unlink()
    folder.mkdir()
    with pytest.raises(LanceError, match=str(folder)):
        store.delete_sync(keys)
    left, counts = [*tmp_path.iterdir()], store.stats.snapshot().operations["delete"]
    assert folder in left
    assert counts.requests - counts.errors == num_files - len(left) and counts.errors == 1


def test_files_are_removed_where_no_thread_can_start(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    keys = [str(tmp_path / str(number)) for number in range(300)]
    for key in keys:
        Path(key).touch()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    store.delete_sync(keys)
    assert not any(tmp_path.iterdir())


def test_a_file_that_grew_is_read_to_its_new_end(store: LocalStore, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"12")
    assert read(store, path, 0, 2) == b"12"
    with path.open("ab") as file:
        file.write(b"34")
    assert read(store, path, 0, 4) == b"1234"


def test_a_claim_of_terabytes_costs_no_memory(store: LocalStore, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"12")
    for end in (1 << 40, (1 << 62) - 1):
        with pytest.raises(ShortRead):
            store.read_sync([(str(path), Ranges.of((0, end)))], 0)
    with pytest.raises(InvalidRange):
        store.read_sync([(str(path), Ranges.of((1 << 61, 1 << 62), (0, 1 << 62), (5, 1 << 62)))], 0)


def test_open_files_are_bounded(store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "OPEN_FILES_MAX", 4)
    store.start_over()
    for number in range(20):
        (tmp_path / str(number)).write_bytes(b"x" * number + b"y")
        assert read(store, tmp_path / str(number), number, number + 1) == b"y"
    assert open_files(tmp_path) == 4
    store._files.clear()
    assert open_files(tmp_path) == 0


def open_files(folder: Path) -> int:
    """How many files in the folder this process has open; other tests may have left others, to be closed any time."""
    paths = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # closed meanwhile
            paths.append(Path(os.readlink(f"/proc/self/fd/{number}")))
    return sum(path.is_relative_to(folder) for path in paths)


@pytest.mark.parametrize("error", [None, OSError(errno.EINVAL, "no advice here")], ids=["taken", "refused"])
def test_the_system_is_told_not_to_read_ahead(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError | None
) -> None:
    told: list[tuple[str, int, int, int]] = []

    def advise(fd: int, start: int, length: int, advice: int) -> None:
        told.append((os.readlink(f"/proc/self/fd/{fd}"), start, length, advice))
        if error is not None:
            raise error

    monkeypatch.setattr(os, "posix_fadvise", advise)
    for name in "ab":
        (tmp_path / name).write_bytes(b"0123456789")
    for _ in range(2):
        assert [read(store, tmp_path / name, 3, 5) for name in "ab"] == [b"34", b"34"]
    assert told == [(str(tmp_path / name), 0, 0, os.POSIX_FADV_RANDOM) for name in "ab"]


def test_threads_read_while_files_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "OPEN_FILES_MAX", 2)
    store, failures = LocalStore(), []
    for number in range(6):
        (tmp_path / str(number)).write_bytes(bytes([number]) * 1000)

    def work(seed: int) -> None:
        generator = np.random.default_rng(seed)
        numbers = generator.integers(0, 6, 300).tolist()
        failures.extend(n for n in numbers if read(store, tmp_path / str(n), 10, 20) != bytes([n]) * 10)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


# -- what is no file --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["folder", "file/below", "missing", "nul\0", "\udcff", "n" * 300, "loop"])
def test_what_cannot_be_opened_is_not_found(store: LocalStore, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "loop").symlink_to("loop")
    key = f"{tmp_path}/{name}"
    for work in (store.get_sync, store.head_sync, lambda key: store.read_sync([(key, Ranges.of((0, 1)))], 0)):
        with pytest.raises(NotFound):
            work(key)


def test_a_named_pipe_does_not_hang_its_reader(store: LocalStore, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="regular file"):
        store.get_sync(str(tmp_path / "pipe"))
    assert store.list_sync(f"{tmp_path}/") == []


def test_refused_access_is_named(store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("lance_io.store.local.system_calls.os.open", refuse)
    with pytest.raises(AccessDenied, match="Permission denied"):
        store.get_sync(str(tmp_path / "x"))
    with pytest.raises(AccessDenied):
        store.put_sync(str(tmp_path / "x"), b"1")


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_file_is_replaced_without_flushing(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool
) -> None:
    if not can_exchange:
        monkeypatch.setattr("lance_io.store.local.atomic_writes._renameat2", None)
    key = f"{tmp_path}/hint"
    for content in (b"first", b"second", b"3"):
        meta = store.put_sync(key, content, durability="none")
        assert (store.get_sync(key), meta) == (content, store.head_sync(key))
        assert os.listdir(tmp_path) == ["hint"]


def test_a_file_is_written_over_in_place(store: LocalStore, tmp_path: Path) -> None:
    key = f"{tmp_path}/hint"
    inodes = []
    for content in (b"9", b"10", b"11", b"3"):
        meta = store.put_sync(key, content, durability="none", in_place=True)
        assert (store.get_sync(key), meta) == (content, store.head_sync(key))
        inodes.append(os.stat(key).st_ino)
    assert inodes[0] == inodes[1] == inodes[2]
    assert inodes[3] != inodes[2]  # nothing of a longer content may be left
    store.put_sync(key, b"4", durability="full", in_place=True)
    assert os.stat(key).st_ino != inodes[3]  # what is flushed is never half there
    with pytest.raises(AlreadyExists):
        store.put_sync(key, b"4", if_absent=True, durability="none", in_place=True)
    os.replace(key, f"{tmp_path}/aside")
    os.symlink(f"{tmp_path}/aside", key)
    store.put_sync(key, b"5", durability="none", in_place=True)
    assert (tmp_path / "aside").read_bytes() == b"4"
    assert store.get_sync(key) == b"5"
    assert sorted(os.listdir(tmp_path)) == ["aside", "hint"]


@pytest.mark.parametrize("durability", ["full", "none"])
def test_what_is_there_is_not_created(store: LocalStore, tmp_path: Path, durability: Durability) -> None:
    key = f"{tmp_path}/file"
    store.put_sync(key, b"1", if_absent=True, durability=durability)
    with pytest.raises(AlreadyExists):
        store.put_sync(key, b"2", if_absent=True, durability=durability)
    with store.open_upload_sync(key, if_absent=True, durability=durability) as upload, pytest.raises(AlreadyExists):
        upload.write([b"3"])
        upload.close()
    assert os.listdir(tmp_path) == ["file"]
    assert store.get_sync(key) == b"1"


def test_a_folder_is_not_replaced_by_a_file(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for durability in ("full", "none"):
        with pytest.raises(LanceError):
            store.put_sync(f"{tmp_path}/folder", b"x", durability=durability)
    assert os.listdir(tmp_path) == ["folder"]
    assert (tmp_path / "folder").is_dir()


# -- listing ----------------------------------------------------------------------------------------------------------


def test_links_are_followed_and_loops_are_not(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/file").write_bytes(b"123")
    (tmp_path / "linked").symlink_to("real")
    (tmp_path / "real/up").symlink_to("..")
    (tmp_path / "nowhere").symlink_to("missing")
    names = [meta.key.removeprefix(f"{tmp_path}/") for meta in store.list_sync(f"{tmp_path}/")]
    assert {"linked/file", "real/file"} <= set(names)
    assert len(names) < 20
    assert store.head_sync(f"{tmp_path}/linked/file").size_bytes == 3


def test_half_written_files_do_not_show(store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(fd: int) -> None:
        assert store.list_sync(f"{tmp_path}/") == []
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("lance_io.store.local.atomic_writes.os.fsync", no_space)
    with pytest.raises(StoreError, match="No space left"):
        store.put_sync(f"{tmp_path}/f", b"123")
    assert os.listdir(tmp_path) == []


# -- writing ----------------------------------------------------------------------------------------------------------


async def _in_parts(key: str, durability: Durability) -> None:
    writer = await LocalStore().put_multipart(key, durability=durability)
    await writer.write_part(0, 0, b"content")
    await writer.complete()


WAYS: dict[str, Callable[[str, Durability], object]] = {
    "one": lambda key, durability: LocalStore().put_sync(key, b"content", durability=durability),
    "one if absent": lambda key, durability: LocalStore().put_sync(
        key, b"content", if_absent=True, durability=durability
    ),
    "parts": lambda key, durability: asyncio.run(_in_parts(key, durability)),
    "table": lambda key, durability: lance_io.write_dataset(TABLE, f"{key}/data", durability=durability),
}


@pytest.mark.parametrize("num_missing", [0, 1, 2, 3, 6])
@pytest.mark.parametrize("way", WAYS)
def test_every_name_that_leads_to_a_new_file_is_flushed(
    tmp_path: Path, flushed: list[str], way: str, num_missing: int
) -> None:
    folder = "/".join([str(tmp_path), *(f"f{depth}" for depth in range(num_missing))])
    WAYS[way](f"{folder}/name", "full")
    parents = {str(path.parent) for path in tmp_path.rglob("*")}
    assert len(parents) > num_missing and parents <= set(flushed)
    if way != "table":
        assert flushed[-1] == folder  # the file's own name comes last, when it is there


def test_folders_that_another_writer_has_just_made_are_flushed_too(
    store: LocalStore, tmp_path: Path, flushed: list[str]
) -> None:
    (tmp_path / "t" / "data").mkdir(parents=True)
    store.put_sync(f"{tmp_path}/t/data/name", b"content", durability="full")
    assert {f"{tmp_path}/t/data", f"{tmp_path}/t", f"{tmp_path}"} <= set(flushed)
    flushed.clear()
    store.put_sync(f"{tmp_path}/t/data/other", b"content", durability="full")
    assert f"{tmp_path}/t" not in flushed  # once is enough


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_flushed_unasked(tmp_path: Path, flushed: list[str], way: str) -> None:
    WAYS[way](f"{tmp_path}/a/b/c/name", "none")
    assert flushed == []


@pytest.mark.parametrize("if_absent", [False, True])
def test_nothing_is_left_beside_a_written_file(store: LocalStore, tmp_path: Path, if_absent: bool) -> None:
    store.put_sync(f"{tmp_path}/f", b"123", if_absent=if_absent)
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize("key", ["file", "", "folder/file", "./file"])
def test_keys_are_absolute(store: LocalStore, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="absolute"):
        store.put_sync(key, b"1")
    with pytest.raises(UsageError, match="absolute"):
        store.open_upload_sync(key)
    assert os.listdir(tmp_path) == []


def test_create_works_without_hard_links(store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("lance_io.store.local.atomic_writes.os.link", no_links)
    store.put_sync(f"{tmp_path}/f", b"first", if_absent=True)
    with pytest.raises(AlreadyExists):
        store.put_sync(f"{tmp_path}/f", b"second", if_absent=True)
    assert (tmp_path / "f").read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["f"]


async def test_a_condition_is_refused(store: LocalStore, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError):
        await store.put(f"{tmp_path}/f", b"1", if_match="x")
    await store.aclose()


# -- plans ------------------------------------------------------------------------------------------------------------


def test_a_scratch_is_used_unless_the_result_is_kept(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(range(100)))
    scratch = np.zeros(1000, np.uint8)
    ranges = Ranges.of((3, 6), (90, 95))
    assert store.read_sync([(str(tmp_path / "f"), ranges)], 0, scratch)[0].buffer is scratch
    ranges.keep = True
    assert store.read_sync([(str(tmp_path / "f"), ranges)], 0, scratch)[0].buffer is not scratch


@pytest.mark.parametrize(("gap_bytes", "num_reads", "num_bytes"), [(0, 3, 13), (10, 2, 23), (1000, 1, 105)])
def test_merged_reads_are_counted(
    store: LocalStore, tmp_path: Path, gap_bytes: int, num_reads: int, num_bytes: int
) -> None:
    (tmp_path / "f").write_bytes(bytes(200))
    store.read_sync([(str(tmp_path / "f"), Ranges.of((100, 105), (0, 5), (15, 18)))], gap_bytes)
    counts = store.stats.snapshot()["get"]
    assert (counts.requests, counts.num_bytes) == (num_reads, num_bytes)


@pytest.mark.parametrize("num_files", [0, 1, disk.NAMED_FILES_MIN - 1, 100])
def test_many_files_at_once_are_read_as_one_by_one(store: LocalStore, tmp_path: Path, num_files: int) -> None:
    wanted = []
    for number in range(num_files):
        path = tmp_path / f"{number}"
        path.write_bytes(np.random.default_rng(number).bytes(5000))
        wanted.append((str(path), Ranges.of((4000 - number, 4100), (number, 2 * number), (10, 20))))
    other = LocalStore()
    for (key, ranges), found in zip(wanted, store.read_sync(wanted, 50), strict=True):
        (alone,) = other.read_sync([(key, ranges)], 50)
        assert bytes(found.buffer) == bytes(alone.buffer)
        assert found.offsets.tolist() == alone.offsets.tolist()
        assert (found.num_reads, found.bytes_read) == (alone.num_reads, alone.bytes_read)
    assert store.stats.snapshot().operations == other.stats.snapshot().operations


@pytest.mark.parametrize("with_scratch", [False, True])
@pytest.mark.parametrize("num_files", [1, disk.NAMED_FILES_MIN - 1, 100])
def test_many_files_are_read_into_one_memory(tmp_path: Path, num_files: int, with_scratch: bool) -> None:
    store = LocalStore(stats=StoreStats(log_max=num_files))
    rng = np.random.default_rng(num_files)
    contents, keys, parts = [], [], []
    for number in range(num_files):
        contents.append(rng.bytes(5000))
        keys.append(str(tmp_path / f"{number}"))
        starts = rng.integers(0, 4000, 1 + number % 4)
        parts.append(Ranges(starts, starts + rng.integers(0, 900, len(starts))))
        (tmp_path / f"{number}").write_bytes(contents[-1])
    bounds = np.cumsum([0, *map(len, parts)]).tolist()
    ranges = Ranges(np.concatenate([one.starts for one in parts]), np.concatenate([one.ends for one in parts]))
    scratch = np.empty(100 * 5100, np.uint8) if with_scratch else None
    found = store.read_joined_sync(keys, ranges, bounds, 50, scratch)
    assert (found.buffer is scratch) == with_scratch
    memory, offsets = bytes(found.buffer), found.offsets.tolist()
    for content, part, first in zip(contents, parts, bounds[:-1], strict=True):
        for at, (start, end) in enumerate(zip(part.starts.tolist(), part.ends.tolist(), strict=True), first):
            assert memory[offsets[at] : offsets[at] + end - start] == content[start:end]
    other = LocalStore(stats=StoreStats(log_max=num_files))
    alone = [other.read_sync([asked], 50)[0] for asked in zip(keys, parts, strict=True)]
    assert (found.num_reads, found.bytes_read) == (
        sum(one.num_reads for one in alone),
        sum(one.bytes_read for one in alone),
    )
    assert store.stats.snapshot().operations == other.stats.snapshot().operations
    assert store.stats.log == other.stats.log


@pytest.mark.parametrize("num_others", [2, disk.NAMED_FILES_MIN])
@pytest.mark.parametrize(
    ("name", "kind"), [("gone", NotFound), ("short", ShortRead), ("folder", NotFound), ("pipe", StoreError)]
)
def test_of_many_files_the_one_that_fails_is_named(
    store: LocalStore, tmp_path: Path, name: str, kind: type[LanceError], num_others: int
) -> None:
    others = [f"other {number}" for number in range(num_others)]
    for other in ("short", *others):
        (tmp_path / other).write_bytes(bytes(3 if other == "short" else 100))
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    keys = [str(tmp_path / one) for one in (*others[:1], name, *others[1:])]
    with pytest.raises(kind) as caught:
        store.read_sync([(key, Ranges.of((0, 50))) for key in keys], 0)
    assert caught.value.path == str(tmp_path / name)
    joined = Ranges.of(*[(0, 50)] * len(keys))
    with pytest.raises(kind) as caught:
        store.read_joined_sync(keys, joined, range(len(keys) + 1), 0)
    assert caught.value.path == str(tmp_path / name)


# -- listings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delimiter", [None, "/"])
def test_listings_go_on_behind_keys(delimiter: str | None, tmp_path: Path) -> None:
    """From any key on, and after the limit behind any other, with folders between files; against a whole listing."""
    names = ["05", "1", "10", "2/b", "2/c", "2-x", "20", "3", "a", "a.b/c", "b"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    prefix = f"{tmp_path}/"
    tops = {name if "/" not in name else f"{name.partition('/')[0]}/" for name in names}
    every = [prefix + name for name in sorted(names if delimiter is None else tops)]
    keys = [*every, *(prefix + name for name in names), f"{prefix}15", f"{prefix}z", prefix, str(tmp_path.parent), "/~"]
    for start_after, also_behind in itertools.product([None, *keys], keys):
        rest = [key for key in every if start_after is None or key > start_after]
        for limit in (1, 4, 20):
            behind = [key for key in rest[limit:] if key > also_behind]
            asked = Selection(start_after, limit, delimiter, keys_only=True, also_behind=also_behind)
            assert [meta.key for meta in list_files(prefix, asked)] == [*rest[:limit], *behind[:1]]


def test_names_before_a_key_cost_nothing(tmp_path: Path) -> None:
    """Opening a table looks for one name behind those of all versions."""
    for number in range(200):
        (tmp_path / f"{number:03}").touch()
    compared = []

    class Key(str):
        __slots__ = ()

        def __lt__(self, other: str) -> bool:
            compared.append(other)
            return str(self) < other

    asked = Selection(Key(f"{tmp_path}/197"), None, "/", keys_only=True)
    assert len(list(list_files(f"{tmp_path}/", asked))) == 2
    assert len(compared) <= 3


# -- forks ------------------------------------------------------------------------------------------------------------


def test_a_forked_child_reads_with_the_parents_store(store: LocalStore, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"123456")
    assert bytes(asyncio.run(store.get_range(str(path), 0, 3))) == b"123"  # now there are a pool and an open file
    with store._pool_lock, store.stats._lock, store._files._lock:  # as if other threads held them
        pid = os.fork()
        if pid == 0:
            try:
                found = read(store, path, 1, 4), bytes(asyncio.run(store.get_range(str(path), 1, 4)))
                os._exit(0 if found == (b"234", b"234") else 1)
            finally:
                os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    asyncio.run(store.aclose())
