"""Which requests wait before they are sent to one bucket, and their order.

Requests of one event loop wait in a `Gate`: for a slot (`AdaptiveLimit`), for the pace of a bucket that refuses some
(`pace.py`), and for the rate limit of a store (`Rate`). These three decide and are pure (the clock is an argument).
A read that pauses before a retry holds no slot here, but keeps its slot of the process (`io/slots.py`): that limit
bounds the reads of a store, these limits bound the requests that are sent to it.
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
BURST_MIN = 3  # lost connections in one window are a burst
BURST_SHARE = 0.05  # if they are also more than this share of its requests
DECREASE = 0.7

QueuePosition = tuple[int, int]
"""Position of a request in the queue: its turn, and its arrival number."""


class AdaptiveLimit:
    """Requests in flight to one bucket: the maximum, until connections are lost in bursts.

    A window of one second with such a burst reduces the limit to 0.7 of it (not below 4, or the maximum if that is
    less): the server or a proxy has too many connections. A window without a burst that reached the limit adds an
    eighth of the maximum. A window without pressure changes nothing.

    maximum  also the initial limit: a bucket without errors gets all requests at once
    pace     rate of requests, once the bucket has refused some
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
        """Record that requests ended at `now_s` (any monotonic clock); `in_flight` includes them.

        throttled  the store asked for fewer
        lost       the connection broke, or the request timed out
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
        """Begin a new window; None before the first request."""
        self._window_began_s = now_s
        self._reached = False  # whether the window had as many requests in flight as the limit allows
        self._num_requests = self._num_lost = 0


class Rate:
    """At most `per_s` requests per second: a bucket of `per_s` tokens that fills at that rate.

    A request that finds it empty takes a future token, and waits for it.
    """

    def __init__(self, per_s: int) -> None:
        self._token_s = 1 / per_s
        self._full_s = float("-inf")  # when the bucket would be full again

    def wait_s(self, now_s: float) -> float:
        """Take a token at `now_s` (any monotonic clock); returns the seconds until it is available."""
        self._full_s = max(self._full_s, now_s) + self._token_s
        return max(0.0, self._full_s - now_s - 1.0)


class QueuedRequest:
    """A request in the queue of a `Gate`.

    position    in the queue
    is_through  it has a slot
    """

    __slots__ = ("go", "is_through", "loop", "position")

    def __init__(self, position: QueuePosition, go: Callable[[], None]) -> None:
        self.position = position
        self.loop = asyncio.get_running_loop()
        self.go: Callable[[], None] | None = go
        self.is_through = False

    def call(self) -> None:
        """Call `go`, unless the request was withdrawn meanwhile."""
        if self.go is not None:
            self.go()


class Gate:
    """Lets at most `limit.limit` requests of one event loop through, at the pace of the limit; others wait in a queue.

    Operations take turns (`flow`), and the requests of each go in order of arrival. A request that is retried leaves
    while it pauses, and returns to its old position: ahead of all that were not let through yet.

    rate  rate limit; None for no limit
    """

    def __init__(self, limit: AdaptiveLimit, clock: Callable[[], float], rate: Rate | None = None) -> None:
        self._limit = limit
        self._clock = clock
        self._rate = rate
        self._token_due = False
        self._arrivals = itertools.count()
        self._turn = 0  # highest turn of a request that was let through
        self._turns: weakref.WeakKeyDictionary[Flow, int] = weakref.WeakKeyDictionary()  # latest turn of each operation
        self._waiting: list[tuple[QueuePosition, QueuedRequest]] = []  # a heap
        self.in_flight = 0

    async def enter(self, position: QueuePosition | None = None) -> QueuePosition:
        """Wait for a slot and take it; `leave` must follow.

        position  result of the first `enter` of a request that is retried; None: a new request
        """
        if position is None and (position := self.enter_now()) is not None:
            return position
        through: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queued = self.enqueue(partial(set_done, through), position, flow.get())
        try:
            await through
        except asyncio.CancelledError:
            self.withdraw(queued)
            raise
        return queued.position

    def enter_now(self) -> QueuePosition | None:
        """Take a slot if a new request need not wait for it: its position, see `enter`."""
        return self.enter_many(1)[0] if self.num_open() else None

    def num_open(self) -> int:
        """How many new requests need not wait, neither in the queue nor for a token."""
        if self._waiting or self._limit.pace.per_s is not None or self._rate is not None:
            return 0
        return max(0, self._limit.limit - self.in_flight)

    def enter_many(self, num_requests: int) -> list[QueuePosition]:
        """Take slots for new requests, at most `num_open`; returns their positions, see `enter`."""
        self.in_flight += num_requests
        return [(self._turn, number) for number in itertools.islice(self._arrivals, num_requests)]

    def enqueue(self, go: Callable[[], None], position: QueuePosition | None, operation: Flow | None) -> QueuedRequest:
        """Take a slot and call `go` in a later turn of the loop; `leave` must follow then.

        position   as for `enter`
        operation  that a new request belongs to
        """
        queued = QueuedRequest(position or self._new_position(operation), go)
        heapq.heappush(self._waiting, (queued.position, queued))
        self._admit()
        return queued

    def withdraw(self, queued: QueuedRequest) -> None:
        """Remove a request from the queue; frees its slot if it has one."""
        queued.go = None
        if queued.is_through:
            self.in_flight -= 1
            self._admit()

    def leave(self, failure: Transient | None = None, *, num_requests: int = 1) -> None:
        """Free slots, after requests have succeeded, or failed with a transient error."""
        throttled, lost = isinstance(failure, Throttled), failure is not None and failure.status is None
        self._limit.note(self._clock(), self.in_flight, throttled=throttled, lost=lost, num_requests=num_requests)
        self.in_flight -= num_requests
        if self._waiting:
            self._admit()

    def _new_position(self, operation: Flow | None) -> QueuePosition:
        """The end of the operation's queue, whose requests alternate with those of other operations."""
        turn = self._turn
        if operation is not None:
            turn = self._turns[operation] = max(turn, self._turns.get(operation, 0)) + 1
        return turn, next(self._arrivals)

    def _admit(self, *, has_token: bool = False) -> None:
        """Let the first requests of the queue through, as long as there are slots and tokens."""
        while self._waiting and self.in_flight < self._limit.limit:
            position, queued = self._waiting[0]
            if queued.go is not None:
                if not (has_token or self._take_token()):
                    return
                has_token = False
                self.in_flight += 1
                self._turn = max(self._turn, position[0])
                queued.is_through = True
                queued.loop.call_soon(queued.call)
            heapq.heappop(self._waiting)

    def _take_token(self) -> bool:
        """Take a token. If there is none, take a future one, for the first request in the queue when it arrives."""
        if self._token_due:
            return False
        now_s = self._clock()
        wait_s = max(self._limit.pace.wait_s(now_s), 0.0 if self._rate is None else self._rate.wait_s(now_s))
        if wait_s > 0:
            self._token_due = True
            self._waiting[0][1].loop.call_later(wait_s, self._token_arrived)
        return wait_s == 0

    def _token_arrived(self) -> None:
        self._token_due = False
        self._admit(has_token=True)
