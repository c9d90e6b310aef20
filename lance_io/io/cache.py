"""The search cache: an LRU cache, bounded in bytes, for small structures that locate data in files.

Keys are tuples of the caller, such as `(store identity, object key, version tag, column, page, "chunks")`; values are
immutable and never None. A full scan does not need this cache; a random take does.

    get / put      look up, and store
    claim          look up; on a miss, single flight: exactly one caller gets a `LoadOwner`, the others a `LoadPending`

A caller must fulfil or abandon all its `LoadOwner`s *before* it waits for the load of another caller; otherwise two
callers can wait for each other. A `LoadOwner` that is garbage-collected counts as abandoned, so that no caller waits
forever. After `ClaimAbandoned` a waiter claims the key again: the load was cancelled, so the data may be fine. If a
load fails with an error, all its waiters raise that error.

Thread-safe: user threads (sync API) and the engine thread share one cache. The lock is reentrant because a garbage
collection inside a locked section may finalize a `LoadOwner`.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict, deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeAlias

from lance_io.errors import UsageError
from lance_io.records import dataclass
from lance_io.store.counters import Tally

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

Key: TypeAlias = "tuple[Hashable, ...]"


class ClaimAbandoned(Exception):
    """The awaited load was abandoned without an error; claim the key again."""


@dataclass(frozen=True, slots=True)
class CacheStats:
    """A snapshot of the counters of a `SearchCache`.

    Attributes:
        hits: Lookups answered from the cache, or by a load of another caller.
        misses: Other lookups.
        evictions: Entries dropped to make room.
        entries: Number of entries now.
        bytes: Size of these entries, as passed by the callers that stored them.
        capacity_bytes: Upper bound of `bytes`.
    """

    hits: int
    misses: int
    evictions: int
    entries: int
    bytes: int
    capacity_bytes: int


class CacheHit:
    """Result of a claim: the value is in the cache."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class _Load:
    """A load in progress.

    future  its result; created for the first waiter, since most loads have none
    """

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: Future[Any] | None = None


class LoadOwner:
    """Result of a claim on a miss: the caller loads the value and calls `fulfil` or `abandon` exactly once."""

    __slots__ = ("__weakref__", "_cache", "_load", "key")

    def __init__(self, cache: SearchCache, key: Key, load: _Load) -> None:
        self._cache: SearchCache | None = cache
        self._load = load
        self.key = key

    def fulfil(self, value: Any, nbytes: int) -> None:
        """Store the loaded value (`nbytes` long) and pass it to the waiters."""
        if self._cache is not None:
            self._cache.fulfil_many([(self, value, nbytes)])

    def abandon(self, error: Exception | None = None) -> None:
        """End the load without a value. Waiters raise `error`, or `ClaimAbandoned` if it is None."""
        cache, self._cache = self._cache, None
        if cache is not None:
            cache._forget(self.key, self._load)
            if self._load.future is not None:
                self._load.future.set_exception(error or ClaimAbandoned(f"the load of {self.key!r} was abandoned"))

    def __del__(self) -> None:
        if self._cache is not None:
            self.abandon()


class LoadPending:
    """Result of a claim on a miss: another caller is loading the value.

    `future.result()` (in a user thread) or `await asyncio.wrap_future(future)` (on a loop) returns the value, or raises
    the error of the load or `ClaimAbandoned`. Do not cancel the future: it is shared.
    """

    __slots__ = ("future",)

    def __init__(self, future: Future[Any]) -> None:
        self.future = future


Claim: TypeAlias = CacheHit | LoadOwner | LoadPending


class SearchCache:
    """Least-recently-used cache bounded in bytes, with single flight per key.

    capacity_bytes  upper bound of the sizes of all entries; 0 keeps nothing and still merges concurrent loads
    """

    def __init__(self, capacity_bytes: int) -> None:
        if capacity_bytes < 0:
            raise UsageError(f"capacity_bytes must not be negative, got {capacity_bytes}")
        self.capacity_bytes = capacity_bytes
        self._lock = threading.RLock()
        self._entries: OrderedDict[Key, tuple[Any, int]] = OrderedDict()
        self._loads: dict[Key, _Load] = {}
        self._bytes = 0
        self._counts = [0, 0, 0]  # hits, misses, evictions
        _counted.follow(self, {"cache": self._counts})
        _caches.add(self)

    # -- lookup and storage -------------------------------------------------------------------------------------

    def get(self, key: Key) -> Any | None:
        """The value of `key`, which becomes the most recently used, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self._counts[1] += 1
                return None
            self._entries.move_to_end(key)
            self._counts[0] += 1
            return entry[0]

    def get_many(self, keys: Sequence[Key]) -> list[Any | None]:
        """`get` for each key under one lock."""
        with self._lock:
            entries = self._entries
            looked_up = list(map(entries.get, keys))
            missing = looked_up.count(None)
            hits = keys
            if missing:
                hits = [key for key, entry in zip(keys, looked_up, strict=True) if entry is not None]
            deque(map(entries.move_to_end, hits), maxlen=0)
            self._counts[1] += missing
            self._counts[0] += len(looked_up) - missing
        return [None if entry is None else entry[0] for entry in looked_up]

    def put(self, key: Key, value: Any, nbytes: int) -> None:
        """Keep `value`, `nbytes` long. Evicts the least recently used entries until all fit.

        A value larger than the whole capacity is not kept.
        """
        if nbytes < 0:
            raise UsageError(f"nbytes must not be negative, got {nbytes}")
        with self._lock:
            if key in self._entries:
                self._discard(key)
            if nbytes > self.capacity_bytes:
                return
            self._entries[key] = (value, nbytes)
            self._bytes += nbytes
            while self._bytes > self.capacity_bytes:
                _, (_, dropped_bytes) = self._entries.popitem(last=False)
                self._bytes -= dropped_bytes
                self._counts[2] += 1

    def discard(self, key: Key) -> None:
        """Drop an entry if it exists; does not affect a load in progress."""
        with self._lock:
            self._discard(key)

    def clear(self) -> None:
        """Drop every entry; counters and loads in progress stay."""
        with self._lock:
            self._entries.clear()
            self._bytes = 0

    # -- single flight ------------------------------------------------------------------------------------------

    def claim(self, key: Key) -> Claim:
        """Look up `key`; on a miss the first caller loads it and others wait."""
        with self._lock:
            return self._claim(key)

    def claim_many(self, keys: Sequence[Key]) -> list[Claim]:
        """`claim` for each key under one lock. A key that occurs twice gets a `LoadOwner`, then a `LoadPending`."""
        with self._lock:
            return [self._claim(key) for key in keys]

    def fulfil_many(self, loaded: Sequence[tuple[LoadOwner, Any, int]]) -> None:
        """`LoadOwner.fulfil` for several loads, each with its value and its size in bytes, under one lock."""
        awaited: list[tuple[Future[Any], Any]] = []
        with self._lock:
            for owner, value, nbytes in loaded:
                if owner._cache is None:
                    continue
                owner._cache = None
                load = owner._load
                self._forget(owner.key, load)
                self.put(owner.key, value, nbytes)
                if load.future is not None:
                    awaited.append((load.future, value))
        for future, value in awaited:  # no new waiters can join: the loads are no longer registered
            future.set_result(value)

    def _claim(self, key: Key) -> Claim:
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
            self._counts[0] += 1
            return CacheHit(entry[0])
        load = self._loads.get(key)
        if load is not None:
            self._counts[0] += 1
            if load.future is None:
                load.future = Future()
            return LoadPending(load.future)
        self._counts[1] += 1
        load = self._loads[key] = _Load()
        return LoadOwner(self, key, load)

    def _forget(self, key: Key, load: _Load) -> None:
        with self._lock:
            if self._loads.get(key) is load:
                del self._loads[key]

    def _discard(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry[1]

    # -- counters -----------------------------------------------------------------------------------------------

    @property
    def stats(self) -> CacheStats:
        """A consistent copy of the counters."""
        with self._lock:
            return CacheStats(
                hits=self._counts[0],
                misses=self._counts[1],
                evictions=self._counts[2],
                entries=len(self._entries),
                bytes=self._bytes,
                capacity_bytes=self.capacity_bytes,
            )

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def __repr__(self) -> str:
        return f"SearchCache({len(self._entries)} entries, {self._bytes} of {self.capacity_bytes} bytes)"

    # -- fork ---------------------------------------------------------------------------------------------------

    def _after_fork(self) -> None:
        """In a forked child: threads that held the lock or were loading exist in the parent only."""
        self._lock = threading.RLock()
        self._loads = {}
        self._bytes = sum(nbytes for _, nbytes in self._entries.values())


_caches: weakref.WeakSet[SearchCache] = weakref.WeakSet()
_counted = Tally()


def process_cache_stats() -> CacheStats:
    """Sums over all search caches of this process; hits, misses and evictions include those of closed caches."""
    live = [cache.stats for cache in list(_caches)]
    hits, misses, evictions = _counted.total().get("cache", [0, 0, 0])
    return CacheStats(
        hits,
        misses,
        evictions,
        entries=sum(stats.entries for stats in live),
        bytes=sum(stats.bytes for stats in live),
        capacity_bytes=sum(stats.capacity_bytes for stats in live),
    )


def _caches_after_fork() -> None:
    for cache in list(_caches):
        cache._after_fork()


os.register_at_fork(after_in_child=_caches_after_fork)
