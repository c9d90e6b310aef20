"""Output columns of a full-text search: those of the table, and `_score`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_io.lazy_names import lazy_module
from lance_io.reads.scan.search_columns import search_projection, search_schema
from lance_io.reads.scan.text.text_choice import check_request

if TYPE_CHECKING:
    from lance_io import filters
    from lance_io.filters import Predicate
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.version.column_lists import Projection
    from lance_io.reads.version.state import DatasetState
else:
    filters = lazy_module("lance_io.filters")  # loads the parser: only for filters


def added_columns(state: DatasetState, options: ScanOptions) -> tuple[str, ...]:
    """The columns that a search adds. Raises `UsageError` for a query that does not fit the schema."""
    assert options.full_text_query is not None, "asked for where there is one"
    return check_request(state, options.full_text_query)


def text_projection(state: DatasetState, options: ScanOptions) -> Projection:
    """The output columns of a full-text search. Raises `UsageError` for a query that does not fit the schema."""
    return search_projection(state, options, added_columns(state, options))


def bind_with_score(state: DatasetState, filter: Any, names: tuple[str, ...]) -> Predicate:
    """A filter of the matches, which may name the columns that the search adds."""
    added = search_schema(state.schema, names).fields[len(state.schema.fields) :]
    fields = [*state.stored_schema, *(pa.field(field.name, field.arrow_type, field.nullable) for field in added)]
    return filters.compile_filter(filter, pa.schema(fields))
