"""The streaming source: the rows of a table, and then those that later versions add (`version_rows` says which).

    planner process    initialOffset, latestOffset(start, limit), partitions(start, end): one process for a whole query
    worker processes   read(partition)

Every fragment is read as it is in the version that added it, so that a batch which Spark asks for again is the same.
A column that such a version does not have yet is null.
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
except ImportError:  # pyspark 4.1 has neither limits nor this

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands in for the class of later releases."""


if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from lance_io.dataset.distributed import ScanPart, TableScan
    from lance_io.spark.options import StreamReadOptions
    from lance_io.spark.stream.version_rows import Part


@dataclass(frozen=True)
class StreamPartition(InputPartition):
    """What one task of a batch reads.

    part  rows of one version
    scan  of the version whose schema is read
    """

    part: ScanPart
    scan: TableScan


def stream_reader(options: StreamReadOptions, declared: StructType) -> LanceStreamReader:
    """The reader of a streaming query that this release of pyspark can use.

    Raises `UnsupportedError` for limits where Spark does not know them.
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
        self._last: int | None = None  # version after which nothing more is read, of a query that is to end

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rows": None}

    @property
    def _versions(self) -> VersionRows:
        assert self._rows is not None, "versions are looked at by the process that made the reader"
        return self._rows

    # -- offsets -----------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Always the same: Spark asks again after a restart, as long as the first batch has not been committed."""
        return Offset().to_json()

    def getDefaultReadLimit(self) -> Any:
        """What the options ask for."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

        if self._options.max_rows_per_trigger is not None:
            return ReadMaxRows(self._options.max_rows_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: Mapping[str, Any], limit: Any) -> dict[str, Any]:
        """The end of the next batch; `start` when there is nothing new."""
        newest = self._versions.newest() if self._last is None else self._last
        return self._versions.after(Offset.of(start), newest, self._allowance(limit)).to_json()

    def _allowance(self, limit: Any) -> Allowance:
        rows, num_bytes = getattr(limit, "max_rows", None), getattr(limit, "max_bytes", None)
        if rows is not None and num_bytes is None:  # Spark carries one of the two
            num_bytes = self._options.max_bytes_per_trigger
        endless = float("inf")
        return Allowance(endless if rows is None else rows, endless if num_bytes is None else num_bytes)

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember what the newest version is: the query ends with it."""
        self._last = self._versions.newest()

    # -- rows --------------------------------------------------------------------------------------------------------

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """The partitions of a batch."""
        parts = self._versions.between(Offset.of(start), Offset.of(end))
        return [one for part in parts if part.places for one in self._partitions(part)]

    def _partitions(self, part: Part) -> list[StreamPartition]:
        version = self._versions.opened(part.version)
        shown = version if self._has_columns(part.version) else self._versions.opened(self._versions.newest())
        scan = read_scan(shown, self._options, self._declared.names)
        check_declared(self._declared, shown_schema(shown, scan, self._options))
        plan = plan_read(version, self._options, scan, part.places)
        return [StreamPartition(one, scan) for one in plan.parts if one.ranges]

    def _has_columns(self, version: int) -> bool:
        """Whether a version has all columns at the top level that are read."""
        columns = self._options.columns
        wanted = {path[0] for path in columns} if columns is not None else set(self._declared.names)
        known = set(self._versions.opened(version).column_names)
        return all(name in known or name.startswith("_") for name in wanted)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of a partition."""
        assert isinstance(partition, StreamPartition)
        return read_partition(ReadJob(self._options, self._declared, partition.scan), partition.part)


class UnlimitedStreamReader(LanceStreamReader):
    """The same where Spark asks for the newest offset without saying from where (pyspark 4.1)."""

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        """Everything that is there."""
        return Offset(self._versions.newest()).to_json()
