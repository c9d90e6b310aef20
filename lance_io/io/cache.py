"""The search cache: small structures that say where data lies, kept while they fit into a bound in bytes.

Keys are tuples made by the caller, such as `(store identity, object key, version tag, column, page, "chunks")`;
values are immutable and never None. A full scan does not need this cache; a random take does.

Two ways in:

    get / put      look, and store
    claim          look, and on a miss agree on who loads (single flight): exactly one caller gets a `LoadOwner`, the
                   others a `LoadPending`

A caller that holds tickets (`LoadOwner`) fulfils or abandons all of them *before* it waits for anybody else's load;
otherwise two callers can wait for each other. A ticket that is dropped counts as abandoned, so nobody waits for
ever. After `ClaimAbandoned` the waiter claims again: the load it waited for was cancelled, which says nothing about
the data. A load that failed with an error hands that error to everyone who waited.

Thread-safe: user threads (sync API) and the engine thread share one cache. The lock is re-entrant because a
garbage collection inside a locked section may finalize a forgotten ticket.
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
    """The load that was waited for was given up without an error; claim the key again."""


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counters of a `SearchCache` at one moment.

    hits            lookups answered from the cache, or by a load that somebody else had begun
    misses          lookups that were not
    evictions       entries dropped to make room
    entries         entries held now
    bytes           their size as given by whoever stored them
    capacity_bytes  the bound
    """

    hits: int
    misses: int
    evictions: int
    entries: int
    bytes: int
    capacity_bytes: int


class Found:
    """The answer of a claim: the value is there."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class _Load:
    """A load in progress.

    future  how it ends, made when the first other than its owner asks: most loads are waited for by nobody
    """

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: Future[Any] | None = None


class LoadOwner:
    """The answer of a claim: nobody has it, load it and call `fulfil` or `abandon` exactly once."""

    __slots__ = ("__weakref__", "_cache", "_load", "key")

    def __init__(self, cache: SearchCache, key: Key, load: _Load) -> None:
        self._cache: SearchCache | None = cache
        self._load = load
        self.key = key

    def fulfil(self, value: Any, nbytes: int) -> None:
        """Store the loaded value (`nbytes` long) and hand it to everyone who waits for it."""
        if self._cache is not None:
            self._cache.fulfil_many([(self, value, nbytes)])

    def abandon(self, error: Exception | None = None) -> None:
        """Give up. With an error, those who wait get it; without, they are told to claim again."""
        cache, self._cache = self._cache, None
        if cache is not None:
            cache._forget(self.key, self._load)
            if self._load.future is not None:
                self._load.future.set_exception(error or ClaimAbandoned(f"the load of {self.key!r} was given up"))

    def __del__(self) -> None:
        if self._cache is not None:
            self.abandon()


class LoadPending:
    """The answer of a claim: somebody else is loading it.

    `future.result()` (in a user thread) or `await asyncio.wrap_future(future)` (on a loop) gives the value, raises the
    error of the load, or `ClaimAbandoned`. Do not cancel the future: it is shared.
    """

    __slots__ = ("future",)

    def __init__(self, future: Future[Any]) -> None:
        self.future = future


Claim: TypeAlias = Found | LoadOwner | LoadPending


class SearchCache:
    """Least-recently-used cache bounded in bytes, with one load per key at a time.

    capacity_bytes  sum of the sizes of what is kept; 0 keeps nothing and still merges simultaneous loads
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

    # -- looking and storing ------------------------------------------------------------------------------------

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
            found = list(map(entries.get, keys))
            missing = found.count(None)
            there = keys if not missing else [key for key, entry in zip(keys, found, strict=True) if entry is not None]
            deque(map(entries.move_to_end, there), maxlen=0)
            self._counts[1] += missing
            self._counts[0] += len(found) - missing
        return [None if entry is None else entry[0] for entry in found]

    def put(self, key: Key, value: Any, nbytes: int) -> None:
        """Keep `value`, `nbytes` long, dropping the least recently used until everything fits.

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
        """Drop one entry if it is there; a load in progress is not affected."""
        with self._lock:
            self._discard(key)

    def clear(self) -> None:
        """Drop every entry; counters and loads in progress stay."""
        with self._lock:
            self._entries.clear()
            self._bytes = 0

    # -- one load per key ---------------------------------------------------------------------------------------

    def claim(self, key: Key) -> Claim:
        """Look up `key`, and on a miss decide who loads it."""
        with self._lock:
            return self._claim(key)

    def claim_many(self, keys: Sequence[Key]) -> list[Claim]:
        """`claim` for each key under one lock. One that occurs twice gets a `LoadOwner`, then a `LoadPending`."""
        with self._lock:
            return [self._claim(key) for key in keys]

    def fulfil_many(self, loaded: Sequence[tuple[LoadOwner, Any, int]]) -> None:
        """`LoadOwner.fulfil` for tickets of this cache, each with its value and its size in bytes, under one lock."""
        waited: list[tuple[Future[Any], Any]] = []
        with self._lock:
            for ticket, value, nbytes in loaded:
                if ticket._cache is None:
                    continue
                ticket._cache = None
                load = ticket._load
                self._forget(ticket.key, load)
                self.put(ticket.key, value, nbytes)
                if load.future is not None:
                    waited.append((load.future, value))
        for future, value in waited:  # nobody joins a load that the cache has forgotten
            future.set_result(value)

    def _claim(self, key: Key) -> Claim:
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
            self._counts[0] += 1
            return Found(entry[0])
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
        """In a forked child: the threads that held the lock or were loading do not exist here."""
        self._lock = threading.RLock()
        self._loads = {}
        self._bytes = sum(nbytes for _, nbytes in self._entries.values())


_caches: weakref.WeakSet[SearchCache] = weakref.WeakSet()
_counted = Tally()


def process_cache_stats() -> CacheStats:
    """All search caches of this process together; of those that are gone, hits, misses and evictions."""
    now = [cache.stats for cache in list(_caches)]
    hits, misses, evictions = _counted.total().get("cache", [0, 0, 0])
    sizes = (sum(one.entries for one in now), sum(one.bytes for one in now), sum(one.capacity_bytes for one in now))
    return CacheStats(hits, misses, evictions, *sizes)


def _caches_after_fork() -> None:
    for cache in list(_caches):
        cache._after_fork()


os.register_at_fork(after_in_child=_caches_after_fork)
