"""A write that is cancelled at any of its requests has happened whole, or not at all, and damages nothing.

Every request takes one unit of virtual time before it is applied and one after; the task is cancelled in the middle of
the n-th, once or three times in a row. When the cancelled call has come back, nothing of it goes on.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from lance_io import runtime
from lance_io.testing.latency import run_virtual
from lance_io.testing.wrap import WrappedStore
from tests.simulate.test_compaction_faults import ROWS as COMPACTED
from tests.simulate.test_compaction_faults import compact, world_with_rows
from tests.simulate.test_crashes import world_of
from tests.simulate.world import CASES, SIZE, Case, World

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lance_io.testing.wrap import Request

T = TypeVar("T")
CANCELLED = [case for case in CASES if case.commits]
TIMES = (1, 3)
STEP = max(1, 6 // SIZE)  # from one moment that is tried to the next


class MomentsStore(WrappedStore):
    """Every request is two moments: before it is applied and after; `at` is told of the n-th.

    num_moments  so far
    """

    def __init__(self, inner: Any, at: int | None = None) -> None:
        super().__init__(inner)
        self.reached = asyncio.Event()
        self.num_moments = 0
        self.under_way = 0
        self._at = at

    async def request(self, request: Request, send: Callable[[], Awaitable[T]]) -> T:
        """Wait, apply, wait."""
        self.under_way += 1
        try:
            await self._moment()
            answer = await send()
            await self._moment()
        finally:
            self.under_way -= 1
        return answer

    async def _moment(self) -> None:
        if self.num_moments == self._at:
            self.reached.set()
        self.num_moments += 1
        await asyncio.sleep(1)


def cancelled(world: World, case: Case, at: int | None, times: int) -> tuple[bool, int]:
    """Make a change that is cancelled at a moment: whether it came to its end nevertheless, and the moments."""

    async def body() -> tuple[bool, int]:
        with runtime.use_loop(asyncio.get_running_loop()):
            store = MomentsStore(world.place.store, at)
            others = asyncio.all_tasks()
            task = asyncio.ensure_future(case.change(world.session(store)))
            reached = asyncio.ensure_future(store.reached.wait())
            await asyncio.wait((task, reached), return_when=asyncio.FIRST_COMPLETED)
            for _ in range(times):
                task.cancel()
                await asyncio.sleep(0)
            await asyncio.wait((task,))
            reached.cancel()
            await asyncio.wait((reached,))
            if times == 1:
                assert store.under_way == 0, "the call is over, and its requests are not"
            left = asyncio.all_tasks() - others
            if left:  # cancelled again while it cleaned up: that goes on by itself
                assert times > 1, left
                await asyncio.wait(left)
            return not task.cancelled() and task.exception() is None, store.num_moments

    return run_virtual(body)[0]


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("database", [False, True], ids=["put-absent", "database"])
@pytest.mark.parametrize("case", CANCELLED, ids=lambda case: case.name)
def test_cancelling_at_any_moment(case: Case, database: bool, times: int) -> None:
    done, num_moments = cancelled(world_of(case, database=database), case, None, 0)
    assert done
    committed = []
    for at in sorted({*range(0, num_moments, STEP), *range(num_moments - 3, num_moments)}):
        world = world_of(case, database=database)
        before = world.newest()
        after = (before[0] + 1, list(case.after))
        done, _ = cancelled(world, case, at, times)
        left = world.check()
        assert left in (before, after)
        assert not done or left == after
        committed.append(left == after)
    assert committed == sorted(committed), "once it is too late to stop, it stays so"
    assert committed[0] is False and committed[-1] is True


@pytest.mark.parametrize("database", [False, True], ids=["put-absent", "database"])
def test_a_compaction_that_is_cancelled_before_it_commits_makes_no_version(database: bool) -> None:
    """It commits twice; cancelled in between it has reserved ids, and changed no row."""
    case = replace(CASES[0], change=compact)
    sent: list[int] = []  # when manifests, or their staging objects, were
    request = MomentsStore.request

    async def noted(store: MomentsStore, one: Request, send: Callable[[], Awaitable[T]]) -> T:
        if one.is_write and "/_versions/" in one.key:
            sent.append(store.num_moments)
        return await request(store, one, send)

    world = world_with_rows(database=database)
    before = world.newest()[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MomentsStore, "request", noted)
        done, num_moments = cancelled(world, case, None, 0)
    assert done and world.newest() == (before + 2, COMPACTED)
    versions = {}
    for at in sorted({*range(0, num_moments, STEP), *(moment - 1 for moment in sent), *sent, num_moments - 1}):
        world = world_with_rows(database=database)
        cancelled(world, case, at, 1)
        version, rows = world.check()
        assert rows == COMPACTED
        versions[at] = version - before
    assert {versions[at] for at in versions if at < sent[0]} == {0}
    assert list(versions.values()) == sorted(versions.values()) and versions[num_moments - 1] == 2


class GatedStore(WrappedStore):
    """Creates of manifests wait for a gate, which any thread may open."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.came, self.gate = threading.Event(), threading.Event()

    async def request(self, request: Request, send: Callable[[], Awaitable[T]]) -> T:
        """Wait at the gate, or pass."""
        if request.operation == "put_create":
            self.came.set()
            await asyncio.to_thread(self.gate.wait)
        return await send()


@pytest.mark.parametrize("name", ["append", "delete", "restore"])
async def test_the_caller_of_another_loop_waits_for_the_end(name: str) -> None:
    """Whoever is told that a change was cancelled finds it whole, or not at all, and nothing under way."""
    [case] = [each for each in CASES if each.name == name]
    world = await asyncio.to_thread(world_of, case, database=False)
    version, _ = world.newest()
    store = GatedStore(world.place.store)
    task = asyncio.ensure_future(case.change(world.session(store)))
    await asyncio.to_thread(store.came.wait)
    task.cancel()
    done, _ = await asyncio.wait((task,), timeout=0.05)
    assert not done, "the deciding write is under way"
    store.gate.set()
    await asyncio.wait((task,))
    assert task.cancelled()
    assert world.newest() == (version + 1, list(case.after))
