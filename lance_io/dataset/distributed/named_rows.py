"""Rows that the indices of a version name for a filter, and their form in the parts of a scan.

The planner asks the indices once for the whole scan. A part carries the named rows of its fragments as pairs of
offsets, first and end of each run, u32; so a task reads no file of an index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from lance_io.index.details import Space
from lance_io.index.rows.row_set import RowSet
from lance_io.lazy_names import lazy_module
from lance_io.plans.lazy_module import lazy_plans
from lance_io.reads.rows.row_arithmetic import OFFSET_BITS
from lance_io.reads.scan.scan_plan import bind_filter
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lance_io.dataset.distributed.scan_request import ScanPart
    from lance_io.filters import Predicate
    from lance_io.plans.plan import Plan
    from lance_io.reads.index import describe_choice, indexed_rows
    from lance_io.reads.rows.row_arithmetic import LiveRows
    from lance_io.reads.version.state import DatasetState
else:  # for tables with indices only
    describe_choice = lazy_module("lance_io.reads.index.describe_choice")
    indexed_rows = lazy_plans("lance_io.reads.index.indexed_rows")

INDEX_ROWS_MAX: Final = 1 << 20
"""Rows of index files that the planner reads for a filter, and runs that it sends to tasks: 16 MB of memory. Tasks read
a column of more rows together in about the time in which the planner alone reads its index."""
Runs = npt.NDArray[np.uint32]
_OFFSETS: Final = np.uint64((1 << OFFSET_BITS) - 1)


@dataclass(frozen=True, slots=True, eq=False)
class NamedRows:
    """Rows of a filter.

    runs      of each fragment with such rows, by its id: u32[n, 2], first offsets and ends, ascending
    covered   ids of the fragments that the indices cover; others have to be examined
    is_exact  whether the filter passes all these rows
    index     describes the indices and their conditions
    """

    runs: Mapping[int, Runs]
    covered: frozenset[int]
    is_exact: bool
    index: str

    def ranges_of(self, state: DatasetState, ranges: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        """Ranges of rows, `(index of a fragment, first row, end row)`, shrunk to their named rows."""
        shrunk = []
        for fragment_index, start, end in ranges:
            rows = self.within(state, fragment_index, start, end)
            if rows is None:
                shrunk.append((fragment_index, start, end))
            elif len(rows):
                shrunk.append((fragment_index, int(rows[0, 0]), int(rows[-1, 1])))
        return shrunk

    def within(self, state: DatasetState, fragment_index: int, start: int, end: int) -> Runs | None:
        """The named rows of a range; None if the indices do not cover its fragment."""
        fragment_id = state.fragment_ids[fragment_index]
        if fragment_id not in self.covered:
            return None
        rows = self.runs.get(fragment_id)
        if rows is None:
            return np.empty((0, 2), np.uint32)
        here = rows[(rows[:, 0] < end) & (rows[:, 1] > start)]
        return np.clip(here, np.uint32(start), np.uint32(end))

    def share(self, state: DatasetState, fragment_index: int, start: int, end: int) -> float:
        """The share of named rows among those of a range; 1 for one that has to be examined."""
        rows = self.within(state, fragment_index, start, end)
        if rows is None:
            return 1.0
        return float((rows[:, 1] - rows[:, 0]).sum()) / max(1, end - start)


def load_named_rows(state: DatasetState, filter: str | Predicate | None) -> Plan[NamedRows | None]:
    """The rows that indices name; None if none of them answers a part of the filter, or would read too much for it.

    Raises `FormatError` for a damaged index.
    """
    predicate = None if filter is None else bind_filter(state, filter)
    if predicate is None or not state.has_index or not predicate.is_whole:
        return None
    rows = yield from indexed_rows.indexed_rows(state, predicate.expression, INDEX_ROWS_MAX)
    if rows is None:
        return None
    starts, ends = rows.rows.starts, rows.rows.ends
    ids, firsts = np.unique(starts >> np.uint64(OFFSET_BITS), return_index=True)
    # No run passes the end of its fragment, which may be at the last offset.
    offsets = np.stack([starts & _OFFSETS, ends - (starts & ~_OFFSETS)], axis=1).astype(np.uint32)
    runs = dict(zip(ids.tolist(), np.split(offsets, firsts[1:]), strict=True)) if len(ids) else {}
    return NamedRows(runs, rows.covered, not rows.choice.rest, describe_choice.describe_choice(rows.choice))


def pack_rows(rows: Runs) -> bytes:
    """The form of named rows in a part."""
    return rows.astype("<u4").tobytes()


def unpack_rows(packed: bytes) -> Runs:
    """The inverse of `pack_rows`."""
    return np.frombuffer(packed, "<u4").reshape(-1, 2)


def live_named_rows(packed: bytes, live: LiveRows) -> int:
    """The number of named rows of a fragment that are not deleted."""
    return sum(end - start - len(live.deleted_between(start, end)) for start, end in unpack_rows(packed).tolist())


def row_set(part: ScanPart, numbers: Sequence[int]) -> RowSet:
    """The addresses of the named rows of some ranges of a part, by the numbers of these."""
    starts: list[npt.NDArray[Any]] = []
    ends: list[npt.NDArray[Any]] = []
    for number in numbers:
        rows = unpack_rows(part.named[number] or b"").astype(np.uint64)
        first = np.uint64(part.ranges[number][0] << OFFSET_BITS)
        starts.append(rows[:, 0] + first)
        ends.append(rows[:, 1] + first)
    return RowSet.of_runs(Space.ADDRESSES, np.concatenate(starts), np.concatenate(ends))
