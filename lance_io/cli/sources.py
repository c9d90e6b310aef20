"""Sources of `write` and `merge`: Parquet, CSV and Arrow files, and Lance tables on local disk.

Rows are streamed; no file is in memory as a whole. The first bytes of a file determine its format; for CSV, the end of
its name does:

    PAR1               Parquet
    ARROW1             Arrow IPC file (also: Feather, version 2)
    FF FF FF FF        Arrow IPC stream
    .csv, .tsv, .txt   CSV; also followed by .gz, .bz2, .zst or .lz4
    a folder           a Lance table in its newest version, if the folder contains versions
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from lance_io.cli.uri_target import open_table
from lance_io.dataset.cli_imports import VERSIONS, execute, scan_options
from lance_io.errors import NotFound, SchemaError, UsageError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

BATCH_ROWS: Final = 64 * 1024  # rows of a Parquet file that are decoded at a time
CSV_BLOCK_BYTES: Final = 4 << 20  # text that is parsed at a time; the types are inferred from the first block
_CSV_NAMES: Final = (".csv", ".tsv", ".txt")
_COMPRESSED: Final = (".gz", ".bz2", ".zst", ".lz4")
_PARQUET_FIELD_ID: Final = b"PARQUET:field_id"


class SourceFormat(StrEnum):
    """Format of a source file."""

    PARQUET = "parquet"
    CSV = "csv"
    ARROW = "arrow"
    ARROW_STREAM = "arrow-stream"
    LANCE = "lance"


@dataclass(frozen=True)
class CsvOptions:
    """Options for reading CSV.

    delimiter  between values; None: a tab in `.tsv` files, else a comma
    types      of columns by name; other types are inferred from the first block
    """

    delimiter: str | None = None
    types: Mapping[str, pa.DataType] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """One source file.

    num_rows  if known without reading the file
    """

    path: str
    format: SourceFormat
    schema: pa.Schema
    num_rows: int | None
    csv: CsvOptions = CsvOptions()

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Its rows with the columns of `schema`.

        Raises `SchemaError` for a missing column and for values that do not fit.
        """
        with _open_source(self.path, self.format, self.csv) as (_, _, batches):
            try:
                for batch in batches:
                    if batch.num_rows:
                        yield _as(batch, schema)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise _unreadable(self.path, self.format, error) from error


def open_named_sources(
    paths: Sequence[str],
    format: str | None,
    csv_type: Sequence[str] | None,
    csv_delimiter: str | None,
    table_types: Mapping[str, pa.DataType],
) -> list[Source]:
    """`open_sources` with the options of a command.

    csv_type     `NAME=TYPE` texts
    table_types  types of other CSV columns, from the table that rows are written to
    """
    wanted = _types(csv_type or ())
    options = CsvOptions(_delimiter(csv_delimiter), {**table_types, **wanted})
    opened = open_sources(paths, None if format is None else SourceFormat(format), options)
    if unknown := [name for name in wanted if name not in opened[0].schema.names]:
        raise UsageError(f"--csv-type {unknown[0]}: no such column; there are {', '.join(opened[0].schema.names)}")
    return opened


def _types(given: Sequence[str]) -> dict[str, pa.DataType]:
    """`NAME=TYPE` texts as Arrow types. Raises `UsageError`."""
    types = {}
    for text in given:
        name, equals, alias = text.rpartition("=")
        if not equals or not name:
            raise UsageError(f"--csv-type: expected NAME=TYPE, found {text!r}")
        try:
            types[name] = pa.type_for_alias(alias)
        except ValueError:
            raise UsageError(f"--csv-type {name}: {alias!r} is no Arrow type such as int64 or timestamp[us]") from None
    return types


def _delimiter(given: str | None) -> str | None:
    if given is None:
        return None
    character = {"\\t": "\t", "tab": "\t"}.get(given, given)
    if len(character) != 1 or not character.isascii() or character in '\r\n"':
        raise UsageError(f"--csv-delimiter: expected one character (ASCII, no quote, no line end), found {given!r}")
    return character


def open_sources(paths: Sequence[str], format: SourceFormat | None, csv: CsvOptions) -> list[Source]:
    """Read the beginning (Parquet, Arrow files: the end) of each file, in order.

    format  of all files, None to detect it for each
    Raises `NotFound`, `UsageError` for a file of unknown format, `SchemaError` for one that is damaged or lacks
    columns of the first.
    """
    sources = [_open(path, format, csv) for path in paths]
    first = sources[0].schema
    for source in sources[1:]:
        if set(source.schema.names) != set(first.names):
            different = ", ".join(sorted(set(source.schema.names) ^ set(first.names)))
            raise SchemaError(
                f"its columns differ from those of {sources[0].path}: {different} is in only one of them",
                path=source.path,
            )
    if all(source.format is SourceFormat.CSV for source in sources):  # the types of the first file apply to all
        types = {field.name: field.type for field in first}
        sources = [replace(source, csv=replace(csv, types=types)) for source in sources]
    return sources


def read_rows(sources: Sequence[Source]) -> Iterator[pa.RecordBatch]:
    """The rows of all files, with the columns and types of the first."""
    for source in sources:
        yield from source.batches(sources[0].schema)


def csv_types(table: pa.Schema) -> dict[str, pa.DataType]:
    """The types of a table's columns that text can be converted to."""
    nested = (pa.types.is_nested, pa.types.is_dictionary, pa.types.is_null)
    return {
        column.name: column.type
        for column in table
        if not isinstance(column.type, pa.BaseExtensionType) and not any(is_kind(column.type) for is_kind in nested)
    }


def detect_format(path: str) -> SourceFormat:
    """Format of a file. Raises `NotFound`, `UsageError` for an unknown one."""
    try:
        with open(path, "rb") as file:
            start = file.read(8)
    except FileNotFoundError as error:
        raise NotFound("no such file", path=path) from error
    except IsADirectoryError as error:
        if os.path.isdir(os.path.join(path, VERSIONS)):
            return SourceFormat.LANCE
        raise UsageError("expected a file, found a folder; name its files", path=path) from error
    if start.startswith(b"PAR1"):
        return SourceFormat.PARQUET
    if start.startswith(b"ARROW1"):
        return SourceFormat.ARROW
    if start.startswith(b"\xff\xff\xff\xff"):
        return SourceFormat.ARROW_STREAM
    if _suffix(path) in _CSV_NAMES:
        return SourceFormat.CSV
    raise UsageError("neither Parquet nor Arrow; --format csv reads it as CSV", path=path)


def _suffix(path: str) -> str:
    """The last suffix of a name, in lower case, without that of a compression."""
    name = PurePath(path.lower())
    return PurePath(name.stem).suffix if name.suffix in _COMPRESSED else name.suffix


# -- opening ---------------------------------------------------------------------------------------------------------


def _open(path: str, format: SourceFormat | None, csv: CsvOptions) -> Source:
    detected = detect_format(path) if format is None else format
    try:
        with _open_source(path, detected, csv) as (schema, num_rows, _):
            return Source(path, detected, _without_parquet_ids(schema), num_rows, csv)
    except pa.ArrowInvalid as error:
        raise _unreadable(path, detected, error) from error


def _unreadable(path: str, format: SourceFormat, error: pa.ArrowException) -> SchemaError:
    hint = " (--csv-type NAME=TYPE sets the type of a column)" if format is SourceFormat.CSV else ""
    return SchemaError(f"cannot be read as {format}: {error}{hint}", path=path)


@contextmanager
def _open_source(
    path: str, format: SourceFormat, csv: CsvOptions
) -> Generator[tuple[pa.Schema, int | None, Iterator[pa.RecordBatch]], None, None]:
    """A file's schema, its number of rows if known, and its rows."""
    if not os.path.exists(path):
        raise NotFound("no such file", path=path)
    match format:
        case SourceFormat.PARQUET:
            with pq.ParquetFile(path, memory_map=True) as parquet:
                yield parquet.schema_arrow, parquet.metadata.num_rows, parquet.iter_batches(BATCH_ROWS)
        case SourceFormat.CSV:
            with _csv_reader(path, csv) as reader:
                yield reader.schema, None, iter(reader)
        case SourceFormat.ARROW:
            with pa.memory_map(path) as mapped, pa.ipc.open_file(mapped) as file:
                yield file.schema, None, (file.get_batch(number) for number in range(file.num_record_batches))
        case SourceFormat.ARROW_STREAM:
            with pa.OSFile(path) as plain, pa.ipc.open_stream(plain) as stream:
                yield stream.schema, None, iter(stream)
        case SourceFormat.LANCE:
            yield _table_rows(path)


def _table_rows(path: str) -> tuple[pa.Schema, int, Iterator[pa.RecordBatch]]:
    state = open_table(path)
    if blobs := [field.name for field in state.schema.walk() if field.holds_blobs]:
        raise UsageError(f"column {blobs[0]} holds blobs, which only `clone` copies", path=path)
    options = scan_options()
    return state.arrow_schema, execute.count(state, options), execute.stream(state, options, state.arrow_schema)


def _csv_reader(path: str, options: CsvOptions) -> pa_csv.CSVStreamingReader:
    delimiter = options.delimiter or ("\t" if _suffix(path) == ".tsv" else ",")
    return pa_csv.open_csv(
        path,
        read_options=pa_csv.ReadOptions(block_size=CSV_BLOCK_BYTES),
        parse_options=pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=pa_csv.ConvertOptions(column_types=dict(options.types)),
    )


def _without_parquet_ids(schema: pa.Schema) -> pa.Schema:
    """Fields without their Parquet ids, which would be stored in the dataset though they have no meaning there."""
    fields = []
    for column in schema:
        kept = {key: value for key, value in (column.metadata or {}).items() if key != _PARQUET_FIELD_ID}
        fields.append(column.with_metadata(kept) if column.metadata is not None else column)
    return pa.schema(fields, schema.metadata)


def _as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    return batch.select(schema.names).cast(schema)
