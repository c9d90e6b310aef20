"""One logical read over HTTP until its last byte, in callbacks: no task, future or timer if all goes well.

    Reading     waits at the gate for a slot, starts a race, pauses and retries after transient errors
    Race        one attempt: a request, and hedges if its answer is late (`hedge.py`)
    Attempt     one request of a transport, and its answer

Each calls back the one above at its end, in a later turn of the loop than the one that started it, and never after a
cancellation.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import TYPE_CHECKING, Protocol

from lance_io.errors import LanceError
from lance_io.records import dataclass
from lance_io.runtime import set_done
from lance_io.store.counters import on_retry
from lance_io.store.failures import CredentialsRefused, Throttled, Transient, note_bucket
from lance_io.store.policies.hedge import Race, Watch

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from lance_io.store.api import Buffer
    from lance_io.store.counters import StoreStats
    from lance_io.store.offers import Flow, OnRangesDone, StartedRead
    from lance_io.store.policies.download import Download
    from lance_io.store.policies.throttle import Gate, QueuedRequest, QueuePosition
    from lance_io.store.policies.transport import BatchTransport, GetTransport


class RenewableCredentials(Protocol):
    """Credentials that are renewed if a store refuses them.

    generation  number of renewals
    """

    generation: int

    async def renewed(self, refused: int) -> bool:
        """Whether there are newer credentials than those of generation `refused`. Raises our errors."""


class Sending:
    """Shared by the readings of one store on one event loop.

    bucket            for errors
    retries           retry policy of a reading
    range_gets        fast path for GETs of ranges, if the transport has one
    download_retries  how often an answer may break off; None: `retries` is the only limit
    credentials       of the requests; None: anonymous
    """

    def __init__(
        self,
        gets: GetTransport,
        gate: Gate,
        watch: Watch,
        stats: StoreStats,
        bucket: str,
        retries: RetryPolicy,
        download_retries: int | None,
        range_gets: Callable[..., BatchTransport] | None = None,
        credentials: RenewableCredentials | None = None,
    ) -> None:
        self.gets = gets
        self.gate = gate
        self.watch = watch
        self.stats = stats
        self.bucket = bucket
        self.retries = retries
        self.download_retries = download_retries
        self.range_gets = range_gets
        self.credentials = credentials
        self.loop = asyncio.get_running_loop()

    @property
    def generation(self) -> int:
        """Of the credentials."""
        return 0 if self.credentials is None else self.credentials.generation


class Reading:
    """A download in progress, with all its attempts.

    find       returns the current `Sending`: a store that was closed between two attempts opens again
    ended      called once, at the end, with this; not after `cancel`
    operation  that it belongs to
    on_retry   called when a request is repeated: with True if it is late, with False if it failed
    tag        the caller's own, see `StartedRead`
    error      of the read; None for success
    """

    __slots__ = (
        "_answers_before",
        "_asked_s",
        "_attempts",
        "_began_s",
        "_breaks",
        "_ended",
        "_find",
        "_generation",
        "_on_retry",
        "_operation",
        "_position",
        "_queued",
        "_race",
        "_received_before",
        "_renewal",
        "_sending",
        "_timer",
        "download",
        "error",
        "tag",
    )

    def __init__(
        self,
        find: Callable[[], Sending],
        download: Download,
        ended: Callable[[StartedRead], None],
        operation: Flow | None,
        on_retry: Callable[[bool], None] | None,
        tag: Any = None,
    ) -> None:
        self._find = find
        self.download = download
        self.tag = tag
        self.error: BaseException | None = None
        self._ended: Callable[[StartedRead], None] | None = ended
        self._operation = operation
        self._on_retry = on_retry
        self._attempts = self._breaks = 0
        self._position: QueuePosition | None = None
        self._queued: QueuedRequest | None = None  # waiting at the gate
        self._race: Race | None = None  # or in flight
        self._timer: asyncio.TimerHandle | None = None  # or pausing
        self._renewal: asyncio.Task[bool] | None = None  # of refused credentials, once

    def start(self) -> None:
        """Send the first request as soon as the gate lets it through."""
        sending = self._sending = self._find()
        self._began_s = sending.loop.time()
        self._position = sending.gate.enter_now()
        if self._position is None:
            self._asked_s = self._began_s
            self._queued = sending.gate.enqueue(self._attempt, None, self._operation)
        else:
            self._attempt()

    def adopt_attempt(self, sending: Sending, position: QueuePosition, began_s: float, generation: int) -> Race:
        """Continue with a first attempt that is in flight, with credentials of `generation`; returns its race."""
        self._sending, self._position, self._began_s, self._generation = sending, position, began_s, generation
        self._attempts = 1
        self._received_before = self._answers_before = 0
        self._race = Race(sending.gets, self.download, sending.stats, sending.watch, self._on_retry, self._attempted)
        return self._race

    def result(self) -> Buffer | None:
        """All bytes, read-only; None if they are in the caller's memory. Raises the error of the read."""
        if self.error is not None:
            raise self.error
        download = self.download
        if download.is_given:
            download.fill()
            return None
        return download.buffer()

    @property
    def queue_s(self) -> float:
        """Seconds that its requests waited before they were sent."""
        return self.download.queue_s

    def cancel(self) -> None:
        """Cancel the read; a no-op after its end."""
        if self._ended is None:
            return
        self._ended = None
        sending = self._sending
        if self._timer is not None:
            self._timer.cancel()
        elif self._queued is not None:
            sending.gate.withdraw(self._queued)
        elif self._race is not None:
            self._race.cancel()
            self._leave(None, failed=True)
        elif self._renewal is not None:
            self._renewal.cancel()

    def _attempt(self) -> None:
        """Request the missing bytes; called with a slot."""
        sending, download = self._sending, self.download
        now_s = sending.loop.time()
        if self._queued is not None:
            self._position, self._queued = self._queued.position, None
            download.queue_s += now_s - self._asked_s
        self._attempts += 1
        download.resume()
        self._received_before, self._answers_before = download.received, download.num_answers
        self._generation = sending.generation
        sending.stats.begin("get", download.key, *download.asked())
        self._race = Race(sending.gets, download, sending.stats, sending.watch, self._on_retry, self._attempted)
        self._race.start(now_s)

    def _attempted(self, error: BaseException | None) -> None:
        """Finish, retry or fail after an attempt."""
        if error is None:
            try:
                self.download.finish()
            except Transient as broken:
                error = broken
        failure = error if isinstance(error, Transient) else None
        self._leave(failure, failed=error is not None)
        pause_s = None if failure is None else self._pause_s(failure)
        if pause_s is not None:
            self._sending.stats.retry("get", callback=self._on_retry)
            self._timer = self._sending.loop.call_later(pause_s, self._again)
            return
        if isinstance(error, CredentialsRefused) and self._renewal is None and self._sending.credentials is not None:
            self._renewal = self._sending.loop.create_task(self._sending.credentials.renewed(self._generation))
            self._renewal.add_done_callback(partial(self._renewed, error))
            return
        self._end(error)

    def _renewed(self, refused: CredentialsRefused, renewal: asyncio.Task[bool]) -> None:
        """Repeat the request if the credentials were renewed."""
        if renewal.cancelled():
            error: BaseException = RuntimeError("the request was cancelled: its event loop is shutting down")
        else:
            error = renewal.exception() or refused
        if isinstance(error, LanceError):
            error.path = error.path or self.download.key
        if error is refused and renewal.result() and self._ended is not None:
            self._sending.stats.retry("get", callback=self._on_retry)
            self._again()
            return
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        if isinstance(error, LanceError):
            note_bucket(error, self._sending.bucket, self._attempts)
            error.request_id = error.request_id or self.download.request_id
        ended, self._ended = self._ended, None
        self.error = error
        if ended is not None:
            ended(self)

    def _leave(self, failure: Transient | None, *, failed: bool) -> None:
        self._race = None
        received = max(0, self.download.received - self._received_before)
        self._sending.stats.end("get", received, failed=failed)
        if isinstance(failure, Throttled):
            self._sending.stats.throttled("get")
        self._sending.gate.leave(failure)

    def _pause_s(self, failure: Transient) -> float | None:
        """Seconds until the next attempt; None for no further attempt."""
        sending = self._sending
        self._breaks += self.download.num_answers > self._answers_before
        if sending.download_retries is not None and self._breaks > sending.download_retries:
            return None
        asked_s = failure.retry_after_s if isinstance(failure, Throttled) else None
        elapsed_s = sending.loop.time() - self._began_s
        return sending.retries.pause_s(self._attempts, elapsed_s, random.random(), asked_s)

    def _again(self) -> None:
        self._timer = None
        before, self._sending = self._sending, self._find()
        position = self._position if self._sending is before else None  # no position in another queue
        self._asked_s = self._sending.loop.time()
        self._queued = self._sending.gate.enqueue(self._attempt, position, self._operation)


def call_on_done(ended: OnRangesDone, started: StartedRead) -> None:
    """Call a callback for several reads with a single one."""
    ended([started])


async def read_through(find: Callable[[], Sending], download: Download, operation: Flow | None) -> None:
    """Read for a coroutine that waits; repeated requests call `on_retry` of its context."""
    through: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    reading = Reading(find, download, partial(set_done, through), operation, on_retry.get())
    reading.start()
    try:
        await through
    except asyncio.CancelledError:
        reading.cancel()
        raise
    if reading.error is not None:
        raise reading.error


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How a logical request is retried.

    attempts_max   maximal number of attempts
    first_delay_s  upper bound of the first pause in seconds; doubles with every attempt
    delay_max_s    upper bound of any pause, unless the store asks for a longer one
    total_s        no attempt starts later than this after the first one
    """

    attempts_max: int = 8
    first_delay_s: float = 0.1
    delay_max_s: float = 10.0
    total_s: float = 120.0

    def pause_s(
        self, attempts: int, elapsed_s: float, fraction: float, retry_after_s: float | None = None
    ) -> float | None:
        """Seconds to wait before the next attempt, or None to give up.

        attempts       failed attempts, at least 1
        elapsed_s      since the first attempt began
        fraction       a random number in [0, 1): full jitter spreads clients that failed together
        retry_after_s  pause that the store requests; the result is never shorter
        """
        if attempts >= self.attempts_max:
            return None
        longest = min(self.delay_max_s, self.first_delay_s * 2 ** (attempts - 1))
        pause = longest * fraction
        if retry_after_s is not None:
            pause += retry_after_s
        return pause if elapsed_s + pause <= self.total_s else None
