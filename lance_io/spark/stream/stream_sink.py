"""The streaming sink: every batch takes effect exactly once.

Spark sends a batch again when it does not know whether it was committed. The version that holds a batch therefore says
so, in the table's config, set within that very version:

    lance_io.stream.<stream_id> = <batch id> <rows> <digest of the checkpoint's place, or ->

    batch above the mark            it is committed, and the mark set
    batch at or below the mark      it was committed: the files of this attempt are removed
    batch 0 over an older mark      a new checkpoint under an old `stream_id`: refused, unless `stream_reset` is set
    another checkpoint              two queries under one `stream_id`: refused

The transaction also has the properties `lance_io.stream_id` and `lance_io.batch_id`, for people. A `restore` of the
table to an older version takes the mark back with it.
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
UNKNOWN: Final = "-"  # digest of a checkpoint whose place Spark did not say
_DIGEST_DIGITS: Final = 16
_ATTEMPTS: Final = 2


class LanceStreamWriter(DataSourceStreamArrowWriter):
    """The writer of a streaming query; `overwrite` (complete mode) replaces the table's rows with every batch."""

    def __init__(self, options: StreamWriteOptions, schema: StructType, overwrite: bool) -> None:
        self.options = options
        self.given = schema
        self.job = plan_job(options, schema, overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Write the rows of one task. Raises `RowMisfit` for the first one that does not fit the table."""
        return write_task(self.options, self.job, self.given, iterator)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        """Make a batch visible, unless it is already."""
        told = check_messages(messages)
        commit_batch(self.options, self._job(told, batchId), told, batchId)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        """Remove what the tasks have written, unless a version refers to it."""
        told = [message for message in messages if message is not None]
        abort_messages(self.options, self._job(told, batchId), told)

    def _job(self, messages: Sequence[TaskMessage], batch_id: int) -> WriteJob:
        """What the tasks were told: Spark makes the writer that commits anew."""
        return (messages[0].job if messages else self.job).of_batch(batch_id)


@dataclass(frozen=True)
class StreamMark:
    """How far a stream has been committed. checkpoint: digest of its place, "-" when unknown."""

    batch_id: int
    num_rows: int
    checkpoint: str

    @property
    def text(self) -> str:
        """As it is in the config."""
        return f"{self.batch_id} {self.num_rows} {self.checkpoint}"

    @classmethod
    def parse(cls, text: str) -> StreamMark:
        """The inverse of `text`. Raises `FormatError`."""
        parts = text.split(" ")
        if len(parts) != 3 or not all(part.isascii() and part.isdecimal() and len(part) < 20 for part in parts[:2]):
            raise FormatError(f"the mark of a stream: expected batch id, rows and checkpoint, found {text[:80]!r}")
        return cls(int(parts[0]), int(parts[1]), parts[2])

    def is_of_other(self, checkpoint: str) -> bool:
        """Whether another checkpoint is known to have left it."""
        return UNKNOWN not in (self.checkpoint, checkpoint) and self.checkpoint != checkpoint


def checkpoint_digest(place: str | None) -> str:
    """What stands for the place of a checkpoint."""
    return UNKNOWN if place is None else hashlib.sha256(place.rstrip("/").encode()).hexdigest()[:_DIGEST_DIGITS]


def is_committed(found: StreamMark | None, new: StreamMark, stream_id: str, *, reset: bool) -> bool:
    """Whether a batch was committed before, given the mark that the table has.

    reset  batch 0 may start over
    Raises `UsageError` for a mark that somebody else has left, and for a batch that has changed since.
    """
    if found is None:
        return False
    is_other = found.is_of_other(new.checkpoint)
    if new.batch_id == 0 and (found.batch_id >= 1 or is_other):
        if reset:
            return False
        raise UsageError(
            f"stream_id {stream_id!r} has already committed up to batch {found.batch_id} from another checkpoint, and "
            "this query begins with batch 0. Keep the checkpoint, take another stream_id, or set stream_reset=true to "
            "add the rows of a new run"
        )
    if is_other and not (reset and new.batch_id > found.batch_id):
        raise UsageError(
            f"stream_id {stream_id!r} is in use by a query with another checkpoint, which has committed batch "
            f"{found.batch_id}; every query needs its own"
        )
    if new.batch_id == found.batch_id and new.num_rows != found.num_rows:
        raise UsageError(
            f"batch {new.batch_id} of stream_id {stream_id!r} was committed with {found.num_rows} rows and has "
            f"{new.num_rows} now: the source of the query does not give the same rows again"
        )
    return new.batch_id <= found.batch_id


def commit_batch(
    options: StreamWriteOptions, job: WriteJob, messages: Sequence[TaskMessage], batch_id: int
) -> int | None:
    """Commit a batch; gives the version, None when there was nothing to do.

    Raises `UsageError` as `is_committed` does, and what `commit_write` raises.
    """
    place = table_place(options)
    num_rows = sum(message.files.num_rows for message in messages)
    new = StreamMark(batch_id, num_rows, checkpoint_digest(options.checkpoint_location))
    key = f"{CONFIG_PREFIX}{options.stream_id}"
    properties = {STREAM_PROPERTY: options.stream_id, BATCH_PROPERTY: str(batch_id)}
    for attempt in range(_ATTEMPTS):
        seen = _mark(place, key)
        found = None if seen is None else StreamMark.parse(seen)
        if is_committed(found, new, options.stream_id, reset=options.stream_reset):
            distributed.abort_write(place, job, [message.files for message in messages])
            return None
        if not num_rows and not job.is_overwrite:
            return None
        mark = (key, new.text, seen)
        try:
            return commit_messages(options, job, messages, mark=mark, properties=properties)
        except CommitConflictError:
            now = _mark(place, key)
            same_batch = now is not None and now != seen and StreamMark.parse(now).batch_id == batch_id
            if attempt == _ATTEMPTS - 1 or not same_batch:
                raise
    return None


def _mark(place: TablePlace, key: str) -> str | None:
    newest = distributed.TableVersion.newest(place)
    return None if newest is None else newest.config.get(key)
