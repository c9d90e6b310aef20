"""Blobs of version 2.0: descriptions, bytes, and blobs as files, as pylance has them."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileReader as PeerReader

import lance_io
from lance_io.file import LanceFileReader
from tests.encodings.v2_0.handmade_cases import blobs
from tests.fuzz.test_found import change_manifest

BLOB = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
VALUES = [[b"a" * 300, None, b"", b"c" * 100, b"d" * 7][i * i % 5] for i in range(200)]
TAKEN = [0, 1, 2, 3, 88, 199]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two fragments that pylance wrote."""
    found = str(tmp_path_factory.mktemp("blobs") / "t.lance")
    for start, end in ((0, 120), (120, 200)):
        columns = [pa.array(range(start, end)), pa.array(VALUES[start:end], pa.large_binary())]
        part = pa.table(columns, schema=pa.schema([pa.field("i", pa.int64()), BLOB]))
        lance.write_dataset(part, found, mode="append", data_storage_version="2.0")
    return found


def described(column: pa.ChunkedArray) -> list[dict[str, int] | None]:
    """Descriptions in which a null is one; in those of 2.0 pylance shows it as it is stored."""
    return [None if one == {"position": 1, "size": 0} else one for one in column.to_pylist()]


def test_descriptions_are_those_of_pylance_but_for_nulls(uri: str) -> None:
    ours, theirs = lance_io.dataset(uri), lance.dataset(uri)
    assert ours.schema == theirs.schema
    assert ours.to_table()["b"].to_pylist() == described(theirs.to_table()["b"])
    assert ours.take(TAKEN)["b"].to_pylist() == described(theirs.take(TAKEN)["b"])
    part = {"columns": ["b"], "offset": 50, "limit": 99}
    assert ours.to_table(**part)["b"].to_pylist() == described(theirs.to_table(**part)["b"])
    assert ours.count_rows("b is null") == VALUES.count(None)


def test_bytes_are_those_that_were_written(uri: str) -> None:
    ours = lance_io.dataset(uri).to_table(blob_handling="all_binary")
    assert ours.equals(lance.dataset(uri).to_table(blob_handling="all_binary"))
    assert ours["b"].to_pylist() == VALUES


def test_blobs_are_files(uri: str) -> None:
    ours = lance_io.dataset(uri).take_blobs("b", indices=TAKEN)
    theirs = lance.dataset(uri).take_blobs("b", indices=TAKEN)
    assert [one and one.read() for one in ours] == [one and one.read() for one in theirs]


def test_a_file_shows_bytes(uri: str) -> None:
    for path in (Path(uri) / "data").iterdir():
        ours, theirs = LanceFileReader(path), PeerReader(str(path))
        assert ours.read_all().to_table() == theirs.read_all().to_table()
        assert ours.take_rows([1, 5]).to_table() == theirs.take_rows([1, 5]).to_table()


def test_a_file_made_by_hand(tmp_path: Path) -> None:
    """Payloads at the start of the file, next to each other and shared; alone, and in the place of a table's file."""
    made, path = blobs(), tmp_path / "f.lance"
    made.write(path)
    alone, theirs = LanceFileReader(path), PeerReader(str(path))
    assert theirs.read_all().to_table()["c"].to_pylist() == made.rows
    for start in range(len(made.rows)):
        for end in range(start, len(made.rows) + 1):
            found = alone.read_range(start, end - start).to_table()
            assert found["c"].to_pylist() == made.rows[start:end]
            assert found == theirs.read_range(start, end - start).to_table()
    assert alone.take_rows([0, 1, 4]).to_table() == theirs.take_rows([0, 1, 4]).to_table()
    rows = pa.table([pa.array(made.rows, pa.large_binary())], schema=pa.schema([BLOB.with_name("c")]))
    lance.write_dataset(rows, tmp_path / "t", data_storage_version="2.0")
    [data] = (tmp_path / "t" / "data").iterdir()
    made.write(data)
    change_manifest(
        tmp_path / "t", lambda message: setattr(message.fragments[0].files[0], "file_size_bytes", path.stat().st_size)
    )
    table, peer = lance_io.dataset(tmp_path / "t"), lance.dataset(tmp_path / "t")
    assert table.to_table()["c"].to_pylist() == described(peer.to_table()["c"])
    assert table.to_table(blob_handling="all_binary") == peer.to_table(blob_handling="all_binary") == rows
    shown = [one and one.read() for one in table.take_blobs("c", indices=[4, 3, 2, 1, 0])]
    assert shown == [one and one.read() for one in peer.take_blobs("c", indices=[4, 3, 2, 1, 0])]
    assert shown == made.rows[4::-1]
