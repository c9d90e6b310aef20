"""One connection of our HTTP client, fed with answers of every kind, cut anywhere; without a network."""

from __future__ import annotations

import asyncio
import http.client
import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_io.store.failures import LongBody, RangeIgnored
from lance_io.store.http.connection import (
    COPIED_BYTES_MAX,
    HEAD_BYTES_MAX,
    HEADERS_MAX,
    INTERIM_MAX,
    TURN_BYTES_MAX,
    BadAnswer,
    Connection,
    Scratch,
)
from lance_io.store.http.exchange import REFUSAL_BYTES_MAX, Exchange, Patience
from lance_io.store.policies.download import SMALL_BYTES, TRUSTED_BYTES, Download

if TYPE_CHECKING:
    from lance_io.errors import LanceError

SIZE = 300_000
CONTENT = bytes(range(251)) * (SIZE // 251 + 1)
SCRATCH = Scratch()


class Transport:
    """Takes requests; knows whether it was closed."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def abort(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


class Pool:
    """Stands where a pool does, and remembers what it was told."""

    class loop:
        @staticmethod
        def time() -> float:
            return 1.0

    def __init__(self) -> None:
        self.told: list[str] = []

    def free(self, connection: Connection) -> None:
        self.told.append("free")

    def lost(self, connection: Connection) -> None:
        self.told.append("lost")

    def resend(self, exchange: Exchange) -> None:
        self.told.append("resend")

    def remove_idle(self, connection: Connection) -> None:
        pass


class Client:
    """A connection with a download on it."""

    def __init__(self, download: Download | None = None) -> None:
        self.pool, self.transport = Pool(), Transport()
        self.connection = Connection(self.pool, SCRATCH, "address")
        self.connection.connection_made(self.transport)
        self.ask(download or Download.of_range("key", 0, 1000))

    def ask(self, download: Download) -> None:
        self.download = download
        self.over = 0
        self.exchange = Exchange(b"GET", download, Patience(1, 1, 1), self._done, 0.0, lambda: None)
        self.connection.start(self.exchange, 0.0)

    def _done(self, exchange: Exchange) -> None:
        self.over += 1

    def feed(self, data: bytes, cuts: list[int] | None = None) -> Client:
        """What the server sends, cut into pieces of these sizes, the last one repeated."""
        sizes = iter(cuts or [])
        size = 1 << 20
        rest = memoryview(data)
        while len(rest) and not self.transport.is_closed:
            size = next(sizes, size)
            view = self.connection.get_buffer(-1)
            assert len(view)
            num_bytes = min(len(view), len(rest), size)
            view[:num_bytes] = rest[:num_bytes]
            rest = rest[num_bytes:]
            self.connection.buffer_updated(num_bytes)
            SCRATCH.memory[:200] = b"\xee" * 200  # other connections use it now
        return self

    def end(self) -> Client:
        """The server closes, or the loop tells that we did."""
        self.connection.connection_lost(None)
        return self

    @property
    def outcome(self) -> Any:
        """Bytes, a refusal, or the class of the error."""
        if self.exchange.error is not None:
            return type(self.exchange.error)
        if self.exchange.status in (200, 206):
            return bytes(self.download.buffer())
        return self.exchange.status, self.exchange.body


def head(status: int = 206, **headers: object) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} Some Reason\r\n{lines}\r\n".encode()


def part(start: int, end: int, **headers: object) -> dict[str, object]:
    return {"Content_Range": f"bytes {start}-{end - 1}/{SIZE}", "ETag": '"1"', **headers}


def in_chunks(body: bytes, size: int) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x;some=extension\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\nA: b\r\n\r\n"


FORMS = ("length", "chunks", "end")


def answer(form: str, start: int, end: int, chunk_bytes: int = 70_000) -> bytes:
    body = CONTENT[start:end]
    if form == "length":
        return head(**part(start, end, content_LENGTH=len(body))) + body
    if form == "chunks":
        return head(**part(start, end, Transfer_Encoding="chunked")) + in_chunks(body, chunk_bytes)
    return head(**part(start, end, Connection="close")) + body


# -- right answers ----------------------------------------------------------------------------------------------------


@given(
    st.sampled_from(FORMS),
    st.integers(0, SIZE - 1),
    st.one_of(st.integers(1, 2000), st.integers(1, SIZE)),
    st.lists(st.integers(1, 400), max_size=8),
    st.sampled_from([1 << 20, 65_536, 1000]),
    st.integers(0, 2),
)
def test_however_an_answer_is_cut_its_bytes_are_the_same(
    form: str, start: int, length: int, cuts: list[int], last: int, interim: int
) -> None:
    end = min(SIZE, start + length)
    client = Client(Download.of_range("key", start, end))
    client.feed(head(100) * interim + answer(form, start, end), [*cuts, last])
    if form == "end":
        client.end()
    assert client.outcome == CONTENT[start:end]
    assert client.over == 1
    assert ("free" in client.pool.told, client.transport.is_closed) == (form != "end", False)


@pytest.mark.parametrize("cut", [1 << 20, 7, 1])
def test_some_interim_answers_are_passed_over(cut: int) -> None:
    client = Client().feed(head(100, X_Hint="a") * INTERIM_MAX + answer("length", 0, 1000), [cut])
    assert client.outcome == CONTENT[:1000]


def test_the_parser_of_the_standard_library_reads_the_same() -> None:
    class Socket:
        def __init__(self, data: bytes) -> None:
            self._data = data

        def makefile(self, mode: str) -> io.BytesIO:
            return io.BytesIO(self._data)

    for form in FORMS:
        data = answer(form, 10, 100_000)
        response = http.client.HTTPResponse(Socket(data), method="GET")
        response.begin()
        assert Client(Download.of_range("key", 10, 100_000)).feed(data).end().outcome == response.read(), form


def test_a_large_body_is_received_where_the_download_keeps_it() -> None:
    client = Client(Download.of_range("key", 0, SIZE))
    client.feed(answer("length", 0, SIZE)[:1000])
    assert len(client.connection.get_buffer(-1)) > COPIED_BYTES_MAX
    received = np.frombuffer(client.connection.get_buffer(-1), np.uint8)
    client.feed(answer("length", 0, SIZE)[1000:])
    assert np.shares_memory(received, np.frombuffer(client.download.buffer(), np.uint8))
    assert client.outcome == CONTENT[:SIZE]


@pytest.mark.parametrize("first", FORMS)
@pytest.mark.parametrize("second", FORMS)
def test_a_broken_body_is_continued_over_another_connection(first: str, second: str) -> None:
    download = Download.of_range("key", 0, SIZE)
    broken = Client(download).feed(answer(first, 0, SIZE)[:150_000]).end()
    if first != "end":
        assert broken.outcome is ConnectionResetError
    assert 140_000 < download.received < 150_000
    client = Client(download).feed(answer(second, download.received, SIZE)).end()
    assert client.outcome == CONTENT[:SIZE]


def test_of_a_large_body_no_more_is_received_at_once_than_others_can_wait_for() -> None:
    num_bytes = 3 * TURN_BYTES_MAX + 5
    client = Client(Download.of_range("key", 0, num_bytes))
    client.feed(head(Content_Range=f"bytes 0-{num_bytes - 1}/{num_bytes}", Content_Length=num_bytes))
    sizes = []
    while not client.over:
        view = client.connection.get_buffer(-1)
        sizes.append(len(view))
        view[:] = bytes([len(sizes)]) * len(view)
        client.connection.buffer_updated(len(view))
    assert sizes == [*[TURN_BYTES_MAX] * 3, 5]
    assert client.outcome == b"".join(bytes([at]) * size for at, size in enumerate(sizes, 1))


def test_a_connection_carries_one_answer_after_the_other() -> None:
    client = Client(Download.of_range("key", 0, 10))
    for start, form in ((0, "length"), (7, "chunks"), (100_000, "length")):
        client.ask(Download.of_range("key", start, start + 150_000))
        assert client.feed(answer(form, start, start + 150_000), [777]).outcome == CONTENT[start : start + 150_000]
    assert (client.connection.num_served, client.transport.is_closed) == (3, False)


@pytest.mark.parametrize("num_bytes", [0, 5, SMALL_BYTES, SIZE])
def test_whole_objects_and_ends_of_them(num_bytes: int) -> None:
    body = CONTENT[:num_bytes]
    whole = Client(Download.of_object("key")).feed(head(200, Content_Length=num_bytes) + body)
    assert whole.outcome == body
    if num_bytes:
        given = head(Content_Range=f"bytes 0-{num_bytes - 1}/{num_bytes}", Content_Length=num_bytes) + body
        assert Client(Download.of_suffix("key", 1 << 20)).feed(given).outcome == body


def test_an_object_of_incredible_size_takes_memory_only_for_what_has_come() -> None:
    client = Client(Download.of_object("key")).feed(head(200, Content_Length=10**15) + CONTENT[:200_000])
    assert client.download.received == 200_000 and not client.over
    assert TRUSTED_BYTES < 10**15
    assert client.end().outcome is ConnectionResetError


@pytest.mark.parametrize("status", [204, 301, 304, 404, 416, 500])
@pytest.mark.parametrize("form", FORMS)
def test_refusals_have_a_body_and_leave_the_connection_whole(status: int, form: str) -> None:
    body = b"" if status in (204, 304) else b"<Error><Code>Some</Code></Error>"
    if form == "length":
        data = head(status, Content_Length=len(body)) + body
    elif form == "chunks" and body:
        data = head(status, Transfer_Encoding="chunked") + in_chunks(body, 3)
    else:
        data = head(status, Connection="close") + body
    client = Client().feed(data, [1])
    if form == "end":
        client.end()
    assert client.outcome == (status, body)


# -- wrong ones -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"garbage\r\n\r\n",
        b"HTTP/2 206 OK\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        b"HTTP/1.1 206 OK\r\n\x00: 1\r\n\r\n",
        head(101, Upgrade="websocket", Connection="Upgrade"),
        head(100) * (INTERIM_MAX + 1),
        head(Content_Length="-1"),
        head(Content_Length="1, 2"),
        head(Content_Length=10**30),
        b"HTTP/1.1 206 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        b"HTTP/1.1 206 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
        head(**part(0, 1000, Transfer_Encoding="gzip, chunked")),
        head(**part(0, 1000, Transfer_Encoding="chunked")) + b"zz\r\n",
        head(**part(0, 1000, Transfer_Encoding="chunked")) + b"fffffffffffffffffff\r\n",
        head(**{f"X-{number}": number for number in range(HEADERS_MAX + 1)}),
        head(**part(0, 1000, Transfer_Encoding="chunked"))
        + b"0\r\n"
        + b"".join(b"X-%d: 1\r\n" % number for number in range(HEADERS_MAX + 1))
        + b"\r\n",
        b"HTTP/1.1 206 OK\r\n" + b"X" * (HEAD_BYTES_MAX + 10),
        b"HTTP/1.1 206 OK\r\nX: " + b"x" * (HEAD_BYTES_MAX + 10) + b"\r\n\r\n",
    ],
    ids=range(19),
)
@pytest.mark.parametrize("cut", [1 << 20, 4096, 97])
def test_what_is_no_answer_ends_the_connection(data: bytes, cut: int) -> None:
    client = Client().feed(data, [cut])
    assert client.outcome is BadAnswer
    assert (client.over, client.transport.is_closed, client.download.received) == (1, True, 0)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (head(200, Content_Length=SIZE), RangeIgnored),
        (head(**part(1, 1000, Content_Length=999)), RangeIgnored),
        (head(**part(0, 1000, Content_Length=1001)), LongBody),
        (head(**part(0, 1000, Transfer_Encoding="chunked")) + in_chunks(CONTENT[:1001], 500), LongBody),
        (head(**part(0, 1000)) + CONTENT[:1001], LongBody),
        (b"HTTP/1.1 206 OK\r\nContent-Range: bytes 5-9/10\r\nContent-Range: bytes 0-999/300000\r\n\r\n", RangeIgnored),
    ],
)
def test_what_does_not_fit_the_request_ends_the_connection(data: bytes, error: type[LanceError]) -> None:
    client = Client().feed(data)
    assert client.outcome is error
    assert client.transport.is_closed


def test_an_endless_refusal_is_read_in_part() -> None:
    for begun in (head(500, Content_Length=1 << 40), head(500, Connection="close")):
        client = Client().feed(begun + b"x" * (1 << 20))
        assert client.outcome == (500, b"x" * REFUSAL_BYTES_MAX)
        assert client.transport.is_closed
    chunked = head(500, Transfer_Encoding="chunked") + in_chunks(b"x" * (1 << 20), 10_000)
    assert Client().feed(chunked).outcome == (500, b"x" * REFUSAL_BYTES_MAX)


@pytest.mark.parametrize("form", ["length", "chunks"])
def test_bytes_behind_an_answer_end_the_connection_and_not_the_answer(form: str) -> None:
    for behind in (b"HTTP/1.1 206 OK\r\n", b"x", head(408), answer(form, 0, 1000)):
        client = Client().feed(answer(form, 0, 1000) + behind)
        assert client.outcome == CONTENT[:1000]
        assert client.transport.is_closed


def test_bytes_that_nobody_asked_for_end_the_connection() -> None:
    client = Client().feed(answer("length", 0, 1000))
    assert not client.transport.is_closed
    client.feed(head(408, Content_Length=0))
    assert client.transport.is_closed


def test_a_server_that_says_it_closes_is_believed() -> None:
    client = Client().feed(head(**part(0, 1000, Content_Length=1000, Connection="close")) + CONTENT[:1000])
    assert client.outcome == CONTENT[:1000]
    assert client.transport.is_closed
    old = head(**part(0, 1000, Content_Length=1000)).replace(b"HTTP/1.1", b"HTTP/1.0") + CONTENT[:1000]
    assert Client().feed(old).transport.is_closed


def test_only_a_request_on_a_reused_connection_without_any_answer_goes_out_again() -> None:
    assert Client().end().outcome is ConnectionResetError  # a new connection
    reused = Client().feed(answer("length", 0, 1000))
    reused.ask(Download.of_range("key", 0, 1000))
    reused.end()
    assert (reused.pool.told[-1], reused.over) == ("resend", 0)
    for begun in (b"H", head(100)):
        begun_client = Client().feed(answer("length", 0, 1000))
        begun_client.ask(Download.of_range("key", 0, 1000))
        assert begun_client.feed(begun).end().outcome is ConnectionResetError


def test_after_a_cancellation_nothing_is_written_any_more() -> None:
    client = Client(Download.of_range("key", 0, SIZE)).feed(answer("length", 0, SIZE)[:100_000])
    received = client.download.received
    client.exchange.cancel()
    assert client.transport.is_closed and client.connection.exchange is None
    view = client.connection.get_buffer(-1)
    assert not np.shares_memory(np.frombuffer(view, np.uint8), np.frombuffer(client.download.buffer(), np.uint8))
    client.connection.buffer_updated(10)
    client.end()
    assert (client.download.received, client.over) == (received, 0)


# -- anything at all --------------------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        b"HTTP/1.1 206 OK\r\n", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 C\r\n\r\n", b"HTTP/1.0 404 X\r\n", b"\r\n",
        b"\r\n\r\n", b"Content-Range: bytes 0-999/300000\r\n", b"Content-Length: 1000\r\n", b"Content-Length: 7\r\n",
        b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n", b"ETag: a\r\n", b"3e8\r\n", b"0\r\n\r\n",
        CONTENT[:1000], CONTENT[:500], b"x", b"\x00", b":",
    ]
)  # fmt: skip


@given(st.lists(st.one_of(PIECES, st.binary(max_size=20)), max_size=12), st.lists(st.integers(1, 50), max_size=5))
def test_any_bytes_end_in_an_answer_or_an_error_however_they_are_cut(pieces: list[bytes], cuts: list[int]) -> None:
    data = b"".join(pieces)
    outcomes = []
    for sizes in ([1 << 20], [*cuts, 7], [1]):
        client = Client().feed(data, sizes)
        if not client.over:
            client.end()
        assert client.over == 1
        assert client.download.received <= 1000
        outcomes.append(client.outcome)
    # how much of a broken answer was there is the same, and so is what became of it
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_a_connection_is_an_asyncio_protocol_that_shows_no_request() -> None:
    client = Client()
    client.exchange.head = b"authorization: secret"
    assert isinstance(client.connection, asyncio.BufferedProtocol)
    assert "secret" not in repr(client.connection) + repr(vars(client.pool))
