"""`full_text_query`: words, a dict of words and columns, or a query; checked by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.errors import UsageError
from lance_io.index.text.full_text_query import FullTextOperator, FullTextQuery, MultiMatchQuery, PhraseQuery
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

NO_INDEX = (
    "Cannot perform full text search unless an INVERTED index has been created on at least one column; name columns to "
    "search texts without an index"
)


@dataclass(frozen=True, slots=True, eq=False)
class TextRequest:
    """A full-text search.

    query    a query, or words
    columns  that words are looked for in; None for all that have an index. Ignored for a query
    """

    query: FullTextQuery | str
    columns: tuple[str, ...] | None = None


def text_request(given: Any) -> TextRequest:
    """The search of a value of `full_text_query`. Raises `TypeError` for other values."""
    if isinstance(given, (str, FullTextQuery)):
        return TextRequest(given)
    if not isinstance(given, dict):
        raise TypeError(f"full_text_query must be a str, a dict or a query of lance_io.query, got {type(given)}")
    unknown = set(given) - {"query", "columns"}
    if unknown or "query" not in given:
        raise TypeError(f"full_text_query: expected the keys 'query' and 'columns', found {sorted(map(str, given))}")
    query, columns = given["query"], given.get("columns")
    if not isinstance(query, (str, FullTextQuery)):
        raise TypeError(f"full_text_query: query must be a str or a query of lance_io.query, got {type(query)}")
    if columns is None or isinstance(query, FullTextQuery):
        return TextRequest(query)
    if isinstance(columns, str) or not hasattr(columns, "__iter__"):
        raise TypeError(f"full_text_query: {type(columns).__name__!r} object is not an instance of 'list'")
    names = tuple(columns)
    if not all(isinstance(name, str) for name in names):
        raise TypeError("full_text_query: columns must be a list of names")
    if not names:
        raise UsageError(NO_INDEX)
    return TextRequest(query, names)


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
