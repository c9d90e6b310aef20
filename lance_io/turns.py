"""Threads that work beside an event loop let it have the interpreter in between.

    give_way()       where such a thread has kept it for a while
    in_turns(items)  the same from time to time while it goes through many: `MANY` at least, fewer are quickly done

A loop that wants the interpreter while another thread computes has to wait for five milliseconds, which is how long
Python leaves it to who has it. Whoever lets go of it earlier, for as long as another thread needs to wake up, keeps
nobody.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")
MANY: Final = 256
TURN_S: Final = 0.001  # how long a thread keeps the interpreter
PAUSE_S: Final = 0.00005  # how long it lets go of it: about what a thread needs to wake up


class _Thread(threading.local):
    """since: when this thread got the interpreter, on the monotonic clock; None where it works beside no loop."""

    since: float | None = None


_this = _Thread()


def begin_turns() -> None:
    """From now on this thread works beside loops."""
    _this.since = time.monotonic()


def give_way() -> None:
    """Let others have the interpreter, if this thread works beside a loop and has kept it for a while."""
    since = _this.since
    if since is not None and time.monotonic() - since > TURN_S:
        time.sleep(PAUSE_S)
        _this.since = time.monotonic()


def in_turns(items: Iterable[T]) -> Iterator[T]:
    """The items; a thread that works beside a loop gives way in between."""
    return iter(items) if _this.since is None else _given_way(items)


def _given_way(items: Iterable[T]) -> Iterator[T]:
    for item in items:
        give_way()
        yield item
