"""The bare client: fetches given ranges from one endpoint, and does nothing else. What a take or a scan cannot beat.

asyncio's `BufferedProtocol`, `httptools` for the heads, bodies received straight into a buffer that stays warm, GETs
that belong together by `gather`, a static signature of the usual length (the proxy does not check it for data files).
No retries, no timeouts: an answer that is not what was asked for is an error.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING
from urllib.parse import quote

import httptools

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.latency.requestlog import Range

HEAD_BYTES = 64 << 10
SIGNED = (
    "x-amz-content-sha256: UNSIGNED-PAYLOAD\r\nx-amz-date: 20260101T000000Z\r\n"
    "authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20260101/us-east-1/s3/aws4_request, "
    f"SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, Signature={'0' * 64}\r\n\r\n"
)

Job = tuple[asyncio.Future[None], bytes, int]


class Connection(asyncio.BufferedProtocol):
    """One request at a time; takes the next job when it is done."""

    def __init__(self, client: BareClient) -> None:
        self._client = client
        self._head = bytearray(HEAD_BYTES)
        self._head_end = 0
        self._body = memoryview(bytearray(HEAD_BYTES))
        self._at = 0  # of the body; meaningful once its head was read
        self._size = -1
        self._ended: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready for a first job."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def start(self, job: Job) -> None:
        """Send a request."""
        assert self._transport is not None
        self._ended, head, size = job
        if size > len(self._body):
            self._body = memoryview(bytearray(1 << size.bit_length()))  # seldom: what grew stays warm
        self._wanted = size
        self._size, self._head_end = -1, 0
        self._transport.write(head)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go: into the body, once the head is known."""
        if self._size < 0:
            return memoryview(self._head)[self._head_end :]
        return self._body[self._at : self._size]

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        if self._size >= 0:
            self._at += nbytes
        else:
            self._head_end += nbytes
            end = self._head.find(b"\r\n\r\n", 0, self._head_end) + 4
            if end < 4:
                return
            self._read_head(end)
        if self._at == self._size:
            ended, self._ended = self._ended, None
            assert ended is not None
            if not ended.done():
                ended.set_result(None)
            self._client.idle(self)

    def _read_head(self, end: int) -> None:
        parser = httptools.HttpResponseParser(self)
        parser.feed_data(memoryview(self._head)[:end])
        if parser.get_status_code() != 206:
            self._fail(f"the answer is {parser.get_status_code()}: {bytes(self._head[: self._head_end])!r}")
        elif self._size != self._wanted:
            self._fail(f"the answer has {self._size} bytes, {self._wanted} were asked for")
        else:
            self._at = self._head_end - end
            self._body[: self._at] = memoryview(self._head)[end : self._head_end]

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        if name.lower() == b"content-length":
            self._size = int(value)

    def _fail(self, message: str) -> None:
        ended, self._ended = self._ended, None
        self._size = -1
        if ended is not None and not ended.done():
            ended.set_exception(ConnectionError(message))
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Only right between requests."""
        self._fail(f"the connection was lost: {error}")


class BareClient:
    """Connections to one endpoint, as many as may be in flight; use it on one loop."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._host_line = f"host: {host}:{port}\r\n"
        self._idle: list[Connection] = []
        self._waiting: deque[Job] = deque()
        self._made = 0

    async def connect(self, connections: int) -> None:
        """Open so many, if they are not open yet."""
        loop = asyncio.get_running_loop()
        missing = max(0, connections - self._made)
        self._made += missing
        made = await asyncio.gather(
            *(loop.create_connection(lambda: Connection(self), self._host, self._port) for _ in range(missing))
        )
        self._idle += [protocol for _, protocol in made]

    async def fetch(self, ranges: Sequence[Range]) -> None:
        """Fetch all of them at once."""
        await asyncio.gather(*(self.get(*one) for one in ranges))

    async def get(self, key: str, start: int, end: int) -> None:
        """Fetch one, as soon as a connection is free."""
        head = f"GET {quote(key)} HTTP/1.1\r\n{self._host_line}range: bytes={start}-{end - 1}\r\n{SIGNED}"
        job = (asyncio.get_running_loop().create_future(), head.encode(), end - start)
        if self._idle:
            self._idle.pop().start(job)
        else:
            self._waiting.append(job)
        await job[0]

    def idle(self, connection: Connection) -> None:
        """Called by a connection that has nothing to do."""
        if self._waiting:
            connection.start(self._waiting.popleft())
        else:
            self._idle.append(connection)
