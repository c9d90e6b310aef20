"""`lance_io.polars.scan`: what polars computes from it is what it computes from the rows, and only that is read."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import fsspec
import lance
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

import lance_io
import lance_io.polars
from lance_io.errors import BindError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

NUM_ROWS = 30_000


def rows() -> pa.Table:
    rng = np.random.default_rng(5)
    numbers = rng.random(NUM_ROWS)
    numbers[::97] = np.nan
    return pa.table(
        {
            "a": pa.array([None if i % 11 == 3 else i for i in range(NUM_ROWS)], pa.int64()),
            "f": pa.array(numbers, mask=rng.random(NUM_ROWS) < 0.1),
            "s": [None if i % 7 == 0 else f"s{i % 1000:04d}" for i in range(NUM_ROWS)],
            "odd name": pa.array(range(NUM_ROWS), pa.int16()),
            "n": pa.array([{"x": i if i % 5 else None, "l": [i] * (i % 3)} for i in range(NUM_ROWS)]),
            "v": pa.FixedSizeListArray.from_arrays(pa.array(rng.random(64 * NUM_ROWS, dtype=np.float32)), 64),
            "d": pa.array([f"k{i % 40}" for i in range(NUM_ROWS)]).dictionary_encode(),
            "t": pa.array(range(NUM_ROWS), pa.timestamp("us", "UTC")),
        }
    )


@pytest.fixture(scope="module", params=["0.1", "2.0", "2.2"])
def uri(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("tables") / "t")
    given = rows() if request.param != "0.1" else rows().drop(["n"])
    table = lance.write_dataset(given, path, max_rows_per_file=20_000, data_storage_version=request.param)
    table.delete("a % 10 = 7")
    return path


C = pl.col
QUERIES: dict[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "all": lambda frame: frame,
    "columns": lambda frame: frame.select("s", "a", "odd name"),
    "head": lambda frame: frame.head(7),
    "slice": lambda frame: frame.slice(17_000, 3000),
    "tail": lambda frame: frame.tail(3),
    "count": lambda frame: frame.select(pl.len()),
    "greater": lambda frame: frame.filter(C("a") > 29_000),
    "nan is greatest": lambda frame: frame.filter(C("f") > 0.999).select("a"),
    "null": lambda frame: frame.filter(C("s").is_null(), C("a") < 300),
    "text": lambda frame: frame.filter(C("s").str.ends_with("77")).select("v", "s"),
    "odd name": lambda frame: frame.filter(C("odd name") == 77),
    "category": lambda frame: frame.filter(C("d") == "k7").select("a", "d").head(20),
    "time": lambda frame: frame.filter(C("t").dt.microsecond() == 5).select("t"),
    "constant": lambda frame: frame.filter(pl.lit(False)).select("a"),
    "filter and head": lambda frame: frame.filter(C("a") > 20_000).head(5).select("s"),
    "head and filter": lambda frame: frame.head(20_000).filter(C("a") > 19_990).select("s"),
    "of all rows": lambda frame: frame.filter(C("a") > C("a").max() - 9).select("a"),
    "group": lambda frame: frame.group_by("d").agg(C("a").sum()).sort("d"),
    "join": lambda frame: frame.select("a", "s").join(
        frame.filter(C("a") < 50).select("a"), on="a", maintain_order="left"
    ),
    "computed": lambda frame: frame.select(C("a") * 2, C("s").str.len_bytes()).head(9),
}


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_queries_give_what_they_give_over_the_rows(uri: str, engine: Any) -> None:
    table = pl.from_arrow(lance.dataset(uri).to_table())
    assert isinstance(table, pl.DataFrame)
    scanned = lance_io.polars.scan(uri)
    assert scanned.collect_schema() == table.schema
    for name, query in QUERIES.items():
        found, expected = query(scanned).collect(engine=engine), query(table.lazy()).collect(engine=engine)
        try:
            assert_frame_equal(found, expected)
        except AssertionError as error:
            raise AssertionError(name) from error


def test_members_of_structs_are_computed_by_polars(tmp_path: Any) -> None:
    lance_io.write_dataset(rows(), tmp_path / "t")
    query = lambda frame: frame.filter(C("n").struct.field("x") % 1000 == 1).select("a", "n")  # noqa: E731
    expected = query(pl.from_arrow(rows()).lazy()).collect()
    assert_frame_equal(query(lance_io.polars.scan(tmp_path / "t")).collect(), expected)


@pytest.mark.parametrize("is_waited_for", [False, True])
def test_only_what_is_needed_is_read(uri: str, is_waited_for: bool) -> None:
    table = lance_io.dataset(uri, filesystem=fsspec.filesystem("file") if is_waited_for else None)

    def num_read(query: Callable[[], object]) -> int:
        query()
        query()  # what is known of the files stays, in those of 2.0 with the second take
        gc.collect()
        table.io_stats_incremental()
        query()
        gc.collect()
        return int(table.io_stats_incremental().read_bytes)

    def of(query: pl.LazyFrame) -> int:
        return num_read(lambda: query.collect(engine="streaming"))

    frame = lance_io.polars.scan(table)
    assert of(frame.head(2)) <= num_read(lambda: table.to_table(limit=2))
    assert of(frame.select("a").head(2)) <= num_read(lambda: table.to_table(columns=["a"], limit=2))
    two_columns = num_read(lambda: table.to_table(columns=["a", "s"]))
    assert of(frame.select("a", "s")) <= two_columns + 8 * 65_536  # gaps that are read over
    whole = of(frame)
    if not is_waited_for:
        assert of(frame.filter(C("a") == 5)) < 0.5 * whole  # `v` for one row
    assert of(frame.head(2)) < 0.1 * whole


def test_the_filter_of_the_scan_comes_first(uri: str) -> None:
    """Rows that it drops are not even looked at by the query's condition."""
    frame = lance_io.polars.scan(uri, filter="a > 100 and a < 120")
    expected = lance.dataset(uri).to_table(filter="a > 100 and a < 120")
    assert_frame_equal(frame.collect(), pl.from_arrow(expected))
    narrow = frame.filter(C("a").cast(pl.UInt8).is_in([101, 105])).select("s")
    assert narrow.collect().height == 2
    assert frame.head(3).collect()["a"].to_list() == expected["a"].to_pylist()[:3]


def test_versions_and_options(tmp_path: Any) -> None:
    """A frame stays with its version, whoever collects it."""
    uri = str(tmp_path / "t")
    lance_io.write_dataset(pa.table({"a": [1, 2]}), uri)
    table = lance_io.write_dataset(pa.table({"a": [3]}), uri, mode="append")
    table.tags.create("first", 1)
    frame = lance_io.polars.scan(uri, filesystem=fsspec.filesystem("file"))
    lance_io.write_dataset(pa.table({"a": [4]}), uri, mode="append")
    assert frame.collect()["a"].to_list() == [1, 2, 3]
    assert lance_io.polars.scan(uri, "first").collect()["a"].to_list() == [1, 2]
    assert lance_io.polars.scan(table, 1).collect()["a"].to_list() == [1, 2]
    assert lance_io.polars.scan(uri, version=3).collect()["a"].to_list() == [1, 2, 3, 4]
    memory = lance_io.write_dataset(pa.table({"a": [7, 8]}), "memory://")
    assert lance_io.polars.scan(memory).filter(C("a") > 7).collect()["a"].to_list() == [8]


def test_json_and_other_types_that_are_shown_as_something_else(tmp_path: Any) -> None:
    documents = pa.array(['{"a": 1}', None, "[2]"], pa.json_())
    table = lance_io.write_dataset(pa.table({"j": documents, "a": [1, 2, 3]}), tmp_path / "t")
    frame = lance_io.polars.scan(table)
    text = frame.filter(C("j").ext.storage().str.contains("2")).select("a").collect()
    assert text["a"].to_list() == [3]


def test_errors_come_at_once_and_say_what_is_wrong(tmp_path: Any) -> None:
    uri = str(tmp_path / "t")
    wide = pa.array([1, 2], pa.decimal256(50, 2))
    lance_io.write_dataset(pa.table({"a": [1, 2], "wide": wide}), uri)
    with pytest.raises(UnsupportedError, match='polars has no type for column "wide", decimal256'):
        lance_io.polars.scan(uri)
    lance_io.dataset(uri).drop_columns(["wide"])
    with pytest.raises(BindError):
        lance_io.polars.scan(uri, filter="nope = 1")
    with pytest.raises(FileNotFoundError):
        lance_io.polars.scan(tmp_path / "none")


def test_a_missing_polars_is_named(tmp_path: Any) -> None:
    lance_io.write_dataset(pa.table({"a": [1, 2]}), tmp_path / "t")
    code = (
        "import sys; sys.modules['polars'] = None\n"
        "import lance_io.polars\n"
        f"try:\n    lance_io.polars.scan({str(tmp_path / 't')!r})\n"
        "except ModuleNotFoundError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "lance_io[polars]" in done.stdout
