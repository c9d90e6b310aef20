"""What the store of Google Cloud Storage does when the network or the service misbehaves, on real sockets."""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from lance_io.errors import AccessDenied, AlreadyExists, LanceError, NotFound, UsageError
from lance_io.store.api import Selection
from lance_io.store.failures import (
    InvalidRange,
    OutcomeUnknown,
    PreconditionFailed,
    StoreFailure,
    Throttled,
    Transient,
    Unsent,
)
from lance_io.store.gcs.gcs_store import GcsStore, open_gcs
from lance_io.store.gcs.resumable import STEP_BYTES
from lance_io.store.upload import PartUpload
from tests.http_faults import Answer, Asked, FaultServer, broken_after, hang_up, head, stall, status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

CONTENT = random.Random(1).randbytes(300_000)
TOKEN = "very-secret-token"
RESOURCE = {"name": "key", "size": "5", "generation": "17", "updated": "2026-11-25T17:05:20.172718Z"}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries follow at once: jitter draws 0."""
    monkeypatch.setattr("lance_io.store.cloud.cloud_store.random.random", lambda: 0.0)


def store_on(server: FaultServer, **options: str) -> GcsStore:
    known = {"google_base_url": server.endpoint, "allow_http": "true", "google_storage_token": TOKEN}
    return open_gcs("bucket", {**known, **options})


def told(code: int, document: object = RESOURCE, **headers: str) -> Answer:
    """An answer of the JSON API."""

    async def answer(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
        body = b"" if document is None else json.dumps(document).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        writer.write(head(code, {"Content-Length": len(body), **named}) + body)

    return answer


def refused(code: int, reason: str = "", message: str = "", **headers: str) -> Answer:
    """A refusal of the JSON API."""
    error = {"code": code, "message": message, "errors": [{"reason": reason, "message": message}]}
    return told(code, {"error": error}, **headers)


def kept(num_bytes: int) -> Answer:
    """So much of an upload is there."""
    return told(308, None, **({"Range": f"bytes=0-{num_bytes - 1}"} if num_bytes else {}))


def query_of(asked: Asked) -> dict[str, list[str]]:
    return parse_qs(urlsplit(asked.line.split(" ")[1]).query)


async def try_on(
    script: list[Answer], work: Callable[[GcsStore], Awaitable[Any]], **options: str
) -> tuple[FaultServer, GcsStore, Any]:
    """What comes of something under a script: a result or an error."""
    async with FaultServer(CONTENT, script) as server:
        store = store_on(server, **options)
        try:
            found = await work(store)
        except LanceError as error:
            found = error
        finally:
            await store.aclose()
        return server, store, found


async def test_a_broken_body_is_continued_at_the_byte_reached() -> None:
    script = [broken_after(70_000), broken_after(0), hang_up, refused(503), refused(429)]
    server, store, found = await try_on(script, lambda store: store.get_range("a/key", 1000, 200_000))
    assert bytes(found) == CONTENT[1000:200_000]
    assert server.asked == ["bytes=1000-199999", *["bytes=71000-199999"] * 5]
    assert {request.line for request in server.requests} == {"GET /storage/v1/b/bucket/o/a%2Fkey?alt=media HTTP/1.1"}
    assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {TOKEN}"}
    assert [request.headers.get("if-match") for request in server.requests] == [None, *[server.etag] * 5]
    assert store.stats.snapshot()["get"].retries == 5


async def test_two_halves_of_different_objects_never_meet() -> None:
    async def replaced(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
        server.content, server.etag = CONTENT[::-1], '"v2"'
        await status(412)(server, asked, writer)

    script = [broken_after(1000), replaced]
    server, _, found = await try_on(script, lambda store: store.get_range("key", 0, 5000))
    assert bytes(found) == CONTENT[::-1][:5000]
    assert server.asked == ["bytes=0-4999", "bytes=1000-4999", "bytes=0-4999"]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (refused(404, "notFound"), NotFound),
        (refused(403, "forbidden"), AccessDenied),
        (refused(401, "authError"), AccessDenied),
        (refused(403, "rateLimitExceeded"), Throttled),
        (refused(429, "rateLimitExceeded"), Throttled),
        (refused(503), Throttled),
        (refused(500), Transient),
        (refused(408), Transient),
        (status(416, "InvalidRange"), InvalidRange),
        (refused(400, "invalid", "this is invalid"), StoreFailure),
        (told(200, "not what was asked"), StoreFailure),
        (told(400, [1]), StoreFailure),
        (hang_up, Transient),
    ],
)
@pytest.mark.parametrize("what", ["get", "head", "list", "copy"])
async def test_refusals_are_errors_of_ours(answer: Answer, kind: type[LanceError], what: str) -> None:
    async def all_of(store: GcsStore) -> list[Any]:
        return [meta async for meta in store.list("some/")]

    work: dict[str, Callable[[GcsStore], Awaitable[Any]]] = {
        "get": lambda store: store.get_range("some/key", 10, 20),
        "head": lambda store: store.head("some/key"),
        "list": all_of,
        "copy": lambda store: store.copy("some/key", "some/other"),
    }
    _, store, found = await try_on([answer], work[what], client_max_retries="0")
    assert isinstance(found, (kind, StoreFailure)), found
    if kind is not StoreFailure:
        assert isinstance(found, kind)
    assert TOKEN not in str(found) and TOKEN not in repr(store)
    assert "bucket" in str(found)


async def test_a_pause_that_is_asked_for_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = []
    sleep = asyncio.sleep

    async def noted(pause_s: float) -> None:
        pauses.append(pause_s)
        await sleep(0)

    monkeypatch.setattr("lance_io.store.cloud.cloud_store.asyncio.sleep", noted)
    _, _, found = await try_on([refused(503, Retry_After="7"), told(200)], lambda store: store.head("key"))
    assert (found.size_bytes, found.etag, pauses) == (5, "17", [7.0])


# -- writes that decide -----------------------------------------------------------------------------------------------


async def put_new(store: GcsStore) -> Any:
    return await store.put("key", b"12345", if_absent=True)


@pytest.mark.parametrize("answer", [hang_up, refused(503), refused(429), refused(500), broken_after(0), told(200, [])])
async def test_a_create_without_an_answer_is_sent_once(answer: Answer) -> None:
    server, store, found = await try_on([answer, told(200)], put_new)
    assert isinstance(found, OutcomeUnknown), found
    assert len(server.requests) == 1
    assert query_of(server.requests[0])["ifGenerationMatch"] == ["0"]
    assert server.requests[0].body == b"12345"
    assert store.stats.snapshot()["put_create"].requests == 1


async def test_a_create_that_comes_second_and_a_swap_that_does() -> None:
    _, _, found = await try_on([refused(412, "conditionNotMet")], put_new)
    assert isinstance(found, AlreadyExists)
    server, _, found = await try_on(
        [refused(412, "conditionNotMet")], lambda store: store.put("key", b"1", if_match="17")
    )
    assert isinstance(found, PreconditionFailed)
    assert query_of(server.requests[0])["ifGenerationMatch"] == ["17"]
    _, _, found = await try_on([], lambda store: store.put("key", b"1", if_match='"abc"'))
    assert isinstance(found, UsageError)


async def test_a_create_without_a_connection_is_made_again() -> None:
    async with FaultServer(CONTENT) as server:
        store = store_on(server, client_max_retries="1")
    with pytest.raises(Unsent) as caught:  # nobody listens any more
        await put_new(store)
    assert caught.value.attempts == 2
    await store.aclose()


async def test_a_plain_put_is_made_again() -> None:
    server, _, found = await try_on([hang_up, refused(500), told(200)], lambda store: store.put("key", b"12345"))
    assert (found.etag, len(server.requests)) == ("17", 3)
    assert {request.body for request in server.requests} == {b"12345"}


# -- uploads in parts -------------------------------------------------------------------------------------------------


@pytest.fixture
async def begun() -> AsyncIterator[Callable[..., Awaitable[Any]]]:
    """Begins an upload under a script."""
    open_ones: list[tuple[FaultServer, GcsStore]] = []

    async def begin(*script: Answer, if_absent: bool = False) -> tuple[FaultServer, Any]:
        server = FaultServer(CONTENT)
        await server.start()
        store = store_on(server)
        open_ones.append((server, store))
        server.script = [told(200, None, Location=f"{server.endpoint}/upload/session?upload_id={TOKEN}"), *script]
        return server, await store.put_multipart("key", if_absent=if_absent)

    yield begin
    for server, store in open_ones:
        await store.aclose()
        server.closing.set()
        await server.stop()


STEP = bytes(STEP_BYTES)


async def test_parts_go_one_after_the_other_in_whole_steps(begun: Any) -> None:
    server, upload = await begun(kept(STEP_BYTES), kept(2 * STEP_BYTES), kept(3 * STEP_BYTES), told(200))
    await asyncio.gather(upload.write_part(1, STEP_BYTES + 10, STEP + b"1"), upload.write_part(0, 0, STEP + b"0" * 10))
    await upload.write_part(2, 2 * STEP_BYTES + 11, STEP[11:] + b"2")
    meta = await upload.complete()
    assert (meta.size_bytes, meta.etag) == (3 * STEP_BYTES + 1, "17")
    spans = [request.headers["content-range"] for request in server.requests[1:]]
    assert spans == [
        f"bytes 0-{STEP_BYTES - 1}/*",
        f"bytes {STEP_BYTES}-{2 * STEP_BYTES - 1}/*",
        f"bytes {2 * STEP_BYTES}-{3 * STEP_BYTES - 1}/*",
        f"bytes {3 * STEP_BYTES}-{3 * STEP_BYTES}/{3 * STEP_BYTES + 1}",
    ]


async def test_a_part_whose_answer_is_lost_goes_on_where_the_store_is(begun: Any) -> None:
    server, upload = await begun(hang_up, kept(STEP_BYTES), kept(2 * STEP_BYTES), told(200))
    await upload.write_part(0, 0, STEP + STEP)
    await upload.complete()
    spans = [request.headers["content-range"] for request in server.requests[1:]]
    assert spans == [
        f"bytes 0-{2 * STEP_BYTES - 1}/*",
        "bytes */*",
        f"bytes {STEP_BYTES}-{2 * STEP_BYTES - 1}/*",
        f"bytes */{2 * STEP_BYTES}",
    ]
    assert len(server.requests[3].body) == STEP_BYTES


async def test_what_was_kept_in_part_is_sent_on(begun: Any) -> None:
    server, upload = await begun(kept(STEP_BYTES), kept(2 * STEP_BYTES))
    await upload.write_part(0, 0, STEP + STEP)
    assert [len(request.body) for request in server.requests[1:]] == [2 * STEP_BYTES, STEP_BYTES]


async def test_an_end_whose_answer_is_lost_is_looked_up(begun: Any) -> None:
    server, upload = await begun(hang_up, told(200))
    await upload.write_part(0, 0, b"12345")
    meta = await upload.complete()
    assert (meta.size_bytes, meta.etag) == (5, "17")
    assert [request.headers["content-range"] for request in server.requests[1:]] == ["bytes 0-4/5", "bytes */5"]


async def test_an_end_that_creates_is_sent_once(begun: Any) -> None:
    server, upload = await begun(hang_up, if_absent=True)
    await upload.write_part(0, 0, b"12345")
    with pytest.raises(OutcomeUnknown):
        await upload.complete()
    assert len(server.requests) == 2


async def test_nonsense_about_what_is_kept_ends_the_upload(begun: Any) -> None:
    _, upload = await begun(kept(7 * STEP_BYTES))
    with pytest.raises(StoreFailure, match="expected 0 to") as caught:
        await upload.write_part(0, 0, STEP)
    assert TOKEN not in str(caught.value) and TOKEN not in repr(upload)
    with pytest.raises(StoreFailure, match="cannot be completed"):
        await upload.complete()
    with pytest.raises(StoreFailure, match="earlier part"):
        await upload.write_part(1, STEP_BYTES, STEP)


async def test_a_cancelled_part_leaves_nobody_waiting(begun: Any) -> None:
    server, upload = await begun(stall)
    first = asyncio.create_task(upload.write_part(0, 0, STEP))
    second = asyncio.create_task(upload.write_part(1, STEP_BYTES, STEP))
    while len(server.requests) < 2:
        server.arrived.clear()
        await server.arrived.wait()
    first.cancel()
    with pytest.raises(StoreFailure, match="earlier part"):
        await second
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_failed_upload_is_given_up() -> None:
    async with FaultServer(CONTENT) as server:
        session = told(200, None, Location=f"{server.endpoint}/session?upload_id={TOKEN}")
        server.script = [session, refused(403, "forbidden"), told(499, None)]
        store = store_on(server)
        with pytest.raises(AccessDenied) as caught:
            async with PartUpload(store, "key", part_bytes=STEP_BYTES) as upload:
                await upload.write([STEP, STEP, STEP])
                await upload.close()
        assert TOKEN not in str(caught.value)
        assert [request.line.split(" ")[0] for request in server.requests] == ["POST", "PUT", "DELETE"]
        await store.aclose()


# -- listings ---------------------------------------------------------------------------------------------------------


async def test_a_listing_goes_on_page_by_page() -> None:
    first = {"items": [{**RESOURCE, "name": "a/1"}], "nextPageToken": "more"}
    second = {"items": [{**RESOURCE, "name": "a/3"}], "prefixes": ["a/2/"]}

    async def names(store: GcsStore) -> list[str]:
        return [meta.key async for meta in store.list("a/", Selection(delimiter="/", start_after="a/0"))]

    server, store, found = await try_on([hang_up, told(200, first), told(200, second)], names)
    assert found == ["a/1", "a/2/", "a/3"]
    asked = [query_of(request) for request in server.requests]
    assert [one.get("pageToken") for one in asked] == [None, None, ["more"]]
    assert {(one["prefix"][0], one["delimiter"][0], one["startOffset"][0]) for one in asked} == {("a/", "/", "a/0")}
    assert store.stats.snapshot()["list"].retries == 1


@pytest.mark.parametrize(
    "page", [{"items": 5}, {"items": [{}]}, {"items": [{"name": "a", "size": "x"}]}, [], {"prefixes": 3}]
)
async def test_a_listing_that_is_none_is_said_so(page: object) -> None:
    async def names(store: GcsStore) -> list[str]:
        return [meta.key async for meta in store.list("a/")]

    _, _, found = await try_on([told(200, page)], names, client_max_retries="0")
    assert isinstance(found, Transient), found


async def test_one_of_many_deletes_fails() -> None:
    script = [told(204, None), refused(404), refused(403)]
    _, _, found = await try_on([*script, *[told(204, None)] * 9], lambda store: store.delete(map(str, range(9))))
    assert isinstance(found, AccessDenied)


async def test_a_copy_goes_in_steps() -> None:
    script = [told(200, {"done": False, "rewriteToken": "on"}), told(200, {"done": True})]
    server, _, found = await try_on(script, lambda store: store.copy("a b", "c"))
    assert found is None
    assert server.requests[0].line.split("?")[0] == "POST /storage/v1/b/bucket/o/a%20b/rewriteTo/b/bucket/o/c"
    assert query_of(server.requests[1])["rewriteToken"] == ["on"]
