"""Tokens for Google Cloud Storage: found, renewed ahead of their end, and nowhere to be seen."""

from __future__ import annotations

import asyncio
import json
import pickle
import traceback
from base64 import urlsafe_b64decode
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from lance_io.errors import AccessDenied, LanceError, UsageError
from lance_io.store.failures import Transient
from lance_io.store.gcs.gcs_options import parse_gcs
from lance_io.store.gcs.gcs_store import GcsStore, open_gcs
from tests.http_faults import Asked, head, read_asked
from tests.listening import Listener

if TYPE_CHECKING:
    from pathlib import Path

CONTENT = bytes(range(256)) * 40


class Google(Listener):
    """Gives tokens `token-1`, `token-2`, ... at `/token`, and the one object to whoever brings an accepted one.

    expires_in_s  that tokens hold
    refusal       what the giver of tokens answers instead: status and document
    held          while this is not set, no token is given
    """

    def __init__(self) -> None:
        super().__init__()
        self.expires_in_s = 3600
        self.refusal: tuple[int, dict[str, Any]] | None = None
        self.held = asyncio.Event()
        self.held.set()
        self.grants: list[Asked] = []
        self.granted = asyncio.Event()
        self.used: list[str] = []
        self.revoked: set[str] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.held.set()
        await self.stop()

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        while True:
            asked = await read_asked(client)
            if asked.line.startswith("POST /token"):
                self.grants.append(asked)
                number = len(self.grants)
                self.granted.set()
                await self.held.wait()
                token = {"access_token": f"token-{number}", "expires_in": self.expires_in_s, "token_type": "Bearer"}
                code, document = self.refusal or (200, token)
            else:
                token = asked.headers.get("authorization", "").removeprefix("Bearer ")
                self.used.append(token)
                if token and token not in self.revoked:
                    to_client.write(self._object(asked))
                    continue
                code, document = 401, {"error": {"code": 401, "message": f"Invalid Credentials {token}"}}
            body = json.dumps(document).encode()
            fields = {"Content-Length": len(body), "Content-Type": "application/json"}
            to_client.write(head(code, fields) + body)

    def _object(self, asked: Asked) -> bytes:
        if "alt=media" not in asked.line:
            document = {"name": "key", "size": len(CONTENT), "generation": 1}
            body = json.dumps(document).encode()
            return head(200, {"Content-Length": len(body)}) + body
        start, end = asked.span(len(CONTENT)) or (0, len(CONTENT))
        fields = {"Content-Length": end - start, "Content-Range": f"bytes {start}-{end - 1}/{len(CONTENT)}"}
        return head(206, fields) + CONTENT[start:end]


@pytest.fixture(scope="module")
def private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


@pytest.fixture
async def google() -> Any:
    async with Google() as server:
        yield server


@pytest.fixture
def account(google: Google, private_key: str) -> dict[str, str]:
    """A service account's key."""
    return {
        "type": "service_account",
        "project_id": "project",
        "private_key_id": "number",
        "private_key": private_key,
        "client_email": "somebody@project.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": f"{google.endpoint}/token",
    }


def store_on(google: Google, **options: str) -> GcsStore:
    return open_gcs("bucket", {"google_base_url": google.endpoint, "allow_http": "true", **options})


async def check_reads(store: GcsStore, times: int = 1) -> None:
    for _ in range(times):
        assert bytes(await store.get_range("key", 5, 500)) == CONTENT[5:500]


@pytest.mark.parametrize("way", ["text", "file", "credentials", "environment"])
async def test_a_service_account_gets_one_token_for_all(
    google: Google, account: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    file = tmp_path / "key.json"
    file.write_text(json.dumps(account))
    options = {
        "text": {"service_account_key": json.dumps(account)},
        "file": {"google_service_account": str(file)},
        "credentials": {"google_application_credentials": str(file)},
        "environment": {},
    }[way]
    if way == "environment":
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    store = store_on(google, **options)
    await asyncio.gather(*(check_reads(store) for _ in range(20)))
    assert (await store.head("key")).size_bytes == len(CONTENT)
    other = store_on(google, **options)  # told the same, it shares the token
    await check_reads(other)
    await asyncio.gather(store.aclose(), other.aclose())
    assert set(google.used) == {"token-1"} and len(google.grants) == 1
    assert parse_qs(google.grants[0].body.decode())["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]


async def test_a_token_is_renewed_ahead_and_nobody_waits(
    google: Google, account: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lance_io.store.cloud.renewal.AGAIN_S", 0.0)
    google.expires_in_s = 100  # less than there shall be left
    store = store_on(google, google_service_account_key=json.dumps(account))
    google.granted.clear()
    await check_reads(store)
    google.held.clear()
    google.granted.clear()
    google.expires_in_s = 3600
    await check_reads(store, 3)  # the renewal is begun and held
    await google.granted.wait()
    assert set(google.used) == {"token-1"}
    google.held.set()
    while google.used[-1] != "token-2":
        await check_reads(store)
    await check_reads(store, 5)
    await store.aclose()
    assert len(google.grants) == 2


async def test_who_has_no_token_that_holds_waits_for_one(google: Google, account: dict[str, str]) -> None:
    google.expires_in_s = 3
    store = store_on(google, google_service_account_key=json.dumps(account))
    await check_reads(store, 3)
    await store.head("key")
    assert google.used == ["token-1", "token-2", "token-3", "token-4"]
    await store.aclose()


async def test_a_token_that_is_refused_is_renewed_once(google: Google, account: dict[str, str]) -> None:
    google.revoked = {"token-1"}
    store = store_on(google, google_service_account_key=json.dumps(account))
    await check_reads(store, 2)
    assert (google.used[0], set(google.used[1:])) == ("token-1", {"token-2"})
    google.revoked |= {"token-2"}
    await asyncio.gather(*(check_reads(store) for _ in range(20)), store.head("key"))
    assert len(google.grants) == 3
    google.revoked |= {f"token-{number}" for number in range(100)}  # one that is new is refused, too: no third one
    for work in (store.get_range("key", 0, 1), store.head("key")):
        before = len(google.used), len(google.grants)
        with pytest.raises(AccessDenied) as caught:
            await work
        assert "token-" not in str(caught.value)
        assert (len(google.used), len(google.grants)) == (before[0] + 2, before[1] + 1)
    await store.aclose()
    fixed = store_on(google, google_storage_token="token-1")
    used = len(google.used)
    with pytest.raises(AccessDenied):
        await fixed.get_range("key", 0, 1)
    await fixed.aclose()
    assert len(google.used) == used + 1


@pytest.mark.parametrize("name", ["google_service_account", "google_application_credentials"])
async def test_a_key_of_a_file_that_was_replaced(
    google: Google, account: dict[str, str], tmp_path: Path, name: str
) -> None:
    """The file is read again when the store refuses the token, and when the giver of tokens refuses the key."""
    file = tmp_path / "key.json"

    def write(email: str) -> None:
        file.write_text(json.dumps({**account, "client_email": email}))

    def asked_by() -> str:
        claims = parse_qs(google.grants[-1].body.decode())["assertion"][0].split(".")[1]
        return str(json.loads(urlsafe_b64decode(claims + "=="))["iss"])

    write("first@project")
    store = store_on(google, **{name: str(file)})
    await check_reads(store)
    write("second@project")
    google.revoked = {"token-1"}
    await check_reads(store)
    assert (asked_by(), len(google.grants)) == ("second@project", 2)
    google.revoked |= {"token-2"}
    google.refusal = 400, {"error": "invalid_grant"}
    with pytest.raises(AccessDenied, match="no token"):
        await store.get_range("key", 0, 1)
    write("third@project")
    google.refusal = None
    await check_reads(store)
    assert asked_by() == "third@project"
    await store.aclose()


async def test_a_giver_of_tokens_that_refuses_or_fails(google: Google, account: dict[str, str]) -> None:
    options = {"google_service_account_key": json.dumps(account), "client_max_retries": "1"}
    google.refusal = 400, {"error": "invalid_grant", "error_description": account["private_key"]}
    store = store_on(google, **options)
    with pytest.raises(AccessDenied, match="no token") as caught:
        await store.get_range("key", 0, 1)
    check_shows_nothing(caught.value, account)
    with pytest.raises(AccessDenied, match="no token"):
        await store.put("key", b"")
    await store.aclose()


def check_shows_nothing(error: LanceError, account: dict[str, str]) -> None:
    """Neither the error, nor what it holds, nor its traceback shows the key."""
    pieces = account["private_key"].splitlines()[1:4]
    shown = "".join(traceback.format_exception(error)) + repr(error) + str(pickle.loads(pickle.dumps(error)))
    assert not any(piece in shown or piece in repr(pickle.dumps(error)) for piece in pieces)


async def test_nobody_gives_tokens(account: dict[str, str]) -> None:
    async with Google() as gone:
        pass
    key = {**account, "token_uri": f"{gone.endpoint}/token"}
    options = {"google_service_account_key": json.dumps(key), "client_max_retries": "0"}
    store = store_on(gone, **options)
    with pytest.raises((Transient, AccessDenied), match="no token") as caught:
        await store.head("key")
    check_shows_nothing(caught.value, account)
    await store.aclose()


async def test_there_are_no_credentials_at_all(google: Google) -> None:
    store = store_on(google)
    for work in (store.get_range("key", 0, 1), store.put("key", b"1", if_absent=True)):
        with pytest.raises(AccessDenied, match="google_skip_signature") as caught:
            await work
        assert caught.value.path == "key"
    await store.aclose()
    assert google.used == []


def test_options_and_what_they_show(account: dict[str, str], tmp_path: Path) -> None:
    key = json.dumps({**account, "gcs_base_url": "http://127.0.0.1:9/", "disable_oauth": True})
    found = parse_gcs("bucket", {"service_account_key": key, "allow_http": "true", "bearer_token": "abc"}, {})
    assert (found.endpoint, found.skip_signature, found.token) == ("http://127.0.0.1:9", True, "abc")
    assert "abc" not in repr(found) and account["private_key"][40:60] not in repr(found)
    assert found.identity == "gs://bucket@http://127.0.0.1:9"
    assert repr(GcsStore(found)) == "GcsStore('gs://bucket@http://127.0.0.1:9')"
    environment = {"GOOGLE_STORAGE_TOKEN": "env", "GOOGLE_SKIP_SIGNATURE": "true", "SERVICE_ACCOUNT": "of others"}
    found = parse_gcs("bucket", {}, environment)
    assert (found.token, found.skip_signature, found.service_account) == ("env", True, None)
    for options in (
        {"google_service_account_key": "{no json"},
        {"google_service_account_key": '["a"]'},
        {"google_service_account": str(tmp_path / "missing")},
        {"google_base_url": "http://127.0.0.1:9"},
        {"google_base_url": "https://user:secret@host"},
        {"google_skip_signature": "perhaps"},
        {"google_storage_token": "secret\r\nname: value"},
    ):
        with pytest.raises(UsageError) as caught:
            parse_gcs("bucket", options, {})
        assert "no json" not in str(caught.value) and "secret" not in str(caught.value)
