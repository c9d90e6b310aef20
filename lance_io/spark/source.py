"""`LanceDataSource`: what Spark makes for every `format("lance_io")`, in short-lived processes of its own.

    planner process    LanceDataSource(options), then schema(): pins the version; Spark pickles the object afterwards
    another one        reader(schema), then partitions()
    worker processes   reader.read(partition)

Nothing here may be slow to import or hold a connection: each method loads what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from lance_io.redaction import hide_secrets

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType


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
        from lance_io.spark.engine import open_version
        from lance_io.spark.options import parse_schema_options
        from lance_io.spark.read.read_plan import read_schema
        from lance_io.spark.worker_tuning import freeze_loaded

        options = parse_schema_options(self._given)
        version = open_version(options)
        self._version = version.to_bytes()
        schema = read_schema(version, options)
        freeze_loaded(options)
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch query; `schema` is what Spark expects, the user's own included."""
        from lance_io.spark.options import parse_options
        from lance_io.spark.read.reader import LanceReader

        return LanceReader(parse_options(self._given, "read"), schema, self._version)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """The writer of a batch query."""
        from lance_io.spark.options import parse_options
        from lance_io.spark.write.writer import LanceWriter

        return LanceWriter(parse_options(self._given, "write"), schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a streaming query."""
        from lance_io.spark.options import parse_options
        from lance_io.spark.stream.stream_source import stream_reader

        return stream_reader(parse_options(self._given, "stream_read"), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """The writer of a streaming query; `overwrite` in complete mode."""
        from lance_io.spark.options import parse_options
        from lance_io.spark.stream.stream_sink import LanceStreamWriter

        return LanceStreamWriter(parse_options(self._given, "stream_write"), schema, overwrite)

    @property
    def _given(self) -> dict[str, str]:
        return dict(self.options.items())

    def __repr__(self) -> str:
        return hide_secrets(f"LanceDataSource({self._given.get('path', '')!r})")
