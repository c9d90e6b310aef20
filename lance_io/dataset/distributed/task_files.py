"""Data files of one task: new names for each attempt, and no small last file.

A file is full at its target of bytes or rows. It then stays open, and the next rows wait in memory. If the input ends
before `TAIL_BYTES` wait, the waiting rows join the file. Otherwise the file is closed, and the waiting rows start the
next file. With `is_rows_hard`, the number of rows is a limit instead: a file ends as soon as it has them.

Names of data files and managed blobs are random and end in the job's digits. So keys spread over a store's partitions,
and a listing finds the files of one job.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from lance_io.changes.write.data_files import FileLimits, NewFiles, NextBatch, data_file_name
from lance_io.changes.write.input_data import AsyncRows, Rows
from lance_io.dataset.distributed.write_job import run_writes, write_target
from lance_io.plans.plan import RollBackOnError, drive_async
from lance_io.reads.metadata.describe import fragment_metadata
from lance_io.runtime.feeding import run_fed
from lance_io.table.transaction.garbage import data_file_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from lance_io.dataset.distributed.table_place import TablePlace
    from lance_io.dataset.distributed.write_job import WriteJob
    from lance_io.plans.plan import Plan
    from lance_io.store.url import Location

TAIL_BYTES: Final = 16 << 20
EXTENSION: Final = ".lance"
BLOB_EXTENSION: Final = ".blob"


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The files of one task, to be committed or aborted. It holds only plain values, so it can be pickled.

    Attributes:
        fragments: Fragments with id 0, as JSON texts of `FragmentMetadata`.
        paths: Paths of all files, relative to the table's folder.
        num_rows: Rows of the data files.
        num_bytes: Bytes of the data files.
    """

    fragments: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    num_rows: int = 0
    num_bytes: int = 0


def write_files(
    place: TablePlace,  # plain: public parameter
    job: WriteJob,
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    *,
    rows_per_file: int,
    bytes_per_file: int,
    is_rows_hard: bool = False,
) -> WrittenFiles:
    """Write the rows of one task to new data files that no version refers to. An error removes them.

    Args:
        place: The table.
        job: The job.
        schema: Schema of the batches: the job's `arrow_schema`.
        batches: The rows.
        rows_per_file: Rows at which the next file starts.
        bytes_per_file: Bytes at which the next file starts.
        is_rows_hard: True makes `rows_per_file` a hard limit, False a target.

    Returns:
        The files.

    Raises:
        OSError: The store fails, or the rows do not fit the schema.
    """
    target = write_target(place)
    limits = FileLimits(rows=rows_per_file, num_bytes=bytes_per_file)
    files = TaskFiles(target.location, job, limits, is_rows_hard=is_rows_hard)

    def write(source: Rows | AsyncRows) -> Plan[None]:
        yield from files.write(source)
        yield from files.publish_last_file()

    def write_or_roll_back(source: Rows | AsyncRows) -> Plan[None]:
        yield RollBackOnError(write(source), files.roll_back)

    if target.answers_sync:
        run_writes(target, write_or_roll_back(Rows(schema, batches)))
    else:
        run_fed(batches, lambda feed: drive_async(write_or_roll_back(AsyncRows(schema, feed))))
    return WrittenFiles(
        fragments=tuple(json.dumps(fragment_metadata(fragment).to_json()) for fragment in files.fragments),
        paths=files.paths,
        num_rows=sum(fragment.physical_rows or 0 for fragment in files.fragments),
        num_bytes=files.num_bytes,
    )


def task_file_name(job_digits: str) -> str:
    """A new random file name that ends in the digits of a job."""
    return f"{data_file_name().removesuffix(EXTENSION)}{job_digits}{EXTENSION}"


def task_blob_name(job_digits: str) -> str:
    """A new random name of a managed blob file: a UUID that ends in the digits of a job."""
    return f"{UUID(uuid4().hex[: -len(job_digits)] + job_digits)}{BLOB_EXTENSION}"


def is_of_job(path: str, job_digits: str) -> bool:
    """Whether a task of the job created this file. A sidecar counts as created by the task of its data file."""
    name, dot, extension = data_file_of(path).rpartition(".")
    return dot + extension in (EXTENSION, BLOB_EXTENSION) and name.replace("-", "").endswith(job_digits)


class TaskFiles(NewFiles):
    """The data files of one attempt of one task.

    location      folder of the table
    limits        size at which a file is full
    is_rows_hard  whether a file never exceeds its number of rows
    """

    def __init__(self, location: Location, job: WriteJob, limits: FileLimits, *, is_rows_hard: bool) -> None:
        new_name = partial(task_file_name, job.file_suffix)
        new_blob_name = partial(task_blob_name, job.file_suffix)
        super().__init__(
            location, job.file_schema, job.data_version, limits, new_name=new_name, new_blob_name=new_blob_name
        )
        self._is_rows_hard = is_rows_hard
        self._tail_bytes = min(TAIL_BYTES, limits.num_bytes)

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of all written files, relative to the table's folder."""
        folder_prefix = self.location.key("x").removesuffix("x")  # every key begins with it
        return tuple(key[len(folder_prefix) :] for keys in self._written_keys.values() for key in keys)

    @property
    def num_bytes(self) -> int:
        """Bytes of the data files."""
        return sum(file.size_bytes or 0 for fragment in self.fragments for file in fragment.files)

    def write(self, rows: Rows | AsyncRows) -> Plan[None]:
        """Write all rows."""
        held: deque[pa.RecordBatch] = deque()
        held_bytes = 0
        while (batch := (yield NextBatch(rows))) is not None:
            waiting = deque(self._cut_small(batch))
            while waiting:
                piece = waiting.popleft()
                if self._file is None or not self._is_full:
                    yield from self._put(piece)
                    continue
                held.append(piece)
                held_bytes += piece.nbytes
                if held_bytes >= self._tail_bytes:
                    yield from self._end_file()
                    waiting.extendleft(reversed(held))
                    held.clear()
                    held_bytes = 0
        for piece in held:
            yield from self._put(piece)
        if self._file is not None:
            yield from self._complete_file()
        self._warn_of_lost_nulls()

    def _cut_small(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Cut a batch into slices that are small compared with a file."""
        num_rows = min(self._limits.rows_per_slice(batch), self._limits.rows)
        for start in range(0, batch.num_rows, num_rows):
            yield batch if num_rows >= batch.num_rows else batch.slice(start, num_rows)

    def _put(self, piece: pa.RecordBatch) -> Plan[None]:
        """Write rows to the open file, or a new one; rows beyond a hard limit go to the next file."""
        yield from self._end_file_before_overflow(piece)
        while piece.num_rows:
            file = self._file or self._open()
            room = self._limits.rows - self._writer.num_rows if self._is_rows_hard else piece.num_rows
            yield from file.write(piece.slice(0, room))
            piece = piece.slice(min(room, piece.num_rows))
            yield from self._check_if_full()
            if self._is_rows_hard and self._writer.num_rows >= self._limits.rows:
                yield from self._end_file()

    def _end_file(self) -> Plan[None]:
        yield from self._complete_file()
        yield from self._publish_file()
