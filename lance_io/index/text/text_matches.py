"""Rows that match a full-text query, with their scores; and how queries combine those of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_io.spans import IntArray

    F32Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class TextMatches:
    """Rows and scores; no row twice.

    scores     f32[n]
    ids        u64[n], row ids, which break ties of equal scores
    addresses  i64[n]
    """

    scores: F32Array
    ids: npt.NDArray[np.uint64]
    addresses: IntArray

    @classmethod
    def none(cls) -> TextMatches:
        """No row."""
        return cls(np.empty(0, np.float32), np.empty(0, np.uint64), np.empty(0, np.int64))

    @classmethod
    def joined(cls, parts: Sequence[TextMatches]) -> TextMatches:
        """The rows of several, of which no two have one in common."""
        if len(parts) == 1:
            return parts[0]
        parts = parts or [cls.none()]
        fields = (np.concatenate([getattr(part, name) for part in parts]) for name in ("scores", "ids", "addresses"))
        return cls(*fields)

    def __getitem__(self, rows: Any) -> TextMatches:
        return TextMatches(self.scores[rows], self.ids[rows], self.addresses[rows])

    def __len__(self) -> int:
        return len(self.scores)

    def scaled(self, factor: float) -> TextMatches:
        """The same rows with scores times a factor."""
        if factor == 1:
            return self
        return TextMatches(self.scores * np.float32(factor), self.ids, self.addresses)

    def best(self, most: int | None) -> TextMatches:
        """The rows with the highest scores, at most `most`, highest first."""
        rows = self
        if most is not None and most == 0:
            return rows[:0]
        if most is not None and len(rows) > 2 * most:
            least = np.partition(rows.scores, len(rows) - most)[len(rows) - most]
            rows = rows[rows.scores >= least]
        order = np.lexsort((rows.ids, -rows.scores))
        return rows[order[:most]]

    def by_address(self) -> TextMatches:
        """The rows in ascending order of their addresses."""
        return self[np.argsort(self.addresses, kind="stable")]


def without(rows: TextMatches, others: TextMatches) -> TextMatches:
    """The rows of the first that the second does not have."""
    return rows[~np.isin(rows.addresses, others.addresses)]


def all_of(parts: Sequence[TextMatches]) -> TextMatches:
    """The rows that all have, with the sum of their scores."""
    rows = parts[0].by_address()
    for part in parts[1:]:
        other = part.by_address()
        _, mine, its = np.intersect1d(rows.addresses, other.addresses, assume_unique=True, return_indices=True)
        common = rows[mine]
        rows = TextMatches(common.scores + other.scores[its], common.ids, common.addresses)
    return rows


def any_of(parts: Sequence[TextMatches]) -> TextMatches:
    """The rows that one of them has, with the sum of their scores."""
    every = TextMatches.joined(parts)
    addresses, first, inverse = np.unique(every.addresses, return_index=True, return_inverse=True)
    scores = np.zeros(len(addresses), np.float32)
    np.add.at(scores, inverse, every.scores)
    return TextMatches(scores, every.ids[first], addresses)


def best_of(parts: Sequence[TextMatches]) -> TextMatches:
    """The rows that one of them has, with the highest of their scores."""
    every = TextMatches.joined(parts)
    addresses, first, inverse = np.unique(every.addresses, return_index=True, return_inverse=True)
    scores = np.full(len(addresses), -np.inf, np.float32)
    np.maximum.at(scores, inverse, every.scores)
    return TextMatches(scores, every.ids[first], addresses)


def added(rows: TextMatches, others: TextMatches, factor: float) -> TextMatches:
    """The rows of the first; where the second has them, too, its scores times a factor are added."""
    mine, its = rows.by_address(), others.by_address()
    scores = mine.scores.copy()
    _, here, there = np.intersect1d(mine.addresses, its.addresses, assume_unique=True, return_indices=True)
    scores[here] += np.float32(factor) * its.scores[there]
    return TextMatches(scores, mine.ids, mine.addresses)
