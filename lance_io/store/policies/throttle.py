"""What waits before it is sent to one bucket, and in which order.

`Gate` makes requests of one event loop wait: for a slot (`AdaptiveLimit`), for their turn in the pace of a bucket that
refuses some (`pace.py`), and for that of a store with a speed limit (`Rate`). These three decide and are pure (the
clock is an argument). Who waits for another attempt holds no slot here; the slot of the process that its read has
(`io/slots.py`) it keeps: that one bounds what is asked of a store, these what is sent to it.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import weakref
from functools import partial
from typing import TYPE_CHECKING

from lance_io.runtime import set_done
from lance_io.store.failures import Throttled
from lance_io.store.offers import flow
from lance_io.store.policies.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.store.failures import Transient
    from lance_io.store.offers import Flow

WINDOW_S = 1.0
LIMIT_MIN = 4
BURST_MIN = 3  # connections lost in one window that are no accident,
BURST_SHARE = 0.05  # if they are more than this share of its requests
DECREASE = 0.7

Place = tuple[int, int]
"""Where a request stands in line: its turn, and when it came."""


class AdaptiveLimit:
    """Requests in flight to one bucket: as many as there may be, until connections are lost in bursts.

    A window of a second with such a burst takes the limit to 0.7 of it (not below 4, or the maximum if that is less): a
    server or something before it has too many connections. A clean window in which the limit was reached adds an
    eighth of the maximum. A window without pressure changes nothing.

    maximum  also where it starts: a bucket that has not complained is asked for everything at once
    pace     how fast they may follow each other, since the bucket refused some
    """

    _window_began_s: float | None
    _reached: bool
    _num_requests: int
    _num_lost: int

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._least = min(LIMIT_MIN, maximum)
        self._step = max(1, maximum // 8)
        self.limit = maximum
        self.pace = Pace()
        self._begin(None)

    def note(
        self, now_s: float, in_flight: int, *, throttled: bool = False, lost: bool = False, num_requests: int = 1
    ) -> None:
        """Requests are over at `now_s` (any monotonic clock); `in_flight` counts them too.

        throttled  the store asked for fewer
        lost       the connection broke, or there was no answer in time
        """
        self.pace.note(now_s, in_flight, refused=throttled, num_requests=num_requests)
        self._num_requests += num_requests
        self._num_lost += lost * num_requests
        self._reached |= in_flight >= self.limit
        if self._window_began_s is None:
            self._window_began_s = now_s
        if now_s - self._window_began_s < WINDOW_S:
            return
        if self._num_lost >= max(BURST_MIN, BURST_SHARE * self._num_requests):
            self.limit = max(self._least, int(self.limit * DECREASE))
        elif self._reached:
            self.limit = min(self._maximum, self.limit + self._step)
        self._begin(now_s)

    def _begin(self, now_s: float | None) -> None:
        """A new window; None before the first request."""
        self._window_began_s = now_s
        self._reached = False
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


class Turn:
    """A request in line at a `Gate`.

    place       where it stands
    is_through  it has been given a slot
    """

    __slots__ = ("go", "is_through", "loop", "place")

    def __init__(self, place: Place, go: Callable[[], None]) -> None:
        self.place = place
        self.loop = asyncio.get_running_loop()
        self.go: Callable[[], None] | None = go
        self.is_through = False

    def call(self) -> None:
        """Say that it is through, unless it has withdrawn meanwhile."""
        if self.go is not None:
            self.go()


class Gate:
    """Lets at most `limit.limit` requests of one event loop through, at the pace of the limit; the others wait.

    Operations take turns (`flow`), and the requests of each go in order of arrival. A request that has to be made
    again leaves while it pauses, and comes back to the place that it had in line: ahead of all that have not been let
    through yet.

    rate  how fast they may follow each other at most; None for no limit
    """

    def __init__(self, limit: AdaptiveLimit, clock: Callable[[], float], rate: Rate | None = None) -> None:
        self._limit = limit
        self._clock = clock
        self._rate = rate
        self._token_due = False
        self._arrivals = itertools.count()
        self._turn = 0  # of who was let through last
        self._turns: weakref.WeakKeyDictionary[Flow, int] = (
            weakref.WeakKeyDictionary()
        )  # the last one of each operation
        self._waiting: list[tuple[Place, Turn]] = []  # a heap
        self.in_flight = 0

    async def enter(self, place: Place | None = None) -> Place:
        """Wait for a slot and take it; `leave` must follow.

        place  what this returned when the same request was made before; None: it is a new one
        """
        if place is None and (place := self.enter_now()) is not None:
            return place
        through: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        turn = self.line_up(partial(set_done, through), place, flow.get())
        try:
            await through
        except asyncio.CancelledError:
            self.withdraw(turn)
            raise
        return turn.place

    def enter_now(self) -> Place | None:
        """Take a slot if a new request need not wait for it: its place, see `enter`."""
        return self.enter_many(1)[0] if self.num_open() else None

    def num_open(self) -> int:
        """How many new requests may go out without waiting, in line or for a token."""
        if self._waiting or self._limit.pace.per_s is not None or self._rate is not None:
            return 0
        return max(0, self._limit.limit - self.in_flight)

    def enter_many(self, num_requests: int) -> list[Place]:
        """Take slots for new requests, no more than `num_open` says: their places, see `enter`."""
        self.in_flight += num_requests
        return [(self._turn, number) for number in itertools.islice(self._arrivals, num_requests)]

    def line_up(self, go: Callable[[], None], place: Place | None, operation: Flow | None) -> Turn:
        """Have `go` called, in a turn of the loop of its own, once a slot was taken; `leave` must follow then.

        place      as for `enter`
        operation  that a new request belongs to
        """
        turn = Turn(place or self._new_place(operation), go)
        heapq.heappush(self._waiting, (turn.place, turn))
        self._admit()
        return turn

    def withdraw(self, turn: Turn) -> None:
        """A request in line is not wanted any more; a slot that it was given is free again."""
        turn.go = None
        if turn.is_through:
            self.in_flight -= 1
            self._admit()

    def leave(self, failure: Transient | None = None, *, num_requests: int = 1) -> None:
        """Give slots back, after requests have succeeded, or failed so that they may work again."""
        throttled, lost = isinstance(failure, Throttled), failure is not None and failure.status is None
        self._limit.note(self._clock(), self.in_flight, throttled=throttled, lost=lost, num_requests=num_requests)
        self.in_flight -= num_requests
        if self._waiting:
            self._admit()

    def _new_place(self, operation: Flow | None) -> Place:
        """At the end of the line of its operation, whose requests stand between those of others one by one."""
        turn = self._turn
        if operation is not None:
            turn = self._turns[operation] = max(turn, self._turns.get(operation, 0)) + 1
        return turn, next(self._arrivals)

    def _admit(self, *, has_token: bool = False) -> None:
        """Let through who is first in line, as long as there are slots and tokens."""
        while self._waiting and self.in_flight < self._limit.limit:
            place, turn = self._waiting[0]
            if turn.go is not None:
                if not (has_token or self._take_token()):
                    return
                has_token = False
                self.in_flight += 1
                self._turn = max(self._turn, place[0])
                turn.is_through = True
                turn.loop.call_soon(turn.call)
            heapq.heappop(self._waiting)

    def _take_token(self) -> bool:
        """Take a token; if there is none, one of the future, for whoever is first in line when it comes."""
        if self._token_due:
            return False
        now_s = self._clock()
        wait_s = max(self._limit.pace.wait_s(now_s), 0.0 if self._rate is None else self._rate.wait_s(now_s))
        if wait_s > 0:
            self._token_due = True
            self._waiting[0][1].loop.call_later(wait_s, self._token_came)
        return wait_s == 0

    def _token_came(self) -> None:
        self._token_due = False
        self._admit(has_token=True)
