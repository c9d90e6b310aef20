"""A store that sends us elsewhere: nothing goes there, neither data nor credentials, and no write counts as done."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lance_io import AsyncDataset
from lance_io.errors import LanceError
from lance_io.store.url import resolve_uri
from tests.bucket import Bucket, Container, Exchange, GoogleBucket, Tables
from tests.http_faults import FaultServer, head

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ROWS = pa.table({"a": [1]})
STORES: dict[str, tuple[type[Bucket], dict[str, str]]] = {
    "s3": (Bucket, {"aws_session_token": "token"}),
    "s3 by aiobotocore": (Bucket, {"aws_session_token": "token", "s3_express": "true"}),
    "a database": (Tables, {}),
    "az": (Container, {}),
    "gs": (GoogleBucket, {}),
}


def moved(status: int, where: str) -> Callable[[Exchange], Awaitable[bool]]:
    async def harm(exchange: Exchange) -> bool:
        await exchange.say(head(status, {"Location": f"{where}/elsewhere", "Content-Length": 0}))
        return True

    return harm


@pytest.mark.parametrize("status", [303, 307])
@pytest.mark.parametrize("kind", STORES)
async def test_nothing_goes_elsewhere(kind: str, status: int) -> None:
    make, more = STORES[kind]
    async with make({"a": b"abc"}) as bucket, FaultServer(b"") as elsewhere:
        options = bucket.options(**more, client_max_retries="0")
        store = resolve_uri(bucket.uri.replace("+ddb", ""), options).store
        bucket.harm = moved(status, elsewhere.endpoint)
        calls: list[Callable[[], Awaitable[Any]]] = [
            lambda: store.put("b", b"data"),
            lambda: store.put("b", b"data", if_absent=True),
            lambda: store.get("a"),
            lambda: store.get_range("a", 0, 2),
            lambda: store.head("a"),
            lambda: store.delete(["a"]),
            lambda: _upload(store),
            lambda: _listed(store),
            lambda: AsyncDataset.write(ROWS, _table(bucket), storage_options=options),
        ]
        for call in calls:
            with pytest.raises(LanceError):
                await asyncio.wait_for(call(), 30)
        assert bucket.asked >= len(calls) and elsewhere.requests == [] and bucket.objects == {"a": b"abc"}
        await store.aclose()


def _table(bucket: Bucket) -> str:
    return f"{bucket.uri}/t.lance" + ("?ddbTableName=rows" if isinstance(bucket, Tables) else "")


async def _upload(store: Any) -> None:
    writer = await store.put_multipart("c")
    await writer.write_part(0, 0, b"data")
    await writer.complete()


async def _listed(store: Any) -> None:
    [meta async for meta in store.list("")]
