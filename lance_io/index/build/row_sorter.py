"""External merge sort of the pairs (value, row), within a memory limit.

    pairs as they come --a share of the limit--> sorted run --cut in blocks--> local disk
    one block of each run --all pairs up to the smallest last pair of a block--> the next sorted pairs

Runs that fit into memory together are one run, which never leaves it.
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io.index.build.sort_keys import Comparable, sorted_order, stable_order, take
from lance_io.levels.arrays import memory_bytes, numbers, values_of
from lance_io.limits import GIB, KIB

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_io.index.build.index_file import RowArray, RunStore

_RUN_SHARE: Final = 7  # sorting a run takes some times its bytes: the pairs, their keys and order, the sorted pairs
_MERGE_SHARE: Final = 4  # so do the blocks of a merge, and the pairs taken from them
LIMIT_BYTES_MAX: Final = 2 * GIB  # of which more is used: an array of texts, and bitmaps of a piece, have less
_BLOCK_BYTES_MIN: Final = 64 * KIB
_RUNS_MAX: Final = 64  # of one merge
_ROW_BYTES: Final = 8
_OUTPUT_ROWS: Final = 1 << 16

Pairs = tuple[pa.Array, "RowArray"]


class RowSorter:
    """Sorts pairs of a value and a row, by value and then by row.

    value_type   type of the values
    store        takes what does not fit into memory
    limit_bytes  of memory, of which it uses `LIMIT_BYTES_MAX` at most
    """

    def __init__(self, value_type: pa.DataType, store: RunStore, limit_bytes: int) -> None:
        self._type = value_type
        self._store = store
        self._limit_bytes = min(limit_bytes, LIMIT_BYTES_MAX)
        self._values: list[pa.Array] = []
        self._rows: list[RowArray] = []
        self._held_bytes = 0
        self._runs: list[list[int]] = []  # of each run, the numbers of its blocks in the store

    def add(self, values: pa.Array, rows: RowArray) -> None:
        """Add pairs."""
        if not len(values):
            return
        self._values.append(values)
        self._rows.append(rows)
        self._held_bytes += memory_bytes(values) + _ROW_BYTES * len(rows)
        if self._held_bytes * _RUN_SHARE > self._limit_bytes:
            self._spill(_slices(*self._sorted_run()))

    def sorted(self) -> Iterator[Pairs]:
        """All pairs in order, in pieces. To be called once."""
        if not self._runs:
            yield from _slices(*self._sorted_run())
            return
        if self._values:
            self._spill(_slices(*self._sorted_run()))
        while len(self._runs) > _RUNS_MAX:
            first, self._runs = self._runs[:_RUNS_MAX], self._runs[_RUNS_MAX:]
            self._spill(self._merge(first))
        for values, rows in self._merge(self._runs):
            yield from _slices(values, rows)  # builders make more of a row than it takes here

    def close(self) -> None:
        """Free memory and local disk."""
        self._values, self._rows, self._runs = [], [], []
        self._store.close()

    def _sorted_run(self) -> Pairs:
        values, rows = self._values, self._rows
        self._values, self._rows, self._held_bytes = [], [], 0
        return sort_pairs(values, rows, self._type)

    def _spill(self, pieces: Iterator[Pairs]) -> None:
        blocks: list[int] = []
        for values, rows in pieces:
            for start, end in self._block_bounds(values):
                blocks.append(len(self._store))
                columns = [values.slice(start, end - start), numbers(rows[start:end])]
                self._store.add(pa.RecordBatch.from_arrays(columns, ["value", "row"]))
        self._runs.append(blocks)

    def _block_bounds(self, values: pa.Array) -> Iterator[tuple[int, int]]:
        block_bytes = max(_BLOCK_BYTES_MIN, self._limit_bytes // (_MERGE_SHARE * _RUNS_MAX))
        row_bytes = memory_bytes(values) / len(values) + _ROW_BYTES
        num_rows = max(1, int(block_bytes / row_bytes))
        for start in range(0, len(values), num_rows):
            yield start, min(len(values), start + num_rows)

    def _merge(self, runs: Sequence[list[int]]) -> Iterator[Pairs]:
        cursors = [_Cursor(self._store, blocks) for blocks in runs]
        firsts = [(cursor.first, at) for at, cursor in enumerate(cursors)]
        ends = [(cursor.end, at) for at, cursor in enumerate(cursors) if not cursor.is_last]
        heapify(firsts)  # of long values, comparing them is most of the work
        heapify(ends)
        while firsts:
            limit = ends[0][0] if ends else None
            taken = []
            while firsts and (limit is None or firsts[0][0] <= limit):
                taken.append(heappop(firsts)[1])
            pieces = [cursors[at].take(limit) for at in sorted(taken)]
            while ends and limit is not None and ends[0][0] <= limit:
                heappop(ends)
            for at in taken:
                cursor = cursors[at]
                was_used_up = cursor.is_used_up
                if cursor.load():
                    heappush(firsts, (cursor.first, at))
                    if was_used_up and not cursor.is_last:
                        heappush(ends, (cursor.end, at))
            yield sort_pairs([piece[0] for piece in pieces], [piece[1] for piece in pieces], self._type)


def _slices(values: pa.Array, rows: RowArray) -> Iterator[Pairs]:
    for start in range(0, len(values), _OUTPUT_ROWS):
        yield values.slice(start, _OUTPUT_ROWS), rows[start : start + _OUTPUT_ROWS]


def sort_pairs(values: list[pa.Array], rows: list[RowArray], value_type: pa.DataType) -> Pairs:
    """The pairs by value, those of a value by row. Empties the lists, to free their memory."""
    if not values:
        return pa.nulls(0, value_type), np.empty(0, np.uint64)
    joined = values[0] if len(values) == 1 else pa.concat_arrays(values)
    values.clear()
    joined_rows = rows[0] if len(rows) == 1 else np.concatenate(rows)
    rows.clear()
    if (joined_rows[1:] < joined_rows[:-1]).any():
        order = stable_order(joined_rows)
        joined, joined_rows = take(joined, order), joined_rows[order]
    by_value = sorted_order(joined)
    if by_value is None:
        return joined, joined_rows
    joined_rows = joined_rows[by_value]
    return take(joined, by_value), joined_rows


class _Cursor:
    """The position in one run of a merge; there is always a block with pairs left.

    first  the next pair
    end    the last pair of the block
    """

    def __init__(self, store: RunStore, blocks: list[int]) -> None:
        self._store = store
        self._blocks = iter(blocks)
        self._num_left = len(blocks)
        self._start = 0
        self._open()

    def _open(self) -> None:
        batch = self._store.get(next(self._blocks))
        self._num_left -= 1
        self._start = 0
        self._values = batch.column(0)
        self._rows: RowArray = values_of(batch.column(1))
        self._keys = Comparable(self._values)
        num_rows = len(self._values)
        self.first = self._pair(0)
        self.end = self.first if num_rows == 1 else self._pair(num_rows - 1)

    @property
    def is_last(self) -> bool:
        """Whether the run has no block behind this one."""
        return not self._num_left

    @property
    def is_used_up(self) -> bool:
        """Whether all pairs of the block were taken."""
        return self._start == len(self._values)

    def take(self, limit: tuple[Any, ...] | None) -> Pairs:
        """The pairs up to a limit, included; all of the block for None. There is such a pair."""
        num_rows = len(self._values)
        start, self._start = self._start, num_rows
        if limit is not None and num_rows > start + 1:
            self._start = bisect_right(range(num_rows), limit, lo=start + 1, key=self._pair)
        if self._start < num_rows:
            self.first = self._pair(self._start)
        return self._values.slice(start, self._start - start), self._rows[start : self._start]

    def load(self) -> bool:
        """Open the next block if this one is used up; False at the end of the run."""
        if not self.is_used_up:
            return True
        if self.is_last:
            return False
        self._open()
        return True

    def _pair(self, position: int) -> tuple[Any, ...]:
        return self._keys[position], int(self._rows[position])
