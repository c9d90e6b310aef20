"""Stores of the same options share credentials and a client, as long as one of them is in use."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import aiobotocore.session
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import AccessDenied
from lance_io.runtime import run
from lance_io.store.cloud import loop_clients
from lance_io.store.s3.bucket import S3Store, open_s3

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.s3.proxy import CountingProxy
    from tests.servers import S3Server


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The clients that were made, by their endpoint."""
    endpoints: list[str] = []
    create: Callable[..., Any] = aiobotocore.session.AioSession.create_client

    def counted(self: Any, *args: Any, **more: Any) -> Any:
        endpoints.append(more["endpoint_url"])
        return create(self, *args, **more)

    monkeypatch.setattr(aiobotocore.session.AioSession, "create_client", counted)
    return endpoints


def test_appends_by_uri_share_a_client(s3: S3Server, s3_uri: str, proxy: CountingProxy, made: list[str]) -> None:
    options = s3.options(aws_endpoint=proxy.endpoint)
    for number in range(3):
        lance_io.write_dataset(pa.table({"a": [number]}), s3_uri, mode="append", storage_options=options)
        gc.collect()  # nothing is left of it but what stays connected for a moment
    assert made == [proxy.endpoint]
    table = lance_io.dataset(s3_uri, storage_options=options).to_table()
    assert sorted(table["a"].to_pylist()) == [0, 1, 2]


async def writes(store: S3Store, key: str) -> None:
    await store.put(key, b"x")


def bucket(s3: S3Server, proxy: CountingProxy, **more: str) -> S3Store:
    return open_s3(s3.bucket, s3.options(aws_endpoint=proxy.endpoint, **more))


def key(s3_uri: str) -> str:
    return s3_uri.split("/", 3)[3]


def test_the_client_outlives_whoever_made_it(s3: S3Server, s3_uri: str, proxy: CountingProxy, made: list[str]) -> None:
    async def turns() -> None:
        first, second = bucket(s3, proxy), bucket(s3, proxy)
        await writes(first, f"{key(s3_uri)}/1")
        await writes(second, f"{key(s3_uri)}/2")
        await first.aclose()
        await writes(second, f"{key(s3_uri)}/3")
        assert len(made) == 1
        await second.aclose()
        last = bucket(s3, proxy)
        await writes(last, f"{key(s3_uri)}/4")
        assert len(made) == 2
        await last.aclose()

    shared = len(loop_clients._shared)
    run(turns())
    assert len(loop_clients._shared) == shared


def test_other_options_environment_or_loop_have_their_own(
    s3: S3Server, s3_uri: str, proxy: CountingProxy, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def turns(count: int) -> None:
        stores = [bucket(s3, proxy), bucket(s3, proxy, connect_timeout="4s")]
        monkeypatch.setenv("AWS_CA_BUNDLE", "/no/such/file")  # which plain HTTP does not look at
        stores.append(bucket(s3, proxy))
        for number, store in enumerate(stores):
            if number < 2:
                monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
            else:
                monkeypatch.setenv("AWS_CA_BUNDLE", "/no/such/file")
            await writes(store, f"{key(s3_uri)}/{number}")
        assert len(made) == count
        for store in stores:
            await store.aclose()

    run(turns(3))
    asyncio.run(turns(6))


def test_what_files_say_is_shared_for_a_moment(
    s3: S3Server, s3_uri: str, proxy: CountingProxy, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    options = s3.options(aws_endpoint=proxy.endpoint)
    user, secret = options.pop("aws_access_key_id"), options.pop("aws_secret_access_key")

    def say(password: str) -> None:
        credentials.write_text(f"[default]\naws_access_key_id = {user}\naws_secret_access_key = {password}\n")

    async def turns() -> None:
        say(secret)
        first = open_s3(s3.bucket, options)
        await writes(first, f"{key(s3_uri)}/1")
        say("wrong")
        second = open_s3(s3.bucket, options)
        await writes(second, f"{key(s3_uri)}/2")
        monkeypatch.setattr(loop_clients, "FOUND_SHARED_S", 0.0)
        third = open_s3(s3.bucket, options)
        with pytest.raises(AccessDenied):
            await writes(third, f"{key(s3_uri)}/3")
        for store in (first, second, third):
            await store.aclose()

    run(turns())
