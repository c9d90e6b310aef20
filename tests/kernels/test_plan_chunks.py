"""Chunk metadata, repetition indexes and the chunks that hold rows, against definitions spelled out level by level."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io._kernels import (
    DamagedError,
    fullzip_bounds,
    fullzip_pairs,
    plan_chunks,
)
from tests.kernels.pages import chunk_table, repetition_table

BASE = 1000


def i64(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, dtype=np.int64)


def ints(buffer: Any) -> list[int]:
    values: list[int] = np.frombuffer(buffer, np.int64).tolist()
    return values


def words(*chunks: tuple[int, int], wide: bool = False) -> np.ndarray[Any, Any]:
    """Metadata words of (bytes, log2 of the values)."""
    return np.array([(size // 8 - 1) << 4 | log2 for size, log2 in chunks], dtype="<u4" if wide else "<u2")


# -- chunk_table ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wide", [False, True])
def test_chunk_table_adds_up(wide: bool) -> None:
    table = chunk_table(words((2048, 10), (8, 1), (32768, 15), (16, 0), wide=wide), wide, 33799, 34840)
    assert [ints(part) for part in table] == [[0, 2048, 2056, 34824, 34840], [0, 1024, 1026, 33794, 33799]]


def test_chunk_table_of_wide_sizes() -> None:
    assert ints(chunk_table(words((1 << 31, 0), wide=True), True, 5, 1 << 31)[0]) == [0, 1 << 31]


def test_chunk_table_of_nothing() -> None:
    assert [ints(part) for part in chunk_table(b"", False, 0, 0)] == [[0], [0]]


@pytest.mark.parametrize("log2", [0, 3])
def test_the_last_chunk_may_tell_its_values_or_not(log2: int) -> None:
    assert ints(chunk_table(words((8, 1), (8, log2)), False, 10, 16)[1]) == [0, 2, 10]


@pytest.mark.parametrize(
    ("chunks", "num_items", "chunks_bytes", "text"),
    [
        ([(8, 1), (8, 2)], 10, 16, "last chunk 1: log2 of its values is 2, but 8 items are left"),
        ([(8, 4), (8, 0)], 10, 16, "-6 items are left"),
        ([(8, 0), (8, 0)], 10, 16, "chunk 0 of 2: one value"),
        ([(8, 1), (8, 0)], 10, 24, "2 chunks add up to 16 bytes, their buffer has 24"),
        ([], 10, 0, "no chunks for 10 items"),
    ],
)
def test_chunk_table_refuses(chunks: list[tuple[int, int]], num_items: int, chunks_bytes: int, text: str) -> None:
    with pytest.raises(DamagedError, match=text):
        chunk_table(words(*chunks), False, num_items, chunks_bytes)


def test_chunk_table_refuses_half_a_word() -> None:
    with pytest.raises(DamagedError, match="words of 4 bytes, found 6 bytes"):
        chunk_table(bytes(6), True, 1, 8)


# -- repetition_table ----------------------------------------------------------------------------------------------


def pairs(*entries: tuple[int, int]) -> np.ndarray[Any, Any]:
    return np.array(entries, dtype="<u8").reshape(-1, 2)


@pytest.mark.parametrize(
    ("entries", "num_rows", "text"),
    [
        ([(3, 0)], 4, "3 rows end in 1 chunks, the page has 4"),
        ([(5, 0)], 4, "5 rows end here after 0 others, the page has 4"),
        ([(2**64 - 1, 0), (2, 0)], 4, "rows end here after 0 others"),
        ([(1, 0), (2**64 - 1, 0)], 4, "rows end here after 1 others"),
        ([(3, 2)], 3, "the last chunk of 1 leaves a row unfinished"),
        ([(0, 0), (3, 0)], 3, "chunk 0: no row ends here and none goes on"),
    ],
)
def test_repetition_table_refuses(entries: list[tuple[int, int]], num_rows: int, text: str) -> None:
    with pytest.raises(DamagedError, match=text):
        repetition_table(pairs(*entries), len(entries), num_rows)


def test_repetition_table_refuses_a_wrong_number_of_chunks() -> None:
    with pytest.raises(DamagedError, match="has 32 bytes, expected 16 for each of 3 chunks"):
        repetition_table(pairs((1, 0), (1, 0)), 3, 2)


@st.composite
def cut_rows(draw: st.DrawFn) -> tuple[list[list[int]], int]:
    """Rows of one or more levels cut into chunks anywhere: the row of every level, chunk by chunk."""
    lengths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=25))
    level_rows = [row for row, length in enumerate(lengths) for _ in range(length)]
    cuts = sorted(draw(st.sets(st.integers(1, len(level_rows) - 1), max_size=12))) if len(level_rows) > 1 else []
    bounds = [0, *cuts, len(level_rows)]
    chunks = [level_rows[start:end] for start, end in pairwise(bounds)]
    return chunks, len(lengths)


def index_of(chunks: list[list[int]]) -> np.ndarray[Any, Any]:
    """The repetition index of these chunks, by its definition: rows that end, levels left over."""
    entries = []
    for number, chunk in enumerate(chunks):
        unfinished = number + 1 < len(chunks) and chunks[number + 1][0] == chunk[-1]
        ended = {row for row in chunk if not unfinished or row != chunk[-1]}
        entries.append((len(ended), chunk.count(chunk[-1]) if unfinished else 0))
    return pairs(*entries)


@settings(max_examples=300, deadline=None)
@given(page=cut_rows(), data=st.data())
def test_rows_that_span_chunks(page: tuple[list[list[int]], int], data: st.DataObject) -> None:
    chunks, num_rows = page
    row_starts, preamble = repetition_table(index_of(chunks), len(chunks), num_rows)
    before = [chunks[number - 1][-1] if number else -1 for number in range(len(chunks))]
    assert list(memoryview(preamble)) == [chunk[0] == last for chunk, last in zip(chunks, before, strict=True)]
    assert ints(row_starts) == [last + 1 for last in before] + [num_rows]

    sizes = data.draw(st.lists(st.integers(1, 50), min_size=len(chunks), max_size=len(chunks)))
    offsets = np.cumsum([0, *sizes])
    starts, ends = data.draw(row_ranges(num_rows))
    wanted = {row for start, end in zip(starts, ends, strict=True) for row in range(start, end)}
    expected = [number for number, chunk in enumerate(chunks) if wanted & set(chunk)]
    check_plan(plan_chunks(i64(*starts), i64(*ends), offsets, row_starts, preamble, BASE), expected, offsets)
    check_plan(plan_chunks(i64(*sorted(wanted)), None, offsets, row_starts, preamble, BASE), expected, offsets)


@settings(max_examples=200, deadline=None)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=30), data=st.data())
def test_rows_that_are_items(sizes: list[int], data: st.DataObject) -> None:
    item_starts = np.cumsum([0, *sizes])
    offsets = item_starts * 8
    starts, ends = data.draw(row_ranges(int(item_starts[-1])))
    wanted = [row for start, end in zip(starts, ends, strict=True) for row in range(start, end)]
    expected = sorted({int(np.searchsorted(item_starts, row, side="right")) - 1 for row in wanted})
    check_plan(plan_chunks(i64(*starts), i64(*ends), offsets, item_starts, None, BASE), expected, offsets)
    check_plan(plan_chunks(i64(*wanted), None, offsets, item_starts, None, BASE), expected, offsets)


@st.composite
def row_ranges(draw: st.DrawFn, num_rows: int) -> tuple[list[int], list[int]]:
    """Ascending, disjoint ranges, some of them empty."""
    bounds = sorted(draw(st.lists(st.integers(0, num_rows), max_size=12)))
    bounds = bounds[: len(bounds) // 2 * 2]
    return bounds[::2], bounds[1::2]


def check_plan(plan: tuple[Any, ...], expected: list[int], offsets: np.ndarray[Any, Any]) -> None:
    chunk_ids, range_firsts, range_starts, range_ends = map(ints, plan)
    assert chunk_ids == expected
    runs = np.split(np.array(expected), np.flatnonzero(np.diff(expected) > 1) + 1) if expected else []
    assert range_firsts == [expected.index(run[0]) for run in runs]
    assert range_starts == [BASE + offsets[run[0]] for run in runs]
    assert range_ends == [BASE + offsets[run[-1] + 1] for run in runs]


@pytest.mark.parametrize(
    ("rows", "offsets", "starts", "preamble", "base"),
    [
        (i64(4), i64(0, 8), i64(0, 4), None, 0),
        (i64(0), i64(0, 8, 16), i64(0, 4), None, 0),
        (i64(0), i64(0, 8), i64(0, 4), b"\0\0", 0),
        (i64(0), i64(0, 8), i64(1, 4), None, 0),
        (i64(0), i64(0, 8), i64(0, 4), None, -1),
        (i64(0), i64(0, 8), i64(0, 4), None, 2**63 - 2),
        (i64(0), i64(), i64(), None, 0),
        (i64(3, 2), i64(0, 8), i64(0, 4), None, 0),
    ],
)
def test_plan_chunks_refuses_what_does_not_fit_together(
    rows: Any, offsets: Any, starts: Any, preamble: Any, base: int
) -> None:
    with pytest.raises(ValueError):
        plan_chunks(rows, None, offsets, starts, preamble, base)


# -- full-zip indexes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_fullzip_bounds_of_every_width(width: int) -> None:
    entries = [0, 5, 5, 90, 200]
    index = np.array(entries, dtype=f"<u{width}")
    bounds = fullzip_bounds(index, width, i64(0, 1, 3), i64(1, 3, 3), 200)
    assert [ints(part) for part in bounds] == [[0, 5, 90], [5, 90, 90]]
    bounds = fullzip_bounds(index, width, i64(1, 3), None, 200)
    assert [ints(part) for part in bounds] == [[5, 90], [5, 200]]

    fetched = b"xx" + index[3:5].tobytes() + index[0:3].tobytes()
    bounds = fullzip_pairs(fetched, i64(2, 2 + 2 * width), i64(2 * width, 3 * width), width, 200)
    assert [ints(part) for part in bounds] == [[90, 0], [200, 5]]


def test_fullzip_bounds_refuse_damage() -> None:
    with pytest.raises(DamagedError, match="row range 1 begins at byte 9 and ends at 8 of 20"):
        fullzip_bounds(bytes([0, 9, 8, 20]), 1, i64(0, 1), None, 20)
    with pytest.raises(DamagedError, match="ends at 20 of 19"):
        fullzip_bounds(bytes([0, 9, 8, 20]), 1, i64(2), None, 19)
    with pytest.raises(DamagedError, match="begins at byte 18446744073709551615"):
        fullzip_pairs(b"\xff" * 8 + bytes(8), i64(0), i64(16), 8, 20)
    with pytest.raises(DamagedError, match="no whole entries of 2"):
        fullzip_bounds(bytes(3), 2, i64(0), None, 20)
    with pytest.raises(DamagedError, match="empty"):
        fullzip_bounds(b"", 2, i64(), None, 20)


def test_fullzip_refuses_callers_mistakes() -> None:
    for width, rows in ((3, 0), (1, 3), (1, -1)):
        with pytest.raises(ValueError, match=r"width|rows"):
            fullzip_bounds(bytes(4), width, i64(rows), None, 20)
    for offset, length in ((3, 2), (-1, 2), (0, -1), (2**62, 2**62), (0, 0)):
        with pytest.raises(ValueError, match=r"not within|empty"):
            fullzip_pairs(bytes(4), i64(offset), i64(length), 1, 20)
