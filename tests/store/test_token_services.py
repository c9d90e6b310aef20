"""Services that give tokens, and say back what they are asked with: nothing of it is seen."""

from __future__ import annotations

import json
import logging
import pickle
import traceback
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from lance_io.errors import AccessDenied
from lance_io.store.cloud.client_options import file_secret
from lance_io.store.gcs.gcs_store import open_gcs
from lance_io.store.s3.bucket import open_s3
from tests.http_faults import Asked, FaultServer, head

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path

ARN = "arn:aws:iam::123456789012:role/reader"
TOKEN = "xyzzy.words.of-a-token"
SECRETS = {
    "aws_access_key_id": "AKIDxyzzy",
    "aws_secret_access_key": "secret-xyzzy",
    "aws_session_token": "xyzzy/words+1",
}
FILE = "\n".join(["[default]", *(f"{name} = {text}" for name, text in SECRETS.items())])
WAYS: dict[
    str, tuple[dict[str, str], dict[str, str]]
] = {  # options and variables, with names of files in place of TEXT
    "token": ({"aws_role_arn": ARN, "aws_web_identity_token_file": "TOKEN"}, {}),
    "token by variables": ({}, {"AWS_ROLE_ARN": ARN, "AWS_WEB_IDENTITY_TOKEN_FILE": "TOKEN"}),
    "keys": ({"aws_role_arn": ARN, **SECRETS}, {}),
    "a file of keys": ({"aws_role_arn": ARN}, {"AWS_SHARED_CREDENTIALS_FILE": "KEYS"}),
    "container": (
        {"aws_container_credentials_full_uri": "ENDPOINT", "aws_container_authorization_token_file": "TOKEN"},
        {},
    ),
}


class Service(FaultServer):
    """Refuses everything, and says back all that it was sent: as it came, and bare, without the names of fields."""

    def __init__(self) -> None:
        super().__init__(b"")
        self.planted: tuple[str, ...] = ()
        self.sent: list[str] = []

    async def answer(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        form = asked.body.decode()
        self.sent.append(form)
        text = f"{form.replace('&', '; ')} {asked.headers} the token {' or '.join(self.planted)} is not valid"
        if "json" in asked.headers.get("accept", "") or "google" in form:
            body = json.dumps({"error": "invalid_client", "error_description": text}).encode()
        else:
            error = f"<Error><Code>InvalidToken</Code><Message>{text}</Message></Error>"
            body = f"<ErrorResponse>{error}</ErrorResponse>".encode()
        writer.write(head(400, {"Content-Length": len(body)}) + body)


@pytest.fixture
async def service(monkeypatch: pytest.MonkeyPatch) -> Any:
    class Always(list[Any]):
        def __len__(self) -> int:
            return 1 << 30

        def __getitem__(self, _: Any) -> Any:
            return lambda server, asked, writer: server.answer(asked, writer)

    async with Service() as server:
        server.script = Always()
        yield server


def shown(error: BaseException) -> str:
    return " ".join([*traceback.format_exception(error), repr(vars(error)), repr(pickle.dumps(error))])


@pytest.mark.parametrize("way", WAYS)
async def test_services_of_amazon(
    way: str,
    service: Service,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "keys").write_text(FILE)
    files = {"TOKEN": str(tmp_path / "token"), "KEYS": str(tmp_path / "keys"), "ENDPOINT": f"{service.endpoint}/keys"}
    options, variables = ({name: files.get(text, text) for name, text in one.items()} for one in WAYS[way])
    for name, text in {**variables, "AWS_ENDPOINT_URL_STS": service.endpoint}.items():
        monkeypatch.setenv(name, text)
    where = {"aws_endpoint": service.endpoint, "allow_http": "true", "aws_region": "eu-west-1"}
    service.planted = tuple(SECRETS.values()) if "keys" in way else (TOKEN,)
    store = open_s3("bucket", {**where, **options, "client_max_retries": "0"})
    with pytest.raises(AccessDenied) as caught:
        await store.get_range("key", 0, 5)
    await store.aclose()
    assert service.requests and "is not valid" in str(caught.value)
    logged = [logging.Formatter().format(record) for record in caplog.records if record.levelno >= logging.WARNING]
    assert "xyzzy" not in " ".join([shown(caught.value), *logged])


async def test_services_of_google(service: Service, tmp_path: Path) -> None:
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {"client_email": "me@here", "private_key": key.decode(), "token_uri": service.endpoint}
    user = {"type": "authorized_user", "client_id": "me", "client_secret": "xyzzy-1", "refresh_token": "xyzzy-2"}
    (tmp_path / "user.json").write_text(json.dumps({**user, "token_uri": service.endpoint}))
    for options, planted in (
        ({"google_service_account_key": json.dumps(account)}, ()),
        ({"google_application_credentials": str(tmp_path / "user.json")}, ("xyzzy-1", "xyzzy-2")),
    ):
        service.planted = planted
        store = open_gcs("bucket", {**options, "client_max_retries": "0"})
        with pytest.raises(OSError, match="no token") as caught:
            await store.get_range("key", 0, 5)
        await store.aclose()
        assert "xyzzy" not in shown(caught.value)
        for form in service.sent:
            assertion = dict(pair.split("=", 1) for pair in form.split("&")).get("assertion", "nothing-of-it")
            assert assertion not in shown(caught.value)
    assert service.sent


def test_files_that_hold_no_token(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "header").write_text("Bearer abcdef\n")
    assert file_secret(None) == file_secret(str(tmp_path / "none")) == file_secret(str(tmp_path / "binary")) == ()
    assert file_secret(str(tmp_path / "header")) == ("Bearer abcdef", "abcdef")
