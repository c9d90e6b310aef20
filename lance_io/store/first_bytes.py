"""How long answers to GETs took to begin, in this process: a histogram that costs a few additions for each.

What is measured is what a reader waits for, and what hedging goes by: from when a GET's turn has come, a connection for
it included, to the head of the first right answer, of whichever of its requests. Refusals are not among them.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from lance_io.store.counters import Tally

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper ends of the buckets."""


class FirstByteTally:
    """The histogram. Safe from any thread.

    watchers  called with the seconds of each answer, on the loop that reads it: they should be short
    """

    def __init__(self) -> None:
        self._tally = Tally()
        self._lock = threading.Lock()
        self.watchers: tuple[Callable[[float], None], ...] = ()

    def numbers_for(self, owner: object) -> list[float]:
        """Numbers that the owner, one loop's, adds to: of each bucket, of what is above all of them, and the sum."""
        numbers = [0.0] * (len(SECONDS) + 2)
        self._tally.follow(owner, {"get": numbers})
        return numbers

    def watch(self, watcher: Callable[[float], None]) -> Callable[[], None]:
        """Call it for every answer from now on; gives what ends that."""
        with self._lock:
            self.watchers = (*self.watchers, watcher)

        def stop() -> None:
            with self._lock:
                self.watchers = tuple(one for one in self.watchers if one is not watcher)

        return stop

    def tell(self, first_byte_s: float) -> None:
        """An answer has begun."""
        for watcher in self.watchers:
            watcher(first_byte_s)

    def total(self) -> list[float]:
        """The numbers now: of each bucket those that lie in it or below, the last of all, then the sum."""
        *counts, total_s = self._tally.total().get("get", [0.0] * (len(SECONDS) + 2))
        return [sum(counts[: end + 1]) for end in range(len(counts))] + [total_s]


FIRST_BYTES: Final = FirstByteTally()
