"""Small files of version 0.1, of which a table knows all: rows are those of pylance, damage is told as in general."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.file.scan.templates import small_files
from lance_io.file.scan.templates.file_templates import MISSES_MIN
from tests.file.known_scans import Counted, check_damage, opened

if TYPE_CHECKING:
    from pathlib import Path

FILES, ROWS = 48, 110


def rows_of(number: int) -> pa.Table:
    """Values of every kind that such files have in one page; there are no nulls but strings without bytes."""
    dice = np.random.default_rng(number)
    first = number * ROWS
    columns: dict[str, tuple[pa.DataType, Any]] = {
        "plain": (pa.int64(), range(first, first + ROWS)),
        "flag": (pa.bool_(), [one % 3 > 0 for one in range(ROWS)]),
        "text": (pa.string(), [f"row {one}" * int(dice.integers(3)) for one in range(ROWS)]),
        "sparse": (pa.large_string(), [None if one % 3 == 0 else f"{one}" for one in range(ROWS)]),
        "bytes": (pa.binary(), [bytes([one % 256]) * (1 + one % 5) for one in range(ROWS)]),
        "none": (pa.string(), [None] * ROWS),
        "struct": (
            pa.struct([("x", pa.int64()), ("y", pa.struct([("z", pa.string())]))]),
            [{"x": i, "y": {"z": str(i)}} for i in range(ROWS)],
        ),
        "vector": (pa.list_(pa.float64(), 3), [[i, i + 0.5, -i] for i in range(ROWS)]),
        "key": (pa.binary(4), [b"%04d" % i for i in range(ROWS)]),
        "time": (pa.timestamp("us", "UTC"), [1_000_000 * i for i in range(ROWS)]),
        "decimal": (pa.decimal128(20, 3), list(range(ROWS))),
    }
    arrays = [pa.array(values, dtype) for dtype, values in columns.values()]
    return pa.Table.from_arrays(arrays, schema=pa.schema([(name, dtype) for name, (dtype, _) in columns.items()]))


@pytest.fixture(scope="module", params=[lance, lance_io], ids=lambda module: module.__name__)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table by either writer, of files of several batches."""
    made = tmp_path_factory.mktemp("known_batches") / "t"
    for number in range(FILES):
        request.param.write_dataset(
            rows_of(number), str(made), mode="append", data_storage_version="legacy", max_rows_per_group=40
        )
    return made


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def test_files_are_known_and_their_rows_those_of_pylance(folder: Path, counted: Counted) -> None:
    ours, theirs = opened(folder), lance.dataset(str(folder))
    expected = theirs.to_table()
    found = ours.to_table()
    found.validate(full=True)
    assert found.equals(expected)
    assert (counted.known, counted.missed) == (FILES, 0)
    for column in expected.column_names:
        before = counted.known
        assert ours.to_table([column]).equals(expected.select([column])), column
        assert counted.known - before == FILES, column
    assert ours.to_table(["struct.y"]).equals(theirs.to_table(["struct.y"]))
    assert counted.missed == 0


def test_the_general_way_has_the_same_rows(folder: Path, counted: Counted) -> None:
    expected = lance.dataset(str(folder)).to_table()
    assert opened(folder).scanner(fragment_readahead=2).to_table().equals(expected)
    assert counted.known == 0


def test_filters_and_deletions(folder: Path, tmp_path: Path) -> None:
    uri = str(shutil.copytree(folder, tmp_path / "t"))
    lance.dataset(uri).delete("plain % 7 = 0 or (plain >= 120 and plain < 400)")
    ours, theirs = opened(tmp_path / "t"), lance.dataset(uri)
    assert ours.to_table(with_row_id=True).equals(theirs.to_table(with_row_id=True))
    for condition in ("plain % 100 = 7", "none is null and flag", "struct.x > 100", "sparse is not null and not flag"):
        assert ours.to_table(filter=condition).equals(theirs.to_table(filter=condition)), condition
    batches = pa.Table.from_batches(ours.to_batches(batch_size=50))
    assert batches.equals(theirs.to_table())


def test_each_file_is_read_once(folder: Path) -> None:
    dataset = opened(folder)
    dataset.io_stats_incremental()
    dataset.to_table(["plain", "text"])
    assert dataset.io_stats_incremental().read_iops == FILES


def test_files_that_are_larger_than_the_manifest_says(
    folder: Path, monkeypatch: pytest.MonkeyPatch, counted: Counted
) -> None:
    """Releases before 12 recorded the bytes of the pages alone: what else there is may be more than is read."""
    monkeypatch.setattr(small_files, "ENDS_TO_SIZE", 0)
    monkeypatch.setattr(small_files, "ENDS_BYTES", 500)
    expected = lance.dataset(str(folder)).to_table(["text", "plain"])
    assert opened(folder).to_table(["text", "plain"]).equals(expected)
    assert counted.known == 0 and counted.missed >= MISSES_MIN


def test_lists_are_read_in_general(tmp_path: Path, counted: Counted) -> None:
    uri = str(tmp_path / "t")
    rows = pa.table({"n": range(1200), "l": pa.array([[i] * (i % 3) for i in range(1200)])})
    lance.write_dataset(rows, uri, max_rows_per_file=40, data_storage_version="legacy")
    ours, theirs = opened(tmp_path / "t"), lance.dataset(uri)
    for _ in range(2):
        assert ours.to_table().equals(theirs.to_table())
    assert counted.known == 0 and counted.missed <= 30  # the second scan does not ask
    assert ours.to_table(["n"]).equals(theirs.to_table(["n"]))
    assert counted.known == 30


@pytest.mark.parametrize("columns", [["plain", "text"], ["flag", "sparse", "struct"]])
def test_damage_is_told_as_in_general(tmp_path: Path, columns: list[str]) -> None:
    for number in range(14):
        rows = rows_of(number).select(columns)
        lance.write_dataset(
            rows, str(tmp_path / "t"), mode="append", data_storage_version="legacy", max_rows_per_group=60
        )
    check_damage(tmp_path / "t", seed=len(columns))
