"""Parts of nested columns, by every way to ask for some rows, are what a slice of the rows in memory is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

import lance_io
from lance_io.file import LanceFileReader, LanceFileWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PAGE_ROWS: Final = 300
NUM_ROWS: Final = 3 * PAGE_ROWS
PAGE_WORDS: Final = 80  # two pages together name more of them than indices of 8 bits can tell apart
WORD: Final = pa.dictionary(pa.int8(), pa.string())


def _pair(i: int) -> dict[str, Any] | None:
    return {"a": i, "b": f"text {i}" if i % 4 else None} if i % 7 else None


def _word(i: int) -> str | None:
    return f"word {i % PAGE_WORDS} of page {i // PAGE_ROWS}" if i % 11 else None


PAIR: Final = pa.struct([("a", pa.int32()), ("b", pa.string())])
TYPES: Final[dict[str, tuple[pa.DataType, Callable[[int], Any]]]] = {
    "struct": (PAIR, _pair),
    "struct of structs": (
        pa.struct([("p", PAIR), ("q", pa.int8())]),
        lambda i: {"p": _pair(i), "q": i % 90} if i % 5 else None,
    ),
    "list of structs": (pa.list_(PAIR), lambda i: [_pair(i + at) for at in range(i % 4)] if i % 6 else None),
    "large list of lists of structs": (
        pa.large_list(pa.list_(PAIR)),
        lambda i: [[_pair(i)] * at for at in range(i % 3)] if i % 6 else None,
    ),
    "vector of structs": (pa.list_(PAIR, 2), lambda i: [_pair(i), _pair(i + 1)]),
    "struct of vectors of structs": (
        pa.struct([("v", pa.list_(PAIR, 3)), ("w", pa.int64())]),
        lambda i: {"v": [_pair(i + at) for at in range(3)], "w": i},
    ),
    "struct of vectors": (
        pa.struct([("v", pa.list_(pa.float32(), 2)), ("w", pa.bool_())]),
        lambda i: {"v": [i, i + 0.5] if i % 3 else None, "w": bool(i % 2)},
    ),
    "map": (pa.map_(pa.string(), PAIR), lambda i: [(f"k{at}", _pair(i + at)) for at in range(i % 3)]),
    "words": (WORD, _word),
    "struct of words": (
        pa.struct([("d", WORD), ("n", pa.int16())]),
        lambda i: {"d": _word(i), "n": i} if i % 5 else None,
    ),
    "list of words": (pa.list_(WORD), lambda i: [_word(i)] * (i % 3) if i % 5 else None),
    "list of structs of words": (
        pa.list_(pa.struct([("d", WORD), ("n", pa.int16())])),
        lambda i: [{"d": _word(i), "n": at} for at in range(i % 3)],
    ),
    "map of words": (pa.map_(pa.int32(), WORD), lambda i: [(at, _word(i)) for at in range(i % 3)]),
}
SPANS: Final = [(0, 900), (1, 899), (5, 294), (299, 2), (200, 101), (285, 330), (303, 597), (899, 1), (30, 0)]


def _rows(name: str, first: int, count: int) -> pa.RecordBatch:
    dtype, value = TYPES[name]
    return pa.record_batch({"id": pa.array(range(first, first + count)), "c": _array(dtype, value, first, count)})


def _array(dtype: pa.DataType, value: Callable[[int], Any], first: int, count: int) -> pa.Array:
    return pa.array([value(i) for i in range(first, first + count)], dtype)


@pytest.fixture(scope="module", params=TYPES)
def column(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """A file of three pages a column, a table of two fragments that has lost some rows, and the values."""
    name, folder = request.param, tmp_path_factory.mktemp("nested")
    pages = [_rows(name, first, PAGE_ROWS) for first in range(0, NUM_ROWS, PAGE_ROWS)]
    with LanceFileWriter(folder / "c.lance", pages[0].schema, data_cache_bytes=1, version="2.2") as writer:
        for page in pages:
            writer.write_batch(page)
    assert all(len(one.pages) == 3 for one in LanceFileReader(folder / "c.lance").metadata().columns)
    for page in pages[:2]:
        lance_io.write_dataset(pa.Table.from_batches([page]), folder / "t", mode="append", data_storage_version="2.2")
    lance_io.dataset(folder / "t").delete("id < 3 or id = 50 or id in (300, 305)")
    return folder, [value for page in pages for value in page["c"].to_pylist()]


@pytest.mark.parametrize("batch_size", [7, 100])
def test_ranges_of_a_file(column: tuple[Path, list[Any]], batch_size: int) -> None:
    folder, values = column
    reader = LanceFileReader(folder / "c.lance")
    for start, count in SPANS:
        found = reader.read_range(start, count, batch_size=batch_size).to_table()
        found.validate(full=True)
        assert found["c"].to_pylist() == values[start : start + count], (start, count)
        assert found["id"].to_pylist() == list(range(start, start + count))


def test_rows_of_a_file(column: tuple[Path, list[Any]]) -> None:
    folder, values = column
    reader = LanceFileReader(folder / "c.lance")
    for rows in ([3, 298, 299, 300, 301, 898], [899], [*range(2, 60), *range(310, 860, 11)]):
        assert reader.take_rows(rows).to_table()["c"].to_pylist() == [values[row] for row in rows]


def test_offsets_of_a_table(column: tuple[Path, list[Any]]) -> None:
    folder, values = column
    table = lance_io.dataset(folder / "t")
    live = [i for i in range(2 * PAGE_ROWS) if i >= 3 and i not in (50, 300, 305)]
    for offset, limit in [(1, None), (100, None), (40, 60), (0, 5), (570, 100), (290, 13)]:
        expected = [values[i] for i in live[offset:][:limit]]
        for batch_size in (10, 1024):
            found = table.to_table(offset=offset, limit=limit, batch_size=batch_size)
            found.validate(full=True)
            assert found["c"].to_pylist() == expected, (offset, limit, batch_size)
    assert table.take([0, 295, 296, 593])["c"].to_pylist() == [values[live[at]] for at in (0, 295, 296, 593)]
