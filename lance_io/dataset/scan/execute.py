"""Running plans and scans: in this thread where the store answers at once, else on the engine's loop.

The synchronous classes call `stream`, `collect` and `count`, the asynchronous class the functions ending in `_async`;
for all other plans there are `run` and `run_async` (`running.py`). What is read is decided elsewhere; this module only
picks the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io import runtime
from lance_io.dataset.scan.ordering import Ordering
from lance_io.dataset.scan.rebatch import Rebatcher, to_table
from lance_io.dataset.scan.scan_plan import plan_count, plan_scan, width_bytes
from lance_io.dataset.scan.scan_statistics import counted_items, counting, watched
from lance_io.dataset.scan.stream import batches, batches_sync, count_pieces, count_pieces_sync, scan_parts
from lance_io.levels.portable import Portable
from lance_io.plans.plan import drive_async, drive_sync

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Generator, Iterator

    import pyarrow as pa

    from lance_io.dataset.rows.read_rows import SpanReader
    from lance_io.dataset.scan.pipeline import Pipeline, ScanPlan
    from lance_io.dataset.scan.scan_options import ScanOptions
    from lance_io.dataset.scan.scan_statistics import ScanWatch
    from lance_io.dataset.version.state import DatasetState
    from lance_io.io.stats import IoStats


def _is_run_here(state: DatasetState, options: ScanOptions) -> bool:
    """Whether a scan runs in the caller's thread, which nothing could cancel at a deadline."""
    return state.answers_sync and options.timeout is None


# -- pieces: one scan as it comes ------------------------------------------------------------------------------------


class _Run:
    """One run of a scan.

    watch  counts it, where somebody wants to know
    """

    def __init__(self, state: DatasetState, options: ScanOptions, watch: ScanWatch | None) -> None:
        self.state = state
        self.options = options
        self.watch = watch
        self._ordering = Ordering(state, options) if options.order_by else None
        self._projection = None if self._ordering is None else self._ordering.projection

    def pieces_sync(self, batch_rows: int | None) -> Generator[tuple[int, pa.RecordBatch], None, None]:
        """Its batches as they are decoded, each with the number of its span."""
        plan = drive_sync(plan_scan(self.state, self._scanned, self._projection))
        return batches_sync(*self._parts(plan, batch_rows), self.watch)

    async def pieces(self, batch_rows: int | None) -> AsyncGenerator[tuple[int, pa.RecordBatch], None]:
        """`pieces_sync` on the running loop."""
        plan = await drive_async(plan_scan(self.state, self._scanned, self._projection))
        found = batches(*self._parts(plan, batch_rows), self.watch)
        try:
            async for piece in found:
                yield piece
        finally:
            await found.aclose()

    def has_room(self) -> bool:
        """Whether a batch may be made before it is asked for."""
        return self.state.context.pool.avail_bytes > 0

    @property
    def _scanned(self) -> ScanOptions:
        return self.options if self._ordering is None else self._ordering.options

    def _parts(self, plan: ScanPlan, batch_rows: int | None) -> tuple[Pipeline, SpanReader]:
        if self.watch is not None:
            self.watch.planned(plan)
        return scan_parts(self.state, plan, self._scanned, batch_rows)

    def table_sync(self, schema: pa.Schema) -> pa.Table:
        """All of it, ordered if that was asked for."""
        found = [batch for _, batch in self.pieces_sync(None)]
        if self._ordering is None:
            return to_table(found, schema)
        return drive_sync(self._ordering.finish(to_table(found, self._ordering.projection.arrow_schema)))

    async def table(self, schema: pa.Schema) -> pa.Table:
        """`table_sync` on the running loop."""
        found = [batch async for _, batch in self.pieces(None)]
        if self._ordering is None:
            return to_table(found, schema)
        return await drive_async(self._ordering.finish(to_table(found, self._ordering.projection.arrow_schema)))


# -- tables ----------------------------------------------------------------------------------------------------------


def collect(state: DatasetState, options: ScanOptions, schema: pa.Schema) -> pa.Table:
    """All rows of a scan as a table over whatever pieces were decoded."""
    with watched(options.scan_stats_callback) as watch:
        if not _is_run_here(state, options):
            return runtime.run(_collect(_Run(state, options, watch), schema))
        with counting(watch):
            return _Run(state, options, watch).table_sync(schema)


async def collect_async(state: DatasetState, options: ScanOptions, schema: pa.Schema) -> pa.Table:
    """`collect` on any loop."""
    with watched(options.scan_stats_callback) as watch:
        return await runtime.wrap(_collect(_Run(state, options, watch), schema))


async def _collect(run: _Run, schema: pa.Schema) -> pa.Table:
    with counting(run.watch):
        return await runtime.within(run.options.timeout, run.table(schema))


# -- batches ---------------------------------------------------------------------------------------------------------


def stream(state: DatasetState, options: ScanOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The batches of a scan, at most a few of them in memory; closing the iterator ends the scan."""
    with watched(options.scan_stats_callback) as watch:
        run = _Run(state, options, watch)
        if _is_run_here(state, options):
            yield from counted_items(watch, _stream_sync(run, schema))
        else:
            yield from runtime.iterate(lambda: _stream(run, schema), has_room=run.has_room)


async def stream_async(
    state: DatasetState, options: ScanOptions, schema: pa.Schema
) -> AsyncGenerator[pa.RecordBatch, None]:
    """`stream` on any loop."""
    with watched(options.scan_stats_callback) as watch:
        run = _Run(state, options, watch)
        found = runtime.stream(lambda: _stream(run, schema), has_room=run.has_room)
        try:
            async for batch in found:
                yield batch
        finally:
            await found.aclose()


def _stream_sync(run: _Run, schema: pa.Schema) -> Generator[pa.RecordBatch, None, None]:
    batch_rows, portable = _batch_rows(run.options, schema), Portable(schema)
    if run.options.order_by:
        yield from map(portable, _cut(run.table_sync(schema), batch_rows))
        return
    rebatch = Rebatcher(batch_rows, across=_across(run.options))
    for span, batch in run.pieces_sync(_piece_rows(run.options, batch_rows)):
        yield from map(portable, rebatch.push(batch, span))
    yield from map(portable, rebatch.flush())


def _stream(run: _Run, schema: pa.Schema) -> AsyncGenerator[pa.RecordBatch, None]:
    """`_stream_sync` on the engine's loop, in one task from the first item to the end."""
    found, timeout_s = _stream_async(run, schema), run.options.timeout
    return found if timeout_s is None else runtime.within_each(timeout_s, found)


async def _stream_async(run: _Run, schema: pa.Schema) -> AsyncGenerator[pa.RecordBatch, None]:
    batch_rows, portable = _batch_rows(run.options, schema), Portable(schema)
    with counting(run.watch):
        if run.options.order_by:
            for batch in map(portable, _cut(await run.table(schema), batch_rows)):
                yield batch
            return
        rebatch = Rebatcher(batch_rows, across=_across(run.options))
        pieces = run.pieces(_piece_rows(run.options, batch_rows))
        try:
            async for span, piece in pieces:
                for batch in map(portable, rebatch.push(piece, span)):
                    if run.state.schedulers is not None:  # what was read before they were closed is not given any more
                        run.state.schedulers.check()
                    yield batch
        finally:
            await pieces.aclose()
        for batch in map(portable, rebatch.flush()):
            yield batch


def _piece_rows(options: ScanOptions, batch_rows: int) -> int | None:
    """Without a filter batches are slices of pieces as they are decoded: cutting one costs a microsecond."""
    return None if options.filter is None else batch_rows


def _batch_rows(options: ScanOptions, schema: pa.Schema) -> int:
    return options.batch_rows(sum(width_bytes(field.type) for field in schema))


def _across(options: ScanOptions) -> bool:
    return bool(options.strict_batch_size) or options.filter is not None


def _cut(table: pa.Table, batch_rows: int) -> Iterator[pa.RecordBatch]:
    yield from table.combine_chunks().to_batches(max_chunksize=batch_rows)


# -- counts ----------------------------------------------------------------------------------------------------------


def count(state: DatasetState, options: ScanOptions) -> int:
    """How many rows a scan gives; without a filter no row is read."""
    if not _is_run_here(state, options):
        return runtime.run(_count(state, options))
    counted = drive_sync(plan_count(state, options))
    if isinstance(counted, int):
        return counted
    return count_pieces_sync(*scan_parts(state, counted, options, None))


async def count_async(state: DatasetState, options: ScanOptions) -> int:
    """`count` on any loop."""
    return await runtime.wrap(_count(state, options))


def _count(state: DatasetState, options: ScanOptions) -> Coroutine[Any, Any, int]:
    return runtime.within(options.timeout, _count_async(state, options))


async def _count_async(state: DatasetState, options: ScanOptions) -> int:
    counted = await drive_async(plan_count(state, options))
    if isinstance(counted, int):
        return counted
    return await count_pieces(*scan_parts(state, counted, options, None))


# -- reports ---------------------------------------------------------------------------------------------------------


def metrics(num_rows: int, spent: IoStats) -> str:
    """What running a scan took, as the last line of `analyze_plan`."""
    return f"metrics=[output_rows={num_rows}, requests={spent.num_reads}, bytes_read={spent.bytes_read}]\n"
