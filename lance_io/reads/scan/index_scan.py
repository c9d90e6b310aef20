"""Scans that indices answer: for covered fragments their rows, for the others the filter.

plan of a filter -> rows that indices name -> parts, in the order of the fragments:
    covered      the rows are read by address; the rest of the filter is computed for them
    not covered  scanned with the whole filter, or left out by `fast_search`; few rows of a bucket are read beside the
                 rounds of the indices
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
from lance_io.limits import MIB
from lance_io.plans.plan import Together
from lance_io.plans.streams import Each
from lance_io.reads.index.describe_choice import describe_choice
from lance_io.reads.index.indexed_rows import indexed_rows, likely_covered
from lance_io.reads.index.table_indices import load_table_indices
from lance_io.reads.rows.deletions_and_ids import load_live
from lance_io.reads.rows.row_arithmetic import OFFSET_BITS
from lance_io.reads.rows.value_widths import width_bytes
from lance_io.reads.scan.late_choice import TOGETHER_BYTES
from lance_io.reads.scan.pipeline import ScanPlan, Span
from lance_io.reads.scan.stream import ScanRun
from lance_io.reads.version.system_columns import SYSTEM_COLUMNS
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from lance_io.index.rows.row_set import RowSet
    from lance_io.plans.plan import Plan
    from lance_io.reads.index.choose_indices import Choice
    from lance_io.reads.index.indexed_rows import IndexedRows
    from lance_io.reads.index.table_indices import TableIndex
    from lance_io.reads.rows.row_arithmetic import LiveRows
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray

    ColumnsFor = Callable[[Predicate | None, ScanOptions], ScanPlan]
    PlanSpans = Callable[[ScanPlan, tuple[Span, ...], dict[int, LiveRows]], Plan[ScanPlan]]

RUN_ROWS_MIN: Final = 2048  # average rows of a run from which runs are read: each reads the chunks at its ends again
TAKEN_ROWS_MAX: Final = 16_384  # of a fragment in a bucket: taking keeps page indexes, which saves later rounds
RUNS_MAX: Final = 1024  # of a fragment that are read as runs
AHEAD_BYTES_MAX: Final = 4 * MIB  # of rows that no index covers, about; more take longer than the rounds they save
INDEX_ROWS_MIN: Final = 1 << 20  # that an index may read of its files for any table: a tenth of a second
INDEX_ROWS_SHARE: Final = 8  # of the table: an index has 16 bytes for a number of 8
INDEX_ROWS_MAX: Final = 1 << 26  # a gigabyte of pages in memory
OPENED_FRAGMENTS_MAX: Final = 8  # whose files are opened before it is known which have rows: a request each


def plan_indexed(
    state: DatasetState,
    options: ScanOptions,
    columns: ScanPlan,
    fragment_indexes: Sequence[int],
    columns_for: ColumnsFor,
    finish: PlanSpans,
    *,
    reads_ahead: bool,
) -> Plan[ScanPlan | None]:
    """The plan of a scan by indices; None if none of them answers a part of the filter.

    columns      the plan without rows, with the filter
    columns_for  the same with another filter and other options
    finish       completes a plan: columns, spans, live rows of their fragments
    reads_ahead  whether few rows that no index covers are read meanwhile; all of them will be wanted
    Raises `FormatError` for a damaged index.
    """
    predicate = columns.predicate
    if predicate is None or len(set(fragment_indexes)) < len(fragment_indexes):
        return None
    ahead = _Ahead(state, options, columns, finish)
    is_ahead = reads_ahead and ahead.is_wanted
    answering = _answered(state, options, columns, fragment_indexes, columns_for, ahead if is_ahead else None, finish)
    if is_ahead:
        answered, _ = yield Together[Any]([answering, ahead.read_uncovered(predicate, fragment_indexes)])
    else:
        answered = yield from answering
    if answered is None:
        return None
    choice, of_rows, groups = answered
    parts: list[ScanPlan] = []
    for indexes, covered in groups:
        if covered is not None:
            parts += covered
        elif not options.hints.get("fast_search"):
            parts.append(ahead.uncovered.get(tuple(indexes)) or (yield from ahead.plan(indexes)))
    is_alone = not choice.rest and columns.first is None and all([covered is not None for _, covered in groups])
    form = IndexForm(columns, of_rows, tuple(choice.indices)) if is_alone else None
    return _with_parts(columns, predicate, parts, choice, form)


@dataclass(frozen=True, slots=True, eq=False)
class IndexForm:
    """How indices answered a scan alone, for scans whose filters differ only in the values that they compare with.

    columns  the plan without rows
    of_rows  the plan without rows for rows that indices name, of which no condition is left to compute
    indices  that were asked; they cover all fragments
    """

    columns: ScanPlan
    of_rows: ScanPlan
    indices: tuple[TableIndex, ...]


def plan_alike(
    state: DatasetState, options: ScanOptions, form: IndexForm, predicate: Predicate, finish: PlanSpans
) -> Plan[ScanPlan | None]:
    """The plan of a scan that has a form; None if its indices do not answer it alone. Parameters as `plan_indexed`."""
    rows = yield from indexed_rows(state, predicate.expression, _rows_max(state, options), form.indices)
    if rows is None or rows.choice.rest:
        return None
    parts = yield from plan_rows_of_index(state, rows.rows, state.all_fragment_indexes, form.of_rows, None, finish)
    return _with_parts(form.columns, predicate, parts, rows.choice, form)


def _with_parts(
    columns: ScanPlan, predicate: Predicate, parts: Sequence[ScanPlan], choice: Choice, form: IndexForm | None
) -> ScanPlan:
    return replace(
        columns,
        predicate=predicate,
        spans=tuple([span for part in parts for span in part.spans]),
        live={index: live for part in parts for index, live in part.live.items()},
        parts=tuple(parts),
        index=partial(describe_choice, choice),
        form=form,
    )


class _Answered(NamedTuple):
    """The answer of indices.

    of_rows  the plan without rows for rows that they name
    groups   runs of neighbouring fragments, each with the plans of its rows; None for those that are not covered
    """

    choice: Choice
    of_rows: ScanPlan
    groups: list[tuple[list[int], list[ScanPlan] | None]]


def _answered(
    state: DatasetState,
    options: ScanOptions,
    columns: ScanPlan,
    fragment_indexes: Sequence[int],
    columns_for: ColumnsFor,
    ahead: _Ahead | None,
    finish: PlanSpans,
) -> Plan[_Answered | None]:
    """The rows that indices name as plans; None if no index answers. ahead: reads few of them, if there are others."""
    predicate, opened = columns.predicate, columns
    assert predicate is not None, "indices answer filters"
    if not state.is_local and columns.early_read is not None and columns.late_read is not None:
        opened = columns_for(predicate, replace(options, late_materialization=False))
    rows = yield from _rows_beside_files(state, opened, predicate, fragment_indexes, _rows_max(state, options))
    if rows is None:
        return None
    rest = rows.choice.rest
    is_whole = len(rest) == 1 and rest[0] is predicate.expression
    left = None if not rest else predicate if is_whole else Predicate(rest[0] if len(rest) == 1 else And(rest))
    rest_columns = columns_of_rows(columns, left, options, rows.rows.num_rows, columns_for)
    rows_max = None if options.limit is None or rest else (options.offset or 0) + options.limit
    groups: list[tuple[list[int], list[ScanPlan] | None]] = []
    for is_covered, indexes in _by_coverage(state, rows.covered, fragment_indexes):
        covered = None
        if is_covered:
            covered = yield from plan_rows_of_index(state, rows.rows, indexes, rest_columns, rows_max, finish)
        groups.append((indexes, covered))
    if ahead is not None and len(groups) > 1:
        yield from ahead.read_covered([plans for _, plans in groups if plans is not None])
    return _Answered(rows.choice, rest_columns, groups)


class _Ahead:
    """Parts that are read while a scan is planned, so that their rounds go together.

    uncovered  parts that no index covers, with their rows, by the indexes of their fragments
    """

    def __init__(self, state: DatasetState, options: ScanOptions, columns: ScanPlan, finish: PlanSpans) -> None:
        self._state, self._options, self._columns, self._finish = state, options, columns, finish
        self.uncovered: dict[tuple[int, ...], ScanPlan] = {}

    @property
    def is_wanted(self) -> bool:
        """Whether reading ahead saves time: rounds of a bucket, for rows that are all part of the result."""
        options = self._options
        is_whole = options.limit is None and not options.offset and not options.hints.get("fast_search")
        return is_whole and not self._state.is_local

    def plan(self, fragment_indexes: Sequence[int]) -> Plan[ScanPlan]:
        """The scan of some fragments."""
        live = yield from load_live(self._state, fragment_indexes)
        spans = tuple(Span(index, 0, live[index].num_rows) for index in fragment_indexes)
        return (yield from self._finish(self._columns, spans, live))

    def read_uncovered(self, predicate: Predicate, fragment_indexes: Sequence[int]) -> Plan[None]:
        """Read the fragments that no index will cover, if their rows are few."""
        covered = yield from likely_covered(self._state, predicate.expression)
        if covered is None:
            return
        runs = [run for is_covered, run in _by_coverage(self._state, covered, fragment_indexes) if not is_covered]
        if sum(int(self._state.physical_rows[run].sum()) for run in runs) * self._row_bytes() <= AHEAD_BYTES_MAX:
            yield Together([self._read_run(run) for run in runs])

    def _read_run(self, fragment_indexes: Sequence[int]) -> Plan[None]:
        self.uncovered[tuple(fragment_indexes)] = yield from self._read((yield from self.plan(fragment_indexes)))

    def read_covered(self, groups: Sequence[list[ScanPlan]]) -> Plan[None]:
        """Read the rows of parts that indices name, if they are few, and put them into the plans."""
        chosen = [(plans, at) for plans in groups for at, plan in enumerate(plans) if plan.chosen is not None]
        if sum(plans[at].num_rows for plans, at in chosen) * self._row_bytes() <= AHEAD_BYTES_MAX:
            ready: list[ScanPlan] = yield Together([self._read(plans[at]) for plans, at in chosen])
            for (plans, at), plan in zip(chosen, ready, strict=True):
                plans[at] = plan

    def _read(self, plan: ScanPlan) -> Plan[ScanPlan]:
        """A part with its rows; not those of a count that is known."""
        if plan.num_matches is not None and not self._columns.projection.outputs:
            return plan
        batches: list[pa.RecordBatch] = []
        yield Each(ScanRun(self._state, plan, self._options, None).batches(), lambda item: batches.append(item[1]))
        return replace(plan, ready=tuple(batches), num_matches=sum([batch.num_rows for batch in batches]))

    def _row_bytes(self) -> float:
        """Bytes of a row's output and filter columns, about."""
        state, columns = self._state, self._columns
        paths = () if columns.predicate is None else columns.predicate.paths
        filtered = [state.field_at(path).arrow_type for path in paths if path[0] not in SYSTEM_COLUMNS]
        return sum(map(width_bytes, [*columns.projection.arrow_schema.types, *filtered]))


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
    state: DatasetState,
    columns: ScanPlan,
    predicate: Predicate,
    fragment_indexes: Sequence[int],
    rows_max: int | None,
) -> Plan[IndexedRows | None]:
    """The rows that indices name; opens the data files of few fragments meanwhile, where that saves a round.

    rows_max  see `indexed_rows`
    """
    read = columns.early_read if columns.late_read is None else columns.late_read
    has_indices = bool((yield from load_table_indices(state)).indices)
    is_counted = not columns.projection.data_paths  # mostly without data
    is_opened = has_indices and not state.is_local and not is_counted
    if read is None or not is_opened or len(fragment_indexes) > OPENED_FRAGMENTS_MAX:
        return (yield from indexed_rows(state, predicate.expression, rows_max))
    sources = [state.sources[index] for index in fragment_indexes]
    opening = TableReader(state.context, read).open_files(sources)
    rows, _ = yield Together[Any]([indexed_rows(state, predicate.expression, rows_max), opening])
    return rows  # type: ignore[no-any-return]


def _rows_max(state: DatasetState, options: ScanOptions) -> int | None:
    return None if options.hints.get("fast_search") else index_rows_max(int(state.physical_rows.sum()))


def index_rows_max(num_rows: int) -> int:
    """Rows of index files that a filter may read: with more, a scan is as fast, and holds no set of rows."""
    return max(INDEX_ROWS_MIN, min(INDEX_ROWS_MAX, num_rows // INDEX_ROWS_SHARE))


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
        offsets = _each(starts, lengths)
        if live.deleted is not None:
            offsets = offsets[~live.is_deleted(offsets)]
        offsets = offsets[:rows_max]
        if not len(offsets):
            return cls(index, (), offsets, 0)
        return cls(index, (Span(index, int(offsets[0]), int(offsets[-1]) + 1),), offsets, len(offsets))


def _each(starts: IntArray, lengths: IntArray) -> IntArray:
    """The rows of runs, one by one."""
    num_rows = int(lengths.sum())
    if num_rows == len(starts):
        return starts
    before = np.cumsum(lengths) - lengths
    rows: IntArray = np.arange(num_rows, dtype=np.int64) + np.repeat(starts - before, lengths)
    return rows


def _by_fragment(
    state: DatasetState, rows: RowSet, fragment_indexes: Sequence[int]
) -> dict[int, tuple[IntArray, IntArray]]:
    """Runs of rows by fragment index, in the order of the fragments: first offsets and ends."""
    starts, ends = rows.starts.astype(np.int64), rows.ends.astype(np.int64)  # no run passes the end of a fragment
    ids = starts >> OFFSET_BITS
    firsts = np.flatnonzero(np.r_[len(ids) > 0, ids[1:] != ids[:-1]])  # they ascend
    ids = ids[firsts]
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
