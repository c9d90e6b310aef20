"""How many requests one bucket gets at once: halved when it complains, raised slowly while it does not.

`AdaptiveLimit` decides and is pure (the clock is an argument), as is `Rate`, for stores with a speed limit; `Gate`
makes requests of one event loop wait. Who waits for another attempt holds no slot here; the slot of the process that
its read has (`io/slots.py`) it keeps: that one bounds what is asked of a store, these what is sent to it.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from typing import TYPE_CHECKING

from lance_io.store.failures import Throttled

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.store.failures import Transient

WINDOW_S = 1.0
LIMIT_MIN = 4
BURST_MIN = 3  # connections lost in one window that are no accident,
BURST_SHARE = 0.05  # if they are more than this share of its requests


class AdaptiveLimit:
    """Additive increase, multiplicative decrease, at most one change per window of a second.

    A window with a sign of throttling, or with a burst of lost connections, halves the limit (not below 4, or the
    maximum if that is less). A clean window in which the limit was reached adds an eighth of the start value. A window
    without pressure changes nothing.
    """

    _window_began_s: float | None
    _throttled: bool
    _reached: bool
    _num_requests: int
    _num_lost: int

    def __init__(self, start: int, maximum: int) -> None:
        self._maximum = maximum
        self._least = min(LIMIT_MIN, maximum)
        self._step = max(1, start // 8)
        self.limit = min(start, maximum)
        self._begin(None)

    def note(self, now_s: float, in_flight: int, *, throttled: bool = False, lost: bool = False) -> None:
        """A request is over at `now_s` (any monotonic clock); `in_flight` counts it too.

        throttled  the store asked for fewer
        lost       the connection broke, or there was no answer in time
        """
        self._num_requests += 1
        self._num_lost += lost
        self._throttled |= throttled
        self._reached |= in_flight >= self.limit
        if self._window_began_s is None:
            self._window_began_s = now_s
        if now_s - self._window_began_s < WINDOW_S:
            return
        is_burst = self._num_lost >= max(BURST_MIN, BURST_SHARE * self._num_requests)
        if self._throttled or is_burst:
            self.limit = max(self._least, self.limit // 2)
        elif self._reached:
            self.limit = min(self._maximum, self.limit + self._step)
        self._begin(now_s)

    def _begin(self, now_s: float | None) -> None:
        """A new window; None before the first request."""
        self._window_began_s = now_s
        self._throttled = self._reached = False
        self._num_requests = self._num_lost = 0


class Rate:
    """At most `per_s` requests in a second: a bucket of so many tokens that fills at that rate.

    Who comes when it is empty takes a token of the future, and waits for it.
    """

    def __init__(self, per_s: int) -> None:
        self._token_s = 1 / per_s
        self._full_s = float("-inf")  # when the bucket would be full again

    def wait_s(self, now_s: float) -> float:
        """Take a token at `now_s` (any monotonic clock); seconds until it is there."""
        self._full_s = max(self._full_s, now_s) + self._token_s
        return max(0.0, self._full_s - now_s - 1.0)


class Gate:
    """Lets at most `limit.limit` requests of one event loop through; the others wait in order of arrival.

    A request that has to be made again leaves while it pauses, and comes back to the place that it had in line: ahead
    of all that have not been let through yet.

    rate  how fast they may follow each other; None for no limit
    """

    def __init__(self, limit: AdaptiveLimit, clock: Callable[[], float], rate: Rate | None = None) -> None:
        self._limit = limit
        self._clock = clock
        self._rate = rate
        self._token_due = False
        self._places = itertools.count()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []  # a heap
        self.in_flight = 0

    async def enter(self, place: int | None = None) -> int:
        """Wait for a slot and take it; `leave` must follow.

        place  what this returned when the same request was made before; None: it is a new one
        """
        if place is None:
            place = next(self._places)
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (place, turn))
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the slot was handed over in the moment of cancellation
                self.in_flight -= 1
                self._admit()
            raise
        return place

    def leave(self, failure: Transient | None = None) -> None:
        """Give the slot back, after the request has succeeded, or failed so that it may work again."""
        throttled, lost = isinstance(failure, Throttled), failure is not None and failure.status is None
        self._limit.note(self._clock(), self.in_flight, throttled=throttled, lost=lost)
        self.in_flight -= 1
        self._admit()

    def _admit(self, *, has_token: bool = False) -> None:
        """Let through who is first in line, as long as there are slots and tokens."""
        while self._waiting and self.in_flight < self._limit.limit:
            turn = self._waiting[0][1]
            if not turn.done():
                if not (has_token or self._take_token()):
                    return
                has_token = False
                self.in_flight += 1
                turn.set_result(None)
            heapq.heappop(self._waiting)

    def _take_token(self) -> bool:
        """Take a token; if there is none, one of the future, for whoever is first in line when it comes."""
        if self._rate is None or self._token_due:
            return self._rate is None
        wait_s = self._rate.wait_s(self._clock())
        if wait_s > 0:
            self._token_due = True
            self._waiting[0][1].get_loop().call_later(wait_s, self._token_came)
        return wait_s == 0

    def _token_came(self) -> None:
        self._token_due = False
        self._admit(has_token=True)
