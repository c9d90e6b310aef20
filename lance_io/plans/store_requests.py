"""What plans ask of stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from lance_io.io.stats import begin_reads, count_round, count_wanted, end_reads, sinks_now
from lance_io.records import dataclass
from lance_io.store.api import ALL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.store.api import (
        Buffer,
        Durability,
        HoldsFolders,
        ObjectMeta,
        ObjectStore,
        Selection,
        SyncReads,
        SyncWrites,
    )


@dataclass(frozen=True, slots=True)
class Read:
    """A whole object; `NotFound` when it is not there. Counted as a read of the operation that asks."""

    store: ObjectStore
    key: str

    def answer_sync(self) -> Buffer:
        """See `Request`."""
        data = cast("SyncReads", self.store).get_sync(self.key)
        count_round(sinks_now(self.store.identity), 1, len(data), 1, len(data))
        return data

    async def answer_async(self) -> Buffer:
        """See `Request`."""
        sinks, num_bytes = sinks_now(self.store.identity), 0
        begin_reads([sinks])
        try:
            data, _ = await self.store.get(self.key)
            num_bytes = len(data)
        finally:
            end_reads([(sinks, num_bytes, 0.0)])
        count_wanted(sinks, 1, num_bytes)
        return data


@dataclass(frozen=True, slots=True)
class Head:
    """What the store knows about an object; `NotFound` when it is not there."""

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
    asked: Selection = ALL

    def answer_sync(self) -> list[ObjectMeta]:
        """See `Request`."""
        return cast("SyncReads", self.store).list_sync(self.prefix, self.asked)

    async def answer_async(self) -> list[ObjectMeta]:
        """See `Request`."""
        return [meta async for meta in self.store.list(self.prefix, self.asked)]


@dataclass(frozen=True, slots=True)
class Put:
    """Write a small object in one request.

    if_absent   only if there is none: `AlreadyExists`, or `OutcomeUnknown` and `ConflictRetry`, which decide nothing
    durability  None: that of the store
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
        return cast("SyncWrites", self.store).put_sync(self.key, self.data, **self._how)

    async def answer_async(self) -> ObjectMeta:
        """See `Request`."""
        return await self.store.put(self.key, self.data, **self._how)

    @property
    def _how(self) -> dict[str, Any]:
        return {"if_absent": self.if_absent, "durability": self.durability, "in_place": self.in_place}


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove objects; missing ones count as removed."""

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
    """Keys of all files in a folder and below it, and of links in it."""

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
    """Remove a folder and those below it as far as nothing is in them."""

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
    """Make sure that the store keeps the promise of create-if-absent; see `ConditionalProbe`."""

    store: ObjectStore
    folder: str

    def answer_sync(self) -> None:
        """Stores that answer at once keep it."""

    async def answer_async(self) -> None:
        """See `Request`."""
        from lance_io.store.probe import ConditionalProbe

        await ConditionalProbe(self.store, self.folder).run()
