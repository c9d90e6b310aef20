"""A remote store with a disk cache in front.

Immutable objects are looked up in the cache, and added to it after they were read; all other requests go directly to
the store. The planner of ranges looks up many at once (`FindsRanges`), and the misses go to the store together, so
that it can batch them. Scans bypass the cache, unless the user wants otherwise (`Flow.reads_once`).

Only the threads of the cache touch the disk; they pass their results to the loop.
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
    from lance_io.store.offers import Flow, OnRangesDone, OnRetry, StartedRead

_VERSIONS: Final = "_versions"
_HEAD: Final = struct.Struct("<qh")  # header of a copy: size of the object, length of the etag or -1


class CachedStore(ForwardingStore):
    """See the module's docstring; an `ObjectStore` that offers `StartReads`, `FindsRanges` and `KeepsCopies`.

    inner        the store
    cache        of its objects
    access       identifies the credentials of the store; see `NameSpace`
    keeps_scans  whether scans also use the cache and add to it
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
        if end <= start or not self.may_be_cached(key, flow.get()):
            return await self.inner.get_range(key, start, end)
        name = self.names.of_range(key, start, end)
        cached = await self._find(name)
        if cached is not None:
            return cached
        try:
            data = await self.inner.get_range(key, start, end)
        except NotFound:
            self._forget_manifests(key)
            raise
        self.cache.keep(name, data)
        return data

    async def get_suffix(self, key: str, num_bytes: int) -> tuple[Buffer, int, str | None]:
        """The end of an object, its size, its etag."""
        if num_bytes <= 0 or not self.may_be_cached(key, flow.get()):
            return await self.inner.get_suffix(key, num_bytes)
        name = self.names.of_suffix(key, num_bytes)
        copy = await self._find(name)
        if copy is not None:
            size_bytes, etag, data = _described(copy)
            return data, size_bytes, etag
        try:
            data, size_bytes, etag = await self.inner.get_suffix(key, num_bytes)
        except NotFound:
            self._forget_manifests(key)
            raise
        self.cache.keep(name, _describe(size_bytes, etag, data))
        return data, size_bytes, etag

    async def get(self, key: str) -> tuple[Buffer, ObjectMeta]:
        """A whole object; without its time if it comes from the cache."""
        if not self.may_be_cached(key, flow.get()):
            return await self.inner.get(key)
        name = self.names.of_object(key)
        copy = await self._find(name)
        if copy is not None:
            size_bytes, etag, data = _described(copy)
            return bytes(data), ObjectMeta(key, size_bytes, etag)
        try:
            data, meta = await self.inner.get(key)
        except NotFound:
            self._forget_manifests(key)
            raise
        self.cache.keep(name, _describe(meta.size_bytes, meta.etag, data))
        return data, meta

    def may_be_cached(self, key: str, operation: Flow | None) -> bool:
        """See `FindsRanges`."""
        if operation is not None and operation.reads_once and not self._keeps_scans:
            return False
        return is_fixed(key) and self.cache.is_up

    def find_ranges(self, wanted: Sequence[WantedRange]) -> Future[list[memoryview | None]]:
        """See `FindsRanges`."""
        names = self.names.of_ranges(wanted)
        return self.cache.find(names, [request.memory for request in wanted])

    def start_ranges(
        self, requests: Sequence[WantedRange], on_done: OnRangesDone, on_retry: OnRetry
    ) -> Sequence[StartedRead]:
        """See `StartReads`. Keeps the ranges that `may_be_cached` accepts; looks up none."""
        kept = [wanted.end > wanted.start and self.may_be_cached(wanted.key, wanted.operation) for wanted in requests]
        inner: Any = self.inner
        starts = hasattr(inner, "start_ranges")
        if starts and not any(kept):
            begun: Sequence[StartedRead] = inner.start_ranges(requests, on_done, on_retry)
            return begun
        group = _KeptReads(self, on_done, on_retry)
        reads = [_KeptRead(wanted, is_kept=is_kept) for wanted, is_kept in zip(requests, kept, strict=True)]
        (group.begin if starts else group.begin_alone)(reads)
        return reads

    async def _find(self, name: CopyName) -> memoryview | None:
        (copy,) = await asyncio.wrap_future(self.cache.find([name]))
        if copy is not None and (on_hit := on_cached.get()) is not None:
            on_hit()
        return copy

    # -- manifests ----------------------------------------------------------------------------------------------

    async def find_copy(self, key: str, etag: str | None) -> Buffer | None:
        """See `KeepsCopies`."""
        if not self.cache.is_up:
            return None
        copy = await self._find(self.names.of_versioned(key))
        if copy is None:
            return None
        _, kept_etag, data = _described(copy)
        return bytes(data) if etag is None or etag == kept_etag else None

    def keep_copy(self, key: str, etag: str | None, data: Buffer) -> None:
        """See `KeepsCopies`."""
        self.cache.keep(self.names.of_versioned(key), _describe(len(data), etag, data))

    def forget_copy(self, key: str) -> None:
        """See `KeepsCopies`."""
        name = self.names.of_versioned(key)
        self.cache.forget(name.object_id, name.start)

    def _forget_manifests(self, key: str) -> None:
        """Drop cached manifests after a file is missing: the table was cleaned up or deleted, so they may be stale."""
        folder = table_folder(key)
        if folder is not None:
            self.cache.forget(self.names.of_versioned(f"{folder}/{_VERSIONS}/").object_id)

    def _changed(self, key: str) -> None:
        if f"/{_VERSIONS}/" in f"/{key}":
            self.forget_copy(key)

    # -- requests that bypass or invalidate the cache -----------------------------------------------------------

    def list(self, prefix: str, asked: Selection = ALL) -> AsyncIterator[ObjectMeta]:
        """Objects below a prefix; opens the cache meanwhile for the reads that follow."""
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
        """Stay connected for a moment, if the store supports that."""
        linger = getattr(self.inner, "linger", None)
        if linger is not None:
            linger()


class _KeptRead:
    """A read of a range from the store in progress; a `StartedRead`.

    is_kept  whether its bytes are added to the cache
    """

    __slots__ = ("data", "error", "is_kept", "is_over", "started", "tag", "wanted")

    def __init__(self, wanted: WantedRange, *, is_kept: bool) -> None:
        self.wanted = wanted
        self.tag = wanted.tag
        self.is_kept = is_kept
        self.is_over = False
        self.started: StartedRead | asyncio.Task[Buffer] | None = None  # the inner read
        self.data: Buffer | None = None
        self.error: BaseException | None = None

    @property
    def queue_s(self) -> float:
        """Seconds that its requests waited before they were sent."""
        return getattr(self.started, "queue_s", 0.0)

    def result(self) -> Buffer | None:
        """See `StartedRead`. Bytes for the cache are never in the caller's memory, which is reused."""
        self.tag = None
        if self.error is not None:
            raise self.error
        data, self.data = self.data, None
        return data

    def cancel(self) -> None:
        """Cancel it."""
        if not self.is_over:
            self.is_over = True
            if self.started is not None:
                self.started.cancel()


class _KeptReads:
    """Ranges that were requested in one call."""

    def __init__(self, store: CachedStore, on_done: OnRangesDone, on_retry: OnRetry) -> None:
        self._store = store
        self._on_done = on_done
        self._on_retry = on_retry

    def begin(self, reads: Sequence[_KeptRead]) -> None:
        """Start them in one call of the inner store."""
        wanted = [read.wanted._replace(tag=read, memory=None if read.is_kept else read.wanted.memory) for read in reads]
        inner: Any = self._store.inner
        started = inner.start_ranges(wanted, self._on_inner_done, self._report_retry)
        for read, inner_read in zip(reads, started, strict=True):
            read.started = inner_read

    def _report_retry(self, read: _KeptRead, late: bool) -> None:
        self._on_retry(read.tag, late)

    def _on_inner_done(self, over: Sequence[StartedRead]) -> None:
        reads = []
        for started in over:
            read: _KeptRead = started.tag
            read.started = started
            try:
                self._received(read, started.result())
            except BaseException as error:
                self._failed(read, error)
            reads.append(read)
        self._on_done(reads)

    def _received(self, read: _KeptRead, data: Buffer | None) -> None:
        read.data, read.is_over = data, True
        if read.is_kept:
            key, start, end = read.wanted[:3]
            if data is not None and len(data) == end - start:
                self._store.cache.keep(self._store.names.of_range(key, start, end), data)

    def _failed(self, read: _KeptRead, error: BaseException) -> None:
        read.error, read.is_over = error, True
        if isinstance(error, NotFound):
            self._store._forget_manifests(read.wanted.key)

    def begin_alone(self, reads: Sequence[_KeptRead]) -> None:
        """Read from a store that needs a task for each."""
        loop = asyncio.get_running_loop()
        for read in reads:
            key, start, end, _, operation, tag = read.wanted
            context = copy_context()
            context.run(on_retry.set, partial(self._on_retry, tag))
            context.run(flow.set, operation)
            task = loop.create_task(self._get_range(key, start, end), context=context)
            read.started = task
            task.add_done_callback(partial(self._on_task_done, read))

    async def _get_range(self, key: str, start: int, end: int) -> Buffer:
        return await self._store.inner.get_range(key, start, end)

    def _on_task_done(self, read: _KeptRead, task: asyncio.Task[Buffer]) -> None:
        if task.cancelled():
            if read.is_over:  # it was cancelled: no callback
                return
            self._failed(read, asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self._failed(read, error)
        else:
            if read.is_over:
                return
            self._received(read, task.result())
        self._on_done([read])


def _describe(size_bytes: int, etag: str | None, data: Buffer) -> bytes:
    """A copy for the cache: size and etag of an object, then its bytes."""
    tag = b"" if etag is None else etag.encode("utf-8", "surrogatepass")
    return b"".join((_HEAD.pack(size_bytes, -1 if etag is None else len(tag)), tag, data))


def _described(copy: memoryview) -> tuple[int, str | None, memoryview]:
    """Size, etag and bytes of an object, from a copy of `_describe`; its checksum was verified."""
    size_bytes, tag_bytes = _HEAD.unpack_from(copy)
    at = _HEAD.size + max(0, tag_bytes)
    etag = None if tag_bytes < 0 else bytes(copy[_HEAD.size : at]).decode("utf-8", "surrogatepass")
    return size_bytes, etag, copy[at:]
