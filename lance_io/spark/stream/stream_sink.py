"""The streaming sink: every batch takes effect exactly once.

Spark sends a batch again if it does not know whether it was committed. So the commit of a batch also sets a mark in the
table's config, in the same version:

    lance_io.stream.<stream_id> = <batch id> <rows> <digest of the checkpoint's location, or ->

    batch id greater than that of the mark    commit the batch and set the mark
    batch id not greater                      committed already: remove the files of this attempt
    batch 0, after a mark of a later batch    new checkpoint, used `stream_id`: refused, unless `stream_reset` is set
    mark of another checkpoint                two queries with one `stream_id`: refused, unless `stream_reset` is set

The last two cases are checked first.
The transaction also has the properties `lance_io.stream_id` and `lance_io.batch_id`, which only inform readers of the
table's history. Restoring the table to an older version also restores the mark.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamArrowWriter

from lance_io.dataset import distributed
from lance_io.errors import CommitConflictError, FormatError, UsageError
from lance_io.spark.engine import table_place
from lance_io.spark.write.writer import abort_messages, check_messages, commit_messages, plan_job, write_task

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from lance_io.dataset.distributed import TablePlace, WriteJob
    from lance_io.spark.options import StreamWriteOptions
    from lance_io.spark.write.writer import TaskMessage

CONFIG_PREFIX: Final = "lance_io.stream."
STREAM_PROPERTY: Final = "lance_io.stream_id"
BATCH_PROPERTY: Final = "lance_io.batch_id"
_NO_DIGEST: Final = "-"  # if Spark did not pass the checkpoint's location
_DIGEST_DIGITS: Final = 16  # hex digits
_COMMIT_ATTEMPTS: Final = 2  # the second one finds the mark of another attempt at the same batch


class LanceStreamWriter(DataSourceStreamArrowWriter):
    """The writer of a streaming query; `overwrite` (complete mode) replaces the table's rows with every batch."""

    def __init__(self, options: StreamWriteOptions, schema: StructType, overwrite: bool) -> None:
        self.options = options
        self.input_schema = schema
        self.job = plan_job(options, schema, overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Write the rows of one task. Raises `RowMisfit` for the first row that does not fit the table."""
        return write_task(self.options, self.job, self.input_schema, iterator)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        """Commit a batch, unless it has been committed."""
        checked = check_messages(messages)
        commit_batch(self.options, self._job_of_batch(checked, batchId), checked, batchId)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        """Remove the tasks' files, unless a version refers to them."""
        received = [message for message in messages if message is not None]
        abort_messages(self.options, self._job_of_batch(received, batchId), received)

    def _job_of_batch(self, messages: Sequence[TaskMessage], batch_id: int) -> WriteJob:
        """The job of the tasks, for a batch. `self.job` may differ: Spark creates another writer object to commit."""
        return (messages[0].job if messages else self.job).of_batch(batch_id)


@dataclass(frozen=True)
class StreamMark:
    """The last committed batch of a stream. checkpoint: digest of the checkpoint's location, "-" if unknown."""

    batch_id: int
    num_rows: int
    checkpoint: str

    @property
    def text(self) -> str:
        """The mark as a config value."""
        return f"{self.batch_id} {self.num_rows} {self.checkpoint}"

    @classmethod
    def parse(cls, text: str) -> StreamMark:
        """The inverse of `text`. Raises `FormatError`."""
        parts = text.split(" ")
        if len(parts) != 3 or not all(part.isascii() and part.isdecimal() and len(part) < 20 for part in parts[:2]):
            raise FormatError(f"mark of a stream: expected batch id, rows and checkpoint, found {text[:80]!r}")
        return cls(int(parts[0]), int(parts[1]), parts[2])

    def is_of_other_checkpoint(self, checkpoint: str) -> bool:
        """Whether the mark is from another checkpoint than this digest; False if one of the two is unknown."""
        return _NO_DIGEST not in (self.checkpoint, checkpoint) and self.checkpoint != checkpoint


def checkpoint_digest(location: str | None) -> str:
    """The digest of a checkpoint's location, "-" for None."""
    if location is None:
        return _NO_DIGEST
    return hashlib.sha256(location.rstrip("/").encode()).hexdigest()[:_DIGEST_DIGITS]


def is_committed(stored: StreamMark | None, new: StreamMark, stream_id: str, *, reset: bool) -> bool:
    """Whether a batch was committed before.

    stored  mark in the table's config
    reset   whether a query with a new checkpoint may start over with batch 0
    Raises `UsageError` for a mark of another query, and for a batch with other rows than before.
    """
    if stored is None:
        return False
    is_other_query = stored.is_of_other_checkpoint(new.checkpoint)
    if new.batch_id == 0 and (stored.batch_id >= 1 or is_other_query):
        if reset:
            return False
        raise UsageError(
            f"stream_id {stream_id!r} has already committed up to batch {stored.batch_id} from another checkpoint, and "
            "this query begins with batch 0. Keep the checkpoint, use another stream_id, or set stream_reset=true to "
            "add the rows of a new run"
        )
    if is_other_query and not (reset and new.batch_id > stored.batch_id):
        raise UsageError(
            f"stream_id {stream_id!r} is in use by a query with another checkpoint, which has committed batch "
            f"{stored.batch_id}; every query needs its own"
        )
    if new.batch_id == stored.batch_id and new.num_rows != stored.num_rows:
        raise UsageError(
            f"batch {new.batch_id} of stream_id {stream_id!r} was committed with {stored.num_rows} rows and has "
            f"{new.num_rows} now: the source of the query does not return the same rows again"
        )
    return new.batch_id <= stored.batch_id


def commit_batch(
    options: StreamWriteOptions, job: WriteJob, messages: Sequence[TaskMessage], batch_id: int
) -> int | None:
    """Commit a batch; returns the version, None if the batch is committed already or has no rows.

    Raises like `is_committed` and `commit_write`.
    """
    table = table_place(options)
    num_rows = sum(message.files.num_rows for message in messages)
    new = StreamMark(batch_id, num_rows, checkpoint_digest(options.checkpoint_location))
    key = f"{CONFIG_PREFIX}{options.stream_id}"
    properties = {STREAM_PROPERTY: options.stream_id, BATCH_PROPERTY: str(batch_id)}
    for attempt in range(_COMMIT_ATTEMPTS):
        stored_text = _read_mark_text(table, key)
        stored = None if stored_text is None else StreamMark.parse(stored_text)
        if is_committed(stored, new, options.stream_id, reset=options.stream_reset):
            distributed.abort_write(table, job, [message.files for message in messages])
            return None
        if not num_rows and not job.is_overwrite:
            return None
        change = (key, new.text, stored_text)  # the commit conflicts unless the config still has the stored text
        try:
            return commit_messages(options, job, messages, mark=change, properties=properties)
        except CommitConflictError:
            newest_text = _read_mark_text(table, key)
            is_batch_committed = (
                newest_text is not None
                and newest_text != stored_text
                and StreamMark.parse(newest_text).batch_id == batch_id
            )
            if attempt == _COMMIT_ATTEMPTS - 1 or not is_batch_committed:
                raise
    return None


def _read_mark_text(table: TablePlace, key: str) -> str | None:
    """The text of a mark in the newest version's config; None without a table or a mark."""
    newest = distributed.TableVersion.newest(table)
    return None if newest is None else newest.config.get(key)
