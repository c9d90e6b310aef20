"""Chosen interleavings: every store call of every writer waits at a turnstile, and a function chooses the next call.

All writers run on one event loop. The turnstile lets a call through only when no writer can go on: no callback is ready
and no thread works for a writer. Time is virtual: a timer fires at once, but only while no call waits at the turnstile.
Nothing depends on the speed of the machine, so the numbers that the function returns determine the interleaving, and a
property test can draw, shrink and repeat them.

    turnstile = Turnstile(choose)
    with asyncio.Runner(loop_factory=TurnstileLoop) as runner:
        runner.run(turnstile.run([writer(turnstile.store(inner)) for ...]))

`choose(n)` returns a number below n, such as `lambda n: data.draw(integers(0, n - 1))`. Waiting calls are in the order
of the writers; the calls of one writer are in the order of arrival.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from lance_io.testing.latency import JumpingSelector, VirtualTimeLoop
from lance_io.testing.wrap import Request, WrappedStore

if TYPE_CHECKING:
    import selectors
    from collections.abc import Awaitable, Callable, Coroutine, Sequence
    from concurrent.futures import Executor
    from typing import Unpack

    from lance_io.store.api import ObjectStore

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_writer: ContextVar[int] = ContextVar("writer", default=-1)  # number of the running writer; its tasks inherit it


class _IdleSelector(JumpingSelector):
    """Detects that the loop is idle: no callback is ready, and no thread works for the loop. Timers may be pending.

    idle_future      future that is set when the loop is idle; None if no task waits for it
    advance_future   future that is set when virtual time has advanced; None if no task waits for it
    num_thread_jobs  number of jobs that run in threads
    """

    idle_future: asyncio.Future[None] | None = None
    advance_future: asyncio.Future[None] | None = None
    num_thread_jobs = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(0)
        if self.num_thread_jobs:
            return super().select(None)
        events = super().select(0)
        if events:
            return events
        if self.idle_future is not None:
            idle_future, self.idle_future = self.idle_future, None
            idle_future.set_result(None)
            return []
        events = super().select(timeout)
        if self.advance_future is not None:
            advance_future, self.advance_future = self.advance_future, None
            advance_future.set_result(None)
        return events


class TurnstileLoop(VirtualTimeLoop):
    """The event loop of a turnstile: it has virtual time, and detects that all of its tasks and threads wait."""

    def __init__(self) -> None:
        self._idle_selector = _IdleSelector()
        super().__init__(self._idle_selector)

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """See `AbstractEventLoop.run_in_executor`. All threads that a writer waits for must be started with this."""
        future = super().run_in_executor(executor, func, *args)
        self._idle_selector.num_thread_jobs += 1
        future.add_done_callback(self._count_ended_job)
        return future

    def _count_ended_job(self, _: asyncio.Future[Any]) -> None:
        self._idle_selector.num_thread_jobs -= 1

    async def wait_until_idle(self) -> None:
        """Wait until no task can go on unless virtual time advances."""
        self._idle_selector.idle_future = self.create_future()
        await self._idle_selector.idle_future

    async def wait_for_time(self) -> None:
        """Wait until virtual time has advanced to the next timer."""
        self._idle_selector.advance_future = self.create_future()
        await self._idle_selector.advance_future


class TurnstileClosed(Exception):
    """Raised by a call at a closed turnstile: the run has ended, or `choose` has raised."""


class Turnstile:
    """Lets one waiting call through at a time.

    Args:
        choose: Called with the number of waiting calls; returns the index of the call to let through.

    Attributes:
        admitted_labels: Labels of the calls that were let through, in order.
    """

    def __init__(self, choose: Callable[[int], int]) -> None:
        self._choose = choose
        self._calls: list[_WaitingCall] = []
        self._is_closed = False
        self.admitted_labels: list[str] = []

    @property
    def waiting_labels(self) -> list[str]:
        """Labels of the waiting calls; the number that `choose` returns is an index in this list."""
        return [call.label for call in self._waiting_calls()]

    def _waiting_calls(self) -> list[_WaitingCall]:
        """The waiting calls, ordered by writer, because the order of arrival may depend on threads."""
        return sorted([call for call in self._calls if not call.gate.done()], key=lambda call: call.writer)

    def store(self, inner: ObjectStore, name: str = "") -> TurnstileStore:
        """A store whose calls wait at this turnstile.

        Args:
            inner: The store that answers the calls.
            name: First word of the labels of the calls.
        """
        return TurnstileStore(inner, self, name)

    async def wait(self, label: str) -> None:
        """Wait to be let through.

        Args:
            label: Name of the call, for `waiting_labels` and `admitted_labels`.

        Raises:
            TurnstileClosed: The turnstile is closed.
        """
        if self._is_closed:
            raise TurnstileClosed
        call = _WaitingCall(label, asyncio.get_running_loop().create_future(), _writer.get())
        self._calls.append(call)
        await call.gate

    async def run(self, writers: Sequence[Coroutine[Any, Any, T]]) -> list[T | BaseException]:
        """Run all writers to their ends, on a `TurnstileLoop`.

        Args:
            writers: Coroutines that use stores of this turnstile.

        Returns:
            The result of each writer, or the exception that it raised.
        """
        loop = asyncio.get_running_loop()
        assert isinstance(loop, TurnstileLoop), "only a TurnstileLoop detects that no writer can go on"
        tasks = [_start_writer(loop, number, writer) for number, writer in enumerate(writers)]
        try:
            await loop.wait_until_idle()
            while not all(task.done() for task in tasks):
                calls = self._waiting_calls()
                if calls:
                    chosen = calls[self._choose(len(calls))]
                    self._calls = [call for call in calls if call is not chosen]
                    self.admitted_labels.append(chosen.label)
                    chosen.gate.set_result(None)
                else:
                    await loop.wait_for_time()
                await loop.wait_until_idle()
            return list(await asyncio.gather(*tasks, return_exceptions=True))
        finally:
            self._is_closed = True  # `choose` may have raised, and some waiting calls are shielded from cancellation
            for call in self._waiting_calls():
                call.gate.set_exception(TurnstileClosed())
            for task in tasks:
                task.cancel()


@dataclass(frozen=True, eq=False)
class _WaitingCall:
    """A call that waits at a turnstile. gate: set when the call may go on; writer: number of the calling writer"""

    label: str
    gate: asyncio.Future[None]
    writer: int


def _start_writer(loop: asyncio.AbstractEventLoop, number: int, writer: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start the task of a writer, with the writer's number in the task's context."""
    context = copy_context()
    context.run(_writer.set, number)
    return loop.create_task(writer, context=context)


class TurnstileStore(WrappedStore):
    """A store whose calls wait at a turnstile before they are sent.

    Args:
        inner: The store that answers the calls.
        turnstile: The turnstile where the calls wait.
        name: First word of the labels of the calls.
    """

    def __init__(self, inner: ObjectStore, turnstile: Turnstile, name: str) -> None:
        super().__init__(inner)
        self._turnstile = turnstile
        self._name = name

    async def request(self, request: Request, send: Callable[[], Awaitable[T]]) -> T:
        """Wait at the turnstile, then send the request; see `WrappedStore.request`."""
        await self._turnstile.wait(f"{self._name} {request}")
        return await send()
