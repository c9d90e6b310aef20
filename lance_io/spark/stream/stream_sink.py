"""The streaming sink: every batch takes effect exactly once.

Spark sends a batch again if it does not know whether it was committed. So the commit of a batch also sets a mark in the
table's config, in the same version:

    lance_io.stream.<stream_id> = <batch id> <rows> <digest of the checkpoint's location, or ->

    batch above the mark            commit it and set the mark
    batch at or below the mark      committed already: remove the files of this attempt
    batch 0 over an older mark      a new checkpoint under an old `stream_id`: refused, unless `stream_reset` is set
    another checkpoint              two queries under the same `stream_id`: refused

The transaction also has the properties `lance_io.stream_id` and `lance_io.batch_id`, for people. Restoring the table to
an older version also restores the mark.
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
UNKNOWN: Final = "-"  # digest of a checkpoint whose location Spark did not pass
_DIGEST_DIGITS: Final = 16
_ATTEMPTS: Final = 2


class LanceStreamWriter(DataSourceStreamArrowWriter):
    """The writer of a streaming query; `overwrite` (complete mode) replaces the table's rows with every batch."""

    def __init__(self, options: StreamWriteOptions, schema: StructType, overwrite: bool) -> None:
        self.options = options
        self.given = schema
        self.job = plan_job(options, schema, overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Write the rows of one task. Raises `RowMisfit` for the first row that does not fit the table."""
        return write_task(self.options, self.job, self.given, iterator)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        """Commit a batch, unless it has been committed."""
        checked = check_messages(messages)
        commit_batch(self.options, self._job(checked, batchId), checked, batchId)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        """Remove the tasks' files, unless a version refers to them."""
        received = [message for message in messages if message is not None]
        abort_messages(self.options, self._job(received, batchId), received)

    def _job(self, messages: Sequence[TaskMessage], batch_id: int) -> WriteJob:
        """The job that the tasks had: Spark creates a new writer object to commit."""
        return (messages[0].job if messages else self.job).of_batch(batch_id)


@dataclass(frozen=True)
class StreamMark:
    """The last committed batch of a stream. checkpoint: digest of its location, "-" if unknown."""

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

    def is_of_other(self, checkpoint: str) -> bool:
        """Whether the mark is known to be from another checkpoint."""
        return UNKNOWN not in (self.checkpoint, checkpoint) and self.checkpoint != checkpoint


def checkpoint_digest(location: str | None) -> str:
    """The digest of a checkpoint's location."""
    return UNKNOWN if location is None else hashlib.sha256(location.rstrip("/").encode()).hexdigest()[:_DIGEST_DIGITS]


def is_committed(known: StreamMark | None, new: StreamMark, stream_id: str, *, reset: bool) -> bool:
    """Whether a batch was committed before.

    known  the mark that the table has
    reset  whether batch 0 may start over
    Raises `UsageError` for a mark of another query, and for a batch with other rows than before.
    """
    if known is None:
        return False
    is_other = known.is_of_other(new.checkpoint)
    if new.batch_id == 0 and (known.batch_id >= 1 or is_other):
        if reset:
            return False
        raise UsageError(
            f"stream_id {stream_id!r} has already committed up to batch {known.batch_id} from another checkpoint, and "
            "this query begins with batch 0. Keep the checkpoint, use another stream_id, or set stream_reset=true to "
            "add the rows of a new run"
        )
    if is_other and not (reset and new.batch_id > known.batch_id):
        raise UsageError(
            f"stream_id {stream_id!r} is in use by a query with another checkpoint, which has committed batch "
            f"{known.batch_id}; every query needs its own"
        )
    if new.batch_id == known.batch_id and new.num_rows != known.num_rows:
        raise UsageError(
            f"batch {new.batch_id} of stream_id {stream_id!r} was committed with {known.num_rows} rows and has "
            f"{new.num_rows} now: the source of the query does not return the same rows again"
        )
    return new.batch_id <= known.batch_id


def commit_batch(
    options: StreamWriteOptions, job: WriteJob, messages: Sequence[TaskMessage], batch_id: int
) -> int | None:
    """Commit a batch; returns the version, None if there was nothing to do.

    Raises like `is_committed` and `commit_write`.
    """
    table = table_place(options)
    num_rows = sum(message.files.num_rows for message in messages)
    new = StreamMark(batch_id, num_rows, checkpoint_digest(options.checkpoint_location))
    key = f"{CONFIG_PREFIX}{options.stream_id}"
    properties = {STREAM_PROPERTY: options.stream_id, BATCH_PROPERTY: str(batch_id)}
    for attempt in range(_ATTEMPTS):
        seen = _mark(table, key)
        known = None if seen is None else StreamMark.parse(seen)
        if is_committed(known, new, options.stream_id, reset=options.stream_reset):
            distributed.abort_write(table, job, [message.files for message in messages])
            return None
        if not num_rows and not job.is_overwrite:
            return None
        mark = (key, new.text, seen)
        try:
            return commit_messages(options, job, messages, mark=mark, properties=properties)
        except CommitConflictError:
            now = _mark(table, key)
            same_batch = now is not None and now != seen and StreamMark.parse(now).batch_id == batch_id
            if attempt == _ATTEMPTS - 1 or not same_batch:
                raise
    return None


def _mark(table: TablePlace, key: str) -> str | None:
    newest = distributed.TableVersion.newest(table)
    return None if newest is None else newest.config.get(key)
