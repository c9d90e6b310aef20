"""Record batches of the wanted number of rows out of pieces as they come. Pure.

Pieces that have the right size pass through; larger ones are sliced without a copy; smaller ones are joined, which
copies. Without `across`, a batch ends where its fragment ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lance_io.levels.portable import Portable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def _unchanged(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


class Rebatcher:
    """Cuts and joins pieces to batches of `batch_rows` rows; only the last one (of a fragment) is shorter.

    across  True when a batch may hold rows of several fragments
    then    what is done with each batch
    """

    def __init__(
        self, batch_rows: int, *, across: bool, then: Callable[[pa.RecordBatch], pa.RecordBatch] = _unchanged
    ) -> None:
        self._batch_rows = batch_rows
        self._then = then
        self._across = across
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._span = -1

    def push(self, piece: pa.RecordBatch, span: int) -> Iterator[pa.RecordBatch]:
        """Take the next piece, of the fragment range numbered `span`; gives the batches that are complete."""
        if span != self._span:
            if not self._across:
                yield from self.flush()
            self._span = span
        start, num_rows, batch_rows = 0, piece.num_rows, self._batch_rows
        if self._pending_rows and self._pending_rows + num_rows >= batch_rows:
            start = batch_rows - self._pending_rows
            yield self._then(self._join(piece.slice(0, start)))
        while num_rows - start >= batch_rows and not self._pending_rows:
            yield self._then(piece.slice(start, batch_rows))
            start += batch_rows
        if start < num_rows:
            self._pending.append(piece.slice(start))
            self._pending_rows += num_rows - start

    def flush(self) -> Iterator[pa.RecordBatch]:
        """What is left over, as one batch."""
        if self._pending_rows:
            last = self._pending.pop()
            yield self._then(self._join(last))

    def _join(self, piece: pa.RecordBatch) -> pa.RecordBatch:
        pieces, self._pending, self._pending_rows = [*self._pending, piece], [], 0
        return pieces[0] if len(pieces) == 1 else join_batches(pieces)


def join_batches(pieces: list[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch with the rows of all pieces, which have one schema."""
    if not pieces[0].num_columns:
        return empty_columns(sum(piece.num_rows for piece in pieces), pieces[0].schema)
    return pa.concat_batches(pieces)


def empty_columns(num_rows: int, schema: pa.Schema) -> pa.RecordBatch:
    """A batch without columns that still counts rows; `schema` gives its metadata."""
    counting = pa.RecordBatch.from_arrays([pa.nulls(num_rows)], ["rows"]).select([])
    return counting.replace_schema_metadata(schema.metadata)


def to_table(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """A table over the batches, without copying them; columns that other engines would misread are copied."""
    return pa.Table.from_batches(map(Portable(schema), batches), schema=schema)
