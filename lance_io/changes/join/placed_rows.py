"""A caller's rows by position in the table: added in any order, read in the order of the table.

They are partitioned by position. Partitions are in memory and spill to local disk; reading loads one at a time.
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
    """Positions of rows among all rows of some fragments, including deleted rows.

    fragment_indexes  ascending
    """

    def __init__(self, state: DatasetState, fragment_indexes: Sequence[int]) -> None:
        self._state = state
        sizes = np.zeros(len(state.all_fragment_indexes), np.int64)
        sizes[list(fragment_indexes)] = state.physical_rows[list(fragment_indexes)]
        self.num_rows = int(sizes.sum())
        self._starts = np.cumsum(sizes) - sizes

    def of(self, addresses: npt.NDArray[np.uint64]) -> IntArray:
        """Positions of rows given by their addresses, i64."""
        indexes = self._state.find_fragment_indexes((addresses >> np.uint64(32)).astype(np.int64))
        positions: IntArray = self._starts[indexes] + (addresses & np.uint64(0xFFFF_FFFF)).astype(np.int64)
        return positions


class PlacedRows:
    """Rows of one schema by position, at most one row each.

    num_positions  number of rows of the table
    num_bytes      approximate size of all rows that will be added
    share_bytes    memory for rows, while they are added and again while they are read
    """

    def __init__(self, schema: pa.Schema, num_positions: int, num_bytes: int, share_bytes: int) -> None:
        self._num_positions = num_positions
        num_parts = min(BUCKETS_MAX, num_positions, -(-num_bytes // share_bytes))
        self._buckets = Buckets(max(1, num_parts), share_bytes)
        self._part = -1  # the loaded part
        self._empty = empty_batch(schema.append(pa.field(_POSITION, pa.int64())))
        self._rows = self._empty
        self._positions = np.empty(0, np.int64)  # of the loaded rows, ascending
        self._order = np.empty(0, np.int64)  # index of the row at each of these positions

    def add(self, rows: pa.RecordBatch, positions: IntArray) -> None:
        """Add rows, each with its position."""
        placed = pa.RecordBatch.from_arrays([*rows.columns, numbers(positions)], schema=self._empty.schema)
        self._buckets.add(placed, positions * self._buckets.num_buckets // self._num_positions)

    def find(self, positions: IntArray) -> tuple[IntArray, pa.RecordBatch]:
        """Indices of the positions that have a row, ascending, and these rows.

        positions  at least one, ascending; each call continues after the last position of the call before it
        """
        first, last = int(positions[0]), int(positions[-1])
        found_positions, parts = [], []
        while True:
            low, high = np.searchsorted(self._positions, [first, last + 1]).tolist()
            found_positions.append(self._positions[low:high])
            parts.append(self._rows.take(numbers(self._order[low:high])))
            if last < self._end() or self._part == self._buckets.num_buckets - 1:
                break
            self._load(self._part + 1)
        held = [part for part in parts if part.num_rows] or parts[-1:]
        rows = join_batches(held)
        return np.searchsorted(positions, np.concatenate(found_positions)), rows.drop_columns([_POSITION])

    def _end(self) -> int:
        """The end of the loaded part: the position after its last one."""
        return -(-(self._part + 1) * self._num_positions // self._buckets.num_buckets)

    def _load(self, part: int) -> None:
        self._rows = self._empty  # frees the old part before loading the next
        self._positions = self._order = np.empty(0, np.int64)
        parts = list(self._buckets.take(part))
        self._part = part
        if parts:
            self._rows = compact_batch(join_batches(parts))
            positions = values_of(self._rows.column(_POSITION))
            self._order = np.argsort(positions)
            self._positions = positions[self._order]

    def close(self) -> None:
        """Free memory and local disk."""
        self._buckets.close()
        self._rows = self._empty
