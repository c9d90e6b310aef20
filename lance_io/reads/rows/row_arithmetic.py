"""Arithmetic of rows: positions, physical offsets, addresses. Pure, and arrays from end to end.

    position   counts the rows that are left, over the whole table: what `take` and `_rowoffset` speak of
    offset     counts the rows of one fragment as its data files hold them, deleted ones included
    address    `fragment id << 32 | offset` (specification: table, section 5)
    row id     the address, or in a table with stable row ids what the row id sequence says

A deletion vector is a sorted array of offsets without duplicates. `deleted - arange(n)` counts, for each deleted
row, the rows that are left before it: a sorted array too, so that one binary search maps positions to offsets.
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

FEW_POSITIONS = 64  # so many times fewer than deleted rows: not worth a pass over these, of which there may be millions
OFFSET_BITS = 32
OFFSET_MASK = (1 << OFFSET_BITS) - 1

UIntArray: TypeAlias = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class LiveRows:
    """Which rows of one fragment are left.

    num_rows  physical rows, deleted ones included
    deleted   i64[d], offsets of the deleted rows, ascending, each below `num_rows`; None if there are none
    """

    num_rows: int
    deleted: IntArray | None = None

    @property
    def num_live(self) -> int:
        """Rows that are left."""
        return self.num_rows - (0 if self.deleted is None else len(self.deleted))

    def offsets(self, positions: IntArray) -> IntArray:
        """Offsets of rows given by their position among the rows that are left; any order, below `num_live`."""
        if self.deleted is None:
            return positions
        return positions + self._num_deleted_before(self.deleted, positions)

    @staticmethod
    def _num_deleted_before(deleted: IntArray, positions: IntArray) -> IntArray:
        """How many rows were deleted before those at `positions`: that many `deleted[k] - k` are not above them."""
        if len(positions) * FEW_POSITIONS > len(deleted):
            live_before = deleted - np.arange(len(deleted), dtype=np.int64)
            return np.searchsorted(live_before, positions, side="right")
        low = np.zeros(len(positions), dtype=np.int64)
        high = np.full(len(positions), len(deleted), dtype=np.int64)
        for _ in range(len(deleted).bit_length()):  # all at once, without looking at the others
            middle = np.minimum((low + high) >> 1, len(deleted) - 1)
            is_before = deleted[middle] - middle <= positions
            low, high = np.where((low < high) & is_before, middle + 1, low), np.where(is_before, high, middle)
        return low

    def positions(self, offsets: IntArray) -> IntArray:
        """Positions among the rows that are left, of rows that are left, given by their offsets."""
        if self.deleted is None:
            return offsets
        return offsets - np.searchsorted(self.deleted, offsets, side="left")

    def span(self, first: int, last: int) -> tuple[int, int]:
        """The physical rows from position `first` to before position `last`, without deleted rows at the edges."""
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
        """For each offset, whether its row was deleted."""
        if self.deleted is None or not len(self.deleted):
            return np.zeros(len(offsets), dtype=np.bool_)
        at = np.minimum(np.searchsorted(self.deleted, offsets), len(self.deleted) - 1)
        return np.asarray(self.deleted[at] == offsets)


def kept_runs(num_rows: int, dropped: IntArray) -> tuple[IntArray, IntArray]:
    """What is left of `num_rows` rows when the rows `dropped` (ascending) go: non-empty runs `(starts, ends)`."""
    starts = np.concatenate((np.zeros(1, np.int64), dropped + 1))
    ends = np.concatenate((dropped, np.array([num_rows], np.int64)))
    filled = starts < ends
    return starts[filled], ends[filled]


def addresses(fragment_id: int, offsets: IntArray) -> UIntArray:
    """Row addresses, u64, of rows of one fragment."""
    return offsets.view(np.uint64) | np.uint64(fragment_id << OFFSET_BITS)  # offsets are not negative


@dataclass(frozen=True, slots=True, eq=False)
class Grouped:
    """Rows asked for in any order and with repetitions, as each fragment's rows once and in order.

    groups   one `(place, offsets)` per fragment concerned: its place in the list of fragments, ascending, and its
             rows, i64, ascending and without duplicates
    restore  i64[n], for each row asked for its place in the concatenated groups; None when that is 0, 1, 2 ...
    """

    groups: tuple[tuple[int, IntArray], ...]
    restore: IntArray | None

    @property
    def num_rows(self) -> int:
        """Rows of all groups."""
        return sum(len(offsets) for _, offsets in self.groups)

    @property
    def num_asked(self) -> int:
        """Rows asked for, repetitions counted."""
        return self.num_rows if self.restore is None else len(self.restore)


def group_rows(places: IntArray, offsets: IntArray) -> Grouped:
    """Group rows, each given by the place of its fragment and its offset there, for reading.

    places, offsets  i64[n], `0 <= offset < 2**32`
    """
    rows, restore = _distinct((places << OFFSET_BITS) | offsets)
    return Grouped(_split_by_place(rows), restore)


def halves_of(grouped: Grouped) -> tuple[Grouped, Grouped]:
    """The first half of the rows asked for, and the second."""
    places = np.concatenate([np.full(len(offsets), place, np.int64) for place, offsets in grouped.groups])
    offsets = np.concatenate([one for _, one in grouped.groups])
    if grouped.restore is not None:
        places, offsets = places[grouped.restore], offsets[grouped.restore]
    half = len(places) // 2
    return group_rows(places[:half], offsets[:half]), group_rows(places[half:], offsets[half:])


def group_by_fragment(positions: IntArray, live_starts: IntArray) -> Grouped | None:
    """Group rows given by their position in the table: what they are in their fragment is a position there.

    positions    i64[n], none of them negative
    live_starts  i64[f + 1], rows left before each fragment, then in all
    None for a position behind the last row.
    """
    rows, restore = _distinct(positions)
    if len(rows) and rows[-1] >= live_starts[-1]:
        return None
    places, counts, _, relative = split_rows(rows, live_starts, [len(live_starts)])
    within = int64s(relative)
    if len(places) == 1:
        return Grouped(((places[0], within),), restore)
    bounds = pairwise(accumulate(counts, initial=0))
    return Grouped(
        tuple([(place, within[start:end]) for place, (start, end) in zip(places, bounds, strict=True)]), restore
    )


def _distinct(rows: IntArray) -> tuple[IntArray, IntArray | None]:
    """The rows in order and each once, and where those asked for are among them; None for 0, 1, 2 ..."""
    found = distinct_rows(rows)
    return (rows, None) if found is None else (int64s(found[0]), int64s(found[1]))


def _split_by_place(combined: IntArray) -> tuple[tuple[int, IntArray], ...]:
    if not len(combined):
        return ()
    offsets = combined & OFFSET_MASK
    first = int(combined[0]) >> OFFSET_BITS
    if int(combined[-1]) >> OFFSET_BITS == first:
        return ((first, offsets),)
    places = combined >> OFFSET_BITS
    cuts = np.flatnonzero(places[1:] != places[:-1]) + 1
    bounds = [0, *cuts.tolist(), len(combined)]
    return tuple((int(places[start]), offsets[start:end]) for start, end in pairwise(bounds))


def live_starts(counts: Sequence[int]) -> IntArray:
    """Rows left before each fragment, i64[f + 1]; the last entry is the sum."""
    return np.array([0, *counts], dtype=np.int64).cumsum()
