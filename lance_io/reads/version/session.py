"""What datasets share: the search cache and open stores."""

from __future__ import annotations

import operator
import os
import threading
import weakref
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary, WeakSet

from lance_io.commit.put_absent import PutAbsentHandler
from lance_io.errors import UsageError
from lance_io.io.cache import CacheStats, SearchCache
from lance_io.lazy_names import later
from lance_io.limits import DISK_CACHE_BYTES, METADATA_CACHE_BYTES, VALUE_BYTES_MAX, from_environment
from lance_io.store.offers import offers_sync_reads
from lance_io.store.provided_options import source_of
from lance_io.store.storage_options import options_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.commit import lock as locks
    from lance_io.commit import table_location as table_locations
    from lance_io.commit.handler import CommitHandler
    from lance_io.commit.lock import CommitLock
    from lance_io.io.shared_limits import IoScheduler
    from lance_io.store.api import ObjectStore
    from lance_io.store.disk_cache import cached_store, disk_cache
    from lance_io.store.disk_cache.cache_counts import DiskCacheStats
    from lance_io.store.disk_cache.disk_cache import DiskCache
    from lance_io.store.url import Location
else:
    table_locations = later("lance_io.commit.table_location")
    locks = later("lance_io.commit.lock")
    cached_store = later("lance_io.store.disk_cache.cached_store")
    disk_cache = later("lance_io.store.disk_cache.disk_cache")

PLACES_MAX: Final = 1000  # that a session remembers; their stores live as long as any of them or a dataset there
_DEFAULT: Final = PutAbsentHandler()


def check_size(name: str, size: Any, default: int) -> int:
    """The size of a cache, `default` for None.

    Raises `TypeError` for what is no whole number, `OverflowError` for one that is negative or has more than 64 bits.
    """
    if size is None:
        return default
    if not hasattr(size, "__index__"):
        raise TypeError(f"{name} must be an int, found {size!r} of type {type(size).__name__}")
    number = operator.index(size)
    if not 0 <= number < 1 << 64:
        raise OverflowError(f"{name} must be at least 0 and below 2**64, found {number}")
    return number


def check_decoded_bytes(num_bytes: Any) -> int:
    """How many bytes a value may decode to, `limits.VALUE_BYTES_MAX` for None.

    Raises `TypeError` for what is no whole number, `UsageError` for one below 1.
    """
    found = check_size("max_decoded_bytes", num_bytes, VALUE_BYTES_MAX)
    if not found:
        raise UsageError("max_decoded_bytes must be at least 1, found 0")
    return found


class Session:
    """Shared by the datasets that are opened with it: one search cache, and per bucket and set of options one store,
    so that tables of one bucket share their connections.

    index_cache_size_bytes     kept for indices; this release reads none and keeps nothing there
    metadata_cache_size_bytes  bound of the search cache: manifests, file metadata, page indices, deletion vectors;
                               256 MiB by default
    io_scheduler               bounds and numbers for what its datasets read together; None for the defaults, dataset
                               by dataset
    disk_cache                 a folder on local disk for copies of what never changes in stores far away, which
                               processes share; None for that of LANCE_IO_DISK_CACHE, if it is set; "" for none
    disk_cache_bytes           bound on what it takes on disk, its index included, at least 1 MiB; None for
                               LANCE_IO_DISK_CACHE_BYTES, or 4 GiB
    disk_cache_scans           whether scans look there, too, and have kept what they read
    max_decoded_bytes          that one value may take once it is decoded, where the call that opens a table does not
                               say: the guard against small files that become large; 2 GiB by default

    Raises `UsageError` for a bound of the disk cache that cannot be.
    """

    def __init__(
        self,
        index_cache_size_bytes: int | None = None,
        metadata_cache_size_bytes: int | None = None,
        *,
        io_scheduler: IoScheduler | None = None,
        disk_cache: str | os.PathLike[str] | None = None,
        disk_cache_bytes: int | None = None,
        disk_cache_scans: bool = False,
        max_decoded_bytes: int | None = None,
    ) -> None:
        self._index_capacity = check_size("index_cache_size_bytes", index_cache_size_bytes, 0)
        capacity = check_size("metadata_cache_size_bytes", metadata_cache_size_bytes, METADATA_CACHE_BYTES)
        self.cache = SearchCache(capacity)
        self.io_scheduler = io_scheduler
        self.max_decoded_bytes = check_decoded_bytes(max_decoded_bytes)
        path = None if disk_cache is None else os.fspath(disk_cache)
        self._disk_settings = path, disk_cache_bytes, disk_cache_scans
        self._disk_cache = _disk_cache(*self._disk_settings[:2])
        self._cached: WeakKeyDictionary[ObjectStore, ObjectStore] = WeakKeyDictionary()  # the same with a disk cache
        self._lock = threading.Lock()
        self._locations: OrderedDict[Any, Location] = OrderedDict()  # the one used longest ago is first
        self._stores: WeakSet[ObjectStore] = WeakSet()  # that places may share
        self._handlers: WeakKeyDictionary[ObjectStore, CommitHandler] = WeakKeyDictionary()  # all but the default

    def locate(self, uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None) -> Location:
        """The store and path that `uri` names; datasets below one root share the store."""
        if self.io_scheduler is not None:
            given = options_of(storage_options)
            names = {name.lower() for name in given}
            defaults = self.io_scheduler.storage_options
            given.update({name: value for name, value in defaults.items() if name not in names})
            storage_options = given
        on = getattr(uri, "filesystem", None)  # a `FilesystemUri`
        provider = source_of(storage_options)
        given_key = tuple(sorted((storage_options or {}).items()))
        key = (str(uri), None if on is None else id(on), given_key, None if provider is None else id(provider))
        with self._lock:
            found = self._locations.get(key)
            if found is None:
                found, handler = table_locations.open_place(uri, storage_options)
                if not isinstance(handler, PutAbsentHandler):  # a database decides
                    found = replace(found, store=self._with_disk_cache(found.store, storage_options))
                    self._handlers[found.store] = handler
                else:
                    store = self._share(found.store)
                    if on is None:  # what a filesystem object reads from has no name that other processes know
                        store = self._with_disk_cache(store, storage_options)
                    found = replace(found, store=store)
                if on is None and str(uri).startswith("memory:"):  # each is private to its dataset
                    return found
                self._locations[key] = found
                if len(self._locations) > PLACES_MAX:
                    self._locations.popitem(last=False)
            self._locations.move_to_end(key)
            return found

    def linger(self) -> None:
        """When nobody holds this session any more, let its buckets stay connected for a moment."""
        for store in self._stores:
            linger = getattr(store, "linger", None)
            if linger is not None:
                weakref.finalize(self, linger).atexit = False

    def _share(self, store: ObjectStore) -> ObjectStore:
        """The store with the same connections that this session has already, else this one."""
        origin = getattr(store, "origin", None)  # of stores that have connections
        if origin is None:
            return store
        for known in self._stores:
            if getattr(known, "origin", None) == origin:
                return known
        self._stores.add(store)
        return store

    def _with_disk_cache(self, store: ObjectStore, storage_options: Mapping[str, str] | None) -> ObjectStore:
        """The store behind the disk cache, if there is one and the store is far away."""
        if self._disk_cache is None or offers_sync_reads(store):
            return store
        found = self._cached.get(store)
        if found is None:
            access = getattr(store, "access", None)
            if access is None:
                access = repr(sorted((name.lower(), value) for name, value in (storage_options or {}).items()))
            found = cached_store.CachedStore(store, self._disk_cache, access, keeps_scans=self._disk_settings[2])
            self._cached[store] = found
        return found

    def handler(self, location: Location, commit_lock: CommitLock | None = None) -> CommitHandler:
        """What makes versions visible at a place that was located here, or below it.

        Raises `UsageError` for a lock where a database decides.
        """
        handler = self._handlers.get(location.store, _DEFAULT)
        if commit_lock is None:
            return handler
        if not isinstance(handler, PutAbsentHandler):
            raise UsageError(f"{location.uri} takes no commit_lock: its manifest store decides")
        if not callable(commit_lock):
            raise TypeError(f"commit_lock must be a function, got {type(commit_lock)}")

        return locks.LockHandler(commit_lock)

    def size_bytes(self) -> int:
        """Memory held by the caches, in bytes."""
        return self.cache.stats.bytes

    def index_cache_size_bytes(self) -> int:
        """Memory held for indices, in bytes."""
        return 0

    def is_same_as(self, other: Session) -> bool:
        """Whether both share their caches."""
        return self.cache is other.cache

    @property
    def cache_stats(self) -> CacheStats:
        """Hits, misses, evictions and bytes of the search cache."""
        return self.cache.stats

    @property
    def disk_cache_stats(self) -> DiskCacheStats | None:
        """Hits, misses and bytes of the disk cache, as this process has used it; None without one."""
        return None if self._disk_cache is None else self._disk_cache.stats

    def flush_disk_cache(self, timeout: float | None = None) -> bool:
        """Wait until all that was read is in the disk cache, or was dropped.

        The cache is written in the background, and at the end of the process as well; nobody has to call this.

        timeout  seconds to wait at most. Returns whether that was enough
        """
        return self._disk_cache is None or self._disk_cache.flush(timeout)

    def __repr__(self) -> str:
        return f"Session(index_cache_size_bytes=0, metadata_cache_size_bytes={self.size_bytes()})"

    def __reduce__(self) -> tuple[Any, ...]:
        sizes = self._index_capacity, self.cache.capacity_bytes
        return _session, (*sizes, self.io_scheduler, *self._disk_settings, self.max_decoded_bytes)


def _session(
    index_bytes: int,
    metadata_bytes: int,
    io_scheduler: IoScheduler | None,
    disk_cache: str | None,
    disk_cache_bytes: int | None,
    disk_cache_scans: bool,
    max_decoded_bytes: int,
) -> Session:
    return Session(
        index_bytes,
        metadata_bytes,
        io_scheduler=io_scheduler,
        disk_cache=disk_cache,
        disk_cache_bytes=disk_cache_bytes,
        disk_cache_scans=disk_cache_scans,
        max_decoded_bytes=max_decoded_bytes,
    )


def _disk_cache(path: str | None, capacity_bytes: int | None) -> DiskCache | None:
    """The disk cache that arguments and environment name; touches no file."""
    if path is None:
        path = os.environ.get("LANCE_IO_DISK_CACHE", "")
    if not path:
        return None
    if capacity_bytes is None:
        capacity_bytes = from_environment("LANCE_IO_DISK_CACHE_BYTES", DISK_CACHE_BYTES)

    return disk_cache.open_disk_cache(path, check_size("disk_cache_bytes", capacity_bytes, 0))
