"""`full_text_query`: words, a dict of words and columns, or a query; checked by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import UsageError
from lance_io.index.text.full_text_query import (
    FullTextOperator,
    FullTextQuery,
    MatchQuery,
    MultiMatchQuery,
    PhraseQuery,
)
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

NO_INDEX = (
    "Cannot perform full text search unless an INVERTED index has been created on at least one column; name columns to "
    "search texts without an index"
)

_QUOTES: Final = '""'


@dataclass(frozen=True, slots=True, eq=False)
class TextRequest:
    """A full-text search.

    query      a query, or words
    columns    that words are looked for in; None for all that have an index. Ignored for a query
    is_phrase  whether the words stand one after another
    """

    query: FullTextQuery | str
    columns: tuple[str, ...] | None = None
    is_phrase: bool = False

    def in_columns(self, names: Sequence[str]) -> FullTextQuery:
        """The query; words are looked for in these columns. Raises `UsageError` for a phrase in several columns."""
        if isinstance(self.query, FullTextQuery):
            return self.query
        if not names:
            raise UsageError(NO_INDEX)
        if self.is_phrase and len(names) > 1:
            raise UsageError(f"a phrase is looked for in one column, name it; there are {', '.join(names)}")
        if self.is_phrase:
            return PhraseQuery(self.query, names[0])
        return MatchQuery(self.query, names[0]) if len(names) == 1 else MultiMatchQuery(self.query, [*names])


def text_request(given: Any) -> TextRequest:
    """The search of a value of `full_text_query`. Raises `TypeError` for other values."""
    if isinstance(given, FullTextQuery):
        return TextRequest(given)
    if isinstance(given, str):
        return _words(given, None)
    if not isinstance(given, dict):
        raise TypeError(f"full_text_query must be a str, a dict or a query of lance_io.query, got {type(given)}")
    unknown = set(given) - {"query", "columns"}
    if unknown or "query" not in given:
        raise TypeError(f"full_text_query: expected the keys 'query' and 'columns', found {sorted(map(str, given))}")
    query, columns = given["query"], given.get("columns")
    if not isinstance(query, (str, FullTextQuery)):
        raise TypeError(f"full_text_query: query must be a str or a query of lance_io.query, got {type(query)}")
    if isinstance(query, FullTextQuery):
        return TextRequest(query)
    if columns is None:
        return _words(query, None)
    if isinstance(columns, str) or not hasattr(columns, "__iter__"):
        raise TypeError(f"full_text_query: {type(columns).__name__!r} object is not an instance of 'list'")
    names = tuple(columns)
    if not all(isinstance(name, str) for name in names):
        raise TypeError("full_text_query: columns must be a list of names")
    if not names:
        raise UsageError(NO_INDEX)
    return _words(query, names)


def _words(text: str, columns: tuple[str, ...] | None) -> TextRequest:
    """Words in columns; in double quotes they are a phrase."""
    if len(text) < len(_QUOTES) or not (text.startswith(_QUOTES[0]) and text.endswith(_QUOTES[1])):
        return TextRequest(text, columns)
    if columns is not None and len(columns) > 1:
        raise UsageError("Phrase queries cannot be used with multiple columns.")
    return TextRequest(text[1:-1], columns, is_phrase=True)


def words_query(words: str, columns: Sequence[str] | None, *, all_words: bool, is_phrase: bool) -> TextRequest:
    """The search of the command: words in columns, any of them, all of them, or one after another."""
    if is_phrase:
        first, *others = [PhraseQuery(words, name) for name in columns or ()]
        query: FullTextQuery = first
        for other in others:
            query = query | other
        return TextRequest(query)
    if all_words:
        return TextRequest(MultiMatchQuery(words, [*(columns or ())], operator=FullTextOperator.AND))
    return TextRequest(words, None if columns is None else tuple(columns))
