"""Blob columns of the first kind in version 0.1: stored as plain values, and read as descriptions and bytes.

pylance panics where it is to describe them, but with `blob_handling="all_binary"` it gives their bytes.
"""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lance_io

VALUES = [None if i % 7 == 0 else b"" if i % 5 == 0 else bytes([i]) * i for i in range(100)]
STORED = [value or None for value in VALUES]  # empty values are nulls in this version
BLOB = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})


@pytest.fixture
def uri(tmp_path: Path) -> str:
    schema = pa.schema([BLOB, pa.field("i", pa.int64())])
    rows = pa.Table.from_arrays([pa.array(VALUES, BLOB.type), pa.array(range(100))], schema=schema)
    options = {"data_storage_version": "legacy", "max_rows_per_group": 9, "max_rows_per_file": 40}
    lance.write_dataset(rows, tmp_path / "t", **options)
    return str(tmp_path / "t")


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
