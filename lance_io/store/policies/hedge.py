"""Hedged requests: repeats late requests, which cuts the long tail of an object store's latency.

A request is late when its answer has not begun after max(2 x p50, p95) of the recent times to first byte of its kind.
It is then repeated over another connection, and after the same time once more: among the hundreds of GETs of one take,
some are unlucky twice. The first complete answer wins and the other requests are cancelled. Hedges add at most 5 % of
requests, so that a slow store gets hardly more load, and none while the store refuses requests.

`Hedging` decides and is pure (times are arguments); a `Race` executes it, for each attempt at a download. Without late
answers the overhead is one object per attempt: no task, and one timer for all requests in flight (`Watch`).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from lance_io.limits import MIB
from lance_io.store.failures import Transient
from lance_io.store.first_bytes import FIRST_BYTES, SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_io.store.counters import StoreStats
    from lance_io.store.policies.download import Download
    from lance_io.store.policies.pace import Pace
    from lance_io.store.policies.transport import Attempt, GetTransport

SAMPLES_MIN: Final = 32  # answers before the first hedge
SAMPLES_MAX: Final = 256
HEDGES_MAX: Final = 2  # per request
LARGE_BYTES: Final = 1 * MIB  # larger reads are a separate kind: their answers compete for bandwidth
_LOOK_EVERY: Final = 32  # answers between two updates of the percentiles
_NEVER_S: Final = float("inf")
_SAVED_MAX: Final = 32.0  # maximal budget of hedges: the share of a take of some 600 GETs


class _Latencies:
    """Recent times to first byte of one kind of requests."""

    def __init__(self) -> None:
        self._samples: deque[float] = deque(maxlen=SAMPLES_MAX)
        self._num_answers = 0
        self.patience_s: float | None = None

    def note(self, first_byte_s: float) -> None:
        """Record one answer."""
        self._samples.append(first_byte_s)
        self._num_answers += 1
        if self._num_answers >= SAMPLES_MIN and self._num_answers % _LOOK_EVERY == 0:
            ordered = sorted(self._samples)
            median, late = ordered[len(ordered) // 2], ordered[len(ordered) * 95 // 100]
            self.patience_s = max(2 * median, late)


class Hedging:
    """Decides when to hedge, for one bucket.

    percent  hedges per 100 requests; 0: none
    pace     of the bucket; while there is one, nothing is hedged
    """

    def __init__(self, percent: int, pace: Pace | None = None) -> None:
        self._share = percent / 100
        self._pace = pace
        self._saved = 0.0
        self._latencies = _Latencies(), _Latencies()
        self._first_bytes = FIRST_BYTES.numbers_for(self)

    def note(self, first_byte_s: float, num_bytes: int = 0) -> None:
        """Record the time from a request to the headers of its answer.

        num_bytes  that the request asked for, 0 if unknown
        """
        self._latencies[num_bytes >= LARGE_BYTES].note(first_byte_s)
        numbers = self._first_bytes
        numbers[bisect_left(SECONDS, first_byte_s)] += 1
        numbers[-1] += first_byte_s
        if FIRST_BYTES.watchers:
            FIRST_BYTES.notify_watchers(first_byte_s)
        self._saved = min(_SAVED_MAX, self._saved + self._share)

    def patience_s(self, num_bytes: int = 0) -> float | None:
        """Seconds after which a request for `num_bytes` is late; None: never."""
        return self._latencies[num_bytes >= LARGE_BYTES].patience_s if self._share else None

    def spend(self) -> bool:
        """Take one hedge from the budget; False if there is none."""
        if self._saved < 1 or (self._pace is not None and self._pace.per_s is not None):
            return False
        self._saved -= 1
        return True


class Watched(Protocol):
    """A request whose answer may be late.

    is_waiting  for the headers of its answer
    num_bytes   that it asks for, 0 if unknown
    """

    is_waiting: bool
    num_bytes: int

    def late(self, now_s: float) -> None:
        """Called when the headers have not arrived in time."""


class Watch:
    """Watches the requests of one event loop that wait for an answer: one timer for all of them."""

    def __init__(self, hedging: Hedging) -> None:
        self.hedging = hedging
        self._loop = asyncio.get_running_loop()
        self._waiting: tuple[deque[tuple[float, Watched]], ...] = (
            deque(),
            deque(),
        )  # in the order of sending
        self._timer: asyncio.TimerHandle | None = None

    def now_s(self) -> float:
        """The loop's clock."""
        return self._loop.time()

    def add(self, requests: Sequence[Watched], now_s: float) -> None:
        """Watch requests that were sent now; calls `late` of those whose answer has not begun in time, if known."""
        of_small, of_large = self._waiting
        soonest_s = _NEVER_S
        patience_s = self.hedging.patience_s(0), self.hedging.patience_s(LARGE_BYTES)
        for request in requests:
            is_large = request.num_bytes >= LARGE_BYTES
            after_s = patience_s[is_large]
            if after_s is not None:
                (of_large if is_large else of_small).append((now_s, request))
                soonest_s = min(soonest_s, after_s)
        if self._timer is None and soonest_s < _NEVER_S:
            self._timer = self._loop.call_later(soonest_s, self._impatient)

    def _impatient(self) -> None:
        self._loop.call_soon(self._loop.call_soon, self._look)  # first handle answers that came while the loop was busy

    def _look(self) -> None:
        """Hedge late requests; sets the timer for the next one."""
        now_s, ends_s = self._loop.time(), _NEVER_S
        for waiting, num_bytes in zip(self._waiting, (0, LARGE_BYTES), strict=True):
            patience_s = self.hedging.patience_s(num_bytes)
            if patience_s is None:  # nothing of this kind is watched yet
                continue
            for _ in range(len(waiting)):  # hedged requests are appended at the end
                began_s, request = waiting[0]
                if request.is_waiting and began_s + patience_s > now_s:
                    break
                waiting.popleft()
                if request.is_waiting:
                    request.late(now_s)
            if waiting:
                ends_s = min(ends_s, waiting[0][0] + patience_s)
        self._timer = self._loop.call_at(ends_s, self._impatient) if ends_s < _NEVER_S else None


class Race:
    """One attempt at a download: a request, and hedges if its answer does not begin in time.

    on_retry  called with True for each hedge
    ended     called once, with None when the download is complete, or with the error of the first request; not after
              `cancel`
    """

    __slots__ = (
        "_began_s",
        "_download",
        "_ended",
        "_first",
        "_first_error",
        "_gets",
        "_num_hedges",
        "_on_retry",
        "_others",
        "_stats",
        "_watch",
        "is_waiting",
        "num_bytes",
    )

    def __init__(
        self,
        gets: GetTransport,
        download: Download,
        stats: StoreStats,
        watch: Watch,
        on_retry: Callable[[bool], None] | None,
        ended: Callable[[BaseException | None], None],
    ) -> None:
        self._gets = gets
        self._download = download
        self._stats = stats
        self._watch = watch
        self._on_retry = on_retry
        self._ended = ended
        self.num_bytes = download.num_bytes
        self._num_hedges = 0
        self._others: dict[Download, Attempt] = {}
        self._first: Attempt | None = None
        self._first_error: BaseException | None = None
        self.is_waiting = False  # for the headers of an answer

    def start(self, now_s: float) -> None:
        """Send the first request."""
        self._began_s = now_s
        self.is_waiting = True
        self._download.on_answer = self._answer
        if not self._download.received:
            self._watch.add([self], now_s)
        self._first = self._gets.start(self._download, self.first_ended)

    def adopt_attempt(self, first: Attempt, began_s: float, *, is_waiting: bool) -> None:
        """Continue with a first request that is in flight already."""
        self._first, self._began_s, self.is_waiting = first, began_s, is_waiting
        self._download.on_answer = self._answer

    def late(self, now_s: float) -> None:
        """See `Watched`: send a hedge if the budget allows it."""
        if self._first is not None and self._watch.hedging.spend():
            self.send_hedge(now_s)

    def send_hedge(self, now_s: float) -> None:
        """Send the same request once more."""
        hedged = self._download.duplicate()
        hedged.on_answer = self._answer
        self._stats.retry("get", late=True, callback=self._on_retry)
        self._stats.begin("get", hedged.key, hedged.start or 0, -1 if hedged.end is None else hedged.end)
        self._num_hedges += 1
        if self._num_hedges < HEDGES_MAX:
            self._watch.add([self], now_s)
        self._others[hedged] = self._gets.start(hedged, partial(self._other_ended, hedged))

    def cancel(self) -> None:
        """Cancel all requests."""
        first, self._first = self._first, None
        if first is not None:
            first.cancel()
        self._let_go()

    def _answer(self) -> None:
        if self.is_waiting:
            self.is_waiting = False
            self._watch.hedging.note(self._watch.now_s() - self._began_s, self.num_bytes)

    def first_ended(self, error: BaseException | None) -> None:
        """Called when the first request has ended."""
        self._first = None
        if error is None or not (self._others and isinstance(error, Transient)):
            self._end(error)
        else:
            self._first_error = error  # a hedge may still succeed

    def _other_ended(self, hedged: Download, error: BaseException | None) -> None:
        del self._others[hedged]
        if error is None:
            try:
                hedged.finish()
            except Transient as broken:
                error = broken
        # the winner's bytes count for the first request
        self._stats.end("get", hedged.received if error else 0, failed=error is not None)
        if error is None:
            if self._first is not None:
                self._first.cancel()
                self._first = None
            self._download.adopt(hedged)
            self._end(None)
        elif not self._others and self._first is None:
            self._end(self._first_error)  # of several errors, the first request's

    def _end(self, error: BaseException | None) -> None:
        ended = self._ended
        self._let_go()
        ended(error)

    def _let_go(self) -> None:
        """Cancel the hedges, and hold no references: the watch may still refer to this."""
        self.is_waiting = False
        for hedged, attempt in self._others.items():
            hedged.on_answer = None
            attempt.cancel()
            self._stats.end("get", hedged.received, failed=True)
        self._others.clear()
        self._download.on_answer = None  # no cycles: hundreds of these end at once
        del self._download, self._ended
