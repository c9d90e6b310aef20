"""One data file being written, and the public writers over it.

    FileWriting                         a file of a table: schema with field ids in, `WrittenFile` out
    LanceFileWriter, AsyncFileWriter    a file by itself; names and defaults are pylance's

Nothing is visible before `close`. An error while rows are written, or leaving a `with` block by an exception, removes
what was written; a batch that does not fit the schema is refused before anything of it is taken.
"""

from __future__ import annotations

import asyncio
import operator
import threading
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from lance_io.errors import ResourceLimitError, UnsupportedError, UsageError
from lance_io.file.write.blob_pages import managed_blob_name
from lance_io.file.write.file_bytes import PAGE_BYTES, FileWriter
from lance_io.file.write.uploads import FileUploads
from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.format.version import V0_1, version_of_name
from lance_io.format.writable import WRITABLE, with_read_marks
from lance_io.lazy_names import later
from lance_io.levels.arrays import memory_bytes
from lance_io.levels.row_bytes import check_row_bytes
from lance_io.limits import VALUE_BYTES_MAX
from lance_io.plans.cpu_requests import INLINE_WORK_BYTES_MAX, Begin, Compute, Result
from lance_io.plans.plan import RollBackOnError, Shielded, Wait, ask, drive_async, drive_sync
from lance_io.redaction import hide_secrets
from lance_io.runtime import run, wrap
from lance_io.store.offers import offers_sync_writes
from lance_io.store.provided_options import with_provider
from lance_io.store.url import load_client, open_store, uri_on

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    from lance_io.file.write import batched_writer
    from lance_io.file.write.batched_writer import BatchOptions
    from lance_io.file.write.blob_pages import PayloadReader
    from lance_io.file.write.file_bytes import WrittenFile
    from lance_io.file.write.page_sizes import PageSizes
    from lance_io.format.schema import Field, Schema
    from lance_io.format.version import FileVersion
    from lance_io.plans.plan import Plan
    from lance_io.store.api import Durability, ObjectStore
    from lance_io.store.url import Location
else:
    batched_writer = later("lance_io.file.write.batched_writer")  # with all that writes 0.1, which few tables need

T = TypeVar("T")


def _has_blobs(field: Field) -> bool:
    return field.holds_blobs or any(map(_has_blobs, field.children))


_ADVICE: Final = "give a larger one to write it, which readers need, too"


class FileWriting:
    """A data file being written, as plans; one of them at a time.

    durability  of the file; None is the store's
    batches     of a file of version 0.1: what its rows become
    blob_table  the folder of the table, if that manages its blobs
    new_blob_name  makes the names of their files then
    payloads    reads blobs that batches name in other files
    checks_rows, first_row, page_sizes  as for `FileWriter`
    value_bytes_max  that a value may have, but for blobs and rows that are in a table already
    Everything else is as for `FileWriter`.
    """

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
        batches: BatchOptions | None = None,
        blob_table: Location | None = None,
        new_blob_name: Callable[[], str] = managed_blob_name,
        payloads: PayloadReader | None = None,
        checks_rows: bool = False,
        first_row: int | None = 0,
        page_sizes: PageSizes | None = None,
        value_bytes_max: int = VALUE_BYTES_MAX,
    ) -> None:
        self._first_row = first_row
        self._value_bytes_max = value_bytes_max
        self._uploads = uploads = FileUploads(store, key, durability=durability, table=blob_table)
        self.writer: FileWriter | batched_writer.BatchedFileWriter
        if version == V0_1:
            assert batches is not None, "files of version 0.1 belong to a table"
            self.writer = batched_writer.BatchedFileWriter(
                key, schema, uploads, batches, checks_rows=checks_rows, first_row=first_row
            )
        else:
            self.writer = FileWriter(
                key,
                schema,
                version,
                uploads,
                page_bytes=page_bytes,
                cache_bytes=cache_bytes,
                blob_references=blob_references,
                new_blob_name=None if blob_table is None else new_blob_name,
                payloads=payloads,
                checks_rows=checks_rows,
                first_row=first_row,
                page_sizes=page_sizes,
            )
        self._over: str | None = None  # why nothing can be written any more
        self._written: WrittenFile | None = None
        self._removed: Future[None] | None = None

    def write(self, batch: pa.RecordBatch, *, held: bool = False) -> Plan[None]:
        """Append rows. Raises `SchemaError`, without consequences, for a batch that does not fit the schema, and so
        `ResourceLimitError` for a value that readers refuse unless they are asked not to.

        Much text is looked at while it is written: where it is not UTF-8 the file is gone.

        held  as for `FileWriter.add`
        """
        self._check_open()
        num_bytes = batch.get_total_buffer_size()
        if num_bytes <= INLINE_WORK_BYTES_MAX or batch.nbytes <= INLINE_WORK_BYTES_MAX:  # a slice shows little
            yield from self._write_few(batch, held)
            return
        arrays = yield Compute(partial(self.writer.ingest, batch), lambda: batch.nbytes)
        self._check_sizes(arrays)
        check = self.writer.text_check(arrays)
        checked = None if check is None else (yield Begin(check, num_bytes))
        yield from self._or_abort(self.writer.add(arrays, batch.num_rows, held=held))
        if checked is not None:
            yield from self._or_abort(ask(Result(checked)))

    def _write_few(self, batch: pa.RecordBatch, held: bool) -> Plan[None]:
        """The same of few bytes, which no other thread need look at."""
        arrays = self.writer.ingest(batch)
        self._check_sizes(arrays)
        check = self.writer.text_check(arrays)
        if check is not None:
            check()
        yield from self._or_abort(self.writer.add(arrays, batch.num_rows, held=held))

    def reaches(self, num_bytes: int) -> Plan[bool]:
        """Whether the file has so many bytes, as `FileWriter.reaches` counts them."""
        return (yield from self._or_abort(self.writer.reaches(num_bytes)))

    def _check_sizes(self, arrays: list[pa.Array]) -> None:
        if self._first_row is None:
            return
        for field, array in zip(self.writer.schema.fields, arrays, strict=True):
            if memory_bytes(array) > self._value_bytes_max and not _has_blobs(field):
                try:
                    check_row_bytes(array, self._value_bytes_max, self._first_row + self.writer.num_rows, _ADVICE)
                except ResourceLimitError as error:
                    raise error.within(f'column "{field.name}"') from None

    def copy(self, pages: Callable[[FileWriter], Plan[None]]) -> Plan[None]:
        """Append rows by what writes their pages as they are, in a file of version 2.x."""
        self._check_open()
        assert isinstance(self.writer, FileWriter), "files of version 0.1 have no pages"
        yield from self._or_abort(pages(self.writer))

    def add_global_buffer(self, data: Any) -> Plan[int]:
        """Write a global buffer; its index, from 1 on."""
        self._check_open()
        assert isinstance(self.writer, FileWriter), "files of version 0.1 have none, and are not written by themselves"
        return (yield from self._or_abort(self.writer.add_global_buffer(data)))

    def finish(self) -> Plan[WrittenFile]:
        """Write the rest. The file is complete then, but not visible before `close`."""
        self._written = yield from self._or_abort(self.writer.finish())
        return self._written

    def close(self) -> Plan[WrittenFile]:
        """Write the rest, unless `finish` has, and make the file visible."""
        written = self._written or (yield from self.finish())
        yield from self._or_abort(self._uploads.close())
        self._over = "is closed"
        return written

    def abort(self, why: str = "was aborted") -> Plan[None]:
        """Remove what was written, to the end even if cancelled meanwhile; harmless after `close` or a second time."""
        if self._over is None:
            self._over = why
            self._removed = Future()
            yield Shielded(self._remove(self._removed))
        elif self._removed is not None:
            yield Shielded(ask(Wait(self._removed)))

    def _remove(self, removed: Future[None]) -> Plan[None]:
        try:
            yield from self._uploads.abort()
        finally:
            removed.set_result(None)

    def _check_open(self) -> None:
        self._check()
        if self._written is not None:
            raise UsageError("this file has been finished; open another one")

    def _check(self) -> None:
        if self._over is not None:
            raise UsageError(f"this file writer {self._over}; open another one")

    def _or_abort(self, plan: Plan[T]) -> Plan[T]:
        self._check()
        result: T = yield RollBackOnError(plan, lambda _: self.abort("failed"))
        return result


# -- files by themselves ----------------------------------------------------------------------------------------------


class WriterArguments:
    """The arguments of the public writers; a schema that comes with the first batch; what is added to its metadata."""

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
        self.global_buffers: list[bytes] = []  # given before the schema is known
        self.options: dict[str, Any] = {
            "page_bytes": PAGE_BYTES if max_page_bytes is None else min(PAGE_BYTES, max_page_bytes),
            "cache_bytes": data_cache_bytes,
            "value_bytes_max": VALUE_BYTES_MAX if max_decoded_bytes is None else max_decoded_bytes,
        }

    def open(self) -> Location:
        """The place of the file. Raises what `open_store` raises."""
        return open_store(self.path, self.storage_options)

    def stored_schema(self, schema: pa.Schema | None = None) -> Schema:
        """The file's schema, which is that of the first batch where none was given."""
        self.schema = self.schema or schema
        if self.schema is None:
            raise UsageError(
                "No schema provided on writer open and no data provided. Schema is unknown and file cannot be created"
            )
        return with_read_marks(schema_from_arrow(self.schema))


class _NewFile:
    """What both public writers write: a file that is begun when its schema is known."""

    def __init__(self, arguments: WriterArguments) -> None:
        self.arguments = arguments
        self.closed = False
        self.size_bytes: int | None = None
        self._writing: FileWriting | None = None

    def begin(self, place: Location, schema: pa.Schema | None) -> Plan[FileWriting]:
        """Begin with the schema given, or this one. Schemas that cannot be stored are refused here."""
        if self._writing is None:
            arguments = self.arguments
            stored = arguments.stored_schema(schema)
            self._writing = FileWriting(place.store, place.path, stored, arguments.version, **arguments.options)
            for data in arguments.global_buffers:
                yield from self._writing.add_global_buffer(data)
        return self._writing

    def write(self, place: Location, rows: pa.RecordBatch | pa.Table) -> Plan[None]:
        """Append rows."""
        self._check_open()
        schema, batches = _batches(rows)
        writing = yield from self.begin(place, schema)
        for batch in batches:
            yield from writing.write(batch)

    def add_schema_metadata(self, key: str, value: str) -> None:
        """For the schema when the file is closed; anything but text would fail only then, and cost the file."""
        self._check_open()
        if not (isinstance(key, str) and isinstance(value, str)):
            raise TypeError(f"metadata of a schema is text, not {key!r}: {value!r}")
        self.arguments.metadata[key] = value

    def add_global_buffer(self, data: bytes | Iterable[int]) -> Plan[int]:
        """Write a global buffer, or keep it until the schema is known."""
        self._check_open()
        content = _bytes_of(data)
        if self._writing is not None:
            return (yield from self._writing.add_global_buffer(content))
        self.arguments.global_buffers.append(content)
        return len(self.arguments.global_buffers)

    def close(self, place: Location) -> Plan[int | None]:
        """Complete the file; the number of its rows, None when it was closed before."""
        if self.closed:
            return None
        self.closed = True
        writing = yield from self.begin(place, None)
        assert isinstance(writing.writer, FileWriter), "files of version 0.1 are not written by themselves"
        for key, value in self.arguments.metadata.items():
            writing.writer.add_schema_metadata(key, value)
        written = yield from writing.close()
        self.size_bytes = written.size_bytes
        return written.num_rows

    def abort(self) -> Plan[None]:
        """Leave no file."""
        self.closed = True
        if self._writing is not None:
            yield from self._writing.abort()

    def _check_open(self) -> None:
        if self.closed:
            raise UsageError("this file writer is closed; open another one")


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
    version = version_for_tables(name)
    if version == V0_1:
        raise UnsupportedError("files of version 0.1 belong to a table and cannot be written by themselves")
    return version


def version_for_tables(name: str | None) -> FileVersion:
    """The same for the files of a table, which may be of version 0.1."""
    try:
        version = version_of_name("stable" if name is None else str(name).lower())
    except UnsupportedError as error:
        raise UsageError(f"Unknown Lance storage version: {name}") from error
    if version not in WRITABLE:
        raise UnsupportedError(f"files of version {version.name} are not written")
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
    filesystem        of fsspec or pyarrow, or a store of obstore's, on which `path` is one
    storage_options_provider  gives storage options ahead of their end, as for `lance_io.dataset`
    max_decoded_bytes  that one value may have, 2 GiB by default: readers refuse larger ones unless they are given more

    `keep_original_array` is there for calls that were written for pylance, and changes nothing.

    The file appears when the writer is closed. Leaving the `with` block by an exception leaves no file. Threads may
    share the writer: their calls are done one after the other.
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
        self._turn = threading.RLock()  # a batch goes to many columns, and the next one behind it in all of them
        if schema is not None:
            self._run(self._file.begin(self._location, None))

    @property
    def closed(self) -> bool:
        """Whether nothing can be written any more."""
        return self._file.closed

    @property
    def size_bytes(self) -> int | None:
        """Of the whole file; None before it is closed."""
        return self._file.size_bytes

    def write_batch(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append rows. Raises `SchemaError` for a batch that does not fit the schema."""
        self._run(self._file.write(self._location, batch))

    def add_schema_metadata(self, key: str, value: str) -> None:
        """Add to the metadata of the schema, until the file is closed."""
        with self._turn:
            self._file.add_schema_metadata(key, value)

    def add_global_buffer(self, data: bytes) -> int:
        """Write a global buffer, bytes or numbers below 256; its index, from 1 on."""
        return self._run(self._file.add_global_buffer(data))

    def close(self) -> int | None:
        """Complete the file; the number of its rows, None when it was closed before."""
        return self._run(self._file.close(self._location))

    def abort(self) -> None:
        """Leave no file; harmless after `close`."""
        self._run(self._file.abort())

    def _run(self, plan: Plan[T]) -> T:
        with self._turn:
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

    The file is begun on entering the block, or by the first method where there is none; what cannot be stored, or
    where, is refused then. Methods may be awaited from any event loop, also gathered: they are done one after another,
    in the order of their calls. Cancelling one of them, or leaving the block by an exception, removes what was written,
    and comes back when that has ended; a file that was just getting its name when `close` was cancelled may be there,
    whole. Calls that were waiting behind one that is cancelled or fails are refused by a `UsageError`.
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
        self._turn = asyncio.Lock()  # of calls, on the engine's loop

    @property
    def closed(self) -> bool:
        """Whether nothing can be written any more."""
        return self._file.closed

    @property
    def size_bytes(self) -> int | None:
        """Of the whole file; None before it is closed."""
        return self._file.size_bytes

    async def write_batch(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append rows. Raises `SchemaError` for a batch that does not fit the schema."""
        await self._run(lambda place: self._file.write(place, batch))

    def add_schema_metadata(self, key: str, value: str) -> None:
        """Add to the metadata of the schema, until the file is closed."""
        self._file.add_schema_metadata(key, value)

    async def add_global_buffer(self, data: bytes) -> int:
        """Write a global buffer, bytes or numbers below 256; its index, from 1 on."""
        return await self._run(lambda _: self._file.add_global_buffer(data))

    async def close(self) -> int | None:
        """Complete the file; the number of its rows, None when it was closed before."""
        return await self._run(self._file.close)

    async def abort(self) -> None:
        """Leave no file; harmless after `close`."""
        await wrap(self._abort())

    async def _abort(self) -> None:
        async with self._turn:
            await drive_async(self._file.abort())

    async def _run(self, make: Callable[[Location], Plan[T]]) -> T:
        try:
            return await wrap(self._in_turn(make), given_up=self._give_up)
        except asyncio.CancelledError:
            self._give_up()  # also on the engine's own loop
            await self.abort()  # what was cancelled may not have begun
            raise

    async def _in_turn(self, make: Callable[[Location], Plan[T]]) -> T:
        """On the engine, when the calls before it have ended."""
        async with self._turn:
            if self._location is None:
                await load_client(self._file.arguments.path, self._file.arguments.storage_options)
                self._location = self._file.arguments.open()
            return await drive_async(make(self._location))

    def _give_up(self) -> None:
        """A call is cancelled: those behind it would complete a file that lacks something."""
        self._file.closed = True

    async def __aenter__(self) -> AsyncFileWriter:
        if self._file.arguments.schema is not None:
            await self._run(lambda place: self._file.begin(place, None))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        else:
            await self.abort()
