"""What the campaign found, each as the smallest file that shows it: fields that contradict others are refused."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io import limits
from lance_io.errors import FormatError, UnsupportedError
from lance_io.file import LanceFileReader, LanceFileWriter
from lance_io.proto import table_pb2
from tests.encodings.harness import write
from tests.fuzz.anatomy import Anatomy
from tests.fuzz.damage import MANIFEST_FOOTER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lance_io.proto import encodings21_pb2 as pb

FULL_ZIP = {"lance-encoding:structural-encoding": "fullzip"}
LISTS = pa.array([[1, None], None, [], [4]] * 20, pa.list_(pa.int32()))
NUMBERS = pa.array([1, None, 3, 4] * 50, pa.int64())
TEXTS = pa.array([f"word{i % 7} of a dictionary" for i in range(400)])
PACKED_ROWS = pa.array([{"a": i, "t": "x" * i} for i in range(50)])
NULLS = pa.array([[None], None, [], [None, None]] * 100, pa.list_(pa.int32()))


def damaged(
    folder: Path,
    array: pa.Array,
    change: Callable[[pb.PageLayout], object],
    metadata: dict[str, str] | None = None,
    version: str = "2.1",
) -> str:
    """A file of one column whose first page has another layout message; its path."""
    path = folder / "one.lance"
    write(path, pa.table([array], schema=pa.schema([pa.field("c", array.type, metadata=metadata)])), version)
    parts = Anatomy(path.read_bytes())
    layout = parts.layout(0, 0)
    change(layout)
    parts.set_layout(0, 0, layout)
    path.write_bytes(parts.together())
    return str(path)


def assert_refused(path: str, match: str, kind: type[Exception] = FormatError) -> None:
    """By every way of reading, with the place in the message."""
    reader = LanceFileReader(path)
    for read in (lambda: reader.read_all().to_table(), lambda: reader.take_rows([0]).to_table()):
        with pytest.raises(kind, match=match) as caught:
            read()
        assert "column 0" in str(caught.value) and "page 0" in str(caught.value)


def test_full_zip_entries_and_items_are_counted(tmp_path: Path) -> None:
    for name, number in (("num_items", 5), ("num_items", 10**6), ("num_visible_items", 3), ("num_visible_items", 0)):
        for array in (LISTS, NUMBERS, TEXTS):
            path = damaged(tmp_path, array, lambda m, n=name, v=number: setattr(m.full_zip_layout, n, v), FULL_ZIP)
            assert_refused(path, "entries")


def test_full_zip_values_are_of_a_codec_that_can_be_zipped(tmp_path: Path) -> None:
    def with_lengths(layout: pb.PageLayout) -> None:
        layout.full_zip_layout.bits_per_offset = 32

    def of_one_width(layout: pb.PageLayout) -> None:
        layout.full_zip_layout.bits_per_value = 128

    def compressed(layout: pb.PageLayout) -> None:
        values = layout.full_zip_layout.value_compression
        inner = type(values)()
        inner.CopyFrom(values)
        values.general.values.CopyFrom(inner)
        values.general.compression.scheme = 2

    numbers, texts = pa.array(range(200), pa.int64()), pa.array([f"{i}" * 300 for i in range(200)])
    for version, array, metadata, change in (
        ("2.1", numbers, FULL_ZIP, with_lengths),
        ("2.1", numbers, FULL_ZIP, compressed),
        ("2.2", texts, FULL_ZIP, of_one_width),
        ("2.2", PACKED_ROWS, {"packed": "true"}, of_one_width),
        ("2.2", PACKED_ROWS, {"packed": "true"}, compressed),
    ):
        assert_refused(damaged(tmp_path, array, change, metadata, version), "full-zip (page|values)")


def test_full_zip_items_of_variable_width_are_counted_by_scans(tmp_path: Path) -> None:
    texts = pa.array([["a" * 400, "b" * 300], None, ["c" * 700]] * 30)  # long ones are zipped
    path = damaged(
        tmp_path,
        texts,
        lambda m: setattr(m.full_zip_layout, "num_visible_items", m.full_zip_layout.num_visible_items - 1),
    )
    with pytest.raises(FormatError, match="items found"):
        LanceFileReader(path).read_all().to_table()


@pytest.mark.parametrize("name", ["bits_rep", "bits_def"])
def test_control_words_have_no_more_bits_than_levels(tmp_path: Path, name: str) -> None:
    path = damaged(tmp_path, LISTS, lambda m: setattr(m.full_zip_layout, name, 3), FULL_ZIP)
    assert_refused(path, "control words")


def test_a_dictionary_is_not_counted_without_one(tmp_path: Path) -> None:
    path = damaged(tmp_path, NUMBERS, lambda m: setattr(m.mini_block_layout, "num_dictionary_items", 7))
    assert_refused(path, "without a dictionary")


def test_nullable_layers_need_definition_levels(tmp_path: Path) -> None:
    path = damaged(tmp_path, pa.array(range(200)), lambda m: m.mini_block_layout.layers.__setitem__(0, 3))
    assert_refused(path, "contradict each other")


def test_pages_of_different_lists_are_named(tmp_path: Path) -> None:
    """Each leaf of a list of structs holds the lists' lengths; here a page of the second leaf has others."""
    kind = pa.list_(pa.list_(pa.struct([("x", pa.int32()), ("y", pa.int32())])))
    items = [{"x": 1, "y": 2}, {"x": 3, "y": 4}]
    others = {"apart": [[items[:1], items[1:]]], "together": [[items]]}
    parts = {}
    for name, rows in others.items():
        lists = pa.array([*rows * 20, *[None] * 10, *rows * 20], kind)
        write(tmp_path / name, pa.table({"a": range(50), "c": lists}), "2.1")
        parts[name] = Anatomy((tmp_path / name).read_bytes())
    first, second = parts["apart"], parts["together"]
    page, other = first.columns[2].pages[0], second.columns[2].pages[0]
    page.CopyFrom(other)
    for at, (start, size) in enumerate(zip(other.buffer_offsets, other.buffer_sizes, strict=True)):
        first.body += bytes(-len(first.body) % 64)
        page.buffer_offsets[at] = len(first.body)
        first.body += second.body[start : start + size]
    path = tmp_path / "mixed.lance"
    path.write_bytes(first.together())
    reader = LanceFileReader(str(path))
    ways = (
        lambda: reader.read_all().to_table(),
        lambda: list(reader.read_all(batch_size=7).to_batches()),
        lambda: reader.take_rows([0, 3]).to_table(),
    )
    for read in ways:
        with pytest.raises(FormatError, match="disagree about the number of list items") as caught:
            read()
        assert str(path) in str(caught.value)
        for place in ('column 1 ("c.item.item.x"), page 0', 'column 2 ("c.item.item.y"), page 0'):
            assert place in str(caught.value)


@pytest.mark.parametrize("name", ["rep_compression", "def_compression"])
def test_levels_of_constant_pages_are_not_counted_without_their_codec(tmp_path: Path, name: str) -> None:
    path = damaged(tmp_path, NULLS, lambda m: m.constant_layout.ClearField(name), version="2.2")
    assert_refused(path, "levels announced")


def test_codecs_of_the_levels_of_constant_pages_are_named_with_their_page(tmp_path: Path) -> None:
    def change(layout: pb.PageLayout) -> None:
        layout.constant_layout.def_compression.Clear()

    path = damaged(tmp_path, NULLS, change, version="2.2")
    assert_refused(path, "codec message without a codec")
    with pytest.raises(FormatError, match=r"column 0.*page 0"):
        LanceFileReader(path).metadata()


def test_unsupported_pages_are_named(tmp_path: Path) -> None:
    array = pa.array([random.Random(i).randbytes(4).hex() * 40 for i in range(400)])
    zstd = {"lance-encoding:compression": "zstd"}

    def other_scheme(layout: pb.PageLayout) -> None:
        layout.full_zip_layout.value_compression.general.compression.scheme = 0

    assert_refused(damaged(tmp_path, array, other_scheme, zstd), "scheme 0", UnsupportedError)


@pytest.mark.parametrize(
    ("at", "byte", "match"),
    [(3, 2, "begins with"), (5, 0, "begins with"), (-1, 9, "symbol of 9 bytes"), (-1, 0, "symbol of 0 bytes")],
)
def test_symbol_tables_are_looked_at_before_they_are_used(tmp_path: Path, at: int, byte: int, match: str) -> None:
    texts = pa.array([f"the same words again and again, number {i}" for i in range(3000)])

    def change(layout: pb.PageLayout) -> None:
        fsst = layout.mini_block_layout.value_compression.fsst
        table = bytearray(fsst.symbol_table)
        table[at if at > 0 else 8 + 9 * table[0] + at] = byte
        fsst.symbol_table = bytes(table)

    assert_refused(damaged(tmp_path, texts, change), f"FSST symbol.*{match}" if at > 0 else match)


@pytest.mark.parametrize("compression", ["none", "zstd", "lz4"])
@pytest.mark.parametrize("adjustment", [(1 << 64) - 1, 1 << 63, (1 << 63) + 1])
def test_strings_of_2_0_take_no_more_bytes_than_an_offset_can_name(
    tmp_path: Path, compression: str, adjustment: int
) -> None:
    texts = pa.array([f"number {i}, and so on" for i in range(900)])

    def change(layout: Any) -> None:
        layout.binary.null_adjustment = adjustment

    path = damaged(tmp_path, texts, change, {"lance-encoding:compression": compression}, "2.0")
    assert_refused(path, "values take")


def test_a_dictionary_fills_its_buffer(tmp_path: Path) -> None:
    path = tmp_path / "one.lance"
    write(path, pa.table({"c": TEXTS}), "2.1")
    parts = Anatomy(path.read_bytes())
    parts.columns[0].pages[0].buffer_sizes[2] += 8
    path.write_bytes(parts.together())
    assert_refused(str(path), "dictionary offsets run")


STRUCTS = pa.array([[{"x": i}, {"x": -i}] for i in range(90)], pa.list_(pa.struct([("x", pa.int64())]), 2))


@pytest.mark.parametrize("array", [pa.array(range(90)), LISTS[:40], STRUCTS], ids=["int", "list", "vectors"])
def test_the_first_row_that_a_page_notes_is_the_one_it_has(tmp_path: Path, array: pa.Array) -> None:
    path, rows = tmp_path / "pages.lance", len(array) // 2
    with LanceFileWriter(path, pa.schema([("c", array.type)]), version="2.2", data_cache_bytes=1) as writer:
        for half in (array[:rows], array[rows:]):
            writer.write_batch(pa.table({"c": pa.concat_arrays([half])}))
    parts = Anatomy(path.read_bytes())
    pages = parts.columns[0].pages
    assert [page.priority for page in pages] == [0, rows]
    for number, wrong in ((0, 1), (1, rows + 1), (1, 2 * rows)):
        pages[number].priority, kept = wrong, pages[number].priority
        path.write_bytes(parts.together())
        with pytest.raises(FormatError, match=rf"column 0 .*page {number}: first row {wrong} noted"):
            LanceFileReader(path).read_all().to_table()
        pages[number].priority = kept
    pages[1].priority = 0
    path.write_bytes(parts.together())
    assert LanceFileReader(path).read_all().to_table()["c"].combine_chunks().equals(array), "0 is not said"


def test_an_index_may_be_too_narrow_for_the_bytes_that_a_page_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cutting a page into pieces compares its bytes with entries that cannot hold them."""
    monkeypatch.setattr(limits, "SCAN_PIECE_BYTES", 100)
    path, texts = tmp_path / "one.lance", pa.array([f"{i:40}" for i in range(90)])
    write(path, pa.table([texts], schema=pa.schema([pa.field("c", pa.string(), metadata=FULL_ZIP)])), "2.1")
    parts = Anatomy(path.read_bytes())
    page = parts.columns[0].pages[0]
    assert page.buffer_sizes[0] > 255 and page.buffer_sizes[1] == 2 * 91
    page.buffer_sizes[1] = 91
    path.write_bytes(parts.together())
    with pytest.raises(FormatError, match=r"column 0 .*page 0"):
        LanceFileReader(path).read_all().to_table()


def test_a_column_of_another_nesting_is_refused(tmp_path: Path) -> None:
    """Two leaf columns of one type, one inside a list, in each other's place."""
    whole = tmp_path / "swapped.lance"
    lance.write_dataset(pa.table({"i": range(8), "l": [[n] * (n % 3) for n in range(8)]}), whole)
    change_manifest(whole, lambda m: m.fragments[0].files[0].column_indices.reverse())
    for read in (lambda d: d.to_table(), lambda d: d.take([0]), lambda d: d.to_table(columns=["i"])):
        with pytest.raises(FormatError, match=r"column \d"):
            read(lance_io.dataset(str(whole)))


def test_fragments_of_one_id_have_no_row_ids(tmp_path: Path) -> None:
    whole = tmp_path / "twice.lance"
    lance.write_dataset(pa.table({"i": range(8)}), whole, max_rows_per_file=4, enable_stable_row_ids=True)
    change_manifest(whole, lambda m: setattr(m.fragments[1], "id", 0))
    with pytest.raises(FormatError, match="two fragments have the same id"):
        lance_io.dataset(str(whole))


def test_rows_of_which_no_column_is_read_are_not_believed_blindly(tmp_path: Path) -> None:
    """Their numbers alone would fill memory; a file of constant columns may have so many."""
    whole, many = tmp_path / "few.lance", tmp_path / "many.lance"
    lance.write_dataset(pa.table({"i": range(8)}), whole)
    change_manifest(whole, lambda m: setattr(m.fragments[0], "physical_rows", 15_000_000))
    with pytest.raises(FormatError, match="the file has 8 rows"):
        lance_io.dataset(str(whole)).to_table(columns=[], with_row_id=True)
    num_rows = 3_000_000
    lance.write_dataset(pa.table({"i": np.zeros(num_rows, np.int64)}), many, max_rows_per_file=num_rows)
    numbers = lance_io.dataset(str(many)).to_table(columns=[], with_row_id=True)["_rowid"].to_numpy()
    assert np.array_equal(numbers, np.arange(num_rows))


def test_rows_of_a_fragment_that_does_not_say_them_are_those_of_its_file(tmp_path: Path) -> None:
    whole = tmp_path / "untold.lance"
    lance.write_dataset(pa.table({"i": range(12)}), whole, max_rows_per_file=4)
    change_manifest(whole, lambda m: m.fragments[2].ClearField("physical_rows"))
    for table in (lance_io.dataset(str(whole)), lance.dataset(whole)):
        assert table.count_rows() == 12
        assert table.to_table()["i"].to_pylist() == list(range(12))
    change_manifest(whole, lambda m: m.fragments[2].ClearField("files"))
    with pytest.raises(UnsupportedError, match="fragment 2 does not say how many rows it has"):
        lance_io.dataset(str(whole)).count_rows()


def change_manifest(whole: Path, change: Callable[[table_pb2.Manifest], object]) -> None:
    """Another manifest message in the newest version of a table."""
    path = min((whole / "_versions").glob("*.manifest"))
    data = path.read_bytes()
    position, *rest = MANIFEST_FOOTER.unpack_from(data, len(data) - MANIFEST_FOOTER.size)
    (length,) = struct.unpack_from("<I", data, position)
    message = table_pb2.Manifest.FromString(data[position + 4 : position + 4 + length])
    change(message)
    content = message.SerializeToString()
    head = data[:position] + struct.pack("<I", len(content)) + content
    path.write_bytes(head + MANIFEST_FOOTER.pack(position, *rest))
