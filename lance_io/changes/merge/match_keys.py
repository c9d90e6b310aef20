"""Which rows of source and target have one key.

One side is put into a table by its keys, and batches of the other one go by: each pair of rows is told to `Matches`
once, and so are rows that meet nobody. Whichever side is in the table, the same is told.
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
    """Who is told, and of what: of pairs, of rows of the target that have no match."""

    needs_pairs: bool
    needs_rest: bool

    def add_pairs(
        self, source: pa.RecordBatch, source_rows: IntArray, target: pa.RecordBatch, target_rows: IntArray
    ) -> IntArray:
        """Rows of both sides that have one key; gives the places of the pairs that count, ascending."""

    def refuse_second(self, target: pa.RecordBatch, row: int) -> None:
        """Raise, as a second source row matches a row of the target."""

    def mark_sources(self, source: pa.RecordBatch, rows: IntArray) -> None:
        """These rows of the source have matches."""

    def leave_targets(self, target: pa.RecordBatch) -> None:
        """These rows of the target have none."""


class JoinOnSource:
    """The rows of the source are in the table, batches of the target go by."""

    def __init__(self, source: KeyedRows, matches: Matches) -> None:
        self._source = source.columns
        self._table = _Table(key_table(source.keys), source.columns.num_rows)
        self._matches = matches

    def add(self, target: KeyedRows) -> None:
        """Some rows of the target."""
        hits, firsts = self._table.find(target.keys)
        if self._matches.needs_rest and len(hits) < target.columns.num_rows:
            is_left = np.ones(target.columns.num_rows, np.bool_)
            is_left[hits] = False
            self._matches.leave_targets(target.columns.take(numbers(np.flatnonzero(is_left))))
        if not len(hits):
            return
        self._table.mark(firsts)
        if not self._matches.needs_pairs:
            return
        for places, source_rows in self._table.pairs(firsts):
            target_rows = hits[places]
            kept = self._matches.add_pairs(self._source, source_rows, target.columns, target_rows)
            chosen = target_rows[kept]
            again = np.flatnonzero(chosen[1:] == chosen[:-1])
            if len(again):
                self._matches.refuse_second(target.columns, int(chosen[again[0]]))

    def finish(self) -> None:
        """All rows of the target have gone by."""
        self._matches.mark_sources(self._source, np.flatnonzero(self._table.marked()))


class JoinOnTarget:
    """The rows of the target are in the table, batches of the source go by."""

    def __init__(self, target: KeyedRows, matches: Matches) -> None:
        self._target = target.columns
        self._table = _Table(key_table(target.keys), target.columns.num_rows)
        self._is_taken = np.zeros(target.columns.num_rows, np.bool_)
        self._matches = matches

    def add(self, source: KeyedRows) -> None:
        """Some rows of the source."""
        hits, firsts = self._table.find(source.keys)
        if not len(hits):
            return
        self._table.mark(firsts)
        self._matches.mark_sources(source.columns, hits)
        if not self._matches.needs_pairs:
            return
        for places, target_rows in self._table.pairs(firsts):
            source_rows = hits[places]
            kept = self._matches.add_pairs(source.columns, source_rows, self._target, target_rows)
            self._take(target_rows[kept])

    def _take(self, rows: IntArray) -> None:
        ordered = np.sort(rows)
        again = ordered[1:][ordered[1:] == ordered[:-1]]
        before = rows[self._is_taken[rows]]
        for found in (before, again):
            if len(found):
                self._matches.refuse_second(self._target, int(found[0]))
        self._is_taken[rows] = True

    def finish(self) -> None:
        """All rows of the source have gone by."""
        if self._matches.needs_rest:
            left = np.flatnonzero(~self._table.marked())
            self._matches.leave_targets(self._target.take(numbers(left)))


class _Table:
    """Rows by key, and which of them were met. Rows of one key are met together, by the first of them."""

    def __init__(self, table: KeyTable, num_rows: int) -> None:
        self._table = table
        self._is_met = np.zeros(num_rows, np.bool_)
        self._groups = rows_in(table.groups()) if table.has_repeats else None
        self._sizes = None if self._groups is None else np.bincount(self._groups, minlength=num_rows)

    def find(self, keys: npt.NDArray[np.uint64]) -> tuple[IntArray, IntArray]:
        """Which keys are there, ascending, and the first row of each."""
        places, firsts = self._table.find(np.ascontiguousarray(keys), cpu_count())
        return rows_in(places), rows_in(firsts)

    def mark(self, firsts: IntArray) -> None:
        """Rows that are the first of their keys, and those that share these, were met."""
        self._is_met[firsts] = True

    def marked(self) -> Mask:
        """Which rows were met."""
        return self._is_met if self._groups is None else self._is_met[self._groups]

    def pairs(self, firsts: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
        """Places in `firsts`, ascending, and rows of the table with these keys; one place in one part."""
        if self._sizes is None:
            yield np.arange(len(firsts)), firsts
            return
        ends = np.cumsum(self._sizes[firsts])
        start = 0
        while start < len(firsts):
            done = int(ends[start - 1]) if start else 0
            end = max(start + 1, int(np.searchsorted(ends, done + PAIRS_AT_ONCE, side="right")))
            found_places, found_rows = self._table.rows_of(np.ascontiguousarray(firsts[start:end]))
            yield rows_in(found_places) + start, rows_in(found_rows)
            start = end
