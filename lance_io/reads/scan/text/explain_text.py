"""A full-text search as text, outermost step first, with pylance's names where it has them; and what it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.index.text.full_text_query import (
    BooleanQuery,
    BoostQuery,
    CombinedFieldsQuery,
    MatchQuery,
    MultiMatchQuery,
    PhraseQuery,
    parts_of,
)
from lance_io.plans.plan import Import, Together
from lance_io.reads.index.row_filter import load_live_entries
from lance_io.reads.index.text_match import find_tokens_of
from lance_io.reads.scan.scan_plan import explain as explain_plan
from lance_io.reads.scan.scan_plan import plan_scan
from lance_io.reads.scan.search_columns import SearchColumns
from lance_io.reads.scan.text.score_columns import added_columns, bind_with_score, text_projection
from lance_io.reads.scan.text.text_plan import plan_text_search
from lance_io.reads.version.column_lists import COMPILER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.index.text.full_text_query import FullTextQuery
    from lance_io.plans.plan import Plan
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.scan.text.text_plan import LeafPlan, TextPlan
    from lance_io.reads.version.column_lists import Projection
    from lance_io.reads.version.state import DatasetState

_TOKENS_SHOWN = 20


def explain_text(state: DatasetState, options: ScanOptions) -> Plan[str]:
    """The search as text; reads what it reads of its indices."""
    projection, names = text_projection(state, options), added_columns(state, options)
    if options.filter is not None:
        yield Import(COMPILER)
    plan = yield from plan_text_search(state, options)
    lines = []
    if options.order_by:
        keys = ", ".join(f"{key.column_name} {'asc' if key.ascending else 'desc'}" for key in options.order_by)
        lines.append(f"Sort: [{keys}]")
    if options.limit is not None or options.offset:
        lines.append(f"Limit: skip={options.offset or 0}, fetch={options.limit}")
    predicate = None
    if options.filter is not None and not options.hints.get("prefilter"):
        predicate = bind_with_score(state, options.filter, names)
        lines.append(f"Filter: {predicate}")
    taken = SearchColumns.of(state, projection, predicate, names).taken
    lines.append(f"Take: projection=[{', '.join(dict.fromkeys(path[0] for path in taken.data_paths))}]")
    lines = ["  " * depth + line for depth, line in enumerate(lines)]
    by_leaf = {id(each.leaf.query): each for each in plan.leaves}
    depth = len(lines)
    lines += yield from _describe(state, plan.choice.query, by_leaf, plan, depth)
    if plan.allowed is not None:
        lines.append("  " * depth + "Prefilter: the rows that the filter allows")
        scan = yield from plan_scan(state, plan.allowed)
        lines += _indented(explain_plan(state, scan, plan.allowed), depth + 1)
    return "".join(line + "\n" for line in lines)


def _indented(text: str, depth: int) -> list[str]:
    return ["  " * depth + line for line in text.splitlines()]


def _describe(
    state: DatasetState, query: FullTextQuery, by_leaf: dict[int, LeafPlan], plan: TextPlan, depth: int
) -> Plan[list[str]]:
    """A query as lines; the searches of its parts below it."""
    if isinstance(query, (MatchQuery, PhraseQuery)):
        return (yield from _describe_leaf(state, by_leaf[id(query)], plan, depth))
    match query:
        case BooleanQuery():
            roles = ", ".join(occur.value for occur, _ in query.queries)
            lines = ["  " * depth + f"BooleanQuery: [{roles}]"]
        case BoostQuery():
            lines = ["  " * depth + f"BoostQuery: negative_boost={query.negative_boost}"]
        case CombinedFieldsQuery():
            weights = ", ".join(map(str, query.boosts))
            lines = ["  " * depth + f"CombinedFieldsQuery: columns as one, weights=[{weights}]"]
        case _:
            assert isinstance(query, MultiMatchQuery), "all kinds of queries are checked before"
            lines = ["  " * depth + "MultiMatchQuery: the best column counts"]
    for part in parts_of(query):
        lines += yield from _describe(state, part, by_leaf, plan, depth + 1)
    return lines


def _describe_leaf(state: DatasetState, each: LeafPlan, plan: TextPlan, depth: int) -> Plan[list[str]]:
    leaf = each.leaf
    name = "PhraseQuery" if isinstance(leaf.query, PhraseQuery) else "MatchQuery"
    tokens = [token.text.decode("utf-8", "replace") for token in leaf.search.tokens]
    shown = " ".join(tokens[:_TOKENS_SHOWN]) + (" ..." if len(tokens) > _TOKENS_SHOWN else "")
    lines = []
    index = leaf.column.index
    if index is not None:
        matched = yield from find_tokens_of(state, index, leaf.search)
        lists, partitions = sum(matched.counts()), len(index.partitions)
        statistics = index.statistics
        lines.append(
            f"{name}: column={leaf.column.name}, query=[{shown}], index={index.index.name}, "
            f"segments={len(index.segments)}, partitions={partitions}, documents={statistics.num_documents}, "
            f"terms={len(matched.terms)}, postings={lists}, limit={plan.most}"
        )
    lines = ["  " * depth + line for line in lines]
    if each.flat is not None:
        scanned, projection = each.flat
        lines.append("  " * depth + f"Flat{name}: column={leaf.column.name}, query=[{shown}]")
        scan = yield from plan_scan(state, scanned, projection)
        lines += _indented(explain_plan(state, scan, scanned), depth + 1)
    return lines


def text_reads(
    state: DatasetState, options: ScanOptions
) -> Plan[tuple[list[tuple[ScanOptions, Projection]], Sequence[str]]]:
    """Read what a search reads of its indices. Returns the scans that are left, and remarks."""
    text_projection(state, options)
    if options.filter is not None:
        yield Import(COMPILER)
    plan = yield from plan_text_search(state, options)
    scans, notes = [], []
    reads: list[Plan[Any]] = []
    for each in plan.leaves:
        index = each.leaf.column.index
        if index is not None and each.leaf.search.tokens:
            reads.append(find_tokens_of(state, index, each.leaf.search))
            reads.append(load_live_entries(state, index.index, each.covered))
            notes.append(f"words by index: {index.index.name}")
        if each.flat is not None and each.leaf.search.tokens:
            scans.append(each.flat)
    if plan.allowed is not None:
        notes.append("the filter comes first: its rows are read, too")
    yield Together[Any](reads)
    return scans, notes
