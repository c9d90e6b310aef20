"""Builds in stores that answer later: the same plans on a loop, their requests, and what a failed one leaves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import lance
import numpy as np
import pytest

import lance_io
from lance_io.reads.version.session import Session
from lance_io.store.memory import MemoryStore
from lance_io.store.profile import CLOUD
from lance_io.store.url import Location
from lance_io.testing.faults import Fault, FaultyStore
from lance_io.testing.record import RecordingStore
from tests.index.index_tables import rows, wrong_answers
from tests.index.test_building import CASES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pyarrow as pa

ROWS = rows(900, np.random.default_rng(1))


class Bucket:
    """A table in a store without synchronous methods, which records its requests."""

    def __init__(self) -> None:
        self.objects = MemoryStore(profile=CLOUD)
        self.store: Any = RecordingStore(self.objects)

    def session(self) -> Session:
        session = Session()
        session.locate = lambda uri, options: Location(self.store, "t", "memory://t")
        return session

    async def write(self, mode: str = "create") -> None:
        async def batches() -> AsyncIterator[pa.RecordBatch]:
            for batch in ROWS.to_batches():
                yield batch

        await lance_io.AsyncDataset.write(
            batches(), "memory://t", ROWS.schema, mode, session=self.session(), max_rows_per_file=400
        )

    async def open(self) -> lance_io.AsyncDataset:
        return await lance_io.AsyncDataset.open("memory://t", session=self.session())

    async def copy(self, folder: Path) -> str:
        """The objects as files, for pylance."""
        async for meta in self.objects.list("t/"):
            path = folder / meta.key
            path.parent.mkdir(parents=True, exist_ok=True)
            data, _ = await self.objects.get(meta.key)
            path.write_bytes(bytes(data))
        return str(folder / "t")

    async def index_keys(self) -> list[str]:
        return sorted([meta.key async for meta in self.objects.list("t/_indices/")])


@pytest.mark.parametrize("case", CASES)
def test_every_kind_on_a_loop(case: str, tmp_path: Path) -> None:
    column, index_type, _, predicates = CASES[case]

    async def build() -> str:
        bucket = Bucket()
        await bucket.write()
        ds = await bucket.open()
        await ds.create_scalar_index(column, index_type, "x")
        await bucket.write("append")
        await ds.checkout_latest()
        await ds.optimize.optimize_indices(num_indices_to_merge=0)
        await ds.optimize.optimize_indices(num_indices_to_merge=2)
        await ds.optimize.compact_files(defer_index_remap=False)
        return await bucket.copy(tmp_path)

    uri = asyncio.run(build())
    assert wrong_answers(uri, "x", predicates) == []
    (index,) = lance.dataset(uri).describe_indices()
    assert index.num_rows_indexed == lance.dataset(uri).count_rows() == 1800


@pytest.mark.parametrize("number", [None, 2, 6])  # of the refused write of a merge: a copy, or the file of settings
def test_parts_are_merged_in_a_bucket(number: int | None, tmp_path: Path) -> None:
    async def build() -> str:
        bucket, uuid = Bucket(), str(uuid4())
        await bucket.write()
        ds = await bucket.open()
        for fragment_ids in ([0, 2], [1]):
            await ds.create_scalar_index("w", "INVERTED", "x", index_uuid=uuid, fragment_ids=fragment_ids)
        if number is not None:
            bucket.store = FaultyStore(bucket.objects, {number: Fault.REFUSED}, lambda request: request.is_write)
            with pytest.raises(OSError):
                await (await bucket.open()).merge_index_metadata(uuid, "INVERTED")
            bucket.store = bucket.objects
            ds = await bucket.open()
        await ds.merge_index_metadata(uuid, "INVERTED")
        names = [key.rpartition(uuid)[2] for key in await bucket.index_keys()]
        files = [f"/part_{partition}_{kind}.lance" for partition in range(2) for kind in ("docs", "invert", "tokens")]
        assert names == ["/metadata.lance", *files]
        await ds.commit_existing_index_segments("x", "w", [lance_io.Index(uuid, "x", [2], 1, {0, 1, 2}, 0)])
        return await bucket.copy(tmp_path)

    uri = asyncio.run(build())
    ours, theirs = (
        library.dataset(uri).to_table([], full_text_query="ship vital", with_row_id=True).sort_by("_rowid")
        for library in (lance_io, lance)
    )
    assert ours["_rowid"].equals(theirs["_rowid"]) and len(ours) > 100
    np.testing.assert_allclose(ours["_score"], theirs["_score"], rtol=1e-5)


def test_requests_of_a_build() -> None:
    """One PUT a file, the reads that check it, and the commit."""

    async def build() -> list[str]:
        bucket = Bucket()
        await bucket.write()
        ds = await bucket.open()
        await ds.create_scalar_index("i", "BTREE", "x")
        bucket.store.take_log()
        await ds.create_scalar_index("i", "BTREE", "x")
        return [line for line in bucket.store.take_log() if line.split()[0] != "get"]

    writes = [line.split()[:2] for line in asyncio.run(build())]
    folders = sorted((operation, key.split("/")[1]) for operation, key in writes)
    assert folders == [
        ("list", "_versions"),
        ("put", "_indices"),
        ("put", "_indices"),
        ("put", "_transactions"),
        ("put_create", "_versions"),
    ]


@pytest.mark.parametrize("number", [0, 1])
def test_a_store_that_refuses_a_file(number: int) -> None:
    async def build() -> tuple[list[str], int]:
        bucket = Bucket()
        await bucket.write()
        bucket.store = FaultyStore(
            bucket.objects, {number: Fault.REFUSED}, lambda request: request.is_write and "_indices" in request.key
        )
        ds = await bucket.open()
        with pytest.raises(OSError):
            await ds.create_scalar_index("i", "BTREE", "x")
        return await bucket.index_keys(), ds.version

    assert asyncio.run(build()) == ([], 1)


def test_a_cancelled_build_leaves_nothing() -> None:
    async def build() -> list[str]:
        bucket = Bucket()
        await bucket.write()
        bucket.store = FaultyStore(
            bucket.objects, {1: Fault.SLOW}, lambda request: request.is_write and "_indices" in request.key
        )
        ds = await bucket.open()
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(
            ds.create_scalar_index("i", "BTREE", "x", progress=lambda *_: loop.call_soon_threadsafe(begun.set))
        )
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await bucket.index_keys()

    assert asyncio.run(build()) == []
