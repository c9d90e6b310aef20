"""Requests of plans to stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from lance_io.io.stats import begin_reads, count_round, count_wanted, end_reads, sinks_now
from lance_io.records import dataclass
from lance_io.store.api import ALL
from lance_io.store.counters import on_cached
from lance_io.store.offers import keeps_copies

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_io.store.api import Buffer, Durability, ObjectMeta, ObjectStore, Selection
    from lance_io.store.offers import HoldsFolders, PutsMany, SyncReads, SyncWrites


@dataclass(frozen=True, slots=True)
class Read:
    """Read a whole object; raises `NotFound`. Counts as a read of the calling operation."""

    store: ObjectStore
    key: str

    def answer_sync(self) -> Buffer:
        """See `Request`."""
        data = cast("SyncReads", self.store).get_sync(self.key)
        count_round(sinks_now(self.store.identity), 1, len(data), 1, len(data))
        return data

    async def answer_async(self) -> Buffer:
        """See `Request`."""
        data, _ = await self._read()
        return data

    async def _read(self) -> tuple[Buffer, ObjectMeta]:
        sinks, num_bytes, is_cached = sinks_now(self.store.identity), 0, False

        def note_cached() -> None:
            nonlocal is_cached
            is_cached = True

        token = on_cached.set(note_cached)
        begin_reads([sinks])
        try:
            data, meta = await self.store.get(self.key)
            num_bytes = len(data)
        finally:
            on_cached.reset(token)
            end_reads([(sinks, num_bytes, 0.0, is_cached)])
        count_wanted(sinks, 1, num_bytes)
        return data, meta


@dataclass(frozen=True, slots=True)
class FindCopy:
    """The bytes of an object from a disk cache, None on a miss; see `KeepsCopies`."""

    store: ObjectStore
    key: str
    etag: str | None = None

    def answer_sync(self) -> None:
        """None: synchronous stores have no disk cache."""

    async def answer_async(self) -> Buffer | None:
        """See `Request`."""
        store: object = self.store
        if not keeps_copies(store):
            return None
        data = await store.find_copy(self.key, self.etag)
        if data is not None:
            sinks = sinks_now(self.store.identity)
            begin_reads([sinks])
            end_reads([(sinks, len(data), 0.0, True)])
            count_wanted(sinks, 1, len(data))
        return data


@dataclass(frozen=True, slots=True)
class ReadCopied(Read):
    """Read a whole object, and keep it in the disk cache if there is one. Its key may be written again later."""

    async def answer_async(self) -> Buffer:
        """See `Request`."""
        data, meta = await self._read()
        if keeps_copies(self.store) and meta.etag is not None:
            self.store.keep_copy(self.key, meta.etag, data)
        return data


@dataclass(frozen=True, slots=True)
class Head:
    """Metadata of an object; raises `NotFound`."""

    store: ObjectStore
    key: str

    def answer_sync(self) -> ObjectMeta:
        """See `Request`."""
        return cast("SyncReads", self.store).head_sync(self.key)

    async def answer_async(self) -> ObjectMeta:
        """See `Request`."""
        return await self.store.head(self.key)


@dataclass(frozen=True, slots=True)
class List:
    """The objects below a prefix, as a list; see `ObjectStore.list`."""

    store: ObjectStore
    prefix: str
    selection: Selection = ALL

    def answer_sync(self) -> list[ObjectMeta]:
        """See `Request`."""
        return cast("SyncReads", self.store).list_sync(self.prefix, self.selection)

    async def answer_async(self) -> list[ObjectMeta]:
        """See `Request`."""
        return [meta async for meta in self.store.list(self.prefix, self.selection)]


@dataclass(frozen=True, slots=True)
class Put:
    """Write a small object in one request.

    if_absent   write only if the object does not exist. Raises `AlreadyExists`; after `OutcomeUnknown` or
                `ConflictRetry` it may or may not exist
    durability  None for the store's default
    in_place    as for `ObjectStore.put`
    """

    store: ObjectStore
    key: str
    data: Buffer
    if_absent: bool = False
    durability: Durability | None = None
    in_place: bool = False

    def answer_sync(self) -> ObjectMeta:
        """See `Request`."""
        return cast("SyncWrites", self.store).put_sync(self.key, self.data, **self._options)

    async def answer_async(self) -> ObjectMeta:
        """See `Request`."""
        return await self.store.put(self.key, self.data, **self._options)

    @property
    def _options(self) -> dict[str, Any]:
        return {"if_absent": self.if_absent, "durability": self.durability, "in_place": self.in_place}


@dataclass(frozen=True, slots=True)
class PutMany:
    """Write or replace several small objects in a store that offers `PutsMany`.

    contents    contents by key
    durability  None for the store's default
    """

    store: PutsMany
    contents: Mapping[str, Buffer]
    durability: Durability | None = None

    def answer_sync(self) -> None:
        """See `Request`."""
        self.store.put_many_sync(self.contents, durability=self.durability)

    async def answer_async(self) -> None:
        """See `Request`."""
        await self.store.put_many(self.contents, durability=self.durability)


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove objects; ignores missing ones."""

    store: ObjectStore
    keys: Sequence[str]

    def answer_sync(self) -> None:
        """See `Request`."""
        cast("SyncWrites", self.store).delete_sync(self.keys)

    async def answer_async(self) -> None:
        """See `Request`."""
        await self.store.delete(self.keys)


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """Keys of all files below a folder, including links."""

    store: HoldsFolders
    folder: str

    def answer_sync(self) -> Sequence[str]:
        """See `Request`."""
        return self.store.own_files_sync(self.folder)

    async def answer_async(self) -> Sequence[str]:
        """See `Request`."""
        return await self.store.own_files(self.folder)


@dataclass(frozen=True, slots=True)
class RemoveEmptyFolders:
    """Remove a folder and the folders below it that are empty."""

    store: HoldsFolders
    folder: str

    def answer_sync(self) -> None:
        """See `Request`."""
        self.store.remove_empty_folders_sync(self.folder)

    async def answer_async(self) -> None:
        """See `Request`."""
        await self.store.remove_empty_folders(self.folder)


@dataclass(frozen=True, slots=True)
class ProbeCreate:
    """Check that create-if-absent works in the store; see `ConditionalProbe`."""

    store: ObjectStore
    folder: str

    def answer_sync(self) -> None:
        """Nothing to check: it works in all synchronous stores."""

    async def answer_async(self) -> None:
        """See `Request`."""
        from lance_io.store.probe import ConditionalProbe

        await ConditionalProbe(self.store, self.folder).run()
