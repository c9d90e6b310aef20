"""`LanceReader`: made and asked for partitions by a planner, then unpickled and asked for batches by every task.

A task reads its partition in one scan: page after page is read and decoded ahead while earlier batches cross into the
JVM, and at most a batch more than that waits. Batches have about `batch_bytes`, whatever the pages are like. Leaving
early (Spark does, at a limit) closes the scan, which cancels what is under way.

The first partition is what Spark reads for `show()` and `limit(n)`, and often no more than its first rows. If it is
large, these are read before the scan begins: of the pages only the chunks that hold them. That is some requests more,
once in a read. Before it reads whole pages, the task waits until Spark has taken these rows, or has closed the
connection, because they were enough (`consumed`).
"""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from lance_io.errors import LanceError
from lance_io.spark.consumed import buffer_bytes, wants_more
from lance_io.spark.engine import fit_to_task, io_buffer_bytes, named_version, open_version, table_place
from lance_io.spark.options import StreamReadOptions
from lance_io.spark.read.read_casts import ReadCast
from lance_io.spark.read.read_plan import check_declared, plan_read, read_scan, shown_schema
from lance_io.spark.task_context import warn_of_credentials
from lance_io.spark.worker_tuning import freeze_loaded, tune_worker

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from pyspark.sql.types import StructType

    from lance_io.dataset.distributed import ScanPart, TableScan
    from lance_io.spark.options import ReadOptions

HEAD_BYTES: Final = 320 << 10  # of the rows that the first partition begins with, about
HEAD_ROWS_MIN: Final = 32  # of them: `show()` wants 21
HEAD_PARTITION_BYTES_MIN: Final = 4 << 20  # a smaller partition is read in as many requests as its head
PUSHED_BUFFERS: Final = 2.5  # the worker's, the virtual machine's, and something that waits between them
JOBS_REMEMBERED: Final = 8  # reads whose tasks come to one process in turns


class LancePartition(InputPartition):
    """One partition; `value` is its `ScanPart`."""


@dataclass(eq=False)
class ReadJob:
    """What the tasks of one read have in common. To be pickled.

    declared  the Spark schema that batches must have
    """

    options: ReadOptions
    declared: StructType
    scan: TableScan
    _cast: ReadCast | None = field(default=None, init=False, repr=False)

    def packed(self) -> bytes:
        """For a worker."""
        return pickle.dumps((self.options, self.declared, self.scan))

    def cast(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of the scan in Spark's schema."""
        if self._cast is None:
            self._cast = ReadCast(batch.schema, self.declared, timestamp_ns=self.options.timestamp_ns)
        return self._cast.cast(batch)


@lru_cache(maxsize=JOBS_REMEMBERED)
def unpack_job(packed: bytes) -> ReadJob:
    """The job that `ReadJob.packed` has made these bytes of: the same object for all tasks of a read in a process."""
    return ReadJob(*pickle.loads(packed))


class LanceReader(DataSourceReader):
    """The reader of a batch query.

    options   of the read
    declared  the Spark schema that batches must have: the table's, or what the user gave to `schema`
    version   which was named when the table was loaded, by `TableVersion.to_bytes`; None takes the one of now
    Raises what opening the table raises, `BindError` and `SchemaError` for a schema that is not the table's.
    """

    def __init__(self, options: ReadOptions, declared: StructType, version: bytes | None) -> None:
        opened = open_version(options) if version is None else named_version(options, version)
        scan = read_scan(opened, options, declared.names)
        check_declared(declared, shown_schema(opened, scan, options))
        self._parts: Sequence[ScanPart] = plan_read(opened, options, scan).parts
        self._job = ReadJob(options, declared, scan).packed()
        freeze_loaded(options)

    def partitions(self) -> Sequence[InputPartition]:
        """The partitions, at least one."""
        return [LancePartition(one) for one in self._parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of a partition."""
        part: ScanPart = partition.value
        return read_partition(unpack_job(self._job), part)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parts": ()}  # Spark gives each task its own


def read_partition(job: ReadJob, part: ScanPart) -> Generator[pa.RecordBatch, None, None]:
    """The rows of one partition in batches of Spark's schema.

    Errors say which table, version and rows they come from.
    """
    fit_to_task()  # before there are other connections
    tune_worker(job.options)
    try:
        yield from _batches(job, part)
        freeze_loaded(job.options)
    except (LanceError, pa.ArrowInvalid) as error:
        ranges = ", ".join(f"fragment {one} rows {first} to {first + rows}" for one, first, rows in part.ranges[:3])
        more = f" and {len(part.ranges) - 3} more" if len(part.ranges) > 3 else ""
        error.add_note(f"while reading {job.options.path} version {part.version}: {ranges}{more}")
        raise


def _batches(job: ReadJob, part: ScanPart) -> Iterator[pa.RecordBatch]:
    if not part.ranges:
        return
    options, place = job.options, table_place(job.options)
    warn_of_credentials(options)

    def read(**rows: int) -> Iterator[pa.RecordBatch]:
        batches = job.scan.read(
            place,
            part,
            batch_bytes=options.batch_bytes,
            batch_rows=options.batch_size,
            io_buffer_bytes=io_buffer_bytes(options),
            **rows,
        )
        try:
            yield from map(job.cast, batches)
        finally:
            batches.close()

    rows = head_rows(options, part)
    if rows:
        pushed = [one for batch in read(first_rows=rows) for one in push_out(batch)]
        yield from pushed
        if len(pushed) > 1 and not wants_more():
            return
    yield from read(skip_rows=rows)


def head_rows(options: ReadOptions, part: ScanPart) -> int:
    """How many rows of a partition are read before the others are scanned; 0 for none."""
    is_whole = isinstance(options, StreamReadOptions)  # which nobody leaves early
    counts = options.limit is not None and options.filter is not None  # one scan counts what passes the filter
    if part.number or part.num_bytes < HEAD_PARTITION_BYTES_MIN or is_whole or counts:
        return 0
    return max(HEAD_BYTES * part.physical_rows // part.num_bytes, HEAD_ROWS_MIN)


def push_out(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """The batch, in two parts if it is large enough for a second that does not vanish in the buffers of both ends.

    It pushes the first out of the worker's buffer, and waits between both until Spark asks for it.
    """
    behind = math.ceil(batch.num_rows * buffer_bytes() * PUSHED_BUFFERS / max(batch.nbytes, 1))
    if behind >= batch.num_rows:
        return [batch]
    first = batch.num_rows - behind
    return [batch.slice(0, first), batch.slice(first)]
