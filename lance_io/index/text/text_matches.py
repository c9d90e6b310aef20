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
    """Rows and scores, no row twice; or elements of lists, no element twice.

    scores     f32[n]
    ids        u64[n], row ids, which break ties of equal scores
    addresses  i64[n]
    elements   u32[n, depth], where in the lists of its row each stands, the outermost first; None for rows
    """

    scores: F32Array
    ids: npt.NDArray[np.uint64]
    addresses: IntArray
    elements: npt.NDArray[np.uint32] | None = None

    @classmethod
    def none(cls) -> TextMatches:
        """No row."""
        return cls(np.empty(0, np.float32), np.empty(0, np.uint64), np.empty(0, np.int64))

    @classmethod
    def joined(cls, parts: Sequence[TextMatches]) -> TextMatches:
        """The rows of several, of which no two have one in common."""
        parts = [part for part in parts if len(part)] or [*parts[:1]]
        if len(parts) == 1:
            return parts[0]
        parts = parts or [cls.none()]
        names = ("scores", "ids", "addresses", *(() if parts[0].elements is None else ("elements",)))
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def __getitem__(self, rows: Any) -> TextMatches:
        elements = None if self.elements is None else self.elements[rows]
        return TextMatches(self.scores[rows], self.ids[rows], self.addresses[rows], elements)

    def __len__(self) -> int:
        return len(self.scores)

    def scored(self, scores: F32Array) -> TextMatches:
        """The same rows with other scores."""
        return TextMatches(scores, self.ids, self.addresses, self.elements)

    def scaled(self, factor: float) -> TextMatches:
        """The same rows with scores times a factor."""
        return self if factor == 1 else self.scored(self.scores * np.float32(factor))

    def best(self, most: int | None) -> TextMatches:
        """The rows with the highest scores, at most `most`, highest first."""
        rows = self
        if most is not None and most == 0:
            return rows[:0]
        if most is not None and len(rows) > 2 * most:
            least = np.partition(rows.scores, len(rows) - most)[len(rows) - most]
            rows = rows[rows.scores >= least]
        elements = () if rows.elements is None else tuple(rows.elements.T[::-1])
        order = np.lexsort((*elements, rows.ids, -rows.scores))
        return rows[order[:most]]


def _keys(parts: Sequence[TextMatches]) -> list[IntArray]:
    """A number for each row of each part, the same wherever the row, or the element of one, is the same."""
    if all(part.elements is None for part in parts):
        return [part.addresses for part in parts]
    every = [np.column_stack((part.addresses, part.elements)) for part in parts if part.elements is not None]
    _, numbers = np.unique(np.concatenate(every), axis=0, return_inverse=True)
    ends = np.cumsum([len(part) for part in parts])
    return np.split(numbers.reshape(-1), ends[:-1])


def _common(rows: TextMatches, others: TextMatches) -> tuple[IntArray, IntArray]:
    """Where the rows of both stand in the first, and in the second."""
    mine, its = _keys([rows, others])
    _, here, there = np.intersect1d(mine, its, assume_unique=True, return_indices=True)
    return here, there


def without(rows: TextMatches, others: TextMatches) -> TextMatches:
    """The rows of the first that the second does not have."""
    mine, its = _keys([rows, others])
    return rows[~np.isin(mine, its)]


def all_of(parts: Sequence[TextMatches]) -> TextMatches:
    """The rows that all have, with the sum of their scores."""
    rows = parts[0]
    for part in parts[1:]:
        mine, its = _common(rows, part)
        rows = rows[mine].scored(rows.scores[mine] + part.scores[its])
    return rows


def any_of(parts: Sequence[TextMatches]) -> TextMatches:
    """The rows that one of them has, with the sum of their scores."""
    _, first, inverse = np.unique(np.concatenate(_keys(parts)), return_index=True, return_inverse=True)
    every = TextMatches.joined(parts)
    scores = np.zeros(len(first), np.float32)
    np.add.at(scores, inverse, every.scores)
    return every[first].scored(scores)


def best_of(parts: Sequence[TextMatches]) -> TextMatches:
    """The rows that one of them has, with the highest of their scores."""
    _, first, inverse = np.unique(np.concatenate(_keys(parts)), return_index=True, return_inverse=True)
    every = TextMatches.joined(parts)
    scores = np.full(len(first), -np.inf, np.float32)
    np.maximum.at(scores, inverse, every.scores)
    return every[first].scored(scores)


def added(rows: TextMatches, others: TextMatches, factor: float) -> TextMatches:
    """The rows of the first; where the second has them, too, its scores times a factor are added."""
    scores = rows.scores.copy()
    mine, its = _common(rows, others)
    scores[mine] += np.float32(factor) * others.scores[its]
    return rows.scored(scores)
