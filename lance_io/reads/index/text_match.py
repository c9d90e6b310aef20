"""The rows that an index finds for the words of one query.

words -> tokens of the partitions, exact or similar -> their posting lists, in one round -> statistics over all
partitions of all segments -> in each partition the best documents that count -> rows
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lance_io._kernels import DamagedError, match_terms
from lance_io.errors import FormatError, UsageError
from lance_io.index.text.scoring import CorpusStatistics
from lance_io.index.text.text_matches import TextMatches, best_of
from lance_io.index.text.text_partition import METADATA_FILE, POSTINGS, partition_file
from lance_io.levels.arrays import distinct
from lance_io.plans.cpu_requests import Compute
from lance_io.reads.index.index_files import file_ref
from lance_io.reads.index.text_segments import WITHOUT, TokenKey, load_postings
from lance_io.reads.version.index_errors import in_index
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from lance_io._kernels import TermPostings
    from lance_io.index.text.text_parameters import TextParameters
    from lance_io.index.text.text_partition import TextPartition
    from lance_io.index.text.word_search import WordSearch
    from lance_io.plans.plan import Plan
    from lance_io.reads.index.row_filter import LiveEntries
    from lance_io.reads.index.text_indices import TextIndex
    from lance_io.reads.index.text_segments import TextSegment
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray

MANY = 2  # partitions, in which a row may stand more than once
_ROW_BYTES = 17  # of a document in memory: address, number, and whether it counts


@dataclass(frozen=True, slots=True, eq=False)
class OpenedText:
    """A full-text index that a search has opened."""

    index: TextIndex
    segments: tuple[TextSegment, ...]

    @property
    def parameters(self) -> TextParameters:
        """Of the tokenizer."""
        return self.segments[0].settings.parameters

    @property
    def statistics(self) -> CorpusStatistics:
        """Of all documents, deleted ones included."""
        partitions = [partition for segment in self.segments for partition in segment.partitions]
        return CorpusStatistics(
            sum(len(partition.lengths) for partition in partitions), sum(partition.total for partition in partitions)
        )

    @property
    def has_positions(self) -> bool:
        """Whether all partitions know where tokens stand."""
        return all(partition.form.positions for segment in self.segments for partition in segment.partitions)


@dataclass(frozen=True, slots=True, eq=False)
class _Term:
    """A token that is looked for.

    group  number of the word that it stands for
    count  how often the query says it
    """

    text: bytes
    group: int
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class MatchedTokens:
    """The tokens of a query in the partitions of an index.

    terms     that are looked for
    keys      of each term, the partitions that have it
    postings  their posting lists
    num_words  number of words of the query, each of which stands for some terms
    """

    terms: tuple[_Term, ...]
    keys: tuple[tuple[TokenKey, ...], ...]
    postings: Mapping[TokenKey, TermPostings]
    num_words: int

    def num_matches(self) -> dict[bytes, int]:
        """The number of documents with each token, deleted ones included."""
        return {
            term.text: sum(self.postings[key].num_docs for key in keys)
            for term, keys in zip(self.terms, self.keys, strict=True)
        }


def find_tokens_of(state: DatasetState, opened: OpenedText, search: WordSearch) -> Plan[MatchedTokens]:
    """Find the words of a query; reads posting lists. Raises `UsageError` for a phrase without positions."""
    is_phrase = search.slop is not None
    if is_phrase and not opened.has_positions:
        raise UsageError(
            f"index {opened.index.name!r}: position is not found but required for phrase queries, try recreating the "
            "index with position"
        )
    try:
        terms, keys = _terms(opened, search)
    except FormatError as error:
        raise in_index(
            error, opened.index.name, file_ref(state, opened.index.parts[0], METADATA_FILE).key, WITHOUT
        ) from error
    wanted = [key for its in keys for key in its]
    postings = yield from load_postings(state, opened.index, opened.segments, wanted, has_positions=is_phrase)
    return MatchedTokens(terms, keys, postings, len(dict.fromkeys(token.text for token in search.tokens)))


def _terms(opened: OpenedText, search: WordSearch) -> tuple[tuple[_Term, ...], tuple[tuple[TokenKey, ...], ...]]:
    words = [token.text for token in search.tokens]
    partitions = [
        (part, number, partition)
        for part, segment in enumerate(opened.segments)
        for number, partition in enumerate(segment.partitions)
    ]
    if search.fuzziness:
        return _similar(partitions, words, search)
    counts: dict[bytes, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    terms = tuple(_Term(word, group, count) for group, (word, count) in enumerate(counts.items()))
    keys: list[list[TokenKey]] = [[] for _ in terms]
    for part, number, partition in partitions:
        for its, token in zip(keys, partition.find([*counts]), strict=True):
            if token is not None:
                its.append(TokenKey(part, number, token))
    return terms, tuple(map(tuple, keys))


def _similar(
    partitions: Sequence[tuple[int, int, TextPartition]], words: Sequence[bytes], search: WordSearch
) -> tuple[tuple[_Term, ...], tuple[tuple[TokenKey, ...], ...]]:
    """Terms that are similar to words, word by word in the order of their bytes, as many as are allowed."""
    terms: list[_Term] = []
    keys: list[tuple[TokenKey, ...]] = []
    counts: dict[bytes, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    left = search.max_expansions
    for group, (word, count) in enumerate(counts.items()):
        near: dict[bytes, list[TokenKey]] = {}
        for part, number, partition in partitions if left > 0 else ():
            for token, its in partition.near(word, search.fuzziness, search.prefix_length, left):
                near.setdefault(token, []).append(TokenKey(part, number, its))
        for token in sorted(near)[:left]:
            terms.append(_Term(token, group, count))
            keys.append(tuple(near[token]))
        left -= count * min(left, len(near))
    return tuple(terms), tuple(keys)


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
    statistics, num_matches = corpus or (opened.statistics, matched.num_matches())
    factors = [statistics.factor(num_matches[term.text]) * term.count for term in matched.terms]
    threshold = float("-inf")
    parts: list[TextMatches] = []
    for part, segment in enumerate(opened.segments):
        for number, partition in enumerate(segment.partitions):
            chosen = [
                (term, matched.postings[key], factor)
                for term, keys, factor in zip(matched.terms, matched.keys, factors, strict=True)
                for key in keys
                if (key.part, key.partition) == (part, number)
            ]
            groups = {term.group for term, _, _ in chosen}
            if not chosen or (search.needs_all and len(groups) < matched.num_words):
                continue
            match = partial(_match, state, opened, (part, number), search, chosen, statistics, entries, most, threshold)
            num_bytes = sum(postings.nbytes for _, postings, _ in chosen) + _ROW_BYTES * len(partition.lengths) // 8
            try:
                matches = yield Compute(match, lambda num_bytes=num_bytes: num_bytes)  # type: ignore[misc]
            except DamagedError as error:
                ref = file_ref(state, opened.index.parts[part], partition_file(partition.number, POSTINGS))
                raise in_index(FormatError(str(error)), opened.index.name, ref.key, WITHOUT) from error
            parts.append(matches)
            if most is not None:
                parts = [(parts[0] if len(parts) < MANY else best_of(parts)).best(most)]
                threshold = float(parts[0].scores[-1]) if len(parts[0]) == most > 0 else threshold
    return TextMatches.joined(parts) if len(parts) < MANY else best_of(parts)


def _match(
    state: DatasetState,
    opened: OpenedText,
    where: tuple[int, int],
    search: WordSearch,
    chosen: Sequence[tuple[_Term, TermPostings, float]],
    statistics: CorpusStatistics,
    entries: LiveEntries,
    most: int | None,
    threshold: float,
) -> TextMatches:
    part, number = where
    partition = opened.segments[part].partitions[number]
    rows = partition_rows(state, opened, where, entries)
    groups = numbers = None
    if search.needs_all:
        numbers = {group: at for at, group in enumerate(dict.fromkeys(term.group for term, _, _ in chosen))}
        groups = [numbers[term.group] for term, _, _ in chosen]
    phrase = None
    if search.slop is not None:
        places = {term.text: at for at, (term, _, _) in enumerate(chosen)}
        phrase = [(places[token.text], token.position) for token in search.tokens], search.slop
    docs, scores = match_terms(
        [postings for _, postings, _ in chosen],
        [factor for _, _, factor in chosen],
        groups,
        partition.lengths,
        statistics.average,
        partition.form.size == 256,
        rows.counts,
        most,
        threshold,
        phrase,
    )
    documents = np.frombuffer(memoryview(docs), np.int64)
    addresses = rows.addresses[documents]
    ids = partition.rows[documents] if entries.row_ids is not None else addresses.view(np.uint64)
    elements = None if partition.elements is None else partition.elements[documents]
    matches = TextMatches(np.frombuffer(memoryview(scores), np.float32), ids, addresses, elements)
    return matches if rows.is_distinct else best_of([matches])


def _is_distinct(addresses: IntArray, counts: npt.NDArray[np.bool_], elements: npt.NDArray[np.uint32] | None) -> bool:
    live = addresses[counts]
    if elements is None:
        return len(distinct(live)) == len(live)
    return len(np.unique(np.column_stack((live, elements[counts])), axis=0)) == len(live)


def partition_rows(
    state: DatasetState, opened: OpenedText, where: tuple[int, int], entries: LiveEntries
) -> PartitionRows:
    """The documents of a partition as rows; kept for the version, its chosen fragments, and no filter."""
    part, number = where
    segment = opened.index.parts[part]
    partition = opened.segments[part].partitions[number]
    cache = state.session.index_cache
    owner = state.__dict__.setdefault("text_rows", object())
    key = ("text rows", owner, segment.uuid, segment.base_id, partition.number, entries.chosen.tobytes())
    (rows,) = cache.get_many([key])
    if rows is None:
        counts, addresses = entries.without_filter().find(segment, partition.rows)
        mask = None if bool(counts.all()) else counts.astype(np.uint8)
        rows = PartitionRows(mask, addresses, _is_distinct(addresses, counts, partition.elements))
        cache.put(key, rows, 256 + addresses.nbytes + (0 if mask is None else mask.nbytes))
    if entries.allowed is None:
        return rows
    allowed = entries.allows(rows.addresses)
    if rows.counts is not None:
        allowed &= rows.counts != 0
    return PartitionRows(allowed.astype(np.uint8), rows.addresses, rows.is_distinct)
