"""What disk caches have counted: of each one, and of all in this process, those among them that nobody holds any more.

Light to import: metrics ask for it in processes that have no disk cache.
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
    """Counters of a disk cache, as this process has used it, at one moment.

    hits, misses    ranges and objects that were looked for, and found or not
    bytes_found     read from the cache
    bytes_kept      written to it
    dropped         not written: too large, too many in line, the disk full, or other processes in the way
    evictions       copies that were removed to make room
    damaged         copies whose bytes were not those that had been kept, and files that were begun anew for damage
    pauses          times that the disk took or gave nothing, or others could have written what is there, so that it was
                    left alone for a while
    bytes           what its files take on disk, as of the last time that this process wrote
    capacity_bytes  the bound on that
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
    """Adds up what disk caches have counted. Safe from any thread."""

    def __init__(self) -> None:
        self._counts = Tally()
        self._caches: weakref.WeakSet[CountedCache] = weakref.WeakSet()
        self.start_over()
        survive_fork(self)

    def start_over(self) -> None:
        """New lock (after a fork)."""
        self._lock = threading.RLock()  # a collection of garbage inside of it may end a cache

    def follow(self, cache: CountedCache, counts: Mapping[str, list[int]]) -> None:
        """Count what a cache counts: one number for each of `COUNTED`."""
        self._counts.follow(cache, counts)
        with self._lock:
            self._caches.add(cache)

    def total(self) -> DiskCacheStats:
        """The numbers now; sizes are those of caches that are held, each folder once."""
        found = self._counts.total()
        with self._lock:
            caches = list(self._caches)
        folders: dict[str, _Sizes] = {}
        for cache in caches:
            stats, known = cache.stats, folders.get(cache.path, _Sizes(0, 0))
            folders[cache.path] = _Sizes(
                max(known.num_bytes, stats.bytes), max(known.capacity_bytes, stats.capacity_bytes)
            )
        return DiskCacheStats(
            **{name: found.get(name, [0])[0] for name in COUNTED},
            bytes=sum(one.num_bytes for one in folders.values()),
            capacity_bytes=sum(one.capacity_bytes for one in folders.values()),
        )


DISK_CACHES: Final = DiskCacheTally()
