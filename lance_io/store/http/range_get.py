"""GETs of ranges as nearly all go: sent at once, many together, answered in time with just those bytes.

One object is what asked for it holds (`StartedRead`), what a connection carries (`Exchange`), where the body goes
(`Sink`), and what is looked after until its answer begins (`Watched`). What they do together is done for all that begin
or end in the same moment: their requests are signed, counted and sent by one call each (`RangeGets`), and whoever asked
hears once of all answers that came together (`settle`).

As soon as anything is out of the ordinary, an answer of another form, a late one or none, a `Reading` goes on from
where this stands, with all that may help.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lance_io.store.http.attempt import DownloadAttempt
from lance_io.store.policies.download import Download
from lance_io.store.policies.logical_read import Reading, end_alone

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from lance_io.store.api import Buffer
    from lance_io.store.http.connection import Connection
    from lance_io.store.http.exchange import Exchange, Patience
    from lance_io.store.http.gets import HttpGets
    from lance_io.store.offers import Flow, RangesEnded, ToldAgain, WantedRange
    from lance_io.store.policies.hedge import Race
    from lance_io.store.policies.logical_read import Sending
    from lance_io.store.policies.throttle import Place


class RangeGets:
    """GETs that begin together; see `StartReads.start_ranges` for what becomes of them.

    find  gives what sends when one of them is made again
    """

    __slots__ = ("ended", "find", "generation", "gets", "sending", "told")

    def __init__(
        self, gets: HttpGets, sending: Sending, find: Callable[[], Sending], ended: RangesEnded, told: ToldAgain
    ) -> None:
        self.gets = gets
        self.sending = sending
        self.find = find
        self.ended = ended
        self.told = told
        self.generation = sending.generation

    def begin(self, wanted: Sequence[WantedRange]) -> list[RangeGet]:
        """Send as many of the first as need not wait, for credentials or in line at the gate."""
        gets, sending = self.gets, self.sending
        now_s = sending.loop.time()
        num_open = min(sending.gate.num_open(), len(wanted))
        if not num_open or not gets.site.is_ready(now_s):
            return []
        wanted = wanted[:num_open]
        origin, heads = gets.site.range_requests(wanted)
        places = sending.gate.enter_many(num_open)
        begun = [
            RangeGet(self, one, head, place, now_s) for one, head, place in zip(wanted, heads, places, strict=True)
        ]
        sending.stats.begin_reads(wanted)
        sending.watch.add(begun, now_s)
        gets.pool(origin).send_all(begun, now_s)
        return begun


class RangeGet:
    """One of them."""

    __slots__ = (
        "_began_s",
        "_is_given",
        "_is_wanted",
        "_key",
        "_memory",
        "_of",
        "_operation",
        "_piece",
        "_place",
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

    def __init__(self, of: RangeGets, wanted: WantedRange, head: bytes, place: Place, now_s: float) -> None:
        self._of = of
        self._place = place
        self._began_s = self.heard_s = now_s
        self._is_wanted = True  # by who asked
        self._reading: Reading | None = None  # that goes on
        # what it asks for, what has come
        self._key, self.start_bytes, self.end_bytes, self._memory, self._operation, self.tag = wanted
        self.num_bytes = self.end_bytes - self.start_bytes
        self._is_given = self._memory is not None
        self._piece: bytes | None = None  # all of a small body
        self.received = 0
        self.answer: tuple[int, str | None] | None = None  # size and etag of the object, if its body is not all here
        # as `Exchange` has them
        self.head = head
        self.waited_s = 0.0
        self.connection: Connection | None = None
        self.is_over = False
        self.is_waiting = True

    # -- for who asked -----------------------------------------------------------------------------------------------

    def result(self) -> Buffer | None:
        """See `StartedRead`; once."""
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
        sending = self._of.sending
        sending.stats.end("get", self.received, failed=True)
        sending.gate.leave()
        self._memory = self.tag = None  # a watch may still know of this

    # -- for the connection: an exchange and its sink ----------------------------------------------------------------

    def again(self) -> None:
        """See `Exchange`."""
        self._of.sending.stats.sent_again("get")

    @property
    def plain(self) -> RangeGet:
        """Of an exchange: it understands the usual answer only, see `general`."""
        return self

    @property
    def sink(self) -> RangeGet:
        """Where the body goes."""
        return self

    @property
    def patience(self) -> Patience:
        """See `Exchange`."""
        return self._of.gets.site.patience(self.num_bytes)

    @property
    def ends_s(self) -> float:
        """See `Exchange`."""
        return self._began_s + self.patience.total_s

    def memory_for_kernel(self, small_bytes: int) -> memoryview | None:
        """Where a kernel shall put the body; one of up to `small_bytes` needs no memory."""
        return self._own_memory() if self.num_bytes > small_bytes else self._memory

    def _own_memory(self) -> memoryview:
        """Where the body goes: memory of its own, unless it was given some."""
        if self._memory is None:
            self._memory = memoryview(np.empty(self.num_bytes, np.uint8))  # type: ignore[arg-type]
        return self._memory

    def came(self, num_bytes: int, piece: bytes | None) -> None:
        """So much of the body has come by a kernel, and is in `piece`, unless it is in memory that was given to it."""
        self.received = num_bytes
        if piece:
            self._own_memory()[:num_bytes] = piece

    def begun(self, size_bytes: int, etag: str | None, now_s: float) -> None:
        """The head of the answer is here, and as it should be."""
        self.answer = size_bytes, etag
        self.is_waiting = False
        self._of.sending.watch.hedging.note(now_s - self._began_s, self.num_bytes)

    def complete(self, piece: bytes | None, now_s: float) -> None:
        """All of it has come by a kernel, a body that was given no memory as `piece`; `settle` follows."""
        if self.is_waiting:
            self._of.sending.watch.hedging.note(now_s - self._began_s, self.num_bytes)
        self._piece = piece
        self._leave()

    def add(self, chunk: bytes | memoryview) -> None:
        """See `Sink`: all of the body."""
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
        """It is over, with the answer or with an error."""
        if self.is_over:
            return
        if error is not None:
            self.general().end(error)
            return
        self._leave()
        settle([self])

    def _leave(self) -> None:
        self.is_over, self.is_waiting = True, False
        self.connection = None

    # -- what is out of the ordinary ---------------------------------------------------------------------------------

    def late(self, now_s: float) -> None:
        """See `Watched`."""
        watch = self._of.sending.watch
        if self.connection is None:  # another request would have to wait for one, too
            watch.add([self], now_s)
        elif watch.hedging.spend():
            self._go_on()[0].ask_again(now_s)

    def general(self) -> Exchange:
        """The exchange of a download that goes on from here, on the same connection."""
        return self._go_on()[1]

    def _go_on(self) -> tuple[Race, Exchange]:
        of, connection = self._of, self.connection
        if connection is not None:
            connection.take_back()  # what has come by a kernel
        given = self._memory if self._is_given else None
        download = Download.of_range(self._key, self.start_bytes, self.end_bytes, given)
        if self.answer is not None:
            download.goes_on(*self.answer, self.received, self._memory)
        ended, told = partial(end_alone, of.ended), partial(of.told, self.tag)
        reading = Reading(of.find, download, ended, self._operation, told, self.tag)
        race = reading.goes_on(of.sending, self._place, self._began_s, of.generation)
        attempt = DownloadAttempt(of.gets, download, race.first_ended)
        exchange = attempt.goes_on(self.head, self.patience, self._began_s)
        exchange.heard_s, exchange.waited_s = self.heard_s, self.waited_s
        race.goes_on(attempt, self._began_s, is_waiting=self.is_waiting)
        if connection is not None and connection.exchange is self:
            connection.carry(exchange)
        self._leave()
        self._reading = reading
        self._memory = self.tag = None
        return race, exchange


def settle(over: Sequence[RangeGet]) -> None:
    """Count GETs that are over, all with their answers, and tell who asked for them."""
    by_who: dict[tuple[Sending, RangesEnded], list[RangeGet]] = {}
    for get in over:
        of = get._of
        by_who.setdefault((of.sending, of.ended), []).append(get)
    failure: BaseException | None = None
    for (sending, _), some in by_who.items():
        sending.stats.end("get", sum([get.num_bytes for get in some]), num_requests=len(some))
        sending.gate.leave(num_requests=len(some))
    for (_, ended), some in by_who.items():
        wanted: list[Any] = [get for get in some if get._is_wanted]  # one may have been cancelled by another's end
        try:
            ended(wanted)
        except Exception as error:  # the others are to hear of theirs all the same
            failure = failure or error
    if failure is not None:
        raise failure
