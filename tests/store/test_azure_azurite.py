"""Azure on a real server: who may do what, tokens that change, loops, forks, closing without a trace."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from azure.core.credentials import AccessToken
from azure.storage.blob import ContainerClient, ContainerSasPermissions, generate_container_sas

from lance_io import runtime
from lance_io.errors import AccessDenied, AlreadyExists, LanceError, NotFound, StoreError, UsageError
from lance_io.store.api import Selection
from lance_io.store.azure.account_clients import AccountClients
from lance_io.store.azure.authorization import Bearer
from lance_io.store.azure.container import AzureStore
from lance_io.store.cloud import renewal
from lance_io.store.failures import ConflictRetry
from lance_io.store.url import resolve_uri
from servers import azurite

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.servers import AzureServer


@pytest.fixture
async def store(azure: AzureServer) -> AsyncIterator[AzureStore]:
    store = _store(azure.options(), azure.container)
    yield store
    await store.aclose()


def _store(options: dict[str, str], container: str) -> AzureStore:
    store = resolve_uri(f"az://{container}", options).store
    assert isinstance(store, AzureStore)
    return store


def _sas(azure: AzureServer, **permissions: bool) -> str:
    """A signature by which a container may be used for an hour."""
    return str(
        generate_container_sas(
            azure.account,
            azure.container,
            account_key=azure.account_key,
            permission=ContainerSasPermissions(**permissions),
            expiry=datetime.now(UTC) + timedelta(hours=1),
        )
    )


async def test_a_missing_container_is_not_found(azure: AzureServer) -> None:
    store = _store(azure.options(), "no-such-container")
    with pytest.raises(NotFound):
        _ = [meta async for meta in store.list("")]
    for work in (store.get("key"), store.head("key"), store.put("key", b"1"), store.put("key", b"1", if_absent=True)):
        with pytest.raises(NotFound):
            await work
    await store.aclose()


@pytest.mark.parametrize("start_after", [None, 2, 5])
async def test_a_listing_of_several_pages(
    start_after: int | None, store: AzureStore, s3_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lance_io.store.azure.container.LIST_PAGE", 4)
    keys = [f"{s3_prefix}/{number:02}" for number in range(10)]
    await asyncio.gather(*(store.put(key, b"") for key in keys))
    first = 0 if start_after is None else start_after + 1
    asked = Selection(start_after=None if start_after is None else keys[start_after])
    assert [meta.key async for meta in store.list(f"{s3_prefix}/", asked)] == keys[first:]
    asked = replace(asked, limit=3)
    assert [meta.key async for meta in store.list(f"{s3_prefix}/", asked)] == keys[first : first + 3]
    assert store.stats.snapshot()["list"].requests == 3 + (1 if start_after is None else -(-(first + 3) // 4))
    await store.delete(keys)
    assert [meta.key async for meta in store.list(f"{s3_prefix}/")] == []


# -- credentials ------------------------------------------------------------------------------------------------------


async def test_a_shared_access_signature(azure: AzureServer, s3_prefix: str) -> None:
    sas = _sas(azure, read=True, list=True, write=True, delete=True, create=True)
    store = _store(azure.anonymous_options(sas_token=f"?{sas}"), azure.container)
    await store.put(f"{s3_prefix}/a b", b"12345")
    await store.copy(f"{s3_prefix}/a b", f"{s3_prefix}/ü")
    assert [meta.key async for meta in store.list(f"{s3_prefix}/")] == [f"{s3_prefix}/a b", f"{s3_prefix}/ü"]
    assert bytes(await store.get_range(f"{s3_prefix}/ü", 1, 3)) == b"23"
    assert (await store.get_suffix(f"{s3_prefix}/ü", 2))[:2] == (b"45", 5)
    await store.delete([f"{s3_prefix}/a b", f"{s3_prefix}/ü"])
    await store.aclose()


async def test_whoever_may_only_read_cannot_write(azure: AzureServer, store: AzureStore, s3_prefix: str) -> None:
    await store.put(f"{s3_prefix}/x", b"12345")
    reader = _store(azure.anonymous_options(sas_token=_sas(azure, read=True)), azure.container)
    assert bytes((await reader.get(f"{s3_prefix}/x"))[0]) == b"12345"
    for work in (reader.put(f"{s3_prefix}/y", b"1"), reader.delete([f"{s3_prefix}/x"])):
        with pytest.raises(AccessDenied):
            await work
    with pytest.raises(AccessDenied):
        _ = [meta async for meta in reader.list("")]
    await reader.aclose()
    assert (await store.head(f"{s3_prefix}/x")).size_bytes == 5


async def test_a_wrong_key_is_refused(azure: AzureServer) -> None:
    store = _store(azure.options(account_key=base64.b64encode(b"wrong").decode()), azure.container)
    for work in (store.get_range("key", 0, 1), store.head("key"), store.put("key", b"1"), store.delete(["a", "b"])):
        with pytest.raises(AccessDenied):
            await work
    await store.aclose()


async def test_anonymous_reading(azure: AzureServer, store: AzureStore, s3_prefix: str) -> None:
    account = f"{azure.endpoint}/{azure.account}"
    with ContainerClient(account, f"public-{s3_prefix[-12:]}", azure.account_key) as public:
        public.create_container(public_access="container")
        public.upload_blob("x", b"12345")
        name = public.container_name
    anybody = _store(azure.anonymous_options(skip_signature="true"), name)
    assert bytes(await anybody.get_range("x", 1, 3)) == b"23"
    assert (await anybody.head("x")).size_bytes == 5
    assert [meta.key async for meta in anybody.list("")] == ["x"]
    with pytest.raises(AccessDenied):
        await anybody.put("y", b"1")
    await anybody.aclose()
    await store.put(f"{s3_prefix}/x", b"1")
    nobody = _store(azure.anonymous_options(skip_signature="true"), azure.container)
    with pytest.raises((AccessDenied, NotFound)):
        await nobody.get(f"{s3_prefix}/x")
    await nobody.aclose()


async def test_the_environment_says_it_all(azure: AzureServer, s3_prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in azurite.environment(azure.endpoint).items():
        monkeypatch.setenv(name, text)
    store = resolve_uri(f"abfss://{azure.container}").store
    await store.put(f"{s3_prefix}/x", b"12345")
    assert bytes((await store.get(f"{s3_prefix}/x"))[0]) == b"12345"
    await store.aclose()


async def test_the_emulator_is_found(azure: AzureServer, s3_prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", azure.endpoint)
    store = resolve_uri(f"az://{azure.container}", {"use_emulator": "true"}).store
    await store.put(f"{s3_prefix}/x", b"12345")
    assert bytes((await store.get(f"{s3_prefix}/x"))[0]) == b"12345"
    await store.aclose()


# -- tokens of Entra --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[azurite.AzuriteServer]:
    """A server that speaks TLS and takes tokens, whoever signed them; `ca.crt` beside it vouches for it."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    server = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(folder / "ca.crt")
    server.private_key_pem.write_to_path(folder / "private.key")
    server.cert_chain_pems[0].write_to_path(folder / "public.crt")
    with azurite.AzuriteServer(folder) as running:
        yield running


def _token(rest_s: float = 3600, **claims: Any) -> str:
    """A token in the form of Entra's, which nobody signed."""
    now = int(time.time())
    said = {
        "aud": "https://storage.azure.com",
        "iss": "https://sts.windows.net/ab1f708d-50f6-404c-a006-d71b2ac7a606/",
        "iat": now - 10,
        "nbf": now - 10,
        "exp": int(now + rest_s),
        **claims,
    }
    parts = [json.dumps(one).encode() for one in ({"alg": "RS256", "typ": "JWT"}, said)]
    return ".".join([*(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts), "c2lnbmF0dXJl"])


def _secure_options(secure: azurite.AzuriteServer, **more: str) -> dict[str, str]:
    assert secure._certificates is not None
    where = {"azure_endpoint": f"{secure.endpoint}/{azurite.ACCOUNT}", "account_name": azurite.ACCOUNT}
    return {**where, "proxy_ca_certificate": str(secure._certificates / "ca.crt"), **more}


async def test_a_token_that_was_given(secure: azurite.AzuriteServer, s3_prefix: str) -> None:
    store = _store(_secure_options(secure, token=_token()), azurite.BUCKET)
    await store.put(f"{s3_prefix}/x", b"12345")
    assert bytes(await store.get_range(f"{s3_prefix}/x", 1, 3)) == b"23"
    assert [meta.size_bytes async for meta in store.list(f"{s3_prefix}/")] == [5]
    await store.delete([f"{s3_prefix}/x"])
    await store.aclose()
    for wrong in ("nonsense", _token(-100)):
        store = _store(_secure_options(secure, token=wrong), azurite.BUCKET)
        for work in (store.get_range(f"{s3_prefix}/x", 1, 3), store.put(f"{s3_prefix}/x", b"1")):
            with pytest.raises(AccessDenied) as caught:
                await work
            assert wrong not in str(caught.value)
        await store.aclose()


@pytest.mark.parametrize("certificates", ["file", "text"])
async def test_whom_to_trust(secure: azurite.AzuriteServer, certificates: str, s3_prefix: str) -> None:
    options = _secure_options(secure, account_key=azurite.ACCOUNT_KEY)
    if certificates == "text":
        assert secure._certificates is not None
        options["proxy_ca_certificate"] = (secure._certificates / "ca.crt").read_text()
    store = _store(options, azurite.BUCKET)
    await store.put(f"{s3_prefix}/x", b"12345")
    assert bytes(await store.get_range(f"{s3_prefix}/x", 1, 3)) == b"23"
    await store.aclose()
    del options["proxy_ca_certificate"]
    store = _store(options, azurite.BUCKET)
    for work in (store.get_range("x", 1, 3), store.put("x", b"1")):
        with pytest.raises(StoreError, match="cannot connect"):
            await work
    await store.aclose()
    store = _store({**options, "allow_invalid_certificates": "true"}, azurite.BUCKET)
    assert bytes(await store.get_range(f"{s3_prefix}/x", 1, 3)) == b"23"
    assert (await store.head(f"{s3_prefix}/x")).size_bytes == 5
    await store.aclose()


class Issuer:
    """Gives tokens, each for some seconds; a credential of `azure.identity`."""

    def __init__(self, *rests_s: float) -> None:
        self.rests_s = [*rests_s]
        self.given: list[str] = []
        self.error: Exception | None = None
        self.is_closed = False

    async def get_token(self, scope: str) -> AccessToken:
        assert scope == "https://storage.azure.com/.default"
        if self.error is not None:
            raise self.error
        rest_s = self.rests_s.pop(0) if len(self.rests_s) > 1 else self.rests_s[0]
        self.given.append(_token(jti=len(self.given)))
        return AccessToken(self.given[-1], int(time.time() + rest_s))

    async def __aenter__(self) -> Issuer:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.is_closed = True


@pytest.fixture
def issued(monkeypatch: pytest.MonkeyPatch) -> Issuer:
    issuer = Issuer(3600)
    monkeypatch.setattr(AccountClients, "_open_entra", lambda _: issuer)
    return issuer


async def test_a_token_is_fetched_once(secure: azurite.AzuriteServer, issued: Issuer, s3_prefix: str) -> None:
    first, second = (_store(_secure_options(secure), azurite.BUCKET) for _ in range(2))
    await asyncio.gather(*(first.put(f"{s3_prefix}/{number}", b"12345") for number in range(4)))
    found = await asyncio.gather(*(second.get_range(f"{s3_prefix}/{number}", 1, 3) for number in range(4)))
    assert [bytes(one) for one in found] == [b"23"] * 4
    assert len(issued.given) == 1
    for store in (first, second):
        await store.aclose()
    assert issued.is_closed


async def test_tokens_are_renewed_ahead_and_nobody_waits(
    secure: azurite.AzuriteServer, issued: Issuer, s3_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued.rests_s = [100, 100, 3600]  # less than `AHEAD_S`, twice
    monkeypatch.setattr(renewal, "AGAIN_S", 0.0)
    store = _store(_secure_options(secure), azurite.BUCKET)
    await store.put(f"{s3_prefix}/x", b"12345")
    while len(issued.given) < 3:
        assert bytes(await store.get_range(f"{s3_prefix}/x", 0, 5)) == b"12345"
    await store.head(f"{s3_prefix}/x")
    assert len(issued.given) == 3
    await store.aclose()


async def test_an_error_is_told_when_no_token_is_left(
    secure: azurite.AzuriteServer, issued: Issuer, s3_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from azure.core.exceptions import ClientAuthenticationError

    monkeypatch.setattr(renewal, "AGAIN_FAILED_S", 0.0)
    issued.rests_s = [100]
    store = _store(_secure_options(secure), azurite.BUCKET)
    await store.put(f"{s3_prefix}/x", b"12345")
    issued.error = ClientAuthenticationError("nobody is signed in\nand many lines more")
    assert bytes(await store.get_range(f"{s3_prefix}/x", 0, 5)) == b"12345"  # with what is there
    (loop,) = store._loops.values()
    loop.state._tokens._current = loop.state._tokens._current[0], time.time() - 1
    for work in (store.get_range(f"{s3_prefix}/x", 0, 5), store.put(f"{s3_prefix}/x", b"1")):
        with pytest.raises(AccessDenied, match=r"no Azure credentials \(nobody is signed in\)") as caught:
            await work
        assert "many lines" not in str(caught.value)
        assert caught.value.path == f"{s3_prefix}/x"
    issued.error = None
    assert bytes(await store.get_range(f"{s3_prefix}/x", 0, 5)) == b"12345"
    await store.aclose()


async def test_a_token_that_is_refused_is_replaced(
    secure: azurite.AzuriteServer, issued: Issuer, s3_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when somebody has taken it back before its end."""
    store = _store(_secure_options(secure), azurite.BUCKET)
    await store.put(f"{s3_prefix}/x", b"12345")
    (loop,) = store._loops.values()
    refused = loop.state._tokens.latest
    monkeypatch.setattr(refused, "authorization", Bearer("nonsense"))
    answers = {401: 2, 403: 1}  # Azurite says either, of what is no token
    try:
        assert bytes(await store.get_range(f"{s3_prefix}/x", 0, 5)) == b"12345"
    except AccessDenied:
        answers[401] = 1
    assert len(issued.given) == answers[401]
    await store.aclose()


PRINCIPAL = {"client_id": "c", "tenant_id": "t", "client_secret": "s"}


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (PRINCIPAL, "ClientSecretCredential"),
        ({"client_id": "c", "tenant_id": "t", "federated_token_file": "f"}, "WorkloadIdentityCredential"),
        ({"use_azure_cli": "true"}, "AzureCliCredential"),
        ({"object_id": "o"}, "ManagedIdentityCredential"),
        ({"msi_resource_id": "r"}, "ManagedIdentityCredential"),
        ({"client_id": "c"}, "DefaultAzureCredential"),
        ({**PRINCIPAL, "sas_token": "sv=1&sig=x"}, "ClientSecretCredential"),
    ],
    ids=range(7),
)
async def test_who_gives_tokens(options: dict[str, str], kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDENTITY_ENDPOINT", "http://127.0.0.1:1/")
    store = _store({"account_name": "account", "authority_host": "https://login.example", **options}, "box")
    clients = store.connect().state
    assert clients.get_nowait() is None
    credential = clients._open_entra()
    assert type(credential).__name__ == kind
    await credential.close()
    await clients.close()


def test_tokens_are_not_sent_in_the_open(azure: AzureServer) -> None:
    for options in ({"token": _token()}, {}):
        with pytest.raises(UsageError, match="not encrypted"):
            resolve_uri("az://box", azure.anonymous_options(**options))


# -- life and death ---------------------------------------------------------------------------------------------------


def test_one_store_serves_one_loop_after_another(azure: AzureServer, s3_prefix: str) -> None:
    store = resolve_uri(f"az://{azure.container}", azure.options()).store

    async def use() -> bytes:
        await store.put(f"{s3_prefix}/x", b"12345")
        found = bytes(await store.get_range(f"{s3_prefix}/x", 0, 5))
        await store.aclose()
        return found

    assert [asyncio.run(use()) for _ in range(2)] == [b"12345"] * 2


async def test_a_dropped_store_closes_its_connections(azure: AzureServer, s3_prefix: str) -> None:
    store = _store(azure.options(), azure.container)
    await store.put(f"{s3_prefix}/x", b"12345")
    await store.get(f"{s3_prefix}/x")
    (loop,) = store._loops.values()
    clients = loop.state
    closed, close = asyncio.Event(), clients.close

    async def closing() -> None:
        await close()
        closed.set()

    clients.close = closing
    del store, loop
    gc.collect()
    await closed.wait()
    gc.collect()  # a client that is still open warns, which is an error here


PROGRAM = """
import asyncio, os, sys
from lance_io import runtime
from lance_io.runtime import engine
from lance_io.store.url import resolve_uri

engine.CLOSE_SECONDS_MAX = 20.0  # a loaded machine may need more than a second to close
uri, prefix, *pairs = sys.argv[1:]
store = resolve_uri(uri, dict(pair.split("=", 1) for pair in pairs)).store
runtime.run(store.put(prefix + "/x", b"12345"))
assert bytes(runtime.run(store.get_range(prefix + "/x", 1, 3))) == b"23"
pid = os.fork()
assert bytes(runtime.run(store.get_range(prefix + "/x", 2, 4))) == b"34"
assert runtime.run(store.head(prefix + "/x")).size_bytes == 5
if pid:
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert bytes(runtime.run(store.get_range(prefix + "/x", 0, 4))) == b"1234"
"""


def test_a_fork_and_an_exit_without_closing_leave_no_trace(azure: AzureServer, s3_prefix: str) -> None:
    pairs = [f"{name}={value}" for name, value in azure.options().items()]
    command = [sys.executable, "-W", "default", "-W", "ignore::DeprecationWarning", "-c", PROGRAM]
    done = subprocess.run(
        [*command, f"az://{azure.container}", s3_prefix, *pairs],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_engine_runs_it(azure: AzureServer, s3_prefix: str) -> None:
    store = resolve_uri(f"az://{azure.container}", azure.options()).store
    runtime.run(store.put(f"{s3_prefix}/x", b"12345"))
    assert bytes(runtime.run(store.get_range(f"{s3_prefix}/x", 1, 3))) == b"23"
    runtime.run(store.aclose())


@pytest.mark.parametrize("package", ["azure.storage.blob", "azure.identity", "aiohttp", "httptools"])
async def test_a_missing_client_library_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=rf"needs the package {package}: pip install 'lance_io\[azure\]'"):
        resolve_uri("az://box/x", {"account_name": "account"})


LOADING = """
import sys
from lance_io.store.url import resolve_uri
store = resolve_uri("az://box/x", {"account_name": "account", "account_key": "a2V5"}).store
print([name for name in ("azure.storage.blob", "azure.identity", "aiohttp") if name in sys.modules])
"""


def test_the_library_is_loaded_when_it_is_needed() -> None:
    done = subprocess.run([sys.executable, "-c", LOADING], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


async def test_every_error_of_a_used_store_is_ours(store: AzureStore, s3_prefix: str) -> None:
    for work in (
        store.get("missing"),
        store.head("missing"),
        store.put(s3_prefix, b"1", if_match="nonsense"),
        store.copy("missing", s3_prefix),
    ):
        with pytest.raises(LanceError):
            await work


# -- uploads ----------------------------------------------------------------------------------------------------------


async def test_an_upload_of_blocks_and_what_is_left_of_a_cancelled_one(store: AzureStore, s3_prefix: str) -> None:
    piece = os.urandom(1 << 20)
    key = f"{s3_prefix}/large"
    async with await store.open_upload(key) as upload:
        for _ in range(33):
            await upload.write([piece])
        meta = await upload.close()
    assert store.stats.snapshot()["part"].requests == 3
    assert meta == replace(await store.head(key), last_modified=None)
    assert bytes(await store.get_range(key, 32 << 20, 33 << 20)) == piece

    under_way = asyncio.Event()

    async def endless() -> None:
        async with await store.open_upload(f"{s3_prefix}/cancelled") as upload:
            while True:
                await upload.write([piece])
                if upload.size_bytes > 40 << 20:
                    under_way.set()
                await asyncio.sleep(0)

    writing = asyncio.create_task(endless())
    await under_way.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert store.stats.in_flight == 0
    with pytest.raises(NotFound):
        await store.head(f"{s3_prefix}/cancelled")
    assert [meta.name async for meta in store.list(f"{s3_prefix}/")] == ["large"]


async def test_many_creators_of_one_key_through_two_stores(
    azure: AzureServer, store: AzureStore, s3_prefix: str
) -> None:
    other = _store(azure.options(), azure.container)
    for key in (f"{s3_prefix}/{number}" for number in range(4)):
        puts = [(store, other)[number % 2].put(key, b"%d" % number, if_absent=True) for number in range(24)]
        outcomes = await asyncio.gather(*puts, return_exceptions=True)
        winners = [number for number, outcome in enumerate(outcomes) if not isinstance(outcome, BaseException)]
        assert len(winners) == 1, {type(outcome) for outcome in outcomes}
        assert {type(outcome) for outcome in outcomes if isinstance(outcome, BaseException)} <= {
            AlreadyExists,
            ConflictRetry,
        }
        assert bytes((await store.get(key))[0]) == b"%d" % winners[0]
    await other.aclose()
