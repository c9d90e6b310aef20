"""Pages are looked into when they are touched: what a damaged page costs those who need it, and those who do not.

The file is written by pylance, one page for each batch; one page of one column is then damaged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from lance.file import LanceFileWriter

from lance_io.encodings.registry import open_page
from lance_io.errors import FormatError, UnsupportedError
from lance_io.file import LanceFileReader
from lance_io.format.lazy import LazySequence
from tests.fuzz.anatomy import Anatomy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
        page.buffer_offsets for page in files[0].column(0).info.pages
    ]
    fresh = open_page(files[0].version, files[0].column(0).info.pages[1], files[0].paths[0])
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
