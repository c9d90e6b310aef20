"""Writing: the tasks' data files, and the writer of a batch query.

    planner process    LanceWriter(...)        plans the job: version, schema, file version
    worker processes   write(batches)          writes data files, invisible to readers, and a message that lists them
    planner process    commit(messages)        commits the fragments of all messages in one transaction
                       abort(messages)         removes the files, unless a version refers to them

Spark also calls `abort` after a commit whose process died, even if the new version exists: `abort_write` checks that
before it removes anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from lance_io.dataset import distributed
from lance_io.errors import LanceError
from lance_io.redaction import get_logger
from lance_io.spark.engine import fit_to_task, table_place
from lance_io.spark.task_context import refuse_catalog_table
from lance_io.spark.types import spark_to_arrow
from lance_io.spark.worker_tuning import freeze_loaded, tune_worker
from lance_io.spark.write.write_casts import WriteCast

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from lance_io.dataset.distributed import WriteJob, WrittenFiles
    from lance_io.spark.options import WriteOptions

_logger = get_logger(__name__)


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """The files that one task has written.

    job        the task's job: Spark creates a new writer object to commit a batch of a stream
    partition, attempt  of the task; None outside of Spark
    files      data files and their fragments
    """

    job: WriteJob
    partition: int | None
    attempt: int | None
    files: WrittenFiles


class LanceWriter(DataSourceArrowWriter):
    """The writer of a batch query.

    schema     Spark's schema of the rows
    overwrite  whether they replace the table's rows
    """

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        self.options = options
        self.given = schema
        self.job = plan_job(options, schema, overwrite)
        freeze_loaded(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Write the rows of one task.

        Raises `RowMisfit` for the first row that does not fit the table, `UsageError` in a write that creates a table
        of Spark's own catalog.
        """
        refuse_catalog_table()
        return write_task(self.options, self.job, self.given, iterator)

    def commit(self, messages: Sequence[Any]) -> None:
        """Commit the rows, in one version."""
        commit_messages(self.options, self.job, check_messages(messages))
        freeze_loaded(self.options)

    def abort(self, messages: Sequence[Any]) -> None:
        """Remove the tasks' files, unless a version refers to them."""
        abort_messages(self.options, self.job, messages)


# -- planners --------------------------------------------------------------------------------------------------------


def plan_job(options: WriteOptions, given: StructType, is_overwrite: bool) -> WriteJob:
    """Plan a job.

    Raises `SchemaError` for a Spark schema that does not fit the table, `NotFound` for a missing table unless the job
    creates it.
    """

    def stored(table: pa.Schema | None) -> pa.Schema:
        return spark_to_arrow(
            given,
            table,
            vector_sizes=options.vector_sizes,
            merge_schema=options.merge_schema,
            case_sensitive=options.case_sensitive,
            narrow_floats=options.narrow_floats,
        )

    return distributed.WriteJob.plan(
        table_place(options),
        stored,
        given.names,
        overwrite=is_overwrite,
        overwrite_schema=options.overwrite_schema,
        create=options.create,
        data_storage_version=options.data_storage_version,
        job_id=options.job_id,
        job_id_search=options.job_id_search,
    )


def check_messages(messages: Iterable[Any]) -> list[TaskMessage]:
    """The messages of all tasks. Raises `LanceError` if a message is missing."""
    checked = list(messages)
    missing = [number for number, message in enumerate(checked) if not isinstance(message, TaskMessage)]
    if missing:
        raise LanceError(f"partition {missing[0]} sent no message: nothing is committed")
    return checked


def commit_messages(
    options: WriteOptions,
    job: WriteJob,
    messages: Iterable[TaskMessage],
    *,
    mark: tuple[str, str, str | None] | None = None,
    properties: Mapping[str, str] | None = None,
) -> int | None:
    """Commit the tasks' files; see `commit_write`.

    properties  of the transaction, in addition to those of the options
    """
    return distributed.commit_write(
        table_place(options),
        job,
        [message.files for message in messages],
        merge_schema=options.merge_schema,
        data_storage_version=options.data_storage_version,
        retries=options.commit_retries,
        message=options.commit_message,
        properties={**options.properties, **(properties or {})},
        mark=mark,
    )


def abort_messages(options: WriteOptions, job: WriteJob, messages: Iterable[Any]) -> None:
    """Remove the files that messages list, unless a version refers to them; failures are logged, not raised.

    Raising here would hide the reason why the job was aborted.
    """
    files = [message.files for message in messages if isinstance(message, TaskMessage)]
    try:
        outcome = distributed.abort_write(table_place(options), job, files)
        _logger.warning("job %s: %s", job.job_id, outcome)
    except (LanceError, OSError) as error:
        _logger.warning("job %s: its files were not removed: the table could not be read: %s", job.job_id, error)


# -- tasks -----------------------------------------------------------------------------------------------------------


def write_task(
    options: WriteOptions, job: WriteJob, given: StructType, batches: Iterable[pa.RecordBatch]
) -> TaskMessage:
    """Write the rows of one task to new data files, which are removed again if anything fails."""
    context = TaskContext.get()
    partition = None if context is None else context.partitionId()
    attempt = None if context is None else context.attemptNumber()
    if job.is_done:
        for _ in batches:  # Spark expects a task to consume its rows
            pass
        return TaskMessage(job, partition, attempt, distributed.WrittenFiles())
    fit_to_task()
    tune_worker(options)
    cast = WriteCast(given, job.arrow_schema, partition=partition)

    def converted() -> Iterator[pa.RecordBatch]:
        first_row = 0
        for batch in batches:
            yield cast.cast(batch, first_row)
            first_row += batch.num_rows

    files = distributed.write_files(
        table_place(options),
        job,
        cast.schema,
        converted(),
        rows_per_file=options.max_rows_per_file,
        bytes_per_file=options.max_bytes_per_file,
        is_rows_hard=options.rows_per_file_given,
    )
    freeze_loaded(options)
    return TaskMessage(job, partition, attempt, files)
