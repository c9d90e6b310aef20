"""The columns of a full-text query, and the indices that answer it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lance_io.errors import BindError, UsageError
from lance_io.format.schema import split_path
from lance_io.index.text.full_text_query import (
    BooleanQuery,
    CombinedFieldsQuery,
    DocumentGranularity,
    FullTextQuery,
    MatchQuery,
    Occur,
    PhraseQuery,
    clauses,
    combined_in,
    leaves_of,
    parts_of,
)
from lance_io.index.text.text_parameters import TextParameters, parameters_of_details
from lance_io.index.text.text_paths import text_path
from lance_io.index.text.word_search import JSON, word_search
from lance_io.reads.index.text_indices import load_text_indices, warn_text_index_unused
from lance_io.reads.index.text_segments import WITHOUT, OpenedText, UnreadText, open_text_segments
from lance_io.reads.scan.search_columns import DOC_INDEX, SCORE
from lance_io.reads.version.column_lists import fields_along
from lance_io.reads.version.index_errors import INDEX_ERRORS, in_index
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.format.schema import Field
    from lance_io.index.text.text_paths import TextPath
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
    path        of its texts
    parameters  of its tokenizer
    index       opened; None if all texts are searched
    of_elements whether the elements of its lists are documents
    """

    name: str
    path: TextPath
    parameters: TextParameters
    index: OpenedText | None
    of_elements: bool = False


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


def check_request(state: DatasetState, request: TextRequest) -> tuple[str, ...]:
    """The columns that a search adds to those of the table. Raises `UsageError` for a query that does not fit it."""
    key = _request_key(request)
    names: tuple[str, ...] | None = None if key is None else state.prepared.get(key)
    if names is None:
        _check(state, request)
        names = (SCORE, DOC_INDEX) if list_depth(state, request.query) else (SCORE,)
        if key is not None:
            state.prepared.put(key, names)
    return names


def _request_key(request: TextRequest) -> Any:
    """Identifies requests that are checked alike; None for those of queries inside of queries."""
    query = request.query
    if type(query) in (MatchQuery, PhraseQuery):
        return "checked texts", query.column, query.document_granularity  # type: ignore[union-attr]
    return ("checked texts", request.columns) if isinstance(query, str) else None


def _check(state: DatasetState, request: TextRequest) -> None:
    if isinstance(request.query, str):
        names: Sequence[str] = request.columns or ()
    else:
        leaves = _checked_leaves(request.query)
        names = [leaf.column for leaf in leaves]
    for name in names:
        _text_path(state, name)
    if not isinstance(request.query, str) and of_elements(leaves[0]) and not list_depth(state, request.query):
        raise UsageError(
            f"FTS field path '{leaves[0].column}' has no List layer and cannot use ListElement document granularity"
        )


def _checked_leaves(query: FullTextQuery) -> list[MatchQuery | PhraseQuery]:
    leaves: list[MatchQuery | PhraseQuery] = []
    for leaf in leaves_of(query):
        if not isinstance(leaf, (MatchQuery, PhraseQuery)):
            raise UsageError("FTS query must contain at least one leaf query")
        leaves.append(leaf)
    _check_boolean(query)
    if len({of_elements(leaf) for leaf in leaves}) > 1:
        raise UsageError("FTS queries cannot mix Row and ListElement document granularities")
    if of_elements(leaves[0]) and len({leaf.column for leaf in leaves}) > 1:
        raise UsageError("all leaves in a ListElement FTS query must use the same final field")
    return leaves


def of_elements(query: MatchQuery | PhraseQuery) -> bool:
    """Whether the documents of a query are the elements of lists."""
    return query.document_granularity is DocumentGranularity.LIST_ELEMENT


def list_depth(state: DatasetState, query: FullTextQuery | str) -> int:
    """How many lists lead to a document of a query; 0 for rows. Raises `UsageError`."""
    leaf = next(leaves_of(query), None) if isinstance(query, FullTextQuery) else None
    if not isinstance(leaf, (MatchQuery, PhraseQuery)) or not of_elements(leaf):
        return 0
    path = _text_path(state, leaf.column)
    return path.num_lists + _depth(path.field.arrow_type)


def _depth(dtype: pa.DataType) -> int:
    is_list = pa.types.is_list(dtype) or pa.types.is_large_list(dtype) or pa.types.is_fixed_size_list(dtype)
    return 1 + _depth(dtype.value_type) if is_list else 0


def _check_boolean(query: FullTextQuery) -> None:
    if isinstance(query, BooleanQuery) and not clauses(query, Occur.MUST) and not clauses(query, Occur.SHOULD):
        raise UsageError("boolean query must have at least one should/must query")
    for part in parts_of(query):
        _check_boolean(part)


def _text_path(state: DatasetState, name: str) -> TextPath:
    names = (name,) if state.schema.top(name) is not None else tuple(split_path(name))
    path = text_path(state.schema, names)
    if path is None:
        raise _no_such_column(state, name, names)
    field = path.field
    dtype: Any = field.arrow_type
    is_json = any("json" in node.logical_type.lower() for node in field.walk())
    while pa.types.is_list(dtype) or pa.types.is_large_list(dtype) or pa.types.is_fixed_size_list(dtype):
        dtype = dtype.value_type
    is_text = pa.types.is_string(dtype) or pa.types.is_large_string(dtype) or pa.types.is_string_view(dtype)
    if not is_text and not is_json:
        raise UsageError(
            f"FTS field '{name}' must resolve to Utf8, LargeUtf8, Utf8View, or JSON, got {field.to_arrow().type}"
        )
    return path


def _no_such_column(state: DatasetState, name: str, names: tuple[str, ...]) -> UsageError:
    try:
        fields_along(state.schema, names)
    except BindError as error:
        return UsageError(f"FTS field path '{name}' does not exist in the dataset schema. {error.message}")
    raise AssertionError("a path to a field was found before")


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
    query = request.in_columns(request.columns or names_of(indices))
    leaves = _checked_leaves(query)
    columns: dict[tuple[str, bool], TextColumn] = {}
    for leaf in leaves:
        path = _text_path(state, leaf.column)
        _check_granularity(leaf, [index for index in indices if index.path == path.names])
        key = leaf.column, of_elements(leaf)
        if key not in columns:
            columns[key] = yield from _open_column(state, leaf, indices)
    by_leaf = {id(leaf): columns[leaf.column, of_elements(leaf)] for leaf in leaves}
    for combined in combined_in(query):
        by_leaf |= _joint_columns(combined, [by_leaf[id(match)] for match in combined.matches])
    return TextChoice(query, {id(leaf): _leaf(leaf, by_leaf[id(leaf)]) for leaf in leaves})


def _leaf(query: MatchQuery | PhraseQuery, column: TextColumn) -> TextLeaf:
    return TextLeaf(query, column, word_search(query, column.parameters))


def _joint_columns(query: CombinedFieldsQuery, its: Sequence[TextColumn]) -> dict[int, TextColumn]:
    """The columns of a query that searches them as one, by its parts; all split texts in one way.

    Raises `UsageError` for columns that cannot be searched so.
    """
    indexed = [column for column in its if column.index is not None]
    if not indexed:
        names = ", ".join(query.columns)
        raise UsageError(f"combined_fields requires an inverted index on at least one of the columns: {names}")
    shared = indexed[0].parameters
    others = [column.name for column in indexed if column.parameters.analysis != shared.analysis]
    if others:
        raise UsageError(
            "combined_fields requires every target column to share the same tokenizer/index configuration; column(s) "
            f"{', '.join(others)} differ from {indexed[0].name}"
        )
    return {
        id(match): column if column.index is not None else replace(column, parameters=shared)
        for match, column in zip(query.matches, its, strict=True)
    }


def names_of(indices: Sequence[TextIndex]) -> list[str]:
    """The columns that words without columns are looked for in."""
    return sorted({_shown(index.path) for index in indices if not index.of_elements})


def _shown(path: Sequence[str]) -> str:
    return ".".join(f"`{name}`" if "." in name else name for name in path)


def _parameters_of(state: DatasetState, index: TextIndex) -> TextParameters:
    """The tokenizer of an index by the index section. Raises `UnsupportedError` naming the index."""
    try:
        return replace(parameters_of_details(index.details), lance_tokenizer=_lance_tokenizer(index.field))
    except INDEX_ERRORS as error:
        raise in_index(error, index.name, state.location.uri, WITHOUT) from error


def _lance_tokenizer(field: Field) -> str:
    return JSON if any("json" in node.logical_type.lower() for node in field.walk()) else TEXT


def _open_column(state: DatasetState, leaf: MatchQuery | PhraseQuery, indices: Sequence[TextIndex]) -> Plan[TextColumn]:
    path = _text_path(state, leaf.column)
    its = [index for index in indices if index.path == path.names]
    parameters = WITHOUT_INDEX
    for index in its:
        if index.of_elements is not of_elements(leaf):
            continue
        if not index.parts:  # built over no rows, or its rows are gone
            parameters = _parameters_of(state, index)
            continue
        opened = yield from open_text_segments(state, index)
        segments = []
        for segment in opened:
            if isinstance(segment, UnreadText):
                parameters = segment.parameters or _parameters_of(state, index)
                warn_text_index_unused(index.name, segment.reason)
            else:
                segments.append(segment)
        if len(segments) == len(opened):
            settings = segments[0].settings
            parameters, its_index = settings.parameters, OpenedText.of(state, index, segments)
            return TextColumn(leaf.column, path, parameters, its_index, index.of_elements)
    return TextColumn(leaf.column, path, parameters, None, of_elements(leaf))


def _check_granularity(leaf: MatchQuery | PhraseQuery, indices: Sequence[TextIndex]) -> None:
    """Raise `UsageError` unless the indices of a column, if any, have one with the documents of a query."""
    of_rows = [f"'{index.name}' (Row)" for index in indices if not index.of_elements]
    others = [f"'{index.name}' (ListElement)" for index in indices if index.of_elements]
    granularity, field = leaf.document_granularity, f"FTS query for field '{leaf.column}'"
    if granularity is None and of_rows and others:
        both = f"{of_rows[0]}, {others[0]}"
        raise UsageError(
            f"{field} is ambiguous because Row and ListElement indexes coexist: {both}; specify document_granularity"
        )
    asked, wanted, unwanted = "Row", of_rows, others
    if granularity is DocumentGranularity.LIST_ELEMENT:
        asked, wanted, unwanted = "ListElement", others, of_rows
    if wanted or not unwanted:
        return
    if granularity is None:
        raise UsageError(
            f"{field}: the documents of index {others[0]} are elements of lists, and the rows of the result have a "
            "column more; say document_granularity=DocumentGranularity.LIST_ELEMENT"
        )
    raise UsageError(
        f"{field} requested {asked} document granularity, but the existing FTS index uses a different granularity: "
        f"{unwanted[0]}"
    )
