"""Scans: pages read and decoded ahead, batches cut from them in row order.

    spans -> files opened -> pieces (a page of a leaf column each), ordered by first row -> read and decoded ahead on
    the CPU pool -> one queue of arrays per leaf -> batches

A batch over decoded pages is a slice; rows are copied only where a batch crosses the border of two pages. Memory is
bounded twice. At most `Readahead.pieces` are decoded before they are needed, so what is decoded is one page per leaf
column and those. What is read and not yet decoded is held to `io_buffer_bytes`: only the piece that the consumer waits
for may go over it. A consumer that stops asking thus stops the reading.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from lance_io.errors import FormatError
from lance_io.file.drive import Finished, drive, drive_now, in_pool, truncated
from lance_io.file.opening import opened
from lance_io.file.pieces import column_pieces, goes_with
from lance_io.file.steps import together
from lance_io.io.budget import process_pool
from lance_io.io.stats import count_held, sinks_now
from lance_io.levels.assemble import merge
from lance_io.limits import IO_BUFFER_BYTES
from lance_io.runtime import cpu_pool
from lance_io.store.api import InvalidRange, ShortRead

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence
    from concurrent.futures import Future

    from lance_io.file.pieces import Piece
    from lance_io.file.projection import FileColumns, Projection
    from lance_io.file.source import FragmentSource, ReadContext
    from lance_io.file.steps import FileSteps
    from lance_io.io.scheduler import FileReads, Handle
    from lance_io.io.stats import Sinks
    from lance_io.spans import Steps

    Span = tuple[FragmentSource, int, int]

T = TypeVar("T")
PIECES_AHEAD: Final = 2 * (os.cpu_count() or 1)  # keeps every core busy while the consumer looks at a batch
SPANS_AHEAD: Final = 8  # fragments that are begun ahead, as far as pieces and budget go


@dataclass(frozen=True, slots=True)
class Readahead:
    """How far a scan goes ahead of its consumer, at least 1 each.

    pieces  decoded before they are needed
    spans   begun behind the one that the consumer is in
    is_asked_for  the caller gave `pieces`: small ones then do not share jobs, so that their number is what was asked
    """

    pieces: int = PIECES_AHEAD
    spans: int = SPANS_AHEAD
    is_asked_for: bool = False


def readahead(pieces: int | None, spans: int | None) -> Readahead:
    """What was asked for, and defaults for the rest."""
    return Readahead(pieces or PIECES_AHEAD, spans or SPANS_AHEAD, is_asked_for=pieces is not None)


@dataclass(frozen=True, slots=True)
class ScanBatch:
    """Rows `row_start` to `row_start + num_rows` (physical) of span `span_index`, one array per field."""

    span_index: int
    row_start: int
    num_rows: int
    arrays: list[pa.Array]


# -- what a span consists of --------------------------------------------------------------------------------------


def _file_pieces(context: ReadContext, here: FileColumns, start: int, end: int) -> FileSteps[list[tuple[int, Piece]]]:
    """The pieces of one file, each with its leaf's field id."""
    file, tail = yield from opened(context, here.ref, here.columns)
    file.view(here)  # checks the types of its columns
    columns = yield from column_pieces(file, here.columns, start, end, tail)
    return [(leaf_id, piece) for leaf_id, column in zip(here.leaf_ids, columns, strict=True) for piece in column]


def _in_row_order(found: list[tuple[int, Piece]]) -> list[tuple[int, Piece]]:
    return sorted(found, key=lambda one: one[1].row_start)


class _Leaf:
    """Decoded arrays of one leaf column that batches have not used up, in row order."""

    __slots__ = ("arrays",)

    def __init__(self) -> None:
        self.arrays: deque[tuple[int, pa.Array]] = deque()  # (first row, array)

    def end(self, otherwise: int) -> int:
        """End of the first array's rows."""
        if not self.arrays:
            return otherwise
        row_start, array = self.arrays[0]
        return row_start + len(array)

    def rows(self, start: int, end: int) -> pa.Array:
        """Rows `start` to `end`; arrays before `end` are dropped."""
        parts = []
        arrays = self.arrays
        while True:
            row_start, array = arrays[0]
            array_end = row_start + len(array)
            part_end = min(end, array_end)
            whole = start == row_start and part_end == array_end
            parts.append(array if whole else array.slice(start - row_start, part_end - start))
            if part_end == array_end:
                arrays.popleft()
            if part_end == end:
                break
            start = part_end
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


class _Cutter:
    """Cuts the batches of one span out of arriving arrays."""

    def __init__(self, projection: Projection, index: int, start: int, end: int, batch_rows: int | None) -> None:
        self.projection = projection
        self.index = index
        self.position = start
        self.end = end
        self.batch_rows = batch_rows
        self.leaves: dict[int, _Leaf] = {}

    @property
    def needs_rows_before(self) -> int:
        """Every piece that starts before this row must have arrived before `cut`."""
        if self.batch_rows is None:
            return self.position + 1
        return min(self.position + self.batch_rows, self.end)

    def add(self, leaf_id: int, piece: Piece, array: pa.Array) -> None:
        """A decoded piece; pieces of a leaf arrive in row order."""
        if len(array) != piece.row_end - piece.row_start:
            raise FormatError(
                f"{len(array)} rows decoded; the page has {piece.row_end - piece.row_start}",
                path=piece.file.key,
                where=f"{piece.column.where}, page {piece.number}",
            )
        self.leaves.setdefault(leaf_id, _Leaf()).arrays.append((piece.row_start, array))

    def cut(self) -> ScanBatch:
        """The next batch."""
        start, end = self.position, self.needs_rows_before
        if self.batch_rows is None:
            end = min((leaf.end(self.end) for leaf in self.leaves.values()), default=self.end)
        arrays = {leaf_id: leaf.rows(start, end) for leaf_id, leaf in self.leaves.items()}
        self.position = end
        return ScanBatch(self.index, start, end - start, self.projection.assemble(arrays, end - start))


# -- in the caller's thread ---------------------------------------------------------------------------------------


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
        self, context: ReadContext, projection: Projection, spans: Sequence[Span], ahead: Readahead = Readahead()
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
                steps = _file_pieces(self._context, here, start, end)
                found += self._drive(steps, here.ref.key, self._context.store.profile.take_gap_bytes)
        return _in_row_order(found)

    def _decode(self, group: list[Piece]) -> list[pa.Array]:
        """Read and decode some pieces of one file; runs on the CPU pool."""
        gap_bytes = self._context.store.profile.scan_gap_bytes
        steps = together([piece.steps() for piece in group])
        return self._drive(steps, group[0].file.key, gap_bytes, is_charged=True)

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
            cutter = _Cutter(projection, index, start, end, batch_rows)
            while cutter.position < end:
                while pieces.before(index, cutter.needs_rows_before):
                    cutter.add(*pieces.pop())
                yield cutter.cut()
    finally:
        pieces.close()


def read_now(context: ReadContext, projection: Projection, spans: Sequence[Span]) -> list[pa.ChunkedArray]:
    """See `TableReader.read_now`."""
    collector = _Collector(projection)
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


class _Collector:
    """Whole columns: the decoded pages of a field with one leaf are its chunks."""

    def __init__(self, projection: Projection) -> None:
        self.projection = projection
        self.chunks: list[list[pa.Array]] = [[] for _ in projection.fields]

    def add(self, index: int, start: int, end: int, leaves: dict[int, list[tuple[Piece, pa.Array]]]) -> None:
        """All pieces of one span, by leaf and in row order."""
        for number, paths in enumerate(self.projection.paths):
            cutter = _Cutter(self.projection, index, start, end, None)
            for path in paths:
                for piece, array in leaves.get(path.leaf.id, []):
                    cutter.add(path.leaf.id, piece, array)
            self._add_field(number, cutter)

    def _add_field(self, number: int, cutter: _Cutter) -> None:
        field = self.projection.fields[number]
        while cutter.position < cutter.end:
            start = cutter.position
            end = min((leaf.end(cutter.end) for leaf in cutter.leaves.values()), default=cutter.end)
            arrays = {leaf_id: leaf.rows(start, end) for leaf_id, leaf in cutter.leaves.items()}
            self.chunks[number].append(merge(field, arrays, end - start))
            cutter.position = end

    def columns(self) -> list[pa.ChunkedArray]:
        """One chunked array per field."""
        return [
            pa.chunked_array(chunks, type=chunks[0].type if chunks else field.arrow_type)
            for field, chunks in zip(self.projection.fields, self.chunks, strict=True)
        ]


# -- on the engine's loop --------------------------------------------------------------------------------------------


class _Job:
    """One piece on an object store: its bytes are requested at once; it is decoded when they are there, or needed."""

    def __init__(self, leaf_id: int, piece: Piece, reads: FileReads, priority: int) -> None:
        self.leaf_id = leaf_id
        self.piece = piece
        self._reads = reads
        self._priority = priority
        self._steps: Steps[pa.Array] = piece.steps()
        self._handle: Handle | None = None
        self._array: pa.Array | None = None
        self._is_needed = False
        self.task: asyncio.Task[pa.Array] | None = None
        try:
            self._handle = reads.submit(next(self._steps), priority)
        except StopIteration as done:
            self._array = done.value

    def start(self) -> None:
        """Decode it as soon as its bytes have come, without demanding them."""
        if self.task is None:
            self.task = asyncio.ensure_future(self._run())

    async def result(self) -> pa.Array:
        """The decoded piece, which is the next thing needed: its bytes are demanded now."""
        self.start()
        self._is_needed = True
        if self._handle is not None:
            self._handle.demand()
        assert self.task is not None, "it has been started"
        return await self.task

    async def _run(self) -> pa.Array:
        try:
            while (handle := self._handle) is not None:
                if not self._is_needed:
                    await handle.arrived()
                request = await in_pool(self._steps, await handle)
                self._handle = self._reads.submit(request, self._priority)
        except Finished as finished:
            return finished.value
        except (ShortRead, InvalidRange) as error:
            raise truncated(self.piece.file.key, error) from error
        return self._array

    def close(self) -> None:
        """Give up: what has not been read is not read any more."""
        if self.task is not None:
            self.task.cancel()
        if self._handle is not None:
            self._handle.cancel()


class _Jobs:
    """Jobs of all spans in order: requested some spans ahead, decoded some pieces ahead."""

    def __init__(
        self, context: ReadContext, projection: Projection, spans: Sequence[Span], ahead: Readahead = Readahead()
    ) -> None:
        self._context = context
        self._projection = projection
        self._spans = spans
        self._ahead = ahead
        self._next_span = 0
        self._opening: deque[asyncio.Task[list[_Job]]] = deque()
        self._jobs: deque[tuple[int, _Job]] = deque()
        self._opened = 0  # spans whose jobs are in the queue
        self._requested_bytes = 0
        self._ahead_bytes = context.io_buffer_bytes or IO_BUFFER_BYTES
        self._scheduler = context.scheduler("scan")

    async def until(self, span_index: int) -> None:
        """Have the jobs of all spans up to this one in the queue, and those behind it under way."""
        self._open_ahead()
        while self._opened <= span_index:
            jobs = await self._opening[0]
            self._opening.popleft()
            self._jobs.extend((self._opened, job) for job in jobs)
            self._opened += 1
            self._open_ahead()
        self._decode_ahead()

    def _open_ahead(self) -> None:
        while (
            self._next_span < len(self._spans)
            and len(self._opening) < self._ahead.spans
            and (self._requested_bytes < self._ahead_bytes or not self._opening)
        ):
            index = self._next_span
            self._next_span += 1
            self._opening.append(asyncio.ensure_future(self._open(index)))

    async def _open(self, index: int) -> list[_Job]:
        source, start, end = self._spans[index]
        if start >= end:
            return []
        context = self._context
        found: list[tuple[int, Piece, FileReads]] = []
        for here in self._projection.locate(source):
            reads = self._scheduler.file(here.ref.key, size_bytes=here.ref.size_bytes or None, priority=index)
            steps = _file_pieces(context, here, start, end)
            for leaf_id, piece in await drive(steps, reads, here.ref.key):
                found.append((leaf_id, piece, reads))
        found.sort(key=lambda one: one[1].row_start)
        self._requested_bytes += sum(piece.num_bytes for _, piece, _ in found)
        return [_Job(leaf_id, piece, reads, piece.row_start) for leaf_id, piece, reads in found]

    def _decode_ahead(self) -> None:
        for _, (_, job) in zip(range(self._ahead.pieces), self._jobs, strict=False):
            job.start()

    def before(self, span_index: int, row: int) -> bool:
        """True when the next piece belongs to the span and starts before the row."""
        return bool(self._jobs) and self._jobs[0][0] == span_index and self._jobs[0][1].piece.row_start < row

    async def pop(self) -> tuple[int, Piece, pa.Array]:
        """The next piece, decoded."""
        _, job = self._jobs[0]
        self._decode_ahead()
        array = await job.result()
        self._jobs.popleft()
        self._requested_bytes -= job.piece.num_bytes
        self._open_ahead()
        return job.leaf_id, job.piece, array

    async def aclose(self) -> None:
        """Cancel everything that is under way and wait until it is."""
        waiting: list[asyncio.Future[Any]] = []
        for opening in self._opening:
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                self._jobs.extend((0, job) for job in opening.result())
            opening.cancel()
            waiting.append(opening)
        for _, job in self._jobs:
            job.close()
            if job.task is not None:
                waiting.append(job.task)
        self._jobs.clear()
        self._opening.clear()
        await asyncio.gather(*waiting, return_exceptions=True)
        await self._scheduler.aclose()


async def scan(
    context: ReadContext,
    projection: Projection,
    spans: Sequence[Span],
    batch_rows: int | None,
    ahead: Readahead,
) -> AsyncGenerator[ScanBatch, None]:
    """See `TableReader.scan`."""
    jobs = _Jobs(context, projection, spans, ahead)
    try:
        for index, (_, start, end) in enumerate(spans):
            cutter = _Cutter(projection, index, start, end, batch_rows)
            await jobs.until(index)
            while cutter.position < end:
                while jobs.before(index, cutter.needs_rows_before):
                    cutter.add(*await jobs.pop())
                yield cutter.cut()
    finally:
        await jobs.aclose()


async def read(context: ReadContext, projection: Projection, spans: Sequence[Span]) -> list[pa.ChunkedArray]:
    """See `TableReader.read`."""
    collector = _Collector(projection)
    jobs = _Jobs(context, projection, spans)
    try:
        for index, (_, start, end) in enumerate(spans):
            leaves: dict[int, list[tuple[Piece, pa.Array]]] = {}
            await jobs.until(index)
            while jobs.before(index, end):
                leaf_id, piece, array = await jobs.pop()
                leaves.setdefault(leaf_id, []).append((piece, array))
            collector.add(index, start, end, leaves)
    finally:
        await jobs.aclose()
    return collector.columns()
