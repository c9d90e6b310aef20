"""What may be written beside tables and frames: files of other formats, lazy frames, arrays; and what is refused."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

import lance_io
from lance_io.errors import NotFound, OperationError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = pa.table({"a": range(5), "s": ["x", "y", None, "", "z"]})
PLAIN = ROWS.set_column(1, "s", pa.array(["x", "y", "v", "w", "z"]))  # CSV knows no nulls of text


def write_stream(rows: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)


def write_gzip(rows: pa.Table, path: Path) -> None:
    plain = path.with_name("plain.csv")
    pyarrow.csv.write_csv(rows, plain)
    path.write_bytes(gzip.compress(plain.read_bytes()))


FILES: dict[str, tuple[Callable[[pa.Table, Any], Any], pa.Table]] = {
    "rows.csv": (pyarrow.csv.write_csv, PLAIN),
    "ROWS.CSV": (pyarrow.csv.write_csv, PLAIN),
    "rows.csv.gz": (write_gzip, PLAIN),
    "rows.parquet": (pyarrow.parquet.write_table, ROWS),
    "rows.feather": (pyarrow.feather.write_feather, ROWS),
    "rows.arrow": (write_stream, ROWS),
    "rows.ipc": (pyarrow.feather.write_feather, ROWS),
}


@pytest.mark.parametrize("name", FILES)
def test_files_by_their_ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    write, rows = FILES[name]
    write(rows, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    table = lance_io.write_dataset(name, "t")
    table.insert(tmp_path / name)
    assert lance.dataset("t").to_table() == pa.concat_tables([rows, rows])
    assert lance_io.write_dataset(str(tmp_path / name), "u", max_rows_per_file=2).count_rows() == 5


async def test_every_call_takes_them(tmp_path: Path) -> None:
    file, uri = tmp_path / "rows.parquet", str(tmp_path / "t")
    pyarrow.parquet.write_table(ROWS, file)
    table = await lance_io.AsyncDataset.write(file, uri)
    await table.insert(str(file))
    await (
        table.merge_insert("a")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute(pl.LazyFrame({"a": [7], "s": ["new"]}))
    )
    assert lance.dataset(uri).count_rows() == 11
    fragment = lance_io.LanceFragment.create(str(tmp_path / "f"), file)
    assert fragment.physical_rows == 5


def test_a_path_says_by_its_content_what_it_is(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(ROWS, tmp_path / "part-0")
    pyarrow.feather.write_feather(ROWS, tmp_path / "part-1", compression="zstd")
    for name in ("part-0", "part-1"):
        assert lance_io.write_dataset(tmp_path / name, tmp_path / f"{name}.lance").to_table() == ROWS
        with pytest.raises(ValueError, match="which is not opened by guess"):
            lance_io.write_dataset(str(tmp_path / name), tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_schemas_of_files(tmp_path: Path) -> None:
    pyarrow.csv.write_csv(PLAIN, tmp_path / "rows.csv")
    pyarrow.parquet.write_table(ROWS, tmp_path / "rows.parquet")
    wanted = pa.schema([("s", pa.large_string()), ("a", pa.int8())])
    for name, rows in (("rows.csv", PLAIN), ("rows.parquet", ROWS)):
        table = lance_io.write_dataset(tmp_path / name, tmp_path / f"{name}.lance", schema=wanted)
        assert table.to_table() == rows.select(["s", "a"]).cast(wanted)
        with pytest.raises(SchemaError):
            lance_io.write_dataset(tmp_path / name, tmp_path / "t", schema=pa.schema([("a", pa.int8())]))


@pytest.mark.parametrize(
    "text",
    ["", "t", "t.lance", "s3://bucket/rows.csv", "file:///tmp/rows.csv", "https://host/rows.parquet", "a,b\n1,2"],
)
def test_other_texts_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.chdir(tmp_path)
    lance_io.write_dataset(ROWS, "t.lance")
    for write in (lance_io.write_dataset, write_as_fragment):
        with pytest.raises(ValueError, match="expected rows"):
            write(text, tmp_path / "new")
    with pytest.raises(ValueError, match="expected rows"):
        lance_io.dataset("t.lance").merge_insert("a").when_matched_update_all().execute(text)
    assert not (tmp_path / "new").exists()


def write_as_fragment(data: Any, uri: Path) -> Any:
    return lance_io.LanceFragment.create(str(uri), data)


def test_what_is_no_such_file(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and no more")
    lance_io.write_dataset(ROWS, tmp_path / "t.lance")
    with pytest.raises(ValueError, match="whose name and first bytes are of none of these"):
        lance_io.write_dataset(tmp_path / "notes.txt", tmp_path / "new")
    with pytest.raises(ValueError, match=r"found the folder .*t\.lance"):
        lance_io.write_dataset(tmp_path / "t.lance", tmp_path / "new")
    for missing in (tmp_path / "rows.csv", str(tmp_path / "rows.csv")):
        with pytest.raises(NotFound, match="file not found"):
            lance_io.write_dataset(missing, tmp_path / "new")
    with pytest.raises(pa.ArrowInvalid):
        lance_io.write_dataset(tmp_path / "broken.parquet", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_lazy_frames(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "a": range(3000),
            "s": [f"row {number}" for number in range(3000)],
            "l": [[number, None] for number in range(3000)],
            "c": pl.Series(["x", "y", "x"] * 1000, dtype=pl.Categorical),
        }
    )
    lazy = frame.lazy().filter(pl.col("a") % 2 == 0).with_columns(b=pl.col("a") * 2)
    found = lance_io.write_dataset(lazy, tmp_path / "t").to_table()
    expected = lance.write_dataset(lazy.collect(), tmp_path / "u").to_table()
    assert found.schema == expected.schema
    assert found.to_pylist() == expected.to_pylist()
    assert lance_io.write_dataset(lazy.filter(pl.col("a") < 0), tmp_path / "v").count_rows() == 0


@pytest.mark.parametrize("dtype", ["f4", ">f8", "f2", "i8", "u1", "?"])
def test_arrays(tmp_path: Path, dtype: str) -> None:
    values = np.arange(12).reshape(4, 3).astype(dtype)
    found = lance_io.write_dataset(values, tmp_path / "t").to_table()["vector"]
    assert found.type == pa.list_(pa.from_numpy_dtype(values.dtype.newbyteorder("=")), 3)
    assert found.to_pylist() == values.tolist()
    for number, view in enumerate((values[::2, 1:], np.asfortranarray(values), values[:0])):
        assert lance_io.write_dataset(view, tmp_path / f"{number}").to_table()["vector"].to_pylist() == view.tolist()


def test_arrays_of_a_dict(tmp_path: Path) -> None:
    values = np.arange(6.0).reshape(3, 2)
    table = lance_io.write_dataset({"v": values, "i": [1, 2, 3], "n": np.arange(3)}, tmp_path / "t")
    assert table.schema.field("v").type == pa.list_(pa.float64(), 2)
    assert table.to_table().to_pylist() == [
        {"v": row, "i": number + 1, "n": number} for number, row in enumerate(values.tolist())
    ]
    schema = pa.schema([("v", pa.list_(pa.float32(), 2)), ("i", pa.int8())])
    assert lance_io.write_dataset({"v": values, "i": [1, 2, 3]}, tmp_path / "s", schema=schema).schema == schema
    for wrong in (np.zeros((3, 0)), np.array([["a"]] * 3)):
        with pytest.raises(ValueError, match="column 'v': expected an array of numbers, rows first"):
            lance_io.write_dataset({"v": wrong}, tmp_path / "w")


def test_arrays_of_other_shapes(tmp_path: Path) -> None:
    cube = np.arange(24).reshape(2, 3, 4)
    assert lance_io.write_dataset(cube, tmp_path / "t").to_table()["vector"].to_pylist() == cube.tolist()
    masked = np.ma.masked_array([[1, 2], [3, 4]], mask=[[0, 1], [0, 0]])
    assert lance_io.write_dataset(masked, tmp_path / "m").to_table()["vector"].to_pylist() == [[1, None], [3, 4]]
    schema = pa.schema([pa.field("embedding", pa.list_(pa.float32(), 2))])
    table = lance_io.write_dataset(np.ones((3, 2)), tmp_path / "n", schema=schema)
    assert table.schema == schema
    table.insert(np.zeros((1, 2), "f4"), schema=schema)
    assert table.count_rows() == 4
    structured = np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")])
    for wrong in (np.arange(3), np.array(5), structured, np.array([["a", "b"]]), np.zeros((2, 0)), np.array([[None]])):
        with pytest.raises(ValueError, match="expected an array of numbers in two dimensions or more"):
            lance_io.write_dataset(wrong, tmp_path / "w")
    with pytest.raises((SchemaError, OperationError)):
        lance_io.write_dataset(np.zeros((1, 3), "f4"), tmp_path / "n", mode="append")


OTHERS = {
    "numbers": [1, 2],
    "lists": [[1]],
    "a set": {1},
    "bytes": b"abc",
    "an array": pa.array([1]),
    "a series": pl.Series("a", [1]),
    "a number": 5,
    "none": None,
    "nothing": [],
}


@pytest.mark.parametrize("name", OTHERS)
def test_anything_else_is_refused_by_name(tmp_path: Path, name: str) -> None:
    with pytest.raises((TypeError, ValueError), match=r"found <class|Unknown data type <class|a column alone"):
        lance_io.write_dataset(OTHERS[name], tmp_path / "t")
    assert not (tmp_path / "t").exists()
