"""Requests, bytes and dependent rounds of opening, counting, taking and scanning, as exact numbers.

The table is in a memory store that plans reads as on S3; every request lasts one unit of virtual time, so the time that
has passed is the number of rounds. The bars are what pylance 14 needs for the same (three columns, two fragments): 2
requests to open, 14 for a cold take of a row in each fragment, 6 for a warm one, 10 for a scan.
"""

from __future__ import annotations

import asyncio
import itertools
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io import runtime
from lance_io.dataset.lance_dataset import AsyncDataset
from lance_io.encodings.v2_1 import fullzip
from lance_io.io.stats import io_stats
from lance_io.limits import MIB
from lance_io.reads.version.session import Session
from lance_io.store.memory import MemoryStore
from lance_io.store.profile import CLOUD
from lance_io.store.url import Location
from lance_io.testing.latency import LatencyStore, run_virtual
from lance_io.testing.record import RecordingStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ROWS = 100_000
FRAGMENTS = 2


@pytest.fixture(scope="module", params=["2.1", "2.2"])
def objects(request, tmp_path_factory) -> dict[str, bytes]:
    """The files of a table that pylance wrote, by key."""
    root = tmp_path_factory.mktemp("table") / "t"
    dice = np.random.default_rng(0)
    for i in range(FRAGMENTS):
        table = pa.table(
            {
                "a": np.arange(ROWS) + i * ROWS,
                "b": dice.random(ROWS),
                "s": [f"row {x}" for x in range(ROWS)],
            }
        )
        lance.write_dataset(table, root, mode="append", data_storage_version=request.param)
    return {f"t/{path.relative_to(root)}": path.read_bytes() for path in root.rglob("*") if path.is_file()}


class Bench:
    """A table behind a store that records and delays."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.memory = MemoryStore(profile=CLOUD)
        for key, data in objects.items():
            asyncio.run(self.memory.put(key, data))
        self.store = RecordingStore(LatencyStore(self.memory))
        self.session = Session()
        self.session.locate = lambda uri, options: Location(self.store, "t", "memory://t")

    def run(self, work: Callable[[Lap], Awaitable[None]]) -> None:
        async def body() -> None:
            loop = asyncio.get_running_loop()
            with runtime.use_loop(loop):
                await work(Lap(self.store, loop))

        run_virtual(body)


class Lap:
    """What has happened since the last look."""

    def __init__(self, store: RecordingStore, loop: asyncio.AbstractEventLoop) -> None:
        self.store = store
        self.loop = loop
        self.since = loop.time()

    def __call__(self) -> tuple[int, list[str]]:
        """(rounds, requests)."""
        now = self.loop.time()
        rounds, self.since = round(now - self.since), now
        return rounds, self.store.take_log()


def ranges_of(log: list[str]) -> list[tuple[str, int, int]]:
    """(key, start, end) of ranged reads."""
    found = []
    for line in log:
        operation, key, span = line.split(" ")
        assert operation == "get"
        start, end = span.split("-")
        found.append((key, int(start), int(end)))
    return found


def test_open_count_take_scan(objects) -> None:
    bench = Bench(objects)

    async def work(lap: Lap) -> None:
        ds = await AsyncDataset.open("t", session=bench.session)
        rounds, log = lap()
        assert (rounds, len(log)) == (2, 2)
        assert log[0].startswith("list") and log[1].startswith("get")

        assert await ds.count_rows() == FRAGMENTS * ROWS
        assert lap() == (0, [])

        rows = [5, ROWS + 7]
        await ds.take(rows)
        rounds, log = lap()
        assert rounds == 3 and len(log) <= 14
        cold = ranges_of(log)
        assert sum(end - start for _, start, end in cold) < FRAGMENTS * (64 * 1024 + 16_000)

        await ds.take(rows)
        rounds, log = lap()
        assert rounds == 1 and len(log) == 6
        assert set(ranges_of(log)) <= set(cold)

        await ds.to_table()
        rounds, log = lap()
        assert rounds == 1 and len(log) == FRAGMENTS

    bench.run(work)


def test_no_request_asks_how_large_a_file_is(objects) -> None:
    bench = Bench(objects)

    async def work(lap: Lap) -> None:
        ds = await AsyncDataset.open("t", session=bench.session)
        await ds.take([1])
        await ds.to_table()
        assert not [line for line in lap()[1] if line.startswith("head")]

    bench.run(work)


def test_cold_scan_asks_for_every_byte_once(objects) -> None:
    bench = Bench(objects)

    async def work(lap: Lap) -> None:
        ds = await AsyncDataset.open("t", session=bench.session)
        lap()
        table = await ds.to_table()
        assert table.num_rows == FRAGMENTS * ROWS
        rounds, log = lap()
        assert rounds <= 3
        asked = ranges_of(log)
        for key in {key for key, _, _ in asked}:
            spans = sorted((start, end) for k, start, end in asked if k == key)
            overlaps = [(a, b) for a, b in itertools.pairwise(spans) if a[1] > b[0]]
            assert not overlaps
            assert len(spans) <= len(objects[key]) / (8 * MIB) + 3
        size = sum(len(data) for key, data in objects.items() if key.startswith("t/data/"))
        assert sum(end - start for _, start, end in asked) <= size

    bench.run(work)


def chunks_of(data: bytes, words_at: int, words_bytes: int, chunks_at: int, wide: bool) -> list[tuple[int, int, int]]:
    """(first value, start, end) of every chunk of a mini-block page, by the definition (spec: section 3.1)."""
    words = np.frombuffer(data, "<u4" if wide else "<u2", offset=words_at, count=words_bytes // (4 if wide else 2))
    found, value, at = [], 0, chunks_at
    for word in words.tolist():
        size = ((word >> 4) + 1) * 8
        found.append((value, at, at + size))
        value += 1 << (word & 15)
        at += size
    return found


def test_parts_of_pages_share_the_requests_of_both_their_rounds(objects) -> None:
    bench = Bench(objects)

    async def work(lap: Lap) -> None:
        ds = await AsyncDataset.open("t", session=bench.session)
        lap()
        table = await ds.to_table(offset=1000, limit=2000)
        assert table["a"].to_pylist() == list(range(1000, 3000))
        rounds, log = lap()
        assert (rounds, len(log)) == (3, 3)  # metadata, indexes of all columns, rows of all columns

    bench.run(work)


def test_warm_take_reads_exactly_the_chunks_that_hold_the_rows(objects, tmp_path) -> None:
    from lance.file import LanceFileReader

    bench = Bench(objects)
    dice = np.random.default_rng(3)

    async def work(lap: Lap) -> None:
        ds = await AsyncDataset.open("t", session=bench.session)
        await ds.take([0, ROWS], columns=["b"])
        lap()
        for _ in range(5):
            row = int(dice.integers(0, ROWS))
            await ds.take([row], columns=["b"])
            rounds, log = lap()
            [(key, start, end)] = ranges_of(log)
            assert rounds == 1
            assert (start, end) == chunk_with(key, row)

    def chunk_with(key: str, row: int) -> tuple[int, int]:
        path = tmp_path / Path(key).name
        path.write_bytes(objects[key])
        meta = LanceFileReader(str(path)).metadata()
        column = meta.columns[1]
        assert len(column.pages) == 1
        words, chunks = column.pages[0].buffers[:2]
        wide = (meta.major_version, meta.minor_version) == (2, 2)
        table = chunks_of(objects[key], words.position, words.size, chunks.position, wide)
        [(_, start, end)] = [c for c, n in zip(table, [*table[1:], (ROWS, 0, 0)], strict=True) if c[0] <= row < n[0]]
        return start, end

    bench.run(work)


def test_cache_stays_small_after_many_takes(objects) -> None:
    bench = Bench(objects)
    dice = np.random.default_rng(4)

    async def work(lap: Lap) -> None:
        ds = await AsyncDataset.open("t", session=bench.session)
        for _ in range(10):
            await ds.take(dice.integers(0, FRAGMENTS * ROWS, 1000))
        lap()
        await ds.take([17, ROWS + 17])
        rounds, _ = lap()
        assert rounds == 1
        size = sum(len(data) for key, data in objects.items() if key.startswith("t/data/"))
        assert bench.session.cache.stats.bytes <= 0.03 * size

    bench.run(work)


def test_a_full_scan_leaves_only_file_metadata_in_the_cache(objects) -> None:
    bench = Bench(objects)

    async def work(lap: Lap) -> None:
        ds = await AsyncDataset.open("t", session=bench.session)
        before = bench.session.cache.stats.entries
        await ds.to_table()
        assert bench.session.cache.stats.entries == before + FRAGMENTS

    bench.run(work)


@pytest.mark.parametrize(("num_columns", "metadata_reads"), [(5000, 1), (9000, 2)])
def test_metadata_of_wide_files(tmp_path: Path, num_columns: int, metadata_reads: int) -> None:
    """One read for all of it, or two for the table of columns and what is projected, where the rest is large."""
    root = tmp_path / "t"
    table = pa.table({f"column {i}": pa.array([i, i + 1, i + 2]) for i in range(num_columns)})
    lance.write_dataset(table, root)
    objects = {f"t/{path.relative_to(root)}": path.read_bytes() for path in root.rglob("*") if path.is_file()}
    [size] = [len(data) for key, data in objects.items() if key.startswith("t/data/")]

    def lengths(log: list[str]) -> list[int]:
        asked = sorted((start, end) for _, start, end in ranges_of(log))
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(asked)), "every byte once"
        return [end - start for start, end in asked]

    async def part(lap: Lap) -> None:
        ds = await AsyncDataset.open("t", session=bench.session)
        lap()
        names = ["column 3", f"column {num_columns - 5}"]
        assert await ds.take([2, 0], names) == table.select(names).take([2, 0])
        metadata = [num_bytes for num_bytes in lengths(lap()[1]) if num_bytes > 1000]  # rows and chunks are smaller
        assert len(metadata) <= 1 + metadata_reads  # with the probe of the file's end
        assert metadata_reads == 1 or sum(metadata) < 0.2 * size
        await ds.take([1], names)
        assert sum(end - start for _, start, end in ranges_of(lap()[1])) < 1000

    async def whole(lap: Lap) -> None:
        ds = await AsyncDataset.open("t", session=bench.session)
        lap()
        assert (await ds.to_table()).num_columns == num_columns
        asked = lengths(lap()[1])
        assert sum(asked) <= size
        assert len(asked) <= size / (8 * MIB) + 3
        assert len([num_bytes for num_bytes in asked if num_bytes > 100_000]) <= 2, "all metadata in one more read"

    for work in (part, whole):
        bench = Bench(objects)
        bench.run(work)


@pytest.mark.parametrize(("over_bytes", "rounds", "num_bytes"), [(0, 1, 8), (1, 2, 12)])
def test_an_index_is_kept_up_to_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over_bytes: int, rounds: int, num_bytes: int
) -> None:
    """A warm take of one row, which has eight bytes; an index that is not kept is read again, two entries of it."""
    full_zip = pa.field("c", pa.string(), metadata={"lance-encoding:structural-encoding": "fullzip"})
    rows = pa.table([pa.array([f"{i:04}" for i in range(4000)])], schema=pa.schema([full_zip]))
    lance.write_dataset(rows, tmp_path / "t", data_storage_version="2.1")
    index_bytes = 2 * (len(rows) + 1)
    monkeypatch.setattr(fullzip, "REPETITION_INDEX_KEPT_BYTES_MAX", index_bytes - over_bytes)
    session = Session()
    ds = lance_io.dataset(tmp_path / "t", session=session)
    ds.take([1])
    before = session.cache.stats.bytes
    with io_stats() as seen:
        assert ds.take([17]).to_pydict() == {"c": ["0017"]}
    assert (seen.rounds, seen.bytes_wanted) == (rounds, num_bytes)
    assert session.cache.stats.bytes == before


@pytest.mark.parametrize("columns", [None, ["s"]])
def test_after_warming_a_take_asks_for_rows_only(objects, columns) -> None:
    rows = [5, ROWS - 1, ROWS + 7, FRAGMENTS * ROWS - 1]

    async def taken(lap: Lap) -> list[tuple[str, int, int]]:
        session = Session()
        session.locate = bench.session.locate
        ds = await AsyncDataset.open("t", session=session)
        await ds.take(rows, columns)
        lap()
        await ds.take(rows, columns)
        rounds, log = lap()
        assert rounds == 1
        return ranges_of(log)

    async def work(lap: Lap) -> None:
        expected = await taken(lap)
        ds = await AsyncDataset.open("t", session=bench.session)
        lap()
        await ds.warm(columns)
        rounds, log = lap()
        assert rounds == 2 and len(log) <= (1 + 3) * FRAGMENTS  # the tails of all files, then indexes of three columns
        await ds.warm(columns)
        assert lap() == (0, [])
        assert (await ds.take(rows, columns)).num_rows == len(rows)
        rounds, log = lap()
        assert rounds == 1
        assert sorted(ranges_of(log)) == sorted(expected)

    bench = Bench(objects)
    bench.run(work)


def test_warming_stops_when_the_cache_is_about_full(objects) -> None:
    bench = Bench(objects)
    bench.session.cache.capacity_bytes = 1

    async def work(lap: Lap) -> None:
        ds = await AsyncDataset.open("t", session=bench.session)
        lap()
        await ds.warm()
        rounds, _ = lap()
        assert rounds <= 2
        assert (await ds.take([5])).num_rows == 1

    bench.run(work)


def test_a_call_ends_at_its_deadline(objects) -> None:
    bench = Bench(objects)

    async def work(lap: Lap) -> None:
        async def late(call: Awaitable[object], after_s: float) -> None:
            began = lap.loop.time()
            with pytest.raises(TimeoutError, match=rf"within the {after_s:g} s") as caught:
                await call
            assert isinstance(caught.value, lance_io.errors.DeadlineExceeded)
            assert lap.loop.time() - began == after_s
            assert asyncio.all_tasks() == {asyncio.current_task()}

        await late(AsyncDataset.open("t", session=bench.session, timeout=1.5), 1.5)
        ds = await AsyncDataset.open("t", session=bench.session, timeout=timedelta(seconds=2.5))
        await late(ds.take([5, ROWS + 7], timeout=1.5), 1.5)
        await late(ds.warm(timeout=0.5), 0.5)
        await late(ds.to_table(timeout=0.25), 0.25)
        await late(ds.count_rows("a > 5", timeout=0.25), 0.25)
        await late(ds.sample(3, timeout=0.75), 0.75)
        await late(ds.checkout_latest(timeout=0.5), 0.5)
        await late(ds.get_fragments()[0].to_table(timeout=0.125), 0.125)

    bench.run(work)
