"""Credentials of a role that storage options name: by a token in a file, or by keys that may assume it."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import AccessDenied, UsageError
from lance_io.store.s3.bucket import S3Store, open_s3
from lance_io.store.s3.bucket_options import parse_s3
from tests.http_faults import Asked, FaultServer, head, serve, status

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import S3Server

CONTENT = bytes(range(256))
ARN = "arn:aws:iam::123456789012:role/reader"


class World(FaultServer):
    """A bucket, and a service that gives credentials of roles: `ROLE1`, `ROLE2` ..."""

    def __init__(self) -> None:
        super().__init__(CONTENT)
        self.script = _Always(self._answer)
        self.forms: list[dict[str, str]] = []
        self.signed_by: list[str] = []
        self.used: list[str] = []
        self.refused: set[str] = set()
        self.says: tuple[int, str] | None = None

    async def _answer(self, server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
        match = re.search(r"Credential=(\w+)/", asked.headers.get("authorization", ""))
        key = match[1] if match else "nobody"
        if not asked.line.startswith("POST / "):
            self.used.append(key)
            await (status(403, "InvalidAccessKeyId") if key in self.refused else serve)(server, asked, writer)
            return
        form = {name: texts[0] for name, texts in parse_qs(asked.body.decode()).items()}
        self.forms.append(form)
        self.signed_by.append(key)
        if self.says is not None:
            code, name = self.says
            body = f"<ErrorResponse><Error><Code>{name}</Code><Message>no</Message></Error></ErrorResponse>".encode()
            writer.write(head(code, {"Content-Length": len(body)}) + body)
            return
        action = form["Action"]
        body = (
            f'<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result><Credentials>'
            f"<AccessKeyId>ROLE{len(self.forms)}</AccessKeyId><SecretAccessKey>secret</SecretAccessKey>"
            f"<SessionToken>token</SessionToken><Expiration>2098-01-01T00:00:00Z</Expiration></Credentials>"
            f"</{action}Result></{action}Response>"
        ).encode()
        writer.write(head(200, {"Content-Length": len(body), "Content-Type": "text/xml"}) + body)


class _Always(list):
    """A script that never ends."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self._answer = answer

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, _: Any) -> Any:
        return self._answer


@pytest.fixture
async def world() -> Any:
    async with World() as server:
        yield server


def store_on(world: World, **options: str) -> S3Store:
    where = {"aws_endpoint": world.endpoint, "aws_endpoint_url_sts": world.endpoint, "allow_http": "true"}
    return open_s3("bucket", {**where, "aws_region": "eu-west-1", "aws_role_arn": ARN, **options})


async def read(store: S3Store) -> None:
    assert bytes(await store.get_range("key", 5, 9)) == CONTENT[5:9]


async def test_a_token_in_a_file(world: World, tmp_path: Path) -> None:
    """It is read whenever the role is asked for, as when its keys are refused."""
    file = tmp_path / "token"
    file.write_text("first-token")
    store = store_on(world, aws_web_identity_token_file=str(file), aws_role_session_name="me")
    await asyncio.gather(*(read(store) for _ in range(10)), store.head("key"))
    assert (len(world.forms), set(world.used), world.signed_by) == (1, {"ROLE1"}, ["nobody"])
    asked = world.forms[0]
    assert (asked["Action"], asked["RoleArn"], asked["RoleSessionName"], asked["WebIdentityToken"]) == (
        "AssumeRoleWithWebIdentity", ARN, "me", "first-token",
    )  # fmt: skip
    file.write_text("second-token")
    world.refused = {"ROLE1"}
    await read(store)
    assert (world.forms[1]["WebIdentityToken"], world.used[-1]) == ("second-token", "ROLE2")
    await store.aclose()


@pytest.mark.parametrize("given", [True, False])
async def test_keys_that_assume_it(world: World, given: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"aws_access_key_id": "AKIA", "aws_secret_access_key": "secret"} if given else {}
    if not given:
        file = tmp_path / "credentials"
        file.write_text("[default]\naws_access_key_id = AKIA\naws_secret_access_key = secret\n")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    store = store_on(world, **options)
    await read(store)
    await store.head("key")
    assert (world.signed_by, set(world.used), world.forms[0]["Action"]) == (["AKIA"], {"ROLE1"}, "AssumeRole")
    assert world.forms[0]["RoleSessionName"] == "lance_io"
    world.refused = {"ROLE1"}
    await asyncio.gather(*(read(store) for _ in range(10)))
    assert (world.signed_by, world.used[-1]) == (["AKIA"] * 2, "ROLE2")
    await store.aclose()


async def test_a_role_that_is_not_given(world: World, tmp_path: Path) -> None:
    world.says = 403, "AccessDenied"
    file = tmp_path / "token"
    file.write_text("planted-token")
    store = store_on(world, aws_web_identity_token_file=str(file))
    with pytest.raises(AccessDenied) as caught:
        await read(store)
    assert "planted-token" not in str(caught.value) and world.used == []
    file.unlink()
    with pytest.raises(AccessDenied):
        await read(store)
    world.says = None
    file.write_text("a token")
    await read(store)
    await store.aclose()
    lonely = store_on(world)
    with pytest.raises(AccessDenied, match="no AWS credentials"):
        await read(lonely)
    await lonely.aclose()


def test_what_options_and_environment_say(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"AWS_ROLE_ARN": ARN, "AWS_WEB_IDENTITY_TOKEN_FILE": "/token", "AWS_ROLE_SESSION_NAME": "env"}
    assert parse_s3("bucket", {}, environment).role is None  # aiobotocore's to find
    found = parse_s3("bucket", {"aws_web_identity_token_file": "/other"}, environment).role
    assert found is not None and (found.arn, found.token_file, found.session_name) == (ARN, "/other", "env")
    with pytest.raises(UsageError, match="needs aws_role_arn"):
        parse_s3("bucket", {"aws_web_identity_token_file": "/other"}, {})
    with pytest.raises(UsageError, match="not encrypted"):
        parse_s3("bucket", {"aws_role_arn": ARN, "endpoint_url_sts": "http://127.0.0.1:9"}, {})
    assert "reader" in open_s3("bucket", {"aws_role_arn": ARN}).access


def test_tables_by_a_role_on_a_real_server(s3: S3Server, s3_uri: str) -> None:
    """MinIO gives keys of a session to whoever asks by keys, whatever the role."""
    options = s3.options(aws_role_arn=ARN, aws_endpoint_url_sts=s3.endpoint)
    rows = pa.table({"a": range(10)})
    lance_io.write_dataset(rows, s3_uri, storage_options=options)
    assert lance_io.dataset(s3_uri, storage_options=options).to_table() == rows
