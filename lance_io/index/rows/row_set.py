"""Sets of rows, and the answers of indices to conditions, in three-valued logic (spec: indices, 2.2).

A set is a list of runs in one of two spaces, row addresses or row ids, which do not mix. Scattered rows are runs of one
row, and the zones of a zone map are few long runs: operations cost as much as there are runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lance_io.errors import FormatError
from lance_io.levels.arrays import distinct
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.index.details import Space

U64Array = npt.NDArray[np.uint64]
ROW_END: Final = (1 << 64) - 1
"""No row has this number: pylance marks deleted rows by it."""
_NONE: Final = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True, eq=False)
class RowSet:
    """Rows of one space, as ascending runs that neither overlap nor touch.

    starts, ends  u64[n], the first row of each run, and the row after its last
    """

    space: Space
    starts: U64Array
    ends: U64Array

    @classmethod
    def none(cls, space: Space) -> RowSet:
        """No rows."""
        return cls(space, _NONE, _NONE)

    @classmethod
    def of_rows(cls, space: Space, rows: U64Array) -> RowSet:
        """These rows, u64 in any order. Raises `FormatError` for a number that no row has."""
        if len(rows) > 1 and not (rows[1:] > rows[:-1]).all():
            rows = distinct(rows)
        if not len(rows):
            return cls.none(space)
        if int(rows[-1]) == ROW_END:
            raise FormatError(f"an index names row {ROW_END}, which no table has")
        if len(rows) == 1:
            return cls(space, rows, rows + np.uint64(1))
        cuts = np.flatnonzero(rows[1:] != rows[:-1] + np.uint64(1))
        return cls(space, rows[np.r_[0, cuts + 1]], rows[np.r_[cuts, len(rows) - 1]] + np.uint64(1))

    @classmethod
    def of_runs(cls, space: Space, starts: U64Array, ends: U64Array) -> RowSet:
        """These runs, in any order; they may be empty, overlap or touch."""
        filled = starts < ends
        starts, ends = starts[filled], ends[filled]
        if len(starts) > 1 and not (starts[1:] > ends[:-1]).all():
            order = np.argsort(starts, kind="stable")
            starts, ends = starts[order], np.maximum.accumulate(ends[order])
            cuts = np.flatnonzero(starts[1:] > ends[:-1])
            starts, ends = starts[np.r_[0, cuts + 1]], ends[np.r_[cuts, len(ends) - 1]]
        return cls(space, starts, ends)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return int((self.ends - self.starts).sum())

    @property
    def is_empty(self) -> bool:
        """Whether there is no row."""
        return not len(self.starts)

    @property
    def nbytes(self) -> int:
        """Memory, in bytes."""
        return self.starts.nbytes + self.ends.nbytes

    def rows(self) -> U64Array:
        """The rows one by one, u64, ascending."""
        lengths = (self.ends - self.starts).astype(np.int64)
        if len(lengths) == int(lengths.sum()):
            return self.starts
        before = np.cumsum(lengths) - lengths
        within = np.arange(int(lengths.sum()), dtype=np.int64) - np.repeat(before, lengths)
        return np.repeat(self.starts, lengths) + within.astype(np.uint64)

    def union(self, *others: RowSet) -> RowSet:
        """The rows of all sets."""
        sets = [each for each in (self, *others) if not self._check(each).is_empty]
        if len(sets) < 2:
            return sets[0] if sets else self
        starts, ends = np.concatenate([each.starts for each in sets]), np.concatenate([each.ends for each in sets])
        return RowSet.of_runs(self.space, starts, ends)

    def intersect(self, other: RowSet) -> RowSet:
        """The rows of both sets."""
        self._check(other)
        if self.is_empty or other.is_empty:
            return RowSet.none(self.space)
        if len(self.starts) == 1:  # mostly a row of one fragment among those that an index covers
            at = int(other.starts.searchsorted(self.starts[0], side="right")) - 1
            if at >= 0 and self.ends[0] <= other.ends[at]:
                return self
        first = np.searchsorted(self.ends, other.starts, side="right")
        last = np.searchsorted(self.starts, other.ends, side="left")
        counts = np.maximum(last - first, 0)
        theirs = np.repeat(np.arange(len(counts)), counts)
        ours = first[theirs] + np.arange(len(theirs)) - np.repeat(np.cumsum(counts) - counts, counts)
        starts = np.maximum(self.starts[ours], other.starts[theirs])
        return RowSet(self.space, starts, np.minimum(self.ends[ours], other.ends[theirs]))

    def without(self, other: RowSet) -> RowSet:
        """The rows of this set that the other one lacks."""
        self._check(other)
        if self.is_empty or other.is_empty:
            return self
        starts = np.concatenate([np.zeros(1, np.uint64), other.ends])
        ends = np.concatenate([other.starts, np.array([ROW_END], np.uint64)])
        filled = starts < ends
        return self.intersect(RowSet(self.space, starts[filled], ends[filled]))

    def _check(self, other: RowSet) -> RowSet:
        assert other.space is self.space, f"{other.space.value} beside {self.space.value}"
        return other


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """The rows for which a condition is true, and those for which it is null; for all others it is false.

    is_exact  False if `true` may hold too many rows, so that they have to be checked; `null` is then empty
    """

    true: RowSet
    null: RowSet
    is_exact: bool = True

    @classmethod
    def at_most(cls, rows: RowSet) -> Answer:
        """An answer that is no more than an upper bound."""
        return cls(rows, RowSet.none(rows.space), is_exact=False)

    def negated(self, universe: RowSet) -> Answer:
        """The answer to `NOT`.

        universe  all rows that the index covers
        """
        assert self.is_exact, "the complement of an upper bound is no upper bound"
        return Answer(universe.without(self.true).without(self.null), self.null)


def conjunction(answers: Sequence[Answer]) -> Answer:
    """The answer to `AND`."""
    first, *others = answers
    true, possible = first.true, first.true.union(first.null)
    for answer in others:
        true = true.intersect(answer.true)
        possible = possible.intersect(answer.true.union(answer.null))
    if not all(answer.is_exact for answer in answers):
        return Answer.at_most(true)
    return Answer(true, possible.without(true))


def disjunction(answers: Sequence[Answer]) -> Answer:
    """The answer to `OR`."""
    first, *others = answers
    true = first.true.union(*[answer.true for answer in others])
    if not all(answer.is_exact for answer in answers):
        return Answer.at_most(true)
    return Answer(true, first.null.union(*[answer.null for answer in others]).without(true))
