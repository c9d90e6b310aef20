"""`format("ready")`: a source that does nothing but hand over batches that are there, and a sink that drops them.

No source in Python can be faster in Spark: what is left is Spark's part, the workers' protocol, Arrow into the JVM and
rows out of it. A folder holds `schema.json`, the Spark schema, and `NUMBER.arrow`, the batches of each partition.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from collections.abc import Iterator


class ReadySource(DataSource):
    """The source and the sink; the option `path` names the folder, which the sink does not need."""

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "ready"

    def schema(self) -> StructType:
        """As it was kept."""
        return StructType.fromJson(json.loads(Path(self.options["path"], "schema.json").read_text()))

    def reader(self, schema: StructType) -> DataSourceReader:
        """One task for each file."""
        return ReadyReader(self.options["path"])

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Takes batches, and drops them."""
        return DroppingWriter()


class ReadyReader(DataSourceReader):
    """The files of a folder, each mapped once in a process."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def partitions(self) -> list[InputPartition]:
        """Paths."""
        files = sorted(Path(self._folder).glob("*.arrow"), key=lambda path: int(path.stem))
        return [InputPartition(str(path)) for path in files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """What is there."""
        return iter(ready_batches(partition.value))


@cache
def ready_batches(path: str) -> list[pa.RecordBatch]:
    """The batches of a file."""
    file = pa.ipc.open_file(pa.memory_map(path))
    return [file.get_batch(number) for number in range(file.num_record_batches)]


class DroppingWriter(DataSourceArrowWriter):
    """Counts rows."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Go through a task's batches."""
        for _ in iterator:
            pass
        return WriterCommitMessage()


def keep_ready(folder: Path, options: dict[str, str]) -> None:
    """Fill a folder with what our source hands to Spark, batch for batch.

    options  of the read
    """
    from lance_io.spark.source import LanceDataSource
    from lance_io.spark.types import carried_schema

    source = LanceDataSource(options)
    schema = source.schema()
    reader = source.reader(schema)
    (folder / "schema.json").write_text(schema.json())
    for number, partition in enumerate(reader.partitions()):
        with pa.ipc.new_file(folder / f"{number}.arrow", carried_schema(schema)) as file:
            for batch in reader.read(partition):
                file.write_batch(batch)


def ready_amounts(folder: Path) -> dict[str, float]:
    """Rows and bytes of what a folder holds."""
    batches = [batch for path in folder.glob("*.arrow") for batch in ready_batches(str(path))]
    return {"rows": sum(batch.num_rows for batch in batches), "bytes": sum(batch.nbytes for batch in batches)}
