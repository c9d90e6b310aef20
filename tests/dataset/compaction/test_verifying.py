"""Rows are counted and hashed on their way through a compaction, and a fault on that way is noticed."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.encodings.v2_1.write import encode_pages
from lance_io.errors import OperationError
from lance_io.file.write.accumulate import ColumnQueue
from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.levels.chunks import leaf_chunks
from lance_io.levels.leaf_sums import LeafSums, sum_array, sum_page
from lance_io.levels.shred import shred
from tests.dataset.compaction.test_compacting import rows_of, write_table
from tests.seeds import seed_of

if TYPE_CHECKING:
    from pathlib import Path


def sums_of(column: pa.Array, name: str, cuts: list[int]) -> list[LeafSums]:
    """Of each leaf of a column, whose rows are cut into pages."""
    field = schema_from_arrow(pa.schema([pa.field(name, column.type)])).fields[0]
    found: list[LeafSums] = []
    bounds = [0, *sorted(cuts), len(column)]
    for start, end in pairwise(bounds):
        if start < end:
            parts = [sum_page(shred([chunk])) for chunk in leaf_chunks(field, column.slice(start, end - start))]
            found = [before + more for before, more in zip(found, parts, strict=True)] if found else parts
    return found


def test_sums_do_not_depend_on_pages_and_order() -> None:
    drawn = random.Random(seed_of(3))
    table = rows_of(0, 300).combine_chunks()
    table = table.append_column(
        "ls", pa.array([[{"p": n, "q": None}] * (n % 3) if n % 4 else None for n in range(300)])
    )
    for name in table.column_names:
        column = table[name].combine_chunks()
        column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        whole = sums_of(column, name, [])
        for _ in range(5):
            assert sums_of(column, name, drawn.sample(range(300), 6)) == whole, name
        order = pa.array(drawn.sample(range(300), 300))
        assert sums_of(column.take(order), name, [100]) == whole, name
        assert sum_array(column.take(order)) == sum_array(column)
        fewer = column.slice(0, 299)
        assert sums_of(fewer, name, []) != whole
        other = pa.concat_arrays([column.slice(0, 299), column.slice(1, 1)])
        if column.slice(299, 1).to_pylist() != column.slice(1, 1).to_pylist():
            assert sums_of(other, name, []) != whole, name
            assert sum_array(other) != sum_array(column), name


@pytest.mark.parametrize("mode", ["reencode", "force_binary_copy"])
def test_reading_back_finds_nothing_wrong(tmp_path: Path, mode: Any) -> None:
    path = tmp_path / "t.lance"
    write_table(path, [20, 30, 40], enable_stable_row_ids=True)
    if mode == "reencode":
        lance.dataset(str(path)).delete("a in (3, 44)")
    before = lance.dataset(str(path)).to_table(columns=["a", "s", "l"])
    metrics = lance_io.dataset(str(path)).optimize.compact_files(compaction_mode=mode, verify="read")
    assert metrics.fragments_added == 1
    assert lance.dataset(str(path)).to_table(columns=["a", "s", "l"]).equals(before)


def test_a_row_that_is_lost_on_the_way_into_a_page_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.lance"
    write_table(path, [20, 30])
    add = ColumnQueue.add

    def change(self: ColumnQueue, chunk: Any, **how: Any) -> Any:
        """The last row is written twice, and the one before it not at all."""
        yield from add(self, chunk.slice(0, chunk.num_rows - 2), **how)
        for _ in range(2):
            yield from add(self, chunk.slice(chunk.num_rows - 1, 1), **how)

    monkeypatch.setattr(ColumnQueue, "add", change)
    files = sorted((path / "data").iterdir())
    with pytest.raises(OperationError, match="add up to"):
        lance_io.dataset(str(path)).optimize.compact_files()
    assert sorted((path / "data").iterdir()) == files
    assert lance.dataset(str(path)).version == 2


def test_a_fault_in_a_page_is_noticed_when_it_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.lance"
    write_table(path, [20, 30])

    def encode_wrong(leaf: Any, page: Any, *how: Any) -> Any:
        if pa.types.is_int64(page.values.type):
            values = pa.concat_arrays([page.values.slice(0, 1), page.values.slice(0, len(page.values) - 1)])
            page = replace(page, values=values)
        return encode_pages(leaf, page, *how)

    files = sorted((path / "data").iterdir())
    monkeypatch.setattr("lance_io.file.write.leaf_queues.encode_pages", encode_wrong)
    with pytest.raises(OperationError, match=r"column 'a'.*Nothing was committed"):
        lance_io.dataset(str(path)).optimize.compact_files(verify="read")
    assert sorted((path / "data").iterdir()) == files
    assert lance.dataset(str(path)).version == 2
