"""The nearest rows by an IVF index: partitions in one round, then distances; more partitions while rows are missing.

    nprobes n           n partitions of each segment
    minimum, maximum    the minimum, then twice as many and so on up to the maximum, while a query has fewer than k rows
    neither             the same, from the partitions whose centroids are about as near as the nearest one

A partition that several queries want is read and scanned once.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from lance_io.index.vector.distances import Metric, Pairs
from lance_io.index.vector.nearest_rows import NearestRows, Scored
from lance_io.index.vector.vector_arrays import as_floats
from lance_io.plans.cpu_requests import Compute
from lance_io.reads.index.partitions import Piece, groups_of, pieces_of, read_pieces
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from lance_io.index.vector.distances import Distances
    from lance_io.index.vector.flat_search import SearchTerms
    from lance_io.index.vector.ivf import Ivf, Partition
    from lance_io.plans.plan import Plan
    from lance_io.reads.index.row_filter import LiveEntries
    from lance_io.reads.index.table_indices import IndexPart
    from lance_io.reads.index.vector_indices import VectorIndex
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray

    BoolArray = npt.NDArray[np.bool_]
    RowNumbers = npt.NDArray[np.uint64]

_SPARE_ROWS: Final = 64  # looked up beside the k nearest: some of these may be deleted
_DISTANCES_MAX: Final = 4 << 20  # of several queries in memory at once
_FINITE_MAX: Final = float(np.finfo(np.float32).max)


class Order(NamedTuple):
    """Partitions of a segment in the order of a search, and the number that is searched at once."""

    partitions: IntArray
    num_first: int


@dataclass(frozen=True, slots=True, eq=False)
class Probing:
    """A search of an index.

    terms     queries, metric, bounds; its k is that of the candidates
    k         rows of the result: with fewer candidates, more partitions are searched
    first     partitions of each segment that are searched at once; None for those that likely have the nearest rows
    most      partitions of each segment at most; None for all
    """

    index: VectorIndex
    segments: tuple[Ivf, ...]
    terms: SearchTerms
    k: int
    first: int | None
    most: int | None

    def orders(self, queries: npt.NDArray[Any]) -> list[list[Order]]:
        """The partitions of each segment in the order of the search, for each query from `prepared`."""
        return [[self._order(segment, query) for segment in self.segments] for query in queries]

    def _order(self, segment: Ivf, query: npt.NDArray[Any]) -> Order:
        partitions = segment.nearest(query)
        num_first = self.first or segment.num_likely(partitions, query, self.terms.k)
        partitions = partitions[: self.most]
        return Order(partitions, min(num_first, max(1, len(partitions))))

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


def num_probes(hints: Mapping[str, Any], segments: Sequence[Ivf]) -> tuple[int | None, int | None]:
    """`Probing.first` and `most`, by the parameters of a search."""
    exact = hints.get("nprobes")
    least, most = hints.get("minimum_nprobes", exact), hints.get("maximum_nprobes", exact)
    largest = max((segment.num_partitions for segment in segments), default=1)
    effort = hints.get("search_effort")
    if effort is not None:  # from the minimum to all of them, geometrically
        least = max(1, round((least or 1) ** (1 - effort) * max(1, largest) ** effort))
        return least if most is None else min(least, most), most
    return least, most


class _Collected:
    """The nearest rows of one query so far.

    num_rows  live rows that were compared, at least up to k
    """

    def __init__(self, terms: SearchTerms) -> None:
        self._terms = terms
        self._nearest = NearestRows(terms.k)
        self.num_rows = 0

    def add(self, entries: LiveEntries, part: IndexPart[Any], distances: Distances, rows: RowNumbers) -> None:
        """Add rows of a segment, of which some may not count any more."""
        terms = self._terms
        if entries.allowed is not None or terms.lower is not None or terms.upper is not None:
            counts, addresses = entries.find(part, rows)
            self.num_rows += int(np.count_nonzero(counts))
            chosen = np.flatnonzero(counts & self._is_wanted(distances))
            self._keep(entries, distances[chosen], rows[chosen], addresses[chosen])
            return
        # which rows count is looked up for the nearest ones alone: few do not
        num_wanted, num_live, above = 2 * terms.k + _SPARE_ROWS, 0, -np.inf
        while num_live < terms.k:
            limit = self._limit
            cut = min(limit, _distance_of(distances, num_wanted))
            nearest = np.flatnonzero(distances <= cut)  # false for NaN
            nearest = nearest[distances[nearest] > above]
            counts, addresses = entries.find(part, rows[nearest])
            chosen = np.flatnonzero(counts)
            num_live += len(chosen)
            self._keep(entries, distances[nearest[chosen]], rows[nearest[chosen]], addresses[chosen])
            if cut >= limit:
                break
            above, num_wanted = cut, 4 * num_wanted
        self.num_rows += num_live

    def rows(self) -> Scored:
        """The rows, nearest first."""
        return self._nearest.rows()

    @property
    def _limit(self) -> float:
        """Above which no distance counts; infinite ones, of either sign, never do: products of vectors overflow."""
        return min(self._nearest.limit, _FINITE_MAX)

    def _is_wanted(self, distances: Distances) -> BoolArray:
        terms = self._terms
        wanted: BoolArray = (distances <= self._limit) & (distances > -np.inf)  # false for NaN
        if terms.lower is not None:
            wanted &= distances >= np.float32(terms.lower)
        if terms.upper is not None:
            wanted &= distances < np.float32(terms.upper)
        return wanted

    def _keep(self, entries: LiveEntries, distances: Distances, rows: RowNumbers, addresses: IntArray) -> None:
        if len(rows):
            ids = rows if entries.row_ids is not None else addresses.view(np.uint64)
            self._nearest.add(Scored(distances, ids, addresses))


def _distance_of(distances: Distances, rank: int) -> float:
    """The distance of the row of a rank, from 1; infinite where there are not as many rows with a distance."""
    if len(distances) <= rank:
        return np.inf
    distance = float(np.partition(distances, rank - 1)[rank - 1])
    return np.inf if np.isnan(distance) else distance


def search_index(state: DatasetState, probing: Probing, entries: LiveEntries) -> Plan[list[Scored]]:
    """The candidates of each query, nearest first; at most `terms.k`. Raises `FormatError` naming index and file."""
    queries = probing.prepared()
    orders: list[list[Order]] = yield Compute(partial(probing.orders, queries), lambda: _order_bytes(probing))
    collected = [_Collected(probing.terms) for _ in queries]
    growth = 1
    active = np.flatnonzero(np.isfinite(queries).all(axis=1)).tolist()
    while active:
        wanted = _wanted(orders, active, growth)
        for group in groups_of(probing.segments, _pieces(probing, wanted)):
            partitions = yield from read_pieces(state, probing.index, probing.segments, group)
            num_bytes = sum([partition.nbytes for partition in partitions])
            look = partial(_look, probing, entries, queries, collected, group, partitions, wanted)
            yield Compute(look, lambda num_bytes=num_bytes: num_bytes)  # type: ignore[misc]
        active = [
            number
            for number in active
            if collected[number].num_rows < probing.k
            and any(len(order.partitions) > growth * order.num_first for order in orders[number])
        ]
        growth *= 2
    return [each.rows() for each in collected]


def _pieces(probing: Probing, wanted: Collection[tuple[int, int]]) -> list[Piece]:
    """Partitions as pieces, segment by segment and then by their numbers."""
    by_part: dict[int, list[int]] = {}
    for part, partition in sorted(wanted):
        by_part.setdefault(part, []).append(partition)
    return [piece for part, numbers in by_part.items() for piece in pieces_of(probing.segments[part], part, numbers)]


def _order_bytes(probing: Probing) -> int:
    return sum(segment.centroids.nbytes for segment in probing.segments) * len(probing.terms.queries)


def _wanted(orders: Sequence[Sequence[Order]], active: Sequence[int], growth: int) -> dict[tuple[int, int], list[int]]:
    """The queries that want each partition, by the number of its segment and its own.

    growth  the searched partitions are this many times the first ones, half of which were searched before; 1: none was
    """
    wanted: dict[tuple[int, int], list[int]] = {}
    for number in active:
        for part, (partitions, num_first) in enumerate(orders[number]):
            for partition in partitions[growth // 2 * num_first : growth * num_first].tolist():
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
        chosen = [at for at, piece in enumerate(pieces) if piece.part == part and len(partitions[at].rows)]
        numbers = [pieces[at].partition for at in chosen]
        its = [partitions[at] for at in chosen]
        for wishes in _wishes([wanted[part, number] for number in numbers], [len(each.rows) for each in its]):
            with np.errstate(all="ignore"):
                distances = segment.distances(queries, numbers, its, wishes.pairs)
            for number, positions, start, end in wishes.answers:
                rows = np.concatenate([its[at].rows for at in positions])
                collected[number].add(entries, probing.index.parts[part], distances[start:end], rows)


class _Wishes(NamedTuple):
    """Some queries and the pieces that they want.

    pairs    of piece and query
    answers  of each query: its number, its pieces, and where their distances begin and end
    """

    pairs: Pairs
    answers: list[tuple[int, list[int], int, int]]


def _wishes(wanted: Sequence[Sequence[int]], lengths: Sequence[int]) -> Iterator[_Wishes]:
    """Queries in groups whose distances are in memory at once.

    wanted   the queries that want each piece
    lengths  rows of each piece
    """
    positions: dict[int, list[int]] = {}
    for at, numbers in enumerate(wanted):
        for number in numbers:
            positions.setdefault(number, []).append(at)
    group: list[tuple[int, list[int], int, int]] = []
    end = 0
    for number, its in positions.items():
        count = sum([lengths[at] for at in its])
        if group and end + count > _DISTANCES_MAX:
            yield _Wishes(_pairs(group, lengths, end), group)
            group, end = [], 0
        group.append((number, its, end, end + count))
        end += count
    if group:
        yield _Wishes(_pairs(group, lengths, end), group)


def _pairs(group: Sequence[tuple[int, list[int], int, int]], lengths: Sequence[int], num_rows: int) -> Pairs:
    triples: list[tuple[int, int, int]] = []
    for number, positions, start, _ in group:
        for at in positions:
            triples.append((at, number, start))
            start += lengths[at]
    triples.sort()
    return Pairs(np.array(triples, np.int64).reshape(-1, 3), num_rows)
