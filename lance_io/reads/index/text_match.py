"""The rows that an index finds for the words of one query.

words -> tokens of the partitions, exact or similar -> their posting lists, in one round -> statistics over all
partitions of all segments -> the best documents that count, of all partitions together -> rows
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from lance_io._kernels import DamagedError, match_terms
from lance_io.errors import FormatError, UsageError
from lance_io.index.text.text_files import METADATA_FILE
from lance_io.index.text.text_matches import TextMatches, best_of
from lance_io.levels.arrays import has_repeats
from lance_io.plans.cpu_requests import Compute
from lance_io.reads.index.index_files import file_ref
from lance_io.reads.index.text_segments import WITHOUT, TokenKey, load_postings
from lance_io.reads.version.index_errors import in_index
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from lance_io._kernels import TermPostings
    from lance_io.index.text.scoring import CorpusStatistics
    from lance_io.index.text.word_search import WordSearch
    from lance_io.io.cache import Key
    from lance_io.plans.plan import Plan
    from lance_io.reads.index.row_filter import LiveEntries
    from lance_io.reads.index.table_indices import IndexPart
    from lance_io.reads.index.text_segments import OpenedText, PlacedPartition
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray

MANY: Final = 2  # results, in which a row may stand more than once
CALL_DOCUMENTS: Final = 1 << 22  # of the lists that one call of the kernel searches, but for a large partition: 20 ms
_ROW_BYTES: Final = 17  # of a document in memory: address, number, and whether it counts
_FLOORED_SIZE: Final = 256  # documents of a block with which lengths are rounded down


class Term(NamedTuple):
    """A token that is looked for.

    group  number of the word that it stands for
    times  how often the query says it
    """

    text: bytes
    group: int
    times: int


Lists = tuple[tuple[int, "TermPostings"], ...]
"""The terms that a partition has, by number, and their posting lists."""


@dataclass(frozen=True, slots=True, eq=False)
class MatchedTokens:
    """The tokens of a query in the partitions of an index.

    terms      that are looked for
    lists      of each partition
    num_words  number of words of the query, each of which stands for some terms
    """

    terms: tuple[Term, ...]
    lists: tuple[Lists, ...]
    num_words: int

    def counts(self) -> list[int]:
        """The number of documents with each term, deleted ones included."""
        counts = [0] * len(self.terms)
        for lists in self.lists:
            for number, postings in lists:
                counts[number] += postings.num_docs
        return counts

    def num_matches(self) -> dict[bytes, int]:
        """The same by token."""
        return {term.text: count for term, count in zip(self.terms, self.counts(), strict=True)}


def find_tokens_of(state: DatasetState, opened: OpenedText, search: WordSearch) -> Plan[MatchedTokens]:
    """Find the words of a query; reads posting lists. Raises `UsageError` for a phrase without positions."""
    is_phrase = search.slop is not None
    if is_phrase and not opened.has_positions:
        raise UsageError(
            f"index {opened.index.name!r}: position is not found but required for phrase queries, try recreating the "
            "index with position"
        )
    counts = search.counts
    try:
        terms, tokens = _similar(opened, counts, search) if search.fuzziness else _exact(opened, counts)
    except FormatError as error:
        raise in_index(
            error, opened.index.name, file_ref(state, opened.index.parts[0], METADATA_FILE).key, WITHOUT
        ) from error
    wanted = [TokenKey(at, token) for at, its in enumerate(tokens) for _, token in its]
    postings = yield from load_postings(state, opened, wanted, has_positions=is_phrase)
    lists = [tuple([(number, postings[TokenKey(at, token)]) for number, token in its]) for at, its in enumerate(tokens)]
    return MatchedTokens(tuple(terms), tuple(lists), len(counts))


Tokens = list[list[tuple[int, int]]]
"""Of each partition: numbers of terms, and of their tokens."""


def _exact(opened: OpenedText, counts: Mapping[bytes, int]) -> tuple[list[Term], Tokens]:
    terms = [Term(word, group, count) for group, (word, count) in enumerate(counts.items())]
    words = [*counts]
    tokens = []
    for _, _, partition in opened.partitions:
        numbered = enumerate(partition.find(words))
        tokens.append([(number, token) for number, token in numbered if token is not None])
    return terms, tokens


def _similar(opened: OpenedText, counts: Mapping[bytes, int], search: WordSearch) -> tuple[list[Term], Tokens]:
    """Terms that are similar to words, word by word in the order of their bytes, as many as are allowed."""
    terms: list[Term] = []
    tokens: Tokens = [[] for _ in opened.partitions]
    left = search.max_expansions
    groups = {word: group for group, word in enumerate(counts)}
    numbers: dict[bytes, dict[bytes, int]] = {}  # of the terms of each word
    for word in [token.text for token in search.tokens]:
        its = numbers.get(word)
        if left <= 0 or (its is not None and not its):  # no word is near, as before
            continue
        its = numbers.setdefault(word, {})
        near: dict[bytes, list[tuple[int, int]]] = {}
        for at, (_, _, partition) in enumerate(opened.partitions):
            for text, token in partition.near(word, search.fuzziness, search.prefix_length, left):
                near.setdefault(text, []).append((at, token))
        for text in sorted(near)[:left]:
            number = its.setdefault(text, len(terms))
            if number < len(terms):  # the query says the word again
                terms[number] = terms[number]._replace(times=terms[number].times + 1)
                continue
            terms.append(Term(text, groups[word], 1))
            for at, token in near[text]:
                tokens[at].append((number, token))
        left -= min(left, len(near))
    return terms, tokens


# -- documents -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class PartitionRows:
    """The documents of a partition as rows of the version.

    counts     u8[n], whether each counts; None if all do
    addresses  i64[n], of those that count
    is_distinct  whether no two of these are one row, or one element of its lists: of a row that changed, an index may
                 have an older text, too
    """

    counts: npt.NDArray[np.uint8] | None
    addresses: IntArray
    is_distinct: bool

    @property
    def nbytes(self) -> int:
        """Memory, in bytes."""
        return 256 + self.addresses.nbytes + (0 if self.counts is None else self.counts.nbytes)


@dataclass(frozen=True, slots=True, eq=False)
class SegmentRows:
    """The documents of a segment as rows.

    is_distinct  as of a partition, over all partitions
    """

    partitions: tuple[PartitionRows, ...]
    is_distinct: bool


class _Part(NamedTuple):
    """The terms of a query in a partition that may match.

    at        number of the partition among those of the index
    numbers   of the terms
    postings  their lists
    groups    of the terms, if a document needs one of each
    """

    at: int
    numbers: list[int]
    postings: list[TermPostings]
    groups: list[int] | None


def match_by_index(
    state: DatasetState,
    opened: OpenedText,
    search: WordSearch,
    matched: MatchedTokens,
    entries: LiveEntries,
    most: int | None,
    corpus: tuple[CorpusStatistics, Mapping[bytes, int]] | None = None,
) -> Plan[TextMatches]:
    """The rows that match, with the highest scores if only `most` are wanted. Raises `FormatError`.

    corpus  statistics, and the number of documents with each token, where they are not those of the index
    """
    parts = list(_parts(search, matched))
    if not parts:
        return TextMatches.none()
    if corpus is None:
        statistics, counts = opened.statistics, matched.counts()
    else:
        statistics, counts = corpus[0], [corpus[1][term.text] for term in matched.terms]
    factors = [statistics.factor(count) * term.times for term, count in zip(matched.terms, counts, strict=True)]
    phrase = None
    if search.slop is not None:  # each partition has all terms
        numbers = {term.text: number for number, term in enumerate(matched.terms)}
        phrase = [(numbers[token.text], token.position) for token in search.tokens], search.slop
    asked = _Asked(state, opened, entries, factors, statistics.average, phrase, most)
    matches: TextMatches = yield Compute(partial(asked.match, parts), partial(asked.num_bytes, parts))
    return matches


def _parts(search: WordSearch, matched: MatchedTokens) -> Iterator[_Part]:
    for at, lists in enumerate(matched.lists):
        numbers, groups = [number for number, _ in lists], None
        if not numbers:
            continue
        if search.needs_all:
            names: dict[int, int] = {}
            groups = [names.setdefault(matched.terms[number].group, len(names)) for number in numbers]
            if len(names) < matched.num_words:
                continue
        yield _Part(at, numbers, [postings for _, postings in lists], groups)


class _Asked(NamedTuple):
    """What is the same for all partitions of a search."""

    state: DatasetState
    opened: OpenedText
    entries: LiveEntries
    factors: list[float]
    average: float
    phrase: tuple[list[tuple[int, int]], int] | None
    most: int | None

    def num_bytes(self, parts: Sequence[_Part]) -> int:
        """Bytes that a search reads, about."""
        lists = sum(postings.nbytes for part in parts for postings in part.postings)
        return lists + sum(_ROW_BYTES * len(self.opened.partitions[part.at].partition.lengths) // 8 for part in parts)

    def match(self, parts: Sequence[_Part]) -> TextMatches:
        """The rows of partitions that match."""
        numbers = dict.fromkeys([self.opened.partitions[part.at].part for part in parts])
        segments = {part: segment_rows(self.state, self.opened, part, self.entries) for part in numbers}
        rows = {part.at: _rows_at(segments, self.opened.partitions[part.at]) for part in parts}
        is_distinct = all([segment.is_distinct for segment in segments.values()])
        threshold = float("-inf")
        results: list[TextMatches] = []
        for some in _calls(parts, CALL_DOCUMENTS if is_distinct else 0):
            # a row that is there twice would be two of the best
            most = self.most if all([rows[part.at].is_distinct for part in some]) else None
            results += self._match(some, rows, most, threshold)
            if self.most is not None and len(some) < len(parts):
                joined = TextMatches.joined(results) if is_distinct else best_of(results or [TextMatches.none()])
                results = [joined.best(self.most)]
                threshold = float(results[0].scores[-1]) if len(results[0]) == self.most > 0 else threshold
        return TextMatches.joined(results) if is_distinct else best_of(results or [TextMatches.none()])

    def _match(
        self, parts: Sequence[_Part], rows: Mapping[int, PartitionRows], most: int | None, threshold: float
    ) -> list[TextMatches]:
        """The rows of partitions, by one call of the kernel."""
        arguments = []
        for at, numbers, postings, groups in parts:
            partition = self.opened.partitions[at].partition
            factors = [self.factors[number] for number in numbers]
            is_floored = partition.form.size == _FLOORED_SIZE
            arguments.append((postings, factors, groups, partition.lengths, is_floored, rows[at].counts))
        try:
            ends, docs, scores = match_terms(arguments, self.average, most, threshold, self.phrase)
        except DamagedError as error:
            if len(parts) > 1:  # which of them is damaged?
                for part in parts:
                    self._match([part], rows, most, threshold)
            raise self.opened.damage(self.state, parts[0].at, error) from error
        documents, its_scores = np.frombuffer(memoryview(docs), np.int64), np.frombuffer(memoryview(scores), np.float32)
        matches, start = [], 0
        for (at, *_), end in zip(parts, ends, strict=True):
            if start < end:
                matches.append(self._rows(at, rows[at], documents[start:end], its_scores[start:end]))
            start = end
        return matches

    def _rows(self, at: int, rows: PartitionRows, documents: IntArray, scores: Any) -> TextMatches:
        partition = self.opened.partitions[at].partition
        addresses = rows.addresses[documents]
        ids = partition.rows[documents] if self.entries.row_ids is not None else addresses.view(np.uint64)
        elements = None if partition.elements is None else partition.elements[documents]
        return TextMatches(scores, ids, addresses, elements)


def _calls(parts: Sequence[_Part], documents_max: int) -> Iterator[Sequence[_Part]]:
    """Partitions that are searched together: until their lists have so many documents."""
    first = num_documents = 0
    for number, part in enumerate(parts):
        its = sum([postings.num_docs for postings in part.postings])
        if number > first and num_documents + its > documents_max:
            yield parts[first:number]
            first, num_documents = number, 0
        num_documents += its
    yield parts[first:]


def _rows_at(segments: Mapping[int, SegmentRows], placed: PlacedPartition) -> PartitionRows:
    return segments[placed.part].partitions[placed.number]


def _is_distinct(addresses: IntArray, elements: npt.NDArray[np.uint32] | None) -> bool:
    if elements is None:
        return not has_repeats(addresses)
    return len(np.unique(np.column_stack((addresses, elements)), axis=0)) == len(addresses)


def rows_key(state: DatasetState, part: IndexPart[Any], chosen: npt.NDArray[np.bool_]) -> Key:
    """Identifies the rows of a segment in the cache. chosen: mask of the searched fragments"""
    owner = state.__dict__.setdefault("text_rows", object())
    return "text rows", owner, part.uuid, part.base_id, chosen.tobytes()


def segment_rows(state: DatasetState, opened: OpenedText, part: int, entries: LiveEntries) -> SegmentRows:
    """The documents of a segment as rows; kept for the version, its chosen fragments, and no filter."""
    cache = state.session.index_cache
    key = rows_key(state, opened.index.parts[part], entries.chosen)
    rows: SegmentRows | None = cache.get(key)
    if rows is None:
        rows = _find_rows(opened, part, entries.without_filter())
        cache.put(key, rows, sum(each.nbytes for each in rows.partitions))
    if entries.allowed is None:
        return rows
    return SegmentRows(tuple([_allowed(each, entries) for each in rows.partitions]), rows.is_distinct)


def _find_rows(opened: OpenedText, part: int, entries: LiveEntries) -> SegmentRows:
    partitions, live, places = [], [], []
    for partition in opened.segments[part].partitions:
        counts, addresses = entries.find(opened.index.parts[part], partition.rows)
        mask, its_live, elements = None, addresses, partition.elements
        if not counts.all():
            mask, its_live = counts.astype(np.uint8), addresses[counts]
            elements = None if elements is None else elements[counts]
        partitions.append(PartitionRows(mask, addresses, _is_distinct(its_live, elements)))
        live.append(its_live)
        places += [] if elements is None else [elements]
    is_distinct = all(each.is_distinct for each in partitions)
    if is_distinct and len(partitions) > 1:
        is_distinct = _is_distinct(np.concatenate(live), np.concatenate(places) if places else None)
    return SegmentRows(tuple(partitions), is_distinct)


def _allowed(rows: PartitionRows, entries: LiveEntries) -> PartitionRows:
    allowed = entries.allows(rows.addresses)
    if rows.counts is not None:
        allowed &= rows.counts != 0
    return PartitionRows(allowed.astype(np.uint8), rows.addresses, rows.is_distinct)
