"""Blob columns of both kinds: payloads, sidecars, thresholds, and what is left after a failure."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import SchemaError, UnsupportedError
from lance_io.file.write.blob_pages import sidecar_name
from lance_io.file.write.file_writing import FileWriting
from lance_io.file.write.writers import LanceFileWriter
from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.format.version import V2_1, V2_2
from lance_io.plans.plan import drive_sync
from lance_io.store.local.disk import LocalStore
from tests.encodings.harness import Opened

if TYPE_CHECKING:
    from pathlib import Path

    from lance_io.file.write.file_bytes import WrittenFile

FIRST = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
VALUES = [b"x" * 10, None, b"", b"y" * 70_000, b"z" * 300_000, b"w" * 70_001, None, b"v"]


def write_table(folder: Path, schema: pa.Schema, columns: list[pa.Array], version: str, **kwargs) -> WrittenFile:
    """A table of pylance whose one data file is replaced by one that we write."""
    table = pa.table(columns, schema=schema)
    dataset = lance.write_dataset(table, folder, data_storage_version=version, **kwargs)
    (data_file,) = dataset.get_fragments()[0].data_files()
    path = folder / "data" / data_file.path
    shutil.rmtree(path.with_suffix(""), ignore_errors=True)
    path.unlink()
    stored = schema_from_arrow(schema)
    writing = FileWriting(LocalStore(), str(path), stored, V2_1 if version == "2.1" else V2_2)
    for batch in table.to_batches(max_chunksize=3):
        drive_sync(writing.write(batch))
    written = drive_sync(writing.close())
    assert list(written.field_ids) == data_file.fields
    assert list(written.column_indices) == data_file.column_indices
    return written


def blobs_of(folder: Path, column: str, num_rows: int) -> list[bytes | None]:
    """All values, read by pylance."""
    files = lance.dataset(folder).take_blobs(column, indices=list(range(num_rows)))
    return [None if file is None else file.readall() for file in files]


def test_first_kind(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("i", pa.int32()), FIRST])
    columns = [pa.array(range(len(VALUES)), pa.int32()), pa.array(VALUES, pa.large_binary())]
    (tmp_path / "t").mkdir()
    written = write_table(tmp_path / "t", schema, columns, "2.1", mode="overwrite")
    assert written.sidecars == ()
    assert blobs_of(tmp_path / "t", "b", len(VALUES)) == VALUES
    described = lance.dataset(tmp_path / "t").to_table()["b"].to_pylist()
    assert [None if one is None else one["size"] for one in described] == [
        None if value is None else len(value) for value in VALUES
    ]
    assert all(one["position"] % 64 == 0 for one in described if one is not None)


def test_first_kind_inside_a_struct_with_slices(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("s", pa.struct([pa.field("n", pa.int8()), FIRST]))])
    rows = [None if i % 4 == 1 else {"n": i, "b": value} for i, value in enumerate(VALUES)]
    path = tmp_path / "one.lance"
    with LanceFileWriter(path, schema, version="2.1") as writer:
        array = pa.array([None, *rows], schema.field(0).type).slice(1)
        writer.write_batch(pa.record_batch([array], schema=schema))
    (column,) = Opened(path).read()
    data = path.read_bytes()
    for found, row in zip(column.to_pylist(), rows, strict=True):
        if row is None or row["b"] is None:
            assert found is None or found["b"] is None
        else:
            place = found["b"]
            assert data[place["position"] : place["position"] + place["size"]] == row["b"]


def test_second_kind_in_all_places(tmp_path: Path) -> None:
    outside = tmp_path / "outside.bin"
    outside.write_bytes(bytes(range(256)))
    uri = outside.as_uri()
    field = lance.blob_field("b", dedicated_size_threshold=200_000)
    schema = pa.schema([pa.field("i", pa.int32()), field])
    values = [*VALUES, lance.Blob.from_uri(uri), lance.Blob.from_uri(uri, 5, 10)]
    columns = [pa.array(range(len(values)), pa.int32()), lance.blob_array(values)]
    folder = tmp_path / "t"
    written = write_table(folder, schema, columns, "2.2", allow_external_blob_outside_bases=True)
    assert written.sidecars == (sidecar_name(1), sidecar_name(2))
    assert blobs_of(folder, "b", len(values)) == [*VALUES, bytes(range(256)), bytes(range(5, 15))]
    kinds = [None if one is None else one["kind"] for one in lance.dataset(folder).to_table()["b"].to_pylist()]
    assert kinds == [0, None, 0, 1, 2, 1, None, 0, 3, 3]
    beside = (folder / "data" / written.path.rpartition("/")[2]).with_suffix("")
    assert sorted(path.name for path in beside.iterdir()) == sorted(written.sidecars)
    assert (beside / sidecar_name(1)).read_bytes() == b"y" * 70_000 + b"w" * 70_001


@pytest.mark.parametrize("make", [pa.list_, pa.large_list])
def test_second_kind_inside_lists_with_slices(tmp_path: Path, make: Any) -> None:
    field = lance.blob_field("item", inline_size_threshold=10, dedicated_size_threshold=200_000)
    values = [b"before", b"x" * 10, None, b"hidden below a null", b"", b"y" * 70_000, b"z" * 300_000, b"behind"]
    blobs = lance.blob_array(values)
    kind = pa.LargeListArray if make is pa.large_list else pa.ListArray
    offsets = pa.array([0, 1, 3, 4, 4, 6, 7, 8], pa.int64() if make is pa.large_list else pa.int32())
    column = kind.from_arrays(
        offsets, blobs, type=make(field), mask=pa.array([False, False, True, False, False, False, False])
    ).slice(1, 5)
    rows = pa.table([column], schema=pa.schema([pa.field("l", column.type)]))
    lance_io.write_dataset(rows, tmp_path / "t", data_storage_version="2.2")
    assert sorted(path.name for path in tmp_path.rglob("*.blob")) == sorted(map(sidecar_name, (1, 2)))
    expected = [[b"x" * 10, None], None, [], [b"", b"y" * 70_000], [b"z" * 300_000]]
    assert lance.dataset(tmp_path / "t").to_table(blob_handling="all_binary")["l"].to_pylist() == expected
    found = lance.dataset(tmp_path / "t").to_table()["l"].to_pylist()
    assert [row and [blob and blob["kind"] for blob in row] for row in found] == [[0, None], None, [], [0, 1], [2]]
    for path in tmp_path.rglob("*"):  # what no row shows is nowhere
        assert not path.is_file() or not any(word in path.read_bytes() for word in (b"hidden", b"before", b"behind"))


def test_packed_blobs_begin_another_sidecar_when_one_is_full(tmp_path: Path) -> None:
    field = lance.blob_field("b", inline_size_threshold=10, pack_file_size_threshold=2500)
    values = [bytes([i]) * 1000 for i in range(6)]
    written = write_table(tmp_path / "t", pa.schema([field]), [lance.blob_array(values)], "2.2")
    assert len(written.sidecars) == 3
    assert blobs_of(tmp_path / "t", "b", 6) == values


def test_plain_values_in_a_column_of_the_second_kind(tmp_path: Path) -> None:
    """Tables turn columns of the first kind into the second at 2.2; the rows come as they always did."""
    schema = schema_from_arrow(pa.schema([lance.blob_field("b")]))
    path = tmp_path / "one.lance"
    writing = FileWriting(LocalStore(), str(path), schema, V2_2)
    drive_sync(writing.write(pa.record_batch([pa.array(VALUES, pa.large_binary())], schema=pa.schema([FIRST]))))
    drive_sync(writing.close())
    (column,) = Opened(path).read()
    assert [None if one is None else one["size"] for one in column.to_pylist()] == [
        None if value is None else len(value) for value in VALUES
    ]


def test_a_failure_removes_sidecars_that_are_whole_too(tmp_path: Path) -> None:
    schema = pa.schema([lance.blob_field("b", dedicated_size_threshold=10, inline_size_threshold=1)])
    with pytest.raises(KeyError), LanceFileWriter(tmp_path / "one.lance", schema, version="2.2") as writer:
        writer.write_batch(pa.record_batch([lance.blob_array([b"dedicated blob", b"packed"])], schema=schema))
        assert [path.name for path in (tmp_path / "one").iterdir() if path.suffix == ".blob"] == [sidecar_name(1)]
        raise KeyError
    assert [*tmp_path.iterdir()] == []


def test_refusals(tmp_path: Path) -> None:
    def refuse(field: pa.Field, version: str, words: str, kind: type[Exception] = UnsupportedError) -> None:
        with pytest.raises(kind, match=words):
            LanceFileWriter(tmp_path / "one.lance", pa.schema([field]), version=version)

    refuse(lance.blob_field("b"), "2.1", "not available in 2.1")
    refuse(pa.field("l", pa.list_(FIRST)), "2.1", "inside of lists")
    refuse(pa.field("l", pa.list_(pa.struct([lance.blob_field("b")]), 2)), "2.2", "inside of fixed-size lists")
    refuse(pa.field("l", pa.list_(lance.blob_field("b"), 2)), "2.2", "a fixed-size list of")
    refuse(pa.field("b", pa.string(), metadata=FIRST.metadata), "2.1", "Blob encoding is not available", SchemaError)
    refuse(pa.field("b", pa.binary(), metadata=FIRST.metadata), "2.1", "large_binary", SchemaError)
    schema = pa.schema([lance.blob_field("b")])
    for bad in ({"data": b"x", "uri": "y"}, {"data": None, "uri": None}):
        storage = pa.array([{"position": None, "size": None, **bad}], schema.field(0).type.storage_type)
        column = pa.ExtensionArray.from_storage(schema.field(0).type, storage)
        with pytest.raises(SchemaError, match="either data or a uri"):
            LanceFileWriter(tmp_path / "one.lance", schema).write_batch(pa.record_batch([column], schema=schema))


@pytest.mark.parametrize("name", ["inline-size", "dedicated-size", "pack-file-size"])
@pytest.mark.parametrize("value", ["0", "1", "-1", "x", "1e3"])
def test_thresholds_are_numbers_of_bytes(tmp_path: Path, name: str, value: str) -> None:
    """Zero is a threshold of inline blobs only."""
    field = lance.blob_field("b")
    field = field.with_metadata({**(field.metadata or {}), f"lance-encoding:blob-{name}-threshold".encode(): value})
    rows = pa.table([lance.blob_array([b"", b"aa", None])], schema=pa.schema([field]))
    outcomes: list[Any] = []
    for library in (lance, lance_io):
        uri = tmp_path / library.__name__
        try:
            library.write_dataset(rows, uri)
        except OSError:
            outcomes.append(OSError)
        else:
            files = lance.dataset(uri).take_blobs("b", indices=[0, 1, 2])
            outcomes.append([file and file.readall() for file in files])
    assert outcomes[0] == outcomes[1]
