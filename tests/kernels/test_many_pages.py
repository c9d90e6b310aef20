"""Rows of a take: in order and each once, split by page, and decoded from many pages in one call."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io import _kernels
from lance_io._kernels import DamagedError, distinct_rows, split_rows
from tests.kernels.pages import i64, longs
from tests.reference import codecs as ref

CHUNK_ITEMS = 4
OFFSET = 3  # of the buffers that are fetched: a read may put them anywhere

columns_of_pages = st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=1, max_size=4)


# -- distinct_rows -------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 30) | st.integers(-(2**63), 2**63 - 1)))
def test_rows_in_order_and_each_once(rows: list[int]) -> None:
    found = distinct_rows(i64(rows))
    assert (found is None) == (rows == sorted(set(rows)))
    if found is not None:
        distinct, places = map(longs, found)
        assert distinct == sorted(set(rows))
        assert [distinct[place] for place in places] == rows


# -- split_rows ----------------------------------------------------------------------------------------------------


@given(columns_of_pages, st.data())
def test_rows_by_page(columns: list[list[int]], data: st.DataObject) -> None:
    num_rows = min(sum(pages) for pages in columns)
    rows = sorted(data.draw(st.sets(st.integers(0, num_rows - 1)))) if num_rows else []
    starts = [[sum(pages[:at]) for at in range(len(pages) + 1)] for pages in columns]
    all_starts = i64([start for own in starts for start in own])
    numbers, counts, ends, relative = split_rows(i64(rows), all_starts, np.cumsum([len(own) for own in starts]))
    rest = longs(relative)
    assert len(rest) == len(rows) * len(columns)
    first = 0
    for own, end in zip(starts, ends, strict=True):
        found = []
        for number, count in zip(numbers[first:end], counts[first:end], strict=True):
            assert count > 0
            found += [own[number] + row for row in rest[:count]]
            assert all(row < own[number + 1] for row in found)
            del rest[:count]
        assert found == rows
        assert numbers[first:end] == sorted(set(numbers[first:end]))
        first = end
    assert not rest


@pytest.mark.parametrize(
    ("rows", "starts", "ends"),
    [
        ([10], [0, 10], [2]),
        ([-1], [0, 10], [2]),
        ([2, 1], [0, 10], [2]),
        ([1], [], [0]),
        ([1], [0], [1]),
        ([1], [0, 10], [3]),
        ([1], [0, 10, 0, 10], [4, 2]),
        ([2**63 - 1], [0, 10], [2]),
    ],
    ids=str,
)
def test_rows_that_lie_in_no_page(rows: list[int], starts: list[int], ends: list[int]) -> None:
    with pytest.raises(ValueError):
        split_rows(i64(rows), i64(starts), ends)


@pytest.mark.parametrize("starts", [[7, 3, 1, 9], [0, 5, 0], [0, 0, 0], [9, 0, 9, 0, 9]], ids=str)
def test_pages_without_order_are_no_endless_search(starts: list[int]) -> None:
    with suppress(ValueError):
        split_rows(i64([0, 3, 5, 8]), i64(starts), [len(starts)])


# -- PagesPlan -----------------------------------------------------------------------------------------------------


class Page:
    """A page of bytes in chunks of four, which begins at some byte of its file."""

    def __init__(self, values: bytes, base_bytes: int) -> None:
        self.values = values
        parts = [values[at : at + CHUNK_ITEMS] for at in range(0, len(values), CHUNK_ITEMS)]
        self.chunks = [ref.chunk([part]) for part in parts]
        self.base_bytes = base_bytes
        byte_offsets = i64([0, *np.cumsum([len(chunk) for chunk in self.chunks])])
        item_starts = i64([0, *np.cumsum([len(part) for part in parts])])
        program = ref.miniblock([1], ref.flat(8))
        self.indexed = _kernels.IndexedPage(program, base_bytes, byte_offsets, item_starts, None, None, None)


@settings(deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 40)), min_size=1, max_size=4), max_size=3), st.data()
)
def test_rows_of_many_pages(shape: list[list[tuple[int, int]]], data: st.DataObject) -> None:
    files = [bytearray(), bytearray(), bytearray()]
    columns = []
    for column in shape:
        pages = []
        for source, num_rows in column:
            page = Page(data.draw(st.binary(min_size=num_rows, max_size=num_rows)), len(files[source]))
            files[source] += b"".join(page.chunks)
            pages.append((source, page, sorted(data.draw(st.sets(st.integers(0, num_rows - 1))))))
        columns.append(pages)
    flat = [page for pages in columns for page in pages]
    plan = _kernels.PagesPlan(
        [page.indexed for _, page, _ in flat],
        [i64([row for _, _, rows in pages for row in rows]) for pages in columns],
        [len(rows) for _, _, rows in flat],
        [source for source, _, _ in flat],
        [len(pages) for pages in columns],
        len(files),
    )
    starts, ends, bounds = plan.ranges()
    ranges = list(zip(longs(starts), longs(ends), strict=True))
    fetched: list[Any] = []
    for source, file in enumerate(files):
        own = ranges[bounds[source] : bounds[source + 1]]
        wanted = {
            page.base_bytes + 16 * (row // CHUNK_ITEMS) for at, page, rows in flat if at == source for row in rows
        }
        assert {at for start, end in own for at in range(start, end, 16)} == wanted  # a chunk has 16 bytes
        pieces = [bytes(file[start:end]) for start, end in own]
        offsets = i64([OFFSET, *(np.cumsum([len(piece) for piece in pieces]) + OFFSET)][:-1] if pieces else [])
        fetched.append((b"?" * OFFSET + b"".join(pieces), offsets) if own or source else None)
    leaves = plan.decode(fetched, 2)
    expected = [bytes(page.values[row] for _, page, rows in pages for row in rows) for pages in columns]
    assert [bytes(values[0]) for _, values, _ in leaves] == expected
    assert [count for count, _, _ in leaves] == [len(values) for values in expected]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 40)), min_size=1, max_size=5),
    st.integers(0, 9),
    st.integers(0, 2),
    st.data(),
)
def test_rows_of_plain_pages(shape: list[tuple[int, int]], width: int, depth: int, data: st.DataObject) -> None:
    """A column of plain pages between two of the other kind."""
    files = [bytearray(b"head"), bytearray()]
    pages: list[Any] = []
    expected = b""
    rows_by_page = []
    for source, num_rows in shape:
        values = data.draw(st.binary(min_size=num_rows * width, max_size=num_rows * width))
        pages.append(_kernels.PlainPage(len(files[source]), width, num_rows, depth + 1, depth))
        files[source] += values
        rows = sorted(data.draw(st.sets(st.integers(0, num_rows - 1)))) if num_rows else []
        rows_by_page.append(rows)
        expected += b"".join(values[row * width : (row + 1) * width] for row in rows)
    other = Page(bytes(range(10)), len(files[0]))
    files[0] += b"".join(other.chunks)
    counts = [1, *map(len, rows_by_page), 1]
    all_rows = [i64([3]), *map(i64, rows_by_page), i64([9])]
    sources = [0, *(source for source, _ in shape), 0]
    plan = _kernels.PagesPlan(
        [other.indexed, *pages, other.indexed], all_rows, counts, sources, [1, len(pages), 1], len(files)
    )
    starts, ends, bounds = plan.ranges()
    fetched: list[Any] = []
    for source, file in enumerate(files):
        own = slice(bounds[source], bounds[source + 1])
        fetched.append((bytes(file), i64(longs(starts)[own])))  # a file in one piece: ranges are where they are
        assert all(end <= len(file) for end in longs(ends)[own])
    first, plain, last = plan.decode(fetched, 2)
    assert [bytes(leaf[1][0]) for leaf in (first, last)] == [b"\x03", b"\x09"]
    num_rows, values, layers = plain
    assert num_rows == sum(map(len, rows_by_page))
    assert values[:-1] == [None] * depth
    assert bytes(values[-1]) == expected
    assert layers == [(num_rows, None, 0, None)] * (depth + 1)


@pytest.mark.parametrize("wrong", [(-1, 4, 3), (0, -1, 3), (0, 4, -1), (2**62, 2**31, 2**31), (2**63 - 1, 1, 1)])
def test_a_plain_page_that_cannot_be(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError):
        _kernels.PlainPage(*wrong, 1, 0)


@pytest.mark.parametrize(
    ("pages", "rows"),
    [
        ([(0, 4, 5), (0, 8, 5)], [1, 1]),
        ([(0, 4, 5), None], [1, 1]),
        ([None, (0, 4, 5)], [1, 1]),
        ([(0, 4, 5), (20, 4, 5)], [1, 5]),
        ([(0, 4, 5), (20, 4, 5)], [-1, 0]),
    ],
    ids=["widths", "kinds", "kinds reversed", "row behind", "row before"],
)
def test_plain_pages_that_do_not_fit(pages: list[tuple[int, int, int] | None], rows: list[int]) -> None:
    made = [Page(bytes(range(10)), 0).indexed if page is None else _kernels.PlainPage(*page, 1, 0) for page in pages]
    with pytest.raises(ValueError):
        plan = _kernels.PagesPlan(made, [i64([row]) for row in rows], [1, 1], [0, 0], [2], 1)
        plan.decode([(bytes(100), i64([0, 0]))], 1)


def plan_of(**wrong: Any) -> _kernels.PagesPlan:
    pages = [Page(bytes(range(10)), 0), Page(bytes(range(10)), 64)]
    given_ = {
        "pages": [page.indexed for page in pages],
        "rows": [i64([1, 5]), i64([7])],
        "counts": [2, 1],
        "sources": [0, 1],
        "columns": [1, 1],
        "num_sources": 2,
    }
    return _kernels.PagesPlan(*(given_ | wrong).values())


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": [i64([1, 5])]},
        {"rows": [i64([5, 1]), i64([7])]},
        {"rows": [i64([1, 10]), i64([7])]},
        {"rows": [i64([-1, 5]), i64([7])]},
        {"counts": [2]},
        {"counts": [2, 2]},
        {"counts": [2**64 - 1, 4]},
        {"sources": [0, 2]},
        {"sources": [0]},
        {"columns": [1]},
        {"columns": [2**64 - 1, 3]},
        {"num_sources": 1},
    ],
    ids=str,
)
def test_a_plan_that_does_not_fit(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        plan_of(**wrong)


CHUNKS = b"".join(Page(bytes(range(10)), 0).chunks)


@pytest.mark.parametrize(
    "fetched",
    [
        [],
        [(CHUNKS, i64([0]))],
        [(CHUNKS, i64([0])), None],
        [(CHUNKS, i64([])), (CHUNKS, i64([16]))],
        [(CHUNKS, i64([0])), (CHUNKS, i64([16, 32]))],
        [(CHUNKS, i64([0])), (CHUNKS, i64([33]))],
        [(CHUNKS, i64([-1])), (CHUNKS, i64([16]))],
        [(CHUNKS, i64([0])), (CHUNKS, i64([2**63 - 1]))],
        [(CHUNKS, i64([0])), (CHUNKS[:31], i64([16]))],
    ],
    ids=lambda fetched: str([None if one is None else (len(one[0]), one[1].tolist()) for one in fetched]),
)
def test_what_was_fetched_does_not_fit(fetched: list[Any]) -> None:
    with pytest.raises(ValueError):
        plan_of().decode(fetched, 2)


def test_damage_names_the_page() -> None:
    damaged = bytearray(CHUNKS)
    damaged[18:20] = b"\xff\xff"  # size of the values of chunk 1
    with pytest.raises(DamagedError) as error:
        plan_of().decode([(CHUNKS, i64([0])), (bytes(damaged), i64([16]))], 2)
    assert error.value.args[1] == 1
