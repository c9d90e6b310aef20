"""What lies between us and S3: certificates, proxies, and buckets in host names, on a MinIO that speaks TLS."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import ssl
import traceback
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import lance
import pyarrow as pa
import pytest
import trustme
import urllib3
from minio import Minio
from minio.error import S3Error
from minio.sse import SseCustomerKey

import lance_io
from lance_io.errors import LanceError, NotFound, StoreError, UsageError
from lance_io.store.failures import StoreFailure, Transient
from lance_io.store.s3.bucket_options import parse_s3
from lance_io.store.storage_options import normalize
from lance_io.store.url import resolve_uri
from servers import minio
from tests.listening import Listener
from tests.store.forward_proxy import ForwardProxy, pump

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DOMAIN = "s3.test.invalid"  # no resolver knows it
BUCKET = "lance-io"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority of our own (`ca.crt`), and a certificate that it gave to 127.0.0.1 and the domain."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    server = authority.issue_cert("127.0.0.1", DOMAIN, f"*.{DOMAIN}")
    authority.cert_pem.write_to_path(folder / "ca.crt")
    server.private_key_pem.write_to_path(folder / "private.key")
    server.cert_chain_pems[0].write_to_path(folder / "public.crt")
    return folder


@pytest.fixture(scope="module")
def secure(certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of a MinIO that speaks TLS."""
    folder = tmp_path_factory.mktemp("minio-certificates")
    for name in ("public.crt", "private.key", "ca.crt"):
        os.link(certificates / name, folder / name)
    with minio.MinioServer(certificates=folder, domain=DOMAIN) as server:
        yield server.endpoint


@pytest.fixture
def plain(s3: Any) -> str:
    """The endpoint of the session's MinIO, without TLS."""
    return str(s3.endpoint)


@pytest.fixture
def proxy(secure: str) -> Iterator[ForwardProxy]:
    parts = urlsplit(secure)
    with ForwardProxy(str(parts.hostname), parts.port or 0) as proxy:
        yield proxy


async def use(endpoint: str, **options: str) -> None:
    """Write, read both ways, list and delete."""
    keys = {"aws_access_key_id": minio.USER, "aws_secret_access_key": minio.USER_SECRET}
    options = {"aws_endpoint": endpoint, "aws_region": minio.REGION, **keys, **options}
    for express in ("false", "true"):
        store = resolve_uri(f"s3://{BUCKET}", {**options, "s3_express": express}).store
        key = f"network/{os.urandom(8).hex()}"
        try:
            await store.put(key, b"12345", if_absent=True)
            assert bytes(await store.get_range(key, 1, 3)) == b"23"
            assert [meta.key async for meta in store.list(key)] == [key]
            await store.delete([key])
        finally:
            await store.aclose()


# -- certificates -----------------------------------------------------------------------------------------------------


async def test_a_certificate_of_nobody_is_not_trusted_and_not_tried_again(secure: str) -> None:
    store = resolve_uri(f"s3://{BUCKET}", {"endpoint": secure, "region": "us-east-1", "skip_signature": "true"}).store
    for work in (store.get_range("key", 0, 1), store.head("key"), store.put("key", b"1", if_absent=True)):
        with pytest.raises(StoreFailure, match=f"cannot connect.*{BUCKET}") as caught:
            await work
        assert not isinstance(caught.value, Transient)
    await store.aclose()


async def test_unless_that_is_meant(secure: str) -> None:
    await use(secure, allow_invalid_certificates="true")


async def test_an_authority_can_be_named_as_file_and_as_text(secure: str, certificates: Path) -> None:
    authority = certificates / "ca.crt"
    await use(secure, proxy_ca_certificate=str(authority))
    await use(secure, proxy_ca_certificate=authority.read_text())


async def test_the_environment_can_name_it(secure: str, certificates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificates / "ca.crt"))
    await use(secure)


async def test_a_certificate_for_another_host_is_not_trusted(secure: str, certificates: Path) -> None:
    with pytest.raises(StoreError, match="cannot connect"):
        await use(secure.replace("127.0.0.1", "localhost"), proxy_ca_certificate=str(certificates / "ca.crt"))


# -- buckets in host names --------------------------------------------------------------------------------------------


async def test_a_bucket_in_the_host_name(secure: str, certificates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, real = set(), socket.getaddrinfo

    def resolve(host: Any, *rest: Any, **named: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        asked.add(name)
        return real("127.0.0.1" if name and name.endswith(DOMAIN) else host, *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    await use(
        secure.replace("127.0.0.1", DOMAIN),
        aws_virtual_hosted_style_request="true",
        proxy_ca_certificate=str(certificates / "ca.crt"),
    )
    assert asked == {f"{BUCKET}.{DOMAIN}"}


# -- proxies ----------------------------------------------------------------------------------------------------------


async def test_tls_through_a_proxy_that_wants_a_password(
    secure: str, certificates: Path, proxy: ForwardProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")  # the option comes first
    await use(
        secure.replace("127.0.0.1", DOMAIN),
        virtual_hosted_style_request="true",
        proxy_url=proxy.endpoint.replace("://", "://me:pass@"),
        proxy_ca_certificate=str(certificates / "ca.crt"),
    )
    assert {line.split(":")[0] for line in proxy.asked} == {f"CONNECT {BUCKET}.{DOMAIN}"}
    assert len(proxy.authorizations) == len(proxy.asked)
    assert set(proxy.authorizations) == {f"Basic {base64.b64encode(b'me:pass').decode()}"}


@pytest.mark.parametrize("by", ["option", "environment"])
async def test_plain_http_through_a_proxy(plain: str, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = urlsplit(plain)
    with ForwardProxy(str(parts.hostname), parts.port or 0) as proxy:
        options = {"proxy_url": proxy.endpoint}
        if by == "environment":
            monkeypatch.setenv("HTTP_PROXY", proxy.endpoint)
            options = {}
        await use(f"http://{DOMAIN}", allow_http="true", **options)
        assert proxy.asked
        assert {" ".join(line.split("/")[:3]) for line in proxy.asked} <= {
            f"{method} http:  {DOMAIN}" for method in ("PUT", "GET", "DELETE")
        }


KEYS = {"aws_access_key_id": minio.USER, "aws_secret_access_key": minio.USER_SECRET, "aws_region": minio.REGION}


@pytest.mark.parametrize("is_plain", [True, False])
async def test_ranges_that_begin_together_go_through_the_proxy(
    secure: str, plain: str, certificates: Path, is_plain: bool
) -> None:
    """The fast path of many ranges, with requests in absolute form or through tunnels."""
    endpoint = plain if is_plain else secure
    parts, content = urlsplit(endpoint), os.urandom(100_000)
    with ForwardProxy(str(parts.hostname), parts.port or 0) as proxy:
        options = {"endpoint": endpoint, "proxy_url": proxy.endpoint, "allow_http": "true", **KEYS}
        store = resolve_uri(f"s3://{BUCKET}", {**options, "proxy_ca_certificate": str(certificates / "ca.crt")}).store
        key = f"network/{os.urandom(8).hex()}"
        await store.put(key, content)
        ranges = [(start, start + 500) for start in range(0, 100_000, 1000)]
        pieces = await asyncio.gather(*(store.get_range(key, *one) for one in ranges))
        assert [bytes(piece) for piece in pieces] == [content[start:end] for start, end in ranges]
        await store.delete([key])
        await store.aclose()
        gets = [line for line in proxy.asked if line.startswith("GET http://" if is_plain else "CONNECT ")]
        assert gets


class Refusing(Listener):
    """A proxy that wants a password."""

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """Answer 407 to anything."""
        await client.readuntil(b"\r\n\r\n")
        to_client.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        await to_client.drain()


async def test_a_refused_tunnel_is_named(secure: str) -> None:
    refusing = Refusing()
    await refusing.start()
    url = refusing.endpoint.replace("://", "://me:s3cret@")
    store = resolve_uri(
        f"s3://{BUCKET}", {"endpoint": secure, "proxy_url": url, "client_max_retries": "0", **KEYS}
    ).store
    with pytest.raises(Transient, match=r"proxy 127\.0\.0\.1:\d+ answered 407 .*to CONNECT") as caught:
        await store.get_range("key", 0, 1)
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))
    await store.aclose()
    await refusing.stop()


async def test_an_answer_that_is_not_http_ends_the_tunnel(secure: str) -> None:
    class Talking(Listener):
        """Says something else."""

        async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
            """Greet as a mail server does."""
            to_client.write(b"220 mail.example ESMTP\r\n\r\n")
            await to_client.drain()
            await client.read()

    talking = Talking()
    await talking.start()
    options = {"endpoint": secure, "proxy_url": talking.endpoint, "client_max_retries": "0", **KEYS}
    store = resolve_uri(f"s3://{BUCKET}", options).store
    with pytest.raises(Transient, match="the proxy's answer to CONNECT is not HTTP"):
        await store.get_range("key", 0, 1)
    await store.aclose()
    await talking.stop()


async def test_networks_of_the_environment_go_without_a_proxy(
    secure: str, proxy: ForwardProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy.endpoint)
    monkeypatch.setenv("NO_PROXY", "example.com, 127.0.0.0/8")
    options = {"endpoint": secure, "allow_invalid_certificates": "true", "client_max_retries": "0", **KEYS}
    store = resolve_uri(f"s3://{BUCKET}", options).store
    with pytest.raises(LanceError):  # there is no such key
        await store.get_range("nothing", 0, 1)
    await store.aclose()
    assert proxy.asked == []


async def test_a_connection_to_the_proxy_can_be_encrypted(secure: str, plain: str, certificates: Path) -> None:
    """TLS to the proxy, and through it TLS to the store, or none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "public.crt", certificates / "private.key")
    first_lines: list[bytes] = []

    async def relay(client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        head = await client.readuntil(b"\r\n\r\n")
        first_lines.append(head.partition(b"\r\n")[0])
        is_tunnel = head.startswith(b"CONNECT ")
        parts = urlsplit(secure if is_tunnel else plain)
        server, to_server = await asyncio.open_connection(parts.hostname, parts.port)
        if is_tunnel:
            to_client.write(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            to_server.write(head)
        await asyncio.gather(pump(client, to_server), pump(server, to_client))

    listening = await asyncio.start_server(relay, "127.0.0.1", 0, ssl=context)
    url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    trusted = {"proxy_ca_certificate": str(certificates / "ca.crt"), "proxy_url": url, "client_max_retries": "0"}
    for endpoint in (secure, plain):
        store = resolve_uri(f"s3://{BUCKET}", {"endpoint": endpoint, "allow_http": "true", **trusted, **KEYS}).store
        with pytest.raises(NotFound):
            await store.get_range(f"network/{os.urandom(8).hex()}", 0, 1)
        await store.aclose()
    listening.close()
    assert [line.split(b" ")[0] for line in first_lines] == [b"CONNECT", b"GET"]


ODD_PROXIES = [
    "socks5://proxy:1080",
    "ftp://proxy",
    "http://",
    "http://proxy:port",
    "http://proxy:99999",
    "http://[::1",
]
SLASHED = "http://user:hidden/words@proxy:1"  # the part before the slash looks like a host and a port


@pytest.mark.parametrize("url", [*ODD_PROXIES, SLASHED])
async def test_other_proxies_are_refused_by_name(secure: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="a proxy URL: expected"):
        resolve_uri(f"s3://{BUCKET}", {"endpoint": secure, "proxy_url": url, **KEYS})
    monkeypatch.setenv("HTTPS_PROXY", url)
    store = resolve_uri(f"s3://{BUCKET}", {"endpoint": secure, **KEYS}).store
    with pytest.raises(UsageError, match="a proxy URL: expected"):
        await asyncio.wait_for(store.get_range("key", 0, 1), 30)
    await store.aclose()


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        ("s3://b", {"proxy_url": SLASHED, **KEYS}),
        ("s3://b", {"endpoint": SLASHED, "allow_http": "true", **KEYS}),
        ("s3://b", {"endpoint": "http://proxy:port", "allow_http": "true", **KEYS}),
        ("gs://b", {"google_base_url": SLASHED, "allow_http": "true", "google_skip_signature": "true"}),
        ("az://b", {"azure_endpoint": SLASHED, "allow_http": "true", "account_name": "a", "account_key": "YQ=="}),
    ],
)
def test_a_password_with_a_slash_is_refused_and_not_shown(uri: str, options: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"expected http\(s\)://") as refused:
        resolve_uri(uri, options)
    shown = "".join(traceback.format_exception(refused.value, chain=True)).replace(SLASHED, "")
    assert "hidden" not in str(refused.value) and "'hidden'" not in shown


async def test_a_host_can_be_excluded(secure: str, proxy: ForwardProxy) -> None:
    await use(
        secure, proxy_url=proxy.endpoint, proxy_excludes="example.com, 127.0.0.0/8", allow_invalid_certificates="true"
    )
    assert proxy.asked == []


@pytest.mark.parametrize(
    ("entries", "host", "excluded"),
    [
        ("example.com", "example.com", True),
        ("example.com", "s3.example.com", True),
        (".example.com", "s3.example.com", True),
        ("example.com", "badexample.com", False),
        ("a, 10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("*", "anything", True),
        ("", "anything", False),
    ],
)
def test_what_excludes_a_host(entries: str, host: str, excluded: bool) -> None:
    options = parse_s3("bucket", normalize({"proxy_url": "http://proxy", "proxy_excludes": entries}), {})
    assert (options.proxy_for(host) is None) is excluded


async def test_a_proxy_that_is_not_there_is_named_without_its_password(secure: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://me:s3cret@127.0.0.1:{taken.getsockname()[1]}"
        keys = {"access_key_id": "a", "secret_access_key": "b", "region": "us-east-1"}
        options = {"endpoint": secure, "proxy_url": url, "client_max_retries": "0", **keys}
        store = resolve_uri(f"s3://{BUCKET}", options).store
        for work in (store.get_range("key", 0, 1), store.head("key"), store.put("key", b"1", if_absent=True)):
            with pytest.raises(LanceError) as caught:
                await work
            assert isinstance(caught.value, Transient)
            assert "s3cret" not in "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value))
        await store.aclose()


# -- keys of one's own, which servers take by TLS alone ---------------------------------------------------------------


def with_key(byte: bytes) -> dict[str, str]:
    """Options with the key that has 32 of this byte."""
    return {
        "aws_server_side_encryption": "sse-c",
        "aws_sse_customer_key_base64": base64.b64encode(byte * 32).decode(),
    }


@pytest.fixture
def signed(secure: str, certificates: Path) -> dict[str, str]:
    keys = {"aws_access_key_id": minio.USER, "aws_secret_access_key": minio.USER_SECRET}
    ca = {"proxy_ca_certificate": (certificates / "ca.crt").read_text()}
    return {"aws_endpoint": secure, "aws_region": minio.REGION, **keys, **ca}


@pytest.mark.parametrize("express", ["false", "true"])
async def test_objects_are_encrypted_with_a_key_of_ones_own(
    signed: dict[str, str], certificates: Path, express: str
) -> None:
    """In one piece, in parts, and as a copy; to minio's own client they are what the store says."""
    store = resolve_uri(f"s3://{BUCKET}", {**signed, **with_key(b"k"), "s3_express": express}).store
    folder, parts = f"key/{os.urandom(8).hex()}", [os.urandom(5 << 20), os.urandom(70_000)]
    expected = {f"{folder}/put": b"12345", f"{folder}/parts": b"".join(parts), f"{folder}/copy": b"".join(parts)}
    await store.put(f"{folder}/put", b"12345", if_absent=True)
    upload = await store.open_upload(f"{folder}/parts")
    for part in parts:
        await upload.write([part])
    await upload.close()
    await store.copy(f"{folder}/parts", f"{folder}/copy")
    pool = urllib3.PoolManager(ca_certs=str(certificates / "ca.crt"))
    where = signed["aws_endpoint"].removeprefix("https://")
    client = Minio(endpoint=where, access_key=minio.USER, secret_key=minio.USER_SECRET, http_client=pool)
    for key, content in expected.items():
        assert (await store.head(key)).size_bytes == len(content)
        assert bytes((await store.get(key))[0]) == content
        assert bytes(await store.get_range(key, len(content) - 4, len(content) - 1)) == content[-4:-1]
        with pytest.raises(S3Error, match="InvalidRequest"):
            await asyncio.to_thread(client.get_object, bucket_name=BUCKET, object_name=key)
        asked: dict[str, Any] = {"bucket_name": BUCKET, "object_name": key, "ssec": SseCustomerKey(b"k" * 32)}
        with await asyncio.to_thread(client.get_object, **asked) as answer:
            assert answer.data == content
    assert {meta.key: meta.size_bytes async for meta in store.list(folder)}.keys() == expected.keys()
    await store.delete(list(expected))
    await store.aclose()
    pool.clear()


def test_a_table_is_encrypted_with_a_key_of_ones_own(signed: dict[str, str]) -> None:
    """Both libraries read each other's; a version and its rows want the key that they were written with."""
    uri, rows = f"s3://{BUCKET}/key/{os.urandom(8).hex()}", pa.table({"a": range(1000)})
    mine = {**signed, **with_key(b"k")}
    theirs = {**mine, "allow_invalid_certificates": "true"}
    lance_io.write_dataset(rows, uri, storage_options=mine)
    table = lance.dataset(uri, storage_options=theirs)
    assert table.to_table() == rows
    table.insert(rows)
    found = lance_io.dataset(uri, storage_options=mine)
    found.delete("a < 10")
    assert (found.version, found.count_rows("a >= 0")) == (3, 1980)
    assert found.take([0, 1979]).to_pydict() == {"a": [10, 999]}
    assert lance.dataset(uri, storage_options=theirs).count_rows("a >= 0") == 1980
    refusals = [(signed, "InvalidRequest: The object was stored using"), ({**signed, **with_key(b"o")}, "AccessDenied")]
    for options, refusal in refusals:
        with pytest.raises(LanceError, match=refusal) as caught:
            lance_io.dataset(uri, storage_options=options)
        assert mine["aws_sse_customer_key_base64"] not in str(caught.value)
