"""`LanceDataSource`, which Spark creates for every `format("lance_io")`, in short-lived processes.

    planner process         LanceDataSource(options), then schema(): pins the version; then Spark pickles the object
    second planner process  reader(schema), then partitions()
    worker processes        reader.read(partition)

Imports here must be fast, and nothing may hold a connection: each method loads the modules that it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from lance_io.lazy_names import lazy_module
from lance_io.redaction import hide_secrets

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType

    from lance_io.spark import engine, task_context, worker_tuning
    from lance_io.spark import options as option_parsing
    from lance_io.spark.read import read_plan
    from lance_io.spark.read import reader as readers
    from lance_io.spark.stream import stream_sink, stream_source
    from lance_io.spark.write import writer as writers
else:
    engine = lazy_module("lance_io.spark.engine")
    option_parsing = lazy_module("lance_io.spark.options")
    read_plan = lazy_module("lance_io.spark.read.read_plan")
    task_context = lazy_module("lance_io.spark.task_context")
    worker_tuning = lazy_module("lance_io.spark.worker_tuning")
    readers = lazy_module("lance_io.spark.read.reader")
    writers = lazy_module("lance_io.spark.write.writer")
    stream_source = lazy_module("lance_io.spark.stream.stream_source")
    stream_sink = lazy_module("lance_io.spark.stream.stream_sink")


class LanceDataSource(DataSource):
    """A Lance table as a data source of Spark; the options are those of `lance_io.spark.options`."""

    _version: bytes | None = None  # the pinned version, from `TableVersion.to_bytes`: all uses of a DataFrame read it

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "lance_io"

    def schema(self) -> StructType:
        """The Spark schema of the table or of the requested columns; pins the version.

        Raises the errors of `parse_options` and of opening a table.
        """
        options = option_parsing.parse_schema_options(self._given)
        version = engine.open_version(options)
        self._version = version.to_bytes()
        schema = read_plan.read_schema(version, options)
        worker_tuning.freeze_loaded(options)
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch query.

        Args:
            schema: The schema that Spark expects; the user's own, where the read names one.
        """
        task_context.log_missing_jar()  # Spark asks the JAR, where there is one
        return readers.LanceReader(option_parsing.parse_options(self._given, "read"), schema, self._version)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """The writer of a batch query.

        Args:
            schema: The schema of the rows.
            overwrite: Replaces the rows of the table.
        """
        return writers.LanceWriter(option_parsing.parse_options(self._given, "write"), schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a streaming query.

        Args:
            schema: The schema that Spark expects; the user's own, where the read names one.
        """
        return stream_source.stream_reader(option_parsing.parse_options(self._given, "stream_read"), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """The writer of a streaming query.

        Args:
            schema: The schema of the rows.
            overwrite: Replaces the rows of the table with each batch (complete mode).
        """
        return stream_sink.LanceStreamWriter(
            option_parsing.parse_options(self._given, "stream_write"), schema, overwrite
        )

    @property
    def _given(self) -> dict[str, str]:
        return dict(self.options.items())

    def __repr__(self) -> str:
        return hide_secrets(f"LanceDataSource({self._given.get('path', '')!r})")
