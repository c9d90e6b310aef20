"""A store in a dictionary: for tests, for `memory://` tables, and as the plainest statement of the protocol.

Objects are immutable `bytes`; reads return views of them, so nothing is copied. All methods work from any thread.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from datetime import UTC, datetime
from itertools import count, islice, pairwise
from typing import TYPE_CHECKING, Self

from lance_io.errors import AlreadyExists, NotFound, UsageError
from lance_io.spans import Fetched, Ranges, join_fetched
from lance_io.store.api import ALL, Buffer, Capabilities, Durability, ObjectMeta, Selection, WritableBuffer
from lance_io.store.bounds import check_range, check_ranges, merge_cost
from lance_io.store.counters import StoreStats
from lance_io.store.failures import PreconditionFailed
from lance_io.store.forking import survive_fork
from lance_io.store.profile import MEMORY, StoreProfile
from lance_io.store.upload import PartUpload

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

    from lance_io.store.counters import Operation

_numbers = count()


class MemoryStore:
    """Objects in this process's memory.

    name   appears in `identity`; None makes a store that is equal to no other
    clock  dates the objects, seconds since the epoch
    """

    scheme = "memory"
    capabilities = Capabilities()

    def __init__(
        self,
        name: str | None = None,
        *,
        profile: StoreProfile = MEMORY,
        stats: StoreStats | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.identity = f"memory://{name if name is not None else f'#{next(_numbers)}'}"
        self.profile = profile
        self.stats = stats or StoreStats()
        self._clock = clock
        self._objects: dict[str, tuple[bytes, ObjectMeta]] = {}
        self._versions = count(1)
        self.start_over()
        survive_fork(self)

    def start_over(self) -> None:
        """New lock (after a fork)."""
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"MemoryStore({self.identity!r}, {len(self._objects)} objects)"

    # -- reading without waiting ------------------------------------------------------------------------------------

    def read_sync(
        self, wanted: Sequence[tuple[str, Ranges]], gap_bytes: int, scratch: WritableBuffer | None = None
    ) -> list[Fetched]:
        """Whole objects as buffers, and where the ranges lie in them; see `SyncReads`."""
        return [self._read(key, ranges, gap_bytes) for key, ranges in wanted]

    def _read(self, key: str, ranges: Ranges, gap_bytes: int) -> Fetched:
        data, meta = self._find("get", key)
        if not len(ranges):
            return Fetched(data, ranges.starts)
        check_ranges(key, ranges.starts, ranges.ends, meta.size_bytes)
        num_reads, num_bytes = merge_cost(ranges.starts, ranges.ends, gap_bytes)
        self.stats.count_reads(key, num_reads, num_bytes, ranges)
        return Fetched(data, ranges.starts, num_reads, num_bytes)

    def read_joined_sync(
        self,
        keys: Sequence[str],
        ranges: Ranges,
        bounds: Sequence[int],
        gap_bytes: int,
        scratch: WritableBuffer | None = None,
    ) -> Fetched:
        """Copies of all ranges, one after the other; see `SyncReads`."""
        parts = [ranges.part(first, end) for first, end in pairwise(bounds)]
        parts_read = [self._read(key, part, gap_bytes) for key, part in zip(keys, parts, strict=True)]
        return join_fetched(parts_read, parts)

    def get_sync(self, key: str) -> bytes:
        """A whole object."""
        data, _ = self._find("get", key)
        self.stats.count("get", key, len(data))
        return data

    def suffix_sync(self, keys: Sequence[str], num_bytes: int) -> list[tuple[Buffer, int]]:
        """The last bytes of objects and their sizes."""
        return [self._suffix(key, num_bytes) for key in keys]

    def _suffix(self, key: str, num_bytes: int) -> tuple[Buffer, int]:
        data, meta = self._find("get", key)
        tail = memoryview(data)[max(0, meta.size_bytes - num_bytes) :]
        self.stats.count("get", key, len(tail), start=-num_bytes)
        return tail, meta.size_bytes

    def head_sync(self, key: str) -> ObjectMeta:
        """Size and etag of an object."""
        _, meta = self._find("head", key)
        self.stats.count("head", key, 0)
        return meta

    def list_sync(self, prefix: str, asked: Selection = ALL) -> list[ObjectMeta]:
        """Objects below a prefix in key order."""
        listed = list(islice(self._walk(prefix, asked.start_after, asked.delimiter), asked.limit))
        self.stats.count("list", prefix, 0)
        return listed

    def _walk(self, prefix: str, start_after: str | None, delimiter: str | None) -> Iterator[ObjectMeta]:
        with self._lock:
            keys = sorted(self._objects)
            objects = dict(self._objects)
        at = bisect_left(keys, prefix)
        if start_after is not None:
            at = max(at, bisect_right(keys, start_after))
        folder = None
        for key in keys[at:]:
            if not key.startswith(prefix):
                return
            if folder is not None and key.startswith(folder):
                continue
            cut = key.find(delimiter, len(prefix)) if delimiter else -1
            if cut < 0:
                yield objects[key][1]
            else:
                folder = key[: cut + 1]
                if start_after is None or folder > start_after:
                    yield ObjectMeta(folder, 0)

    def _find(self, operation: str, key: str) -> tuple[bytes, ObjectMeta]:
        try:
            return self._objects[key]
        except KeyError:
            self.stats.error("head" if operation == "head" else "get")
            raise NotFound("there is no such object in memory", path=key) from None

    # -- writing without waiting ------------------------------------------------------------------------------------

    def put_sync(
        self,
        key: str,
        data: Buffer,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        durability: Durability | None = None,
        in_place: bool = False,
    ) -> ObjectMeta:
        """`put` without a loop."""
        content = bytes(data)
        operation: Operation = "put_create" if if_absent else "put"
        with self._lock:
            there = self._objects.get(key)
            if if_absent and there is not None:
                self.stats.error(operation)
                raise AlreadyExists("an object of this key is there already", path=key)
            if if_match is not None and (there is None or there[1].etag != if_match):
                self.stats.error(operation)
                raise PreconditionFailed("the object has changed since it was read", path=key, operation=operation)
            meta = ObjectMeta(
                key, len(content), f'"{next(self._versions)}"', datetime.fromtimestamp(self._clock(), UTC)
            )
            self._objects[key] = (content, meta)
        self.stats.count(operation, key, len(content))
        return meta

    def open_upload_sync(
        self, key: str, *, if_absent: bool = False, durability: Durability | None = None
    ) -> MemoryUpload:
        """Start writing an object of any size; see `SyncWrites`."""
        return MemoryUpload(self, key, if_absent=if_absent)

    def delete_sync(self, keys: Iterable[str]) -> None:
        """Delete objects; missing ones count as deleted."""
        for key in keys:
            with self._lock:
                self._objects.pop(key, None)
            self.stats.count("delete", key, 0)

    # -- the protocol -----------------------------------------------------------------------------------------------

    async def get_range(self, key: str, start: int, end: int) -> Buffer:
        """Bytes `start` to `end` of an object."""
        data, meta = self._find("get", key)
        check_range(key, start, end, meta.size_bytes)
        if start < end:
            self.stats.count("get", key, end - start, start=start, end=end)
        return memoryview(data)[start:end]

    async def get_suffix(self, key: str, num_bytes: int) -> tuple[Buffer, int, str | None]:
        """The last bytes of an object, its size, its etag."""
        tail, size_bytes = self._suffix(key, num_bytes)
        return tail, size_bytes, self._objects[key][1].etag

    async def get(self, key: str) -> tuple[Buffer, ObjectMeta]:
        """A whole object."""
        data = self.get_sync(key)
        return data, self._objects[key][1]

    async def head(self, key: str) -> ObjectMeta:
        """Size and etag of an object."""
        return self.head_sync(key)

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
        """Write an object; see `ObjectStore.put`."""
        return self.put_sync(key, data, if_absent=if_absent, if_match=if_match)

    async def put_multipart(
        self, key: str, *, if_absent: bool = False, durability: Durability | None = None
    ) -> MemoryPartWriter:
        """Collect parts and put them together at the end."""
        return MemoryPartWriter(self, key, if_absent=if_absent)

    async def open_upload(
        self,
        key: str,
        *,
        if_absent: bool = False,
        durability: Durability | None = None,
        content_length_hint: int | None = None,
    ) -> PartUpload:
        """Start writing an object of any size."""
        return PartUpload(self, key, if_absent=if_absent, content_length_hint=content_length_hint)

    async def copy(self, source: str, key: str) -> None:
        """Write an object with the content of another."""
        data, _ = self._find("get", source)
        self.put_sync(key, data)

    async def list(self, prefix: str, asked: Selection = ALL) -> AsyncIterator[ObjectMeta]:
        """Objects below a prefix in key order."""
        for meta in self.list_sync(prefix, asked):
            yield meta

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; missing ones count as deleted."""
        self.delete_sync(keys)

    async def aclose(self) -> None:
        """Nothing to close."""


class MemoryPartWriter:
    """Parts of an object that is being written; see `PartWriter`."""

    def __init__(self, store: MemoryStore, key: str, *, if_absent: bool) -> None:
        self._store = store
        self._key = key
        self._if_absent = if_absent
        self._parts: dict[int, bytes] = {}

    async def write_part(self, number: int, offset_bytes: int, data: Buffer) -> None:
        """Keep a part."""
        self._parts[number] = bytes(data)
        self._store.stats.count("part", self._key, len(self._parts[number]))

    async def complete(self) -> ObjectMeta:
        """Put the parts together."""
        content = b"".join(self._parts[number] for number in range(len(self._parts)))
        return self._store.put_sync(self._key, content, if_absent=self._if_absent)

    async def abort(self) -> None:
        """Forget the parts."""
        self._parts.clear()


class MemoryUpload:
    """`SyncUpload` into memory."""

    def __init__(self, store: MemoryStore, key: str, *, if_absent: bool) -> None:
        self._store = store
        self._key = key
        self._if_absent = if_absent
        self._content = bytearray()
        self._meta: ObjectMeta | None = None
        self._over = False

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""
        return len(self._content)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()

    def write(self, buffers: Iterable[Buffer]) -> None:
        """Append buffers."""
        self._check_open()
        for buffer in buffers:
            self._content += memoryview(buffer).cast("B")

    def close(self) -> ObjectMeta:
        """Make the object visible."""
        if self._meta is None:
            self._check_open()
            self._over = True
            self._meta = self._store.put_sync(self._key, self._content, if_absent=self._if_absent)
        return self._meta

    def abort(self) -> None:
        """Drop the written bytes."""
        self._over = True

    def _check_open(self) -> None:
        if self._over:
            raise UsageError(f"{self._key}: this upload is over (closed, aborted or failed); open another one")
