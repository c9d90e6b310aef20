"""Running a scan: batches of data files through a `Pipeline` to batches, as a stream (`plans/streams.py`).

    batches, in order -> `prepare` (deleted rows, filter), a few at once on the CPU pool -> in order -> `push` -> cut

Only the reader's own readahead and the batches being prepared are in memory.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from lance_io.file.open.kept_ends import KeptEnds
from lance_io.file.scan.batches import JoinedBatch
from lance_io.levels.arrays import memory_bytes
from lance_io.limits import MIB
from lance_io.plans.cpu_requests import Begin, Result
from lance_io.plans.streams import Close, Items, Next, Open
from lance_io.reads.blobs.blob_values import wanted_binaries
from lance_io.reads.rows.read_rows import RowReader
from lance_io.reads.scan.late_columns import LateColumns
from lance_io.reads.scan.late_scan import LateScan
from lance_io.reads.scan.pipeline import Pipeline, windowed
from lance_io.reads.scan.read_spans import SpanReader
from lance_io.runtime import cpu_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from lance_io.file.scan.batches import ScanBatch
    from lance_io.plans.plan import Plan
    from lance_io.plans.streams import Stream
    from lance_io.reads.rows.rebatch import Rebatcher
    from lance_io.reads.scan.pipeline import ScanPlan
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.scan.scan_statistics import ScanWatch
    from lance_io.reads.scan.span_rows import ChosenBatch
    from lance_io.reads.version.state import DatasetState

    Batch = ScanBatch | JoinedBatch | ChosenBatch

LATE_ROWS: Final = 64 * 1024  # rows collected for one late read when the result is a table
POOL_ROWS_MIN: Final = 16_384  # for fewer rows, handing a filter to another thread takes as long as running it
JOINED_ROWS_MAX: Final = 4096  # batches of fewer rows are filtered together
JOINED_BYTES_MAX: Final = 4 * MIB  # of these batches together


class ScanRun:
    """One run of a planned scan.

    batch_rows  rows per batch, and per late read; None for batches as they are decoded
    watch       counts its rows, if statistics are requested
    apart       whether no batch may have rows of several fragments, if there is no filter
    """

    def __init__(
        self,
        state: DatasetState,
        plan: ScanPlan,
        options: ScanOptions,
        batch_rows: int | None,
        watch: ScanWatch | None = None,
        *,
        apart: bool = False,
    ) -> None:
        self._plan, self._state, self._options, self._batch_rows = plan, state, options, batch_rows
        self._watch = watch
        self._ends: KeptEnds | None = None
        if plan.parts:
            return
        if (plan.late or plan.second is not None) and state.context.store.profile.costs is not None:
            self._ends = KeptEnds(state.context.pool)
        stage, second = plan.second, None
        if stage is not None:
            costs = None if plan.chosen is not None else stage.costs
            its_plan = replace(plan, late=stage.names, late_read=stage.read, late_costs=costs)
            second = self._late_columns(its_plan)
        late = self._late_columns(plan)
        self._pipeline = Pipeline(plan, late, second, wanted_binaries(state, plan.projection), apart=apart)
        self._reader = SpanReader(state, plan, options, batch_rows, self._ends)

    def _late_columns(self, plan: ScanPlan) -> LateColumns | None:
        """Reads the late columns of a plan; None when there are none."""
        state, options = self._state, self._options
        if plan.late_read is None:
            return None
        scan = None if plan.late_costs is None else LateScan(state, plan, options, plan.late_costs, self._ends)
        reader = RowReader(state, plan.late_read, state.scan_context(None, self._ends))
        return LateColumns(plan, reader, self._batch_rows or LATE_ROWS, scan, self._watch)

    def batches(self, cutter: Rebatcher | None = None) -> Stream:
        """Its record batches, in order; without a cutter as they are decoded, each with the number of its span."""
        if self._plan.parts:
            yield from self._batches_of_parts(cutter)
        else:
            yield from self._own_batches(cutter)
        if cutter is not None:
            yield Items(cutter.flush())

    def _batches_of_parts(self, cutter: Rebatcher | None) -> Stream:
        window = self._plan.skip, self._plan.limit
        for part in self._plan.parts:
            if window[1] == 0:
                return
            if part.ready is not None:
                self._record_ready(part)
                yield Items(_cut([(0, batch) for batch in part.ready], cutter))
                continue
            run = ScanRun(self._state, windowed(part, *window), self._options, self._batch_rows, self._watch)
            yield from run._own_batches(cutter)
            window = run._pipeline.window

    def _own_batches(self, cutter: Rebatcher | None) -> Stream:
        try:
            yield from self._filtered(cutter)
        finally:
            self._drop_ends()

    def _drop_ends(self) -> None:
        if self._ends is None:
            return
        if self._watch is not None and self._ends.served_bytes:
            self._watch.record_late(kept_bytes=self._ends.served_bytes)
        self._ends.close()

    def _filtered(self, cutter: Rebatcher | None) -> Stream:
        pipeline = self._pipeline
        if pipeline.gives_all and self._watch is None:
            yield from self._unfiltered(cutter)
            return
        if not pipeline.done():
            prepared = _Prepared(pipeline, (yield self._open()), pipeline.prepare, self._watch)
            cut = partial(_cut, cutter=cutter)
            try:
                while (rows := (yield from prepared.next())) is not None:
                    if self._watch is not None:
                        self._watch.record_first_stage(sum([part.num_rows for part in rows]))
                    yield from pipeline.push(rows, cut)
                    rows = None  # not held while the next ones are read
                    if pipeline.done():
                        break
            finally:
                prepared.cancel()
            yield Close(prepared.scanned)
        yield from pipeline.finish(partial(_cut, cutter=cutter))

    def _unfiltered(self, cutter: Rebatcher | None) -> Stream:
        """The batches of a scan whose result is all rows that it reads."""
        scanned = yield self._open()
        next_batch = Next(scanned)
        waiting: list[ScanBatch | JoinedBatch] = []
        while (batch := (yield next_batch)) is not None:
            waiting.append(batch)
            batch = None  # no reference is held while the consumer uses the rows
            yield Items(_cut(self._pipeline.whole(waiting.pop()), cutter))
        yield Close(scanned)

    def counts(self) -> Stream:
        """How many rows of each batch pass the filter of a scan without a limit."""
        for part in self._plan.parts:
            if part.num_matches is not None:
                self._record_ready(part)
                yield Items((part.num_matches,))
            else:
                yield from ScanRun(self._state, part, self._options, None, self._watch).counts()
        if self._plan.parts:
            return
        try:
            yield from self._own_counts()
        finally:
            self._drop_ends()

    def _own_counts(self) -> Stream:
        pipeline = self._pipeline
        work = pipeline.prepare if pipeline.has_stages else pipeline.count
        prepared = _Prepared(pipeline, (yield self._open()), work, self._watch)
        try:
            while (result := (yield from prepared.next())) is not None:
                if pipeline.has_stages:
                    if self._watch is not None:
                        self._watch.record_first_stage(sum([part.num_rows for part in result]))
                    yield from pipeline.push_counts(result)
                else:
                    yield Items((result,))
        finally:
            prepared.cancel()
        if pipeline.has_stages:
            yield from pipeline.push_counts(None)

    def _record_ready(self, part: ScanPlan) -> None:
        if self._watch is not None and part.ready is not None:
            is_whole = part.chosen is None
            self._watch.record_rows(sum([live.num_live for live in part.live.values()]) if is_whole else part.num_rows)

    def _open(self) -> Open:
        return Open(self._reader.read_sync, self._reader.read)


def _cut(items: list[tuple[int, pa.RecordBatch]], cutter: Rebatcher | None) -> Iterable[Any]:
    """The items unchanged, or as batches of the requested size."""
    if cutter is None:
        return items
    if len(items) == 1:
        return cutter.push(items[0][1], items[0][0])
    return chain.from_iterable(cutter.push(batch, span) for span, batch in items)


class _Prepared:
    """Results of `work` on batches, in order, a few at once; small batches are joined where the result is the same.

    scanned  the open stream of batches
    """

    def __init__(
        self, pipeline: Pipeline, scanned: Any, work: Callable[[list[Batch]], Any], watch: ScanWatch | None
    ) -> None:
        self.scanned = scanned
        self._work = work
        self._watch = watch
        self._count_left = pipeline.count_left
        self._under_way: deque[Any] = deque()
        self._next: Callable[[], Any] | None = None  # work on a small batch, which waits for the work under way
        self._joins = pipeline.joins
        self._is_limited = pipeline.is_filtered and pipeline.is_limited
        # With a limit, only the necessary rows are examined.
        self._at_once = cpu_count() if pipeline.is_filtered and not pipeline.is_limited else 1
        self._ahead: Batch | None = None  # read, but not joined with the previous ones
        self._num_rows = 0  # examined so far
        self._is_over = False

    def next(self) -> Plan[Any]:
        """The next result, None at the end."""
        while not (self._is_over or self._next or (self._under_way and len(self._under_way) >= self._at_once)):
            batches = yield from self._some()
            if not batches:
                break
            work = partial(self._work, batches)
            if self._at_once > 1 and sum(batch.num_rows for batch in batches) >= POOL_ROWS_MIN:
                self._under_way.append((yield Begin(work)))
            elif self._under_way:
                self._next = work
            else:
                return work()
        if self._under_way:
            return (yield Result(self._under_way.popleft()))
        work_left, self._next = self._next, None
        return None if work_left is None else work_left()

    def _some(self) -> Plan[list[Batch]]:
        """The next batch, or small ones that may be prepared together; empty at the end."""
        batches: list[Batch] = []
        num_rows = num_bytes = 0
        while num_rows < POOL_ROWS_MIN and num_bytes < JOINED_BYTES_MAX and not self._is_over:
            batch, self._ahead = self._ahead, None
            if batch is None:
                batch = yield Next(self.scanned)
                if batch is None:
                    self._is_over = True
                    break
                if self._watch is not None:
                    self._watch.record_rows(self._count_left(batch))
            if self._is_limited and isinstance(batch, JoinedBatch):  # examines at most twice the necessary rows
                batch, self._ahead = batch.cut(self._num_rows)
            self._num_rows += batch.num_rows
            is_small = self._joins and batch.num_rows < JOINED_ROWS_MAX
            if batches and not is_small:
                self._ahead = batch
                break
            batches.append(batch)
            if not is_small:
                break
            num_rows += batch.num_rows
            num_bytes += sum(map(memory_bytes, batch.arrays))
        return batches

    def cancel(self) -> None:
        """Cancel the work under way."""
        for job in self._under_way:
            job.cancel()
