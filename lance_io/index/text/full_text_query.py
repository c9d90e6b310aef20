"""Full-text queries, with pylance's names; `lance_io.query` is their public home."""

from __future__ import annotations

import operator as operators
from enum import Enum, StrEnum
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from lance_io.caller_text import utf8
from lance_io.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_COUNT_END: Final = 1 << 32
_WEIGHT_MAX: Final = 1 << 20
_DEPTH_MAX: Final = 64  # of queries inside of queries


class FullTextQueryType(Enum):
    """Kinds of queries.

    Attributes:
        MATCH: Words of one column.
        MATCH_PHRASE: Words of one column that follow each other.
        BOOST: A query whose rows lose score by another one.
        MULTI_MATCH: Words of several columns, each for itself.
        COMBINED_FIELDS: Words of several columns as if they were one.
        BOOLEAN: Queries that must, should or must not match.
    """

    MATCH = "match"
    MATCH_PHRASE = "match_phrase"
    BOOST = "boost"
    MULTI_MATCH = "multi_match"
    COMBINED_FIELDS = "combined_fields"
    BOOLEAN = "boolean"


class FullTextOperator(Enum):
    """How the words of a query combine.

    Attributes:
        AND: A row has all of them.
        OR: A row has at least one.
    """

    AND = "AND"
    OR = "OR"


class DocumentGranularity(StrEnum):
    """The unit that a search treats as a document.

    Attributes:
        ROW: A row.
        LIST_ELEMENT: An element of a row's list.
    """

    ROW = "row"
    LIST_ELEMENT = "list_element"


class Occur(Enum):
    """The role of a query in a `BooleanQuery`.

    Attributes:
        SHOULD: Its score is added where it matches.
        MUST: It has to match, and its score is added.
        MUST_NOT: It must not match.
    """

    SHOULD = "SHOULD"
    MUST = "MUST"
    MUST_NOT = "MUST_NOT"


class FullTextQuery:
    """A full-text query, for `full_text_query=` of scans; its subclasses can be made.

    Raises:
        TypeError: It is made itself.
    """

    def __init__(self) -> None:
        raise TypeError("Can't instantiate abstract class FullTextQuery: make a MatchQuery, or another subclass")

    def query_type(self) -> FullTextQueryType:
        """Kind of the query."""
        raise NotImplementedError

    def __and__(self, other: FullTextQuery) -> BooleanQuery:
        return BooleanQuery([(Occur.MUST, self), (Occur.MUST, other)])

    def __or__(self, other: FullTextQuery) -> BooleanQuery:
        return BooleanQuery([(Occur.SHOULD, self), (Occur.SHOULD, other)])

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({shown})"


class MatchQuery(FullTextQuery):
    """Rows that have words in a column.

    Args:
        query: The words; they are split and changed as those of the column's index were.
        column: Name or dotted path of the column.
        boost: Factor of the scores, not negative.
        fuzziness: How many characters of a word may differ: inserted, removed or replaced. None counts as 0.
        max_expansions: How many similar words stand for those of the query, at most, all words together.
        operator: Whether a row needs all words, or one.
        prefix_length: Number of characters at the beginning of each word that must not differ.
        document_granularity: The unit that is a document; None for that of the index.

    Raises:
        TypeError: A value has the wrong type.
        ValueError: `boost` is negative or not finite.
        OverflowError: A count is negative or beyond 32 bits.
    """

    def __init__(
        self,
        query: str,
        column: str,
        *,
        boost: float = 1.0,
        fuzziness: int | None = 0,
        max_expansions: int = 50,
        operator: FullTextOperator = FullTextOperator.OR,
        prefix_length: int = 0,
        document_granularity: DocumentGranularity | None = None,
    ) -> None:
        self.query = _text("query", query)
        self.column = _text("column", column)
        self.boost = _boost("MatchQuery boost", boost)
        self.fuzziness = 0 if fuzziness is None else _count("fuzziness", fuzziness)
        self.max_expansions = _count("max_expansions", max_expansions)
        self.operator = FullTextOperator(operator.value)
        self.prefix_length = _count("prefix_length", prefix_length)
        self.document_granularity = _granularity(document_granularity)

    def query_type(self) -> FullTextQueryType:
        """Kind of the query."""
        return FullTextQueryType.MATCH


class PhraseQuery(FullTextQuery):
    """Rows that have words of a column one after another. The column's index needs positions.

    Args:
        query: The words.
        column: Name or dotted path of the column.
        slop: How many positions later than exactly each next word may stand.
        document_granularity: The unit that is a document; None for that of the index.

    Raises:
        TypeError: A value has the wrong type.
        OverflowError: `slop` is negative or beyond 32 bits.
    """

    def __init__(
        self, query: str, column: str, *, slop: int = 0, document_granularity: DocumentGranularity | None = None
    ) -> None:
        self.query = _text("query", query)
        self.column = _text("column", column)
        self.slop = _count("slop", slop)
        self.document_granularity = _granularity(document_granularity)

    def query_type(self) -> FullTextQueryType:
        """Kind of the query."""
        return FullTextQueryType.MATCH_PHRASE


class BoostQuery(FullTextQuery):
    """The rows of one query, with lower scores where another one matches.

    Args:
        positive: The query that decides which rows match.
        negative: The other query.
        negative_boost: Factor of the scores of `negative`, which are subtracted.

    Raises:
        TypeError: A value has the wrong type.
        ValueError: `negative_boost` is not finite, or negative.
    """

    def __init__(self, positive: FullTextQuery, negative: FullTextQuery, *, negative_boost: float = 0.5) -> None:
        self.positive = _query("positive", positive)
        self.negative = _query("negative", negative)
        self.negative_boost = _boost("BoostQuery negative_boost", negative_boost)

    def query_type(self) -> FullTextQueryType:
        """Kind of the query."""
        return FullTextQueryType.BOOST


class MultiMatchQuery(FullTextQuery):
    """Rows that have words in one of several columns; the best column gives the score.

    Args:
        query: The words.
        columns: Names or dotted paths of the columns.
        boosts: Factor of each column's scores; None for 1.
        operator: Whether a column needs all words, or one.

    Raises:
        TypeError: A value has the wrong type.
        ValueError: There is no column, or another number of boosts, or one of them is negative or not finite.
    """

    def __init__(
        self,
        query: str,
        columns: list[str],
        *,
        boosts: list[float] | None = None,
        operator: FullTextOperator = FullTextOperator.OR,
    ) -> None:
        names = _columns("MultiMatchQuery", columns)
        if boosts is not None and len(boosts) != len(names):
            raise UsageError("Invalid boosts: The number of boosts must match the number of queries")
        factors = [1.0] * len(names) if boosts is None else [*boosts]
        self.matches = tuple(
            MatchQuery(query, name, boost=boost, operator=operator) for name, boost in zip(names, factors, strict=True)
        )

    def query_type(self) -> FullTextQueryType:
        """Kind of the query."""
        return FullTextQueryType.MULTI_MATCH


class CombinedFieldsQuery(FullTextQuery):
    """Rows that have words in several columns, which count as one column (BM25F).

    Args:
        query: The words.
        columns: Names or dotted paths of the columns.
        boosts: Weight of each column, at least 1; None for 1.
        operator: Whether a row needs all words, or one.

    Raises:
        TypeError: A value has the wrong type.
        ValueError: There is no column, or another number of boosts, or one of them is out of range.
    """

    def __init__(
        self,
        query: str,
        columns: list[str],
        *,
        boosts: list[float] | None = None,
        operator: FullTextOperator = FullTextOperator.OR,
    ) -> None:
        self.query = _text("query", query)
        self.columns = _columns("CombinedFieldsQuery", columns)
        repeated = [name for number, name in enumerate(self.columns) if name in self.columns[:number]]
        if repeated:
            raise UsageError(f"CombinedFieldsQuery columns must be unique, but '{repeated[0]}' is duplicated")
        weights = [1.0] * len(self.columns) if boosts is None else [_real("boosts", boost) for boost in boosts]
        if len(weights) != len(self.columns):
            raise UsageError("Invalid boosts: The number of boosts must match the number of columns")
        for name, weight in zip(self.columns, weights, strict=True):
            if not 1 <= weight <= _WEIGHT_MAX:
                raise UsageError(
                    f"Invalid boosts: combined_fields boost for column '{name}' must be a finite value in "
                    f"[1, {_WEIGHT_MAX}], got {weight}"
                )
        self.boosts = tuple(weights)
        self.operator = FullTextOperator(operator.value)
        self.matches = tuple(MatchQuery(query, name, operator=operator) for name in self.columns)

    def query_type(self) -> FullTextQueryType:
        """Kind of the query."""
        return FullTextQueryType.COMBINED_FIELDS


class BooleanQuery(FullTextQuery):
    """Rows by what must, should and must not match; the scores of the first two are added.

    Without a query that must match, a row needs one that should.

    Args:
        queries: Pairs of a role and a query.

    Raises:
        TypeError: A value has the wrong type.
    """

    def __init__(self, queries: list[tuple[Occur, FullTextQuery]]) -> None:
        self.queries = tuple((Occur(occur.value), _query("queries", query)) for occur, query in queries)

    def query_type(self) -> FullTextQueryType:
        """Kind of the query."""
        return FullTextQueryType.BOOLEAN


def parts_of(query: FullTextQuery) -> Sequence[FullTextQuery]:
    """The queries that a query combines; empty for one that looks for words itself."""
    match query:
        case BoostQuery():
            return (query.positive, query.negative)
        case MultiMatchQuery() | CombinedFieldsQuery():
            return query.matches
        case BooleanQuery():
            return [part for _, part in query.queries]
    return ()


def leaves_of(query: FullTextQuery, depth: int = 0) -> Iterator[FullTextQuery]:
    """The queries inside of one that combine no others, in order.

    depth  number of queries around it
    Raises `UsageError` if queries are nested too deeply, and for one that combines none.
    """
    if depth > _DEPTH_MAX:
        raise UsageError(f"a full text query has more than {_DEPTH_MAX} levels of queries inside of queries")
    if isinstance(query, BooleanQuery) and not query.queries:
        raise UsageError("FTS query must contain at least one leaf query")
    parts = parts_of(query)
    if not parts:
        yield query
    for part in parts:
        yield from leaves_of(part, depth + 1)


def combined_in(query: FullTextQuery) -> Iterator[CombinedFieldsQuery]:
    """The queries of several columns as one inside of a query."""
    if isinstance(query, CombinedFieldsQuery):
        yield query
    for part in parts_of(query):
        yield from combined_in(part)


def clauses(query: BooleanQuery, occur: Occur) -> list[FullTextQuery]:
    """The queries of one role."""
    return [part for role, part in query.queries if role is occur]


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"argument '{name}': {type(value).__name__!r} object is not an instance of 'str'")
    utf8(value, name)
    return value


def _query(name: str, value: Any) -> FullTextQuery:
    if not isinstance(value, FullTextQuery):
        raise TypeError(f"{name}: expected a query of lance_io.query, found {type(value).__name__}")
    return value


def _columns(kind: str, value: Any) -> list[str]:
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise TypeError(f"columns: {type(value).__name__!r} object is not an instance of 'list'")
    names = [_text("columns", name) for name in value]
    if not names:
        raise UsageError(f"Invalid query: Cannot create {kind} with no columns")
    return names


def _count(name: str, value: Any) -> int:
    if not hasattr(value, "__index__"):
        raise TypeError(f"{name}: {type(value).__name__!r} object cannot be interpreted as an integer")
    number = operators.index(value)
    if not 0 <= number < _COUNT_END:
        raise OverflowError(f"{name}: expected a number of 0 to 2**32 - 1, found {number}")
    return number


def _real(name: str, value: Any) -> float:
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError(f"{name}: must be real number, not {type(value).__name__}")
    return float(value)


def _boost(name: str, value: Any) -> float:
    factor = _real(name, value)
    if not isfinite(factor) or factor < 0:
        raise UsageError(f"{name} must be finite and non-negative, got {value}")
    return factor


def _granularity(value: Any) -> DocumentGranularity | None:
    return None if value is None else DocumentGranularity(value.value)
