"""Credentials that a provider of storage options gives, ahead of their end, on servers of all three kinds."""

from __future__ import annotations

import asyncio
import os
import pickle
import re
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote

import pyarrow as pa
import pytest
from azure.storage.blob import ContainerSasPermissions, generate_container_sas
from minio.credentials.providers import AssumeRoleProvider

import lance_io
from lance_io.dataset.lance_dataset import AsyncDataset
from lance_io.errors import AccessDenied, UnsupportedError
from lance_io.file.reader import AsyncFileReader, LanceFileReader
from lance_io.file.write.writers import AsyncFileWriter, LanceFileWriter
from lance_io.store.counters import RENEWALS
from lance_io.store.provided_options import with_provider
from lance_io.store.url import resolve_uri
from tests.gcs.test_gcs_tables import CountingGcsProxy
from tests.s3.proxy import HttpProxy, Message

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.servers import AzureServer, GcsServer, S3Server

ROWS = pa.table({"a": range(1000)})
HOUR_S = 3600.0


class Site(Protocol):
    """A kind of server, by way of a proxy."""

    uri: str
    secrets: list[str]

    def where(self, endpoint: str) -> dict[str, str]:
        """Storage options without credentials."""

    def credentials(self) -> dict[str, str]:
        """New ones; what nobody may see of them is kept in `secrets`."""

    def shown(self, head: bytes) -> str:
        """What of the credentials a request shows, by which they are told from others."""


class _OnS3:
    def __init__(self, server: S3Server) -> None:
        self._server = server
        self.uri = f"s3://{server.bucket}"
        self.secrets: list[str] = []
        self._keys: list[str] = []

    def where(self, endpoint: str) -> dict[str, str]:
        options = self._server.through(endpoint)
        return {name: text for name, text in options.items() if "key" not in name}

    def credentials(self) -> dict[str, str]:
        server = self._server
        found = AssumeRoleProvider(
            sts_endpoint=server.endpoint, access_key=server.user, secret_key=server.secret, region=server.region
        ).retrieve()
        self.secrets += [str(found.secret_key), str(found.session_token)]
        self._keys.append(str(found.access_key))
        return {
            "aws_access_key_id": str(found.access_key),
            "aws_secret_access_key": str(found.secret_key),
            "aws_session_token": str(found.session_token),
        }

    def shown(self, head: bytes) -> str:
        match = re.search(rb"(?i)\r\nauthorization: AWS4-HMAC-SHA256 Credential=([^/]+)/", head)
        return str(self._keys.index(match[1].decode())) if match else "nothing"


class _OnGcs:
    def __init__(self, server: GcsServer) -> None:
        self._server = server
        self.uri = f"gs://{server.bucket}"
        self.secrets: list[str] = []

    def where(self, endpoint: str) -> dict[str, str]:
        return {"google_base_url": endpoint, "allow_http": "true"}

    def credentials(self) -> dict[str, str]:
        self.secrets.append(f"token-{uuid.uuid4().hex}")
        return {"google_storage_token": self.secrets[-1]}

    def shown(self, head: bytes) -> str:
        match = re.search(rb"(?i)\r\nauthorization: Bearer ([^\r]+)", head)
        return str(self.secrets.index(match[1].decode())) if match else "nothing"


class _OnAzure:
    def __init__(self, server: AzureServer) -> None:
        self._server = server
        self.uri = f"az://{server.container}"
        self.secrets: list[str] = []

    def where(self, endpoint: str) -> dict[str, str]:
        return self._server.anonymous_options(azure_endpoint=f"{endpoint}/{self._server.account}")

    def credentials(self) -> dict[str, str]:
        server = self._server
        sas_token = generate_container_sas(
            server.account,
            server.container,
            server.account_key,
            permission=ContainerSasPermissions(read=True, list=True, write=True, delete=True, create=True),
            expiry=datetime.now(UTC) + timedelta(hours=2 + len(self.secrets)),
        )
        match = re.search("sig=([^&]+)", sas_token)
        assert match is not None
        self.secrets.append(match[1])
        return {"sas_token": sas_token}

    def shown(self, head: bytes) -> str:
        match = re.search(rb"[?&]sig=([^& ]+)", head.split(b"\r\n")[0])
        return (
            str([unquote(secret) for secret in self.secrets].index(unquote(match[1].decode()))) if match else "nothing"
        )


class Recorder(HttpProxy):
    """Passes requests on and keeps which credentials they came with: `0` for the first that were given, `1` ..."""

    def __init__(self, target: str, site: Site) -> None:
        super().__init__(target)
        self._site = site
        self.used: list[str] = []
        self.refused: set[str] = set()
        self.revoke_after: int | None = None  # so many requests more, what the next one comes with is refused

    async def answer(self, request: Message, server: Any, to_server: Any) -> Message:
        by = self._site.shown(request.head)
        self.used.append(by)
        if self.revoke_after is not None:
            self.revoke_after -= 1
            if self.revoke_after < 0:
                self.refused.add(by)
                self.revoke_after = None
        if by in self.refused:
            return Message(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n", b"")
        return await super().answer(request, server, to_server)


class GcsRecorder(Recorder, CountingGcsProxy):
    """The same before a server that has to be named by itself."""


class Vendor:
    """Gives credentials that hold for `holds_s`, or fails with `error`; `held` stops it in the middle."""

    def __init__(self, site: Site, holds_s: float | None = HOUR_S, **more: str) -> None:
        self._site = site
        self.holds_s = holds_s
        self.more = more
        self.error: Exception | None = None
        self.asked = 0
        self.is_asked = threading.Event()
        self.held = threading.Event()
        self.held.set()

    def fetch_storage_options(self) -> dict[str, str]:
        self.asked += 1
        self.is_asked.set()
        assert self.held.wait(60)
        if self.error is not None:
            raise self.error
        ends = {} if self.holds_s is None else {"expires_at_millis": str(int((time.time() + self.holds_s) * 1000))}
        return {**self._site.credentials(), **ends, **self.more}


class World:
    """A place on a server, and the proxy before it."""

    def __init__(self, site: Site, recorder: Recorder) -> None:
        self.site = site
        self.recorder = recorder
        self.uri = f"{site.uri}/test-{uuid.uuid4().hex}/t.lance"
        self.options = site.where(recorder.endpoint)

    def used(self) -> set[str]:
        """By which credentials requests came since this was asked last."""
        found, self.recorder.used = set(self.recorder.used), []
        return found


@pytest.fixture(params=["s3", "gcs", "azure"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    server = request.getfixturevalue(request.param)
    site: Site = {"s3": _OnS3, "gcs": _OnGcs, "azure": _OnAzure}[request.param](server)
    kind = GcsRecorder if request.param == "gcs" else Recorder
    with kind(server.endpoint, site) as recorder:
        yield World(site, recorder)


def test_reading_and_writing_with_what_a_provider_gives(world: World) -> None:
    vendor = Vendor(world.site)
    how: dict[str, Any] = {"storage_options": world.options, "storage_options_provider": vendor}
    lance_io.write_dataset(ROWS, world.uri, **how)
    table = lance_io.dataset(world.uri, **how)
    assert table.take([7])["a"].to_pylist() == [7]
    table.delete("a < 500")
    (fragment,) = lance_io.fragment.write_fragments(ROWS, world.uri, **how)
    appended = lance_io.LanceOperation.Append([fragment])
    assert lance_io.LanceDataset.commit(world.uri, appended, read_version=2, **how).count_rows() == 1500
    file = f"{world.uri}/one.lance"
    with LanceFileWriter(file, ROWS.schema, **how) as writer:
        writer.write_batch(ROWS)
    assert LanceFileReader(file, **how).read_all().to_table() == ROWS
    lance_io.LanceDataset.drop(world.uri, **how)
    assert (world.used(), vendor.asked) == ({"0"}, 1)


async def test_the_same_awaited(world: World) -> None:
    vendor = Vendor(world.site)
    how: dict[str, Any] = {"storage_options": world.options, "storage_options_provider": vendor}
    await AsyncDataset.write(ROWS, world.uri, **how)
    async with AsyncDataset.open(world.uri, **how) as table:
        assert (await table.take([7]))["a"].to_pylist() == [7]
    file = f"{world.uri}/one.lance"
    async with AsyncFileWriter(file, ROWS.schema, **how) as writer:
        await writer.write_batch(ROWS)
    async with AsyncFileReader(file, **how) as reader:
        assert reader.num_rows() == 1000
    await AsyncDataset.drop(world.uri, **how)
    assert (world.used(), vendor.asked) == ({"0"}, 1)


async def test_they_are_renewed_ahead_and_nobody_waits(world: World) -> None:
    scheme, before = world.site.uri.partition(":")[0], RENEWALS.total()
    vendor = Vendor(world.site, 90, refresh_offset_millis="100000")
    store = resolve_uri(world.site.uri, with_provider(world.options, vendor)).store
    key = f"{uuid.uuid4().hex}/x"
    opened_with = vendor.asked
    vendor.held.clear()
    vendor.is_asked.clear()
    vendor.holds_s = HOUR_S
    await store.put(key, b"12345")
    await asyncio.gather(*(store.get_range(key, 1, 3) for _ in range(20)))  # the renewal is begun and held
    await asyncio.to_thread(vendor.is_asked.wait)
    await store.put(key, b"12345")
    assert (opened_with, vendor.asked, world.used()) == (1, 2, {"0"})
    vendor.held.set()
    while "1" not in world.used():
        await store.get_range(key, 1, 3)
    await asyncio.gather(store.put(key, b"67890"), *(store.get_range(key, 1, 3) for _ in range(20)))
    assert (vendor.asked, world.used()) == (2, {"1"})
    counted = {labels: count - before[labels] for labels, count in RENEWALS.total().items() if count != before[labels]}
    assert counted == {(scheme, "renewed"): 1}
    await store.aclose()


async def test_many_who_find_them_expired_ask_once(world: World) -> None:
    vendor = Vendor(world.site, 3)  # less than a request may take
    stores = [resolve_uri(world.site.uri, with_provider(world.options, vendor)).store for _ in range(2)]
    key = f"{uuid.uuid4().hex}/x"
    vendor.holds_s = HOUR_S
    vendor.held.clear()
    vendor.is_asked.clear()
    puts = [asyncio.ensure_future(store.put(f"{key}{at}", b"1")) for store in stores for at in range(10)]
    await asyncio.to_thread(vendor.is_asked.wait)
    puts.pop().cancel()  # who leaves does not take it from the others
    vendor.held.set()
    await asyncio.gather(*puts)
    assert (vendor.asked, world.used()) == (2, {"1"})
    for store in stores:
        await store.aclose()


def test_threads_and_loops_share_what_was_given(world: World) -> None:
    vendor = Vendor(world.site, 3)
    lance_io.write_dataset(ROWS, world.uri, storage_options=world.options | world.site.credentials())
    vendor.holds_s = HOUR_S

    async def take(at: int) -> int:
        how: dict[str, Any] = {"storage_options": world.options, "storage_options_provider": vendor}
        # a store of this loop, not the engine's
        store = resolve_uri(world.site.uri, with_provider(world.options, vendor)).store
        assert [meta async for meta in store.list("no-such-folder/")] == []
        await store.aclose()
        async with AsyncDataset.open(world.uri, **how) as table:
            return (await table.take([at]))["a"].to_pylist()[0]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda at: asyncio.run(take(at)), range(8))) == [*range(8)]
    assert vendor.asked == 1


@pytest.mark.parametrize("kind", [RuntimeError, KeyError, PermissionError])
def test_a_provider_that_fails_is_named_and_tells_no_secret(world: World, kind: type[Exception]) -> None:
    vendor = Vendor(world.site, 0)
    how: dict[str, Any] = {"storage_options": world.options, "storage_options_provider": vendor}
    vendor.error = kind("no more for you")
    with pytest.raises(AccessDenied, match=f"storage_options_provider Vendor .*{kind.__name__}.*no more for you"):
        lance_io.dataset(world.uri, **how)
    vendor.error = None
    lance_io.write_dataset(ROWS, world.uri, **how)
    vendor.error = kind(f"they were {world.site.secrets[-1]}")
    with pytest.raises(AccessDenied, match="storage_options_provider Vendor") as caught:
        lance_io.dataset(world.uri, **how).take([1])
    told = repr(caught.getrepr(style="long"))
    assert not [secret for secret in world.site.secrets if secret in told]
    vendor.error = None
    vendor.holds_s = HOUR_S
    assert lance_io.dataset(world.uri, **how).take([1])["a"].to_pylist() == [1]


async def test_an_error_is_told_only_when_they_have_expired(world: World) -> None:
    vendor = Vendor(world.site, 90, refresh_offset_millis="100000")
    store = resolve_uri(world.site.uri, with_provider(world.options, vendor)).store
    key = f"{uuid.uuid4().hex}/x"
    vendor.error = RuntimeError("not now")
    for _ in range(5):
        await store.put(key, b"12345")
    assert (vendor.asked, world.used()) == (2, {"0"})
    await store.aclose()


def test_credentials_that_the_store_refuses_are_asked_for_again(world: World) -> None:
    """Those without an end, for old handles and new ones; whoever finds them refused waits for one call."""
    vendor = Vendor(world.site, None)
    how: dict[str, Any] = {"storage_options": world.options, "storage_options_provider": vendor}
    lance_io.write_dataset(ROWS, world.uri, max_rows_per_file=50, **how)
    table = lance_io.dataset(world.uri, **how)
    assert (world.used(), vendor.asked) == ({"0"}, 1)
    world.recorder.refused = {"0"}
    assert table.to_table() == ROWS
    assert lance_io.dataset(world.uri, **how).take([7])["a"].to_pylist() == [7]
    table.delete("a < 500")
    assert lance_io.dataset(world.uri, session=lance_io.Session(), **how).count_rows() == 500
    assert (world.used(), vendor.asked) == ({"0", "1"}, 2)


def test_no_request_of_a_write_or_a_scan_suffers_from_it(world: World) -> None:
    """Credentials are refused from the first, second, third ... request on, that of the commit among them."""
    for number in range(6):
        vendor = Vendor(world.site, None)
        how: dict[str, Any] = {"storage_options": world.options, "storage_options_provider": vendor}
        uri = f"{world.uri}/{number}"
        lance_io.write_dataset(ROWS, uri, max_rows_per_file=250, **how)
        world.recorder.revoke_after = number
        lance_io.write_dataset(ROWS, uri, mode="append", **how)
        assert (lance_io.dataset(uri, **how).count_rows(), vendor.asked) == (2000, 2)
        world.recorder.revoke_after = number
        assert lance_io.dataset(uri, **how).to_table() == pa.concat_tables([ROWS, ROWS])
        assert vendor.asked == 3


async def test_an_upload_goes_on_with_others(world: World) -> None:
    vendor = Vendor(world.site, None)
    store = resolve_uri(world.site.uri, with_provider(world.options, vendor)).store
    key, part = f"{uuid.uuid4().hex}/x", bytes(5 << 20)
    upload = await store.put_multipart(key)
    await upload.write_part(0, 0, part)
    world.recorder.refused = {"0"}
    await upload.write_part(1, len(part), b"12345")
    await upload.complete()
    assert bytes(await store.get_range(key, len(part) - 1, len(part) + 5)) == b"\00012345"
    assert (world.used(), vendor.asked) == ({"0", "1"}, 2)
    await store.aclose()


async def test_a_refusal_that_stays_is_an_error_within_one_round(world: World) -> None:
    vendor = Vendor(world.site, None)
    store = resolve_uri(world.site.uri, with_provider(world.options, vendor)).store
    key = f"{uuid.uuid4().hex}/x"
    await store.put(key, b"12345")
    everything = world.recorder.refused = {str(number) for number in range(100)}

    async def list_all() -> None:
        async for _ in store.list("no-such-folder/"):
            raise AssertionError

    works = [lambda: store.get_range(key, 1, 3), lambda: store.put(key, b"1"), lambda: store.head(key), list_all,
             lambda: store.put(f"{key}2", b"1", if_absent=True)]  # fmt: skip
    for work in works:
        before = vendor.asked
        world.used()
        with pytest.raises(AccessDenied, match="refused the credentials") as caught:
            await work()
        assert not [secret for secret in world.site.secrets if secret in str(caught.value)]
        assert (len(world.used()), vendor.asked) == (2, before + 1)
    same = world.site.credentials()
    vendor.fetch_storage_options = lambda: same
    world.recorder.refused = everything - {str(len(world.site.secrets))}
    with pytest.raises(AccessDenied):
        await store.get_range(key, 1, 3)
    world.recorder.used = []
    with pytest.raises(AccessDenied):  # others were not given: nothing is sent again
        await store.get_range(key, 1, 3)
    assert len(world.recorder.used) == 1
    world.recorder.refused = set()
    assert bytes(await store.get_range(key, 1, 3)) == b"23"
    await store.aclose()


def test_what_gives_no_options_is_no_provider(world: World) -> None:
    with pytest.raises(TypeError, match=r"fetch_storage_options.*found one of type dict"):
        lance_io.dataset(world.uri, storage_options_provider={"a": "b"})

    class Odd:
        def __init__(self, given: Any) -> None:
            self.given = given

        def fetch_storage_options(self) -> Any:
            return self.given

    for given, told in [
        (None, "gave no storage options"),
        ({}, "gave no storage options"),
        ("a text", "dict of texts, not str"),
        ({"token": b"x"}, "storage option token: expected a text, found a value of type bytes"),
    ]:
        with pytest.raises(AccessDenied, match=told):
            lance_io.dataset(world.uri, storage_options=world.options, storage_options_provider=Odd(given))
    with pytest.raises(ValueError, match="expires_at_millis: expected a whole number"):
        given = {**world.site.credentials(), "expires_at_millis": "soon"}
        lance_io.dataset(world.uri, storage_options=world.options, storage_options_provider=Odd(given))


def test_options_that_say_when_they_expire_are_used_until_then(world: World) -> None:
    vendor = Vendor(world.site)
    ends_ms = int((time.time() + HOUR_S) * 1000)
    begun = {**world.options, **world.site.credentials(), "expires_at_millis": str(ends_ms)}
    lance_io.write_dataset(ROWS, world.uri, storage_options=begun, storage_options_provider=vendor)
    assert (world.used(), vendor.asked) == ({"0"}, 0)
    other, begun["expires_at_millis"] = Vendor(world.site), str(ends_ms - int(HOUR_S * 1000))
    lance_io.dataset(world.uri, storage_options=begun, storage_options_provider=other).take([1])
    assert (world.used(), other.asked) == ({"1"}, 1)


def test_what_stays_the_same_may_come_from_a_provider_too(world: World) -> None:
    """Where it gives no credentials, those of the options hold."""

    class Where:
        def fetch_storage_options(self) -> Mapping[str, str]:
            return world.options

    lance_io.write_dataset(ROWS, world.uri, storage_options=world.site.credentials(), storage_options_provider=Where())
    everything = Vendor(world.site, None, **world.options)
    assert lance_io.dataset(world.uri, storage_options_provider=everything).count_rows() == 1000
    assert world.used() == {"0", "1"}


class Named(Vendor):
    """Those of one name stand for each other."""

    def provider_id(self) -> str:
        return f"keys of {self._site.uri} by {id(self._site)}"


def test_providers_of_one_name_are_one(world: World) -> None:
    first, second = Named(world.site), Named(world.site)
    session = lance_io.Session()
    how: dict[str, Any] = {"storage_options": world.options, "session": session}
    lance_io.write_dataset(ROWS, world.uri, storage_options_provider=first, **how)
    table = lance_io.dataset(world.uri, storage_options_provider=second, **how)
    assert table.count_rows(filter="a >= 0") == 1000
    assert (first.asked, second.asked, world.used()) == (1, 0, {"0"})


class Portable:
    """Travels, and counts where it is."""

    asked = 0

    def __init__(self, given: dict[str, str]) -> None:
        self.given = given

    def fetch_storage_options(self) -> dict[str, str]:
        Portable.asked += 1
        return self.given


def test_it_travels_with_its_dataset_and_without_what_it_gave(world: World) -> None:
    vendor = Vendor(world.site)
    lance_io.write_dataset(ROWS, world.uri, storage_options=world.options, storage_options_provider=vendor)
    given = {**world.site.credentials(), "expires_at_millis": str(int((time.time() + HOUR_S) * 1000))}
    table = lance_io.dataset(world.uri, storage_options=world.options, storage_options_provider=Portable(given))
    before = Portable.asked
    kept = table.latest_storage_options()
    assert kept is not None and world.site.secrets[-1] in "".join(kept.values())
    assert table.initial_storage_options == world.options
    copy = pickle.loads(pickle.dumps(table))
    assert copy.take([3])["a"].to_pylist() == [3]
    assert Portable.asked == before + 1
    assert not [secret for secret in world.site.secrets if secret in repr(table) or secret in repr(copy)]


def test_after_a_fork_they_are_renewed_as_before(world: World) -> None:
    vendor = Vendor(world.site)
    how: dict[str, Any] = {"storage_options": world.options, "storage_options_provider": vendor}
    lance_io.write_dataset(ROWS, world.uri, **how)
    table = lance_io.dataset(world.uri, **how)
    pid = os.fork()
    if not pid:
        try:
            table.take([5])
            vendor.holds_s = HOUR_S
            os._exit(0 if table.take([6])["a"].to_pylist() == [6] and vendor.asked == 1 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("uri", ["oss://bucket/t.lance", "zip://x::/tmp/y.zip"])
def test_other_stores_have_no_use_for_one(uri: str) -> None:
    with pytest.raises(UnsupportedError, match="storage_options_provider"):
        lance_io.dataset(uri, storage_options_provider=Portable({}))
