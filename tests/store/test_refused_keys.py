"""Keys of S3 that the store refuses before anybody said that they end: looked for again where they came from, once."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lance_io
from lance_io import metrics
from lance_io.commit.dynamodb import DynamoManifestStore
from lance_io.errors import AccessDenied
from lance_io.plans.plan import drive_async
from lance_io.store.s3.bucket import S3Store, open_s3
from tests.http_faults import Asked, FaultServer, head, serve, status
from tests.s3.proxy import HttpProxy, Message

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import S3Server

CONTENT = bytes(range(256)) * 200
CALLERS = 16
ROWS = pa.table({"a": range(1000)})


class Bucket(FaultServer):
    """Refuses keys; beside it a container's and a machine's service, which give `KEY1`, `KEY2` ... in turn.

    refused  access keys, and what is said of them
    used     access keys in the order of requests
    given    how many the services have given
    """

    def __init__(self) -> None:
        super().__init__(CONTENT)
        self.script = _Always(self._answer)
        self.refused: dict[str, tuple[int, str]] = {}
        self.used: list[str] = []
        self.given = 0
        self.knows_tokens = True  # of the machine's service: its new way
        self.is_spent = False  # the services give nothing more

    async def _answer(self, server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
        path = asked.line.split(" ")[1]
        if path.startswith("/latest/api/token"):
            found = head(200, {"Content-Length": 1}) + b"t" if self.knows_tokens else head(404, {"Content-Length": 0})
            writer.write(found)
        elif path.rstrip("/").endswith("security-credentials"):
            writer.write(head(200, {"Content-Length": 4}) + b"role")
        elif path.startswith(("/credentials", "/latest/")):
            self._give(writer)
        else:
            match = re.search(r"Credential=(\w+)/", asked.headers["authorization"])
            assert match is not None
            self.used.append(match[1])
            if match[1] in self.refused and asked.line.startswith("POST "):
                code, name = self.refused[match[1]]
                body = json.dumps({"__type": name}).encode()
                writer.write(
                    head(code, {"Content-Length": len(body), "Content-Type": "application/x-amz-json-1.0"}) + body
                )
            elif match[1] in self.refused:
                await status(*self.refused[match[1]])(server, asked, writer)
            elif asked.line.startswith("POST "):
                writer.write(head(200, {"Content-Length": 2, "Content-Type": "application/x-amz-json-1.0"}) + b"{}")
            elif asked.line.startswith("PUT "):
                writer.write(head(200, {"Content-Length": 0, "ETag": '"new"'}))
            else:
                await serve(server, asked, writer)

    def _give(self, writer: asyncio.StreamWriter) -> None:
        if self.is_spent:
            writer.write(head(404, {"Content-Length": 0}))
            return
        self.given += 1
        found = {
            "Code": "Success",
            "AccessKeyId": f"KEY{self.given}",
            "SecretAccessKey": "secret",
            "Token": "token",
            "Expiration": "2098-01-01T00:00:00Z",
            "LastUpdated": "2020-01-01T00:00:00Z",
        }
        body = json.dumps(found).encode()
        writer.write(head(200, {"Content-Length": len(body)}) + body)


class _Always(list):
    """A script that never ends."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self._answer = answer

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, _: Any) -> Any:
        return self._answer


class Source:
    """Where keys come from; `renew` has another one there."""

    def __init__(self, kind: str, bucket: Bucket, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kind = kind
        self._bucket = bucket
        self._file = folder / "file"
        self._monkeypatch = monkeypatch
        self._number = 0
        if kind == "container":
            monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{bucket.endpoint}/credentials")
        elif kind == "machine":
            monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
            monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", bucket.endpoint)
        elif kind == "program":
            (folder / "config").write_text(f"[default]\ncredential_process = cat {self._file}\n")
            monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
        elif kind != "environment":
            name = "AWS_CONFIG_FILE" if kind == "config" else "AWS_SHARED_CREDENTIALS_FILE"
            monkeypatch.setenv(name, str(self._file))
        self.renew()

    def renew(self) -> None:
        """Another key; services do that by themselves."""
        self._number += 1
        key = f"KEY{self._number}"
        if self.kind == "environment":
            self._monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
            self._monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        elif self.kind == "program":
            self._file.write_text(json.dumps({"Version": 1, "AccessKeyId": key, "SecretAccessKey": "secret"}))
        elif self.kind not in ("container", "machine"):
            self._file.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = secret\n")

    @property
    def is_service(self) -> bool:
        return self.kind in ("container", "machine")


@pytest.fixture
async def bucket() -> Any:
    async with Bucket() as server:
        yield server


def store_of(bucket: Bucket, **options: str) -> S3Store:
    where = {"aws_endpoint": bucket.endpoint, "allow_http": "true", "aws_region": "us-east-1"}
    return open_s3("bucket", {**where, "client_max_retries": "0", **options})


async def use(store: S3Store) -> None:
    """Reads, writes and questions, all at once."""

    async def read(at: int) -> None:
        assert bytes(await store.get_range("key", at, at + 100)) == CONTENT[at : at + 100]

    reads = [read(1000 * at) for at in range(CALLERS)]
    await asyncio.gather(*reads, *(store.put("key", b"1") for _ in range(CALLERS)), store.head("key"))


SOURCES = ["file", "config", "program", "environment", "container", "machine"]


@pytest.mark.parametrize(("kind", "express"), [*((kind, "false") for kind in SOURCES), ("container", "true")])
async def test_others_are_found_where_they_came_from(
    kind: str, express: str, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(kind, bucket, tmp_path, monkeypatch)
    store = store_of(bucket, s3_express=express)
    for number in range(1, 4):
        await use(store)
        assert bucket.used[-1] == f"KEY{number}"
        bucket.refused[f"KEY{number}"] = (403, "InvalidAccessKeyId")
        source.renew()
    if source.is_service:
        assert bucket.given == 3  # once for all callers
    await store.aclose()


def renewals() -> dict[tuple[str, ...], float]:
    """Those of this process, by store and outcome."""
    return {one.labels: one.value for one in metrics.collect() if one.metric.name == "lance_io.credential.renewals"}


async def test_renewals_are_counted(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for all who wait, by outcome; the first search is none."""
    source, before = Source("file", bucket, tmp_path, monkeypatch), renewals()
    assert len(before) == 12

    def counted() -> dict[tuple[str, ...], float]:
        return {labels: count - before[labels] for labels, count in renewals().items() if count != before[labels]}

    store = store_of(bucket)
    await use(store)
    assert counted() == {}
    bucket.refused["KEY1"] = (403, "InvalidAccessKeyId")
    source.renew()
    await use(store)
    assert counted() == {("s3", "renewed"): 1}
    bucket.refused["KEY2"] = (403, "InvalidAccessKeyId")
    with pytest.raises(AccessDenied):
        await store.head("key")
    assert counted() == {("s3", "renewed"): 1, ("s3", "refused"): 1}
    source._file.unlink()
    with pytest.raises(AccessDenied):
        await store.head("key")
    assert counted() == {("s3", "renewed"): 1, ("s3", "refused"): 1, ("s3", "failed"): 1}
    await store.aclose()


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (400, "ExpiredToken"),
        (403, "InvalidAccessKeyId"),
        (400, "InvalidToken"),
        (403, "InvalidTokenId"),
        (403, "SignatureDoesNotMatch"),
        (400, "TokenRefreshRequired"),
        (401, ""),
    ],
)
async def test_what_stores_say_of_keys(
    code: int, name: str, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a question without an answer's body (HEAD), too."""
    source = Source("file", bucket, tmp_path, monkeypatch)
    store = store_of(bucket)
    for number, work in enumerate([lambda: store.head("key"), lambda: store.put("key", b"1"), lambda: use(store)]):
        await use(store)
        bucket.refused[f"KEY{number + 1}"] = (code, name)
        source.renew()
        await work()
        assert bucket.used[-1] == f"KEY{number + 2}"
    await store.aclose()


@pytest.mark.parametrize("kind", [*SOURCES, "given"])
async def test_a_refusal_that_stays(kind: str, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same keys nothing is sent again; with others once, whatever becomes of it."""
    if kind == "given":
        store = store_of(bucket, aws_access_key_id="KEY1", aws_secret_access_key="secret")
    else:
        source = Source(kind, bucket, tmp_path, monkeypatch)
        store = store_of(bucket)
    await use(store)
    bucket.refused = {f"KEY{number}": (403, "InvalidAccessKeyId") for number in range(100)}
    are_others = kind in ("container", "machine")
    for work in (store.get_range("key", 0, 1), store.put("key", b"1"), store.put("key", b"1", if_absent=True)):
        bucket.used, before = [], bucket.given
        with pytest.raises(AccessDenied, match="InvalidAccessKeyId") as caught:
            await work
        assert (caught.value.path, "(bucket bucket)" in str(caught.value)) == ("key", True)
        assert (len(bucket.used), bucket.given - before) == ((2, 1) if are_others else (1, 0))
    if kind != "given":
        bucket.refused = {"KEY1": (403, "InvalidAccessKeyId")}
        source.renew()
        await use(store)
    await store.aclose()


async def test_nobody_gives_any_more(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is told to each who waits, and does not stay."""
    Source("container", bucket, tmp_path, monkeypatch)
    store = store_of(bucket)
    await use(store)
    bucket.refused["KEY1"] = (400, "ExpiredToken")
    bucket.is_spent = True
    found = await asyncio.gather(*(store.get_range("key", at, at + 1) for at in range(9)), return_exceptions=True)
    assert {type(error) for error in found} == {AccessDenied} and len({id(error) for error in found}) == 9
    assert all("no credentials" in str(error) and error.path == "key" for error in found)
    bucket.is_spent = False
    await use(store)
    await store.aclose()


async def test_who_gives_up_leaves_the_question_to_others(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source("file", bucket, tmp_path, monkeypatch)
    store = store_of(bucket)
    await use(store)
    bucket.refused["KEY1"] = (400, "ExpiredToken")
    source.renew()
    reads = [asyncio.ensure_future(store.get_range("key", at, at + 10)) for at in range(CALLERS)]
    before = len(bucket.used)
    while len(bucket.used) == before:  # noqa: ASYNC110 (the first refusal)
        await asyncio.sleep(0)
    for read in reads[::2]:
        read.cancel()
    found = await asyncio.gather(*reads, return_exceptions=True)
    assert {type(one) for one in found[::2]} <= {asyncio.CancelledError, bytes}
    assert [bytes(one) for one in found[1::2]] == [CONTENT[at : at + 10] for at in range(1, CALLERS, 2)]
    assert store.stats.in_flight == 0
    await use(store)
    await store.aclose()


async def test_a_database_is_asked_with_others_too(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source("file", bucket, tmp_path, monkeypatch)
    rows = DynamoManifestStore("rows", store_of(bucket).options, bucket.endpoint)
    assert await drive_async(rows.get("t", 1)) is None
    bucket.refused["KEY1"] = (400, "UnrecognizedClientException")
    before = renewals()
    with pytest.raises(AccessDenied):
        await drive_async(rows.get("t", 1))
    assert renewals()["dynamodb", "refused"] == before["dynamodb", "refused"] + 1
    source.renew()
    bucket.used = []
    assert await drive_async(rows.get("t", 1)) is None
    assert bucket.used == ["KEY1", "KEY2"]
    await rows.aclose()


# -- tables ------------------------------------------------------------------------------------------------------------


class Revoking(HttpProxy):
    """Passes requests on; answers those that are signed by an access key in `refused` itself."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.refused: set[str] = set()
        self.num_refused = 0

    async def answer(self, request: Message, server: Any, to_server: Any) -> Message:
        match = re.search(rb"(?i)\r\nauthorization: AWS4-HMAC-SHA256 Credential=([^/]+)/", request.head)
        if match is not None and match[1].decode() in self.refused:
            self.num_refused += 1
            body = b"<Error><Code>InvalidAccessKeyId</Code></Error>"
            return Message(b"HTTP/1.1 403 No\r\nContent-Length: %d\r\n\r\n" % len(body), body)
        return await super().answer(request, server, to_server)


def test_tables_live_on_when_a_file_of_keys_is_rewritten(
    s3: S3Server, s3_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what signs in again, or a sidecar: old handles, new ones and new sessions take the new keys."""
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))

    def write(key: str, secret: str) -> None:
        file.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n")

    write(s3.user, s3.secret)
    with Revoking(s3.endpoint) as proxy:
        options = {"aws_endpoint": proxy.endpoint, "allow_http": "true", "aws_region": s3.region}
        lance_io.write_dataset(ROWS, s3_uri, storage_options=options, max_rows_per_file=100)
        table = lance_io.dataset(s3_uri, storage_options=options)
        write(s3.root_user, s3.root_secret)
        proxy.refused.add(s3.user)
        assert table.to_table() == ROWS
        assert proxy.num_refused > 0
        table.delete("a < 500")
        assert lance_io.dataset(s3_uri, storage_options=options).count_rows("a > 0") == 500
        fresh = lance_io.Session()
        assert lance_io.dataset(s3_uri, storage_options=options, session=fresh).take([0])["a"].to_pylist() == [500]
        refused = proxy.num_refused
        table.delete("a < 600")
        assert proxy.num_refused == refused


# -- services that options name ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("express", ["false", "true"])
async def test_a_container_and_a_machine_that_options_name(
    express: str, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it stands in the environment."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
    (tmp_path / "token").write_text("planted")
    container = {
        "aws_container_credentials_full_uri": f"{bucket.endpoint}/credentials",
        "aws_container_authorization_token_file": str(tmp_path / "token"),
    }
    for number, named in enumerate([container, {"aws_metadata_endpoint": bucket.endpoint}]):
        store = store_of(bucket, s3_express=express, **named)
        await use(store)
        assert (bucket.given, bucket.used[-1]) == (number + 1, f"KEY{number + 1}")
        assert bucket.endpoint in store.access
        await store.aclose()
    asked = {asked.line.split(" ")[1]: asked.headers for asked in bucket.requests}
    assert asked["/credentials"]["authorization"] == "planted"


@pytest.mark.parametrize("fallback", ["true", "false"])
async def test_a_machine_that_knows_the_old_way_only(
    fallback: str, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
    bucket.knows_tokens = False
    store = store_of(bucket, aws_metadata_endpoint=bucket.endpoint, aws_imdsv1_fallback=fallback)
    if fallback == "true":
        await use(store)
    else:
        with pytest.raises(AccessDenied):
            await use(store)
    assert bucket.given == (fallback == "true")
    await store.aclose()
