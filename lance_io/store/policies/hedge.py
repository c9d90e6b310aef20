"""Asking again for an answer that does not begin: the long tail of an object store's latency, cut short.

When the head of an answer is not there after max(2 x p50, p95) of what the last answers of its kind took, the same
request goes out once more, over another connection, and after as long again a third time: of the hundreds of GETs of
one take, some are unlucky twice. The first complete answer wins and the other requests are dropped. At most 5 more go
out for every 100, so that a store that is slow as a whole is not asked more of, and none while it refuses requests.

`Hedging` decides and is pure (times are arguments); a `Race` does it, for each attempt at a download. What it costs
where nothing is late is one object: no task, and one timer for all that is under way (`Watch`).
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

SAMPLES_MIN: Final = 32  # answers to know before anything is asked again
SAMPLES_MAX: Final = 256
AGAIN_MAX: Final = 2  # times that one request may be made again, as its answer is late
LARGE_BYTES: Final = 1 * MIB  # reads from this size on are a kind of their own: their answers compete for bandwidth
_LOOK_EVERY: Final = 32  # answers between two looks at the percentiles
_NEVER_S: Final = float("inf")
_SAVED_MAX: Final = 32.0  # more requests that may be saved up: the share of a take of some six hundred GETs


class _Latencies:
    """How long the last answers of one kind took to begin."""

    def __init__(self) -> None:
        self._samples: deque[float] = deque(maxlen=SAMPLES_MAX)
        self._num_answers = 0
        self.patience_s: float | None = None

    def note(self, first_byte_s: float) -> None:
        """Another one."""
        self._samples.append(first_byte_s)
        self._num_answers += 1
        if self._num_answers >= SAMPLES_MIN and self._num_answers % _LOOK_EVERY == 0:
            ordered = sorted(self._samples)
            median, late = ordered[len(ordered) // 2], ordered[len(ordered) * 95 // 100]
            self.patience_s = max(2 * median, late)


class Hedging:
    """When to ask again, for one bucket.

    percent  how many more requests may go out for every 100; 0: none
    pace     that of the bucket: where there is one, nothing is asked again
    """

    def __init__(self, percent: int, pace: Pace | None = None) -> None:
        self._share = percent / 100
        self._pace = pace
        self._saved = 0.0
        self._latencies = _Latencies(), _Latencies()
        self._first_bytes = FIRST_BYTES.numbers_for(self)

    def note(self, first_byte_s: float, num_bytes: int = 0) -> None:
        """The head of an answer came so long after its request.

        num_bytes  what was asked for, 0 where nobody knew
        """
        self._latencies[num_bytes >= LARGE_BYTES].note(first_byte_s)
        numbers = self._first_bytes
        numbers[bisect_left(SECONDS, first_byte_s)] += 1
        numbers[-1] += first_byte_s
        if FIRST_BYTES.watchers:
            FIRST_BYTES.tell(first_byte_s)
        self._saved = min(_SAVED_MAX, self._saved + self._share)

    def patience_s(self, num_bytes: int = 0) -> float | None:
        """Seconds to wait for the head of an answer to so many bytes; None: for as long as it takes."""
        return self._latencies[num_bytes >= LARGE_BYTES].patience_s if self._share else None

    def spend(self) -> bool:
        """May one more request be made again?"""
        if self._saved < 1 or (self._pace is not None and self._pace.per_s is not None):
            return False
        self._saved -= 1
        return True


class Watched(Protocol):
    """A request whose answer may be late.

    is_waiting  for the head of its answer
    num_bytes   that it asks for, 0 where nobody knows
    """

    is_waiting: bool
    num_bytes: int

    def late(self, now_s: float) -> None:
        """The head of the answer has not come in time."""


class Watch:
    """Looks after the requests of one event loop whose answers have not begun: one timer for all of them."""

    def __init__(self, hedging: Hedging) -> None:
        self.hedging = hedging
        self._loop = asyncio.get_running_loop()
        self._waiting: tuple[deque[tuple[float, Watched]], ...] = (
            deque(),
            deque(),
        )  # in the order in which they went out
        self._timer: asyncio.TimerHandle | None = None

    def now_s(self) -> float:
        """The loop's clock."""
        return self._loop.time()

    def add(self, requests: Sequence[Watched], now_s: float) -> None:
        """Requests went out now; `late` is called of those whose answer has not begun in time, where that is known."""
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
        self._loop.call_soon(self._loop.call_soon, self._look)  # first what has come while the loop was busy

    def _look(self) -> None:
        """Ask again for what is late; come back when the next one may be."""
        now_s, ends_s = self._loop.time(), _NEVER_S
        for waiting, num_bytes in zip(self._waiting, (0, LARGE_BYTES), strict=True):
            patience_s = self.hedging.patience_s(num_bytes)
            if patience_s is None:  # nothing of this kind is watched yet
                continue
            for _ in range(len(waiting)):  # those that are asked for again stand at the end
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
    """One attempt at a download: a request, and others where the answer does not begin in time.

    told   called when a request is made again, with True, as it is only late
    ended  called once, with None when the download is complete, or with the error of the first request; not after
           `cancel`
    """

    __slots__ = (
        "_began_s",
        "_download",
        "_ended",
        "_first",
        "_first_error",
        "_gets",
        "_num_again",
        "_others",
        "_stats",
        "_told",
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
        told: Callable[[bool], None] | None,
        ended: Callable[[BaseException | None], None],
    ) -> None:
        self._gets = gets
        self._download = download
        self._stats = stats
        self._watch = watch
        self._told = told
        self._ended = ended
        self.num_bytes = download.num_bytes
        self._num_again = 0
        self._others: dict[Download, Attempt] = {}
        self._first: Attempt | None = None
        self._first_error: BaseException | None = None
        self.is_waiting = False  # for the head of an answer

    def start(self, now_s: float) -> None:
        """Send the first request."""
        self._began_s = now_s
        self.is_waiting = True
        self._download.on_answer = self._answer
        if not self._download.received:
            self._watch.add([self], now_s)
        self._first = self._gets.start(self._download, self.first_ended)

    def goes_on(self, first: Attempt, began_s: float, *, is_waiting: bool) -> None:
        """The first request is under way already."""
        self._first, self._began_s, self.is_waiting = first, began_s, is_waiting
        self._download.on_answer = self._answer

    def late(self, now_s: float) -> None:
        """See `Watched`: ask once more, if that is allowed."""
        if self._first is not None and self._watch.hedging.spend():
            self.ask_again(now_s)

    def ask_again(self, now_s: float) -> None:
        """Send the same request once more."""
        hedged = self._download.again()
        hedged.on_answer = self._answer
        self._stats.retry("get", late=True, told=self._told)
        self._stats.begin("get", hedged.key, hedged.start or 0, -1 if hedged.end is None else hedged.end)
        self._num_again += 1
        if self._num_again < AGAIN_MAX:
            self._watch.add([self], now_s)
        self._others[hedged] = self._gets.start(hedged, partial(self._other_ended, hedged))

    def cancel(self) -> None:
        """Nobody wants it any more."""
        first, self._first = self._first, None
        if first is not None:
            first.cancel()
        self._let_go()

    def _answer(self) -> None:
        if self.is_waiting:
            self.is_waiting = False
            self._watch.hedging.note(self._watch.now_s() - self._began_s, self.num_bytes)

    def first_ended(self, error: BaseException | None) -> None:
        """The first request is over."""
        self._first = None
        if error is None or not (self._others and isinstance(error, Transient)):
            self._end(error)
        else:
            self._first_error = error  # perhaps another one is better off

    def _other_ended(self, hedged: Download, error: BaseException | None) -> None:
        del self._others[hedged]
        if error is None:
            try:
                hedged.finish()
            except Transient as broken:
                error = broken
        # a winner's bytes count as the first one's
        self._stats.end("get", hedged.received if error else 0, failed=error is not None)
        if error is None:
            if self._first is not None:
                self._first.cancel()
                self._first = None
            self._download.adopt(hedged)
            self._end(None)
        elif not self._others and self._first is None:
            self._end(self._first_error)  # of several errors the first one's is told

    def _end(self, error: BaseException | None) -> None:
        ended = self._ended
        self._let_go()
        ended(error)

    def _let_go(self) -> None:
        """Stop what is under way, and hold nothing: the watch may still know of this."""
        self.is_waiting = False
        for hedged, attempt in self._others.items():
            hedged.on_answer = None
            attempt.cancel()
            self._stats.end("get", hedged.received, failed=True)
        self._others.clear()
        self._download.on_answer = None  # no cycles: hundreds of these end at once
        del self._download, self._ended
