"""Planning of reads: every byte that is wanted, none that is far from one, and each answer in its place."""

from __future__ import annotations

from itertools import chain, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io._kernels import plan_reads
from lance_io.errors import FormatError
from lance_io.io.scheduler import check_ranges
from lance_io.spans import Ranges

SIZE = 4000
BLOB = np.random.default_rng(7).integers(0, 256, SIZE, dtype=np.uint8).tobytes()

wanted_ranges = st.lists(
    st.tuples(st.integers(0, SIZE), st.sampled_from([0, 1, 3, 20, 300])).map(lambda r: (r[0], min(SIZE, sum(r)))),
    max_size=25,
)


def arrays(ranges: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    both = np.array(ranges, dtype=np.int64).reshape(-1, 2)
    return both[:, 0].copy(), both[:, 1].copy()


wanted_by_requests = st.lists(wanted_ranges, min_size=1, max_size=5)


def planned(requests: list[list[tuple[int, int]]], gap: int, most: int) -> tuple[Any, list[int], list[list[int]]]:
    """Reads with the numbers of requests as owners, sizes of the answers, offsets by request."""
    asked = [(number, *arrays(ranges)) for number, ranges in enumerate(requests)]
    reads, sizes, memory = plan_reads(asked, gap, most)
    offsets = iter(np.frombuffer(memory, np.int64).tolist())
    by_request = [[next(offsets) for _ in ranges] for ranges in requests]
    assert not list(offsets)
    return reads, sizes, by_request


@settings(deadline=None, max_examples=150)
@given(wanted_by_requests, st.sampled_from([0, 1, 7, 100]), st.sampled_from([1, 16, 100, 1000, 10_000]))
def test_reads_cover_what_is_wanted_and_little_more(requests: list[list[tuple[int, int]]], gap: int, most: int) -> None:
    reads, _, _ = planned(requests, gap, most)
    assert all(start < end for start, end, _ in reads)
    assert all(left[1] <= right[0] for left, right in pairwise(reads))
    wanted = np.zeros(SIZE + 1, dtype=bool)
    for start, end in chain(*requests):
        wanted[start:end] = True
    read = np.zeros(SIZE + 1, dtype=bool)
    read_ends = {end for _, end, _ in reads}
    for start, end, _ in reads:
        assert wanted[start] or start in read_ends  # begins with a wanted byte, or where a longer run was cut
        read[start:end] = True
    assert not (wanted & ~read).any()
    # a byte that nobody wanted lies in a gap no longer than allowed
    edges = np.flatnonzero(np.diff(np.concatenate(([False], read & ~wanted, [False])).astype(np.int8)))
    assert all(end - start <= gap for start, end in zip(edges[::2], edges[1::2], strict=True))


@settings(deadline=None, max_examples=300)
@given(wanted_by_requests, st.sampled_from([0, 7, 100]), st.sampled_from([1, 16, 100, 10_000]))
def test_each_request_gets_its_ranges_whole(requests: list[list[tuple[int, int]]], gap: int, most: int) -> None:
    reads, sizes, offsets = planned(requests, gap, most)
    answers = [bytearray(size) for size in sizes]
    filled = [bytearray(size) for size in sizes]
    for read_start, read_end, segments in reads:
        buffer = BLOB[read_start:read_end]
        for owner, start, end, place in segments:
            assert 0 <= start < end <= len(buffer)
            assert not any(filled[owner][place : place + end - start])
            answers[owner][place : place + end - start] = buffer[start:end]
            filled[owner][place : place + end - start] = b"\1" * (end - start)
    assert all(all(one) for one in filled)
    assert [len(answer) for answer in answers] == sizes
    for answer, ranges, places in zip(answers, requests, offsets, strict=True):
        for (start, end), offset in zip(ranges, places, strict=True):
            assert answer[offset : offset + end - start] == BLOB[start:end]


@settings(deadline=None, max_examples=300)
@given(wanted_by_requests, st.sampled_from([0, 7, 100]), st.sampled_from([1, 16, 100, 10_000]))
def test_segments_are_what_is_wanted_of_each_read(requests: list[list[tuple[int, int]]], gap: int, most: int) -> None:
    """Compared with a look at each byte of each read: from the first to the last one that is wanted there."""
    reads, sizes, offsets = planned(requests, gap, most)
    wanted = [{byte for start, end in ranges for byte in range(start, end)} for ranges in requests]
    places = [0] * len(requests)
    starts_at: list[dict[int, int]] = [{} for _ in requests]  # place of each byte in the answer
    for read_start, read_end, segments in reads:
        expected = []
        for number, own in enumerate(wanted):
            here = [byte for byte in range(read_start, read_end) if byte in own]
            if here:
                expected.append((number, here[0] - read_start, here[-1] + 1 - read_start, places[number]))
                for byte in range(here[0], here[-1] + 1):
                    starts_at[number][byte] = places[number] + byte - here[0]
                places[number] += here[-1] + 1 - here[0]
        assert segments == expected
    assert sizes == places
    for ranges, found, places_of in zip(requests, offsets, starts_at, strict=True):
        assert found == [places_of[start] if start < end else 0 for start, end in ranges]


def test_close_ranges_share_a_read_and_distant_ones_do_not() -> None:
    reads, sizes, offsets = planned([[(500, 510), (0, 10)], [(14, 20)]], 4, 1000)
    assert reads == [(0, 20, [(0, 0, 10, 0), (1, 14, 20, 0)]), (500, 510, [(0, 0, 10, 10)])]
    assert (sizes, offsets) == ([20, 6], [[10, 0], [0]])


@pytest.mark.parametrize(
    ("ranges", "size", "message"),
    [
        ([(0, 5), (-1, 3)], None, "-1 to 3"),
        ([(5, 4)], None, "5 to 4"),
        ([(0, 5), (8, 11)], 10, "8 to 11.* has 10"),
        ([(8, 11), (5, 4)], 10, "5 to 4.* damaged"),
        ([(0, (1 << 63) - 1)], (1 << 63) - 2, "has 9223372036854775806"),
    ],
)
def test_impossible_ranges_are_named(ranges: list[tuple[int, int]], size: int | None, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        check_ranges(Ranges(*arrays(ranges)), size, "data/x.lance")


def test_possible_ranges_pass() -> None:
    assert check_ranges(Ranges.of((0, 5), (10, 10), (2, 5)), 10, "data/x.lance") == 8
    assert check_ranges(Ranges.of((3, 5)), None, "data/x.lance") == 2
    assert check_ranges(Ranges.of((3, 5)), (1 << 64) - 1, "data/x.lance") == 2  # what a manifest may claim
    assert check_ranges(Ranges.of(), 0, "data/x.lance") == 0
