"""Public writers of standalone data files: `LanceFileWriter`, `AsyncFileWriter`.

Names and defaults are pylance's. Nothing is visible before `close`. An error while writing rows, or leaving a `with`
block by an exception, removes the written bytes. A batch that does not fit the schema is refused before any of its rows
is taken.
"""

from __future__ import annotations

import asyncio
import operator
import threading
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from lance_io.errors import UnsupportedError, UsageError
from lance_io.file.write.file_bytes import PAGE_BYTES, FileWriter
from lance_io.file.write.file_writing import FileWriting
from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.format.version import V0_1, version_of_name
from lance_io.format.writable import WRITABLE, with_read_marks
from lance_io.levels.lists import with_offsets
from lance_io.limits import VALUE_BYTES_MAX
from lance_io.plans.plan import drive_async, drive_sync
from lance_io.redaction import hide_secrets
from lance_io.runtime import run, wrap
from lance_io.store.offers import offers_sync_writes
from lance_io.store.provided_options import with_provider
from lance_io.store.url import load_client, resolve_uri, uri_on

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    from lance_io.format.schema import Schema
    from lance_io.format.version import FileVersion
    from lance_io.plans.plan import Plan
    from lance_io.store.url import Location


T = TypeVar("T")


class WriterArguments:
    """Arguments of the public writers, checked; and metadata and global buffers added before the first batch."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: pa.Schema | None,
        data_cache_bytes: int | None,
        version: str | None,
        storage_options: Mapping[str, str] | None,
        max_page_bytes: int | None,
        max_decoded_bytes: int | None,
    ) -> None:
        self.version = version_for_files(version)
        if max_decoded_bytes is not None and max_decoded_bytes < 1:
            raise UsageError(f"max_decoded_bytes must be at least 1, got {max_decoded_bytes}")
        if max_page_bytes is not None and max_page_bytes < 1:
            raise UsageError(f"max_page_bytes must be at least 1, got {max_page_bytes}")
        if data_cache_bytes is not None and data_cache_bytes < 0:
            raise UsageError(f"data_cache_bytes must not be negative, got {data_cache_bytes}")
        self.path = path
        self.storage_options = storage_options
        self.schema = schema
        self.metadata: dict[str, str] = {}
        self.global_buffers: list[bytes] = []  # added before the schema is known
        self.options: dict[str, Any] = {
            "page_bytes": PAGE_BYTES if max_page_bytes is None else min(PAGE_BYTES, max_page_bytes),
            "cache_bytes": data_cache_bytes,
            "value_bytes_max": VALUE_BYTES_MAX if max_decoded_bytes is None else max_decoded_bytes,
        }

    def open(self) -> Location:
        """Open the store. Raises the errors of `resolve_uri`."""
        return resolve_uri(self.path, self.storage_options)

    def stored_schema(self, schema: pa.Schema | None = None) -> Schema:
        """The file's schema; by default that of the first batch."""
        self.schema = self.schema or schema
        if self.schema is None:
            raise UsageError(
                "No schema provided on writer open and no data provided. Schema is unknown and file cannot be created"
            )
        return with_read_marks(schema_from_arrow(self.schema))


class _NewFile:
    """The file of a public writer; it begins once its schema is known."""

    def __init__(self, arguments: WriterArguments) -> None:
        self.arguments = arguments
        self.closed = False
        self.size_bytes: int | None = None
        self._writing: FileWriting | None = None

    def begin(self, location: Location, schema: pa.Schema | None) -> Plan[FileWriting]:
        """Begin the file with its declared schema, or `schema`. Raises errors for schemas that cannot be stored."""
        if self._writing is None:
            arguments = self.arguments
            stored = arguments.stored_schema(schema)
            self._writing = FileWriting(location.store, location.path, stored, arguments.version, **arguments.options)
            for data in arguments.global_buffers:
                yield from self._writing.add_global_buffer(data)
        return self._writing

    def write(self, location: Location, rows: pa.RecordBatch | pa.Table) -> Plan[None]:
        """Append rows."""
        self._check_open()
        schema, batches = _batches(rows)
        writing = yield from self.begin(location, schema)
        for batch in batches:
            yield from writing.write(batch)

    def add_schema_metadata(self, key: str, value: str) -> None:
        """Add to the schema's metadata. Checks the types now, because an error at `close` would lose the file."""
        self._check_open()
        if not (isinstance(key, str) and isinstance(value, str)):
            raise TypeError(f"metadata of a schema is text, not {key!r}: {value!r}")
        self.arguments.metadata[key] = value

    def add_global_buffer(self, data: bytes | Iterable[int]) -> Plan[int]:
        """Write a global buffer, or hold it until the schema is known."""
        self._check_open()
        content = _bytes_of(data)
        if self._writing is not None:
            return (yield from self._writing.add_global_buffer(content))
        self.arguments.global_buffers.append(content)
        return len(self.arguments.global_buffers)

    def close(self, location: Location) -> Plan[int | None]:
        """Complete the file; returns its number of rows, None if it is closed already."""
        if self.closed:
            return None
        self.closed = True
        writing = yield from self.begin(location, None)
        assert isinstance(writing.writer, FileWriter), "standalone files of version 0.1 are not supported"
        for key, value in self.arguments.metadata.items():
            writing.writer.add_schema_metadata(key, value)
        written = yield from writing.close()
        self.size_bytes = written.size_bytes
        return written.num_rows

    def abort(self) -> Plan[None]:
        """Remove the file."""
        self.closed = True
        if self._writing is not None:
            yield from self._writing.abort()

    def _check_open(self) -> None:
        if self.closed:
            raise UsageError("this file writer is closed; open another one")


def _batches(given: pa.RecordBatch | pa.Table) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """Schema and batches of a table, a batch, or an object with Arrow's C array interface, as pylance accepts it.

    Raises `TypeError` for anything else.
    """
    if isinstance(given, pa.Table):
        return given.schema, list(map(with_offsets, given.to_batches()))
    if not isinstance(given, pa.RecordBatch):
        if not hasattr(given, "__arrow_c_array__"):
            raise TypeError(f"expected a record batch or a table, found {type(given).__name__}")
        given = pa.record_batch(given)
    return given.schema, [with_offsets(given)]


def _bytes_of(data: bytes | Iterable[int]) -> bytes:
    """The content of a global buffer. Raises `TypeError` for invalid content before it can abort the file."""
    if isinstance(data, (bytes, bytearray)) or (isinstance(data, memoryview) and data.itemsize == 1):
        return bytes(data)
    if isinstance(data, (str, int)):  # `bytes` would turn a number into zeros
        raise TypeError(f"a global buffer is bytes, not {type(data).__name__}")
    return bytes(map(operator.index, data))


def version_for_files(name: str | None) -> FileVersion:
    """The version of this name for standalone files; the stable one for None.

    Raises `UsageError` for an unknown name, `UnsupportedError` for a version that is not written.
    """
    version = version_for_tables(name)
    if version == V0_1:
        raise UnsupportedError("files of version 0.1 belong to a table and cannot be written by themselves")
    return version


def version_for_tables(name: str | None) -> FileVersion:
    """The version of this name for files of a table, which includes 0.1. Raises as `version_for_files`."""
    try:
        version = version_of_name("stable" if name is None else str(name).lower())
    except UnsupportedError as error:
        raise UsageError(f"Unknown Lance storage version: {name}") from error
    if version not in WRITABLE:
        raise UnsupportedError(f"files of version {version.name} are not written")
    return version


def stable_version() -> str:
    """Name of the file version that is written by default.

    Returns:
        The name, such as "2.1".
    """
    return version_of_name("stable").name


class LanceFileWriter:
    """Writes one Lance data file: `with LanceFileWriter(path, schema) as writer: writer.write_batch(batch)`.

    The file becomes visible when you close the writer. Leaving the `with` block by an exception leaves no file. Threads
    may share the writer: their calls run one after the other.

    Args:
        path: Path or URI of the file.
        schema: Arrow schema; None for that of the first batch.
        data_cache_bytes: Bytes of leaf data, over all columns, that may wait for their page after a batch. By default,
            pages close at 8 MiB per column.
        version: Name of the file version, None for the stable one.
        storage_options: Options of the store, as for `lance_io.dataset`.
        max_page_bytes: Bytes of leaf data at which a page closes, at most 8 MiB.
        keep_original_array: Ignored; accepted for compatibility with pylance.
        filesystem: Filesystem of fsspec or pyarrow, or store of obstore, on which `path` is a path.
        storage_options_provider: Refreshes storage options before they expire, as for `lance_io.dataset`.
        max_decoded_bytes: Limit of the bytes of one value, 2 GiB by default. Readers refuse larger values unless you
            raise their limit, too.

    Raises:
        UsageError: If an argument is out of range, or the version name is unknown.
        UnsupportedError: If files of this version cannot be written, or cannot hold the schema.
        SchemaError: If files of this version cannot hold the schema.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: pa.Schema | None = None,
        *,
        data_cache_bytes: int | None = None,
        version: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        max_page_bytes: int | None = None,
        keep_original_array: bool | None = None,
        filesystem: Any = None,
        storage_options_provider: Any = None,
        max_decoded_bytes: int | None = None,
    ) -> None:
        path = uri_on(filesystem, path)
        storage_options = with_provider(storage_options, storage_options_provider)
        sizes = max_page_bytes, max_decoded_bytes
        arguments = WriterArguments(path, schema, data_cache_bytes, version, storage_options, *sizes)
        self._file = _NewFile(arguments)
        self._location = arguments.open()
        self._is_sync = offers_sync_writes(self._location.store)
        self._calls_lock = threading.RLock()  # a batch must be appended to all columns before the next one
        if schema is not None:
            self._run(self._file.begin(self._location, None))

    @property
    def closed(self) -> bool:
        """Whether the writer is closed or aborted."""
        return self._file.closed

    @property
    def size_bytes(self) -> int | None:
        """Size of the file in bytes; None before it is closed."""
        return self._file.size_bytes

    def write_batch(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append rows.

        Args:
            batch: The rows: a record batch, a table, or an object with Arrow's C array interface.

        Raises:
            SchemaError: If the batch does not fit the schema. The file is unchanged then.
            ResourceLimitError: If a value is larger than `max_decoded_bytes`. The file is unchanged then.
            InvalidText: If text is not UTF-8. Large texts are checked while they are written, which aborts the file.
            UsageError: If the writer is closed.
            TypeError: If `batch` has another type.
        """
        self._run(self._file.write(self._location, batch))

    def add_schema_metadata(self, key: str, value: str) -> None:
        """Add to the metadata of the schema, before the file is closed.

        Args:
            key: Key; an existing key gets the new value.
            value: Value.

        Raises:
            TypeError: If key or value is no text.
            UsageError: If the writer is closed.
        """
        with self._calls_lock:
            self._file.add_schema_metadata(key, value)

    def add_global_buffer(self, data: bytes) -> int:
        """Write a global buffer.

        Args:
            data: Content: bytes, or an iterable of numbers below 256.

        Returns:
            Index of the buffer, from 1 on.

        Raises:
            TypeError: If `data` has another type.
            UsageError: If the writer is closed.
        """
        return self._run(self._file.add_global_buffer(data))

    def close(self) -> int | None:
        """Complete the file and make it visible.

        Returns:
            Number of rows, None if the writer is closed already.

        Raises:
            UsageError: If there is neither a schema nor a batch.
        """
        return self._run(self._file.close(self._location))

    def abort(self) -> None:
        """Remove the file. No effect after `close`."""
        self._run(self._file.abort())

    def _run(self, plan: Plan[T]) -> T:
        with self._calls_lock:
            return drive_sync(plan) if self._is_sync else run(drive_async(plan))

    def __enter__(self) -> LanceFileWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __repr__(self) -> str:
        return hide_secrets(f"LanceFileWriter({self._location.uri!r}, version={self._file.arguments.version.name!r})")


class AsyncFileWriter:
    """The async twin of `LanceFileWriter`: `async with AsyncFileWriter(path, schema) as writer`.

    See `LanceFileWriter` for parameters and errors. Entering the block begins the file, without a block the first
    method does; both raise the errors of an unsuitable schema or location.

    You may await methods from any event loop, also concurrently: they run one after another, in call order. Cancelling
    a method, or leaving the block by an exception, removes the written bytes and returns once they are removed. If you
    cancel `close` while the file becomes visible, the complete file may remain. Calls that wait behind a cancelled or
    failed call raise `UsageError`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: pa.Schema | None = None,
        *,
        data_cache_bytes: int | None = None,
        version: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        max_page_bytes: int | None = None,
        keep_original_array: bool | None = None,
        filesystem: Any = None,
        storage_options_provider: Any = None,
        max_decoded_bytes: int | None = None,
    ) -> None:
        path = uri_on(filesystem, path)
        storage_options = with_provider(storage_options, storage_options_provider)
        sizes = max_page_bytes, max_decoded_bytes
        self._file = _NewFile(WriterArguments(path, schema, data_cache_bytes, version, storage_options, *sizes))
        self._location: Location | None = None
        self._calls_lock = asyncio.Lock()  # serialises calls on the engine's loop

    @property
    def closed(self) -> bool:
        """See `LanceFileWriter.closed`."""
        return self._file.closed

    @property
    def size_bytes(self) -> int | None:
        """See `LanceFileWriter.size_bytes`."""
        return self._file.size_bytes

    async def write_batch(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append rows. See `LanceFileWriter.write_batch`."""
        await self._run(lambda location: self._file.write(location, batch))

    def add_schema_metadata(self, key: str, value: str) -> None:
        """Add to the metadata of the schema. See `LanceFileWriter.add_schema_metadata`."""
        self._file.add_schema_metadata(key, value)

    async def add_global_buffer(self, data: bytes) -> int:
        """Write a global buffer. See `LanceFileWriter.add_global_buffer`."""
        return await self._run(lambda _: self._file.add_global_buffer(data))

    async def close(self) -> int | None:
        """Complete the file and make it visible. See `LanceFileWriter.close`."""
        return await self._run(self._file.close)

    async def abort(self) -> None:
        """Remove the file. See `LanceFileWriter.abort`."""
        await wrap(self._abort())

    async def _abort(self) -> None:
        async with self._calls_lock:
            await drive_async(self._file.abort())

    async def _run(self, plan: Callable[[Location], Plan[T]]) -> T:
        try:
            return await wrap(self._in_turn(plan), given_up=self._mark_closed)
        except asyncio.CancelledError:
            self._mark_closed()  # also on the engine's own loop
            await self.abort()  # the cancelled call may not have started
            raise

    async def _in_turn(self, plan: Callable[[Location], Plan[T]]) -> T:
        """Run a call on the engine once the calls before it have ended."""
        async with self._calls_lock:
            if self._location is None:
                await load_client(self._file.arguments.path, self._file.arguments.storage_options)
                self._location = self._file.arguments.open()
            return await drive_async(plan(self._location))

    def _mark_closed(self) -> None:
        """Mark as closed: after a cancelled call, further calls would complete a file that lacks rows."""
        self._file.closed = True

    async def __aenter__(self) -> AsyncFileWriter:
        if self._file.arguments.schema is not None:
            await self._run(lambda location: self._file.begin(location, None))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        else:
            await self.abort()
