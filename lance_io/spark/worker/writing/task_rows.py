"""The rows of one task: an Arrow stream of the JVM to data files.

JVM     {"op": "write_rows", "write": ..., "partition": 3, "moves": false}
worker  {"arrow": schema of the batches}
JVM     an Arrow stream, then the byte C; without it the task was given up, and its files are removed
worker  {"files": ..., "rows": ..., "bytes": ...}
"""

from __future__ import annotations

import pickle
from base64 import b64encode
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lance_io.dataset import distributed
from lance_io.errors import LanceError
from lance_io.spark.types import carried_schema
from lance_io.spark.worker.writing.dynamic_keys import Keys
from lance_io.spark.worker.writing.planned_writes import PlannedWrite, TaskFiles
from lance_io.spark.write.write_casts import WriteCast

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_io.spark.worker.jvm_connections import Connection

ROW_ID: Final = "_rowid"
COMPLETE: Final = b"C"


class Abandoned(LanceError):
    """The JVM gave up a task."""


def receive_rows(connection: Connection, request: dict[str, Any]) -> None:
    """Write the rows of a request, and answer with their files."""
    write = PlannedWrite.from_text(request["write"])
    moves = bool(request.get("moves"))
    carried = carried_schema(write.given)
    sent = carried.append(pa.field(ROW_ID, pa.int64())) if moves else carried
    connection.send({"arrow": b64encode(sent.serialize().to_pybytes()).decode()})
    rows = _TaskRows(write, request["partition"], moves)
    with connection.socket.makefile("rb", buffering=1 << 16) as stream:
        files = distributed.write_files(
            write.table,
            write.job,
            rows.schema,
            rows.batches(stream),
            rows_per_file=write.options.max_rows_per_file,
            bytes_per_file=write.options.max_bytes_per_file,
            is_rows_hard=write.options.rows_per_file_given,
        )
    primary = None if rows.primary is None else rows.primary.to_bytes()
    result = TaskFiles(files, b"".join(rows.row_ids) if moves else None, rows.keys.to_stream(), primary)
    answer = {"files": b64encode(pickle.dumps(result)).decode(), "rows": files.num_rows, "bytes": files.num_bytes}
    try:
        connection.send(answer)
    except OSError:  # the JVM has gone, or has given the task up
        distributed.discard_files(write.table, files)


class _TaskRows:
    """The rows of a task while they are written.

    row_ids  of rows that moved, as bytes
    keys     distinct values of the columns of a dynamic overwrite
    primary  declared primary keys; None where the table has none
    """

    def __init__(self, write: PlannedWrite, partition: int, moves: bool) -> None:
        self._cast = WriteCast(
            write.given,
            write.job.arrow_schema,
            partition=partition,
            exact_floats=not write.options.narrow_floats,
        )
        self._moves = moves
        self._columns = list(write.keys)
        self.schema = self._cast.schema
        self.row_ids: list[bytes] = []
        self.keys = Keys()
        self.primary = distributed.PrimaryKeys.of(write.job)

    def batches(self, stream: Any) -> Iterator[pa.RecordBatch]:
        """Batches in stored form. Raises `Abandoned` for a stream that does not end as it should."""
        first_row = 0
        reader = _open(stream)
        while (batch := _next(reader, first_row)) is not None:
            if self._moves:
                self.row_ids.append(batch.column(ROW_ID).to_numpy().tobytes())
                batch = batch.drop_columns([ROW_ID])
            stored = self._cast.cast(batch, first_row)
            if self._columns:
                self.keys.add(pa.table(stored.select(self._columns)))
            if self.primary is not None:
                self.primary.add(stored)
            yield stored
            first_row += batch.num_rows
        if stream.read(1) != COMPLETE:
            raise Abandoned(f"the task was given up after {first_row} rows")


def _open(stream: Any) -> pa.RecordBatchReader:
    try:
        return pa.ipc.open_stream(stream)
    except (pa.ArrowInvalid, OSError) as error:
        raise Abandoned(f"the task was given up before its rows: {error}") from error


def _next(reader: pa.RecordBatchReader, first_row: int) -> pa.RecordBatch | None:
    try:
        return reader.read_next_batch()
    except StopIteration:
        return None
    except (pa.ArrowInvalid, OSError) as error:
        raise Abandoned(f"the rows broke off after {first_row}: {error}") from error
