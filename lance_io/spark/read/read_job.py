"""`ReadJob`: what the tasks of one read have in common, and what a worker makes of it once for all that it is given."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from lance_io.dataset.blobs.blob_values import wanted_binaries
from lance_io.dataset.scan.scan_options import scan_options
from lance_io.dataset.scan.scan_plan import plan_columns
from lance_io.spark.engine import io_buffer_bytes, process_session
from lance_io.spark.read.partition_state import DECODED_PER_BYTE, restored
from lance_io.spark.read.read_casts import ReadCast
from lance_io.spark.read.read_columns import decoded_width, read_projection

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from lance_io.dataset.scan.pipeline import ScanPlan
    from lance_io.dataset.scan.scan_options import ScanOptions
    from lance_io.dataset.version.column_lists import Projection
    from lance_io.dataset.version.state import DatasetState
    from lance_io.spark.options import ReadOptions
    from lance_io.spark.read.partition_state import PartitionPlan

FILTERED_ROWS_MIN: Final = 1024
BLOB_ROWS: Final = 64  # blobs are read whole, however large: few at a time


@dataclass(eq=False)
class ReadJob:
    """What the tasks of one read have in common.

    options, declared  as for `LanceReader`
    header, branch     of the version, as `carrying.header_of` and the manifest give them
    """

    options: ReadOptions
    declared: StructType
    header: bytes = field(repr=False)
    branch: str | None
    _prepared: PreparedRead | None = field(default=None, init=False, repr=False)

    @classmethod
    def unpacked(cls, packed: bytes) -> ReadJob:
        """The job that `packed` has made these bytes of; while the session remembers it, the same object each time."""
        cache, key = process_session().cache, ("read job", blake2b(packed, digest_size=16).digest())
        found: ReadJob | None = cache.get(key)
        if found is None:
            found = cls(*pickle.loads(packed))
            cache.put(key, found, DECODED_PER_BYTE * len(packed))
        return found

    def packed(self) -> bytes:
        """For a worker."""
        return pickle.dumps((self.options, self.declared, self.header, self.branch))

    def state(self, part: PartitionPlan) -> DatasetState:
        """The part of the version that a partition reads."""
        return restored(self.options, self.header, self.branch, part)

    def prepared(self, state: DatasetState) -> PreparedRead:
        """What the job does with the rows of any partition, whose state is `state`."""
        if self._prepared is None:
            self._prepared = PreparedRead(self, state)
        return self._prepared


class PreparedRead:
    """What a job does with rows; nothing of it depends on which they are, only on the schema.

    scan_options  of the scan of a partition
    cast          into what Spark expects
    batch_rows    rows that are filtered together, or whose blobs are read together; None for pages as they come
    """

    def __init__(self, job: ReadJob, state: DatasetState) -> None:
        options = job.options
        projection = read_projection(state, options, job.declared.names)
        self.scan_options: ScanOptions = scan_options(
            filter=options.filter,
            limit=options.limit,  # of rows that pass the filter; without one the planner has cut the ranges
            io_buffer_size=io_buffer_bytes(options),
            blob_handling="all_binary" if options.blobs == "binary" else "blobs_descriptions",
        )
        self.cast = ReadCast(projection.arrow_schema, job.declared, timestamp_ns=options.timestamp_ns)
        self.batch_rows = _batch_rows(state, options, projection)
        self._columns = plan_columns(state, self.scan_options, projection)

    def columns(self) -> ScanPlan:
        """The plan of a partition before it has rows."""
        early, late = self._columns.early_read, self._columns.late_read  # they remember the files that they have seen
        return replace(self._columns, early_read=early and early.again(), late_read=late and late.again())


def _batch_rows(state: DatasetState, options: ReadOptions, projection: Projection) -> int | None:
    if wanted_binaries(state, projection) is not None:
        return BLOB_ROWS
    if options.filter is None:
        return None
    width = sum(decoded_width(output.field.type)[0] for output in projection.outputs)
    return max(FILTERED_ROWS_MIN, int(options.batch_bytes / max(width, 64)))
