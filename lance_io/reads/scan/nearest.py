"""Vector search: the rows whose vectors are nearest to a query, by an index or by comparing all of them.

plan_search  an index if there is one for the column and metric; rows to scan: those that it does not cover
index        the rows that a filter allows, if it comes first -> few: their exact distances; else the index's nearest
             rows, with exact distances if the search refines them or compares uncovered rows, too
batches      of the scan -> `FlatSearch`, a few at once on the CPU pool; k rows and their distances are kept
take         the output columns of the matches, in one round
then         the filter if it comes after, order, limit
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io.errors import UsageError
from lance_io.file.open.leaf_projection import Projection as FileProjection
from lance_io.file.table_reader import TableReader
from lance_io.index.vector.flat_search import FlatSearch, SearchTerms
from lance_io.index.vector.nearest_rows import NearestRows, Scored
from lance_io.levels.arrays import true_positions, values_of
from lance_io.plans.cpu_requests import Begin, Result
from lance_io.plans.plan import Import, Together
from lance_io.plans.streams import EachInPlan
from lance_io.reads.rows.rebatch import empty_columns
from lance_io.reads.rows.row_arithmetic import OFFSET_BITS, OFFSET_MASK, group_rows
from lance_io.reads.scan.ordering import Ordering
from lance_io.reads.scan.scan_plan import explain as explain_plan
from lance_io.reads.scan.scan_plan import plan_scan
from lance_io.reads.scan.search_columns import (
    SearchColumns,
    nearest_columns,
    nearest_projection,
    prepare_take,
    query_of,
    search_column_names,
    search_schema,
)
from lance_io.reads.scan.stream import ScanRun
from lance_io.reads.scan.vector_query import K, vector_column
from lance_io.reads.scan.vectors.index_search import (
    describe_by_index,
    load_known,
    plan_by_index,
    read_by_index,
    run_by_index,
)
from lance_io.reads.scan.vectors.settled import find_settled, settle
from lance_io.reads.scan.vectors.shared_turns import shared_turns
from lance_io.reads.scan.vectors.vector_choice import choose_index, expected_index, vector_output
from lance_io.reads.takes.take_rows import prepare, take_grouped
from lance_io.reads.version.column_lists import COMPILER, OutputColumn, Projection
from lance_io.reads.version.system_columns import ROW_ADDRESS, ROW_ID, system_field
from lance_io.records import dataclass
from lance_io.runtime import cpu_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from lance_io.filters import Predicate
    from lance_io.index.vector.distances import Metric
    from lance_io.plans.plan import Plan
    from lance_io.reads.scan.pipeline import ScanPlan
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.scan.scan_statistics import ScanWatch
    from lance_io.reads.scan.vector_query import VectorColumn
    from lance_io.reads.scan.vectors.index_search import IndexSearch, Known
    from lance_io.reads.scan.vectors.vector_choice import VectorChoice
    from lance_io.reads.takes.take_rows import PreparedTake
    from lance_io.reads.version.state import DatasetState, FragmentPlace

_NONE: Final = np.empty(0, np.int64)
SCORED_BYTES: Final = 20  # of a kept row
OPENED_FRAGMENTS_MAX: Final = 8  # whose files are opened before it is known which have matches: a request each


@dataclass(frozen=True, slots=True, eq=False)
class SearchPlan:
    """A search before its first row is read.

    terms    queries, metric, k and bounds
    options  of the scan that gives the vectors
    scan     the scan; its columns are the vector, the address, and the row id if that is another number
    names    columns that the search adds
    by_index  the part of the search that an index answers, or None
    """

    terms: SearchTerms
    options: ScanOptions
    scan: ScanPlan
    names: tuple[str, ...]
    by_index: IndexSearch | None


@dataclass(frozen=True, slots=True, eq=False)
class _Matches:
    """Matches, by query and then by distance.

    queries  i32[n]
    """

    queries: np.ndarray[Any, Any]
    rows: Scored

    def __getitem__(self, chosen: Any) -> _Matches:
        return _Matches(self.queries[chosen], self.rows[chosen])


def plan_search(state: DatasetState, options: ScanOptions, *, reads: bool = False) -> Plan[SearchPlan]:
    """Plan a search up to its first row. Raises `UsageError` for options that no search supports.

    reads  whether to read, while an index is opened, the rows that count in it
    """
    query = query_of(options)
    if options.include_deleted_rows:
        raise UsageError("Invalid user input: Cannot include deleted rows in a nearest neighbor search")
    column = vector_column(state.schema, query)
    names = search_column_names(query, column.is_multi)
    if reads and (common := find_settled(state, options)) is not None:
        settled, segments = common
        terms = _terms(options, column, settled.metric)
        by_index: IndexSearch | None
        by_index = settled.search(options, terms, segments, (yield from settled.load_known(state)))
        return SearchPlan(terms, settled.options, settled.scan, names, by_index)
    fragment_indexes = state.scanned_fragment_indexes(options.fragments)
    choosing = choose_index(state, query, column)
    expected = (yield from expected_index(state, query, column)) if reads else None
    known: Known | None = None
    if expected is None:
        choice: VectorChoice = yield from choosing
    else:
        beside = load_known(state, options, expected, fragment_indexes)
        choice, known = yield Together[Any]([choosing, beside])
    terms = _terms(options, column, choice.metric)
    scanned, projection = _scan_of(state, options, column)
    by_index = plan_by_index(state, options, terms, choice, fragment_indexes, known)
    is_fast = bool(options.hints.get("fast_search"))
    if by_index is not None:
        left = [index for index in fragment_indexes if not by_index.is_searched(index)]
        left = [] if is_fast else left
        by_index = replace(by_index, is_mixed=bool(left))
        scanned = replace(scanned, fragments=_named(state, left), filter=scanned.filter if left else None)
    elif is_fast:
        left = [index for index in fragment_indexes if state.fragment_ids[index] in choice.covered]
        scanned = replace(scanned, fragments=_named(state, left))
    plan = yield from plan_scan(state, scanned, projection)
    if by_index is not None:
        settle(state, options, column, by_index, scanned, plan)
    return SearchPlan(terms, scanned, plan, names, by_index)


def _terms(options: ScanOptions, column: VectorColumn, metric: Metric | None) -> SearchTerms:
    query = query_of(options)
    k = options.limit if query.k is None and options.limit is not None else query.k or K
    if not k:
        raise UsageError("Invalid user input: k must be positive")
    return SearchTerms(column.metric(metric), column.queries(query), k, column.is_multi, query.lower, query.upper)


def _named(state: DatasetState, fragment_indexes: Sequence[int]) -> tuple[int | FragmentPlace, ...]:
    return tuple(state.fragment_ids[fragment_index] for fragment_index in fragment_indexes)


def _scan_of(state: DatasetState, options: ScanOptions, column: VectorColumn) -> tuple[ScanOptions, Projection]:
    """The scan that gives the vectors, and its columns."""
    is_first = bool(options.hints.get("prefilter"))
    scanned = replace(options.rows_alone(), filter=options.filter if is_first else None)
    outputs = [
        vector_output(column),
        OutputColumn("address", (ROW_ADDRESS,), system_field("address")),
    ]
    if state.has_stable_row_ids:
        outputs.append(OutputColumn("id", (ROW_ID,), system_field("id")))
    return scanned, Projection(tuple(outputs), None)


def search(
    state: DatasetState, options: ScanOptions, projection: Projection | None, watch: ScanWatch | None
) -> Plan[pa.Table]:
    """The matches as a table, filtered, ordered and cut as the options say.

    projection  output columns, if they differ from those of the options
    """
    projection = projection or nearest_projection(state, options)
    turns = shared_turns(state, options, projection) if watch is None else None
    if turns is not None:
        return (
            yield from turns.search(query_of(options).queries, partial(_search_together, state, options, projection))
        )
    ordering = Ordering(state, options, projection) if options.order_by else None
    if ordering is not None:
        projection = ordering.projection
    matches, predicate, names = yield from _search(state, options, watch, projection)
    is_cut = predicate is None and ordering is None
    if is_cut:
        matches = matches[_window(options)]
    if predicate is not None and state.schema.has_blobs:  # the result may lack their descriptions
        matches, predicate = (yield from _filtered(state, predicate, names, matches)), None
    table = yield from _take(state, *prepare_take(state, projection, predicate, names), matches)
    if ordering is not None:
        return (yield from ordering.finish(table))
    if is_cut:
        return table
    chosen = _window(options)
    return table.slice(chosen.start, None if chosen.stop is None else chosen.stop - chosen.start)


def _search_together(
    state: DatasetState, options: ScanOptions, projection: Projection, queries: npt.NDArray[Any]
) -> Plan[Sequence[pa.Table]]:
    """Searches of several callers, which differ in their query alone: a table for each."""
    if len(queries) > 1:
        options = replace(options, nearest=replace(query_of(options), queries=queries))
    parts, predicate, names = yield from _nearest_parts(state, options, None, projection)
    window = _window(options)
    parts = [part[window] for part in parts]
    matches = _Matches(np.zeros(sum(map(len, parts)), np.int32), Scored.joined(parts))
    table = yield from _take(state, *prepare_take(state, projection, predicate, names), matches)
    if len(parts) == 1:
        return [table]
    ends = np.cumsum([len(part) for part in parts]).tolist()
    return [_own_rows(table, first, end) for first, end in pairwise([0, *ends])]


def _own_rows(table: pa.Table, first: int, end: int) -> pa.Table:
    """Some rows in memory of their own: a caller keeps only its result in memory."""
    part = table.slice(first, end - first)
    if first == end or not part.num_columns:
        return part
    columns = [pa.concat_arrays([*column.chunks, column.chunk(0).slice(0, 0)]) for column in part.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def count_matches(state: DatasetState, options: ScanOptions, watch: ScanWatch | None) -> Plan[int]:
    """Number of matches. Raises `UsageError` for a search with a limit or an offset."""
    if options.limit is not None or options.offset is not None:
        raise UsageError("Cannot use limit/offset with aggregate. Apply limit to the result instead.")
    matches, predicate, names = yield from _search(state, options, watch)
    if predicate is None:
        return len(matches.rows)
    return len((yield from _filtered(state, predicate, names, matches)).rows)


def _window(options: ScanOptions) -> slice:
    first = options.offset or 0
    return slice(first, None if options.limit is None else first + options.limit)


def _search(
    state: DatasetState, options: ScanOptions, watch: ScanWatch | None, projection: Projection | None = None
) -> Plan[tuple[_Matches, Predicate | None, tuple[str, ...]]]:
    """The matches, the filter still to be applied, and the columns that the search adds."""
    parts, predicate, names = yield from _nearest_parts(state, options, watch, projection)
    queries = np.repeat(np.arange(len(parts), dtype=np.int32), [len(part) for part in parts])
    return _Matches(queries, Scored.joined(parts)), predicate, names


def _nearest_parts(
    state: DatasetState, options: ScanOptions, watch: ScanWatch | None, projection: Projection | None
) -> Plan[tuple[list[Scored], Predicate | None, tuple[str, ...]]]:
    """`_search`, with the matches of each query."""
    if projection is None:
        nearest_projection(state, options)  # checks the options
    if options.filter is not None:
        yield Import(COMPILER)
    query = query_of(options)
    names = search_column_names(query, vector_column(state.schema, query).is_multi)
    predicate = None
    if options.filter is not None and not options.hints.get("prefilter"):
        predicate = _bind(state, options.filter, names)
    planning = plan_search(state, options, reads=True)
    opening = None if projection is None else _opened_beside(state, options, projection, predicate, names)
    plan: SearchPlan = (yield from planning) if opening is None else (yield Together[Any]([planning, opening]))[0]
    if watch is not None:
        watch.record_plan(plan.scan)
    return (yield from _results(state, options, plan, watch)), predicate, names


def _opened_beside(
    state: DatasetState,
    options: ScanOptions,
    projection: Projection,
    predicate: Predicate | None,
    names: tuple[str, ...],
) -> Plan[None] | None:
    """Loads metadata of few data files while an index is opened, where that saves rounds; once for each column list."""
    query = query_of(options)
    fragment_indexes = state.scanned_fragment_indexes(options.fragments)
    is_of_use = state.has_index and query.use_index and not state.is_local
    if not is_of_use or len(fragment_indexes) > OPENED_FRAGMENTS_MAX:
        return None
    outputs = SearchColumns.of(state, projection, predicate, names).taken.outputs
    if query.hints.get("refine_factor"):
        outputs = (*outputs, vector_output(vector_column(state.schema, query)))
    paths = frozenset(Projection(outputs, None).data_paths)
    key = "opened beside", paths
    if not paths or state.prepared.get(key) is not None:
        return None
    state.prepared.put(key, True)
    reader = TableReader(state.context, FileProjection(state.pruned_fields(paths)))
    return reader.warm([state.sources[fragment_index] for fragment_index in fragment_indexes])


def _results(
    state: DatasetState, options: ScanOptions, plan: SearchPlan, watch: ScanWatch | None
) -> Plan[list[Scored]]:
    """The rows nearest to each query, nearest first."""
    by_index = plan.by_index
    if by_index is None:
        return (yield from _run(state, plan, watch))
    if not by_index.is_mixed:
        return (yield from run_by_index(state, options, plan.terms, by_index))
    ours, theirs = yield Together[Any]([run_by_index(state, options, plan.terms, by_index), _run(state, plan, watch)])
    return [_nearest_of_both(plan.terms.k, first, second) for first, second in zip(ours, theirs, strict=True)]


def _nearest_of_both(k: int, first: Scored, second: Scored) -> Scored:
    nearest = NearestRows(k)
    nearest.add(first)
    nearest.add(second)
    return nearest.rows()


def _bind(state: DatasetState, filter: Any, names: tuple[str, ...]) -> Predicate:
    """A filter of the matches, which may name the distance."""
    from lance_io.filters import compile_filter  # loads the parser: only for filters

    added = search_schema(state.schema, names).fields[len(state.schema.fields) :]
    fields = [*state.stored_schema, *(pa.field(field.name, field.arrow_type, field.nullable) for field in added)]
    return compile_filter(filter, pa.schema(fields))


def _run(state: DatasetState, plan: SearchPlan, watch: ScanWatch | None) -> Plan[list[Scored]]:
    """The rows of the scan that are nearest to each query."""
    searched = FlatSearch(plan.terms)
    under_way: deque[Any] = deque()
    run = ScanRun(state, plan.scan, plan.options, None, watch)

    def look(item: tuple[int, pa.RecordBatch]) -> Plan[None]:
        """Search a batch while the next one is read; at most one batch for each processor at once."""
        _, batch = item
        if len(under_way) >= cpu_count():
            yield Result(under_way.popleft())
        num_bytes = batch.get_total_buffer_size() * len(plan.terms.queries)
        under_way.append((yield Begin(partial(_look, searched, batch), num_bytes)))

    try:
        yield EachInPlan(run.batches(), look)
        while under_way:
            yield Result(under_way.popleft())
    finally:
        for job in under_way:
            job.cancel()
    parts: list[Scored] = yield Result(
        (yield Begin(searched.results, plan.terms.k * plan.terms.num_results * SCORED_BYTES))
    )
    return parts


def _look(searched: FlatSearch, batch: pa.RecordBatch) -> None:
    addresses = values_of(batch.column(1)).astype(np.int64)
    ids = values_of(batch.column(batch.num_columns - 1))
    searched.add(batch.column(0), ids, addresses)


def _filtered(state: DatasetState, predicate: Predicate, names: tuple[str, ...], matches: _Matches) -> Plan[_Matches]:
    """The matches that pass a filter; reads only the filter's columns."""
    columns = SearchColumns.of(state, Projection((), None), predicate, names)
    parts = yield from _parts(state, prepare(state, columns.taken), matches)
    masks = [columns.mask(part, arrays) for part, arrays in parts]
    kept = np.concatenate([np.asarray(true_positions(mask)) + start for start, mask in _placed(masks)] or [_NONE])
    return matches[kept]


def _placed(masks: Sequence[pa.BooleanArray]) -> Iterator[tuple[int, pa.BooleanArray]]:
    """Masks, each with the number of rows before it."""
    before = 0
    for mask in masks:
        yield before, mask
        before += len(mask)


def _take(state: DatasetState, columns: SearchColumns, take: PreparedTake, matches: _Matches) -> Plan[pa.Table]:
    """The matches with all of their columns, without those that the filter drops."""
    parts = yield from _parts(state, take, matches)
    batches = [columns.batch(part, arrays) for part, arrays in parts]
    return pa.Table.from_batches(batches, schema=columns.projection.arrow_schema)


def _parts(
    state: DatasetState, take: PreparedTake, matches: _Matches
) -> Plan[list[tuple[pa.RecordBatch, dict[str, pa.Array]]]]:
    """Columns of the matches, in batches, each with the columns that the search adds."""
    addresses = matches.rows.addresses
    if not len(addresses):
        return []
    if take.columns.projection.outputs:
        grouped = group_rows(state.find_fragment_indexes(addresses >> OFFSET_BITS), addresses & OFFSET_MASK)
        parts = (yield from take_grouped(state, grouped, take)).to_batches()
    else:
        parts = [empty_columns(len(addresses), pa.schema([]))]
    pairs, start = [], 0
    for part in parts:
        chosen = slice(start, start + part.num_rows)
        start += part.num_rows
        pairs.append((part, nearest_columns(matches.queries[chosen], matches.rows.distances[chosen])))
    return pairs


def explain(state: DatasetState, options: ScanOptions) -> Plan[str]:
    """The search as text, outermost step first."""
    projection = nearest_projection(state, options)
    if options.filter is not None:
        yield Import(COMPILER)
    plan = yield from plan_search(state, options)
    lines = []
    if options.order_by:
        keys = ", ".join(
            f"{ordering.column_name} {'asc' if ordering.ascending else 'desc'}" for ordering in options.order_by
        )
        lines.append(f"Sort: [{keys}]")
    if options.limit is not None or options.offset:
        lines.append(f"Limit: skip={options.offset or 0}, fetch={options.limit}")
    predicate = None
    if options.filter is not None and not options.hints.get("prefilter"):
        predicate = _bind(state, options.filter, plan.names)
        lines.append(f"Filter: {predicate}")
    taken = SearchColumns.of(state, projection, predicate, plan.names).taken
    names = list(dict.fromkeys(path[0] for path in taken.data_paths))
    lines.append(f"Take: projection=[{', '.join(names)}]")
    terms, by_index = plan.terms, plan.by_index
    if by_index is None or by_index.is_exact:
        lines.append(f"KNNVectorDistance: metric={terms.metric}, k={terms.k}, queries={terms.num_results}")
    depth = len(lines)
    if by_index is not None:
        lines += [] if not by_index.is_mixed else ["Union: of the index, and of the fragments that it does not cover"]
        depth = len(lines)
        lines += describe_by_index(by_index, terms)
    text = "".join("  " * depth + line + "\n" for depth, line in enumerate(lines))
    if by_index is not None and by_index.allowed is not None:
        allowed = yield from plan_scan(state, by_index.allowed)
        text += _indented(explain_plan(state, allowed, by_index.allowed), len(lines))
    if by_index is not None and not by_index.is_mixed:
        return text
    return text + _indented(explain_plan(state, plan.scan, plan.options), depth)


def _indented(text: str, depth: int) -> str:
    return "".join("  " * depth + line + "\n" for line in text.splitlines())


def scan_part(state: DatasetState, options: ScanOptions) -> Plan[tuple[ScanOptions, Projection, Sequence[str]]]:
    """The parts of a search for `explain_io`: options and columns of its scan, and remarks on the index.

    Reads what the search reads of the index.
    """
    nearest_projection(state, options)
    if options.filter is not None:
        yield Import(COMPILER)
    plan = yield from plan_search(state, options)
    _, projection = _scan_of(state, options, vector_column(state.schema, query_of(options)))
    notes: Sequence[str] = ()
    if plan.by_index is not None:
        notes = yield from read_by_index(state, options, plan.terms, plan.by_index)
    return plan.options, projection, notes
