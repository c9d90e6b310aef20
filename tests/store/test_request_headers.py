"""What storage options add to requests: headers of one's own, keys that objects are encrypted with, checksums."""

from __future__ import annotations

import base64
import hashlib
import uuid
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import UnsupportedError, UsageError
from lance_io.store.azure.container import open_azure
from lance_io.store.gcs.gcs_store import open_gcs
from lance_io.store.s3.bucket import S3Store, open_s3
from lance_io.store.s3.bucket_options import parse_s3
from lance_io.store.upload import PartUpload
from lance_io.store.url import resolve_uri
from tests.bucket import Bucket, Container, GoogleBucket
from tests.http_faults import Answer, Asked, FaultServer, head
from tests.s3.proxy import CountingProxy

if TYPE_CHECKING:
    import asyncio

    from tests.bucket import Exchange
    from tests.servers import AzureServer, S3Server

KEY = base64.b64encode(bytes(range(32))).decode()
DIGEST = base64.b64encode(hashlib.md5(bytes(range(32))).digest()).decode()
CONTENT = bytes(range(250)) * 4
ENCRYPTION = "x-amz-server-side-encryption-customer-"
SSE_C = {"aws_server_side_encryption": "sse-c", "aws_sse_customer_key_base64": KEY}
ROWS = pa.table({"a": range(100)})


def _xml(body: bytes) -> bytes:
    return head(200, {"Content-Length": len(body), "ETag": '"e"', "x-amz-checksum-sha256": "sum"}) + body


async def _answer(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
    """As a store does, whatever is asked."""
    method, path = asked.line.split(" ")[:2]
    if "list-type" in path:
        writer.write(_xml(b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"))
    elif method == "POST" and path.endswith("?uploads"):
        writer.write(_xml(b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"))
    elif method == "POST":
        writer.write(_xml(b"<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>"))
    elif "x-amz-copy-source" in asked.headers:
        writer.write(_xml(b"<CopyObjectResult><ETag>x</ETag></CopyObjectResult>"))
    elif method == "PUT" and "x-ms-version" in asked.headers:
        writer.write(head(201, {"Content-Length": 0, "ETag": '"e"'}))
    elif method == "PUT":
        writer.write(_xml(b""))
    elif method == "DELETE":
        writer.write(head(204, {"Content-Length": 0}))
    else:
        from tests.http_faults import serve

        await serve(server, asked, writer)


class Recording(FaultServer):
    """Answers everything, and keeps what was asked."""

    def __init__(self) -> None:
        super().__init__(CONTENT, _Always(_answer))

    def by(self, *beginnings: str) -> list[dict[str, str]]:
        """The headers of requests that begin so."""
        found = [asked.headers for asked in self.requests if asked.line.startswith(beginnings)]
        assert found
        return found


class _Always(list[Answer]):
    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self._answer = answer

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, _: Any) -> Any:
        return self._answer


def s3_on(server: FaultServer, **options: str) -> S3Store:
    keys = {"aws_access_key_id": "AKIA", "aws_secret_access_key": "secret", "aws_region": "us-east-1"}
    return open_s3("bucket", {"aws_endpoint": server.endpoint, "allow_http": "true", **keys, **options})


async def use(store: Any) -> None:
    """Each kind of request."""
    assert bytes(await store.get_range("key", 10, 20)) == CONTENT[10:20]
    await store.get("key")
    await store.put("key", b"1")
    if isinstance(store, S3Store):
        await store.head("key")
        assert [meta async for meta in store.list("folder/")] == []
        await store.copy("key", "other")
        writing = PartUpload(store, "key", part_bytes=400, parts_in_flight=1)
        await writing.write([CONTENT])
        await writing.close()


@pytest.mark.parametrize("express", ["false", "true"])
async def test_headers_of_ones_own_are_in_all_requests_and_signed(express: str) -> None:
    async with Recording() as server:
        store = s3_on(server, s3_express=express, **{"headers.x-team": "planets", "headers.x-amz-meta": "of mine"})
        await use(store)
        await store.aclose()
    for headers in server.by(""):
        assert (headers["x-team"], headers["x-amz-meta"]) == ("planets", "of mine")
        assert "x-amz-meta;" in headers["authorization"] and "x-team" in headers["authorization"]


@pytest.mark.parametrize("express", ["false", "true"])
async def test_headers_go_to_google_and_azure_too(express: str) -> None:
    more = {"allow_http": "true", "s3_express": express, "headers.x-team": "planets"}
    async with Recording() as server:
        google = open_gcs("b", {"google_base_url": server.endpoint, "google_skip_signature": "true", **more})
        assert bytes(await google.get_range("key", 10, 20)) == CONTENT[10:20]
        await google.delete(["key"])
        where = {"azure_endpoint": f"{server.endpoint}/account", "account_name": "account", "skip_signature": "true"}
        azure = open_azure("box", {**where, **more})
        assert bytes(await azure.get_range("key", 10, 20)) == CONTENT[10:20]
        await azure.put("key", b"1")
        await google.aclose()
        await azure.aclose()
    assert {headers.get("x-team") for headers in server.by("")} == {"planets"}


async def test_a_shared_key_signs_headers_of_azures_names(azure: AzureServer) -> None:
    options = azure.options(**{"headers.x-ms-client-request-id": "me", "headers.x-zebra": "1"})
    store = open_azure(azure.container, options)
    key = f"{uuid.uuid4().hex}/x"
    await store.put(key, b"12345")
    assert bytes(await store.get_range(key, 1, 3)) == b"23"
    assert [meta.size_bytes async for meta in store.list(key)] == [5]
    await store.aclose()


@pytest.mark.parametrize("name", ["authorization", "Host", "range", "x-amz-date", "bad name", "x:y", ""])
def test_headers_that_cannot_be_added(name: str) -> None:
    with pytest.raises(UsageError, match=r"headers\.") as caught:
        parse_s3("bucket", {f"headers.{name}".lower(): "planted-secret"}, {})
    assert "planted-secret" not in str(caught.value)
    with pytest.raises(UsageError, match="printable ASCII"):
        parse_s3("bucket", {"headers.x": "a\r\nb: c"}, {})


@pytest.mark.parametrize("express", ["false", "true"])
async def test_a_key_of_ones_own_is_in_requests_for_objects(express: str) -> None:
    async with Recording() as server:
        store = s3_on(server, s3_express=express, **SSE_C)
        await use(store)
        await store.delete(["key"])
        await store.aclose()
    expected = {f"{ENCRYPTION}algorithm": "AES256", f"{ENCRYPTION}key": KEY, f"{ENCRYPTION}key-md5": DIGEST}
    for headers in server.by("GET /bucket/key", "PUT ", "POST ", "HEAD "):
        assert {name: headers.get(name) for name in expected} == expected
        assert "x-amz-server-side-encryption" not in headers
    for headers in server.by("GET /bucket?", "DELETE "):
        assert not expected.keys() & headers.keys()
    (copied,) = [headers for headers in server.by("PUT ") if "x-amz-copy-source" in headers]
    source = "x-amz-copy-source-server-side-encryption-customer-"
    assert copied[f"{source}key"] == KEY and copied[f"{source}key-md5"] == DIGEST


async def test_pylance_sends_the_same_key() -> None:
    async with Recording() as server:
        where = {"aws_endpoint": server.endpoint, "allow_http": "true", "aws_region": "us-east-1"}
        keys = {"aws_access_key_id": "AKIA", "aws_secret_access_key": "secret", "client_max_retries": "0"}
        import asyncio

        await asyncio.to_thread(
            lance.write_dataset, ROWS, "s3://bucket/t.lance", storage_options={**where, **keys, **SSE_C}
        )
        theirs = server.by("PUT ")[0]
    expected = {f"{ENCRYPTION}algorithm": "AES256", f"{ENCRYPTION}key": KEY, f"{ENCRYPTION}key-md5": DIGEST}
    assert {name: theirs.get(name) for name in expected} == expected


def test_keys_that_are_none_and_where_they_show() -> None:
    for options in (
        {"aws_server_side_encryption": "sse-c"},
        {**SSE_C, "aws_sse_customer_key_base64": "planted"},
        {**SSE_C, "aws_sse_customer_key_base64": base64.b64encode(b"planted").decode()},
        {"aws_sse_customer_key_base64": KEY},
        {**SSE_C, "aws_server_side_encryption": "AES256"},
    ):
        with pytest.raises(UsageError, match="aws_sse_customer_key_base64") as caught:
            parse_s3("bucket", options, {})
        assert not any(text in str(caught.value) for text in ("planted", KEY))
    found = parse_s3("bucket", {**SSE_C, "headers.x-secret": "planted"}, {})
    store = S3Store(found)
    for text in (repr(found), repr(store), store.identity, store.access):
        assert KEY not in text and DIGEST not in text and "planted" not in text
    assert KEY in found.secrets
    assert store.access != S3Store(parse_s3("bucket", {}, {})).access  # a disk cache keeps them apart


@pytest.mark.parametrize("unsigned", ["true", "false"])
async def test_payloads_are_not_signed_where_that_is_asked_for(unsigned: str) -> None:
    async with Recording() as server:
        store = s3_on(server, aws_unsigned_payload=unsigned)
        await store.put("key", b"12345")
        await store.aclose()
    (headers,) = server.by("PUT ")
    signed = hashlib.sha256(b"12345").hexdigest()
    assert headers["x-amz-content-sha256"] == ("UNSIGNED-PAYLOAD" if unsigned == "true" else signed)


@pytest.mark.parametrize("name", ["SHA256", "sha1", "crc32"])
async def test_checksums_of_what_is_sent(name: str, s3: S3Server, s3_prefix: str) -> None:
    options = {"aws_checksum_algorithm": name}
    async with Recording() as server:
        store = s3_on(server, **options)
        await store.put("key", b"12345")
        await store.aclose()
    found = server.by("PUT ")[0][f"x-amz-checksum-{name.lower()}"]
    if name == "SHA256":
        assert found == base64.b64encode(hashlib.sha256(b"12345").digest()).decode()
    real = open_s3(s3.bucket, s3.options(**options))
    writing = PartUpload(real, f"{s3_prefix}/x", part_bytes=5 << 20, parts_in_flight=2)
    await writing.write([bytes(11 << 20)])
    await writing.close()
    assert (await real.head(f"{s3_prefix}/x")).size_bytes == 11 << 20
    await real.aclose()
    with pytest.raises(UsageError, match="aws_checksum_algorithm: expected one of SHA256"):
        parse_s3("bucket", {"aws_checksum_algorithm": "md4"}, {})


# -- who decides -------------------------------------------------------------------------------------------------------


class Lock:
    """Of one process."""

    def __init__(self) -> None:
        self.versions: list[int] = []

    def __call__(self, version: int) -> Any:
        from contextlib import nullcontext

        self.versions.append(version)
        return nullcontext()


def test_a_bucket_that_is_to_decide_nothing_needs_a_lock(s3: S3Server, s3_uri: str) -> None:
    with CountingProxy(s3.endpoint) as proxy:
        options = s3.through(proxy.endpoint, aws_conditional_put="disabled")
        with pytest.raises(UnsupportedError, match="aws_conditional_put"):
            lance_io.write_dataset(ROWS, s3_uri, storage_options=options)
        lock = Lock()
        table = lance_io.write_dataset(ROWS, s3_uri, storage_options=options, commit_lock=lock)
        table = lance_io.write_dataset(ROWS, s3_uri, mode="append", storage_options=options, commit_lock=lock)
        assert (table.count_rows(), lock.versions) == (200, [1, 2])
        with pytest.raises(UnsupportedError, match="aws_conditional_put"):
            lance_io.write_dataset(ROWS, s3_uri, mode="append", storage_options=options)
    assert lance_io.dataset(s3_uri, storage_options=s3.options(aws_conditional_put="etag")).count_rows() == 200
    with pytest.raises(UsageError, match="expected 'etag' or 'disabled', found 'dynamo:t'"):
        parse_s3("bucket", {"conditional_put": "dynamo:t"}, {})


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
async def test_the_type_of_what_is_written(scheme: str) -> None:
    kind = {"s3": Bucket, "gs": GoogleBucket, "az": Container}[scheme]
    async with kind() as bucket:
        told: list[str] = []

        async def note(exchange: Exchange) -> bool:
            if exchange.asked.line.startswith(("PUT ", "POST ")):
                headers = exchange.asked.headers
                told.append(headers.get("x-ms-blob-content-type") or headers.get("content-type", ""))
            await exchange.say(exchange.right().data)
            return True

        bucket.harm = note
        store = resolve_uri(f"{bucket.uri}/x", bucket.options(default_content_type="application/x-lance")).store
        await store.put("key", b"1")
        await store.put("other", b"1", if_absent=True)
        assert told == ["application/x-lance"] * 2
        await store.aclose()
