"""Interleavings by choice: every store call of every writer waits at a turnstile, and somebody says who goes next.

No sleeps: all writers run on one loop, and a new one is let through only when nobody else can move, work in threads
among them. Time is virtual, and moves when nobody waits to be let through. So a race is a list of numbers, which a
property test can draw, shrink and repeat, however slow the machine is.

    turnstile = Turnstile(choose)
    with asyncio.Runner(loop_factory=TurnstileLoop) as runner:
        runner.run(turnstile.run([writer(turnstile.store(inner)) for ...]))

`choose(n)` gives a number below n, such as `lambda n: data.draw(integers(0, n - 1))`. Those who wait are in the order
of the writers; what waits for one writer, in the order in which it came.
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

_writer: ContextVar[int] = ContextVar("writer", default=-1)  # whose code is running; tasks that it makes inherit it


class _SettlingSelector(JumpingSelector):
    """Says when nothing can move but time: no callback is ready, and no thread is at work for the loop.

    settled     is done then, once
    moved       is done when time has moved
    in_threads  how much work is under way in threads
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
    """The loop that a turnstile runs on: it knows when all of its tasks wait, and waits for threads before that."""

    def __init__(self) -> None:
        self._settling = _SettlingSelector()
        super().__init__(self._settling)

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """See asyncio. All threads that a writer waits for are asked in this way."""
        future = super().run_in_executor(executor, func, *args)
        self._settling.in_threads += 1
        future.add_done_callback(self._end_thread)
        return future

    def _end_thread(self, _: asyncio.Future[Any]) -> None:
        self._settling.in_threads -= 1

    async def settle(self) -> None:
        """Wait until nothing else can move but time."""
        self._settling.settled = self.create_future()
        await self._settling.settled

    async def move_on(self) -> None:
        """Wait until time has moved."""
        self._settling.moved = self.create_future()
        await self._settling.moved


class TurnstileClosed(Exception):
    """Whoever chose the order has given up."""


class Turnstile:
    """Lets one waiting call through at a time.

    passed  what went through, in order
    """

    def __init__(self, choose: Callable[[int], int]) -> None:
        self._choose = choose
        self._waiting: list[_Waiting] = []
        self._is_closed = False
        self.passed: list[str] = []

    @property
    def waiting(self) -> list[str]:
        """What waits, in the order that `choose` chooses from."""
        return [one.label for one in self._in_order()]

    def _in_order(self) -> list[_Waiting]:
        """Those who wait; who came first among several writers may depend on threads."""
        return sorted([one for one in self._waiting if not one.gate.done()], key=lambda one: one.writer)

    def store(self, inner: ObjectStore, name: str = "") -> TurnstileStore:
        """A store whose calls wait here; `name` says whose they are."""
        return TurnstileStore(inner, self, name)

    async def wait(self, label: str) -> None:
        """Wait to be let through."""
        if self._is_closed:
            raise TurnstileClosed
        waiting = _Waiting(label, asyncio.get_running_loop().create_future(), _writer.get())
        self._waiting.append(waiting)
        await waiting.gate

    async def run(self, writers: Sequence[Coroutine[Any, Any, T]]) -> list[T | BaseException]:
        """Run all writers to their ends, on a `TurnstileLoop`; gives what they returned or raised."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, TurnstileLoop), "other loops do not tell when nobody can move"
        tasks = [_begin(loop, number, writer) for number, writer in enumerate(writers)]
        try:
            await loop.settle()
            while not all(task.done() for task in tasks):
                waiting = self._in_order()
                if waiting:
                    chosen = waiting[self._choose(len(waiting))]
                    self._waiting = [one for one in waiting if one is not chosen]
                    self.passed.append(chosen.label)
                    chosen.gate.set_result(None)
                else:
                    await loop.move_on()
                await loop.settle()
            return list(await asyncio.gather(*tasks, return_exceptions=True))
        finally:
            self._is_closed = True  # whoever chooses may have given up, and some who wait do not hear of cancellation
            for one in self._in_order():
                one.gate.set_exception(TurnstileClosed())
            for task in tasks:
                task.cancel()


@dataclass(frozen=True, eq=False)
class _Waiting:
    """One call that waits at a turnstile."""

    label: str
    gate: asyncio.Future[None]
    writer: int


def _begin(loop: asyncio.AbstractEventLoop, number: int, writer: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """The task of a writer, whose code knows which one it is."""
    context = copy_context()
    context.run(_writer.set, number)
    return loop.create_task(writer, context=context)


class TurnstileStore(WrappedStore):
    """A store whose every call waits at the turnstile before it is carried out."""

    def __init__(self, inner: ObjectStore, turnstile: Turnstile, name: str) -> None:
        super().__init__(inner)
        self._turnstile = turnstile
        self._name = name

    async def request(self, request: Request, send: Callable[[], Awaitable[T]]) -> T:
        """Wait, then pass on."""
        await self._turnstile.wait(f"{self._name} {request}")
        return await send()
