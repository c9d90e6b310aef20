"""A store that forwards every call to another one: base class of stores that wrap a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.store.api import ALL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from lance_io.store.api import (
        Buffer,
        Capabilities,
        Durability,
        ObjectMeta,
        ObjectStore,
        PartWriter,
        Selection,
        Upload,
    )
    from lance_io.store.counters import StoreStats
    from lance_io.store.profile import StoreProfile


class ForwardingStore:
    """An `ObjectStore` and nothing beyond; its methods and properties are those of `inner`."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner

    @property
    def scheme(self) -> str:
        """Of the inner store, like all properties."""
        return self.inner.scheme

    @property
    def identity(self) -> str:
        """Which store this is."""
        return self.inner.identity

    @property
    def profile(self) -> StoreProfile:
        """The numbers to plan reads by."""
        return self.inner.profile

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities."""
        return self.inner.capabilities

    @property
    def stats(self) -> StoreStats:
        """Counts the requests that the inner store makes."""
        return self.inner.stats

    async def get_range(self, key: str, start: int, end: int) -> Buffer:
        """See `ObjectStore`, like all methods."""
        return await self.inner.get_range(key, start, end)

    async def get_suffix(self, key: str, num_bytes: int) -> tuple[Buffer, int, str | None]:
        """The end of an object, its size, its etag."""
        return await self.inner.get_suffix(key, num_bytes)

    async def get(self, key: str) -> tuple[Buffer, ObjectMeta]:
        """A whole object."""
        return await self.inner.get(key)

    async def head(self, key: str) -> ObjectMeta:
        """Size and etag of an object."""
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
        return await self.inner.put(
            key, data, if_absent=if_absent, if_match=if_match, durability=durability, in_place=in_place
        )

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
        await self.inner.copy(source, key)

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete objects."""
        await self.inner.delete(keys)

    async def aclose(self) -> None:
        """Close what this loop opened."""
        await self.inner.aclose()
