"""Histogram of the time to first byte of GETs in this process; recording costs a few additions.

The time is what a reader waits for, and the input of hedging: from the start of a GET's turn, with the wait for a
connection, to the headers of the first valid answer of any of its requests. Refusals do not count.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from lance_io.store.counters import Tally

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the buckets."""


class FirstByteTally:
    """The histogram. Safe from any thread.

    watchers  called with the seconds of each answer, on the loop that reads it; they should be short
    """

    def __init__(self) -> None:
        self._tally = Tally()
        self._lock = threading.Lock()
        self.watchers: tuple[Callable[[float], None], ...] = ()

    def numbers_for(self, owner: object) -> list[float]:
        """Counters that one loop's `owner` adds to: one per bucket, one for longer times, and the sum in seconds."""
        numbers = [0.0] * (len(SECONDS) + 2)
        self._tally.follow(owner, {"get": numbers})
        return numbers

    def watch(self, watcher: Callable[[float], None]) -> Callable[[], None]:
        """Call `watcher` for every answer from now on; returns a function that stops this."""
        with self._lock:
            self.watchers = (*self.watchers, watcher)

        def stop() -> None:
            with self._lock:
                self.watchers = tuple(other for other in self.watchers if other is not watcher)

        return stop

    def notify_watchers(self, first_byte_s: float) -> None:
        """Pass the time of an answer to the watchers."""
        for watcher in self.watchers:
            watcher(first_byte_s)

    def total(self) -> list[float]:
        """Cumulative counts of the buckets, the last one for all answers, then the sum in seconds."""
        *counts, total_s = self._tally.total().get("get", [0.0] * (len(SECONDS) + 2))
        return [sum(counts[: end + 1]) for end in range(len(counts))] + [total_s]


FIRST_BYTES: Final = FirstByteTally()
