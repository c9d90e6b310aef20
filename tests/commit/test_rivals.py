"""How long a process waits for others that commit to the same table."""

from __future__ import annotations

import pytest

from lance_io.commit.rivals import REMEMBERED_COMMITS, Rivals

OURS, PYLANCE = "lance_io 0.1.0", "lance 14.0.2"


@pytest.fixture
def rivals() -> Rivals:
    """Of a process whose attempts take 10 ms."""
    known = Rivals()
    known.record_attempt(0.01, began_with_listing=True)
    return known


def test_pauses_do_not_grow_without_end(rivals: Rivals) -> None:
    assert [rivals.pause_max_s(lost) for lost in (1, 2, 3, 5, 6, 100)] == pytest.approx(
        [0, 0.01, 0.02, 0.04, 0.04, 0.04]
    )


def test_nobody_waits_for_those_who_left(rivals: Rivals) -> None:
    assert rivals.next_yield_max_s() == 0
    rivals.record_loss()
    assert [rivals.next_yield_max_s() > 0 for _ in range(REMEMBERED_COMMITS + 1)] == [True] * REMEMBERED_COMMITS + [
        False
    ]
    rivals.record_version(PYLANCE)
    assert [rivals.next_yield_max_s() > 0 for _ in range(REMEMBERED_COMMITS + 1)] == [True] * REMEMBERED_COMMITS + [
        False
    ]


def test_another_library_that_gets_little_is_given_more_room(rivals: Rivals) -> None:
    rivals.record_version(OURS)
    among_ours = rivals.next_yield_max_s()
    rivals.record_version(PYLANCE)
    alone = rivals.next_yield_max_s()
    for _ in range(4):
        rivals.record_version(OURS)
    rare = rivals.next_yield_max_s()
    for _ in range(REMEMBERED_COMMITS):
        rivals.record_version(OURS)
    assert among_ours < alone < rare < rivals.next_yield_max_s() <= 0.32


def test_an_attempt_that_was_held_up_counts_little(rivals: Rivals) -> None:
    rivals.record_attempt(60.0, began_with_listing=True)
    assert rivals.attempt_s < 0.02
    rivals.record_attempt(0.001, began_with_listing=False)
    assert rivals.attempt_s > 0.01
