"""The example service against MinIO, asked by sixteen callers at once."""

from __future__ import annotations

import asyncio
import importlib.util
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
from aiohttp.test_utils import TestClient, TestServer

from tests.s3.settling import all_bytes_are_back

if TYPE_CHECKING:
    import pytest

    from tests.s3.proxy import CountingProxy
    from tests.servers import S3Server

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CALLERS = 16
LOOKUPS = 12
ROWS = 5000


def load_service() -> Any:
    spec = importlib.util.spec_from_file_location("examples_service_at_load", EXAMPLES / "service" / "lookups.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def orders() -> pa.Table:
    return pa.table(
        {
            "id": range(ROWS),
            "token": [f"token-{i * 7919 % ROWS}" for i in range(ROWS)],
            "drink": [("tea", "coffee", None)[i % 3] for i in range(ROWS)],
            "price": [i / 4 for i in range(ROWS)],
            "quantity": [i % 5 for i in range(ROWS)],
            "ordered": [f"2025-01-{i % 28 + 1:02}" for i in range(ROWS)],
            "tags": [["hot"] * (i % 3) for i in range(ROWS)],
        }
    )


async def test_sixteen_callers(
    s3: S3Server, s3_uri: str, proxy: CountingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = orders()
    lance.write_dataset(table, f"{s3_uri}/orders.lance", max_rows_per_file=ROWS // 4, storage_options=s3.options())
    for name, value in {
        "AWS_ENDPOINT_URL": proxy.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": s3.region,
        "AWS_ACCESS_KEY_ID": s3.user,
        "AWS_SECRET_ACCESS_KEY": s3.secret,
        "ORDERS_URI": f"{s3_uri}/orders.lance",
    }.items():
        monkeypatch.setenv(name, value)
    expected = {row["token"]: row for row in table.to_pylist()}

    async with TestClient(TestServer(load_service().app)) as client:
        proxy.take()

        async def caller(number: int) -> None:
            for token in random.Random(number).sample(sorted(expected), LOOKUPS):
                answer = await client.get(f"/orders/{token}")
                assert answer.status == 200
                found = await answer.json()
                row = {name: value for name, value in expected[token].items() if name != "token"}
                assert found == row
            assert (await client.get("/orders/nobody")).status == 404

        async with asyncio.TaskGroup() as callers:
            for number in range(CALLERS):
                callers.create_task(caller(number))
        spent = proxy.take()
        assert spent.requests <= CALLERS * LOOKUPS * 6  # a request per column at most: metadata is shared, never again
        assert spent.count("HEAD") == 0

        leaving = [asyncio.ensure_future(client.get(f"/orders/token-{i}")) for i in range(CALLERS)]
        await asyncio.sleep(0.01)
        for one in leaving:  # clients that hang up do not disturb the others
            one.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
        await caller(99)
    await all_bytes_are_back()
