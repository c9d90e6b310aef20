"""The two drivers of a scan: pieces from the file room through a `Pipeline` to batches.

`batches_now` runs in the caller's thread on stores that can answer at once, `batches` on a loop on any store. Both
give `(span, record batch)`, in order, with at most the reader's own readahead in memory. Closing them early closes the
reader's stream, which cancels what is still under way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.dataset.steps import drive, drive_now

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    import pyarrow as pa

    from lance_io.dataset.pipeline import Pipeline
    from lance_io.dataset.reading import SpanReader
    from lance_io.dataset.scanstats import ScanWatch


def batches_now(
    pipeline: Pipeline, reader: SpanReader, watch: ScanWatch | None = None
) -> Generator[tuple[int, pa.RecordBatch], None, None]:
    """Run a scan in this thread; `watch` counts its rows."""
    if not pipeline.done():
        pieces = reader.read_now()
        try:
            for piece in pieces:
                if watch is not None:
                    watch.read(piece.num_rows)
                yield from drive_now(pipeline.push(piece.span_index, piece.row_start, piece.num_rows, piece.arrays))
                if pipeline.done():
                    break
        finally:
            pieces.close()
    yield from drive_now(pipeline.finish())


async def batches(
    pipeline: Pipeline, reader: SpanReader, watch: ScanWatch | None = None
) -> AsyncGenerator[tuple[int, pa.RecordBatch], None]:
    """Run a scan on the running loop; `watch` counts its rows."""
    if not pipeline.done():
        pieces = reader.read()
        try:
            async for piece in pieces:
                if watch is not None:
                    watch.read(piece.num_rows)
                push = pipeline.push(piece.span_index, piece.row_start, piece.num_rows, piece.arrays)
                for batch in await drive(push):
                    yield batch
                if pipeline.done():
                    break
        finally:
            await pieces.aclose()
    for batch in await drive(pipeline.finish()):
        yield batch


def count_pieces_now(pipeline: Pipeline, reader: SpanReader) -> int:
    """How many rows pass the filter of a scan without a limit, in this thread."""
    return sum(pipeline.count(p.span_index, p.row_start, p.num_rows, p.arrays) for p in reader.read_now())


async def count_pieces(pipeline: Pipeline, reader: SpanReader) -> int:
    """`count_pieces_now` on the running loop."""
    pieces = reader.read()
    try:
        return sum([pipeline.count(p.span_index, p.row_start, p.num_rows, p.arrays) async for p in pieces])
    finally:
        await pieces.aclose()
