"""Errors say how often a store was asked, and what the server calls the request that it did not serve."""

from __future__ import annotations

import asyncio
import json
import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lance_io
from lance_io.commit import dynamodb
from lance_io.commit.dynamodb import DynamoManifestStore
from lance_io.errors import AccessDenied, LanceError, NotFound
from lance_io.plans.plan import drive_async
from lance_io.store.failures import InvalidRange, OutcomeUnknown, RangeIgnored, StoreFailure, Throttled, Transient
from lance_io.store.s3.bucket_options import parse_s3
from lance_io.store.url import resolve_uri
from tests.bucket import Bucket, Container, Exchange, GoogleBucket
from tests.http_faults import Asked, FaultServer, head

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from lance_io.store.api import ObjectStore
    from tests.servers import S3Server

CONTENT = bytes(range(256)) * 8
HEADERS = {Bucket: "x-amz-request-id", Container: "x-ms-request-id", GoogleBucket: "X-GUploader-UploadID"}
REQUESTS: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "range": lambda store: store.get_range("key", 0, 10),
    "suffix": lambda store: store.get_suffix("key", 10),
    "object": lambda store: store.get("key"),
    "head": lambda store: store.head("key"),
    "list": lambda store: _all(store.list("")),
    "put": lambda store: store.put("key", b"1"),
    "create": lambda store: store.put("key", b"1", if_absent=True),
    "delete": lambda store: store.delete(["key"]),
}


async def _all(entries: Any) -> list[Any]:
    return [each async for each in entries]


@pytest.fixture(params=HEADERS, ids=["s3", "azure", "gcs"])
def kind(request: pytest.FixtureRequest) -> type[Bucket]:
    found: type[Bucket] = request.param
    return found


class Numbers:
    """Numbers all answers in a header; the first ones are refusals."""

    def __init__(self, name: str, *statuses: int) -> None:
        self.name = name
        self.statuses = list(statuses)
        self.given = 0

    async def __call__(self, exchange: Exchange) -> bool:
        self.given += 1
        answer = exchange.right()
        if self.statuses:
            answer.status, answer.body = self.statuses.pop(0), b""
            answer.headers = {"Content-Length": 0}
        answer.headers[self.name] = f"id-{self.given}"
        await exchange.say(answer.data)
        return True


def told(error: LanceError) -> str:
    """The end of its text, which a pickle keeps with all else."""
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.attempts, again.request_id) == (type(error), error.attempts, error.request_id)
    assert str(again) == str(error)
    return str(error)[str(error).rindex(" [") :] if " [" in str(error) else ""


async def failed(bucket: Bucket, harm: Any, request: str, **more: str) -> LanceError:
    bucket.harm = harm
    store = resolve_uri(bucket.uri, bucket.options(client_max_retries="2", **more)).store
    try:
        with pytest.raises(LanceError) as caught:
            await REQUESTS[request](store)
    finally:
        await store.aclose()
    return caught.value


@pytest.mark.parametrize("express", ["false", "true"])
@pytest.mark.parametrize("request_kind", REQUESTS)
async def test_the_refused_request_is_named(kind: type[Bucket], request_kind: str, express: str) -> None:
    async with kind({"key": CONTENT}) as bucket:
        error = await failed(bucket, Numbers(HEADERS[kind], 403), request_kind, s3_express=express)
    assert isinstance(error, AccessDenied)
    assert (error.request_id, error.attempts) == (f"id-{bucket.asked}", bucket.asked)
    assert told(error) == (
        " [request id id-1]" if bucket.asked == 1 else f" [request id id-2, {bucket.asked} attempts]"
    )


@pytest.mark.parametrize("express", ["false", "true"])
@pytest.mark.parametrize("request_kind", ["range", "head", "list", "put"])
async def test_the_last_of_several_is_named(kind: type[Bucket], request_kind: str, express: str) -> None:
    async with kind({"key": CONTENT}) as bucket:
        error = await failed(bucket, Numbers(HEADERS[kind], 500, 503, 503), request_kind, s3_express=express)
    assert type(error) is Throttled and bucket.asked == 3
    assert (error.request_id, error.attempts) == ("id-3", 3)
    assert told(error) == " [request id id-3, 3 attempts]"


async def test_a_refusal_after_failures_counts_them(kind: type[Bucket]) -> None:
    async with kind({"key": CONTENT}) as bucket:
        for request in ("range", "put"):
            error = await failed(bucket, Numbers(HEADERS[kind], 500, 400), request)
            assert type(error) is StoreFailure
            assert told(error) == " [request id id-2, 2 attempts]"


async def test_what_is_not_there_is_named(kind: type[Bucket]) -> None:
    async with kind() as bucket:
        for request in ("range", "suffix", "object", "head"):
            error = await failed(bucket, Numbers(HEADERS[kind]), request)
            assert isinstance(error, NotFound)
            assert told(error) == " [request id id-1]"


async def test_a_write_of_unknown_outcome_is_named(kind: type[Bucket]) -> None:
    async with kind() as bucket:
        error = await failed(bucket, Numbers(HEADERS[kind], 500), "create")
    assert isinstance(error, OutcomeUnknown)
    assert told(error) == " [request id id-1]"


async def test_a_range_that_is_not_there_is_named(kind: type[Bucket]) -> None:
    async with kind({"key": CONTENT}) as bucket:
        bucket.harm = Numbers(HEADERS[kind])
        store = resolve_uri(bucket.uri, bucket.options()).store
        with pytest.raises(InvalidRange) as caught:
            await store.get_range("key", 10_000, 10_001)
        await store.aclose()
    assert told(caught.value) == " [request id id-1]"


@pytest.mark.parametrize("request_kind", ["range", "list"])
async def test_answers_that_make_no_sense_are_named(kind: type[Bucket], request_kind: str) -> None:
    """They come with success: a listing that is none, the whole object instead of a range."""
    numbers = Numbers(HEADERS[kind], 200, 200, 200)
    async with kind({"key": CONTENT}) as bucket:
        error = await failed(bucket, numbers, request_kind)
    assert type(error) is (RangeIgnored if request_kind == "range" else Transient)
    assert (error.request_id, error.attempts) == (f"id-{numbers.given}", numbers.given)


async def test_no_answer_has_no_name(kind: type[Bucket]) -> None:
    """Nor has the request before it anything to do with it."""
    numbers = Numbers(HEADERS[kind], 500)

    async def hang_up(exchange: Exchange) -> bool:
        return await numbers(exchange) if numbers.statuses else False

    async with kind({"key": CONTENT}) as bucket:
        for request in ("range", "put"):
            numbers.statuses = [500]
            error = await failed(bucket, hang_up, request)
            assert (error.request_id, error.attempts, told(error)) == (None, 3, " [3 attempts]")


@pytest.mark.parametrize("name", ["a\tb", "x" * 300, ""])
async def test_a_name_is_short_and_printable(kind: type[Bucket], name: str) -> None:
    async def answer(exchange: Exchange) -> bool:
        await exchange.say(head(403, {"Content-Length": 0, HEADERS[kind]: name}))
        return True

    async with kind({"key": CONTENT}) as bucket:
        assert (await failed(bucket, answer, "range")).request_id is None
        assert (await failed(bucket, answer, "put")).request_id is None


def test_errors_of_tables_name_it(s3: S3Server, s3_uri: str) -> None:
    """A file of the table is gone: MinIO says what it calls the request."""
    uri, options = f"{s3_uri}/t", s3.options()
    dataset = lance_io.write_dataset(pa.table({"a": range(10)}), uri, storage_options=options)
    location = dataset._state.location
    key = location.key("data", dataset.get_fragments()[0].data_files()[0].path)
    asyncio.run(_remove(location.store, key))
    with pytest.raises(NotFound) as caught:
        lance_io.dataset(uri, storage_options=options).to_table()
    assert caught.value.request_id and told(caught.value) == f" [request id {caught.value.request_id}]"
    assert caught.value.attempts == 1


async def _remove(store: ObjectStore, key: str) -> None:
    await store.delete([key])
    await store.aclose()


def test_an_error_of_no_store_names_none(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        lance_io.dataset(str(tmp_path / "t"))
    assert (caught.value.request_id, caught.value.attempts, told(caught.value)) == (None, 1, "")


# -- the database ---------------------------------------------------------------------------------------------------


class Database(FaultServer):
    """Refuses, and numbers what it says."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(b"")
        self.script = [self._answer] * 9
        self.status, self.body = status, json.dumps({"__type": code, "message": "no"}).encode()
        self.given = 0

    async def _answer(self, server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
        self.given += 1
        fields = {"Content-Length": len(self.body), "Content-Type": "application/x-amz-json-1.0"}
        writer.write(head(self.status, {**fields, "x-amzn-RequestId": f"id-{self.given}"}) + self.body)


@pytest.mark.parametrize(
    ("status", "code", "error_kind", "attempts"),
    [
        (400, "ResourceNotFoundException", NotFound, 1),
        (400, "AccessDeniedException", AccessDenied, 1),
        (400, "ValidationException", StoreFailure, 1),
        (500, "InternalServerError", Transient, 2),
    ],
)
async def test_errors_of_the_database_name_it(
    status: int, code: str, error_kind: type[LanceError], attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dynamodb, "ATTEMPTS", 2)
    async with Database(status, code) as server:
        options = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "secret", "aws_region": "us-east-1"}
        rows = DynamoManifestStore("rows", parse_s3("bucket", options), server.endpoint)
        with pytest.raises(error_kind) as caught:
            await drive_async(rows.get("t", 1))
        await rows.aclose()
    assert server.given == attempts
    assert (caught.value.request_id, caught.value.attempts) == (f"id-{attempts}", attempts)
    assert told(caught.value).startswith(f" [request id id-{attempts}")
