"""Filtered scans and counts against `pyarrow.Table.filter`: every share of rows, with deleted rows among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_io
from lance_io.filters import compile_filter
from lance_io.levels.arrays import true_positions

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 9000


@pytest.fixture(scope="module", params=["whole", "one run", "few runs", "many runs"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> lance.LanceDataset:
    rng = np.random.default_rng(5)
    numbers = rng.permutation(ROWS)
    columns = pa.table(
        {
            "n": numbers,
            "some": pa.array(numbers % 100, mask=numbers % 7 == 0),
            "s": [f"{one:x}" * (one % 4) for one in numbers.tolist()],
            "l": [list(range(one % 3)) for one in numbers.tolist()],
        }
    )
    uri = str(tmp_path_factory.mktemp("filtered") / "table.lance")
    written = lance.write_dataset(columns, uri, max_rows_per_file=ROWS * 2 // 3)
    deleted = {"one run": "_rowaddr < 2000", "few runs": "n in (3, 4000)", "many runs": "n % 5 = 3"}
    if request.param in deleted:
        written.delete(deleted[request.param])
    return written


FILTERS = {
    "none": pc.field("n") < 0,
    "few": pc.field("n") < ROWS // 200,
    "half": pc.field("n") < ROWS // 2,
    "dense": pc.field("n") > ROWS // 10,
    "all": pc.field("n") >= 0,
    "nulls": (pc.field("some") > 50) | (pc.field("s") == ""),
    "computed": (pc.field("n") * 2 + 1) < ROWS,
}


@pytest.mark.parametrize("name", FILTERS)
def test_rows_and_counts(table: lance.LanceDataset, name: str) -> None:
    chosen, ours = FILTERS[name], lance_io.dataset(table.uri)
    expected = table.to_table(with_row_id=True).filter(chosen)
    assert ours.count_rows(chosen) == expected.num_rows
    for late in (None, True, False):
        found = ours.to_table(filter=chosen, with_row_id=True, late_materialization=late)
        assert found.combine_chunks() == expected.combine_chunks()
    assert ours.to_table(["s"], chosen, limit=50, offset=30) == expected.select(["s"]).slice(30, 50)


async def test_the_asynchronous_count(table: lance.LanceDataset) -> None:
    ours = await lance_io.AsyncDataset.open(table.uri)
    for chosen in FILTERS.values():
        assert await ours.count_rows(chosen) == table.to_table().filter(chosen).num_rows


def test_a_deleted_row_cannot_fail_the_filter(tmp_path: Path) -> None:
    table = lance.write_dataset(pa.table({"n": [4, 0, 2]}), str(tmp_path / "zero.lance"))
    table.delete("n = 0")
    chosen = pc.scalar(8) / pc.field("n") == 4
    assert lance_io.dataset(table.uri).to_table(filter=chosen).column(0).to_pylist() == [2]
    schema = table.schema
    assert not compile_filter(chosen, schema).cannot_fail
    assert compile_filter(pc.field("n").isin([1, 2]) & ~pc.field("n").is_null(), schema).cannot_fail


def test_positions_of_any_slice() -> None:
    flags = np.random.default_rng(1).random(100) < 0.3
    mask = pa.array(flags)
    for start in range(0, 20):
        for end in (start, start + 1, 63, 100):
            assert true_positions(mask.slice(start, end - start)).tolist() == np.flatnonzero(flags[start:end]).tolist()


def test_limits_end_where_they_should_in_small_fragments(tmp_path: Path) -> None:
    """Each fragment gives three rows or none, so limits end in the middle of one, and at its end."""
    rows = pa.table({"n": range(60), "s": [f"{n}" for n in range(60)]})
    ours = lance_io.write_dataset(rows, tmp_path / "t", max_rows_per_file=6)
    passing = [n for n in range(60) if n % 2 == 0 and n // 6 % 3 != 1]
    for limit in range(len(passing) + 2):
        for offset in (0, 1, 4):
            found = ours.to_table(["n"], "n % 2 = 0 and (n / 6) % 3 != 1", limit=limit, offset=offset)
            assert found["n"].to_pylist() == passing[offset : offset + limit]


@pytest.mark.parametrize("batch_size", [None, 20_000, 65_536])
async def test_large_and_small_pieces_in_turns(tmp_path: Path, batch_size: int | None) -> None:
    """Large ones are filtered by threads, several at a time, small ones at once; the order stays."""
    sizes = [40_000, 100, 3_000, 70_000, 20_000, 1, 17_000]
    numbers = np.random.default_rng(7).integers(0, 1000, sum(sizes))
    rows = pa.table({"n": numbers, "at": np.arange(len(numbers))})
    uri = str(tmp_path / "pieces.lance")
    for end, size in zip(np.cumsum(sizes).tolist(), sizes, strict=True):
        lance.write_dataset(rows[end - size : end], uri, mode="append" if end > size else "create")
    ours, twin = lance_io.dataset(uri), await lance_io.AsyncDataset.open(uri)
    options = {} if batch_size is None else {"batch_size": batch_size}
    for chosen in ("n < 300", "n >= 5"):
        expected = rows.filter(pc.field("n") < 300 if chosen == "n < 300" else pc.field("n") >= 5)
        assert ours.to_table(filter=chosen, **options) == expected
        assert await twin.to_table(filter=chosen, **options) == expected
        assert ours.count_rows(chosen) == await twin.count_rows(chosen) == expected.num_rows
    await twin.aclose()
