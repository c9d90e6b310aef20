"""A left join: for each row of the table, the last of the caller's rows with its key (spec: operations, 3.4).

    the caller's rows fit in memory  a hash table of their keys; the table is scanned
    they do not                      1. keys of both sides are joined, in partitions on local disk if the caller's keys
                                        do not fit in memory either
                                     2. in one pass, the caller's rows are partitioned by position in the table, on
                                        local disk
                                     3. the table is scanned; one partition at a time is in memory

A null key equals a null key. Other values are compared by their bits, as in pylance: a NaN equals itself, -0.0 differs
from 0.0.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from lance_io.changes.columns.join_keys import ROW_BYTES, LeftSide, all_last_rows, key_of
from lance_io.changes.columns.sorted_values import SortedValues, rows_at_once
from lance_io.changes.join.row_keys import TABLE_BYTES, key_width
from lance_io.changes.join.source_rows import SourceRows
from lance_io.changes.join.spilled_batches import BUCKETS_MAX
from lance_io.errors import OperationError
from lance_io.levels.arrays import numbers
from lance_io.levels.join import TooManyValues, join_arrays, join_batches
from lance_io.levels.portable import compact_batch, taken
from lance_io.levels.retype import is_alike
from lance_io.limits import BATCH_ROWS
from lance_io.plans.cpu_requests import Compute
from lance_io.reads.memory_limit import ScanBounds
from lance_io.reads.version.column_lists import project_taken
from lance_io.reads.version.system_columns import ROW_ADDRESS, ROW_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lance_io.changes.columns.join_keys import LastRows, Matched
    from lance_io.changes.write.input_data import AsyncRows, Rows
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray

HELD_SHARE: Final = 4  # 1/4 of the memory limit: the caller's rows
TABLE_SHARE: Final = 3  # 1/3 of the memory limit: a hash table of their keys


class JoinKeys(NamedTuple):
    """Key columns of the table (left) and of the caller's rows (right)."""

    left: str
    right: str


class LeftJoin:
    """A join of the caller's rows with rows of the table.

    fragment_indexes  fragments whose rows are scanned, in this order: all fragments of the table, or one
    rows              the caller's rows
    limit_bytes       memory limit of the whole change
    Raises `OperationError` for a missing key column, for keys of different types, and for rows without other columns.
    """

    def __init__(
        self,
        state: DatasetState,
        fragment_indexes: Sequence[int],
        rows: Rows | AsyncRows,
        keys: JoinKeys,
        limit_bytes: int,
    ) -> None:
        _check_keys(state, rows, *keys)
        self._state = state
        self._left = LeftSide(state, fragment_indexes, keys.left, limit_bytes)
        self._rows = rows
        self._right_on = keys.right
        self._limit_bytes = limit_bytes
        self._source = SourceRows(rows.schema, limit_bytes // HELD_SHARE)
        self._joined: _JoinedRows | None = None
        self.fields = rows.schema.remove(rows.schema.get_field_index(keys.right))

    @property
    def bounds(self) -> ScanBounds:
        """Limits of scans of the table."""
        return ScanBounds(None, self._limit_bytes)

    @property
    def columns(self) -> list[str]:
        """Columns of the table that `find` needs, besides `_rowaddr`."""
        return [self._left.key] if isinstance(self._joined, _InMemory) else []

    def options(self, types: Iterable[pa.DataType]) -> dict[str, Any]:
        """Options of the scan that feeds `find`. types: types of the columns that it reads besides `columns`."""
        read = [*types, *project_taken(self._state.schema, self.columns).arrow_schema.types]
        options = self.bounds.options(read, rows_max=BATCH_ROWS)
        return {**options, "batch_size": min(options["batch_size"], rows_at_once(self._source, self._limit_bytes))}

    def prepare(self) -> Plan[None]:
        """Pull the caller's rows and prepare `find`. Raises `OperationError` if there are no rows."""
        source, limit_bytes = self._source, self._limit_bytes
        yield from source.pull(self._rows)
        if not source.num_rows:
            raise OperationError("HashJoiner: No data: the right side has no rows")
        key_type = source.schema.field(self._right_on).type
        num_tables = planned_tables(source.num_rows, key_width([key_type]), limit_bytes)
        if num_tables == 1 and not source.is_spilled:
            pieces = []
            for _, _, load in source.pieces():
                pieces.append((yield from load))
            last = yield from all_last_rows(source, self._right_on)
            self._joined = _InMemory(last, pieces, source.starts, self._left.key, self._right_on)
        else:
            sorted_values = SortedValues(self._left, source, self._right_on, limit_bytes)
            self._joined = sorted_values
            yield from sorted_values.prepare(num_tables)

    def find(self, batch: pa.RecordBatch) -> Matched:
        """Indices of the rows with a match, ascending, and the caller's columns for them.

        batch  at least one row of the fragments: `columns`, and `_rowaddr`. Call with batches in the order of the table
        """
        assert self._joined is not None
        return self._joined.find(batch)

    def work(self, make: Callable[[pa.RecordBatch], pa.RecordBatch], batch: pa.RecordBatch) -> Compute[pa.RecordBatch]:
        """A request that computes `make(batch)`; for functions that call `find`."""
        return Compute(partial(make, batch), lambda: self._limit_bytes)

    def close(self) -> None:
        """Free memory and local disk."""
        if self._joined is not None:
            self._joined.close()
        self._source.close()


def planned_tables(num_rows: int, key_bytes: int, limit_bytes: int) -> int:
    """Number of hash tables that rows with keys of `key_bytes` are split into."""
    row_bytes = 2 * key_bytes + TABLE_BYTES + ROW_BYTES
    return min(BUCKETS_MAX, -(-num_rows * row_bytes // (limit_bytes // TABLE_SHARE)))


def _check_keys(state: DatasetState, rows: Rows | AsyncRows, left_on: str, right_on: str) -> None:
    """Check the keys of a join.

    left_on, right_on  key columns of the dataset and of the caller's table
    Raises `OperationError` for a missing column, for keys of different types, and for a table without other columns.
    """
    known = (*state.schema.names, ROW_ID, ROW_ADDRESS)
    if left_on not in known:
        raise OperationError(f"Column {left_on} does not exist in the left side dataset")
    left = project_taken(state.schema, [left_on]).arrow_schema.field(0)
    if right_on not in rows.schema.names:
        raise OperationError(f"Column {right_on} does not exist in the right side dataset")
    right = rows.schema.field(right_on)
    if not is_alike(left.type, right.type):
        raise OperationError(f"Index column type mismatch: expected {right.type}, got {left.type}")
    if len(rows.schema) == 1:
        raise OperationError(f"the right side has no column except {right_on}: nothing to add")


def rows_at(values: pa.RecordBatch, positions: IntArray, num_rows: int) -> pa.RecordBatch:
    """Spread rows over `num_rows` rows: at `positions`, null elsewhere."""
    if len(positions) == num_rows:
        return values
    rows = np.zeros(num_rows, np.int64)
    rows[positions] = np.arange(len(positions))
    is_null = np.ones(num_rows, np.bool_)
    is_null[positions] = False
    return values.take(numbers(rows, is_null))


def put_rows(
    known: Sequence[pa.Array], positions: IntArray, new: Sequence[pa.Array], names: Sequence[str]
) -> list[Any]:
    """Replace values of columns at `positions`, ascending, by those of `new`, which have the same types.

    Raises `SchemaError` if a dictionary column would exceed its index type.
    """
    if not known:
        return []
    num_rows = len(known[0])
    chosen = np.arange(num_rows)
    chosen[positions] = np.arange(num_rows, num_rows + len(positions))
    either, columns = numbers(chosen), []
    for own, other, name in zip(known, new, names, strict=True):
        try:
            columns.append(join_arrays([own, other]).take(either))
        except TooManyValues:  # old and new values of a dictionary together: the replaced ones may leave room
            columns.append(_put_without_dropped(own, positions, other, name))
    return columns


def _put_without_dropped(own: pa.Array, positions: IntArray, other: pa.Array, name: str) -> pa.Array:
    is_kept = np.ones(len(own), np.bool_)
    is_kept[positions] = False
    kept = taken(own, numbers(np.flatnonzero(is_kept)))
    order = np.empty(len(own), np.int64)
    order[is_kept] = np.arange(len(kept))
    order[positions] = np.arange(len(kept), len(own))
    pair = [pa.RecordBatch.from_arrays([array], [name]) for array in (kept, other)]
    return join_batches(pair).column(0).take(numbers(order))


class _JoinedRows(Protocol):
    """Finds matches for `LeftJoin.find`."""

    def find(self, batch: pa.RecordBatch) -> Matched:
        """See `LeftJoin.find`."""

    def close(self) -> None:
        """Free memory and local disk."""


# -- the caller's rows in memory ---------------------------------------------------------------------------------------


class _InMemory:
    """The caller's rows in memory.

    pieces, starts  all rows, and the number of the first row of each piece
    """

    def __init__(
        self, last: LastRows, pieces: Sequence[pa.RecordBatch], starts: Sequence[int], left_on: str, right_on: str
    ) -> None:
        self._last = last
        self._pieces = [compact_batch(piece.drop_columns([right_on])) for piece in pieces]
        self._starts = np.array(starts, np.int64)
        self._left_on = left_on

    def find(self, batch: pa.RecordBatch) -> Matched:
        matched, rows = self._last.find(key_of(batch, self._left_on))
        return matched, self._take(rows)

    def _take(self, rows: IntArray) -> pa.RecordBatch:
        if len(self._pieces) == 1:
            return self._pieces[0].take(numbers(rows))
        is_ordered = bool((rows[1:] >= rows[:-1]).all())
        order = None if is_ordered else np.argsort(rows, kind="stable")
        ascending = rows if order is None else rows[order]
        bounds = np.append(np.searchsorted(ascending, self._starts), len(rows))
        parts = [self._pieces[0].slice(0, 0)]
        for piece in np.flatnonzero(bounds[1:] > bounds[:-1]).tolist():
            chosen = ascending[bounds[piece] : bounds[piece + 1]] - self._starts[piece]
            parts.append(self._pieces[piece].take(numbers(chosen)))
        taken_rows = parts[-1] if len(parts) <= 2 else join_batches(parts)
        if order is None:
            return taken_rows
        back = np.empty(len(rows), np.int64)
        back[order] = np.arange(len(rows))
        return taken_rows.take(numbers(back))

    def close(self) -> None:
        self._pieces = []
