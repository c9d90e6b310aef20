"""Services of tokens and of versions are reached as the store is: certificates, proxies and timeouts of the options.

They speak TLS under names that no resolver knows, and say back what they are asked with where they refuse it.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import ssl
import traceback
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from lance_io.commit.dynamodb import DynamoManifestStore
from lance_io.errors import LanceError
from lance_io.plans.plan import drive_async
from lance_io.store.azure.container import open_azure
from lance_io.store.gcs.gcs_store import open_gcs
from lance_io.store.s3.bucket import open_s3
from lance_io.store.s3.bucket_options import parse_s3
from tests.bucket import Bucket, GoogleBucket
from tests.http_faults import Asked, head, read_asked
from tests.listening import Listener
from tests.store.forward_proxy import ForwardProxy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

NAME = "tokens.test.invalid"
TOKEN = "xyzzy.words.of-a-token"
CREDENTIALS = (
    "<Credentials><AccessKeyId>ROLE</AccessKeyId><SecretAccessKey>secret</SecretAccessKey>"
    "<SessionToken>token</SessionToken><Expiration>2098-01-01T00:00:00Z</Expiration></Credentials>"
)


class Service(Listener):
    """STS, Entra, Fabric's and Google's services of tokens, and DynamoDB, behind TLS.

    says  "tokens"; "no": everything is refused, and said back; "nothing": there is no answer
    """

    def __init__(self, certificate: trustme.LeafCert) -> None:
        super().__init__()
        self.says = "tokens"
        self.asked: list[Asked] = []
        self._certificate = certificate

    async def __aenter__(self) -> Service:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._certificate.configure_cert(context)
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """One request after the other."""
        while True:
            asked = await read_asked(client)
            self.asked.append(asked)
            if self.says == "nothing":
                await client.read()
                return
            body = self._body(asked)
            to_client.write(head(400 if self.says == "no" else 200, {"Content-Length": len(body)}) + body)
            await to_client.drain()

    def _body(self, asked: Asked) -> bytes:
        form = asked.body.decode()
        if self.says == "no":
            sent = f"{form} {asked.headers}"
            told = f"{sent} {TOKEN}" if TOKEN in sent else sent
            error = f"<ErrorResponse><Error><Code>InvalidToken</Code><Message>{told}</Message></Error></ErrorResponse>"
            return (error if "Action=" in form else json.dumps({"error": "no", "error_description": told})).encode()
        if "Action=" in form:
            action = "AssumeRoleWithWebIdentity"
            return f"<{action}Response><{action}Result>{CREDENTIALS}</{action}Result></{action}Response>".encode()
        if "x-amz-target" in asked.headers:
            return b"{}"
        if "x-ms-partner-token" in asked.headers:
            return b"gained"
        return json.dumps({"access_token": "gained", "expires_in": 3600, "token_type": "Bearer"}).encode()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def service(authority: trustme.CA) -> Any:
    async with Service(authority.issue_cert(NAME, "127.0.0.1")) as server:
        yield server


async def by_sts(url: str, options: dict[str, str], token: str) -> None:
    async with Bucket({"key": b"12345"}) as bucket:
        where = {"aws_endpoint": bucket.endpoint, "allow_http": "true", "aws_region": "eu-west-1"}
        role = {"aws_role_arn": "arn:aws:iam::1:role/r", "aws_web_identity_token_file": token}
        store = open_s3("bucket", {**where, **role, "aws_endpoint_url_sts": url, **options})
        try:
            assert bytes(await store.get_range("key", 0, 2)) == b"12"
        finally:
            await store.aclose()


async def by_google(url: str, options: dict[str, str], token: str) -> None:
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {"client_email": "me@here", "private_key": key.decode(), "token_uri": f"{url}/token"}
    async with GoogleBucket({"key": b"12345"}) as bucket:
        where = {**bucket.place("http"), "allow_http": "true", "google_service_account_key": json.dumps(account)}
        store = open_gcs("bucket", {**where, **options})
        try:
            assert bytes(await store.get_range("key", 0, 2)) == b"12"
        finally:
            await store.aclose()


async def by_entra(url: str, options: dict[str, str], token: str) -> None:
    who = {"account_name": "account", "client_id": "me", "tenant_id": "here", "authority_host": url}
    for more in ({"client_secret": TOKEN}, {"federated_token_file": token}):
        store = open_azure("box", {**who, **more, **options})
        try:
            found = await store.connect().state.authorization("key")
            assert "Bearer gained" in found.lines("/", {}, {})
        finally:
            await store.aclose()


async def by_fabric(url: str, options: dict[str, str], token: str) -> None:
    who = {"account_name": "account", "fabric_token_service_url": url, "fabric_workload_host": "host"}
    who |= {"fabric_session_token": TOKEN, "fabric_cluster_identifier": "cluster"}
    store = open_azure("box", {**who, **options})
    try:
        found = await store.connect().state.authorization("key")
        assert "Bearer gained" in found.lines("/", {}, {})
    finally:
        await store.aclose()


async def by_dynamodb(url: str, options: dict[str, str], token: str) -> None:
    keys = {"aws_access_key_id": "AKID", "aws_secret_access_key": "secret", "aws_session_token": TOKEN}
    parsed = parse_s3("bucket", {**keys, "aws_region": "eu-west-1", **options}, {})
    rows = DynamoManifestStore("rows", parsed, url)
    try:
        assert await drive_async(rows.get_latest("t.lance")) is None
    finally:
        await rows.aclose()


SERVICES: dict[str, Callable[[str, dict[str, str], str], Awaitable[None]]] = {
    "sts": by_sts,
    "google": by_google,
    "entra": by_entra,
    "fabric": by_fabric,
    "dynamodb": by_dynamodb,
}


@pytest.fixture
def trust(authority: trustme.CA, tmp_path: Path) -> dict[str, str]:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return {"proxy_ca_certificate": str(tmp_path / "ca.pem"), "client_max_retries": "0"}


@pytest.fixture
def token(tmp_path: Path) -> str:
    (tmp_path / "token").write_text(TOKEN)
    return str(tmp_path / "token")


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")  # of urllib3, since that is asked for
@pytest.mark.parametrize("kind", SERVICES)
async def test_certificates_and_proxies(
    kind: str, service: Service, trust: dict[str, str], token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use = SERVICES[kind]
    here = f"https://127.0.0.1:{service.port}"
    with pytest.raises(LanceError):
        await use(here, {"client_max_retries": "0"}, token)
    assert service.asked == []
    await use(here, trust, token)
    await use(here, {"allow_invalid_certificates": "true"}, token)
    num_before = len(service.asked)
    monkeypatch.setenv("NO_PROXY", "*")  # the option comes first
    with ForwardProxy("127.0.0.1", service.port) as proxy:
        by_proxy = {"proxy_url": proxy.endpoint, "proxy_excludes": "127.0.0.0/8"}
        await use(f"https://{NAME}", {**trust, **by_proxy}, token)
        assert {line.split(":")[0] for line in proxy.asked} == {f"CONNECT {NAME}"}
        assert len(service.asked) > num_before
        num_before = len(proxy.asked)
        await use(here, {**trust, **by_proxy}, token)
        assert len(proxy.asked) == num_before


@pytest.mark.parametrize("kind", SERVICES)
async def test_silence(kind: str, service: Service, trust: dict[str, str], token: str) -> None:
    service.says = "nothing"
    with pytest.raises(LanceError):
        await asyncio.wait_for(
            SERVICES[kind](f"https://127.0.0.1:{service.port}", {**trust, "timeout": "1s"}, token), 25
        )
    assert service.asked


@pytest.mark.parametrize("kind", SERVICES)
async def test_what_is_said_back_is_not_shown(
    kind: str, service: Service, trust: dict[str, str], token: str, caplog: pytest.LogCaptureFixture
) -> None:
    service.says = "no"
    with pytest.raises(LanceError) as caught:
        await SERVICES[kind](f"https://127.0.0.1:{service.port}", trust, token)
    error = caught.value
    shown = [*traceback.format_exception(error), repr(vars(error)), repr(pickle.dumps(error))]
    shown += [record.getMessage() + str(record.exc_text) for record in caplog.records if record.levelname != "DEBUG"]
    assert service.asked and "xyzzy" not in " ".join(shown)
