"""What searches of one column have in common.

It is kept with the version, so that a further search computes only the part that its words decide. It holds nothing
large: segments and deleted rows stay in the caches of the session, and are looked up for each search.
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
class SettledText:
    """Searches that an index answers alone.

    index       that answers
    parameters  of its tokenizer
    folders     of its segments, as `folder_key` names them
    keys        of its segments in the cache
    rows        of the searched fragments
    """

    index: TextIndex
    parameters: TextParameters
    folders: tuple[tuple[Any, ...], ...]
    keys: tuple[Key, ...]
    rows: SettledRows


@dataclass(frozen=True, slots=True, eq=False)
class SettledSearch:
    """A query that an index answers alone, whose segments are in memory."""

    settled: SettledText
    opened: OpenedText
    query: MatchQuery | PhraseQuery
    most: int | None

    def run(self, state: DatasetState) -> Plan[TextMatches]:
        """The rows that match, best first."""
        search = word_search(self.query, self.settled.parameters)
        if not search.tokens:
            return TextMatches.none()
        matched = yield from find_tokens_of(state, self.opened, search)
        entries = yield from self.settled.rows.load_entries(state, self.settled.index)
        matches = yield from match_by_index(state, self.opened, search, matched, entries, self.most)
        return matches.scaled(getattr(self.query, "boost", 1)).best(self.most)


def settle_text(state: DatasetState, options: ScanOptions, plan: TextPlan) -> None:
    """Keep the common part of a search, if an index answers it alone."""
    query = plan.choice.query
    key = _key(options, query)
    if key is None or len(plan.leaves) != 1 or plan.allowed is not None:
        return
    (leaf,) = plan.leaves
    opened = leaf.leaf.column.index
    if opened is None or leaf.flat is not None:
        return
    settled = SettledText(
        opened.index,
        leaf.leaf.column.parameters,
        opened.folders,
        tuple(segment_keys(opened.folders)),
        SettledRows.of(state, opened.index, leaf.covered),
    )
    state.prepared.put(key, settled)


def find_settled_text(state: DatasetState, options: ScanOptions) -> SettledSearch | None:
    """A search of one column whose common part is kept, and whose segments are in memory."""
    query = _query_of(state, options)
    key = None if query is None else _key(options, query)
    settled: SettledText | None = None if key is None else state.prepared.get(key)
    if settled is None:
        return None
    segments: Sequence[Any] = state.session.index_cache.get_many(settled.keys)
    if None in segments:
        return None
    most = None if options.limit is None else options.limit + (options.offset or 0)
    opened = OpenedText.of(state, settled.index, segments, settled.folders)
    return SettledSearch(settled, opened, query, most)  # type: ignore[arg-type]


def _query_of(state: DatasetState, options: ScanOptions) -> FullTextQuery | None:
    """The query, where the columns are known."""
    request = options.full_text_query
    assert request is not None, "asked for where there is one"
    if not isinstance(request.query, str):
        return request.query
    names = request.columns
    if names is None:
        indices: tuple[TextIndex, ...] | None = state.__dict__.get("text_indices")
        names = tuple(names_of(indices or ()))
    return request.in_columns(names) if len(names) == 1 else None


def _key(options: ScanOptions, query: FullTextQuery) -> Any:
    """Identifies searches with a common part; None for those that have none."""
    if type(query) not in (MatchQuery, PhraseQuery):
        return None
    has_filter = options.filter is not None and options.hints.get("prefilter")
    if has_filter or options.fragments is not None or options.include_deleted_rows:
        return None
    is_fast = bool(options.hints.get("fast_search"))
    return "settled texts", query.column, query.document_granularity, is_fast  # type: ignore[attr-defined]
