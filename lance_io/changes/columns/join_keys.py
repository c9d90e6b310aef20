"""The keys of both sides of a left join (`left_join.py`)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io.changes.join.keyed_rows import KeyedRows
from lance_io.changes.join.placed_rows import RowPositions
from lance_io.changes.join.row_keys import has_key, key_table, row_keys, rows_in
from lance_io.levels.arrays import numbers, values_of
from lance_io.plans.cpu_requests import Compute
from lance_io.plans.streams import EachInPlan
from lance_io.reads.memory_limit import scan_memory_options
from lance_io.reads.rows.value_widths import width_bytes
from lance_io.reads.scan.execute import projected_batches
from lance_io.reads.scan.scan_options import scan_options
from lance_io.reads.version.column_lists import project_taken
from lance_io.reads.version.system_columns import ROW_ADDRESS
from lance_io.runtime import cpu_count

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_io.changes.join.source_rows import SourceRows
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray

    Matched = tuple[IntArray, pa.RecordBatch]

ROW: Final = "#row"
ROW_BYTES: Final = 16  # of a row in addition to its key: its number, in two arrays
_KEY_ROWS: Final = 1 << 18  # of a batch of small keys


class LastRows:
    """The last row of each key.

    keyed     numbers of rows, ascending, with their keys
    null_row  the last row with a null key, if there is one
    """

    def __init__(self, keyed: KeyedRows, null_row: int | None) -> None:
        self._rows = values_of(keyed.columns.column(0))[::-1]
        self._table = key_table(keyed.keys[::-1])  # finds the first row of a key, here the last
        self._null_row = null_row

    def find(self, keys: pa.Array) -> tuple[IntArray, IntArray]:
        """Indices of the keys that have a row, ascending, and these rows."""
        is_known = has_key([keys])
        if is_known is None:
            return self.find_numbers(row_keys([keys]))
        known = np.flatnonzero(is_known)
        matched, rows = self.find_numbers(row_keys([keys.take(numbers(known))]))
        matched = known[matched]
        if self._null_row is None:
            return matched, rows
        nulls = np.flatnonzero(~is_known)
        matched, rows = np.append(matched, nulls), np.append(rows, np.full(len(nulls), self._null_row))
        order = np.argsort(matched)
        return matched[order], rows[order]

    def find_numbers(self, keys: Any) -> tuple[IntArray, IntArray]:
        """See `find`; the keys are numbers, none of them null."""
        matched, rows = self._table.find(np.ascontiguousarray(keys), cpu_count())
        return rows_in(matched), self._rows[rows_in(rows)]


def key_of(batch: pa.RecordBatch, name: str) -> pa.Array:
    """The key column, without dictionary: a null in a dictionary counts as null."""
    keys = batch.column(name)
    return keys.dictionary_decode() if pa.types.is_dictionary(keys.type) else keys


def keyed_rows(keys: pa.Array, rows: IntArray, name: str) -> tuple[KeyedRows, IntArray]:
    """Rows with their keys, and the numbers of rows with a null key."""
    keyed, without = KeyedRows.of([keys], pa.RecordBatch.from_arrays([numbers(rows)], [name]))
    return keyed, np.empty(0, np.int64) if without is None else values_of(without.column(0))


class KeyedSource:
    """Keys of the caller's rows, piece by piece."""

    def __init__(self, source: SourceRows, right_on: str) -> None:
        self._source = source
        self._right_on = right_on
        self.null_row: int | None = None  # the last row with a null key, so far

    def each(self, take: Callable[[KeyedRows], None]) -> Plan[None]:
        """Call `take` with all rows that have a key, in their order."""
        for start, _, load in self._source.pieces():
            piece = yield from load
            yield Compute(partial(self._take, start, piece, take), partial(getattr, piece, "nbytes"))

    def _take(self, start: int, piece: pa.RecordBatch, take: Callable[[KeyedRows], None]) -> None:
        rows = np.arange(start, start + piece.num_rows, dtype=np.int64)
        keyed, nulls = keyed_rows(key_of(piece, self._right_on), rows, ROW)
        if len(nulls):
            self.null_row = int(nulls[-1])
        take(keyed)


def all_last_rows(source: SourceRows, right_on: str) -> Plan[LastRows]:
    """One hash table of all keys of the caller's rows."""
    keys, parts = KeyedSource(source, right_on), list[KeyedRows]()
    yield from keys.each(lambda keyed: parts.append(keyed.kept()))
    return LastRows(KeyedRows.joined(parts), keys.null_row)


class LeftSide:
    """The rows of fragments: their keys and positions."""

    def __init__(self, state: DatasetState, fragment_indexes: Sequence[int], key: str, limit_bytes: int) -> None:
        self.key = key
        self._state = state
        self._fragment_indexes = fragment_indexes
        self._limit_bytes = limit_bytes
        self._positions = RowPositions(state, fragment_indexes)
        self.num_rows = self._positions.num_rows

    def positions(self, batch: pa.RecordBatch) -> IntArray:
        """Positions of the rows of a batch, i64, in the order of their addresses."""
        return self._positions.of(values_of(batch.column(ROW_ADDRESS)))

    def each(self, take: Callable[[pa.Array, IntArray], None]) -> Plan[None]:
        """Call `take` with the keys and positions of all rows."""
        state = self._state
        projection = project_taken(state.schema, list(dict.fromkeys([self.key, ROW_ADDRESS])))
        width = sum(map(width_bytes, projection.arrow_schema.types))
        options = scan_options(
            fragments=tuple(state.fragment_ids[index] for index in self._fragment_indexes),
            batch_size=max(1 << 10, min(_KEY_ROWS, int(self._limit_bytes / 32 / width))),
            **scan_memory_options(self._limit_bytes),
        )

        def add(batch: pa.RecordBatch) -> Plan[None]:
            if batch.num_rows:
                yield Compute(partial(self._take, batch, take), partial(getattr, batch, "nbytes"))

        yield EachInPlan(projected_batches(state, options, projection), add)

    def _take(self, batch: pa.RecordBatch, take: Callable[[pa.Array, IntArray], None]) -> None:
        take(key_of(batch, self.key), self.positions(batch))
