"""What requests are charged before their reads are planned is never less than what the reads hold."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io.io.budget import Pool, Ticket
from lance_io.io.dispatch import Operation
from lance_io.io.estimates import Charges, charge_apart
from lance_io.io.reads import Merging, Request, plan_ranges
from lance_io.spans import Ranges

requests = st.lists(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 60)), min_size=1, max_size=8), min_size=1, max_size=12
)


def asked_for(wanted: list[list[tuple[int, int]]], merging: Merging) -> list[Request]:
    found, operation = [], Operation((), 0, 0, Pool(0))
    for pairs in wanted:
        ranges = Ranges.of(*((start, start + length) for start, length in pairs))
        found.append(Request(operation, "key", ranges, ranges.num_bytes, merging, (0,), Ticket((0,)), ()))
    return found


@settings(deadline=None, max_examples=200)
@given(requests, st.sampled_from([0, 1, 10, 100, 2000]), st.sampled_from([1, 50, 500, 5000]))
def test_the_upper_bound_holds_however_requests_are_merged(
    wanted: list[list[tuple[int, int]]], gap: int, most: int
) -> None:
    asked = asked_for(wanted, Merging("scan", gap, most))
    reads = plan_ranges(asked)
    together = list(map(Charges(), asked))
    assert sum(read.num_bytes for read in reads) <= sum(together)
    assert all(charge <= charge_apart(request) for charge, request in zip(together, asked, strict=True))
    for request in asked:
        assert request.num_missing == len(request.reads)
        assert all(request in read.holders for read in request.reads)


@pytest.mark.parametrize(
    ("wanted", "charges"),
    [
        ([[(0, 4)], [(6, 4)], [(90, 4)]], [4, 4 + 2, 4 + 20]),
        ([[(0, 4)], [(36, 4)], [(10, 4)]], [4, 4 + 20, 4 + 6]),  # between two: the shorter way
        ([[(0, 10)], [(4, 10)], [(2, 3)]], [10, 10, 3]),  # bytes that are read once are charged twice
        ([[(0, 4), (8, 4), (12, 4)], [(18, 2)]], [16, 2 + 2]),  # several ranges: all that lies between them
        ([[(0, 4), (500, 4)], [(510, 4)]], [8 + 40, 4 + 6]),  # or a gap for each, if that is less
    ],
)
def test_what_requests_are_charged_together(wanted: list[list[tuple[int, int]]], charges: list[int]) -> None:
    """Gaps of up to 20 bytes are read."""
    assert list(map(Charges(), asked_for(wanted, Merging("scan", 20, 1000)))) == charges


def test_requests_that_share_no_reads_are_no_neighbours() -> None:
    merging = Merging("take", 20, 1000)
    first, other_file, later, near = asked_for([[(0, 4)], [(6, 4)], [(6, 4)], [(6, 4)]], merging)
    other_file.key, later.priority = "other", (1,)
    assert list(map(Charges(), [first, other_file, later, near])) == [4, 4, 4, 6]
