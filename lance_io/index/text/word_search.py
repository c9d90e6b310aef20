"""The words of a query, as a column is asked for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lance_io.index.text.full_text_query import FullTextOperator, MatchQuery, PhraseQuery
from lance_io.index.text.tokenizer import tokenized
from lance_io.records import dataclass

if TYPE_CHECKING:
    from lance_io._kernels import Analyzer


@dataclass(frozen=True, slots=True)
class QueryToken:
    """A token of a query, and its position."""

    text: bytes
    position: int


@dataclass(frozen=True, slots=True)
class WordSearch:
    """The words of a query.

    tokens          in their order
    needs_all       whether a row needs all of them
    slop            of a phrase; None for words anywhere
    fuzziness       characters that may differ
    prefix_length   characters at the beginning that may not
    max_expansions  similar tokens at most
    """

    tokens: tuple[QueryToken, ...]
    needs_all: bool = False
    slop: int | None = None
    fuzziness: int = 0
    prefix_length: int = 0
    max_expansions: int = 50

    @property
    def counts(self) -> dict[bytes, int]:
        """How often each token stands in the query, in the order of the first."""
        counts: dict[bytes, int] = {}
        for token in self.tokens:
            counts[token.text] = counts.get(token.text, 0) + 1
        return counts


def word_search(query: MatchQuery | PhraseQuery, analyzer: Analyzer) -> WordSearch:
    """The words of a query, by a tokenizer. Raises `UsageError` for too many."""
    tokens = tokenized(analyzer, pa.array([query.query], pa.string()))
    texts = tokens.texts.cast(pa.binary()).to_pylist()
    words = tuple(QueryToken(text, position) for text, position in zip(texts, tokens.positions.tolist(), strict=True))
    if isinstance(query, PhraseQuery):
        return WordSearch(words, needs_all=True, slop=query.slop)
    return WordSearch(
        words,
        needs_all=query.operator is FullTextOperator.AND,
        fuzziness=query.fuzziness,
        prefix_length=query.prefix_length,
        max_expansions=query.max_expansions,
    )
