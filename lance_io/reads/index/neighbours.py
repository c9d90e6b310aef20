"""The nearest rows by an IVF index: partitions in one round, then distances; more partitions while rows are missing.

    nprobes n           n partitions of each segment
    minimum, maximum    the minimum, then twice as many and so on up to the maximum, while a query has fewer than k rows
    neither             the same, from half of the root of the number of partitions

A partition that several queries want is read once.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import isqrt
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lance_io.index.vector.distances import Metric
from lance_io.index.vector.flat_search import FlatSearch
from lance_io.index.vector.nearest_rows import NearestRows, Scored
from lance_io.index.vector.vector_arrays import as_floats
from lance_io.levels.arrays import numbers
from lance_io.plans.cpu_requests import Compute
from lance_io.reads.index.partitions import Piece, groups_of, pieces_of, read_pieces
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from lance_io.index.vector.flat_search import SearchTerms
    from lance_io.index.vector.ivf import Ivf, Partition
    from lance_io.plans.plan import Plan
    from lance_io.reads.index.row_filter import LiveEntries
    from lance_io.reads.index.vector_indices import VectorIndex
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray

_SHARE: Final = 2  # of the root of the number of partitions, for searches without a number


@dataclass(frozen=True, slots=True, eq=False)
class Probing:
    """A search of an index.

    terms     queries, metric, bounds; its k is that of the candidates
    k         rows of the result: with fewer candidates, more partitions are searched
    first     partitions of each segment that are searched at once
    most      partitions of each segment at most; None for all
    """

    index: VectorIndex
    segments: tuple[Ivf, ...]
    terms: SearchTerms
    k: int
    first: int
    most: int | None

    def orders(self) -> list[list[IntArray]]:
        """The partitions of each segment in the order of the search, for each query."""
        return [[segment.nearest(query)[: self.most] for segment in self.segments] for query in self.prepared()]

    def prepared(self) -> npt.NDArray[Any]:
        """The queries as centroids and codes need them."""
        queries = self.terms.queries
        if self.terms.metric is Metric.HAMMING:
            return queries
        floats = as_floats(queries)
        if self.terms.metric is not Metric.COSINE:
            return floats
        with np.errstate(all="ignore"):
            units: npt.NDArray[Any] = floats / np.sqrt(np.einsum("ij,ij->i", floats, floats))[:, None]
            return units


def num_probes(hints: Mapping[str, Any], segments: Sequence[Ivf]) -> tuple[int, int | None]:
    """The partitions of each segment to search at once, and at most, by the parameters of a search."""
    exact = hints.get("nprobes")
    least, most = hints.get("minimum_nprobes", exact), hints.get("maximum_nprobes", exact)
    largest = max((segment.num_partitions for segment in segments), default=1)
    effort = hints.get("search_effort")
    if effort is not None:  # from the minimum to all of them, geometrically
        least = max(1, round((least or 1) ** (1 - effort) * max(1, largest) ** effort))
        return least if most is None else min(least, most), most
    if least is None:
        least = max(1, -(-isqrt(max(0, largest - 1)) // _SHARE) if largest > 1 else 1)
        least = least if most is None else min(least, most)
    return least, most


class _Collected:
    """The nearest rows of one query so far."""

    def __init__(self, probing: Probing, number: int) -> None:
        terms = probing.terms
        self._terms = terms
        self._nearest = NearestRows(terms.k)
        self._flat = FlatSearch(_with_query(terms, number)) if probing.segments[0].codes is None else None
        self.num_rows = 0

    def add_vectors(self, vectors: Any, ids: npt.NDArray[np.uint64], addresses: IntArray) -> None:
        """Add rows by their vectors."""
        assert self._flat is not None, "of an index of vectors as they are"
        self._flat.add(vectors, ids, addresses)

    def add_distances(self, rows: Scored) -> None:
        """Add rows by their distances."""
        lower, upper = self._terms.lower, self._terms.upper
        counts = rows.distances <= self._nearest.limit  # false for NaN
        if lower is not None:
            counts &= rows.distances >= np.float32(lower)
        if upper is not None:
            counts &= rows.distances < np.float32(upper)
        if counts.any():
            self._nearest.add(rows if counts.all() else rows[counts])

    def rows(self) -> Scored:
        """The rows, nearest first."""
        return self._nearest.rows() if self._flat is None else self._flat.results()[0]


def _with_query(terms: SearchTerms, number: int) -> SearchTerms:
    return replace(terms, queries=terms.queries[number : number + 1])


def search_index(state: DatasetState, probing: Probing, entries: LiveEntries) -> Plan[list[Scored]]:
    """The candidates of each query, nearest first; at most `terms.k`. Raises `FormatError` naming index and file."""
    orders: list[list[IntArray]] = yield Compute(probing.orders, lambda: _order_bytes(probing))
    queries = probing.prepared()
    collected = [_Collected(probing, number) for number in range(len(queries))]
    first, end = 0, probing.first
    active = [number for number in range(len(queries)) if np.isfinite(queries[number]).all()]
    while active:
        wanted = _wanted(orders, active, first, end)
        pieces = [
            piece for part, partition in sorted(wanted) for piece in pieces_of(probing.segments[part], part, partition)
        ]
        for group in groups_of(probing.segments, pieces):
            partitions = yield from read_pieces(state, probing.index, probing.segments, group)
            num_bytes = sum(partition.nbytes for partition in partitions)
            look = partial(_look, probing, entries, queries, collected, group, partitions, wanted)
            yield Compute(look, lambda num_bytes=num_bytes: num_bytes)  # type: ignore[misc]
        active = [
            number
            for number in active
            if collected[number].num_rows < probing.k and any(len(order) > end for order in orders[number])
        ]
        first, end = end, 2 * end
    return [each.rows() for each in collected]


def _order_bytes(probing: Probing) -> int:
    return sum(segment.centroids.nbytes for segment in probing.segments) * len(probing.terms.queries)


def _wanted(
    orders: Sequence[Sequence[IntArray]], active: Sequence[int], first: int, end: int
) -> dict[tuple[int, int], list[int]]:
    """The queries that want each partition, by the number of its segment and its own."""
    wanted: dict[tuple[int, int], list[int]] = {}
    for number in active:
        for part, order in enumerate(orders[number]):
            for partition in order[first:end].tolist():
                wanted.setdefault((part, partition), []).append(number)
    return wanted


def _look(
    probing: Probing,
    entries: LiveEntries,
    queries: npt.NDArray[Any],
    collected: Sequence[_Collected],
    pieces: Sequence[Piece],
    partitions: Sequence[Partition],
    wanted: Mapping[tuple[int, int], Sequence[int]],
) -> None:
    """Compare pieces with the queries that want them."""
    for part, segment in enumerate(probing.segments):
        chosen = [at for at, piece in enumerate(pieces) if piece.part == part]
        if not chosen:
            continue
        rows = np.concatenate([partitions[at].rows for at in chosen])
        counts, addresses = entries.find(probing.index.parts[part], rows)
        ids = rows if entries.row_ids is not None else addresses.view(np.uint64)
        start = 0
        for at in chosen:
            partition = partitions[at]
            here = slice(start, start + len(partition.rows))
            start = here.stop
            kept = np.flatnonzero(counts[here])
            if not len(kept):
                continue
            its_ids, its_addresses = ids[here][kept], addresses[here][kept]
            for number in wanted[part, pieces[at].partition]:
                collected[number].num_rows += len(kept)
                if partition.vectors is not None:
                    vectors = partition.vectors
                    vectors = vectors if len(kept) == len(vectors) else vectors.take(numbers(kept))
                    collected[number].add_vectors(vectors, its_ids, its_addresses)
                else:
                    with np.errstate(all="ignore"):
                        distances = segment.distances(queries[number], pieces[at].partition, partition)
                    collected[number].add_distances(Scored(distances[kept], its_ids, its_addresses))
