"""Counters of disk caches: of each one, and of all in this process, closed ones included.

Light to import: metrics use it in processes without a disk cache.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from lance_io.records import dataclass
from lance_io.store.counters import Tally
from lance_io.store.forking import survive_fork

if TYPE_CHECKING:
    from collections.abc import Mapping

COUNTED: Final = ("hits", "misses", "bytes_found", "bytes_kept", "dropped", "evictions", "damaged", "pauses")


@dataclass(frozen=True, slots=True)
class DiskCacheStats:
    """Counters of this process's use of a disk cache, at one moment.

    hits, misses    lookups of ranges and objects, with and without a copy
    bytes_found     read from the cache
    bytes_kept      written to it
    dropped         not written: too large, queue full, disk full, or files locked by other processes
    evictions       copies that were removed to make room
    damaged         copies with a wrong checksum, and files that were replaced after damage
    pauses          pauses of the cache after a disk error, or since other users could have written its files
    bytes           size of its files on disk, as of this process's latest write
    capacity_bytes  limit of that size
    """

    hits: int
    misses: int
    bytes_found: int
    bytes_kept: int
    dropped: int
    evictions: int
    damaged: int
    pauses: int
    bytes: int
    capacity_bytes: int


class CountedCache(Protocol):
    """A disk cache.

    path  its folder
    """

    path: str

    @property
    def stats(self) -> DiskCacheStats:
        """Its counters."""


class _Sizes(NamedTuple):
    num_bytes: int
    capacity_bytes: int


class DiskCacheTally:
    """Sums of the counters of disk caches. Safe from any thread."""

    def __init__(self) -> None:
        self._counts = Tally()
        self._caches: weakref.WeakSet[CountedCache] = weakref.WeakSet()
        self.start_over()
        survive_fork(self)

    def start_over(self) -> None:
        """New lock (after a fork)."""
        self._lock = threading.RLock()  # a garbage collection inside of it may end a cache

    def follow(self, cache: CountedCache, counts: Mapping[str, list[int]]) -> None:
        """Include the counters of a cache: one number for each of `COUNTED`."""
        self._counts.follow(cache, counts)
        with self._lock:
            self._caches.add(cache)

    def total(self) -> DiskCacheStats:
        """The sums now; sizes are those of live caches, each folder once."""
        counts = self._counts.total()
        with self._lock:
            caches = list(self._caches)
        folders: dict[str, _Sizes] = {}
        for cache in caches:
            stats, known = cache.stats, folders.get(cache.path, _Sizes(0, 0))
            folders[cache.path] = _Sizes(
                max(known.num_bytes, stats.bytes), max(known.capacity_bytes, stats.capacity_bytes)
            )
        return DiskCacheStats(
            **{name: counts.get(name, [0])[0] for name in COUNTED},
            bytes=sum(sizes.num_bytes for sizes in folders.values()),
            capacity_bytes=sum(sizes.capacity_bytes for sizes in folders.values()),
        )


DISK_CACHES: Final = DiskCacheTally()
