"""Which columns a read gives, and what Spark calls their types."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lance_io.errors import SchemaError
from lance_io.spark.types import arrow_to_spark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import StructType

    from lance_io.dataset.distributed import TableScan, TableVersion
    from lance_io.spark.options import ReadOptions


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
