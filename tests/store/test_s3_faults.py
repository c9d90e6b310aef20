"""What a store does when the network or the service misbehaves, on real sockets."""

from __future__ import annotations

import asyncio
import gc
import random
from typing import TYPE_CHECKING, Any

import pytest

from lance_io.errors import AccessDenied, LanceError, NotFound, StoreError
from lance_io.store.failures import (
    InvalidRange,
    LongBody,
    OutcomeUnknown,
    RangeIgnored,
    ShortRead,
    StoreFailure,
    StoreFull,
    Throttled,
    Transient,
    Unsent,
)
from lance_io.store.s3.bucket import S3Store, open_s3
from lance_io.store.upload import PartUpload
from tests.http_faults import (
    ETAG,
    Answer,
    Asked,
    FaultServer,
    broken_after,
    content_range,
    hang_up,
    head,
    in_chunks,
    serve,
    stall,
    status,
    to_the_end,
    too_long,
    too_long_in_chunks,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

CONTENT = random.Random(1).randbytes(300_000)
SECRET = "very-secret-key"
SILENCE = "2s"  # that is a lost connection; a loaded machine may be silent for a while itself


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries follow at once: jitter draws 0."""
    monkeypatch.setattr("lance_io.store.cloud.cloud_store.random.random", lambda: 0.0)


def store_on(server: FaultServer, **options: str) -> S3Store:
    return open_s3(
        options.pop("bucket", "bucket"),
        {
            "aws_endpoint": server.endpoint,
            "allow_http": "true",
            "aws_access_key_id": "AKIDEXAMPLE",
            "aws_secret_access_key": SECRET,
            **options,
        },
    )


def ok(document: str = "") -> Answer:
    """A right answer, with a document or without."""

    async def answer(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
        content = document.encode()
        writer.write(head(200, {"Content-Length": len(content), "ETag": '"part"'}) + content)

    return answer


async def read(
    script: list[Answer], start: int = 1000, end: int = 200_000, **options: str
) -> tuple[FaultServer, S3Store]:
    """Read a range under a script, check its bytes."""
    async with FaultServer(CONTENT, script) as server:
        store = store_on(server, **options)
        try:
            assert bytes(await store.get_range("key", start, end)) == CONTENT[start:end]
        finally:
            await store.aclose()
        return server, store


async def test_a_broken_body_is_continued_at_the_byte_reached() -> None:
    server, store = await read([broken_after(70_000), broken_after(0), broken_after(5)])
    assert server.asked == [
        "bytes=1000-199999",
        "bytes=71000-199999",
        "bytes=71000-199999",
        "bytes=71005-199999",
    ]
    assert [request.headers.get("if-match") for request in server.requests] == [None, ETAG, ETAG, ETAG]
    counts = store.stats.snapshot()["get"]
    assert (counts.requests, counts.retries, counts.errors, counts.num_bytes) == (4, 3, 3, 199_000)


async def test_a_broken_suffix_and_a_broken_object_are_continued_too() -> None:
    async with FaultServer(CONTENT, [broken_after(10), serve, broken_after(20)]) as server:
        store = store_on(server)
        tail, size_bytes, etag = await store.get_suffix("key", 1000)
        data, _ = await store.get("key")
        await store.aclose()
    assert (bytes(tail), size_bytes, etag, bytes(data)) == (CONTENT[-1000:], 300_000, ETAG, CONTENT)
    assert server.asked == ["bytes=-1000", "bytes=299010-299999", None, "bytes=20-299999"]


async def test_two_halves_of_different_objects_never_meet() -> None:
    async def replaced(server: FaultServer, asked: object, writer: object) -> None:
        server.content, server.etag = CONTENT[::-1], '"v2"'
        await status(412, "PreconditionFailed")(server, asked, writer)

    async with FaultServer(CONTENT, [broken_after(70_000), replaced]) as server:
        store = store_on(server)
        assert bytes(await store.get_range("key", 1000, 200_000)) == CONTENT[::-1][1000:200_000]
        await store.aclose()
    assert server.asked == ["bytes=1000-199999", "bytes=71000-199999", "bytes=1000-199999"]


async def test_lost_connections_and_server_errors_are_tried_again() -> None:
    server, _ = await read([status(500, "InternalError"), hang_up, hang_up, status(400, "RequestTimeout")])
    assert len(server.requests) >= 5  # the HTTP client repeats a request on a stale connection by itself


async def test_silence_is_a_lost_connection() -> None:
    server, _ = await read([stall], request_timeout=SILENCE)
    assert len(server.requests) == 2


REQUESTS: dict[str, Callable[[S3Store], Awaitable[object]]] = {
    "range": lambda store: store.get_range("key", 0, 1000),
    "object": lambda store: store.get("key"),
    "head": lambda store: store.head("key"),
    "put": lambda store: store.put("key", b"content"),
}


@pytest.mark.parametrize("name", ["Retry_After", "retry_after", "RETRY_AFTER"])
@pytest.mark.parametrize("express", ["false", "true"])
@pytest.mark.parametrize("operation", REQUESTS)
async def test_retry_after_is_honoured_however_it_is_spelled(
    operation: str, express: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def sleep(pause_s: float) -> None:
        pauses.append(pause_s)

    def call_later(delay_s: float, callback: Callable[..., object], *arguments: Any) -> asyncio.TimerHandle:
        if callback.__name__ == "_again":  # a reading's pause
            pauses.append(delay_s)
            delay_s = 0.0
        return real(delay_s, callback, *arguments)

    loop = asyncio.get_running_loop()
    real = loop.call_later
    monkeypatch.setattr(loop, "call_later", call_later)
    monkeypatch.setattr("lance_io.store.cloud.cloud_store.asyncio.sleep", sleep)  # any other request's
    script = [status(503, "SlowDown", **{name: "7"}), status(429), ok() if operation == "put" else serve]
    async with FaultServer(CONTENT, script) as server:
        store = store_on(server, s3_express=express)
        await REQUESTS[operation](store)
        await store.aclose()
    assert pauses == [7.0, 0.0]


@pytest.mark.parametrize("operation", ["get", "head"])
async def test_the_throttled_go_ahead_of_those_that_were_not_sent_yet(operation: str) -> None:
    async with FaultServer(CONTENT, [status(503, "SlowDown")]) as server:
        store = store_on(server, requests_max="1")
        await asyncio.gather(*(getattr(store, operation)(key) for key in ("first", "second", "third")))
        await store.aclose()
    keys = [request.line.split()[1].rpartition("/")[2] for request in server.requests]
    assert keys == ["first", "second", "first", "third"]


@pytest.mark.parametrize("if_absent", [False, True])
async def test_a_server_without_room_is_not_asked_again(if_absent: bool) -> None:
    async with FaultServer(CONTENT, [status(507, "XMinioStorageFull", "no free space")] * 9) as server:
        store = store_on(server)
        with pytest.raises(StoreFull, match="no free space") as caught:
            await store.put("key", b"x", if_absent=if_absent)
        await store.aclose()
    assert (len(server.requests), caught.value.retryable, caught.value.status) == (1, False, 507)


async def test_patience_ends() -> None:
    with pytest.raises(Throttled) as caught:
        await read([status(503, "SlowDown", "Please reduce your request rate.")] * 9, client_max_retries="2")
    error = caught.value
    assert (error.attempts, error.status, error.retryable, error.path) == (3, 503, True, "key")
    assert "Please reduce your request rate." in str(error)


@pytest.mark.parametrize(("retries", "requests"), [("0", 1), ("2", 3)])
@pytest.mark.parametrize("express", ["false", "true"])
async def test_answers_may_break_off_only_so_often(retries: str, requests: int, express: str) -> None:
    async with FaultServer(CONTENT, [broken_after(10)] * 9) as server:
        store = store_on(server, download_retry_count=retries, s3_express=express)
        with pytest.raises(Transient, match="broke off"):
            await store.get_range("key", 0, 1000)
        await store.aclose()
    assert len(server.requests) == requests


async def test_answers_that_say_no_are_not_counted_among_those_that_break_off() -> None:
    server, _ = await read([status(500), broken_after(10), status(500), broken_after(10)], download_retry_count="2")
    assert len(server.requests) == 5


@pytest.mark.parametrize("express", ["false", "true"])
async def test_errors_name_the_bucket(express: str) -> None:
    import pickle

    script = [status(404, "NoSuchKey")] * 2 + [status(403, "AccessDenied")] + [status(500)] * 2
    async with FaultServer(CONTENT, script) as server:
        store = store_on(server, bucket="a-bucket", client_max_retries="0", s3_express=express)
        for work in (
            store.get_range("key", 0, 1),
            store.head("key"),
            store.put("key", b"1"),
            store.get("key"),
            store.put("key", b"1", if_absent=True),
        ):
            with pytest.raises(LanceError, match=r"\(bucket a-bucket\)$") as caught:
                await work
            assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
        await store.aclose()


async def test_an_endless_pause_is_not_waited_for() -> None:
    with pytest.raises(Throttled):
        await read([status(503, Retry_After="100000")])


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (whole, RangeIgnored),
        (too_long, LongBody),
        (too_long_in_chunks, LongBody),
        (content_range("bytes 0-198999/300000"), RangeIgnored),
        (content_range("bytes 1000-200000/300000"), RangeIgnored),
        (content_range("nonsense"), RangeIgnored),
        (content_range("bytes 1000-149999/150000"), ShortRead),
        (status(403, "AccessDenied", "no"), AccessDenied),
        (status(401), AccessDenied),
        (status(404, "NoSuchKey"), NotFound),
        (status(404, "NoSuchBucket"), NotFound),
        (status(416, "InvalidRange"), InvalidRange),
        (status(418, "Teapot", "short and stout"), StoreError),
    ],
)
@pytest.mark.parametrize("express", ["false", "true"])
async def test_answers_that_no_retry_can_help(answer: Answer, error: type[LanceError], express: str) -> None:
    async with FaultServer(CONTENT, [answer] * 9) as server:
        store = store_on(server, s3_express=express)
        with pytest.raises(error) as caught:
            await store.get_range("key", 1000, 200_000)
        await store.aclose()
    assert not isinstance(caught.value, Transient)
    assert caught.value.path == "key"
    assert len(server.requests) == 1


@pytest.mark.parametrize("script", [[broken_after(70_000)], [hang_up, hang_up], [status(503)], [broken_after(0)]])
@pytest.mark.parametrize("express", ["true"])
async def test_the_other_ways_recover_too(script: list[Answer], express: str) -> None:
    await read(script, s3_express=express)


@pytest.mark.parametrize("express", ["false", "true"])
@pytest.mark.parametrize("chunk_bytes", [1000, 300_000])
async def test_answers_in_chunks_are_read_whole_and_in_part(chunk_bytes: int, express: str) -> None:
    chunks = in_chunks(chunk_bytes)
    async with FaultServer(CONTENT, [chunks] * 9) as server:
        store = store_on(server, s3_express=express)
        data, meta = await store.get("key")
        assert (bytes(data), meta.size_bytes, meta.etag) == (CONTENT, len(CONTENT), ETAG)
        assert bytes(await store.get_range("key", 1000, 200_000)) == CONTENT[1000:200_000]
        tail, size_bytes, etag = await store.get_suffix("key", 1000)
        assert (bytes(tail), size_bytes, etag) == (CONTENT[-1000:], len(CONTENT), ETAG)
        server.content = b""
        data, meta = await store.get("key")
        assert (bytes(data), meta.size_bytes) == (b"", 0)
        await store.aclose()
    assert len(server.requests) == 4


@pytest.mark.parametrize("express", ["false", "true"])
@pytest.mark.parametrize("then", [in_chunks(7000), serve, in_chunks(300_000, 250_000)])
async def test_an_object_in_chunks_that_breaks_off_is_never_taken_for_all_of_it(then: Answer, express: str) -> None:
    async with FaultServer(CONTENT, [in_chunks(1000, 100_000), in_chunks(1000, 0), then]) as server:
        store = store_on(server, s3_express=express)
        data, meta = await store.get("key")
        await store.aclose()
    assert (bytes(data), meta.size_bytes) == (CONTENT, len(CONTENT))
    assert set(server.asked) == {None}


async def test_an_object_in_chunks_that_is_late_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second request wins, whatever had come of the first answer."""
    monkeypatch.setattr("lance_io.store.policies.hedge.Hedging.patience_s", lambda *_: 0.01)
    monkeypatch.setattr("lance_io.store.policies.hedge.Hedging.spend", lambda _: True)
    async with FaultServer(CONTENT, [stall, in_chunks(1000)]) as server:
        store = store_on(server)
        data, meta = await store.get("key")
        await store.aclose()
    assert (bytes(data), meta.size_bytes) == (CONTENT, len(CONTENT))


@pytest.mark.parametrize("express", ["false", "true"])
async def test_an_object_whose_end_nobody_tells_is_refused(express: str) -> None:
    """Without a length and without chunks a connection that is lost looks like the end of the object."""
    async with FaultServer(CONTENT, [to_the_end] * 9) as server:
        store = store_on(server, s3_express=express)
        with pytest.raises(StoreFailure, match="content-length"):
            await store.get("key")
        assert bytes(await store.get_range("key", 1000, 200_000)) == CONTENT[1000:200_000]
        await store.aclose()


async def test_nobody_listens() -> None:
    async with FaultServer(CONTENT) as server:
        pass
    store = store_on(server, client_max_retries="1")
    for work in (
        store.get_range("k", 0, 1),
        store.head("k"),
        store.put("k", b"1"),
        store.put("k", b"1", if_absent=True),
    ):
        with pytest.raises(Transient) as caught:
            await work
        assert caught.value.retryable
    await store.aclose()


async def test_a_conditional_write_is_sent_once() -> None:
    async with FaultServer(CONTENT, [status(503, "SlowDown")] * 9) as server:
        store = store_on(server)
        with pytest.raises(OutcomeUnknown) as caught:
            await store.put("key", b"data", if_absent=True)
        assert (len(server.requests), caught.value.status) == (1, 503)
        with pytest.raises(Throttled):
            await store.put("key", b"data")
        await store.aclose()
    assert len(server.requests) == 9


@pytest.mark.parametrize("answer", [hang_up, stall, status(500, "InternalError"), status(408)])
@pytest.mark.parametrize("condition", [{"if_absent": True}, {"if_match": ETAG}])
async def test_an_undecided_write_is_sent_once_and_said_to_be_undecided(
    answer: Answer, condition: dict[str, Any]
) -> None:
    """Also on a connection that served before: the HTTP client would repeat a PUT there by itself."""
    async with FaultServer(CONTENT, [ok(), answer, status(412, "PreconditionFailed")]) as server:
        store = store_on(server, request_timeout=SILENCE)
        await store.put("key", b"data")
        with pytest.raises(OutcomeUnknown, match="unknown whether this write was applied") as caught:
            await store.put("key", b"data", **condition)
        await store.aclose()
    assert (len(server.requests), caught.value.retryable, caught.value.path) == (2, True, "key")


async def test_a_write_that_was_never_sent_is_no_riddle() -> None:
    async with FaultServer(CONTENT) as server:
        pass
    store = store_on(server, client_max_retries="2")
    with pytest.raises(Unsent) as caught:
        await store.put("key", b"1", if_absent=True)
    assert (caught.value.attempts, isinstance(caught.value, OutcomeUnknown)) == (3, False)
    await store.aclose()


@pytest.mark.parametrize("num_bytes", [3, 2_000_000])
async def test_a_write_is_one_round_trip(num_bytes: int) -> None:
    """Without "Expect: 100-continue", which asks first and sends then."""
    async with FaultServer(CONTENT, [ok()]) as server:
        store = store_on(server)
        await store.put("key", bytes(num_bytes))
        await store.aclose()
    assert "expect" not in server.requests[0].headers
    assert server.requests[0].body == bytes(num_bytes)


async def test_a_refused_header_is_a_certain_answer() -> None:
    async with FaultServer(CONTENT, [status(501, "NotImplemented")]) as server:
        store = store_on(server)
        with pytest.raises(StoreFailure) as caught:
            await store.put("key", b"data", if_absent=True)
        await store.aclose()
    assert (caught.value.status, isinstance(caught.value, Transient)) == (501, False)


# -- uploads ----------------------------------------------------------------------------------------------------------


STARTED = ok("<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>")
COMPLETED = ok("<CompleteMultipartUploadResult><ETag>&quot;x-2&quot;</ETag></CompleteMultipartUploadResult>")
GONE = status(404, "NoSuchUpload")


async def upload(script: list[Answer], **how: Any) -> tuple[list[str], Any]:
    """Upload two parts under a script: what was asked, and the result or the error."""
    async with FaultServer(CONTENT, script) as server:
        store = store_on(server, request_timeout=SILENCE, client_max_retries="2")
        writing = PartUpload(store, "key", part_bytes=200_000, parts_in_flight=1, **how)
        try:
            await writing.write([CONTENT])
            result: Any = await writing.close()
        except LanceError as error:
            result = error
        await store.aclose()
    names = {"POST /bucket/key?uploads": "start", "POST /bucket/key?uploadId=u1": "complete"}
    names |= {"DELETE /bucket/key?uploadId=u1": "abort", "HEAD /bucket/key": "head"}
    lines = [request.line.removesuffix(" HTTP/1.1") for request in server.requests]
    return [names.get(line, "part" if "partNumber" in line else line) for line in lines], result


async def test_a_lost_part_is_sent_again() -> None:
    asked, meta = await upload([STARTED, hang_up, ok(), stall, status(503, "SlowDown"), ok(), COMPLETED])
    assert asked == ["start", "part", "part", "part", "part", "part", "complete"]
    assert (meta.size_bytes, meta.etag) == (300_000, '"x-2"')


async def test_a_refused_part_ends_the_upload() -> None:
    asked, error = await upload([STARTED, ok(), status(403, "AccessDenied"), ok()])
    assert asked == ["start", "part", "part", "abort"]
    assert isinstance(error, AccessDenied)


async def test_patience_with_a_part_ends_too() -> None:
    asked, error = await upload([STARTED, *[hang_up] * 3, ok()])
    assert asked == ["start", "part", "part", "part", "abort"]
    assert isinstance(error, Transient) and error.attempts == 3


async def test_a_lost_answer_to_the_end_is_looked_up() -> None:
    asked, meta = await upload([STARTED, ok(), ok(), hang_up, GONE, serve])
    assert asked == ["start", "part", "part", "complete", "complete", "head"]
    assert (meta.size_bytes, meta.etag) == (300_000, ETAG)


async def test_an_object_of_somebody_else_is_not_taken_for_ours() -> None:
    async def other(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(head(200, {"Content-Length": 299_999, "ETag": ETAG}))

    asked, error = await upload([STARTED, ok(), ok(), hang_up, GONE, other, ok()])
    assert asked[-2:] == ["head", "abort"]
    assert isinstance(error, StoreFailure) and "not its result" in str(error)


async def test_an_undecided_end_of_a_creation_is_said_to_be_undecided() -> None:
    asked, error = await upload([STARTED, ok(), ok(), hang_up, ok()], if_absent=True)
    assert asked == ["start", "part", "part", "complete", "abort"]
    assert isinstance(error, OutcomeUnknown)


async def test_an_upload_that_cannot_begin() -> None:
    asked, error = await upload([status(403, "AccessDenied")])
    assert (asked, type(error)) == (["start"], AccessDenied)


# ---------------------------------------------------------------------------------------------------------------------


async def test_a_conflict_is_told_from_a_winner() -> None:
    from lance_io.errors import AlreadyExists
    from lance_io.store.failures import ConflictRetry

    async with FaultServer(
        b"", [status(409, "ConditionalRequestConflict"), status(412, "PreconditionFailed")]
    ) as server:
        store = store_on(server)
        with pytest.raises(ConflictRetry):
            await store.put("key", b"data", if_absent=True)
        with pytest.raises(AlreadyExists):
            await store.put("key", b"data", if_absent=True)
        await store.aclose()


async def test_cancelling_closes_the_connection_and_frees_the_slot() -> None:
    async with FaultServer(CONTENT, [stall]) as server:
        store = store_on(server)
        reading = asyncio.create_task(store.get_range("key", 0, 10))
        await server.arrived.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert store.stats.in_flight == 0
        assert bytes(await store.get_range("key", 0, 10)) == CONTENT[:10]
        await store.aclose()


async def test_a_request_that_is_made_again_after_closing_leaves_no_client_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The store is closed while it pauses; what it opens then belongs to the store again, and is closed with it."""
    pausing, go_on = asyncio.Event(), asyncio.Event()

    async def sleep(_: float) -> None:
        pausing.set()
        await go_on.wait()

    monkeypatch.setattr("lance_io.store.cloud.cloud_store.asyncio.sleep", sleep)
    async with FaultServer(CONTENT, [status(500)]) as server:
        store = store_on(server)
        asking = asyncio.create_task(store.head("key"))
        await pausing.wait()
        await store.aclose()
        go_on.set()
        assert (await asking).size_bytes == len(CONTENT)
        (opened,) = store._loops.values()
        assert opened.state._client is not None
        await store.aclose()
        assert not store._loops
    gc.collect()  # a client that is still open warns, which is an error here


@pytest.mark.parametrize(
    "script", [[status(403, "SignatureDoesNotMatch", f"your key AKIDEXAMPLE {SECRET} is wrong")], [whole]]
)
@pytest.mark.parametrize("express", ["false", "true"])
async def test_no_credential_shows(script: list[Answer], express: str, caplog: pytest.LogCaptureFixture) -> None:
    import logging
    import pickle
    import traceback

    caplog.set_level(logging.INFO)
    async with FaultServer(CONTENT, script * 9) as server:
        store = store_on(server, aws_session_token="token-secret", s3_express=express)
        with pytest.raises(LanceError) as caught:
            await store.get_range("key", 0, 10)
        await store.aclose()
    error = caught.value
    shown = "".join(traceback.format_exception(error)) + repr(error) + repr(store) + repr(store.options) + caplog.text
    shown += repr(pickle.dumps(error)) + repr(vars(error))
    for secret in (SECRET, "token-secret", "AKIDEXAMPLE"):
        assert secret not in shown
