"""The k nearest rows of all that were added, in memory for about k."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lance_io.records import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_io.spans import IntArray

WAITING_MIN: Final = 64  # rows collected before they are merged


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Rows and their distances.

    distances  f32[n]
    ids        u64[n], row ids, which break ties of equal distances
    addresses  i64[n]
    """

    distances: npt.NDArray[np.float32]
    ids: npt.NDArray[np.uint64]
    addresses: IntArray

    def __getitem__(self, rows: Any) -> Scored:
        return Scored(self.distances[rows], self.ids[rows], self.addresses[rows])

    def __len__(self) -> int:
        return len(self.distances)

    @classmethod
    def joined(cls, parts: list[Scored]) -> Scored:
        """Concatenate rows; `parts` may be empty."""
        parts = parts or [cls(np.empty(0, np.float32), np.empty(0, np.uint64), np.empty(0, np.int64))]
        fields = (np.concatenate([getattr(part, name) for part in parts]) for name in ("distances", "ids", "addresses"))
        return cls(*fields)


class NearestRows:
    """Collects rows and keeps the k nearest; on equal distances, those with the least row ids.

    limit  distance of the k-th nearest row; inf until there are k
    """

    def __init__(self, k: int) -> None:
        self._k = k
        self._kept: list[Scored] = []
        self._num_kept = self._num_waiting = 0
        self.limit = float("inf")

    def add(self, rows: Scored) -> None:
        """Add rows; no distance may be NaN."""
        self._kept.append(rows)
        self._num_waiting += len(rows)
        total = self._num_kept + self._num_waiting
        is_first = total >= self._k > self._num_kept
        if is_first or (total > self._k and self._num_waiting >= max(WAITING_MIN, self._k)):
            self._merge()

    def rows(self) -> Scored:
        """The nearest rows, nearest first."""
        self._merge()
        return self._kept[0]

    def _merge(self) -> None:
        rows = Scored.joined(self._kept)
        if len(rows) > 2 * self._k:  # sort fewer rows: drop those beyond the k-th
            last = np.partition(rows.distances, self._k - 1)[self._k - 1]
            rows = rows[rows.distances <= last]
        rows = rows[np.lexsort((rows.ids, rows.distances))[: self._k]]
        self._kept, self._num_kept, self._num_waiting = [rows], len(rows), 0
        if len(rows) == self._k:
            self.limit = float(rows.distances[-1])
