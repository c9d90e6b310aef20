"""One data file being written, under both drivers, and the public writers over them.

    SyncFileWriting, AsyncFileWriting    a file of a table: schema with field ids in, `WrittenFile` out
    LanceFileWriter, AsyncFileWriter    a file by itself; names and defaults are pylance's

Nothing is visible before `close`. An error while rows are written, or leaving a `with` block by an exception, removes
what was written; a batch that does not fit the schema is refused before anything of it is taken.
"""

from __future__ import annotations

import asyncio
import operator
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from lance_io.errors import UnsupportedError, UsageError
from lance_io.file.write.file_bytes import PAGE_BYTES, FileWriter
from lance_io.file.write.write_drivers import INLINE_WORK_BYTES_MAX, AsyncFileWrites, SyncFileWrites
from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.format.version import V0_1, V2_0, version_of_name
from lance_io.format.writable import WRITABLE
from lance_io.runtime import cpu_pool, run, to_the_end, wrap
from lance_io.store.api import SyncWrites
from lance_io.store.url import load_client, open_store

if TYPE_CHECKING:
    import os
    from collections.abc import Coroutine, Iterable, Mapping
    from types import TracebackType

    from lance_io.file.write.file_bytes import WrittenFile
    from lance_io.file.write.write_steps import WriteSteps
    from lance_io.format.schema import Schema
    from lance_io.format.version import FileVersion
    from lance_io.store.api import Durability, ObjectStore
    from lance_io.store.url import Location

T = TypeVar("T")


class _Life:
    """Whether a file can still be written to."""

    def __init__(self) -> None:
        self.over: str | None = None

    def check(self) -> None:
        if self.over is not None:
            raise UsageError(f"this file writer {self.over}; open another one")


class SyncFileWriting:
    """A data file written in the caller's thread, over a store that writes without waiting. One thread at a time.

    durability  of the file; None is the store's
    Everything else is as for `FileWriter`.
    """

    def __init__(
        self,
        store: SyncWrites,
        key: str,
        schema: Schema,
        version: FileVersion,
        *,
        page_bytes: int = PAGE_BYTES,
        cache_bytes: int | None = None,
        blob_references: bool = True,
        durability: Durability | None = None,
    ) -> None:
        self.writer = FileWriter(
            key, schema, version, page_bytes=page_bytes, cache_bytes=cache_bytes, blob_references=blob_references
        )
        self._driver = SyncFileWrites(store, key, durability=durability)
        self._life = _Life()
        self._written: WrittenFile | None = None

    def write(self, batch: pa.RecordBatch, *, held: bool = False) -> None:
        """Append rows. Raises `SchemaError`, without consequences, for a batch that does not fit the schema.

        held  as for `FileWriter.add`
        """
        self._check_open()
        self._drive(self.writer.add(self.writer.ingested(batch), batch.num_rows, held=held))

    def add_global_buffer(self, data: Any) -> int:
        """Write a global buffer; its index, from 1 on."""
        self._check_open()
        return self._drive(self.writer.add_global_buffer(data))

    def finish(self) -> WrittenFile:
        """Write the rest. The file is complete then, but not visible before `close`."""
        self._written = self._drive(self.writer.finish())
        return self._written

    def close(self) -> WrittenFile:
        """Write the rest, unless `finish` has, and make the file visible."""
        written = self._written or self.finish()
        try:
            self._driver.close()
        except BaseException:
            self.abort("failed")
            raise
        self._life.over = "is closed"
        return written

    def abort(self, why: str = "was aborted") -> None:
        """Remove what was written; harmless after `close` or a second time."""
        if self._life.over is None:
            self._life.over = why
            self._driver.abort()

    def _check_open(self) -> None:
        self._life.check()
        if self._written is not None:
            raise UsageError("this file has been finished; open another one")

    def _drive(self, steps: WriteSteps[T]) -> T:
        self._life.check()
        try:
            return self._driver.run(steps)
        except BaseException:
            self.abort("failed")
            raise


class AsyncFileWriting:
    """The same on the engine's loop, over any store. One task at a time."""

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        schema: Schema,
        version: FileVersion,
        *,
        page_bytes: int = PAGE_BYTES,
        cache_bytes: int | None = None,
        blob_references: bool = True,
        durability: Durability | None = None,
    ) -> None:
        self.writer = FileWriter(
            key, schema, version, page_bytes=page_bytes, cache_bytes=cache_bytes, blob_references=blob_references
        )
        self._driver = AsyncFileWrites(store, key, durability=durability)
        self._life = _Life()
        self._written: WrittenFile | None = None
        self._removing: asyncio.Future[None] | None = None

    async def write(self, batch: pa.RecordBatch, *, held: bool = False) -> None:
        """Append rows. Raises `SchemaError`, without consequences, for a batch that does not fit the schema.

        held  as for `FileWriter.add`
        """
        self._check_open()
        if batch.nbytes <= INLINE_WORK_BYTES_MAX:
            arrays = self.writer.ingested(batch)
        else:
            loop = asyncio.get_running_loop()
            arrays = await loop.run_in_executor(cpu_pool(), self.writer.ingested, batch)
        await self._drive(self.writer.add(arrays, batch.num_rows, held=held))

    async def add_global_buffer(self, data: Any) -> int:
        """Write a global buffer; its index, from 1 on."""
        self._check_open()
        return await self._drive(self.writer.add_global_buffer(data))

    async def finish(self) -> WrittenFile:
        """Write the rest. The file is complete then, but not visible before `close`."""
        self._written = await self._drive(self.writer.finish())
        return self._written

    async def close(self) -> WrittenFile:
        """Write the rest, unless `finish` has, and make the file visible."""
        written = self._written or await self.finish()
        try:
            await self._driver.close()
        except BaseException:
            await self.abort("failed")
            raise
        self._life.over = "is closed"
        return written

    async def abort(self, why: str = "was aborted") -> None:
        """Remove what was written, to the end even if cancelled meanwhile; harmless after `close` or a second time."""
        if self._life.over is None:
            self._life.over = why
            self._removing = asyncio.ensure_future(self._driver.abort())
        if self._removing is not None:
            await to_the_end(self._removing)

    def _check_open(self) -> None:
        self._life.check()
        if self._written is not None:
            raise UsageError("this file has been finished; open another one")

    async def _drive(self, steps: WriteSteps[T]) -> T:
        self._life.check()
        try:
            return await self._driver.run(steps)
        except BaseException:
            await self.abort("failed")
            raise


# -- files by themselves ----------------------------------------------------------------------------------------------


class _Wishes:
    """The arguments of the public writers; a schema that comes with the first batch; what is added to its metadata."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: pa.Schema | None,
        data_cache_bytes: int | None,
        version: str | None,
        storage_options: Mapping[str, str] | None,
        max_page_bytes: int | None,
    ) -> None:
        self.version = version_for_files(version)
        if max_page_bytes is not None and max_page_bytes < 1:
            raise UsageError(f"max_page_bytes must be at least 1, got {max_page_bytes}")
        if data_cache_bytes is not None and data_cache_bytes < 0:
            raise UsageError(f"data_cache_bytes must not be negative, got {data_cache_bytes}")
        self.path = path
        self._storage_options = storage_options
        self.schema = schema
        self.metadata: dict[str, str] = {}
        self.global_buffers: list[bytes] = []  # given before the schema is known
        self.arguments: dict[str, Any] = {
            "page_bytes": PAGE_BYTES if max_page_bytes is None else min(PAGE_BYTES, max_page_bytes),
            "cache_bytes": data_cache_bytes,
        }

    def open(self) -> Location:
        """The place of the file. Raises what `open_store` raises."""
        return open_store(self.path, self._storage_options)

    def add_metadata(self, key: str, value: str) -> None:
        """For the schema when the file is closed; anything but text would fail only then, and cost the file."""
        if not (isinstance(key, str) and isinstance(value, str)):
            raise TypeError(f"metadata of a schema is text, not {key!r}: {value!r}")
        self.metadata[key] = value

    def stored_schema(self, schema: pa.Schema | None = None) -> Schema:
        """The file's schema, which is that of the first batch where none was given."""
        self.schema = self.schema or schema
        if self.schema is None:
            raise UsageError(
                "No schema provided on writer open and no data provided. Schema is unknown and file cannot be created"
            )
        return schema_from_arrow(self.schema)


def _batches(given: pa.RecordBatch | pa.Table) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """The schema of rows, and their batches: also of what else gives itself as one batch to Arrow, as pylance takes it.

    Raises `TypeError` for anything else.
    """
    if isinstance(given, pa.Table):
        return given.schema, given.to_batches()
    if not isinstance(given, pa.RecordBatch):
        if not hasattr(given, "__arrow_c_array__"):
            raise TypeError(f"expected a record batch or a table, found {type(given).__name__}")
        given = pa.record_batch(given)
    return given.schema, [given]


def _bytes_of(data: bytes | Iterable[int]) -> bytes:
    """The content of a global buffer; refused here, before it costs the file, where it is none."""
    if isinstance(data, (bytes, bytearray)) or (isinstance(data, memoryview) and data.itemsize == 1):
        return bytes(data)
    if isinstance(data, (str, int)):  # `bytes` would make zeros of a number
        raise TypeError(f"a global buffer is bytes, not {type(data).__name__}")
    return bytes(map(operator.index, data))


def version_for_files(name: str | None) -> FileVersion:
    """The version of this name that files are written in; the stable one for None.

    Raises `UsageError` for a name that is none, `UnsupportedError` for a version that is not written.
    """
    try:
        version = version_of_name("stable" if name is None else str(name).lower())
    except UnsupportedError as error:
        raise UsageError(f"Unknown Lance storage version: {name}") from error
    if version == V0_1:
        raise UnsupportedError("files of version 0.1 belong to a table and cannot be written by themselves")
    if version not in WRITABLE:
        raise UnsupportedError(f"files of version {version.name} are not written{' yet' if version == V2_0 else ''}")
    return version


def stable_version() -> str:
    """Name of the file version that is written unless another is asked for."""
    return version_of_name("stable").name


class LanceFileWriter:
    """Writes one Lance data file: `with LanceFileWriter(path, schema) as writer: writer.write_batch(batch)`.

    path              path or URI
    schema            Arrow schema; None takes that of the first batch
    data_cache_bytes  leaf data that may wait for its page after a batch; by default pages close at 8 MiB per column
    version           file version by name, None for the stable one
    storage_options   options of the store, as for `lance_io.dataset`
    max_page_bytes    leaf data at which a page closes, at most 8 MiB

    `keep_original_array` is there for calls that were written for pylance, and changes nothing.

    The file appears when the writer is closed. Leaving the `with` block by an exception leaves no file.
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
    ) -> None:
        self._wishes = _Wishes(path, schema, data_cache_bytes, version, storage_options, max_page_bytes)
        self._location = self._wishes.open()
        self._now: SyncFileWriting | None = None
        self._later: AsyncFileWriting | None = None
        self.closed = False
        self.size_bytes: int | None = None
        if schema is not None:
            self._open(schema)

    def _open(self, schema: pa.Schema | None) -> None:
        """Begin with the schema given, or this one. Schemas that cannot be stored are refused here."""
        if self._is_open:
            return
        wishes = self._wishes
        stored = wishes.stored_schema(schema)
        store, key = self._location.store, self._location.path
        if isinstance(store, SyncWrites):
            self._now = SyncFileWriting(store, key, stored, wishes.version, **wishes.arguments)
        else:
            self._later = AsyncFileWriting(store, key, stored, wishes.version, **wishes.arguments)
        for data in wishes.global_buffers:
            self._write_global_buffer(data)

    @property
    def _is_open(self) -> bool:
        return self._now is not None or self._later is not None

    @property
    def _core(self) -> FileWriter:
        return self._writing.writer

    @property
    def _writing(self) -> SyncFileWriting | AsyncFileWriting:
        writing = self._now or self._later
        assert writing is not None
        return writing

    def write_batch(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append rows. Raises `SchemaError` for a batch that does not fit the schema."""
        self._check_open()
        schema, pieces = _batches(batch)
        self._open(schema)
        for piece in pieces:
            if self._now is not None:
                self._now.write(piece)
            elif self._later is not None:
                run(self._later.write(piece))

    def add_schema_metadata(self, key: str, value: str) -> None:
        """Add to the metadata of the schema, until the file is closed."""
        self._check_open()
        self._wishes.add_metadata(key, value)

    def add_global_buffer(self, data: bytes) -> int:
        """Write a global buffer, bytes or numbers below 256; its index, from 1 on."""
        self._check_open()
        data = _bytes_of(data)
        if not self._is_open:
            self._wishes.global_buffers.append(data)
            return len(self._wishes.global_buffers)
        return self._write_global_buffer(data)

    def _write_global_buffer(self, data: bytes) -> int:
        if self._now is not None:
            return self._now.add_global_buffer(data)
        assert self._later is not None
        return run(self._later.add_global_buffer(data))

    def close(self) -> int | None:
        """Complete the file; the number of its rows, None when it was closed before."""
        if self.closed:
            return None
        self.closed = True
        self._open(None)
        for key, value in self._wishes.metadata.items():
            self._core.add_schema_metadata(key, value)
        if self._now is not None:
            written = self._now.close()
        else:
            assert self._later is not None
            written = run(self._later.close())
        self.size_bytes = written.size_bytes
        return written.num_rows

    def abort(self) -> None:
        """Leave no file; harmless after `close`."""
        self.closed = True
        if self._now is not None:
            self._now.abort()
        elif self._later is not None:
            run(self._later.abort())

    def _check_open(self) -> None:
        if self.closed:
            raise UsageError("this file writer is closed; open another one")

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
        return f"LanceFileWriter({self._location.uri!r}, version={self._wishes.version.name!r})"


class AsyncFileWriter:
    """The async twin of `LanceFileWriter`: `async with AsyncFileWriter(path, schema) as writer`.

    The file is begun on entering the block, or by the first method where there is none; what cannot be stored, or
    where, is refused then. Methods may be awaited from any event loop, one at a time. Cancelling one of them, or
    leaving the block by an exception, removes what was written, and comes back when that has ended; a file that was
    just getting its name when `close` was cancelled may be there, whole.
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
    ) -> None:
        self._wishes = _Wishes(path, schema, data_cache_bytes, version, storage_options, max_page_bytes)
        self._writing: AsyncFileWriting | None = None
        self.closed = False
        self.size_bytes: int | None = None

    async def _opened(self, schema: pa.Schema | None) -> AsyncFileWriting:
        if self._writing is None:
            wishes = self._wishes
            stored = wishes.stored_schema(schema)
            await load_client(wishes.path)
            place = wishes.open()
            self._writing = AsyncFileWriting(place.store, place.path, stored, wishes.version, **wishes.arguments)
            for data in wishes.global_buffers:
                await self._run(self._writing.add_global_buffer(data))
        return self._writing

    async def write_batch(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append rows. Raises `SchemaError` for a batch that does not fit the schema."""
        self._check_open()
        schema, pieces = _batches(batch)
        writing = await self._opened(schema)
        for piece in pieces:
            await self._run(writing.write(piece))

    def add_schema_metadata(self, key: str, value: str) -> None:
        """Add to the metadata of the schema, until the file is closed."""
        self._check_open()
        self._wishes.add_metadata(key, value)

    async def add_global_buffer(self, data: bytes) -> int:
        """Write a global buffer, bytes or numbers below 256; its index, from 1 on."""
        self._check_open()
        data = _bytes_of(data)
        if self._writing is None:
            self._wishes.global_buffers.append(data)
            return len(self._wishes.global_buffers)
        return await self._run(self._writing.add_global_buffer(data))

    async def close(self) -> int | None:
        """Complete the file; the number of its rows, None when it was closed before."""
        if self.closed:
            return None
        self.closed = True
        writing = await self._opened(None)
        for key, value in self._wishes.metadata.items():
            writing.writer.add_schema_metadata(key, value)
        written = await self._run(writing.close())
        self.size_bytes = written.size_bytes
        return written.num_rows

    async def abort(self) -> None:
        """Leave no file; harmless after `close`."""
        self.closed = True
        if self._writing is not None:
            await wrap(self._writing.abort())

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await wrap(work, until_ended=True)
        except asyncio.CancelledError:
            await self.abort()  # what was cancelled may not have begun
            raise

    def _check_open(self) -> None:
        if self.closed:
            raise UsageError("this file writer is closed; open another one")

    async def __aenter__(self) -> AsyncFileWriter:
        if self._wishes.schema is not None:
            await self._opened(None)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        else:
            await self.abort()
