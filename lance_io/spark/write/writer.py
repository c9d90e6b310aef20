"""Writing: what tasks do with their rows, and the writer of a batch query.

    planner process    LanceWriter(...)        decides the job: version, schema, file version
    worker processes   write(batches)          data files, invisible to readers; a message that lists them
    planner process    commit(messages)        one transaction of all messages' fragments
                       abort(messages)         removes the files, unless a version refers to them

Spark calls `abort` also after a commit whose process died, even when the new version is there: `committing.abort_job`
looks before it removes anything.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from lance_io.dataset.version.describe import fragment_metadata
from lance_io.dataset.write.data_files import FileLimits
from lance_io.dataset.write.input_data import AsyncRows, Rows
from lance_io.errors import LanceError
from lance_io.plans.plan import RollBackOnError, drive_async
from lance_io.runtime.feeding import run_fed
from lance_io.spark.engine import fit_to_task
from lance_io.spark.task_context import refuse_catalog_table
from lance_io.spark.worker_tuning import freeze_loaded, tune_worker
from lance_io.spark.write.task_files import TaskFiles
from lance_io.spark.write.write_casts import WriteCast
from lance_io.spark.write.write_job import open_target, plan_job, run_plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from lance_io.plans.plan import Plan
    from lance_io.spark.options import WriteOptions
    from lance_io.spark.write.write_job import WriteJob

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """What one task has written.

    job        as the task was told
    partition, attempt  of the task; None outside of Spark
    fragments  of id 0, as JSON texts of `FragmentMetadata`
    paths      of all files, relative to the table's folder
    num_rows, num_bytes  of the data files
    """

    job: WriteJob
    partition: int | None
    attempt: int | None
    fragments: tuple[str, ...]
    paths: tuple[str, ...]
    num_rows: int
    num_bytes: int


class LanceWriter(DataSourceArrowWriter):
    """The writer of a batch query.

    schema     Spark's schema of the rows
    overwrite  whether they replace those of the table
    """

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        self.options = options
        self.given = schema
        target = open_target(options)
        self.job = run_plan(target, plan_job(target, options, schema, overwrite))
        freeze_loaded(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Write the rows of one task.

        Raises `RowMisfit` for the first one that does not fit the table, `UsageError` in a write that makes a table of
        Spark's own catalog.
        """
        refuse_catalog_table()
        return write_task(self.options, self.job, self.given, iterator)

    def commit(self, messages: Sequence[Any]) -> None:
        """Make the rows visible, in one version."""
        from lance_io.spark.write.commit_job import commit_job

        target = open_target(self.options)
        told = checked_messages(messages)
        run_plan(target, commit_job(target, self.options, self.job, told))
        freeze_loaded(self.options)

    def abort(self, messages: Sequence[Any]) -> None:
        """Remove what the tasks have written, unless a version refers to it."""
        abort_messages(self.options, self.job, messages)


def checked_messages(messages: Iterable[Any]) -> list[TaskMessage]:
    """The messages of all tasks. Raises `LanceError` when one is missing."""
    told = list(messages)
    missing = [number for number, message in enumerate(told) if not isinstance(message, TaskMessage)]
    if missing:
        raise LanceError(f"partition {missing[0]} sent no message: nothing is committed")
    return told


def abort_messages(options: WriteOptions, job: WriteJob, messages: Iterable[Any]) -> None:
    """Remove the files that messages list, unless a version refers to them; failures are logged, not raised.

    What is raised here would hide from the user why the job was aborted.
    """
    from lance_io.spark.write.commit_job import abort_job

    told = [message for message in messages if isinstance(message, TaskMessage)]
    try:
        target = open_target(options)
        outcome = run_plan(target, abort_job(target, job, told))
        _logger.warning("job %s: %s", job.job_id, outcome)
    except (LanceError, OSError) as error:
        _logger.warning("job %s: its files stay, because the table could not be read: %s", job.job_id, error)


# -- tasks -----------------------------------------------------------------------------------------------------------


def write_task(
    options: WriteOptions, job: WriteJob, given: StructType, batches: Iterable[pa.RecordBatch]
) -> TaskMessage:
    """Write the rows of one task to new data files, which are removed again when anything fails."""
    context = TaskContext.get()
    partition = None if context is None else context.partitionId()
    attempt = None if context is None else context.attemptNumber()
    if job.is_done:
        for _ in batches:  # Spark expects its rows to be taken
            pass
        return TaskMessage(job, partition, attempt, (), (), 0, 0)
    fit_to_task()
    tune_worker(options)
    target = open_target(options)
    limits = FileLimits(rows=options.max_rows_per_file, num_bytes=options.max_bytes_per_file)
    files = TaskFiles(target.location, job, limits, is_rows_hard=options.rows_per_file_given)
    rows = _stored_rows(job, given, batches, partition)

    def write(source: Rows | AsyncRows) -> Plan[None]:
        yield from files.write(source)
        yield from files.publish()

    def keeping(source: Rows | AsyncRows) -> Plan[None]:
        yield RollBackOnError(write(source), files.roll_back)

    if target.answers_sync:
        run_plan(target, keeping(rows))
    else:
        run_fed(rows.batches, lambda feed: drive_async(keeping(AsyncRows(rows.schema, feed))))
    freeze_loaded(options)
    return TaskMessage(
        job=job,
        partition=partition,
        attempt=attempt,
        fragments=tuple(json.dumps(fragment_metadata(one).to_json()) for one in files.fragments),
        paths=files.keys,
        num_rows=sum(one.physical_rows or 0 for one in files.fragments),
        num_bytes=files.num_bytes,
    )


def _stored_rows(job: WriteJob, given: StructType, batches: Iterable[pa.RecordBatch], partition: int | None) -> Rows:
    """The rows in the types of the table."""
    cast = WriteCast(given, job.file_schema.to_arrow(), partition=partition)

    def converted() -> Iterator[pa.RecordBatch]:
        first_row = 0
        for batch in batches:
            yield cast.cast(batch, first_row)
            first_row += batch.num_rows

    return Rows(cast.schema, converted())
