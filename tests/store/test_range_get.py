"""The short way of a ranged GET does what the long one does, whatever comes; so do its kernels, for heads."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lance_io import _kernels
from lance_io.errors import LanceError
from lance_io.store.http.range_get import RangeGet
from lance_io.store.http.sigv4 import Signer
from lance_io.store.http.socket_group import IS_SUPPORTED
from lance_io.store.offers import WantedRange
from lance_io.store.policies.download import Download
from lance_io.store.s3.bucket import S3Store, open_s3
from lance_io.store.s3.bucket_options import parse_s3
from lance_io.store.s3.server_clock import ServerClock
from lance_io.store.s3.site import S3Site
from tests.http_faults import (
    Answer,
    Asked,
    FaultServer,
    broken_after,
    content_range,
    hang_up,
    head,
    serve,
    stall,
    status,
    too_long,
    too_long_in_chunks,
    whole,
)
from tests.store.test_http_connection import Client

if TYPE_CHECKING:
    from collections.abc import Callable

CONTENT = random.Random(7).randbytes(400_000)
NOW_S = 1_790_000_000.7
SILENCE = "2s"  # that is a lost connection; a loaded machine may be silent for a while itself


# -- heads of answers --------------------------------------------------------------------------------------------------

MINIO = (
    b"HTTP/1.1 206 Partial Content\r\nAccept-Ranges: bytes\r\nContent-Length: 1000\r\n"
    b"Content-Range: bytes 0-999/300000\r\nContent-Type: application/octet-stream\r\n"
    b'ETag: "9b2cf535f27731c974343645a3985328"\r\nLast-Modified: Tue, 24 Nov 2026 10:00:00 GMT\r\n'
    b"Server: MinIO\r\nVary: Origin\r\nX-Amz-Id-2: dd9025bab4ad464b049177c95eb6ebf374d3b3fd1af9251148b658df7ac2e3e8\r\n"
    b"X-Amz-Request-Id: 18A5B4C2D3E4F5A6\r\nDate: Tue, 24 Nov 2026 10:00:01 GMT\r\n\r\n"
)


def test_the_usual_answer_is_recognised() -> None:
    etag = '"9b2cf535f27731c974343645a3985328"'
    body = CONTENT[:1000]
    assert _kernels.part_answer(MINIO + body, len(MINIO) + 1000, 0, 1000) == (len(MINIO), 300_000, etag)
    assert _kernels.part_answer(MINIO, len(MINIO), 0, 1000) == (len(MINIO), 300_000, etag)
    assert _kernels.part_answer(MINIO.lower().replace(b"http", b"HTTP"), len(MINIO), 0, 1000) is not None
    kept = MINIO.replace(b"Vary: Origin", b"Connection: Keep-Alive")
    assert _kernels.part_answer(kept, len(kept), 0, 1000) is not None


def test_a_part_of_a_head_is_none() -> None:
    for num_bytes in range(len(MINIO)):
        assert _kernels.part_answer(MINIO, num_bytes, 0, 1000) is None
    with pytest.raises(ValueError, match="more than there are"):
        _kernels.part_answer(MINIO, len(MINIO) + 1, 0, 1000)


@pytest.mark.parametrize(
    ("usual", "other"),
    [
        (b"206", b"200"),
        (b"206", b"416"),
        (b"HTTP/1.1", b"HTTP/1.0"),
        (b"bytes 0-999/", b"bytes 0-998/"),
        (b"bytes 0-999/", b"bytes 1-999/"),
        (b"/300000", b"/999"),  # ends before the range does
        (b"/300000", b"/*"),
        (b"/300000", b"/99999999999999999999"),
        (b"Content-Length: 1000", b"Content-Length: 1001"),
        (b"Content-Length: 1000", b"Content-Length: +1000"),
        (b"Content-Length: 1000", b"Content-Length: 1000\r\nContent-Length: 1000"),
        (b"Vary: Origin", b"Content-Range: bytes 0-999/300000"),
        (b"Vary: Origin", b"ETag: another"),
        (b"Vary: Origin", b"Transfer-Encoding: chunked"),
        (b"Vary: Origin", b"Connection: close"),
        (b"Vary: Origin", b"Upgrade: h2c"),
        (b"Vary: Origin\r\n", b"Vary: Origin\n"),
        (b"Vary: Origin", b"\x00: a"),
        (b"Vary: Origin", b"Vary: a\r\n folded"),
        (b"Vary: Origin", b"\r\n".join(b"a: b" for _ in range(100))),
        (b"Server: MinIO", b"a: " + b"x" * (64 << 10)),
    ],
)
def test_what_is_unusual_is_left_to_the_long_way(usual: bytes, other: bytes) -> None:
    assert usual in MINIO
    unusual = MINIO.replace(usual, other)
    assert _kernels.part_answer(unusual, len(unusual), 0, 1000) is None


LINES = st.lists(
    st.one_of(
        st.sampled_from(
            [
                b"HTTP/1.1 206 OK\r\n", b"HTTP/1.1 206\r\n", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 206 X\r\n", b"\r\n",
                b"Content-Range: bytes 0-999/300000\r\n", b"content-range:bytes 0-999/1000\r\n",
                b"Content-Range: bytes 0-999/999\r\n", b"Content-Range:  bytes 00-0999/1000  \r\n",
                b"Content-Length: 1000\r\n", b"content-length:01000\r\n", b"Content-Length: 7\r\n",
                b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n", b"Connection: keep-alive, close\r\n",
                b"ETag: \"a\"\r\n", b"ETag: b\r\n", b"ETag: \xff\r\n", b"Vary: x\n", b"A : b\r\n", b" folded\r\n",
                b"a: b\rc\r\n", b"\n", b":\r\n", b"Keep-Alive: timeout=5\r\n", b"Content-Encoding: gzip\r\n",
            ]
        ),
        st.binary(max_size=6),
    ),
    max_size=9,
)  # fmt: skip
USUAL = [b"HTTP/1.1 206 OK\r\n", b"Content-Length: 1000\r\n", b"Content-Range: bytes 0-999/300000\r\n"]


@given(LINES, st.integers(0, 3))
@example([], 3)
@example([b'ETag: "a"\r\n', b"Vary: x\n"], 3)
def test_what_is_taken_for_usual_is_what_the_general_parser_reads(lines: list[bytes], num_usual: int) -> None:
    """Lines of all kinds, of which the usual ones are given more or less."""
    data = b"".join([*USUAL[:num_usual], *lines, b"\r\n"]) + CONTENT[:1000]
    found = _kernels.part_answer(data, len(data), 0, 1000)
    if found is None:
        return
    end, size_bytes, etag = found
    client = Client(Download.of_range("key", 0, 1000)).feed(data[:end] + CONTENT[:1000])
    assert (client.outcome, client.pool.told) == (CONTENT[:1000], ["free"])
    assert (client.download.size_bytes, client.download.etag) == (size_bytes, etag)


# -- heads of requests -------------------------------------------------------------------------------------------------


class State:
    """As much of a `LoopState` as a site asks for."""

    region = "eu-central-1"
    secrets = ()

    def __init__(self, signer: Signer | None) -> None:
        self.current_signer = signer
        self.clock = ServerClock()

    def tls_settings(self) -> None:
        return None


def headers_of(request: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    line, *fields = request.removesuffix(b"\r\n\r\n").split(b"\r\n")
    named = [field.split(b": ", 1) for field in fields]
    assert len({name for name, _ in named}) == len(named)
    return line, {name: value for name, value in named}


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    st.integers(0, 1 << 62),
    st.integers(1, 1 << 32),
    st.sampled_from([None, "a-session/token+=="]),
    st.booleans(),
    st.booleans(),
)
def test_a_request_is_written_and_signed_as_by_the_signer_of_all_requests(
    key: str, start: int, num_bytes: int, token: str | None, is_paid: bool, is_signed: bool
) -> None:
    options = {"aws_endpoint": "http://host:9000", "allow_http": "true", "aws_request_payer": str(is_paid).lower()}
    signer = Signer("AKIDEXAMPLE", "secret/+=", token, "eu-central-1") if is_signed else None
    site: Any = S3Site(parse_s3("bucket", {**options, "user_agent": "me/1 (a; b)"}), State(signer))
    site._set_address()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time", lambda: NOW_S)
        origin, (short,) = site.range_requests([WantedRange(key, start, start + num_bytes)])
        long = site.request(Download.of_range(key, start, start + num_bytes))
    assert origin == long[0]
    assert headers_of(short) == headers_of(long[1])


def test_a_signer_of_ranges_shows_no_secret_and_refuses_nonsense() -> None:
    signer = Signer("AKID", "secret", "token", "r")
    ranges = signer.for_ranges("host", {}, "\r\n")
    assert not {"AKID", "secret", "token"} & set(repr(ranges).split("'")) and "AKID" not in repr(ranges)
    for start, end, time in (
        (5, 5, "20261124T101112Z"),
        (5, 4, "20261124T101112Z"),
        (0, 1, "2026"),
        (0, 1, "2026112é"),
    ):
        with pytest.raises(ValueError, match="no range"):
            ranges.heads([("/p", start, end)], time, b"key")


# -- answers of every kind ---------------------------------------------------------------------------------------------


async def in_chunks(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
    """The right answer, in chunks."""
    start, end = asked.span(len(CONTENT)) or (0, 0)
    fields = {"Content-Range": f"bytes {start}-{end - 1}/{len(CONTENT)}", "Transfer-Encoding": "chunked"}
    body = CONTENT[start:end]
    writer.write(head(206, fields) + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))


async def after_a_hint(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
    """The right answer after an interim one."""
    writer.write(head(103, {"Link": "<a>"}))
    await serve(server, asked, writer)


async def byte_by_byte(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
    """The right answer, its head in many pieces."""
    start, end = asked.span(len(CONTENT)) or (0, 0)
    fields = {"Content-Range": f"bytes {start}-{end - 1}/{len(CONTENT)}", "Content-Length": end - start}
    data = head(206, {"ETag": server.etag, **fields}) + CONTENT[start:end]
    for at in range(200):
        writer.write(data[at : at + 1])
        await writer.drain()
        await asyncio.sleep(0)
    writer.write(data[200:])


async def replaced(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Another object is there now."""
    server.content, server.etag = CONTENT[::-1], '"v2"'
    await status(412, "PreconditionFailed")(server, asked, writer)


ANSWERS: dict[str, list[Answer]] = {
    "right": [],
    "in chunks": [in_chunks],
    "after a hint": [after_a_hint],
    "in many pieces": [byte_by_byte],
    "broken": [broken_after(70), broken_after(0), broken_after(99_000)],
    "broken for good": [broken_after(10)] * 9,
    "replaced": [broken_after(70), replaced],
    "none": [hang_up, hang_up],
    "late": [stall],
    "errors": [status(500, "InternalError"), status(503, "SlowDown"), status(400, "RequestTimeout")],
    "missing": [status(404, "NoSuchKey")],
    "denied": [status(403, "AccessDenied")],
    "behind the end": [status(416, "InvalidRange", Content_Range="bytes */5")],
    "too long": [too_long],
    "too long in chunks": [too_long_in_chunks],
    "the whole object": [whole],
    "another part": [content_range("bytes 5-1004/400000")],
    "a shorter part": [content_range("bytes 1000-1001/1002")],
    "nonsense": [content_range("elephants")],
}


def store_on(server: FaultServer, silence: str) -> S3Store:
    known = {"aws_endpoint": server.endpoint, "allow_http": "true", "aws_region": "r", "hedge_percent": "0"}
    keys = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "secret"}
    return open_s3("bucket", {**known, **keys, "request_timeout": silence, "client_max_retries": "4"})


async def long_way(store: S3Store, start: int, end: int) -> bytes:
    return bytes(await store.get_range("key", start, end))


def ignore_retry(tag: object, late: bool) -> None:
    """Nobody asks."""


async def short_way(store: S3Store, start: int, end: int) -> bytes:
    over: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    (started,) = store.start_ranges([WantedRange("key", start, end)], over.set_result, ignore_retry)
    assert isinstance(started, RangeGet)
    assert len(await over) == 1
    return bytes(started.result() or b"")


async def into_memory(store: S3Store, start: int, end: int) -> bytes:
    memory = bytearray(end - start + 2)
    over: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    wanted = WantedRange("key", start, end, memoryview(memory)[1:-1])
    (started,) = store.start_ranges([wanted], over.set_result, ignore_retry)
    assert isinstance(started, RangeGet)
    assert len(await over) == 1
    assert started.result() is None
    assert (memory[0], memory[-1]) == (0, 0)
    return bytes(memory[1:-1])


async def outcome(way: Callable[..., Any], script: list[Answer], end: int, is_warm: bool) -> dict[str, Any]:
    """All that can be seen of a read."""
    silence = SILENCE if stall in script else "60s"
    async with FaultServer(CONTENT, [*[serve] * is_warm, *script]) as server:
        store = store_on(server, silence)
        await store._loop().gets.site.make_ready("key")  # type: ignore[attr-defined]
        if is_warm:
            await long_way(store, 0, 10)
        try:
            result: Any = await way(store, 1000, end)
        except LanceError as error:
            result = type(error), str(error).replace(server.endpoint, "")
        gate, counted = store._loop().gates["read"].in_flight, store.stats.snapshot()["get"]
        # How much of an answer has come before it is refused is a matter of when it comes.
        num_bytes = counted.num_bytes if isinstance(result, bytes) else None
        await store.aclose()
        return {
            "result": result,
            "asked": server.asked,
            "if_match": [request.headers.get("if-match") for request in server.requests],
            "counts": (counted.requests, counted.errors, counted.retries, num_bytes),
            "in_flight": (gate, store.stats.in_flight),
        }


CASES = [(name, end) for name in ANSWERS for end in (2000, 100_000, 350_000) if name != "late" or end == 100_000]


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize(("name", "end"), CASES)
async def test_both_ways_come_to_the_same(name: str, end: int, is_warm: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lance_io.store.cloud.cloud_store.random.random", lambda: 0.0)
    expected = await outcome(long_way, ANSWERS[name], end, is_warm)
    both = {IS_SUPPORTED} if name == "late" and is_warm else {IS_SUPPORTED, False}
    for has_kernel in both:  # which reads the answers, as long as they are usual
        monkeypatch.setattr("lance_io.store.http.pool.IS_SUPPORTED", has_kernel)
        for way in (short_way, into_memory):
            assert await outcome(way, ANSWERS[name], end, is_warm) == expected
