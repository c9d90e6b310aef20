"""What datasets share: the search cache and open stores."""

from __future__ import annotations

import operator
import threading
import weakref
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary, WeakSet

from lance_io.commit.put_absent import PutAbsentHandler
from lance_io.errors import UsageError
from lance_io.io.cache import CacheStats, SearchCache
from lance_io.limits import METADATA_CACHE_BYTES

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from lance_io.commit.handler import CommitHandler
    from lance_io.commit.lock import CommitLock
    from lance_io.io.shared_limits import IoScheduler
    from lance_io.store.api import ObjectStore
    from lance_io.store.url import Location

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


class Session:
    """Shared by the datasets that are opened with it: one search cache, and per bucket and set of options one store,
    so that tables of one bucket share their connections.

    index_cache_size_bytes     kept for indices; this release reads none and keeps nothing there
    metadata_cache_size_bytes  bound of the search cache: manifests, file metadata, page indices, deletion vectors;
                               256 MiB by default
    io_scheduler               bounds and numbers for what its datasets read together; None for the defaults, dataset
                               by dataset
    """

    def __init__(
        self,
        index_cache_size_bytes: int | None = None,
        metadata_cache_size_bytes: int | None = None,
        *,
        io_scheduler: IoScheduler | None = None,
    ) -> None:
        self._index_capacity = check_size("index_cache_size_bytes", index_cache_size_bytes, 0)
        capacity = check_size("metadata_cache_size_bytes", metadata_cache_size_bytes, METADATA_CACHE_BYTES)
        self.cache = SearchCache(capacity)
        self.io_scheduler = io_scheduler
        self._lock = threading.Lock()
        self._locations: OrderedDict[Any, Location] = OrderedDict()  # the one used longest ago is first
        self._stores: WeakSet[ObjectStore] = WeakSet()  # that places may share
        self._handlers: WeakKeyDictionary[ObjectStore, CommitHandler] = WeakKeyDictionary()  # all but the default

    def locate(self, uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None) -> Location:
        """The store and path that `uri` names; datasets below one root share the store."""
        from lance_io.commit.table_location import open_place, uses_database

        if self.io_scheduler is not None:
            given = dict(storage_options or {})
            names = {name.lower() for name in given}
            defaults = self.io_scheduler.storage_options
            storage_options = {**{name: value for name, value in defaults.items() if name not in names}, **given}
        on = getattr(uri, "filesystem", None)  # a `FilesystemUri`
        key = (str(uri), None if on is None else id(on), tuple(sorted((storage_options or {}).items())))
        with self._lock:
            found = self._locations.get(key)
            if found is None:
                found, handler = open_place(uri, storage_options)
                if uses_database(uri):
                    self._handlers[found.store] = handler
                else:
                    found = replace(found, store=self._share(found.store))
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

    def handler(self, location: Location, commit_lock: CommitLock | None = None) -> CommitHandler:
        """What makes versions visible at a place that was located here, or below it.

        Raises `UsageError` for a lock where a database decides.
        """
        handler = self._handlers.get(location.store, _DEFAULT)
        if commit_lock is None:
            return handler
        if not isinstance(handler, PutAbsentHandler):
            raise UsageError(f"{location.uri} takes no commit_lock: its manifest store decides")
        from lance_io.commit.lock import LockHandler

        return LockHandler(commit_lock)

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

    def __repr__(self) -> str:
        return f"Session(index_cache_size_bytes=0, metadata_cache_size_bytes={self.size_bytes()})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _session, (self._index_capacity, self.cache.capacity_bytes, self.io_scheduler)


def _session(index_bytes: int, metadata_bytes: int, io_scheduler: IoScheduler | None) -> Session:
    return Session(index_bytes, metadata_bytes, io_scheduler=io_scheduler)
