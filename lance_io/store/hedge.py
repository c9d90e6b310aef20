"""Asking a second time for an answer that does not begin: the long tail of an object store's latency, cut short.

When the head of an answer is not there after max(4 x p50, p95) of what the last answers took, and not before 200 ms,
the same request goes out once more, over another connection; the first complete answer wins and the other request is
dropped. At most 5 of 100 requests are made twice, so that a store that is slow as a whole is not asked more of.

`Hedging` decides and is pure (times are arguments); `attempt_hedged` does it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from lance_io.store.failures import Transient

if TYPE_CHECKING:
    from lance_io.store.download import Download
    from lance_io.store.s3_gets import GetTransport
    from lance_io.store.stats import StoreStats

LEAST_S: Final = 0.2
SAMPLES_MIN: Final = 32  # answers to know before anything is asked twice
SAMPLES_MAX: Final = 256
_LOOK_EVERY: Final = 32  # answers between two looks at the percentiles
_SAVED_MAX: Final = 8.0  # second requests that may be saved up in quiet times


class Hedging:
    """When to ask a second time, for one bucket.

    percent  how many of 100 requests may be made twice; 0: none
    """

    def __init__(self, percent: int) -> None:
        self._share = percent / 100
        self._saved = 0.0
        self._samples: deque[float] = deque(maxlen=SAMPLES_MAX)
        self._num_answers = 0
        self._patience_s: float | None = None

    def note(self, first_byte_s: float) -> None:
        """The head of an answer came so long after its request."""
        self._samples.append(first_byte_s)
        self._num_answers += 1
        self._saved = min(_SAVED_MAX, self._saved + self._share)
        if self._num_answers >= SAMPLES_MIN and self._num_answers % _LOOK_EVERY == 0:
            ordered = sorted(self._samples)
            median, late = ordered[len(ordered) // 2], ordered[len(ordered) * 95 // 100]
            self._patience_s = max(LEAST_S, 4 * median, late)

    @property
    def patience_s(self) -> float | None:
        """Seconds to wait for the head of an answer; None: for as long as it takes."""
        return self._patience_s if self._share else None

    def spend(self) -> bool:
        """May one more request be made twice?"""
        if self._saved < 1:
            return False
        self._saved -= 1
        return True


async def attempt_hedged(gets: GetTransport, download: Download, hedging: Hedging, stats: StoreStats) -> None:
    """`gets.attempt(download)`, with a second request where the first one's answer does not begin in time."""
    loop = asyncio.get_running_loop()
    began_s, answers = loop.time(), download.num_answers

    def answered() -> None:
        hedging.note(loop.time() - began_s)

    download.on_answer = answered
    if (patience_s := hedging.patience_s) is None or download.received:
        await gets.attempt(download)
        return
    race = _Race(gets, download, stats)

    def impatient() -> None:
        if download.num_answers == answers and hedging.spend():
            race.start_second()

    timer = loop.call_later(patience_s, impatient)
    try:
        await race.run()
    finally:
        timer.cancel()


class _Race:
    """The first request, run in place, and perhaps a second one in a task of its own."""

    def __init__(self, gets: GetTransport, download: Download, stats: StoreStats) -> None:
        self._gets = gets
        self._download = download
        self._stats = stats
        self._second: asyncio.Task[None] | None = None
        self._twin: Download | None = None
        self._scope = asyncio.timeout(None)
        self._in_first = False

    async def run(self) -> None:
        """Return when one of them is complete; raise the first one's error when none is."""
        try:
            async with self._scope:
                self._in_first = True
                try:
                    await self._gets.attempt(self._download)
                finally:
                    self._in_first = False
        except TimeoutError:  # the second one won and ended the scope
            self._take_second()
        except Transient:
            if self._second is None:
                raise
            await asyncio.wait([self._second])
            if self._failed(self._second):
                raise
            self._take_second()
        finally:
            if self._second is not None:
                self._second.cancel()

    def start_second(self) -> None:
        """Make the request again."""
        self._twin = self._download.again()
        self._stats.retry("get")
        self._stats.begin(
            "get", self._twin.key, self._twin.start or 0, -1 if self._twin.end is None else self._twin.end
        )
        self._second = asyncio.ensure_future(self._attempt_second(self._twin))
        self._second.add_done_callback(self._second_done)

    async def _attempt_second(self, twin: Download) -> None:
        await self._gets.attempt(twin)
        twin.finish()

    def _second_done(self, second: asyncio.Task[None]) -> None:
        assert self._twin is not None
        failed = self._failed(second)
        self._stats.end("get", self._twin.received if failed else 0, failed=failed)  # a winner counts as the first one
        if not failed and self._in_first:
            self._scope.reschedule(asyncio.get_running_loop().time())

    def _take_second(self) -> None:
        assert self._twin is not None
        self._download.adopt(self._twin)

    @staticmethod
    def _failed(second: asyncio.Task[None]) -> bool:
        return second.cancelled() or second.exception() is not None  # of two errors the first one's is told
