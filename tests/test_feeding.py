"""Work on the engine fed by the caller: items are made where the caller is, failures on either side end both."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from lance_io import runtime
from lance_io.runtime.feeding import run_fed, wrap_fed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


async def total(numbers: AsyncIterator[int]) -> tuple[int, str]:
    found = 0
    async for number in numbers:
        found += number
    return found, threading.current_thread().name


def here(seen: list[str], count: int, error: Exception | None = None) -> Iterator[int]:
    for number in range(count):
        seen.append(threading.current_thread().name)
        yield number
    if error is not None:
        raise error


async def here_async(seen: list[str], count: int) -> AsyncIterator[int]:
    for number in range(count):
        await asyncio.sleep(0)
        seen.append(threading.current_thread().name)
        yield number


@pytest.mark.parametrize("count", [0, 1, 100])
def test_items_come_from_the_calling_thread(count: int) -> None:
    seen: list[str] = []
    found, worker = run_fed(here(seen, count), total)
    assert found == sum(range(count))
    assert set(seen) <= {threading.current_thread().name}
    assert worker == "lance_io-engine"


async def test_items_come_from_the_calling_loop() -> None:
    seen: list[str] = []
    found, worker = await wrap_fed(here_async(seen, 50), total)
    assert found == sum(range(50))
    assert set(seen) == {threading.current_thread().name}
    assert worker == "lance_io-engine"


def test_an_error_of_the_items_ends_the_work_first() -> None:
    ended: list[str] = []

    async def work(numbers: AsyncIterator[int]) -> None:
        try:
            async for _ in numbers:
                pass
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)
            ended.append("cancelled")
            raise

    with pytest.raises(LookupError, match="no more"):
        run_fed(here([], 3, LookupError("no more")), work)
    assert ended == ["cancelled"]


def test_an_error_of_the_work_stops_the_items() -> None:
    seen: list[str] = []

    async def work(numbers: AsyncIterator[int]) -> None:
        await anext(numbers)
        raise LookupError("from the engine")

    with pytest.raises(LookupError, match="from the engine"):
        run_fed(here(seen, 100), work)
    assert len(seen) == 1


def test_work_may_end_before_its_input() -> None:
    async def first(numbers: AsyncIterator[int]) -> int:
        return await anext(numbers)

    assert run_fed(iter([7, 8, 9]), first) == 7


async def test_cancelling_the_caller_cancels_the_work() -> None:
    begun, ended = threading.Event(), threading.Event()

    async def work(numbers: AsyncIterator[int]) -> None:
        try:
            await anext(numbers)
            begun.set()
            await asyncio.sleep(60)
        finally:
            ended.set()

    task = asyncio.ensure_future(wrap_fed(here_async([], 3), work))
    assert await asyncio.to_thread(begun.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(ended.wait, 10)


def test_on_the_engine_thread_it_refuses_to_wait_for_itself() -> None:
    async def nested() -> None:
        run_fed(iter([1]), total)

    with pytest.raises(RuntimeError, match="engine's own thread"):
        runtime.run(nested())
