"""User data of any supported form as record batches of one schema.

tables, batches, readers, datasets, scanners    of Arrow, pylance, lance_io, or anything with `__arrow_c_stream__`
data frames                                     of pandas and polars, lazy ones too, which are collected in batches
arrays of numpy                                 of two dimensions or more, as a column of fixed-size lists
paths of local files                            text or `pathlib.Path`; the ending says CSV, Parquet or Arrow
datasets of Hugging Face, streamed ones too
dict of lists, list of dicts, list of pydantic models
iterables of record batches                     with a schema, to which they are cast
asynchronous iterables of record batches        in the asynchronous methods only
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np
import pyarrow as pa

from lance_io.caller_text import no_unicode
from lance_io.changes.write.source_files import open_file
from lance_io.errors import SchemaError, UsageError
from lance_io.lazy_names import lazy_module
from lance_io.levels.lists import with_offsets
from lance_io.levels.plain_types import plain_batch, plain_schema
from lance_io.levels.retype import as_type
from lance_io.records import dataclass
from lance_io.runtime import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.changes.write import pydantic_schema
else:
    pydantic_schema = lazy_module("lance_io.changes.write.pydantic_schema")

HUGGING_FACE_ROWS: Final = 8192  # rows per batch


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Record batches, all of `schema`; they can be iterated only once.

    num_rows  total number of rows, if known
    is_held   whether the caller holds all batches in memory and does not change them
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    num_rows: int | None = None
    is_held: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class AsyncRows:
    """Record batches from an asynchronous source, all of `schema`."""

    schema: pa.Schema
    batches: AsyncIterator[pa.RecordBatch]
    num_rows: int | None = None


def rows_of(data: Any, schema: pa.Schema | None = None) -> Rows:
    """The rows of `data` in any of the forms above.

    schema  schema of the rows, for data without one. Pandas frames, arrays of numpy, files, dicts, lists, iterables of
            batches and datasets of Hugging Face without features are converted to it. As in pylance, all other data
            keep their own schema
    Raises `ValueError` for iterables without a schema, `TypeError` for data that is no table.
    """
    if isinstance(data, pa.Table):
        return Rows(data.schema, map(with_offsets, data.to_batches()), data.num_rows, is_held=True)
    if isinstance(data, pa.RecordBatch):
        return Rows(data.schema, iter([with_offsets(data)]), data.num_rows, is_held=True)
    if isinstance(data, pa.RecordBatchReader):
        return Rows(data.schema, map(with_offsets, data))
    if _is_from(data, "pandas", "DataFrame"):
        return rows_of(pa.Table.from_pandas(data, schema=schema))
    if _is_from(data, "polars", "DataFrame"):
        return rows_of(data.to_arrow())
    if _is_from(data, "polars", "LazyFrame"):
        return _collected(data)
    if isinstance(data, np.ndarray):
        return rows_of(_as_lists(data, schema))
    if isinstance(data, (str, PathLike)):
        file_schema, batches, num_rows = open_file(data, schema)
        if schema is None:
            return Rows(file_schema, batches, num_rows)
        return Rows(schema, _cast(batches, schema), num_rows)
    if any(_is_from(data, "datasets", name) for name in ("Dataset", "IterableDataset")):
        return _hugging_face(data, schema)
    if any(_is_from(data, "datasets", name) for name in ("DatasetDict", "IterableDatasetDict")):
        raise UsageError("DatasetDict is not yet supported. Write its datasets one by one")
    if isinstance(data, dict):
        columns = {name: _column(values, schema, name) for name, values in data.items()}
        return rows_of(_batch_of(lambda: pa.RecordBatch.from_pydict(columns, schema=schema)))
    if isinstance(data, list) and data and isinstance(data[0], dict):
        return rows_of(_batch_of(lambda: pa.RecordBatch.from_pylist(data, schema=schema)))
    if isinstance(data, list) and data and _is_model(data[0]):
        return rows_of(pydantic_schema.rows_of_models(data, schema))
    return _stream(data, schema)


async def async_rows_of(data: Any, schema: pa.Schema | None = None) -> AsyncRows | Rows:
    """`rows_of`, also for asynchronous iterables of record batches, which need a schema. Converts in a thread."""
    if isinstance(data, (pa.Table, pa.RecordBatch)):
        return rows_of(data, schema)
    if not isinstance(data, AsyncIterable):
        return await in_thread(rows_of, data, schema)
    if schema is None:
        raise UsageError("an asynchronous iterable of record batches needs schema=")
    return AsyncRows(schema, _cast_async(data, schema))


@overload
def in_plain_types(rows: Rows) -> Rows: ...
@overload
def in_plain_types(rows: Rows | AsyncRows) -> Rows | AsyncRows: ...
def in_plain_types(rows: Rows | AsyncRows) -> Rows | AsyncRows:
    """The rows, with views of strings and binaries as plain strings and binaries; see `plain_types.py`."""
    schema = plain_schema(rows.schema)
    if schema is rows.schema:
        return rows
    if isinstance(rows, Rows):
        return Rows(schema, (plain_batch(batch, schema) for batch in rows.batches), rows.num_rows)
    return AsyncRows(schema, _plain_async(rows.batches, schema), rows.num_rows)


async def _plain_async(batches: AsyncIterator[pa.RecordBatch], schema: pa.Schema) -> AsyncIterator[pa.RecordBatch]:
    async for batch in batches:
        yield await in_thread(plain_batch, batch, schema)


def _collected(frame: Any) -> Rows:
    """A lazy frame of polars, computed in batches while it is read."""
    import polars

    schema = polars.DataFrame(schema=frame.collect_schema()).to_arrow().schema
    frames = frame.collect_batches(maintain_order=True)
    return Rows(schema, _cast((batch for part in frames for batch in part.to_arrow().to_batches()), schema))


def _as_lists(values: Any, schema: pa.Schema | None) -> pa.Table:
    """An array as one column of fixed-size lists, named "vector" or as in the schema."""
    if values.ndim < 2 or not _has_vectors(values) or (schema is not None and len(schema) != 1):
        wanted = "" if schema is None else f" and a schema of one column, found {len(schema)}"
        raise UsageError(
            "expected an array of numbers in two dimensions or more, rows first, which becomes a column of fixed-size "
            f"lists{wanted}; found an array of {values.dtype} in the shape {values.shape}. For several columns, give a "
            "dict or a table"
        )
    table = pa.table({schema.names[0] if schema is not None else "vector": _vectors(values)})
    return table if schema is None else table.cast(schema)


def _has_vectors(values: Any) -> bool:
    """Whether an array can become fixed-size lists: it has numbers, and only its first dimension may be 0."""
    return values.dtype.kind in "biuf" and 0 not in values.shape[1:]


def _column(values: Any, schema: pa.Schema | None, name: str) -> Any:
    """The values of a dict's column; an array of several dimensions becomes fixed-size lists."""
    if not isinstance(values, np.ndarray) or values.ndim < 2:
        return values
    if not _has_vectors(values):
        raise UsageError(
            f"column {name!r}: expected an array of numbers, rows first, found an array of {values.dtype} in the "
            f"shape {values.shape}"
        )
    column = _vectors(values)
    return column if schema is None or name not in schema.names else column.cast(schema.field(name).type)


def _batch_of(make: Callable[[], pa.RecordBatch]) -> pa.RecordBatch:
    try:
        return make()
    except UnicodeEncodeError as error:
        raise UsageError(no_unicode("a text of the rows", error)) from None


def _vectors(values: Any) -> pa.Array:
    """An array of several dimensions as fixed-size lists."""
    mask = np.ma.getmaskarray(values).reshape(-1) if isinstance(values, np.ma.MaskedArray) else None
    flat = np.ascontiguousarray(np.ma.getdata(values), values.dtype.newbyteorder("=")).reshape(-1)
    column = pa.array(flat, mask=mask)
    for size in reversed(values.shape[1:]):
        column = pa.FixedSizeListArray.from_arrays(column, size)
    return column


def _hugging_face(data: Any, schema: pa.Schema | None) -> Rows:
    """The rows of a dataset after its selections, filters and shuffles, in its order."""
    schema = schema if data.features is None else data.features.arrow_schema
    tables = data.with_format("arrow").iter(HUGGING_FACE_ROWS)
    return _stream((batch for table in tables for batch in table.to_batches()), schema)


def _stream(data: Any, schema: pa.Schema | None) -> Rows:
    scanner = getattr(data, "scanner", None)  # datasets of pyarrow, pylance and lance_io
    if callable(scanner):
        return rows_of(scanner())
    to_reader = getattr(data, "to_reader", None)  # scanners of these datasets
    if callable(to_reader):
        return rows_of(to_reader())
    if hasattr(data, "__arrow_c_stream__"):
        try:
            return rows_of(pa.RecordBatchReader.from_stream(data))
        except pa.ArrowInvalid as error:
            raise TypeError(f"expected columns with names, found {type(data)}, a column alone: {error}") from error
    if not isinstance(data, Iterable):
        raise TypeError(
            f"Unknown data type {type(data)}. Give a table, a data frame, a reader, a dataset, or record batches"
        )
    if schema is None:
        raise UsageError(
            f"Must provide schema to write dataset from RecordBatch iterable, found {type(data)} without one. Give "
            "a table, a data frame, a reader, a dataset, a dict of lists, a list of dicts, or record batches with "
            "schema="
        )
    return Rows(schema, _cast(iter(data), schema))


def _cast(batches: Iterator[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield _cast_batch(batch, schema)


async def _cast_async(batches: AsyncIterable[Any], schema: pa.Schema) -> AsyncIterator[pa.RecordBatch]:
    async for batch in batches:
        yield _cast_batch(batch, schema)


def _cast_batch(batch: Any, schema: pa.Schema) -> pa.RecordBatch:
    if not isinstance(batch, pa.RecordBatch):
        raise SchemaError(f"expected record batches, found {type(batch).__name__}")
    batch = with_offsets(batch)
    if batch.schema == schema:
        return batch
    if unexpected := set(batch.schema.names) - set(schema.names):
        raise SchemaError(f"a record batch has columns that the given schema lacks: {', '.join(sorted(unexpected))}")
    try:
        arrays = [as_type(batch.column(field.name), field.type) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError, ValueError) as error:
        raise SchemaError(f"a record batch does not fit the given schema: {error}") from error


def _is_from(data: object, package: str, name: str) -> bool:
    """Whether `data` is an instance of a class of an optional package. Imports nothing."""
    loaded = sys.modules.get(package)
    optional_class = getattr(loaded, name, None)
    return optional_class is not None and isinstance(data, optional_class)


def _is_model(data: object) -> bool:
    return _is_from(data, "pydantic", "BaseModel")
