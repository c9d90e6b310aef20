"""Files of version 2.0 that we write: read by pylance as its own, and where that says so, the same byte by byte."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader as PeerReader
from lance.file import LanceFileWriter as PeerWriter

import lance_io
from lance_io.errors import SchemaError, UnsupportedError
from lance_io.file import LanceFileReader, LanceFileWriter
from tests.encodings.harness import Opened, assert_same
from tests.encodings.v2_0.written_cases import LARGE, ArrayCase, written_cases
from tests.fuzz.anatomy import Anatomy

CASES = written_cases()
SMALL = [case for case in CASES if not case.name.startswith(LARGE)]


def write(path: Path, table: pa.Table, **options: int) -> None:
    with LanceFileWriter(path, table.schema, version="2.0", **options) as writer:
        for batch in table.to_batches():
            writer.write_batch(batch)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_pylance_reads_what_we_write(case: ArrayCase, tmp_path: Path) -> None:
    uri, table = str(tmp_path / "t.lance"), case.table()
    lance_io.write_dataset(table, uri, data_storage_version="2.0", max_rows_per_file=10_000_000)
    theirs = lance.dataset(uri)
    assert theirs.data_storage_version == "2.0"
    found = theirs.to_table()["c"]
    assert_same(found, table["c"])
    assert_same(lance_io.dataset(uri).to_table()["c"], found)
    rows = sorted(np.random.default_rng(1).integers(0, len(table), 20).tolist())
    assert_same(theirs.take(rows)["c"], found.take(rows))
    assert_same(lance_io.dataset(uri).take(rows)["c"], found.take(rows))


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_small_pages(case: ArrayCase, tmp_path: Path) -> None:
    """A page for every batch, and for every few values."""
    table, path = case.table(), tmp_path / "f.lance"
    batches = pa.Table.from_batches(table.to_batches(max_chunksize=70))
    for options in ({"data_cache_bytes": 1}, {"max_page_bytes": 500}):
        write(path, batches, **options)
        found = PeerReader(str(path)).read_all(batch_size=100_000).to_table()["c"]
        assert_same(found, table["c"])
        opened = Opened(path)
        assert_same(opened.read()[0], found)
        assert_same(opened.take(np.arange(0, len(table), 7))[0], found.take(np.arange(0, len(table), 7)))


def test_pages_of_items_end_where_those_of_their_lists_do(tmp_path: Path) -> None:
    path = tmp_path / "f.lance"
    rows = pa.table({"c": [[[i] * (i % 3)] * (i % 4) for i in range(5000)]})
    write(path, rows, max_page_bytes=4000)
    parts = Anatomy(path.read_bytes())
    for outer in (0, 1):
        lists, items = parts.columns[outer], parts.columns[outer + 1]
        pages = range(len(lists.pages))
        assert len(pages) > 5
        ends = accumulate(parts.layout(outer, page).list.num_items for page in pages)
        assert set(ends) <= {0, *accumulate(page.length for page in items.pages)}
    assert all(page.priority == 0 for column in parts.columns for page in column.pages)


def test_pages_hold_8_mib(tmp_path: Path) -> None:
    path = tmp_path / "f.lance"
    numbers = pa.array(np.arange(3_000_000))
    write(path, pa.table({"n": numbers, "b": pa.array([True] * 3_000_000)}))
    columns = PeerReader(str(path)).metadata().columns
    assert [page.buffers[0].size for page in columns[0].pages] == [8 << 20, 8 << 20, 24_000_000 - (16 << 20)]
    assert PeerReader(str(path)).read_all().to_table()["n"].combine_chunks() == numbers


def identical(tmp_path: Path, table: pa.Table) -> bytes:
    """The file of a table, which both libraries write alike."""
    ours, theirs = tmp_path / "ours.lance", tmp_path / "theirs.lance"
    write(ours, table)
    with PeerWriter(str(theirs), table.schema, version="2.0") as writer:
        for batch in table.to_batches():
            writer.write_batch(batch)
    assert ours.read_bytes() == theirs.read_bytes()
    return ours.read_bytes()


def test_the_example_of_the_specification_byte_by_byte(tmp_path: Path) -> None:
    data = identical(tmp_path, pa.table({"a": pa.array([1, None, 3], pa.int32()), "s": ["x", None, "yz"]}))
    assert len(data) == 0x25F + 40
    assert data[:1] == b"\x05" and data[0x40:0x4C].hex() == "010000000000000003000000"
    assert data[0x80:0x98].hex() == "010000000000000005000000000000000300000000000000" and data[0xC0:0xC3] == b"xyz"
    assert data[-8:].hex() == "000003004c414e43"


def test_a_file_of_six_columns_byte_by_byte(tmp_path: Path) -> None:
    columns = {
        "i": pa.array([1, None, 3] * 9, pa.int32()),
        "s": pa.array(["x", None, "yz"] * 9),
        "l": pa.array([[1, 2], None, []] * 9, pa.list_(pa.int16())),
        "t": pa.array([{"b": True}, {"b": None}, {"b": False}] * 9, pa.struct([("b", pa.bool_())])),
    }
    assert len(Anatomy(identical(tmp_path, pa.table(columns))).columns) == 6


# Symbols are trained in another way; descriptions of dictionaries have an empty message more, and maps another order.
OTHERWISE = ("fsst", "dictionar", "level", "hidden items")
ALIKE = [case for case in SMALL if not any(word in case.name for word in OTHERWISE) or "bytes fsst" in case.name]


@pytest.mark.parametrize("case", ALIKE, ids=lambda case: case.name)
def test_files_are_those_of_pylance_byte_by_byte(case: ArrayCase, tmp_path: Path) -> None:
    identical(tmp_path, case.table())


EMPTY: dict[str, pa.DataType] = {
    "numbers": pa.int32(), "strings": pa.string(), "lists": pa.list_(pa.int32()),
    "structs": pa.struct([("a", pa.int32())]), "vectors": pa.list_(pa.float32(), 3),
}  # fmt: skip


@pytest.mark.parametrize("dtype", EMPTY.values(), ids=EMPTY)
def test_files_without_rows_byte_by_byte(dtype: pa.DataType, tmp_path: Path) -> None:
    identical(tmp_path, pa.table({"c": pa.array([], dtype)}))
    assert LanceFileReader(tmp_path / "ours.lance").read_all().to_table() == pa.table({"c": pa.array([], dtype)})


STRUCT = pa.struct([("a", pa.int32())])
PACKED = {"packed": "true"}
TEXTS = pa.array([str(i) for i in range(128)])


@pytest.mark.parametrize(
    ("array", "metadata", "text"),
    [
        (pa.array([{"a": 1}, None], STRUCT), None, "`c` contains 1 null value.*does not encode struct validity"),
        (pa.array([[{"a": 1}, None]], pa.list_(STRUCT)), None, "`item` contains 1 null value"),
        (pa.array([{"a": 1}, None], STRUCT), PACKED, "`c` contains 1 null value|null"),
        (pa.array([{"a": 1}, {"a": None}], STRUCT), PACKED, "null"),
        (pa.array([{"a": True}]), PACKED, "whole bytes"),
        (pa.array([{"a": "x"}]), PACKED, "packed struct"),
        (pa.array([{"a": {"b": 1}}]), PACKED, "packed struct"),
        (
            pa.DictionaryArray.from_arrays(pa.array([*range(128), None], pa.int8()), TEXTS),
            None,
            "dictionary indices use 8 bits; the normalized dictionary .* 129 values",
        ),
        (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())), None, "Lance v2.0 has no field encoding for 'c'"),
        (pa.array([[{"a": 1}] * 2], pa.list_(STRUCT, 2)), None, "FixedSizeList<Struct>"),
        (pa.array([["a", "b"]], pa.list_(pa.string(), 2)), None, "fixed-size lists hold"),
        (pa.array([b"x"]), {"lance-encoding:blob": "true"}, "large_binary"),
        (pa.array([b""], pa.binary(0)), None, "no bytes"),
    ],
)
def test_what_version_2_0_does_not_have_is_refused(
    array: pa.Array, metadata: dict[str, str] | None, text: str, tmp_path: Path
) -> None:
    table = pa.table([array], schema=pa.schema([pa.field("c", array.type, metadata=metadata)]))
    with pytest.raises((SchemaError, UnsupportedError), match=text):
        lance_io.write_dataset(table, tmp_path / "t", data_storage_version="2.0")
    assert not (tmp_path / "t" / "_versions").exists()


def test_blobs(tmp_path: Path) -> None:
    values = [b"a" * 300, None, b"", b"c" * 100] * 20
    field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    inside = pa.StructArray.from_arrays([pa.array(values, pa.large_binary())], fields=[field])
    columns = [pa.array(values, pa.large_binary()), inside, pa.array(range(80))]
    table = pa.table(columns, schema=pa.schema([field, pa.field("s", inside.type), pa.field("i", pa.int64())]))
    lance_io.write_dataset(table, tmp_path / "t", data_storage_version="2.0", max_rows_per_file=30)
    theirs = lance.dataset(tmp_path / "t")
    assert theirs.to_table(blob_handling="all_binary").equals(table)
    assert [one and one.read() for one in theirs.take_blobs("b", indices=[0, 1, 2, 3])] == values[:4]
    assert lance_io.dataset(tmp_path / "t").to_table(blob_handling="all_binary").equals(table)


@pytest.mark.parametrize("name", ["2.0", "0.3"])
def test_tables_keep_their_version(name: str, tmp_path: Path) -> None:
    """Appended to by both libraries in turn."""
    uri = str(tmp_path / "t")
    rows = pa.table({"i": range(10), "s": [{"a": i, "l": [f"{i}"] * (i % 3)} for i in range(10)]})
    lance_io.write_dataset(rows, uri, data_storage_version=name)
    lance.write_dataset(rows, uri, mode="append")
    lance_io.write_dataset(rows, uri, mode="append")
    ours, theirs = lance_io.dataset(uri), lance.dataset(uri)
    assert ours.data_storage_version == theirs.data_storage_version == "2.0"
    expected = pa.concat_tables([rows] * 3)
    assert ours.to_table() == expected == theirs.to_table()
    for place, fragment in enumerate(theirs.get_fragments()):
        [file] = fragment.data_files()
        assert (file.file_major_version, file.file_minor_version) == (2, 0), place
        assert len(file.fields) == len(file.column_indices) == 5
    assert {Anatomy(path.read_bytes()).footer[5:7] == [0, 3] for path in (Path(uri) / "data").iterdir()} == {True}
    ours.delete("i % 2 = 0")
    assert lance_io.dataset(uri).to_table() == lance.dataset(uri).to_table()
    lance_io.write_dataset(rows, uri, mode="overwrite", data_storage_version="2.1")
    assert lance.dataset(uri).data_storage_version == "2.1"
