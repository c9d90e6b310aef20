"""What a read gives, what Spark calls the types of its columns, and how it is cut into partitions.

A task costs Spark around 100 ms before it reads anything, so partitions are as large as `split_bytes` allows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from lance_io.errors import SchemaError
from lance_io.spark.types import arrow_to_spark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import StructType

    from lance_io.dataset.distributed import ScanPart, TableScan, TableVersion
    from lance_io.spark.options import ReadOptions


# -- columns -----------------------------------------------------------------------------------------------------------


def read_scan(version: TableVersion, options: ReadOptions, names: Sequence[str] | None = None) -> TableScan:
    """What a read scans.

    names  which of its columns, in this order; None for all
    Raises as `TableVersion.scan`.
    """
    return version.scan(
        columns=options.columns,
        names=names,
        filter=options.filter,
        limit=options.limit,
        with_row_id=options.with_row_id,
        with_row_address=options.with_row_address,
        with_fragment_id=options.with_fragment_id,
        blobs_as_bytes=options.blobs == "binary",
    )


def shown_schema(version: TableVersion, scan: TableScan, options: ReadOptions) -> StructType:
    """The Spark schema of a scan; row ids and addresses are plain int64 there. Raises as `arrow_to_spark`."""
    schema = version.schema_of(scan)
    fields = [field.with_type(pa.int64()) if field.name in scan.system_columns else field for field in schema]
    return arrow_to_spark(pa.schema(fields), uint64=options.uint64, timestamp_ns=options.timestamp_ns)


def read_schema(version: TableVersion, options: ReadOptions) -> StructType:
    """The Spark schema of a read. Raises as `read_scan` and `shown_schema`."""
    return shown_schema(version, read_scan(version, options), options)


def check_declared(declared: StructType, found: StructType) -> None:
    """Raise `SchemaError` where the user's own schema gives a column another type than the table.

    found  the schema of the same columns as the table has them
    """
    for ours, theirs in zip(found.fields, declared.fields, strict=True):
        if ours.dataType.simpleString() != theirs.dataType.simpleString():
            raise SchemaError(
                f"column {ours.name} is {ours.dataType.simpleString()}, and the schema given to the read says "
                f"{theirs.dataType.simpleString()}; read it as it is and cast it in Spark"
            )


# -- partitions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """What one task reads, as `ReadPlan` shows it.

    number   its place among the partitions
    version  of the table
    ranges   (fragment id, first row, rows), physical rows; each of another fragment, in the order of the table
    rows     rows that come: deleted ones are not counted, those that a filter drops are
    bytes    decoded bytes of the columns that are read, estimated
    """

    number: int
    version: int
    ranges: tuple[tuple[int, int, int], ...]
    rows: int
    bytes: int


@dataclass(frozen=True)
class ReadPlan:
    """How a read is cut.

    version     of the table
    parts       what travels to the tasks, in the order of the table's rows
    partitions  the same for people; computing it reads the deletion files of fragments that are cut
    bytes       decoded bytes of the columns that are read, estimated
    requests    what all tasks together ask of the store, about; computing it reads the metadata of the data files
    """

    version: int
    parts: tuple[ScanPart, ...] = field(repr=False)
    _version: TableVersion = field(repr=False)
    _scan: TableScan = field(repr=False)

    @cached_property
    def partitions(self) -> tuple[PlannedPartition, ...]:
        """See the class."""
        return tuple(
            PlannedPartition(part.number, part.version, part.ranges, rows, part.num_bytes)
            for part, rows in zip(self.parts, self._version.live_rows(self.parts), strict=True)
        )

    @property
    def bytes(self) -> int:
        """See the class."""
        return sum(one.num_bytes for one in self.parts)

    @cached_property
    def requests(self) -> int:
        """See the class."""
        return sum(self._version.num_requests(self._scan, one) for one in self.parts)


def plan_read(
    version: TableVersion, options: ReadOptions, scan: TableScan, places: Sequence[int] | None = None
) -> ReadPlan:
    """The partitions of a read; at least one, which may have no rows.

    places  the fragments to read, None for all
    Raises what compiling the filter raises.
    """
    parts = version.parts(
        scan,
        part_bytes=options.split_bytes,
        num_parts=options.num_partitions,
        max_parts=options.max_partitions,
        places=places,
    )
    return ReadPlan(version.version, parts, version, scan)
