"""Columns of special kinds through tables of both libraries: blobs, JSON, extension types, maps, empty tables."""

from __future__ import annotations

import json
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from lance.arrow import bfloat16_array
from lance.blob import blob_array, blob_field

import lance_io
from tests.interop.comparing import LIBRARIES, assert_same

if TYPE_CHECKING:
    from pathlib import Path

IN_2_2_ONLY = ("map", "map of structs")


def tensors() -> pa.Array:
    kind = pa.fixed_shape_tensor(pa.float32(), (2, 3))
    return pa.ExtensionArray.from_storage(
        kind, pa.array([[float(i)] * 6 for i in range(30)], pa.list_(pa.float32(), 6))
    )


def uuids() -> pa.Array:
    values = [uuid.UUID(int=i * 7).bytes if i % 4 else None for i in range(30)]
    return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))


def with_gaps(values: list[Any]) -> list[Any]:
    return [None if i % 4 == 3 else value for i, value in enumerate(values)]


KINDS: dict[str, pa.Array] = {
    "json": pa.array(with_gaps([f'{{"a":{i},"b":[null,"x"]}}' for i in range(30)]), pa.json_()),
    "uuid": uuids(),
    "bool8": pa.ExtensionArray.from_storage(pa.bool8(), pa.array(with_gaps([i % 2 for i in range(30)]), pa.int8())),
    "tensor": tensors(),
    "bfloat16": bfloat16_array([1.5, None, -2.0] * 10),
    "float16": pa.array(with_gaps([float(i) / 4 for i in range(30)]), pa.float16()),
    "decimal128": pa.array(with_gaps([Decimal(i) / 8 for i in range(30)]), pa.decimal128(30, 3)),
    "decimal256": pa.array(with_gaps([Decimal(10) ** 60 + i for i in range(30)]), pa.decimal256(70, 2)),
    "map": pa.array(
        with_gaps([[(f"k{j}", j) for j in range(i % 4)] for i in range(30)]), pa.map_(pa.string(), pa.int8())
    ),
    "map of structs": pa.array(
        with_gaps([[("k", {"x": i, "y": [None, "z"]})] for i in range(30)]),
        pa.map_(pa.string(), pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])),
    ),
    "dictionary": pa.array(with_gaps([f"v{i % 3}" for i in range(30)])).dictionary_encode(),
    "view": pa.array(with_gaps([f"text {i}" for i in range(30)]), pa.string_view()),
    "null": pa.nulls(30),
}


def change(table: pa.Table, uri: str, version: str, libraries: tuple[Any, Any, Any]) -> None:
    """Create, append and delete, each by one library; then pylance updates and compacts."""
    creates, appends, deletes = libraries
    creates.write_dataset(table, uri, max_rows_per_file=13, data_storage_version=version)
    appends.write_dataset(table.slice(7, 11), uri, mode="append")
    deletes.dataset(uri).delete("key % 5 = 2")
    lance.dataset(uri).update({"key": "key + 100"}, where="key % 7 = 0")
    lance.dataset(uri).optimize.compact_files()
    appends.dataset(uri).insert(table.select(["key", "c"]).slice(3, 4))


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_live_through_changes_by_both(tmp_path: Path, kind: str, version: str) -> None:
    """Whoever makes the changes, the table is the one that pylance alone makes."""
    if kind in IN_2_2_ONLY and version == "2.1":
        for library in LIBRARIES:
            with pytest.raises(OSError, match="Map data type is not"):
                library.write_dataset(pa.table({"c": KINDS[kind]}), str(tmp_path / "t"), data_storage_version=version)
        return
    table = pa.table({"c": KINDS[kind], "key": pa.array(range(30), pa.int64())})
    change(table, str(tmp_path / "theirs"), version, (lance, lance, lance))
    for number, libraries in enumerate(
        ((lance_io, lance_io, lance_io), (lance_io, lance, lance), (lance, lance_io, lance_io))
    ):
        uri = str(tmp_path / f"{number}")
        change(table, uri, version, libraries)
        for reader in LIBRARIES:
            mixed, theirs = reader.dataset(uri), reader.dataset(str(tmp_path / "theirs"))
            assert mixed.schema.equals(theirs.schema, check_metadata=True)
            assert_same(mixed.to_table(), theirs.to_table())
            assert_same(mixed.take([20, 3, 3, 0]), theirs.take([20, 3, 3, 0]))
            assert_same(mixed.to_table(offset=5, limit=9), theirs.to_table(offset=5, limit=9))


# -- blobs -------------------------------------------------------------------------------------------------------------

SMALL, PACKED, DEDICATED = b"s" * 10, b"p" * 70_000, b"d" * 5_000_000  # inside, in a shared file, in one of its own
VALUES = [SMALL, None, b"", PACKED, DEDICATED, PACKED + b"2", None, b"t"]


def blob_table(version: str, first_key: int) -> pa.Table:
    keys = pa.array(range(first_key, first_key + len(VALUES)), pa.int64())
    if version == "2.2":
        return pa.table(
            {"key": keys, "b": blob_array(VALUES)}, schema=pa.schema([("key", pa.int64()), blob_field("b")])
        )
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    return pa.table([keys, pa.array(VALUES, pa.large_binary())], schema=pa.schema([("key", pa.int64()), blob]))


def blobs_by_key(library: Any, uri: str) -> dict[int, bytes | None]:
    table = library.dataset(uri)
    keys = table.to_table(columns=["key"])["key"].to_pylist()
    files = table.take_blobs("b", indices=list(range(len(keys))))
    assert len(set(keys)) == len(keys)
    return {key: None if file is None else file.readall() for key, file in zip(keys, files, strict=True)}


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("creates", LIBRARIES, ids=["pylance", "ours"])
@pytest.mark.parametrize("appends", LIBRARIES, ids=["pylance", "ours"])
def test_blobs_live_through_changes_by_both(tmp_path: Path, creates: Any, appends: Any, version: str) -> None:
    uri = str(tmp_path / "t")
    creates.write_dataset(blob_table(version, 0), uri, data_storage_version=version)
    appends.write_dataset(blob_table(version, 10), uri, mode="append")
    expected = {first + i: value for first in (0, 10) for i, value in enumerate(VALUES)}
    for reader in LIBRARIES:
        assert blobs_by_key(reader, uri) == expected
    described = [reader.dataset(uri).to_table(columns=["b"])["b"].to_pylist() for reader in LIBRARIES]
    assert described[0] == described[1]
    lance_io.dataset(uri).delete("key in (3, 11)")
    lance.dataset(uri).delete("key = 0")
    lance.dataset(uri).optimize.compact_files()
    for key in (0, 3, 11):
        del expected[key]
    for reader in LIBRARIES:
        assert blobs_by_key(reader, uri) == expected


def marked_table(values: list[bytes | None], first_key: int, *, nullable: bool = True, **options: str) -> pa.Table:
    """Blobs as plain values, marked by an option of their field, in a column of their own and in a struct."""
    metadata: dict[str | bytes, str | bytes] = {"lance-encoding:blob": "true", "kept": "yes", **options}
    blob = pa.field("b", pa.large_binary(), nullable, metadata)
    inside = pa.field("s", pa.struct([pa.field("n", pa.int8()), blob]))
    keys = pa.array(range(first_key, first_key + len(values)), pa.int64())
    column = pa.array(values, pa.large_binary())
    numbers = pa.array([7] * len(values), pa.int8())
    struct = pa.StructArray.from_arrays([numbers, column], fields=list(inside.type))
    return pa.table([struct, column, keys], schema=pa.schema([inside, blob, ("key", pa.int64())]))


def described(table: Any) -> list[Any]:
    """Kind and size of both blobs of each row; where they lie is up to the writer."""
    blobs = [blob for row in table.to_table().to_pylist() for blob in (row["b"], row["s"]["b"])]
    return [blob and (blob.get("kind"), blob["size"]) for blob in blobs]


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("creates", LIBRARIES, ids=["pylance", "ours"])
@pytest.mark.parametrize("appends", LIBRARIES, ids=["pylance", "ours"])
def test_values_that_are_marked_as_blobs(tmp_path: Path, creates: Any, appends: Any, version: str) -> None:
    """From 2.2 on they become blobs of the second kind, whoever writes, in tables that either may append to."""
    places = {"theirs": (lance, lance), "mixed": (creates, appends)}
    for name, (first, second) in places.items():
        uri = str(tmp_path / name)
        first.write_dataset(marked_table(VALUES, 0), uri, data_storage_version=version)
        second.write_dataset(marked_table(VALUES, 10), uri, mode="append")
        made = second.fragment.write_fragments(marked_table(VALUES[:3], 20), uri)
        first.LanceDataset.commit(
            uri,
            first.LanceOperation.Append([first.FragmentMetadata.from_json(json.dumps(one.to_json())) for one in made]),
            read_version=2,
        )
    for reader in LIBRARIES:
        theirs, mixed = (reader.dataset(str(tmp_path / name)) for name in places)
        assert mixed.schema.equals(theirs.schema, check_metadata=True)
        assert blobs_by_key(reader, mixed.uri) == blobs_by_key(reader, theirs.uri)
        assert described(mixed) == described(theirs)
        assert mixed.max_field_id == theirs.max_field_id
        assert [[one.fields for one in fragment.data_files()] for fragment in mixed.get_fragments()] == [
            [one.fields for one in fragment.data_files()] for fragment in theirs.get_fragments()
        ]


def test_marked_values_keep_their_thresholds(tmp_path: Path) -> None:
    table = marked_table([b"12345678"], 0, nullable=False, **{"lance-encoding:blob-inline-size-threshold": "3"})
    for library in LIBRARIES:
        library.write_dataset(table, str(tmp_path / library.__name__))
    tables = [lance.dataset(str(tmp_path / library.__name__)) for library in LIBRARIES]
    assert tables[0].schema.equals(tables[1].schema, check_metadata=True)
    assert tables[0].to_table()["b"].to_pylist() == tables[1].to_table()["b"].to_pylist()
    assert tables[1].to_table()["b"][0].as_py()["kind"] == 1


def test_fragments_of_marked_values_become_a_table(tmp_path: Path) -> None:
    """The files have blobs of the second kind; pylance takes the schema of the rows only with the blobs at its end."""
    table = marked_table(VALUES[:3], 0)
    for library in LIBRARIES:
        uri = str(tmp_path / library.__name__)
        made = library.fragment.write_fragments(table, uri, mode="create")
        if library is lance_io:
            library.LanceDataset.commit(uri, library.LanceOperation.Overwrite(table.schema, made))
            assert blobs_by_key(lance, uri) == dict(enumerate(VALUES[:3]))
            uri += "2"
        transaction = library.fragment.write_fragments(table, uri, mode="create", return_transaction=True)
        assert library.LanceDataset.commit(uri, transaction).count_rows() == 3
        assert blobs_by_key(lance, uri) == dict(enumerate(VALUES[:3]))


# -- no rows -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("first", LIBRARIES, ids=["pylance", "ours"])
def test_empty_tables_are_filled_by_both(tmp_path: Path, first: Any, version: str) -> None:
    uri = str(tmp_path / "t")
    rows = pa.table({"a": [1, 2], "s": [{"x": "y"}, None], "l": [[1], None]})
    first.write_dataset(rows.schema.empty_table(), uri, data_storage_version=version)
    for library in LIBRARIES:
        assert library.dataset(uri).count_rows() == 0
        assert library.dataset(uri).to_table().equals(rows.schema.empty_table())
        library.dataset(uri).insert(rows.schema.empty_table())
        library.dataset(uri).insert(rows)
        library.dataset(uri).delete("true")
    assert [library.dataset(uri).get_fragments() for library in LIBRARIES] == [[], []]
    for library in LIBRARIES:
        library.dataset(uri).insert(rows)
    for library in LIBRARIES:
        assert_same(library.dataset(uri).to_table(), pa.concat_tables([rows, rows]))
        assert [one.fragment_id for one in library.dataset(uri).get_fragments()] == [2, 3]


@pytest.mark.parametrize(
    "rows", [[None] * 5, [None, [{"m": None, "s": "x"}] * 3, None], [None, [{"m": None, "s": None}] * 3]]
)
def test_vectors_of_structs_that_are_null(tmp_path: Path, rows: list[Any]) -> None:
    """Their items have no levels, and may be valid below."""
    kind = pa.list_(pa.struct([("m", pa.int32()), ("s", pa.string())]), 3)
    lance_io.write_dataset(pa.table({"v": pa.array(rows, kind)}), tmp_path / "t")
    for reader in LIBRARIES:
        assert reader.dataset(str(tmp_path / "t")).to_table()["v"].to_pylist() == rows
        assert reader.dataset(str(tmp_path / "t")).take([1, 0])["v"].to_pylist() == [rows[1], rows[0]]


def test_levels_that_pylance_packs_to_no_bits(tmp_path: Path) -> None:
    """Compaction writes a page whose definition levels are all 0, more than a group of them."""
    uri = str(tmp_path / "t")
    rows = [{"l": [{"y": [i] * (i % 7 + 1)}] * (i % 3 + 1)} for i in range(200)]
    table = pa.table({"s": pa.array(rows), "key": pa.array(range(200), pa.int64())})
    lance_io.write_dataset(table, uri, max_rows_per_file=70, data_storage_version="2.1")
    lance.dataset(uri).delete("key % 5 = 1")
    lance.dataset(uri).optimize.compact_files()
    for reader in LIBRARIES:
        assert reader.dataset(uri).to_table()["s"].to_pylist() == [row for i, row in enumerate(rows) if i % 5 != 1]
