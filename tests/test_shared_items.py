"""Iterators that threads and tasks share: every item is given once, and an early end is no end."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import pytest

from lance_io.errors import ForkedRuntimeError, UsageError
from lance_io.plans.streams import SharedAsyncItems, SharedItems

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS_MAX: Final = 60  # only a hang takes this long


class Source:
    """Numbers below three, the first of which waits until it is let go.

    fails  raise an error instead of the second number
    """

    def __init__(self, *, fails: bool = False) -> None:
        self.came, self.go_on = threading.Event(), threading.Event()
        self.is_closed = False
        self._fails = fails

    def numbers(self) -> Iterator[int]:
        try:
            for number in range(3):
                self.came.set()
                assert self.go_on.wait(SECONDS_MAX)
                if self._fails and number == 1:
                    raise OSError("the disk is gone")
                yield number
        finally:
            self.is_closed = True


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def test_threads_wait_for_each_other(pool: ThreadPoolExecutor) -> None:
    source = Source()
    items = SharedItems(source.numbers())
    first = pool.submit(next, items)
    assert source.came.wait(SECONDS_MAX)
    others = [pool.submit(next, items, "end") for _ in range(3)]
    source.go_on.set()
    assert first.result(SECONDS_MAX) == 0
    assert {other.result(SECONDS_MAX) for other in others} == {1, 2, "end"}
    assert next(items, "end") == "end"


def test_many_threads_take_each_item_once(pool: ThreadPoolExecutor) -> None:
    items = SharedItems(number for number in range(2000))
    together = threading.Barrier(4)

    def take() -> list[int]:
        together.wait(SECONDS_MAX)
        return [*items]

    taken = [pool.submit(take) for _ in range(4)]
    assert sorted(number for part in taken for number in part.result(SECONDS_MAX)) == [*range(2000)]


def test_an_error_comes_to_all_threads(pool: ThreadPoolExecutor) -> None:
    """As it is to one, who then finds the end; the others are told that there is less than there was to be."""
    source = Source(fails=True)
    source.go_on.set()
    items = SharedItems(source.numbers())
    assert next(items) == 0
    with pytest.raises(OSError, match="the disk is gone"):
        next(items)
    with pytest.raises(UsageError, match="ended early, by an error in another call; iterate again: OSError: the disk"):
        pool.submit(next, items).result(SECONDS_MAX)
    assert [*items] == []


def test_a_thread_that_waits_for_one_that_fails_hears_of_it(pool: ThreadPoolExecutor) -> None:
    source = Source(fails=True)
    items = SharedItems(source.numbers())
    calls = [pool.submit(next, items)]
    assert source.came.wait(SECONDS_MAX)
    calls += [pool.submit(next, items) for _ in range(3)]
    source.go_on.set()
    errors = [call.exception(SECONDS_MAX) for call in calls]
    assert sorted(type(error).__name__ for error in errors) == ["NoneType", "OSError", "UsageError", "UsageError"]


def test_errors_of_a_source_that_look_like_its_refusal(pool: ThreadPoolExecutor) -> None:
    def failing() -> Iterator[int]:
        yield 0
        raise ValueError("generator already executing")

    items = SharedItems(failing())
    assert next(items) == 0
    with pytest.raises(ValueError, match="already executing") as caught:
        next(items)
    assert type(caught.value) is ValueError


def test_closing_waits_for_the_item_under_way(pool: ThreadPoolExecutor) -> None:
    source = Source()
    items = SharedItems(source.numbers())
    item = pool.submit(next, items)
    assert source.came.wait(SECONDS_MAX)
    closed = pool.submit(items.close)
    source.go_on.set()
    closed.result(SECONDS_MAX)
    assert (item.result(SECONDS_MAX), source.is_closed, [*items]) == (0, True, [])
    items.close()


def test_an_iterator_that_is_dropped_is_closed() -> None:
    source = Source()
    source.go_on.set()
    items = SharedItems(source.numbers())
    assert (next(items), isinstance(items, Generator)) == (0, True)
    del items
    assert source.is_closed


def test_a_source_that_asks_for_its_own_next_item_is_refused() -> None:
    """It would wait for itself."""
    asked: list[Any] = []

    def selfish() -> Iterator[int]:
        yield next(asked[0])

    asked.append(SharedItems(selfish()))
    with pytest.raises(ValueError, match="already executing"):
        next(asked[0])


def test_what_is_sent_and_thrown() -> None:
    source = Source()
    source.go_on.set()
    items = SharedItems(source.numbers())
    assert items.send(None) == 0
    with pytest.raises(TypeError, match="take no values"):
        items.send(1)
    with pytest.raises(KeyError):
        items.throw(KeyError("k"))
    assert source.is_closed


def test_a_child_does_not_wait_for_a_thread_of_its_parent(pool: ThreadPoolExecutor) -> None:
    source, idle = Source(), SharedItems(number for number in range(3))
    items = SharedItems(source.numbers())
    item = pool.submit(next, items)
    assert source.came.wait(SECONDS_MAX)
    child = os.fork()
    if not child:
        try:
            next(items)
        except ForkedRuntimeError:
            os._exit(0 if [*idle] == [0, 1, 2] else 2)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    source.go_on.set()
    assert item.result(SECONDS_MAX) == 0


# -- tasks -------------------------------------------------------------------------------------------------------------


class AsyncSource:
    """The same numbers, all of which wait."""

    def __init__(self, *, fails: bool = False) -> None:
        self.came, self.go_on = asyncio.Event(), asyncio.Event()
        self.is_closed = False
        self._fails = fails

    async def numbers(self) -> AsyncGenerator[int, None]:
        try:
            for number in range(3):
                self.came.set()
                await self.go_on.wait()
                if self._fails and number == 1:
                    raise OSError("the disk is gone")
                yield number
        finally:
            self.is_closed = True


async def test_tasks_are_served_in_the_order_in_which_they_ask() -> None:
    source = AsyncSource()
    items = SharedAsyncItems(source.numbers())
    asked = asyncio.gather(*(anext(items, "end") for _ in range(5)))
    await source.came.wait()
    source.go_on.set()
    assert await asked == [0, 1, 2, "end", "end"]
    assert isinstance(items, AsyncGenerator)


async def test_an_error_comes_to_all_tasks() -> None:
    source = AsyncSource(fails=True)
    source.go_on.set()
    items = SharedAsyncItems(source.numbers())
    asked = await asyncio.gather(*(anext(items) for _ in range(4)), return_exceptions=True)
    assert asked[0] == 0
    assert [type(error) for error in asked[1:]] == [OSError, UsageError, UsageError]
    with pytest.raises(UsageError, match="OSError: the disk is gone"):
        await anext(items)


async def test_a_cancelled_call_ends_the_items_for_all() -> None:
    """Who asks again, as after a time limit, does not take it for the end; one that only waited costs nothing."""
    source = AsyncSource()
    items = SharedAsyncItems(source.numbers())
    first, second = (asyncio.ensure_future(anext(items)) for _ in range(2))
    await source.came.wait()
    second.cancel()
    await asyncio.wait({second})
    source.go_on.set()
    assert (await first, await anext(items)) == (0, 1)
    source.go_on.clear()
    source.came.clear()
    third = asyncio.ensure_future(anext(items))
    await source.came.wait()
    third.cancel()
    await asyncio.wait({third})
    assert third.cancelled() and source.is_closed
    with pytest.raises(UsageError, match="ended early, by an error in another call; iterate again: CancelledError"):
        await anext(items)


async def test_closing_waits_for_the_task_under_way() -> None:
    source = AsyncSource()
    items = SharedAsyncItems(source.numbers())
    item = asyncio.ensure_future(anext(items))
    await source.came.wait()
    closing = asyncio.ensure_future(items.aclose())
    source.go_on.set()
    await closing
    assert (await item, source.is_closed, [one async for one in items]) == (0, True, [])


def test_items_belong_to_one_loop() -> None:
    async def numbers() -> AsyncGenerator[int, None]:
        for number in range(3):
            yield number

    items = SharedAsyncItems(numbers())

    async def ask() -> int:
        return await anext(items)

    assert asyncio.run(ask()) == 0
    with pytest.raises(UsageError, match="another event loop"):
        asyncio.run(ask())


async def test_what_is_sent_and_thrown_to_tasks() -> None:
    source = AsyncSource()
    source.go_on.set()
    items = SharedAsyncItems(source.numbers())
    assert await items.asend(None) == 0
    with pytest.raises(TypeError, match="take no values"):
        await items.asend(1)
    with pytest.raises(KeyError):
        await items.athrow(KeyError("k"))
    assert source.is_closed
