"""Dependent rounds of I/O, measured without a clock.

On a `VirtualTimeLoop` time stands still while anything can run and jumps to the next timer when nothing can. Around a
memory store, `LatencyStore` makes every request last one unit; what has then passed is the number of requests that
had to wait for one another, however many were in flight at once:

    rows, rounds = run_virtual(lambda: read(LatencyStore(store)))
"""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, TypeVar

from lance_io.testing.wrap import Request, WrappedStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any

    from lance_io.store.api import ObjectStore

T = TypeVar("T")


class LatencyStore(WrappedStore):
    """Every request takes `delay_s`, whatever it asks for."""

    def __init__(self, inner: ObjectStore, delay_s: float = 1.0) -> None:
        super().__init__(inner)
        self._delay_s = delay_s

    async def request(self, request: Request, send: Callable[[], Awaitable[T]]) -> T:
        """Wait, then pass on."""
        await asyncio.sleep(self._delay_s)
        return await send()


class JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting for a timer, says that its time has come."""

    jumped_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:  # no timer at all: something from another thread must come
            return super().select(None)
        events = super().select(0)
        if not events and timeout > 0:
            self.jumped_s += timeout
        return events


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock starts at 0 and moves only when nothing else is left to do.

    It does not wait for threads while a timer is set: use it with stores that answer on the loop.
    """

    def __init__(self, selector: JumpingSelector | None = None) -> None:
        self._jumping = selector or JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._jumping.jumped_s


def run_virtual(make: Callable[[], Coroutine[Any, Any, T]]) -> tuple[T, float]:
    """Run a coroutine on a loop of its own with virtual time: its result, and how long it took."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        loop = runner.get_loop()
        began_s = loop.time()
        result = runner.run(make())
        return result, round(loop.time() - began_s, 6)
