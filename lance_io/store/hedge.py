"""Asking again for an answer that does not begin: the long tail of an object store's latency, cut short.

When the head of an answer is not there after max(2 x p50, p95) of what the last answers of its kind took, the same
request goes out once more, over another connection, and after as long again a third time: of the hundreds of GETs of
one take, some are unlucky twice. The first complete answer wins and the other requests are dropped. At most 5 more go
out for every 100, so that a store that is slow as a whole is not asked more of, and none while it refuses requests.

`Hedging` decides and is pure (times are arguments); `attempt_hedged` does it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from lance_io.limits import MIB
from lance_io.store.failures import Transient

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.store.download import Download
    from lance_io.store.pace import Pace
    from lance_io.store.s3_gets import GetTransport
    from lance_io.store.stats import StoreStats

SAMPLES_MIN: Final = 32  # answers to know before anything is asked again
SAMPLES_MAX: Final = 256
AGAIN_MAX: Final = 2  # times that one request may be made again, as its answer is late
LARGE_BYTES: Final = 1 * MIB  # reads from this size on are a kind of their own: their answers compete for bandwidth
_LOOK_EVERY: Final = 32  # answers between two looks at the percentiles
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

    def note(self, first_byte_s: float, num_bytes: int = 0) -> None:
        """The head of an answer came so long after its request.

        num_bytes  what was asked for, 0 where nobody knew
        """
        self._latencies[num_bytes >= LARGE_BYTES].note(first_byte_s)
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


async def attempt_hedged(gets: GetTransport, download: Download, hedging: Hedging, stats: StoreStats) -> None:
    """`gets.attempt(download)`, with more requests where its answer does not begin in time."""
    loop = asyncio.get_running_loop()
    began_s, num_bytes = loop.time(), download.num_bytes

    def answered() -> None:
        hedging.note(loop.time() - began_s, num_bytes)

    patience_s = hedging.patience_s(num_bytes)
    if patience_s is None or download.received:
        download.on_answer = answered
        await gets.attempt(download)
    else:
        await _Race(gets, download, stats, answered, patience_s, hedging.spend).run()


class _Race:
    """The first request, run in place, and perhaps others in tasks of their own.

    answered    called when the first head of an answer is here, whichever request's
    patience_s  time from one request to the next
    may_again   called before a request is made again: whether that is allowed
    """

    def __init__(
        self,
        gets: GetTransport,
        download: Download,
        stats: StoreStats,
        answered: Callable[[], None],
        patience_s: float,
        may_again: Callable[[], bool],
    ) -> None:
        self._gets = gets
        self._download = download
        self._stats = stats
        self._answered = answered
        self._patience_s = patience_s
        self._may_again = may_again
        self._loop = asyncio.get_running_loop()
        self._others: dict[asyncio.Task[None], Download] = {}
        self._scope = asyncio.timeout(None)
        self._in_first = False
        self._has_answer = False
        download.on_answer = self._answer

    async def run(self) -> None:
        """Return when one of them is complete; raise the first one's error when none is."""
        self._timer = self._loop.call_later(self._patience_s, self._impatient)
        try:
            async with self._scope:
                self._in_first = True
                try:
                    await self._gets.attempt(self._download)
                finally:
                    self._in_first = False
                    self._timer.cancel()
        except TimeoutError:  # another one won and ended the scope
            self._adopt_winner()
        except Transient:
            await self._wait_for_others()
            if not self._adopt_winner():
                raise
        finally:
            self._download.on_answer = None  # no cycles: hundreds of these end at once
            for other, twin in self._others.items():
                twin.on_answer = None
                other.cancel()

    def _impatient(self) -> None:
        self._loop.call_soon(self._loop.call_soon, self._decide)  # first what has come while the loop was busy

    def _decide(self) -> None:
        if self._in_first and not self._has_answer and self._may_again():
            self._start_another()
            if len(self._others) < AGAIN_MAX:
                self._timer = self._loop.call_later(self._patience_s, self._impatient)

    def _start_another(self) -> None:
        twin = self._download.again()
        twin.on_answer = self._answer
        self._stats.retry("get", late=True)
        self._stats.begin("get", twin.key, twin.start or 0, -1 if twin.end is None else twin.end)
        other = asyncio.ensure_future(self._attempt(twin))
        self._others[other] = twin
        other.add_done_callback(self._other_done)

    def _answer(self) -> None:
        if not self._has_answer:
            self._has_answer = True
            self._answered()

    async def _attempt(self, twin: Download) -> None:
        await self._gets.attempt(twin)
        twin.finish()

    def _other_done(self, other: asyncio.Task[None]) -> None:
        failed = self._failed(other)
        received = self._others[other].received if failed else 0  # a winner's bytes count as the first one's
        self._stats.end("get", received, failed=failed)
        if not failed and self._in_first:
            self._scope.reschedule(self._loop.time())

    async def _wait_for_others(self) -> None:
        """Until one is complete, or all have failed."""
        running = {other for other in self._others if not other.done()}
        while running and self._winner() is None:
            _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)

    def _winner(self) -> Download | None:
        return next((twin for other, twin in self._others.items() if other.done() and not self._failed(other)), None)

    def _adopt_winner(self) -> bool:
        winner = self._winner()
        if winner is not None:
            self._download.adopt(winner)
        return winner is not None

    @staticmethod
    def _failed(other: asyncio.Task[None]) -> bool:
        return other.cancelled() or other.exception() is not None  # of several errors the first one's is told
