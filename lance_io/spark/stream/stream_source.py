"""The streaming source: the rows of a table, and then the rows that later versions add (see `version_rows`).

    planner process    initialOffset, latestOffset(start, limit), partitions(start, end): one process per query
    worker processes   read(partition)

Every fragment is read as it is in the version that added it, so that a batch that Spark requests again is the same.
Columns that such a version does not have yet are null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from lance_io.errors import UnsupportedError
from lance_io.spark.read.read_plan import check_declared, plan_read, read_scan, shown_schema
from lance_io.spark.read.reader import ReadJob, read_partition
from lance_io.spark.stream.version_rows import Allowance, Offset, VersionRows

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # pyspark 4.1 has neither limits nor this class

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Replaces the class of later releases."""


if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from lance_io.dataset.distributed import ScanPart, TableScan
    from lance_io.spark.options import StreamReadOptions
    from lance_io.spark.stream.version_rows import Part


@dataclass(frozen=True)
class StreamPartition(InputPartition):
    """The rows that one task of a batch reads.

    part  rows of one version
    scan  scan of the version whose schema is read
    """

    part: ScanPart
    scan: TableScan


def stream_reader(options: StreamReadOptions, declared: StructType) -> LanceStreamReader:
    """The reader of a streaming query for the installed release of pyspark.

    Raises `UnsupportedError` for limits if Spark does not support them.
    """
    if hasattr(DataSourceStreamReader, "getDefaultReadLimit"):
        return LanceStreamReader(options, declared)
    if options.max_rows_per_trigger is not None or options.max_bytes_per_trigger is not None:
        raise UnsupportedError("max_rows_per_trigger and max_bytes_per_trigger need pyspark 4.2 or later")
    return UnlimitedStreamReader(options, declared)


class LanceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a streaming query.

    declared  the Spark schema that batches must have
    """

    def __init__(self, options: StreamReadOptions, declared: StructType) -> None:
        self._options = options
        self._declared = declared
        self._rows: VersionRows | None = VersionRows(options)
        self._last: int | None = None  # the last version to read, for a query that ends

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rows": None}

    @property
    def _versions(self) -> VersionRows:
        assert self._rows is not None, "only the process that created the reader uses versions"
        return self._rows

    # -- offsets -----------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Always the same: after a restart Spark calls it again until the first batch is committed."""
        return Offset().to_json()

    def getDefaultReadLimit(self) -> Any:
        """The limit in the options."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

        if self._options.max_rows_per_trigger is not None:
            return ReadMaxRows(self._options.max_rows_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: Mapping[str, Any], limit: Any) -> dict[str, Any]:
        """The end of the next batch; `start` if there is nothing new."""
        newest = self._versions.newest() if self._last is None else self._last
        return self._versions.after(Offset.of(start), newest, self._allowance(limit)).to_json()

    def _allowance(self, limit: Any) -> Allowance:
        rows, num_bytes = getattr(limit, "max_rows", None), getattr(limit, "max_bytes", None)
        if rows is not None and num_bytes is None:  # Spark passes only one of the two
            num_bytes = self._options.max_bytes_per_trigger
        endless = float("inf")
        return Allowance(endless if rows is None else rows, endless if num_bytes is None else num_bytes)

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember the newest version: the query ends with it."""
        self._last = self._versions.newest()

    # -- rows --------------------------------------------------------------------------------------------------------

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """The partitions of a batch."""
        parts = self._versions.between(Offset.of(start), Offset.of(end))
        return [partition for part in parts if part.fragment_indices for partition in self._partitions(part)]

    def _partitions(self, part: Part) -> list[StreamPartition]:
        version = self._versions.opened(part.version)
        shown = version if self._has_columns(part.version) else self._versions.opened(self._versions.newest())
        scan = read_scan(shown, self._options, self._declared.names)
        check_declared(self._declared, shown_schema(shown, scan, self._options))
        plan = plan_read(version, self._options, scan, part.fragment_indices)
        return [StreamPartition(planned, scan) for planned in plan.parts if planned.ranges]

    def _has_columns(self, version: int) -> bool:
        """Whether a version has all top-level columns of the read."""
        columns = self._options.columns
        wanted = {path[0] for path in columns} if columns is not None else set(self._declared.names)
        known = set(self._versions.opened(version).column_names)
        return all(name in known or name.startswith("_") for name in wanted)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of a partition."""
        assert isinstance(partition, StreamPartition)
        return read_partition(ReadJob(self._options, self._declared, partition.scan), partition.part)


class UnlimitedStreamReader(LanceStreamReader):
    """The same for pyspark 4.1, which calls `latestOffset` without arguments."""

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        """The offset of the newest version."""
        return Offset(self._versions.newest()).to_json()
