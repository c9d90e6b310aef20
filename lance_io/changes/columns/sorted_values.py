"""A caller's rows, sorted on local disk into the order of the table rows that get their values (`left_join.py`).

join of keys -> pairs of a caller's row and a position in the table, in buckets by row
sorted pairs of each bucket: the caller's rows, piece by piece -> values and positions, in buckets by position
scan of the table: the bucket of its rows is in memory
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io.changes.columns.join_keys import ROW, KeyedSource, LastRows, all_last_rows, keyed_rows
from lance_io.changes.join.keyed_rows import KeyedRows
from lance_io.changes.join.placed_rows import POSITION_BYTES, PlacedRows
from lance_io.changes.join.row_keys import partitions
from lance_io.changes.join.spilled_batches import BUCKETS_MAX, Buckets
from lance_io.levels.arrays import numbers, values_of
from lance_io.levels.portable import compact_batch
from lance_io.levels.row_sizes import cut_by_size, row_sizes
from lance_io.limits import BATCH_ROWS
from lance_io.plans.cpu_requests import Compute
from lance_io.reads.memory_limit import batch_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lance_io.changes.columns.join_keys import LeftSide, Matched
    from lance_io.changes.join.source_rows import SourceRows
    from lance_io.plans.plan import Plan
    from lance_io.spans import IntArray

BUCKETS_SHARE: Final = 8  # 1/8 of the memory limit each: rows that wait to be spilled, and a bucket that is read
_POSITION: Final = "#position"
_PAIR_BYTES: Final = 16  # the number of a caller's row, and a position


class SortedValues:
    """The values of a caller's rows for the rows of a table.

    limit_bytes  memory limit of the whole change
    """

    def __init__(self, left: LeftSide, source: SourceRows, right_on: str, limit_bytes: int) -> None:
        self._left = left
        self._source = source
        self._right_on = right_on
        self._limit_bytes = limit_bytes
        self._share_bytes = limit_bytes // BUCKETS_SHARE
        num_buckets = -(-left.num_rows * _PAIR_BYTES // self._share_bytes)
        self._pairs = Buckets(max(1, min(BUCKETS_MAX, num_buckets)), self._share_bytes)  # by the caller's row
        self._num_pairs = 0
        self._values: PlacedRows | None = None

    def prepare(self, num_tables: int) -> Plan[None]:
        """Find all matches and sort values by position. num_tables: number of hash tables for the keys."""
        if num_tables == 1:
            yield from self._match_all((yield from all_last_rows(self._source, self._right_on)))
        else:
            yield from self._match_parts(num_tables)
        row_bytes = self._source.num_bytes / self._source.num_rows + POSITION_BYTES
        num_bytes = int(self._num_pairs * row_bytes)
        fields = self._source.schema.remove(self._source.schema.get_field_index(self._right_on))
        self._values = PlacedRows(fields, self._left.num_rows, num_bytes, self._share_bytes)
        for bucket in range(self._pairs.num_buckets):
            pairs = yield self._compute(partial(self._sorted_pairs, bucket))
            if pairs is None:
                continue
            rows, positions = pairs
            for first, last, load in self._source.pieces(int(rows[0]), int(rows[-1]) + 1):
                low, high = np.searchsorted(rows, [first, last]).tolist()
                if low < high:
                    piece = yield from load
                    put = partial(self._put, piece, rows[low:high] - first, positions[low:high], self._values)
                    yield self._compute(put)
        self._pairs.close()
        self._source.close()

    def _compute(self, work: Callable[[], Any]) -> Compute[Any]:
        return Compute(work, lambda: self._limit_bytes)

    # -- join of keys -------------------------------------------------------------------------------------------------

    def _match_all(self, last: LastRows) -> Plan[None]:
        def add(keys: pa.Array, positions: IntArray) -> None:
            matched, rows = last.find(keys)
            self._add_pairs(rows, positions[matched])

        yield from self._left.each(add)

    def _match_parts(self, num_parts: int) -> Plan[None]:
        right, left = (Buckets(num_parts, self._share_bytes // 2) for _ in range(2))
        keys = KeyedSource(self._source, self._right_on)

        def add(keys_here: pa.Array, positions: IntArray) -> None:
            keyed, nulls = keyed_rows(keys_here, positions, _POSITION)
            _put(left, keyed)
            if keys.null_row is not None:
                self._add_pairs(np.full(len(nulls), keys.null_row), nulls)

        try:
            yield from keys.each(partial(_put, right))
            yield from self._left.each(add)
            for part in range(num_parts):
                yield self._compute(partial(self._match_part, right.take(part), left.take(part)))
        finally:
            right.close()
            left.close()

    def _match_part(self, right: Iterable[pa.RecordBatch], left: Iterable[pa.RecordBatch]) -> None:
        parts = [KeyedRows.unpacked(batch) for batch in right]
        last = LastRows(KeyedRows.joined(parts), None) if parts else None
        parts.clear()
        for batch in left:
            if last is not None:
                keyed = KeyedRows.unpacked(batch)
                matched, rows = last.find_numbers(keyed.keys)
                self._add_pairs(rows, values_of(keyed.columns.column(0))[matched])

    def _add_pairs(self, rows: IntArray, positions: IntArray) -> None:
        """Add pairs of a caller's row and the position of the table row that gets its values."""
        batch = pa.RecordBatch.from_arrays([numbers(rows), numbers(positions)], [ROW, _POSITION])
        self._num_pairs += len(rows)
        self._pairs.add(batch, rows * self._pairs.num_buckets // self._source.num_rows)

    def _sorted_pairs(self, bucket: int) -> tuple[IntArray, IntArray] | None:
        parts = list(self._pairs.take(bucket))
        if not parts:
            return None
        pairs = pa.concat_batches(parts)
        rows, positions = values_of(pairs.column(0)), values_of(pairs.column(1))
        order = np.argsort(rows, kind="stable")
        return rows[order], positions[order]

    def _put(self, piece: pa.RecordBatch, rows: IntArray, positions: IntArray, placed: PlacedRows) -> None:
        values = compact_batch(piece.drop_columns([self._right_on]))
        for start, end in cut_by_size(row_sizes(values.columns, values.num_rows)[rows], batch_bytes(self._limit_bytes)):
            placed.add(values.take(numbers(rows[start:end])), positions[start:end])

    # -- values in the order of the table -----------------------------------------------------------------------------

    def find(self, batch: pa.RecordBatch) -> Matched:
        """See `LeftJoin.find`."""
        assert self._values is not None
        return self._values.find(self._left.positions(batch))

    def close(self) -> None:
        """Free memory and local disk."""
        self._pairs.close()
        if self._values is not None:
            self._values.close()


def _put(side: Buckets, rows: KeyedRows) -> None:
    side.add(rows.packed(), partitions(rows.keys, side.num_buckets))


def rows_at_once(source: SourceRows, limit_bytes: int) -> int:
    """Number of the caller's rows that fit into a small part of the limit."""
    return max(1, min(BATCH_ROWS, limit_bytes * source.num_rows // max(1, 32 * source.num_bytes)))
