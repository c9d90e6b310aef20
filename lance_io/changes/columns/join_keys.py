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
from lance_io.reads.memory_limit import scan_bounds
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
ROW_BYTES: Final = 16  # of a row beside its key: its number, here and in what is joined
_KEY_ROWS: Final = 1 << 18  # whose keys go by at once, where these are small


class LastRows:
    """Of rows with keys, the last one of each key.

    keyed     rows, in ascending order: their numbers
    null_row  the last row whose key is null, if there is one
    """

    def __init__(self, keyed: KeyedRows, null_row: int | None) -> None:
        self._rows = values_of(keyed.columns.column(0))[::-1]
        self._table = key_table(keyed.keys[::-1])  # which finds the first one
        self._null_row = null_row

    def find(self, keys: pa.Array) -> tuple[IntArray, IntArray]:
        """Places of the keys that are there, ascending, and the row of each."""
        is_known = has_key([keys])
        if is_known is None:
            return self.find_numbers(row_keys([keys]))
        known = np.flatnonzero(is_known)
        places, rows = self.find_numbers(row_keys([keys.take(numbers(known))]))
        places = known[places]
        if self._null_row is None:
            return places, rows
        nulls = np.flatnonzero(~is_known)
        every, of_every = np.append(places, nulls), np.append(rows, np.full(len(nulls), self._null_row))
        order = np.argsort(every)
        return every[order], of_every[order]

    def find_numbers(self, keys: Any) -> tuple[IntArray, IntArray]:
        """The same for keys as numbers, none of which is null."""
        places, rows = self._table.find(np.ascontiguousarray(keys), cpu_count())
        return rows_in(places), self._rows[rows_in(rows)]


def key_of(batch: pa.RecordBatch, name: str) -> pa.Array:
    """The key column; a null in a dictionary is a null."""
    keys = batch.column(name)
    return keys.dictionary_decode() if pa.types.is_dictionary(keys.type) else keys


def keyed_rows(keys: pa.Array, rows: IntArray, name: str) -> tuple[KeyedRows, IntArray]:
    """Rows with their keys, and the numbers of those whose key is null."""
    keyed, without = KeyedRows.of([keys], pa.RecordBatch.from_arrays([numbers(rows)], [name]))
    return keyed, np.empty(0, np.int64) if without is None else values_of(without.column(0))


class KeyedSource:
    """Keys of the caller's rows, piece by piece."""

    def __init__(self, source: SourceRows, right_on: str) -> None:
        self._source = source
        self._right_on = right_on
        self.null_row: int | None = None  # the last one, of those that have gone by

    def each(self, take: Callable[[KeyedRows], None]) -> Plan[None]:
        """Give all rows that have keys away, in their order."""
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
    """One table of all keys of the caller's."""
    keys, parts = KeyedSource(source, right_on), list[KeyedRows]()
    yield from keys.each(lambda keyed: parts.append(keyed.kept()))
    return LastRows(KeyedRows.joined(parts), keys.null_row)


class LeftSide:
    """The rows of the fragments: their keys, and where they are among all rows of these."""

    def __init__(self, state: DatasetState, places: Sequence[int], key: str, limit_bytes: int) -> None:
        self.key = key
        self._state = state
        self._places = places
        self._limit_bytes = limit_bytes
        self._positions = RowPositions(state, places)
        self.num_rows = self._positions.num_rows

    def positions(self, batch: pa.RecordBatch) -> IntArray:
        """Of the rows of a batch, i64, ascending as their addresses do."""
        return self._positions.of(values_of(batch.column(ROW_ADDRESS)))

    def each(self, take: Callable[[pa.Array, IntArray], None]) -> Plan[None]:
        """Give the keys of all rows away, and the positions of these."""
        state = self._state
        projection = project_taken(state.schema, list(dict.fromkeys([self.key, ROW_ADDRESS])))
        width = sum(map(width_bytes, projection.arrow_schema.types))
        options = scan_options(
            fragments=tuple(state.fragment_ids[place] for place in self._places),
            batch_size=max(1 << 10, min(_KEY_ROWS, int(self._limit_bytes / 32 / width))),
            **scan_bounds(self._limit_bytes),
        )

        def add(batch: pa.RecordBatch) -> Plan[None]:
            if batch.num_rows:
                yield Compute(partial(self._give, batch, take), partial(getattr, batch, "nbytes"))

        yield EachInPlan(projected_batches(state, options, projection), add)

    def _give(self, batch: pa.RecordBatch, take: Callable[[pa.Array, IntArray], None]) -> None:
        take(key_of(batch, self.key), self.positions(batch))
