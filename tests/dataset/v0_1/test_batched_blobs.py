"""Blob columns of the first kind in version 0.1: stored as plain values, and read as descriptions and bytes.

pylance panics where it is to describe them, but with `blob_handling="all_binary"` it gives their bytes.
"""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import SchemaError, UnsupportedError
from tests.dataset.v0_1.test_batched_writing import data_files

VALUES = [None if i % 7 == 0 else b"" if i % 5 == 0 else bytes([i]) * i for i in range(100)]
STORED = [value or None for value in VALUES]  # empty values are nulls in this version
BLOB = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})


ROWS = pa.table(
    [pa.array(VALUES, BLOB.type), pa.array(range(100))], schema=pa.schema([BLOB, pa.field("i", pa.int64())])
)
OPTIONS = {"data_storage_version": "legacy", "max_rows_per_group": 9, "max_rows_per_file": 40}


@pytest.fixture(params=[lance, lance_io], ids=["by pylance", "by us"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    request.param.write_dataset(ROWS, tmp_path / "t", **OPTIONS)
    return str(tmp_path / "t")


def test_files_are_those_of_pylance(tmp_path: Path, as_pylance: None) -> None:
    """Also of blobs in structs; and appended to by both."""
    inside = pa.StructArray.from_arrays([ROWS["b"].combine_chunks()], fields=[BLOB])
    for name, rows in {"plain": ROWS, "inside": pa.table({"s": inside})}.items():
        for library in (lance, lance_io):
            place = str(tmp_path / f"{name} {library.__name__}")
            library.write_dataset(rows, place, **OPTIONS)
            library.write_dataset(rows.slice(7, 20), place, mode="append")
        ours, theirs = (tmp_path / f"{name} {library}" for library in ("lance_io", "lance"))
        assert data_files(str(ours)) == data_files(str(theirs))
        lance.write_dataset(rows, str(ours), mode="append")
        want = lance.dataset(str(ours)).to_table(blob_handling="all_binary")
        assert lance_io.dataset(str(ours)).to_table(blob_handling="all_binary") == want and want.num_rows == 220


def test_what_nobody_reads_is_refused(tmp_path: Path) -> None:
    items = pa.ListArray.from_arrays(
        pa.array([0, 50, 100], pa.int32()), ROWS["b"].combine_chunks(), type=pa.list_(BLOB.with_name("item"))
    )
    binary = pa.table([ROWS["b"].cast(pa.binary())], schema=pa.schema([BLOB.with_type(pa.binary())]))
    second = pa.table([lance.blob_array(VALUES)], schema=pa.schema([lance.blob_field("b")]))
    refused = [
        (pa.table({"l": items}), UnsupportedError, "inside of lists"),
        (binary, SchemaError, "Blob encoding is not available for field 'b' with data type binary"),
        (second, UnsupportedError, r"Blob v2 requires file version >= 2.2 \(got V1\)"),
    ]
    for rows, error, words in refused:
        with pytest.raises(error, match=words):
            lance_io.write_dataset(rows, tmp_path / "t", **OPTIONS)
    with pytest.raises(OSError, match=r"Blob v2 requires file version >= 2.2 \(got V1\)"):
        lance.write_dataset(second, tmp_path / "t", **OPTIONS)


def test_bytes_are_those_of_pylance(uri: str) -> None:
    want = lance.dataset(uri).to_table(blob_handling="all_binary")
    assert want["b"].to_pylist() == STORED
    table = lance_io.dataset(uri)
    assert table.to_table(blob_handling="all_binary").to_pylist() == want.to_pylist()
    some = table.to_table(blob_handling="all_binary", offset=33, limit=20, filter="i % 2 = 0")
    assert some["b"].to_pylist() == [STORED[i] for i in range(100) if i % 2 == 0][33:53]


def test_descriptions_say_where_bytes_are(uri: str) -> None:
    table = lance_io.dataset(uri)
    (first, *_) = [file.path for file in table.get_fragments()[0].data_files()]
    data = (Path(uri) / "data" / first).read_bytes()
    whole = table.to_table()["b"]
    for found, value in zip(whole.to_pylist()[:40], STORED, strict=False):
        assert (found and data[found["position"] : found["position"] + found["size"]]) == value
    rows = [99, 3, 3, 41, 0]
    assert table.take(rows)["b"].to_pylist() == whole.take(rows).to_pylist()
    files = table.take_blobs("b", indices=[3, 41, 99])
    assert [file.read() for file in files] == [STORED[i] for i in (3, 41, 99)]


def test_filters_see_nulls(uri: str) -> None:
    found = lance_io.dataset(uri).to_table(columns=["i"], filter="b is not null")
    assert found.equals(lance.dataset(uri).to_table(columns=["i"], filter="b is not null"))
    assert found["i"].to_pylist() == [i for i in range(100) if STORED[i] is not None]
