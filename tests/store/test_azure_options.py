"""What URLs, options and variables say about a container, and how requests are authorised by it."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from azure.storage.blob._shared.authentication import SharedKeyCredentialPolicy
from lance import dataset as pylance_dataset

from lance_io.errors import AccessDenied, UnsupportedError, UsageError
from lance_io.store.azure.account_clients import AccountClients
from lance_io.store.azure.authorization import VERSION
from lance_io.store.azure.container import open_azure
from lance_io.store.azure.container_options import (
    EMULATOR_ACCOUNT,
    EMULATOR_KEY,
    AzureOptions,
    parse_azure,
    split_authority,
)
from lance_io.store.azure.container_site import ContainerSite
from lance_io.store.offers import WantedRange
from lance_io.store.policies.download import Download
from lance_io.store.url import resolve_uri
from tests.http_faults import Asked, FaultServer, head

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY = "a2V5IG9mIHRoZSBhY2NvdW50"
GIVEN = {"account_name": "account", "account_key": KEY}


def parsed(options: Mapping[str, str], environment: Mapping[str, str] | None = None, at: str = "box") -> AzureOptions:
    return parse_azure(at, options, environment or {})


@pytest.mark.parametrize(
    ("name", "field"),
    [
        *((name, "account_key") for name in ("account_key", "access_key", "master_key")),
        *((f"azure_storage_{name}", "account_key") for name in ("account_key", "access_key", "master_key")),
        *((name, "token") for name in ("token", "bearer_token", "azure_storage_token")),
        *((name, "client_id") for name in ("client_id", "azure_client_id", "azure_storage_client_id")),
        *((name, "client_secret") for name in ("client_secret", "azure_client_secret", "azure_storage_client_secret")),
        *((name, "tenant_id") for name in ("tenant_id", "azure_authority_id", "azure_storage_tenant_id")),
        *((name, "authority_host") for name in ("authority_host", "azure_storage_authority_host")),
        *((name, "federated_token_file") for name in ("federated_token_file", "azure_federated_token_file")),
        *((name, "object_id") for name in ("object_id", "azure_object_id")),
        *((name, "msi_resource_id") for name in ("msi_resource_id", "azure_msi_resource_id")),
    ],
)
def test_names_of_credentials(name: str, field: str) -> None:
    assert getattr(parsed({"account_name": "account", name: KEY}), field) == KEY
    if name.startswith("azure_"):
        assert getattr(parsed({"account_name": "account"}, {name.upper(): KEY}), field) == KEY
    elif name != "bearer_token":
        assert getattr(parsed({"account_name": "account"}, {name.upper(): KEY}), field) is None


@pytest.mark.parametrize("name", ["account_name", "azure_storage_account_name", "azure_account_name"])
def test_names_of_the_account(name: str) -> None:
    assert parsed({name: "somebody"}).endpoint == "https://somebody.blob.core.windows.net"


@pytest.mark.parametrize("name", ["sas_token", "sas_key", "azure_storage_sas_token", "azure_storage_sas_key"])
def test_signatures_are_taken_as_they_stand_in_urls(name: str) -> None:
    for text in ("?sv=1&sig=a%2Bb%3D", "sv=1&sig=a%2Bb%3D", " sv=1&sig=a+b="):
        assert parsed({"account_name": "account", name: text}).sas_token == "sv=1&sig=a%2Bb%3D"


@pytest.mark.parametrize(
    ("authority", "found"),
    [
        ("box", ("box", None, None)),
        ("$web", ("$web", None, None)),
        ("box@acc", ("box", "acc", None)),
        ("box@acc.dfs.core.windows.net", ("box", "acc", "https://acc.blob.core.windows.net")),
        ("box@acc.blob.core.windows.net", ("box", "acc", "https://acc.blob.core.windows.net")),
        ("Work@one.dfs.fabric.microsoft.com", ("Work", "one", "https://one.blob.fabric.microsoft.com")),
    ],
)
def test_urls_with_an_account(authority: str, found: tuple[str, str | None, str | None]) -> None:
    assert split_authority(authority) == found


@pytest.mark.parametrize("authority", ["box@", "@acc", "box@a_b", "box@acc.evil.net", "acc.blob.core.windows.net"])
def test_urls_that_name_no_container(authority: str) -> None:
    with pytest.raises(UsageError):
        split_authority(authority)


def test_the_url_goes_before_the_options() -> None:
    found = parsed({"account_name": "other", "account_key": KEY}, at="box@acc.dfs.core.windows.net")
    assert (found.account, found.endpoint) == ("acc", "https://acc.blob.core.windows.net")


def test_the_emulator() -> None:
    found = parsed({"use_emulator": "true"})
    assert (found.account, found.account_key) == (EMULATOR_ACCOUNT, EMULATOR_KEY)
    assert found.endpoint == "http://127.0.0.1:10000/devstoreaccount1"
    found = parsed({"azure_storage_use_emulator": "1"}, {"AZURITE_BLOB_STORAGE_URL": "http://127.0.0.1:5/"})
    assert found.endpoint == "http://127.0.0.1:5/devstoreaccount1"
    found = parsed({}, {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURE_STORAGE_ACCOUNT_KEY": KEY})
    assert found.account_key == KEY


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"account_name": "Account"},
        {"account_name": "a/b"},
        {**GIVEN, "account_key": "no base64"},
        {**GIVEN, "sas_token": "nonsense"},
        {"account_name": "account", "token": "two\r\nlines"},
        {**GIVEN, "endpoint": "ftp://there"},
        {**GIVEN, "endpoint": "http://there"},
        {**GIVEN, "endpoint": "https://user:password@there"},
        {"account_name": "account", "token": "abc", "endpoint": "http://there", "allow_http": "true"},
        {"account_name": "account", "endpoint": "http://there", "allow_http": "true"},
    ],
    ids=range(11),
)
def test_options_that_make_no_sense(options: dict[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        parsed(options)
    for secret in ("no base64", "nonsense", "two", "password"):
        assert secret not in str(caught.value)


def test_options_of_all_clients_are_known_with_and_without_a_prefix() -> None:
    for first in ("", "azure_"):
        found = parsed({**GIVEN, f"{first}connect_timeout": "3s", f"{first}client_max_retries": "2"})
        assert (found.connect_timeout_s, found.retry.attempts_max) == (3.0, 3)
    assert parsed(GIVEN, {"AZURE_ALLOW_HTTP": "true", "AZURE_ENDPOINT": "http://there/x/"}).endpoint == "http://there/x"


def test_no_secret_shows() -> None:
    options = {**GIVEN, "sas_token": "sv=1&sig=secret1", "token": "secret2", "client_secret": "secret3"}
    shown = repr(parsed(options)) + repr(resolve_uri("az://box/x", options).store)
    assert not any(secret in shown for secret in (KEY, "secret1", "secret2", "secret3"))


# -- what pylance makes of the same -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "is_anonymous"),
    [
        (GIVEN, False),
        ({"azure_storage_account_name": "account", "azure_storage_access_key": KEY}, False),
        ({"account_name": "account", "sas_key": "sv=1&sig=abc"}, False),
        ({"account_name": "account", "skip_signature": "true"}, True),
    ],
    ids=range(4),
)
async def test_pylance_takes_the_same_options(options: dict[str, str], is_anonymous: bool) -> None:
    """It asks the same place, authorised in the same way."""
    from tests.http_faults import FaultServer, status

    async with FaultServer(b"", [status(403, "AuthorizationFailure", "no")] * 99) as server:
        where = {"azure_endpoint": f"{server.endpoint}/account", "allow_http": "true", "client_max_retries": "0"}
        with pytest.raises((ValueError, OSError)):
            await asyncio.to_thread(pylance_dataset, "az://box/t.lance", storage_options={**options, **where})
        theirs = server.requests[0]
        store = resolve_uri("az://box/t.lance", {**options, **where}).store
        del server.requests[:]
        with pytest.raises(OSError):
            _ = [meta async for meta in store.list("t.lance/_versions/")]
        await store.aclose()
        ours = server.requests[0]

    def proof(request: Any) -> tuple[str, str | None]:
        target = urlsplit(request.line.split()[1])
        authorization = request.headers.get("authorization", "").partition(":")[0]
        return target.path, "sig" if "sig=abc" in target.query else authorization

    assert proof(ours) == proof(theirs)
    assert proof(ours) == ("/account/box", proof(ours)[1])
    assert is_anonymous == (proof(ours)[1] == "")


# -- signatures -------------------------------------------------------------------------------------------------------


class _Request:
    """As much of a request as the library's own signer wants to see."""

    def __init__(self, line: str, headers: dict[str, str]) -> None:
        target = urlsplit(line.split()[1])
        self.method, self.url = "GET", f"https://host{target.path}?{target.query}"
        self.headers = {"byte_range" if name == "range" else name: text for name, text in headers.items()}
        self.query = dict(pair.split("=", 1) for pair in target.query.split("&") if pair)
        self.http_request, self.context = self, SimpleNamespace(transport=None)


@pytest.mark.parametrize("key", ["plain", "with space/ü/漢字", "a=b&c?d#e%25+", "(x)~'!$,*;:@"])
@pytest.mark.parametrize("endpoint", [{}, {"endpoint": "https://there:1/account"}], ids=["azure", "path"])
async def test_signatures_are_those_of_the_library(key: str, endpoint: dict[str, str]) -> None:
    options = parsed({**GIVEN, **endpoint})
    site = ContainerSite(options, AccountClients(options, 1))
    broken = Download.of_range(key, 5, 9)
    broken.continue_from(100, '"etag"', 2, memoryview(bytearray(4)))
    question = {"restype": "container", "comp": "list", "prefix": f"{key}/", "delimiter": "/", "maxresults": "10"}
    heads = [
        *site.range_requests([WantedRange(key, 1, 2), WantedRange(key, 5, 6)])[1],
        site.request(broken)[1],
        site.request(Download.of_object(key))[1],
        site.query_request(question)[1],
    ]
    for one_head in heads:
        line, *lines = one_head.decode("latin-1").strip().split("\r\n")
        headers = dict(one.split(": ", 1) for one in lines)
        given = headers.pop("authorization")
        assert headers["x-ms-version"] == VERSION
        request = _Request(line, headers)
        SharedKeyCredentialPolicy("account", KEY).on_request(request)
        assert request.headers["Authorization"] == given


async def test_tokens_of_a_machine_by_a_service_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose answers may be anything, and whose tokens show nowhere."""
    monkeypatch.setenv("IDENTITY_HEADER", "planted-header")
    answers = [
        (200, b'{"access_token": "first", "expires_in": "3600"}'),
        (200, b'{"access_token": "second", "expires_on": "4000000000"}'),
        (403, b"planted-header"),
        (200, b"[]"),
        (200, b"no json planted-header"),
    ]

    async def answer(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
        code, body = answers.pop(0)
        writer.write(head(code, {"Content-Length": len(body)}) + body)

    async with FaultServer(b"", [answer] * len(answers)) as server:
        where = {"account_name": "account", "msi_endpoint": f"{server.endpoint}/token", "object_id": "me"}
        clients = open_azure("box", where).connect().state
        for expected in ("first", "second"):
            found = await clients.authorization("key")
            assert f"Bearer {expected}\r\n" in found.lines("/", {}, {})
            assert await clients.refetch() if expected == "first" else True
        clients._tokens.forget(clients._tokens.latest)
        for _ in range(3):
            with pytest.raises(AccessDenied, match="no token of the machine's identity") as caught:
                await clients.authorization("key")
            assert "planted" not in str(caught.value) and caught.value.path == "key"
        await clients.close()
    for asked in server.requests:
        assert asked.line.startswith("GET /token?") and "object_id=me" in asked.line
        assert "resource=https" in asked.line and asked.headers["metadata"] == "true"
        assert asked.headers["x-identity-header"] == "planted-header"
    with pytest.raises(UsageError, match="msi_endpoint"):
        parse_azure("box", {"account_name": "account", "msi_endpoint": "file:///etc"}, {})


def _jwt(name: str, ends_s: float | None) -> str:
    claims = {"name": name} if ends_s is None else {"name": name, "exp": ends_s}
    return f"h.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.s"


async def test_tokens_of_fabric() -> None:
    """The service is asked as pylance asks it; a token that was given is used as long as it holds."""
    now_s = time.time()
    tokens = [_jwt("one", now_s + 7200), _jwt("two", None), "no\ntoken", ""]
    answers = [*tokens, None]

    async def answer(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
        found = answers.pop(0)
        body = b"planted-session" if found is None else found.encode()
        writer.write(head(403 if found is None else 200, {"Content-Length": len(body)}) + body)

    async with FaultServer(b"", [answer] * len(answers)) as server:
        where = {
            "account_name": "account", "fabric_token_service_url": f"{server.endpoint}/token",
            "azure_fabric_workload_host": "host", "fabric_session_token": "planted-session",
            "fabric_cluster_identifier": "cluster",
        }  # fmt: skip
        given = _jwt("given", now_s + 3600)
        clients = open_azure("box", {**where, "token": given}).connect().state
        for expected in (given, *tokens[:2]):
            found = await clients.authorization("key")
            assert f"Bearer {expected}\r\n" in found.lines("/", {}, {})
            assert clients._tokens.expires_s is not None and clients._tokens.expires_s > now_s + 3000
            if expected != tokens[1]:
                assert await clients.refetch()
        clients._tokens.forget(clients._tokens.latest)
        for _ in range(3):
            with pytest.raises(AccessDenied, match="no token of Fabric's service") as caught:
                await clients.authorization("key")
            assert "planted" not in str(caught.value) and caught.value.path == "key"
        await clients.close()
        for asked in server.requests:
            assert asked.line == "GET /token?resource=https://storage.azure.com HTTP/1.1"
            assert {name[5:]: text for name, text in asked.headers.items() if name.startswith("x-ms-")} == {
                "partner-token": "planted-session",
                "cluster-identifier": "cluster",
                "workload-resource-moniker": "cluster",
                "proxy-host": "host",
            }
    options = parse_azure("box", {**where, "account_key": KEY}, {})
    assert options.by_fabric and "planted" not in repr(options) + options.access + repr(options.origins)
    assert "/token" in options.origins["fabric_token_service_url"][0]
    del where["fabric_cluster_identifier"]
    assert not parse_azure("box", where, {}).by_fabric
    with pytest.raises(UsageError, match="fabric_token_service_url"):
        parse_azure("box", {"account_name": "account", "fabric_token_service_url": "file:///etc"}, {})
    assert parse_azure("box", {"account_name": "a", "identity_endpoint": "http://h/t"}, {}).msi_endpoint == "http://h/t"


ALL_CREDENTIALS = {
    **GIVEN, "sas_token": "sv=1&sig=x", "token": "t", "client_id": "me", "tenant_id": "here", "client_secret": "s",
    "federated_token_file": "/token", "object_id": "o", "msi_resource_id": "m", "use_azure_cli": "true",
    "fabric_token_service_url": "https://f", "fabric_workload_host": "h", "fabric_session_token": "s",
    "fabric_cluster_identifier": "c",
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "left"),
    [
        ("bearer_token", {"token"}),
        ("access_key", {"account_key"}),
        ("sas_token", {"sas_token"}),
        ("client_secret", {"client_id", "tenant_id", "client_secret"}),
        ("workload_identity", {"client_id", "tenant_id", "federated_token_file"}),
        ("managed_identity", {"client_id", "object_id", "msi_resource_id"}),
        ("Azure_CLI", set()),
    ],
)
async def test_credentials_of_one_kind(kind: str, left: set[str]) -> None:
    """Others that are there do not count; those that are needed are asked for by name."""
    found = parsed({**ALL_CREDENTIALS, "azure_credential_type": kind})
    named = set(ALL_CREDENTIALS) - {"account_name", "use_azure_cli"}
    assert {name for name in named if getattr(found, name) is not None} == left
    assert found.use_azure_cli is (kind == "Azure_CLI") and not found.by_fabric
    if kind.islower() and kind != "managed_identity":
        with pytest.raises(UsageError, match=f"credential_type: '{kind}' needs "):
            parsed({"account_name": "account", "azure_credential_type": kind})
    clients = open_azure("box", {**ALL_CREDENTIALS, "credential_type": kind}).connect().state
    if len(left) == 1:
        lines = (await clients.authorization("key")).lines("/", {}, {})
        assert ("SharedKey" in lines, "Bearer t" in lines) == (left == {"account_key"}, left == {"token"})
    else:
        expected = {
            "client_secret": "ClientSecretCredential",
            "workload_identity": "WorkloadIdentityCredential",
            "managed_identity": "ManagedIdentityCredential",
            "Azure_CLI": "AzureCliCredential",
        }
        assert type(clients._open_entra()).__name__ == expected[kind]
    await clients.close()


async def test_a_machine_is_asked_although_others_could_be() -> None:
    """With `managed_identity` alone azure.identity does not look at the environment first."""
    clients = AccountClients(parsed({"account_name": "account", "credential_type": "managed_identity"}), 1)
    assert type(clients._open_entra()).__name__ == "ManagedIdentityCredential"


async def test_kinds_of_credentials_are_pylances() -> None:
    with pytest.raises(UsageError, match="expected one of auto, ") as ours:
        parsed({**GIVEN, "credential_type": "planted"})
    with pytest.raises(ValueError, match="Supported values: ") as theirs:
        pylance_dataset("az://box/t.lance", storage_options={**GIVEN, "azure_credential_type": "planted"})
    listed = str(theirs.value).partition("Supported values: ")[2].split(",")
    names = {name.strip() for name in listed if "/" not in name and name.strip()}
    assert names == {
        name.strip() for name in str(ours.value).partition("one of ")[2].partition(", found")[0].split(",")
    }


def test_keys_for_encryption_are_refused() -> None:
    """Without them what is written would lie open, though whoever gave one thinks otherwise."""
    for name in ("azure_storage_encryption_key", "encryption_key"):
        with pytest.raises(UnsupportedError, match="encryption_key") as caught:
            resolve_uri("az://box/t.lance", {**GIVEN, name: "planted"})
        assert "planted" not in str(caught.value)


def test_certificates_of_the_system() -> None:
    """Those that are named stand in their place here anyway."""
    with pytest.raises(UsageError, match="proxy_ca_certificate"):
        parsed({**GIVEN, "disable_system_certificates": "true"})
    named = {"disable_system_certificates": "true", "proxy_ca_certificate": "/ca.pem"}
    assert parsed({**GIVEN, **named}).ca_certificates == "/ca.pem"
