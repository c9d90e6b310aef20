"""What scans and takes hold in memory, and what the statistics say they read: for both drivers.

Tables lie in a memory store, behind one that records each request; `SCAN_PIECE_BYTES` is made small, so that a table of
a few megabytes has pages that must be cut. One driver reads in the caller's thread, the other through the scheduler,
planning as on S3 with small gaps.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io import limits, runtime
from lance_io.dataset.lance_dataset import AsyncDataset
from lance_io.errors import FormatError, UnsupportedError
from lance_io.file import LanceFileReader
from lance_io.file.file_requests import read_file_sync
from lance_io.file.open.file_source import FileRef, ReadContext
from lance_io.file.open.open_file import open_cached
from lance_io.file.scan.readahead import PIECES_AHEAD
from lance_io.io.budget import process_pool
from lance_io.io.buffer_pool import POOL_BYTES, BufferPool
from lance_io.io.stats import IoStats, io_stats, store_stats
from lance_io.limits import KIB, MIB
from lance_io.reads.version.session import Session
from lance_io.store.memory import MemoryStore
from lance_io.store.profile import CLOUD
from lance_io.store.url import Location
from lance_io.testing.record import record

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 60_000
BIG_ROWS = 2500
CASES = 40
PIECE_BYTES = 64 * KIB
GAP_BYTES = 4 * KIB
SMALL_GAPS = replace(CLOUD, scan_gap_bytes=GAP_BYTES, scan_read_bytes_max=256 * KIB, split_bytes=256 * KIB)
LARGEST_REQUEST = 2 * PIECE_BYTES + 2 * GAP_BYTES


def columns() -> pa.Table:
    """One column per layout and kind of cut."""
    dice = np.random.default_rng(7)
    numbers = pa.array(dice.integers(0, 1 << 62, ROWS))
    lengths = dice.integers(0, 9, ROWS)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    lists = pa.ListArray.from_arrays(offsets, pa.array(dice.random(int(offsets[-1]))))
    few = set(dice.integers(0, ROWS, 400).tolist())
    wide = pa.FixedSizeListArray.from_arrays(pa.array(dice.random(ROWS * 4, dtype=np.float32)), 4)
    return pa.table(
        {
            "ascending": np.arange(ROWS) * 1_000_003,
            "number": numbers,
            "nullable": pa.array(dice.random(ROWS), mask=dice.random(ROWS) < 0.3),
            "text": pa.array([f"{x:x}" for x in numbers.to_pylist()]),
            "lists": lists,
            "vector": wide,
            "struct": pa.StructArray.from_arrays([numbers, lists], ["x", "y"]),
            "word": pa.array([f"word {x % 300}" for x in range(ROWS)]),
            "rare": pa.array([None if i not in few else i for i in range(ROWS)], pa.int32()),
        }
    )


def big_columns() -> pa.Table:
    """Values that make full-zip pages: fixed and variable width, with nulls, in lists."""
    dice = np.random.default_rng(8)
    count = BIG_ROWS
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(dice.random(count * 100)), 100)
    texts = [None if i % 11 == 3 else dice.bytes(int(dice.integers(0, 1200))) for i in range(count)]
    return pa.table(
        {
            "vector": vectors,
            "vector_or_null": pa.FixedSizeListArray.from_arrays(
                pa.array(dice.random(count * 100)), 100, mask=pa.array(dice.random(count) < 0.2)
            ),
            "bytes": pa.array(texts, pa.binary()),
            "lists": pa.array([[dice.bytes(600)] * (i % 3) for i in range(count)], pa.list_(pa.binary())),
        }
    )


@pytest.fixture(scope="module", params=["2.1", "2.2"])
def written(request, tmp_path_factory) -> dict[str, tuple[pa.Table, dict[str, bytes]]]:
    """Tables by name, with their files by key."""
    found = {}
    for name, table in (("small", columns()), ("big", big_columns())):
        root = tmp_path_factory.mktemp(name) / "t"
        lance.write_dataset(table, root, data_storage_version=request.param)
        files = {f"t/{p.relative_to(root)}": p.read_bytes() for p in root.rglob("*") if p.is_file()}
        found[name] = lance.dataset(root).to_table(), files
    return found


class Bench:
    """A table in a recording memory store."""

    def __init__(self, written: tuple[pa.Table, dict[str, bytes]]) -> None:
        self.table, objects = written
        self.objects = objects
        memory = MemoryStore(profile=SMALL_GAPS)
        for key, data in objects.items():
            memory.put_sync(key, data)
        self.store = record(memory)
        self.session = Session()
        self.session.locate = lambda uri, options: Location(self.store, "t", "memory://t")

    @property
    def stats(self) -> IoStats:
        return store_stats(self.store.identity)

    def open(self) -> lance_io.LanceDataset:
        return lance_io.dataset("t", session=self.session)

    def data_reads(self) -> list[tuple[str, int, int]]:
        """(key, start, end) of reads of data files since the last call."""
        requests = [r for r in self.store.requests if r.key.startswith("t/data/")]
        self.store.requests.clear()
        return [(r.key, r.start, r.end) for r in requests]

    @property
    def data_bytes(self) -> int:
        return sum(len(data) for key, data in self.objects.items() if key.startswith("t/data/"))


@pytest.fixture(params=["small", "big"])
def bench(request, written, monkeypatch) -> Bench:
    monkeypatch.setattr(limits, "SCAN_PIECE_BYTES", PIECE_BYTES)
    return Bench(written[request.param])


def run_async(work: Any) -> Any:
    """Run `work()` on a loop that stands in for the engine's."""

    async def body() -> Any:
        with runtime.use_loop(asyncio.get_running_loop()):
            return await work()

    return asyncio.run(body())


def overlaps(reads: list[tuple[str, int, int]]) -> int:
    """Bytes that were read more than once."""
    again, reached, last_key = 0, 0, None
    for key, start, end in sorted(reads):
        reached = reached if key == last_key else 0
        last_key = key
        again += max(0, min(reached, end) - start)
        reached = max(reached, end)
    return again


# -- large pages -----------------------------------------------------------------------------------------------------


def test_pages_cut_into_pieces_read_equal(bench: Bench) -> None:
    ds = bench.open()
    assert ds.to_table() == bench.table
    reads = bench.data_reads()
    assert len(reads) > bench.data_bytes / (4 * PIECE_BYTES)  # the pages are cut indeed
    assert max(end - start for _, start, end in reads) <= max(LARGEST_REQUEST, SMALL_GAPS.tail_bytes)
    for name in bench.table.column_names:
        assert ds.to_table([name]) == bench.table.select([name])
    for first, num_rows in ((0, 1), (1, 20_000), (317, 1500), (len(ds) - 1700, 1600)):
        part = ds.to_table(offset=first, limit=num_rows)
        assert part == bench.table.slice(first, num_rows), (first, num_rows)
    batches = list(ds.to_batches(batch_size=1000))
    assert pa.Table.from_batches(batches) == bench.table


async def collected(batches: Any) -> pa.Table:
    return pa.Table.from_batches([batch async for batch in batches])


def test_pages_cut_into_pieces_read_equal_through_the_scheduler(bench: Bench) -> None:
    async def work() -> None:
        ds = await AsyncDataset.open("t", session=bench.session)
        assert await ds.to_table() == bench.table
        assert await collected(ds.to_batches(batch_size=777)) == bench.table
        part = await ds.to_table(offset=300, limit=2000)
        assert part == bench.table.slice(300, 2000)

    run_async(work)


@pytest.mark.parametrize("through_scheduler", [False, True])
def test_no_byte_is_asked_for_twice(written, monkeypatch, through_scheduler: bool) -> None:
    """Rows of lists run over the borders of chunks, so these may be shared by two pieces; nothing else is.

    An index of a hundred bytes between two pages may lie in the gap of a merged read, too.
    """
    monkeypatch.setattr(limits, "SCAN_PIECE_BYTES", PIECE_BYTES)
    for which, names, shared_bytes in (
        ("small", ["ascending", "number", "nullable", "text", "vector", "word"], 0),
        ("small", ["lists"], 32 * KIB),
        ("big", None, 0),
    ):
        bench = Bench(written[which])
        with io_stats() as seen:
            if through_scheduler:
                run_async(partial(read_all, bench, names))
            else:
                bench.open().to_table(names)
        reads = bench.data_reads()
        merged_bytes = 2 * KIB if through_scheduler else 0
        assert overlaps(reads) <= shared_bytes * len(reads) + merged_bytes
        all_bytes = sum(map(len, bench.objects.values()))  # opening counts too
        assert seen.bytes_wanted <= all_bytes + shared_bytes * len(reads)


async def read_all(bench: Bench, names: list[str] | None) -> pa.Table:
    ds = await AsyncDataset.open("t", session=bench.session)
    return await ds.to_table(names)


# -- what is held ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("buffer_bytes", [1, 128 * KIB, 512 * KIB])
def test_a_scan_holds_its_buffer_and_what_is_waited_for(bench: Bench, buffer_bytes: int) -> None:
    ds = bench.open()
    for _ in ds.to_batches(batch_size=1000, io_buffer_size=buffer_bytes):
        assert bench.stats._bytes_held <= buffer_bytes + 2 * LARGEST_REQUEST
    assert bench.stats.bytes_held_peak <= buffer_bytes + 2 * LARGEST_REQUEST
    assert bench.stats._bytes_held == 0


@pytest.mark.parametrize("buffer_bytes", [1, 128 * KIB, 512 * KIB])
def test_so_does_one_through_the_scheduler(bench: Bench, buffer_bytes: int) -> None:
    async def work() -> None:
        ds = await AsyncDataset.open("t", session=bench.session)
        table = await collected(ds.to_batches(batch_size=1000, io_buffer_size=buffer_bytes))
        assert table == bench.table
        assert bench.stats.bytes_held_peak <= buffer_bytes + 2 * LARGEST_REQUEST
        assert bench.stats._bytes_held == 0

    run_async(work)


def test_a_larger_buffer_reads_further_ahead(written, monkeypatch) -> None:
    monkeypatch.setattr(limits, "SCAN_PIECE_BYTES", PIECE_BYTES)

    async def ahead(buffer_bytes: int) -> int:
        bench = Bench(written["small"])
        ds = await AsyncDataset.open("t", session=bench.session)
        batches = ds.to_batches(batch_size=100, io_buffer_size=buffer_bytes)
        await anext(batches)
        await settled(bench)
        read = sum(end - start for _, start, end in bench.data_reads())
        await batches.aclose()  # type: ignore[attr-defined]
        return read

    async def work() -> None:
        little, more, unbounded = await ahead(PIECE_BYTES), await ahead(1 * MIB), await ahead(0)
        assert little < more < unbounded

    run_async(work)


async def settled(bench: Bench) -> None:
    """Let everything run that can run without the consumer: until nothing more is asked for."""
    asked, still = -1, 0
    while still < 40:
        await asyncio.sleep(0.005)
        still = still + 1 if len(bench.store.requests) == asked else 0
        asked = len(bench.store.requests)


def test_a_stalled_consumer_stops_the_reading(written, monkeypatch) -> None:
    monkeypatch.setattr(limits, "SCAN_PIECE_BYTES", PIECE_BYTES)
    num_columns = len(written["small"][0].column_names) + 1  # the struct has two leaves
    most = (num_columns + PIECES_AHEAD) * 2 * PIECE_BYTES + SMALL_GAPS.tail_bytes  # a piece of each leaf, some ahead

    bench = Bench(written["small"])
    batches = bench.open().to_batches(batch_size=100)
    next(batches)
    time.sleep(0.1)
    assert sum(end - start for _, start, end in bench.data_reads()) <= most < bench.data_bytes
    batches.close()  # type: ignore[attr-defined]

    async def work() -> None:
        bench = Bench(written["small"])
        ds = await AsyncDataset.open("t", session=bench.session)
        batches = ds.to_batches(batch_size=100, io_buffer_size=256 * KIB)
        await anext(batches)
        await settled(bench)
        assert sum(end - start for _, start, end in bench.data_reads()) <= most + 256 * KIB + LARGEST_REQUEST
        assert bench.stats._bytes_held <= 256 * KIB + 2 * LARGEST_REQUEST
        await batches.aclose()  # type: ignore[attr-defined]

    run_async(work)


def test_what_is_abandoned_is_given_back(bench: Bench) -> None:
    for end in ("close", "drop"):
        batches = bench.open().to_batches(batch_size=10)
        next(batches)
        if end == "close":
            batches.close()  # type: ignore[attr-defined]
        del batches
        gc.collect()
    assert_given_back(bench)

    async def work() -> None:
        ds = await AsyncDataset.open("t", session=bench.session)
        before = asyncio.all_tasks()
        batches = ds.to_batches(batch_size=10)
        await anext(batches)
        await batches.aclose()  # type: ignore[attr-defined]
        assert asyncio.all_tasks() == before
        assert bench.stats._bytes_held == 0

    run_async(work)
    assert_given_back(bench)


HOLDERS = ("Fetched", "Room", "OwnedBuffer", "memoryview", "ndarray", "Int64Array", "StringArray", "Task", "Request")


@pytest.mark.parametrize("kind", ["scan", "take"])
def test_nothing_that_was_read_waits_for_the_garbage_collector(written, kind: str) -> None:
    """It would hold what one scan read while the next one reads as much again."""
    bench = Bench(written["small"])
    rows = np.arange(0, ROWS, 3)

    async def work() -> list[str]:
        ds = await AsyncDataset.open("t", session=bench.session)
        await ds.take(rows[:1])
        gc.collect()
        gc.disable()
        try:
            if kind == "scan":
                assert (await collected(ds.to_batches(batch_size=1000))).num_rows == ROWS
            else:
                assert (await ds.take(rows)).num_rows == len(rows)
            await asyncio.sleep(0)
            return collected_types()
        finally:
            gc.enable()

    found = run_async(work)
    assert [name for name in found if name in HOLDERS] == []


def collected_types() -> list[str]:
    """Types of what only the garbage collector frees."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return [type(one).__name__ for one in gc.garbage]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.collect()


def assert_given_back(bench: Bench) -> None:
    """Nothing is held any more, once what the threads had begun to decode has ended."""
    deadline = time.monotonic() + 20
    while process_pool().avail_bytes != process_pool().capacity_bytes or bench.stats._bytes_held:
        assert time.monotonic() < deadline
        time.sleep(0.005)


# -- statistics ------------------------------------------------------------------------------------------------------


def test_both_drivers_count_what_the_store_sees(written) -> None:
    """Ranges and bytes wanted are the same whoever drives; reads and bytes read are those of the store."""

    def spent(bench: Bench, call: Any) -> IoStats:
        before = bench.store.stats.snapshot()
        with io_stats() as seen:
            call()
        stored = bench.store.stats.snapshot() - before
        assert (seen.num_reads, seen.bytes_read) == (stored["get"].requests, stored.bytes_read)
        assert 0 < seen.bytes_wanted <= seen.bytes_read
        assert bench.stats.bytes_held_peak > 0
        return seen

    rows = [5, 17, ROWS // 2, ROWS - 1]
    plain, scheduled = Bench(written["small"]), Bench(written["small"])
    ds = plain.open()
    now = [spent(plain, lambda: ds.take(rows)), spent(plain, lambda: ds.take(rows)), spent(plain, ds.to_table)]

    later: list[IoStats] = []

    async def work() -> None:
        table = await AsyncDataset.open("t", session=scheduled.session)
        for call in (lambda: table.take(rows), lambda: table.take(rows), table.to_table):
            before = scheduled.store.stats.snapshot()
            with io_stats() as seen:
                await call()
            stored = scheduled.store.stats.snapshot() - before
            assert (seen.num_reads, seen.bytes_read) == (stored["get"].requests, stored.bytes_read)
            later.append(seen)

    run_async(work)
    for mine, theirs in zip(now, later, strict=True):
        assert (mine.num_ranges, mine.bytes_wanted) == (theirs.num_ranges, theirs.bytes_wanted)
    assert [one.rounds for one in now[:2]] == [one.rounds for one in later[:2]] == [3, 1]


def test_statistics_of_a_dataset(written) -> None:
    bench = Bench(written["small"])
    ds = bench.open()
    ds.io_stats_incremental()
    with io_stats() as seen:
        ds.take([4, 44_000], ["number", "text"])
    counted = ds.io_stats_incremental()
    assert (counted.read_iops, counted.read_bytes) == (seen.num_reads, seen.bytes_read)
    assert (counted.write_iops, counted.write_bytes) == (0, 0)
    for through in ("sync", "async"):
        called: list[Any] = []
        with io_stats() as seen:
            if through == "sync":
                list(ds.to_batches(["number"], scan_stats_callback=called.append))
            else:
                run_async(
                    lambda called=called: collected(
                        AsyncDataset.of(ds).to_batches(["number"], scan_stats_callback=called.append)
                    )
                )
        [spent] = called
        assert (spent.requests, spent.bytes_read) == (seen.num_reads, seen.bytes_read)


def test_large_takes_read_into_memory_that_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = pa.array(np.random.default_rng(0).random(16 * 600_000, dtype=np.float32))
    rows = pa.table({"vector": pa.FixedSizeListArray.from_arrays(values, 16)})
    lance.write_dataset(rows, tmp_path / "t.lance")
    pool, given = BufferPool(), set()
    of = pool.allocate

    def watched(num_bytes: int) -> Any:
        memory = of(num_bytes)
        given.add(memory.__array_interface__["data"][0])
        return memory

    monkeypatch.setattr(pool, "allocate", watched)
    monkeypatch.setattr("lance_io.file.file_requests.buffer_pool", lambda: pool)
    table = lance_io.dataset(tmp_path / "t.lance")
    for most in (600_000, 590_000, 600_000):
        assert table.take(range(most)) == rows.slice(0, most)
    assert (len(given), pool.num_bytes) == (1, POOL_BYTES)


def test_a_large_take_counts_for_the_process_while_it_lasts(written) -> None:
    bench = Bench(written["big"])
    ds = bench.open()
    least: list[int] = []
    read_sync = bench.store.read_sync  # type: ignore[attr-defined]

    def watched(*arguments: Any) -> Any:
        least.append(process_pool().avail_bytes)
        return read_sync(*arguments)

    bench.store.read_sync = watched  # type: ignore[attr-defined]
    ds.take(list(itertools.chain(range(0, BIG_ROWS, 2))))
    assert min(least) < process_pool().capacity_bytes - limits.MIB
    assert process_pool().avail_bytes == process_pool().capacity_bytes


def test_files_are_counted_too(written, tmp_path: Path) -> None:
    _, objects = written["small"]
    [data] = [data for key, data in objects.items() if key.startswith("t/data/")]
    path = tmp_path / "one.lance"
    path.write_bytes(data)
    with io_stats() as seen:
        reader = LanceFileReader(str(path))
        opened_bytes = seen.bytes_read
        reader.take_rows([1, 2]).to_table()
    assert 0 < opened_bytes < seen.bytes_read < len(data)


# -- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["small", "big"])
def test_damage_in_pages_that_are_cut(written, monkeypatch, which: str) -> None:
    """Chunk tables and repetition indexes say where to cut: whatever they say, no row is lost or invented."""
    monkeypatch.setattr(limits, "SCAN_PIECE_BYTES", PIECE_BYTES)
    table, objects = written[which]
    [key] = [key for key in objects if key.startswith("t/data/")]
    dice = np.random.default_rng(11)
    refused = 0
    for at, value in zip(index_bytes(objects[key], dice), dice.integers(0, 256, 10_000), strict=False):
        data = bytearray(objects[key])
        data[at] ^= int(value) or 1
        bench = Bench((table, {**objects, key: bytes(data)}))
        try:
            found = bench.open().to_table()
        except (FormatError, UnsupportedError) as error:
            assert "column" in str(error) and "page" in str(error)
            refused += 1
        else:
            found.validate()
            names = [field.name for field in found.schema if field.type != pa.string()]  # UTF-8 is not checked
            found.select(names).validate(full=True)
            assert found.schema == table.schema
            assert found.num_rows == table.num_rows
    assert refused > CASES // 4


def index_bytes(data: bytes, dice: np.random.Generator) -> list[int]:
    """Places in the small buffers of pages, which are their indexes."""
    file, _ = opened_file(data)
    spans = [
        (offset, size)
        for column in range(len(file.paths))
        for page in file.info(column).pages
        for offset, size in zip(page.buffer_offsets, page.buffer_sizes, strict=True)
        if 0 < size < PIECE_BYTES
    ]
    chosen = dice.integers(0, len(spans), CASES)
    return [spans[i][0] + int(dice.integers(0, spans[i][1])) for i in chosen.tolist()]


def opened_file(data: bytes) -> Any:
    store = MemoryStore(profile=SMALL_GAPS)
    store.put_sync("file", data)
    ref = FileRef("file", len(data), (), ())
    context = ReadContext(store, Session().cache)
    return read_file_sync(open_cached(context, ref, []), context, "file")
