"""Dependent rounds of I/O, measured without a clock.

On a `VirtualTimeLoop` time stands still while anything can run, and jumps to the next timer when nothing can. With a
`LatencyStore` around a memory store every request takes one unit. The elapsed time is then the number of dependent
requests, for any number of requests in flight:

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
    """A store whose every request takes the same time.

    Args:
        inner: The store that answers the requests.
        delay_s: Seconds that each request takes.
    """

    def __init__(self, inner: ObjectStore, delay_s: float = 1.0) -> None:
        super().__init__(inner)
        self._delay_s = delay_s

    async def request(self, request: Request, send: Callable[[], Awaitable[T]]) -> T:
        """See `WrappedStore.request`; waits first."""
        await asyncio.sleep(self._delay_s)
        return await send()


class JumpingSelector(selectors.DefaultSelector):
    """A selector that advances virtual time in place of waiting for a timer.

    Attributes:
        jumped_s: Virtual seconds so far.
    """

    jumped_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """See `BaseSelector.select`; a timeout advances the virtual time."""
        if timeout is None:  # no timer: only another thread can wake the loop
            return super().select(None)
        events = super().select(0)
        if not events and timeout > 0:
            self.jumped_s += timeout
        return events


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock starts at 0 and advances only when nothing can run.

    It does not wait for threads while a timer is set: use it with stores that answer on the loop.

    Args:
        selector: Selector of the loop; None for a new `JumpingSelector`.
    """

    def __init__(self, selector: JumpingSelector | None = None) -> None:
        self._jumping = selector or JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Virtual seconds since the loop was created."""
        return self._jumping.jumped_s


def run_virtual(make: Callable[[], Coroutine[Any, Any, T]]) -> tuple[T, float]:
    """Run a coroutine on a new loop with virtual time.

    Args:
        make: Returns the coroutine; called once the loop exists.

    Returns:
        The result of the coroutine, and the virtual seconds that it took.
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        loop = runner.get_loop()
        began_s = loop.time()
        result = runner.run(make())
        return result, round(loop.time() - began_s, 6)
