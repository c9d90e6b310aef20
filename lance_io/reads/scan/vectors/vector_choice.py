"""Which index answers a vector search: the first of its column with its metric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lance_io.reads.index.partitions import Unread, open_vector_segments
from lance_io.reads.index.vector_indices import load_vector_indices, warn_unused
from lance_io.reads.version.column_lists import OutputColumn
from lance_io.records import dataclass

if TYPE_CHECKING:
    from lance_io.index.vector.distances import Metric
    from lance_io.index.vector.ivf import Ivf
    from lance_io.plans.plan import Plan
    from lance_io.reads.index.vector_indices import VectorIndex
    from lance_io.reads.scan.vector_query import VectorColumn, VectorQuery
    from lance_io.reads.version.state import DatasetState

_ITEMS: Final = (pa.float16(), pa.float32(), pa.float64(), pa.uint8())
VECTOR: Final = "vector"


@dataclass(frozen=True, slots=True, eq=False)
class VectorChoice:
    """The index of a search.

    metric    of the search; None for that of the type
    covered   ids of the fragments that indices of the column with this metric cover
    index     that answers the search; None if all vectors are compared
    segments  of the index
    vectors   the column, as it is read
    """

    metric: Metric | None
    covered: frozenset[int]
    index: VectorIndex | None
    segments: tuple[Ivf, ...]
    vectors: OutputColumn


def vector_output(column: VectorColumn) -> OutputColumn:
    """The column of a search as an output."""
    return OutputColumn(VECTOR, column.path, pa.field(VECTOR, column.dtype))


def expected_index(state: DatasetState, query: VectorQuery, column: VectorColumn) -> Plan[VectorIndex | None]:
    """The index that will answer a search, as far as the index section says; reads no file of an index."""
    if not (query.use_index and state.has_index) or not _is_indexed(column):
        return None
    for index in (yield from load_vector_indices(state)):
        if index.field_id == column.field.id and _may_answer(index, query.metric):
            return index
    return None


def _is_indexed(column: VectorColumn) -> bool:
    """Whether indices of a column are searched."""
    return not column.is_multi and column.item in _ITEMS


def _may_answer(index: VectorIndex, metric: Metric | None) -> bool:
    """Whether an index is readable and has a metric, as far as the index section says."""
    return index.is_readable and (index.metric is None or metric in (None, index.metric))


def choose_index(state: DatasetState, query: VectorQuery, column: VectorColumn) -> Plan[VectorChoice]:
    """The index of a search, opened. Raises `FormatError` naming index and file."""
    metric, covered = query.metric, frozenset[int]()
    chosen: tuple[VectorIndex, tuple[Ivf, ...]] | None = None
    if query.use_index and state.has_index:
        for index in (yield from load_vector_indices(state)):
            if index.field_id != column.field.id:
                continue
            its_metric = index.metric
            is_candidate = chosen is None and _is_indexed(column)
            if is_candidate and _may_answer(index, metric):
                segments = yield from _segments(state, index, column)
                if segments:
                    its_metric = segments[0].metric
                    if metric in (None, its_metric):
                        chosen = index, segments
            elif is_candidate and not index.is_readable:
                warn_unused(index.name, _why(index))
            elif is_candidate:
                warn_unused(index.name, f"it measures {its_metric}, the search {metric}")
            metric = metric or its_metric
            if its_metric is metric:
                covered |= index.covered
    found_index, segments = (None, ()) if chosen is None else chosen
    return VectorChoice(metric, covered, found_index, segments, vector_output(column))


def _segments(state: DatasetState, index: VectorIndex, column: VectorColumn) -> Plan[tuple[Ivf, ...]]:
    """The segments of an index; none, with a warning, if one of them cannot be searched."""
    opened = yield from open_vector_segments(state, index, column.dim, column.item)
    segments = []
    for segment in opened:
        if isinstance(segment, Unread):
            warn_unused(index.name, f"this release does not search {segment.reason}")
            return ()
        segments.append(segment)
    if len({(segment.metric, segment.coding) for segment in segments}) > 1:
        warn_unused(index.name, "its segments differ in metric or coding")
        return ()
    return tuple(segments)


def _why(index: VectorIndex) -> str:
    details = index.parts[0].details
    name = "an index of unknown coding" if details.coding is None else f"IVF_{details.coding.value}"
    return f"this release does not search {name}, version {details.version}"
