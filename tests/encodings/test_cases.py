"""Every layout and codec: what pylance wrote and reads, read by scan, by range and by row."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.levels.portable import copy_array
from tests.encodings.cases import Case, cases_by_version
from tests.encodings.harness import Opened, assert_same, peer_table, write

CASES = [pytest.param(case, version, id=f"{case.name}@{version}") for case, version in cases_by_version()]
# The tests below that write once more take turns: each case meets each of its versions in one of them.
TURNS = [
    [pytest.param(case, version, id=f"{case.name}@{version}") for case, version in cases_by_version(turn)]
    for turn in (0, 1)
]


def expected_of(path, case: Case) -> pa.ChunkedArray:
    """What pylance reads; where it fails on a file of its own, what was written."""
    try:
        return peer_table(path)["c"]
    except BaseException as error:
        if type(error).__name__ not in ("PanicException", "OSError", "ValueError", "ArrowInvalid"):
            raise
        return case.table()["c"]


def check(path, expected: pa.ChunkedArray) -> None:
    rows = len(expected)
    opened = Opened(path)
    assert opened.file.num_rows == rows
    assert_same(opened.read()[0], expected)
    if not rows:
        assert_same(opened.take(np.empty(0, dtype=np.int64))[0], expected)
        return
    dice = np.random.default_rng(rows)
    for batch_rows in (100, None, 100):
        start, end = sorted(dice.integers(0, rows + 1, 2).tolist())
        assert_same(opened.scan(start, end, batch_rows)[0], expected.slice(start, end - start))
    for count in (1, 2, 17, rows // 2):
        chosen = np.unique(dice.integers(0, rows, count))
        assert_same(opened.take(chosen)[0], expected.take(pa.array(chosen)))
    assert_same(opened.take(np.arange(rows))[0], expected)
    assert_same(
        opened.take(np.array([0, rows - 1][: min(rows, 2)]))[0], expected.take(pa.array([0, rows - 1][: min(rows, 2)]))
    )


@pytest.mark.parametrize(("case", "version"), CASES)
def test_reads_what_pylance_wrote(case: Case, version: str, tmp_path) -> None:
    path = tmp_path / "one.lance"
    write(path, case.table(), version)
    check(path, expected_of(path, case))


@pytest.mark.parametrize(("case", "version"), TURNS[0])
def test_reads_pages_of_different_layouts(case: Case, version: str, tmp_path) -> None:
    path = tmp_path / "nine.lance"
    table = case.table()
    try:
        write(path, table, version, tiny_pages=True)
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # pylance can panic when it writes slices of nested arrays
            raise
        pytest.skip("pylance cannot write this case in batches")
    check(path, expected_of(path, case))


@pytest.mark.parametrize(("case", "version"), TURNS[1])
def test_takes_in_any_order(case: Case, version: str, tmp_path) -> None:
    """Of a table of two fragments, with repetitions: file readers take ascending rows only."""
    table, uri = case.table(), str(tmp_path / "t.lance")
    rows = len(table)
    halves = [table.slice(0, rows // 2), table.slice(rows // 2)]
    # pylance can panic when it writes slices, and pyarrow's take reads beyond those of nested vectors
    parts = [pa.table([copy_array(part.column(0).combine_chunks())], part.schema) for part in halves]
    for part in parts:
        lance.write_dataset(part, uri, mode="append", data_storage_version=version)
    ours = lance_io.dataset(uri)
    dice = np.random.default_rng(rows)
    for count in (0, 1, 40) if rows else (0,):
        wanted = dice.integers(0, rows, count).tolist() if rows else []
        wanted += wanted[:5]
        found = ours.take(wanted)["c"]
        assert_same(found, expected_rows(uri, table, wanted, found.type))


def expected_rows(uri: str, table: pa.Table, wanted: list[int], shown: pa.DataType) -> pa.ChunkedArray:
    """What pylance takes; where it fails on a table of its own, what was written, if that is shown as it was."""
    try:
        return lance.dataset(uri).take(wanted)["c"]
    except BaseException as error:
        if type(error).__name__ not in ("PanicException", "OSError", "ValueError", "ArrowInvalid"):
            raise
        return table["c"].take(np.array(wanted, dtype=np.int64)).cast(shown)
