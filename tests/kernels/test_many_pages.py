"""Rows of a take: in order and each once, split by page, and decoded from many pages in one call."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io import _kernels
from lance_io._kernels import DamagedError, PageRows, PagesPlan, distinct_rows, split_rows
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
    column_ends = np.cumsum([len(own) for own in starts]).tolist()
    numbers, counts, ends, relative = split_rows(i64(rows), all_starts, column_ends)
    held = PageRows(i64(rows), all_starts, column_ends)
    pages_of = [(at, page) for at, pages in enumerate(columns) for page in range(len(pages))]
    assert [pages_of[page] for page in held.pages] == [
        (at, page) for at, (first, end) in enumerate(pairwise([0, *ends])) for page in numbers[first:end]
    ]
    rest = longs(relative)
    assert len(rest) == len(rows) * len(columns)
    first = 0
    for at, (own, end) in enumerate(zip(starts, ends, strict=True)):
        assert held.of_column(at)[:3] == (first, numbers[first:end], counts[first:end])
        assert longs(held.of_column(at)[3]) == rest[: len(rows)]
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
    for split in (split_rows, PageRows):
        with pytest.raises(ValueError):
            split(i64(rows), i64(starts), ends)


def test_a_column_that_is_not_there() -> None:
    with pytest.raises(ValueError):
        PageRows(i64([1]), i64([0, 10]), [2]).of_column(1)


@pytest.mark.parametrize("starts", [[7, 3, 1, 9], [0, 5, 0], [0, 0, 0], [9, 0, 9, 0, 9]], ids=str)
def test_pages_without_order_are_no_endless_search(starts: list[int]) -> None:
    with suppress(ValueError):
        assert len(PageRows(i64([0, 3, 5, 8]), i64(starts), [len(starts)]).pages) <= 4


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


NUM_COLUMNS = 3
lengths_of_pages = st.lists(st.integers(0, 12), min_size=1, max_size=4)


@settings(deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=3), st.data())
def test_rows_of_many_pages(files: list[int], data: st.DataObject) -> None:
    """Each column has its own pages in each file, and the files have the columns in any order, or lack some."""
    contents, parts = [], []
    expected = [b""] * NUM_COLUMNS
    chunks: list[set[int]] = []
    for num_rows in files:
        rows = sorted(data.draw(st.sets(st.integers(0, num_rows - 1))))
        columns = data.draw(st.permutations([*range(NUM_COLUMNS), None]))[: data.draw(st.integers(0, NUM_COLUMNS + 1))]
        content, pages, starts, ends, wanted = bytearray(), [], [], [], set()
        for column in columns:
            values = data.draw(st.binary(min_size=num_rows, max_size=num_rows))
            cuts = [
                0,
                *sorted(data.draw(st.sets(st.integers(1, num_rows - 1), max_size=3)) if num_rows > 1 else []),
                num_rows,
            ]
            starts += cuts
            ends.append(len(starts))
            for start, end in pairwise(cuts):
                page = Page(values[start:end], len(content))
                content += b"".join(page.chunks)
                here = [row - start for row in rows if start <= row < end]
                if here:
                    pages.append(
                        page.indexed if column is not None else data.draw(st.sampled_from([page.indexed, None]))
                    )
                if column is not None:
                    wanted |= {page.base_bytes + 16 * (row // CHUNK_ITEMS) for row in here}
            if column is not None:
                expected[column] += bytes(values[row] for row in rows)
        contents.append(bytes(content))
        parts.append((PageRows(i64(rows), i64(starts), ends), pages, list(columns)))
        chunks.append(wanted)
    if not all(expected):
        with pytest.raises(ValueError):
            PagesPlan(parts, NUM_COLUMNS)
        return
    plan = PagesPlan(parts, NUM_COLUMNS)
    starts, ends, bounds = plan.ranges()
    ranges = list(zip(longs(starts), longs(ends), strict=True))
    fetched: list[Any] = []
    for number, (file, wanted) in enumerate(zip(contents, chunks, strict=True)):
        own = ranges[bounds[number] : bounds[number + 1]]
        assert {at for start, end in own for at in range(start, end, 16)} == wanted  # a chunk has 16 bytes
        pieces = [file[start:end] for start, end in own]
        offsets = i64([OFFSET, *(np.cumsum([len(piece) for piece in pieces]) + OFFSET)][:-1] if pieces else [])
        fetched.append((b"?" * OFFSET + b"".join(pieces), offsets) if own or number else None)
    together = joined(fetched)
    for leaves in (
        plan.decode(fetched, two_threads, None),
        plan.decode(together, two_threads, None),
        file_by_file(plan, fetched),
    ):
        assert [bytes(values[0]) for _, values, _ in leaves] == expected
        assert [count for count, _, _ in leaves] == [len(values) for values in expected]


def joined(fetched: list[Any]) -> tuple[bytes, Any]:
    """What was fetched of all files, in one buffer."""
    buffers = [b"" if one is None else one[0] for one in fetched]
    starts = np.cumsum([0, *map(len, buffers)])
    offsets = [one[1] + start for one, start in zip(fetched, starts[:-1], strict=True) if one is not None]
    return b"".join(buffers), i64(np.concatenate(offsets)) if offsets else i64([])


def two_threads() -> int:
    return 2


def file_by_file(plan: PagesPlan, fetched: list[Any]) -> Any:
    """What `plan.decode` gives, the last file first."""
    for number, one in reversed(list(enumerate(fetched))):
        if one is not None and len(one[1]):
            plan.decode_file(number, *one)
    return plan.decode([None] * len(fetched), two_threads, None)


def in_one_page(rows: list[int], num_rows: int) -> PageRows:
    """Rows of a file of one column, in one page."""
    return PageRows(i64(rows), i64([0, num_rows]), [2])


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(0, 9), st.integers(0, 2), st.data())
def test_rows_of_plain_pages(files: list[int], width: int, depth: int, data: st.DataObject) -> None:
    """A column of plain pages between two of the other kind."""
    contents, parts = [], []
    expected, firsts, lasts, num_rows = b"", b"", b"", 0
    for length in files:
        values = data.draw(st.binary(min_size=length * width, max_size=length * width))
        rows = sorted(data.draw(st.sets(st.integers(0, length - 1), min_size=1)))
        content = bytearray(b"head" + values)
        plain = _kernels.PlainPage(4, width, length, depth + 1, depth)
        others = []
        for first in (0, 100):
            others.append(Page(bytes(range(first, first + length)), len(content)))
            content += b"".join(others[-1].chunks)
        firsts += bytes(rows)
        lasts += bytes(row + 100 for row in rows)
        expected += b"".join(values[row * width : (row + 1) * width] for row in rows)
        num_rows += len(rows)
        split = PageRows(i64(rows), i64([0, length] * 3), [2, 4, 6])
        parts.append((split, [others[0].indexed, plain, others[1].indexed], [0, 1, 2]))
        contents.append(bytes(content))
    plan = PagesPlan(parts, 3)
    starts, ends, bounds = plan.ranges()
    fetched: list[Any] = []
    for number, content in enumerate(contents):
        own = slice(bounds[number], bounds[number + 1])
        fetched.append((content, i64(longs(starts)[own])))  # a file in one piece: ranges are where they are
        assert all(end <= len(content) for end in longs(ends)[own])
    for leaves in (plan.decode(fetched, two_threads, None), file_by_file(plan, fetched)):
        assert [bytes(leaves[at][1][0]) for at in (0, 2)] == [firsts, lasts]
        count, values, layers = leaves[1]
        assert count == num_rows
        assert values[:-1] == [None] * depth
        assert bytes(values[-1]) == expected
        assert layers == [(num_rows, None, 0, None)] * (depth + 1)


def test_threads_are_asked_for_where_they_are_worth_it() -> None:
    def decoded(num_rows: int) -> int:
        page = _kernels.PlainPage(0, 8, num_rows, 1, 0)
        plan = PagesPlan([(in_one_page(list(range(num_rows)), num_rows), [page], [0])], 1)
        asked.clear()
        plan.decode([(bytes(8 * num_rows), i64([0]))], lambda: asked.append(2) or 2, None)
        return len(asked)

    asked: list[int] = []
    assert [decoded(1), decoded(1000), decoded(100_000)] == [0, 0, 1]


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
    ],
    ids=["widths", "kinds", "kinds reversed", "row behind"],
)
def test_plain_pages_that_do_not_fit(pages: list[tuple[int, int, int] | None], rows: list[int]) -> None:
    made = [Page(bytes(range(10)), 0).indexed if page is None else _kernels.PlainPage(*page, 1, 0) for page in pages]
    files = [(in_one_page([row], 10), [page], [0]) for page, row in zip(made, rows, strict=True)]
    with pytest.raises(ValueError):
        PagesPlan(files, 1).decode([(bytes(100), i64([0]))] * 2, two_threads, None)


def plan_of(first: Any = None, num_columns: int = 2) -> PagesPlan:
    """Of two files with a column each, unless the first is another one."""
    pages = [Page(bytes(range(10)), base_bytes).indexed for base_bytes in (0, 64)]
    second: Any = (in_one_page([7], 10), [pages[1]], [1])
    usual: Any = (in_one_page([1, 5], 10), [pages[0]], [0])
    return PagesPlan([first or usual, second], num_columns)


@pytest.mark.parametrize(
    ("rows", "num_rows", "num_pages", "columns"),
    [
        ([1, 10], 11, 1, [0]),
        ([1, 1], 10, 1, [0]),
        ([1], 10, 0, [0]),
        ([1], 10, 2, [0]),
        ([1], 10, 1, []),
        ([1], 10, 1, [0, 1]),
        ([1], 10, 1, [2]),
        ([1], 10, 1, [None]),
        ([1], 10, 1, [2**64 - 1]),
        ([], 10, 0, [0]),
    ],
    ids=str,
)
def test_a_plan_that_does_not_fit(rows: list[int], num_rows: int, num_pages: int, columns: list[int | None]) -> None:
    pages = [Page(bytes(range(10)), 0).indexed] * num_pages
    with pytest.raises(ValueError):
        plan_of((in_one_page(rows, num_rows), pages, columns))


def test_a_plan_of_other_columns_or_without_a_page() -> None:
    plan_of()
    for num_columns in (1, 3):
        with pytest.raises(ValueError):
            plan_of(num_columns=num_columns)
    with pytest.raises(ValueError):
        plan_of((in_one_page([1], 10), [None], [0]))


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
        plan_of().decode(fetched, two_threads, None)


def test_damage_names_the_page() -> None:
    damaged = bytearray(CHUNKS)
    damaged[18:20] = b"\xff\xff"  # size of the values of chunk 1
    with pytest.raises(DamagedError) as error:
        plan_of().decode([(CHUNKS, i64([0])), (bytes(damaged), i64([16]))], two_threads, None)
    assert error.value.args[1] == (1, 0)
