"""Merging byte ranges into reads: properties on random lists, and the rules for cuts spelled out."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io._kernels import plan_reads

MIB = 1 << 20
UNLIMITED = 1 << 40


def i64(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, dtype=np.int64)


def ints(buffer: Any) -> list[int]:
    values: list[int] = np.frombuffer(buffer, np.int64).tolist()
    return values


def plan(ranges: list[tuple[int, int]], gap: int, largest: int) -> tuple[list[tuple[int, int]], list[int]]:
    starts, ends = i64(*(start for start, _ in ranges)), i64(*(end for _, end in ranges))
    read_starts, read_ends, first_read = map(ints, plan_reads(starts, ends, gap, largest))
    return list(zip(read_starts, read_ends, strict=True)), first_read


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
        plan_reads(i64(*starts), i64(*ends), gap, largest)


def test_ranges_at_the_end_of_what_fits_into_64_bits() -> None:
    last = (1 << 63) - 1
    assert plan([(last - 8, last), (0, 1)], 1 << 62, last)[0] == [(0, 1), (last - 8, last)]
    assert plan([(last - 8, last), (0, 1)], last, last)[0] == [(0, last)]
