"""Cutting a table version into partitions of about the same bytes.

A task costs Spark around 100 ms before it reads anything, so partitions are as large as `split_bytes` allows. What
counts are the decoded bytes of the columns that are read: widths of types where these say them, and for texts and lists
their share of what the data files hold. A cut may fall inside a fragment, at a multiple of 1024 rows where this changes
little; small fragments are packed together. Row ranges are physical rows, so that nobody has to count deleted ones.

"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from lance_io.dataset.rows.deletions_and_ids import load_live, load_live_counts
from lance_io.dataset.scan.scan_options import scan_options
from lance_io.dataset.scan.scan_plan import compiled_filter, plan_scan
from lance_io.dataset.version.system_columns import ROW_OFFSET
from lance_io.errors import UnsupportedError
from lance_io.spark.engine import run
from lance_io.spark.read.partition_state import PartitionPlan, fragment_message, header_of, restored
from lance_io.spark.read.read_columns import decoded_width

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from lance_io.dataset.scan.io_plan import IoPlan
    from lance_io.dataset.version.column_lists import Projection
    from lance_io.dataset.version.state import DatasetState
    from lance_io.plans.plan import Plan
    from lance_io.spark.options import ReadOptions

CUT_ROWS: Final = 1024  # pages and chunks like to begin at multiples of it
CUT_SHIFT_MAX: Final = 0.05  # of a partition, by which a cut may move to a better place
TEXT_BYTES: Final = 32  # what a value of no fixed width counts at least

Span: TypeAlias = tuple[int, int, int]  # place of a fragment, first row, end row


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """What one task reads, as `ReadPlan` shows it.

    number   its place among the partitions
    version  of the table
    ranges   (fragment id, first row, rows), physical rows; each of another fragment, in the order of the table
    rows     rows that come: deleted ones are not counted, those that a filter drops are
    bytes    decoded bytes of the columns that are read, estimated
    """

    number: int
    version: int
    ranges: tuple[tuple[int, int, int], ...]
    rows: int
    bytes: int


@dataclass(frozen=True)
class ReadPlan:
    """How a read is cut.

    version     of the table
    parts       what travels to the tasks, in the order of the table's rows
    partitions  the same for people; computing it reads the deletion files of fragments that are cut
    bytes       decoded bytes of the columns that are read, estimated
    requests    what all tasks together ask of the store, about; computing it reads the metadata of the data files
    """

    version: int
    parts: tuple[PartitionPlan, ...] = field(repr=False)
    _state: DatasetState = field(repr=False)
    _options: ReadOptions = field(repr=False)

    @cached_property
    def partitions(self) -> tuple[PlannedPartition, ...]:
        """See the class."""
        counted = run(self._state.location.store, _live_rows(self._state, self.parts))
        return tuple(
            PlannedPartition(part.number, part.version, part.ranges, rows, part.bytes)
            for part, rows in zip(self.parts, counted, strict=True)
        )

    @property
    def bytes(self) -> int:
        """See the class."""
        return sum(one.bytes for one in self.parts)

    @cached_property
    def requests(self) -> int:
        """See the class."""
        header = header_of(self._state, self._options)
        branch = self._state.manifest.branch
        return sum(_requests(self._options, header, branch, one) for one in self.parts)


# -- sizes -----------------------------------------------------------------------------------------------------------


def row_bytes(state: DatasetState, projection: Projection, places: Sequence[int]) -> list[float]:
    """Decoded bytes of a row of the fragments at `places`, at least 1."""
    fixed, variable = _widths([output.field.type for output in projection.outputs])
    fixed_all, variable_all = _widths([one.type for one in state.arrow_schema])
    found = []
    for place in places:
        per_value = float(TEXT_BYTES)
        if variable:
            sizes = [file.size_bytes or 0 for file in state.manifest.fragments[place].files]
            stored = sum(sizes) / max(1, int(state.physical_rows[place]))
            per_value = max(per_value, (stored - fixed_all) / max(1, variable_all))
        found.append(max(1.0, fixed + variable * per_value))
    return found


def _widths(dtypes: Sequence[pa.DataType]) -> tuple[float, int]:
    widths = [decoded_width(dtype) for dtype in dtypes]
    return sum(fixed for fixed, _ in widths), sum(variable for _, variable in widths)


# -- partitions ------------------------------------------------------------------------------------------------------


def plan_read(
    state: DatasetState, options: ReadOptions, projection: Projection, places: Sequence[int] | None = None
) -> ReadPlan:
    """The partitions of a read; at least one, which may have no rows.

    places  the fragments to read, None for all
    Raises what compiling the filter raises.
    """
    places = state.all_places if places is None else places
    _check_filter(state, options)
    spans = _spans(state, options, places)
    widths = row_bytes(state, projection, [place for place, _, _ in spans])
    parts = cut(spans, widths, _how_many(spans, widths, options), keep_empty=options.num_partitions is not None)
    by_place = dict(zip([place for place, _, _ in spans], widths, strict=True))
    plans = [_partition(state, options, number, part, by_place) for number, part in enumerate(parts)]
    return ReadPlan(state.manifest.version, tuple(plans), state, options)


def _check_filter(state: DatasetState, options: ReadOptions) -> None:
    """Compile the filter, so that what is wrong with it is said by the planner and not by every task."""
    if options.filter is None:
        return
    if ROW_OFFSET in compiled_filter(state, options.filter).columns:
        raise UnsupportedError(f"{ROW_OFFSET} counts the rows of the whole table, which a task does not see")


def _spans(state: DatasetState, options: ReadOptions, places: Sequence[int]) -> list[Span]:
    if options.limit is None or options.filter is not None:
        return [(place, 0, int(state.physical_rows[place])) for place in places if state.physical_rows[place]]
    ids = [state.fragment_ids[place] for place in places]
    scan = scan_options(columns=[], limit=options.limit, fragments=ids)
    plan = run(state.location.store, plan_scan(state, scan))
    return [(span.place, span.start, span.end) for span in plan.spans]


def _how_many(spans: Sequence[Span], widths: Sequence[float], options: ReadOptions) -> int:
    if options.limit is not None and options.filter is not None:
        return 1  # only one scan in order knows which rows come first
    if options.num_partitions is not None:
        return options.num_partitions
    total = sum((end - start) * width for (_, start, end), width in zip(spans, widths, strict=True))
    wanted = math.ceil(total / options.split_bytes - CUT_SHIFT_MAX)
    return min(max(1, wanted), options.max_partitions)


def cut(
    spans: Sequence[Span], widths: Sequence[float], num_parts: int, *, keep_empty: bool = False
) -> list[list[Span]]:
    """Row ranges cut into parts of about the same bytes, in order.

    spans       each of another fragment
    widths      bytes of a row of each
    keep_empty  give exactly `num_parts`; otherwise parts without rows are left out, but for one
    """
    sizes = np.array([(end - start) * width for (_, start, end), width in zip(spans, widths, strict=True)])
    ends = np.concatenate((np.zeros(1), np.cumsum(sizes)))
    part_bytes = float(ends[-1]) / num_parts
    cuts = [(0, spans[0][1] if spans else 0)]
    for number in range(1, num_parts):
        found = _cut_at(spans, widths, ends, number * part_bytes, CUT_SHIFT_MAX * part_bytes)
        cuts.append(max(found, cuts[-1]))
    cuts.append((len(spans), 0))
    parts = [_between(spans, first, last) for first, last in pairwise(cuts)]
    return parts if keep_empty else [part for part in parts if part] or [[]]


def _cut_at(
    spans: Sequence[Span], widths: Sequence[float], ends: npt.NDArray[np.float64], position: float, shift_max: float
) -> tuple[int, int]:
    """The number of the span and the row there, at which so many bytes lie before."""
    if not spans:
        return 0, 0
    number = min(int(np.searchsorted(ends, position, side="right")) - 1, len(spans) - 1)
    _, start, end = spans[number]
    row = start + round((position - float(ends[number])) / widths[number])
    rounded = (row + CUT_ROWS // 2) // CUT_ROWS * CUT_ROWS
    for better in (start, end, rounded):
        if start <= better <= end and abs(better - row) * widths[number] <= shift_max:
            row = better
            break
    return (number + 1, spans[number + 1][1] if number + 1 < len(spans) else 0) if row >= end else (number, row)


def _between(spans: Sequence[Span], first: tuple[int, int], last: tuple[int, int]) -> list[Span]:
    """The rows from one cut to before another."""
    found = []
    for number in range(first[0], min(last[0] + 1, len(spans))):
        place, start, end = spans[number]
        start = max(start, first[1]) if number == first[0] else start
        end = min(end, last[1]) if number == last[0] else end
        if start < end:
            found.append((place, start, end))
    return found


def _partition(
    state: DatasetState,
    options: ReadOptions,
    number: int,
    part: Sequence[Span],
    widths: dict[int, float],
) -> PartitionPlan:
    messages = [fragment_message(state, options, place) for place, _, _ in part]
    return PartitionPlan(
        number=number,
        version=state.manifest.version,
        ranges=tuple((state.fragment_ids[place], start, end - start) for place, start, end in part),
        bytes=round(sum((end - start) * widths[place] for place, start, end in part)),
        fragments=tuple(messages),
    )


def _live_rows(state: DatasetState, parts: Sequence[PartitionPlan]) -> Plan[list[int]]:
    """How many rows of each part are left; whole fragments by the manifest, which nearly always says."""
    ranges = [(state.places_by_id([one])[0], start, start + rows) for part in parts for one, start, rows in part.ranges]
    whole = [place for place, start, end in ranges if end - start == state.physical_rows[place]]
    counts = dict(zip(whole, (yield from load_live_counts(state, whole)), strict=True))
    live = yield from load_live(state, list({place for place, _, _ in ranges} - {*whole}))
    left = iter(
        counts[place] if place in counts else end - start - len(live[place].deleted_between(start, end))
        for place, start, end in ranges
    )
    return [sum(next(left) for _ in part.ranges) for part in parts]


def _requests(options: ReadOptions, header: bytes, branch: str | None, part: PartitionPlan) -> int:
    """What a task asks of the store; deleted rows shift the range that is explained a little."""
    if not part.ranges:
        return 0
    from lance_io.dataset.scan.explain import explain_scan

    state = restored(options, header, branch, part)
    names = [".".join(f"`{name.replace('`', '``')}`" for name in path) for path in options.columns or ()]
    given: dict[str, Any] = (
        {} if options.filter is not None else {"offset": part.ranges[0][1], "limit": part.physical_rows}
    )
    scan = scan_options(columns=names if options.columns is not None else None, filter=options.filter, **given)
    plan: IoPlan = run(state.location.store, explain_scan(state, scan, cold=True))
    return plan.num_requests
