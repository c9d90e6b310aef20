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
from lance_io.index.text.full_text_query import (
    BooleanQuery,
    BoostQuery,
    MatchQuery,
    MultiMatchQuery,
    Occur,
    PhraseQuery,
    clauses,
)
from lance_io.index.text.scoring import CorpusStatistics
from lance_io.index.text.text_matches import TextMatches, added, all_of, any_of, best_of, without
from lance_io.index.text.tokenizer import analyzer_of
from lance_io.levels.arrays import values_of
from lance_io.plans.cpu_requests import Begin, Result
from lance_io.plans.plan import Together
from lance_io.plans.streams import EachInPlan
from lance_io.reads.index.row_filter import load_live_entries
from lance_io.reads.index.text_match import find_tokens_of, match_by_index
from lance_io.reads.scan.scan_plan import plan_scan
from lance_io.reads.scan.stream import ScanRun
from lance_io.reads.scan.text.flat_texts import FlatTexts
from lance_io.reads.scan.text.text_choice import choose_text_indices
from lance_io.reads.version.column_lists import OutputColumn, Projection
from lance_io.reads.version.system_columns import ROW_ADDRESS, ROW_ID, system_field
from lance_io.records import dataclass
from lance_io.runtime import cpu_count

if TYPE_CHECKING:
    import pyarrow as pa

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
    for leaf in choice.leaves.values():
        index = leaf.column.index
        ids = frozenset[int]() if index is None else index.index.covered
        covered = tuple(number for number in fragment_indexes if state.fragment_ids[number] in ids)
        others = [] if is_fast else [number for number in fragment_indexes if state.fragment_ids[number] not in ids]
        every.update(covered)
        leaves.append(LeafPlan(leaf, covered, _flat_scan(state, options, leaf, others) if others else None))
    allowed = None
    if every and options.filter is not None and options.hints.get("prefilter"):
        names = tuple(state.fragment_ids[number] for number in sorted(every))
        allowed = replace(options.rows_alone(), fragments=names)
    most = None
    if options.limit is not None:
        most = options.limit + (options.offset or 0)
    return TextPlan(choice, tuple(leaves), most, allowed)


def _flat_scan(
    state: DatasetState, options: ScanOptions, leaf: TextLeaf, fragment_indexes: list[int]
) -> tuple[ScanOptions, Projection]:
    is_first = bool(options.hints.get("prefilter"))
    names = tuple(state.fragment_ids[number] for number in fragment_indexes)
    scanned = replace(options.rows_alone(), filter=options.filter if is_first else None, fragments=names)
    outputs = [leaf.column.texts, OutputColumn("address", (ROW_ADDRESS,), system_field("address"))]
    if state.has_stable_row_ids:
        outputs.append(OutputColumn("id", (ROW_ID,), system_field("id")))
    return scanned, Projection(tuple(outputs), None)


def run_text_search(state: DatasetState, plan: TextPlan, watch: ScanWatch | None) -> Plan[TextMatches]:
    """The rows that match, best first."""
    allowed = (yield from _allowed(state, plan.allowed)) if plan.allowed is not None else None
    results = yield Together[Any]([_run_leaf(state, plan, leaf, allowed, watch) for leaf in plan.leaves])
    by_leaf = {id(each.leaf.query): matches for each, matches in zip(plan.leaves, results, strict=True)}
    return _combined(plan.choice.query, by_leaf).best(plan.most)


def _combined(query: FullTextQuery, by_leaf: dict[int, TextMatches]) -> TextMatches:
    match query:
        case MatchQuery():
            return by_leaf[id(query)].scaled(query.boost)
        case PhraseQuery():
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
    flat = FlatTexts(analyzer_of(leaf.leaf.column.parameters), search)
    if leaf.flat is not None:
        if index is not None and search.fuzziness:  # other texts are searched for the words themselves
            parts.append(find_tokens_of(state, index, replace(search, fuzziness=0)))
        parts.append(_run_flat(state, leaf.flat, flat, watch))
    answers = yield Together[Any](parts)
    if index is None:
        return flat.matches(CorpusStatistics(0, 0), {})
    matched, entries, *more = answers
    entries = replace(entries, allowed=allowed)
    matches = yield from match_by_index(state, index, search, matched, entries, most)
    if leaf.flat is None:
        return matches
    words = more[0] if search.fuzziness else matched
    return TextMatches.joined([matches, flat.matches(index.statistics, words.num_matches())])


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
