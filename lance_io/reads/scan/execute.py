"""Running scans: in a thread if the store answers at once, else on the engine's loop.

The synchronous classes call `stream`, `collect` and `count`, the asynchronous ones the functions ending in `_async`;
`run_plan.py` runs all other plans. Other modules decide what to read; this module only picks the driver.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from lance_io import runtime
from lance_io.lazy_names import lazy_module
from lance_io.levels.portable import Portable
from lance_io.plans.lazy_module import lazy_plans, load
from lance_io.plans.plan import drive_async, drive_sync
from lance_io.plans.streams import Each, Items, iterate_async, iterate_sync
from lance_io.reads.rows.rebatch import Rebatcher, to_table
from lance_io.reads.run_plan import run, run_awaited, run_in_thread
from lance_io.reads.scan.scan_plan import plan_count, plan_or_known, plan_scan, take_named
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
    from lance_io.reads.scan.pipeline import ScanPlan
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.scan.scan_statistics import ScanStatistics, ScanWatch
    from lance_io.reads.scan.stream import ScanRun
    from lance_io.reads.scan.text import text_search
    from lance_io.reads.version.column_lists import Projection
    from lance_io.reads.version.state import DatasetState
else:
    nearest = lazy_plans("lance_io.reads.scan.nearest")
    orderings = lazy_module("lance_io.reads.scan.ordering")
    text_search = lazy_plans("lance_io.reads.scan.text.text_search")
    scan_runs = lazy_module("lance_io.reads.scan.stream")  # counts and changes of tables read no rows


def _is_run_here(state: DatasetState, options: ScanOptions) -> bool:
    """Whether a scan needs no loop and no deadline."""
    return state.answers_sync and options.timeout is None


class _Scan:
    """A scan, as plans.

    watch       counts the scan, if statistics are requested
    projection  output columns, if they differ from those of the options
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
        return orderings.Ordering(self.state, options) if options.order_by and not options.is_search else None

    @property
    def _is_collected(self) -> bool:
        """Whether the first result needs all rows."""
        return self._ordering is not None or self.options.is_search

    def batches(self) -> Stream:
        """Batches of the requested size."""
        options = self.options
        portable = Portable(self.schema)
        # Without a filter, batches are slices of decoded arrays; cutting one costs a microsecond.
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
        plan = yield from self._plan()
        run = self._run(plan, None if options.filter is None else options.batch_rows, apart=not across)
        yield from run.batches(cutter)

    def table(self) -> Plan[pa.Table]:
        """All rows, over the decoded arrays; ordered if requested."""
        if self.options.full_text_query is not None:
            return (yield from text_search.search_text(self.state, self.options, self._projection, self.watch))
        if self.options.nearest is not None:
            return (yield from nearest.search(self.state, self.options, self._projection, self.watch))
        plan = yield from self._plan()
        if self.watch is None and self._ordering is None and self._projection is None:
            taken = yield from take_named(self.state, self.options, plan)
            if taken is not None:
                return taken
        items: list[tuple[int, pa.RecordBatch]] = []
        yield Each(self._run(plan, None).batches(), items.append)
        batches = [batch for _, batch in items]
        if self._ordering is None:
            return to_table(batches, self.schema)
        return (yield from self._ordering.finish(to_table(batches, self._ordering.projection.arrow_schema)))

    def has_room(self) -> bool:
        """Whether a batch may be made in advance."""
        return self.state.context.pool.avail_bytes > 0

    def _plan(self) -> Plan[ScanPlan]:
        if not self.state.is_local:
            yield load(scan_runs)
        options, projection = self.options, self._projection
        if self._ordering is not None:
            options, projection = self._ordering.options, self._ordering.projection
        if self.watch is None and projection is None:
            return (yield from plan_or_known(self.state, options))
        plan = yield from plan_scan(self.state, options, projection, ahead=True)
        if self.watch is not None:
            self.watch.record_plan(plan)
        return plan

    def _run(self, plan: ScanPlan, batch_rows: int | None, *, apart: bool = False) -> ScanRun:
        options = self.options if self._ordering is None else self._ordering.options
        return scan_runs.ScanRun(self.state, plan, options, batch_rows, self.watch, apart=apart)


# -- tables ----------------------------------------------------------------------------------------------------------


def collect(state: DatasetState, options: ScanOptions, schema: pa.Schema) -> pa.Table:
    """All rows of a scan as a table over the decoded arrays."""
    if _is_run_here(state, options) and not is_watched(options.scan_stats_callback):
        return drive_sync(_Scan(state, options, schema, None).table())
    with watch_scan(options.scan_stats_callback) as watch:
        scan = _Scan(state, options, schema, watch)
        return _record_output(
            scan, _collect_sync(scan) if _is_run_here(state, options) else runtime.run(_collect(scan))
        )


async def collect_async(state: DatasetState, options: ScanOptions, schema: pa.Schema) -> pa.Table:
    """`collect` on any loop."""
    with watch_scan(options.scan_stats_callback) as watch:
        scan = _Scan(state, options, schema, watch)
        if _is_run_here(state, options):
            return _record_output(scan, await run_in_thread(state, partial(_collect_sync, scan)))
        return _record_output(scan, await runtime.wrap(_collect(scan)))


def _record_output(scan: _Scan, table: pa.Table) -> pa.Table:
    if scan.watch is not None:
        scan.watch.record_output(table.num_rows)
    return table


def _collect_sync(scan: _Scan) -> pa.Table:
    with counting(scan.watch):
        return drive_sync(scan.table())


async def _collect(scan: _Scan) -> pa.Table:
    with counting(scan.watch):
        return await runtime.within(scan.options.timeout, drive_async(scan.table()))


# -- batches ---------------------------------------------------------------------------------------------------------


def stream(state: DatasetState, options: ScanOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The batches of a scan, few of them in memory; closing the iterator ends the scan."""
    if _is_run_here(state, options) and not is_watched(options.scan_stats_callback):
        return iterate_sync(_Scan(state, options, schema, None).batches())
    return _stream_watched(state, options, schema)


def _stream_watched(state: DatasetState, options: ScanOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with watch_scan(options.scan_stats_callback) as watch:
        scan = _Scan(state, options, schema, watch)
        if _is_run_here(state, options):
            items = iterate_sync(scan.batches())
            batches: Any = items if watch is None else count_items(watch, items)
        else:
            batches = runtime.iterate(lambda: _stream(scan), has_room=scan.has_room)
        if watch is None:
            yield from batches
        else:
            yield from counted(watch, batches)


async def stream_async(
    state: DatasetState, options: ScanOptions, schema: pa.Schema
) -> AsyncGenerator[pa.RecordBatch, None]:
    """`stream` on any loop."""
    state.check_open()
    with watch_scan(options.scan_stats_callback) as watch:
        scan = _Scan(state, options, schema, watch)
        batches = runtime.stream(lambda: _stream(scan), has_room=scan.has_room)
        try:
            num_rows = 0
            async for batch in batches:
                num_rows += batch.num_rows
                yield batch
            if watch is not None:
                watch.record_output(num_rows)
        finally:
            await batches.aclose()


def scan_batches(state: DatasetState, options: ScanOptions, schema: pa.Schema) -> Stream:
    """The batches of a scan, for plans."""
    return _Scan(state, options, schema, None).batches()


def projected_batches(state: DatasetState, options: ScanOptions, projection: Projection) -> Stream:
    """The batches of a scan whose output columns differ from those of its options, for plans."""
    return _Scan(state, options, projection.arrow_schema, None, projection).batches()


def _stream(scan: _Scan) -> AsyncGenerator[pa.RecordBatch, None]:
    """The batches on the engine's loop, in one task from the first item to the end."""
    batches, timeout_s = _count_reads(scan), scan.options.timeout
    return batches if timeout_s is None else runtime.within_each(timeout_s, batches)


async def _count_reads(scan: _Scan) -> AsyncGenerator[pa.RecordBatch, None]:
    schedulers = scan.state.schedulers
    batches = iterate_async(scan.batches())
    with counting(scan.watch):
        try:
            async for batch in batches:
                if schedulers is not None:  # batches read before the close are not delivered any more
                    schedulers.check()
                yield batch
        finally:
            await batches.aclose()


# -- counts ----------------------------------------------------------------------------------------------------------


def count(state: DatasetState, options: ScanOptions, watch: ScanWatch | None = None) -> int:
    """Number of rows of a scan; without a filter no row is read."""
    return run(state, _count(state, options, watch), options.timeout)


async def count_async(state: DatasetState, options: ScanOptions, watch: ScanWatch | None = None) -> int:
    """`count` on any loop."""
    return await run_awaited(state, _count(state, options, watch), options.timeout)


def _count(state: DatasetState, options: ScanOptions, watch: ScanWatch | None) -> Plan[int]:
    if options.full_text_query is not None:
        return (yield from text_search.count_text_matches(state, options, watch))
    if options.nearest is not None:
        return (yield from nearest.count_matches(state, options, watch))
    counted = yield from plan_count(state, options, is_watched=watch is not None)
    if isinstance(counted, int):
        return counted
    if watch is not None:
        watch.record_plan(counted)
    counts: list[int] = []
    if not state.is_local:
        yield load(scan_runs)
    yield Each(scan_runs.ScanRun(state, counted, options, None, watch).counts(), counts.append)
    return sum(counts)


# -- reports ---------------------------------------------------------------------------------------------------------


def with_stats_callback(options: ScanOptions, callback: Callable[[ScanStatistics], Any]) -> ScanOptions:
    """The same scan, whose statistics also go to `callback`."""
    first = options.scan_stats_callback

    def report(statistics: ScanStatistics) -> None:
        callback(statistics)
        if first is not None:
            first(statistics)

    return replace(options, scan_stats_callback=report)


def metrics(num_rows: int, spent: ScanStatistics) -> str:
    """The cost of a scan, as the last line of `analyze_plan`."""
    numbers = {"output_rows": num_rows, **spent.all_counts, "bytes_read": spent.bytes_read, "iops": spent.iops}
    numbers["requests"] = spent.requests
    numbers |= {name: getattr(spent, name) for name in ("indices_loaded", "parts_loaded", "index_comparisons")}
    return f"metrics=[{', '.join(f'{name}={number}' for name, number in numbers.items())}]\n"
