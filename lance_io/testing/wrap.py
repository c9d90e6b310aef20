"""A store around a store: one hook sees every request, before it goes out and after it came back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from lance_io.store.api import ALL
from lance_io.store.forwarding import ForwardingStore
from lance_io.store.upload import PartUpload

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from lance_io.store.api import (
        Buffer,
        Durability,
        ObjectMeta,
        PartWriter,
        Selection,
    )
    from lance_io.store.counters import Operation

T = TypeVar("T")
WRITES: frozenset[str] = frozenset({"put", "put_create", "part", "delete"})


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of a store.

    start, end  of a range; of a suffix of n bytes -n and None; both None for a whole object
    num_bytes   payload of a write
    """

    operation: Operation
    key: str
    start: int | None = None
    end: int | None = None
    num_bytes: int | None = None

    @property
    def is_write(self) -> bool:
        """Does it change what is stored?"""
        return self.operation in WRITES

    def __str__(self) -> str:
        if self.start is not None:
            return f"{self.operation} {self.key} {self.start}{'' if self.end is None else f'-{self.end}'}"
        if self.num_bytes is not None:
            return f"{self.operation} {self.key} {self.num_bytes} bytes"
        return f"{self.operation} {self.key}"


class WrappedStore(ForwardingStore):
    """Passes everything on to `inner`; subclasses override `request`."""

    async def request(self, request: Request, send: Callable[[], Awaitable[T]]) -> T:
        """Carry out one request: `await send()` does it."""
        return await send()

    async def get_range(self, key: str, start: int, end: int) -> Buffer:
        """See `ObjectStore`, like all methods."""
        return await self.request(Request("get", key, start, end), lambda: self.inner.get_range(key, start, end))

    async def get_suffix(self, key: str, num_bytes: int) -> tuple[Buffer, int, str | None]:
        """The end of an object."""
        return await self.request(Request("get", key, -num_bytes), lambda: self.inner.get_suffix(key, num_bytes))

    async def get(self, key: str) -> tuple[Buffer, ObjectMeta]:
        """A whole object."""
        return await self.request(Request("get", key), lambda: self.inner.get(key))

    async def head(self, key: str) -> ObjectMeta:
        """Metadata of an object."""
        return await self.request(Request("head", key), lambda: self.inner.head(key))

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
        return await self.request(
            put_request(key, data, if_absent),
            lambda: self.inner.put(
                key, data, if_absent=if_absent, if_match=if_match, durability=durability, in_place=in_place
            ),
        )

    async def put_multipart(
        self, key: str, *, if_absent: bool = False, durability: Durability | None = None
    ) -> PartWriter:
        """Start an upload in parts."""
        writer = await self.request(
            Request("part", key), lambda: self.inner.put_multipart(key, if_absent=if_absent, durability=durability)
        )
        return WrappedPartWriter(self, key, writer, if_absent=if_absent)

    async def open_upload(
        self,
        key: str,
        *,
        if_absent: bool = False,
        durability: Durability | None = None,
        content_length_hint: int | None = None,
    ) -> PartUpload:
        """Start writing an object of any size; its PUT, or its parts and their end, are requests of the wrapper."""
        return PartUpload(
            self, key, if_absent=if_absent, durability=durability, content_length_hint=content_length_hint
        )

    async def copy(self, source: str, key: str) -> None:
        """Write an object with the content of another."""
        await self.request(Request("put", key), lambda: self.inner.copy(source, key))

    async def list(self, prefix: str, asked: Selection = ALL) -> AsyncIterator[ObjectMeta]:
        """Objects below a prefix; the whole listing counts as one request."""

        async def collect() -> list[ObjectMeta]:
            return [meta async for meta in self.inner.list(prefix, asked)]

        for meta in await self.request(Request("list", prefix), collect):
            yield meta

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, one request each."""
        for key in keys:
            await self.request(Request("delete", key), lambda key=key: self.inner.delete([key]))  # type: ignore[misc]


class WrappedPartWriter:
    """An upload whose parts and end are requests of the wrapper."""

    def __init__(self, store: WrappedStore, key: str, inner: PartWriter, *, if_absent: bool) -> None:
        self._store = store
        self._key = key
        self._inner = inner
        self._end: Operation = "put_create" if if_absent else "put"

    async def write_part(self, number: int, offset_bytes: int, data: Buffer) -> None:
        """Send a part."""
        request = Request("part", self._key, num_bytes=memoryview(data).nbytes)
        await self._store.request(request, lambda: self._inner.write_part(number, offset_bytes, data))

    async def complete(self) -> ObjectMeta:
        """Make the object visible."""
        return await self._store.request(Request(self._end, self._key), self._inner.complete)

    async def abort(self) -> None:
        """Drop the parts."""
        await self._store.request(Request("delete", self._key), self._inner.abort)


def put_request(key: str, data: Buffer, if_absent: bool) -> Request:
    """A PUT as the wrappers see it."""
    operation: Operation = "put_create" if if_absent else "put"
    return Request(operation, key, num_bytes=memoryview(data).nbytes)
