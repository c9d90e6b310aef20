"""Readers of standalone data files: `LanceFileReader` and `AsyncFileReader` (names and defaults are pylance's).

Both use `FileAccess`, which opens the file once and reads it through `TableReader` as a fragment of one file. Each
runs its computations in its own way: on stores without latency the synchronous reader works in the caller's thread,
otherwise on the engine.
"""

from __future__ import annotations

import operator
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from lance_io.errors import BindError, UsageError
from lance_io.file.file_report import FileMetadata, FileStatistics, file_metadata, file_statistics
from lance_io.file.file_requests import ReadFile
from lance_io.file.open.file_source import FileRef, FragmentSource, ReadContext
from lance_io.file.open.open_file import load_columns, open_standalone
from lance_io.file.row_indices import batch_rows, checked_count, row_numbers
from lance_io.file.table_reader import TableReader
from lance_io.file.take.blob_bytes import field_with_bytes, has_bytes, with_bytes
from lance_io.io.cache import SearchCache
from lance_io.levels.portable import Portable
from lance_io.levels.retype import batch_as, needs_retyping
from lance_io.limits import METADATA_CACHE_BYTES, VALUE_BYTES_MAX
from lance_io.plans.plan import drive_async, drive_sync
from lance_io.plans.streams import SharedItems, shared_async
from lance_io.redaction import hide_secrets
from lance_io.runtime import iterate, run, stream, wrap
from lance_io.spans import Ranges
from lance_io.store.offers import SyncReads
from lance_io.store.provided_options import with_provider
from lance_io.store.url import load_client, resolve_uri, uri_on

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
    from types import TracebackType

    from lance_io.file.file_steps import FileSteps
    from lance_io.file.open.data_file import OpenedFile
    from lance_io.file.scan.batches import ScanBatch
    from lance_io.spans import Fetched, IntArray

T = TypeVar("T")
BATCH_ROWS = 1024  # pylance's default for files


class FileAccess:
    """An opened file and the reader of its projected columns.

    columns  top-level or dotted names, None for all

    Raises BindError for a name that the file does not have.
    """

    def __init__(self, context: ReadContext, ref: FileRef, file: OpenedFile, columns: Sequence[str] | None) -> None:
        self.context = context
        self.file = file
        schema = file.descriptor.schema
        self.schema = schema if columns is None else schema.project(_names(columns))
        leaves = tuple(path.leaf.id for path in file.paths)
        whole = FileRef(ref.key, file.size_bytes, _leaf_ids(leaves), tuple(range(len(leaves))))
        self.source = FragmentSource(file.num_rows, (whole,))
        self.has_blobs = any(has_bytes(field) for field in self.schema.fields)
        fields = tuple(field_with_bytes(field) for field in self.schema.fields)
        self.arrow_schema = replace(self.schema, fields=fields).to_arrow(json_as_text=False)
        self.retype = needs_retyping(self.arrow_schema)
        self.portable = Portable(self.arrow_schema)
        self.reader = TableReader(context, self.schema.fields)

    @classmethod
    def open(cls, context: ReadContext, ref: FileRef, columns: Sequence[str] | None) -> FileSteps[FileAccess]:
        """Open the file."""
        return cls(context, ref, (yield from open_standalone(context, ref)), columns)

    @property
    def key(self) -> str:
        """Object key of the file."""
        return self.file.key

    def batch(self, arrays: list[pa.Array]) -> pa.RecordBatch:
        """A record batch of the projected schema."""
        return self.portable(batch_as(arrays, self.arrow_schema, retype=self.retype))

    def with_blobs(self, arrays: list[pa.Array]) -> FileSteps[list[pa.Array]]:
        """The columns with blobs as bytes; see `with_bytes`."""
        return with_bytes(self.file, self.schema.fields, arrays)

    def span(self, start: int, num_rows: int) -> list[tuple[FragmentSource, int, int]]:
        """The spans to scan. Raises UsageError beyond the end of the file, and the errors of `checked_count`."""
        start, num_rows = checked_count(start), checked_count(num_rows)
        if start + num_rows > self.file.num_rows:
            raise UsageError(
                f"Invalid read params: rows {start} to {start + num_rows} of a file of {self.file.num_rows} rows",
                path=self.key,
            )
        return [(self.source, start, start + num_rows)]

    def rows(self, indices: Sequence[int] | IntArray) -> tuple[IntArray, IntArray | None]:
        """Distinct row numbers, and the indexes that repeat them as requested. Checks order and range."""
        rows = row_numbers(indices)
        backwards = np.flatnonzero(rows[1:] < rows[:-1])
        if len(backwards):
            i = int(backwards[0])
            raise UsageError(f"indices must be in ascending order for the file API, got {rows[i]} > {rows[i + 1]}")
        if len(rows) and rows[-1] >= self.file.num_rows:
            raise UsageError(f"Invalid read params: row {int(rows[-1])} of a file of {self.file.num_rows} rows")
        unique, inverse = np.unique(rows, return_inverse=True)
        return unique, None if len(unique) == len(rows) else inverse

    def to_batch(self, arrays: list[pa.Array], repeat: IntArray | None) -> pa.RecordBatch:
        """The record batch of a take."""
        if repeat is not None:
            order = pa.array(repeat)
            arrays = [array.take(order) for array in arrays]
        return self.batch(arrays)

    def metadata(self) -> FileSteps[FileMetadata]:
        """Metadata of the file."""
        yield from self._every_column()
        return file_metadata(self.file)

    def statistics(self) -> FileSteps[FileStatistics]:
        """Pages and bytes per column."""
        yield from self._every_column()
        return file_statistics(self.file)

    def _every_column(self) -> FileSteps[None]:
        """Load the metadata of all columns."""
        missing = self.file.missing(list(range(len(self.file.paths))))
        if missing:
            yield from load_columns(self.file, missing)

    def global_buffer(self, index: int) -> FileSteps[bytes]:
        """A global buffer. Raises UsageError for an unknown index, TypeError for other than an integer."""
        index = operator.index(index)
        table = self.file.global_buffers
        if not 0 <= index < len(table.positions):
            raise UsageError(f"global buffer {index}; the file has {len(table.positions)}", path=self.key)
        start, size = int(table.positions[index]), int(table.sizes[index])
        fetched: Fetched = yield Ranges.of((start, start + size), purpose="metadata")
        return bytes(fetched.piece(0, size))


def _names(columns: Sequence[str]) -> list[str]:
    if isinstance(columns, str):
        raise TypeError(f"columns must be a list of names, got {columns!r}")
    if not columns:
        raise UsageError("Attempt to read zero columns from the file, at least one column must be specified")
    return list(columns)


def _leaf_ids(ids: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(ids)) != len(ids):
        raise BindError("the file's schema has several leaf fields with one id")
    return ids


def _context(
    path: str | os.PathLike[str], options: Mapping[str, str] | None, max_decoded_bytes: int | None
) -> tuple[ReadContext, FileRef]:
    if max_decoded_bytes is not None and max_decoded_bytes < 1:
        raise UsageError(f"max_decoded_bytes must be at least 1, found {max_decoded_bytes}")
    location = resolve_uri(path, options)
    store = location.store
    limit = VALUE_BYTES_MAX if max_decoded_bytes is None else max_decoded_bytes
    context = ReadContext(store, SearchCache(METADATA_CACHE_BYTES), value_bytes_max=limit)
    return context, FileRef(location.path, 0, (), ())


@dataclass(slots=True, eq=False)
class ReaderResults:
    """Rows of a file, as a stream or as a table.

    Attributes:
        reader: The stream; reading it reads the file.
    """

    reader: pa.RecordBatchReader

    def to_batches(self) -> pa.RecordBatchReader:
        """Stream the rows.

        Returns:
            A reader of record batches, which reads the file as you consume it.
        """
        return self.reader

    def to_table(self) -> pa.Table:
        """Read all rows.

        Returns:
            The remaining rows of the stream.
        """
        return self.reader.read_all()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.reader.__arrow_c_stream__(requested_schema)


class LanceFileReader:
    """Reads one Lance data file.

    Blobs that lie in the file (the first kind, `lance-encoding:blob`) are read as bytes, others as descriptions.

    Args:
        path: Path or URI of the file.
        storage_options: Options of the store, as for `lance_io.dataset`.
        columns: Names of the columns to read, top-level or dotted; None for all.
        filesystem: Filesystem of fsspec or pyarrow, or store of obstore, on which `path` is a path.
        storage_options_provider: Refreshes storage options before they expire, as for `lance_io.dataset`.
        max_decoded_bytes: Limit of the decoded bytes of one value, 2 GiB by default, as for `lance_io.dataset`.

    Raises:
        NotFound: If there is no such file.
        FormatError: If the file is no Lance file, or is damaged.
        UnsupportedError: If this release does not read the file's version.
        BindError: If the file lacks one of `columns`.
        UsageError: If `columns` is empty, or `max_decoded_bytes` is less than 1.
        TypeError: If `columns` is a text.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        columns: list[str] | None = None,
        *,
        filesystem: Any = None,
        storage_options_provider: Any = None,
        max_decoded_bytes: int | None = None,
    ) -> None:
        uri = uri_on(filesystem, Path(path) if isinstance(path, os.PathLike) else path)
        context, ref = _context(uri, with_provider(storage_options, storage_options_provider), max_decoded_bytes)
        self._is_sync = isinstance(context.store, SyncReads)
        self._context = context
        self._key = ref.key
        self._access = self._drive(FileAccess.open(context, ref, columns))

    def _drive(self, steps: FileSteps[T]) -> T:
        reading = ReadFile(self._context, self._key, steps)
        return reading.answer_sync() if self._is_sync else run(reading.answer_async())

    def num_rows(self) -> int:
        """Number of rows in the file.

        Returns:
            The number of rows.
        """
        return self._access.file.num_rows

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the projected columns."""
        return self._access.arrow_schema

    def read_all(self, *, batch_size: int = BATCH_ROWS, batch_readahead: int = 16) -> ReaderResults:
        """Read all rows.

        Args:
            batch_size: Rows per batch.
            batch_readahead: Ignored; accepted for compatibility with pylance.

        Returns:
            The rows.

        Raises:
            UsageError: If `batch_size` is 0.
        """
        return self.read_range(0, self.num_rows(), batch_size=batch_size, batch_readahead=batch_readahead)

    def read_range(
        self, start: int, num_rows: int, *, batch_size: int = BATCH_ROWS, batch_readahead: int = 16
    ) -> ReaderResults:
        """Read a range of rows.

        Args:
            start: First row.
            num_rows: Number of rows.
            batch_size: Rows per batch.
            batch_readahead: Ignored; accepted for compatibility with pylance.

        Returns:
            Rows `start` to `start + num_rows`.

        Raises:
            UsageError: If the range exceeds the file, or `batch_size` is 0.
            TypeError: If a number is no integer.
            OverflowError: If a number is negative.
        """
        access = self._access
        spans, batch_size = access.span(start, num_rows), batch_rows(batch_size)
        if self._is_sync:
            batches: Iterator[ScanBatch] = access.reader.scan_sync(spans, batch_size)
        else:
            batches = iterate(lambda: access.reader.scan(spans, batch_size))
        return self._results(access.batch(self._with_blob_bytes(batch.arrays)) for batch in batches)

    def _with_blob_bytes(self, arrays: list[pa.Array]) -> list[pa.Array]:
        """The columns with blobs as bytes."""
        access = self._access
        return self._drive(access.with_blobs(arrays)) if access.has_blobs else arrays

    def take_rows(
        self, indices: Sequence[int], *, batch_size: int = BATCH_ROWS, batch_readahead: int = 16
    ) -> ReaderResults:
        """Read rows by number.

        Args:
            indices: Row numbers, ascending; repeated numbers repeat the row.
            batch_size: Rows per batch.
            batch_readahead: Ignored; accepted for compatibility with pylance.

        Returns:
            The rows, in the order of `indices`.

        Raises:
            UsageError: If the numbers are not ascending, one exceeds the file, or `batch_size` is 0.
            TypeError: If `indices` are no sequence of integers.
            OverflowError: If a number is negative or exceeds 64 bits.
        """
        access, batch_size = self._access, batch_rows(batch_size)
        rows, repeat = access.rows(indices)
        picks = [(access.source, rows)]
        taking = access.reader.take(picks)
        arrays = drive_sync(taking) if self._is_sync else run(drive_async(taking))
        batch = access.to_batch(self._with_blob_bytes(arrays), repeat)
        return self._results(access.portable(batch.slice(at, batch_size)) for at in range(0, len(batch), batch_size))

    def _results(self, batches: Iterator[pa.RecordBatch]) -> ReaderResults:
        return ReaderResults(pa.RecordBatchReader.from_batches(self._access.arrow_schema, SharedItems(batches)))

    def metadata(self) -> FileMetadata:
        """Describe the file: schema, columns, pages, buffers, encodings.

        Returns:
            The description.
        """
        return self._drive(self._access.metadata())

    def file_statistics(self) -> FileStatistics:
        """Count pages and bytes per column.

        Returns:
            The statistics, in column order.
        """
        return self._drive(self._access.statistics())

    def read_global_buffer(self, index: int) -> bytes:
        """Read a global buffer.

        Args:
            index: Index of the buffer; 0 is the file's own descriptor.

        Returns:
            The content.

        Raises:
            UsageError: If there is no such buffer.
            TypeError: If `index` is no integer.
        """
        return self._drive(self._access.global_buffer(index))

    def __repr__(self) -> str:
        return hide_secrets(f"LanceFileReader({self._access.key!r}, {self.num_rows()} rows)")


class AsyncFileReader:
    """The async twin of `LanceFileReader`: `async with AsyncFileReader(path) as reader`.

    See `LanceFileReader` for parameters and errors; opening the file raises them. You may await methods from any event
    loop.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        columns: list[str] | None = None,
        *,
        filesystem: Any = None,
        storage_options_provider: Any = None,
        max_decoded_bytes: int | None = None,
    ) -> None:
        self._max_decoded_bytes = max_decoded_bytes
        self._target = uri_on(filesystem, path), with_provider(storage_options, storage_options_provider)
        self._columns = columns
        self._access: FileAccess | None = None

    async def __aenter__(self) -> AsyncFileReader:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._access = None

    async def open(self) -> AsyncFileReader:
        """Read the file's metadata. `async with` calls this.

        Returns:
            This reader.

        Raises:
            NotFound: If there is no such file.
            FormatError: If the file is no Lance file, or is damaged.
            UnsupportedError: If this release does not read the file's version.
            BindError: If the file lacks one of the columns.
        """
        await load_client(*self._target)
        self._context, self._ref = _context(*self._target, self._max_decoded_bytes)
        self._access = await self._drive(FileAccess.open(self._context, self._ref, self._columns))
        return self

    @property
    def _opened(self) -> FileAccess:
        if self._access is None:
            raise UsageError("the file is not open: use `async with AsyncFileReader(...)`, or await `open()` first")
        return self._access

    async def _drive(self, steps: FileSteps[T]) -> T:
        return await wrap(ReadFile(self._context, self._ref.key, steps).answer_async())

    def num_rows(self) -> int:
        """Number of rows in the file. See `LanceFileReader.num_rows`."""
        return self._opened.file.num_rows

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the projected columns."""
        return self._opened.arrow_schema

    def read_all(self, *, batch_size: int = BATCH_ROWS) -> AsyncIterator[pa.RecordBatch]:
        """Stream all rows: `async for batch in reader.read_all()`. See `LanceFileReader.read_all`."""
        return self.stream_range(0, self.num_rows(), batch_size=batch_size)

    @shared_async
    async def stream_range(
        self, start: int, num_rows: int, *, batch_size: int = BATCH_ROWS
    ) -> AsyncIterator[pa.RecordBatch]:
        """Stream batches of rows `start` to `start + num_rows`. See `LanceFileReader.read_range`."""
        access = self._opened
        spans, batch_size = access.span(start, num_rows), batch_rows(batch_size)
        batches = stream(lambda: access.reader.scan(spans, batch_size))
        try:
            async for batch in batches:
                yield access.batch(await self._with_blob_bytes(batch.arrays))
        finally:
            await batches.aclose()

    async def read_range(self, start: int, num_rows: int) -> pa.Table:
        """Read rows `start` to `start + num_rows` as a table. See `LanceFileReader.read_range`."""
        access = self._opened
        columns = await wrap(drive_async(access.reader.read(access.span(start, num_rows))))
        pieces = pa.table(columns, names=access.arrow_schema.names).to_batches()
        batches = [access.batch(await self._with_blob_bytes(piece.columns)) for piece in pieces]
        return pa.Table.from_batches(batches, access.arrow_schema)

    async def take_rows(self, indices: Sequence[int]) -> pa.Table:
        """Read rows by number as a table. See `LanceFileReader.take_rows`."""
        access = self._opened
        rows, repeat = access.rows(indices)
        arrays = await wrap(drive_async(access.reader.take([(access.source, rows)])))
        batch = access.to_batch(await self._with_blob_bytes(arrays), repeat)
        return pa.Table.from_batches([batch], access.arrow_schema)

    async def _with_blob_bytes(self, arrays: list[pa.Array]) -> list[pa.Array]:
        access = self._opened
        return await self._drive(access.with_blobs(arrays)) if access.has_blobs else arrays

    async def metadata(self) -> FileMetadata:
        """Describe the file. See `LanceFileReader.metadata`."""
        return await self._drive(self._opened.metadata())

    async def read_global_buffer(self, index: int) -> bytes:
        """Read a global buffer. See `LanceFileReader.read_global_buffer`."""
        return await self._drive(self._opened.global_buffer(index))
