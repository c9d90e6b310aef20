"""What searches with the same column and metric have in common.

It is kept with the version, so that a further search computes only the part that its query decides. It holds nothing
large: segments and deleted rows stay in the caches of the session, and are looked up for each search.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.reads.index.partitions import segment_keys
from lance_io.reads.index.row_filter import SettledRows
from lance_io.reads.scan.search_columns import query_of
from lance_io.reads.scan.vectors.index_search import IndexSearch, Known, search_by_index
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.index.vector.distances import Metric
    from lance_io.index.vector.flat_search import SearchTerms
    from lance_io.index.vector.ivf import Ivf
    from lance_io.io.cache import Key
    from lance_io.plans.plan import Plan
    from lance_io.reads.index.vector_indices import VectorIndex
    from lance_io.reads.scan.pipeline import ScanPlan
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.scan.vector_query import VectorColumn
    from lance_io.reads.version.column_lists import OutputColumn
    from lance_io.reads.version.state import DatasetState


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """Searches that an index answers alone.

    index      that answers
    metric     that it measures
    vectors    the column, as it is read
    keys       of its segments in the cache
    fragments  indexes of the fragments that are searched
    rows       of these
    options, scan  the scan of the fragments that the index does not cover: there are none
    """

    index: VectorIndex
    metric: Metric
    vectors: OutputColumn
    keys: tuple[Key, ...]
    fragments: tuple[int, ...]
    rows: SettledRows
    options: ScanOptions
    scan: ScanPlan

    def search(self, options: ScanOptions, terms: SearchTerms, segments: tuple[Ivf, ...], known: Known) -> IndexSearch:
        """A search by the index."""
        return search_by_index(query_of(options), terms, self.index, segments, self.vectors, self.fragments, known)

    def load_known(self, state: DatasetState) -> Plan[Known]:
        """Its live rows."""
        return Known((yield from self.rows.load_entries(state, self.index)), self.fragments)


def settle(
    state: DatasetState,
    options: ScanOptions,
    column: VectorColumn,
    search: IndexSearch,
    scanned: ScanOptions,
    scan: ScanPlan,
) -> None:
    """Keep the common part of a search, if an index answers it alone.

    scanned, scan  of the fragments that the index does not cover: there are none
    """
    key = _key(options)
    if key is None or search.is_mixed or search.allowed is not None:
        return
    index = search.probing.index
    settled = Settled(
        index,
        search.probing.terms.metric,
        search.vectors,
        tuple(segment_keys(state, index, column.dim, column.item)),
        search.fragments,
        SettledRows.of(state, index, search.fragments),
        scanned,
        scan,
    )
    state.prepared.put(key, settled)


def find_settled(state: DatasetState, options: ScanOptions) -> tuple[Settled, tuple[Ivf, ...]] | None:
    """The common part of a search and the segments of its index, if both are in memory."""
    key = _key(options)
    settled: Settled | None = None if key is None else state.prepared.get(key)
    if settled is None:
        return None
    segments: Sequence[Any] = state.session.index_cache.get_many(settled.keys)
    return None if None in segments else (settled, tuple(segments))


def _key(options: ScanOptions) -> Any:
    """Identifies searches with a common part; None for those that have none."""
    query, hints = query_of(options), options.hints
    has_filter = options.filter is not None and hints.get("prefilter")
    if has_filter or options.fragments is not None or not query.use_index:
        return None
    return "settled search", query.column, query.metric, bool(hints.get("fast_search"))
