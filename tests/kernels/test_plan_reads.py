"""Merging byte ranges into reads: properties on random lists, and the rules for cuts spelled out."""

from __future__ import annotations

from itertools import pairwise
from sys import getrefcount
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io._kernels import measure_ranges, plan_reads

MIB = 1 << 20
UNLIMITED = 1 << 40


def i64(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, dtype=np.int64)


def ints(buffer: Any) -> list[int]:
    values: list[int] = np.frombuffer(buffer, np.int64).tolist()
    return values


def plan(ranges: list[tuple[int, int]], gap: int, largest: int) -> tuple[list[tuple[int, int]], list[int]]:
    """The reads, and the one that each range begins in, -1 for an empty range, as its place in the answer tells it."""
    starts, ends = i64(*(start for start, _ in ranges)), i64(*(end for _, end in ranges))
    reads, (size,), memory = plan_reads([(None, starts, ends)], gap, largest)
    segments = [(read, *segment) for read, (_, _, segments) in enumerate(reads) for segment in segments]
    assert [end - start for _, _, start, end, _ in segments] == [
        right - left for left, right in pairwise([*(place for *_, place in segments), size])
    ]
    first_read = [
        next(read for read, _, start, end, place in segments if place <= offset < place + end - start)
        if left < right
        else -1
        for (left, right), offset in zip(ranges, ints(memory), strict=True)
    ]
    return [(start, end) for start, end, _ in reads], first_read


def runs_of(ranges: list[tuple[int, int]], gap: int) -> list[tuple[int, int]]:
    """What would be read if reads had no largest size."""
    runs: list[tuple[int, int]] = []
    for start, end in sorted(pair for pair in ranges if pair[0] < pair[1]):
        if runs and start - runs[-1][1] <= gap:
            runs[-1] = (runs[-1][0], max(end, runs[-1][1]))
        else:
            runs.append((start, end))
    return runs


RANGES = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 40)).map(lambda pair: (pair[0], sum(pair))), max_size=30
)


@settings(max_examples=500, deadline=None)
@given(ranges=RANGES, gap=st.integers(0, 30), largest=st.integers(1, 120), in_order=st.booleans())
def test_reads_are_few_and_cover_everything(
    ranges: list[tuple[int, int]], gap: int, largest: int, in_order: bool
) -> None:
    if in_order:
        ranges.sort()
    reads, first_read = plan(ranges, gap, largest)
    assert all(end - start <= largest for start, end in reads)
    assert all(start < end for start, end in reads)
    assert all(left[1] <= right[0] for left, right in pairwise(reads))
    read_bytes = {byte for start, end in reads for byte in range(start, end)}
    for (start, end), first in zip(ranges, first_read, strict=True):
        assert read_bytes.issuperset(range(start, end))
        if start == end:
            assert first == -1
        else:
            assert reads[first][0] <= start < reads[first][1]

    runs = runs_of(ranges, gap)
    for start, end in runs:
        inside = [read for read in reads if start <= read[0] < end]
        assert inside[0][0] == start
        assert inside[-1][1] == end
        assert len(inside) == 1 if end - start <= largest else len(inside) <= 2 * -(-(end - start) // largest)
    assert sum(any(start <= read[0] < end for start, end in runs) for read in reads) == len(reads)


def test_every_run_within_the_largest_read_is_one_read() -> None:
    ranges = [(0, 10), (14, 20), (25, 30), (30, 31)]
    assert plan(ranges, 4, UNLIMITED) == ([(0, 20), (25, 31)], [0, 0, 1, 1])
    assert plan(ranges, 0, UNLIMITED) == ([(0, 10), (14, 20), (25, 31)], [0, 1, 2, 2])


def test_order_overlaps_and_duplicates_do_not_matter() -> None:
    assert plan([(50, 60), (5, 5), (0, 30), (10, 20), (50, 60)], 4, UNLIMITED) == (
        [(0, 30), (50, 60)],
        [1, -1, 0, 0, 1],
    )


def test_nothing_to_read() -> None:
    assert plan([], 4, 8) == ([], [])
    assert plan([(7, 7)], 4, 8) == ([], [-1])


def test_one_long_range_is_cut_into_equal_pieces_of_whole_mib() -> None:
    reads, first_read = plan([(0, 20 * MIB + 1)], 0, 8 * MIB)
    assert reads == [(0, 7 * MIB), (7 * MIB, 14 * MIB), (14 * MIB, 20 * MIB + 1)]
    assert first_read == [0]


def test_a_cut_moves_to_a_near_border_and_skips_the_gap_there() -> None:
    ranges = [(0, 6 * MIB), (6 * MIB + 1000, 12 * MIB)]
    reads, first_read = plan(ranges, 4096, 8 * MIB)
    assert reads == [(0, 6 * MIB), (6 * MIB + 1000, 12 * MIB)]
    assert first_read == [0, 1]


def test_a_cut_stays_where_no_border_is_near() -> None:
    ranges = [(0, 3 * MIB), (3 * MIB, 12 * MIB)]
    reads, first_read = plan(ranges, 0, 8 * MIB)
    assert reads == [(0, 6 * MIB), (6 * MIB, 12 * MIB)]
    assert first_read == [0, 0]


def test_a_moved_cut_keeps_reads_within_their_size() -> None:
    reads, _ = plan([(0, 9 * MIB), (9 * MIB, 16 * MIB)], 0, 8 * MIB)
    assert reads == [(0, 8 * MIB), (8 * MIB, 16 * MIB)]


@pytest.mark.parametrize(
    ("starts", "ends", "gap", "largest"),
    [
        ([-1], [3], 0, 8),
        ([4], [3], 0, 8),
        ([4, 5], [6], 0, 8),
        ([4], [6], -1, 8),
        ([4], [6], 0, 0),
        ([0], [1 << 62], 0, 1),
    ],
)
def test_refuses_what_is_no_plan(starts: list[int], ends: list[int], gap: int, largest: int) -> None:
    with pytest.raises(ValueError, match=r"range|plan|ends|reads"):
        plan_reads([("first", i64(1), i64(2)), ("second", i64(*starts), i64(*ends))], gap, largest)


def test_ranges_at_the_end_of_what_fits_into_64_bits() -> None:
    last = (1 << 63) - 1
    assert plan([(last - 8, last), (0, 1)], 1 << 62, last)[0] == [(0, 1), (last - 8, last)]
    assert plan([(last - 8, last), (0, 1)], last, last)[0] == [(0, last)]
    assert plan([(0, last), (last - 1, last), (0, 1)], 0, last) == ([(0, last)], [0, 0, 0])


def test_many_long_ranges_of_one_request_are_cut_up_once() -> None:
    """What is made of them grows with the reads and the ranges, not with their product."""
    many = 20_000
    starts, ends = np.arange(many), np.full(many, 2 * many)
    reads, sizes, memory = plan_reads([("all", starts, ends)], 0, 1)
    assert reads == [(at, at + 1, [("all", 0, 1, at)]) for at in range(2 * many)]
    assert sizes == [2 * many]
    assert ints(memory) == starts.tolist()


def test_owners_may_be_anything_and_are_not_kept() -> None:
    owner = [object()]
    before = getrefcount(owner)
    reads, _, _ = plan_reads([(owner, i64(0, 10), i64(4, 14)), (owner, i64(4), i64(8))], 0, 100)
    assert [[(one is owner, *rest) for one, *rest in segments] for _, _, segments in reads] == [
        [(True, 0, 4, 0), (True, 4, 8, 0)],
        [(True, 0, 4, 4)],
    ]
    del reads
    assert getrefcount(owner) == before


def test_without_requests_there_is_nothing() -> None:
    reads, sizes, memory = plan_reads([], 0, 1)
    assert (reads, sizes, len(memory)) == ([], [], 0)


@pytest.mark.parametrize(
    ("ranges", "size", "measured"),
    [
        ([], None, (0, 0, 0, None)),
        ([(7, 9), (3, 8)], None, (7, 3, 9, None)),
        ([(7, 9), (3, 8)], 9, (7, 3, 9, None)),
        ([(7, 9), (3, 8)], 8, (7, 3, 9, 0)),
        ([(7, 9), (3, 2), (-1, 0)], 8, (2, -1, 9, 1)),
        ([(0, (1 << 63) - 1)] * 3, None, ((1 << 63) - 1, 0, (1 << 63) - 1, None)),
        ([((1 << 63) - 1, -(1 << 63))] * 3, None, (-(1 << 63), (1 << 63) - 1, -(1 << 63), 0)),
    ],
)
def test_ranges_are_measured(
    ranges: list[tuple[int, int]], size: int | None, measured: tuple[int, int, int, int | None]
) -> None:
    assert measure_ranges(i64(*(one[0] for one in ranges)), i64(*(one[1] for one in ranges)), size) == measured


def test_starts_without_ends_are_not_measured() -> None:
    with pytest.raises(ValueError, match="2 starts but 1 ends"):
        measure_ranges(i64(1, 2), i64(3), None)
