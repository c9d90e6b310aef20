"""Dictionary columns of every index type in every change, and more values than narrow indices tell apart.

Rows of several pages are read into one array with one dictionary: a file with too many values could not be read, by
either library. Files end before.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import lance
import lance.file
import pyarrow as pa
import pytest

import lance_io
from lance_io import AsyncDataset
from lance_io.errors import LanceError, OperationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

INDICES = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
VERSIONS = ["2.0", "2.1", "2.2"]


def coded(values: list[Any], index: pa.DataType = pa.int8(), dtype: pa.DataType = pa.string()) -> pa.Array:  # noqa: B008
    """A dictionary of each value once, in the order in which they come."""
    distinct = [value for value in dict.fromkeys(values) if value is not None]
    codes = [None if value is None else distinct.index(value) for value in values]
    return pa.DictionaryArray.from_arrays(pa.array(codes, index), pa.array(distinct, dtype))


def table(ids: range, letter: str, kind: str = "top", index: pa.DataType = pa.int8()) -> pa.Table:  # noqa: B008
    column = coded([None if i % 50 == 7 else f"{letter}{i}" for i in ids], index)
    ends = pa.array(range(len(ids) + 1), pa.int32())
    match kind:
        case "list":
            column = pa.ListArray.from_arrays(ends, column)
        case "struct":
            column = pa.StructArray.from_arrays([column, pa.array(ids, pa.int64())], ["m", "n"])
        case "map":
            column = pa.MapArray.from_arrays(ends, pa.array(["k"] * len(ids)), column)
    return pa.table({"id": pa.array(ids, pa.int64()), "x": column, "y": pa.array(ids, pa.int64())})


def content(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda row: row["id"])


# -- changes beside pylance's -----------------------------------------------------------------------------------------


def upsert(dataset: Any, rows: pa.Table) -> None:
    dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)


def patch(dataset: Any, rows: pa.Table) -> None:
    dataset.merge_insert("id").when_matched_update_all().execute(rows.select(["id", "x"]))


def by_key(dataset: Any, rows: pa.Table) -> None:
    dataset.merge_insert("x").when_not_matched_insert_all().execute(rows)


def join(dataset: Any, rows: pa.Table) -> None:
    dataset.merge(rows.select(["id", "x"]).rename_columns(["id", "x2"]), "id")


def replace(dataset: Any, rows: pa.Table) -> None:
    library = lance if isinstance(dataset, lance.LanceDataset) else lance_io
    changed, fields = dataset.get_fragments()[0].update_columns(rows.select(["id", "x"]), left_on="id")
    operation = library.LanceOperation.Update(updated_fragments=[changed], fields_modified=fields)
    library.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)


def set_text(dataset: Any, _: pa.Table) -> None:
    dataset.update({"x": "'new'"}, where="id = 1")


def set_null(dataset: Any, _: pa.Table) -> None:
    dataset.update({"x": "null"}, where="id = 1")


def add(dataset: Any, _: pa.Table) -> None:
    dataset.add_columns({"x2": "x"})


def remove(dataset: Any, _: pa.Table) -> None:
    dataset.delete("x = 'a1'")


@pytest.mark.parametrize("change", [upsert, patch, by_key, join, replace, set_text, set_null, add, remove])
@pytest.mark.parametrize("index", INDICES, ids=str)
def test_every_index_type(tmp_path: Path, change: Callable[[Any, pa.Table], None], index: pa.DataType) -> None:
    found = []
    for library in (lance, lance_io):
        uri = str(tmp_path / library.__name__)
        lance.write_dataset(table(range(5), "a", index=index), uri)
        change(library.dataset(uri), table(range(3, 8), "b", index=index))
        found.append(lance_io.dataset(uri).to_table())
        assert lance.dataset(uri).to_table().to_pylist() == found[-1].to_pylist()
    assert found[0].schema == found[1].schema
    assert content(found[0]) == content(found[1])


# -- more values than there are indices -------------------------------------------------------------------------------


def write(uri: str, one: pa.Table, two: pa.Table, version: str) -> None:
    lance_io.write_dataset(pa.concat_tables([one, two]), uri, data_storage_version=version)


def compact(uri: str, one: pa.Table, two: pa.Table, version: str) -> None:
    for rows in (one, two):
        lance.write_dataset(rows, uri, mode="append", data_storage_version=version)
    lance_io.dataset(uri).optimize.compact_files()


def copy_pages(uri: str, one: pa.Table, two: pa.Table, version: str) -> None:
    for rows in (one, two):
        lance.write_dataset(rows, uri, mode="append", data_storage_version=version)
    lance_io.dataset(uri).optimize.compact_files(compaction_mode="try_binary_copy")


def update(uri: str, one: pa.Table, two: pa.Table, version: str) -> None:
    for rows in (one, two):
        lance.write_dataset(rows, uri, mode="append", data_storage_version=version)
    lance_io.dataset(uri).update({"y": "id"})


def insert(uri: str, one: pa.Table, two: pa.Table, version: str) -> None:
    lance.write_dataset(one.slice(0, 1), uri, data_storage_version=version)
    upsert(lance_io.dataset(uri), pa.concat_tables([one, two]))


def append_on_a_loop(uri: str, one: pa.Table, two: pa.Table, version: str) -> None:
    async def run() -> None:
        dataset = await AsyncDataset.write(one.slice(0, 0), uri, data_storage_version=version)
        await dataset.insert(pa.concat_tables([one, two]))

    asyncio.run(run())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("make", [write, compact, copy_pages, update, insert, append_on_a_loop])
def test_files_end_before_there_are_too_many_values(tmp_path: Path, make: Callable[..., None], version: str) -> None:
    one = table(range(100), "a")
    for name, two, num_files in (
        ("other values", table(range(100, 200), "b"), 2),
        ("the same values", table(range(100), "a").set_column(0, "id", pa.array(range(100, 200), pa.int64())), 1),
    ):
        uri = str(tmp_path / name)
        make(uri, one, two, version)
        right = content(pa.concat_tables([one, two]))
        right = [{**row, "y": row["id"]} for row in right] if make is update else right
        assert content(lance_io.dataset(uri).to_table()) == right
        assert content(lance.dataset(uri).to_table()) == right
        written = [one.count_rows() for one in lance_io.dataset(uri).get_fragments() if one.count_rows() > 1]
        assert len(written) == num_files


@pytest.mark.parametrize("kind", ["list", "struct", "map"])
def test_dictionaries_inside_of_others(tmp_path: Path, kind: str) -> None:
    uri = str(tmp_path / "t")
    tables = [table(range(100 * i, 100 * i + 100), letter, kind) for i, letter in enumerate("abab")]
    lance_io.write_dataset(pa.concat_tables(tables), uri)
    lance_io.dataset(uri).optimize.compact_files()
    assert content(lance_io.dataset(uri).to_table()) == content(pa.concat_tables(tables))
    assert content(lance.dataset(uri).to_table()) == content(pa.concat_tables(tables))
    assert len(lance_io.dataset(uri).get_fragments()) == 4


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([bytes([i // 256, i % 256]) for i in range(200)], pa.binary()),
        (list(range(200)), pa.int64()),
        ([i / 2 for i in range(200)], pa.float16()),
        ([i / 2 for i in range(200)], pa.float64()),
    ],
    ids=["binary", "int64", "float16", "float64"],
)
def test_values_of_other_types(tmp_path: Path, values: list[Any], dtype: pa.DataType) -> None:
    uri = str(tmp_path / "t")
    pieces = [pa.table({"x": coded(values[start : start + 40], dtype=dtype)}) for start in range(0, 200, 40)]
    lance_io.write_dataset(pa.concat_tables(pieces), uri)
    assert lance_io.dataset(uri).to_table()["x"].to_pylist() == values
    assert [one.count_rows() for one in lance_io.dataset(uri).get_fragments()] == [120, 80]


def test_fragments_without_a_commit(tmp_path: Path) -> None:
    from lance_io.fragment import write_fragments

    uri = str(tmp_path / "t")
    both = pa.concat_tables([table(range(100), "a"), table(range(100, 200), "b")])
    fragments = write_fragments(both, uri)
    assert [one.physical_rows for one in fragments] == [100, 100]


# -- columns of a fragment, which are one file ------------------------------------------------------------------------


def make_rows(uri: str) -> Any:
    column = coded(["x"] * 200)
    rows = {"id": pa.array(range(200), pa.int64()), "x": column, "y": pa.array(range(200), pa.int64())}
    return lance_io.write_dataset(pa.table(rows), uri)


def add_rows(dataset: Any, rows: pa.Table) -> None:
    dataset.add_columns(rows.select(["x"]).rename_columns(["x2"]).to_reader())


def compute(dataset: Any, _: pa.Table) -> None:
    def made(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"x2": coded([str(one) for one in batch["id"].to_pylist()])})

    dataset.add_columns(made, read_columns=["id"], batch_size=100)


@pytest.mark.parametrize("change", [join, replace, add_rows, compute])
def test_columns_with_too_many_values_are_refused(tmp_path: Path, change: Callable[[Any, pa.Table], None]) -> None:
    uri = str(tmp_path / "t")
    dataset = make_rows(uri)
    rows = pa.concat_tables([table(range(100), "a"), table(range(100, 200), "b")])
    files = sorted((tmp_path / "t" / "data").iterdir())
    with pytest.raises(LanceError, match=r"column 'x2?'.* (index type|indices)"):
        change(dataset, rows)
    assert lance_io.dataset(uri).version == 1
    assert sorted((tmp_path / "t" / "data").iterdir()) == files


def test_values_that_take_the_place_of_others(tmp_path: Path) -> None:
    """100 values are there, and half of the rows get others: 150 would be too many, 100 are left."""
    uri = str(tmp_path / "t")
    lance_io.write_dataset(table(range(100), "a"), uri)
    replace(lance_io.dataset(uri), table(range(50, 100), "b"))
    right = content(pa.concat_tables([table(range(50), "a"), table(range(50, 100), "b")]))
    assert content(lance_io.dataset(uri).to_table()) == right
    assert content(lance.dataset(uri).to_table()) == right


def test_the_sentence(tmp_path: Path) -> None:
    with pytest.raises(OperationError, match="column 'x2' has 200 values, more than int8 indices tell apart: use"):
        compute(make_rows(str(tmp_path / "t")), table(range(1), "a"))
