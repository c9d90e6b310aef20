"""Full-text search of a scan: the rows that match, taken, filtered, ordered and cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io.errors import UsageError
from lance_io.file.open.leaf_projection import Projection as FileProjection
from lance_io.file.table_reader import TableReader
from lance_io.levels.arrays import true_positions
from lance_io.plans.plan import Import, Together
from lance_io.reads.rows.rebatch import empty_columns
from lance_io.reads.rows.row_arithmetic import OFFSET_BITS, OFFSET_MASK, group_rows
from lance_io.reads.scan.ordering import Ordering
from lance_io.reads.scan.search_columns import DOC_INDEX, SCORE, SearchColumns, prepare_take, search_projection
from lance_io.reads.scan.text.prepared_text import cache_prepared_text, find_prepared_search
from lance_io.reads.scan.text.score_columns import added_columns, bind_with_score, text_projection
from lance_io.reads.scan.text.text_plan import plan_text_search, run_text_search
from lance_io.reads.takes.take_rows import prepare, take_grouped
from lance_io.reads.version.column_lists import COMPILER, Projection

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_io.filters import Predicate
    from lance_io.index.text.text_matches import TextMatches
    from lance_io.plans.plan import Plan
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.scan.scan_statistics import ScanWatch
    from lance_io.reads.takes.take_rows import PreparedTake
    from lance_io.reads.version.state import DatasetState

OPENED_FRAGMENTS_MAX: Final = 8  # whose files are opened before it is known which have matches: a request each


def search_text(
    state: DatasetState, options: ScanOptions, projection: Projection | None, watch: ScanWatch | None
) -> Plan[pa.Table]:
    """The matches as a table, filtered, ordered and cut as the options say.

    projection  output columns, if they differ from those of the options
    """
    names = added_columns(state, options)
    projection = projection or search_projection(state, options, names)
    ordering = Ordering(state, options, projection) if options.order_by else None
    if ordering is not None:
        projection = ordering.projection
    predicate = yield from _predicate(state, options, names)
    columns, take = prepare_take(state, projection, predicate, names)
    matches = yield from _search(state, options, watch, columns)
    is_cut = predicate is None and ordering is None
    if is_cut and options.offset:  # there are at most as many as are wanted
        matches = matches[_window(options)]
    if predicate is not None and state.schema.has_blobs:  # the result may lack their descriptions
        matches = yield from _filtered(state, names, predicate, matches)
        columns, take = prepare_take(state, projection, None, names)
    parts = yield from _parts(state, take, matches)
    batches = [columns.batch(part, arrays) for part, arrays in parts]
    table = pa.Table.from_batches(batches, schema=columns.projection.arrow_schema)
    if ordering is not None:
        return (yield from ordering.finish(table))
    if is_cut:
        return table
    chosen = _window(options)
    return table.slice(chosen.start, None if chosen.stop is None else chosen.stop - chosen.start)


def count_text_matches(state: DatasetState, options: ScanOptions, watch: ScanWatch | None) -> Plan[int]:
    """Number of matches. Raises `UsageError` for a search with a limit or an offset."""
    if options.limit is not None or options.offset is not None:
        raise UsageError("Cannot use limit/offset with aggregate. Apply limit to the result instead.")
    text_projection(state, options)
    names = added_columns(state, options)
    predicate = yield from _predicate(state, options, names)
    matches = yield from _search(state, options, watch)
    if predicate is None:
        return len(matches)
    return len((yield from _filtered(state, names, predicate, matches)))


def _window(options: ScanOptions) -> slice:
    first = options.offset or 0
    return slice(first, None if options.limit is None else first + options.limit)


def _predicate(state: DatasetState, options: ScanOptions, names: tuple[str, ...]) -> Plan[Predicate | None]:
    """The filter of the matches, if there is one that does not come first."""
    if options.filter is None:
        return None
    yield Import(COMPILER)
    return None if options.hints.get("prefilter") else bind_with_score(state, options.filter, names)


def _search(
    state: DatasetState, options: ScanOptions, watch: ScanWatch | None, columns: SearchColumns | None = None
) -> Plan[TextMatches]:
    """The matches. columns: that are taken of them"""
    opening = None if columns is None else _opened_beside(state, options, columns)
    prepared = find_prepared_search(state, options)
    if prepared is not None:
        searching = prepared.run(state)
        if opening is None:
            return (yield from searching)
        matches: TextMatches = (yield Together[Any]([searching, opening]))[0]
        return matches
    planning = plan_text_search(state, options)
    plan: Any = (yield from planning) if opening is None else (yield Together[Any]([planning, opening]))[0]
    cache_prepared_text(state, options, plan)
    return (yield from run_text_search(state, plan, watch))


def _opened_beside(state: DatasetState, options: ScanOptions, columns: SearchColumns) -> Plan[None] | None:
    """Loads metadata of few data files while an index is opened, where that saves rounds; once for each column list."""
    if not state.has_index or state.is_local:
        return None
    fragment_indexes = state.scanned_fragment_indexes(options.fragments)
    if len(fragment_indexes) > OPENED_FRAGMENTS_MAX:
        return None
    paths = frozenset(columns.taken.data_paths)
    key = "opened beside", paths
    if not paths or state.prepared.get(key) is not None:
        return None
    state.prepared.put(key, True)
    reader = TableReader(state.context, FileProjection(state.pruned_fields(paths)))
    return reader.warm([state.sources[fragment_index] for fragment_index in fragment_indexes])


def _filtered(
    state: DatasetState, names: tuple[str, ...], predicate: Predicate, matches: TextMatches
) -> Plan[TextMatches]:
    """The matches that pass a filter; reads only the filter's columns."""
    columns = SearchColumns.of(state, Projection((), None), predicate, names)
    kept, before = [np.empty(0, np.int64)], 0
    for part, arrays in (yield from _parts(state, prepare(state, columns.taken), matches)):
        kept.append(np.asarray(true_positions(columns.mask(part, arrays))) + before)
        before += part.num_rows
    return matches[np.concatenate(kept)]


def _parts(
    state: DatasetState, take: PreparedTake, matches: TextMatches
) -> Plan[list[tuple[pa.RecordBatch, dict[str, pa.Array]]]]:
    """Columns of the matches, in batches, each with the score."""
    addresses = matches.addresses
    if not len(addresses):
        return []
    if take.columns.projection.outputs:
        grouped = group_rows(state.find_fragment_indexes(addresses >> OFFSET_BITS), addresses & OFFSET_MASK)
        parts = (yield from take_grouped(state, grouped, take)).to_batches()
    else:
        parts = [empty_columns(len(addresses), pa.schema([]))]
    pairs, start = [], 0
    for part in parts:
        its = matches if part.num_rows == len(addresses) else matches[start : start + part.num_rows]
        start += part.num_rows
        scores = np.ascontiguousarray(its.scores)
        added = {SCORE: pa.Array.from_buffers(pa.float32(), len(scores), [None, pa.py_buffer(scores)])}
        if its.elements is not None:
            added[DOC_INDEX] = _lists(its.elements)
        pairs.append((part, added))
    return pairs


def _lists(places: npt.NDArray[np.uint32]) -> pa.Array:
    """A list of each row of a matrix."""
    num_rows, depth = places.shape
    offsets = pa.array(np.arange(num_rows + 1, dtype=np.int32) * depth)
    items = pa.array(np.ascontiguousarray(places).reshape(-1), pa.uint32())
    return pa.ListArray.from_arrays(offsets, items, pa.list_(pa.field("item", pa.uint32(), nullable=False)))
