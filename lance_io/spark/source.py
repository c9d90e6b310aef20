"""`LanceDataSource`: what Spark makes for every `format("lance_io")`, in short-lived processes of its own.

    planner process    LanceDataSource(options), then schema(): pins the version; Spark pickles the object afterwards
    another one        reader(schema), then partitions()
    worker processes   reader.read(partition)

Nothing here may be slow to import or hold a connection: each method loads what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from lance_io.lazy_names import later
from lance_io.redaction import hide_secrets

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType

    from lance_io.spark import engine, worker_tuning
    from lance_io.spark import options as option_parsing
    from lance_io.spark.read import read_plan
    from lance_io.spark.read import reader as readers
    from lance_io.spark.stream import stream_sink, stream_source
    from lance_io.spark.write import writer as writers
else:
    engine = later("lance_io.spark.engine")
    option_parsing = later("lance_io.spark.options")
    read_plan = later("lance_io.spark.read.read_plan")
    worker_tuning = later("lance_io.spark.worker_tuning")
    readers = later("lance_io.spark.read.reader")
    writers = later("lance_io.spark.write.writer")
    stream_source = later("lance_io.spark.stream.stream_source")
    stream_sink = later("lance_io.spark.stream.stream_sink")


class LanceDataSource(DataSource):
    """A Lance table as a data source of Spark; the options are those of `lance_io.spark.options`."""

    _version: bytes | None = None  # which one every use of a DataFrame reads, as `TableVersion.to_bytes` names it

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "lance_io"

    def schema(self) -> StructType:
        """The Spark schema of the table or of the columns asked for; pins the version.

        Raises what `parse_options` and opening a table raise.
        """
        options = option_parsing.parse_schema_options(self._given)
        version = engine.open_version(options)
        self._version = version.to_bytes()
        schema = read_plan.read_schema(version, options)
        worker_tuning.freeze_loaded(options)
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch query; `schema` is what Spark expects, the user's own included."""
        return readers.LanceReader(option_parsing.parse_options(self._given, "read"), schema, self._version)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """The writer of a batch query."""
        return writers.LanceWriter(option_parsing.parse_options(self._given, "write"), schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a streaming query."""
        return stream_source.stream_reader(option_parsing.parse_options(self._given, "stream_read"), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """The writer of a streaming query; `overwrite` in complete mode."""
        return stream_sink.LanceStreamWriter(
            option_parsing.parse_options(self._given, "stream_write"), schema, overwrite
        )

    @property
    def _given(self) -> dict[str, str]:
        return dict(self.options.items())

    def __repr__(self) -> str:
        return hide_secrets(f"LanceDataSource({self._given.get('path', '')!r})")
