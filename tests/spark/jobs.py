"""Write jobs without Spark: what Spark's processes would call, called here, with batches as Spark hands them over."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
from pyspark.sql import types as spark

from lance_io.spark.options import parse_options
from lance_io.spark.stream.stream_sink import LanceStreamWriter
from lance_io.spark.types import carried_schema
from lance_io.spark.write.writer import LanceWriter

if TYPE_CHECKING:
    from collections.abc import Iterable

ID = spark.StructType([spark.StructField("id", spark.LongType(), nullable=False)])


def ids(path: str) -> list[int]:
    """The rows, by pylance."""
    return sorted(lance.dataset(path).to_table(columns=["id"])["id"].to_pylist())


def files(path: str) -> set[str]:
    """Data files that are there."""
    return {file.name for file in Path(path, "data").glob("*")}


def referenced(path: str) -> set[str]:
    """Data files of the newest version."""
    return {file.path for fragment in lance.dataset(path).get_fragments() for file in fragment.data_files()}


def struct(**types: spark.DataType) -> spark.StructType:
    """A Spark schema of nullable columns."""
    return spark.StructType([spark.StructField(name, dtype) for name, dtype in types.items()])


def batch(given: spark.StructType, rows: Iterable[Any]) -> pa.RecordBatch:
    """A batch as Spark hands it over; rows are tuples, or the values of the only column."""
    schema = carried_schema(given)
    tuples = [row if isinstance(row, tuple) else (row,) for row in rows]
    columns = zip(*tuples, strict=True) if tuples else [()] * len(schema)
    arrays = [pa.array(list(values), field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class Job:
    """A batch query that writes: `tasks` are the rows of its partitions."""

    def __init__(
        self, path: Path | str, given: spark.StructType = ID, *, overwrite: bool = False, **options: Any
    ) -> None:
        texts = {"path": str(path), **{name: str(value) for name, value in options.items()}}
        self.given = given
        writer = LanceWriter(parse_options(texts, "write"), given, overwrite)
        self.writer = pickle.loads(pickle.dumps(writer))

    def write(self, *tasks: Iterable[Any]) -> list[Any]:
        """The messages of all tasks, as they reach the process that commits."""
        return [
            pickle.loads(pickle.dumps(self.writer.write(iter([batch(self.given, rows)] if rows else []))))
            for rows in tasks
        ]

    def run(self, *tasks: Iterable[Any]) -> None:
        """Write and commit, or abort, as Spark does."""
        messages = self.write(*tasks)
        try:
            self.writer.commit(messages)
        except Exception:
            self.writer.abort(messages)
            raise


class Stream:
    """A streaming query: every batch has its own writers."""

    def __init__(
        self, path: Path | str, given: spark.StructType = ID, *, overwrite: bool = False, **options: Any
    ) -> None:
        texts = {"path": str(path), "stream_id": "s", **{name: str(value) for name, value in options.items()}}
        self.options = parse_options(texts, "stream_write")
        self.given = given
        self.overwrite = overwrite

    def writer(self) -> LanceStreamWriter:
        """As Spark makes one for the tasks, and another one for the commit."""
        return LanceStreamWriter(self.options, self.given, self.overwrite)

    def write(self, *tasks: Iterable[Any]) -> list[Any]:
        """The messages of all tasks of a batch."""
        writer = self.writer()
        return [writer.write(iter([batch(self.given, rows)] if rows else [])) for rows in tasks]

    def run(self, batch_id: int, *tasks: Iterable[Any]) -> None:
        """One batch."""
        messages = self.write(*tasks)
        writer = self.writer()
        try:
            writer.commit(messages, batch_id)
        except Exception:
            self.writer().abort(messages, batch_id)
            raise
