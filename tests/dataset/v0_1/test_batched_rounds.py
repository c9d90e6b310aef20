"""Requests and dependent rounds on tables of version 0.1, as exact numbers, beside those of pylance.

The table is in a memory store that plans reads as on S3; every request lasts one unit of virtual time. pylance's
numbers are those of its own counters on local disk, which reads the same ranges.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.dataset.lance_dataset import AsyncDataset
from lance_io.encodings.v0_1.field_pages import FieldPages, Runs
from tests.file.test_rounds import Bench, ranges_of

if TYPE_CHECKING:
    from pathlib import Path

    from lance_io.spans import Ranges
    from tests.file.test_rounds import Lap

ROWS = 40_000
GROUP_ROWS = 1024
BATCHES = -(-ROWS // GROUP_ROWS)


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("table") / "t"
    dice = np.random.default_rng(0)
    lists = [[f"item {i}"] * (i % 3) for i in range(ROWS)]
    rows = pa.table({"a": range(ROWS), "s": [f"row {i}" for i in range(ROWS)], "b": dice.random(ROWS), "l": lists})
    lance.write_dataset(rows, root, data_storage_version="legacy", max_rows_per_group=GROUP_ROWS)
    return root


@pytest.fixture
def bench(root) -> Bench:
    return Bench({f"t/{path.relative_to(root)}": path.read_bytes() for path in root.rglob("*") if path.is_file()})


def pylance_reads(root: Path, columns: list[str], rows: list[int]) -> int:
    """Reads of a take, warm."""
    table = lance.dataset(str(root))
    table.take(rows, columns=columns)
    table.io_stats_incremental()
    table.take(rows, columns=columns)
    return int(table.io_stats_incremental().read_iops)


@pytest.mark.parametrize(("columns", "rounds"), [(["a"], 1), (["a", "b"], 1), (["s"], 2), (["a", "s"], 2), (["l"], 3)])
def test_rounds_of_takes(bench: Bench, root: Path, columns: list[str], rounds: int) -> None:
    rows = [5, 17_000, 39_999]

    async def work(lap: Lap) -> None:
        ds = await AsyncDataset.open("t", session=bench.session)
        assert lap()[0] == 2
        want = lance.dataset(str(root)).take(rows, columns=columns)
        assert (await ds.take(rows, columns=columns)).equals(want)
        cold, log = lap()
        assert cold == rounds + 1  # one for the end of the file: four in all with strings five
        assert not [line for line in log if line.startswith("head")]
        await ds.take(rows, columns=columns)
        warm, log = lap()
        assert warm == rounds
        assert len(log) <= pylance_reads(root, columns, rows)

    bench.run(work)


def test_takes_ask_for_their_values_only(bench: Bench) -> None:
    async def work(lap: Lap) -> None:
        ds = await AsyncDataset.open("t", session=bench.session)
        await ds.take([0], columns=["a", "s"])
        lap()
        await ds.take([1000, 20_000], columns=["a"])
        sizes = [end - start for _, start, end in ranges_of(lap()[1])]
        assert sizes == [8, 8]
        await ds.take([20_000], columns=["s"])
        sizes = [end - start for _, start, end in ranges_of(lap()[1])]
        assert sizes == [16, len("row 20000")]

    bench.run(work)


def test_rows_that_are_neighbours_are_one_range(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of their batch, as those of the next one lie elsewhere; by place, and in a range of few rows."""
    counts: list[tuple[str, int]] = []
    ranges = FieldPages.ranges

    def count(pages: FieldPages, runs: Runs) -> Ranges:
        found = ranges(pages, runs)
        counts.append((pages.kind, len(found)))
        return found

    monkeypatch.setattr(FieldPages, "ranges", count)
    ours, theirs = lance_io.dataset(str(root)), lance.dataset(str(root))
    columns = ["a", "s"]
    for rows, num_runs in (([7], 1), ([*range(1000, 1030)], 2), ([*range(1000, 1030), 5000, 5002, 5003], 4)):
        assert ours.take(rows, columns=columns).equals(theirs.take(rows, columns=columns))
        assert sorted(counts) == [("binary", num_runs), ("plain", num_runs)]
        counts.clear()
    expected = theirs.to_table(columns=columns, offset=1000, limit=30)
    assert ours.to_table(columns=columns, offset=1000, limit=30).equals(expected)
    assert sorted(counts) == [("binary", 2), ("plain", 2)]


def spans_of(log: list[str], root: Path) -> list[tuple[int, int]]:
    """What was read of the only data file, whose end is asked for without knowing its size."""
    (file,) = (root / "data").iterdir()
    ends = [line.split(" ")[2] for line in log if line.split(" ")[2].startswith("-")]
    spans = [(start, end) for _, start, end in ranges_of([line for line in log if line.split(" ")[2] not in ends])]
    return sorted([*spans, *((file.stat().st_size - int(end[1:]), file.stat().st_size) for end in ends)])


def test_a_scan_asks_for_every_byte_once(bench: Bench, root: Path) -> None:
    async def work(lap: Lap) -> None:
        ds = await AsyncDataset.open("t", session=bench.session)
        lap()
        await ds.to_table()
        rounds, log = lap()
        spans = spans_of(log, root)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
        assert rounds <= 3
        assert len(log) <= 4  # pages of a batch lie side by side, and those of the next behind them

    bench.run(work)


def test_ranges_ask_for_their_batches_only(bench: Bench) -> None:
    async def work(lap: Lap) -> None:
        ds = await AsyncDataset.open("t", session=bench.session)
        await ds.take([0], columns=["a"])
        lap()
        table = await ds.to_table(columns=["a"], offset=5_000, limit=3_000)
        assert table["a"].to_pylist() == list(range(5_000, 8_000))
        rounds, log = lap()
        assert rounds == 1
        asked = sum(end - start for _, start, end in ranges_of(log))
        (file_bytes,) = [meta.size_bytes async for meta in bench.memory.list("t/data/")]
        assert asked < file_bytes * 4 * GROUP_ROWS // ROWS  # what lies between the pages of one column is read over

    bench.run(work)


@pytest.mark.parametrize(
    ("filter", "first", "end"),
    [
        ("a = 20000", 20_000, 20_001),
        ("a >= 39000", 39_000, ROWS),
        ("a between 2000 and 5000", 2_000, 5_001),
        ("a < 0", 0, 0),
    ],
)
def test_a_filter_reads_exactly_the_batches_that_its_bounds_admit(
    bench: Bench, filter: str, first: int, end: int
) -> None:
    start_batch, end_batch = first // GROUP_ROWS, -(-end // GROUP_ROWS)
    scanned = min(ROWS, end_batch * GROUP_ROWS) - start_batch * GROUP_ROWS

    async def work(lap: Lap) -> None:
        ds = await AsyncDataset.open("t", session=bench.session)
        told = []
        rows = await ds.to_table(filter=filter, columns=["a"], scan_stats_callback=told.append)
        assert rows["a"].to_pylist() == list(range(first, end))
        counts = told.pop().all_counts
        assert (counts["rows_scanned"], counts["batches_examined"]) == (scanned, BATCHES)
        assert counts["batches_skipped"] == BATCHES - (end_batch - start_batch)
        lap()
        await ds.to_table(filter=filter, columns=["a"])
        rounds, log = lap()
        assert rounds == len(log) == (1 if scanned else 0)
        same = await ds.to_table(filter=filter, columns=["a"], use_stats=False, scan_stats_callback=told.append)
        assert same.equals(rows_of(first, end))
        counts = told.pop().all_counts
        assert counts["rows_scanned"] == ROWS
        assert "batches_skipped" not in counts

    bench.run(work)


def rows_of(first: int, end: int) -> pa.Table:
    return pa.table({"a": pa.array(range(first, end), pa.int64())})


def test_statistics_take_no_round_of_their_own_where_the_end_of_the_file_has_them(bench: Bench) -> None:
    async def work(lap: Lap) -> None:
        ds = await AsyncDataset.open("t", session=bench.session)
        lap()
        await ds.to_table(filter="a = 20000", columns=["a"])
        rounds, _ = lap()
        assert rounds == 2  # the end of the file, and a page

    bench.run(work)
