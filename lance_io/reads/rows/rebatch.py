"""Record batches of a requested size out of batches of any size. Pure.

By rows, batches are full to the row: input is sliced without a copy, and joined, with a copy, where it is too short. By
exact bytes of values (`levels/row_bytes.py`), a batch ends where one more row would pass the bound, independent of the
input's batches. By approximate bytes, input is sliced if it is larger, joined if it is much smaller, and passed on
otherwise. Without `across`, a batch ends with its fragment. No batch has more text than 32-bit offsets reach.

Batches of a file were cut before, because their columns have to end at the same row (`file/scan/batches.py`).
"""

from __future__ import annotations

import sys
from itertools import chain, repeat
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lance_io.levels.join import join_rows
from lance_io.levels.portable import Portable
from lance_io.levels.row_bytes import NARROW_MAX, RowBytes, fixed_bits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

JOINED_PART: Final = 4  # batches from a quarter of the requested bytes on are passed on, not joined


class Rebatcher:
    """Cuts and joins batches of one schema.

    rows_max   rows of a batch; only the last one (of a fragment), and those at the byte bound, are shorter.
               None: no bound
    bytes_max  approximate bytes of a batch; a single row may have more. None: no bound
    cut_bytes  bytes of the values of a batch, exact to the row; a single row may have more. Used with `rows_max`
               instead of `bytes_max`. None: no bound
    across     True when a batch may hold rows of several fragments
    then       function applied to each batch
    """

    def __init__(
        self,
        rows_max: int | None,
        bytes_max: int | None = None,
        *,
        cut_bytes: int | None = None,
        across: bool = True,
        then: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
    ) -> None:
        self._rows_max = rows_max or sys.maxsize
        self._bytes_max = bytes_max
        self._cut_bytes = sys.maxsize if cut_bytes is None else cut_bytes
        self._certain_bytes = min(self._cut_bytes, NARROW_MAX)  # a batch with buffers of this size is never too large
        self._across = across
        self._then = then
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._pending_bytes = 0  # counted if `bytes_max` is given
        self._used = _Used()  # by the first pending pieces
        self._memory_bytes = 0  # upper bound for the values of pending pieces
        self._span = -1
        self._bits_of_rows: int | None = -1  # -1: unknown

    def push(self, batch: pa.RecordBatch, span: int = 0) -> Iterator[pa.RecordBatch]:
        """Take the next batch, of the fragment range numbered `span`; returns the complete batches."""
        ends = span != self._span and not self._across and self._pending_rows > 0
        self._span = span
        if self._bytes_max is None and not ends:
            return self._fill(batch, 0)
        return self._push_sized(batch, flushes=ends)

    def _push_sized(self, batch: pa.RecordBatch, *, flushes: bool) -> Iterator[pa.RecordBatch]:
        if flushes:
            yield from self.flush()
        if self._bytes_max is None:
            yield from self._fill(batch, 0)
            return
        for part, num_bytes in _parts(batch, self._bytes_max, self._rows_max):
            goes_alone = num_bytes * JOINED_PART >= self._bytes_max or part.num_rows == self._rows_max
            if goes_alone or self._pending_bytes + num_bytes > self._bytes_max:
                yield from self.flush()
            yield from self._fill(part, num_bytes)
            if goes_alone:
                yield from self.flush()

    def flush(self) -> Iterator[pa.RecordBatch]:
        """The rest, as one batch."""
        if self._pending_rows:
            yield from self._join()

    def _fill(self, batch: pa.RecordBatch, num_bytes: int) -> Iterator[pa.RecordBatch]:
        """Complete batches; the rest waits."""
        memory_bytes = batch.get_total_buffer_size()
        if self._memory_bytes + memory_bytes <= self._certain_bytes:
            return self._fill_rows(batch, num_bytes, self._rows_max, memory_bytes)
        row_bits = self._row_bits(batch)
        if row_bits is not None:
            rows_max = self._rows_max if not row_bits else max(1, min(self._rows_max, 8 * self._cut_bytes // row_bits))
            return self._fill_rows(batch, num_bytes, rows_max)
        memory_bytes = batch.nbytes  # without buffers shared with other batches
        if self._memory_bytes + memory_bytes <= self._certain_bytes:
            return self._fill_rows(batch, num_bytes, self._rows_max, memory_bytes)
        return self._fill_sized(batch)

    def _row_bits(self, batch: pa.RecordBatch) -> int | None:
        """Bits of each row of the values; None if rows differ."""
        bits = self._bits_of_rows
        if bits == -1:
            widths = [fixed_bits(field.type) for field in batch.schema]
            bits = None if None in widths else sum([width for width in widths if width is not None])
            self._bits_of_rows = bits
        return bits

    def _fill_rows(
        self, batch: pa.RecordBatch, num_bytes: int, rows_max: int, memory_bytes: int = 0
    ) -> Iterator[pa.RecordBatch]:
        start, num_rows = 0, batch.num_rows
        first: Iterator[pa.RecordBatch] | None = None
        if not num_rows:
            return iter(())
        if self._pending_rows + num_rows < rows_max:  # all rows wait
            self._pending.append(batch)
            self._pending_rows += num_rows
            self._pending_bytes += num_bytes
            self._memory_bytes += memory_bytes
            return iter(())
        if self._pending_rows:
            start = rows_max - self._pending_rows
            self._pending.append(batch.slice(0, start))
            first = self._join()
        elif num_rows == rows_max:
            return self._drain([batch])
        end = start + (num_rows - start) // rows_max * rows_max
        if end < num_rows:
            self._pending.append(batch.slice(end))
            self._pending_rows += num_rows - end
            self._pending_bytes += num_bytes * (num_rows - end) // num_rows
            self._memory_bytes += memory_bytes
        whole = map(batch.slice, range(start, end, rows_max), repeat(rows_max))  # the usual case: no copy
        parts = whole if self._then is None else map(self._then, whole)
        return parts if first is None else chain(first, parts)

    def _fill_sized(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """`_fill` for batches that may end at the byte bound."""
        used = self._used
        for piece in self._pending[used.num_pieces :]:
            used.add(RowBytes.of(piece), 0, piece.num_rows)
        sizes, start, end = RowBytes.of(batch), 0, batch.num_rows
        while start < end:
            until = min(end, start + self._rows_max - self._pending_rows)
            count = sizes.fit(start, until, 8 * self._cut_bytes - used.num_bits)
            count = sizes.fit_narrow(start, start + count, used.narrow or [0] * len(sizes.narrow))
            count = max(count, 0 if self._pending_rows else 1)
            if count:
                self._pending.append(batch.slice(start, count))
                self._pending_rows += count
                used.add(sizes, start, start + count)
            start += count
            is_full = self._pending_rows == self._rows_max or used.num_bits >= 8 * self._cut_bytes
            if is_full or start < end:
                yield from self._join()
                used = self._used
        self._memory_bytes = used.num_bits // 8

    def _join(self) -> Iterator[pa.RecordBatch]:
        """The pending rows, which are pending no more when this returns."""
        joined = _joined(self._pending)
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0
        self._memory_bytes, self._used = 0, _Used()
        joined.reverse()
        return self._drain(joined)

    def _drain(self, last_first: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        while last_first:  # no reference is held while the consumer uses a batch
            yield last_first.pop() if self._then is None else self._then(last_first.pop())


class _Used:
    """Size of the values of a batch's pieces: bits, and the counts of 32-bit offsets."""

    def __init__(self) -> None:
        self.num_pieces = 0
        self.num_bits = 0
        self.narrow: list[int] = []

    def add(self, sizes: RowBytes, start: int, end: int) -> None:
        """Add the rows of a piece."""
        self.num_pieces += 1
        self.num_bits += sizes.bits_before(end) - sizes.bits_before(start)
        more = [before(end) - before(start) for before in sizes.narrow]
        self.narrow = [known + added for known, added in zip(self.narrow, more, strict=True)] if self.narrow else more


def rebatch_by_bytes(
    batches: Iterator[pa.RecordBatch], bytes_max: int, rows_max: int | None
) -> Iterator[pa.RecordBatch]:
    """The rows in batches of about `bytes_max` bytes and at most `rows_max` rows."""
    rebatcher = Rebatcher(rows_max, bytes_max)
    for batch in batches:
        yield from rebatcher.push(batch)
    yield from rebatcher.flush()


def _parts(batch: pa.RecordBatch, bytes_max: int, rows_max: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Slices of a batch and their bytes; none is much too large unless it is one row."""
    num_bytes = batch.get_total_buffer_size()  # cheap, and an upper bound for a slice
    if num_bytes * JOINED_PART >= bytes_max:
        num_bytes = batch.nbytes
    rows = batch.num_rows
    step = min(rows if num_bytes <= bytes_max else max(1, rows * bytes_max // num_bytes), rows_max)
    if rows <= step:
        yield batch, num_bytes
        return
    for start in range(0, rows, step):
        part = batch.slice(start, step)
        if part.num_rows > 1 and part.nbytes > 2 * bytes_max:  # rows of very different sizes
            half = part.num_rows // 2
            yield from _parts(part.slice(0, half), bytes_max, rows_max)
            yield from _parts(part.slice(half), bytes_max, rows_max)
        else:
            yield part, part.nbytes


def _joined(pieces: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """One batch with the rows of all pieces, which share a schema; several if dictionaries do not fit together."""
    if len(pieces) == 1:
        return pieces
    if not pieces[0].num_columns:
        return [empty_columns(sum(piece.num_rows for piece in pieces), pieces[0].schema)]
    return join_rows(pieces)


def empty_columns(num_rows: int, schema: pa.Schema) -> pa.RecordBatch:
    """A batch without columns that still counts rows; `schema` gives its metadata."""
    counting = pa.RecordBatch.from_arrays([pa.nulls(num_rows)], ["rows"]).select([])
    return counting.replace_schema_metadata(schema.metadata)


def to_table(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """A table over the batches, without copying them; columns that other engines would misread are copied."""
    return pa.Table.from_batches(map(Portable(schema), batches), schema=schema)
