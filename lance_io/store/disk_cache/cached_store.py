"""A store of objects far away that looks into a disk cache first.

What never changes is looked for there, and kept there once it was read; all else goes to the store as it comes. The
ranges of one call of `start_ranges` are looked for together, and those that are not there go to the store together, so
that they share what it shares. Scans pass by, unless asked (`Flow.reads_once`).

The disk is touched by the threads of the cache alone; the loop is told what they have found.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import NotFound
from lance_io.store.api import ALL, ObjectMeta, WantedRange, flow
from lance_io.store.counters import on_cached, on_retry
from lance_io.store.disk_cache.fixed_objects import NameSpace, is_fixed, table_folder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from lance_io.store.api import (
        Buffer,
        Capabilities,
        Durability,
        Flow,
        ObjectStore,
        PartWriter,
        RangesEnded,
        Selection,
        StartedRead,
        StoreProfile,
        StoreStats,
        ToldAgain,
        Upload,
    )
    from lance_io.store.disk_cache.disk_cache import DiskCache
    from lance_io.store.disk_cache.fixed_objects import CopyName

_VERSIONS: Final = "_versions"
_HEAD: Final = struct.Struct("<qh")  # of a copy with a description: size of the object, length of the etag or -1


class CachedStore:
    """See the module's description; an `ObjectStore` that offers `StartReads` and `KeepsCopies`.

    inner        the store
    cache        where copies are
    access       what tells the credentials of the store from others; see `NameSpace`
    keeps_scans  whether scans look there, too, and have kept what they read
    """

    def __init__(self, inner: ObjectStore, cache: DiskCache, access: str, *, keeps_scans: bool = False) -> None:
        self.inner = inner
        self.cache = cache
        self.names = NameSpace(inner.identity, access)
        self._keeps_scans = keeps_scans

    def __repr__(self) -> str:
        return f"CachedStore({self.inner!r}, {self.cache!r})"

    @property
    def scheme(self) -> str:
        """Of the store, as the next ones."""
        return self.inner.scheme

    @property
    def identity(self) -> str:
        """Which store this is."""
        return self.inner.identity

    @property
    def profile(self) -> StoreProfile:
        """Its numbers."""
        return self.inner.profile

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        return self.inner.capabilities

    @property
    def stats(self) -> StoreStats:
        """Counts the requests that are made; what is found in the cache is none."""
        return self.inner.stats

    # -- reading ------------------------------------------------------------------------------------------------

    async def get_range(self, key: str, start: int, end: int) -> Buffer:
        """See `ObjectStore`, like all methods."""
        if end <= start or not self._looks(key, flow.get()):
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
        if num_bytes <= 0 or not self._looks(key, flow.get()):
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
        if not self._looks(key, flow.get()):
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

    def start_ranges(self, wanted: Sequence[WantedRange], ended: RangesEnded, told: ToldAgain) -> Sequence[StartedRead]:
        """See `StartReads`."""
        looked = [one.end > one.start and self._looks(one.key, one.operation) for one in wanted]
        if not any(looked) and hasattr(self.inner, "start_ranges"):
            begun: Sequence[StartedRead] = self.inner.start_ranges(wanted, ended, told)
            return begun
        lookup = _Lookup(self, ended, told)
        reads = [_CachedRead(lookup, one, is_kept=kept) for one, kept in zip(wanted, looked, strict=True)]
        lookup.begin(reads)
        return reads

    def _looks(self, key: str, operation: Flow | None) -> bool:
        if operation is not None and operation.reads_once and not self._keeps_scans:
            return False
        return is_fixed(key) and self.cache.is_up

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

    # -- all else goes to the store -----------------------------------------------------------------------------

    async def head(self, key: str) -> ObjectMeta:
        """What the store knows of an object."""
        return await self.inner.head(key)

    def list(self, prefix: str, asked: Selection = ALL) -> AsyncIterator[ObjectMeta]:
        """Objects below a prefix."""
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

    async def put_multipart(
        self, key: str, *, if_absent: bool = False, durability: Durability | None = None
    ) -> PartWriter:
        """Start an upload in parts."""
        return await self.inner.put_multipart(key, if_absent=if_absent, durability=durability)

    async def open_upload(
        self,
        key: str,
        *,
        if_absent: bool = False,
        durability: Durability | None = None,
        content_length_hint: int | None = None,
    ) -> Upload:
        """Start writing an object of any size."""
        return await self.inner.open_upload(
            key, if_absent=if_absent, durability=durability, content_length_hint=content_length_hint
        )

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

    async def aclose(self) -> None:
        """Close what this loop opened."""
        await self.inner.aclose()

    def linger(self) -> None:
        """Stay connected for a moment, where the store does such a thing."""
        linger = getattr(self.inner, "linger", None)
        if linger is not None:
            linger()


class _CachedRead:
    """A range that is looked for in the cache, or on its way from the store; a `StartedRead`.

    is_kept    whether it is looked for and kept
    is_cached  whether the cache had it
    """

    __slots__ = ("_lookup", "data", "error", "is_cached", "is_kept", "is_over", "started", "tag", "wanted")

    def __init__(self, lookup: _Lookup, wanted: WantedRange, *, is_kept: bool) -> None:
        self._lookup = lookup
        self.wanted = wanted
        self.tag = wanted.tag
        self.is_kept = is_kept
        self.is_cached = self.is_over = False
        self.started: StartedRead | asyncio.Task[Buffer] | None = None  # how it comes from the store
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


class _Lookup:
    """Ranges that were asked for together: looked for, then read as far as they were not found."""

    def __init__(self, store: CachedStore, ended: RangesEnded, told: ToldAgain) -> None:
        self._store = store
        self._ended = ended
        self._told = told
        self._loop = asyncio.get_running_loop()

    def begin(self, reads: Sequence[_CachedRead]) -> None:
        """Look for those that may be in the cache; all others go to the store at once."""
        looked = [read for read in reads if read.is_kept]
        at_once = [read for read in reads if not read.is_kept]
        if at_once:
            self._read(at_once)
        if looked:
            names = [self._store.names.of_range(*read.wanted[:3]) for read in looked]
            memories = [read.wanted.memory for read in looked]
            self._store.cache.find(names, memories).add_done_callback(partial(self._found, looked))

    def _found(self, looked: Sequence[_CachedRead], future: Any) -> None:
        """In the thread of the cache."""
        try:
            ended = partial(self._looked, looked, future.result())
        except BaseException as error:  # whatever it is, those who wait have to hear of it
            ended = partial(self._could_not_look, looked, error)
        with suppress(RuntimeError):  # a closed loop
            self._loop.call_soon_threadsafe(ended)

    def _could_not_look(self, looked: Sequence[_CachedRead], error: BaseException) -> None:
        waiting = [read for read in looked if not read.is_over]
        for read in waiting:
            read.error, read.is_over = error, True
        if waiting:
            self._ended(waiting)

    def _looked(self, looked: Sequence[_CachedRead], found: Sequence[memoryview | None]) -> None:
        there, missing = [], []
        for read, data in zip(looked, found, strict=True):
            if read.is_over:  # given up meanwhile
                continue
            if data is None:
                missing.append(read)
            else:
                read.data = None if data is read.wanted.memory else data
                read.is_cached = read.is_over = True
                there.append(read)
        if missing:  # first: their requests are on their way while others are used
            self._read(missing)
        if there:
            self._ended(there)

    def _read(self, reads: Sequence[_CachedRead]) -> None:
        inner = self._store.inner
        if not hasattr(inner, "start_ranges"):
            for read in reads:
                self._read_alone(read)
            return
        wanted = [read.wanted._replace(tag=read, memory=None if read.is_kept else read.wanted.memory) for read in reads]
        try:
            started = inner.start_ranges(wanted, self._inner_ended, self._tell_again)
        except Exception as error:  # whatever it is, those who wait have to hear of it
            for read in reads:
                read.error, read.is_over = error, True
            self._loop.call_soon(self._ended, reads)
            return
        for read, one in zip(reads, started, strict=True):
            read.started = one

    def _tell_again(self, read: _CachedRead, late: bool) -> None:
        self._told(read.tag, late)

    def _inner_ended(self, over: Sequence[StartedRead]) -> None:
        reads = []
        for started in over:
            read: _CachedRead = started.tag
            read.started = started
            try:
                self._came(read, started.result())
            except BaseException as error:
                self._failed(read, error)
            reads.append(read)
        self._ended(reads)

    def _came(self, read: _CachedRead, data: Buffer | None) -> None:
        read.data, read.is_over = data, True
        if read.is_kept:
            key, start, end = read.wanted[:3]
            if data is not None and len(data) == end - start:
                self._store.cache.keep(self._store.names.of_range(key, start, end), data)

    def _failed(self, read: _CachedRead, error: BaseException) -> None:
        read.error, read.is_over = error, True
        if isinstance(error, NotFound):
            self._store._is_gone(read.wanted.key)

    def _read_alone(self, read: _CachedRead) -> None:
        """From a store that has a task for each."""
        key, start, end, _, operation, tag = read.wanted
        context = copy_context()
        context.run(on_retry.set, partial(self._told, tag))
        context.run(flow.set, operation)
        task = self._loop.create_task(self._get_range(key, start, end), context=context)
        read.started = task
        task.add_done_callback(partial(self._ended_alone, read))

    async def _get_range(self, key: str, start: int, end: int) -> Buffer:
        return await self._store.inner.get_range(key, start, end)

    def _ended_alone(self, read: _CachedRead, task: asyncio.Task[Buffer]) -> None:
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
