"""Shared by datasets: the search cache and open stores."""

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
from lance_io.lazy_names import lazy_module
from lance_io.limits import DISK_CACHE_BYTES, INDEX_CACHE_BYTES, METADATA_CACHE_BYTES, VALUE_BYTES_MAX, from_environment
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
    table_locations = lazy_module("lance_io.commit.table_location")
    locks = lazy_module("lance_io.commit.lock")
    cached_store = lazy_module("lance_io.store.disk_cache.cached_store")
    disk_cache = lazy_module("lance_io.store.disk_cache.disk_cache")

INDEX_SHARE: Final = 3  # of a given bound of the search cache: memory for indices beside it
LOCATIONS_MAX: Final = 1000  # cached locations; a store lives as long as one of them, or a dataset
_DEFAULT: Final = PutAbsentHandler()


def check_size(name: str, size: Any, default: int) -> int:
    """The size of a cache, `default` for None.

    Raises `TypeError` for a value that is no whole number, `OverflowError` for one that is negative or has more than 64
    bits.
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
    """Maximum bytes of a decoded value, `limits.VALUE_BYTES_MAX` for None.

    Raises `TypeError` for a value that is no whole number, `UsageError` for one below 1.
    """
    limit = check_size("max_decoded_bytes", num_bytes, VALUE_BYTES_MAX)
    if not limit:
        raise UsageError("max_decoded_bytes must be at least 1, found 0")
    return limit


class Session:
    """State that datasets share: one search cache, and one store for each bucket and set of options, so that tables of
    one bucket share connections.

    Args:
        index_cache_size_bytes: Bound of the memory for segments of indices, and for their pages and partitions that
            queries have read: 512 MiB by default, and a third of `metadata_cache_size_bytes` if that is given.
        metadata_cache_size_bytes: Bound of the search cache (manifests, file metadata, page indexes, deletion vectors),
            256 MiB by default.
        io_scheduler: Bounds and settings for the concurrent reads of all its datasets; None for the defaults of each
            dataset.
        disk_cache: Folder on local disk for copies of immutable objects of remote stores; processes share it. None for
            the one in LANCE_IO_DISK_CACHE, if set; "" for none.
        disk_cache_bytes: Bound of the disk cache, including its index, at least 1 MiB; None for
            LANCE_IO_DISK_CACHE_BYTES, or 4 GiB.
        disk_cache_scans: Whether scans use the disk cache, too.
        max_decoded_bytes: Maximum bytes of one decoded value, 2 GiB by default, unless opening the table sets another
            limit. It guards against small files that decode to huge values.

    Raises:
        UsageError: `max_decoded_bytes` or a bound of the disk cache is invalid.
        TypeError: A size is not an integer.
        OverflowError: A size is negative or has more than 64 bits.
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
        capacity = check_size("metadata_cache_size_bytes", metadata_cache_size_bytes, METADATA_CACHE_BYTES)
        share = INDEX_CACHE_BYTES if metadata_cache_size_bytes is None else capacity // INDEX_SHARE
        share = check_size("index_cache_size_bytes", index_cache_size_bytes, share)
        self.cache = SearchCache(capacity)
        self.index_cache = SearchCache(share)
        self.io_scheduler = io_scheduler
        self.max_decoded_bytes = check_decoded_bytes(max_decoded_bytes)
        path = None if disk_cache is None else os.fspath(disk_cache)
        self._disk_settings = path, disk_cache_bytes, disk_cache_scans
        self._disk_cache = _disk_cache(*self._disk_settings[:2])
        self._cached: WeakKeyDictionary[ObjectStore, ObjectStore] = WeakKeyDictionary()  # stores behind the disk cache
        self._lock = threading.Lock()
        self._locations: OrderedDict[Any, Location] = OrderedDict()  # least recently used first
        self._stores: WeakSet[ObjectStore] = WeakSet()  # that locations may share
        # except for the default handler
        self._handlers: WeakKeyDictionary[ObjectStore, CommitHandler] = WeakKeyDictionary()

    def locate(self, uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None) -> Location:
        """Find the store and path of a URI; tables below one root share the store.

        Args:
            uri: URI of a table.
            storage_options: Credentials and settings of the store.

        Returns:
            The location.

        Raises:
            UsageError: The scheme is unknown.
        """
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
            location = self._locations.get(key)
            if location is None:
                location, handler = table_locations.open_location(uri, storage_options)
                if not isinstance(handler, PutAbsentHandler):  # a database decides commits
                    location = replace(location, store=self._with_disk_cache(location.store, storage_options))
                    self._handlers[location.store] = handler
                else:
                    store = self._share(location.store)
                    if on is None:  # a filesystem object's store has no name that other processes know
                        store = self._with_disk_cache(store, storage_options)
                    location = replace(location, store=store)
                if on is None and str(uri).startswith("memory:"):  # each dataset has its own
                    return location
                self._locations[key] = location
                if len(self._locations) > LOCATIONS_MAX:
                    self._locations.popitem(last=False)
            self._locations.move_to_end(key)
            return location

    def linger(self) -> None:
        """Keep connections to its buckets open for a moment after the session is garbage collected."""
        for store in self._stores:
            linger = getattr(store, "linger", None)
            if linger is not None:
                weakref.finalize(self, linger).atexit = False

    def _share(self, store: ObjectStore) -> ObjectStore:
        """An equivalent store of this session with open connections, else this store."""
        origin = getattr(store, "origin", None)  # only stores with connections have it
        if origin is None:
            return store
        for known in self._stores:
            if getattr(known, "origin", None) == origin:
                return known
        self._stores.add(store)
        return store

    def _with_disk_cache(self, store: ObjectStore, storage_options: Mapping[str, str] | None) -> ObjectStore:
        """The store behind the disk cache, if there is one and the store is remote."""
        if self._disk_cache is None or offers_sync_reads(store):
            return store
        cached = self._cached.get(store)
        if cached is None:
            access = getattr(store, "access", None)
            if access is None:
                access = repr(sorted((name.lower(), value) for name, value in (storage_options or {}).items()))
            cached = cached_store.CachedStore(store, self._disk_cache, access, keeps_scans=self._disk_settings[2])
            self._cached[store] = cached
        return cached

    def handler(self, location: Location, commit_lock: CommitLock | None = None) -> CommitHandler:
        """The commit handler of a location of this session.

        Args:
            location: Location of a table, or below it.
            commit_lock: Lock for commits; None for none.

        Raises:
            UsageError: There is a lock, but a database decides commits.
            TypeError: The lock is not callable.
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
        """Memory of the caches in bytes."""
        return self.cache.stats.bytes + self.index_cache.stats.bytes

    def index_cache_size_bytes(self) -> int:
        """Memory for indices in bytes."""
        return self.index_cache.stats.bytes

    def is_same_as(self, other: Session) -> bool:
        """Whether both sessions share their caches.

        Args:
            other: Another session.
        """
        return self.cache is other.cache

    @property
    def cache_stats(self) -> CacheStats:
        """Hits, misses, evictions and bytes of the search cache."""
        return self.cache.stats

    @property
    def disk_cache_stats(self) -> DiskCacheStats | None:
        """Hits, misses and bytes of the disk cache in this process; None without one."""
        return None if self._disk_cache is None else self._disk_cache.stats

    def flush_disk_cache(self, timeout: float | None = None) -> bool:
        """Wait until the disk cache has stored or dropped all data read so far.

        A background thread writes the cache, also at the end of the process; you need not call this.

        Args:
            timeout: Seconds to wait at most; None for no bound.

        Returns:
            Whether everything was written in time.
        """
        return self._disk_cache is None or self._disk_cache.flush(timeout)

    def __repr__(self) -> str:
        sizes = self.index_cache.stats.bytes, self.cache.stats.bytes
        return f"Session(index_cache_size_bytes={sizes[0]}, metadata_cache_size_bytes={sizes[1]})"

    def __reduce__(self) -> tuple[Any, ...]:
        sizes = self.index_cache.capacity_bytes, self.cache.capacity_bytes
        return _session, (*sizes, self.io_scheduler, *self._disk_settings, self.max_decoded_bytes)


def _session(
    index_bytes: int,
    metadata_bytes: int,
    io_scheduler: IoScheduler | None,
    disk_cache: str | None,
    disk_cache_bytes: int | None,
    disk_cache_scans: bool,
    max_decoded_bytes: int | None = None,  # which earlier releases did not pickle
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
    """The disk cache of the arguments and the environment; touches no file."""
    if path is None:
        path = os.environ.get("LANCE_IO_DISK_CACHE", "")
    if not path:
        return None
    if capacity_bytes is None:
        capacity_bytes = from_environment("LANCE_IO_DISK_CACHE_BYTES", DISK_CACHE_BYTES)

    return disk_cache.open_disk_cache(path, check_size("disk_cache_bytes", capacity_bytes, 0))
