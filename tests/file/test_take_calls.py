"""What a warm take costs besides reading and decoding, in calls of functions: per column, per row, per read."""

from __future__ import annotations

import itertools
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io import records
from lance_io.io.budget import Ticket, process_pool
from lance_io.io.buffer_pool import BufferPool
from lance_io.io.dispatch import Operation
from lance_io.io.reads import Merging, Request, plan_ranges
from lance_io.spans import Ranges

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

ROWS, COLUMNS = 4000, 12


def calls_of(work: Callable[[], Any]) -> int:
    """Calls of functions, those of builtins included, without those that look after frozen objects in tests only."""
    count = 0

    def see(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call") and frame.f_code.co_filename != records.__file__

    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[int, lance_io.LanceDataset]:
    """The same rows in 1, 8 and 16 files."""
    folder: Path = tmp_path_factory.mktemp("calls")
    rows = pa.table({f"c{at}": np.random.default_rng(at).integers(0, 1 << 40, ROWS) for at in range(COLUMNS)})
    found = {}
    for files in (1, 8, 16):
        uri = str(folder / f"{files}.lance")
        found[files] = lance_io.write_dataset(rows, uri, max_rows_per_file=ROWS // files)
        assert len(found[files].get_fragments()) == files
        for columns in range(1, COLUMNS + 1):
            take(found[files], ROWS // 2, columns)
    return found


def take(dataset: lance_io.LanceDataset, num_rows: int, columns: int) -> pa.Table:
    rows = list(range(0, ROWS, ROWS // num_rows))
    return dataset.take(rows, columns=[f"c{at}" for at in range(columns)])


def test_a_column_costs_few_calls(tables: dict[int, lance_io.LanceDataset]) -> None:
    take(tables[1], 5, COLUMNS)
    few, many = (calls_of(lambda: take(tables[1], 5, columns)) for columns in (2, COLUMNS))  # noqa: B023
    assert (many - few) / (COLUMNS - 2) <= 4
    assert many <= 220


def test_rows_cost_no_calls(tables: dict[int, lance_io.LanceDataset]) -> None:
    assert calls_of(lambda: take(tables[1], 5, COLUMNS)) == calls_of(lambda: take(tables[1], 500, COLUMNS))


def test_a_column_of_one_more_file_costs_few_calls(tables: dict[int, lance_io.LanceDataset]) -> None:
    def per_file(columns: int) -> float:
        for files in (8, 16):  # few views of a file are remembered
            take(tables[files], 200, columns)
        few, many = (calls_of(lambda: take(tables[files], 200, columns)) for files in (8, 16))  # noqa: B023
        return (many - few) / 8

    assert (per_file(COLUMNS) - per_file(2)) / (COLUMNS - 2) < 1
    assert per_file(COLUMNS) <= 32


def test_a_column_of_one_more_file_that_is_not_open_costs_few_calls(tables: dict[int, lance_io.LanceDataset]) -> None:
    def cold(files: int, columns: int) -> int:
        dataset = lance_io.dataset(tables[files].uri, session=lance_io.Session())
        dataset.count_rows()
        return calls_of(lambda: take(dataset, 200, columns))

    def per_file(columns: int) -> float:
        return (cold(16, columns) - cold(8, columns)) / 8

    cold(16, COLUMNS)  # what files of one schema have in common is known
    assert (per_file(COLUMNS) - per_file(2)) / (COLUMNS - 2) <= 70
    assert per_file(2) <= 460


def test_a_column_of_one_more_small_file_costs_scans_few_calls(tables: dict[int, lance_io.LanceDataset]) -> None:
    def cold(files: int, columns: int) -> int:
        dataset = lance_io.dataset(tables[files].uri, session=lance_io.Session())
        dataset.count_rows()
        names = [f"c{at}" for at in range(columns)]
        return calls_of(lambda: dataset.to_table(columns=names))

    def per_file(columns: int) -> float:
        return (cold(16, columns) - cold(8, columns)) / 8

    cold(16, COLUMNS)
    assert (per_file(COLUMNS) - per_file(2)) / (COLUMNS - 2) <= 70
    assert per_file(2) <= 490


def test_ranges_are_planned_without_calls_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = (BufferPool() for _ in itertools.count())  # what others have left in those of the process takes calls, too
    monkeypatch.setattr("lance_io.io.reads.buffer_pool", lambda: next(pool))

    def planned(num_ranges: int) -> int:
        starts = np.arange(num_ranges) * 100
        ranges = Ranges(starts, starts + 10)
        operation = Operation((), 0, 0, process_pool())
        merging = Merging("take", 200, 10_000_000)
        request = Request(operation, "key", ranges, 10 * num_ranges, merging, (0,), Ticket((0,)), ())
        calls = calls_of(lambda: plan_ranges([request]))
        assert len(request.reads) == 1
        return calls

    assert planned(7) == planned(500) <= 20
    assert planned(1000) == planned(10_000) <= 40  # into memory that is used again
