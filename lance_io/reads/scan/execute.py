"""Running scans: in a thread where the store answers at once, else on the engine's loop.

The synchronous classes call `stream`, `collect` and `count`, the asynchronous ones the functions ending in `_async`;
all other plans are run by `run_plan.py`. What is read is decided elsewhere; this module only picks the driver.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from lance_io import runtime
from lance_io.lazy_names import later
from lance_io.levels.portable import Portable
from lance_io.plans.lazy_module import later_plans, load
from lance_io.plans.plan import drive_async, drive_sync
from lance_io.plans.streams import Each, Items, iterate_async, iterate_sync
from lance_io.reads.rows.rebatch import Rebatcher, to_table
from lance_io.reads.run_plan import run, run_awaited, run_beside
from lance_io.reads.scan.scan_plan import plan_count, plan_scan
from lance_io.reads.scan.scan_statistics import count_items, counted, counting, is_watched, watch_scan

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

    import pyarrow as pa

    from lance_io.plans.plan import Plan
    from lance_io.plans.streams import Stream
    from lance_io.reads.scan import nearest
    from lance_io.reads.scan import ordering as orderings
    from lance_io.reads.scan import stream as scan_runs
    from lance_io.reads.scan.ordering import Ordering
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.scan.scan_statistics import ScanStatistics, ScanWatch
    from lance_io.reads.scan.stream import ScanRun
    from lance_io.reads.version.column_lists import Projection
    from lance_io.reads.version.state import DatasetState
else:
    nearest = later_plans("lance_io.reads.scan.nearest")
    orderings = later("lance_io.reads.scan.ordering")
    scan_runs = later("lance_io.reads.scan.stream")  # counts and changes of tables read no rows


def _is_run_here(state: DatasetState, options: ScanOptions) -> bool:
    """Whether a scan needs no loop, where nothing could cancel it at a deadline."""
    return state.answers_sync and options.timeout is None


class _Scan:
    """A scan that was asked for, as plans.

    watch       counts it, where somebody wants to know
    projection  output columns, where they are not those of the options
    """

    def __init__(
        self,
        state: DatasetState,
        options: ScanOptions,
        schema: pa.Schema,
        watch: ScanWatch | None,
        projection: Projection | None = None,
    ) -> None:
        self.state = state
        self.options = options
        self.schema = schema
        self.watch = watch
        self._projection = projection

    @cached_property
    def _ordering(self) -> Ordering | None:
        options = self.options
        return orderings.Ordering(self.state, options) if options.order_by and options.nearest is None else None

    @property
    def _is_collected(self) -> bool:
        """Whether nothing is given before all rows have been looked at."""
        return self._ordering is not None or self.options.nearest is not None

    def batches(self) -> Stream:
        """Its batches, of the size that was asked for."""
        options = self.options
        portable = Portable(self.schema)
        # Without a filter batches are slices of what is decoded: cutting one costs a microsecond.
        across = bool(options.strict_batch_size) or options.filter is not None or self._is_collected
        cutter = Rebatcher(
            options.batch_rows,
            cut_bytes=options.cut_bytes,
            across=across,
            then=portable if portable.is_needed else None,
        )
        if self._is_collected:
            for batch in (yield from self.table()).to_batches():
                yield Items(cutter.push(batch))
            yield Items(cutter.flush())
            return
        run = yield from self._run(None if options.filter is None else options.batch_rows, apart=not across)
        yield from run.batches(cutter)

    def table(self) -> Plan[pa.Table]:
        """All of it, over whatever arrays were decoded; ordered if that was asked for."""
        if self.options.nearest is not None:
            return (yield from nearest.search(self.state, self.options, self._projection, self.watch))
        run = yield from self._run(None)
        found: list[tuple[int, pa.RecordBatch]] = []
        yield Each(run.batches(), found.append)
        batches = [batch for _, batch in found]
        if self._ordering is None:
            return to_table(batches, self.schema)
        return (yield from self._ordering.finish(to_table(batches, self._ordering.projection.arrow_schema)))

    def has_room(self) -> bool:
        """Whether a batch may be made before it is asked for."""
        return self.state.context.pool.avail_bytes > 0

    def _run(self, batch_rows: int | None, *, apart: bool = False) -> Plan[ScanRun]:
        if not self.state.is_local:
            yield load(scan_runs)
        options, projection = self.options, self._projection
        if self._ordering is not None:
            options, projection = self._ordering.options, self._ordering.projection
        plan = yield from plan_scan(self.state, options, projection)
        if self.watch is not None:
            self.watch.planned(plan)
        return scan_runs.ScanRun(self.state, plan, options, batch_rows, self.watch, apart=apart)


# -- tables ----------------------------------------------------------------------------------------------------------


def collect(state: DatasetState, options: ScanOptions, schema: pa.Schema) -> pa.Table:
    """All rows of a scan as a table over whatever arrays were decoded."""
    if _is_run_here(state, options) and not is_watched(options.scan_stats_callback):
        return drive_sync(_Scan(state, options, schema, None).table())
    with watch_scan(options.scan_stats_callback) as watch:
        scan = _Scan(state, options, schema, watch)
        return _told(scan, _collect_sync(scan) if _is_run_here(state, options) else runtime.run(_collect(scan)))


async def collect_async(state: DatasetState, options: ScanOptions, schema: pa.Schema) -> pa.Table:
    """`collect` on any loop."""
    with watch_scan(options.scan_stats_callback) as watch:
        scan = _Scan(state, options, schema, watch)
        if _is_run_here(state, options):
            return _told(scan, await run_beside(state, partial(_collect_sync, scan)))
        return _told(scan, await runtime.wrap(_collect(scan)))


def _told(scan: _Scan, table: pa.Table) -> pa.Table:
    if scan.watch is not None:
        scan.watch.gave(table.num_rows)
    return table


def _collect_sync(scan: _Scan) -> pa.Table:
    with counting(scan.watch):
        return drive_sync(scan.table())


async def _collect(scan: _Scan) -> pa.Table:
    with counting(scan.watch):
        return await runtime.within(scan.options.timeout, drive_async(scan.table()))


# -- batches ---------------------------------------------------------------------------------------------------------


def stream(state: DatasetState, options: ScanOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The batches of a scan, at most a few of them in memory; closing the iterator ends the scan."""
    if _is_run_here(state, options) and not is_watched(options.scan_stats_callback):
        return iterate_sync(_Scan(state, options, schema, None).batches())
    return _stream_watched(state, options, schema)


def _stream_watched(state: DatasetState, options: ScanOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with watch_scan(options.scan_stats_callback) as watch:
        scan = _Scan(state, options, schema, watch)
        if _is_run_here(state, options):
            items = iterate_sync(scan.batches())
            found: Any = items if watch is None else count_items(watch, items)
        else:
            found = runtime.iterate(lambda: _stream(scan), has_room=scan.has_room)
        if watch is None:
            yield from found
        else:
            yield from counted(watch, found)


async def stream_async(
    state: DatasetState, options: ScanOptions, schema: pa.Schema
) -> AsyncGenerator[pa.RecordBatch, None]:
    """`stream` on any loop."""
    state.check_open()
    with watch_scan(options.scan_stats_callback) as watch:
        scan = _Scan(state, options, schema, watch)
        found = runtime.stream(lambda: _stream(scan), has_room=scan.has_room)
        try:
            num_rows = 0
            async for batch in found:
                num_rows += batch.num_rows
                yield batch
            if watch is not None:
                watch.gave(num_rows)
        finally:
            await found.aclose()


def scan_batches(state: DatasetState, options: ScanOptions, schema: pa.Schema) -> Stream:
    """The batches of a scan, for plans."""
    return _Scan(state, options, schema, None).batches()


def projected_batches(state: DatasetState, options: ScanOptions, projection: Projection) -> Stream:
    """The batches of a scan whose output columns are not those of its options, for plans."""
    return _Scan(state, options, projection.arrow_schema, None, projection).batches()


def _stream(scan: _Scan) -> AsyncGenerator[pa.RecordBatch, None]:
    """On the engine's loop, in one task from the first item to the end."""
    found, timeout_s = _count_reads(scan), scan.options.timeout
    return found if timeout_s is None else runtime.within_each(timeout_s, found)


async def _count_reads(scan: _Scan) -> AsyncGenerator[pa.RecordBatch, None]:
    schedulers = scan.state.schedulers
    found = iterate_async(scan.batches())
    with counting(scan.watch):
        try:
            async for batch in found:
                if schedulers is not None:  # what was read before they were closed is not given any more
                    schedulers.check()
                yield batch
        finally:
            await found.aclose()


# -- counts ----------------------------------------------------------------------------------------------------------


def count(state: DatasetState, options: ScanOptions, watch: ScanWatch | None = None) -> int:
    """How many rows a scan gives; without a filter no row is read."""
    return run(state, _count(state, options, watch), options.timeout)


async def count_async(state: DatasetState, options: ScanOptions, watch: ScanWatch | None = None) -> int:
    """`count` on any loop."""
    return await run_awaited(state, _count(state, options, watch), options.timeout)


def _count(state: DatasetState, options: ScanOptions, watch: ScanWatch | None) -> Plan[int]:
    if options.nearest is not None:
        return (yield from nearest.count_found(state, options, watch))
    counted = yield from plan_count(state, options)
    if isinstance(counted, int):
        return counted
    if watch is not None:
        watch.planned(counted)
    counts: list[int] = []
    if not state.is_local:
        yield load(scan_runs)
    yield Each(scan_runs.ScanRun(state, counted, options, None, watch).counts(), counts.append)
    return sum(counts)


# -- reports ---------------------------------------------------------------------------------------------------------


def heard_by(options: ScanOptions, hear: Callable[[ScanStatistics], Any]) -> ScanOptions:
    """The same scan, whose statistics are told to `hear`, too."""
    first = options.scan_stats_callback

    def tell(found: ScanStatistics) -> None:
        hear(found)
        if first is not None:
            first(found)

    return replace(options, scan_stats_callback=tell)


def metrics(num_rows: int, spent: ScanStatistics) -> str:
    """What running a scan took, as the last line of `analyze_plan`."""
    numbers = {"output_rows": num_rows, **spent.all_counts, "bytes_read": spent.bytes_read, "iops": spent.iops}
    numbers["requests"] = spent.requests
    return f"metrics=[{', '.join(f'{name}={number}' for name, number in numbers.items())}]\n"
