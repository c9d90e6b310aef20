"""The scan of a read, its Spark schema, and its partitions.

A Spark task has an overhead of around 100 ms, so partitions are as large as `split_bytes` allows.
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


def read_scan(
    version: TableVersion,
    options: ReadOptions,
    names: Sequence[str] | None = None,
    members: Sequence[tuple[str, ...]] = (),
    *,
    offset: int = 0,
    order: Sequence[tuple[tuple[str, ...], bool, bool]] = (),
) -> TableScan:
    """The scan of a read.

    names    some of its columns, in this order; None for all
    members  paths of members of structs that are narrowed to these
    offset, order  see `TableVersion.scan`
    Raises like `TableVersion.scan`.
    """
    return version.scan(
        columns=options.columns,
        names=names,
        members=members,
        filter=options.filter,
        limit=options.limit,
        offset=offset,
        order=order,
        row_versions=options.row_versions,
        with_row_id=options.with_row_id,
        with_row_address=options.with_row_address,
        with_fragment_id=options.with_fragment_id,
        blobs_as_bytes=options.blobs == "binary",
    )


def shown_schema(version: TableVersion, scan: TableScan, options: ReadOptions) -> StructType:
    """The Spark schema of a scan, with row ids and addresses as int64. Raises like `arrow_to_spark`."""
    schema = version.schema_of(scan)
    fields = [field.with_type(pa.int64()) if field.name in scan.system_columns else field for field in schema]
    return arrow_to_spark(pa.schema(fields), uint64=options.uint64, timestamp_ns=options.timestamp_ns)


def read_schema(version: TableVersion, options: ReadOptions) -> StructType:
    """The Spark schema of a read. Raises like `read_scan` and `shown_schema`."""
    return shown_schema(version, read_scan(version, options), options)


def check_declared(declared: StructType, actual: StructType) -> None:
    """Raise `SchemaError` if a column has another type in the user's own schema than in the table.

    actual  the table's schema of the same columns
    """
    for ours, theirs in zip(actual.fields, declared.fields, strict=True):
        if ours.dataType.simpleString() != theirs.dataType.simpleString():
            raise SchemaError(
                f"column {ours.name} is {ours.dataType.simpleString()}, and the schema given to the read says "
                f"{theirs.dataType.simpleString()}; read it as it is and cast it in Spark"
            )


# -- partitions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """A partition of a `ReadPlan`: the rows that one task reads.

    Attributes:
        number: Index of the partition.
        version: Version of the table.
        ranges: (fragment id, first row, number of rows) in physical rows; one range per fragment, in the table's order.
        rows: Rows without deleted rows, but including rows that the filter drops.
        bytes: Estimate of the decoded bytes of the projected columns.
    """

    number: int
    version: int
    ranges: tuple[tuple[int, int, int], ...]
    rows: int
    bytes: int


@dataclass(frozen=True)
class ReadPlan:
    """The partitions of a read.

    Attributes:
        version: Version of the table.
        parts: The partitions in the form for tasks, in the order of the table's rows.
        index: Description of the indices that name rows of the filter; None for none.
        num_rows: Rows, deleted ones included, if indices name all rows that pass the filter; else None.
    """

    version: int
    parts: tuple[ScanPart, ...] = field(repr=False)
    _version: TableVersion = field(repr=False)
    _scan: TableScan = field(repr=False)
    index: str | None = None
    num_rows: int | None = None

    @cached_property
    def partitions(self) -> tuple[PlannedPartition, ...]:
        """The partitions in readable form. Reads the deletion files of fragments that are split."""
        return tuple(
            PlannedPartition(part.number, part.version, part.ranges, rows, part.num_bytes)
            for part, rows in zip(self.parts, self._version.live_rows(self.parts), strict=True)
        )

    @property
    def bytes(self) -> int:
        """Estimate of the decoded bytes of the projected columns."""
        return sum(part.num_bytes for part in self.parts)

    @cached_property
    def requests(self) -> int:
        """Estimate of the requests that all tasks send to the store. Reads the metadata of the data files."""
        return sum(self._version.num_requests(self._scan, part) for part in self.parts)


def plan_read(
    version: TableVersion, options: ReadOptions, scan: TableScan, fragment_indices: Sequence[int] | None = None
) -> ReadPlan:
    """The partitions of a read; at least one, which may have no rows.

    fragment_indices  the fragments to read, None for all
    Raises the errors of compiling the filter.
    """
    planned = version.plan_parts(
        scan,
        part_bytes=options.split_bytes,
        num_parts=options.num_partitions,
        max_parts=options.max_partitions,
        places=fragment_indices,
    )
    return ReadPlan(version.version, planned.parts, version, scan, planned.index, planned.num_rows)
