"""One logic, two drivers: what this room's plans ask for; plans and drivers are those of `commit.steps`.

An `Ask` knows both ways of being answered: at once in the caller's thread (`now`, on stores that offer `SyncReads`),
and awaited on an event loop (`later`, on any store). Requests are counted here, as reads of the operation that asks.
Streams of batches have their two drivers in `stream`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from lance_io.commit.steps import Ask, Plan, drive, drive_now
from lance_io.io.settling import settled
from lance_io.io.stats import begin_read, count_round, count_wanted, end_read, sinks_now

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from lance_io.store.api import Buffer, Durability, ObjectMeta, ObjectStore, SyncReads, SyncWrites

__all__ = ["Ask", "Delete", "Get", "Head", "List", "Plan", "Put", "Together", "Wait", "drive", "drive_now"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Get:
    """A whole object, as a buffer."""

    store: ObjectStore
    key: str

    def now(self) -> Buffer:
        """See `Ask`."""
        data = cast("SyncReads", self.store).get_now(self.key)
        count_round(sinks_now(self.store.identity), 1, len(data), 1, len(data))
        return data

    async def later(self) -> Buffer:
        """See `Ask`."""
        sinks, num_bytes = sinks_now(self.store.identity), 0
        begin_read(sinks)
        try:
            data, _ = await self.store.get(self.key)
            num_bytes = len(data)
        finally:
            end_read(sinks, num_bytes)
        count_wanted(sinks, 1, num_bytes)
        return data


@dataclass(frozen=True, slots=True)
class List:
    """The objects below a prefix, as a list."""

    store: ObjectStore
    prefix: str
    limit: int | None = None
    delimiter: str | None = None

    def now(self) -> list[ObjectMeta]:
        """See `Ask`."""
        return cast("SyncReads", self.store).list_now(self.prefix, limit=self.limit, delimiter=self.delimiter)

    async def later(self) -> list[ObjectMeta]:
        """See `Ask`."""
        found = self.store.list(self.prefix, limit=self.limit, delimiter=self.delimiter)
        return [meta async for meta in found]


@dataclass(frozen=True, slots=True)
class Head:
    """What the store knows about an object."""

    store: ObjectStore
    key: str

    def now(self) -> ObjectMeta:
        """See `Ask`."""
        return cast("SyncReads", self.store).head_now(self.key)

    async def later(self) -> ObjectMeta:
        """See `Ask`."""
        return await self.store.head(self.key)


@dataclass(frozen=True, slots=True)
class Put:
    """A small object to be written whole.

    if_absent   only where there is none, else `AlreadyExists`
    durability  None: that of the store
    """

    store: ObjectStore
    key: str
    data: bytes
    if_absent: bool = False
    durability: Durability | None = None

    def now(self) -> ObjectMeta:
        """See `Ask`."""
        put = cast("SyncWrites", self.store).put_now
        return put(self.key, self.data, if_absent=self.if_absent, durability=self.durability)

    async def later(self) -> ObjectMeta:
        """See `Ask`."""
        return await self.store.put(self.key, self.data, if_absent=self.if_absent, durability=self.durability)


@dataclass(frozen=True, slots=True)
class Delete:
    """Objects to be removed; those that are not there do not matter."""

    store: ObjectStore
    keys: Sequence[str]

    def now(self) -> None:
        """See `Ask`."""
        cast("SyncWrites", self.store).delete_now(self.keys)

    async def later(self) -> None:
        """See `Ask`."""
        await self.store.delete(self.keys)


@dataclass(frozen=True, slots=True)
class Wait(Generic[T]):
    """The result of work that somebody else has under way."""

    future: Future[T]

    def now(self) -> T:
        """See `Ask`."""
        return self.future.result()

    async def later(self) -> T:
        """See `Ask`. Cancelling this waiter leaves the work to those who still want it."""
        await settled(self.future)
        return self.future.result()


@dataclass(frozen=True, slots=True)
class Together(Generic[T]):
    """Independent plans, concurrently where there is a loop; the answers are in the order of the plans.

    The first failure cancels the others and is the one that is raised.
    """

    plans: Sequence[Plan[T]]

    def now(self) -> list[T]:
        """See `Ask`."""
        return [drive_now(plan) for plan in self.plans]

    async def later(self) -> list[T]:
        """See `Ask`."""
        if len(self.plans) == 1:
            return [await drive(self.plans[0])]
        tasks = [asyncio.ensure_future(drive(plan)) for plan in self.plans]
        try:
            return list(await asyncio.gather(*tasks))
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
