"""A disk cache as processes use it: full disks, kills, forks, exits; and what threads touch files."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
import threading
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lance_io import _kernels
from lance_io.errors import NotFound, UsageError
from lance_io.limits import KIB, MIB
from lance_io.store.disk_cache import database_files, private_folder, range_database
from lance_io.store.disk_cache.cached_store import CachedStore
from lance_io.store.disk_cache.disk_cache import PAUSE_S, DiskCache, open_disk_cache
from lance_io.store.disk_cache.fixed_objects import NameSpace
from lance_io.store.memory import MemoryStore
from lance_io.store.offers import Flow, WantedRange, flow
from lance_io.testing.wrap import WrappedStore
from tests.io.fakes import FakeStartStore
from tests.seeds import seed_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lance_io.store.offers import StartedRead

PROCESSES = int(os.environ.get("LANCE_IO_CACHE_PROCESSES", "12"))  # in all; the campaign starts a thousand
ALIVE = min(48, max(4, PROCESSES // 3))
NAMES = NameSpace("store", "me")
KEY = f"t.lance/data/{'01' * 12}{'ab' * 13}.lance"


def look(cache: DiskCache, *keys: str, length: int = 1000) -> list[bytes | None]:
    found = cache.find([NAMES.of_range(key, 0, length) for key in keys]).result()
    return [None if data is None else bytes(data) for data in found]


def files_bytes(path: Path) -> int:
    """Of all files that are there when they are asked: other processes may take some away meanwhile."""
    total = 0
    for file in path.rglob("*"):
        with suppress(FileNotFoundError):
            found = file.stat()
            total += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return total


def test_what_was_kept_is_found_and_counted(tmp_path: Path) -> None:
    cache = open_disk_cache(tmp_path, 8 * MIB)
    assert open_disk_cache(f"{tmp_path}/.", 8 * MIB) is cache
    assert look(cache, "a") == [None]
    cache.keep(NAMES.of_range("a", 0, 1000), bytes(1000))
    cache.keep(NAMES.of_range("b", 0, 1000), b"b" * 1000)
    cache.forget(NAMES.of_range("b", 0, 1000).object_id)
    assert cache.flush()
    assert look(cache, "a", "b") == [bytes(1000), None]
    stats = cache.stats
    assert (stats.hits, stats.misses, stats.bytes_found, stats.bytes_kept) == (1, 2, 1000, 1000)
    assert stats.bytes == files_bytes(tmp_path)
    assert stats.capacity_bytes == 8 * MIB


def test_what_does_not_fit_is_dropped(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path), 8 * MIB)
    cache.keep(NAMES.of_range("a", 0, 8 * MIB), bytes(8 * MIB))
    cache.flush()
    assert cache.stats.dropped == 1
    with pytest.raises(UsageError, match="at least"):
        DiskCache(str(tmp_path), 1000)


def test_bytes_that_became_others_are_read_anew(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path), 8 * MIB)
    content = {f"k{number}": random.Random(number).randbytes(1000) for number in range(20)}
    for key, data in content.items():
        cache.keep(NAMES.of_range(key, 0, 1000), data)
    cache.flush()
    cache._database.close()
    (file,) = tmp_path.rglob("*.bytes")
    held = bytearray(file.read_bytes())
    for data in content.values():
        held[held.index(data[:32]) + 7] ^= 4
    file.write_bytes(held)
    assert look(cache, *content) == [None] * 20
    cache.flush()
    assert cache.stats.damaged == 20
    for key, data in content.items():
        cache.keep(NAMES.of_range(key, 0, 1000), data)
    cache.flush()
    assert look(cache, *content) == list(content.values())


def test_a_file_that_is_none_is_begun_anew(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path), 8 * MIB)
    Path(cache._database.folder).mkdir(0o700)
    Path(cache._database.folder, "ranges-1.sqlite").write_bytes(b"no database, but long enough for one" * 400)
    assert look(cache, "a") == [None]
    cache.keep(NAMES.of_range("a", 0, 1000), bytes(1000))
    cache.flush()
    assert look(cache, "a") == [bytes(1000)]
    assert cache.stats.damaged == 1


def test_a_disk_that_takes_nothing_is_left_alone_for_a_while(tmp_path: Path) -> None:
    now = 0.0
    cache = DiskCache(str(tmp_path / "file" / "below"), 8 * MIB, clock=lambda: now)
    (tmp_path / "file").write_bytes(b"")
    assert look(cache, "a") == [None]
    assert not cache.is_up
    cache.keep(NAMES.of_range("a", 0, 1000), bytes(1000))
    assert look(cache, "a") == [None]
    assert (cache.stats.pauses, cache.stats.dropped) == (1, 1)
    (tmp_path / "file").unlink()
    now += PAUSE_S
    assert cache.is_up
    cache.keep(NAMES.of_range("a", 0, 1000), bytes(1000))
    cache.flush()
    assert look(cache, "a") == [bytes(1000)]


FULL_DISK = """
import resource, sys
from lance_io.store.disk_cache.disk_cache import DiskCache
from lance_io.store.disk_cache.fixed_objects import NameSpace
names, cache = NameSpace("store", "me"), DiskCache(sys.argv[1], 64 << 20)
cache.keep(names.of_range("a", 0, 1000), bytes(1000))
assert cache.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, 1 << 18))
for number in range(200):
    cache.keep(names.of_range(f"b{number}", 0, 10_000), bytes(10_000))
    cache.flush()
    (found,) = cache.find([names.of_range("a", 0, 1000)]).result()
    assert found is None or found == bytes(1000)
assert cache.stats.pauses == 1 and cache.stats.dropped > 100, cache.stats
"""


def test_reads_go_on_when_the_disk_is_full(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FULL_DISK, str(tmp_path)], check=True)
    cache = DiskCache(str(tmp_path), 64 * MIB)
    (data,) = look(cache, "a")
    assert data == bytes(1000)


WORKER = """
import itertools, random, sys, zlib
from lance_io.store.disk_cache.disk_cache import DiskCache
from lance_io.store.disk_cache.fixed_objects import NameSpace
path, seed, capacity = sys.argv[1], sys.argv[2], int(sys.argv[3])
seconds = itertools.count()  # one for each question: a pause for a full disk does not outlast the process
names, dice = NameSpace("store", "me"), random.Random(seed)
cache = DiskCache(path, capacity, clock=lambda: next(seconds))
def content(number): return random.Random(number).randbytes(200 + number * 61 % 40_000)
print("up", flush=True)
for _ in range(30):
    wanted = [dice.randrange(400) for _ in range(8)]
    right = [content(number) for number in wanted]
    found = cache.find([names.of_range(f"o{n}", 0, len(data)) for n, data in zip(wanted, right)]).result()
    for number, data, copy in zip(wanted, right, found):
        if copy is None:
            cache.keep(names.of_range(f"o{number}", 0, len(data)), data)
        elif copy != data:
            sys.exit(f"wrong bytes of {number}")
cache.flush()
stats = cache.stats
print(stats.hits, stats.damaged, stats.pauses, flush=True)
"""


@contextmanager
def small_disk(path: Path, size_bytes: int) -> Iterator[None]:
    """A file system of that size; skips the test where none can be mounted."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "none", str(path)]
    if sys.platform != "linux" or os.geteuid() or subprocess.run(command, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("needs to mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def others_write(disk: Path, num_blocks: int) -> None:
    """So much of a disk is taken by others, as far as it is free."""
    with suppress(OSError), (disk / "others").open("wb", buffering=0) as file:
        for _ in range(num_blocks):
            file.write(bytes(16 * KIB))


@pytest.mark.parametrize("is_full", [False, True])
def test_many_processes_share_it_and_some_are_killed(tmp_path: Path, is_full: bool) -> None:
    """On a disk with room for what is allowed, or on one that others fill and empty meanwhile."""
    with ExitStack() as stack:
        if is_full:
            stack.enter_context(small_disk(tmp_path / "disk", 5 * MIB))
        folder = tmp_path / "disk" / "cache"
        pauses = share(folder, 4 * MIB, folder.parent if is_full else None)
        assert is_full or pauses == 0
        now = 0.0
        cache = DiskCache(str(folder), 4 * MIB, clock=lambda: now)
        if is_full:
            others_write(folder.parent, 400)
            for number in range(20):
                cache.keep(NAMES.of_range(f"b{number}", 0, 200_000), bytes(200_000))
            cache.flush()
            assert cache.stats.pauses == 1
            (folder.parent / "others").unlink()
            now += PAUSE_S
        cache.keep(NAMES.of_range("a", 0, 1000), bytes(1000))
        cache.flush()
        assert look(cache, "a") == [bytes(1000)]
        assert cache.stats.damaged == 0
        cache._database.close()


def end(process: subprocess.Popen[str]) -> None:
    """Leave nothing of a process behind, whatever became of the test."""
    if process.poll() is None:
        process.kill()
        process.communicate()


def share(folder: Path, capacity: int, filled: Path | None) -> int:
    """Have many processes use one cache, and kill every tenth; returns how often their disk took nothing.

    filled  the disk that others fill and empty meanwhile, if any
    """
    dice = random.Random(seed_of(5))
    alive: list[tuple[subprocess.Popen[str], bool]] = []
    hits = pauses = most = started = 0
    with ExitStack() as stack:
        while started < PROCESSES or alive:
            while started < PROCESSES and len(alive) < ALIVE:
                command = [sys.executable, "-c", WORKER, str(folder), f"{seed_of(6)} {started}", str(capacity)]
                process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                stack.callback(end, process)
                alive.append((process, started % 10 == 9))
                started += 1
            if filled is not None:
                others_write(filled, dice.choice((0, 40, 400)))  # nothing, a part, or all of it
            process, is_killed = alive.pop(0)
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            if is_killed:
                for _ in range(dice.randrange(3)):
                    most = max(most, files_bytes(folder))
                process.send_signal(signal.SIGKILL)
                process.communicate()
                continue
            told = process.stdout.read()
            _, errors = process.communicate()
            most = max(most, files_bytes(folder))
            assert process.returncode == 0, errors
            found, damaged, paused = map(int, told.split())
            assert damaged == 0
            hits, pauses = hits + found, pauses + paused
    assert hits > 0
    assert most <= capacity
    return pauses


def in_child(work: Callable[[], object]) -> int:
    """The exit status of a forked child that does something."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_has_a_connection_and_locks_of_its_own(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path), 8 * MIB)
    cache.keep(NAMES.of_range("a", 0, 1000), bytes(1000))
    cache.flush()
    assert look(cache, "a") == [bytes(1000)]
    cache.keep(NAMES.of_range("b", 0, 1000), bytes(1000))  # may be under way, or in line

    def work() -> None:
        assert look(cache, "a") == [bytes(1000)]
        if sys.platform == "linux":
            with cache._database._reader as connection:
                connection.execute("BEGIN")
                connection.execute("SELECT now FROM clock").fetchone()
                locks = [line for line in Path("/proc/locks").read_text().splitlines() if f" {os.getpid()} " in line]
                connection.execute("COMMIT")
            assert len(locks) >= 1
        cache.keep(NAMES.of_range("c", 0, 1000), b"c" * 1000)
        assert cache.flush()

    assert in_child(work) == 0
    assert look(cache, "a", "c") == [bytes(1000), b"c" * 1000]
    cache.flush()
    assert look(cache, "b") == [bytes(1000)]


def test_what_is_in_line_is_written_when_the_interpreter_ends(tmp_path: Path) -> None:
    program = """
        import sys
        from lance_io.store.disk_cache.disk_cache import DiskCache
        from lance_io.store.disk_cache.fixed_objects import NameSpace
        cache = DiskCache(sys.argv[1], 64 << 20)
        for number in range(300):
            cache.keep(NameSpace("store", "me").of_range(f"k{number}", 0, 10_000), bytes(10_000))
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program), str(tmp_path)], check=True)
    cache = DiskCache(str(tmp_path), 64 * MIB)
    assert look(cache, *[f"k{number}" for number in range(300)], length=10_000) == [bytes(10_000)] * 300


# -- as a store ----------------------------------------------------------------------------------------------------


class Held:
    """Waits for started reads."""

    def __init__(self) -> None:
        self.over: list[StartedRead] = []
        self.again: list[tuple[Any, bool]] = []
        self._came = asyncio.Event()

    def on_done(self, over: Any) -> None:
        self.over += over
        self._came.set()

    def on_retry(self, tag: Any, late: bool) -> None:
        self.again.append((tag, late))

    async def wait(self, count: int) -> None:
        while len(self.over) < count:
            self._came.clear()
            await self._came.wait()


async def find(store: CachedStore, *wanted: WantedRange) -> list[memoryview | None]:
    return await asyncio.wrap_future(store.find_ranges(wanted))


async def test_ranges_that_were_read_are_found(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(1000)
    inner = FakeStartStore({KEY: data, "other": data})
    store = CachedStore(inner, DiskCache(str(tmp_path), 8 * MIB), "me")
    memory = bytearray(10)
    scan = Flow(reads_once=True)
    wanted = [
        WantedRange(KEY, 0, 10, memoryview(memory), None, "a"),
        WantedRange(KEY, 500, 600, None, None, "b"),
        WantedRange("other", 0, 10, None, None, "c"),
        WantedRange(KEY, 20, 30, None, scan, "d"),
    ]
    assert [store.may_be_cached(one.key, one.operation) for one in wanted] == [True, True, False, False]
    assert await find(store, *wanted) == [None] * 4
    held = Held()
    started = store.start_ranges(wanted, held.on_done, held.on_retry)
    assert [one.tag for one in started] == ["a", "b", "c", "d"]
    await held.wait(4)
    for one, (key, start, end, *_) in zip(started, wanted, strict=True):
        answer = one.result()
        assert answer is not None  # what is kept is never in memory that is used again
        assert bytes(answer) == inner.files[key][start:end]
    assert len(inner.log) == 4
    assert store.cache.flush()
    there = await find(store, *wanted)
    assert there[0] is wanted[0].memory
    assert bytes(memory) == data[:10]
    assert there[1:] == [data[500:600], None, None]
    assert len(inner.log) == 4


async def test_what_is_given_up_is_told_to_nobody(tmp_path: Path) -> None:
    inner = FakeStartStore({KEY: bytes(1000)})
    inner.held = True
    store = CachedStore(inner, DiskCache(str(tmp_path), 8 * MIB), "me")
    held = Held()
    first, second = store.start_ranges(
        [WantedRange(KEY, 0, 10, tag=1), WantedRange(KEY, 500, 510, tag=2)], held.on_done, held.on_retry
    )
    while inner.in_flight < 2:  # noqa: ASYNC110
        await asyncio.sleep(0)
    first.cancel()
    second.cancel()
    while inner.in_flight:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert held.over == []
    assert inner.log == inner.cancelled == [(KEY, 0, 10), (KEY, 500, 510)]
    store.cache.flush()
    assert store.cache.stats.bytes_kept == 0


@pytest.mark.parametrize("starts", [True, False])
async def test_errors_come_through(tmp_path: Path, starts: bool) -> None:
    inner: Any = FakeStartStore({KEY: bytes(1000)}) if starts else WrappedStore(MemoryStore())
    if starts:
        inner.failures[KEY, 0] = NotFound("gone", path=KEY)
    store = CachedStore(inner, DiskCache(str(tmp_path), 8 * MIB), "me")
    held = Held()
    (read,) = store.start_ranges([WantedRange(KEY, 0, 10)], held.on_done, held.on_retry)
    await held.wait(1)
    with pytest.raises(NotFound):
        read.result()
    with pytest.raises(NotFound):
        await store.get_range(KEY, 0, 10)


async def test_what_went_wrong_in_the_thread_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CachedStore(FakeStartStore({KEY: bytes(1000)}), DiskCache(str(tmp_path), 8 * MIB), "me")

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(range_database.RangeDatabase, "find_many", fail)
    with pytest.raises(MemoryError):
        await find(store, WantedRange(KEY, 0, 10))
    with pytest.raises(MemoryError):
        await store.get_range(KEY, 0, 10)


async def test_a_store_that_begins_no_reads(tmp_path: Path) -> None:
    memory = MemoryStore()
    data = random.Random(2).randbytes(5000)
    memory.put_sync(KEY, data)
    store = CachedStore(WrappedStore(memory), DiskCache(str(tmp_path), 8 * MIB), "me")
    for requests in (4, 0):
        before = memory.stats.snapshot()
        wanted, held = [WantedRange(KEY, 7, 900)], Held()
        (found,) = await find(store, *wanted)
        if found is None:
            (read,) = store.start_ranges(wanted, held.on_done, held.on_retry)
            await held.wait(1)
            found = memoryview(read.result() or b"")
        assert bytes(found) == data[7:900]
        assert bytes(await store.get_range(KEY, 10, 20) if requests == 0 else data[10:20]) == data[10:20]
        assert bytes(await store.get_range(KEY, 1000, 2000)) == data[1000:2000]
        tail, size, etag = await store.get_suffix(KEY, 100)
        assert (bytes(tail), size, etag) == (data[-100:], 5000, memory.head_sync(KEY).etag)
        whole, meta = await store.get(KEY)
        assert (bytes(whole), meta.size_bytes) == (data, 5000)
        assert (memory.stats.snapshot() - before)["get"].requests == requests
        store.cache.flush()
    token = flow.set(Flow(reads_once=True))
    before = memory.stats.snapshot()
    await store.get_range(KEY, 1000, 2000)
    assert (memory.stats.snapshot() - before)["get"].requests == 1
    flow.reset(token)


async def test_copies_of_what_is_written_over_are_gone(tmp_path: Path) -> None:
    store = CachedStore(WrappedStore(MemoryStore()), DiskCache(str(tmp_path), 8 * MIB), "me")
    one, two = "t/_versions/1.manifest", "t/_versions/2.manifest"

    def keep() -> None:
        store.keep_copy(one, "e1", b"first")
        store.keep_copy(two, None, b"second")
        store.cache.flush()

    async def there() -> tuple[Any, Any]:
        store.cache.flush()
        return await store.find_copy(one, None), await store.find_copy(two, None)

    keep()
    assert await there() == (b"first", b"second")
    assert await store.find_copy(one, "e1") == b"first"
    assert await store.find_copy(one, "e2") is None
    await store.put(one, b"other")
    assert await there() == (None, b"second")
    await store.copy(one, two)
    assert await there() == (None, None)
    keep()
    await store.delete([two])
    assert await there() == (b"first", None)
    with pytest.raises(NotFound):
        await store.get_range(KEY.replace("t.lance", "t"), 0, 10)
    assert await there() == (None, None)


async def test_no_thread_but_its_own_touches_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[str] = set()

    def watched(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            threads.add(threading.current_thread().name)
            return function(*args, **kwargs)

        return call

    class Watched:
        """A module, as another one sees it."""

        def __init__(self, module: Any, names: set[str]) -> None:
            self.module, self.names = module, names

        def __getattr__(self, name: str) -> Any:
            found = getattr(self.module, name)
            return watched(found) if name in self.names else found

    monkeypatch.setattr(database_files, "sqlite3", Watched(sqlite3, {"connect"}))
    calls = {"access", "close", "fchmod", "fstat", "ftruncate", "link", "listdir", "lstat", "mkdir", "open", "pread"}
    calls |= {"pwrite", "stat", "unlink", "write"}
    for module in (database_files, private_folder, range_database):
        monkeypatch.setattr(module, "os", Watched(os, calls))
    monkeypatch.setattr(range_database, "_kernels", Watched(_kernels, {"read_copies"}))
    for name in ("find_many", "keep_many", "remove", "start_new_files", "disk_bytes"):
        monkeypatch.setattr(range_database.RangeDatabase, name, watched(getattr(range_database.RangeDatabase, name)))
    memory = MemoryStore()
    memory.put_sync(KEY, bytes(1000))
    cache = DiskCache(str(tmp_path), 8 * MIB)
    store = CachedStore(WrappedStore(memory), cache, "me")
    for _ in range(2):
        await store.get_range(KEY, 0, 10)
        await store.get(KEY)
        await store.get_suffix(KEY, 4)
        held = Held()
        await find(store, WantedRange(KEY, 5, 10))
        store.start_ranges([WantedRange(KEY, 5, 10)], held.on_done, held.on_retry)
        await held.wait(1)
        store.keep_copy("t/_versions/1.manifest", "e", b"first")
        await store.find_copy("t/_versions/1.manifest", None)
        await store.delete(["t/_versions/1.manifest"])
        await asyncio.to_thread(cache.flush)
        assert cache.stats.bytes > 0
    assert {name.rpartition("_")[0] for name in threads} == {"lance_io-cache-read", "lance_io-cache-write"}
