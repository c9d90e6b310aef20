"""Chosen interleavings: every store call of every writer waits at a turnstile, and a function chooses the next one.

No sleeps: all writers run on one loop, and the turnstile lets the next call through only when no writer can move, work
in threads included. Time is virtual, and advances when no call waits at the turnstile. So a race is a list of numbers,
which a property test can draw, shrink and repeat, on machines of any speed.

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


class _SettlingSelector(JumpingSelector):
    """Detects that only time can move: no callback is ready, and no thread works for the loop.

    settled     set once that is so
    moved       set once time has advanced
    in_threads  jobs in progress in threads
    """

    settled: asyncio.Future[None] | None = None
    moved: asyncio.Future[None] | None = None
    in_threads = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(0)
        if self.in_threads:
            return super().select(None)
        events = super().select(0)
        if events:
            return events
        if self.settled is not None:
            settled, self.settled = self.settled, None
            settled.set_result(None)
            return []
        events = super().select(timeout)
        if self.moved is not None:
            moved, self.moved = self.moved, None
            moved.set_result(None)
        return events


class TurnstileLoop(VirtualTimeLoop):
    """The loop of a turnstile: detects that all of its tasks wait, after it has waited for threads."""

    def __init__(self) -> None:
        self._settling = _SettlingSelector()
        super().__init__(self._settling)

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """See `AbstractEventLoop.run_in_executor`. All threads that a writer waits for must be started with this."""
        future = super().run_in_executor(executor, func, *args)
        self._settling.in_threads += 1
        future.add_done_callback(self._end_thread)
        return future

    def _end_thread(self, _: asyncio.Future[Any]) -> None:
        self._settling.in_threads -= 1

    async def settle(self) -> None:
        """Wait until only time can move."""
        self._settling.settled = self.create_future()
        await self._settling.settled

    async def move_on(self) -> None:
        """Wait until time has advanced."""
        self._settling.moved = self.create_future()
        await self._settling.moved


class TurnstileClosed(Exception):
    """The turnstile is closed: the run has ended, or `choose` has raised."""


class Turnstile:
    """Lets one waiting call through at a time.

    Args:
        choose: Called with the number of waiting calls; returns the index of the next one.

    Attributes:
        passed: Labels of the calls that were let through, in order.
    """

    def __init__(self, choose: Callable[[int], int]) -> None:
        self._choose = choose
        self._waiting: list[_Waiting] = []
        self._is_closed = False
        self.passed: list[str] = []

    @property
    def waiting(self) -> list[str]:
        """Labels of the waiting calls, in the order that `choose` chooses from."""
        return [call.label for call in self._in_order()]

    def _in_order(self) -> list[_Waiting]:
        """Waiting calls by writer: their order of arrival may depend on threads."""
        return sorted([call for call in self._waiting if not call.gate.done()], key=lambda call: call.writer)

    def store(self, inner: ObjectStore, name: str = "") -> TurnstileStore:
        """A store whose calls wait at this turnstile.

        Args:
            inner: The store that answers the calls.
            name: Begins the labels of the calls.
        """
        return TurnstileStore(inner, self, name)

    async def wait(self, label: str) -> None:
        """Wait to be let through.

        Args:
            label: Name of the call, for `waiting` and `passed`.

        Raises:
            TurnstileClosed: The turnstile is closed.
        """
        if self._is_closed:
            raise TurnstileClosed
        waiting = _Waiting(label, asyncio.get_running_loop().create_future(), _writer.get())
        self._waiting.append(waiting)
        await waiting.gate

    async def run(self, writers: Sequence[Coroutine[Any, Any, T]]) -> list[T | BaseException]:
        """Run all writers to their ends, on a `TurnstileLoop`.

        Args:
            writers: Coroutines that use stores of this turnstile.

        Returns:
            The result of each writer, or the exception that it raised.
        """
        loop = asyncio.get_running_loop()
        assert isinstance(loop, TurnstileLoop), "other loops do not detect that no writer can move"
        tasks = [_begin(loop, number, writer) for number, writer in enumerate(writers)]
        try:
            await loop.settle()
            while not all(task.done() for task in tasks):
                waiting = self._in_order()
                if waiting:
                    chosen = waiting[self._choose(len(waiting))]
                    self._waiting = [call for call in waiting if call is not chosen]
                    self.passed.append(chosen.label)
                    chosen.gate.set_result(None)
                else:
                    await loop.move_on()
                await loop.settle()
            return list(await asyncio.gather(*tasks, return_exceptions=True))
        finally:
            self._is_closed = True  # `choose` may have raised, and some waiting calls are shielded from cancellation
            for call in self._in_order():
                call.gate.set_exception(TurnstileClosed())
            for task in tasks:
                task.cancel()


@dataclass(frozen=True, eq=False)
class _Waiting:
    """One call that waits at a turnstile."""

    label: str
    gate: asyncio.Future[None]
    writer: int


def _begin(loop: asyncio.AbstractEventLoop, number: int, writer: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """The task of a writer, with its number in the context."""
    context = copy_context()
    context.run(_writer.set, number)
    return loop.create_task(writer, context=context)


class TurnstileStore(WrappedStore):
    """A store whose calls wait at a turnstile before they are sent.

    Args:
        inner: The store that answers the calls.
        turnstile: Where they wait.
        name: Begins the labels of the calls.
    """

    def __init__(self, inner: ObjectStore, turnstile: Turnstile, name: str) -> None:
        super().__init__(inner)
        self._turnstile = turnstile
        self._name = name

    async def request(self, request: Request, send: Callable[[], Awaitable[T]]) -> T:
        """See `WrappedStore.request`; waits first."""
        await self._turnstile.wait(f"{self._name} {request}")
        return await send()
