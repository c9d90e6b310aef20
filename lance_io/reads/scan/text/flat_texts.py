"""Texts that no index covers: their words are counted batch by batch, and scored when all of them are known.

Scores need the number of all documents and of those that have a word: of the index, and of the texts searched here.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lance_io.index.text.combined_fields import FieldRows
from lance_io.index.text.list_elements import element_places, list_items
from lance_io.index.text.scoring import CorpusStatistics, weights
from lance_io.index.text.text_matches import TextMatches
from lance_io.index.text.text_paths import member_lists
from lance_io.index.text.tokenizer import tokenized
from lance_io.levels.arrays import distinct
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from lance_io._kernels import Analyzer
    from lance_io.index.text.tokenizer import Tokens
    from lance_io.index.text.word_search import WordSearch
    from lance_io.spans import IntArray

    _Hits = tuple[IntArray, npt.NDArray[np.uint32]]

_POSITION_BITS = 32
_NO_HITS = np.empty(0, np.int64), np.empty(0, np.uint32)


@dataclass(frozen=True, slots=True, eq=False)
class _Counted:
    """Rows with words of the query.

    hits      the words that rows have, by their numbers in the query: positions of the rows, and how often
    lengths   u32[rows]
    elements  u32[rows, depth], if documents are elements of lists
    """

    hits: dict[int, _Hits]
    lengths: npt.NDArray[np.uint32]
    ids: npt.NDArray[np.uint64]
    addresses: IntArray
    elements: npt.NDArray[np.uint32] | None


class FlatTexts:
    """A search of texts. Several threads may add batches at once: the result does not depend on their order."""

    def __init__(
        self,
        analyzer: Analyzer,
        search: WordSearch,
        *,
        keeps_all: bool = False,
        of_elements: bool = False,
        below: Sequence[str] = (),
    ) -> None:
        self._analyzer = analyzer
        self._search = search
        self._keeps_all = keeps_all  # rows without the words, too
        self._of_elements = of_elements  # whether each element of the innermost lists is a document
        self._below = below  # members of the structs in the lists, which have the texts
        self._words = [*search.counts]
        self._lock = threading.Lock()
        self._parts: list[_Counted] = []
        self._matches = np.zeros(len(self._words), np.int64)
        self._num_documents = self._num_tokens = 0

    def add(self, texts: pa.Array, ids: npt.NDArray[np.uint64], addresses: IntArray) -> None:
        """Add the texts of some rows: strings, or lists of strings."""
        texts = member_lists(texts, self._below)
        lists: list[npt.NDArray[np.int64]] = []
        while pa.types.is_nested(texts.type):
            texts, starts = list_items(texts)
            lists.append(starts)
        elements = None
        if self._of_elements:
            rows, elements = element_places(lists)
            ids, addresses, lists = ids[rows], addresses[rows], []
        tokens = tokenized(self._analyzer, texts)
        firsts = tokens.rows.astype(np.int64)
        for starts in reversed(lists):
            firsts = firsts[starts]
        lengths = np.diff(firsts)
        numbers = pc.index_in(tokens.texts.cast(pa.binary()), pa.array(self._words, pa.binary()))
        words = numbers.fill_null(-1).to_numpy(zero_copy_only=False)
        hits = np.flatnonzero(words >= 0)
        rows = np.searchsorted(firsts, hits, side="right") - 1
        keys, counts = np.unique(rows * len(self._words) + words[hits], return_counts=True)
        if self._keeps_all:
            kept = np.flatnonzero(lengths)
            inverse = np.searchsorted(kept, keys // len(self._words))
        else:
            kept, inverse = np.unique(keys // len(self._words), return_inverse=True)
        numbers = keys % len(self._words)
        num_matches = np.bincount(numbers, minlength=len(self._words))
        chosen: npt.NDArray[np.bool_] = np.ones(len(kept), np.bool_)
        if self._search.needs_all and not self._keeps_all:
            chosen = np.bincount(inverse, minlength=len(kept)) == len(self._words)
        if self._search.slop is not None:
            positions = _positions(tokens, lists, len(texts))
            chosen &= np.isin(kept, self._rows_of_phrase(rows, words[hits], positions[hits]))
        at = kept[chosen]
        places = None if elements is None else elements[at]
        hits_of = _by_word(numbers, inverse, counts, chosen)
        part = _Counted(hits_of, lengths[at].astype(np.uint32), ids[at], addresses[at], places)
        with self._lock:
            self._parts.append(part)
            self._matches += num_matches
            self._num_documents += len(lengths) if self._of_elements else int(np.count_nonzero(lengths))
            self._num_tokens += int(lengths.sum())

    def _rows_of_phrase(self, rows: IntArray, words: IntArray, positions: IntArray) -> IntArray:
        """The rows that have the phrase, by where its words stand in them."""
        slop = self._search.slop or 0
        numbers = {word: number for number, word in enumerate(self._words)}
        keys = (rows << _POSITION_BITS) + positions
        first, *others = self._search.tokens
        reached = np.sort(keys[words == numbers[first.text]])
        last = first.position
        for token in others:
            here = np.sort(keys[words == numbers[token.text]])
            latest = here - (token.position - last)
            earliest = np.maximum(latest - slop, here >> _POSITION_BITS << _POSITION_BITS)
            at = np.searchsorted(reached, latest, side="right") - 1
            follows = at >= 0
            if len(reached):
                follows &= reached[np.maximum(at, 0)] >= earliest
            reached, last = here[follows], token.position
        return distinct(reached >> _POSITION_BITS)

    def matches(self, others: CorpusStatistics, num_matches: Mapping[bytes, int]) -> TextMatches:
        """The rows that match, with their scores.

        others          documents of the index
        num_matches     number of these that have a token, by token
        """
        statistics, every = self.added_to(others, num_matches)
        times = [*self._search.counts.items()]
        factors = {
            number: np.float32(statistics.factor(every[times[number][0]])) * np.float32(times[number][1])
            for number in np.flatnonzero(self._matches).tolist()
        }
        results = [TextMatches.none()]
        for part in self._parts:
            scores = np.zeros(len(part.lengths), np.float32)
            for number, (rows, counts) in part.hits.items():
                scores[rows] += factors[number] * weights(counts, part.lengths[rows], statistics.average)
            results.append(TextMatches(scores, part.ids, part.addresses, part.elements))
        return TextMatches.joined(results)

    def added_to(
        self, others: CorpusStatistics, num_matches: Mapping[bytes, int]
    ) -> tuple[CorpusStatistics, dict[bytes, int]]:
        """Statistics and numbers of documents by word, of others and of these texts together."""
        statistics = CorpusStatistics(others.num_documents + self._num_documents, others.num_tokens + self._num_tokens)
        own = zip(self._words, self._matches.tolist(), strict=True)
        return statistics, {word: num_matches.get(word, 0) + number for word, number in own}

    def rows(self) -> list[FieldRows]:
        """The rows with their frequencies."""
        return [
            FieldRows(
                part.addresses,
                part.ids,
                part.lengths,
                [part.hits.get(number, _NO_HITS) for number in range(len(self._words))],
            )
            for part in self._parts
        ]


def _by_word(numbers: IntArray, rows: IntArray, counts: IntArray, chosen: npt.NDArray[np.bool_]) -> dict[int, _Hits]:
    """Words of the chosen rows, ascending.

    numbers, rows, counts  of each pair of a word and a row, ascending by row
    """
    kept = chosen[rows]
    order = np.argsort(numbers[kept], kind="stable")
    numbers, times = numbers[kept][order], counts[kept][order].astype(np.uint32)
    rows = (np.cumsum(chosen) - 1)[rows[kept][order]]
    starts = np.flatnonzero(np.r_[len(numbers) > 0, numbers[1:] != numbers[:-1]]).tolist()
    ends = [*starts[1:], len(numbers)]
    return {int(numbers[start]): (rows[start:end], times[start:end]) for start, end in zip(starts, ends, strict=False)}


def _positions(tokens: Tokens, lists: list[npt.NDArray[np.int64]], num_texts: int) -> IntArray:
    """Positions of tokens in their rows: those of a list's items go on where the item before ended."""
    positions = tokens.positions.astype(np.int64)
    if not lists:
        return positions
    firsts = tokens.rows.astype(np.int64)
    lengths = np.zeros(num_texts, np.int64)
    filled = np.flatnonzero(np.diff(firsts))
    lengths[filled] = positions[firsts[filled + 1] - 1] + 1
    before = np.cumsum(lengths) - lengths
    starts = lists[-1]
    for outer in reversed(lists[:-1]):
        starts = starts[outer]
    of_row = np.repeat(
        before[np.minimum(starts[:-1], max(num_texts - 1, 0))] if num_texts else before[:0], np.diff(starts)
    )
    shifts = before - of_row
    return positions + np.repeat(shifts, np.diff(firsts))
