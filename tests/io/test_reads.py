"""What requests are charged before their reads are planned is never less than what the reads hold."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io.io.budget import Ticket
from lance_io.io.reads import Merging, Request, plan_ranges
from lance_io.spans import Ranges

requests = st.lists(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 60)), min_size=1, max_size=8), min_size=1, max_size=6
)


@settings(deadline=None, max_examples=80)
@given(requests, st.sampled_from([0, 1, 10, 100, 2000]), st.sampled_from([1, 50, 500, 5000]))
def test_the_upper_bound_holds_however_requests_are_merged(
    wanted: list[list[tuple[int, int]]], gap: int, most: int
) -> None:
    merging = Merging("scan", gap, most)
    asked = []
    for pairs in wanted:
        ranges = Ranges.of(*((start, start + length) for start, length in pairs))
        asked.append(Request("key", ranges, ranges.num_bytes, merging, (0,), Ticket((0,)), ()))
    reads = plan_ranges(asked)
    assert sum(read.num_bytes for read in reads) <= sum(request.bytes_max for request in asked)
    for request in asked:
        assert request.num_missing == len(request.reads)
        assert all(request in read.holders for read in request.reads)
