"""Random vectors of a column, as many as a training needs and memory allows.

A sample of few rows is taken by position. If many of these have no vector, and where most of the rows are wanted, the
column is scanned, and each row has a random number: those with the least numbers are the sample.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from lance_io.index.build.vectors.usable_vectors import usable_vectors
from lance_io.index.build.vectors.vector_models import computing_type
from lance_io.levels.arrays import distinct
from lance_io.limits import MIB
from lance_io.plans.cpu_requests import Compute
from lance_io.plans.streams import EachInPlan
from lance_io.reads.memory_limit import INTERNAL_BATCH_ROWS_MAX, scan_memory_options
from lance_io.reads.rows.deletions_and_ids import load_live_counts, load_live_starts
from lance_io.reads.scan.execute import projected_batches
from lance_io.reads.scan.scan_options import scan_options
from lance_io.reads.takes.take_rows import take_positions
from lance_io.reads.version.column_lists import project

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from lance_io.changes.index.vectors.vector_settings import VectorRequest
    from lance_io.index.vector.distances import Metric
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray

TAKEN_SHARE: Final = 8  # a sample of more than this part of the rows is scanned
_TAKE_BYTES: Final = 16 * MIB
_MOVED_BYTES: Final = 4 * MIB  # of rows that are copied at once
_USABLE_SHARE: Final = 2  # if less than this part of the taken rows has a vector, all rows are scanned


class VectorSample(NamedTuple):
    """Random vectors.

    vectors      [n, dim] in random order, in the computing type, and of unit length for cosine
    num_vectors  that there are, about
    """

    vectors: npt.NDArray[Any]
    num_vectors: int


def sample_vectors(
    state: DatasetState, request: VectorRequest, fragment_ids: Sequence[int], wanted: int, limit_bytes: int
) -> Plan[VectorSample]:
    """At most `wanted` vectors of fragments."""
    indexes = state.fragment_indexes_of(fragment_ids)
    counts: IntArray = np.array((yield from load_live_counts(state, indexes)), np.int64)
    num_rows = int(counts.sum())
    rng = np.random.default_rng(_seed(state))
    if wanted * TAKEN_SHARE <= num_rows:
        starts = (yield from load_live_starts(state))[np.array(indexes)]
        positions = _positions(rng, starts, counts, wanted)
        taken = yield from _taken(state, request, positions)
        if len(taken) * _USABLE_SHARE >= wanted:
            return VectorSample(taken, num_rows * len(taken) // len(positions))
    return (yield from _scanned(state, request, fragment_ids, wanted, limit_bytes, rng))


def _seed(state: DatasetState) -> int:
    """The same for the same version: a build can be repeated."""
    return state.manifest.version


def _positions(rng: np.random.Generator, starts: IntArray, counts: IntArray, wanted: int) -> IntArray:
    """Positions of random rows of some fragments in the table, ascending."""
    num_rows = int(counts.sum())
    chosen = distinct(rng.integers(0, num_rows, wanted))  # few are drawn twice, see `TAKEN_SHARE`
    before = np.cumsum(counts) - counts
    fragment = np.searchsorted(before, chosen, side="right") - 1
    positions: IntArray = chosen - before[fragment] + starts[fragment]
    return np.sort(positions)


def _taken(state: DatasetState, request: VectorRequest, positions: IntArray) -> Plan[npt.NDArray[Any]]:
    dtype = computing_type(request.vectors.value_type)
    step = max(1, _TAKE_BYTES // (request.vectors.list_size * dtype.itemsize))
    parts: list[npt.NDArray[Any]] = [np.empty((0, request.vectors.list_size), dtype)]
    for start in range(0, len(positions), step):
        table: pa.Table = yield from take_positions(state, positions[start : start + step], request.columns)
        for chunk in table.column(0).chunks:
            vectors: npt.NDArray[Any] = yield _usable(chunk, request.vector_kind.metric)
            parts.append(vectors)
    order = np.random.default_rng(_seed(state)).permutation(sum(map(len, parts)))
    return _moved(parts, order, len(order))


def _moved(parts: list[npt.NDArray[Any]], order: IntArray, num_rows: int) -> npt.NDArray[Any]:
    """The rows `order` of all parts together, of which there are `num_rows`. Frees the parts on the way."""
    slots = np.full(num_rows, -1, np.int64)
    slots[order] = np.arange(len(order))
    moved = np.empty((len(order), parts[0].shape[1]), parts[0].dtype)
    step = max(1, _MOVED_BYTES // max(1, moved.itemsize * moved.shape[1]))
    while parts:
        part = parts.pop()
        slots, its = slots[: len(slots) - len(part)], slots[len(slots) - len(part) :]
        for first in range(0, len(part), step):
            kept = np.flatnonzero(its[first : first + step] >= 0) + first
            moved[its[kept]] = part[kept]
    return moved


def _usable(array: pa.Array, metric: Metric) -> Compute[npt.NDArray[Any]]:
    values = getattr(array, "storage", array)
    return Compute(lambda: usable_vectors(values, metric).values, lambda: array.nbytes)


class _Reservoir:
    """The vectors with the least random numbers, of all that were added."""

    def __init__(self, dim: int, dtype: np.dtype[Any], wanted: int, rng: np.random.Generator) -> None:
        self._wanted = wanted
        self._rng = rng
        self._limit = 1.0  # of the random numbers that can still be in the sample
        self._vectors = [np.empty((0, dim), dtype)]
        self._numbers = [np.empty(0)]
        self._num_held = 0
        self.num_vectors = 0

    def add(self, array: pa.Array, metric: Metric) -> None:
        """Add the vectors of some rows."""
        vectors = usable_vectors(array, metric).values
        numbers = self._rng.random(len(vectors))
        chosen = np.flatnonzero(numbers < self._limit)
        self._vectors.append(vectors[chosen])
        self._numbers.append(numbers[chosen])
        self._num_held += len(chosen)
        self.num_vectors += len(array) - array.null_count  # as pylance counts: those with NaN, too
        if self._num_held > self._wanted + self._wanted // 4:
            self.sample()

    def sample(self) -> npt.NDArray[Any]:
        """The sample so far, in random order."""
        numbers = np.concatenate(self._numbers)
        order = np.argsort(numbers)[: self._wanted]
        parts, self._vectors = self._vectors, []
        vectors = _moved(parts, order, len(numbers))
        if len(order) == self._wanted:
            self._limit = float(numbers[order[-1]])
        self._vectors, self._numbers, self._num_held = [vectors], [numbers[order]], len(order)
        return vectors


def _scanned(
    state: DatasetState,
    request: VectorRequest,
    fragment_ids: Sequence[int],
    wanted: int,
    limit_bytes: int,
    rng: np.random.Generator,
) -> Plan[VectorSample]:
    dtype = computing_type(request.vectors.value_type)
    reservoir = _Reservoir(request.vectors.list_size, dtype, wanted, rng)
    options = scan_options(
        fragments=tuple(fragment_ids),
        batch_size=INTERNAL_BATCH_ROWS_MAX,
        scan_in_order=True,
        **scan_memory_options(limit_bytes),
    )

    def take(batch: pa.RecordBatch) -> Plan[None]:
        column = batch.column(0)
        values = getattr(column, "storage", column)
        yield Compute(partial(reservoir.add, values, request.vector_kind.metric), lambda: batch.nbytes)

    yield EachInPlan(projected_batches(state, options, project(state.schema, request.columns)), take)
    sample: npt.NDArray[Any] = yield Compute(reservoir.sample, lambda: MIB)
    return VectorSample(sample, reservoir.num_vectors)
