"""New columns that a caller's function computes, batch by batch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from lance_io.changes.columns.batch_udf import BatchUDF
from lance_io.changes.columns.new_columns import NewColumns, open_columns
from lance_io.errors import OperationError, UsageError
from lance_io.lazy_names import lazy_module
from lance_io.levels.arrays import empty_batch
from lance_io.limits import BATCH_ROWS
from lance_io.plans.cpu_requests import Call
from lance_io.plans.streams import Each, Items, Next
from lance_io.reads.scan.execute import projected_batches
from lance_io.reads.scan.scan_options import scan_options
from lance_io.reads.version.column_lists import project_taken
from lance_io.reads.version.system_columns import ROW_ADDRESS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from lance_io.changes.columns import column_checkpoint
    from lance_io.changes.columns.column_checkpoint import ColumnCheckpoint
    from lance_io.format.schema import Schema
    from lance_io.plans.plan import Plan
    from lance_io.plans.streams import Stream
    from lance_io.reads.memory_limit import ScanBounds
    from lance_io.reads.version.state import DatasetState
else:
    column_checkpoint = lazy_module("lance_io.changes.columns.column_checkpoint")  # loads SQLite


def columns_by_function(
    state: DatasetState,
    function: Callable[[pa.RecordBatch], Any],
    read_columns: Sequence[str] | None,
    bounds: ScanBounds,
) -> Plan[NewColumns]:
    """Columns that a function, or a `BatchUDF`, computes for the rows of each fragment.

    read_columns  columns of its argument, also `_rowid` and `_rowaddr`; None for all columns
    bounds        limits of the rows of its argument
    Raises `BindError` for a missing column, `TypeError` for a function that fails on a sample, `OperationError` if the
    result for a sample is no record batch.
    """
    if bounds.batch_size is not None and bounds.batch_size < 1:
        raise UsageError(f"batch_size must be greater than zero, got {bounds.batch_size}")
    columns = state.schema.names if read_columns is None else list(read_columns)
    given = function if isinstance(function, BatchUDF) else BatchUDF(function)
    if given.output_schema is None:
        sample = yield from _sample(state, columns)
        try:
            schema = yield Call(partial(given.schema_for, sample))
        except OperationError as error:
            if isinstance(function, BatchUDF) or error.__cause__ is None:
                raise
            raise TypeError(
                "transforms must be a BatchUDF, dict, map function, or ReaderLike value. Received "
                f"{type(function)}, which is callable, but gave an error when called with a batch of data: "
                f"{error.__cause__}"
            ) from error.__cause__
        given = BatchUDF(given.func, schema, given.checkpoint_file)
    assert given.output_schema is not None
    types = [*project_taken(state.schema, columns).arrow_schema.types, *given.output_schema.types]
    options = bounds.options(types, rows_max=BATCH_ROWS)
    return _FunctionColumns(state, given, columns, options).new_columns(bounds)


def _sample(state: DatasetState, columns: Sequence[str]) -> Plan[pa.RecordBatch]:
    """The first row of the table, or an empty batch."""
    projection = project_taken(state.schema, columns)
    batches: list[pa.RecordBatch] = []
    yield Each(projected_batches(state, scan_options(limit=1), projection), batches.append)
    rows = [batch for batch in batches if batch.num_rows]
    return rows[0] if rows else empty_batch(projection.arrow_schema)


class _FunctionColumns:
    def __init__(self, state: DatasetState, function: BatchUDF, columns: list[str], options: Mapping[str, Any]) -> None:
        self._state = state
        self._function = function
        self._columns = columns
        self._options = options
        self._checkpoint: ColumnCheckpoint | None = None

    def new_columns(self, bounds: ScanBounds) -> NewColumns:
        schema = self._function.output_schema
        is_kept = self._function.checkpoint_file is not None
        return NewColumns(schema, bounds, self._values_of, finished=self._open_checkpoint if is_kept else None)

    def _open_checkpoint(self, schema: Schema) -> Plan[ColumnCheckpoint]:
        self._checkpoint = yield Call(partial(self._make_checkpoint, schema))
        return self._checkpoint

    def _make_checkpoint(self, schema: Schema) -> ColumnCheckpoint:
        assert self._function.checkpoint_file is not None
        return column_checkpoint.ColumnCheckpoint(self._function.checkpoint_file, self._state, schema, self._columns)

    def _values_of(self, fragment_id: int) -> Stream:
        scan = yield open_columns(self._state, fragment_id, self._columns, self._options)
        while (batch := (yield Next(scan))) is not None:
            if batch.num_rows:
                addresses = batch.column(ROW_ADDRESS)
                new = yield Call(partial(self._call, fragment_id, self._visible(batch), addresses))
                yield Items([new.append_column(ROW_ADDRESS, addresses)])

    def _visible(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that are passed to the function."""
        return batch if ROW_ADDRESS in self._columns else batch.drop_columns([ROW_ADDRESS])

    def _call(self, fragment_id: int, batch: pa.RecordBatch, addresses: pa.Array) -> pa.RecordBatch:
        if self._checkpoint is None:
            return self._function.new_columns(batch)
        new = self._checkpoint.find_batch(fragment_id, addresses)
        if new is None:
            new = self._function.new_columns(batch)
            self._checkpoint.add_batch(fragment_id, addresses, new)
        return new
