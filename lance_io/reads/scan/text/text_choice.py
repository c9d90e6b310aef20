"""The columns of a full-text query, and the indices that answer it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lance_io.errors import BindError, UnsupportedError, UsageError
from lance_io.format.schema import split_path
from lance_io.index.text.full_text_query import (
    BooleanQuery,
    CombinedFieldsQuery,
    DocumentGranularity,
    MatchQuery,
    MultiMatchQuery,
    Occur,
    PhraseQuery,
    clauses,
    leaves_of,
    parts_of,
)
from lance_io.index.text.text_parameters import TextParameters, parameters_of_details
from lance_io.index.text.word_search import word_search
from lance_io.reads.index.text_indices import load_text_indices, warn_text_index_unused
from lance_io.reads.index.text_match import OpenedText
from lance_io.reads.index.text_segments import UnreadText, open_text_segments
from lance_io.reads.scan.text.full_text_request import NO_INDEX
from lance_io.reads.version.column_lists import OutputColumn, fields_along
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.format.schema import Field
    from lance_io.index.text.full_text_query import FullTextQuery
    from lance_io.index.text.word_search import WordSearch
    from lance_io.plans.plan import Plan
    from lance_io.reads.index.text_indices import TextIndex
    from lance_io.reads.scan.text.full_text_request import TextRequest
    from lance_io.reads.version.state import DatasetState

TEXT: Final = "text"
WITHOUT_INDEX: Final = TextParameters(
    max_token_length=None, lower_case=False, stem=False, remove_stop_words=False, ascii_folding=False
)
"""The tokenizer of columns without an index."""


@dataclass(frozen=True, slots=True, eq=False)
class TextColumn:
    """A column of a query.

    name        as the query has it
    path        names from the top-level column down
    field       its field
    parameters  of its tokenizer
    index       opened; None if all texts are searched
    """

    name: str
    path: tuple[str, ...]
    field: Field
    parameters: TextParameters
    index: OpenedText | None

    @property
    def texts(self) -> OutputColumn:
        """The column as an output."""
        return OutputColumn(TEXT, self.path, pa.field(TEXT, self.field.arrow_type))


@dataclass(frozen=True, slots=True, eq=False)
class TextLeaf:
    """A part of a query that looks for words in one column.

    query   as it was given
    column  of it
    search  its words
    """

    query: MatchQuery | PhraseQuery
    column: TextColumn
    search: WordSearch


def check_request(state: DatasetState, request: TextRequest) -> None:
    """Raise `UsageError` for a query that does not fit the schema."""
    if isinstance(request.query, str):
        names: Sequence[str] = request.columns or ()
    else:
        names = [leaf.column for leaf in _checked_leaves(request.query)]
    for name in names:
        _text_field(state, name)


def _checked_leaves(query: FullTextQuery) -> list[MatchQuery | PhraseQuery]:
    leaves: list[MatchQuery | PhraseQuery] = []
    for leaf in leaves_of(query):
        if isinstance(leaf, CombinedFieldsQuery):
            raise UnsupportedError("CombinedFieldsQuery: this release searches columns one by one, see MultiMatchQuery")
        if not isinstance(leaf, (MatchQuery, PhraseQuery)):
            raise UsageError("FTS query must contain at least one leaf query")
        if leaf.document_granularity is DocumentGranularity.LIST_ELEMENT:
            raise UnsupportedError("document_granularity: this release searches rows, not elements of their lists")
        leaves.append(leaf)
    _check_boolean(query)
    return leaves


def _check_boolean(query: FullTextQuery) -> None:
    if isinstance(query, BooleanQuery) and not clauses(query, Occur.MUST) and not clauses(query, Occur.SHOULD):
        raise UsageError("boolean query must have at least one should/must query")
    for part in parts_of(query):
        _check_boolean(part)


def _text_field(state: DatasetState, name: str) -> tuple[tuple[str, ...], Field]:
    path = (name,) if state.schema.top(name) is not None else tuple(split_path(name))
    try:
        field = fields_along(state.schema, path)[-1]
    except BindError as error:
        raise UsageError(f"FTS field path '{name}' does not exist in the dataset schema. {error.message}") from error
    dtype: Any = field.arrow_type
    is_json = any("json" in node.logical_type.lower() for node in field.walk())
    while pa.types.is_list(dtype) or pa.types.is_large_list(dtype) or pa.types.is_fixed_size_list(dtype):
        dtype = dtype.value_type
    is_text = pa.types.is_string(dtype) or pa.types.is_large_string(dtype) or pa.types.is_string_view(dtype)
    if not is_text and not is_json:
        raise UsageError(
            f"FTS field '{name}' must resolve to Utf8, LargeUtf8, Utf8View, or JSON, got {field.to_arrow().type}"
        )
    return path, field


@dataclass(frozen=True, slots=True, eq=False)
class TextChoice:
    """A query whose columns are known.

    query   to answer; a multi-match for words in several columns
    leaves  its parts that look for words, by their identity
    """

    query: FullTextQuery
    leaves: dict[int, TextLeaf]


def choose_text_indices(state: DatasetState, request: TextRequest) -> Plan[TextChoice]:
    """The columns and indices of a query, opened.

    Raises `UsageError` for a query that does not fit the schema, `FormatError` naming index and file.
    """
    indices = yield from load_text_indices(state)
    query = request.query
    if isinstance(query, str):
        names = request.columns or tuple(sorted({_shown(index.path) for index in indices}))
        if not names:
            raise UsageError(NO_INDEX)
        query = MatchQuery(query, names[0]) if len(names) == 1 else MultiMatchQuery(query, [*names])
    leaves = _checked_leaves(query)
    columns: dict[str, TextColumn] = {}
    for leaf in leaves:
        if leaf.column not in columns:
            columns[leaf.column] = yield from _open_column(state, leaf.column, indices)
    by_leaf = {
        id(leaf): TextLeaf(leaf, columns[leaf.column], word_search(leaf, columns[leaf.column].parameters))
        for leaf in leaves
    }
    return TextChoice(query, by_leaf)


def _shown(path: Sequence[str]) -> str:
    return ".".join(f"`{name}`" if "." in name else name for name in path)


def _open_column(state: DatasetState, name: str, indices: Sequence[TextIndex]) -> Plan[TextColumn]:
    path, field = _text_field(state, name)
    parameters = WITHOUT_INDEX
    for index in indices:
        if index.path != path:
            continue
        opened = yield from open_text_segments(state, index)
        segments = []
        for part, segment in zip(index.parts, opened, strict=True):
            if isinstance(segment, UnreadText):
                warn_text_index_unused(index.name, segment.reason)
                parameters = parameters_of_details(part.details)
            else:
                segments.append(segment)
        if len(segments) == len(opened):
            return TextColumn(name, path, field, segments[0].settings.parameters, OpenedText(index, tuple(segments)))
    return TextColumn(name, path, field, parameters, None)
