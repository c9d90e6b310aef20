"""Rows of a caller's by where they belong in the table: they come in any order, and go as the table goes by.

On the way they lie in parts of the table, in memory and on local disk beyond; a part is in memory while its rows go by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lance_io.changes.join.spilled_batches import BUCKETS_MAX, Buckets
from lance_io.levels.arrays import empty_batch, numbers, values_of
from lance_io.levels.join import join_batches
from lance_io.levels.portable import compact_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray

POSITION_BYTES: Final = 8
_POSITION: Final = "#position"


class RowPositions:
    """Where rows are among all rows of some fragments, deleted ones included.

    places  of the fragments, in their order
    """

    def __init__(self, state: DatasetState, places: Sequence[int]) -> None:
        self._state = state
        sizes = np.zeros(len(state.all_places), np.int64)
        sizes[list(places)] = state.physical_rows[list(places)]
        self.num_rows = int(sizes.sum())
        self._starts = np.cumsum(sizes) - sizes

    def of(self, addresses: npt.NDArray[np.uint64]) -> IntArray:
        """Positions of rows given by their addresses, i64."""
        places = self._state.places_of((addresses >> np.uint64(32)).astype(np.int64))
        found: IntArray = self._starts[places] + (addresses & np.uint64(0xFFFF_FFFF)).astype(np.int64)
        return found


class PlacedRows:
    """Rows of one schema, of which a position has one at most.

    num_positions  of the rows of the table
    num_bytes      of all rows that will come, about
    share_bytes    that are in memory while they wait for local disk, and once they come back
    """

    def __init__(self, schema: pa.Schema, num_positions: int, num_bytes: int, share_bytes: int) -> None:
        self._num_positions = num_positions
        num_parts = min(BUCKETS_MAX, num_positions, -(-num_bytes // share_bytes))
        self._buckets = Buckets(max(1, num_parts), share_bytes)
        self._part = -1  # the one that is in memory
        self._empty = empty_batch(schema.append(pa.field(_POSITION, pa.int64())))
        self._rows = self._empty
        self._positions = np.empty(0, np.int64)  # of these rows, ascending
        self._order = np.empty(0, np.int64)  # in which they are

    def add(self, rows: pa.RecordBatch, positions: IntArray) -> None:
        """Rows, and the position that each of them belongs to."""
        placed = pa.RecordBatch.from_arrays([*rows.columns, numbers(positions)], schema=self._empty.schema)
        self._buckets.add(placed, positions * self._buckets.num_buckets // self._num_positions)

    def find(self, positions: IntArray) -> tuple[IntArray, pa.RecordBatch]:
        """Which of these positions have a row, as places ascending, and these rows.

        positions  at least one, ascending; each call begins behind where the one before it has ended
        """
        first, last = int(positions[0]), int(positions[-1])
        found, parts = [], []
        while True:
            low, high = np.searchsorted(self._positions, [first, last + 1]).tolist()
            found.append(self._positions[low:high])
            parts.append(self._rows.take(numbers(self._order[low:high])))
            if last < self._end() or self._part == self._buckets.num_buckets - 1:
                break
            self._load(self._part + 1)
        held = [part for part in parts if part.num_rows] or parts[-1:]
        rows = join_batches(held)
        return np.searchsorted(positions, np.concatenate(found)), rows.drop_columns([_POSITION])

    def _end(self) -> int:
        """Behind the last position of the part that is in memory."""
        return -(-(self._part + 1) * self._num_positions // self._buckets.num_buckets)

    def _load(self, part: int) -> None:
        self._rows = self._empty  # what was there is freed before more comes
        self._positions = self._order = np.empty(0, np.int64)
        parts = list(self._buckets.take(part))
        self._part = part
        if parts:
            self._rows = compact_batch(join_batches(parts))
            positions = values_of(self._rows.column(_POSITION))
            self._order = np.argsort(positions)
            self._positions = positions[self._order]

    def close(self) -> None:
        """Free what is held, in memory and on local disk."""
        self._buckets.close()
        self._rows = self._empty
