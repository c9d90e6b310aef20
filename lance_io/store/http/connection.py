"""One connection: sends a request, receives its answer.

    head    arrives in memory that all connections of a pool share; it is parsed before the loop reads another socket
    body    of known length: a small one arrives with the head, a large one goes straight into the download's memory
            of any other form (chunks, until the connection ends), and of an error answer: through the parser

Limits bound the length and number of headers, interim answers and the body of an error answer. An answer that is not
HTTP/1.1 or does not fit the request ends the connection; so do unrequested bytes.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import httptools

from lance_io._kernels import part_answer
from lance_io.errors import LanceError
from lance_io.limits import KIB
from lance_io.store.failures import REQUEST_IDS
from lance_io.store.http.exchange import REFUSAL_BYTES_MAX

if TYPE_CHECKING:
    from lance_io.store.http.exchange import Exchange, Sink
    from lance_io.store.http.pool import OriginPool
    from lance_io.store.http.range_get import RangeGet

    KernelGet: TypeAlias = tuple[int, bytes, int, int, memoryview | None]

HEAD_BYTES_MAX: Final = 64 * KIB
HEADERS_MAX: Final = 200
INTERIM_MAX: Final = 8  # answers like "100 Continue" before the final one
SCRATCH_BYTES: Final = 132 * KIB
# A body up to this size is received together with its head and copied once, which costs less than a second system call.
# As little as possible of a larger body is received with the head.
COPIED_BYTES_MAX: Final = 96 * KIB
HEAD_READ_BYTES: Final = 4 * KIB
TURN_BYTES_MAX: Final = 256 * KIB  # per receive: a megabyte into fresh memory takes a millisecond

_KEPT: Final = {
    name.encode(): name
    for name in (
        "connection",
        "content-length",
        "content-range",
        "date",
        "etag",
        "last-modified",
        "location",
        "retry-after",
        "transfer-encoding",
        "x-amz-bucket-region",
        "x-goog-generation",
        *REQUEST_IDS,
    )
}
_ONCE: Final = frozenset({"content-range", "etag"})  # a repeated one is ambiguous


class BadAnswer(Exception):
    """An answer that is not HTTP/1.1 or exceeds a limit."""


class Scratch:
    """Memory for received bytes, shared by connections: each parses its bytes before another one reads."""

    __slots__ = ("head", "memory", "whole")

    def __init__(self) -> None:
        self.memory = bytearray(SCRATCH_BYTES)
        self.whole = memoryview(self.memory)
        self.head = self.whole[:HEAD_READ_BYTES]


class Connection(asyncio.BufferedProtocol):
    """Carries one exchange at a time; notifies its pool when it is free or closed."""

    __slots__ = (
        "_ends_with_connection",
        "_error",
        "_exchange",
        "_has_ended",
        "_has_head",
        "_headers",
        "_in_kernel",
        "_interim",
        "_is_direct",
        "_is_kept",
        "_left",
        "_mode",
        "_num_headers",
        "_parser",
        "_partial",
        "_pool",
        "_scratch",
        "_surplus",
        "_transport",
        "_view",
        "address",
        "idle_since_s",
        "num_served",
    )

    def __init__(self, pool: OriginPool, scratch: Scratch, address: str) -> None:
        self._pool = pool
        self._scratch = Scratch() if sys.platform == "win32" else scratch  # on Windows reads overlap
        self._transport: Any = None
        self._exchange: Exchange | RangeGet | None = None
        self.address = address
        self.num_served = 0
        self.idle_since_s = 0.0
        self._in_kernel = False  # whether the group's kernel reads the answer
        self._reset()

    def _reset(self) -> None:
        """Expect the head of the next answer."""
        self._mode: Literal["head", "body", "feed"] = "head"
        self._view = self._scratch.head  # where the next bytes go
        self._left = 0  # missing bytes of a body of known length
        self._partial: bytearray | None = None  # received part of a head
        self._interim = 0
        self._parser: Any = None
        self._error: BaseException | None = None

    def __repr__(self) -> str:
        return f"Connection({self.address!r}, num_served={self.num_served}, mode={self._mode!r})"

    # -- a request ---------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = transport

    @property
    def is_open(self) -> bool:
        """Whether it can send a request."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def exchange(self) -> Exchange | RangeGet | None:
        """Its request in flight."""
        return self._exchange

    def start(self, exchange: Exchange | RangeGet, now_s: float) -> None:
        """Send a request."""
        self._exchange = exchange
        exchange.connection = self
        exchange.waited_s += now_s - exchange.heard_s
        exchange.heard_s = now_s
        if exchange.sink.num_bytes <= COPIED_BYTES_MAX:
            self._view = self._scratch.whole
        self._transport.write(exchange.head)

    @property
    def slot(self) -> int:
        """See `TcpTransport.slot`; -1 for other transports."""
        return getattr(self._transport, "slot", -1)

    def kernel_request(self, get: RangeGet, slot: int, now_s: float) -> KernelGet:
        """Arguments for the kernel to send a request and read its answer, as long as that has the usual form."""
        self._exchange = get
        self._in_kernel = True
        get.connection = self
        get.waited_s += now_s - get.heard_s
        get.heard_s = now_s
        return slot, get.head, get.start_bytes, get.end_bytes, get.memory_for_kernel(COPIED_BYTES_MAX)

    def send_rest(self, num_sent: int, error: OSError | None) -> None:
        """Send the rest of a request of which the kernel could not send all."""
        get = self._exchange
        assert get is not None
        self.leave_kernel()
        if error is None:
            self._transport.wrote(get.head, num_sent)
        else:
            self._transport.broken(error)

    def leave_kernel(self) -> None:
        """Take the answer over from the kernel, with the bytes received so far."""
        get = self._exchange
        if not self._in_kernel or get is None or get.plain is None:
            return
        self._in_kernel = False
        get.plain.adopt_received(*self._transport.group.give_back(self._transport.slot))
        if get.plain.answer is not None:
            self._mode, self._is_kept = "body", True
            self._left = get.plain.num_bytes - get.plain.received
            self._make_room(get.plain)
        elif get.plain.num_bytes <= COPIED_BYTES_MAX:
            self._view = self._scratch.whole

    def on_kernel_head(self, size_bytes: int, etag: str | None, now_s: float) -> None:
        """The kernel has read the answer's head."""
        get = self._exchange
        assert get is not None and get.plain is not None
        get.plain.on_head(size_bytes, etag, now_s)

    def on_kernel_done(self, piece: bytes | None, now_s: float) -> RangeGet:
        """The kernel has read the whole answer, see `RangeGet.complete`; the connection is free."""
        get = self._exchange
        assert get is not None and get.plain is not None
        self._exchange = None
        self._in_kernel = False
        self.num_served += 1
        get.plain.complete(piece, now_s)
        return get.plain

    def resume_read(self, data: bytes) -> None:
        """Parse an answer of another form, of which the kernel has read `data`."""
        self.leave_kernel()
        self._view = self._scratch.whole
        self._view[: len(data)] = data
        self.buffer_updated(len(data))

    def heard_s(self) -> float:
        """When the request in flight was sent or last received bytes; when idle, since when."""
        exchange = self._exchange
        if exchange is None:
            return self.idle_since_s
        return max(exchange.heard_s, self._transport.group.heard_s(self.slot)) if self._in_kernel else exchange.heard_s

    def replace_exchange(self, exchange: Exchange) -> None:
        """Replace the exchange in flight."""
        self._exchange = exchange
        exchange.connection = self

    def abandon(self) -> None:
        """Close without reporting to the exchange, which is cancelled."""
        self._exchange = None
        self._in_kernel = False
        self.close()

    def fail(self, error: BaseException) -> None:
        """End the exchange with an error, and the connection with it."""
        self.leave_kernel()
        exchange, self._exchange = self._exchange, None
        self.close()
        if exchange is not None:
            exchange.end(error)

    def close(self) -> None:
        """Close at once; `connection_lost` notifies the pool later."""
        self._mode = "head"
        self._view = self._scratch.head
        self._pool.remove_idle(self)
        if self._transport is not None:
            self._transport.abort()

    # -- called by the loop: bytes of the answer ---------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go; at most `TURN_BYTES_MAX`, so that other connections get their turn soon."""
        view = self._view
        return view if len(view) <= TURN_BYTES_MAX else view[:TURN_BYTES_MAX]

    def buffer_updated(self, nbytes: int) -> None:
        """Handle received bytes."""
        exchange = self._exchange
        if exchange is None:
            self.close()  # unrequested bytes
            return
        exchange.heard_s = self._pool.loop.time()
        if self._mode == "body":
            self._on_body_bytes(exchange, nbytes)
        elif self._mode == "feed":
            self._feed(cast("Exchange", exchange), self._view[:nbytes])
        elif self._partial is None:
            self._on_head_bytes(exchange, self._scratch.memory, nbytes)
        else:
            self._partial += self._view[:nbytes]
            self._on_head_bytes(exchange, self._partial, len(self._partial))

    def eof_received(self) -> bool:
        """The server has closed its side; `connection_lost` does the rest."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self._pool.lost(self)
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        if self._mode == "feed" and self._ends_with_connection and exc is None:
            exchange.end()
        elif self._mode == "head" and self._partial is None and self.num_served:
            # The server closed it while the request was on its way. This cannot recur on a new connection.
            self._pool.resend(exchange)
        else:
            exchange.end(exc or ConnectionResetError("the server closed the connection"))

    # -- heads -------------------------------------------------------------------------------------------------------

    def _on_head_bytes(self, exchange: Exchange | RangeGet, memory: bytearray, num_bytes: int) -> None:
        """Parse the head if the first `num_bytes` of `memory` hold its end."""
        plain = exchange.plain
        if plain is not None:
            parsed = part_answer(memory, num_bytes, plain.start_bytes, plain.end_bytes)
            if parsed is not None:
                end, size_bytes, etag = parsed
                self._partial, self._is_kept = None, True
                plain.on_head(size_bytes, etag, exchange.heard_s)
                self._begin_body(plain, plain.num_bytes, memory, end, num_bytes)
                return
        start = 0
        while True:
            end = memory.find(b"\r\n\r\n", start, num_bytes) + 4
            if end < 4:
                self._keep_partial(memory, start, num_bytes)
                return
            if end - start > HEAD_BYTES_MAX or not self._parse(memory, start, end):
                self.fail(self._error or BadAnswer("the head of the answer is malformed or too long"))
                return
            status = self._parser.get_status_code()
            if status >= 200:
                break
            self._interim += 1
            if status == 101 or self._interim > INTERIM_MAX:
                self.fail(BadAnswer(f"{self._interim} interim answers, the last one {status}"))
                return
            start = end
        self._partial = None
        general = cast("Exchange", exchange) if plain is None else plain.to_exchange()
        general.status, general.headers = status, self._headers
        try:
            self._begin(general, memory, end, num_bytes)
        except (BadAnswer, LanceError, MemoryError) as error:
            self.fail(error)

    def _keep_partial(self, memory: bytearray, start: int, num_bytes: int) -> None:
        if num_bytes - start > HEAD_BYTES_MAX:
            self.fail(BadAnswer(f"a head of more than {HEAD_BYTES_MAX} bytes"))
            return
        if num_bytes > start:
            self._partial = bytearray(memoryview(memory)[start:num_bytes])
        else:
            self._partial = bytearray()  # not None: an interim answer was received

    def _parse(self, memory: bytearray, start: int, end: int) -> bool:
        """Parse a head; returns False, and may set `_error`, if it is malformed."""
        self._headers: dict[str, str] = {}
        self._num_headers = 0
        self._has_head = self._has_ended = self._surplus = False
        self._parser = parser = httptools.HttpResponseParser(self)
        try:
            with memoryview(memory) as view, view[start:end] as head:
                parser.feed_data(head)
        except httptools.HttpParserUpgrade:
            return False
        except httptools.HttpParserError as error:
            self._error = self._error or BadAnswer(str(error))
            return False
        return self._has_head

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser, also for trailers after the last chunk."""
        self._num_headers += 1
        if self._num_headers > HEADERS_MAX:
            self._error = BadAnswer(f"more than {HEADERS_MAX} headers")
            raise self._error
        kept = _KEPT.get(name.lower())
        if kept is not None and not (self._has_head and self._mode == "feed"):
            text = value.decode("latin-1")
            if kept in _ONCE and kept in self._headers:
                text = f"{self._headers[kept]}, {text}"
            self._headers[kept] = text

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        self._has_head = True
        self._is_kept = self._parser.should_keep_alive()

    # -- bodies ------------------------------------------------------------------------------------------------------

    def _begin(self, exchange: Exchange, memory: bytearray, end: int, num_bytes: int) -> None:
        """Start the body after a head that ends at `end`. Raises the sink's errors."""
        headers, sink = exchange.headers, exchange.sink
        coding = headers.get("transfer-encoding")
        length = headers.get("content-length")
        is_served = exchange.status in (200, 206)
        if is_served:
            if coding and coding.lower() != "chunked":
                raise BadAnswer(f"an answer in transfer-encoding {coding!r}")
            sink.begin(exchange.status, headers)
        if not is_served or coding or not length:
            self._ends_with_connection = not (coding or length or self._has_ended)
            self._mode, self._view = "feed", self._scratch.whole
            self._feed(exchange, memoryview(memory)[end:num_bytes])
            return
        self._begin_body(exchange, int(length), memory, end, num_bytes)

    def _begin_body(
        self, exchange: Exchange | RangeGet, length: int, memory: bytearray, end: int, num_bytes: int
    ) -> None:
        """Start a body of known length."""
        sink = exchange.sink
        self._left = length
        here = num_bytes - end
        if here >= self._left:
            if self._left:
                sink.add(memoryview(memory)[end : end + self._left])
            self._complete(exchange, is_clean=here == self._left)
            return
        self._mode = "body"
        self._make_room(sink)
        if here:
            room = self._view[:here]  # fits: bodies of unknown length go through the parser
            room[:] = memoryview(memory)[end:num_bytes]
            self._on_body_bytes(exchange, here)

    def _make_room(self, sink: Sink | RangeGet) -> None:
        """Receive the rest of the body into the sink's memory, or into the scratch if it has none."""
        room = sink.room(self._left)
        self._is_direct = room is not None
        self._view = self._scratch.whole[: self._left] if room is None else room

    def _on_body_bytes(self, exchange: Exchange | RangeGet, num_bytes: int) -> None:
        """Handle body bytes received at the start of the view."""
        sink = exchange.sink
        if self._is_direct:
            sink.advance(num_bytes)
        else:
            sink.add(self._view[:num_bytes])
        self._left -= num_bytes
        if not self._left:
            self._complete(exchange, is_clean=True)
        elif self._is_direct:
            self._view = self._view[num_bytes:]
        else:
            self._view = self._scratch.whole[: self._left]

    def _feed(self, exchange: Exchange, data: memoryview) -> None:
        """Pass body bytes through the parser."""
        if self._has_ended:
            self._surplus = len(data) > 0
        else:
            self._parse_body(data)
        if self._error is not None:
            self.fail(self._error)
        elif self._has_ended:
            self._complete(exchange, is_clean=not self._surplus)
        elif len(exchange.body) >= REFUSAL_BYTES_MAX:
            self._complete(exchange, is_clean=False)

    def _parse_body(self, data: memoryview) -> None:
        """Parse; the callbacks below consume the data. Leaves errors in `_error` for the caller."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if self._has_ended:
                self._surplus = True
            elif self._error is None:
                self._error = BadAnswer(f"the body of the answer is broken: {error}")

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        exchange = cast("Exchange | None", self._exchange)
        if exchange is None or self._error is not None or self._surplus:
            return
        if exchange.status in (200, 206):
            try:
                exchange.sink.add(body)
            except LanceError as error:
                self._error = error
        else:
            exchange.body += body[: REFUSAL_BYTES_MAX - len(exchange.body)]

    def on_message_begin(self) -> None:
        """Called by the parser; a second call means bytes after the end of the answer."""
        if self._has_ended:
            self._surplus = True

    def on_message_complete(self) -> None:
        """Called by the parser."""
        self._has_ended = True

    def _complete(self, exchange: Exchange | RangeGet, *, is_clean: bool) -> None:
        """End the exchange after its whole answer."""
        self._exchange = None
        self.num_served += 1
        if is_clean and self._is_kept and self.is_open:
            self._reset()
            self._pool.free(self)
        else:
            self.close()
        exchange.end()
