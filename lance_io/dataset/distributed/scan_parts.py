"""Cutting a scan of one version into parts of about the same bytes.

What counts are the decoded bytes of the columns that are read: widths of types where these say them, and for texts and
lists their share of what the data files hold. A cut may fall inside a fragment, at a multiple of 1024 rows where this
changes little; small fragments are packed together. Row ranges are physical rows, so that nobody has to count deleted
ones.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from lance_io.dataset.distributed.scan_request import ScanPart, row_width
from lance_io.errors import UnsupportedError
from lance_io.lazy_names import later
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
    explain = later("lance_io.reads.scan.explain")

CUT_ROWS: Final = 1024  # pages and chunks like to begin at multiples of it
CUT_SHIFT_MAX: Final = 0.05  # of a part, by which a cut may move to a better place
TEXT_BYTES: Final = 32  # what a value of no fixed width counts at least

RowRange: TypeAlias = tuple[int, int, int]  # place of a fragment, first row, end row


def plan_parts(
    state: DatasetState,
    scan: TableScan,
    *,
    part_bytes: int,
    num_parts: int | None,
    max_parts: int,
    places: Sequence[int] | None,
) -> tuple[ScanPart, ...]:
    """The parts of a scan; see `TableVersion.parts`."""
    places = state.all_places if places is None else places
    _check_filter(state, scan)
    ranges = _ranges(state, scan, places)
    widths = row_bytes(state, scan, [place for place, _, _ in ranges])
    if scan.request.limit is not None and scan.request.filter is not None:
        wanted = 1  # only one scan in order knows which rows come first
    else:
        wanted = num_parts or _how_many(ranges, widths, part_bytes, max_parts)
    parts = cut(ranges, widths, wanted, keep_empty=num_parts is not None)
    by_place = dict(zip([place for place, _, _ in ranges], widths, strict=True))
    return tuple(_part(state, scan, number, part, by_place) for number, part in enumerate(parts))


def _check_filter(state: DatasetState, scan: TableScan) -> None:
    """Compile the filter, so that what is wrong with it is said by who plans and not by every task."""
    if scan.request.filter is None:
        return
    if ROW_OFFSET in bind_filter(state, scan.request.filter).columns:
        raise UnsupportedError(f"{ROW_OFFSET} counts the rows of the whole table, which a task does not see")


def _ranges(state: DatasetState, scan: TableScan, places: Sequence[int]) -> list[RowRange]:
    request = scan.request
    if request.limit is None or request.filter is not None:
        return [(place, 0, int(state.physical_rows[place])) for place in places if state.physical_rows[place]]
    ids = [state.fragment_ids[place] for place in places]
    limited = scan_options(columns=[], limit=request.limit, fragments=ids)
    plan = run_on(state.location.store, plan_scan(state, limited))
    return [(span.place, span.start, span.end) for span in plan.spans]


def row_bytes(state: DatasetState, scan: TableScan, places: Sequence[int]) -> list[float]:
    """Decoded bytes of a row of the fragments at `places`, at least 1."""
    fixed, variable = scan.row_width
    fixed_all, variable_all = row_width([one.type for one in state.arrow_schema])
    found = []
    for place in places:
        per_value = float(TEXT_BYTES)
        if variable:
            sizes = [file.size_bytes or 0 for file in state.manifest.fragments[place].files]
            stored = sum(sizes) / max(1, int(state.physical_rows[place]))
            per_value = max(per_value, (stored - fixed_all) / max(1, variable_all))
        found.append(max(1.0, fixed + variable * per_value))
    return found


def _how_many(ranges: Sequence[RowRange], widths: Sequence[float], part_bytes: int, max_parts: int) -> int:
    total = sum((end - start) * width for (_, start, end), width in zip(ranges, widths, strict=True))
    return min(max(1, math.ceil(total / part_bytes - CUT_SHIFT_MAX)), max_parts)


def _part(
    state: DatasetState, scan: TableScan, number: int, part: Sequence[RowRange], widths: dict[int, float]
) -> ScanPart:
    return ScanPart(
        number=number,
        version=state.manifest.version,
        ranges=tuple((state.fragment_ids[place], start, end - start) for place, start, end in part),
        num_bytes=round(sum((end - start) * widths[place] for place, start, end in part)),
        fragments=tuple(scan.entry(state, place) for place, _, _ in part),
    )


# -- cutting -----------------------------------------------------------------------------------------------------------


def cut(
    ranges: Sequence[RowRange], widths: Sequence[float], num_parts: int, *, keep_empty: bool = False
) -> list[list[RowRange]]:
    """Row ranges cut into parts of about the same bytes, in order.

    ranges       each of another fragment
    widths      bytes of a row of each
    keep_empty  give exactly `num_parts`; otherwise parts without rows are left out, but for one
    """
    sizes = np.array([(end - start) * width for (_, start, end), width in zip(ranges, widths, strict=True)])
    ends = np.concatenate((np.zeros(1), np.cumsum(sizes)))
    part_bytes = float(ends[-1]) / num_parts
    cuts = [(0, ranges[0][1] if ranges else 0)]
    for number in range(1, num_parts):
        found = _cut_at(ranges, widths, ends, number * part_bytes, CUT_SHIFT_MAX * part_bytes)
        cuts.append(max(found, cuts[-1]))
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
    """The number of the range and the row there, at which so many bytes lie before."""
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
    """The rows from one cut to before another."""
    found = []
    for number in range(first[0], min(last[0] + 1, len(ranges))):
        place, start, end = ranges[number]
        start = max(start, first[1]) if number == first[0] else start
        end = min(end, last[1]) if number == last[0] else end
        if start < end:
            found.append((place, start, end))
    return found


# -- what parts are like -----------------------------------------------------------------------------------------------


def live_rows(state: DatasetState, parts: Sequence[ScanPart]) -> Plan[list[int]]:
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


def num_requests(place: TablePlace, scan: TableScan, part: ScanPart) -> int:
    """What a task asks of the store; deleted rows shift the range that is explained a little."""
    if not part.ranges:
        return 0

    state, filter = scan.state(place, part), scan.request.filter
    given: dict[str, Any] = {} if filter is not None else {"offset": part.ranges[0][1], "limit": part.physical_rows}
    explained = scan_options(columns=scan.request.quoted_columns, filter=filter, **given)
    plan: IoPlan = run_on(state.location.store, explain.explain_scan(state, explained, cold=True))
    return plan.num_requests
