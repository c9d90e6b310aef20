"""Tables of version 0.1 that pylance wrote, and files made by hand, read in every way and held against its rows."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io import _kernels
from lance_io.errors import FormatError, UnsupportedError
from lance_io.file import LanceFileReader
from lance_io.proto import file_pb2, table_pb2
from tests.dataset.v0_1.batched_cases import CASES, ROWS_PER_FILE

LEGACY = {"data_storage_version": "legacy"}


def written(rows: pa.Table, path: Path, group_rows: int, **options: object) -> str:
    lance.write_dataset(rows, str(path), max_rows_per_group=group_rows, **LEGACY, **options)
    return str(path)


@pytest.mark.parametrize("name", CASES)
def test_every_type_reads_as_in_pylance(name: str, tmp_path: Path) -> None:
    rows, group_rows = CASES[name]
    uri = written(rows, tmp_path / "t", group_rows, max_rows_per_file=ROWS_PER_FILE)
    want, table = lance.dataset(uri).to_table(), lance_io.dataset(uri)
    got = table.to_table()
    got.validate(full=True)
    assert got.schema == want.schema
    assert got.to_pylist() == want.to_pylist()
    dice = np.random.default_rng(len(name))
    for _ in range(4):
        wanted = dice.permutation(dice.integers(0, len(want), 20)).tolist()
        assert table.take(wanted).to_pylist() == want.take(wanted).to_pylist()
        start, end = sorted(dice.integers(0, len(want) + 1, 2).tolist())
        assert table.to_table(offset=start, limit=end - start).to_pylist() == want.slice(start, end - start).to_pylist()
    for column in want.column_names:
        assert table.to_table(columns=[column]).to_pylist() == want.select([column]).to_pylist()
    batches = list(table.to_batches(batch_size=50))
    assert pa.Table.from_batches(batches).to_pylist() == want.to_pylist()


def test_large_files_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces end between batches, or within batches that are larger than a piece."""
    dice = np.random.default_rng(4)
    texts = [f"text {i}" * (i % 3) for i in range(30_000)]
    rows = pa.table(
        {"i": np.arange(30_000), "s": texts, "l": [[i] * (i % 3) for i in range(30_000)], "f": dice.random(30_000)}
    )
    monkeypatch.setattr("lance_io.file.scan.batch_pieces.SCAN_JOB_BYTES", 20_000)
    for group_rows in (100, 20_000):
        uri = written(rows, tmp_path / str(group_rows), group_rows)
        table, want = lance_io.dataset(uri), lance.dataset(uri).to_table()
        assert table.to_table().equals(want)
        assert table.to_table(offset=777, limit=12_345, columns=["s", "l"]).equals(
            want.slice(777, 12_345).select(["s", "l"])
        )


def test_garbage_under_nulls_is_what_was_stored(tmp_path: Path) -> None:
    """Other writers store the slots of nulls as they are."""
    numbers = pa.Array.from_buffers(
        pa.int32(), 4, [pa.py_buffer(b"\x05"), pa.array([1, 77, 3, 88], pa.int32()).buffers()[1]]
    )
    text = pa.array(["one", "hidden", "three", "x"])
    hidden = pa.Array.from_buffers(pa.string(), 4, [pa.py_buffer(b"\x05"), *text.buffers()[1:]])
    uri = written(pa.table({"i": numbers, "s": hidden}), tmp_path / "t", 3)
    assert lance_io.dataset(uri).to_table().to_pylist() == lance.dataset(uri).to_table().to_pylist()
    assert lance_io.dataset(uri).to_table()["i"].to_pylist() == [1, 77, 3, 88]


def test_columns_added_and_dropped(tmp_path: Path) -> None:
    """Files with other ids than 0 first, and holes in page tables."""
    rows = pa.table({"a": range(50), "b": [f"b{i}" for i in range(50)], "c": [{"x": i} for i in range(50)]})
    uri = written(rows, tmp_path / "t", 16, max_rows_per_file=32)
    lance.dataset(uri).add_columns({"d": "a * 2", "e": "concat(b, '!')"})
    lance.dataset(uri).drop_columns(["b"])
    lance.dataset(uri).delete("a % 7 = 3")
    for _ in range(2):
        table, want = lance_io.dataset(uri), lance.dataset(uri).to_table()
        assert table.to_table().to_pylist() == want.to_pylist()
        assert table.take([0, 30, 7]).to_pylist() == want.take([0, 30, 7]).to_pylist()
        lance.dataset(uri).optimize.compact_files()


def test_appended_dictionaries_are_in_the_newest_manifest(tmp_path: Path) -> None:
    rows = pa.table({"d": pa.array(["a", "b", "a"]).dictionary_encode()})
    uri = written(rows, tmp_path / "t", 2)
    for _ in range(2):
        lance.write_dataset(rows, uri, mode="append")
    assert lance_io.dataset(uri).to_table()["d"].to_pylist() == ["a", "b", "a"] * 3
    assert lance_io.dataset(uri, version=1).take([1])["d"].to_pylist() == ["b"]


def test_a_dictionary_that_nobody_reads_is_refused(tmp_path: Path) -> None:
    uri = written(pa.table({"d": pa.array([1.5, 2.5]).dictionary_encode(), "i": [1, 2]}), tmp_path / "t", 2)
    with pytest.raises(ValueError, match="v1 dictionary values do not support data type"):
        lance.dataset(uri).to_table()
    with pytest.raises(UnsupportedError, match="v1 dictionary values do not support data type"):
        lance_io.dataset(uri).to_table()


def test_a_file_by_itself_is_refused(tmp_path: Path) -> None:
    written(pa.table({"i": [1, 2]}), tmp_path / "t", 2)
    (path,) = (tmp_path / "t" / "data").iterdir()
    with pytest.raises(OSError, match="v1 metadata"):
        lance.file.LanceFileReader(str(path))
    with pytest.raises(UnsupportedError, match="v1 metadata"):
        LanceFileReader(str(path))


# -- files made by hand, from the specification alone -----------------------------------------------------------------


class HandMade:
    """A file of version 0.1 without manifest and statistics."""

    def __init__(self, num_ids: int, num_batches: int) -> None:
        self.data = bytearray(b"not a page")  # nothing says that a file begins with one
        self.table = np.zeros((num_ids, num_batches, 2), "<i8")

    def page(self, field_id: int, batch: int, content: bytes, length: int) -> None:
        self.table[field_id, batch] = len(self.data), length
        self.data += content

    def texts(self, field_id: int, batch: int, values: list[bytes], *, gap: bytes = b"") -> None:
        start = len(self.data)
        self.data += b"".join(values) + gap
        offsets = start + np.cumsum([0, *map(len, values)])
        self.page(field_id, batch, offsets.astype("<i8").tobytes(), len(values))

    def finish(self, row_starts: list[int]) -> bytes:
        message = file_pb2.BatchMetadata(batch_offsets=row_starts, page_table_position=len(self.data))
        self.data += self.table.tobytes()
        position, content = len(self.data), message.SerializeToString()
        self.data += struct.pack("<I", len(content)) + content
        return bytes(self.data) + struct.pack("<QHH4s", position, 0, 2, b"LANC")


def swapped_in(uri: str, content: bytes) -> None:
    """Put a file in the place of the only one of a table, whose manifest then does not say how large it is."""
    (path,) = (lance_path(uri) / "data").iterdir()
    path.write_bytes(content)
    (manifest,) = (lance_path(uri) / "_versions").glob("*.manifest")
    data = manifest.read_bytes()
    position, major, minor, magic = struct.unpack("<qHH4s", data[-16:])
    (length,) = struct.unpack_from("<I", data, position)
    message = table_pb2.Manifest.FromString(data[position + 4 : position + 4 + length])
    message.fragments[0].files[0].file_size_bytes = 0
    changed = message.SerializeToString()
    footer = struct.pack("<qHH4s", position, major, minor, magic)
    manifest.write_bytes(data[:position] + struct.pack("<I", len(changed)) + changed + footer)


def lance_path(uri: str) -> Path:
    return Path(uri)


def i4(*values: int) -> bytes:
    return np.array(values, "<i4").tobytes()


def hand_made() -> bytes:
    made = HandMade(12, 2)
    made.page(0, 0, i4(1, 2, 3), 3)
    made.texts(1, 0, [b"x", b"", b"yz"], gap=b"between bytes and offsets")
    made.page(2, 0, bytes([0b101]), 3)
    made.page(4, 0, i4(7, 8, 9), 3)  # 3 is the struct
    made.page(5, 0, i4(0, 2, 2, 3), 4)
    made.page(6, 0, i4(10, 11, 12), 3)
    made.page(7, 0, np.arange(6, dtype="<f4").tobytes(), 3)
    made.page(8, 0, i4(0, 1, 2, 2), 4)
    made.texts(10, 0, [b"p", b"q"])  # 9 is the struct
    made.page(11, 0, i4(100, 101), 2)
    made.page(11, 1, i4(102), 1)
    made.texts(10, 1, [b""])
    made.page(8, 1, i4(0, 1), 2)
    made.page(7, 1, np.array([6, 7], "<f4").tobytes(), 1)
    made.page(6, 1, b"", 0)
    made.page(5, 1, i4(0, 0), 2)
    made.page(4, 1, i4(-1), 1)
    made.page(2, 1, bytes([1]), 1)
    made.texts(1, 1, ["é".encode()])
    made.page(0, 1, i4(4), 1)
    return made.finish([0, 3, 4])


def test_a_file_made_by_hand(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("i", pa.int32()),
            ("s", pa.string()),
            ("b", pa.bool_()),
            ("st", pa.struct([("x", pa.int32())])),
            ("l", pa.list_(pa.int32())),
            ("v", pa.list_(pa.float32(), 2)),
            ("ls", pa.list_(pa.struct([("t", pa.string()), ("n", pa.int32())]))),
        ]
    )
    row = {"i": 0, "s": "", "b": True, "st": {"x": 0}, "l": [], "v": [0, 0], "ls": []}
    uri = written(pa.Table.from_pylist([row] * 4, schema), tmp_path / "t", 3)
    swapped_in(uri, hand_made())
    want = lance.dataset(uri).to_table()
    table = lance_io.dataset(uri)
    assert table.to_table().to_pylist() == want.to_pylist()
    assert want["ls"].to_pylist()[:2] == [[{"t": "p", "n": 100}], [{"t": "q", "n": 101}]]
    assert table.take([3, 0, 2]).to_pylist() == want.take([3, 0, 2]).to_pylist()
    assert table.to_table(filter="i > 2").to_pylist() == want.slice(2).to_pylist()
    for start in range(4):
        assert table.to_table(offset=start, limit=2).to_pylist() == want.slice(start, 2).to_pylist()


def test_a_file_of_keys_and_lists_of_lists_made_by_hand(tmp_path: Path) -> None:
    """Keys whose values are in the manifest alone, a null column without a page, lists of lists by 64-bit offsets."""
    made = HandMade(5, 2)
    made.page(0, 0, np.array([2, 0, 1], "<i2").tobytes(), 3)
    made.table[1] = [(0, 3), (0, 2)]  # no bytes, wherever they are
    made.page(3, 0, i4(0, 1, 3, 3), 4)
    made.page(4, 0, i4(7, 8, 9), 3)
    made.page(2, 0, np.array([0, 2, 2, 3], "<i8").tobytes(), 4)
    made.page(2, 1, np.array([0, 0, 2], "<i8").tobytes(), 3)
    made.page(3, 1, i4(0, 0, 2), 3)
    made.page(4, 1, i4(-1, -2), 2)
    made.page(0, 1, np.array([2, 2], "<i2").tobytes(), 2)
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 0, 1], pa.int16()), pa.array(["a", "b", "c"]))
    lists = pa.array([[]] * 5, pa.large_list(pa.list_(pa.int32())))
    uri = written(pa.table({"d": words, "n": pa.nulls(5), "l": lists}), tmp_path / "t", 3)
    swapped_in(uri, made.finish([0, 3, 5]))
    table, want = lance_io.dataset(uri), lance.dataset(uri).to_table()
    assert want["d"].to_pylist() == ["c", "a", "b", "c", "c"]
    assert want["l"].to_pylist() == [[[7], [8, 9]], [], [[]], [], [[], [-1, -2]]]
    assert table.to_table().to_pylist() == want.to_pylist() and table.schema == want.schema
    assert table.take([4, 0, 2]).to_pylist() == want.take([4, 0, 2]).to_pylist()
    assert table.to_table(filter="d = 'c' and n is null").to_pylist() == want.take([0, 3, 4]).to_pylist()
    for start in range(5):
        assert table.to_table(offset=start, limit=2).to_pylist() == want.slice(start, 2).to_pylist()


@pytest.mark.parametrize("cut", [1, 15, 16, 17, 40, 300, 500])
def test_what_is_cut_off_is_told(cut: int, tmp_path: Path) -> None:
    uri = written(pa.table({"i": range(10), "s": ["x"] * 10}), tmp_path / "t", 3)
    (path,) = (tmp_path / "t" / "data").iterdir()
    content = path.read_bytes()
    path.write_bytes(content[:-cut])
    with pytest.raises(FormatError, match=path.name):
        lance_io.dataset(uri).to_table()


def test_a_number_of_rows_that_a_manifest_lacks_is_that_of_the_file(tmp_path: Path) -> None:
    uri = written(pa.table({"i": range(10)}), tmp_path / "t", 3)
    lance.dataset(uri).delete("i = 4")
    names = sorted((tmp_path / "t" / "_versions").glob("*.manifest"))
    data = names[0].read_bytes()  # the newest, by name
    position, *rest = struct.unpack("<qHH4s", data[-16:])
    (length,) = struct.unpack_from("<I", data, position)
    message = table_pb2.Manifest.FromString(data[position + 4 : position + 4 + length])
    for rows in (0, 9):  # left out; and wrong, by a release that does not give its name
        message.fragments[0].physical_rows = rows
        if rows:
            message.ClearField("writer_version")
        changed = message.SerializeToString()
        tail = struct.pack("<I", len(changed)) + changed + struct.pack("<qHH4s", position, *rest)
        names[0].write_bytes(data[:position] + tail)
        table = lance_io.dataset(uri)
        assert table.count_rows() == 9
        assert table.to_table()["i"].to_pylist() == [0, 1, 2, 3, 5, 6, 7, 8, 9]
        assert table.take([8])["i"].to_pylist() == [9]


OLD = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "peer-datasets" / "historical"


@pytest.mark.parametrize("opens", [False, True])
def test_rows_join_a_table_of_an_old_release(opens: bool, tmp_path: Path) -> None:
    """Its manifests say nothing of rows; those that follow do."""
    uri = str(tmp_path / "t")
    shutil.copytree(OLD / "0.7.5--with_deletions" / "data.lance", uri)
    before = lance.dataset(uri).to_table()
    written = lance_io.write_dataset(before, lance_io.dataset(uri) if opens else uri, mode="append")
    expected = before.to_pylist() * 2
    for table in (written, lance_io.dataset(uri), lance.dataset(uri)):
        assert table.count_rows() == len(expected)
        assert table.to_table().to_pylist() == expected
    assert written.delete("true")["num_deleted_rows"] == len(expected)
    assert all(fragment.physical_rows for fragment in lance.dataset(uri, version=written.version - 1).get_fragments())


def test_small_files_are_decoded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many files by one call, as pylance reads them; what the call refuses, as it is read otherwise."""
    count = 2000
    members = [{"x": at, "t": f"t{at}"} for at in range(count)]
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(range(3 * count), pa.int16()), 3)
    texts = pa.array([f"{at}" * (at % 4) for at in range(count)])
    flags = pa.array([at % 3 == 0 for at in range(count)])
    rows = pa.table(
        {"s": texts, "b": flags, "f": fixed, "st": members, "w": texts.cast(pa.large_binary()), "n": range(count)}
    )
    uri = written(rows, tmp_path / "t", 7, max_rows_per_file=20)
    want = lance.dataset(uri).to_table()
    files: list[Any] = []
    scan_batches = _kernels.scan_batches

    def counted(*given: Any) -> Any:
        found = scan_batches(*given)
        files.extend(found)
        return found

    monkeypatch.setattr("lance_io._kernels.scan_batches", counted)
    one_file = lance_io.dataset(uri).get_fragments()[:1]
    for name in want.column_names:  # a column of a file alone
        assert lance_io.dataset(uri).to_table(columns=[name]).equals(want.select([name]))
        assert lance_io.dataset(uri).scanner(columns=[name], fragments=one_file).to_table().num_rows == 21
    del files[:]
    assert lance_io.dataset(uri).to_table().equals(want)
    page_by_page = lance_io.dataset(uri).scanner(fragment_readahead=8)  # otherwise small files go another way
    assert page_by_page.to_table().equals(want)
    assert (len(files), None in files) == (len(list((tmp_path / "t/data").iterdir())), False)
    monkeypatch.setattr("lance_io._kernels.scan_batches", lambda files, *_: [None] * len(files))
    assert lance_io.dataset(uri).scanner(fragment_readahead=8).to_table().equals(want)


def test_damage_of_small_files_is_named(tmp_path: Path) -> None:
    """What the page table says of a page, and what its offsets are, is checked before it is used."""
    schema = pa.schema([("i", pa.int32()), ("s", pa.string())])
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"i": [1, 2], "s": ["a", "b"]}, schema=schema), uri, **LEGACY)
    faults = {
        (0, 0, 1 << 40): r'column 0 \("i"\).*batch 0',
        (0, 1, 3): r'column 0 \("i"\).*3 values in a page; the batch has 2 rows',
        (0, 1, -1): r'column 0 \("i"\).*batch 0',
        (1, 0, -8): r'column 1 \("s"\).*batch 0',
        (1, 0, 2): r'column 1 \("s"\).*batch 0',
    }
    for (field_id, part, value), text in faults.items():
        made = HandMade(2, 1)
        made.page(0, 0, i4(1, 2), 2)
        made.texts(1, 0, [b"a", b"b"])
        made.table[field_id, 0, part] = value
        swapped_in(uri, made.finish([0, 2]))
        with pytest.raises(FormatError, match=text):
            lance_io.dataset(uri).to_table()


def test_a_column_of_one_small_file(tmp_path: Path) -> None:
    """A piece that has no other one to be decoded with."""
    rows = pa.table({"i": range(3000), "s": [f"{at}" for at in range(3000)]})
    uri = written(rows, tmp_path / "t", 1000)
    for name in rows.column_names:
        assert lance_io.dataset(uri).to_table(columns=[name]).equals(rows.select([name]))


def test_small_files_of_values_of_a_few_bits(tmp_path: Path) -> None:
    """Their bytes are far below what offsets of as many rows would take."""
    rows = pa.table(
        {"flag": [n % 3 == 0 for n in range(4000)], "number": pa.array([n % 7 for n in range(4000)], pa.uint8())}
    )
    uri = written(rows, tmp_path / "t", 1000, max_rows_per_file=1000)
    for columns in (None, ["flag"], ["number"]):
        assert lance_io.dataset(uri).to_table(columns=columns).equals(lance.dataset(uri).to_table(columns=columns))
