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
from lance_io.encodings.write_pages import encode_pages
from lance_io.errors import OperationError
from lance_io.file.write import array_queues
from lance_io.file.write.accumulate import ColumnQueue
from lance_io.file.write.array_queues import ArrayQueues
from lance_io.file.write.batched_writer import BatchedFileWriter
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


@pytest.mark.parametrize("version", ["2.0", "2.2"])
def test_a_row_that_is_lost_on_the_way_into_a_page_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    path = tmp_path / "t.lance"
    write_table(path, [20, 30], data_storage_version=version)
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


def of_types(first: int, count: int) -> pa.Table:
    """Rows of all that files of the oldest versions have ways of their own to write."""
    numbers = range(first, first + count)
    return rows_of(first, count).append_column(
        "more",
        pa.array(
            [
                {"ls": [{"p": n, "q": [str(n)] * (n % 2)}] * (n % 3), "b": n % 3 == 0, "v": [n % 2 == 0] * 3}
                for n in numbers
            ],
            pa.struct(
                [
                    ("ls", pa.list_(pa.struct([("p", pa.int16()), ("q", pa.large_list(pa.large_string()))]))),
                    ("b", pa.bool_()),
                    ("v", pa.list_(pa.bool_(), 3)),
                ]
            ),
        ),
    )


def members(field: pa.Field) -> int:
    """How many columns a file of version 2.0 has for a field."""
    dtype = field.type
    if pa.types.is_struct(dtype) or pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        return 1 + sum(members(dtype.field(place)) for place in range(dtype.num_fields))
    return 1


@pytest.mark.parametrize("version", ["legacy", "2.0"])
def test_a_wrong_value_in_any_column_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """The values of one column after the other are those of another row when they go into pages."""
    path = tmp_path / "t.lance"
    rows = of_types(1, 36)  # of which the first and the last differ in every column
    lance.write_dataset(rows, str(path), max_rows_per_file=18, data_storage_version=version)
    ds = lance_io.dataset(str(path))
    names, seen = rows.schema.names, []
    if version == "legacy":
        block = BatchedFileWriter._block
        columns = len(names)

        def swap(self: BatchedFileWriter) -> list[pa.Array]:
            found = block(self)
            at = len(seen) - 1
            found[at] = found[at].take(pa.array([0, *range(len(found[at]) - 1)]))
            return found

        monkeypatch.setattr(BatchedFileWriter, "_block", swap)
    else:
        encode = array_queues._values_of
        columns = sum(map(members, rows.schema))
        closed = ArrayQueues.encode_summed

        def choose(self: ArrayQueues, page: Any) -> Any:
            with monkeypatch.context() as patch:
                if page.column == len(seen) - 1:
                    patch.setattr(array_queues, "_values_of", lambda chunks: encode(chunks).slice(1))
                    self._columns[page.column].num_rows += 1
                return closed(self, page)

        monkeypatch.setattr(ArrayQueues, "encode_summed", choose)
    for column in range(columns):
        seen.append(column)
        with pytest.raises(OperationError, match="add up to"):
            ds.optimize.compact_files()
    assert lance.dataset(str(path)).version == 1
    monkeypatch.undo()
    before = ds.to_table()
    assert ds.optimize.compact_files(batch_size=7).fragments_added == 1
    assert lance.dataset(str(path)).to_table().to_pylist() == before.to_pylist()


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
