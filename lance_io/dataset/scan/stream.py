"""The two drivers of a scan: pieces from the file room through a `Pipeline` to batches.

    pieces, in order -> `prepare` (deleted rows, filter), a few at once on the CPU pool -> in order -> `push`

`batches_sync` runs in the caller's thread on stores that can answer at once, `batches` on a loop on any store. Both
give `(span, record batch)`, in order, with at most the reader's own readahead and the pieces being prepared in memory.
Closing them early closes the reader's stream, which cancels what is still under way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lance_io.dataset.blobs.blob_values import wanted_binaries
from lance_io.dataset.rows.read_rows import RowReader, SpanReader
from lance_io.dataset.scan.pipeline import Pipeline
from lance_io.plans.plan import drive_async, drive_sync
from lance_io.runtime import cpu_count, cpu_pool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator
    from concurrent.futures import Future

    import pyarrow as pa

    from lance_io.dataset.scan.pipeline import ScanPlan
    from lance_io.dataset.scan.scan_options import ScanOptions
    from lance_io.dataset.scan.scan_statistics import ScanWatch
    from lance_io.dataset.version.state import DatasetState

T = TypeVar("T")

LATE_ROWS: Final = 64 * 1024  # rows collected for one late read when the result is a table
POOL_ROWS_MIN: Final = 16_384  # a filter over fewer rows takes about as long as handing it to another thread


def scan_parts(
    state: DatasetState, plan: ScanPlan, options: ScanOptions, batch_rows: int | None
) -> tuple[Pipeline, SpanReader]:
    """What the drivers run.

    batch_rows  rows per piece, and per late read; None for pieces as large as they are decoded
    """
    late = None if plan.late_read is None else RowReader(state, plan.late_read)
    pipeline = Pipeline(plan, late, wanted_binaries(state, plan.projection), batch_rows or LATE_ROWS)
    return pipeline, SpanReader(state, plan, options, batch_rows)


def batches_sync(
    pipeline: Pipeline, reader: SpanReader, watch: ScanWatch | None = None
) -> Generator[tuple[int, pa.RecordBatch], None, None]:
    """Run a scan in this thread; `watch` counts its rows."""
    if not pipeline.done():
        prepared = _each_sync(pipeline, reader, pipeline.prepare, watch)
        try:
            for span, rows in prepared:
                yield from drive_sync(pipeline.push(span, rows))
                if pipeline.done():
                    break
        finally:
            prepared.close()
    yield from drive_sync(pipeline.finish())


async def batches(
    pipeline: Pipeline, reader: SpanReader, watch: ScanWatch | None = None
) -> AsyncGenerator[tuple[int, pa.RecordBatch], None]:
    """Run a scan on the running loop; `watch` counts its rows."""
    if not pipeline.done():
        prepared = _each(pipeline, reader, pipeline.prepare, watch)
        try:
            async for span, rows in prepared:
                for batch in await drive_async(pipeline.push(span, rows)):
                    yield batch
                if pipeline.done():
                    break
        finally:
            await prepared.aclose()
    for batch in await drive_async(pipeline.finish()):
        yield batch


def count_pieces_sync(pipeline: Pipeline, reader: SpanReader) -> int:
    """How many rows pass the filter of a scan without a limit, in this thread."""
    return sum(_each_sync(pipeline, reader, pipeline.count))


async def count_pieces(pipeline: Pipeline, reader: SpanReader) -> int:
    """`count_pieces_sync` on the running loop."""
    return sum([count async for count in _each(pipeline, reader, pipeline.count)])


# -- a few pieces at once ---------------------------------------------------------------------------------------------


def _pieces_at_once(pipeline: Pipeline) -> int:
    """How many pieces may be worked on; with a limit no more is looked at than has to be."""
    return cpu_count() if pipeline.is_filtered and not pipeline.is_limited else 1


def _is_for_pool(piece: Any, at_once: int) -> bool:
    return at_once > 1 and piece.num_rows >= POOL_ROWS_MIN


def _each_sync(
    pipeline: Pipeline, reader: SpanReader, work: Callable[..., T], watch: ScanWatch | None = None
) -> Generator[T, None, None]:
    """What `work` makes of each piece, in order."""
    at_once = _pieces_at_once(pipeline)
    under_way: deque[Future[T]] = deque()
    pieces = reader.read_sync()
    try:
        for piece in pieces:
            if watch is not None:
                watch.read(piece.num_rows)
            given = (piece.span_index, piece.row_start, piece.num_rows, piece.arrays)
            if _is_for_pool(piece, at_once):
                under_way.append(cpu_pool().submit(work, *given))
                if len(under_way) >= at_once:
                    yield under_way.popleft().result()
                continue
            while under_way:
                yield under_way.popleft().result()
            yield work(*given)
        while under_way:
            yield under_way.popleft().result()
    finally:
        for job in under_way:
            job.cancel()
        pieces.close()


async def _each(
    pipeline: Pipeline, reader: SpanReader, work: Callable[..., T], watch: ScanWatch | None = None
) -> AsyncGenerator[T, None]:
    """`_each_sync` on the running loop."""
    at_once = _pieces_at_once(pipeline)
    under_way: deque[asyncio.Future[T]] = deque()
    loop = asyncio.get_running_loop()
    pieces = reader.read()
    try:
        async for piece in pieces:
            if watch is not None:
                watch.read(piece.num_rows)
            given = (piece.span_index, piece.row_start, piece.num_rows, piece.arrays)
            if _is_for_pool(piece, at_once):
                under_way.append(loop.run_in_executor(cpu_pool(), work, *given))
                if len(under_way) >= at_once:
                    yield await under_way.popleft()
                continue
            while under_way:
                yield await under_way.popleft()
            yield work(*given)
        while under_way:
            yield await under_way.popleft()
    finally:
        for job in under_way:
            job.cancel()
        await pieces.aclose()
