"""Drivers of plans: in the caller's thread if the store answers at once, else on the engine's loop.

Each public object has two faces, a synchronous and an asynchronous class. Both build the same plans; a face adds the
driver.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from lance_io import runtime
from lance_io.io import call_metrics
from lance_io.lazy_names import lazy_module
from lance_io.plans.plan import begin_in_thread, drive_async, drive_in_thread, drive_sync
from lance_io.store.offers import offers_sync_reads

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from datetime import timedelta

    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.runtime import feeding
    from lance_io.store.api import ObjectStore

    Timeout = float | timedelta | None
else:
    feeding = lazy_module("lance_io.runtime.feeding")

T = TypeVar("T")


class SyncFace:
    """Driver of a synchronous class."""

    def __init__(self, state: DatasetState) -> None:
        self._state = state

    def _run(self, plan: Plan[T], timeout: Timeout = None) -> T:
        """Run a plan and wait for it."""
        return run(self._state, plan, timeout)


class AsyncFace:
    """Driver of an asynchronous class; any loop can await it."""

    def __init__(self, state: DatasetState) -> None:
        self._state = state

    async def _run(self, plan: Plan[T], timeout: Timeout = None) -> T:
        """Run a plan and await it; cancelling the caller cancels it."""
        return await run_awaited(self._state, plan, timeout)


def run(state: DatasetState, plan: Plan[T], timeout: Timeout = None) -> T:
    """Run a plan of an open table and wait for it; see `run_sync`."""
    # without schedulers nothing can close it
    answers_sync = state.is_local if state.schedulers is None else state.answers_sync
    return run_sync(plan, timeout, answers_sync=answers_sync)


def run_on(store: ObjectStore, plan: Plan[T]) -> T:
    """Run a plan that reads from a store and wait for it; see `run_sync`."""
    return run_sync(plan, answers_sync=offers_sync_reads(store))


def run_sync(plan: Plan[T], timeout: Timeout = None, *, answers_sync: bool) -> T:
    """Run a plan and wait for it; with a timeout on the engine, which can cancel it.

    answers_sync  whether the store answers in the caller's thread
    """
    if call_metrics.watchers:
        return call_metrics.watch_call(plan, partial(_drive, plan, timeout, answers_sync))
    return drive_sync(plan) if answers_sync and timeout is None else runtime.run(_within(timeout, plan))


def _drive(plan: Plan[T], timeout: Timeout, answers_sync: bool) -> T:
    return drive_sync(plan) if answers_sync and timeout is None else runtime.run(_within(timeout, plan))


async def run_awaited(state: DatasetState, plan: Plan[T], timeout: Timeout = None) -> T:
    """Run a plan of an open table and await it; cancelling the caller cancels it."""
    if call_metrics.watchers:
        with call_metrics.count_call(plan):
            return await _drive_awaited(state, plan, timeout)
    if state.answers_sync and timeout is None:
        return await run_in_thread(state, partial(drive_sync, plan))
    return await runtime.wrap(_within(timeout, plan))


async def _drive_awaited(state: DatasetState, plan: Plan[T], timeout: Timeout) -> T:
    if state.answers_sync and timeout is None:
        return await run_in_thread(state, partial(drive_sync, plan))
    return await runtime.wrap(_within(timeout, plan))


async def run_in_thread(state: DatasetState, work: Callable[[], T]) -> T:
    """Run plans of an open table in a thread, for stores that answer at once.

    Raises `RuntimeError` if the table is closed, before or meanwhile.
    """
    if state.schedulers is None:
        return await drive_in_thread(work)
    with state.schedulers.beside():
        return await drive_in_thread(work)


async def run_async(plan: Plan[T], timeout: Timeout = None, *, answers_sync: bool = False) -> T:
    """Run a plan and await it: in a thread if the store answers at once, else on the engine."""
    if call_metrics.watchers:
        with call_metrics.count_call(plan):
            return await _drive_async(plan, timeout, answers_sync)
    if answers_sync and timeout is None:  # as in `_drive_async`, with one call less
        return await drive_in_thread(partial(drive_sync, plan))
    return await runtime.wrap(_within(timeout, plan))


async def _drive_async(plan: Plan[T], timeout: Timeout, answers_sync: bool) -> T:
    if answers_sync and timeout is None:
        return await drive_in_thread(partial(drive_sync, plan))
    return await runtime.wrap(_within(timeout, plan))


async def run_change(plan: Plan[T], *, answers_sync: bool) -> T:
    """Run a change and await its result.

    Cancelling the caller cancels the change and returns once it has ended: a commit beyond the point of no return is
    then visible, and nothing is written or removed any more.
    """
    if call_metrics.watchers:
        with call_metrics.count_call(plan):
            return await _drive_change(plan, answers_sync)
    return await _drive_change(plan, answers_sync)


async def _drive_change(plan: Plan[T], answers_sync: bool) -> T:
    if answers_sync:
        return await drive_in_thread(partial(drive_sync, plan))
    await runtime.load_modules(feeding.__name__)
    return await feeding.wrap_fed(_nothing(), lambda _: drive_async(plan))


def begin_plan(
    plan: Plan[None], ended: Callable[[BaseException | None], None], *, answers_sync: bool
) -> Callable[[], None]:
    """Start a plan in the background; the caller need not wait and may end first.

    ended         called at the end with the plan's error or None, from the thread that ran it
    answers_sync  whether the store answers in any thread

    Returns a function that cancels the plan, from any thread. Raises `RuntimeError` while the process shuts down.
    """
    if answers_sync:
        return begin_in_thread(partial(drive_sync, plan), ended)
    return runtime.begin(drive_async(plan), ended)


async def _nothing() -> AsyncIterator[Any]:
    """The empty input of a change that takes no rows."""
    for item in list[Any]():
        yield item


def _within(timeout: Timeout, plan: Plan[T]) -> Coroutine[Any, Any, T]:
    if timeout is None:
        return drive_async(plan)
    return runtime.within(runtime.seconds(timeout), drive_async(plan))
