"""Planning of reads: every byte that is wanted, none that is far from one, and each answer in its place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io.errors import FormatError
from lance_io.io.ranges import check_ranges, lay_out, plan_reads
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


@settings(deadline=None, max_examples=150)
@given(wanted_ranges, st.sampled_from([0, 1, 7, 100]), st.sampled_from([1, 16, 100, 1000, 10_000]))
def test_reads_cover_what_is_wanted_and_little_more(ranges: list[tuple[int, int]], gap: int, most: int) -> None:
    starts, ends = arrays(ranges)
    plan = plan_reads(starts, ends, gap, most)
    assert (plan.starts < plan.ends).all()
    assert (plan.starts[1:] >= plan.ends[:-1]).all()
    wanted = np.zeros(SIZE + 1, dtype=bool)
    for start, end in ranges:
        wanted[start:end] = True
    read = np.zeros(SIZE + 1, dtype=bool)
    for start, end in zip(plan.starts, plan.ends, strict=True):
        assert wanted[start] or start in plan.ends  # begins with a wanted byte, or where a longer run was cut
        read[start:end] = True
    assert not (wanted & ~read).any()
    # a byte that nobody wanted lies in a gap no longer than allowed
    edges = np.flatnonzero(np.diff(np.concatenate(([False], read & ~wanted, [False])).astype(np.int8)))
    assert all(end - start <= gap for start, end in zip(edges[::2], edges[1::2], strict=True))
    for (start, end), first, last in zip(ranges, plan.firsts, plan.lasts, strict=True):
        if start == end:
            assert (first, last) == (-1, -2)
        else:
            assert plan.starts[first] <= start < plan.ends[first]
            assert plan.starts[last] < end <= plan.ends[last]


@settings(deadline=None, max_examples=150)
@given(
    st.lists(wanted_ranges, min_size=1, max_size=5), st.sampled_from([0, 7, 100]), st.sampled_from([1, 16, 100, 10_000])
)
def test_each_request_gets_its_ranges_whole(requests: list[list[tuple[int, int]]], gap: int, most: int) -> None:
    starts, ends = arrays([pair for ranges in requests for pair in ranges])
    owners = np.repeat(np.arange(len(requests)), [len(ranges) for ranges in requests])
    plan = plan_reads(starts, ends, gap, most)
    layout = lay_out(plan, starts, ends, owners, len(requests))
    answers = [bytearray(int(size)) for size in layout.sizes]
    for owner, read, start, end, place in zip(
        layout.owners, layout.reads, layout.starts, layout.ends, layout.places, strict=True
    ):
        assert plan.starts[read] <= start < end <= plan.ends[read]
        answers[owner][place : place + end - start] = BLOB[start:end]
    assert [len(answer) for answer in answers] == layout.sizes.tolist()
    for start, end, owner, offset in zip(starts, ends, owners, layout.offsets, strict=True):
        assert bytes(answers[owner][offset : offset + end - start]) == BLOB[start:end]


def test_close_ranges_share_a_read_and_distant_ones_do_not() -> None:
    plan = plan_reads(*arrays([(500, 510), (0, 10), (14, 20)]), 4, 1000)
    assert list(zip(plan.starts, plan.ends, strict=True)) == [(0, 20), (500, 510)]
    assert plan.firsts.tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("ranges", "size", "message"),
    [([(0, 5), (-1, 3)], None, "-1 to 3"), ([(5, 4)], None, "5 to 4"), ([(0, 5), (8, 11)], 10, "8 to 11.* has 10")],
)
def test_impossible_ranges_are_named(ranges: list[tuple[int, int]], size: int | None, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        check_ranges(Ranges(*arrays(ranges)), size, "data/x.lance")


def test_possible_ranges_pass() -> None:
    check_ranges(Ranges.of((0, 5), (10, 10)), 10, "data/x.lance")
    check_ranges(Ranges.of(), 0, "data/x.lance")
