"""DuckDB, Polars, pandas and Arrow's stream interface over our datasets."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import lance
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pytest

import lance_io
from lance_io.file import LanceFileReader
from lance_io.levels.portable import Portable

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def table(tmp_path: Path) -> lance_io.LanceDataset:
    rows = pa.table(
        {
            "a": pa.array([None if i % 4 == 3 else i for i in range(40)], pa.int64()),
            "s": [f"s{i}" for i in range(40)],
            "n": [{"x": i} for i in range(40)],
        }
    )
    made = lance.write_dataset(rows, tmp_path / "t.lance", max_rows_per_file=15)
    made.delete("s = 's5'")
    return lance_io.dataset(tmp_path / "t.lance")


def test_duckdb(table: lance_io.LanceDataset) -> None:
    rows = table  # noqa: F841  # DuckDB finds it by its name; `table` is a keyword
    assert duckdb.sql("select count(*), sum(n.x), sum(a) from rows").fetchall() == [(39, 775, 565)]
    found = duckdb.sql("select s from rows where a > 30 and s like 's3%' order by a limit 2").fetchall()
    assert found == [("s32",), ("s33",)]
    assert duckdb.sql("select count(*) from rows where a is null").fetchall() == [(10,)]
    reader = table.scanner(["a"], filter=pc.field("a") > 37)  # noqa: F841
    assert duckdb.sql("select * from reader").fetchall() == [(38,)]


def test_polars(table: lance_io.LanceDataset) -> None:
    lazy = pl.scan_pyarrow_dataset(table).filter(pl.col("a") > 30).select("s")
    assert lazy.collect()["s"].to_list() == ["s32", "s33", "s34", "s36", "s37", "s38"]
    assert pl.DataFrame(table).shape == (39, 3)
    assert pl.from_arrow(table.to_table()).shape == (39, 3)


def test_pandas(table: lance_io.LanceDataset) -> None:
    frame = table.to_pandas(["a", "s"], limit=4)
    assert frame["s"].tolist() == ["s0", "s1", "s2", "s3"]
    mapped = table.to_pandas(["a"], limit=4, types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    assert mapped["a"].dtype == pd.Int64Dtype()
    assert table.get_fragments()[1].to_pandas(["s"])["s"].tolist()[0] == "s15"


def test_arrow_streams(table: lance_io.LanceDataset) -> None:
    whole = table.to_table()
    for thing in (table, table.scanner(), table.get_fragments()[0]):
        assert pa.table(thing).schema == whole.schema
    assert pa.RecordBatchReader.from_stream(table.scanner(["s"])).read_all() == whole.select(["s"])


def test_they_are_pyarrow_datasets(table: lance_io.LanceDataset) -> None:
    assert isinstance(table, pyarrow.dataset.Dataset)
    assert isinstance(table.scanner(), pyarrow.dataset.Scanner)
    assert isinstance(table.get_fragments()[0], pyarrow.dataset.Fragment)


def test_pickles_open_the_same_version_without_a_request(table: lance_io.LanceDataset) -> None:
    expected = table.to_table()
    sent = pickle.dumps(table)
    lance.write_dataset(expected, table.uri, mode="append")
    received = pickle.loads(sent)
    assert received._state.location.store.stats.snapshot().requests == 0
    assert (received.version, received.to_table()) == (table.version, expected)
    assert copy.copy(table).to_table() == expected


def sent_elsewhere(thing: Any, folder: Path) -> Any:
    """What another process gets of a thing, made while nothing of its table can be read."""
    sent = pickle.dumps(thing)
    folder.rename(folder.with_suffix(".away"))
    received = pickle.loads(sent)
    folder.with_suffix(".away").rename(folder)
    return received


SCAN: dict[str, Any] = {"columns": ["s"], "filter": pc.field("a") > 20, "limit": 3, "batch_size": 2, "offset": 1}


def test_what_belongs_to_a_dataset_travels_too(table: lance_io.LanceDataset) -> None:
    """With version and options; a scan, and tags of what is the newest version where they arrive."""
    scan = table.scanner(**SCAN)
    expected = scan.to_table()
    received = sent_elsewhere((scan, table.tags, table.branches, table.stats), Path(table.uri))
    lance.write_dataset(table.to_table(), table.uri, mode="append")
    table.tags.create("named")
    again, tags, branches, stats = received
    assert again.to_table() == expected == lance.dataset(table.uri, version=table.version).scanner(**SCAN).to_table()
    assert [one.num_rows for one in again.to_batches()] == [one.num_rows for one in scan.to_batches()]
    assert tags.list() == table.tags.list()
    tags.update("named", 1)
    assert (table.tags.get_version("named"), branches.list()) == (1, {})
    assert stats.dataset_stats() == table.stats.dataset_stats()
    assert copy.copy(scan).to_table() == expected


async def test_asynchronous_twins_travel_too(table: lance_io.LanceDataset) -> None:
    session = lance_io.Session(metadata_cache_size_bytes=12_345, io_scheduler=lance_io.IoScheduler(concurrency=3))
    options = {"session": session, "default_scan_options": {"batch_size": 7}}
    here = await lance_io.AsyncDataset.open(table.uri, 1, **options)
    opened = await lance_io.AsyncDataset.open(table.uri, **options)
    things = (here, opened.scanner(**SCAN), opened.get_fragments()[1], lance_io.AsyncDataset.of(table))
    there, scan, fragment, shared = sent_elsewhere(things, Path(table.uri))
    assert there.version == 1
    assert pickle.dumps(there.session()) == pickle.dumps(session)
    assert [len(one) async for one in there.to_batches()] == [len(one) async for one in here.to_batches()]
    assert await scan.to_table() == table.to_table(**SCAN)
    assert await fragment.to_table() == table.get_fragments()[1].to_table()
    await shared.aclose()  # shares nothing that it could end
    assert await shared.take([3]) == await copy.copy(here).take([3]) == table.take([3])
    await there.aclose()
    with pytest.raises(RuntimeError, match="the dataset was closed"):
        await there.take([3])


def test_a_table_in_memory_stays_here() -> None:
    """Its bytes are this process's; what was pickled opened a place with nothing in it."""
    made = lance_io.write_dataset(pa.table({"a": [1]}), "memory://")
    for thing in (made, made.tags, made.scanner()):
        with pytest.raises(ValueError, match="write it to a folder"):
            pickle.dumps(thing)


NESTED = pa.table(
    {
        "n": pa.array([{"x": i, "y": {"z": i}} if i % 5 else None for i in range(100)]),
        "l": pa.array([[{"z": i}] * (i % 3) for i in range(100)]),
        "v": pa.array([[i, i] if i % 4 else None for i in range(100)], pa.list_(pa.float32(), 2)),
    }
)
TENSORS = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float32(), [2]), NESTED["v"].combine_chunks())


def require_readable(make: Callable[[], pa.Table | pa.RecordBatchReader]) -> None:
    """DuckDB and Polars find the rows of NESTED, with tensors."""
    given = make()  # noqa: F841  # DuckDB finds it by its name
    found = duckdb.sql("select sum(n.y.z), sum(l[1].z), count(v) from given").fetchall()
    assert found == [(4000, 3267, 75)]
    frame = pl.from_arrow(make())
    assert [frame[name].to_list() for name in "vt"] == [NESTED["v"].to_pylist()] * 2


@pytest.mark.parametrize("rows_per_file", [100, 9])
def test_engines_read_nested_columns(tmp_path: Path, rows_per_file: int) -> None:
    """They misread some slices of nested columns, and most batches are slices of what a page or small files held."""
    rows = NESTED.append_column("t", TENSORS)
    ours = lance_io.write_dataset(rows, tmp_path / "t", max_rows_per_file=rows_per_file)
    sliced = ours.scanner(batch_size=7)
    assert ours.to_table() == sliced.to_reader().read_all() == rows
    schema = ours.to_table().schema
    require_readable(ours.to_table)
    require_readable(sliced.to_reader)
    require_readable(lambda: pa.Table.from_batches(sliced.to_batches(), schema=schema))
    require_readable(lambda: ours.take(range(100)))
    if rows_per_file == 100:
        [fragment] = ours.get_fragments()
        reader = LanceFileReader(f"{ours.uri}/data/{fragment.metadata.files[0].path}")
        require_readable(lambda: reader.read_all(batch_size=7).to_batches())
        require_readable(lambda: reader.take_rows(list(range(100)), batch_size=7).to_table())


def test_only_slices_that_are_misread_are_copied() -> None:
    usual = {
        "i": pa.array(range(100)),
        "s": pa.array([str(i) for i in range(100)]),
        "l": NESTED["l"].combine_chunks(),
        "n": pa.array([{"x": i} for i in range(100)]),
        "v": pa.array([[i, i] for i in range(100)], pa.list_(pa.float32(), 2)),
    }
    batch = pa.RecordBatch.from_pydict(usual).slice(3, 9)
    assert Portable(batch.schema)(batch) is batch
    mixed = pa.RecordBatch.from_pydict({**usual, "t": TENSORS}).replace_schema_metadata({"k": "v"})
    whole, portable = mixed.slice(0), Portable(mixed.schema)
    assert portable(whole) is whole
    given = portable(mixed.slice(3, 9))
    assert given.equals(mixed.slice(3, 9), check_metadata=True)
    copies = [name for name in given.schema.names if _addresses(given[name]) != _addresses(mixed[name])]
    assert copies == ["t"]


def _addresses(array: pa.Array) -> list[int | None]:
    storage = array.storage if isinstance(array, pa.ExtensionArray) else array
    return [buffer and buffer.address for buffer in storage.buffers()]
