"""Listings by our own HTTP client say what those of botocore say, and take no document for a listing that is none."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus
from xml.sax.saxutils import escape

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.loaders import create_loader
from botocore.model import ServiceModel
from botocore.parsers import create_parser
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io.errors import AccessDenied, LanceError, NotFound
from lance_io.store.api import DIRECTLY_BELOW, Selection
from lance_io.store.failures import StoreFailure, Throttled, Transient
from lance_io.store.http import exchange
from lance_io.store.http.sigv4 import Signer, wire_query
from lance_io.store.s3.listing import parse_page
from lance_io.store.url import resolve_uri
from tests.http_faults import Answer, Asked, FaultServer, head, status

if TYPE_CHECKING:
    import asyncio

    from tests.servers import S3Server

ODD = [
    "a b",
    "a+b",
    "a%20b",
    "a&b",
    "a<b>",
    "ä-漢字",
    "x=1?y#z",
    "quo\"te'",
    "(1)!*~",
    "tab\tin",
    "sub/one",
    "sub/two",
    "z/y/x",
]
ENTRY = (
    "<Contents><Key>{}</Key><LastModified>2026-01-02T03:04:05.678Z</LastModified>"
    "<ETag>&quot;e&quot;</ETag><Size>7</Size></Contents>"
)


PARSER = create_parser("rest-xml")


@cache
def shape_of_a_page() -> Any:
    """What botocore knows of it."""
    model = ServiceModel(create_loader().load_service_model("s3", "service-2"))
    return model.operation_model("ListObjectsV2").output_shape


async def test_botocore_lists_the_same(s3: S3Server, s3_prefix: str) -> None:
    ours, theirs = (
        resolve_uri(f"s3://{s3.bucket}", s3.options(s3_express=express)).store for express in ("false", "true")
    )
    prefix = f"{s3_prefix}/p+ q/"
    keys = [prefix + name for name in ODD]
    for key in keys:
        await theirs.put(key, b"content")
    for asked in (
        Selection(),
        DIRECTLY_BELOW,
        Selection(limit=3),
        Selection(start_after=f"{prefix}a+b"),
        Selection(start_after=f"{prefix}a b", limit=2, delimiter="/"),
    ):
        found = [meta async for meta in ours.list(prefix, asked)]
        assert found == [meta async for meta in theirs.list(prefix, asked)]
        assert found
    assert sorted(meta.key for meta in [meta async for meta in ours.list(prefix)]) == sorted(keys)
    assert [meta async for meta in ours.list(f"{s3_prefix}/nothing")] == []
    await ours.delete(keys)
    await ours.aclose()
    await theirs.aclose()


async def test_pages_follow_each_other(s3: S3Server, s3_prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lance_io.store.s3.bucket.LIST_PAGE", 3)
    store = resolve_uri(f"s3://{s3.bucket}", s3.options()).store
    keys = [f"{s3_prefix}/{number}" for number in range(8)]
    for key in keys:
        await store.put(key, b"")
    assert [meta.key async for meta in store.list(f"{s3_prefix}/")] == keys
    assert store.stats.snapshot()["list"].requests == 3
    await store.aclose()


@given(
    st.lists(st.tuples(st.sampled_from(["k", "a+b c", "ä&<"]), st.integers(0, 1 << 40)), max_size=4),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["", ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"']),
)
def test_a_page_is_read_as_botocore_reads_it(
    entries: list[tuple[str, int]], is_encoded: bool, is_truncated: bool, namespace: str
) -> None:
    contents = "".join(
        ENTRY.format(quote_plus(key) if is_encoded else escape(key)).replace("<Size>7", f"<Size>{size}")
        for key, size in entries
    )
    document = (
        f"<?xml version='1.0' encoding='UTF-8'?>\n<ListBucketResult{namespace}><Name>b</Name>{contents}"
        f"<CommonPrefixes><Prefix>p/</Prefix></CommonPrefixes><IsTruncated>{str(is_truncated).lower()}</IsTruncated>"
        f"{'<EncodingType>url</EncodingType>' if is_encoded else ''}"
        f"{'<NextContinuationToken>t+/=</NextContinuationToken>' if is_truncated else ''}</ListBucketResult>"
    ).encode()
    parsed = PARSER.parse({"body": document, "headers": {}, "status_code": 200}, shape_of_a_page())
    page = parse_page(document, "")
    assert page["IsTruncated"] == parsed["IsTruncated"]
    assert page.get("NextContinuationToken") == parsed.get("NextContinuationToken")
    assert page["CommonPrefixes"] == parsed["CommonPrefixes"]
    assert [entry["Key"] for entry in page["Contents"]] == [key for key, _ in entries]
    for ours, theirs in zip(page["Contents"], parsed.get("Contents", []), strict=True):
        assert {**ours, "Key": None} == {**theirs, "Key": None}


@pytest.mark.parametrize(
    ("document", "error"),
    [
        (b"", Transient),
        (b"<html>hello</html>", Transient),
        (b"<ListBucketResult><Contents><Key>a</Key>", Transient),
        (b"<ListBucketResult><Contents><Size>1</Size></Contents></ListBucketResult>", Transient),
        (b"<ListBucketResult><Contents><Key>a</Key><Size>x</Size></Contents></ListBucketResult>", Transient),
        (b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>", Transient),
        (b'<!DOCTYPE a [<!ENTITY b "c">]><ListBucketResult>&b;</ListBucketResult>', Transient),
        (b"<Error><Code>SlowDown</Code><Message>m</Message></Error>", Throttled),
        (b"<Error><Code>InternalError</Code></Error>", Transient),
        (b"<Error><Code>NoSuchBucket</Code></Error>", NotFound),
    ],
)
def test_what_is_no_listing(document: bytes, error: type[LanceError]) -> None:
    with pytest.raises(error) as caught:
        parse_page(document, "prefix")
    assert (type(caught.value), caught.value.path) == (error, "prefix")


@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda text: f"<ListBucketResult>{text}".encode()))
def test_any_document_is_a_listing_or_an_error_of_ours(document: bytes) -> None:
    try:
        parse_page(document, "")
    except LanceError:
        pass


def page(*keys: str, chunked: bool = False) -> Answer:
    async def answer(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
        body = f"<ListBucketResult>{''.join(ENTRY.format(key) for key in keys)}</ListBucketResult>".encode()
        if chunked:
            writer.write(head(200, {"Transfer-Encoding": "chunked"}) + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        else:
            writer.write(head(200, {"Content-Length": len(body)}) + body)

    return answer


async def listed(*script: Answer, plain_names: bool = False, **options: str) -> tuple[list[str], FaultServer]:
    async with FaultServer(b"", script) as server:
        known = {"aws_endpoint": server.endpoint, "allow_http": "true", "client_max_retries": "2"}
        keys = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "very-secret", "aws_region": "us-east-1"}
        store = resolve_uri("s3://bucket", {**known, **keys, **options}).store
        try:
            asked = Selection(plain_names=plain_names)
            return [meta.key async for meta in store.list("some prefix/", asked)], server
        finally:
            await store.aclose()


async def test_failures_of_a_listing_are_those_of_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lance_io.store.cloud.cloud_store.random.random", lambda: 0.0)
    found, server = await listed(status(503, "SlowDown"), status(500), page("a", "b", chunked=True))
    assert found == ["a", "b"]
    assert [request.line for request in server.requests] == [
        "GET /bucket?encoding-type=url&list-type=2&max-keys=1000&prefix=some%20prefix%2F HTTP/1.1"
    ] * 3
    for answer, error in ((status(403, "AccessDenied", "no very-secret"), AccessDenied), (status(404), NotFound)):
        with pytest.raises(error, match="bucket bucket") as caught:
            await listed(answer)
        assert "very-secret" not in str(caught.value) and caught.value.path == "some prefix/"
    with pytest.raises(Throttled) as caught:
        await listed(*[status(503)] * 3)
    assert (caught.value.attempts, caught.value.operation) == (3, "list")


async def test_plain_names_come_as_they_are(s3: S3Server, s3_prefix: str) -> None:
    store = resolve_uri(f"s3://{s3.bucket}", s3.options()).store
    prefix = f"{s3_prefix}/p+ q ä&%20/"
    names = ["1 +%2B&<>.manifest", "2é", "sub/3"]
    for name in names:
        await store.put(prefix + name, b"content")
    before = store.stats.snapshot()
    found = [meta async for meta in store.list(prefix, Selection(plain_names=True))]
    assert (store.stats.snapshot() - before)["list"].requests == 1
    assert found == [meta async for meta in store.list(prefix)]
    assert [meta.key for meta in found] == [prefix + name for name in names]
    await store.delete([meta.key for meta in found])
    await store.aclose()


async def test_what_plain_names_cannot_say_is_asked_for_encoded() -> None:
    """S3 writes a control character as a reference that XML does not know."""
    found, server = await listed(page("1", "a&#1;b"), page("1", "a%01b"), plain_names=True)
    assert found == ["1", "a%01b"]
    assert [request.line for request in server.requests] == [
        "GET /bucket?list-type=2&max-keys=1000&prefix=some%20prefix%2F HTTP/1.1",
        "GET /bucket?encoding-type=url&list-type=2&max-keys=1000&prefix=some%20prefix%2F HTTP/1.1",
    ]


async def test_an_endless_listing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "DOCUMENT_BYTES_MAX", 1000)
    with pytest.raises(StoreFailure, match="more than 1000 bytes"):
        await listed(page(*map(str, range(1000))))


QUERIES = st.dictionaries(
    st.sampled_from(["prefix", "list-type", "a b", "ä"]), st.text(st.characters(codec="utf-8")), max_size=4
)


@settings(max_examples=30)
@given(QUERIES)
def test_a_query_is_signed_as_botocore_signs_it(query: dict[str, str]) -> None:
    request = AWSRequest("GET", f"https://host/bucket?{wire_query(query)}", headers={"host": "host"})
    S3SigV4Auth(Credentials("AKIDEXAMPLE", "secret", None), "s3", "r").add_auth(request)
    when = datetime.strptime(request.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    ours = Signer("AKIDEXAMPLE", "secret", None, "r").headers(
        "host", "/bucket", {}, when.timestamp(), wire_query(query)
    )
    assert ours["authorization"] == request.headers["Authorization"]
