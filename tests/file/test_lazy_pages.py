"""Pages are looked into when they are touched: what a damaged page costs those who need it, and those who do not.

The file is written by pylance, one page for each batch; one page of one column is then damaged.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from lance.file import LanceFileReader as TheirReader
from lance.file import LanceFileWriter

from lance_io.encodings.open_page import PAGE_LAYOUT_MESSAGE, open_page
from lance_io.encodings.v2_1.miniblock import symbols_at
from lance_io.errors import FormatError, UnsupportedError
from lance_io.file import LanceFileReader
from lance_io.file.open import column_pages as columnpages
from lance_io.file.open import open_file as opening
from lance_io.format.columns import LazySequence, PageInfo
from lance_io.format.schema import Field
from lance_io.format.version import V2_1
from lance_io.levels.path import leaf_paths
from lance_io.proto import encodings21_pb2 as pb
from tests.fuzz.anatomy import Anatomy

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE_ROWS = 1000
NUM_PAGES = 4
DAMAGED = 2
TABLE = pa.table(
    {
        "number": pa.array(range(PAGE_ROWS * NUM_PAGES), pa.int64()),
        "items": pa.array([list(range(i % 4)) for i in range(PAGE_ROWS * NUM_PAGES)], pa.list_(pa.int32())),
    }
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("lazy") / "f.lance"
    with LanceFileWriter(str(path), TABLE.schema, version="2.2", data_cache_bytes=1000) as writer:
        for batch in TABLE.to_batches(max_chunksize=PAGE_ROWS):
            writer.write_batch(batch)
    parts = Anatomy(path.read_bytes())
    assert [len(column.pages) for column in parts.columns] == [NUM_PAGES, NUM_PAGES]
    return path.read_bytes()


def damaged(data: bytes, folder: Path, edit: Callable[[Any], object]) -> str:
    """A file whose page `DAMAGED` of column 1 has a changed message."""
    parts = Anatomy(data)
    edit(parts.columns[1].pages[DAMAGED])
    path = folder / "damaged.lance"
    path.write_bytes(parts.together())
    return str(path)


DAMAGES: list[tuple[Callable[[Any], object], type[Exception], str]] = [
    (lambda page: page.buffer_sizes.pop(), FormatError, "buffer offsets, but"),
    (lambda page: page.buffer_offsets.__setitem__(0, 63), FormatError, "not aligned"),
    (lambda page: page.ClearField("encoding"), FormatError, "encoding is missing"),
    (lambda page: page.encoding.indirect.SetInParent(), UnsupportedError, "indirect"),
    (lambda page: setattr(page.encoding.direct, "encoding", b"\xff"), FormatError, "protobuf"),
    (lambda page: setattr(page, "priority", 1 << 63), FormatError, "first row"),
]


@pytest.mark.parametrize(("edit", "error", "words"), DAMAGES)
def test_a_damaged_page_is_told_by_whoever_touches_it(
    data: bytes, tmp_path: Path, edit: Callable[[Any], object], error: type[Exception], words: str
) -> None:
    reader = LanceFileReader(damaged(data, tmp_path, edit))
    beside = [0, DAMAGED * PAGE_ROWS - 1, (DAMAGED + 1) * PAGE_ROWS, TABLE.num_rows - 1]
    assert reader.take_rows(beside).to_table() == TABLE.take(beside)
    assert reader.read_range(0, PAGE_ROWS).to_table() == TABLE.slice(0, PAGE_ROWS)
    for read in (
        lambda: reader.take_rows([0, DAMAGED * PAGE_ROWS]).to_table(),
        lambda: reader.read_range((DAMAGED + 1) * PAGE_ROWS - 1, 2).to_table(),
        lambda: reader.read_all().to_table(),
        reader.metadata,
    ):
        with pytest.raises(error, match=words) as found:
            read()
        assert f"page {DAMAGED}" in str(found.value)
        assert "column 1" in str(found.value)
        assert "damaged.lance" in str(found.value)


@pytest.mark.parametrize("length", [PAGE_ROWS - 1, PAGE_ROWS + 1, 1 << 33])
def test_lengths_are_checked_when_the_column_is_opened(data: bytes, tmp_path: Path, length: int) -> None:
    reader = LanceFileReader(damaged(data, tmp_path, lambda page: setattr(page, "length", length)))
    with pytest.raises(FormatError, match="column 1"):
        reader.take_rows([0]).to_table()


def test_pages_that_differ_in_place_share_their_layout(data: bytes, tmp_path: Path) -> None:
    files: list[Any] = []
    for name in ("a", "b"):
        path = tmp_path / name
        path.write_bytes(data)
        files.append(LanceFileReader(str(path))._access.file)
    first, second, elsewhere = files[0].column(0).pages[0], files[0].column(0).pages[1], files[1].column(0).pages[0]
    assert first.codec is second.codec is elsewhere.codec
    assert first.program is second.program is elsewhere.program
    assert first.source.buffer_offsets == elsewhere.source.buffer_offsets != second.source.buffer_offsets
    assert [page.source.buffer_offsets for page in files[0].column(0).pages] == [
        page.buffer_offsets for page in files[0].info(0).pages
    ]
    fresh = open_page(files[0].version, files[0].info(0).pages[1], files[0].paths[0])
    assert {name: repr(value) for name, value in vars(fresh).items()} == {
        name: repr(value) for name, value in vars(second).items()
    }
    assert LanceFileReader(str(tmp_path / "b")).read_all().to_table() == TABLE


def test_items_are_made_once_and_when_asked_for() -> None:
    made: list[int] = []

    def make(number: int) -> str:
        made.append(number)
        if number == 2:
            raise FormatError("damaged")
        return "abcd"[number]

    items = LazySequence(4, make)
    assert (len(items), made) == (4, [])
    assert (items[1], items[-1], items[1]) == ("b", "d", "b")
    assert made == [1, 3]
    assert items[:2] == ["a", "b"]
    for _ in range(2):
        with pytest.raises(FormatError, match="damaged"):
            list(items)
    assert made == [1, 3, 0, 2, 2]
    with pytest.raises(IndexError):
        items[4]


def string_files(folder: Path, seeds: range) -> list[str]:
    """Files of one page of strings each, with symbols of their own."""
    uris = []
    for seed in seeds:
        rng = random.Random(seed)
        words = ["".join(rng.choices("abcdefgh" if seed % 2 else "qrstuvw", k=6)) for _ in range(40)]
        texts = [" ".join(rng.choices(words, k=8)) for _ in range(PAGE_ROWS)]
        uris.append(str(folder / f"{seed}.lance"))
        with LanceFileWriter(uris[-1], pa.schema([("text", pa.string())]), version="2.1") as writer:
            writer.write_batch(pa.record_batch({"text": texts}))
    return uris


def test_layouts_that_differ_in_their_symbols_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def counted(*arguments: Any) -> Any:
        made.append(open_page(*arguments))
        return made[-1]

    monkeypatch.setattr(columnpages, "open_page", counted)
    opening._small_schema.cache_clear()  # what other tests have read is forgotten
    uris = string_files(tmp_path, range(6))
    readers: list[Any] = [LanceFileReader(uri) for uri in uris]
    files = [reader._access.file for reader in readers]
    symbols = set()
    for file, reader, uri in zip(files, readers, uris, strict=True):
        page = file.column(0).pages[0]
        fresh: Any = open_page(file.version, file.info(0).pages[0], file.paths[0])
        assert {name: repr(value) for name, value in vars(fresh).items()} == {
            name: repr(value) for name, value in vars(page).items()
        }
        assert page.program == fresh.program
        symbols.add(page.codec.symbol_table)
        assert reader.read_all().to_table() == TheirReader(uri).read_all().to_table()
    assert len(symbols) == len(files)
    lengths = {len(file.info(0).pages[0].encoding) for file in files}
    assert len(made) == len(lengths) < len(files)


@pytest.mark.parametrize("at", [3, 4, 8 + 8 * 255])
def test_damaged_symbols_are_told_beside_good_ones(tmp_path: Path, at: int) -> None:
    """In a file that is opened behind another one of the same layout."""
    good, bad = string_files(tmp_path, range(2))
    parts = Anatomy(Path(bad).read_bytes())
    page = parts.columns[0].pages[0]
    encoding = page.encoding.direct.encoding
    start = encoding.index(b"TSSF") - 4
    count = encoding[start]
    at = at if at < 8 else 8 + 8 * count
    page.encoding.direct.encoding = encoding[: start + at] + b"\x77" + encoding[start + at + 1 :]
    Path(bad).write_bytes(parts.together())
    with pytest.raises(FormatError) as alone:
        LanceFileReader(bad).read_all().to_table()
    LanceFileReader(good).read_all().to_table()
    with pytest.raises(FormatError) as behind:
        LanceFileReader(bad).read_all().to_table()
    assert str(alone.value) == str(behind.value)
    assert "FSST symbol" in str(alone.value)


def test_a_message_that_has_the_symbols_twice_is_read_by_itself() -> None:
    """Where they were taken from the wrong place, a page would be read with those of another."""
    symbols = bytes([0, 0, 0, 1]) + b"TSSF" + bytes(2304)
    layout = pb.PageLayout()
    mini = layout.mini_block_layout
    mini.num_buffers, mini.num_items = 1, 5
    mini.layers.append(1)
    coded = mini.value_compression.fsst
    coded.symbol_table = symbols
    coded.values.variable.offsets.flat.bits_per_value = 32
    path = leaf_paths(Field(0, "text", "string"))[0]
    for before, expected in ((b"", True), (b"\x8a\x7d\x88\x12" + symbols, False)):
        encoding = before + layout.SerializeToString()
        info = PageInfo((0, 64), (2, 8), 5, 0, PAGE_LAYOUT_MESSAGE, encoding)
        page: Any = open_page(V2_1, info, path)
        assert (symbols_at(encoding, page) is not None) is expected
