"""`FileWriting`: the plans that write a data file, from rows to a visible object.

Nothing is visible before `close`. An error while writing rows removes the written bytes. A batch that does not fit the
schema is refused before any of its rows is taken.
"""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lance_io.errors import ResourceLimitError, UsageError
from lance_io.file.write.blob_pages import managed_blob_name
from lance_io.file.write.file_bytes import PAGE_BYTES, FileWriter
from lance_io.file.write.uploads import FileUploads
from lance_io.format.version import V0_1
from lance_io.lazy_names import lazy_module
from lance_io.levels.arrays import memory_bytes
from lance_io.levels.row_bytes import check_row_bytes
from lance_io.limits import MIB, VALUE_BYTES_MAX
from lance_io.plans.cpu_requests import INLINE_WORK_BYTES_MAX, Begin, Compute, Result
from lance_io.plans.plan import RollBackOnError, Shielded, Wait, ask

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

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
    batched_writer = lazy_module("lance_io.file.write.batched_writer")  # imports the writers of 0.1, rarely needed

T = TypeVar("T")


def _has_blobs(field: Field) -> bool:
    return field.holds_blobs or any(map(_has_blobs, field.children))


def _estimate_bytes(batch: pa.RecordBatch) -> int:
    """Approximate bytes of the rows of a batch, at the cost of one column: `nbytes` takes 4 us per column.

    A slice may refer to larger buffers. Its columns are equally long slices, so the first one shows the share.
    """
    total: int = batch.get_total_buffer_size()
    if total <= INLINE_WORK_BYTES_MAX or not batch.num_columns:
        return total
    first = batch.column(0)
    first_bytes: int = first.get_total_buffer_size()
    return total * memory_bytes(first) // first_bytes if first_bytes else total


CHECKED_AT_ONCE_BYTES_MAX: Final = 4 * MIB  # checking fewer bytes of text takes about as long as starting another job
_SIZE_ADVICE: Final = "give a larger one to write it; readers of this value need a larger one, too"


class FileWriting:
    """Writes a data file, as plans. Run one plan at a time.

    durability       durability of the file; None for the store's default
    batches          options of the batches of a file of version 0.1
    blob_table       folder of the table, if the table manages its blobs
    new_blob_name    returns a name for a managed blob file
    payloads         reads blobs that batches refer to in other files
    value_bytes_max  limit of a value's bytes; blobs have none, nor have rows that are in a table already (`first_row`
                     is None)
    The other parameters are as for `FileWriter`.
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
        overlaps: bool = False,
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
                overlaps=overlaps,
            )
        self._end_reason: str | None = None  # why nothing can be written any more
        self._written: WrittenFile | None = None
        self._removed: Future[None] | None = None

    def write(self, batch: pa.RecordBatch, *, held: bool = False) -> Plan[None]:
        """Append rows. Raises `SchemaError` for a batch that does not fit the schema, and `ResourceLimitError` for a
        value that readers refuse by default; the file is unchanged then.

        Large texts are checked while they are written: text that is not UTF-8 aborts the file.

        held  whether the batch stays unchanged and in memory until the file is written; see `FileWriter.add`
        """
        self._check_open()
        num_bytes = _estimate_bytes(batch)
        if num_bytes <= INLINE_WORK_BYTES_MAX:
            yield from self._write_few(batch, held)
            return
        is_large = num_bytes > CHECKED_AT_ONCE_BYTES_MAX
        arrays = yield Compute(partial(self._ingest, batch, checks_texts=not is_large), lambda: num_bytes)
        self._check_sizes(arrays)
        check = self.writer.text_check(arrays) if is_large else None
        running_check = None if check is None else (yield Begin(check, num_bytes))
        yield from self._or_abort(self.writer.add(arrays, batch.num_rows, held=held))
        if running_check is not None:
            yield from self._or_abort(ask(Result(running_check)))

    def _write_few(self, batch: pa.RecordBatch, held: bool) -> Plan[None]:
        """Write a small batch without the CPU pool."""
        arrays = self._ingest(batch, checks_texts=True)
        self._check_sizes(arrays)
        yield from self._or_abort(self.writer.add(arrays, batch.num_rows, held=held))

    def _ingest(self, batch: pa.RecordBatch, *, checks_texts: bool) -> list[pa.Array]:
        arrays = self.writer.ingest(batch)
        check = self.writer.text_check(arrays) if checks_texts else None
        if check is not None:
            check()
        return arrays

    def reaches(self, num_bytes: int) -> Plan[bool]:
        """Whether the file has reached `num_bytes`; see `FileWriter.reaches`."""
        return (yield from self._or_abort(self.writer.reaches(num_bytes)))

    def _check_sizes(self, arrays: list[pa.Array]) -> None:
        if self._first_row is None:  # rows that are in a table already
            return
        for field, array in zip(self.writer.schema.fields, arrays, strict=True):
            if array.get_total_buffer_size() <= self._value_bytes_max:  # the usual case, without more calls
                continue
            if memory_bytes(array) > self._value_bytes_max and not _has_blobs(field):
                try:
                    check_row_bytes(array, self._value_bytes_max, self._first_row + self.writer.num_rows, _SIZE_ADVICE)
                except ResourceLimitError as error:
                    raise error.within(f'column "{field.name}"') from None

    def copy(self, pages: Callable[[FileWriter], Plan[None]]) -> Plan[None]:
        """Append encoded pages to a file of version 2.x; `pages(writer)` writes them."""
        self._check_open()
        assert isinstance(self.writer, FileWriter), "files of version 0.1 have no pages"
        yield from self._or_abort(pages(self.writer))

    def add_global_buffer(self, data: Any) -> Plan[int]:
        """Write a global buffer; returns its index, from 1 on."""
        self._check_open()
        assert isinstance(self.writer, FileWriter), "files of version 0.1 have no global buffers"
        return (yield from self._or_abort(self.writer.add_global_buffer(data)))

    def finish(self) -> Plan[WrittenFile]:
        """Write the remaining rows and the metadata. The file is then complete, but not visible before `close`."""
        self._written = yield from self._or_abort(self.writer.finish())
        return self._written

    def close(self) -> Plan[WrittenFile]:
        """Finish the file unless `finish` was called, and make it visible."""
        written = self._written or (yield from self.finish())
        yield from self._or_abort(self._uploads.close())
        self._end_reason = "is closed"
        return written

    def abort(self, why: str = "was aborted") -> Plan[None]:
        """Remove the written bytes, even if cancelled meanwhile. Idempotent; no effect after `close`."""
        if self._end_reason is None:
            self._end_reason = why
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
        self._check_not_ended()
        if self._written is not None:
            raise UsageError("this file has been finished; open another one")

    def _check_not_ended(self) -> None:
        if self._end_reason is not None:
            raise UsageError(f"this file writer {self._end_reason}; open another one")

    def _or_abort(self, plan: Plan[T]) -> Plan[T]:
        self._check_not_ended()
        result: T = yield RollBackOnError(plan, lambda _: self.abort("failed"))
        return result
