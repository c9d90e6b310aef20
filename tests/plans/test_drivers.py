"""Plans under each driver: the same answers, failures where they were asked for, an end when callers are cancelled."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from lance_io.plans.cpu_requests import Begin, Compute, Result
from lance_io.plans.plan import (
    Pause,
    RollBackOnError,
    Shielded,
    Together,
    Wait,
    drive_async,
    drive_in_thread,
    drive_sync,
)
from lance_io.plans.store_requests import Put, Read
from lance_io.plans.streams import Close, Each, Items, Next, Open, iterate_async, iterate_sync
from lance_io.store.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

    from lance_io.plans.plan import Plan
    from lance_io.plans.streams import Stream


def in_this_thread(plan: Plan[Any]) -> Any:
    return drive_sync(plan)


def on_a_loop(plan: Plan[Any]) -> Any:
    return asyncio.run(drive_async(plan))


def in_another_thread(plan: Plan[Any]) -> Any:
    return asyncio.run(drive_in_thread(partial(drive_sync, plan)))


DRIVERS = pytest.mark.parametrize("drive", [in_this_thread, on_a_loop, in_another_thread])


@DRIVERS
def test_answers_and_failures_come_where_they_were_asked_for(drive: Callable[[Plan[Any]], Any]) -> None:
    store = MemoryStore()

    def plan() -> Plan[list[Any]]:
        with pytest.raises(FileNotFoundError):
            yield Read(store, "not there")
        yield Together([put(store, key) for key in "ab"])
        begun = yield Begin(lambda: 5, 1 << 30)
        found = [bytes((yield Read(store, "b"))), (yield Result(begun)), (yield Compute(lambda: 6, lambda: 1 << 30))]
        yield Pause(0.001)
        return found

    assert drive(plan()) == [b"b", 5, 6]


def put(store: MemoryStore, key: str) -> Plan[None]:
    yield Put(store, key, key.encode())


@DRIVERS
def test_what_fails_is_rolled_back_before_it_is_told(drive: Callable[[Plan[Any]], Any]) -> None:
    told: list[str] = []

    def failing() -> Plan[None]:
        yield Pause(0)
        raise KeyError("x")

    def roll_back(error: BaseException) -> Plan[None]:
        yield Pause(0)
        told.append(repr(error))

    def plan() -> Plan[None]:
        try:
            yield RollBackOnError(failing(), roll_back)
        except KeyError:
            told.append("told")

    drive(plan())
    assert told == ["KeyError('x')", "told"]


WAITING: dict[str, Callable[[], Any]] = {"pause": lambda: Pause(1000), "wait": lambda: Wait(Future())}


@pytest.mark.parametrize("driver", ["loop", "thread"])
@pytest.mark.parametrize("waiting", WAITING)
async def test_a_cancelled_plan_ends_rolled_back(waiting: str, driver: str) -> None:
    came, told = threading.Event(), []

    def work() -> Plan[None]:
        yield Pause(0)
        came.set()
        try:
            yield WAITING[waiting]()
        finally:
            told.append("left")
        told.append("never")

    def roll_back(_: BaseException) -> Plan[None]:
        yield Pause(0.01)
        told.append("rolled back")

    def plan() -> Plan[None]:
        yield RollBackOnError(work(), roll_back)
        told.append("never")

    coroutine = drive_async(plan()) if driver == "loop" else drive_in_thread(partial(drive_sync, plan()))
    task = asyncio.ensure_future(coroutine)
    assert await asyncio.to_thread(came.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == ["left", "rolled back"]


@pytest.mark.parametrize("driver", ["loop", "thread"])
async def test_what_is_shielded_ends_before_the_cancelled_one_is_told(driver: str) -> None:
    came, go_on, told = threading.Event(), Future[None](), []

    def last() -> Plan[None]:
        came.set()
        yield Wait(go_on)
        yield Pause(0.01)
        told.append("whole")

    def plan() -> Plan[None]:
        yield Shielded(last())
        yield Pause(0)
        told.append("never")

    coroutine = drive_async(plan()) if driver == "loop" else drive_in_thread(partial(drive_sync, plan()))
    task = asyncio.ensure_future(coroutine)
    assert await asyncio.to_thread(came.wait, 30)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0.005)
    assert not task.done()
    go_on.set_result(None)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == ["whole"]


async def test_a_result_that_comes_is_told_in_a_thread_too() -> None:
    futures = [Future[int]() for _ in range(3)]

    def plan() -> Plan[list[int]]:
        found = []
        for future in futures:
            found.append((yield Wait(future, 100)))
            yield Pause(0.001)
        with pytest.raises(TimeoutError):
            yield Wait(Future(), 0.001)
        return found

    task = asyncio.ensure_future(drive_in_thread(partial(drive_sync, plan())))
    for number, future in enumerate(futures):
        await asyncio.sleep(0.002)
        future.set_result(number)
    assert await task == [0, 1, 2]


# -- streams ----------------------------------------------------------------------------------------------------------


class Source:
    """Numbers from 0 on, and whether whoever reads them has closed it."""

    def __init__(self) -> None:
        self.ended: list[int] = []
        self._at = 0

    def read_sync(self) -> Generator[int, None, None]:
        try:
            while True:
                yield self._at
                self._at += 1
        finally:
            self.ended.append(self._at)

    async def read_async(self) -> AsyncGenerator[int, None]:
        try:
            while True:
                await asyncio.sleep(0)
                yield self._at
                self._at += 1
        finally:
            self.ended.append(self._at)

    def squares(self, num_items: int) -> Stream:
        items = yield Open(self.read_sync, self.read_async)
        for _ in range(num_items):
            number = yield Next(items)
            yield Items(number * number for _ in range(2))
        yield Close(items)
        yield Items([-1])


def test_a_stream_gives_the_same_to_both_drivers() -> None:
    async def collected() -> list[int]:
        return [item async for item in iterate_async(Source().squares(3))]

    assert list(iterate_sync(Source().squares(3))) == asyncio.run(collected()) == [0, 0, 1, 1, 4, 4, -1]


async def test_who_leaves_a_stream_closes_what_it_reads() -> None:
    source = Source()
    stream = iterate_sync(source.squares(9))
    assert [next(stream) for _ in range(3)] == [0, 0, 1] and not source.ended
    stream.close()
    assert source.ended == [1]
    source = Source()
    items = iterate_async(source.squares(9))
    assert [await anext(items) for _ in range(3)] == [0, 0, 1] and not source.ended
    await items.aclose()
    assert source.ended == [1]


@DRIVERS
def test_a_plan_takes_each_item_of_a_stream(drive: Callable[[Plan[Any]], Any]) -> None:
    found: list[int] = []

    def plan() -> Plan[None]:
        yield Each(Source().squares(2), found.append)

    drive(plan())
    assert found == [0, 0, 1, 1, -1]


@pytest.mark.parametrize("driver", ["loop", "thread"])
async def test_a_cancelled_plan_takes_no_more_items(driver: str) -> None:
    source, came = Source(), threading.Event()

    def plan() -> Plan[None]:
        yield Each(source.squares(1 << 62), lambda _: came.set())

    coroutine = drive_async(plan()) if driver == "loop" else drive_in_thread(partial(drive_sync, plan()))
    task = asyncio.ensure_future(coroutine)
    assert await asyncio.to_thread(came.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(source.ended) == 1
