"""Scans in the caller's thread, over a store whose bytes are at hand: pieces are read and decoded on the CPU pool."""

from __future__ import annotations

import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from lance_io.file.batches import Collector, Cutter
from lance_io.file.drive import drive_now
from lance_io.file.pieces import goes_with, read_group
from lance_io.file.scan import DEFAULT_READAHEAD, Readahead, file_pieces, in_row_order
from lance_io.io.budget import process_pool
from lance_io.io.stats import count_held, sinks_now
from lance_io.runtime import cpu_pool

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future

    import pyarrow as pa

    from lance_io.file.batches import ScanBatch
    from lance_io.file.pieces import Piece
    from lance_io.file.projection import Projection
    from lance_io.file.scan import Span
    from lance_io.file.source import ReadContext
    from lance_io.file.steps import FileSteps
    from lance_io.io.stats import Sinks

T = TypeVar("T")


class _Held:
    """Bytes of the pieces being read and decoded, bounded as in a `Budget`; thread-safe, because the pool gives back.

    capacity_bytes  the bound; 0 for none
    """

    def __init__(self, capacity_bytes: int, sinks: Sinks) -> None:
        self._capacity_bytes = capacity_bytes
        self._sinks = sinks
        self._pool = process_pool()
        self._lock = threading.Lock()
        self._held_bytes = 0

    def has_room(self, num_bytes: int) -> bool:
        """May so many bytes be read ahead of need?"""
        is_within = not self._capacity_bytes or self._held_bytes + num_bytes <= self._capacity_bytes
        return is_within and num_bytes <= self._pool.avail_bytes

    def charge(self, num_bytes: int) -> None:
        """Take bytes, or give them back (negative)."""
        with self._lock:
            self._held_bytes += num_bytes
        self._pool.charge(num_bytes)
        count_held(self._sinks, num_bytes)


class _Ahead:
    """Pieces of all spans in order, with a bounded number of them being decoded."""

    def __init__(
        self, context: ReadContext, projection: Projection, spans: Sequence[Span], ahead: Readahead = DEFAULT_READAHEAD
    ) -> None:
        self._context = context
        self._projection = projection
        self._sinks = sinks_now(context.store.identity)  # the pool's threads know nothing of the caller's blocks
        self._held = _Held(context.io_buffer_bytes, self._sinks)
        self._source = (
            (index, leaf_id, piece) for index, span in enumerate(spans) for leaf_id, piece in self._pieces_of(span)
        )
        self._next: tuple[int, int, Piece] | None = None
        self._jobs: deque[tuple[int, int, Piece, Future[list[pa.Array]], int]] = deque()
        self._num_jobs = 0  # futures among them: a job may decode several pieces
        self._ahead = ahead
        self._fill()

    def _pieces_of(self, span: Span) -> list[tuple[int, Piece]]:
        source, start, end = span
        found: list[tuple[int, Piece]] = []
        if start < end:
            for here in self._projection.locate(source):
                steps = file_pieces(self._context, here, start, end)
                found += self._drive(steps, here.ref.key, self._context.store.profile.take_gap_bytes)
        return in_row_order(found)

    def _decode(self, group: list[Piece]) -> list[pa.Array]:
        """Read and decode some pieces of one file; runs on the CPU pool."""
        gap_bytes = self._context.store.profile.scan_gap_bytes
        return self._drive(read_group(group), group[0].file.key, gap_bytes, is_charged=True)

    def _drive(self, steps: FileSteps[T], key: str, gap_bytes: int, *, is_charged: bool = False) -> T:
        store: Any = self._context.store  # offers `SyncReads`
        return drive_now(steps, store, key, gap_bytes, self._sinks, is_charged=is_charged)

    def _fill(self) -> None:
        while self._num_jobs < self._ahead.pieces:
            if self._next is None:
                self._next = next(self._source, None)
            if self._next is None:
                return
            index, _, piece = self._next
            is_far = self._jobs and index - self._jobs[0][0] > self._ahead.spans
            if is_far or (self._jobs and not self._held.has_room(piece.num_bytes)):
                return
            self._submit(index, self._group())

    def _group(self) -> list[tuple[int, Piece]]:
        """The next piece, and those behind it that go into one job with it."""
        assert self._next is not None, "called with a piece at hand"
        index, leaf_id, piece = self._next
        group = [(leaf_id, piece)]
        num_bytes = piece.num_bytes
        while True:
            self._next = next(self._source, None)
            if self._next is None or self._next[0] != index or self._ahead.is_asked_for:
                return group
            num_bytes += self._next[2].num_bytes
            if not goes_with(self._next[2], [one for _, one in group]) or not self._held.has_room(num_bytes):
                return group
            group.append(self._next[1:])

    def _submit(self, index: int, group: list[tuple[int, Piece]]) -> None:
        num_bytes = sum(piece.num_bytes for _, piece in group)
        self._held.charge(num_bytes)
        job = cpu_pool().submit(self._decode, [piece for _, piece in group])
        job.add_done_callback(partial(self._ended, num_bytes))
        self._num_jobs += 1
        self._jobs.extend((index, leaf_id, piece, job, at) for at, (leaf_id, piece) in enumerate(group))

    def _ended(self, num_bytes: int, _: Future[list[pa.Array]]) -> None:
        """A job is done, has failed, or was cancelled before it began."""
        self._held.charge(-num_bytes)

    def before(self, span_index: int, row: int) -> bool:
        """True when the next piece belongs to the span and starts before the row."""
        return bool(self._jobs) and self._jobs[0][0] == span_index and self._jobs[0][2].row_start < row

    def pop(self) -> tuple[int, Piece, pa.Array]:
        """The next piece, decoded."""
        _, leaf_id, piece, job, at = self._jobs.popleft()
        if not self._jobs or self._jobs[0][3] is not job:
            self._num_jobs -= 1
            self._fill()
        return leaf_id, piece, job.result()[at]

    def close(self) -> None:
        """Let go of what has not begun."""
        for *_, job, _ in self._jobs:
            job.cancel()
        self._jobs.clear()


def scan_now(
    context: ReadContext,
    projection: Projection,
    spans: Sequence[Span],
    batch_rows: int | None,
    ahead: Readahead,
) -> Iterator[ScanBatch]:
    """See `TableReader.scan_now`."""
    pieces = _Ahead(context, projection, spans, ahead)
    try:
        for index, (_, start, end) in enumerate(spans):
            cutter = Cutter(projection, index, start, end, batch_rows)
            while cutter.position < end:
                while pieces.before(index, cutter.needs_rows_before):
                    cutter.add(*pieces.pop())
                yield cutter.cut()
    finally:
        pieces.close()


def read_now(context: ReadContext, projection: Projection, spans: Sequence[Span]) -> list[pa.ChunkedArray]:
    """See `TableReader.read_now`."""
    collector = Collector(projection)
    ahead = _Ahead(context, projection, spans)
    try:
        for index, (_, start, end) in enumerate(spans):
            leaves: dict[int, list[tuple[Piece, pa.Array]]] = {}
            while ahead.before(index, end):
                leaf_id, piece, array = ahead.pop()
                leaves.setdefault(leaf_id, []).append((piece, array))
            collector.add(index, start, end, leaves)
    finally:
        ahead.close()
    return collector.columns()
