"""Threads that work beside an event loop give way to it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io import gil
from lance_io.plans.plan import drive_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Clock:
    """A clock that goes on by so much whenever somebody looks; what sleeps notes for how long."""

    def __init__(self, step_s: float) -> None:
        self.now = 0.0
        self.step_s = step_s
        self.slept: list[float] = []

    def monotonic(self) -> float:
        self.now += self.step_s
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Clock]:
    def made(step_s: float) -> Clock:
        found = Clock(step_s)
        monkeypatch.setattr(gil, "time", found)
        return found

    return made


def in_new_thread(work: Callable[[], Any]) -> Any:
    """What a function gives in a thread that has done nothing before."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def test_a_thread_that_works_for_itself_never_waits(clock: Callable[[float], Clock]) -> None:
    time = clock(1.0)

    def work() -> list[int]:
        gil.yield_gil()
        return list(gil.yielding(range(1000)))

    assert in_new_thread(work) == list(range(1000))
    assert not time.slept


@pytest.mark.parametrize(("step_s", "times"), [(gil.HOLD_MAX_S * 2, 4), (gil.HOLD_MAX_S / 100, 0)])
def test_one_beside_a_loop_gives_way_when_its_turn_is_over(
    clock: Callable[[float], Clock], step_s: float, times: int
) -> None:
    time = clock(step_s)

    def work() -> list[int]:
        gil.start_yielding()
        return list(gil.yielding(range(4)))

    assert in_new_thread(work) == list(range(4))
    assert time.slept == [gil.PAUSE_S] * times


async def test_plans_in_threads_are_beside_a_loop(clock: Callable[[float], Clock], tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"n": range(2000)}), uri, max_rows_per_file=20)
    time = clock(gil.HOLD_MAX_S * 2)
    assert lance_io.dataset(uri).to_table().num_rows == 2000
    assert not time.slept
    async with lance_io.AsyncDataset.open(uri) as dataset:
        assert (await dataset.to_table()).num_rows == 2000
    assert len(time.slept) > 2000 // 20
    time.slept.clear()
    await drive_in_thread(gil.yield_gil)
    assert time.slept == [gil.PAUSE_S]
