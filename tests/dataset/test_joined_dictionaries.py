"""Rows of fragments whose dictionaries do not fit into one, or that pyarrow would misread when it joins them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io import AsyncDataset, sampler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

ROWS = 240
STEP = 60  # rows of a fragment
KINDS = ["text", "half", "struct", "list", "map", "list of structs", "vector of structs"]


def value(kind: str, number: int) -> Any:
    one = None if number % 7 == 3 else float(number) / 2 if kind == "half" else f"v{number:04}"
    match kind:
        case "struct":
            return {"m": one, "z": number}
        case "list":
            return [one]
        case "map":
            return [("k", one)]
        case "list of structs":
            return [{"m": one}]
        case "vector of structs":
            return [{"m": one}, {"m": one}]
        case _:
            return one


def coded(kind: str, ids: Iterable[int], index: pa.DataType) -> pa.Array:
    """A column over a dictionary of its own."""
    ids = list(ids)
    plain = [value("half" if kind == "half" else "text", number) for number in ids]
    names = [one for one in dict.fromkeys(plain) if one is not None]
    values = pa.array(np.array(names, np.float16)) if kind == "half" else pa.array(names, pa.string())
    codes = pa.array([None if one is None else names.index(one) for one in plain], index)
    column, ends = pa.DictionaryArray.from_arrays(codes, values), pa.array(range(len(ids) + 1), pa.int32())
    match kind:
        case "struct":
            return pa.StructArray.from_arrays([column, pa.array(ids)], ["m", "z"])
        case "list":
            return pa.ListArray.from_arrays(ends, column)
        case "map":
            return pa.MapArray.from_arrays(ends, pa.array(["k"] * len(ids)), column)
        case "list of structs":
            return pa.ListArray.from_arrays(ends, pa.StructArray.from_arrays([column], ["m"]))
        case "vector of structs":
            twice = column.take(pa.array(np.repeat(np.arange(len(ids)), 2)))
            return pa.FixedSizeListArray.from_arrays(pa.StructArray.from_arrays([twice], ["m"]), 2)
        case _:
            return column


def make(uri: str, kind: str, index: pa.DataType) -> None:
    for start in range(0, ROWS, STEP):
        ids = range(start, start + STEP)
        keys = pa.array([number * 37 % ROWS for number in ids])
        rows = pa.table({"id": pa.array(ids), "key": keys, "d": coded(kind, ids, index)})
        lance_io.write_dataset(rows, uri, mode="append" if start else "create")


def values(rows: pa.Table | Iterable[pa.RecordBatch]) -> list[Any]:
    batches = rows.to_batches() if isinstance(rows, pa.Table) else rows
    return [one for batch in batches for one in batch["d"].to_pylist()]


@pytest.mark.parametrize("index", [pa.int8(), pa.int16()], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_all_fragments_together(tmp_path: Path, kind: str, index: pa.DataType) -> None:
    uri = str(tmp_path / "t")
    make(uri, kind, index)
    ds = lance_io.dataset(uri)
    right = [value(kind, number) for number in range(ROWS)]
    sorted_right = [right[number] for number in sorted(range(ROWS), key=lambda number: number * 37 % ROWS)]
    backwards = list(range(ROWS - 1, -1, -1))
    assert values(ds.to_table()) == right
    assert values(ds.scanner(order_by=["key"]).to_table()) == sorted_right
    assert values(ds.scanner(order_by=["key"], limit=200, offset=10).to_table()) == sorted_right[10:210]
    assert values(ds.to_table(filter="id >= 0", late_materialization=["d"])) == right
    assert values(ds.to_table(filter="id >= 0 and key >= 0")) == right
    assert values(ds.take(backwards)) == right[::-1]
    assert values(ds.take([*backwards, *backwards, 5])) == [*right[::-1], *right[::-1], right[5]]
    batches = list(ds.to_batches(batch_size=100, strict_batch_size=True))
    assert values(batches) == right
    assert max(map(len, batches)) <= 100
    assert values(sampler.ShardedBatchSampler(0, 1)(ds, columns=["d"], filter="id >= 0", batch_size=150)) == right

    async def run() -> None:
        async with AsyncDataset.open(uri) as table:
            assert values(await table.take(backwards)) == right[::-1]
            assert values(await table.scanner(order_by=["key"]).to_table()) == sorted_right
            assert values(await table.to_table(filter="id >= 0", late_materialization=["d"])) == right

    asyncio.run(run())


def test_ordered_dictionaries_are_those_of_pylance(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    make(uri, "text", pa.int32())
    found = [library.dataset(uri).scanner(order_by=["key"]).to_table() for library in (lance, lance_io)]
    assert found[1].equals(found[0])


# -- halves: pyarrow joins dictionaries of float16 as if their bits were numbers to be converted -----------------------


def source(ids: range) -> pa.Table:
    """Rows in two batches with a dictionary each, whose values are those of other ids."""
    half = len(ids) // 2
    tables = [
        pa.table({"id": pa.array(part), "d": coded("half", (number + 1000 for number in part), pa.int16())})
        for part in (ids[:half], ids[half:])
    ]
    return pa.concat_tables(tables)


def merge(uri: str) -> None:
    lance_io.dataset(uri).merge_insert("id").when_matched_update_all().execute(source(range(50, 70)))


def merge_stream(uri: str) -> None:
    rows = source(range(50, 70)).to_reader(max_chunksize=3)
    lance_io.dataset(uri).merge_insert("id").when_matched_update_all().execute(rows)


def replace_values(uri: str) -> None:
    ds = lance_io.dataset(uri)
    changed, fields = [], []
    for fragment in ds.get_fragments()[:2]:
        new, fields = fragment.update_columns(source(range(50, 70)), left_on="id")
        changed.append(new)
    operation = lance_io.LanceOperation.Update(updated_fragments=changed, fields_modified=fields)
    lance_io.LanceDataset.commit(uri, operation, read_version=ds.version)


def compact(uri: str) -> None:
    merge(uri)
    lance_io.dataset(uri).optimize.compact_files()


@pytest.mark.parametrize("change", [merge, merge_stream, replace_values, compact])
def test_changes_of_halves(tmp_path: Path, change: Callable[[str], None]) -> None:
    uri = str(tmp_path / "t")
    make(uri, "half", pa.int16())
    change(uri)
    right = {number: value("half", number + 1000 * (50 <= number < 70)) for number in range(ROWS)}
    for library in (lance, lance_io):
        rows = library.dataset(uri).to_table()
        assert dict(zip(rows["id"].to_pylist(), rows["d"].to_pylist(), strict=True)) == right
