"""Rows of a scan before they become batches: of one span, of all of several spans, of some of several spans."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_io import compute as pc
from lance_io.levels.arrays import booleans, numbers, true_positions
from lance_io.levels.portable import compact
from lance_io.levels.retype import concat

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lance_io.spans import IntArray

DENSE_MIN = 0.85  # above this share of rows that pass, filtering by mask is faster than taking by position


@dataclass(frozen=True, slots=True, eq=False)
class ChosenBatch:
    """Chosen rows of one span, as they were taken.

    offsets  i64[num_rows], ascending
    arrays   one of each early column
    """

    span_index: int
    offsets: IntArray
    arrays: list[pa.Array]

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.offsets)


@dataclass(slots=True, eq=False)
class Rows:
    """Rows of one span: their offsets, and their columns so far, by name.

    first    offset of the first row
    end      offset after the last row that was examined, whether or not it is kept
    chosen   i64[num_rows] offsets once rows were left out; None while they are `first .. first + num_rows`
    left     which of these remain, by position or as a mask; applied when offsets are requested
    """

    span: int
    first: int
    num_rows: int
    chosen: IntArray | None
    columns: dict[str, pa.Array]
    left: IntArray | pa.BooleanArray | None = None
    end: int = -1

    def __post_init__(self) -> None:
        if self.end < 0:
            self.end = self.first + self.num_rows

    @property
    def offsets(self) -> IntArray:
        if self.left is not None:
            left = true_positions(self.left) if isinstance(self.left, pa.BooleanArray) else self.left
            self.chosen = left + self.first if self.chosen is None else self.chosen[left]
            self.left = None
        if self.chosen is None:
            return np.arange(self.first, self.first + self.num_rows, dtype=np.int64)
        return self.chosen

    @property
    def parts(self) -> list[tuple[int, IntArray]]:
        """The span, and the offsets of its rows."""
        return [(self.span, self.offsets)]

    @property
    def counts(self) -> list[tuple[int, int]]:
        """The span, and its number of rows."""
        return [(self.span, self.num_rows)]

    @property
    def is_run(self) -> bool:
        """Whether no row was left out between the first and the last."""
        return self.chosen is None and self.left is None

    def slice(self, start: int, end: int) -> Rows:
        if start == 0 and end == self.num_rows:
            return self
        sliced = {name: column.slice(start, end - start) for name, column in self.columns.items()}
        if self.is_run:
            return Rows(self.span, self.first + start, end - start, None, sliced)
        return Rows(self.span, self.first, end - start, self.offsets[start:end], sliced, end=self.end)

    def runs(self, gap_rows: int, runs_max: int) -> list[Rows]:
        """The rows in parts, split where more than `gap_rows` unwanted rows lie between two of them.

        runs_max  a single part if there would be more
        """
        if self.is_run or not self.num_rows:
            return [self]
        offsets = self.offsets
        borders = np.flatnonzero(np.diff(offsets) > gap_rows) + 1
        if len(borders) >= runs_max:
            borders = borders[:0]
        return [self._run(start, end) for start, end in pairwise([0, *borders.tolist(), self.num_rows])]

    def _run(self, start: int, end: int) -> Rows:
        first, last = int(self.offsets[start]), int(self.offsets[end - 1])
        chosen = None if last - first + 1 == end - start else self.offsets[start:end]
        columns = {name: column.slice(start, end - start) for name, column in self.columns.items()}
        return Rows(self.span, first, end - start, chosen, columns, end=last + 1)

    def row_at(self, number: int) -> int:
        """The offset of one of the rows."""
        return self.first + number if self.is_run else int(self.offsets[number])

    def num_before(self, row: int) -> int:
        """Number of rows before an offset."""
        if self.is_run:
            return max(0, min(self.num_rows, row - self.first))
        return int(self.offsets.searchsorted(row))

    def keep(self, mask: pa.BooleanArray) -> Rows:
        """The rows where `mask` (without nulls) is true."""
        num_rows = mask.true_count
        if num_rows == self.num_rows:
            return self
        if num_rows == 0:
            none = {name: column.slice(0, 0) for name, column in self.columns.items()}
            return Rows(self.span, self.first, 0, np.empty(0, dtype=np.int64), none, end=self.end)
        chosen = None if self.is_run else self.offsets
        if num_rows > self.num_rows * DENSE_MIN:
            columns = {name: compact(column).filter(mask) for name, column in self.columns.items()}
            return Rows(self.span, self.first, num_rows, chosen, columns, mask, self.end)
        kept = true_positions(mask)
        indices = numbers(kept)
        columns = {name: pc.take(compact(column), indices, boundscheck=False) for name, column in self.columns.items()}
        return Rows(self.span, self.first, num_rows, chosen, columns, kept, self.end)


@dataclass(slots=True, eq=False)
class Spans:
    """All rows of several spans.

    span        the first one
    row_counts  of each
    columns     known so far, by name
    """

    span: int
    row_counts: Sequence[int]
    num_rows: int
    columns: dict[str, pa.Array]

    @property
    def parts(self) -> list[tuple[int, IntArray]]:
        """The spans, each with the offsets of its rows."""
        return [(span, np.arange(num_rows, dtype=np.int64)) for span, num_rows in self.counts]

    @property
    def counts(self) -> list[tuple[int, int]]:
        """The spans, and their number of rows."""
        return list(enumerate(self.row_counts, self.span))


class Joined:
    """Rows of several spans that passed the filter together.

    columns  known so far, by name
    parts    spans in order, each with the offsets of its rows
    examined  examined runs of rows: span, first offset, end, and how many of them passed; () for a part
    """

    __slots__ = ("columns", "examined", "num_rows", "parts")

    def __init__(
        self,
        columns: dict[str, pa.Array],
        parts: list[tuple[int, IntArray]],
        num_rows: int,
        examined: Sequence[tuple[int, int, int, int]] = (),
    ) -> None:
        self.columns = columns
        self.parts = parts
        self.num_rows = num_rows
        self.examined = examined

    @classmethod
    def of(cls, sources: list[Rows | Spans], mask: pa.BooleanArray, names: Iterable[str]) -> Joined:
        """The rows of the sources where `mask`, over all of them, is true, with these of their columns."""
        passing = true_positions(mask)
        spans = [(rows, span, num_rows) for rows in sources for span, num_rows in rows.counts]
        borders = np.cumsum([0, *[num_rows for _, _, num_rows in spans]])
        bounds = np.searchsorted(passing, borders)
        parts = []
        for at in np.flatnonzero(bounds[1:] > bounds[:-1]).tolist():
            rows, span, _ = spans[at]
            offsets = passing[bounds[at] : bounds[at + 1]] - borders[at]
            if isinstance(rows, Rows):
                offsets = offsets + rows.first if rows.is_run else rows.offsets[offsets]
            parts.append((span, offsets))
        columns = _taken(sources, passing, names) if parts else {}
        firsts = [(rows.first, rows.end) if isinstance(rows, Rows) else (0, num_rows) for rows, _, num_rows in spans]
        counts = np.diff(bounds).tolist()
        examined = [(span, *ends, count) for (_, span, _), ends, count in zip(spans, firsts, counts, strict=True)]
        return cls(columns, parts, len(passing), examined)

    @property
    def num_examined(self) -> int:
        """Number of examined rows."""
        return sum([end - first for _, first, end, _ in self.examined])

    def positions(self) -> IntArray:
        """Positions of these among all examined rows."""
        positions, before, parts = [], 0, iter(self.parts)
        for _, first, end, count in self.examined:
            if count:
                positions.append(next(parts)[1] + (before - first))
            before += end - first
        return np.concatenate(positions) if positions else np.empty(0, dtype=np.int64)

    def by_span(self) -> Iterator[Rows]:
        """The rows of each run separately."""
        before, parts = 0, iter(self.parts)
        for span, first, end, count in self.examined:
            offsets = next(parts)[1] if count else np.empty(0, dtype=np.int64)
            columns = {name: column.slice(before, count) for name, column in self.columns.items()}
            before += count
            yield Rows(span, first, count, None if count == end - first else offsets, columns, end=end)

    @property
    def counts(self) -> list[tuple[int, int]]:
        """The spans, and their number of rows."""
        return [(span, len(offsets)) for span, offsets in self.parts]

    def slice(self, start: int, end: int) -> Joined:
        """Rows `start` to `end`."""
        if start == 0 and end == self.num_rows:
            return self
        parts, before = [], 0
        for span, offsets in self.parts:
            kept = offsets[max(0, start - before) : max(0, end - before)]
            before += len(offsets)
            if len(kept):
                parts.append((span, kept))
        columns = {name: column.slice(start, end - start) for name, column in self.columns.items()}
        return Joined(columns, parts, end - start)


def _taken(sources: Sequence[Rows | Spans], passing: IntArray, names: Iterable[str]) -> dict[str, pa.Array]:
    """Columns of the rows at these positions of all sources, without copying sources that contribute no row."""
    bounds = np.searchsorted(passing, np.cumsum([0, *[rows.num_rows for rows in sources]]))
    kept: list[Rows | Spans] = []
    indices: list[IntArray] = []  # of the kept rows among all rows of `kept`
    num_left_out = 0
    for rows, start, end in zip(sources, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        if start == end:
            num_left_out += rows.num_rows
        else:
            kept.append(rows)
            indices.append(passing[start:end] - num_left_out)
    joined = {name: concat([rows.columns[name] for rows in kept]) for name in names}
    if sum(map(len, indices)) == sum([rows.num_rows for rows in kept]):
        return joined
    taken = numbers(np.concatenate(indices))
    return {name: pc.take(compact(column), taken, boundscheck=False) for name, column in joined.items()}


def kept_rows(arrays: Sequence[pa.Array], rows: Rows, start: int, num_rows: int) -> list[pa.Array]:
    """The kept rows of these columns: slices if they are contiguous.

    start, num_rows  of the columns: the first row, and their number
    """
    first, last = rows.row_at(0) - start, rows.row_at(rows.num_rows - 1) - start
    if last - first + 1 == rows.num_rows:
        return [array.slice(first, rows.num_rows) for array in arrays]
    offsets = rows.offsets - start
    if rows.num_rows > num_rows * DENSE_MIN:
        mask = np.zeros(num_rows, dtype=np.bool_)
        mask[offsets] = True
        chosen = booleans(mask)
        return [compact(array).filter(chosen) for array in arrays]
    indices = numbers(offsets)
    return [pc.take(compact(array), indices, boundscheck=False) for array in arrays]


def halves_of_rows(waiting: list[Rows | Joined]) -> tuple[list[Rows | Joined], list[Rows | Joined]] | None:
    """The rows in two parts; None for a single row."""
    if len(waiting) > 1:
        half = len(waiting) // 2
        return waiting[:half], waiting[half:]
    (rows,) = waiting
    half = rows.num_rows // 2
    return ([rows.slice(0, half)], [rows.slice(half, rows.num_rows)]) if half else None
