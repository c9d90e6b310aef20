"""A store of objects far away that looks into a disk cache first.

What never changes is looked for there, and kept there once it was read; all else goes to the store as it comes. Ranges
are looked for together, by who plans them (`FindsRanges`), and those that are not there go to the store together, so
that they share what it shares. Scans pass by, unless asked (`Flow.reads_once`).

The disk is touched by the threads of the cache alone; the loop is told what they have found.
"""

from __future__ import annotations

import asyncio
import struct
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import NotFound
from lance_io.store.api import ALL, ObjectMeta
from lance_io.store.counters import on_cached, on_retry
from lance_io.store.disk_cache.fixed_objects import NameSpace, is_fixed, table_folder
from lance_io.store.forwarding import ForwardingStore
from lance_io.store.offers import WantedRange, flow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence
    from concurrent.futures import Future

    from lance_io.store.api import Buffer, Durability, ObjectStore, Selection
    from lance_io.store.disk_cache.disk_cache import DiskCache
    from lance_io.store.disk_cache.fixed_objects import CopyName
    from lance_io.store.offers import Flow, RangesEnded, StartedRead, ToldAgain

_VERSIONS: Final = "_versions"
_HEAD: Final = struct.Struct("<qh")  # of a copy with a description: size of the object, length of the etag or -1


class CachedStore(ForwardingStore):
    """See the module's description; an `ObjectStore` that offers `StartReads`, `FindsRanges` and `KeepsCopies`.

    inner        the store
    cache        where copies are
    access       what tells the credentials of the store from others; see `NameSpace`
    keeps_scans  whether scans look there, too, and have kept what they read
    """

    def __init__(self, inner: ObjectStore, cache: DiskCache, access: str, *, keeps_scans: bool = False) -> None:
        super().__init__(inner)
        self.cache = cache
        self.names = NameSpace(inner.identity, access)
        self._keeps_scans = keeps_scans

    def __repr__(self) -> str:
        return f"CachedStore({self.inner!r}, {self.cache!r})"

    # -- reading ------------------------------------------------------------------------------------------------

    async def get_range(self, key: str, start: int, end: int) -> Buffer:
        """See `ObjectStore`, like all methods."""
        if end <= start or not self.looks_for(key, flow.get()):
            return await self.inner.get_range(key, start, end)
        name = self.names.of_range(key, start, end)
        found = await self._find(name)
        if found is not None:
            return found
        try:
            data = await self.inner.get_range(key, start, end)
        except NotFound:
            self._is_gone(key)
            raise
        self.cache.keep(name, data)
        return data

    async def get_suffix(self, key: str, num_bytes: int) -> tuple[Buffer, int, str | None]:
        """The end of an object, its size, its etag."""
        if num_bytes <= 0 or not self.looks_for(key, flow.get()):
            return await self.inner.get_suffix(key, num_bytes)
        name = self.names.of_suffix(key, num_bytes)
        found = await self._find(name)
        if found is not None:
            size_bytes, etag, data = _described(found)
            return data, size_bytes, etag
        try:
            data, size_bytes, etag = await self.inner.get_suffix(key, num_bytes)
        except NotFound:
            self._is_gone(key)
            raise
        self.cache.keep(name, _describe(size_bytes, etag, data))
        return data, size_bytes, etag

    async def get(self, key: str) -> tuple[Buffer, ObjectMeta]:
        """A whole object; of one from the cache the time is not known."""
        if not self.looks_for(key, flow.get()):
            return await self.inner.get(key)
        name = self.names.of_object(key)
        found = await self._find(name)
        if found is not None:
            size_bytes, etag, data = _described(found)
            return bytes(data), ObjectMeta(key, size_bytes, etag)
        try:
            data, meta = await self.inner.get(key)
        except NotFound:
            self._is_gone(key)
            raise
        self.cache.keep(name, _describe(meta.size_bytes, meta.etag, data))
        return data, meta

    def looks_for(self, key: str, operation: Flow | None) -> bool:
        """See `FindsRanges`, like the next."""
        if operation is not None and operation.reads_once and not self._keeps_scans:
            return False
        return is_fixed(key) and self.cache.is_up

    def find_ranges(self, wanted: Sequence[WantedRange]) -> Future[list[memoryview | None]]:
        """What there is of each."""
        names = self.names.of_ranges(wanted)
        return self.cache.find(names, [one.memory for one in wanted])

    def start_ranges(self, wanted: Sequence[WantedRange], ended: RangesEnded, told: ToldAgain) -> Sequence[StartedRead]:
        """See `StartReads`. Those that `looks_for` says are kept; nothing is looked for."""
        kept = [one.end > one.start and self.looks_for(one.key, one.operation) for one in wanted]
        inner: Any = self.inner
        starts = hasattr(inner, "start_ranges")
        if starts and not any(kept):
            begun: Sequence[StartedRead] = inner.start_ranges(wanted, ended, told)
            return begun
        group = _KeptReads(self, ended, told)
        reads = [_KeptRead(one, is_kept=is_kept) for one, is_kept in zip(wanted, kept, strict=True)]
        (group.begin if starts else group.begin_alone)(reads)
        return reads

    async def _find(self, name: CopyName) -> memoryview | None:
        (found,) = await asyncio.wrap_future(self.cache.find([name]))
        if found is not None and (tell := on_cached.get()) is not None:
            tell()
        return found

    # -- manifests ----------------------------------------------------------------------------------------------

    async def find_copy(self, key: str, etag: str | None) -> Buffer | None:
        """See `KeepsCopies`."""
        if not self.cache.is_up:
            return None
        found = await self._find(self.names.of_versioned(key))
        if found is None:
            return None
        _, kept_etag, data = _described(found)
        return bytes(data) if etag is None or etag == kept_etag else None

    def keep_copy(self, key: str, etag: str | None, data: Buffer) -> None:
        """See `KeepsCopies`."""
        self.cache.keep(self.names.of_versioned(key), _describe(len(data), etag, data))

    def forget_copy(self, key: str) -> None:
        """See `KeepsCopies`."""
        name = self.names.of_versioned(key)
        self.cache.forget(name.object_id, name.start)

    def _is_gone(self, key: str) -> None:
        """A file is gone that a manifest names: the table was cleaned up or deleted, copies of manifests are old."""
        folder = table_folder(key)
        if folder is not None:
            self.cache.forget(self.names.of_versioned(f"{folder}/{_VERSIONS}/").object_id)

    def _changed(self, key: str) -> None:
        if f"/{_VERSIONS}/" in f"/{key}":
            self.forget_copy(key)

    # -- what goes to the store, and changes what is known -------------------------------------------------------

    def list(self, prefix: str, asked: Selection = ALL) -> AsyncIterator[ObjectMeta]:
        """Objects below a prefix; what is read next is looked for in the cache."""
        self.cache.open_soon()
        return self.inner.list(prefix, asked)

    async def put(
        self,
        key: str,
        data: Buffer,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        durability: Durability | None = None,
        in_place: bool = False,
    ) -> ObjectMeta:
        """Write an object."""
        try:
            return await self.inner.put(
                key, data, if_absent=if_absent, if_match=if_match, durability=durability, in_place=in_place
            )
        finally:
            self._changed(key)

    async def copy(self, source: str, key: str) -> None:
        """Write an object with the content of another."""
        try:
            await self.inner.copy(source, key)
        finally:
            self._changed(key)

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete objects."""
        gone = list(keys)
        try:
            await self.inner.delete(gone)
        finally:
            for key in gone:
                self._changed(key)

    def linger(self) -> None:
        """Stay connected for a moment, where the store does such a thing."""
        linger = getattr(self.inner, "linger", None)
        if linger is not None:
            linger()


class _KeptRead:
    """A range on its way from the store; a `StartedRead`.

    is_kept  whether the cache keeps it when it has come
    """

    __slots__ = ("data", "error", "is_kept", "is_over", "started", "tag", "wanted")

    def __init__(self, wanted: WantedRange, *, is_kept: bool) -> None:
        self.wanted = wanted
        self.tag = wanted.tag
        self.is_kept = is_kept
        self.is_over = False
        self.started: StartedRead | asyncio.Task[Buffer] | None = None  # how it comes
        self.data: Buffer | None = None
        self.error: BaseException | None = None

    @property
    def queue_s(self) -> float:
        """Seconds that its requests have waited before they were sent."""
        return getattr(self.started, "queue_s", 0.0)

    def result(self) -> Buffer | None:
        """See `StartedRead`. Never in the memory that was given where it is to be kept: that memory is used again."""
        self.tag = None
        if self.error is not None:
            raise self.error
        data, self.data = self.data, None
        return data

    def cancel(self) -> None:
        """Give it up."""
        if not self.is_over:
            self.is_over = True
            if self.started is not None:
                self.started.cancel()


class _KeptReads:
    """Ranges that were asked for together."""

    def __init__(self, store: CachedStore, ended: RangesEnded, told: ToldAgain) -> None:
        self._store = store
        self._ended = ended
        self._told = told

    def begin(self, reads: Sequence[_KeptRead]) -> None:
        """Have a store begin them together."""
        wanted = [read.wanted._replace(tag=read, memory=None if read.is_kept else read.wanted.memory) for read in reads]
        inner: Any = self._store.inner
        started = inner.start_ranges(wanted, self._inner_ended, self._tell_again)
        for read, one in zip(reads, started, strict=True):
            read.started = one

    def _tell_again(self, read: _KeptRead, late: bool) -> None:
        self._told(read.tag, late)

    def _inner_ended(self, over: Sequence[StartedRead]) -> None:
        reads = []
        for started in over:
            read: _KeptRead = started.tag
            read.started = started
            try:
                self._came(read, started.result())
            except BaseException as error:
                self._failed(read, error)
            reads.append(read)
        self._ended(reads)

    def _came(self, read: _KeptRead, data: Buffer | None) -> None:
        read.data, read.is_over = data, True
        if read.is_kept:
            key, start, end = read.wanted[:3]
            if data is not None and len(data) == end - start:
                self._store.cache.keep(self._store.names.of_range(key, start, end), data)

    def _failed(self, read: _KeptRead, error: BaseException) -> None:
        read.error, read.is_over = error, True
        if isinstance(error, NotFound):
            self._store._is_gone(read.wanted.key)

    def begin_alone(self, reads: Sequence[_KeptRead]) -> None:
        """Read from a store that has a task for each."""
        loop = asyncio.get_running_loop()
        for read in reads:
            key, start, end, _, operation, tag = read.wanted
            context = copy_context()
            context.run(on_retry.set, partial(self._told, tag))
            context.run(flow.set, operation)
            task = loop.create_task(self._get_range(key, start, end), context=context)
            read.started = task
            task.add_done_callback(partial(self._ended_alone, read))

    async def _get_range(self, key: str, start: int, end: int) -> Buffer:
        return await self._store.inner.get_range(key, start, end)

    def _ended_alone(self, read: _KeptRead, task: asyncio.Task[Buffer]) -> None:
        if task.cancelled():
            if read.is_over:  # nobody is told of what was given up
                return
            self._failed(read, asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self._failed(read, error)
        else:
            if read.is_over:
                return
            self._came(read, task.result())
        self._ended([read])


def _describe(size_bytes: int, etag: str | None, data: Buffer) -> bytes:
    """An object's bytes behind what the store says of it."""
    tag = b"" if etag is None else etag.encode("utf-8", "surrogatepass")
    return b"".join((_HEAD.pack(size_bytes, -1 if etag is None else len(tag)), tag, data))


def _described(copy: memoryview) -> tuple[int, str | None, memoryview]:
    """Size, etag and bytes of an object. Its checksum was right: this is what `_describe` has made."""
    size_bytes, tag_bytes = _HEAD.unpack_from(copy)
    at = _HEAD.size + max(0, tag_bytes)
    etag = None if tag_bytes < 0 else bytes(copy[_HEAD.size : at]).decode("utf-8", "surrogatepass")
    return size_bytes, etag, copy[at:]
