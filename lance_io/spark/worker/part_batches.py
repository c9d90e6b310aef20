"""The batches of a task, sent to the JVM as an Arrow stream.

    {}  M {...}  B schema batch  M {...}  B batch  ...  M {...}  E    all rows
    {}  M {...}  B schema batch  X {"error": ...}                     an error after some of them

M brings the requests and bytes of the task so far. Each batch is one message of the stream, the schema another before
the first. A batch is sent by one call of the system, from the memory in which it was decoded. Sending waits until the
JVM takes the bytes, so that reading ahead of Spark is bounded by the scan's own buffer.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from lance_io.plans.plan import Stopped
from lance_io.spark.engine import io_buffer_bytes, table_place
from lance_io.spark.read.reader import rows_in_errors, unpack_job
from lance_io.spark.types import carried_schema
from lance_io.spark.worker.jvm_connections import framed

if TYPE_CHECKING:
    from collections.abc import Generator

    from lance_io.dataset.distributed import ScanPart
    from lance_io.spark.read.reader import ReadJob
    from lance_io.spark.worker.jvm_connections import Connection

Batches: TypeAlias = "Generator[pa.RecordBatch, None, None]"

COUNTED: Final = pa.schema([pa.field("count(*)", pa.int64(), nullable=False)])


def send_part(connection: Connection, packed: tuple[bytes, bool] | None, part: Any) -> None:
    """Send the rows of a part, or their number.

    packed  the job, serialized, and whether only the rows are counted; None for a part that is a list of batches
    """
    if packed is None:
        schema = part[0].schema if part else pa.schema([])
        _send(connection, schema, (batch for batch in part))
        return
    job, counts = unpack_job(packed[0]), packed[1]
    schema = COUNTED if counts else carried_schema(job.declared)
    watch = job.scan.watch()
    _send(connection, schema, _batches(connection, job, part, counts, watch), watch)


class _Pieces:
    """A file for Arrow that keeps the buffers written to it, without a copy, until they are sent together."""

    closed = False

    def __init__(self) -> None:
        self.buffers: list[Any] = []
        self.write = self.buffers.append


def _send(connection: Connection, schema: pa.Schema, batches: Batches, watch: Any = None) -> None:
    connection.send({})
    try:
        pieces = _Pieces()
        writer = pa.ipc.new_stream(pieces, schema)
        with closing(batches):
            for batch in batches:
                writer.write_batch(batch)
                connection.send_buffers([_costs(watch) + b"B", *pieces.buffers])
                pieces.buffers.clear()
        connection.send_buffers([_costs(watch) + b"E"])  # the writer's own end would stand before the sign
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Stopped:
        return  # the JVM has closed the connection
    except Exception as error:
        connection.out.write(b"X")
        connection.send_error(error)


def _costs(watch: Any) -> bytes:
    """The costs of the task so far, behind their sign; nothing where they are not counted."""
    if watch is None:
        return b""
    return b"M" + framed(b'{"requests": %d, "bytes": %d, "cached": %d}' % watch.spent)


def _batches(connection: Connection, job: ReadJob, part: ScanPart, counts: bool, watch: Any) -> Batches:
    options = job.options
    rows = job.scan.read(
        table_place(options),
        part,
        batch_bytes=options.batch_bytes,
        batch_rows=options.batch_size,
        io_buffer_bytes=io_buffer_bytes(options),
        offer_stop=connection.watch,
        watch=watch,
    )
    with rows_in_errors(job, part), closing(rows):
        if not counts:
            yield from map(job.cast, rows)
            return
        num_rows = sum(batch.num_rows for batch in rows)
    yield pa.RecordBatch.from_arrays([pa.array([num_rows], pa.int64())], schema=COUNTED)
