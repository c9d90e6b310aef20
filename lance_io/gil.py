"""Threads that compute beside an event loop release the GIL for it from time to time.

    yield_gil()      releases the GIL if this thread has held it for a while
    yielding(items)  iterates and calls `yield_gil()` before each item; worth it for `MANY` items or more

When an event loop wants the GIL while another thread computes, it waits for Python's switch interval: 5 ms. A thread
that releases the GIL earlier, for as long as another thread needs to wake up, does not delay the loop.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")
MANY: Final = 256
HOLD_MAX_S: Final = 0.001  # how long a thread holds the GIL
PAUSE_S: Final = 0.00005  # how long it releases the GIL: about as long as a thread needs to wake up


class _Thread(threading.local):
    """since: when this thread acquired the GIL, on the monotonic clock; None if it runs beside no event loop."""

    since: float | None = None


_this = _Thread()


def start_yielding() -> None:
    """Mark this thread as running beside an event loop."""
    _this.since = time.monotonic()


def yield_gil() -> None:
    """Release the GIL if this thread runs beside an event loop and has held it for a while."""
    since = _this.since
    if since is not None and time.monotonic() - since > HOLD_MAX_S:
        time.sleep(PAUSE_S)
        _this.since = time.monotonic()


def yielding(items: Iterable[T]) -> Iterator[T]:
    """The items; between them a thread beside an event loop releases the GIL."""
    return iter(items) if _this.since is None else _yielding(items)


def _yielding(items: Iterable[T]) -> Iterator[T]:
    for item in items:
        yield_gil()
        yield item
