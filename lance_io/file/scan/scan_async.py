"""Scans on the engine's loop, for any store: prefetch the bytes of spans ahead, and decode them on the CPU pool."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing, closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lance_io import limits
from lance_io.file.file_requests import INLINE_DECODE_BYTES_MAX, read_file_async, truncation_error
from lance_io.file.scan.batches import Collector, Cutter, JoinedBatch
from lance_io.file.scan.decoded_parts import Allowance, Claims, PartRoom, held_bytes
from lance_io.file.scan.page_slices import fits_group, read_group
from lance_io.file.scan.pool_jobs import ahead_bytes_max
from lance_io.file.scan.readahead import DEFAULT_READAHEAD, SPANS_AHEAD_MAX, Readahead, file_pieces, group_bytes
from lance_io.file.scan.templates.remote_files import RemoteFiles
from lance_io.file.scan.templates.small_files import small_runs
from lance_io.io.buffer_pool import buffer_pool
from lance_io.limits import IO_BUFFER_BYTES
from lance_io.plans.plan import Finished, advance, in_pool
from lance_io.runtime import cpu_count
from lance_io.store.failures import InvalidRange, ShortRead

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

    import pyarrow as pa

    from lance_io.file.open.file_source import ReadContext
    from lance_io.file.open.leaf_projection import LeafColumns, Projection
    from lance_io.file.scan.batches import ScanBatch
    from lance_io.file.scan.page_slices import Piece
    from lance_io.file.scan.readahead import Span
    from lance_io.file.scan.slow_start import Pace
    from lance_io.io.budget import Pool
    from lance_io.io.scheduler import FileReads, Handle
    from lance_io.spans import Ranges, Steps

RUN_FILES_MIN: Final = 64  # small files of one kind after one another, where others come between them


class _Job:
    """Unit of requesting and decoding: a piece, or small pieces of one file.

    `request` requests its bytes; they are decoded once they have arrived and decoding is allowed or needed.

    A small page index is parsed on the loop as soon as it arrives. Pages whose indexes arrive in one read then request
    their data in the same turn of the loop, so that the scheduler merges these requests. It could not merge them if the
    indexes were parsed on several threads, or one after the other.

    entries       (leaf, piece) not popped yet
    is_requested  whether its bytes have been requested
    is_needed     whether the consumer has asked for it
    kept_bytes    decoded bytes not popped yet, counted as held
    """

    def __init__(self, group: Sequence[tuple[int, Piece]], reads: FileReads, pool: Pool, claims: Claims) -> None:
        self.entries = deque(group)
        self._pool = pool
        self._expected_bytes = sum([piece.expected_bytes for _, piece in group])
        self._reads = reads
        self._key = group[0][1].file.key
        self._priority = group[0][1].row_start
        self._claims = claims
        self._claimed_bytes = 0
        allowance = Allowance(limits.SCAN_DECODED_BYTES, self._claim)
        self._steps: Steps[list[Any]] = read_group([piece for _, piece in group], allowance)
        self._handle: Handle | None = None
        self._awaits_small_index = False  # whether the pending read is a small page index
        self.is_requested = False
        self._decoding_allowed = asyncio.Event()
        self.is_needed = False
        self._arrays: deque[Any] = deque()
        self._sizes: deque[int] = deque()  # bytes of each array
        self.kept_bytes = 0
        self.task: asyncio.Task[None] | None = None

    def request(self) -> None:
        """Request its bytes. Idempotent."""
        if self.is_requested:
            return
        self.is_requested = True
        try:
            self._submit(next(self._steps))
        except StopIteration as done:  # needs no bytes
            self._set_result(done.value, [0] * len(self.entries))
        if self._awaits_small_index:
            self.task = asyncio.ensure_future(self._run())

    def _claim(self, num_bytes: int) -> bool:
        if not self._claims.claim(num_bytes):
            return False
        self._claimed_bytes += num_bytes
        return True

    def _release(self) -> None:
        self._claims.release(self._claimed_bytes)
        self._claimed_bytes = 0

    def _submit(self, wanted: Ranges) -> None:
        self._handle = self._reads.submit(wanted, self._priority)
        self._awaits_small_index = wanted.purpose == "index" and wanted.num_bytes <= INLINE_DECODE_BYTES_MAX

    def _set_result(self, arrays: list[Any], sizes: list[int]) -> None:
        self._arrays.extend(arrays)
        self._sizes.extend(sizes)
        self.kept_bytes = sum(sizes)
        self._pool.charge(self.kept_bytes)

    @property
    def may_decode(self) -> bool:
        """Whether it is decoded, or will be as soon as its bytes arrive."""
        return self._decoding_allowed.is_set()

    @property
    def decoded_bytes(self) -> int:
        """Its decoded bytes, or their estimate."""
        return self.kept_bytes if self._arrays else self._expected_bytes

    def allow_decoding(self) -> None:
        """Decode it as soon as its bytes arrive, without raising their priority."""
        self.request()
        self._decoding_allowed.set()
        if self.task is None and not self._arrays:
            self.task = asyncio.ensure_future(self._run())

    async def wait_decoded(self) -> None:
        """Wait until it is decoded. It is needed next, so this demands its bytes."""
        self.allow_decoding()
        self.is_needed = True
        if self._handle is not None:
            self._handle.demand()
        if self.task is not None:
            await self.task

    def pop(self) -> tuple[int, Piece, Any, int]:
        """Remove and return the next leaf, piece, and array or deferred parts, with bytes that the caller counts."""
        num_bytes = self._sizes.popleft()
        self.kept_bytes -= num_bytes
        if not self._sizes:
            self._release()
        return (*self.entries.popleft(), self._arrays.popleft(), num_bytes)

    async def _run(self) -> None:
        try:
            while (handle := self._handle) is not None:
                if not self.is_needed:
                    await handle.arrived()
                if self._awaits_small_index:
                    wanted = advance(self._steps, await handle)
                else:
                    await self._decoding_allowed.wait()
                    wanted = await in_pool(self._steps, await handle)
                if type(wanted) is Finished:
                    self._handle = None
                    pieces = [piece for _, piece in self.entries]
                    decoded = zip(pieces, wanted.value, strict=True)
                    self._set_result(wanted.value, [held_bytes(piece, array) for piece, array in decoded])
                    return
                self._submit(wanted)
        except (ShortRead, InvalidRange) as error:
            raise truncation_error(self._key, error) from error

    def close(self) -> None:
        """Cancel decoding and outstanding reads."""
        if self.task is not None:
            self.task.cancel()
        if self._handle is not None:
            self._handle.cancel()
        self._release()


def _has_room(pool: Pool, num_bytes: int) -> bool:
    """Whether `num_bytes` may be decoded ahead."""
    return num_bytes <= min(pool.avail_bytes, ahead_bytes_max(cpu_count()))


class _Jobs:
    """Jobs of some spans in order: requests bytes some spans ahead, and decodes some pieces ahead.

    pace   row limit of the scan that they belong to; None for no such limit
    first  index of the first span in that scan
    """

    def __init__(
        self,
        context: ReadContext,
        projection: Projection,
        spans: Sequence[Span],
        ahead: Readahead = DEFAULT_READAHEAD,
        pace: Pace | None = None,
        first: int = 0,
    ) -> None:
        self._context = context
        self._projection = projection
        self._spans = spans
        self._ahead = ahead
        self._pace = pace
        self._first = first
        if ahead.gate is not None:
            ahead.gate.listener = self._resume
        self._next_span = 0
        self._opening: deque[asyncio.Task[list[_Job]]] = deque()
        self._opening_bytes = 0  # size of their files
        self._jobs: deque[tuple[int, _Job]] = deque()
        self._postponed: deque[tuple[int, _Job]] = deque()  # jobs that wait for a slow start
        self._opened = 0  # spans whose jobs are in the queue
        self._requested_bytes = 0
        self._ahead_bytes = context.io_buffer_bytes or IO_BUFFER_BYTES
        buffer_pool().trim()
        self._scheduler = context.scheduler(ahead.merge)
        self._pool = context.pool
        self._claims = Claims(ahead_bytes_max(cpu_count()))
        self.part_room = PartRoom(self._pool.charge, partial(_has_room, self._pool))  # a method would be a cycle
        self._in_use: dict[int, int] = {}  # decoded bytes of the pieces that current batches are cut from, by leaf

    async def ensure_opened(self, span_index: int) -> None:
        """Wait until the jobs of all spans up to this one are in the queue, and start further spans."""
        self._open_ahead()
        while self._opened <= span_index:
            jobs = await self._opening[0]
            self._opening.popleft()
            self._opening_bytes -= self._file_bytes(self._opened)
            self._jobs.extend((self._opened, job) for job in jobs)
            self._postponed.extend((self._opened, job) for job in jobs if not job.is_requested)
            self._opened += 1
            self._open_ahead()
        self._decode_ahead()

    def _open_ahead(self) -> None:
        while self._next_span < len(self._spans) and self._may_open(self._next_span):
            index = self._next_span
            self._next_span += 1
            self._opening.append(asyncio.ensure_future(self._open(index)))
            self._opening_bytes += self._file_bytes(index)

    def _may_open(self, index: int) -> bool:
        """Whether there is room for another span. Small files are opened by the dozen, concurrently."""
        num_opening = len(self._opening)
        if self._pace is not None and not self._pace.allows(self._first + index):
            return not self._jobs and not num_opening
        if num_opening < self._ahead.spans_on_loop:
            return self._requested_bytes < self._ahead_bytes or not num_opening
        if self._ahead.spans is not None or num_opening >= SPANS_AHEAD_MAX:
            return False
        return self._requested_bytes + self._opening_bytes + self._file_bytes(index) <= self._ahead_bytes

    def _file_bytes(self, index: int) -> int:
        """Upper bound of the bytes that a span requests; the whole budget for a file of unknown size."""
        return sum(
            file_columns.ref.size_bytes or self._ahead_bytes
            for file_columns in self._projection.locate(self._spans[index][0])
        )

    async def _open(self, index: int) -> list[_Job]:
        source, start, end = span = self._spans[index]
        if start >= end:
            return []
        context = self._context
        borders = None if self._pace is None else self._pace.borders(self._first + index)
        pieces: list[tuple[int, Piece, FileReads]] = []
        for file_columns in self._projection.locate(source):
            reads = self._scheduler.file(
                file_columns.ref.key, size_bytes=file_columns.ref.size_bytes or None, priority=self._first + index
            )
            steps = file_pieces(context, file_columns, span, borders=borders)
            for leaf_id, piece in await read_file_async(steps, reads):
                pieces.append((leaf_id, piece, reads))
        pieces.sort(key=lambda item: item[1].row_start)
        self._requested_bytes += sum(piece.num_bytes for _, piece, _ in pieces)
        jobs = [_Job(group, reads, self._pool, self._claims) for group, reads in self._group(pieces)]
        for job in jobs:
            if self._allows(index, job):
                job.request()
        return jobs

    def _allows(self, index: int, job: _Job) -> bool:
        pace = self._pace
        return pace is None or pace.allows(self._first + index, job.entries[0][1].row_start)

    def consumed(self, num_rows: int) -> None:
        """The consumer took `num_rows` rows, which raises the limit of a slow start."""
        if self._pace is None:
            return
        self._pace.consumed(num_rows)
        self._resume()

    def _resume(self) -> None:
        """Request the bytes of the jobs that the limits now allow."""
        while self._postponed and (self._postponed[0][1].is_requested or self._allows(*self._postponed[0])):
            self._postponed.popleft()[1].request()
        self._open_ahead()

    def _group(self, pieces: list[tuple[int, Piece, FileReads]]) -> Iterator[tuple[list[tuple[int, Piece]], FileReads]]:
        """Group pieces into jobs, because a task per small page costs more than decoding it.

        A piece that is only a part of a page gets its own job, because it may have to request an index first.
        """
        bytes_max = -1 if self._ahead.is_explicit else group_bytes(cpu_count())  # -1: no grouping
        group: list[tuple[int, Piece]] = []
        group_reads: FileReads | None = None
        num_bytes = expected = 0
        for leaf_id, piece, reads in pieces:
            if group_reads is not None:
                first = group[0][1]
                is_whole = piece.is_whole and first.is_whole
                if not (is_whole and fits_group(piece, first, num_bytes, bytes_max, expected)):
                    yield group, group_reads
                    group, num_bytes, expected = [], 0, 0
            group.append((leaf_id, piece))
            num_bytes += piece.num_bytes
            expected += piece.expected_bytes
            group_reads = reads
        if group_reads is not None:
            yield group, group_reads

    def _decode_ahead(self) -> None:
        ahead_bytes = 0
        for number, (_, job) in zip(range(self._ahead.pieces), self._jobs, strict=False):
            if number and not job.is_requested:
                return
            ahead_bytes += job.decoded_bytes
            is_first = number < cpu_count()  # each core gets one job of any size
            has_room = ahead_bytes <= self._pool.avail_bytes if is_first else _has_room(self._pool, ahead_bytes)
            if number and not (job.may_decode or has_room):
                return
            job.allow_decoding()

    def has_piece_before(self, span_index: int, row: int) -> bool:
        """Whether the next piece belongs to the span and starts before the row."""
        if not self._jobs:
            return False
        index, job = self._jobs[0]
        return index == span_index and job.entries[0][1].row_start < row

    async def pop(self) -> tuple[int, Piece, Any]:
        """Remove and return the next leaf, piece, and decoded array or deferred parts."""
        _, job = self._jobs[0]
        if not job.is_needed:
            self._decode_ahead()
            await job.wait_decoded()
        leaf_id, piece, array, num_bytes = job.pop()
        self._pool.charge(-self._in_use.get(leaf_id, 0))
        self._in_use[leaf_id] = num_bytes
        self._requested_bytes -= piece.num_bytes
        if not job.entries:
            self._jobs.popleft()
        self._open_ahead()
        return leaf_id, piece, array

    async def aclose(self) -> None:
        """Cancel everything in flight and wait for its end."""
        if self._ahead.gate is not None:
            self._ahead.gate.listener = None
        waiting: list[asyncio.Future[Any]] = []
        for opening in self._opening:
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                self._jobs.extend((0, job) for job in opening.result())
            opening.cancel()
            waiting.append(opening)
        jobs = [job for _, job in self._jobs]
        for job in jobs:
            job.close()
            if job.task is not None:
                waiting.append(job.task)
        self._jobs.clear()
        self._opening.clear()
        try:
            await asyncio.gather(*waiting, return_exceptions=True)
        finally:  # all of them have stopped decoding, also if this is cancelled
            self._pool.charge(-sum(job.kept_bytes for job in jobs) - sum(self._in_use.values()))
            self._in_use.clear()
        await self._scheduler.aclose()


def scan(
    context: ReadContext,
    projection: Projection,
    spans: Sequence[Span],
    batch_rows: int | None,
    ahead: Readahead,
) -> AsyncGenerator[ScanBatch | JoinedBatch, None]:
    """See `TableReader.scan_joined_async`."""
    pace = ahead.pace(spans, context.store.profile)
    # behind a gate, columns of small files are read that did not come with the filter's
    runs = [] if ahead.gate is not None else list(small_runs(context, projection, spans, ahead))
    is_worth = len(runs) <= 1 + len(spans) // RUN_FILES_MIN  # each run waits for the one before
    if not is_worth or all([leaves is None for _, _, leaves in runs]):
        return _scan_pieces(context, projection, spans, 0, len(spans), batch_rows, ahead, pace)
    return _scan_runs(context, projection, spans, runs, batch_rows, ahead, pace)


async def _scan_runs(
    context: ReadContext,
    projection: Projection,
    spans: Sequence[Span],
    runs: Sequence[tuple[int, int, LeafColumns | None]],
    batch_rows: int | None,
    ahead: Readahead,
    pace: Pace | None,
) -> AsyncGenerator[ScanBatch | JoinedBatch, None]:
    """The batches of all spans; small files are read whole.

    runs  as `small_runs` gives them
    """
    for first, end, leaves in runs:
        if leaves is not None:
            files = RemoteFiles(context, projection, spans[first:end], first, leaves, ahead, pace)
            async with aclosing(files.batches()) as parts:
                async for part in parts:
                    if not isinstance(part, int):
                        yield part
                        continue
                    at = first + part
                    alone = _scan_pieces(context, projection, spans, at, at + 1, batch_rows, ahead)
                    async with aclosing(alone):
                        async for batch in alone:
                            yield batch
            first += files.num_begun
        if first < end:
            pieces = _scan_pieces(context, projection, spans, first, end, batch_rows, ahead, pace)
            async with aclosing(pieces):
                async for batch in pieces:
                    yield batch


async def _scan_pieces(
    context: ReadContext,
    projection: Projection,
    spans: Sequence[Span],
    first: int,
    end_span: int,
    batch_rows: int | None,
    ahead: Readahead,
    pace: Pace | None = None,
) -> AsyncGenerator[ScanBatch, None]:
    """The batches of spans `first` to `end_span`."""
    jobs = _Jobs(context, projection, spans[first:end_span], ahead, pace, first)
    try:
        for index, (_, start, end) in enumerate(spans[first:end_span]):
            cutter = Cutter(projection, first + index, start, end, batch_rows, jobs.part_room)
            with closing(cutter):
                await jobs.ensure_opened(index)
                while cutter.position < end:
                    while jobs.has_piece_before(index, cutter.needs_rows_before):
                        cutter.add(*await jobs.pop())
                    for part in cutter.wanted_parts():
                        await asyncio.wrap_future(part.begin())
                    batch = cutter.cut()
                    jobs.consumed(batch.num_rows)
                    cutter.begin_ahead()
                    yield batch
    finally:
        await jobs.aclose()


async def read(context: ReadContext, projection: Projection, spans: Sequence[Span]) -> list[pa.ChunkedArray]:
    """See `TableReader.read`."""
    collector = Collector(projection)
    jobs = _Jobs(context, projection, spans)
    try:
        for index, (_, start, end) in enumerate(spans):
            leaves: dict[int, list[tuple[Piece, Any]]] = {}
            await jobs.ensure_opened(index)
            while jobs.has_piece_before(index, end):
                leaf_id, piece, array = await jobs.pop()
                leaves.setdefault(leaf_id, []).append((piece, array))
            collector.add(index, start, end, leaves)
    finally:
        await jobs.aclose()
    return collector.columns()


# -- spans in any order -----------------------------------------------------------------------------------------------


async def scan_unordered(
    context: ReadContext, projection: Projection, spans: Sequence[Span], batch_rows: int | None, ahead: Readahead
) -> AsyncGenerator[ScanBatch | JoinedBatch, None]:
    """See `TableReader.scan`: yields batches of any span as they become ready.

    Every span is a scan of its own (`scan`), in row order. Several run concurrently, each with a share of the
    decode-ahead and read-ahead limits and at most one batch waiting for the consumer. If the process's memory budget is
    full, no further scan starts beside the running ones.
    """
    at_once = max(1, min(ahead.spans_on_loop, len(spans)))
    share = replace(context, io_buffer_bytes=-(-context.io_buffer_bytes // at_once))  # 0, for no bound, stays 0
    lane_ahead = replace(ahead, pieces=-(-ahead.pieces // at_once), spans=1)
    waiting = deque(enumerate(spans))
    lanes: list[AsyncGenerator[ScanBatch | JoinedBatch, None]] = []
    running: dict[
        asyncio.Future[ScanBatch | JoinedBatch | None], tuple[int, AsyncGenerator[ScanBatch | JoinedBatch, None]]
    ] = {}

    def proceed(index: int, lane: AsyncGenerator[ScanBatch | JoinedBatch, None]) -> None:
        running[asyncio.ensure_future(anext(lane, None))] = index, lane

    try:
        while waiting or running:
            while waiting and len(running) < at_once and (not running or context.pool.avail_bytes > 0):
                index, span = waiting.popleft()
                lanes.append(scan(share, projection, [span], batch_rows, lane_ahead))
                proceed(index, lanes[-1])
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for future in done:
                index, lane = running.pop(future)
                batch = future.result()
                if batch is None:
                    lanes.remove(lane)
                else:
                    yield replace(batch, span_index=index)
                    proceed(index, lane)
    finally:
        for future in running:
            future.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for lane in lanes:
            await lane.aclose()
