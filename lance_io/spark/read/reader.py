"""`LanceReader`: made and asked for partitions by a planner, then unpickled and asked for batches by every task.

A task reads its partition in one scan: page after page is read and decoded ahead while earlier batches cross into the
JVM, and at most a batch more than that waits. Batches have about `batch_bytes`, whatever the pages are like. Leaving
early (Spark does, at a limit) closes the scan, which cancels what is under way.

The first partition is what Spark reads for `show()` and `limit(n)`, and often no more than its first rows. If it is
large, these are read before the scan begins: of the pages only the chunks that hold them. That is some requests more,
once in a read. Before it reads whole pages, the task waits until Spark has taken these rows, or has closed the
connection, because they were enough (`taken`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from lance_io import runtime
from lance_io.dataset import compute as pc
from lance_io.dataset.rows.deletions_and_ids import load_live
from lance_io.dataset.rows.row_arithmetic import OFFSET_BITS
from lance_io.dataset.scan.pipeline import Span
from lance_io.dataset.scan.rebatch import join_batches
from lance_io.dataset.scan.scan_plan import plan_rows
from lance_io.dataset.scan.stream import ScanRun
from lance_io.errors import LanceError
from lance_io.plans.streams import iterate_async, iterate_sync
from lance_io.spark.consumed import buffer_bytes, wants_more
from lance_io.spark.engine import cleanups_told, fit_to_task
from lance_io.spark.options import StreamReadOptions
from lance_io.spark.read.partition_state import header_of, open_pinned
from lance_io.spark.read.read_columns import FRAGMENT_ID, check_declared, read_projection, shown_schema
from lance_io.spark.read.read_job import ReadJob
from lance_io.spark.task_context import warn_of_credentials
from lance_io.spark.types import arrow_to_spark
from lance_io.spark.worker_tuning import freeze_loaded, tune_worker

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from pyspark.sql.types import StructType

    from lance_io.dataset.rows.row_arithmetic import LiveRows
    from lance_io.dataset.scan.pipeline import ScanPlan
    from lance_io.dataset.version.column_lists import Projection
    from lance_io.dataset.version.state import DatasetState
    from lance_io.plans.plan import Plan
    from lance_io.plans.streams import Stream
    from lance_io.spark.options import ReadOptions
    from lance_io.spark.read.partition_state import PartitionPlan, Pinned
    from lance_io.spark.read.read_job import PreparedRead

HEAD_BYTES: Final = 320 << 10  # of the rows that the first partition begins with, about
HEAD_ROWS_MIN: Final = 32  # of them: `show()` wants 21
HEAD_PARTITION_BYTES_MIN: Final = 4 << 20  # a smaller partition is read in as many requests as its head
PUSHED_BUFFERS: Final = 2.5  # the worker's, the virtual machine's, and something that waits between them
JOINED_PART: Final = 4  # batches from a quarter of the wanted size on go out as they are, not copied together


class LancePartition(InputPartition):
    """One partition; `value` is its `PartitionPlan`."""


class LanceReader(DataSourceReader):
    """The reader of a batch query.

    options   of the read
    declared  the Spark schema that batches must have: the table's, or what the user gave to `schema`
    version   which was pinned when the table was loaded; None pins it now
    Raises what opening the table raises, `BindError` and `SchemaError` for a schema that is not the table's.
    """

    def __init__(self, options: ReadOptions, declared: StructType, version: Pinned | None) -> None:
        from lance_io.spark.read.partitions import plan_read  # no task needs it

        state = open_pinned(options, version)
        projection = read_projection(state, options, declared.names)
        check_declared(declared, _found(projection, options))
        with cleanups_told(state.location, state.manifest.version):
            self._parts: Sequence[PartitionPlan] = plan_read(state, options, projection).parts
        self._job = ReadJob(options, declared, header_of(state, options), state.manifest.branch).packed()
        freeze_loaded(options)

    def partitions(self) -> Sequence[InputPartition]:
        """The partitions, at least one."""
        return [LancePartition(one) for one in self._parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of a partition."""
        part: PartitionPlan = partition.value
        return read_partition(ReadJob.unpacked(self._job), part)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parts": ()}  # Spark gives each task its own


def _found(projection: Projection, options: ReadOptions) -> StructType:
    return arrow_to_spark(shown_schema(projection), uint64=options.uint64, timestamp_ns=options.timestamp_ns)


def read_partition(job: ReadJob, part: PartitionPlan) -> Generator[pa.RecordBatch, None, None]:
    """The rows of one partition in batches of Spark's schema.

    Errors say which table, version and rows they come from.
    """
    fit_to_task()  # before there are other connections
    tune_worker(job.options)
    try:
        with cleanups_told(job.state(part).location, part.version):
            yield from _batches(job, part)
        freeze_loaded(job.options)
    except (LanceError, pa.ArrowInvalid) as error:
        ranges = ", ".join(f"fragment {one} rows {first} to {first + rows}" for one, first, rows in part.ranges[:3])
        more = f" and {len(part.ranges) - 3} more" if len(part.ranges) > 3 else ""
        error.add_note(f"while reading {job.options.path} version {part.version}: {ranges}{more}")
        raise


def _batches(job: ReadJob, part: PartitionPlan) -> Iterator[pa.RecordBatch]:
    if not part.ranges:
        return
    warn_of_credentials(job.options)
    state = job.state(part)
    prepared = job.prepared(state)

    def read(scan: _Scan) -> Iterator[pa.RecordBatch]:
        found = scan.batches()
        try:
            for batch in sized(found, job.options.batch_bytes, job.options.batch_size):
                yield prepared.cast.cast(_with_fragment_ids(batch))
        finally:
            found.close()

    rows = head_rows(job.options, part)
    if rows:
        head = read(_Scan(state, prepared, part, rows, is_head=True))
        pushed = [one for batch in head for one in pushed_out(batch)]
        yield from pushed
        if len(pushed) > 1 and not wants_more():
            return
    yield from read(_Scan(state, prepared, part, rows, is_head=False))


def head_rows(options: ReadOptions, part: PartitionPlan) -> int:
    """How many rows of a partition are read before the others are scanned; 0 for none."""
    is_whole = isinstance(options, StreamReadOptions)  # which nobody leaves early
    counts = options.limit is not None and options.filter is not None  # one scan counts what passes the filter
    if part.number or part.bytes < HEAD_PARTITION_BYTES_MIN or is_whole or counts:
        return 0
    return max(HEAD_BYTES * part.physical_rows // part.bytes, HEAD_ROWS_MIN)


def pushed_out(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """The batch, in two parts if it is large enough for a second that does not vanish in the buffers of both ends.

    It pushes the first out of the worker's buffer, and waits between both until Spark asks for it.
    """
    behind = math.ceil(batch.num_rows * buffer_bytes() * PUSHED_BUFFERS / max(batch.nbytes, 1))
    if behind >= batch.num_rows:
        return [batch]
    first = batch.num_rows - behind
    return [batch.slice(0, first), batch.slice(first)]


def _with_fragment_ids(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Row addresses that are shown as fragment ids are cut to these."""
    place = batch.schema.get_field_index(FRAGMENT_ID)
    if place < 0:
        return batch
    ids = pc.shift_right(batch.column(place), pa.scalar(OFFSET_BITS, pa.uint64()))
    return batch.set_column(place, FRAGMENT_ID, ids)


class _Scan:
    """The scan of one partition, or of the rows that it begins with and of those behind them.

    head_rows  rows that it begins with, of its first fragment; 0 for none
    is_head    whether it is these that are read, or what is behind them
    """

    def __init__(
        self, state: DatasetState, prepared: PreparedRead, part: PartitionPlan, head_rows: int, *, is_head: bool
    ) -> None:
        self._state = state
        self._prepared = prepared
        self._part = part
        self._head_rows = head_rows
        self._is_head = is_head

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """What the scan gives, as it is decoded; closing it ends the scan."""
        if self._state.answers_sync:
            yield from (batch for _, batch in iterate_sync(self._stream()))
            return
        with runtime.iterate(lambda: iterate_async(self._stream())) as found:
            yield from (batch for _, batch in found)

    def _stream(self) -> Stream:
        plan = yield from self._plan()
        prepared = self._prepared
        yield from ScanRun(self._state, plan, prepared.scan_options, prepared.batch_rows).batches()

    def _plan(self) -> Plan[ScanPlan]:
        live = yield from load_live(self._state, range(len(self._part.ranges)))
        spans = [
            Span(place, first, first + rows)
            for place, (_, first, rows) in enumerate(self._part.ranges)
            if live[place].num_live
        ]
        if self._head_rows and spans:
            head = _head_of(live[spans[0].place], spans[0], self._head_rows)
            rest = [Span(head.place, head.end, spans[0].end), *spans[1:]]
            spans = [one for one in ([head] if self._is_head else rest) if one.start < one.end]
        return (yield from plan_rows(self._state, self._prepared.columns(), tuple(spans), live))


def _head_of(live: LiveRows, span: Span, num_rows: int) -> Span:
    """The part of a span with so many rows that are left, or all of them, from the first of these on."""
    if live.deleted is None:
        return Span(span.place, span.start, min(span.start + num_rows, span.end))
    before = span.start - int(np.searchsorted(live.deleted, span.start))
    start, end = live.span(before, min(before + num_rows, live.num_live))
    return Span(span.place, min(max(start, span.start), span.end), max(min(end, span.end), span.start))


# -- batches of the wanted size ----------------------------------------------------------------------------------------


def sized(found: Iterator[pa.RecordBatch], bytes_max: int, rows_max: int | None) -> Iterator[pa.RecordBatch]:
    """The rows in batches of about `bytes_max` bytes and at most `rows_max` rows; small ones are joined."""
    waiting: list[pa.RecordBatch] = []
    num_bytes = num_rows = 0
    for batch in found:
        buffers_bytes = batch.get_total_buffer_size()  # at hand, and not below what a slice shows of its buffers
        batch_bytes = buffers_bytes if buffers_bytes * JOINED_PART < bytes_max else batch.nbytes
        for piece, size in _pieces(batch, batch_bytes, bytes_max, rows_max):
            rows = piece.num_rows
            too_many = rows_max is not None and num_rows + rows > rows_max
            if waiting and (too_many or num_bytes + size > bytes_max or size * JOINED_PART >= bytes_max):
                yield _joined(waiting)
                waiting, num_bytes, num_rows = [], 0, 0
            if size * JOINED_PART >= bytes_max or rows == rows_max:
                yield piece
                continue
            waiting.append(piece)
            num_bytes, num_rows = num_bytes + size, num_rows + rows
    if waiting:
        yield _joined(waiting)


def _joined(waiting: list[pa.RecordBatch]) -> pa.RecordBatch:
    return waiting[0] if len(waiting) == 1 else join_batches(waiting)


def _pieces(
    batch: pa.RecordBatch, size: int, bytes_max: int, rows_max: int | None
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Slices of a batch and their bytes; none is much larger than wanted unless it is one row.

    size  bytes of the batch
    """
    rows = batch.num_rows
    step = rows if size <= bytes_max else max(1, int(rows * bytes_max / size))
    step = step if rows_max is None else min(step, rows_max)
    if 0 < rows <= step:
        yield batch, size
        return
    for start in range(0, rows, step or 1):
        piece = batch.slice(start, step)
        piece_size = piece.nbytes
        if piece.num_rows > 1 and piece_size > 2 * bytes_max:  # rows of very different sizes
            half = piece.num_rows // 2
            for part in (piece.slice(0, half), piece.slice(half)):
                yield from _pieces(part, part.nbytes, bytes_max, rows_max)
        else:
            yield piece, piece_size
