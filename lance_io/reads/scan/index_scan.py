"""Scans that indices answer: for covered fragments their rows, for the others the filter.

plan of a filter -> rows that indices name -> parts, in the order of the fragments:
    covered      the rows are read by address; the rest of the filter is computed for them
    not covered  scanned with the whole filter, or left out by `fast_search`
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from lance_io.file.table_reader import TableReader
from lance_io.filters.compiled import Predicate
from lance_io.filters.expressions.expression_tree import And
from lance_io.plans.plan import Together
from lance_io.reads.index.describe_choice import describe_choice
from lance_io.reads.index.indexed_rows import indexed_rows
from lance_io.reads.index.table_indices import load_table_indices
from lance_io.reads.rows.deletions_and_ids import load_live
from lance_io.reads.rows.row_arithmetic import OFFSET_BITS
from lance_io.reads.scan.late_choice import TOGETHER_BYTES
from lance_io.reads.scan.pipeline import ScanPlan, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_io.index.rows.row_set import RowSet
    from lance_io.plans.plan import Plan
    from lance_io.reads.index.indexed_rows import IndexedRows
    from lance_io.reads.rows.row_arithmetic import LiveRows
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray

    ColumnsFor = Callable[[Predicate | None, ScanOptions], ScanPlan]
    PlanSpans = Callable[[ScanPlan, tuple[Span, ...], dict[int, LiveRows]], Plan[ScanPlan]]

RUN_ROWS_MIN: Final = 64  # average rows of a run from which reading runs beats taking rows
TAKEN_ROWS_MAX: Final = 16_384  # of a fragment in a bucket: taking keeps page indexes, which saves later rounds
RUNS_MAX: Final = 1024  # of a fragment that are read as runs
OPENED_FRAGMENTS_MAX: Final = 8  # whose files are opened before it is known which have rows: a request each


def plan_indexed(
    state: DatasetState,
    options: ScanOptions,
    columns: ScanPlan,
    fragment_indexes: Sequence[int],
    columns_for: ColumnsFor,
    finish: PlanSpans,
) -> Plan[ScanPlan | None]:
    """The plan of a scan by indices; None if none of them answers a part of the filter.

    columns      the plan without rows, with the filter
    columns_for  the same with another filter and other options
    finish       completes a plan: columns, spans, live rows of their fragments
    Raises `FormatError` for a damaged index.
    """
    predicate = columns.predicate
    if predicate is None or len(set(fragment_indexes)) < len(fragment_indexes):
        return None
    opened = columns
    if columns.early_read is not None and columns.late_read is not None:
        opened = columns_for(predicate, replace(options, late_materialization=False))
    rows = yield from _rows_beside_files(state, opened, predicate, fragment_indexes)
    if rows is None:
        return None
    rest = rows.choice.rest
    is_whole = len(rest) == 1 and rest[0] is predicate.expression
    left = None if not rest else predicate if is_whole else Predicate(rest[0] if len(rest) == 1 else And(rest))
    rest_columns = columns_of_rows(columns, left, options, rows.rows.num_rows, columns_for)
    rows_max = None if options.limit is None or rest else (options.offset or 0) + options.limit
    parts: list[ScanPlan] = []
    for is_covered, indexes in _by_coverage(state, rows.covered, fragment_indexes):
        if is_covered:
            parts += yield from plan_rows_of_index(state, rows.rows, indexes, rest_columns, rows_max, finish)
        elif not options.hints.get("fast_search"):
            live = yield from load_live(state, indexes)
            spans = tuple(Span(index, 0, live[index].num_rows) for index in indexes)
            parts.append((yield from finish(columns, spans, live)))
    return replace(
        columns,
        spans=tuple(span for part in parts for span in part.spans),
        live={index: live for part in parts for index, live in part.live.items()},
        parts=tuple(parts),
        index=partial(describe_choice, rows.choice),
    )


def columns_of_rows(
    columns: ScanPlan,
    left: Predicate | None,
    options: ScanOptions,
    num_rows: int,
    columns_for: ColumnsFor,
) -> ScanPlan:
    """The plan without rows for rows that indices name: of few rows all columns are read together.

    left  the filter that is computed for them, None if there is none
    """
    of_rows = columns if left is columns.predicate else columns_for(left, options)
    costs = of_rows.late_costs
    if costs is not None and num_rows * costs.row_bytes <= TOGETHER_BYTES:
        return columns_for(left, replace(options, late_materialization=False))
    return of_rows


def plan_named(
    state: DatasetState,
    options: ScanOptions,
    columns: ScanPlan,
    rows: RowSet,
    fragment_indexes: Sequence[int],
    columns_for: ColumnsFor,
    finish: PlanSpans,
    *,
    is_exact: bool,
) -> Plan[list[ScanPlan]]:
    """The plans of fragments of which another process has looked up the rows in indices.

    columns   the plan without rows, with the filter
    rows      their addresses
    is_exact  whether all of them pass the filter
    """
    left = None if is_exact else columns.predicate
    of_rows = columns_of_rows(columns, left, options, rows.num_rows, columns_for)
    return (yield from plan_rows_of_index(state, rows, fragment_indexes, of_rows, None, finish))


def _rows_beside_files(
    state: DatasetState, columns: ScanPlan, predicate: Predicate, fragment_indexes: Sequence[int]
) -> Plan[IndexedRows | None]:
    """The rows that indices name; opens the data files of few fragments meanwhile, where that saves a round."""
    read = columns.early_read if columns.late_read is None else columns.late_read
    has_indices = bool((yield from load_table_indices(state)).indices)
    is_counted = not columns.projection.data_paths  # mostly without data
    is_opened = has_indices and not state.is_local and not is_counted
    if read is None or not is_opened or len(fragment_indexes) > OPENED_FRAGMENTS_MAX:
        return (yield from indexed_rows(state, predicate.expression))
    sources = [state.sources[index] for index in fragment_indexes]
    opening = TableReader(state.context, read).open_files(sources)
    rows, _ = yield Together[Any]([indexed_rows(state, predicate.expression), opening])
    return rows  # type: ignore[no-any-return]


def _by_coverage(
    state: DatasetState, covered: frozenset[int], fragment_indexes: Sequence[int]
) -> list[tuple[bool, list[int]]]:
    """Runs of neighbouring fragments that are covered, and of those that are not."""
    is_covered = np.zeros(len(state.fragment_ids), np.bool_)
    is_covered[state.find_fragment_indexes(np.array([*covered], np.int64))] = True
    indexes = np.array(fragment_indexes, np.int64)
    borders = np.flatnonzero(np.diff(is_covered[indexes])) + 1
    return [(bool(is_covered[run[0]]), run.tolist()) for run in np.split(indexes, borders) if len(run)]


def plan_rows_of_index(
    state: DatasetState,
    rows: RowSet,
    fragment_indexes: Sequence[int],
    columns: ScanPlan,
    rows_max: int | None,
    finish: PlanSpans,
) -> Plan[list[ScanPlan]]:
    """The plans of covered fragments: of their rows that indices name.

    rows      addresses
    rows_max  as many rows are enough; None for all
    """
    by_index = _by_fragment(state, rows, fragment_indexes)
    live = yield from load_live(state, list(by_index))
    wanted = []
    taken_max = 0 if state.is_local else TAKEN_ROWS_MAX
    for index in by_index:
        if rows_max == 0:
            break
        part = _Wanted.of(index, *by_index[index], live[index], rows_max, taken_max)
        if part.num_rows:
            wanted.append(part)
        rows_max = None if rows_max is None else rows_max - part.num_rows
    plans = []
    for is_taken, group in groupby(wanted, lambda part: part.offsets is not None):
        parts = [*group]
        spans = tuple(span for part in parts for span in part.spans)
        plan = replace(
            columns, num_matches=None if columns.predicate is not None else sum([part.num_rows for part in parts])
        )
        if is_taken:
            chosen = tuple(part.offsets for part in parts if part.offsets is not None)
            plan = replace(plan, chosen=chosen, late_costs=None)
        here = {part.fragment_index: live[part.fragment_index] for part in parts}
        plans.append((yield from finish(plan, spans, here)))
    return plans


class _Wanted(NamedTuple):
    """The live rows of one fragment that indices name.

    spans     the runs of rows to read
    offsets   of the rows, if they are taken one by one; then there is one span around them
    """

    fragment_index: int
    spans: tuple[Span, ...]
    offsets: IntArray | None
    num_rows: int

    @classmethod
    def of(
        cls, index: int, starts: IntArray, ends: IntArray, live: LiveRows, rows_max: int | None, taken_max: int
    ) -> _Wanted:
        """Rows of runs; at most `rows_max`. As many as `taken_max` are taken in any case."""
        lengths = ends - starts
        num_rows = int(lengths.sum())
        is_in_runs = len(starts) <= RUNS_MAX and num_rows >= RUN_ROWS_MIN * len(starts) and num_rows > taken_max
        if rows_max is None and is_in_runs:
            spans = tuple(Span(index, *run) for run in zip(starts.tolist(), ends.tolist(), strict=True))
            num_deleted = sum([len(live.deleted_between(span.start, span.end)) for span in spans])
            return cls(index, spans if num_deleted < num_rows else (), None, num_rows - num_deleted)
        if rows_max is not None and live.deleted is None and num_rows > rows_max:  # the others are left out anyway
            last = int(np.searchsorted(np.cumsum(lengths), rows_max)) + 1
            starts, ends, lengths = starts[:last], ends[:last], lengths[:last]
        before = np.cumsum(lengths) - lengths
        offsets: IntArray = np.arange(int(lengths.sum()), dtype=np.int64) + np.repeat(starts - before, lengths)
        if live.deleted is not None:
            offsets = offsets[~live.is_deleted(offsets)]
        offsets = offsets[:rows_max]
        if not len(offsets):
            return cls(index, (), offsets, 0)
        return cls(index, (Span(index, int(offsets[0]), int(offsets[-1]) + 1),), offsets, len(offsets))


def _by_fragment(
    state: DatasetState, rows: RowSet, fragment_indexes: Sequence[int]
) -> dict[int, tuple[IntArray, IntArray]]:
    """Runs of rows by fragment index, in the order of the fragments: first offsets and ends."""
    starts, ends = rows.starts.astype(np.int64), rows.ends.astype(np.int64)  # no run passes the end of a fragment
    ids, firsts = np.unique(starts >> OFFSET_BITS, return_index=True)
    indexes = np.array(fragment_indexes, np.int64)
    number_of = np.full(len(state.fragment_ids) + 1, -1, np.int64)  # among the fragments; the last one is for none
    number_of[indexes] = np.arange(len(indexes))
    numbers = number_of[state.find_fragment_indexes(ids)]
    lasts = np.append(firsts[1:], len(starts))
    by_index = {}
    for at in np.argsort(numbers, kind="stable")[np.count_nonzero(numbers < 0) :].tolist():
        here, first_row = slice(firsts[at], lasts[at]), ids[at] << OFFSET_BITS
        by_index[int(indexes[numbers[at]])] = starts[here] - first_row, ends[here] - first_row
    return by_index
