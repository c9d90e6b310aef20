"""Files written to S3: one PUT or parts, read by pylance; cancelled writes leave no object and no parts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader as PeerReader

from lance_io.file.write.writers import AsyncFileWriter, LanceFileWriter
from lance_io.limits import MIB
from lance_io.store.url import resolve_uri

if TYPE_CHECKING:
    from tests.servers import S3Server


def numbers(num_bytes: int) -> pa.Table:
    return pa.table(
        {"a": np.random.default_rng(0).integers(0, 1 << 62, num_bytes // 8), "i": np.arange(num_bytes // 8)}
    )


async def objects_below(uri: str, options: dict[str, str]) -> list[str]:
    location = resolve_uri(uri, options)
    found = [meta.key async for meta in location.store.list(location.path + "/")]
    await location.store.aclose()
    return found


@pytest.mark.parametrize("num_bytes", [1 * MIB, 40 * MIB])
def test_writes_one_object(num_bytes: int, s3: S3Server) -> None:
    uri = f"s3://{s3.bucket}/file-writer/{num_bytes}.lance"
    table = numbers(num_bytes)
    with LanceFileWriter(uri, table.schema, storage_options=s3.options()) as writer:
        for batch in table.to_batches(max_chunksize=400_000):
            writer.write_batch(batch)
    peer = PeerReader(uri, storage_options=s3.options())
    assert peer.read_all(batch_size=1 << 20).to_table().equals(table)
    location = resolve_uri(uri, s3.options())
    assert writer.size_bytes == asyncio.run(size_of(location))


async def size_of(location) -> int:
    meta = await location.store.head(location.path)
    await location.store.aclose()
    return meta.size_bytes


async def test_cancelled_writes_leave_nothing(s3: S3Server) -> None:
    uri = f"s3://{s3.bucket}/file-writer-cancelled"
    table = numbers(48 * MIB)
    began = asyncio.Event()

    async def write() -> None:
        async with AsyncFileWriter(f"{uri}/one.lance", table.schema, storage_options=s3.options()) as writer:
            for batch in table.to_batches(max_chunksize=3_000_000):
                await writer.write_batch(batch)
                began.set()

    task = asyncio.create_task(write())
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await objects_below(uri, s3.options()) == []
    location = resolve_uri(uri, s3.root_options())
    store: Any = location.store
    uploads = await store.call("list", "", "list_multipart_uploads", {"Prefix": location.path})
    assert not uploads.get("Uploads")
    await store.aclose()
