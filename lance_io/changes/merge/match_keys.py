"""Hash join of source and target rows by key.

The smaller side is the build side: a hash table of its keys. Batches of the other, the probe side, are looked up in
it. `Matches` receives each pair of rows once, and the rows without a match, independent of the build side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from lance_io.changes.join.row_keys import key_table, rows_in
from lance_io.levels.arrays import numbers
from lance_io.runtime import cpu_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    import pyarrow as pa

    from lance_io._kernels import KeyTable
    from lance_io.changes.join.keyed_rows import KeyedRows
    from lance_io.spans import IntArray

    Mask = npt.NDArray[np.bool_]

PAIRS_AT_ONCE: Final = 1 << 20


class Matches(Protocol):
    """Receives the results of a join.

    needs_pairs  whether `add_pairs` is called
    needs_rest   whether `add_unmatched_targets` is called
    """

    needs_pairs: bool
    needs_rest: bool

    def add_pairs(
        self, source: pa.RecordBatch, source_rows: IntArray, target: pa.RecordBatch, target_rows: IntArray
    ) -> IntArray:
        """Add pairs of rows with equal keys; returns the indices of the pairs that meet the condition, ascending."""

    def raise_second_match(self, target: pa.RecordBatch, row: int) -> None:
        """Raise because a second source row matches a target row."""

    def mark_matched_sources(self, source: pa.RecordBatch, rows: IntArray) -> None:
        """Mark source rows that have matches."""

    def add_unmatched_targets(self, target: pa.RecordBatch) -> None:
        """Add target rows that have no match."""


class JoinOnSource:
    """Join with the source as build side and the target as probe side."""

    def __init__(self, source: KeyedRows, matches: Matches) -> None:
        self._source = source.columns
        self._table = _Table(key_table(source.keys), source.columns.num_rows)
        self._matches = matches

    def add(self, target: KeyedRows) -> None:
        """Look up a batch of target rows."""
        hits, firsts = self._table.find(target.keys)
        if self._matches.needs_rest and len(hits) < target.columns.num_rows:
            is_left = np.ones(target.columns.num_rows, np.bool_)
            is_left[hits] = False
            self._matches.add_unmatched_targets(target.columns.take(numbers(np.flatnonzero(is_left))))
        if not len(hits):
            return
        self._table.mark(firsts)
        if not self._matches.needs_pairs:
            return
        for indices, source_rows in self._table.pairs(firsts):
            target_rows = hits[indices]
            kept = self._matches.add_pairs(self._source, source_rows, target.columns, target_rows)
            chosen = target_rows[kept]
            again = np.flatnonzero(chosen[1:] == chosen[:-1])
            if len(again):
                self._matches.raise_second_match(target.columns, int(chosen[again[0]]))

    def finish(self) -> None:
        """Called after all target rows."""
        self._matches.mark_matched_sources(self._source, np.flatnonzero(self._table.marked()))


class JoinOnTarget:
    """Join with the target as build side and the source as probe side."""

    def __init__(self, target: KeyedRows, matches: Matches) -> None:
        self._target = target.columns
        self._table = _Table(key_table(target.keys), target.columns.num_rows)
        self._is_taken = np.zeros(target.columns.num_rows, np.bool_)
        self._matches = matches

    def add(self, source: KeyedRows) -> None:
        """Look up a batch of source rows."""
        hits, firsts = self._table.find(source.keys)
        if not len(hits):
            return
        self._table.mark(firsts)
        self._matches.mark_matched_sources(source.columns, hits)
        if not self._matches.needs_pairs:
            return
        for indices, target_rows in self._table.pairs(firsts):
            source_rows = hits[indices]
            kept = self._matches.add_pairs(source.columns, source_rows, self._target, target_rows)
            self._mark_taken(target_rows[kept])

    def _mark_taken(self, rows: IntArray) -> None:
        ordered = np.sort(rows)
        again = ordered[1:][ordered[1:] == ordered[:-1]]
        before = rows[self._is_taken[rows]]
        for taken_rows in (before, again):
            if len(taken_rows):
                self._matches.raise_second_match(self._target, int(taken_rows[0]))
        self._is_taken[rows] = True

    def finish(self) -> None:
        """Called after all source rows."""
        if self._matches.needs_rest:
            left = np.flatnonzero(~self._table.marked())
            self._matches.add_unmatched_targets(self._target.take(numbers(left)))


class _Table:
    """The build side: rows by key, and marks of matched rows. The first row of a key has the mark of all of them."""

    def __init__(self, table: KeyTable, num_rows: int) -> None:
        self._table = table
        self._is_matched = np.zeros(num_rows, np.bool_)
        self._groups = rows_in(table.groups()) if table.has_repeats else None
        self._sizes = None if self._groups is None else np.bincount(self._groups, minlength=num_rows)

    def find(self, keys: npt.NDArray[np.uint64]) -> tuple[IntArray, IntArray]:
        """Indices of the keys that the table has, ascending, and the first row of each."""
        hits, firsts = self._table.find(np.ascontiguousarray(keys), cpu_count())
        return rows_in(hits), rows_in(firsts)

    def mark(self, firsts: IntArray) -> None:
        """Mark all rows of some keys, given by their first rows."""
        self._is_matched[firsts] = True

    def marked(self) -> Mask:
        """Mask of the matched rows."""
        return self._is_matched if self._groups is None else self._is_matched[self._groups]

    def pairs(self, firsts: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
        """Indices in `firsts`, ascending, and the rows with these keys, in parts; a part has all rows of an index."""
        if self._sizes is None:
            yield np.arange(len(firsts)), firsts
            return
        ends = np.cumsum(self._sizes[firsts])
        start = 0
        while start < len(firsts):
            done = int(ends[start - 1]) if start else 0
            end = max(start + 1, int(np.searchsorted(ends, done + PAIRS_AT_ONCE, side="right")))
            indices, rows = self._table.rows_of(np.ascontiguousarray(firsts[start:end]))
            yield rows_in(indices) + start, rows_in(rows)
            start = end
