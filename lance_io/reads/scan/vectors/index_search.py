"""The part of a vector search that an index answers.

a filter that comes first   a scan of its columns, or the table's scalar indices, give the rows that it allows
few of these                their exact distances, without the index
else                        the partitions nearest to each query; with `refine_factor`, and where other fragments are
                            compared, too, exact distances of the candidates
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lance_io.index.details import Space
from lance_io.index.rows.row_set import RowSet
from lance_io.index.vector.nearest_rows import Scored
from lance_io.levels.arrays import values_of
from lance_io.plans.plan import Together
from lance_io.plans.streams import EachInPlan
from lance_io.reads.index.exact_rows import nearest_of_rows
from lance_io.reads.index.neighbours import Probing, num_probes, search_index
from lance_io.reads.index.row_filter import load_live_entries
from lance_io.reads.rows.deletions_and_ids import load_live_counts, load_row_columns
from lance_io.reads.rows.row_arithmetic import OFFSET_BITS
from lance_io.reads.scan.scan_plan import plan_scan
from lance_io.reads.scan.search_columns import query_of
from lance_io.reads.scan.stream import ScanRun
from lance_io.reads.version.column_lists import OutputColumn, Projection
from lance_io.reads.version.system_columns import ROW_ADDRESS, ROW_ID, system_field
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lance_io.index.vector.flat_search import SearchTerms
    from lance_io.index.vector.ivf import Ivf
    from lance_io.plans.plan import Plan
    from lance_io.reads.index.row_filter import LiveEntries
    from lance_io.reads.index.vector_indices import VectorIndex
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.scan.vector_query import VectorQuery
    from lance_io.reads.scan.vectors.vector_choice import VectorChoice
    from lance_io.reads.version.state import DatasetState

FEW_ROWS: Final = 10  # times the candidates: as many rows of a filter are compared without the index
FEW_ROWS_SHARE: Final = 100  # the same for this part of the covered rows
FEW_ROWS_MAX: Final = 10_000  # but not for more: each is a read of its own


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """Read before partitions are.

    entries    the live rows of the index, with those that the filter allows
    fragments  indexes of the fragments
    """

    entries: LiveEntries
    fragments: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class IndexSearch:
    """The part of a search that an index answers.

    probing    the search of the index
    vectors    the column
    fragments  indexes of the fragments, all covered by the index
    refines    whether the search asks for exact distances
    is_mixed   whether other fragments are compared, too
    allowed    options of the scan for the rows that a filter allows; None without a filter that comes first
    known      that was read while the index was opened; None if nothing was
    """

    probing: Probing
    vectors: OutputColumn
    fragments: tuple[int, ...]
    refines: bool
    is_mixed: bool
    allowed: ScanOptions | None
    known: Known | None

    @property
    def is_exact(self) -> bool:
        """Whether distances are exact ones, computed from the table's vectors."""
        return self.refines or self.is_mixed

    def is_searched(self, fragment_index: int) -> bool:
        """Whether the index answers for a fragment."""
        return fragment_index in self.fragments


def plan_by_index(
    state: DatasetState,
    options: ScanOptions,
    terms: SearchTerms,
    choice: VectorChoice,
    fragment_indexes: Sequence[int],
    known: Known | None,
) -> IndexSearch | None:
    """The part of a search that an index answers; None if there is none.

    known  from `load_known`
    """
    index = choice.index
    if index is None or len(set(fragment_indexes)) < len(fragment_indexes):
        return None
    searched = _searched(state, index, fragment_indexes)
    if not searched:
        return None
    if known is not None and (known.entries.index is not index or known.fragments != searched):
        known = None
    search = search_by_index(query_of(options), terms, index, choice.segments, choice.vectors, searched, known)
    allowed = _allowed_options(state, options, searched)
    return search if allowed is None else replace(search, allowed=allowed)


def search_by_index(
    query: VectorQuery,
    terms: SearchTerms,
    index: VectorIndex,
    segments: tuple[Ivf, ...],
    vectors: OutputColumn,
    fragments: tuple[int, ...],
    known: Known | None,
) -> IndexSearch:
    """A search by an index, without a filter that comes first; parameters as for `IndexSearch` and `Probing`."""
    factor = query.hints.get("refine_factor")
    first, most = num_probes(query.hints, segments)
    candidates = terms if factor in (None, 1) else replace(terms, k=terms.k * factor)
    probing = Probing(index, segments, candidates, terms.k, first, most)
    return IndexSearch(probing, vectors, fragments, factor is not None, False, None, known)


def load_known(
    state: DatasetState, options: ScanOptions, index: VectorIndex, fragment_indexes: Sequence[int]
) -> Plan[Known | None]:
    """Read before partitions are, for the index that will answer: in the rounds in which that is opened."""
    searched = _searched(state, index, fragment_indexes)
    if not searched:
        return None
    return (yield from _load_known(state, index, searched, _allowed_options(state, options, searched)))


def _searched(state: DatasetState, index: VectorIndex, fragment_indexes: Sequence[int]) -> tuple[int, ...]:
    covered = index.covered
    return tuple(number for number in fragment_indexes if state.fragment_ids[number] in covered)


def _allowed_options(state: DatasetState, options: ScanOptions, searched: Sequence[int]) -> ScanOptions | None:
    """Options of the scan for the rows that a filter allows; None without a filter that comes first."""
    if options.filter is None or not options.hints.get("prefilter"):
        return None
    return replace(options.rows_alone(), fragments=tuple(state.fragment_ids[number] for number in searched))


def _load_known(
    state: DatasetState, index: VectorIndex, searched: tuple[int, ...], options: ScanOptions | None
) -> Plan[Known]:
    entries: LiveEntries
    loading = load_live_entries(state, index, searched)
    if options is None:
        return Known((yield from loading), searched)
    entries, allowed = yield Together[Any]([loading, _allowed(state, options)])
    return Known(replace(entries, allowed=allowed), searched)


def run_by_index(
    state: DatasetState, options: ScanOptions, terms: SearchTerms, search: IndexSearch
) -> Plan[list[Scored]]:
    """The rows of the covered fragments that are nearest to each query, nearest first."""
    known = search.known
    if known is None:
        known = yield from _load_known(state, search.probing.index, search.fragments, search.allowed)
    allowed = known.entries.allowed
    if allowed is not None and (yield from _is_few(state, search, allowed)):
        rows = yield from _scored(state, allowed)
        return (yield from nearest_of_rows(state, search.vectors, terms, [rows] * len(terms.queries)))
    candidates = [_distinct(each) for each in (yield from search_index(state, search.probing, known.entries))]
    if not search.is_exact:
        return [each[: terms.k] for each in candidates]
    if not any(map(len, candidates)):
        return candidates
    return (yield from nearest_of_rows(state, search.vectors, terms, candidates))


def _allowed(state: DatasetState, options: ScanOptions) -> Plan[RowSet]:
    """The addresses of the live rows that a filter allows."""
    projection = Projection((OutputColumn("address", (ROW_ADDRESS,), system_field("address")),), None)
    plan = yield from plan_scan(state, options, projection)
    parts: list[Any] = [np.empty(0, np.uint64)]

    def keep(item: tuple[int, pa.RecordBatch]) -> Plan[None]:
        parts.append(values_of(item[1].column(0)).astype(np.uint64))
        yield from ()

    yield EachInPlan(ScanRun(state, plan, options, None).batches(), keep)
    return RowSet.of_rows(Space.ADDRESSES, np.concatenate(parts))


def _is_few(state: DatasetState, search: IndexSearch, allowed: RowSet) -> Plan[bool]:
    """Whether a filter allows so few rows that the index is not worth its bytes."""
    num_rows = allowed.num_rows
    if num_rows <= FEW_ROWS * search.probing.terms.k and num_rows <= FEW_ROWS_MAX:
        return True
    if num_rows > FEW_ROWS_MAX:
        return False
    return num_rows * FEW_ROWS_SHARE <= sum((yield from load_live_counts(state, search.fragments)))


def _scored(state: DatasetState, allowed: RowSet) -> Plan[Scored]:
    """Rows without distances."""
    addresses = allowed.rows().astype(np.int64)
    ids = addresses.view(np.uint64)
    if state.has_stable_row_ids and len(addresses):
        fragment_indexes = state.find_fragment_indexes(addresses >> OFFSET_BITS)
        numbers = np.unique(fragment_indexes).tolist()
        row_columns = yield from load_row_columns(state, numbers, (ROW_ID,))
        offsets = addresses & ((1 << OFFSET_BITS) - 1)
        ids = np.concatenate(
            [values_of(row_columns.make(ROW_ID, number, offsets[fragment_indexes == number])) for number in numbers]
        ).astype(np.uint64)
        order = np.argsort(fragment_indexes, kind="stable")
        addresses = addresses[order]
    return Scored(np.zeros(len(addresses), np.float32), ids, addresses)


def _distinct(rows: Scored) -> Scored:
    """Each row once, where it is nearest: a damaged index may name a row twice."""
    if len(rows) < 2:
        return rows
    _, first = np.unique(rows.addresses, return_index=True)
    return rows if len(first) == len(rows) else rows[np.sort(first)]


# -- explanations ----------------------------------------------------------------------------------------------------


def describe_by_index(search: IndexSearch, terms: SearchTerms) -> list[str]:
    """The search of an index as lines, outermost step first: pylance's names where it has them."""
    probing = search.probing
    kind = probing.segments[0].kind
    lines = [
        f"ANNSubIndex: name={probing.index.name}, type={kind}, k={probing.terms.k}, deltas={len(probing.segments)}, "
        f"metric={terms.metric}"
    ]
    orders = probing.orders(probing.prepared())
    for number, (part, segment) in enumerate(zip(probing.index.parts, probing.segments, strict=True)):
        chosen = list(
            dict.fromkeys(
                each for order in orders for each in order[number].partitions[: order[number].num_first].tolist()
            )
        )
        least = min((order[number].num_first for order in orders), default=1)
        shown = ", ".join(map(str, chosen[:20])) + (", ..." if len(chosen) > 20 else "")
        num_rows = int(segment.lengths[chosen].sum())
        lines.append(
            f"ANNIvfPartition: uuid={part.uuid}, minimum_nprobes={least}, maximum_nprobes={probing.most}, "
            f"partitions=[{shown}] of {segment.num_partitions}, rows={num_rows}"
        )
    if search.allowed is not None:
        lines.append("Prefilter: the rows that the filter allows; few of them are compared without the index")
    return lines


def read_by_index(
    state: DatasetState, options: ScanOptions, terms: SearchTerms, search: IndexSearch
) -> Plan[list[str]]:
    """Read what a search reads of its index; remarks on it."""
    notes = [f"vectors by index: {describe_by_index(search, terms)[0]}"]
    if search.allowed is not None:
        notes.append("the filter comes first: its rows decide which partitions are read")
        return notes
    known = yield from _load_known(state, search.probing.index, search.fragments, None)
    yield from search_index(state, search.probing, known.entries)
    if search.is_exact:
        notes.append("the vectors of the candidates are read afterwards")
    return notes
