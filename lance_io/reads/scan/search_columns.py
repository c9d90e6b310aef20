"""Output columns of a search: columns of the table, and columns that the search adds.

    _distance    float32, distance between the row and the query; added by a vector search
    query_index  int32, index of the query; added by a vector search with several queries
    _score       float32, relevance of the row; added by a full-text search
    _doc_index   list of uint32, position of the matching element; added by a full-text search in lists of texts

Column lists and filters may refer to the added columns. The order of the output is pylance's: `query_index` is first.
`_distance` or `_score` is last, unless the caller's column list contains it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io.errors import UsageError
from lance_io.format.schema import Field, Schema
from lance_io.levels.arrays import numbers, true_positions
from lance_io.reads.rows.rebatch import empty_columns
from lance_io.reads.scan.vector_query import vector_column
from lance_io.reads.takes.take_rows import prepare
from lance_io.reads.version.column_lists import OutputColumn, Projection, columns_key, project, prune
from lance_io.reads.version.system_columns import ROW_ADDRESS, ROW_ID, SYSTEM_COLUMNS, system_field
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lance_io.filters import Predicate
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.scan.vector_query import VectorQuery
    from lance_io.reads.takes.take_rows import PreparedTake
    from lance_io.reads.version.state import DatasetState

DISTANCE: Final = "_distance"
QUERY_INDEX: Final = "query_index"
SCORE: Final = "_score"
DOC_INDEX: Final = "_doc_index"


def search_column_names(query: VectorQuery, column_is_multi: bool) -> tuple[str, ...]:
    """Names of the columns that a vector search adds. column_is_multi: each row of the column holds several vectors"""
    return (DISTANCE, QUERY_INDEX) if query.is_batch and not column_is_multi else (DISTANCE,)


def search_schema(schema: Schema, names: tuple[str, ...]) -> Schema:
    """The table's schema plus the columns that a search adds.

    Raises `UsageError` if the table has a column with one of these names.
    """
    for name in names:
        if schema.top(name) is not None:
            kind = "full text" if SCORE in names else "nearest neighbor"
            raise UsageError(
                f"a {kind} search cannot be used on datasets with column '{name}', because the search adds it"
            )
    first = schema.max_field_id + 1
    added = (
        Field(first, DISTANCE, "float"),
        Field(first + 1, QUERY_INDEX, "int32", nullable=False),
        Field(first + 2, DOC_INDEX, "list", children=(Field(first + 3, "item", "uint32", nullable=False),)),
        Field(first + 4, SCORE, "float"),
    )
    return Schema((*schema.fields, *(field for field in added if field.name in names)), schema.metadata)


def nearest_projection(state: DatasetState, options: ScanOptions) -> Projection:
    """The output columns of a vector search. Raises the errors of `vector_column` and `project`."""
    query = query_of(options)
    column = vector_column(state.schema, query)
    column.metric(query.metric)
    return search_projection(state, options, search_column_names(query, column.is_multi))


def query_of(options: ScanOptions) -> VectorQuery:
    """The vector query of a scan. The options must have one."""
    query: VectorQuery | None = options.nearest
    assert query is not None, "callers run vector searches only, whose options have a query"
    return query


def search_projection(state: DatasetState, options: ScanOptions, names: tuple[str, ...]) -> Projection:
    """The output columns of a search, cached with the table version.

    names  columns that the search adds; the first is `_distance` or `_score`
    """
    autoprojects = not options.hints.get("disable_scoring_autoprojection")
    options_key = columns_key(options.columns), options.with_row_id, options.with_row_address, options.blob_handling
    key = ("search", names, autoprojects, *options_key)
    projection: Projection | None = state.prepared.get(key)
    if projection is None:
        projection = _build_projection(state, options, names, autoprojects)
        state.prepared.put(key, projection)
    return projection


def _build_projection(
    state: DatasetState, options: ScanOptions, names: tuple[str, ...], autoprojects: bool
) -> Projection:
    """See `search_projection`.

    autoprojects  whether the output has `names[0]` (`_distance` or `_score`) even if the caller's column list does not
    """
    schema = search_schema(state.schema, names)
    plain = project(schema, options.columns)
    outputs = [output for output in plain.outputs if output.path != (QUERY_INDEX,) or QUERY_INDEX not in names]
    if options.columns is None and not autoprojects:
        outputs = [output for output in outputs if output.path != (names[0],)]
    if DOC_INDEX in names and not any(output.name == DOC_INDEX for output in outputs):
        outputs.append(OutputColumn(DOC_INDEX, (DOC_INDEX,), schema.field(DOC_INDEX).to_arrow()))
    if autoprojects and not any(output.name == names[0] for output in outputs):
        outputs.append(OutputColumn(names[0], (names[0],), schema.field(names[0]).to_arrow()))
    if QUERY_INDEX in names:
        outputs.insert(0, OutputColumn(QUERY_INDEX, (QUERY_INDEX,), schema.field(QUERY_INDEX).to_arrow()))
    wanted = ((ROW_ID, options.with_row_id), (ROW_ADDRESS, options.with_row_address))
    all_outputs = replace(plain, outputs=tuple(outputs)).with_system(*(name for name, is_wanted in wanted if is_wanted))
    return _with_blob_form(state, all_outputs, names, options.blob_handling)


def _with_blob_form(
    state: DatasetState, projection: Projection, names: tuple[str, ...], blob_handling: str | None
) -> Projection:
    """The projection with blobs as bytes or as descriptions; `DatasetState.shown` accepts only columns of the table.

    names  columns that the search adds
    """
    table_outputs = tuple(output for output in projection.outputs if not _depends_on(output, names))
    with_form = iter(state.shown(replace(projection, outputs=table_outputs), blob_handling).outputs)
    outputs = [output if _depends_on(output, names) else next(with_form) for output in projection.outputs]
    return replace(projection, outputs=tuple(outputs))


def _depends_on(output: OutputColumn, names: tuple[str, ...]) -> bool:
    """Whether an output column is one of these columns, or is computed from one of them."""
    return any(path[0] in names for path in output.sources)


@dataclass(frozen=True, slots=True, eq=False)
class SearchColumns:
    """Builds the output columns of a search from rows of the table and from the columns that the search adds.

    projection   the output columns
    taken        the columns to take from the table: first the output columns that depend on no added column, in order,
                 then the sources of the filter and of the other output columns
    predicate    filter of the matches; None for no filter
    added_names  names of the columns that the search adds
    """

    projection: Projection
    taken: Projection
    predicate: Predicate | None
    added_names: tuple[str, ...]

    @classmethod
    def of(
        cls, state: DatasetState, projection: Projection, predicate: Predicate | None, names: tuple[str, ...]
    ) -> SearchColumns:
        """A builder of these output columns. names: columns that the search adds"""
        table_outputs = [output for output in projection.outputs if not _depends_on(output, names)]
        search_outputs = [output for output in projection.outputs if _depends_on(output, names)]
        paths = [path for output in search_outputs for path in output.sources]
        paths += [] if predicate is None else predicate.paths
        sources = _sources(state, [path for path in dict.fromkeys(paths) if path[0] not in names])
        return cls(projection, Projection((*table_outputs, *sources), projection.metadata), predicate, names)

    def mask(self, rows: pa.RecordBatch, added: Mapping[str, pa.Array]) -> pa.BooleanArray:
        """For each row, whether it passes the filter; parameters as for `batch`."""
        assert self.predicate is not None, "callers check that there is a filter"
        columns = self._columns(rows, added)
        names = list(dict.fromkeys(path[0] for path in self.predicate.paths))
        arrays = [columns[name] for name in names] or [pa.nulls(rows.num_rows)]
        return self.predicate.mask(pa.RecordBatch.from_arrays(arrays, names or [""]))

    def batch(self, rows: pa.RecordBatch, added: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """The output rows: the given rows that pass the filter, with the output columns.

        rows   rows of the table, with the columns of `taken`
        added  columns that the search adds, by name, with a value for each row
        """
        num_rows = rows.num_rows
        if self.predicate is not None:
            kept = numbers(true_positions(self.mask(rows, added)))
            num_rows = len(kept)
            rows = rows.take(kept) if rows.num_columns else rows
            added = {name: column.take(kept) for name, column in added.items()}
        columns, table_columns = self._columns(rows, added), iter(rows.columns)
        arrays = [
            output.values(columns, num_rows) if _depends_on(output, self.added_names) else next(table_columns)
            for output in self.projection.outputs
        ]
        if not arrays:
            return empty_columns(num_rows, self.projection.arrow_schema)
        return pa.RecordBatch.from_arrays(arrays, schema=self.projection.arrow_schema)

    def _columns(self, rows: pa.RecordBatch, added: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        """By name, the sources of the filter and of the output columns that depend on added columns."""
        num_table_outputs = sum(not _depends_on(output, self.added_names) for output in self.projection.outputs)
        sources = enumerate(self.taken.outputs[num_table_outputs:], num_table_outputs)
        return {**{output.path[0]: rows.column(column_index) for column_index, output in sources}, **added}


def prepare_take(
    state: DatasetState, projection: Projection, predicate: Predicate | None, names: tuple[str, ...]
) -> tuple[SearchColumns, PreparedTake]:
    """The builder of the output columns, and the prepared take of its table columns.

    Both are cached with the table version, unless there is a filter. names: columns that the search adds
    """
    if predicate is not None:
        columns = SearchColumns.of(state, projection, predicate, names)
        return columns, prepare(state, columns.taken)
    key = "search take", id(projection), names
    cached: tuple[Projection, SearchColumns, PreparedTake] | None = state.prepared.get(key)
    if cached is None or cached[0] is not projection:  # another projection may have got the id of a deleted one
        columns = SearchColumns.of(state, projection, None, names)
        cached = projection, columns, prepare(state, columns.taken)
        state.prepared.put(key, cached)
    return cached[1:]


def _sources(state: DatasetState, paths: Iterable[tuple[str, ...]]) -> list[OutputColumn]:
    """The system columns and top-level columns that contain these paths. Structs have only the members that paths name.

    Blobs have their stored form, which is a description.
    """
    outputs: list[OutputColumn] = []
    stored_paths: list[tuple[str, ...]] = []
    for path in paths:
        if path[0] in SYSTEM_COLUMNS:
            outputs.append(OutputColumn(path[0], path, system_field(path[0])))
        else:
            stored_paths.append(path)
    for field in prune(state.schema, stored_paths):
        field_paths = tuple(path for path in stored_paths if path[0] == field.name)
        parts = () if (field.name,) in field_paths else field_paths  # () for the whole column
        arrow = pa.field(field.name, field.describe_blobs().arrow_type)
        outputs.append(OutputColumn(field.name, (field.name,), arrow, parts=parts, narrows=bool(parts)))
    return outputs


def nearest_columns(query_indexes: np.ndarray[Any, Any], distances: np.ndarray[Any, Any]) -> dict[str, pa.Array]:
    """The columns `query_index` and `_distance` of the matches of a vector search, by name. Zero-copy.

    query_indexes  i32[n], for each match the index of its query
    distances      f32[n], for each match its distance to the query
    """
    columns = ((QUERY_INDEX, pa.int32(), query_indexes), (DISTANCE, pa.float32(), distances))
    return {
        name: pa.Array.from_buffers(dtype, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])
        for name, dtype, values in columns
    }
