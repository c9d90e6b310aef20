"""The rows of a source: pulled once, then available to each attempt, piece by piece.

Rows that the caller has in memory stay there. Other rows are held in memory up to a limit, then spill to local disk.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from lance_io.changes.join.spilled_batches import SpilledBatches
from lance_io.changes.write.data_files import NextBatch
from lance_io.changes.write.input_data import Rows
from lance_io.levels.join import holds_dictionary, join_batches
from lance_io.levels.row_sizes import cut_by_size, row_sizes
from lance_io.limits import MIB
from lance_io.plans.cpu_requests import Compute

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from lance_io.changes.write.input_data import AsyncRows
    from lance_io.plans.plan import Plan

PIECE_ROWS: Final = 1 << 16
_JOINED_ROWS: Final = 1 << 12  # smaller batches are joined up to this
_JOINED_BYTES: Final = 1 * MIB


class SourceRows:
    """Rows in pieces of at most `PIECE_ROWS` rows and about `piece_bytes`.

    schema        schema of the source
    num_rows, num_bytes  totals
    memory_bytes  limit for rows in memory, unless the caller holds them anyway
    is_empty      whether the caller knew, before `pull`, that the source has no rows
    """

    def __init__(self, schema: pa.Schema, memory_bytes: int, *, is_empty: bool = False) -> None:
        self.schema = schema
        self.is_empty = is_empty
        self.num_rows = 0
        self.num_bytes = 0
        self.starts: list[int] = []  # row number of the first row of each piece
        self._memory_bytes = memory_bytes
        self._piece_bytes = max(MIB, memory_bytes // 16)
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._spilled = SpilledBatches()
        # Whether small batches are joined.
        self._is_joined = not any(pt.is_nested(dtype) or pt.is_dictionary(dtype) for dtype in schema.types)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0

    @property
    def is_spilled(self) -> bool:
        """Whether rows are on local disk."""
        return len(self._spilled) > 0

    def pull(self, rows: Rows | AsyncRows) -> Plan[None]:
        """Pull all rows."""
        is_held = isinstance(rows, Rows) and rows.is_held
        while (batch := (yield NextBatch(rows))) is not None:
            if not batch.num_rows:
                continue
            if is_held:
                self._add(batch, held=True)
            else:
                yield Compute(partial(self._add, batch, held=False), partial(getattr, batch, "nbytes"))
        self._join_waiting()

    def _add(self, batch: pa.RecordBatch, *, held: bool) -> None:
        num_bytes = batch.nbytes
        if self._is_joined and batch.num_rows < _JOINED_ROWS and num_bytes < _JOINED_BYTES:
            self._waiting.append(batch)
            self._waiting_rows += batch.num_rows
            self._waiting_bytes += num_bytes
            if self._waiting_rows >= _JOINED_ROWS or self._waiting_bytes >= _JOINED_BYTES:
                self._join_waiting()
        else:
            self._join_waiting()
            self._add_pieces(batch, num_bytes, held)

    def _join_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        num_bytes, self._waiting_rows, self._waiting_bytes = self._waiting_bytes, 0, 0
        if waiting:
            self._add_pieces(join_batches(waiting), num_bytes, False)

    def _add_pieces(self, batch: pa.RecordBatch, num_bytes: int, held: bool) -> None:
        self.num_bytes += num_bytes
        for first, last in self._parts(batch, num_bytes):
            for start in range(first, last, PIECE_ROWS):
                self._add_piece(batch.slice(start, min(PIECE_ROWS, last - start)))
        self._held_bytes += 0 if held else num_bytes
        if self.is_spilled or self._held_bytes > self._memory_bytes:
            self._spill()

    def _parts(self, batch: pa.RecordBatch, num_bytes: int) -> Iterable[tuple[int, int]]:
        if num_bytes <= self._piece_bytes:
            return [(0, batch.num_rows)]
        return cut_by_size(row_sizes(batch.columns, batch.num_rows), self._piece_bytes)

    def _add_piece(self, piece: pa.RecordBatch) -> None:
        self.starts.append(self.num_rows)
        self.num_rows += piece.num_rows
        self._held.append(piece)

    def _spill(self) -> None:
        for piece in self._held:
            self._spilled.add(piece)
        self._held, self._held_bytes = [], 0

    def pieces(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int, Plan[pa.RecordBatch]]]:
        """Pieces that overlap the rows `start .. end`: first row, end, and the plan that loads the piece."""
        last = self.num_rows if end is None else end
        for number, bounds in enumerate(pairwise([*self.starts, self.num_rows])):
            if bounds[0] < last and bounds[1] > start:
                yield *bounds, self._load(number)

    def pieces_of(
        self, rows: NDArray[np.int64], start: int, end: int
    ) -> Iterator[tuple[int, slice, Plan[pa.RecordBatch]]]:
        """Pieces that have some of `rows`: first row, slice of `rows` in the piece, and the plan that loads it.

        rows        row numbers, ascending
        start, end  range that contains all of them
        """
        for first, last, load in self.pieces(start, end):
            low, high = np.searchsorted(rows, [first, last]).tolist()
            if low < high:
                yield first, slice(low, high), load

    @property
    def has_random_access(self) -> bool:
        """Whether `rows_of` works. It cannot read local disk, and it cannot join the dictionaries of several pieces."""
        return not self.is_spilled and (len(self._held) < 2 or not any(map(holds_dictionary, self.schema.types)))

    def rows_of(self, rows: NDArray[np.int64]) -> Iterator[tuple[pa.RecordBatch, NDArray[np.int64], NDArray[np.int64]]]:
        """Look up rows by number, in any order.

        Yields each piece that has some of `rows`, their indices in this piece, and their positions in `rows`.
        """
        pieces = np.searchsorted(self.starts, rows, side="right") - 1
        order = np.argsort(pieces, kind="stable")
        numbers, firsts = np.unique(pieces[order], return_index=True)
        for number, positions in zip(numbers.tolist(), np.split(order, firsts[1:]), strict=True):
            yield self._held[number], rows[positions] - self.starts[number], positions

    def sizes(self) -> NDArray[np.int64]:
        """Bytes of each row; only if all rows are in memory."""
        return np.concatenate([row_sizes(piece.columns, piece.num_rows) for piece in self._held])

    def _load(self, number: int) -> Plan[pa.RecordBatch]:
        if not self.is_spilled:
            return self._held[number]
        batch: pa.RecordBatch = yield Compute(partial(self._spilled.get, number), lambda: self._piece_bytes)
        return batch

    def close(self) -> None:
        """Free memory and local disk."""
        self._held = []
        self._spilled.close()
