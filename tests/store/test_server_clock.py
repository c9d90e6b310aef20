"""A machine whose clock is wrong: requests are signed again with the server's time, once."""

from __future__ import annotations

import re
import time
from calendar import timegm
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lance_io import AsyncDataset
from lance_io.errors import AccessDenied
from tests.bucket import NAME, Bucket
from tests.http_faults import head

if TYPE_CHECKING:
    from tests.bucket import Exchange

ROWS = pa.table({"a": range(1000)})
TOLERATED_S = 900  # as S3 has it
WAYS = ["true", "aiohttp", "false"]


class Skewed:
    """A server by another clock.

    ahead_s   of this machine's
    is_wrong  it never takes a signature for valid
    """

    def __init__(self, ahead_s: float, *, is_wrong: bool = False) -> None:
        self.ahead_s, self.is_wrong = ahead_s, is_wrong
        self.refused: list[str] = []
        self.served = 0

    async def __call__(self, exchange: Exchange) -> bool:
        asked = exchange.asked.headers
        now_s = time.time() + self.ahead_s
        signed_s = timegm(time.strptime(asked["x-amz-date"], "%Y%m%dT%H%M%SZ"))
        scope = re.search(r"Credential=[^/]+/(\d{8})/", asked["authorization"])
        assert scope is not None and scope[1] == asked["x-amz-date"][:8]
        if not self.is_wrong and abs(now_s - signed_s) < TOLERATED_S:
            self.served += 1
            await exchange.say(exchange.right().data)
            return True
        self.refused.append(exchange.asked.line.split(" ")[0])
        text = "<Error><Code>RequestTimeTooSkewed</Code><Message>The difference is too large.</Message></Error>"
        body = b"" if exchange.asked.line.startswith("HEAD") else text.encode()
        known = {"Content-Length": len(body), "Content-Type": "application/xml", "Date": formatdate(now_s, usegmt=True)}
        await exchange.say(head(403, known) + body)
        return True


def options(bucket: Bucket, **more: str) -> dict[str, Any]:
    return {"storage_options": bucket.options(client_max_retries="0", hedge_percent="0", **more)}


@pytest.mark.parametrize("ahead_s", [3 * 3600.0, -40 * 86400.0])
@pytest.mark.parametrize("fast_get", WAYS)
async def test_tables_are_read_and_written(fast_get: str, ahead_s: float) -> None:
    async with Bucket() as bucket:
        bucket.harm = skewed = Skewed(ahead_s)
        how = options(bucket, fast_get=fast_get)
        table = await AsyncDataset.write(ROWS, f"s3://{NAME}/t.lance", max_rows_per_file=100, **how)
        num_refused = len(skewed.refused)
        assert 1 <= num_refused <= 8  # of those that went out before the first answer came
        assert await table.to_table() == ROWS
        assert (await table.take([5, 999]))["a"].to_pylist() == [5, 999]
        await table.delete("a = 7")
        assert await table.count_rows() == 999
        assert len(skewed.refused) == num_refused
        await table.aclose()


@pytest.mark.parametrize("fast_get", WAYS)
async def test_each_read_that_is_under_way_is_signed_again_once(fast_get: str) -> None:
    """The clock goes wrong while a table is open."""
    async with Bucket() as bucket:
        how = options(bucket, fast_get=fast_get)
        table = await AsyncDataset.write(ROWS, f"s3://{NAME}/t.lance", max_rows_per_file=100, **how)
        bucket.harm = skewed = Skewed(-7200.0)
        assert (await table.take(list(range(0, 1000, 100))))["a"].to_pylist() == list(range(0, 1000, 100))
        assert set(skewed.refused) == {"GET"}
        assert len(skewed.refused) <= skewed.served
        await table.aclose()


@pytest.mark.parametrize("fast_get", WAYS)
async def test_a_refusal_that_stays_is_told(fast_get: str) -> None:
    async with Bucket() as bucket:
        bucket.harm = skewed = Skewed(7200.0, is_wrong=True)
        with pytest.raises(AccessDenied, match="RequestTimeTooSkewed"):
            await AsyncDataset.open(f"s3://{NAME}/t.lance", version=1, **options(bucket, fast_get=fast_get))
        assert len(skewed.refused) == 2
        skewed.ahead_s = 0.0  # it says the time that the request was signed with
        skewed.refused.clear()
        with pytest.raises(AccessDenied, match="RequestTimeTooSkewed"):
            await AsyncDataset.open(
                f"s3://{NAME}/t.lance", version=2, **options(bucket, fast_get=fast_get, user_agent="x")
            )
        assert len(skewed.refused) == 1
