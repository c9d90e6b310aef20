"""Words of several columns that count as one column (BM25F).

A row's frequency of a word is the sum over the columns, each times its weight, and so is its length; the statistics
are those of the columns together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lance_io.index.text.scoring import CorpusStatistics
from lance_io.index.text.text_matches import TextMatches
from lance_io.levels.arrays import distinct
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from lance_io.spans import IntArray


_ROW_BYTES: Final = 40


@dataclass(frozen=True, slots=True, eq=False)
class FieldRows:
    """Rows of a column, in some of its parts.

    addresses    i64[n]
    ids          u64[n], row ids
    lengths      u32[n], number of tokens
    hits         of each word: which of these rows have it, i64, and how often, u32
    """

    addresses: IntArray
    ids: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint32]
    hits: Sequence[tuple[IntArray, npt.NDArray[np.uint32]]]

    def hit_addresses(self) -> IntArray:
        """The addresses of the rows that have a word."""
        is_hit = np.zeros(len(self.addresses), np.bool_)
        for rows, _ in self.hits:
            is_hit[rows] = True
        return self.addresses[is_hit]


@dataclass(frozen=True, slots=True, eq=False)
class CombinedField:
    """A column of a search.

    weight       factor of its frequencies and lengths
    statistics   of its documents
    num_matches  documents that have a word, by word
    parts        its rows; no row twice
    """

    weight: float
    statistics: CorpusStatistics
    num_matches: Mapping[bytes, int]
    parts: Sequence[FieldRows]

    @property
    def nbytes(self) -> int:
        """Memory of a search of its rows, in bytes."""
        return sum(_ROW_BYTES * len(part.addresses) for part in self.parts)


def match_combined(
    fields: Sequence[CombinedField],
    words: Sequence[bytes],
    *,
    needs_all: bool,
) -> TextMatches:
    """The rows with words in one of the columns, and their scores.

    words      of the query, each once
    needs_all  whether a row needs all words, each in any column
    """
    num_documents = max(field.statistics.num_documents for field in fields)
    num_tokens = sum(field.weight * field.statistics.num_tokens for field in fields)
    average = num_tokens / num_documents if num_tokens else 1.0
    statistics = CorpusStatistics(num_documents, 0)
    hit = [part.hit_addresses() for field in fields for part in field.parts]
    addresses = distinct(np.concatenate([np.empty(0, np.int64), *hit]))
    ids = np.zeros(len(addresses), np.uint64)
    lengths = np.zeros(len(addresses), np.float32)
    placed: list[tuple[np.float32, IntArray, FieldRows]] = []
    for field in fields:
        weight = np.float32(field.weight)
        for part in field.parts:
            at = np.searchsorted(addresses, part.addresses)
            inside = np.flatnonzero(at < len(addresses))
            inside = inside[addresses[at[inside]] == part.addresses[inside]]
            lengths[at[inside]] += weight * part.lengths[inside].astype(np.float32)
            ids[at[inside]] = part.ids[inside]
            placed.append((weight, at, part))
    f4 = np.float32
    norms = f4(1.2) * (f4(0.25) + f4(0.75) * lengths / f4(average))
    scores, frequencies = np.zeros((2, len(addresses)), np.float32)
    num_words = np.zeros(len(addresses), np.int32)
    for number, word in enumerate(words):  # one by one: a long query has thousands
        its_rows = [at[part.hits[number][0]] for _, at, part in placed]
        rows = distinct(np.concatenate([np.empty(0, np.int64), *its_rows]))
        for (weight, _, part), its in zip(placed, its_rows, strict=True):
            counts = part.hits[number][1]
            frequencies[its] += weight * counts.astype(np.float32)
        num_matches = max(field.num_matches.get(word, 0) for field in fields)
        if num_matches:
            frequency = frequencies[rows]
            scores[rows] += f4(statistics.factor(num_matches)) * (f4(2.2) * frequency / (frequency + norms[rows]))
        frequencies[rows] = 0
        num_words[rows] += 1
    matches = TextMatches(scores, ids, addresses)
    return matches[num_words == len(words)] if needs_all else matches
