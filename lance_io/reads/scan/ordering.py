"""`order_by`: a scan that is collected, sorted and cut. Sorting needs all rows, so nothing streams.

With a limit, only the ordering columns are read for all rows; the output columns follow for the remaining rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lance_io import compute as pc
from lance_io.errors import BindError
from lance_io.levels.arrays import numbers
from lance_io.levels.join import TooManyValues, holds_dictionary, join_arrays
from lance_io.levels.portable import compact
from lance_io.levels.retype import holds_json
from lance_io.reads.rows.rebatch import empty_columns
from lance_io.reads.rows.row_arithmetic import group_rows
from lance_io.reads.scan.scan_plan import scan_projection
from lance_io.reads.takes.take_rows import locate_addresses, prepare, take_grouped
from lance_io.reads.version.blob_fields import with_binaries
from lance_io.reads.version.column_lists import OutputColumn, Projection, project
from lance_io.reads.version.system_columns import ROW_ADDRESS, system_field

if TYPE_CHECKING:
    from lance_io.plans.plan import Plan
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray

_ADDRESS: Final = "address"


class Ordering:
    """One ordered scan: run `options` with `projection`, then pass the table to `finish`.

    output  output columns, if the rows are few and come with all of them
    """

    def __init__(self, state: DatasetState, options: ScanOptions, output: Projection | None = None) -> None:
        assert options.order_by is not None
        self._state = state
        self._requested = options
        self._output = output or scan_projection(state, options)
        self._late = output is None and options.limit is not None and not options.include_deleted_rows
        keys = [self._key(number, ordering.column_name) for number, ordering in enumerate(options.order_by)]
        if self._late:
            address = OutputColumn(_ADDRESS, (ROW_ADDRESS,), system_field(_ADDRESS))
            self.projection = Projection((*keys, address), None)
        else:
            self.projection = replace(self._output, outputs=(*self._output.outputs, *keys))
        self.options = replace(options, order_by=None, limit=None, offset=None)

    def _key(self, number: int, name: str) -> OutputColumn:
        try:
            (column,) = self._state.shown(project(self._state.schema, [name]), self._requested.blob_handling).outputs
        except BindError as error:
            raise BindError(f"Column {name} not found: {error.message}") from error
        dtype = column.field.type
        if holds_json(dtype):  # sorted by its stored form, not its text
            dtype = self._stored_type(column)
        return replace(column, name=_key_name(number), field=pa.field(_key_name(number), dtype))

    def _stored_type(self, column: OutputColumn) -> pa.DataType:
        field = self._state.field_at(column.path)
        shown = with_binaries(field) if self._requested.blob_handling == "all_binary" else field.describe_blobs()
        return shown.arrow_type

    def finish(self, table: pa.Table) -> Plan[pa.Table]:
        """Sort, cut and complete the rows of the scan."""
        order = self._sort(table)
        if not self._late:  # drops the keys last, because a table without columns loses its number of rows
            return rows_in_order(table, order).select(range(len(self._output.outputs)))
        addresses = table.column(_ADDRESS).take(order).to_numpy().astype(np.int64)
        fragment_indexes, offsets = yield from locate_addresses(self._state, addresses)
        prepared = prepare(self._state, self._output)
        return (yield from take_grouped(self._state, group_rows(fragment_indexes, offsets), prepared))

    def _sort(self, table: pa.Table) -> pa.Array:
        assert self._requested.order_by is not None
        from lance_io.filters.value_order import sortable

        first_key = 0 if self._late else len(self._output.outputs)
        keys, sort_keys = {}, []
        for number, ordering in enumerate(self._requested.order_by):
            name = _key_name(number)
            keys[name] = sortable(
                table.column(first_key + number), nulls_below=ordering.nulls_first is ordering.ascending
            )
            direction = "ascending" if ordering.ascending else "descending"
            sort_keys.append((name, direction, "at_start" if ordering.nulls_first else "at_end"))
        order = pc.sort_indices(pa.table(keys), sort_keys=sort_keys)
        first = min(self._requested.offset or 0, len(order))
        return order.slice(first, self._requested.limit)


def _key_name(number: int) -> str:
    return f"key {number}"  # a name with a blank cannot clash: outputs are selected by position


def rows_in_order(table: pa.Table, order: pa.Array) -> pa.Table:
    """Rows in another order; several chunks of a dictionary column if one would have too many values."""
    if not table.num_columns:  # pyarrow would forget the number of rows
        return pa.Table.from_batches([empty_columns(len(order), table.schema)])
    columns = []
    for column in table.columns:
        chunks = [compact(chunk) for chunk in column.chunks]
        if len(chunks) > 1 and holds_dictionary(column.type):  # pyarrow joins whole dictionaries, and misreads halves
            starts = np.cumsum([0, *map(len, chunks)])
            taken = pa.chunked_array(_chunk_rows(chunks, starts, order.to_numpy().astype(np.int64)), column.type)
        else:
            taken = pa.chunked_array(chunks, column.type).take(order)
        columns.append(taken)
    return pa.Table.from_arrays(columns, schema=table.schema)


def _chunk_rows(chunks: list[pa.Array], starts: IntArray, rows: IntArray) -> list[pa.Array]:
    """Rows of all chunks, which begin at `starts`, in as few arrays as indices of their dictionaries allow."""
    numbers_of_chunks = np.searchsorted(starts, rows, side="right") - 1
    order = np.argsort(numbers_of_chunks, kind="stable")
    chunk_numbers, firsts = np.unique(numbers_of_chunks[order], return_index=True)
    parts = [
        chunks[number].take(numbers(rows[picks] - starts[number]))
        for number, picks in zip(chunk_numbers.tolist(), np.split(order, firsts[1:]), strict=True)
    ]
    if not parts:
        return []
    try:
        back = np.empty(len(rows), np.int64)
        back[order] = np.arange(len(rows))
        return [join_arrays(parts).take(numbers(back))]
    except TooManyValues:
        half = len(rows) // 2
        return [*_chunk_rows(chunks, starts, rows[:half]), *_chunk_rows(chunks, starts, rows[half:])]
