"""Fast path for GETs of ranges: sent at once in batches, answered in time with exactly the requested bytes.

One object per GET serves the caller (`StartedRead`), the connection (`Exchange`), the body (`Sink`) and the hedging
timer (`Watched`). Work is batched: GETs that start together are signed, counted and sent by one call each
(`RangeGets`), and answers that arrive together are reported by one callback (`settle`).

On anything unexpected (an answer of another form, a late one, an error), falls back to `Reading`, which retries and
hedges from the current offset.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lance_io.store.http.attempt import DownloadAttempt
from lance_io.store.policies.download import Download
from lance_io.store.policies.logical_read import Reading, call_on_done

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from lance_io.store.api import Buffer
    from lance_io.store.http.connection import Connection
    from lance_io.store.http.exchange import Exchange, Patience
    from lance_io.store.http.gets import HttpGets
    from lance_io.store.offers import Flow, OnRangesDone, OnRetry, WantedRange
    from lance_io.store.policies.hedge import Race
    from lance_io.store.policies.logical_read import Sending
    from lance_io.store.policies.throttle import QueuePosition


class RangeGets:
    """GETs that start together; see `StartReads.start_ranges` for the callbacks.

    find  returns the `Sending` of the moment, for retries
    """

    __slots__ = ("find", "generation", "gets", "on_done", "on_retry", "sending")

    def __init__(
        self,
        gets: HttpGets,
        sending: Sending,
        find: Callable[[], Sending],
        on_done: OnRangesDone,
        on_retry: OnRetry,
    ) -> None:
        self.gets = gets
        self.sending = sending
        self.find = find
        self.on_done = on_done
        self.on_retry = on_retry
        self.generation = sending.generation

    def begin(self, requests: Sequence[WantedRange]) -> list[RangeGet]:
        """Send the first requests, as many as need not wait for credentials or at the gate."""
        gets, sending = self.gets, self.sending
        now_s = sending.loop.time()
        num_open = min(sending.gate.num_open(), len(requests))
        if not num_open or not gets.site.is_ready(now_s):
            return []
        requests = requests[:num_open]
        origin, heads = gets.route(*gets.site.range_requests(requests))
        positions = sending.gate.enter_many(num_open)
        started = [
            RangeGet(self, wanted, head, position, now_s)
            for wanted, head, position in zip(requests, heads, positions, strict=True)
        ]
        sending.stats.begin_reads(requests)
        sending.watch.add(started, now_s)
        gets.pool(origin).send_all(started, now_s)
        return started


class RangeGet:
    """The GET of one range."""

    __slots__ = (
        "_batch",
        "_began_s",
        "_is_given",
        "_is_wanted",
        "_key",
        "_memory",
        "_operation",
        "_piece",
        "_position",
        "_reading",
        "answer",
        "connection",
        "end_bytes",
        "head",
        "heard_s",
        "is_over",
        "is_waiting",
        "num_bytes",
        "received",
        "start_bytes",
        "tag",
        "waited_s",
    )

    _operation: Flow | None
    _memory: memoryview | None
    tag: Any

    def __init__(
        self, batch: RangeGets, wanted: WantedRange, head: bytes, position: QueuePosition, now_s: float
    ) -> None:
        self._batch = batch
        self._position = position  # of the first request in the gate's line
        self._began_s = self.heard_s = now_s
        self._is_wanted = True  # not cancelled
        self._reading: Reading | None = None  # after falling back
        # request and received bytes
        self._key, self.start_bytes, self.end_bytes, self._memory, self._operation, self.tag = wanted
        self.num_bytes = self.end_bytes - self.start_bytes
        self._is_given = self._memory is not None
        self._piece: bytes | None = None  # a small body, whole
        self.received = 0
        self.answer: tuple[int, str | None] | None = None  # size and etag of the object, while the body is incomplete
        # see `Exchange`
        self.head = head
        self.waited_s = 0.0
        self.connection: Connection | None = None
        self.is_over = False
        self.is_waiting = True

    # -- for the caller ----------------------------------------------------------------------------------------------

    def result(self) -> Buffer | None:
        """See `StartedRead`; call it once."""
        if self._reading is not None:
            return self._reading.result()
        memory, piece, self._memory, self._piece = self._memory, self._piece, None, None
        self.tag = None
        if self._is_given:
            return None
        return piece if memory is None else memory.toreadonly()

    @property
    def queue_s(self) -> float:
        """See `StartedRead`."""
        return self.waited_s if self._reading is None else self._reading.queue_s

    def cancel(self) -> None:
        """See `StartedRead`."""
        if self._reading is not None:
            self._reading.cancel()
            return
        self._is_wanted = False
        if self.is_over:
            return
        connection = self.connection
        self._leave()
        if connection is not None:
            connection.abandon()
        sending = self._batch.sending
        sending.stats.end("get", self.received, failed=True)
        sending.gate.leave()
        self._memory = self.tag = None  # a watch may still refer to this

    # -- for the connection: an exchange and its sink ----------------------------------------------------------------

    def on_resend(self) -> None:
        """See `Exchange`."""
        self._batch.sending.stats.sent_again("get")

    @property
    def plain(self) -> RangeGet:
        """Itself: an exchange that only understands the usual answer, see `to_exchange`."""
        return self

    @property
    def sink(self) -> RangeGet:
        """Itself."""
        return self

    @property
    def patience(self) -> Patience:
        """See `Exchange`."""
        return self._batch.gets.site.patience(self.num_bytes)

    @property
    def ends_s(self) -> float:
        """See `Exchange`."""
        return self._began_s + self.patience.total_s

    def memory_for_kernel(self, small_bytes: int) -> memoryview | None:
        """Memory for the kernel's body; None allowed for bodies of up to `small_bytes`."""
        return self._own_memory() if self.num_bytes > small_bytes else self._memory

    def _own_memory(self) -> memoryview:
        """Memory for the body, allocated unless the caller gave some."""
        if self._memory is None:
            self._memory = memoryview(np.empty(self.num_bytes, np.uint8))  # type: ignore[arg-type]
        return self._memory

    def adopt_received(self, num_bytes: int, piece: bytes | None) -> None:
        """Adopt the bytes that a kernel has received: in `piece`, or already in the memory it was given."""
        self.received = num_bytes
        if piece:
            self._own_memory()[:num_bytes] = piece

    def on_head(self, size_bytes: int, etag: str | None, now_s: float) -> None:
        """The head of the answer has arrived and has the usual form."""
        self.answer = size_bytes, etag
        self.is_waiting = False
        self._batch.sending.watch.hedging.note(now_s - self._began_s, self.num_bytes)

    def complete(self, piece: bytes | None, now_s: float) -> None:
        """A kernel has received the whole body, as `piece` if it was given no memory; `settle` follows."""
        if self.is_waiting:
            self._batch.sending.watch.hedging.note(now_s - self._began_s, self.num_bytes)
        self._piece = piece
        self._leave()

    def add(self, chunk: bytes | memoryview) -> None:
        """See `Sink`; called with the whole body."""
        if self._memory is None:
            self._piece = bytes(chunk)
        else:
            self._memory[:] = chunk
        self.received = self.num_bytes

    def room(self, num_bytes: int) -> memoryview:
        """See `Sink`."""
        return self._own_memory()[self.received : self.received + num_bytes]

    def advance(self, num_bytes: int) -> None:
        """See `Sink`."""
        self.received += num_bytes

    def end(self, error: BaseException | None = None) -> None:
        """End, with the answer or with an error."""
        if self.is_over:
            return
        if error is not None:
            self.to_exchange().end(error)
            return
        self._leave()
        settle([self])

    def _leave(self) -> None:
        self.is_over, self.is_waiting = True, False
        self.connection = None

    # -- falling back to `Reading` -----------------------------------------------------------------------------------

    def late(self, now_s: float) -> None:
        """See `Watched`."""
        watch = self._batch.sending.watch
        if self.connection is None:  # a hedge would have to wait for one, too
            watch.add([self], now_s)
        elif watch.hedging.spend():
            self._fall_back()[0].send_hedge(now_s)

    def to_exchange(self) -> Exchange:
        """An exchange that continues this one on the same connection and understands any answer."""
        return self._fall_back()[1]

    def _fall_back(self) -> tuple[Race, Exchange]:
        batch, connection = self._batch, self.connection
        if connection is not None:
            connection.leave_kernel()  # adopts received bytes
        given = self._memory if self._is_given else None
        download = Download.of_range(self._key, self.start_bytes, self.end_bytes, given)
        if self.answer is not None:
            download.continue_from(*self.answer, self.received, self._memory)
        on_end, on_retry = partial(call_on_done, batch.on_done), partial(batch.on_retry, self.tag)
        reading = Reading(batch.find, download, on_end, self._operation, on_retry, self.tag)
        race = reading.adopt_attempt(batch.sending, self._position, self._began_s, batch.generation)
        attempt = DownloadAttempt(batch.gets, download, race.first_ended)
        exchange = attempt.take_over(self.head, self.patience, self._began_s)
        exchange.heard_s, exchange.waited_s = self.heard_s, self.waited_s
        race.adopt_attempt(attempt, self._began_s, is_waiting=self.is_waiting)
        if connection is not None and connection.exchange is self:
            connection.replace_exchange(exchange)
        self._leave()
        self._reading = reading
        self._memory = self.tag = None
        return race, exchange


def settle(ended: Sequence[RangeGet]) -> None:
    """Count successful GETs and report them to their callers, by one callback each."""
    groups: dict[tuple[Sending, OnRangesDone], list[RangeGet]] = {}
    for get in ended:
        batch = get._batch
        groups.setdefault((batch.sending, batch.on_done), []).append(get)
    failure: BaseException | None = None
    for (sending, _), done in groups.items():
        sending.stats.end("get", sum([get.num_bytes for get in done]), num_requests=len(done))
        sending.gate.leave(num_requests=len(done))
    for (_, on_done), done in groups.items():
        wanted: list[Any] = [get for get in done if get._is_wanted]  # an earlier callback may have cancelled some
        try:
            on_done(wanted)
        except Exception as error:  # the other callers still get their reads
            failure = failure or error
    if failure is not None:
        raise failure
