"""Arithmetic of rows: positions, physical offsets, addresses. Pure, on arrays throughout.

    position   counts live rows over the whole table, as in `take` and `_rowoffset`
    offset     counts the rows of one fragment as its data files hold them, including deleted ones
    address    `fragment id << 32 | offset` (specification: table, section 5)
    row id     the address, or in a table with stable row ids an entry of the row id sequence

A deletion vector is a sorted array of offsets without duplicates. `deleted - arange(n)` counts, for each deleted row,
the live rows before it: a sorted array too, so that one binary search maps positions to offsets.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from lance_io._kernels import distinct_rows, split_rows
from lance_io.records import dataclass
from lance_io.spans import int64s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.spans import IntArray

# with fewer positions per deleted row, binary search beats a pass over all deleted rows (there may be millions)
FEW_POSITIONS = 64
OFFSET_BITS = 32
OFFSET_MASK = (1 << OFFSET_BITS) - 1

UIntArray: TypeAlias = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class LiveRows:
    """The rows of one fragment that are not deleted.

    num_rows  physical rows, deleted ones included
    deleted   i64[d], offsets of the deleted rows, ascending, each below `num_rows`; None if there are none
    """

    num_rows: int
    deleted: IntArray | None = None

    @property
    def num_live(self) -> int:
        """Number of live rows."""
        return self.num_rows - (0 if self.deleted is None else len(self.deleted))

    def offsets(self, positions: IntArray) -> IntArray:
        """Offsets of live rows given by position; any order, below `num_live`."""
        if self.deleted is None:
            return positions
        return positions + self._num_deleted_before(self.deleted, positions)

    @staticmethod
    def _num_deleted_before(deleted: IntArray, positions: IntArray) -> IntArray:
        """Deleted rows before the row at each position: the number of `k` with `deleted[k] - k` not above it."""
        if len(positions) * FEW_POSITIONS > len(deleted):
            live_before = deleted - np.arange(len(deleted), dtype=np.int64)
            return np.searchsorted(live_before, positions, side="right")
        low = np.zeros(len(positions), dtype=np.int64)
        high = np.full(len(positions), len(deleted), dtype=np.int64)
        for _ in range(len(deleted).bit_length()):  # bisects all positions at once
            middle = np.minimum((low + high) >> 1, len(deleted) - 1)
            is_before = deleted[middle] - middle <= positions
            low, high = np.where((low < high) & is_before, middle + 1, low), np.where(is_before, high, middle)
        return low

    def positions(self, offsets: IntArray) -> IntArray:
        """Positions of live rows given by offset."""
        if self.deleted is None:
            return offsets
        return offsets - np.searchsorted(self.deleted, offsets, side="left")

    def span(self, first: int, last: int) -> tuple[int, int]:
        """Physical rows from position `first` to before `last`, without deleted rows at the edges."""
        if first >= last:
            return 0, 0
        start, end = self.offsets(np.array([first, last - 1], dtype=np.int64)).tolist()
        return start, end + 1

    def deleted_between(self, start: int, end: int) -> IntArray:
        """Deleted offsets in `start .. end`, relative to `start`."""
        if self.deleted is None:
            return np.empty(0, dtype=np.int64)
        first, last = np.searchsorted(self.deleted, (start, end))
        return self.deleted[first:last] - start

    def is_deleted(self, offsets: IntArray) -> npt.NDArray[np.bool_]:
        """For each offset, whether its row is deleted."""
        if self.deleted is None or not len(self.deleted):
            return np.zeros(len(offsets), dtype=np.bool_)
        at = np.minimum(np.searchsorted(self.deleted, offsets), len(self.deleted) - 1)
        return np.asarray(self.deleted[at] == offsets)


def kept_runs(num_rows: int, dropped: IntArray) -> tuple[IntArray, IntArray]:
    """Non-empty runs `(starts, ends)` of `num_rows` rows without the rows `dropped` (ascending)."""
    starts = np.concatenate((np.zeros(1, np.int64), dropped + 1))
    ends = np.concatenate((dropped, np.array([num_rows], np.int64)))
    filled = starts < ends
    return starts[filled], ends[filled]


def addresses(fragment_id: int, offsets: IntArray) -> UIntArray:
    """Row addresses, u64, of rows of one fragment."""
    return offsets.view(np.uint64) | np.uint64(fragment_id << OFFSET_BITS)  # offsets are not negative


@dataclass(frozen=True, slots=True, eq=False)
class Grouped:
    """Requested rows, in any order and with repetitions, as distinct ascending rows of each fragment.

    groups   `(fragment index, offsets)` for each fragment concerned, ascending; offsets i64, ascending and distinct
    restore  i64[n], position in the concatenated groups for each requested row; None if that is 0, 1, 2 ...
    """

    groups: tuple[tuple[int, IntArray], ...]
    restore: IntArray | None

    @property
    def num_rows(self) -> int:
        """Rows of all groups."""
        return sum(len(offsets) for _, offsets in self.groups)

    @property
    def num_asked(self) -> int:
        """Requested rows, counting repetitions."""
        return self.num_rows if self.restore is None else len(self.restore)


def group_rows(fragment_indexes: IntArray, offsets: IntArray) -> Grouped:
    """Group rows, given by fragment index and offset, for reading.

    fragment_indexes, offsets  i64[n], `0 <= offset < 2**32`
    """
    rows, restore = _distinct((fragment_indexes << OFFSET_BITS) | offsets)
    return Grouped(_split_by_fragment(rows), restore)


def halves_of(grouped: Grouped) -> tuple[Grouped, Grouped]:
    """The first half of the requested rows, and the second."""
    fragment_indexes = np.concatenate(
        [np.full(len(offsets), fragment_index, np.int64) for fragment_index, offsets in grouped.groups]
    )
    offsets = np.concatenate([part for _, part in grouped.groups])
    if grouped.restore is not None:
        fragment_indexes, offsets = fragment_indexes[grouped.restore], offsets[grouped.restore]
    half = len(fragment_indexes) // 2
    return group_rows(fragment_indexes[:half], offsets[:half]), group_rows(fragment_indexes[half:], offsets[half:])


def group_by_fragment(positions: IntArray, live_starts: IntArray) -> Grouped | None:
    """Group rows given by position in the table; their numbers in a group are positions in the fragment.

    positions    i64[n], none of them negative
    live_starts  i64[f + 1], live rows before each fragment, then in total
    Returns None if a position is beyond the last row.
    """
    rows, restore = _distinct(positions)
    if len(rows) and rows[-1] >= live_starts[-1]:
        return None
    fragment_indexes, counts, _, relative = split_rows(rows, live_starts, [len(live_starts)])
    within = int64s(relative)
    if len(fragment_indexes) == 1:
        return Grouped(((fragment_indexes[0], within),), restore)
    bounds = pairwise(accumulate(counts, initial=0))
    return Grouped(
        tuple(
            [
                (fragment_index, within[start:end])
                for fragment_index, (start, end) in zip(fragment_indexes, bounds, strict=True)
            ]
        ),
        restore,
    )


def _distinct(rows: IntArray) -> tuple[IntArray, IntArray | None]:
    """The distinct rows in order, and the index of each requested row among them; None for 0, 1, 2 ..."""
    sorted_rows = distinct_rows(rows)
    return (rows, None) if sorted_rows is None else (int64s(sorted_rows[0]), int64s(sorted_rows[1]))


def _split_by_fragment(combined: IntArray) -> tuple[tuple[int, IntArray], ...]:
    if not len(combined):
        return ()
    offsets = combined & OFFSET_MASK
    first = int(combined[0]) >> OFFSET_BITS
    if int(combined[-1]) >> OFFSET_BITS == first:
        return ((first, offsets),)
    fragment_indexes = combined >> OFFSET_BITS
    cuts = np.flatnonzero(fragment_indexes[1:] != fragment_indexes[:-1]) + 1
    bounds = [0, *cuts.tolist(), len(combined)]
    return tuple((int(fragment_indexes[start]), offsets[start:end]) for start, end in pairwise(bounds))


def live_starts(counts: Sequence[int]) -> IntArray:
    """Live rows before each fragment, i64[f + 1]; the last entry is the sum."""
    return np.array([0, *counts], dtype=np.int64).cumsum()
