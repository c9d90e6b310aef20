"""One process's use of the disk cache: threads, write queue, pauses, forks, counters.

    find   in one thread, `lance_io-cache-read`
    keep   is queued, within a limit in bytes, and written by another thread, `lance_io-cache-write`; if the queue is
           full, the copy is dropped

No other thread touches a file. A cache failure never fails a read: if the disk is full or broken, or other users could
have written the folder, the cache pauses for a while; damaged files are replaced. The only effect is that bytes come
from the store.

Before a fork both connections are closed, and opened again on the next use: SQLite tracks its locks by file, not by
process, so a child that opened the file again while it inherits an open one would hold none.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import warnings
import weakref
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import UsageError
from lance_io.limits import MIB
from lance_io.redaction import get_logger
from lance_io.runtime.pool import LastingPool
from lance_io.store.disk_cache.cache_counts import COUNTED, DISK_CACHES, DiskCacheStats
from lance_io.store.disk_cache.range_database import CAPACITY_BYTES_MIN, Busy, Damaged, RangeDatabase, Refused, Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from lance_io.store.disk_cache.fixed_objects import CopyName
    from lance_io.store.disk_cache.range_database import ObjectCopies

WAITING_BYTES_MAX: Final = 64 * MIB  # in the write queue
MARKS_AT_ONCE: Final = 64  # used copies that are worth a transaction of their own
PAUSE_S: Final = 30.0  # pause after a disk error
EXIT_S_MAX: Final = 5.0  # timeout for writing the queue at interpreter exit
FOLDER: Final = "lance-io-cache-3"  # below the user's folder; the number is the version of the file format

_logger = get_logger(__name__)


class DiskCache:
    """See the module's docstring. Safe from any thread; `open_disk_cache` returns the shared one of a folder.

    path            a folder, which need not exist
    capacity_bytes  limit of its size on disk
    clock           returns seconds, for pauses
    """

    def __init__(self, path: str, capacity_bytes: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        if capacity_bytes < CAPACITY_BYTES_MIN:
            raise UsageError(f"disk_cache_bytes must be at least {CAPACITY_BYTES_MIN}, found {capacity_bytes}")
        self.path = path
        self.capacity_bytes = capacity_bytes
        self._clock = clock
        self._database = RangeDatabase(os.path.join(path, FOLDER), capacity_bytes)
        self._disk_bytes = 0
        self._resume_s = 0.0  # by the clock; until then the cache pauses
        self._counts = {name: [0] for name in COUNTED}
        self.start_over()
        DISK_CACHES.follow(self, self._counts)
        _caches.add(self)
        weakref.finalize(self, _forgotten.append, self._database).atexit = False

    def start_over(self) -> None:
        """Reset locks and queue (after a fork: queued copies belong to the parent)."""
        self._reading, self._writing = threading.Lock(), threading.Lock()
        self._guard = threading.Condition(threading.Lock())  # guards all below, and the counters
        self._waiting: deque[tuple[CopyName, Any]] = deque()
        self._waiting_bytes = 0
        self._used: dict[int, None] = {}
        self._unwanted: set[int] = set()
        self._changed: set[ObjectCopies] = set()
        self._is_writing = False

    def __repr__(self) -> str:
        return f"DiskCache({self.path!r}, {self.capacity_bytes} bytes)"

    @property
    def is_up(self) -> bool:
        """Whether the cache is in use: it does not pause."""
        return self._clock() >= self._resume_s

    @property
    def stats(self) -> DiskCacheStats:
        """A consistent copy of the counters."""
        with self._guard:
            counts = {name: number for name, (number,) in self._counts.items()}
            return DiskCacheStats(**counts, bytes=self._disk_bytes, capacity_bytes=self.capacity_bytes)

    def _count(self, name: str, number: int = 1) -> None:
        """Increase a counter; under the guard."""
        self._counts[name][0] += number

    # -- looking ------------------------------------------------------------------------------------------------

    def find(
        self, names: Sequence[CopyName], memories: Sequence[memoryview | None] | None = None
    ) -> Future[list[memoryview | None]]:
        """Copies of names, None for misses; the future never has an error.

        memories  destinations for copies; see `RangeDatabase.find_many`
        """
        return _pool("read").submit(self._find, names, memories)

    def open_soon(self) -> None:
        """Open the files in the background, before they are needed; returns at once."""
        if self.is_up and not self._database.is_open:
            self.find([])

    def _find(self, names: Sequence[CopyName], memories: Sequence[memoryview | None] | None) -> list[memoryview | None]:
        nothing: list[memoryview | None] = [None] * len(names)
        copies_found, damaged, stale = nothing, [], []
        if self.is_up:
            try:
                _close_forgotten()
                with self._reading:
                    findings = self._database.find_many(names, memories)
            except Busy:
                pass
            except Damaged:
                self._replace_files()
            except Unusable as error:
                self._pause(error)
            else:
                copies_found = [None if copy is None else copy.data for copy in findings.copies]
                damaged = findings.damaged
                stale = [copy.copy_id for copy in findings.copies if copy is not None and copy.is_stale]
        hits = [data for data in copies_found if data is not None]
        with self._guard:
            self._count("hits", len(hits))
            self._count("misses", len(copies_found) - len(hits))
            self._count("bytes_found", sum(map(len, hits)))
            self._count("damaged", len(damaged))
            self._unwanted.update(damaged)
            self._used.update(dict.fromkeys(stale))
            self._write_soon()
        return copies_found

    def _replace_files(self) -> None:
        """Replace damaged files."""
        with self._guard:
            self._count("damaged")
        try:
            with self._reading, self._writing:
                self._database.start_new_files()
        except Busy:
            pass
        except (Unusable, Damaged) as error:
            self._pause(error)

    def _pause(self, error: Exception) -> None:
        with self._guard:
            self._resume_s = self._clock() + PAUSE_S
            self._count("pauses")
        if isinstance(error, Refused):
            _warn(error)

    # -- keeping ------------------------------------------------------------------------------------------------

    def keep(self, name: CopyName, data: Any) -> None:
        """Keep bytes, which must not change any more; returns at once.

        data  a buffer of bytes
        """
        with self._guard:
            num_bytes = len(data)
            if (
                not num_bytes
                or num_bytes > self._database.batch_bytes_max
                or self._waiting_bytes + num_bytes > WAITING_BYTES_MAX
                or not self.is_up
            ):
                self._count("dropped")
                return
            self._waiting.append((name, data))
            self._waiting_bytes += num_bytes
            self._write_soon()

    def forget(self, object_id: bytes, start: int | None = None) -> None:
        """Remove the copies of an object, queued ones included; returns at once.

        start  only copies that begin at this offset
        """
        with self._guard:
            gone = [item for item in self._waiting if item[0].object_id == object_id and start in (None, item[0].start)]
            if gone:
                self._waiting = deque(item for item in self._waiting if not any(item is each for each in gone))
                self._waiting_bytes -= sum(len(data) for _, data in gone)
            self._changed.add((object_id, start))
            self._write_soon()

    def flush(self, seconds: float | None = None) -> bool:
        """Wait until the queue is written or dropped, at most `seconds`. False after a timeout."""
        with self._guard:
            self._write_soon(marks=1)
            return self._guard.wait_for(lambda: not self._is_writing, seconds)

    def _write_soon(self, marks: int = MARKS_AT_ONCE) -> None:
        """Start writing the queue; fewer than `marks` marks alone do not start it. The caller holds the guard."""
        if self._is_writing:
            return
        if self._waiting or self._unwanted or self._changed or len(self._used) >= marks:
            self._is_writing = True
            try:
                _pool("write").submit(self._write_all)
            except RuntimeError:  # the interpreter is shutting down
                self._is_writing = False

    def _write_all(self) -> None:
        try:
            while self._write_some():
                pass
        except BaseException:
            with self._guard:
                self._is_writing = False
                self._guard.notify_all()
            raise

    def _write_some(self) -> bool:
        """One transaction. False if the queue is empty."""
        with self._guard:
            batch: list[tuple[CopyName, Any]] = []
            batch_bytes = 0
            bytes_max, copies_max = self._database.batch_bytes_max, self._database.batch_copies_max
            while self._waiting and len(batch) < copies_max and batch_bytes + len(self._waiting[0][1]) <= bytes_max:
                batch.append(self._waiting.popleft())
                batch_bytes += len(batch[-1][1])
            used = [self._used.popitem()[0] for _ in range(min(copies_max, len(self._used)))]
            unwanted = [self._unwanted.pop() for _ in range(min(copies_max, len(self._unwanted)))]
            changed, self._changed = self._changed, set()
            if not (batch or used or unwanted or changed):
                self._is_writing = False
                self._guard.notify_all()
                return False
            self._waiting_bytes -= batch_bytes
        num_kept = num_evicted = 0
        if self.is_up:
            try:
                _close_forgotten()
                with self._writing:
                    if unwanted or changed:
                        self._database.remove(unwanted, changed)
                    if batch or used:
                        num_evicted = self._database.keep_many(batch, used)
                    disk_bytes = self._database.disk_bytes()
                num_kept = len(batch)
                self._disk_bytes = disk_bytes
            except Busy:
                pass
            except Damaged:
                self._replace_files()
            except Unusable as error:
                self._pause(error)
        with self._guard:
            self._count("bytes_kept", batch_bytes if num_kept else 0)
            self._count("dropped", len(batch) - num_kept)
            self._count("evictions", num_evicted)
        return True

    # -- fork ---------------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Close the files, and keep threads from opening them."""
        self._reading.acquire()
        self._writing.acquire()
        self._database.close()

    def after_fork_in_parent(self) -> None:
        """Let the threads continue."""
        self._writing.release()
        self._reading.release()


def open_disk_cache(path: str | os.PathLike[str], capacity_bytes: int) -> DiskCache:
    """The cache in a folder, shared by all callers in a process with the same limit. Touches no file.

    Raises `UsageError` for a limit below `CAPACITY_BYTES_MIN`.
    """
    folder = os.path.abspath(os.path.expanduser(os.fspath(path)))
    with _lock:
        cache = _open.get((folder, capacity_bytes))
        if cache is None:
            cache = _open[folder, capacity_bytes] = DiskCache(folder, capacity_bytes)
        return cache


def _warn(refused: Refused) -> None:
    """Warn once for each folder or file why the cache does not use it."""
    with _lock:
        if refused.path in _warned_of:
            return
        _warned_of.add(refused.path)
    text = (
        f"the disk cache is not used: {refused}. Other users may have written it. Remove the folder, and this process"
        " creates its own; or choose another one (disk_cache, LANCE_IO_DISK_CACHE)"
    )
    try:
        warnings.warn(text, UserWarning, stacklevel=2)
    except UserWarning:  # warnings are errors: that would end a thread, not the program
        _logger.warning("%s", text)


_lock = threading.Lock()
_warned_of: set[str] = set()
_caches: weakref.WeakSet[DiskCache] = weakref.WeakSet()
_open: weakref.WeakValueDictionary[tuple[str, int], DiskCache] = weakref.WeakValueDictionary()
_forgotten: deque[RangeDatabase] = deque()
"""Files of caches that were garbage collected, to be closed by the next thread that touches one.

Garbage collection runs anywhere, so it must take no lock.
"""
_pools: dict[str, LastingPool] = {}
_pools_lock = threading.Lock()


def _pool(purpose: str) -> LastingPool:
    pool = _pools.get(purpose)
    if pool is None:
        with _pools_lock:
            pool = _pools.get(purpose)
            if pool is None:
                pool = LastingPool(1, f"lance_io-cache-{purpose}")
                if not _pools:
                    atexit.register(_flush_all)  # registered after that of the pools, so that it runs before it
                _pools[purpose] = pool
    return pool


def _close_forgotten() -> None:
    while _forgotten:
        with suppress(IndexError):  # another thread took it
            _forgotten.popleft().close()


def _flush_all() -> None:
    """At interpreter exit: write the queue, for the next process."""
    ends_s = time.monotonic() + EXIT_S_MAX
    for cache in list(_caches):
        cache.flush(max(0.0, ends_s - time.monotonic()))


_held: list[DiskCache] = []  # held by the forking thread


def _before_fork() -> None:
    for cache in list(_caches):
        cache.before_fork()
        _held.append(cache)
    _close_forgotten()


def _in_parent() -> None:
    while _held:
        _held.pop().after_fork_in_parent()


def _in_child() -> None:
    global _lock, _pools_lock
    _held.clear()
    _lock, _pools_lock = threading.Lock(), threading.Lock()
    if _pools:
        atexit.unregister(_flush_all)
        _pools.clear()
    for cache in list(_caches):
        cache.start_over()


os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
