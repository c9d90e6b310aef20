"""Running plans and scans: in this thread where the store answers at once, else on the engine's loop.

The synchronous classes call `run`, `stream`, `collect` and `count`; the asynchronous class awaits `drive` and the
functions ending in `_async`. What is read is decided elsewhere; this module only picks the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from lance_io import runtime
from lance_io.dataset.blobs import wanted_binaries
from lance_io.dataset.ordering import Ordering
from lance_io.dataset.pipeline import Pipeline
from lance_io.dataset.reading import SpanReader
from lance_io.dataset.rebatch import Rebatcher, to_table
from lance_io.dataset.scan import plan_count, plan_scan, width_bytes
from lance_io.dataset.steps import drive, drive_now
from lance_io.dataset.stream import batches, batches_now

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    import pyarrow as pa

    from lance_io.dataset.options import ScanOptions
    from lance_io.dataset.pipeline import ScanPlan
    from lance_io.dataset.projection import Projection
    from lance_io.dataset.state import DatasetState
    from lance_io.dataset.steps import Plan

T = TypeVar("T")

LATE_ROWS = 64 * 1024  # rows collected for one late read when the result is a table


def run(state: DatasetState, plan: Plan[T]) -> T:
    """Run a plan and wait for it."""
    return drive_now(plan) if state.answers_now else runtime.run(drive(plan))


# -- pieces: one scan as it comes ------------------------------------------------------------------------------------


def _parts(
    state: DatasetState, plan: ScanPlan, options: ScanOptions, batch_rows: int | None
) -> tuple[Pipeline, SpanReader]:
    _, late = state.row_reader(plan.late_paths)
    pipeline = Pipeline(plan, late, wanted_binaries(state, plan.projection), batch_rows or LATE_ROWS)
    return pipeline, SpanReader(state, plan, options, batch_rows)


def _pieces_now(
    state: DatasetState, options: ScanOptions, projection: Projection | None, batch_rows: int | None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    plan = drive_now(plan_scan(state, options, projection))
    return batches_now(*_parts(state, plan, options, batch_rows))


async def _pieces_async(
    state: DatasetState, options: ScanOptions, projection: Projection | None, batch_rows: int | None
) -> AsyncGenerator[tuple[int, pa.RecordBatch], None]:
    plan = await drive(plan_scan(state, options, projection))
    pieces = batches(*_parts(state, plan, options, batch_rows))
    try:
        async for piece in pieces:
            yield piece
    finally:
        await pieces.aclose()


# -- tables ----------------------------------------------------------------------------------------------------------


def collect(state: DatasetState, options: ScanOptions, schema: pa.Schema) -> pa.Table:
    """All rows of a scan as a table over whatever pieces were decoded."""
    if not state.answers_now:
        return runtime.run(collect_async(state, options, schema))
    if options.order_by:
        ordering = Ordering(state, options)
        pieces = _pieces_now(state, ordering.options, ordering.projection, None)
        return drive_now(ordering.finish(to_table([b for _, b in pieces], ordering.projection.arrow_schema)))
    return to_table([batch for _, batch in _pieces_now(state, options, None, None)], schema)


async def collect_async(state: DatasetState, options: ScanOptions, schema: pa.Schema) -> pa.Table:
    """`collect` on the running loop."""
    if options.order_by:
        ordering = Ordering(state, options)
        found = [b async for _, b in _pieces_async(state, ordering.options, ordering.projection, None)]
        return await drive(ordering.finish(to_table(found, ordering.projection.arrow_schema)))
    return to_table([batch async for _, batch in _pieces_async(state, options, None, None)], schema)


# -- batches ---------------------------------------------------------------------------------------------------------


def stream(state: DatasetState, options: ScanOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The batches of a scan, at most a few of them in memory; closing the iterator ends the scan."""
    if not state.answers_now:
        yield from runtime.iterate(lambda: stream_async(state, options, schema))
        return
    if options.order_by:
        yield from _cut(collect(state, options, schema), options)
        return
    batch_rows = _batch_rows(options, schema)
    rebatch = Rebatcher(batch_rows, across=_across(options))
    for span, batch in _pieces_now(state, options, None, batch_rows):
        yield from rebatch.push(batch, span)
    yield from rebatch.flush()


async def stream_async(
    state: DatasetState, options: ScanOptions, schema: pa.Schema
) -> AsyncGenerator[pa.RecordBatch, None]:
    """`stream` on the running loop."""
    if options.order_by:
        for batch in _cut(await collect_async(state, options, schema), options):
            yield batch
        return
    batch_rows = _batch_rows(options, schema)
    rebatch = Rebatcher(batch_rows, across=_across(options))
    pieces = _pieces_async(state, options, None, batch_rows)
    try:
        async for span, piece in pieces:
            for batch in rebatch.push(piece, span):
                yield batch
    finally:
        await pieces.aclose()
    for batch in rebatch.flush():
        yield batch


def _batch_rows(options: ScanOptions, schema: pa.Schema) -> int:
    return options.batch_rows(sum(width_bytes(field.type) for field in schema))


def _across(options: ScanOptions) -> bool:
    return bool(options.strict_batch_size) or options.filter is not None


def _cut(table: pa.Table, options: ScanOptions) -> Iterator[pa.RecordBatch]:
    yield from table.combine_chunks().to_batches(max_chunksize=_batch_rows(options, table.schema))


# -- counts ----------------------------------------------------------------------------------------------------------


def count(state: DatasetState, options: ScanOptions) -> int:
    """How many rows a scan gives; without a filter no row is read."""
    if not state.answers_now:
        return runtime.run(count_async(state, options))
    counted = drive_now(plan_count(state, options))
    if isinstance(counted, int):
        return counted
    return sum(batch.num_rows for _, batch in batches_now(*_parts(state, counted, options, None)))


async def count_async(state: DatasetState, options: ScanOptions) -> int:
    """`count` on the running loop."""
    counted = await drive(plan_count(state, options))
    if isinstance(counted, int):
        return counted
    num_rows = 0
    async for _, batch in batches(*_parts(state, counted, options, None)):
        num_rows += batch.num_rows
    return num_rows
