"""Tables behind a gateway that sends every answer in chunks, without a length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lance_io import AsyncDataset
from tests.bucket import NAME, Bucket
from tests.http_faults import head

if TYPE_CHECKING:
    from tests.bucket import Exchange

ROWS = pa.table({"id": range(5000), "text": [f"row {number}" * 20 for number in range(5000)]})
CHUNK_BYTES = 700


async def in_chunks(exchange: Exchange) -> bool:
    """The right answer, with neither length nor end."""
    right = exchange.right()
    if not exchange.asked.line.startswith("GET "):
        await exchange.say(right.data)
        return True
    del right.headers["Content-Length"]
    pieces = [right.body[at : at + CHUNK_BYTES] for at in range(0, len(right.body), CHUNK_BYTES)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    await exchange.say(head(right.status, {**right.headers, "Transfer-Encoding": "chunked"}) + chunks + b"0\r\n\r\n")
    return True


@pytest.mark.parametrize(("express", "has_kernel"), [("false", True), ("false", False), ("true", False)])
async def test_a_table_is_read_and_written(express: str, has_kernel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_kernel:
        monkeypatch.setattr("lance_io.store.http.pool.IS_SUPPORTED", False)
    async with Bucket() as bucket:
        bucket.harm = in_chunks
        how = {"storage_options": bucket.options(s3_express=express, client_max_retries="0")}
        uri = f"s3://{NAME}/t.lance"
        await (await AsyncDataset.write(ROWS, uri, max_rows_per_file=3000, **how)).aclose()
        table = await AsyncDataset.open(uri, **how)
        await table.delete("id % 7 = 3")
        await table.aclose()
        table = await AsyncDataset.open(uri, **how)
        expected = [number for number in range(5000) if number % 7 != 3]
        assert (await table.to_table())["id"].to_pylist() == expected
        taken = await table.take([7, 4000, 30])
        assert taken["id"].to_pylist() == [expected[at] for at in (7, 4000, 30)]
        assert taken["text"].to_pylist() == [f"row {expected[at]}" * 20 for at in (7, 4000, 30)]
        assert await table.count_rows("text = 'x'") == 0
        await table.aclose()
