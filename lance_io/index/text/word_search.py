"""The words of a query, as a column is asked for them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from lance_io.caller_text import utf8
from lance_io.errors import UsageError
from lance_io.index.text.full_text_query import FullTextOperator, MatchQuery, PhraseQuery
from lance_io.index.text.tokenizer import analyzer_of, text_tokens
from lance_io.records import dataclass

if TYPE_CHECKING:
    from lance_io.index.text.text_parameters import TextParameters

JSON: Final = "json"
"""The `lance_tokenizer` of columns of JSON documents."""
_JSON_TYPES: Final = ("str", "number", "bool", "null")
TEXTS_KEPT: Final = 256  # of queries, with their tokens
KEPT_CHARS_MAX: Final = 128
_NO_FILTERS: Final[dict[str, Any]] = {
    "max_token_length": None,
    "lower_case": False,
    "stem": False,
    "remove_stop_words": False,
    "ascii_folding": False,
}  # words of a fuzzy query are split, and no more, as by pylance


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


def word_search(query: MatchQuery | PhraseQuery, parameters: TextParameters) -> WordSearch:
    """The words of a query, by the tokenizer of its column. Raises `UsageError` for words that do not fit it."""
    if parameters.lance_tokenizer == JSON:
        words = _json_words(query.query, parameters)
    else:
        is_fuzzy = isinstance(query, MatchQuery) and query.fuzziness > 0
        words = _words(query.query, replace(parameters, **_NO_FILTERS) if is_fuzzy else parameters)
    if isinstance(query, PhraseQuery):
        return WordSearch(words, needs_all=True, slop=query.slop)
    return WordSearch(
        words,
        needs_all=query.operator is FullTextOperator.AND,
        fuzziness=query.fuzziness,
        prefix_length=query.prefix_length,
        max_expansions=query.max_expansions,
    )


def exact_search(query: MatchQuery | PhraseQuery, parameters: TextParameters) -> WordSearch:
    """The words of a query themselves, where similar ones do not count."""
    if isinstance(query, PhraseQuery):
        return word_search(query, parameters)
    exact = MatchQuery(query.query, query.column, operator=query.operator)
    return word_search(exact, parameters)


def _words(text: str, parameters: TextParameters) -> tuple[QueryToken, ...]:
    """The tokens of a text."""
    return _kept_tokens(text, parameters) if len(text) <= KEPT_CHARS_MAX else _tokens(text, parameters)


def _tokens(text: str, parameters: TextParameters) -> tuple[QueryToken, ...]:
    return tuple([QueryToken(token, position) for token, position in text_tokens(analyzer_of(parameters), text)])


_kept_tokens = lru_cache(TEXTS_KEPT)(_tokens)


def _json_words(text: str, parameters: TextParameters) -> tuple[QueryToken, ...]:
    """The tokens of a path, a type and a value."""
    path, _, rest = text.partition(",")
    kind, _, value = rest.partition(",")
    if not text:
        return ()
    if kind not in _JSON_TYPES or not value:
        raise UsageError(
            f"a column of JSON documents is searched for PATH,TYPE,VALUE, such as a.b,str,words; the type is one of "
            f"{', '.join(_JSON_TYPES)}. Invalid triple format: {text[:80]}"
        )
    before = utf8(f"{path},{kind},", "the path of a query")
    if kind == "str":
        words = _words(value, replace(parameters, lance_tokenizer="text"))
        return tuple(QueryToken(before + word.text, word.position) for word in words)
    return (QueryToken(before + utf8(value, "the value of a query"), 0),)
