"""Interleavings by choice: every store call of every writer waits at a turnstile, and somebody says who goes next.

No threads, no sleeps: all writers run on one loop, and a new one is let through only when nobody else can move. So a
race is a list of numbers, which a property test can draw and shrink.

    turnstile = Turnstile(choose)
    await turnstile.run([writer(turnstile.store(inner)) for ...])

`choose(n)` gives a number below n, such as `lambda n: data.draw(integers(0, n - 1))`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from lance_io.testing.wrap import Request, WrappedStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from lance_io.store.api import ObjectStore

T = TypeVar("T")

SETTLING_TURNS = 50  # of the loop, after which whoever has not come to the turnstile waits for something else


class TurnstileClosed(Exception):
    """Whoever chose the order has given up."""


class Turnstile:
    """Lets one waiting call through at a time.

    passed  what went through, in order
    """

    def __init__(self, choose: Callable[[int], int]) -> None:
        self._choose = choose
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []
        self._is_closed = False
        self.passed: list[str] = []

    @property
    def waiting(self) -> list[str]:
        """What waits, in the order that `choose` chooses from."""
        return [label for label, gate in self._waiting if not gate.done()]

    def store(self, inner: ObjectStore, name: str = "") -> TurnstileStore:
        """A store whose calls wait here; `name` says whose they are."""
        return TurnstileStore(inner, self, name)

    async def wait(self, label: str) -> None:
        """Wait to be let through."""
        if self._is_closed:
            raise TurnstileClosed
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((label, gate))
        await gate

    async def run(self, writers: Sequence[Coroutine[Any, Any, T]]) -> list[T | BaseException]:
        """Run all writers to their ends; gives what they returned or raised."""
        tasks = [asyncio.ensure_future(writer) for writer in writers]
        try:
            while not all(task.done() for task in tasks):
                await self._settle()
                waiting = [entry for entry in self._waiting if not entry[1].done()]
                if waiting:
                    label, gate = waiting[self._choose(len(waiting))]
                    self._waiting = [entry for entry in waiting if entry[1] is not gate]
                    self.passed.append(label)
                    gate.set_result(None)
            return list(await asyncio.gather(*tasks, return_exceptions=True))
        finally:
            self._is_closed = True  # whoever chooses may have given up, and some who wait do not hear of cancellation
            for _, gate in self._waiting:
                if not gate.done():
                    gate.set_exception(TurnstileClosed())
            for task in tasks:
                task.cancel()

    async def _settle(self) -> None:
        """Let everybody move until they wait."""
        for _ in range(SETTLING_TURNS):
            before = len(self._waiting)
            await asyncio.sleep(0)
            if before and len(self._waiting) == before and _ > len(self._waiting):
                return


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
