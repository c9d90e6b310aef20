"""Row arithmetic against plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_io.reads.rows.row_arithmetic import (
    LiveRows,
    addresses,
    group_by_fragment,
    group_rows,
    kept_runs,
    live_starts,
)
from lance_io.spans import distinct

row_sets = st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1))))


@given(row_sets)
def test_positions_and_offsets_are_inverse(drawn: tuple[int, set[int]]) -> None:
    num_rows, gone = drawn
    live = LiveRows(num_rows, np.array(sorted(gone), dtype=np.int64))
    left = [row for row in range(num_rows) if row not in gone]
    assert live.num_live == len(left)
    assert live.offsets(np.arange(len(left))).tolist() == left
    assert live.positions(np.array(left, dtype=np.int64)).tolist() == list(range(len(left)))
    assert live.is_deleted(np.arange(num_rows)).tolist() == [row in gone for row in range(num_rows)]


@given(st.integers(1, 3000).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))), st.data())
def test_few_positions_among_many_deleted_rows(drawn: tuple[int, set[int]], data: st.DataObject) -> None:
    num_rows, gone = drawn
    gone |= {*range(0, num_rows, data.draw(st.integers(2, 9)))}
    live = LiveRows(num_rows, np.array(sorted(gone), dtype=np.int64))
    left = [row for row in range(num_rows) if row not in gone]
    picks = data.draw(st.lists(st.sampled_from(range(len(left))), max_size=5)) if left else []
    assert live.offsets(np.array(picks, dtype=np.int64)).tolist() == [left[pick] for pick in picks]


@given(st.lists(st.integers(-5, 20)))
def test_distinct_numbers(numbers: list[int]) -> None:
    assert distinct(np.array(numbers, dtype=np.int64)).tolist() == sorted({*numbers})


@given(row_sets, st.data())
def test_a_span_covers_exactly_the_rows_between_its_ends(drawn: tuple[int, set[int]], data: st.DataObject) -> None:
    num_rows, gone = drawn
    live = LiveRows(num_rows, np.array(sorted(gone), dtype=np.int64))
    left = [row for row in range(num_rows) if row not in gone]
    first = data.draw(st.integers(0, len(left)))
    last = data.draw(st.integers(first, len(left)))
    start, end = live.span(first, last)
    assert [row for row in range(start, end) if row not in gone] == left[first:last]
    assert start not in gone or first == last
    assert live.deleted_between(start, end).tolist() == [row - start for row in sorted(gone) if start <= row < end]


@given(row_sets)
def test_kept_runs_leave_out_what_was_dropped(drawn: tuple[int, set[int]]) -> None:
    num_rows, gone = drawn
    starts, ends = kept_runs(num_rows, np.array(sorted(gone), dtype=np.int64))
    runs = [list(range(start, end)) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    assert all(runs)
    assert [row for run in runs for row in run] == [row for row in range(num_rows) if row not in gone]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9))))
def test_grouped_rows_come_back_in_the_order_asked(asked: list[tuple[int, int]]) -> None:
    places = np.array([place for place, _ in asked], dtype=np.int64)
    offsets = np.array([offset for _, offset in asked], dtype=np.int64)
    grouped = group_rows(places, offsets)
    read = [(place, offset) for place, rows in grouped.groups for offset in rows.tolist()]
    assert read == sorted(set(asked))
    order = range(len(read)) if grouped.restore is None else grouped.restore.tolist()
    assert [read[i] for i in order] == asked
    assert grouped.num_asked == len(asked)


@given(st.lists(st.integers(0, 5), min_size=1), st.data())
def test_positions_find_their_fragment_past_empty_ones(counts: list[int], data: st.DataObject) -> None:
    rows = [(place, row) for place, count in enumerate(counts) for row in range(count)]
    asked = data.draw(st.lists(st.integers(0, len(rows) - 1))) if rows else []
    grouped = group_by_fragment(np.array(asked, dtype=np.int64), live_starts(counts))
    assert grouped is not None
    read = [(place, row) for place, within in grouped.groups for row in within.tolist()]
    assert read == sorted({rows[position] for position in asked})
    order = range(len(read)) if grouped.restore is None else grouped.restore.tolist()
    assert [read[i] for i in order] == [rows[position] for position in asked]


@pytest.mark.parametrize("counts", [[], [0], [3], [3, 0, 5, 0]])
def test_positions_behind_the_last_row_belong_to_no_fragment(counts: list[int]) -> None:
    starts = live_starts(counts)
    for positions in ([sum(counts)], [0, 2**63 - 1], [sum(counts) + 1, 0], [2**63 - 1] * 2):
        assert group_by_fragment(np.array(positions, dtype=np.int64), starts) is None


def test_addresses_hold_fragment_and_offset() -> None:
    largest = (1 << 32) - 1
    assert addresses(largest, np.array([0, largest])).tolist() == [largest << 32, (largest << 32) | largest]


@pytest.mark.parametrize("deleted", [None, np.empty(0, dtype=np.int64)])
def test_a_fragment_without_deletions(deleted: np.ndarray | None) -> None:
    live = LiveRows(3, deleted)
    assert live.span(0, 3) == (0, 3)
    assert live.offsets(np.array([2, 0])).tolist() == [2, 0]
    assert not live.is_deleted(np.array([1])).any()
