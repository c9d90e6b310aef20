"""What goes out once more within an attempt counts: the server has seen as many requests as the metrics say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lance_io
from lance_io import AsyncDataset
from lance_io.store.counters import process_operations
from tests.bucket import Bucket, Container, Exchange, GoogleBucket, Tables, refuse
from tests.http_faults import head

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

SKEWED = b"<Error><Code>RequestTimeTooSkewed</Code></Error>"
STORES: dict[str, tuple[type[Bucket], dict[str, str]]] = {
    "s3": (Bucket, {}),
    "s3 by aiobotocore": (Bucket, {"s3_express": "true"}),
    "a database": (Tables, {}),
    "az": (Container, {}),
    "gs": (GoogleBucket, {}),
}


class Every:
    """Does harm to one of three requests; counts the times."""

    def __init__(self, harm: Callable[[Exchange], Awaitable[bool]]) -> None:
        self._harm = harm
        self.asked = self.times = 0

    async def __call__(self, exchange: Exchange) -> bool:
        self.asked += 1
        if self.asked % 3 == 0:
            self.times += 1
            return await self._harm(exchange)
        await exchange.say(exchange.right().data)
        return True


class Skewed:
    """Signatures are to be of an hour later, from the second request on."""

    def __init__(self) -> None:
        self.asked = self.times = 0

    async def __call__(self, exchange: Exchange) -> bool:
        self.asked += 1
        said, signed = datetime.now(UTC) + timedelta(hours=1), exchange.asked.headers["x-amz-date"]
        if self.asked > 1 and signed < (said - timedelta(minutes=15)).strftime("%Y%m%dT%H%M%SZ"):
            self.times += 1
            fields = {"Date": format_datetime(said, usegmt=True), "Content-Length": len(SKEWED)}
            await exchange.say(head(403, fields) + SKEWED)
        else:
            await exchange.say(exchange.right().data)
        return True


async def hung_up(_: Exchange) -> bool:
    return False


HARMS: dict[str, Callable[[], Every | Skewed]] = {
    "hung up": lambda: Every(hung_up),
    "busy": lambda: Every(refuse(503, "SlowDown")),
    "skewed": Skewed,
}


@pytest.fixture
def objects(tmp_path: Path) -> dict[str, bytes]:
    rows = pa.table({"id": range(2000), "text": [f"row {number}" for number in range(2000)]})
    lance_io.write_dataset(rows, str(tmp_path / "t.lance"), max_rows_per_file=400)
    return {path.relative_to(tmp_path).as_posix(): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


@pytest.mark.parametrize("failure", HARMS)
@pytest.mark.parametrize("kind", STORES)
async def test_whatever_is_sent_counts(
    kind: str, failure: str, objects: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    if failure == "skewed" and kind != "s3":
        pytest.skip("only S3 signs with the time, and S3 Express sends HEAD, whose answers name no reason")
    monkeypatch.setattr("lance_io.store.cloud.cloud_store.random.random", lambda: 0.0)
    monkeypatch.setattr("lance_io.store.policies.logical_read.random.random", lambda: 0.0)
    make, more = STORES[kind]
    async with make(objects) as bucket:
        harm = HARMS[failure]()
        bucket.harm = harm
        before = sum(counts.requests for counts in process_operations().values())
        table = await AsyncDataset.open(
            f"{bucket.uri}/t.lance" + ("?ddbTableName=rows" if make is Tables else ""),
            storage_options={**bucket.options(**more), "hedge_percent": "0"},
        )
        for row in (3, 1500, 700, 1999):
            await table.take([row])
        await table.to_table(columns=["id"])
        if failure != "hung up":  # the outcome of a deciding write would be unknown, which costs another look
            await table.delete("id = 5")
        await table.aclose()
        after = sum(counts.requests for counts in process_operations().values())
        assert harm.times and bucket.asked == after - before
