"""The disk cache as one process uses it: threads, what waits to be written, pauses, forks, counters.

    find   in one thread, `lance_io-cache-read`
    keep   is put in line, within a bound in bytes, and written by another, `lance_io-cache-write`; what does not fit in
           line is dropped

No other thread touches a file. A cache is never a reason to fail: where the disk is full or broken it is left alone for
a while, and so is a folder that others could have written; where the file is damaged a new one is begun, and all that
happens is that bytes come from the store.

Before a fork both connections are closed, and opened again by whoever needs them: SQLite remembers its locks by file,
not by process, so that a child that opened the file again while it inherits an open one would hold none.
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

WAITING_BYTES_MAX: Final = 64 * MIB  # in line to be written
MARKS_AT_ONCE: Final = 64  # of copies that were used, which are worth a transaction of their own
PAUSE_S: Final = 30.0  # how long a disk is left alone that takes or gives nothing
EXIT_S_MAX: Final = 5.0  # interpreter exit waits this long for what is in line
FOLDER: Final = "lance-io-cache-3"  # below what the user names; the number is that of the form of the files

_logger = get_logger(__name__)


class DiskCache:
    """See the module's description. Safe from any thread; `open_disk_cache` gives the one of a folder.

    path            a folder, which need not exist
    capacity_bytes  bound on what it takes on disk
    clock           gives seconds, for pauses
    """

    def __init__(self, path: str, capacity_bytes: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        if capacity_bytes < CAPACITY_BYTES_MIN:
            raise UsageError(f"disk_cache_bytes must be at least {CAPACITY_BYTES_MIN}, found {capacity_bytes}")
        self.path = path
        self.capacity_bytes = capacity_bytes
        self._clock = clock
        self._database = RangeDatabase(os.path.join(path, FOLDER), capacity_bytes)
        self._disk_bytes = 0
        self._resume_s = 0.0  # by the clock; until then the disk is left alone
        self._counts = {name: [0] for name in COUNTED}
        self.start_over()
        DISK_CACHES.follow(self, self._counts)
        _caches.add(self)
        weakref.finalize(self, _forgotten.append, self._database).atexit = False

    def start_over(self) -> None:
        """Nothing is under way or in line (after a fork: what is, is the parent's)."""
        self._reading, self._writing = threading.Lock(), threading.Lock()
        self._guard = threading.Condition(threading.Lock())  # of all below, and the counters
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
        """Whether it is worth asking: not while the disk is left alone."""
        return self._clock() >= self._resume_s

    @property
    def stats(self) -> DiskCacheStats:
        """A consistent copy of the counters."""
        with self._guard:
            counts = {name: number for name, (number,) in self._counts.items()}
            return DiskCacheStats(**counts, bytes=self._disk_bytes, capacity_bytes=self.capacity_bytes)

    def _count(self, name: str, number: int = 1) -> None:
        """So much more; under the guard."""
        self._counts[name][0] += number

    # -- looking ------------------------------------------------------------------------------------------------

    def find(
        self, names: Sequence[CopyName], memories: Sequence[memoryview | None] | None = None
    ) -> Future[list[memoryview | None]]:
        """What there is of each; the future never has an error.

        memories  where copies are read to, if that can be; see `RangeDatabase.find_many`
        """
        return _pool("read").submit(self._find, names, memories)

    def open_soon(self) -> None:
        """Have the files opened while there is something else to wait for; returns at once."""
        if self.is_up and not self._database.is_open:
            self.find([])

    def _find(self, names: Sequence[CopyName], memories: Sequence[memoryview | None] | None) -> list[memoryview | None]:
        nothing: list[memoryview | None] = [None] * len(names)
        found, damaged, stale = nothing, [], []
        if self.is_up:
            try:
                _close_forgotten()
                with self._reading:
                    findings = self._database.find_many(names, memories)
            except Busy:
                pass
            except Damaged:
                self._begin_anew()
            except Unusable as error:
                self._pause(error)
            else:
                found = [None if one is None else one.data for one in findings.copies]
                damaged = findings.damaged
                stale = [one.copy_id for one in findings.copies if one is not None and one.is_stale]
        hits = [data for data in found if data is not None]
        with self._guard:
            self._count("hits", len(hits))
            self._count("misses", len(found) - len(hits))
            self._count("bytes_found", sum(map(len, hits)))
            self._count("damaged", len(damaged))
            self._unwanted.update(damaged)
            self._used.update(dict.fromkeys(stale))
            self._write_soon()
        return found

    def _begin_anew(self) -> None:
        """The file is damaged: the next one."""
        with self._guard:
            self._count("damaged")
        try:
            with self._reading, self._writing:
                self._database.start_anew()
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
        """Remove the copies of an object, those in line among them; returns at once.

        start  only those that begin there
        """
        with self._guard:
            gone = [one for one in self._waiting if one[0].object_id == object_id and start in (None, one[0].start)]
            if gone:
                self._waiting = deque(one for one in self._waiting if not any(one is each for each in gone))
                self._waiting_bytes -= sum(len(data) for _, data in gone)
            self._changed.add((object_id, start))
            self._write_soon()

    def flush(self, seconds: float | None = None) -> bool:
        """Wait until everything in line is written or dropped, so long at most. False if there was no time for that."""
        with self._guard:
            self._write_soon(marks=1)
            return self._guard.wait_for(lambda: not self._is_writing, seconds)

    def _write_soon(self, marks: int = MARKS_AT_ONCE) -> None:
        """Have a thread write what is in line, if that is worth it; under the guard."""
        if self._is_writing:
            return
        if self._waiting or self._unwanted or self._changed or len(self._used) >= marks:
            self._is_writing = True
            try:
                _pool("write").submit(self._write_all)
            except RuntimeError:  # the interpreter ends
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
        """One transaction. False when nothing is in line any more."""
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
                self._begin_anew()
            except Unusable as error:
                self._pause(error)
        with self._guard:
            self._count("bytes_kept", batch_bytes if num_kept else 0)
            self._count("dropped", len(batch) - num_kept)
            self._count("evictions", num_evicted)
        return True

    # -- fork ---------------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Close the file, and see to it that no thread opens it."""
        self._reading.acquire()
        self._writing.acquire()
        self._database.close()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._writing.release()
        self._reading.release()


def open_disk_cache(path: str | os.PathLike[str], capacity_bytes: int) -> DiskCache:
    """The cache in a folder, which all of a process share that ask for the same bound. Touches no file.

    Raises `UsageError` for a bound below `CAPACITY_BYTES_MIN`.
    """
    place = os.path.abspath(os.path.expanduser(os.fspath(path)))
    with _lock:
        found = _open.get((place, capacity_bytes))
        if found is None:
            found = _open[place, capacity_bytes] = DiskCache(place, capacity_bytes)
        return found


def _warn(refused: Refused) -> None:
    """Say once for each folder or file why the cache does not use it."""
    with _lock:
        if refused.place in _warned_of:
            return
        _warned_of.add(refused.place)
    text = (
        f"the disk cache is not used: {refused}. Its bytes could come from others. Remove the folder, and this process"
        " makes its own; or name another one (disk_cache, LANCE_IO_DISK_CACHE)"
    )
    try:
        warnings.warn(text, UserWarning, stacklevel=2)
    except UserWarning:  # made an error, which would end a thread instead of the program
        _logger.warning("%s", text)


_lock = threading.Lock()
_warned_of: set[str] = set()
_caches: weakref.WeakSet[DiskCache] = weakref.WeakSet()
_open: weakref.WeakValueDictionary[tuple[str, int], DiskCache] = weakref.WeakValueDictionary()
_forgotten: deque[RangeDatabase] = deque()
"""Files of caches that nobody holds any more, to be closed by the next thread that touches one.

A garbage collection finds them, anywhere, and takes no lock.
"""
_pools: dict[str, LastingPool] = {}
_pools_lock = threading.Lock()


def _pool(purpose: str) -> LastingPool:
    found = _pools.get(purpose)
    if found is None:
        with _pools_lock:
            found = _pools.get(purpose)
            if found is None:
                found = LastingPool(1, f"lance_io-cache-{purpose}")
                if not _pools:
                    atexit.register(_flush_all)  # after that of the pools, so that it comes before it
                _pools[purpose] = found
    return found


def _close_forgotten() -> None:
    while _forgotten:
        with suppress(IndexError):  # another thread was faster
            _forgotten.popleft().close()


def _flush_all() -> None:
    """At interpreter exit: what this process has read is to be there for the next."""
    ends_s = time.monotonic() + EXIT_S_MAX
    for cache in list(_caches):
        cache.flush(max(0.0, ends_s - time.monotonic()))


_held: list[DiskCache] = []  # by the thread that forks


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
