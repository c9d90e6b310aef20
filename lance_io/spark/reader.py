"""`LanceReader`: made and asked for partitions by a planner, then unpickled and asked for batches by every task.

A task reads its partition in one scan: page after page is read and decoded ahead while earlier batches cross into the
JVM, and at most a batch more than that waits. Batches have about `batch_bytes`, whatever the pages are like. Leaving
early (Spark does, at a limit) closes the scan, which cancels what is under way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from lance_io import runtime
from lance_io.commit.steps import drive, drive_now
from lance_io.dataset import compute as pc
from lance_io.dataset.loading import load_live
from lance_io.dataset.pipeline import Span
from lance_io.dataset.rebatch import join_batches
from lance_io.dataset.rows import OFFSET_BITS
from lance_io.dataset.scan import plan_rows
from lance_io.dataset.stream import batches, batches_now, scan_parts
from lance_io.errors import LanceError
from lance_io.spark.carrying import header_of, open_pinned
from lance_io.spark.columns import FRAGMENT_ID, check_declared, read_projection, shown_schema
from lance_io.spark.engine import freeze_loaded, settle_in_worker
from lance_io.spark.readjob import ReadJob
from lance_io.spark.types import arrow_to_spark

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Iterator, Sequence

    from pyspark.sql.types import StructType

    from lance_io.commit.steps import Plan
    from lance_io.dataset.pipeline import Pipeline, ScanPlan
    from lance_io.dataset.projection import Projection
    from lance_io.dataset.reading import SpanReader
    from lance_io.dataset.state import DatasetState
    from lance_io.spark.carrying import PartitionPlan, Pinned
    from lance_io.spark.options import ReadOptions
    from lance_io.spark.readjob import PreparedRead

JOINED_PART = 4  # batches from a quarter of the wanted size on go out as they are, instead of being copied together


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
        self._options: ReadOptions | None = options
        self._state: DatasetState | None = open_pinned(options, version)
        self._projection: Projection | None = read_projection(self._state, options, declared.names)
        check_declared(declared, _found(self._projection, options))
        job = ReadJob(options, declared, header_of(self._state, options), self._state.manifest.branch)
        self._job = job.packed()

    def partitions(self) -> Sequence[InputPartition]:
        """The partitions, at least one."""
        from lance_io.spark.planning import plan_read

        assert self._options and self._state and self._projection, "planned by the process that made the reader"
        plan = plan_read(self._state, self._options, self._projection)
        freeze_loaded()
        return [LancePartition(one) for one in plan.partitions]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of a partition."""
        if partition.value is None:
            return iter(())
        return read_partition(ReadJob.unpacked(self._job), partition.value)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_options": None, "_state": None, "_projection": None}


def _found(projection: Projection, options: ReadOptions) -> StructType:
    return arrow_to_spark(shown_schema(projection), uint64=options.uint64, timestamp_ns=options.timestamp_ns)


def read_partition(job: ReadJob, part: PartitionPlan) -> Iterator[pa.RecordBatch]:
    """The rows of one partition in batches of Spark's schema.

    Errors say which table, version and rows they come from.
    """
    try:
        yield from _batches(job, part)
        freeze_loaded()
    except (LanceError, pa.ArrowInvalid) as error:
        ranges = ", ".join(f"fragment {one} rows {first} to {first + rows}" for one, first, rows in part.ranges[:3])
        more = f" and {len(part.ranges) - 3} more" if len(part.ranges) > 3 else ""
        error.add_note(f"while reading {job.options.path} version {part.version}: {ranges}{more}")
        raise


def _batches(job: ReadJob, part: PartitionPlan) -> Iterator[pa.RecordBatch]:
    if not part.ranges:
        return
    settle_in_worker()
    state = job.state(part)
    prepared = job.prepared(state)
    found = _Scan(state, prepared, part).batches()
    try:
        for batch in sized(found, job.options.batch_bytes, job.options.batch_size):
            yield prepared.cast.cast(_with_fragment_ids(batch))
    finally:
        found.close()


def _with_fragment_ids(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Row addresses that are shown as fragment ids are cut to these."""
    place = batch.schema.get_field_index(FRAGMENT_ID)
    if place < 0:
        return batch
    ids = pc.shift_right(batch.column(place), pa.scalar(OFFSET_BITS, pa.uint64()))
    return batch.set_column(place, FRAGMENT_ID, ids)


class _Scan:
    """The scan of one partition."""

    def __init__(self, state: DatasetState, prepared: PreparedRead, part: PartitionPlan) -> None:
        self._state = state
        self._prepared = prepared
        self._part = part

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """What the scan gives, as it is decoded; closing it ends the scan."""
        if self._state.answers_now:
            plan = drive_now(self._plan())
            yield from (batch for _, batch in batches_now(*self._parts(plan)))
            return
        with runtime.iterate(self._later) as found:
            yield from found

    async def _later(self) -> AsyncGenerator[pa.RecordBatch, None]:
        found = batches(*self._parts(await drive(self._plan())))
        try:
            async for _, batch in found:
                yield batch
        finally:
            await found.aclose()

    def _plan(self) -> Plan[ScanPlan]:
        live = yield from load_live(self._state, range(len(self._part.ranges)))
        spans = [
            Span(place, first, first + rows)
            for place, (_, first, rows) in enumerate(self._part.ranges)
            if live[place].num_live
        ]
        return (yield from plan_rows(self._state, self._prepared.columns(), tuple(spans), live))

    def _parts(self, plan: ScanPlan) -> tuple[Pipeline, SpanReader]:
        return scan_parts(self._state, plan, self._prepared.scan_options, self._prepared.batch_rows)


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
