"""Rows that compactions moved while index files kept their old addresses (spec: indices, 1.5, fragment reuse index)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_io.errors import FormatError
from lance_io.index.details import Space
from lance_io.index.rows.row_set import RowSet
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_io.index.rows.row_set import U64Array

_HALF = np.uint64(1 << 32)


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """Fragments that became others: the n-th of the old addresses is the n-th row of the new fragments.

    old  ids of the old fragments
    rows  addresses of their rows that were moved; others were deleted
    new  id and number of rows of each new fragment, in order
    """

    old: frozenset[int]
    rows: RowSet
    new: tuple[tuple[int, int], ...]

    def check(self) -> Move:
        """Raise `FormatError` unless old and new rows are as many."""
        num_new = sum(num_rows for _, num_rows in self.new)
        if self.rows.num_rows != num_new:
            raise FormatError(f"fragment reuse index: {self.rows.num_rows} rows became {num_new}")
        return self

    def apply(self, rows: RowSet) -> RowSet:
        """Rows by their addresses after the move."""
        ids = np.array(sorted(self.old), np.uint64)
        gone = RowSet.of_runs(Space.ADDRESSES, ids * _HALF, (ids + np.uint64(1)) * _HALF)
        if rows.intersect(gone).is_empty:
            return rows
        moved = rows.intersect(self.rows)
        positions = self._positions(moved)
        parts, first = [rows.without(gone)], 0
        for fragment_id, num_rows in self.new:
            here = positions.intersect(_run(first, first + num_rows))
            shift = np.uint64((fragment_id << 32) - first)
            parts.append(RowSet.of_runs(Space.ADDRESSES, here.starts + shift, here.ends + shift))
            first += num_rows
        return parts[0].union(*parts[1:])

    def _positions(self, moved: RowSet) -> RowSet:
        """The positions of rows among all moved rows."""
        lengths = self.rows.ends - self.rows.starts
        before = np.cumsum(lengths) - lengths
        runs = np.searchsorted(self.rows.starts, moved.starts, side="right") - 1
        starts: U64Array = before[runs] + (moved.starts - self.rows.starts[runs])
        return RowSet.of_runs(Space.ADDRESSES, starts, starts + (moved.ends - moved.starts))


def _run(first: int, end: int) -> RowSet:
    return RowSet.of_runs(Space.ADDRESSES, np.array([first], np.uint64), np.array([end], np.uint64))


def moved_rows(rows: RowSet, moves: Sequence[Move]) -> RowSet:
    """Rows by their addresses after some moves, oldest first."""
    for move in moves:
        rows = move.apply(rows)
    return rows


def moved_addresses(addresses: U64Array, moves: Sequence[Move]) -> tuple[U64Array, npt.NDArray[np.bool_]]:
    """Addresses one by one after some moves, oldest first, and a mask of those whose rows still exist.

    addresses  u64[n], in any order
    """
    exists = np.ones(len(addresses), np.bool_)
    for move in moves:
        old = np.fromiter(move.old, np.uint64, len(move.old))
        at = np.flatnonzero(np.isin(addresses >> np.uint64(32), old))
        if not len(at):
            continue
        rows = addresses[at]
        runs = np.searchsorted(move.rows.starts, rows, side="right") - 1
        stays = (runs >= 0) & (rows < move.rows.ends[np.maximum(runs, 0)]) if len(move.rows.ends) else runs >= 0
        exists[at[~stays]] = False
        at, rows, runs = at[stays], rows[stays], runs[stays]
        lengths = move.rows.ends - move.rows.starts
        positions = (np.cumsum(lengths) - lengths)[runs] + (rows - move.rows.starts[runs])
        sizes = np.array([num_rows for _, num_rows in move.new], np.uint64)
        ends = np.cumsum(sizes)
        new = np.searchsorted(ends, positions, side="right")
        ids = np.array([fragment_id for fragment_id, _ in move.new], np.uint64)
        addresses = addresses.copy()
        addresses[at] = (ids[new] << np.uint64(32)) + positions - (ends - sizes)[new]
    return addresses, exists
