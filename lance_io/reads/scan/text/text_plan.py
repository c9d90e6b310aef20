"""The matches of a full-text query.

    columns and indices -> for each part with words: by the index | texts that it does not cover, counted -> combined

All parts are read in the same rounds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lance_io.errors import UsageError
from lance_io.index.details import Space
from lance_io.index.rows.row_set import RowSet
from lance_io.index.text.combined_fields import CombinedField, match_combined
from lance_io.index.text.full_text_query import (
    BooleanQuery,
    BoostQuery,
    CombinedFieldsQuery,
    MatchQuery,
    MultiMatchQuery,
    Occur,
    PhraseQuery,
    clauses,
    combined_in,
)
from lance_io.index.text.scoring import CorpusStatistics
from lance_io.index.text.text_matches import TextMatches, added, all_of, any_of, best_of, without
from lance_io.index.text.tokenizer import analyzer_of
from lance_io.index.text.word_search import exact_search
from lance_io.levels.arrays import values_of
from lance_io.plans.cpu_requests import Begin, Compute, Result
from lance_io.plans.plan import Together
from lance_io.plans.streams import EachInPlan
from lance_io.reads.index.row_filter import contains, load_live_entries
from lance_io.reads.index.text_fields import field_rows
from lance_io.reads.index.text_indices import text_output
from lance_io.reads.index.text_match import find_tokens_of, match_by_index
from lance_io.reads.scan.scan_plan import plan_scan
from lance_io.reads.scan.stream import ScanRun
from lance_io.reads.scan.text.flat_texts import FlatTexts
from lance_io.reads.scan.text.text_choice import TEXT, choose_text_indices
from lance_io.reads.version.column_lists import OutputColumn, Projection
from lance_io.reads.version.system_columns import ROW_ADDRESS, ROW_ID, system_field
from lance_io.records import dataclass
from lance_io.runtime import cpu_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lance_io.index.text.combined_fields import FieldRows
    from lance_io.index.text.full_text_query import FullTextQuery
    from lance_io.plans.plan import Plan
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.scan.scan_statistics import ScanWatch
    from lance_io.reads.scan.text.text_choice import TextChoice, TextLeaf
    from lance_io.reads.version.state import DatasetState


@dataclass(frozen=True, slots=True, eq=False)
class LeafPlan:
    """A part of a query before its first row is read.

    covered  indexes of the fragments that its index answers for
    flat     options and columns of the scan of the other texts; None if there are none
    """

    leaf: TextLeaf
    covered: tuple[int, ...]
    flat: tuple[ScanOptions, Projection] | None


@dataclass(frozen=True, slots=True, eq=False)
class TextPlan:
    """A search.

    most     rows that are wanted, best first; None for all
    allowed  options of the scan for the rows that a filter allows; None without a filter that comes first
    """

    choice: TextChoice
    leaves: tuple[LeafPlan, ...]
    most: int | None
    allowed: ScanOptions | None


def plan_text_search(state: DatasetState, options: ScanOptions) -> Plan[TextPlan]:
    """Plan a search; opens its indices. Raises as `choose_text_indices`."""
    request = options.full_text_query
    assert request is not None, "asked for where there is one"
    if options.include_deleted_rows:
        raise UsageError("Invalid user input: Cannot include deleted rows in an FTS search")
    choice = yield from choose_text_indices(state, request)
    fragment_indexes = [*dict.fromkeys(state.scanned_fragment_indexes(options.fragments))]
    is_fast = bool(options.hints.get("fast_search"))
    leaves = []
    every: set[int] = set()
    joint = {id(match): query for query in combined_in(choice.query) for match in query.matches}
    for leaf in choice.leaves.values():
        ids = _covered_ids(leaf, choice, joint.get(id(leaf.query)) if is_fast else None)
        covered = tuple(number for number in fragment_indexes if state.fragment_ids[number] in ids)
        others = [] if is_fast else [number for number in fragment_indexes if state.fragment_ids[number] not in ids]
        every.update(covered)
        scan = options
        if id(leaf.query) in joint and others:  # all texts count, whether or not a filter allows them
            every.update(others)
            scan = replace(options, filter=None)
        leaves.append(LeafPlan(leaf, covered, _flat_scan(state, scan, leaf, others) if others else None))
    allowed = None
    if every and options.filter is not None and options.hints.get("prefilter"):
        names = tuple(state.fragment_ids[number] for number in sorted(every))
        allowed = replace(options.rows_alone(), fragments=names)
    most = None
    if options.limit is not None:
        most = options.limit + (options.offset or 0)
    return TextPlan(choice, tuple(leaves), most, allowed)


def _covered_ids(leaf: TextLeaf, choice: TextChoice, joint: CombinedFieldsQuery | None) -> frozenset[int]:
    """Ids of the fragments that the index of a column answers for.

    joint  the query of several columns that it is a part of, if only fragments that all of these cover are searched
    """
    columns = [leaf.column] if joint is None else [choice.leaves[id(match)].column for match in joint.matches]
    ids = [column.index.index.covered if column.index is not None else frozenset[int]() for column in columns]
    return frozenset[int].intersection(*ids)


def _flat_scan(
    state: DatasetState, options: ScanOptions, leaf: TextLeaf, fragment_indexes: list[int]
) -> tuple[ScanOptions, Projection]:
    is_first = bool(options.hints.get("prefilter"))
    names = tuple(state.fragment_ids[number] for number in fragment_indexes)
    scanned = replace(options.rows_alone(), filter=options.filter if is_first else None, fragments=names)
    texts = text_output(state.schema, leaf.column.path, TEXT)
    outputs = [texts, OutputColumn("address", (ROW_ADDRESS,), system_field("address"))]
    if state.has_stable_row_ids:
        outputs.append(OutputColumn("id", (ROW_ID,), system_field("id")))
    return scanned, Projection(tuple(outputs), None)


def run_text_search(state: DatasetState, plan: TextPlan, watch: ScanWatch | None) -> Plan[TextMatches]:
    """The rows that match, best first."""
    allowed = (yield from _allowed(state, plan.allowed)) if plan.allowed is not None else None
    planned = {id(each.leaf.query): each for each in plan.leaves}
    runs: dict[int, Plan[TextMatches]] = {}
    for combined in {id(query): query for query in combined_in(plan.choice.query)}.values():  # one may occur twice
        fields = [planned.pop(id(match)) for match in combined.matches]
        runs[id(combined)] = _run_fields(state, combined, fields, allowed, watch)
    runs |= {query: _run_leaf(state, plan, leaf, allowed, watch) for query, leaf in planned.items()}
    results = yield Together[Any]([*runs.values()])
    return _combined(plan.choice.query, dict(zip(runs, results, strict=True))).best(plan.most)


def _combined(query: FullTextQuery, by_leaf: dict[int, TextMatches]) -> TextMatches:
    match query:
        case MatchQuery():
            return by_leaf[id(query)].scaled(query.boost)
        case PhraseQuery() | CombinedFieldsQuery():
            return by_leaf[id(query)]
        case MultiMatchQuery():
            return best_of([_combined(part, by_leaf) for part in query.matches])
        case BoostQuery():
            rows, others = _combined(query.positive, by_leaf), _combined(query.negative, by_leaf)
            return added(rows, others, -query.negative_boost)
        case BooleanQuery():
            must, should, must_not = (
                [_combined(part, by_leaf) for part in clauses(query, occur)]
                for occur in (Occur.MUST, Occur.SHOULD, Occur.MUST_NOT)
            )
            rows = all_of(must) if must else any_of(should)
            for part in should if must else ():
                rows = added(rows, part, 1)
            for part in must_not:
                rows = without(rows, part)
            return rows
    raise AssertionError("all kinds of queries are checked before")


def _run_leaf(
    state: DatasetState, plan: TextPlan, leaf: LeafPlan, allowed: RowSet | None, watch: ScanWatch | None
) -> Plan[TextMatches]:
    search, index = leaf.leaf.search, leaf.leaf.column.index
    if not search.tokens:
        return TextMatches.none()
    query = plan.choice.query
    most = plan.most if isinstance(query, (MatchQuery, PhraseQuery, MultiMatchQuery)) else None
    parts: list[Plan[Any]] = []
    if index is not None:
        parts += [find_tokens_of(state, index, search), load_live_entries(state, index.index, leaf.covered)]
    flat, plain = None, exact_search(leaf.leaf.query, leaf.leaf.column.parameters) if search.fuzziness else search
    if leaf.flat is not None and plain.tokens:  # other texts are searched for the words themselves
        if index is not None and search.fuzziness:
            parts.append(find_tokens_of(state, index, plain))
        column = leaf.leaf.column
        below = column.path.below
        flat = FlatTexts(analyzer_of(column.parameters), plain, of_elements=column.of_elements, below=below)
        parts.append(_run_flat(state, leaf.flat, flat, watch))
    answers = yield Together[Any](parts)
    if index is None:
        return TextMatches.none() if flat is None else flat.matches(CorpusStatistics(0, 0), {})
    matched, entries, *more = answers
    entries = replace(entries, allowed=allowed)
    if flat is None:
        return (yield from match_by_index(state, index, search, matched, entries, most))
    words = more[0] if search.fuzziness else matched
    own, corpus = (index.statistics, words.num_matches()), None
    if leaf.leaf.column.of_elements:  # all documents count for all of them
        statistics, every = flat.added_to(*own)
        corpus = statistics, {**matched.num_matches(), **every}
    matches = yield from match_by_index(state, index, search, matched, entries, most, corpus)
    return TextMatches.joined([matches, flat.matches(*own)])


def _run_fields(
    state: DatasetState,
    query: CombinedFieldsQuery,
    leaves: Sequence[LeafPlan],
    allowed: RowSet | None,
    watch: ScanWatch | None,
) -> Plan[TextMatches]:
    """Search several columns as one."""
    search = leaves[0].leaf.search
    if not search.tokens:
        return TextMatches.none()
    weights = query.boosts
    fields = yield Together[Any](
        [_load_field(state, leaf, weight, allowed, watch) for leaf, weight in zip(leaves, weights, strict=True)]
    )
    match = partial(match_combined, fields, [*search.counts], needs_all=search.needs_all)
    matches: TextMatches = yield Compute(match, lambda: sum(field.nbytes for field in fields))
    return matches if allowed is None else matches[contains(allowed, matches.addresses.view(np.uint64))]


def _load_field(
    state: DatasetState, leaf: LeafPlan, weight: float, allowed: RowSet | None, watch: ScanWatch | None
) -> Plan[CombinedField]:
    """One of several columns that are searched as one."""
    search, index = leaf.leaf.search, leaf.leaf.column.index
    parts: list[Plan[Any]] = []
    if index is not None:
        parts += [find_tokens_of(state, index, search), load_live_entries(state, index.index, leaf.covered)]
    column = leaf.leaf.column
    flat = FlatTexts(analyzer_of(column.parameters), search, keeps_all=True, below=column.path.below)
    if leaf.flat is not None:
        parts.append(_run_flat(state, leaf.flat, flat, watch))
    answers = yield Together[Any](parts)
    rows: list[FieldRows] = []
    num_matches: dict[bytes, int] = {}
    statistics = CorpusStatistics(0, 0)
    if index is not None:
        matched, entries, *_ = answers
        rows = yield from field_rows(state, index, matched, replace(entries, allowed=allowed))
        num_matches, statistics = matched.num_matches(), index.statistics
    return CombinedField(weight, *flat.added_to(statistics, num_matches), [*rows, *flat.rows()])


def _run_flat(
    state: DatasetState, scan: tuple[ScanOptions, Projection], flat: FlatTexts, watch: ScanWatch | None
) -> Plan[None]:
    """Count the words of texts; at most one batch for each processor at once."""
    options, projection = scan
    plan = yield from plan_scan(state, options, projection)
    if watch is not None:
        watch.record_plan(plan)
    under_way: deque[Any] = deque()

    def look(item: tuple[int, pa.RecordBatch]) -> Plan[None]:
        _, batch = item
        if len(under_way) >= cpu_count():
            yield Result(under_way.popleft())
        under_way.append((yield Begin(partial(_look, flat, batch), batch.get_total_buffer_size())))

    try:
        yield EachInPlan(ScanRun(state, plan, options, None, watch).batches(), look)
        while under_way:
            yield Result(under_way.popleft())
    finally:
        for job in under_way:
            job.cancel()


def _look(flat: FlatTexts, batch: pa.RecordBatch) -> None:
    addresses = values_of(batch.column(1)).astype(np.int64)
    ids = values_of(batch.column(batch.num_columns - 1)).astype(np.uint64)
    flat.add(batch.column(0), ids, addresses)


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
