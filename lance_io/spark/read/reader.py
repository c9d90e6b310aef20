"""`LanceReader`: a planner creates it and plans partitions; every task unpickles it and reads batches.

A task reads its partition in one scan, which prefetches and decodes pages while earlier batches cross into the JVM; at
most one more batch waits. Batches have about `batch_bytes`, independent of the sizes of pages. If Spark stops early (at
a limit), the scan is closed, which cancels requests in flight.

`show()` and `limit(n)` read the first partition, and often only its first rows. So the first rows of a large first
partition are read before the scan begins, from just the chunks of pages that have them. That costs some more requests,
once per read. Before the task reads whole pages, it waits until Spark has consumed these rows, or has closed the
connection because they were enough (`consumed`).
"""

from __future__ import annotations

import math
import pickle
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from lance_io.errors import LanceError
from lance_io.spark.consumed import buffer_bytes, wait_until_consumed
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

HEAD_BYTES: Final = 320 << 10  # approximate bytes of the first rows of the first partition
HEAD_ROWS_MIN: Final = 32  # at least this many first rows: `show()` needs 21
HEAD_PARTITION_BYTES_MIN: Final = 4 << 20  # a smaller partition takes as many requests as its first rows
PUSHED_BUFFERS: Final = 2.5  # the worker's, the JVM's, and some data that waits between them
CACHED_JOBS_MAX: Final = 8  # reads whose tasks alternate in one process


class LancePartition(InputPartition):
    """A partition; `value` is its `ScanPart`."""


@dataclass(eq=False)
class ReadJob:
    """The part of a read that all of its tasks share; pickled.

    declared  the Spark schema that batches must have
    """

    options: ReadOptions
    declared: StructType
    scan: TableScan
    _cast: ReadCast | None = field(default=None, init=False, repr=False)

    def packed(self) -> bytes:
        """The serialized job, for workers."""
        return pickle.dumps((self.options, self.declared, self.scan))

    def cast(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of the scan in Spark's schema."""
        if self._cast is None:
            self._cast = ReadCast(batch.schema, self.declared, timestamp_ns=self.options.timestamp_ns)
        return self._cast.cast(batch)


@lru_cache(maxsize=CACHED_JOBS_MAX)
def unpack_job(packed: bytes) -> ReadJob:
    """The inverse of `ReadJob.packed`; all tasks of a read in a process share the object."""
    return ReadJob(*pickle.loads(packed))


class LanceReader(DataSourceReader):
    """The reader of a batch query.

    options   of the read
    declared  the Spark schema that batches must have: the table's, or the user's from `schema`
    version   the version pinned when the table was loaded, from `TableVersion.to_bytes`; None for the newest
    Raises the errors of opening the table, `BindError` and `SchemaError` for a schema that does not fit the table.
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
        return [LancePartition(part) for part in self._parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of a partition."""
        part: ScanPart = partition.value
        return read_partition(unpack_job(self._job), part)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parts": ()}  # Spark sends each task its own partition


def read_partition(job: ReadJob, part: ScanPart) -> Generator[pa.RecordBatch, None, None]:
    """The rows of a partition, in batches of Spark's schema.

    Notes on errors name the table, version and rows.
    """
    fit_to_task()  # first: it must run before other connections are opened
    tune_worker(job.options)
    with rows_in_errors(job, part):
        yield from _batches(job, part)
        freeze_loaded(job.options)


@contextmanager
def rows_in_errors(job: ReadJob, part: ScanPart) -> Iterator[None]:
    """Add notes to errors in the block, with the table, its version and the rows."""
    try:
        yield
    except (LanceError, pa.ArrowInvalid) as error:
        ranges = ", ".join(
            f"fragment {fragment_id} rows {first} to {first + rows}" for fragment_id, first, rows in part.ranges[:3]
        )
        more = f" and {len(part.ranges) - 3} more" if len(part.ranges) > 3 else ""
        error.add_note(f"while reading {job.options.path} version {part.version}: {ranges}{more}")
        raise


def _batches(job: ReadJob, part: ScanPart) -> Iterator[pa.RecordBatch]:
    if not part.ranges:
        return
    options, table = job.options, table_place(job.options)
    warn_of_credentials(options)

    def read(first_rows: int = 0, skip_rows: int = 0) -> Iterator[pa.RecordBatch]:
        batches = job.scan.read(
            table,
            part,
            batch_bytes=options.batch_bytes,
            batch_rows=options.batch_size,
            io_buffer_bytes=io_buffer_bytes(options),
            first_rows=first_rows,
            skip_rows=skip_rows,
        )
        try:
            yield from map(job.cast, batches)
        finally:
            batches.close()

    rows = head_rows(options, part)
    if rows:
        pushed = [part for batch in read(first_rows=rows) for part in push_out(batch)]
        yield from pushed
        if len(pushed) > 1 and not wait_until_consumed():
            return
    yield from read(skip_rows=rows)


def head_rows(options: ReadOptions, part: ScanPart) -> int:
    """The number of rows of a partition to read before the scan; 0 for none."""
    is_whole = isinstance(options, StreamReadOptions)  # streams never stop early
    is_counted = options.limit is not None and options.filter is not None  # one scan must count the matching rows
    if part.number or part.named or part.num_bytes < HEAD_PARTITION_BYTES_MIN or is_whole or is_counted:
        return 0
    return max(HEAD_BYTES * part.physical_rows // part.num_bytes, HEAD_ROWS_MIN)


def push_out(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """The batch, split in two if the second part can be larger than the buffers of both ends.

    The second part pushes the first out of the worker's buffer, and waits in the buffers until Spark reads it.
    """
    second = math.ceil(batch.num_rows * buffer_bytes() * PUSHED_BUFFERS / max(batch.nbytes, 1))
    if second >= batch.num_rows:
        return [batch]
    first = batch.num_rows - second
    return [batch.slice(0, first), batch.slice(first)]
