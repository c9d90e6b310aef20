"""The GET of a range as nearly all go: sent at once, answered in time with just those bytes. One object, no more.

It is what asked for it holds (`StartedRead`), what a connection carries (`Exchange`), where the body goes (`Sink`), and
what is looked after until its answer begins (`Watched`). As soon as anything is out of the ordinary, an answer of
another form, a late one or none, a `Reading` goes on from where this stands, with all that may help.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_io.store.download import Download
from lance_io.store.http.gets import DownloadAttempt
from lance_io.store.reading import Reading

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.store.api import Buffer, StartedRead
    from lance_io.store.hedge import Race
    from lance_io.store.http.connection import Connection
    from lance_io.store.http.exchange import Exchange, Patience
    from lance_io.store.http.gets import HttpGets
    from lance_io.store.reading import Sending
    from lance_io.store.throttle import Flow, Place


class RangeGet:
    """See the module's description; arguments as for `Reading`, and `StartReads.start_range`."""

    __slots__ = (
        "_began_s",
        "_ended",
        "_find",
        "_gets",
        "_given",
        "_key",
        "_memory",
        "_operation",
        "_piece",
        "_place",
        "_reading",
        "_received",
        "_sending",
        "_told",
        "answer",
        "connection",
        "end_bytes",
        "ends_s",
        "head",
        "heard_s",
        "is_over",
        "is_waiting",
        "num_bytes",
        "patience",
        "start_bytes",
        "waited_s",
    )

    def __init__(
        self,
        gets: HttpGets,
        sending: Sending,
        find: Callable[[], Sending],
        key: str,
        start: int,
        end: int,
        memory: memoryview | None,
        ended: Callable[[StartedRead], None],
        operation: Flow | None,
        told: Callable[[bool], None] | None,
    ) -> None:
        self._gets = gets
        self._sending = sending
        self._find = find
        self._key = key
        self._ended: Callable[[StartedRead], None] | None = ended
        self._operation = operation
        self._told = told
        self._place: Place
        self._began_s: float
        self._reading: Reading | None = None  # that goes on
        # what it asks for, what has come
        self.start_bytes = start
        self.end_bytes = end
        self.num_bytes = end - start
        self._given = memory
        self._memory = memory
        self._piece: bytes | None = None  # all of a small body
        self._received = 0
        self.answer: tuple[int, str | None] | None = None  # size and etag of the object, once the answer has begun
        # as `Exchange` has them
        self.head: bytes
        self.patience: Patience
        self.ends_s: float
        self.heard_s: float
        self.waited_s = 0.0
        self.connection: Connection | None = None
        self.is_over = False
        self.is_waiting = True

    def begin(self) -> bool:
        """Send it at once; False where it would have to wait for credentials, or in line at the gate."""
        gets, sending, num_bytes = self._gets, self._sending, self.num_bytes
        now_s = sending.loop.time()
        if not gets.site.is_ready(now_s):
            return False
        origin, self.head = gets.site.range_request(self._key, self.start_bytes, self.end_bytes)
        place = sending.gate.enter_now()
        if place is None:
            return False
        self._place, self._began_s, self.heard_s = place, now_s, now_s
        self.patience = patience = gets.site.patience(num_bytes)
        self.ends_s = now_s + patience.total_s
        sending.stats.begin("get", self._key, self.start_bytes, self.end_bytes)
        sending.watch.add(self, now_s, num_bytes)
        gets.pool(origin).send(self, now_s)
        return True

    # -- for who asked -----------------------------------------------------------------------------------------------

    def result(self) -> Buffer | None:
        """See `StartedRead`; once."""
        if self._reading is not None:
            return self._reading.result()
        memory, piece, self._memory, self._piece = self._memory, self._piece, None, None
        if self._given is not None:
            self._given = None
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
        elif not self.is_over:
            connection = self.connection
            self._leave()
            if connection is not None:
                connection.abandon()
            self._given = self._memory = None  # a watch may still know of this
            self._sending.stats.end("get", self._received, failed=True)
            self._sending.gate.leave()

    # -- for the connection: an exchange and its sink ----------------------------------------------------------------

    @property
    def plain(self) -> RangeGet:
        """Of an exchange: it understands the usual answer only, see `general`."""
        return self

    @property
    def sink(self) -> RangeGet:
        """Where the body goes."""
        return self

    def begun(self, size_bytes: int, etag: str | None) -> None:
        """The head of the answer is here, and as it should be."""
        self.answer = size_bytes, etag
        self.is_waiting = False
        watch = self._sending.watch
        watch.hedging.note(watch.now_s() - self._began_s, self.num_bytes)

    def add(self, chunk: bytes | memoryview) -> None:
        """See `Sink`: all of the body."""
        if self._memory is None:
            self._piece = bytes(chunk)
        else:
            self._memory[:] = chunk
        self._received = self.num_bytes

    def room(self, num_bytes: int) -> memoryview:
        """See `Sink`."""
        if self._memory is None:
            self._memory = memoryview(np.empty(self.num_bytes, np.uint8))  # type: ignore[arg-type]
        return self._memory[self._received : self._received + num_bytes]

    def advance(self, num_bytes: int) -> None:
        """See `Sink`."""
        self._received += num_bytes

    def end(self, error: BaseException | None = None) -> None:
        """It is over, with the answer or with an error."""
        if self.is_over:
            return
        if error is not None:
            self.general().end(error)
            return
        ended = self._ended
        self._leave()
        self._sending.stats.end("get", self.num_bytes)
        self._sending.gate.leave()
        if ended is not None:
            ended(self)

    def _leave(self) -> None:
        self.is_over, self.is_waiting = True, False
        self._ended = self.connection = None

    # -- what is out of the ordinary ---------------------------------------------------------------------------------

    def late(self, now_s: float) -> None:
        """See `Watched`."""
        watch = self._sending.watch
        if self.connection is None:  # another request would have to wait for one, too
            watch.add(self, now_s, self.num_bytes)
        elif watch.hedging.spend():
            self._go_on()[0].ask_again(now_s)

    def general(self) -> Exchange:
        """The exchange of a download that goes on from here, on the same connection."""
        return self._go_on()[1]

    def _go_on(self) -> tuple[Race, Exchange]:
        sending, ended, connection = self._sending, self._ended, self.connection
        assert ended is not None
        download = Download.of_range(self._key, self.start_bytes, self.end_bytes, self._given)
        if self.answer is not None:
            download.goes_on(*self.answer, self._received, self._memory)
        reading = Reading(self._find, download, ended, self._operation, self._told)
        race = reading.goes_on(sending, self._place, self._began_s)
        attempt = DownloadAttempt(self._gets, download, race.first_ended)
        exchange = attempt.goes_on(self.head, self.patience, self._began_s)
        exchange.heard_s, exchange.waited_s = self.heard_s, self.waited_s
        race.goes_on(attempt, self._began_s, is_waiting=self.is_waiting)
        if connection is not None and connection.exchange is self:
            connection.carry(exchange)
        self._leave()
        self._reading = reading
        self._given = self._memory = None
        return race, exchange
