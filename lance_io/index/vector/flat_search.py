"""Exact search: compares every vector, batch by batch, on several threads at once.

    batch -> blocks that fit into a processor's cache -> bounds by a matrix product -> the few candidate rows -> their
    exact distances -> the k nearest so far; the last of these bounds the next candidates

Memory: k rows per query, and one block per thread.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lance_io.index.vector.distances import Metric, Queries, bounds, exact
from lance_io.index.vector.nearest_rows import NearestRows, Scored
from lance_io.index.vector.vector_arrays import as_floats, vector_rows
from lance_io.limits import MIB
from lance_io.records import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from lance_io.index.vector.distances import Distances, FloatArray
    from lance_io.index.vector.vector_arrays import VectorRows
    from lance_io.spans import IntArray

BLOCK_BYTES: Final = MIB  # of vectors, and of distances
_FLOAT32_ROUNDING: Final = 1.2e-7  # relative error of a sum of distances as float32


@dataclass(frozen=True, slots=True, eq=False)
class SearchTerms:
    """The parameters of a search.

    metric        distance metric
    queries       [m, dim], of the type of the vectors; bfloat16 as float32
    k             rows for each query
    is_joined     multi-vector search: a row's distance is the sum, over all queries, of that of its nearest vector
    lower, upper  distance range, `lower` inclusive and `upper` exclusive; None for no bound
    """

    metric: Metric
    queries: npt.NDArray[Any]
    k: int
    is_joined: bool = False
    lower: float | None = None
    upper: float | None = None

    @property
    def num_results(self) -> int:
        """Number of result lists."""
        return 1 if self.is_joined else len(self.queries)


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Some rows of a batch.

    vectors  [vectors, dim]
    starts   start of each row's vectors; None if each row has one
    """

    vectors: npt.NDArray[Any]
    starts: IntArray | None

    @property
    def num_rows(self) -> int:
        return len(self.vectors) if self.starts is None else len(self.starts) - 1

    def of_rows(self, rows: IntArray) -> _Block:
        """The block with only these rows."""
        if self.starts is None:
            return _Block(self.vectors[rows], None)
        sizes = np.diff(self.starts)[rows]
        starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
        taken = np.arange(starts[-1]) + np.repeat(self.starts[rows] - starts[:-1], sizes)
        return _Block(self.vectors[taken], starts)


class FlatSearch:
    """A single search. Several threads may add batches at once: the result does not depend on their order."""

    def __init__(self, terms: SearchTerms) -> None:
        self._terms = terms
        self._nearest = [NearestRows(terms.k) for _ in range(terms.num_results)]
        self._lock = threading.Lock()
        is_bytes = terms.metric is Metric.HAMMING
        wide = np.float64 if terms.queries.dtype == np.float64 else np.float32
        self._queries = None if is_bytes else Queries.of(terms.queries, wide)

    def add(self, vectors: pa.Array, ids: npt.NDArray[np.uint64], addresses: IntArray) -> None:
        """Add the vectors of some rows."""
        rows = vector_rows(vectors)
        for start, end in _blocks(rows, len(self._terms.queries)):
            block = self._block(rows, start, end)
            present = None if rows.present is None else rows.present[start:end]
            self._add_block(block, present, ids[start:end], addresses[start:end])

    def results(self) -> list[Scored]:
        """The rows nearest to each query, nearest first."""
        return [nearest.rows() for nearest in self._nearest]

    def _block(self, rows: VectorRows, start: int, end: int) -> _Block:
        if rows.starts is None:
            vectors, starts = rows.matrix[start:end], None
        else:
            first, last = int(rows.starts[start]), int(rows.starts[end])
            vectors, starts = rows.matrix[first:last], rows.starts[start : end + 1] - first
        return _Block(vectors if self._queries is None else as_floats(vectors), starts)

    def _add_block(
        self,
        block: _Block,
        present: npt.NDArray[np.bool_] | None,
        ids: npt.NDArray[np.uint64],
        addresses: IntArray,
    ) -> None:
        with np.errstate(all="ignore"):
            candidates = self._candidates(block, present)
            for number in np.flatnonzero(candidates.any(axis=1)).tolist():
                rows = np.flatnonzero(candidates[number])
                distances = self._exact(block if len(rows) == block.num_rows else block.of_rows(rows), number)
                counts = self._counts(distances)
                scored = Scored(distances[counts], ids[rows[counts]], addresses[rows[counts]])
                if len(scored):
                    with self._lock:
                        self._nearest[number].add(scored)

    def _counts(self, distances: Distances) -> npt.NDArray[np.bool_]:
        """Mask of the distances that are numbers and in the requested range."""
        terms = self._terms
        counts = ~np.isnan(distances)
        if terms.lower is not None:
            counts &= distances >= np.float32(terms.lower)
        if terms.upper is not None:
            counts &= distances < np.float32(terms.upper)
        return counts

    def _candidates(self, block: _Block, present: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_]:
        """Mask of the rows that may be among the nearest of each query, bool[results, rows]."""
        terms = self._terms
        if self._queries is None:
            candidates = np.ones((terms.num_results, block.num_rows), np.bool_)
        else:
            limits = np.array([nearest.limit for nearest in self._nearest])
            is_open = not np.isfinite(limits).all()  # then this block's rows bound the distance
            has_high = is_open or terms.lower is not None
            low, high = bounds(terms.metric, block.vectors, self._queries, has_high=has_high)
            if terms.is_joined:
                low, high = _joined(low, block, -1), None if high is None else _joined(high, block, 1)
            if is_open and high is not None:
                limits = self._tightened(limits, low, high, present)
            candidates = low > limits[:, None]  # false for NaN: no bound
            if terms.lower is not None and high is not None:
                candidates |= high < terms.lower
            if terms.upper is not None:
                candidates |= low >= terms.upper
            np.logical_not(candidates, out=candidates)
        if present is not None:
            candidates &= present
        if block.starts is not None:
            candidates &= block.starts[1:] > block.starts[:-1]
        return candidates

    def _tightened(
        self, limits: FloatArray, low: FloatArray, high: FloatArray, present: npt.NDArray[np.bool_] | None
    ) -> FloatArray:
        """Upper limits of the distances of candidates, [results].

        The k-th of this block's upper bounds is a limit, used until the rows seen before give a tighter one.
        """
        terms = self._terms
        if high.shape[1] < terms.k:
            return limits
        sure = high.copy()
        if present is not None:
            sure[:, ~present] = np.inf
        if terms.lower is not None:
            sure[~(low >= terms.lower)] = np.inf
        return np.fmin(limits, np.partition(sure, terms.k - 1, axis=1)[:, terms.k - 1])

    def _exact(self, block: _Block, number: int) -> Distances:
        """The exact distances of all rows of a block, none of which is empty."""
        terms = self._terms
        if not terms.is_joined:
            nearest = exact(terms.metric, block.vectors, terms.queries[number])
            return nearest if block.starts is None else _least(nearest, block.starts)
        total = np.zeros(block.num_rows, np.float64)
        for query in terms.queries:
            distances = exact(terms.metric, block.vectors, query)
            total += distances if block.starts is None else _least(distances, block.starts)
        return total.astype(np.float32)


def _least(distances: Distances, starts: IntArray) -> Distances:
    """The least distance of each row, whose vectors begin at `starts`; NaN if all are."""
    least: Distances = np.fmin.reduceat(distances, starts[:-1])
    return least


def _joined(values: FloatArray, block: _Block, sign: int) -> FloatArray:
    """Bounds per row, [1, rows], from the bounds of each vector and query, [queries, vectors].

    sign  -1 for lower bounds, 1 for upper bounds
    """
    assert block.starts is not None
    unknown = sign * np.inf
    filled = np.flatnonzero(block.starts[1:] > block.starts[:-1])
    rows = np.full((1, block.num_rows), unknown, np.float64)
    if len(filled):
        known = np.where(np.isnan(values), unknown, values)
        rows[0, filled] = np.minimum.reduceat(known, block.starts[filled], axis=1).sum(axis=0, dtype=np.float64)
    return rows + sign * _FLOAT32_ROUNDING * np.abs(rows)


def _blocks(rows: VectorRows, num_queries: int) -> list[tuple[int, int]]:
    """Runs of rows `(start, end)` whose vectors, and distances from all queries, take about one block."""
    dim = rows.matrix.shape[1]
    vector_bytes = max(4, rows.matrix.dtype.itemsize) * max(dim, num_queries, 1)
    step = max(1, BLOCK_BYTES // vector_bytes)
    if rows.starts is None:
        cuts = [*range(0, rows.num_rows, step)] or [0]
    else:
        wanted = np.arange(0, int(rows.starts[-1]) + 1, step)
        cuts = sorted({0, *(np.searchsorted(rows.starts, wanted, side="right") - 1).clip(0, rows.num_rows).tolist()})
    ends = [*cuts[1:], rows.num_rows]
    return [(start, end) for start, end in zip(cuts, ends, strict=True) if start < end]
