"""Fast path of full-text searches: the part of a search that does not depend on its words is prepared once.

`PreparedText` holds this part for all searches of one column with the same options. It is cached with the table
version, so that a later search computes only the part that depends on its words. It holds nothing large: segments and
deleted rows stay in the caches of the session, where each search looks them up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.index.text.full_text_query import MatchQuery, PhraseQuery
from lance_io.index.text.text_matches import TextMatches
from lance_io.index.text.word_search import word_search
from lance_io.reads.index.row_filter import SettledRows
from lance_io.reads.index.text_match import find_tokens_of, match_by_index
from lance_io.reads.index.text_segments import OpenedText, segment_keys
from lance_io.reads.scan.text.text_choice import names_of
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.index.text.full_text_query import FullTextQuery
    from lance_io.index.text.text_parameters import TextParameters
    from lance_io.io.cache import Key
    from lance_io.plans.plan import Plan
    from lance_io.reads.index.text_indices import TextIndex
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.scan.text.text_plan import TextPlan
    from lance_io.reads.version.state import DatasetState


@dataclass(frozen=True, slots=True, eq=False)
class PreparedText:
    """The common part of searches of one column, for searches that an index answers without reading texts.

    index        the index, whose segments cover all searched fragments
    parameters   parameters of the index's tokenizer
    folder_keys  cache keys of the folders of the segments, from `folder_key`
    cache_keys   keys of the segments in the cache of the session
    fragments    the searched fragments; `load_entries` returns their live rows
    """

    index: TextIndex
    parameters: TextParameters
    folder_keys: tuple[tuple[Any, ...], ...]
    cache_keys: tuple[Key, ...]
    fragments: SettledRows


@dataclass(frozen=True, slots=True, eq=False)
class PreparedSearch:
    """One query on a prepared column, with the segments of the index in memory.

    prepared     the common part of searches of the column
    opened       the segments of the index
    query        the words to find
    matches_max  maximum number of matches; None for all
    """

    prepared: PreparedText
    opened: OpenedText
    query: MatchQuery | PhraseQuery
    matches_max: int | None

    def run(self, state: DatasetState) -> Plan[TextMatches]:
        """Return the matching rows, best first."""
        search = word_search(self.query, self.prepared.parameters)
        if not search.tokens:
            return TextMatches.none()
        tokens = yield from find_tokens_of(state, self.opened, search)
        entries = yield from self.prepared.fragments.load_entries(state, self.prepared.index)
        matches = yield from match_by_index(state, self.opened, search, tokens, entries, self.matches_max)
        return matches.scaled(getattr(self.query, "boost", 1)).best(self.matches_max)


def cache_prepared_text(state: DatasetState, options: ScanOptions, plan: TextPlan) -> None:
    """Cache the common part of a planned search, if an index answers the search without reading texts."""
    query = plan.choice.query
    key = _key(options, query)
    if key is None or len(plan.leaves) != 1 or plan.allowed is not None:
        return
    (leaf_plan,) = plan.leaves
    column = leaf_plan.leaf.column
    opened = column.index
    if opened is None or leaf_plan.flat is not None:
        return
    prepared = PreparedText(
        opened.index,
        column.parameters,
        opened.folders,
        tuple(segment_keys(opened.folders)),
        SettledRows.of(state, opened.index, leaf_plan.covered),
    )
    state.prepared.put(key, prepared)


def find_prepared_search(state: DatasetState, options: ScanOptions) -> PreparedSearch | None:
    """The search of these options, ready to run; None if its common part or one of its segments is not cached."""
    query = _query_of(state, options)
    key = None if query is None else _key(options, query)
    prepared: PreparedText | None = None if key is None else state.prepared.get(key)
    if prepared is None:
        return None
    segments: Sequence[Any] = state.session.index_cache.get_many(prepared.cache_keys)
    if None in segments:
        return None
    matches_max = None if options.limit is None else options.limit + (options.offset or 0)
    opened = OpenedText.of(state, prepared.index, segments, prepared.folder_keys)
    return PreparedSearch(prepared, opened, query, matches_max)  # type: ignore[arg-type]


def _query_of(state: DatasetState, options: ScanOptions) -> FullTextQuery | None:
    """The query of the options; None for a query text if its column is not known, or if it searches several columns."""
    request = options.full_text_query
    assert request is not None, "callers run full-text searches only, whose options have a query"
    if not isinstance(request.query, str):
        return request.query
    columns = request.columns
    if columns is None:  # all columns with a text index
        indices: tuple[TextIndex, ...] | None = state.__dict__.get("text_indices")  # None before they are loaded
        columns = tuple(names_of(indices or ()))
    return request.in_columns(columns) if len(columns) == 1 else None


def _key(options: ScanOptions, query: FullTextQuery) -> Any:
    """The cache key of the common part of a search; None for a search that cannot be prepared."""
    if type(query) not in (MatchQuery, PhraseQuery):
        return None
    has_filter = options.filter is not None and options.hints.get("prefilter")
    if has_filter or options.fragments is not None or options.include_deleted_rows:
        return None
    is_fast = bool(options.hints.get("fast_search"))
    return "prepared text", query.column, query.document_granularity, is_fast  # type: ignore[attr-defined]
