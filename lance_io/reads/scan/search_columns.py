"""Output columns of a search: those of the table, `_distance` or `_score`, and `query_index` for several queries.

    _distance    float32, distance between the row and the query
    _score       float32 of a full-text search
    _doc_index   list of uint32, the position of the matching element in a list of texts
    query_index  int32, index of the query

In column lists and filters, these columns come after the table's. The output is as in pylance: `query_index` comes
first, and `_distance` or `_score` last unless the caller names it.
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
    """The columns that a search adds to those of a table."""
    return (DISTANCE, QUERY_INDEX) if query.is_batch and not column_is_multi else (DISTANCE,)


def search_schema(schema: Schema, names: tuple[str, ...]) -> Schema:
    """The table's schema plus the columns of a search. Raises `UsageError` if the table has such a column."""
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
    """The output columns of a search. Raises the errors of `vector_column` and `project`."""
    query = query_of(options)
    column = vector_column(state.schema, query)
    column.metric(query.metric)
    return search_projection(state, options, search_column_names(query, column.is_multi))


def query_of(options: ScanOptions) -> VectorQuery:
    """The search of a scan that has one."""
    query: VectorQuery | None = options.nearest
    assert query is not None, "asked for where there is one"
    return query


def search_projection(state: DatasetState, options: ScanOptions, names: tuple[str, ...]) -> Projection:
    """The output columns of a search that adds some columns, first the one by which it orders rows."""
    shows_more = not options.hints.get("disable_scoring_autoprojection")
    asked = columns_key(options.columns), options.with_row_id, options.with_row_address, options.blob_handling
    key = ("search", names, shows_more, *asked)
    projection: Projection | None = state.prepared.get(key)
    if projection is None:
        projection = _made_projection(state, options, names, shows_more)
        state.prepared.put(key, projection)
    return projection


def _made_projection(state: DatasetState, options: ScanOptions, names: tuple[str, ...], shows_more: bool) -> Projection:
    schema = search_schema(state.schema, names)
    plain = project(schema, options.columns)
    outputs = [output for output in plain.outputs if output.path != (QUERY_INDEX,) or QUERY_INDEX not in names]
    if options.columns is None and not shows_more:
        outputs = [output for output in outputs if output.path != (names[0],)]
    if DOC_INDEX in names and not any(output.name == DOC_INDEX for output in outputs):
        outputs.append(OutputColumn(DOC_INDEX, (DOC_INDEX,), schema.field(DOC_INDEX).to_arrow()))
    if shows_more and not any(output.name == names[0] for output in outputs):
        outputs.append(OutputColumn(names[0], (names[0],), schema.field(names[0]).to_arrow()))
    if QUERY_INDEX in names:
        outputs.insert(0, OutputColumn(QUERY_INDEX, (QUERY_INDEX,), schema.field(QUERY_INDEX).to_arrow()))
    wanted = ((ROW_ID, options.with_row_id), (ROW_ADDRESS, options.with_row_address))
    all_outputs = replace(plain, outputs=tuple(outputs)).with_system(*(name for name, is_wanted in wanted if is_wanted))
    stored = replace(all_outputs, outputs=tuple(output for output in all_outputs.outputs if not _names(output, names)))
    shown = iter(state.shown(stored, options.blob_handling).outputs)
    return replace(
        all_outputs, outputs=tuple(output if _names(output, names) else next(shown) for output in all_outputs.outputs)
    )


def _names(output: OutputColumn, names: tuple[str, ...]) -> bool:
    """Whether an output depends on columns that a search adds."""
    return any(path[0] in names for path in output.sources)


@dataclass(frozen=True, slots=True, eq=False)
class SearchColumns:
    """How output columns are built from taken rows and from the columns of the search.

    projection  the result
    taken       columns to take: those of the result that the table has, in order, then sources of computed ones
    predicate   filter of the matches, or None
    names       columns that the search adds
    """

    projection: Projection
    taken: Projection
    predicate: Predicate | None
    names: tuple[str, ...]

    @classmethod
    def of(
        cls, state: DatasetState, projection: Projection, predicate: Predicate | None, names: tuple[str, ...]
    ) -> SearchColumns:
        """The columns to take for a result."""
        own = [output for output in projection.outputs if not _names(output, names)]
        computed = [output for output in projection.outputs if _names(output, names)]
        paths = [path for output in computed for path in output.sources]
        paths += [] if predicate is None else predicate.paths
        sources = _sources(state, [path for path in dict.fromkeys(paths) if path[0] not in names])
        return cls(projection, Projection((*own, *sources), projection.metadata), predicate, names)

    def mask(self, rows: pa.RecordBatch, added: Mapping[str, pa.Array]) -> pa.BooleanArray:
        """Which rows pass the filter; parameters as for `batch`."""
        assert self.predicate is not None, "asked for where there is one"
        columns = self._columns(rows, added)
        names = list(dict.fromkeys(path[0] for path in self.predicate.paths))
        arrays = [columns[name] for name in names] or [pa.nulls(rows.num_rows)]
        return self.predicate.mask(pa.RecordBatch.from_arrays(arrays, names or [""]))

    def batch(self, rows: pa.RecordBatch, added: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """The result of taken rows, without those that the filter drops.

        rows   with the columns of `taken`
        added  columns of the search, by name
        """
        num_rows = rows.num_rows
        if self.predicate is not None:
            kept = numbers(true_positions(self.mask(rows, added)))
            num_rows = len(kept)
            rows = rows.take(kept) if rows.num_columns else rows
            added = {name: column.take(kept) for name, column in added.items()}
        columns, plain = self._columns(rows, added), iter(rows.columns)
        arrays = [
            output.values(columns, num_rows) if _names(output, self.names) else next(plain)
            for output in self.projection.outputs
        ]
        if not arrays:
            return empty_columns(num_rows, self.projection.arrow_schema)
        return pa.RecordBatch.from_arrays(arrays, schema=self.projection.arrow_schema)

    def _columns(self, rows: pa.RecordBatch, added: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        """Sources of the filter and of computed columns, by name."""
        first = sum(not _names(output, self.names) for output in self.projection.outputs)
        sources = enumerate(self.taken.outputs[first:], first)
        return {**{output.path[0]: rows.column(column_index) for column_index, output in sources}, **added}


def columns_to_take(
    state: DatasetState, projection: Projection, predicate: Predicate | None, names: tuple[str, ...]
) -> tuple[SearchColumns, PreparedTake]:
    """How the result is built, and the take for it; kept with the version for results without a filter."""
    if predicate is not None:
        columns = SearchColumns.of(state, projection, predicate, names)
        return columns, prepare(state, columns.taken)
    key = "search take", id(projection), names
    kept: tuple[Projection, SearchColumns, PreparedTake] | None = state.prepared.get(key)
    if kept is None or kept[0] is not projection:
        columns = SearchColumns.of(state, projection, None, names)
        kept = projection, columns, prepare(state, columns.taken)
        state.prepared.put(key, kept)
    return kept[1:]


def _sources(state: DatasetState, paths: Iterable[tuple[str, ...]]) -> list[OutputColumn]:
    """Top-level and system columns as they are stored, with the members that these paths name."""
    outputs: list[OutputColumn] = []
    stored: list[tuple[str, ...]] = []
    for path in paths:
        if path[0] in SYSTEM_COLUMNS:
            outputs.append(OutputColumn(path[0], path, system_field(path[0])))
        else:
            stored.append(path)
    for field in prune(state.schema, stored):
        shown = field.describe_blobs()
        its = tuple(path for path in stored if path[0] == field.name)
        parts = () if (field.name,) in its else its
        arrow = pa.field(field.name, shown.arrow_type)
        outputs.append(OutputColumn(field.name, (field.name,), arrow, parts=parts, narrows=bool(parts)))
    return outputs


def search_arrays(queries: np.ndarray[Any, Any], distances: np.ndarray[Any, Any]) -> dict[str, pa.Array]:
    """Columns that a search adds to rows, by name.

    queries    i32[n], the query of each match
    distances  f32[n]
    """
    arrays = ((QUERY_INDEX, pa.int32(), queries), (DISTANCE, pa.float32(), distances))
    return {
        name: pa.Array.from_buffers(dtype, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])
        for name, dtype, values in arrays
    }
