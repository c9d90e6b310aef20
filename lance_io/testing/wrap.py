"""A store around a store: a hook sees every request, before it is sent and after its answer."""

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
    """A request to a store.

    Attributes:
        operation: Class of the request.
        key: Key of the object, or prefix of a listing.
        start: First byte of a range; -n for a suffix of n bytes; None for a whole object.
        end: End of a range; None for a suffix or a whole object.
        num_bytes: Payload of a write in bytes.
    """

    operation: Operation
    key: str
    start: int | None = None
    end: int | None = None
    num_bytes: int | None = None

    @property
    def is_write(self) -> bool:
        """Whether it changes stored objects."""
        return self.operation in WRITES

    def __str__(self) -> str:
        if self.start is not None:
            return f"{self.operation} {self.key} {self.start}{'' if self.end is None else f'-{self.end}'}"
        if self.num_bytes is not None:
            return f"{self.operation} {self.key} {self.num_bytes} bytes"
        return f"{self.operation} {self.key}"


class WrappedStore(ForwardingStore):
    """Forwards every request to `inner`; subclasses override `request`.

    Args:
        inner: The store that answers the requests.
    """

    async def request(self, request: Request, send: Callable[[], Awaitable[T]]) -> T:
        """Carry out one request; override it to act before or after.

        Args:
            request: The request.
            send: Sends it to the inner store: `await send()`.

        Returns:
            The result of `send`.
        """
        return await send()

    async def get_range(self, key: str, start: int, end: int) -> Buffer:
        """See `ObjectStore.get_range`."""
        return await self.request(Request("get", key, start, end), lambda: self.inner.get_range(key, start, end))

    async def get_suffix(self, key: str, num_bytes: int) -> tuple[Buffer, int, str | None]:
        """See `ObjectStore.get_suffix`."""
        return await self.request(Request("get", key, -num_bytes), lambda: self.inner.get_suffix(key, num_bytes))

    async def get(self, key: str) -> tuple[Buffer, ObjectMeta]:
        """See `ObjectStore.get`."""
        return await self.request(Request("get", key), lambda: self.inner.get(key))

    async def head(self, key: str) -> ObjectMeta:
        """See `ObjectStore.head`."""
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
        """See `ObjectStore.put`."""
        return await self.request(
            put_request(key, data, if_absent),
            lambda: self.inner.put(
                key, data, if_absent=if_absent, if_match=if_match, durability=durability, in_place=in_place
            ),
        )

    async def put_multipart(
        self, key: str, *, if_absent: bool = False, durability: Durability | None = None
    ) -> PartWriter:
        """See `ObjectStore.put_multipart`."""
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
        """See `ObjectStore.open_upload`; its PUT, or its parts and their completion, are requests of the wrapper."""
        return PartUpload(
            self, key, if_absent=if_absent, durability=durability, content_length_hint=content_length_hint
        )

    async def copy(self, source: str, key: str) -> None:
        """See `ObjectStore.copy`."""
        await self.request(Request("put", key), lambda: self.inner.copy(source, key))

    async def list(self, prefix: str, asked: Selection = ALL) -> AsyncIterator[ObjectMeta]:
        """See `ObjectStore.list`; the whole listing counts as one request."""

        async def collect() -> list[ObjectMeta]:
            return [meta async for meta in self.inner.list(prefix, asked)]

        for meta in await self.request(Request("list", prefix), collect):
            yield meta

    async def delete(self, keys: Iterable[str]) -> None:
        """See `ObjectStore.delete`; one request for each object."""
        for key in keys:
            await self.request(Request("delete", key), lambda key=key: self.inner.delete([key]))  # type: ignore[misc]


class WrappedPartWriter:
    """An upload whose parts and completion are requests of the wrapper.

    Args:
        store: The wrapper.
        key: Key of the object.
        inner: The upload of the inner store.
        if_absent: Whether the upload must not replace an object.
    """

    def __init__(self, store: WrappedStore, key: str, inner: PartWriter, *, if_absent: bool) -> None:
        self._store = store
        self._key = key
        self._inner = inner
        self._end: Operation = "put_create" if if_absent else "put"

    async def write_part(self, number: int, offset_bytes: int, data: Buffer) -> None:
        """See `PartWriter.write_part`."""
        request = Request("part", self._key, num_bytes=memoryview(data).nbytes)
        await self._store.request(request, lambda: self._inner.write_part(number, offset_bytes, data))

    async def complete(self) -> ObjectMeta:
        """See `PartWriter.complete`."""
        return await self._store.request(Request(self._end, self._key), self._inner.complete)

    async def abort(self) -> None:
        """See `PartWriter.abort`."""
        await self._store.request(Request("delete", self._key), self._inner.abort)


def put_request(key: str, data: Buffer, if_absent: bool) -> Request:
    """The request of a PUT.

    Args:
        key: Key of the object.
        data: Its content, a buffer.
        if_absent: Whether the PUT must not replace an object.
    """
    operation: Operation = "put_create" if if_absent else "put"
    return Request(operation, key, num_bytes=memoryview(data).nbytes)
