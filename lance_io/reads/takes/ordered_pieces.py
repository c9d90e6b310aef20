"""Pieces of rows, in the order of the table, reordered as requested.

    piece --its rows, once for each request--> parts of the result that they belong to; the piece is freed
    part after part: its rows in their order, as batches of at most `CHUNK_BYTES` (or of one row); the part is freed

So memory holds the result, a piece, and a part of the result twice. A very large row is a batch of the result by
itself: it stays in the buffer it was decoded to.
"""

from __future__ import annotations

from itertools import pairwise
from mmap import mmap
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lance_io.file.take.take_pieces import WHOLE_BYTES
from lance_io.lazy_names import lazy_module
from lance_io.levels.arrays import numbers
from lance_io.levels.retype import as_type, concat
from lance_io.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_io.levels import row_sizes as sizing
    from lance_io.spans import IntArray
else:
    sizing = lazy_module("lance_io.levels.row_sizes")  # for results of many bytes

CHUNK_BYTES: Final = 16 * MIB  # of a result with many batches
PART_BYTES_MAX: Final = 20 * MIB  # of a result with one batch: a part may exceed a chunk slightly
LARGE_ROWS_MAX: Final = 64  # of a chunk, joined one by one: Arrow's `take` allocates more than their size
MAPPINGS_MAX: Final = 1 << 14  # a process may have four times as many
OWN_BATCH_BYTES: Final = CHUNK_BYTES  # larger rows are not joined with others


def reordered(batch: pa.RecordBatch, rows: IntArray) -> list[pa.RecordBatch]:
    """The rows of a batch, which is no slice, in another order with repetitions; one batch if they are few."""
    times = int(np.bincount(rows).max()) if len(rows) > batch.num_rows else 1  # the largest row may be repeated
    if batch.get_total_buffer_size() * times <= WHOLE_BYTES:
        return [batch.take(numbers(rows))]
    return [part for _, part in _taken(batch, rows)]


def _taken(batch: pa.RecordBatch, rows: IntArray, *, slices: bool = False) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Chosen rows as batches of at most a chunk's bytes, or of one row, each with its first index in `rows`.

    slices  contiguous rows need no copy
    """
    for start, end in sizing.cut_by_size(sizing.row_sizes(batch.columns, batch.num_rows)[rows], CHUNK_BYTES):
        first = int(rows[start])
        is_run = slices and bool((rows[start:end] == np.arange(first, first + end - start)).all())
        yield start, batch.slice(first, end - start) if is_run else batch.take(numbers(rows[start:end]))


class OrderedPieces:
    """Collects pieces.

    restore  for each row of the result, its index among the incoming rows

    Parts lie in memory mappings, which return to the system at once: Arrow's allocators keep about half of memory that
    is freed piecemeal.
    """

    def __init__(self, restore: IntArray) -> None:
        self._restore = restore
        self._order = np.argsort(restore, kind="stable")
        self._sorted_restore = restore[self._order]
        self._edges: IntArray | None = None  # of the parts, in rows of the result
        self._parts: list[list[tuple[IntArray, mmap | pa.RecordBatch]]] = []
        self._num_rows = 0
        self._schema: pa.Schema

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the next rows; no slice."""
        first, self._num_rows = self._num_rows, self._num_rows + batch.num_rows
        low, high = np.searchsorted(self._sorted_restore, [first, self._num_rows]).tolist()
        results = np.sort(self._order[low:high])
        rows = self._restore[results] - first
        self._schema = batch.schema
        has_large_rows = batch.get_total_buffer_size() >= OWN_BATCH_BYTES * batch.num_rows
        edges = self._part_edges(batch, rows)
        bounds = np.searchsorted(results, edges).tolist()
        for part, (start, end) in enumerate(pairwise(bounds)):
            for here, taken in _taken(batch, rows[start:end], slices=True):
                kept = taken if has_large_rows else _packed(taken)
                self._parts[part].append((results[start + here : start + here + taken.num_rows], kept))

    def _part_edges(self, batch: pa.RecordBatch, rows: IntArray) -> IntArray:
        """Boundaries of parts of the result, each of about a chunk's bytes, estimated from the first piece."""
        if self._edges is None:
            sizes = sizing.row_sizes(batch.columns, batch.num_rows)[rows]
            num_bytes = float(sizes.mean()) * len(self._restore) if len(sizes) else 0.0
            num_chunks = max(1, min(len(self._restore), -int(-num_bytes // CHUNK_BYTES)))
            num_parts = max(1, min(num_chunks, MAPPINGS_MAX // num_chunks))
            self._edges = np.linspace(0, len(self._restore), num_parts + 1).astype(np.int64)
            self._parts = [[] for _ in range(num_parts)]
        return self._edges

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The result; frees the collected parts."""
        while self._parts:
            parts = [(results, _unpacked(stored, self._schema)) for results, stored in self._parts.pop(0)]
            if not parts:
                continue
            first = min(int(results[0]) for results, _ in parts)
            sizes = np.zeros(max(int(results[-1]) for results, _ in parts) + 1 - first, np.int64)
            for results, batch in parts:
                sizes[results - first] = sizing.row_sizes(batch.columns, batch.num_rows)
            total = int(sizes.sum())
            most = total if total <= PART_BYTES_MAX else CHUNK_BYTES
            for start, end in sizing.cut_by_size(sizes, most):
                yield _in_order(parts, first + start, first + end)
            del parts, batch


def _packed(batch: pa.RecordBatch) -> mmap:
    sink = pa.MockOutputStream()  # counts bytes
    _write(batch, sink)
    memory = mmap(-1, sink.size())
    _write(batch, pa.FixedSizeBufferWriter(pa.py_buffer(memory)))
    return memory


def _write(batch: pa.RecordBatch, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)


def _unpacked(memory: mmap | pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch, over that memory. Extension types that are not registered come back as their storage."""
    if isinstance(memory, pa.RecordBatch):
        return memory
    batch = pa.ipc.open_stream(pa.py_buffer(memory)).read_next_batch()
    if batch.schema.types == schema.types:
        return batch
    columns = [as_type(column, dtype) for column, dtype in zip(batch.columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _in_order(parts: list[tuple[IntArray, pa.RecordBatch]], start: int, end: int) -> pa.RecordBatch:
    """The rows `start` to `end` of the result, from parts with their ascending result indexes."""
    batches, result_rows = [], []
    for results, batch in parts:
        low, high = np.searchsorted(results, [start, end]).tolist()
        if low < high:
            batches.append(batch.slice(low, high - low))
            result_rows.append(results[low:high])
    if len(result_rows) == 1:
        return _joined(batches)
    order = np.argsort(np.concatenate(result_rows))
    if len(order) > LARGE_ROWS_MAX:
        return _joined(batches).take(numbers(order))
    rows = [batch.slice(row, 1) for batch in batches for row in range(batch.num_rows)]
    return _joined([rows[at] for at in order.tolist()])


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    columns = [concat([batch.column(at) for batch in batches]) for at in range(batches[0].num_columns)]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)
