"""Secrets are planted in every store; every kind of failure is provoked; nothing that anybody sees holds one.

What is seen: errors (text, `repr`, traceback, notes, attributes, pickle), `repr` of what users hold, our logs, traces
and metrics. Servers are hostile: they say back whatever they were sent, and what they must not know.
"""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import traceback
from base64 import b64encode
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import obstore.store
import pyarrow as pa
import pyarrow.fs as pafs
import pytest

import lance_io
from lance_io import AsyncDataset, metrics
from lance_io.errors import AlreadyExists, LanceError, NotFound
from lance_io.io import trace_events
from lance_io.store.counters import StoreStats
from lance_io.store.url import resolve_uri
from tests.bucket import NAME, Bucket, Container, Exchange, GoogleBucket, Right, Tables
from tests.cli.conftest import lance_io as lance_io_command
from tests.http_faults import head

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from lance_io.io.trace_events import TraceEvent

ROWS = pa.table({"id": range(2000), "text": [f"row {number}" for number in range(2000)]})
PLANTED = "xyzzy/words+1"  # which URLs escape
KEY = b64encode(b"xyzzy-words-of-a-key").decode()
CUSTOMER_KEY = b64encode(b"xyzzy-words-of-a-customer's-key.").decode()
MARKS = ("xyzzy", KEY, quote(KEY, safe=""), CUSTOMER_KEY, quote(CUSTOMER_KEY, safe=""))


class Pages(Bucket):
    """Files behind HTTP, with folders as pages of links, as fsspec's `http://` reads them."""

    def options(self, **more: str) -> dict[str, str]:
        return {}

    def answer(self, asked: Any) -> Right:
        method, target, _ = asked.line.split(" ")
        key = target.partition("?")[0].strip("/")
        if key in self.objects:
            return self._get(key, asked, has_body=method == "GET")
        below = sorted({one[len(key) + 1 :].partition("/")[0] for one in self.objects if one.startswith(f"{key}/")})
        if not below:
            return Right(404, {"Content-Length": 0}, b"")
        body = "".join(f'<a href="{name}">{name}</a>' for name in below).encode()
        return Right(200, {"Content-Length": len(body), "Content-Type": "text/html"}, body if method == "GET" else b"")


class Signed(Container):
    """Takes a shared access signature, whatever it is."""

    def answer(self, asked: Any) -> Right:
        method, target, version = asked.line.split(" ")
        path, _, query = target.partition("?")
        kept = [one for one in query.split("&") if one and not one.startswith(("sv=", "sig="))]
        return super().answer(replace(asked, line=f"{method} {path}?{'&'.join(kept)} {version}"))


class Dated(Bucket):
    """Its listings say when objects were written, without which obstore does not read them."""

    def answer(self, asked: Any) -> Right:
        found = super().answer(asked)
        if b"<ListBucketResult>" in found.body:
            dated = b"<LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>"
            found.body = found.body.replace(b"<Size>", dated)
            found.headers["Content-Length"] = len(found.body)
        return found


def of_obstore(bucket: Bucket) -> Any:
    return obstore.store.S3Store(
        NAME,
        endpoint=bucket.endpoint,
        region="us-east-1",
        access_key_id=S3["aws_access_key_id"],
        secret_access_key=S3["aws_secret_access_key"],
        session_token=S3["aws_session_token"],
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )


def of_pyarrow(bucket: Bucket) -> Any:
    return pafs.S3FileSystem(
        endpoint_override=bucket.endpoint.removeprefix("http://"),
        scheme="http",
        region="us-east-1",
        access_key=S3["aws_access_key_id"],
        secret_key=S3["aws_secret_access_key"],
        session_token=S3["aws_session_token"],
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=1),
    )


S3 = {"aws_access_key_id": f"AKID{PLANTED}", "aws_secret_access_key": f"secret-{PLANTED}", "aws_session_token": PLANTED}
ENCRYPTED = {"aws_server_side_encryption": "sse-c", "aws_sse_customer_key_base64": CUSTOMER_KEY}
HEADERS = {"headers.x-of-a-gateway": "Token xyzzy-of-a-gateway"}
NO_KEYS = {"aws_access_key_id": "", "aws_secret_access_key": ""}
STORES: dict[str, tuple[type[Bucket], dict[str, str]]] = {
    "s3": (Bucket, S3),
    "s3 by aiobotocore": (Bucket, {**S3, "s3_express": "true"}),
    "s3 by a proxy": (Bucket, {**S3, "proxy_url": f"http://user:{quote(PLANTED, safe='')}@127.0.0.1:9"}),
    "s3 encrypted": (Bucket, {**S3, **ENCRYPTED, **HEADERS}),
    "s3 encrypted by aiobotocore": (Bucket, {**S3, **ENCRYPTED, **HEADERS, "s3_express": "true"}),
    "gs": (GoogleBucket, {"google_storage_token": PLANTED, **HEADERS}),
    "az by key": (Container, {"account_key": KEY, **HEADERS}),
    "az by signature": (Signed, {"sas_token": f"sv=2022-11-02&sig={quote(PLANTED, safe='')}", "account_key": ""}),
    "http": (Pages, {}),
    "s3 by a file of keys": (Bucket, {**NO_KEYS, "s3_express": "true"}),
    "a database by a file of keys": (Tables, NO_KEYS),
    "obstore": (Dated, {}),
    "pyarrow": (Bucket, {}),
}
FILESYSTEMS = {
    "obstore": (of_obstore, "t.lance"),
    "pyarrow": (of_pyarrow, f"{NAME}/t.lance"),
}


def everything(exchange: Exchange) -> str:
    """All that a server may say back."""
    sent = "; ".join(f"{name}: {value}" for name, value in exchange.asked.headers.items())
    signed = f"https://user:{PLANTED}@host/key?sig={PLANTED}&X-Amz-Security-Token={PLANTED}"
    of_store = exchange.bucket.planted
    known = " ".join([*of_store, *(quote(one, safe="") for one in of_store)])
    return f"{exchange.asked.line}; {sent}; {known}; {signed}"


def says(status: int, code: str) -> Callable[[Exchange], Awaitable[bool]]:
    async def harm(exchange: Exchange) -> bool:
        text = everything(exchange).replace("&", "&amp;").replace("<", "&lt;")
        body = f"<Error><Code>{code}</Code><Message>{text}</Message></Error>".encode()
        if "x-amz-target" in exchange.asked.headers:
            body = json.dumps({"__type": code, "message": text}).encode()
        body = b"" if exchange.asked.line.startswith("HEAD ") else body
        await exchange.say(head(status, {"Content-Length": len(body), "Content-Type": "application/xml"}) + body)
        return True

    return harm


async def moved(exchange: Exchange) -> bool:
    where = f"https://user:{PLANTED}@elsewhere/?sig={PLANTED}"
    await exchange.say(head(301, {"Location": where, "Content-Length": 0, "x-amz-bucket-region": PLANTED}))
    return True


async def nonsense(exchange: Exchange) -> bool:
    await exchange.say(f"{everything(exchange)}\r\n\r\n".encode())
    return False


async def another(exchange: Exchange) -> bool:
    body = everything(exchange).encode()
    body = b"" if exchange.asked.line.startswith("HEAD ") else body
    await exchange.say(head(200, {"Content-Length": len(body), "Content-Type": "text/html"}) + body)
    return True


async def cut(exchange: Exchange) -> bool:
    right = exchange.right().data
    await exchange.say(right[: len(right) // 2])
    return False


async def silent(_: Exchange) -> bool:
    return False


async def stalled(exchange: Exchange) -> bool:
    """Begins to answer, where it may, and never ends."""
    if exchange.asked.line.startswith("GET "):
        right = exchange.right().data
        await exchange.say(right[: len(right) // 2])
    await exchange.silence()
    return False


FAILURES: dict[str, Callable[[Exchange], Awaitable[bool]] | None] = {
    "refused": None,
    "hung up": silent,
    "denied": says(403, "AccessDenied"),
    "unsigned": says(401, "SignatureDoesNotMatch"),
    "bad": says(400, "InvalidArgument"),
    "failed": says(500, "InternalError"),
    "busy": says(503, "SlowDown"),
    "missing": says(404, "NoSuchKey"),
    "changed": says(412, "PreconditionFailed"),
    "moved": moved,
    "nonsense": nonsense,
    "another answer": another,
    "cut": cut,
    "stalled": stalled,
}


def shown(error: BaseException) -> str:
    texts = [*traceback.format_exception(error), repr(error), str(error), repr(error.args)]
    found: BaseException | None = error
    while found is not None:
        texts += [repr(vars(found)), repr(getattr(found, "__notes__", ()))]
        found = found.__cause__
    return " ".join([*texts, repr(pickle.dumps(error))])


@pytest.fixture
def objects(tmp_path: Path) -> dict[str, bytes]:
    lance_io.write_dataset(ROWS, str(tmp_path / "t.lance"), max_rows_per_file=1000)
    return {path.relative_to(tmp_path).as_posix(): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


async def attempts(uri: str, how: dict[str, Any], table: AsyncDataset | None) -> list[BaseException]:
    """What all kinds of calls end with."""
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: AsyncDataset.open(uri, **how),
        lambda: AsyncDataset.open(uri, version=1, **how),
        lambda: AsyncDataset.write(ROWS, uri.replace("t.lance", "new.lance"), **how),
    ]
    if table is not None:
        calls += [
            lambda: table.take([3, 1500]),
            lambda: table.to_table(),
            lambda: table.delete("id = 1"),
            lambda: table.latest_version(),
            lambda: table.update({"text": "'x'"}),
        ]
    failed: list[BaseException] = []
    for call in calls:
        try:
            made = await call()
        except Exception as error:
            failed.append(error)
        else:
            if isinstance(made, AsyncDataset):
                await made.aclose()
    return failed


@pytest.mark.parametrize("kind", STORES)
async def test_nothing_planted_is_seen(
    kind: str,
    objects: dict[str, bytes],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("lance_io.store.cloud.cloud_store.random.random", lambda: 0.0)
    monkeypatch.setattr("lance_io.commit.dynamodb.ATTEMPTS", 1)
    if "file of keys" in kind:
        (tmp_path / "keys").write_text("\n".join(["[default]", *(f"{name} = {text}" for name, text in S3.items())]))
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    caplog.set_level(logging.DEBUG, "lance_io")
    traced: list[TraceEvent] = []
    stop = trace_events.listen(traced.append)
    make, more = STORES[kind]
    seen: list[str] = []
    try:
        for failure, harm in FAILURES.items():
            if harm is stalled and kind not in ("s3", "az by key"):  # it takes its time
                continue
            async with make(objects) as bucket:
                is_other = kind.startswith(("az", "gs"))
                bucket.planted = (
                    tuple(text for text in more.values() if text) if is_other else (*S3.values(), CUSTOMER_KEY)
                )
                patient = (
                    {"client_max_retries": "0", "timeout": "500ms" if harm is stalled else "20s"}
                    if kind != "http"
                    else {}
                )
                how: dict[str, Any] = {"storage_options": {**bucket.options(**more), **patient}}
                how["storage_options"] = {name: text for name, text in how["storage_options"].items() if text}
                if kind in FILESYSTEMS:
                    open_filesystem, uri = FILESYSTEMS[kind]
                    how = {"filesystem": open_filesystem(bucket)}
                elif "database" in kind:
                    uri = f"{bucket.uri}/t.lance?ddbTableName=rows"
                elif kind == "http":
                    uri = f"http://user:{quote(PLANTED, safe='')}@{bucket.endpoint.partition('://')[2]}/t.lance"
                else:
                    uri = f"{bucket.uri}/t.lance"
                table = None
                if kind != "s3 by a proxy":  # no answer fits there
                    table = await AsyncDataset.open(uri, **how)
                    seen += [repr(table), repr(table._state), repr(table._state.location), repr(table.scanner())]
                    seen += [await table.scanner(filter="id > 7").explain_plan()]
                if harm is None:
                    await bucket.stop()
                bucket.harm = harm
                failed = await attempts(uri, how, table)
                assert failed
                for error in failed:
                    seen.append(f"{kind}, {failure}: {shown(error)}")
                    assert isinstance(error, LanceError), seen[-1]
                    if failure in ("refused", "hung up"):
                        assert not isinstance(error, (NotFound, AlreadyExists)), seen[-1]
                if table is not None:
                    await table.aclose()
                if harm is None:
                    await bucket.start()
    finally:
        stop()
    seen += [record.getMessage() + str(record.exc_text) for record in caplog.records if record.name[:8] == "lance_io"]
    seen += [repr(traced), metrics.prometheus_text()]
    for text in seen:
        for secret in MARKS:
            assert secret not in text, text[max(0, text.find(secret) - 300) : text.find(secret) + 60]


async def test_a_password_in_a_url_is_shown_by_nothing_that_goes_well(objects: dict[str, bytes]) -> None:
    """Reports of the command line, and the requests that statistics name."""
    out = err = ""
    async with Pages(objects) as pages:
        uri = f"http://user:{quote(PLANTED, safe='')}@{pages.endpoint.partition('://')[2]}/t.lance"
        for command in (["info", uri], ["info", uri, "--json"], ["versions", uri], ["info", f"{uri}.none"]):
            ran = await asyncio.to_thread(lance_io_command, *command)
            out, err = out + ran.out, err + ran.err
        store = resolve_uri(uri).store
        store.stats = StoreStats(log_max=10)
        await store.get(f"{uri}/{next(iter(objects)).partition('/')[2]}")
        (request,) = store.stats.log
        await store.aclose()
    assert out.count("127.0.0.1") >= 2 and "t.lance.none" in err
    for secret in MARKS:
        assert secret not in out + err + repr(request) + str(request.key)
    assert request.key.startswith("http://***@127.0.0.1:")
