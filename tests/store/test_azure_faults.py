"""What a store in Azure does when the network or the service misbehaves, on real sockets."""

from __future__ import annotations

import asyncio
import gc
import logging
import pickle
import random
import traceback
from typing import TYPE_CHECKING, Any

import pytest

from lance_io.errors import AccessDenied, AlreadyExists, LanceError, NotFound, StoreError
from lance_io.store.azure.container import AzureStore, open_azure
from lance_io.store.failures import (
    ConflictRetry,
    InvalidRange,
    LongBody,
    OutcomeUnknown,
    PreconditionFailed,
    RangeIgnored,
    ShortRead,
    StoreFailure,
    Throttled,
    Transient,
    Unsent,
)
from lance_io.store.policies.logical_read import RetryPolicy
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
    serve,
    stall,
    too_long,
    too_long_in_chunks,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

CONTENT = random.Random(1).randbytes(300_000)
KEY = "dmVyeS1zZWNyZXQta2V5"
SIGNATURE = "c2lnbmF0dXJl%2BB"
SAS = f"sv=2023-11-03&sp=rwdl&sig={SIGNATURE}"
SILENCE = "2s"  # that is a lost connection; a loaded machine may be silent for a while itself
DATE = "Tue, 24 Nov 2026 10:00:00 GMT"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries follow at once: jitter draws 0."""
    monkeypatch.setattr("lance_io.store.cloud.cloud_store.random.random", lambda: 0.0)


def store_on(server: FaultServer, **options: str) -> AzureStore:
    credentials = {} if {"sas_token", "skip_signature"} & options.keys() else {"account_key": KEY}
    where = {"azure_endpoint": f"{server.endpoint}/account", "account_name": "account", "allow_http": "true"}
    return open_azure(options.pop("container", "container"), {**where, **credentials, **options})


def status(code: int, name: str = "", message: str = "", **headers: str) -> Answer:
    """A refusal in Azure's manner."""

    async def answer(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
        text = f"<?xml version='1.0'?><Error><Code>{name}</Code><Message>{message}</Message></Error>"
        body = b"" if asked.line.startswith("HEAD ") else b"\xef\xbb\xbf" + text.encode()
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        told = {"x-ms-error-code": name} if name else {}
        writer.write(head(code, {"Content-Length": len(body), "Content-Type": "application/xml", **told, **named}))
        writer.write(body)

    return answer


def ok(code: int = 201) -> Answer:
    """A right answer without a document."""

    async def answer(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(head(code, {"Content-Length": 0, "ETag": '"written"', "Last-Modified": DATE}))

    return answer


async def read(
    script: list[Answer], start: int = 1000, end: int = 200_000, **options: str
) -> tuple[FaultServer, AzureStore]:
    """Read a range under a script, check its bytes."""
    async with FaultServer(CONTENT, script) as server:
        store = store_on(server, **options)
        try:
            assert bytes(await store.get_range("key", start, end)) == CONTENT[start:end]
        finally:
            await store.aclose()
        return server, store


# -- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"sas_token": SAS}, {"skip_signature": "true"}], ids=["key", "sas", "anonymous"]
)
async def test_a_broken_body_is_continued_at_the_byte_reached(options: dict[str, str]) -> None:
    server, store = await read([broken_after(70_000), broken_after(0), broken_after(5)], **options)
    assert server.asked == [
        "bytes=1000-199999",
        "bytes=71000-199999",
        "bytes=71000-199999",
        "bytes=71005-199999",
    ]
    assert [request.headers.get("if-match") for request in server.requests] == [None, ETAG, ETAG, ETAG]
    counts = store.stats.snapshot()["get"]
    assert (counts.requests, counts.retries, counts.errors, counts.num_bytes) == (4, 3, 3, 199_000)


async def test_the_end_of_an_object_is_read_from_its_beginning() -> None:
    async with FaultServer(CONTENT) as server:
        store = store_on(server)
        for num_bytes in (1000, 200_000, 300_000, 400_000):
            tail, size_bytes, etag = await store.get_suffix("key", num_bytes)
            assert (bytes(tail), size_bytes, etag) == (CONTENT[-num_bytes:], 300_000, ETAG)
        await store.aclose()
    assert server.asked == [
        *("bytes=0-999", "bytes=299000-299999"),
        *("bytes=0-199999", "bytes=200000-299999"),
        "bytes=0-299999",
        "bytes=0-399999",
    ]


async def test_the_end_of_an_object_that_is_replaced_is_of_one_object() -> None:
    async def replaced(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
        server.content, server.etag = CONTENT[::-1], '"v2"'
        await serve(server, asked, writer)

    async with FaultServer(CONTENT, [serve, replaced]) as server:
        store = store_on(server)
        tail, _, etag = await store.get_suffix("key", 1000)
        await store.aclose()
    assert (bytes(tail), etag, len(server.asked)) == (CONTENT[::-1][-1000:], '"v2"', 4)


async def test_two_halves_of_different_objects_never_meet() -> None:
    async def replaced(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
        server.content, server.etag = CONTENT[::-1], '"v2"'
        await status(412, "ConditionNotMet")(server, asked, writer)

    async with FaultServer(CONTENT, [broken_after(70_000), replaced]) as server:
        store = store_on(server)
        assert bytes(await store.get_range("key", 1000, 200_000)) == CONTENT[::-1][1000:200_000]
        await store.aclose()
    assert server.asked == ["bytes=1000-199999", "bytes=71000-199999", "bytes=1000-199999"]


async def test_lost_connections_and_server_errors_are_tried_again() -> None:
    server, _ = await read([status(500, "InternalError"), hang_up, hang_up, status(500, "OperationTimedOut")])
    assert len(server.requests) == 5


async def test_silence_is_a_lost_connection() -> None:
    server, _ = await read([stall], request_timeout=SILENCE)
    assert len(server.requests) == 2


REQUESTS: dict[str, Callable[[AzureStore], Awaitable[object]]] = {
    "range": lambda store: store.get_range("key", 0, 1000),
    "object": lambda store: store.get("key"),
    "head": lambda store: store.head("key"),
    "put": lambda store: store.put("key", b"content"),
}


@pytest.mark.parametrize("operation", REQUESTS)
async def test_retry_after_is_honoured(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float | None] = []

    def pause_s(_: RetryPolicy, attempts: int, elapsed_s: float, fraction: float, asked_s: float | None) -> float:
        pauses.append(asked_s)
        return 0.0

    monkeypatch.setattr(RetryPolicy, "pause_s", pause_s)
    script = [status(503, "ServerBusy", Retry_After="7"), status(429), ok() if operation == "put" else serve]
    async with FaultServer(CONTENT, script) as server:
        store = store_on(server)
        await REQUESTS[operation](store)
        await store.aclose()
    assert pauses == [7.0, None]


async def test_patience_ends() -> None:
    with pytest.raises(Throttled) as caught:
        await read([status(503, "ServerBusy", "The server is busy.")] * 9, client_max_retries="2")
    error = caught.value
    assert (error.attempts, error.status, error.retryable, error.path) == (3, 503, True, "key")
    assert "The server is busy." in str(error)


async def test_errors_name_the_container() -> None:
    script = [status(404, "BlobNotFound")] * 2 + [status(403, "AuthorizationFailure")] + [status(500)] * 2
    async with FaultServer(CONTENT, script) as server:
        store = store_on(server, container="a-container", client_max_retries="0")
        for work in (
            store.get_range("key", 0, 1),
            store.head("key"),
            store.put("key", b"1"),
            store.get("key"),
            store.put("key", b"1", if_absent=True),
        ):
            with pytest.raises(LanceError, match=r"\(bucket a-container\)$") as caught:
                await work
            assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
        await store.aclose()


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
        (status(403, "AuthenticationFailed", "no"), AccessDenied),
        (status(401, "NoAuthenticationInformation"), AccessDenied),
        (status(404, "BlobNotFound"), NotFound),
        (status(404, "ContainerNotFound"), NotFound),
        (status(416, "InvalidRange"), InvalidRange),
        (status(418, "Teapot", "short and stout"), StoreError),
    ],
    ids=range(13),
)
async def test_answers_that_no_retry_can_help(answer: Answer, error: type[LanceError]) -> None:
    async with FaultServer(CONTENT, [answer] * 9) as server:
        store = store_on(server)
        with pytest.raises(error) as caught:
            await store.get_range("key", 1000, 200_000)
        await store.aclose()
    assert not isinstance(caught.value, Transient)
    assert caught.value.path == "key"
    assert len(server.requests) == 1


# -- writing ----------------------------------------------------------------------------------------------------------


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
    async with FaultServer(CONTENT, [status(503, "ServerBusy")] * 9) as server:
        store = store_on(server)
        with pytest.raises(OutcomeUnknown) as caught:
            await store.put("key", b"data", if_absent=True)
        assert (len(server.requests), caught.value.status) == (1, 503)
        with pytest.raises(Throttled):
            await store.put("key", b"data")
        await store.aclose()
    assert len(server.requests) == 9


@pytest.mark.parametrize("answer", [hang_up, stall, status(500, "InternalError"), status(408)], ids=range(4))
@pytest.mark.parametrize("condition", [{"if_absent": True}, {"if_match": ETAG}], ids=["create", "replace"])
async def test_an_undecided_write_is_sent_once_and_said_to_be_undecided(
    answer: Answer, condition: dict[str, Any]
) -> None:
    """Also on a connection that served before: the HTTP client would repeat a PUT there by itself."""
    async with FaultServer(CONTENT, [ok(), answer, status(409, "BlobAlreadyExists")]) as server:
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
    async with FaultServer(CONTENT, [ok()]) as server:
        store = store_on(server)
        await store.put("key", bytes(num_bytes))
        await store.aclose()
    (request,) = server.requests
    assert "expect" not in request.headers
    assert (request.line, request.body) == ("PUT /account/container/key HTTP/1.1", bytes(num_bytes))


@pytest.mark.parametrize(
    ("code", "name", "condition", "error"),
    [
        (409, "BlobAlreadyExists", {"if_absent": True}, AlreadyExists),
        (412, "ConditionNotMet", {"if_absent": True}, AlreadyExists),
        (412, "ConditionNotMet", {"if_match": ETAG}, PreconditionFailed),
        (409, "ContainerBeingDeleted", {"if_absent": True}, ConflictRetry),
        (409, "BlobImmutableDueToPolicy", {}, StoreFailure),
        (501, "NotImplemented", {"if_absent": True}, StoreFailure),
        (404, "ContainerNotFound", {"if_absent": True}, NotFound),
    ],
)
async def test_certain_answers_to_writes(
    code: int, name: str, condition: dict[str, Any], error: type[LanceError]
) -> None:
    async with FaultServer(b"", [status(code, name)]) as server:
        store = store_on(server)
        with pytest.raises(error) as caught:
            await store.put("key", b"data", **condition)
        await store.aclose()
    assert (type(caught.value), len(server.requests)) == (error, 1)


async def upload(script: list[Answer], **how: Any) -> tuple[list[str], Any]:
    """Upload two blocks under a script: what was asked, and the result or the error."""
    async with FaultServer(CONTENT, script) as server:
        store = store_on(server, request_timeout=SILENCE, client_max_retries="2")
        writing = PartUpload(store, "key", part_bytes=200_000, parts_in_flight=1, **how)
        try:
            await writing.write([CONTENT])
            result: Any = await writing.close()
        except LanceError as error:
            result = error
        await store.aclose()
    kinds = {"comp=block": "block", "comp=blocklist": "list"}
    queries = [request.line.split()[1].partition("?")[2].split("&") for request in server.requests]
    return [next(kinds[part] for part in query if part in kinds) for query in queries], result


async def test_a_lost_block_is_sent_again() -> None:
    asked, meta = await upload([hang_up, ok(), stall, status(503, "ServerBusy"), ok(), ok()])
    assert asked == ["block", "block", "block", "block", "block", "list"]
    assert (meta.size_bytes, meta.etag) == (300_000, '"written"')


async def test_a_refused_block_ends_the_upload() -> None:
    asked, error = await upload([ok(), status(403, "AuthorizationFailure")])
    assert (asked, type(error)) == (["block", "block"], AccessDenied)


async def test_a_lost_answer_to_the_end_is_asked_for_again() -> None:
    """The same list of blocks once more is the same blob."""
    asked, meta = await upload([ok(), ok(), hang_up, ok()])
    assert (asked, meta.size_bytes) == (["block", "block", "list", "list"], 300_000)


async def test_an_undecided_end_of_a_creation_is_said_to_be_undecided() -> None:
    asked, error = await upload([ok(), ok(), hang_up, ok()], if_absent=True)
    assert (asked, type(error)) == (["block", "block", "list"], OutcomeUnknown)


async def test_of_many_deletes_the_first_that_fails_is_told() -> None:
    async def answer(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
        refused = asked.line.split()[1].endswith("/3")
        await (status(403, "AuthorizationFailure") if refused else ok(202))(server, asked, writer)

    async with FaultServer(b"", [answer] * 99) as server:
        store = store_on(server)
        with pytest.raises(AccessDenied) as caught:
            await store.delete(str(number) for number in range(50))
        assert (caught.value.path, store.stats.in_flight) == ("3", 0)
        await store.delete(["1", "1", "2"])
        assert len([request for request in server.requests[-2:] if request.line.startswith("DELETE ")]) == 2
        await store.aclose()


# -- the rest ---------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("operation", ["put", "head", "list", "delete"])
async def test_cancelling_any_other_request_frees_its_slot(operation: str) -> None:
    async with FaultServer(CONTENT, [stall]) as server:
        store = store_on(server, requests_max="1")

        async def work() -> None:
            if operation == "put":
                await store.put("key", b"1")
            elif operation == "head":
                await store.head("key")
            elif operation == "delete":
                await store.delete(["1", "2"])
            else:
                _ = [meta async for meta in store.list("")]

        working = asyncio.create_task(work())
        await server.arrived.wait()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert store.stats.in_flight == 0
        assert (await store.head("key")).size_bytes == len(CONTENT)
        await store.aclose()


async def test_a_request_that_is_made_again_after_closing_leaves_no_client_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The store is closed while it pauses; what it opens then belongs to the store again, and is closed with it."""
    pausing, go_on = asyncio.Event(), asyncio.Event()

    async def pause(*_: object, may_retry: bool) -> None:
        pausing.set()
        await go_on.wait()

    monkeypatch.setattr(AzureStore, "_pause", pause)
    async with FaultServer(CONTENT, [status(500)]) as server:
        store = store_on(server)
        asking = asyncio.create_task(store.head("key"))
        await pausing.wait()
        await store.aclose()
        go_on.set()
        assert (await asking).size_bytes == len(CONTENT)
        await store.aclose()
        assert not store._loops
    gc.collect()  # a client that is still open warns, which is an error here


@pytest.mark.parametrize("options", [{}, {"sas_token": SAS}], ids=["key", "sas"])
async def test_no_credential_shows(options: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    secret = SIGNATURE if options else KEY
    told = f"your {secret} is wrong"
    async with FaultServer(CONTENT, [status(403, "AuthenticationFailed", told)] * 9) as server:
        store = store_on(server, **options)
        shown = ""
        for work in (store.get_range("key", 0, 10), store.put("key", b"1"), store.copy("key", "other")):
            with pytest.raises(LanceError) as caught:
                await work
            error = caught.value
            shown += "".join(traceback.format_exception(error)) + repr(error) + repr(pickle.dumps(error))
            shown += repr(vars(error))
        await store.aclose()
    shown += repr(store) + repr(store.options) + caplog.text
    assert secret not in shown
