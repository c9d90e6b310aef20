"""Cutting a scan of one version into parts of about the same bytes.

The measure is decoded bytes of the columns read: type widths where they are fixed, and for texts and lists their share
of the data files' bytes. A cut may fall inside a fragment, at a multiple of 1,024 rows if that changes little; small
fragments are packed together. Row ranges count physical rows, so no deletion file has to be read. Where indices name
the rows of a filter, only these count, and parts carry them (`named_rows`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from lance_io.dataset.distributed.named_rows import (
    NamedRows,
    live_named_rows,
    load_named_rows,
    pack_rows,
    unpack_rows,
)
from lance_io.dataset.distributed.scan_request import ScanPart, row_width
from lance_io.errors import UnsupportedError
from lance_io.lazy_names import lazy_module
from lance_io.reads.rows.deletions_and_ids import load_live, load_live_counts
from lance_io.reads.run_plan import run_on
from lance_io.reads.scan.scan_options import scan_options
from lance_io.reads.scan.scan_plan import bind_filter, plan_scan
from lance_io.reads.version.system_columns import ROW_OFFSET

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_io.dataset.distributed.table_place import TablePlace
    from lance_io.dataset.distributed.table_scan import TableScan
    from lance_io.plans.plan import Plan
    from lance_io.reads.scan import explain
    from lance_io.reads.scan.io_plan import IoPlan
    from lance_io.reads.version.state import DatasetState
else:
    explain = lazy_module("lance_io.reads.scan.explain")

CUT_ROWS: Final = 1024  # pages and chunks tend to start at its multiples
CUT_SHIFT_MAX: Final = 0.05  # share of a part by which a cut may move to a better row
TEXT_BYTES: Final = 32  # minimum for a value without a fixed width

RowRange: TypeAlias = tuple[int, int, int]  # index of a fragment, first row, end row


@dataclass(frozen=True, slots=True)
class PlannedParts:
    """A scan that was cut.

    Attributes:
        parts: Its parts, at least one.
        index: Description of the indices that name rows of it; None for none.
        num_rows: Rows, deleted ones included, if an index names all rows and no others; else None.
    """

    parts: tuple[ScanPart, ...]
    index: str | None = None
    num_rows: int | None = None


def plan_parts(
    state: DatasetState,
    scan: TableScan,
    *,
    part_bytes: int,
    num_parts: int | None,
    max_parts: int,
    fragment_indexes: Sequence[int] | None,
) -> PlannedParts:
    """The parts of a scan; see `TableVersion.plan_parts`."""
    fragment_indexes = state.all_fragment_indexes if fragment_indexes is None else fragment_indexes
    _check_filter(state, scan)
    ranges = _ranges(state, scan, fragment_indexes)
    named = run_on(state.location.store, load_named_rows(state, scan.request.filter))
    if named is not None:
        ranges = named.ranges_of(state, ranges)
    widths = row_bytes(state, scan, [fragment_index for fragment_index, _, _ in ranges])
    if named is not None:
        widths = [width * named.share(state, *range) for width, range in zip(widths, ranges, strict=True)]
    if scan.request.limit is not None and scan.request.filter is not None:
        wanted = 1  # only a single scan in order can tell which rows come first
    else:
        wanted = num_parts or _how_many(ranges, widths, part_bytes, max_parts)
    parts = cut(ranges, widths, wanted, keep_empty=num_parts is not None)
    by_place = dict(zip([fragment_index for fragment_index, _, _ in ranges], widths, strict=True))
    planned = tuple(_part(state, scan, number, part, by_place, named) for number, part in enumerate(parts))
    if named is None:
        return PlannedParts(planned)
    is_whole = named.is_exact and all(None not in part.named for part in planned)
    return PlannedParts(planned, named.index, sum(map(_named_rows, planned)) if is_whole else None)


def _named_rows(part: ScanPart) -> int:
    """Rows of a part that indices name."""
    return sum(int((rows[:, 1] - rows[:, 0]).sum()) for rows in map(unpack_rows, filter(None, part.named)))


def _check_filter(state: DatasetState, scan: TableScan) -> None:
    """Compile the filter, so that the planner reports its errors rather than every task."""
    if scan.request.filter is None:
        return
    if ROW_OFFSET in bind_filter(state, scan.request.filter).columns:
        raise UnsupportedError(f"{ROW_OFFSET} counts the rows of the whole table, which a task does not see")


def _ranges(state: DatasetState, scan: TableScan, fragment_indexes: Sequence[int]) -> list[RowRange]:
    request = scan.request
    if (request.limit is None and not request.offset) or request.filter is not None:
        return [
            (fragment_index, 0, int(state.physical_rows[fragment_index]))
            for fragment_index in fragment_indexes
            if state.physical_rows[fragment_index]
        ]
    ids = [state.fragment_ids[fragment_index] for fragment_index in fragment_indexes]
    limited = scan_options(columns=[], limit=request.limit, offset=request.offset, fragments=ids)
    plan = run_on(state.location.store, plan_scan(state, limited))
    return [(span.fragment_index, span.start, span.end) for span in plan.spans]


def row_bytes(state: DatasetState, scan: TableScan, fragment_indexes: Sequence[int]) -> list[float]:
    """Decoded bytes of a row in each of these fragments, at least 1."""
    fixed, variable = scan.row_width
    fixed_all, variable_all = row_width([column.type for column in state.arrow_schema])
    row_sizes = []
    for fragment_index in fragment_indexes:
        per_value = float(TEXT_BYTES)
        if variable:
            sizes = [file.size_bytes or 0 for file in state.manifest.fragments[fragment_index].files]
            stored = sum(sizes) / max(1, int(state.physical_rows[fragment_index]))
            per_value = max(per_value, (stored - fixed_all) / max(1, variable_all))
        row_sizes.append(max(1.0, fixed + variable * per_value))
    return row_sizes


def _how_many(ranges: Sequence[RowRange], widths: Sequence[float], part_bytes: int, max_parts: int) -> int:
    total = sum((end - start) * width for (_, start, end), width in zip(ranges, widths, strict=True))
    return min(max(1, math.ceil(total / part_bytes - CUT_SHIFT_MAX)), max_parts)


def _part(
    state: DatasetState,
    scan: TableScan,
    number: int,
    part: Sequence[RowRange],
    widths: dict[int, float],
    named: NamedRows | None,
) -> ScanPart:
    rows = () if named is None else tuple(named.within(state, *range) for range in part)
    return ScanPart(
        number=number,
        version=state.manifest.version,
        ranges=tuple((state.fragment_ids[fragment_index], start, end - start) for fragment_index, start, end in part),
        num_bytes=round(sum((end - start) * widths[fragment_index] for fragment_index, start, end in part)),
        fragments=tuple(scan.entry(state, fragment_index) for fragment_index, _, _ in part),
        named=tuple(None if each is None else pack_rows(each) for each in rows),
        is_exact=named is not None and named.is_exact,
    )


# -- cutting -----------------------------------------------------------------------------------------------------------


def cut(
    ranges: Sequence[RowRange], widths: Sequence[float], num_parts: int, *, keep_empty: bool = False
) -> list[list[RowRange]]:
    """Cut row ranges into parts of about the same bytes, in order.

    ranges      one for each fragment
    widths      bytes of a row of each
    keep_empty  return exactly `num_parts`; otherwise parts without rows are left out, except a single one
    """
    sizes = np.array([(end - start) * width for (_, start, end), width in zip(ranges, widths, strict=True)])
    ends = np.concatenate((np.zeros(1), np.cumsum(sizes)))
    part_bytes = float(ends[-1]) / num_parts
    cuts = [(0, ranges[0][1] if ranges else 0)]
    for number in range(1, num_parts):
        cut = _cut_at(ranges, widths, ends, number * part_bytes, CUT_SHIFT_MAX * part_bytes)
        cuts.append(max(cut, cuts[-1]))
    cuts.append((len(ranges), 0))
    parts = [_between(ranges, first, last) for first, last in pairwise(cuts)]
    return parts if keep_empty else [part for part in parts if part] or [[]]


def _cut_at(
    ranges: Sequence[RowRange],
    widths: Sequence[float],
    ends: npt.NDArray[np.float64],
    position: float,
    shift_max: float,
) -> tuple[int, int]:
    """The number of the range, and the row there, before which about `position` bytes lie."""
    if not ranges:
        return 0, 0
    number = min(int(np.searchsorted(ends, position, side="right")) - 1, len(ranges) - 1)
    _, start, end = ranges[number]
    row = start + round((position - float(ends[number])) / widths[number])
    rounded = (row + CUT_ROWS // 2) // CUT_ROWS * CUT_ROWS
    for better in (start, end, rounded):
        if start <= better <= end and abs(better - row) * widths[number] <= shift_max:
            row = better
            break
    return (number + 1, ranges[number + 1][1] if number + 1 < len(ranges) else 0) if row >= end else (number, row)


def _between(ranges: Sequence[RowRange], first: tuple[int, int], last: tuple[int, int]) -> list[RowRange]:
    """The rows from one cut to the next."""
    cut_ranges = []
    for number in range(first[0], min(last[0] + 1, len(ranges))):
        fragment_index, start, end = ranges[number]
        start = max(start, first[1]) if number == first[0] else start
        end = min(end, last[1]) if number == last[0] else end
        if start < end:
            cut_ranges.append((fragment_index, start, end))
    return cut_ranges


# -- what parts are like -----------------------------------------------------------------------------------------------


def live_rows(state: DatasetState, parts: Sequence[ScanPart]) -> Plan[list[int]]:
    """Live rows of each part, of those that indices name. The manifest nearly always answers for whole fragments."""
    ranges = [
        (state.fragment_indexes_of([fragment_id])[0], start, start + rows)
        for part in parts
        for fragment_id, start, rows in part.ranges
    ]
    named = [rows for part in parts for rows in part.named or [None] * len(part.ranges)]
    whole = [
        fragment_index
        for (fragment_index, start, end), rows in zip(ranges, named, strict=True)
        if rows is None and end - start == state.physical_rows[fragment_index]
    ]
    counts = dict(zip(whole, (yield from load_live_counts(state, whole)), strict=True))
    live = yield from load_live(state, list({fragment_index for fragment_index, _, _ in ranges} - {*whole}))
    left = iter(
        counts[fragment_index]
        if fragment_index in counts
        else end - start - len(live[fragment_index].deleted_between(start, end))
        if rows is None
        else live_named_rows(rows, live[fragment_index])
        for (fragment_index, start, end), rows in zip(ranges, named, strict=True)
    )
    return [sum(next(left) for _ in part.ranges) for part in parts]


def num_requests(table: TablePlace, scan: TableScan, part: ScanPart) -> int:
    """Approximate number of a task's requests; deleted rows shift the explained range a little."""
    if not part.ranges:
        return 0

    state, filter = scan.state(table, part), scan.request.filter
    given: dict[str, Any] = {} if filter is not None else {"offset": part.ranges[0][1], "limit": part.physical_rows}
    explained = scan_options(columns=scan.request.quoted_columns, filter=filter, **given)
    plan: IoPlan = run_on(state.location.store, explain.explain_scan(state, explained, cold=True))
    return plan.num_requests
