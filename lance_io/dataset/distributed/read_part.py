"""Reading one part of a scan, all at once or in two steps: the first rows, then the others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from lance_io import compute as pc
from lance_io import runtime
from lance_io.dataset.distributed.named_rows import row_set
from lance_io.dataset.distributed.scan_request import FRAGMENT_ID, scan_projection
from lance_io.plans.lazy_module import lazy_plans
from lance_io.plans.plan import stoppable
from lance_io.plans.streams import iterate_async, iterate_sync
from lance_io.reads.blobs.blob_values import wanted_binaries
from lance_io.reads.rows.deletions_and_ids import load_live
from lance_io.reads.rows.rebatch import rebatch_by_bytes
from lance_io.reads.rows.row_arithmetic import OFFSET_BITS
from lance_io.reads.scan.pipeline import Span
from lance_io.reads.scan.scan_options import scan_options
from lance_io.reads.scan.scan_plan import plan_columns, plan_rows, plan_steps, pruned
from lance_io.reads.scan.scan_statistics import count_items, counting
from lance_io.reads.scan.stream import ScanRun

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from lance_io.dataset.distributed.scan_request import ScanPart
    from lance_io.dataset.distributed.table_scan import TableScan
    from lance_io.plans.plan import Plan
    from lance_io.plans.streams import Stream
    from lance_io.reads.rows.row_arithmetic import LiveRows
    from lance_io.reads.scan import index_scan as index_scans
    from lance_io.reads.scan.pipeline import ScanPlan
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.scan.scan_statistics import ScanWatch
    from lance_io.reads.version.column_lists import Projection
    from lance_io.reads.version.state import DatasetState

else:
    index_scans = lazy_plans("lance_io.reads.scan.index_scan")  # for tables with indices only

FILTERED_ROWS_MIN: Final = 1024
Offer: TypeAlias = Callable[[Callable[[], None]], object]

BLOB_ROWS: Final = 64  # few at a time, because each blob is read whole


def read_part(
    scan: TableScan,
    state: DatasetState,
    part: ScanPart,
    *,
    batch_bytes: int,
    batch_rows: int | None,
    io_buffer_bytes: int | None,
    first_rows: int,
    skip_rows: int,
    offer_stop: Offer | None = None,
    watch: ScanWatch | None = None,
) -> Generator[pa.RecordBatch, None, None]:
    """The rows of a part; see `TableScan.read`. `state` covers the fragments of the part."""
    request = scan.request
    options = scan_options(
        filter=request.filter,
        limit=request.limit,  # counts rows that pass the filter; without a filter the planner has cut the ranges
        io_buffer_size=io_buffer_bytes,
        blob_handling="all_binary" if request.blobs_as_bytes else "blobs_descriptions",
    )
    columns = _plan_columns(scan, state, options)
    rows_at_once = _rows_at_once(scan, state, columns.projection, batch_bytes)
    batches = _PartRead(state, part, columns, options, rows_at_once, first_rows, skip_rows, offer_stop, watch).batches()
    try:
        for batch in rebatch_by_bytes(batches, batch_bytes, batch_rows):
            yield _with_fragment_ids(scan, batch)
    finally:
        batches.close()


def _plan_columns(scan: TableScan, state: DatasetState, options: ScanOptions) -> ScanPlan:
    """The scan's plan before it has rows. It is computed once in a process, because the schema is the same for all
    parts.
    """
    if scan.prepared is None:
        scan.prepared = plan_columns(state, options, scan_projection(state, scan.request))
    return scan.prepared.again()


def _rows_at_once(scan: TableScan, state: DatasetState, projection: Projection, batch_bytes: int) -> int | None:
    """Rows that are filtered together, or whose blobs are read together; None for pages as they come."""
    if wanted_binaries(state, projection) is not None:
        return BLOB_ROWS
    if scan.request.filter is None:
        return None
    return max(FILTERED_ROWS_MIN, int(batch_bytes / max(scan.row_width[0], 64)))


def _with_fragment_ids(scan: TableScan, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Turn row addresses that are shown as fragment ids into these."""
    column_index = batch.schema.get_field_index(FRAGMENT_ID) if FRAGMENT_ID in scan.system_columns else -1
    if column_index < 0:
        return batch
    ids = pc.shift_right(batch.column(column_index), pa.scalar(OFFSET_BITS, pa.uint64()))
    return batch.set_column(column_index, FRAGMENT_ID, ids)


@dataclass(frozen=True, slots=True, eq=False)
class _PartRead:
    """One run over a part, over its first rows, or over the rest.

    columns       the plan before it has rows
    rows_at_once  rows that are filtered together, or whose blobs are read together
    offer_stop    see `TableScan.read`
    watch         counts the reads
    """

    state: DatasetState
    part: ScanPart
    columns: ScanPlan
    options: ScanOptions
    rows_at_once: int | None
    first_rows: int
    skip_rows: int
    offer_stop: Offer | None
    watch: ScanWatch | None

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """The batches as they are decoded; closing the generator ends the scan."""
        if self.state.answers_sync:
            with nullcontext() if self.offer_stop is None else stoppable(self.offer_stop):
                items: Any = iterate_sync(self._stream())
                yield from (batch for _, batch in (items if self.watch is None else count_items(self.watch, items)))
            return
        with runtime.iterate(self._counted) as items:
            if self.offer_stop is not None:
                self.offer_stop(items.stop)
            yield from (batch for _, batch in items)

    async def _counted(self) -> AsyncGenerator[Any, None]:
        """The items on the engine's loop, in one task from the first to the end."""
        items = iterate_async(self._stream())
        with counting(self.watch):
            try:
                async for item in items:
                    yield item
            finally:
                await items.aclose()

    def _stream(self) -> Stream:
        plan = yield from self._plan()
        yield from ScanRun(self.state, plan, self.options, self.rows_at_once).batches()

    def _plan(self) -> Plan[ScanPlan]:
        if self.part.named:
            return (yield from self._plan_named())
        live = yield from load_live(self.state, range(len(self.part.ranges)))
        spans = [
            Span(fragment_index, first, first + rows)
            for fragment_index, (_, first, rows) in enumerate(self.part.ranges)
            if live[fragment_index].num_live
        ]
        num_rows = self.first_rows or self.skip_rows
        if num_rows and spans:
            head = _head_of(live[spans[0].fragment_index], spans[0], num_rows)
            rest = [Span(head.fragment_index, head.end, spans[0].end), *spans[1:]]
            spans = [span for span in ([head] if self.first_rows else rest) if span.start < span.end]
        plan = yield from pruned(self.state, self.columns, tuple(spans), self.options)
        return (yield from plan_rows(self.state, plan, live))

    def _plan_named(self) -> Plan[ScanPlan]:
        """The plan of a part of which indices name rows; of its other fragments all rows are examined."""
        state, part, columns = self.state, self.part, self.columns
        finish, columns_for = plan_steps(state, self.options, columns.projection)
        plans: list[ScanPlan] = []
        for is_named, group in groupby(range(len(part.ranges)), lambda at: part.named[at] is not None):
            indexes = [*group]
            if is_named:
                steps = columns, row_set(part, indexes), indexes, columns_for, finish
                plans += yield from index_scans.plan_named(state, self.options, *steps, is_exact=part.is_exact)
                continue
            live = yield from load_live(state, indexes)
            spans = tuple(
                Span(index, first, first + rows) for index in indexes for _, first, rows in [part.ranges[index]]
            )
            plans.append((yield from finish(columns, spans, live)))
        return replace(
            columns,
            spans=tuple(span for plan in plans for span in plan.spans),
            live={index: live for plan in plans for index, live in plan.live.items()},
            parts=tuple(plans),
        )


def _head_of(live: LiveRows, span: Span, num_rows: int) -> Span:
    """The first `num_rows` live rows of a span, or all of them."""
    if live.deleted is None:
        return Span(span.fragment_index, span.start, min(span.start + num_rows, span.end))
    before = span.start - int(np.searchsorted(live.deleted, span.start))
    start, end = live.span(before, min(before + num_rows, live.num_live))
    return Span(span.fragment_index, min(max(start, span.start), span.end), max(min(end, span.end), span.start))
