"""Tables of version 0.1 that we write: byte for byte those of pylance, and read by it; what is refused, and told."""

from __future__ import annotations

import pickle
import warnings
from itertools import pairwise
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import OperationError, SchemaError, UnsupportedError
from tests.dataset.v0_1.batched_cases import CASES, ROWS_PER_FILE

LEGACY = {"data_storage_version": "legacy"}
LOSS = pytest.mark.filterwarnings("ignore:files of version 0.1 hold no nulls:UserWarning")


def data_files(uri: str) -> list[bytes]:
    table = lance.dataset(uri)
    paths = [file.path for fragment in table.get_fragments() for file in fragment.data_files()]
    return [(Path(uri) / "data" / path).read_bytes() for path in paths]


def write(rows: pa.Table, path: Path, **options: object) -> lance_io.LanceDataset:
    return lance_io.write_dataset(rows, str(path), **LEGACY, **options)


@LOSS
@pytest.mark.parametrize("name", CASES)
def test_files_are_those_of_pylance(name: str, tmp_path: Path, as_pylance: None) -> None:
    rows, group_rows = CASES[name]
    options = {"max_rows_per_group": group_rows, "max_rows_per_file": ROWS_PER_FILE}
    theirs, ours = str(tmp_path / "theirs"), str(tmp_path / "ours")
    lance.write_dataset(rows, theirs, **LEGACY, **options)
    write(rows, tmp_path / "ours", **options)
    assert data_files(ours) == data_files(theirs)
    want = lance.dataset(theirs).to_table()
    assert lance.dataset(ours).to_table().to_pylist() == want.to_pylist()
    assert lance_io.dataset(ours).to_table().to_pylist() == want.to_pylist()


def test_the_example_of_the_specification(tmp_path: Path, as_pylance: None) -> None:
    rows = pa.table({"a": pa.array([1, 2, 3], pa.int32()), "s": ["x", None, "yz"]})
    write(rows, tmp_path / "t", max_rows_per_group=2)
    (data,) = data_files(str(tmp_path / "t"))
    assert len(data) == 701
    head = "01000000 02000000 78 0800000000000000 0900000000000000 0900000000000000 03000000 797a"
    assert data[:0x27].hex() == head.replace(" ", "")
    table = np.frombuffer(data, "<i8", 8, 0x37).reshape(4, 2)
    assert table.tolist() == [[0, 2], [0x21, 1], [9, 2], [0x27, 1]]
    statistics = np.frombuffer(data, "<i8", 16, 0xDD).reshape(8, 2)
    assert statistics.tolist() == [[0, 0], [0x77, 2], [0x87, 2], [0x8F, 2], [0, 0], [0x97, 2], [0xAA, 2], [0xC5, 2]]
    assert data[-16:].hex() == "bb01000000000000000002004c414e43"


@LOSS
def test_rows_that_come_in_pieces(tmp_path: Path, as_pylance: None) -> None:
    """Batches are filled from several record batches, at any offset; slices of nested arrays among them."""
    rows, _ = CASES["structs"]
    rows = rows.append_column("l", CASES["lists"][0]["lists"]).append_column("b", CASES["nulls"][0]["flags"])
    dice = np.random.default_rng(5)
    cuts = [0, *sorted(dice.integers(0, len(rows), 30).tolist()), len(rows)]
    pieces = [rows.slice(a, b - a).combine_chunks().to_batches() for a, b in pairwise(cuts)]
    batches = [batch for piece in pieces for batch in piece]
    lance_io.write_dataset(
        pa.RecordBatchReader.from_batches(rows.schema, batches), str(tmp_path / "ours"), max_rows_per_group=50, **LEGACY
    )
    lance.write_dataset(rows, str(tmp_path / "theirs"), max_rows_per_group=50, **LEGACY)
    assert data_files(str(tmp_path / "ours")) == data_files(str(tmp_path / "theirs"))


def test_files_end_where_a_batch_does(tmp_path: Path) -> None:
    table = write(pa.table({"i": range(1000)}), tmp_path / "t", max_rows_per_file=250, max_rows_per_group=100)
    assert [fragment.physical_rows for fragment in table.get_fragments()] == [300, 300, 300, 100]
    assert lance.dataset(table.uri).to_table()["i"].to_pylist() == list(range(1000))
    assert write(pa.table({"i": pa.array([], pa.int64())}), tmp_path / "empty").get_fragments() == []


@pytest.mark.parametrize(
    ("rows_per_file", "rows_per_group"), [(5, None), (5, 2), (3, None), (1500, None), (1000, 3000), (4, 4)]
)
def test_files_end_as_those_of_pylance(tmp_path: Path, rows_per_file: int, rows_per_group: int | None) -> None:
    """Also where a file has fewer rows than a batch would have."""
    rows = pa.table({"i": range(20 if rows_per_file < 10 else 4000)})
    sizes = {"max_rows_per_file": rows_per_file}
    if rows_per_group is not None:
        sizes["max_rows_per_group"] = rows_per_group
    found = []
    for library in (lance, lance_io):
        table = library.write_dataset(rows, str(tmp_path / library.__name__), **sizes, **LEGACY)
        found.append([fragment.physical_rows for fragment in table.get_fragments()])
        assert lance.dataset(table.uri).to_table() == rows
    assert found[0] == found[1]


def test_large_files_are_those_of_pylance(tmp_path: Path, as_pylance: None) -> None:
    """More than ten megabytes of texts in three files, whose batches are larger than what a scan reads at once."""
    numbers = np.arange(1_500_000)
    texts = pa.array(np.char.add(np.array(["", "some ", "some more "])[numbers % 3], numbers.astype("U7")).tolist())
    rows, sizes = pa.table({"i": numbers, "s": texts}), {"max_rows_per_group": 100_000, "max_rows_per_file": 500_000}
    uri = write(rows, tmp_path / "ours", **sizes).uri
    lance.write_dataset(rows, str(tmp_path / "theirs"), **LEGACY, **sizes)
    assert data_files(uri) == data_files(str(tmp_path / "theirs")) and len(data_files(uri)) == 3
    table, dice = lance_io.dataset(uri), np.random.default_rng(6)
    assert table.to_table() == rows == lance.dataset(uri).to_table()
    for _ in range(10):
        start, end = sorted(dice.integers(0, len(rows), 2).tolist())
        end = min(end, start + 150_000)
        assert table.to_table(offset=start, limit=end - start) == rows.slice(start, end - start)
    wanted = dice.integers(0, len(rows), 1000)
    assert table.take(wanted.tolist()) == rows.take(wanted)


def test_nothing_that_lies_under_nulls_is_written(tmp_path: Path) -> None:
    is_valid = pa.py_buffer(b"\x05")
    numbers = pa.Array.from_buffers(pa.int32(), 4, [is_valid, pa.array([1, 77, 3, 88], pa.int32()).buffers()[1]])
    texts = pa.Array.from_buffers(pa.string(), 4, [is_valid, *pa.array(["one", "hidden", "two", "x"]).buffers()[1:]])
    items = pa.array([1, 2, 3, 4, 5])
    offsets = pa.array([0, 1, 3, 4, 5], pa.int32()).buffers()[1]
    lists = pa.Array.from_buffers(pa.list_(pa.int64()), 4, [is_valid, offsets], children=[items])
    members = pa.Array.from_buffers(pa.struct([("x", pa.int64())]), 4, [is_valid], children=[items.slice(0, 4)])
    rows = pa.table({"i": numbers, "s": texts, "l": lists, "m": members})
    with pytest.warns(UserWarning, match="the nulls of i, l, m are lost") as told:
        table = write(rows, tmp_path / "t")
    assert len(told) == 1
    expected = {"i": [1, 0, 3, 0], "s": ["one", None, "two", None], "l": [[1], [], [4], []]}
    expected |= {"m": [{"x": 1}, {"x": 0}, {"x": 3}, {"x": 0}]}
    assert table.to_table().to_pydict() == lance.dataset(table.uri).to_table().to_pydict() == expected
    assert b"hidden" not in data_files(table.uri)[0]
    with pytest.raises(SchemaError, match="cannot hold the nulls of i, l, m"):
        write(rows, tmp_path / "refused", allow_null_loss=False)
    assert not (tmp_path / "refused" / "_versions").exists()


def test_nothing_is_told_where_nothing_is_lost(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write(
            pa.table({"s": ["a", None], "n": pa.nulls(2), "l": [["x"], [None]]}), tmp_path / "t", allow_null_loss=False
        )


def test_dictionaries_become_one(tmp_path: Path) -> None:
    """pylance writes the first one and all keys as they are: a table that nobody can read."""
    arrays = [pa.array(words).dictionary_encode() for words in (["a", "b", "a"], ["z", "a"], ["b", "y", "y"])]
    batches = [pa.record_batch([array], ["d"]) for array in arrays]
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    table = lance_io.write_dataset(reader, str(tmp_path / "t"), max_rows_per_group=2, max_rows_per_file=4, **LEGACY)
    words = ["a", "b", "a", "z", "a", "b", "y", "y"]
    for found in (table, lance_io.dataset(table.uri), lance.dataset(table.uri)):
        assert found.to_table()["d"].to_pylist() == words
        assert found.to_table()["d"].combine_chunks().dictionary.to_pylist() == ["a", "b", "z", "y"]


def test_more_values_than_keys_are_refused(tmp_path: Path) -> None:
    some = [pa.array(range(start, start + 100)) for start in (0, 100)]
    keys = pa.array(range(100), pa.int8())
    batches = [pa.record_batch([pa.DictionaryArray.from_arrays(keys, values)], ["d"]) for values in some]
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    with pytest.raises(SchemaError, match="200 dictionary values"):
        lance_io.write_dataset(reader, str(tmp_path / "t"), **LEGACY)


def test_appends_alternate_with_those_of_pylance(tmp_path: Path) -> None:
    rows = pa.table({"d": pa.array(["a", "b", "a"]).dictionary_encode(), "i": [1, 2, 3], "s": ["x", None, "z"]})
    uri = str(tmp_path / "t")
    write(rows, tmp_path / "t", max_rows_per_group=2)
    for number in range(2, 6):
        library = lance if number % 2 else lance_io
        library.write_dataset(rows.select(["s", "i", "d"]) if number > 3 else rows, uri, mode="append")
        for reader in (lance, lance_io):
            assert reader.dataset(uri).to_table().to_pylist() == rows.to_pylist() * number
    lance_io.dataset(uri).delete("i = 2")
    lance.dataset(uri).delete("i = 1")
    left = [row for row in rows.to_pylist() if row["i"] == 3] * 5
    assert lance.dataset(uri).to_table().to_pylist() == lance_io.dataset(uri).to_table().to_pylist() == left
    lance.dataset(uri).optimize.compact_files()
    assert lance_io.dataset(uri).to_table().to_pylist() == left
    written = lance_io.write_dataset(rows, uri, mode="overwrite")
    assert written.data_storage_version == lance.dataset(uri).data_storage_version == "0.1"
    assert lance.dataset(uri).to_table().to_pylist() == rows.to_pylist()


def test_what_cannot_be_appended(tmp_path: Path) -> None:
    rows = pa.table({"d": pa.array(["a", "b"]).dictionary_encode(), "i": [1, 2]})
    other = pa.table({"d": pa.array(["a", "c"]).dictionary_encode(), "i": [1, 2]})
    uri = write(rows, tmp_path / "t").uri
    new = write_new(tmp_path)
    refusals = [
        (other, uri, {}, SchemaError, "dictionary for `d` did not match expected dictionary"),
        (rows.select(["d"]), uri, {}, SchemaError, "Fragment 0 does not contain field"),
        (rows, uri, {"data_storage_version": "2.1"}, OperationError, "V1 and V2 storage versions cannot be mixed"),
        (rows, new, {"data_storage_version": "legacy"}, OperationError, "V1 and V2 storage versions cannot be mixed"),
    ]
    for table, place, options, error, words in refusals:
        for library, kind in ((lance, OSError), (lance_io, error)):
            with pytest.raises(kind, match=words):
                library.write_dataset(table, place, mode="append", **options)
    assert lance_io.dataset(uri).version == 1


def write_new(tmp_path: Path) -> str:
    return lance_io.write_dataset(pa.table({"i": [1]}), str(tmp_path / "new"), data_storage_version="2.1").uri


REFUSED = {
    "no maps": pa.table({"c": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32()))}),
    "FixedSizeList<Struct>": pa.table({"c": pa.array([[{"a": 1}]], pa.list_(pa.struct([("a", pa.int32())]), 1))}),
    "empty page table": pa.table({"c": pa.array([{}], pa.struct([]))}),
    "v1 dictionary values do not support": pa.table({"c": pa.array([1.5]).dictionary_encode()}),
    "even though the field is marked non-null": pa.table(
        [pa.array([1, None])], schema=pa.schema([pa.field("c", pa.int64(), nullable=False)])
    ),
    "is missing dictionary metadata": pa.table({"c": pa.array(["a"]).dictionary_encode()}).slice(0, 0),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_stored(words: str, tmp_path: Path) -> None:
    with pytest.raises((SchemaError, UnsupportedError), match=words):
        write(REFUSED[words], tmp_path / "t")
    assert not (tmp_path / "t" / "_versions").exists()
    assert not list(tmp_path.glob("t/data/*"))


def test_files_by_themselves_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="belong to a table"):
        lance_io.file.LanceFileWriter(tmp_path / "f.lance", pa.schema([("i", pa.int64())]), version="legacy")


def test_values_of_dictionaries_are_in_manifests_only(tmp_path: Path) -> None:
    words = ["some value of a dictionary", "another one"]
    rows = pa.table({"d": pa.array(words).dictionary_encode()})
    table = write(rows, tmp_path / "t")
    table.update_config({"key": "value"})
    found = {}
    for path in (tmp_path / "t").rglob("*"):
        if path.is_file():
            count = path.read_bytes().count(words[0].encode())
            found[path.suffix] = found.get(path.suffix, 0) + count
    assert found == {".lance": 1, ".manifest": 2, ".txn": 0, ".json": 0}
    assert pickle.loads(pickle.dumps(table)).to_table()["d"].to_pylist() == words


def test_fragments_without_the_values_of_their_dictionary_are_refused(tmp_path: Path) -> None:
    rows = pa.table({"d": pa.array(["a", "b"]).dictionary_encode()})
    fragments = lance_io.fragment.write_fragments(rows, str(tmp_path / "t"), mode="overwrite", **LEGACY)
    operation = lance_io.LanceOperation.Overwrite(rows.schema, fragments)
    with pytest.raises(OperationError, match="missing dictionary metadata"):
        lance_io.LanceDataset.commit(str(tmp_path / "t"), operation)


def test_fragments_without_dictionaries_are_committed(tmp_path: Path) -> None:
    rows, uri = pa.table({"i": range(10), "s": [{"x": str(i)} for i in range(10)]}), str(tmp_path / "t")
    fragments = lance_io.fragment.write_fragments(rows, uri, mode="overwrite", **LEGACY)
    lance_io.LanceDataset.commit(uri, lance_io.LanceOperation.Overwrite(rows.schema, fragments))
    more = lance_io.fragment.write_fragments(rows, uri)
    lance_io.LanceDataset.commit(uri, lance_io.LanceOperation.Append(more), read_version=1)
    assert (
        lance.dataset(uri).to_table().to_pylist()
        == lance_io.dataset(uri).to_table().to_pylist()
        == rows.to_pylist() * 2
    )
