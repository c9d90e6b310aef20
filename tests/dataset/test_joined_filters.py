"""Filters over tables of many small fragments, whose batches are filtered together: rows, counts, how often, bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.filters.compiled import Predicate
from lance_io.levels.arrays import SMALL_BYTES, memory_bytes
from lance_io.reads.scan import stream
from tests.seeds import seed_of

if TYPE_CHECKING:
    from pathlib import Path

FRAGMENTS = 40
FILTERS = (
    "n < 0",
    "n = 17",
    "n % 100 = 7",
    "n >= 0",
    "s = '3' or l is null",
    "st.x > 50 and _rowid % 2 = 0",
    "_rowaddr > 42949672960",
    "10 / (n + 1) > 2",
    "n not in (1, 2, 3)",
)


@pytest.fixture(scope="module", params=["2.0", "2.2", "stable row ids"])
def uri(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Fragments of 1 to 300 rows, one of many, with deleted rows here and there and one column added later."""
    dice = np.random.default_rng(seed_of(11))
    made = str(tmp_path_factory.mktemp("joined") / "t.lance")
    options: dict[str, Any] = (
        {"enable_stable_row_ids": True}
        if request.param == "stable row ids"
        else {"data_storage_version": request.param}
    )
    first = 0
    for number in range(FRAGMENTS):
        num_rows = 10_000 if number == 20 else int(dice.integers(1, 300))
        values = range(first, first + num_rows)
        lists = [None if one % 9 == 0 else [one] * (one % 3) for one in values]
        columns = {
            "n": values,
            "s": [str(one % 5) for one in values],
            "l": pa.array(lists, pa.list_(pa.int32())),
            "st": pa.array([{"x": one % 100} for one in values], pa.struct({"x": pa.int64()})),
        }
        written = lance.write_dataset(pa.table(columns), made, mode="append" if first else "create", **options)
        first += num_rows
    written.delete("n % 7 = 3 and n % 1000 < 500")
    return made


@pytest.mark.parametrize("predicate", FILTERS)
def test_rows_and_counts_are_those_of_pylance(uri: str, predicate: str) -> None:
    ours, theirs = lance_io.dataset(uri), lance.dataset(uri)
    for options in (
        {},
        {"columns": ["s"], "with_row_id": True},
        {"columns": ["l", "_rowaddr"], "late_materialization": True},
        {"columns": [], "with_row_address": True},
        {"offset": 100},
        {"limit": 70, "offset": 5},
    ):
        expected = theirs.to_table(filter=predicate, **options)
        assert ours.to_table(filter=predicate, **options).equals(expected), options
        batches = list(ours.to_batches(filter=predicate, **options))
        assert pa.Table.from_batches(batches, expected.schema).equals(expected), options
    assert ours.count_rows(predicate) == theirs.count_rows(predicate)


async def test_they_are_the_same_on_the_loop(uri: str) -> None:
    async with lance_io.AsyncDataset.open(uri) as dataset:
        for predicate in FILTERS:
            found = await dataset.to_table(filter=predicate, timeout=600)  # which no scan in a thread has
            assert found.equals(lance.dataset(uri).to_table(filter=predicate))


def test_small_batches_are_filtered_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    mask = Predicate.mask

    def noted(self: Predicate, batch: pa.RecordBatch) -> pa.BooleanArray:
        seen.append(batch.num_rows)
        return mask(self, batch)

    monkeypatch.setattr(Predicate, "mask", noted)
    text = ["x" * 10_000] * 100
    lance.write_dataset(pa.table({"n": range(5_000)}), tmp_path / "numbers", max_rows_per_file=100)
    lance.write_dataset(pa.table({"n": range(2_000), "s": text * 20}), tmp_path / "texts", max_rows_per_file=100)
    numbers, texts = (lance_io.dataset(tmp_path / name) for name in ("numbers", "texts"))
    assert numbers.count_rows("n % 2 = 0") == 2_500
    assert seen == [5_000]
    seen.clear()
    assert numbers.to_table(filter="n % 2 = 0", limit=10).num_rows == 10
    assert seen == [100]  # no more than has to be is looked at
    seen.clear()
    assert texts.to_table(filter="n % 2 = 0 and s > 'a'").num_rows == 1_000
    together = -(-stream.JOINED_BYTES_MAX // 1_000_800) * 100  # rows with as many bytes
    assert max(seen) == together < sum(seen) == 2_000


def test_dictionaries_are_not_joined(tmp_path: Path) -> None:
    """Three hundred values fit in no dictionary with indices of eight bits, a hundred of one fragment do."""
    kind = pa.dictionary(pa.int8(), pa.string())
    for first in range(0, 300, 100):
        texts = pa.array([f"s{number}" for number in range(first, first + 100)]).cast(kind)
        nested = pa.StructArray.from_arrays([texts], ["member"])
        rows = pa.table({"n": range(first, first + 100), "s": texts, "st": nested})
        lance.write_dataset(rows, tmp_path / "t", mode="append" if first else "create")
    found = lance_io.dataset(tmp_path / "t").to_table(filter="n != 5 and s != 's7'")  # which pylance cannot give
    left = [number for number in range(300) if number not in (5, 7)]
    assert found["s"].type == found["st"].type.field(0).type == kind
    assert found.to_pylist() == [{"n": one, "s": f"s{one}", "st": {"member": f"s{one}"}} for one in left]


@pytest.mark.parametrize(
    "array",
    [
        pa.array(range(100_000)),
        pa.array([None, *range(30_000)], pa.int16()),
        pa.array([True, False, None] * 50_000),
        pa.array(["some text"] * 10_000),
        pa.array([[1.5] * 3] * 10_000, pa.list_(pa.float32(), 3)),
        pa.array([1, 2]),
    ],
    ids=lambda array: str(array.type),
)
def test_bytes_of_arrays_are_about_what_arrow_counts(array: pa.Array) -> None:
    for one in (array, array.slice(len(array) // 3), array.slice(1, 1)):
        found = memory_bytes(one)
        assert one.nbytes <= found + 2  # of bits that begin within a byte
        assert found <= max(one.nbytes * 9 // 8 + len(one) // 8 + 2, SMALL_BYTES)
