"""What commits and datasets ask of stores, and the two drivers that run their plans.

A `Plan` is a generator that yields `Ask`s and is sent their answers; failures are thrown in where they were asked for.
An ask can be answered in the caller's thread (`now`: memory and local disk, so that a local commit never crosses to
the engine thread) and on an event loop (`later`: any store).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar, cast

from lance_io.io.await_future import wait_until_done
from lance_io.io.stats import begin_reads, count_round, count_wanted, end_reads, sinks_now
from lance_io.records import dataclass
from lance_io.runtime import loaded, to_the_end
from lance_io.store.api import ALL

if TYPE_CHECKING:
    from concurrent.futures import Executor

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

T = TypeVar("T")
R = TypeVar("R")
T_co = TypeVar("T_co", covariant=True)


class Ask(Protocol[T_co]):
    """One request of a plan."""

    def answer_sync(self) -> T_co:
        """Answer in this thread, without a loop."""

    async def answer_async(self) -> T_co:
        """Answer on the running loop."""


Plan: TypeAlias = Generator[Ask[Any], Any, T]
"""A computation that yields what it wants done and is sent the answers."""


def drive_sync(plan: Plan[T]) -> T:
    """Run a plan in this thread."""
    try:
        ask = next(plan)
        while True:
            try:
                answer = ask.answer_sync()
            except Exception as error:
                ask = plan.throw(error)
            else:
                ask = plan.send(answer)
    except StopIteration as finished:
        return cast("T", finished.value)
    finally:
        plan.close()


async def drive_async(plan: Plan[T]) -> T:
    """Run a plan on the running loop."""
    try:
        ask = next(plan)
        while True:
            try:
                answer = await ask.answer_async()
            except Exception as error:
                ask = plan.throw(error)
            else:
                ask = plan.send(answer)
    except StopIteration as finished:
        return cast("T", finished.value)
    finally:
        plan.close()


@dataclass(frozen=True, slots=True)
class Read:
    """A whole object; `NotFound` when it is not there. Counted as a read of the operation that asks."""

    store: ObjectStore
    key: str

    def answer_sync(self) -> Buffer:
        """See `Ask`."""
        data = cast("SyncReads", self.store).get_sync(self.key)
        count_round(sinks_now(self.store.identity), 1, len(data), 1, len(data))
        return data

    async def answer_async(self) -> Buffer:
        """See `Ask`."""
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
        """See `Ask`."""
        return cast("SyncReads", self.store).head_sync(self.key)

    async def answer_async(self) -> ObjectMeta:
        """See `Ask`."""
        return await self.store.head(self.key)


@dataclass(frozen=True, slots=True)
class List:
    """The objects below a prefix, as a list; see `ObjectStore.list`."""

    store: ObjectStore
    prefix: str
    asked: Selection = ALL

    def answer_sync(self) -> list[ObjectMeta]:
        """See `Ask`."""
        return cast("SyncReads", self.store).list_sync(self.prefix, self.asked)

    async def answer_async(self) -> list[ObjectMeta]:
        """See `Ask`."""
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
        """See `Ask`."""
        return cast("SyncWrites", self.store).put_sync(self.key, self.data, **self._how)

    async def answer_async(self) -> ObjectMeta:
        """See `Ask`."""
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
        """See `Ask`."""
        cast("SyncWrites", self.store).delete_sync(self.keys)

    async def answer_async(self) -> None:
        """See `Ask`."""
        await self.store.delete(self.keys)


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """Keys of all files in a folder and below it, and of links in it."""

    store: HoldsFolders
    folder: str

    def answer_sync(self) -> Sequence[str]:
        """See `Ask`."""
        return self.store.own_files_sync(self.folder)

    async def answer_async(self) -> Sequence[str]:
        """See `Ask`."""
        return await self.store.own_files(self.folder)


@dataclass(frozen=True, slots=True)
class RemoveEmptyFolders:
    """Remove a folder and those below it as far as nothing is in them."""

    store: HoldsFolders
    folder: str

    def answer_sync(self) -> None:
        """See `Ask`."""
        self.store.remove_empty_folders_sync(self.folder)

    async def answer_async(self) -> None:
        """See `Ask`."""
        await self.store.remove_empty_folders(self.folder)


@dataclass(frozen=True, slots=True)
class ProbeCreate:
    """Make sure that the store keeps the promise of create-if-absent; see `ConditionalProbe`."""

    store: ObjectStore
    folder: str

    def answer_sync(self) -> None:
        """Stores that answer at once keep it."""

    async def answer_async(self) -> None:
        """See `Ask`."""
        from lance_io.store.probe import ConditionalProbe

        await ConditionalProbe(self.store, self.folder).run()


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait."""

    seconds: float

    def answer_sync(self) -> None:
        """See `Ask`."""
        time.sleep(self.seconds)

    async def answer_async(self) -> None:
        """See `Ask`."""
        await asyncio.sleep(self.seconds)


@dataclass(frozen=True, slots=True)
class Wait(Generic[T]):
    """The result of work that somebody else has under way; cancelling who waits leaves it to others.

    seconds  how long to wait at most; then `TimeoutError`
    """

    future: Future[T]
    seconds: float | None = None

    def answer_sync(self) -> T:
        """See `Ask`."""
        return self.future.result(self.seconds)

    async def answer_async(self) -> T:
        """See `Ask`."""
        # Not `wait_for`: that of 3.11 swallows a cancellation that comes at the moment of the result.
        async with asyncio.timeout(self.seconds):
            await wait_until_done(self.future)
        return self.future.result()


@dataclass(frozen=True, slots=True)
class Import:
    """Modules that take long to import: for a loop a thread does it. Without one whoever uses them does."""

    modules: tuple[str, ...]

    def answer_sync(self) -> None:
        """See `Ask`."""

    async def answer_async(self) -> None:
        """See `Ask`."""
        await loaded(*self.modules)


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A function of somebody else's that may block; all calls over one `threads` of size 1 are in one thread."""

    function: Callable[[], T]
    threads: Executor

    def answer_sync(self) -> T:
        """See `Ask`."""
        return self.function()

    async def answer_async(self) -> T:
        """See `Ask`."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, self.function)


@dataclass(frozen=True, slots=True)
class Together(Generic[T]):
    """Independent plans, concurrently where there is a loop, else in their order; answers in their order.

    A plan may `Wait` for what one before it makes.

    The first failure is raised when all others have ended, which are cancelled: whoever cleans up behind them must
    not meet a write that is still under way.
    """

    plans: Sequence[Plan[T]]

    def answer_sync(self) -> list[T]:
        """See `Ask`."""
        answers = []
        for place, plan in enumerate(self.plans):
            try:
                answers.append(drive_sync(plan))
            except BaseException:
                for other in self.plans[place + 1 :]:
                    other.close()
                raise
        return answers

    async def answer_async(self) -> list[T]:
        """See `Ask`."""
        if len(self.plans) == 1:
            return [await drive_async(self.plans[0])]
        tasks = [asyncio.ensure_future(drive_async(plan)) for plan in self.plans]
        try:
            return list(await asyncio.gather(*tasks))
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise


@dataclass(frozen=True, slots=True)
class Shielded(Generic[T]):
    """A plan that runs to its end even when whoever waits for it is cancelled; then they learn of it afterwards."""

    plan: Plan[T]

    def answer_sync(self) -> T:
        """See `Ask`."""
        return drive_sync(self.plan)

    async def answer_async(self) -> T:
        """See `Ask`."""
        return await to_the_end(drive_async(self.plan))


def beside(first: Plan[T], rest: Callable[[Plan[T]], Plan[R]]) -> Plan[R]:
    """Run a plan, and beside it the one that `rest` makes of a plan that waits for the result of the first.

    Gives the result of `rest`. Where nothing runs concurrently `first` runs first.
    """
    result: Future[T] = Future()

    def tell() -> Plan[None]:
        result.set_result((yield from first))

    plans: list[Plan[Any]] = [tell(), rest(ask(Wait(result)))]
    _, answer = yield Together(plans)
    return cast("R", answer)


def ask(request: Ask[T]) -> Plan[T]:
    """A plan of one request."""
    answer: T = yield request
    return answer
