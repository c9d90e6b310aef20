"""For each row of the table, the last row of a caller's that has its key: a left join (spec: operations, 3.4).

    the caller's rows fit in memory  a table of their keys, which rows of the table go by
    they do not                      first keys of both sides meet, in partitions on local disk where the caller's do
                                     not fit either; then the caller's rows go, in one pass, to the part of the table
                                     that they belong to, on local disk; each part is in memory while its rows go by

A null key is equal to a null key. Other values are compared by their bits, as in pylance: a NaN is itself, -0.0 is not
0.0.
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

HELD_SHARE: Final = 4  # of the limit: rows of the caller's that are held
TABLE_SHARE: Final = 3  # a table of their keys


class JoinKeys(NamedTuple):
    """The key's column in the table, and in the caller's rows."""

    left: str
    right: str


class LeftJoin:
    """The rows of a caller's, and what rows of the table have their keys.

    state, places    the table, and the fragments whose rows go by later, in this order, all of it or one
    rows             of the caller
    limit_bytes      of the whole change
    Raises `OperationError` for a key that is not there, for keys of different types, and for rows that have nothing but
    a key.
    """

    def __init__(
        self,
        state: DatasetState,
        places: Sequence[int],
        rows: Rows | AsyncRows,
        keys: JoinKeys,
        limit_bytes: int,
    ) -> None:
        _check_keys(state, rows, *keys)
        self._state = state
        self._left = LeftSide(state, places, keys.left, limit_bytes)
        self._rows = rows
        self._right_on = keys.right
        self._limit_bytes = limit_bytes
        self._source = SourceRows(rows.schema, limit_bytes // HELD_SHARE)
        self._found: _Found | None = None
        self.fields = rows.schema.remove(rows.schema.get_field_index(keys.right))

    @property
    def bounds(self) -> ScanBounds:
        """How much of the table may be read at once."""
        return ScanBounds(None, self._limit_bytes)

    @property
    def columns(self) -> list[str]:
        """What `find` needs of the rows of the table, beside `_rowaddr`."""
        return [self._left.key] if isinstance(self._found, _InMemory) else []

    def options(self, types: Iterable[pa.DataType]) -> dict[str, Any]:
        """Options of the scan whose batches `find` is given. types: of what it reads beside `columns`."""
        read = [*types, *project_taken(self._state.schema, self.columns).arrow_schema.types]
        options = self.bounds.options(read, rows_max=BATCH_ROWS)
        return {**options, "batch_size": min(options["batch_size"], rows_at_once(self._source, self._limit_bytes))}

    def prepare(self) -> Plan[None]:
        """Pull the caller's rows, and do what has to be done before `find`. Raises `OperationError` without any."""
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
            self._found = _InMemory(last, pieces, source.starts, self._left.key, self._right_on)
        else:
            sorted_values = SortedValues(self._left, source, self._right_on, limit_bytes)
            self._found = sorted_values
            yield from sorted_values.prepare(num_tables)

    def find(self, batch: pa.RecordBatch) -> Matched:
        """The rows of a batch that have a match, as places ascending, and the caller's columns for them.

        batch  at least one row of the fragments: `columns`, and `_rowaddr`. Batches come in the order of the table
        """
        assert self._found is not None
        return self._found.find(batch)

    def work(self, make: Callable[[pa.RecordBatch], pa.RecordBatch], batch: pa.RecordBatch) -> Compute[pa.RecordBatch]:
        """Something that calls `find`."""
        return Compute(partial(make, batch), lambda: self._limit_bytes)

    def close(self) -> None:
        """Free what is held, in memory and on local disk."""
        if self._found is not None:
            self._found.close()
        self._source.close()


def planned_tables(num_rows: int, key_bytes: int, limit_bytes: int) -> int:
    """How many tables rows with keys of so many bytes are shared out to."""
    row_bytes = 2 * key_bytes + TABLE_BYTES + ROW_BYTES
    return min(BUCKETS_MAX, -(-num_rows * row_bytes // (limit_bytes // TABLE_SHARE)))


def _check_keys(state: DatasetState, rows: Rows | AsyncRows, left_on: str, right_on: str) -> None:
    """Check the key of the caller's table.

    left_on, right_on  the key's column in the dataset, and there
    Raises `OperationError` for a column that is not there, for keys of another type than the dataset's, and for a table
    that has nothing but keys.
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
        raise OperationError(f"the right side has no column but {right_on}, so that there is nothing to add")


def rows_at(values: pa.RecordBatch, places: IntArray, num_rows: int) -> pa.RecordBatch:
    """The rows of a batch in these places among `num_rows`, null elsewhere."""
    if len(places) == num_rows:
        return values
    rows = np.zeros(num_rows, np.int64)
    rows[places] = np.arange(len(places))
    is_null = np.ones(num_rows, np.bool_)
    is_null[places] = False
    return values.take(numbers(rows, is_null))


def put_rows(known: Sequence[pa.Array], places: IntArray, new: Sequence[pa.Array], names: Sequence[str]) -> list[Any]:
    """Columns whose values at some places, ascending, are others: those of `new`, which have the same types.

    Raises `SchemaError` where a dictionary column would have more values than its indices can tell apart.
    """
    if not known:
        return []
    num_rows = len(known[0])
    chosen = np.arange(num_rows)
    chosen[places] = np.arange(num_rows, num_rows + len(places))
    either, found = numbers(chosen), []
    for own, other, name in zip(known, new, names, strict=True):
        try:
            found.append(join_arrays([own, other]).take(either))
        except TooManyValues:  # the values of a dictionary, and those that take their place, need not fit together
            found.append(_put_without_dropped(own, places, other, name))
    return found


def _put_without_dropped(own: pa.Array, places: IntArray, other: pa.Array, name: str) -> pa.Array:
    is_kept = np.ones(len(own), np.bool_)
    is_kept[places] = False
    kept = taken(own, numbers(np.flatnonzero(is_kept)))
    order = np.empty(len(own), np.int64)
    order[is_kept] = np.arange(len(kept))
    order[places] = np.arange(len(kept), len(own))
    pair = [pa.RecordBatch.from_arrays([one], [name]) for one in (kept, other)]
    return join_batches(pair).column(0).take(numbers(order))


class _Found(Protocol):
    """What `LeftJoin.find` asks."""

    def find(self, batch: pa.RecordBatch) -> Matched:
        """See there."""

    def close(self) -> None:
        """Free what is held."""


# -- rows of the caller's that are in memory ---------------------------------------------------------------------------


class _InMemory:
    """The caller's rows, of which some are taken for each batch.

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
        places, rows = self._last.find(key_of(batch, self._left_on))
        return places, self._take(rows)

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
        found = parts[-1] if len(parts) <= 2 else join_batches(parts)
        if order is None:
            return found
        back = np.empty(len(rows), np.int64)
        back[order] = np.arange(len(rows))
        return found.take(numbers(back))

    def close(self) -> None:
        self._pieces = []
