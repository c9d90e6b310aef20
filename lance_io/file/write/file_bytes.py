"""Rows to the bytes of one data file, without any I/O.

    record batch ──ingest──> stored arrays ──gather small ones──> leaf chunks ──queues──> closed pages
    closed page ──encode (CPU pool)──> encoded page ──layout──> buffers to write

`FileWriter` is a set of plans. It encodes at most one page per core ahead, while earlier pages are written, and, where
there is memory for it, while the next rows come.

Its memory is bounded, regardless of the size of the file: the open page of every column, the pages being encoded, and
the initialisation data for the end of the file (`file_layout.py`); plus a few hundred bytes of metadata per page.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from lance_io.file.write.blob_pages import BlobSink
from lance_io.file.write.file_layout import FileLayout
from lance_io.file.write.leaf_queues import LeafQueues
from lance_io.file.write.page_sizes import PageSizes
from lance_io.file.write.uploads import GatheredWrites
from lance_io.file.write.write_plan import file_plan
from lance_io.format.version import V2_0
from lance_io.lazy_names import lazy_module
from lance_io.levels.chunks import array_bytes
from lance_io.levels.join import join_arrays
from lance_io.levels.leaf_sums import LeafSums, check_sums
from lance_io.levels.portable import copy_array
from lance_io.levels.text_check import check_texts
from lance_io.limits import KIB, MIB
from lance_io.plans.cpu_requests import Begin, Compute, Result
from lance_io.records import dataclass
from lance_io.runtime import cpu_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from lance_io.encodings.written import EncodedPage
    from lance_io.file.write import array_queues
    from lance_io.file.write.accumulate import ClosedPage
    from lance_io.file.write.blob_pages import PayloadReader
    from lance_io.file.write.leaf_queues import EncodedGroup
    from lance_io.file.write.uploads import Sink
    from lance_io.format.schema import Schema
    from lance_io.format.version import FileVersion
    from lance_io.plans.plan import Plan
else:
    array_queues = lazy_module("lance_io.file.write.array_queues")  # imports the writers of 2.0, rarely needed

PAGE_BYTES: Final = 8 * MIB  # leaf data of a page: large enough for full read throughput, small enough to hold several
COLUMNS_AT_FULL_SIZE: Final = 32  # with more leaf columns, pages are smaller, so that their total does not grow
GATHERED_ROWS: Final = 8192  # smaller batches are joined first: the overhead of a batch equals about 8,192 rows
GATHERED_BYTES: Final = 1 * MIB
GATHERED_BATCHES: Final = 1024
WRITTEN_AT_ONCE_BYTES: Final = 64 * KIB  # smaller pages share a write
NEARLY: Final = 0.9  # share of a limit of bytes at which a file may end


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A written data file, for the table's metadata (spec: table, section 2.6).

    path                        object key of the file
    num_rows, size_bytes        rows and bytes of the file
    field_ids, column_indices   per column, parallel
    sidecars                    names of its sidecar files, without its stem; see `sidecar_key`
    """

    path: str
    num_rows: int
    size_bytes: int
    field_ids: tuple[int, ...]
    column_indices: tuple[int, ...]
    version: FileVersion
    sidecars: tuple[str, ...]


class FileWriter:
    """The plans that write one data file.

    path             object key of the file, for errors and the result
    schema           top-level fields in the order of the file's columns, with their ids in the table
    version          file version
    sink             takes the bytes
    page_bytes       leaf data at which a page closes
    cache_bytes      leaf data that may wait for its page after a batch, over all top-level columns
    blob_references  whether blobs may be external, referred to by a URI
    new_blob_name    returns a name for a managed blob file, if the table manages its blobs
    payloads         reads blobs that batches refer to in other files (`levels/blob_source.py`)
    checks_rows      whether to compare checksums of the rows with those of the pages
    first_row        number of the first row in the whole write, for errors; None for rows that are in a table already,
                     whose texts are not checked
    page_sizes       size estimates from other files with such rows
    overlaps         whether pages of rows whose memory stays are encoded while the next rows come, which takes memory
                     for a page and its rows for each core

    Raises `SchemaError` and `UnsupportedError` for schemas that files of this version cannot hold, and for invalid
    encoding options. After an error in `add` or `finish` the file cannot be completed.
    """

    def __init__(
        self,
        path: str,
        schema: Schema,
        version: FileVersion,
        sink: Sink,
        *,
        page_bytes: int = PAGE_BYTES,
        cache_bytes: int | None = None,
        blob_references: bool = True,
        new_blob_name: Callable[[], str] | None = None,
        payloads: PayloadReader | None = None,
        checks_rows: bool = False,
        first_row: int | None = 0,
        page_sizes: PageSizes | None = None,
        overlaps: bool = False,
    ) -> None:
        self.path = path
        self._overlaps = overlaps
        self.schema = schema
        self.version = version
        self.num_rows = 0
        self._first_row = first_row
        self._metadata = dict(schema.metadata)
        self._plan = plan = file_plan(schema, version)
        self._page_bytes = max(1, page_bytes * COLUMNS_AT_FULL_SIZE // max(COLUMNS_AT_FULL_SIZE, plan.num_columns))
        self._cache_bytes = self._page_bytes if cache_bytes is None else cache_bytes // max(1, len(schema))
        self._queues = self._create_queues()
        self.page_sizes = PageSizes(plan.num_columns) if page_sizes is None else page_sizes
        self._layout = FileLayout(version, plan.num_columns, plan.blob_columns)
        self._blobs = BlobSink(
            self._layout, sink, references=blob_references, new_name=new_blob_name, payloads=payloads
        )
        self._writes = GatheredWrites(sink, WRITTEN_AT_ONCE_BYTES)
        self._gathered: list[list[pa.Array]] = []
        self._gathered_rows = self._gathered_bytes = 0
        self._gathered_bytes_max = min(GATHERED_BYTES, self._cache_bytes)
        self._can_gather = not plan.has_dictionaries
        self._encoding: deque[tuple[ClosedPage, Any]] = deque()  # pages in order, and the work that encodes them
        self._encoding_bytes = 0
        self._sums_in: list[LeafSums] | None = None
        if checks_rows:
            self._sums_in = [LeafSums()] * plan.num_columns
            self._sums_out = [LeafSums()] * plan.num_columns

    def _create_queues(self) -> LeafQueues | array_queues.ArrayQueues:
        fields, plan, sizes = self.schema.fields, self._plan, (self._page_bytes, self._cache_bytes)
        if self.version == V2_0:
            return array_queues.ArrayQueues(fields, plan, *sizes)
        return LeafQueues(fields, plan, self.version, *sizes)

    @property
    def held_bytes(self) -> int:
        """Bytes of leaf data that is held or being encoded, and of initialisation data."""
        waiting = sum(self._queues.waiting_bytes) + self._gathered_bytes
        return waiting + self._encoding_bytes + self._layout.held_bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of the file so far: of encoded pages, and of the rows of those being encoded."""
        return self._layout.size_bytes + self._layout.held_bytes + self._encoding_bytes

    @property
    def _expected_bytes(self) -> int:
        """Estimate of the file's bytes including queued rows."""
        waiting = self.page_sizes.estimate(self._queues.waiting_bytes)
        return self.size_bytes + waiting + self.page_sizes.estimate_all(self._gathered_bytes)

    def reaches(self, num_bytes: int) -> Plan[bool]:
        """Whether the file with all its rows has about `num_bytes`, at least `NEARLY` of them, as stored.

        Estimates queued rows from the earlier pages of their column; for a column without pages, encodes the queued
        rows to measure them. If the estimate says yes, closes the pages to verify it.
        """
        if self._expected_bytes < num_bytes:
            return False
        yield from self._write_encoding()
        if self.size_bytes >= num_bytes:
            return True
        yield from self._add_gathered()
        unknown = [page for page in self._queues.peek() if not self.page_sizes.has_pages(page.column)]
        for page in unknown:
            encoded = yield Compute(partial(self._queues.encode, page), partial(int, page.num_bytes))
            self.page_sizes.sample(page, encoded)
        if self._expected_bytes < num_bytes:
            return False
        yield from self._write_pages(self._queues.close_pages())
        yield from self._writes.flush()
        return self.size_bytes >= num_bytes * NEARLY

    # -- rows -------------------------------------------------------------------------------------------------------

    def ingest(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Convert the columns of a batch to stored arrays, in the order of the schema. Thread-safe.

        Raises `SchemaError` for a batch that does not fit the schema: a missing column, another type, a null in a
        non-nullable field, text that is not JSON. The writer is unchanged then.
        """
        return [ingest(batch.column(index)) for index, ingest in self._plan.ingesters(batch.schema)]

    def text_check(self, arrays: list[pa.Array]) -> Callable[[], None] | None:
        """A thread-safe check of ingested arrays that raises `InvalidText` unless text is UTF-8; None without text."""
        text_columns = self._plan.text_columns
        if self._first_row is None or not text_columns:
            return None
        return partial(check_texts, self.schema.fields, arrays, text_columns, self._first_row + self.num_rows)

    def add(self, arrays: list[pa.Array], num_rows: int, *, held: bool = False) -> Plan[None]:
        """Append the rows of arrays from `ingest`.

        held  whether their memory stays unchanged and alive until the file is written anyway: queued rows are not
              copied
        """
        if not num_rows:
            return
        if self._plan.has_blobs:
            arrays = yield from self._blobs.describe(self.schema.fields, arrays)
        self.num_rows += num_rows
        num_bytes = sum([array_bytes(array) for array in arrays])
        if self._can_gather and num_rows < GATHERED_ROWS and num_bytes < self._gathered_bytes_max:
            yield from self._gather(arrays if held else [copy_array(array) for array in arrays], num_rows, num_bytes)
        else:
            yield from self._add_gathered()
            yield from self._queue(arrays, held=held)
        yield from self._writes.flush()

    def _gather(self, arrays: list[pa.Array], num_rows: int, num_bytes: int) -> Plan[None]:
        self._gathered.append(arrays)
        self._gathered_rows += num_rows
        self._gathered_bytes += num_bytes
        is_full = self._gathered_rows >= GATHERED_ROWS or self._gathered_bytes >= self._gathered_bytes_max
        if is_full or len(self._gathered) >= GATHERED_BATCHES:
            yield from self._add_gathered()

    def _add_gathered(self) -> Plan[None]:
        batches, self._gathered = self._gathered, []
        self._gathered_rows = self._gathered_bytes = 0
        if len(batches) == 1:
            yield from self._queue(batches[0], held=True)
        elif batches:
            joined = [join_arrays(list(pieces)) for pieces in zip(*batches, strict=True)]
            yield from self._queue(joined, held=True)

    def _queue(self, arrays: list[pa.Array], *, held: bool) -> Plan[None]:
        """Queue rows, and write the pages that they fill."""
        if self._sums_in is not None:
            sums = yield Compute(partial(self._queues.sum_rows, arrays), lambda: 1 << 20)
            self._sums_in = [before + more for before, more in zip(self._sums_in, sums, strict=True)]
        yield from self._begin_pages(self._queues.add(arrays, held=held))
        if not (held and self._overlaps):
            yield from self._write_encoding()

    # -- pages ------------------------------------------------------------------------------------------------------

    def _write_pages(self, closed: Iterator[ClosedPage]) -> Plan[None]:
        """Encode pages concurrently, a few ahead, and write them in order."""
        yield from self._begin_pages(closed)
        yield from self._write_encoding()

    def _begin_pages(self, closed: Iterator[ClosedPage]) -> Plan[None]:
        """The same, but for the last ones, which are still being encoded."""
        for page in closed:
            if len(self._encoding) >= self._pages_ahead:
                yield from self._write_first()
            ticket = yield Begin(partial(self._encode, page), page.num_bytes)
            self._encoding.append((page, ticket))
            self._encoding_bytes += page.num_bytes

    def _write_encoding(self) -> Plan[None]:
        """Write the pages that are being encoded."""
        while self._encoding:
            yield from self._write_first()

    def _write_first(self) -> Plan[None]:
        page, ticket = self._encoding.popleft()
        encoded: list[EncodedPage]
        encoded, sums = yield Result(ticket)
        if sums is not None:
            self._sums_out[page.column] += sums
        self._encoding_bytes -= page.num_bytes
        yield from self._write_encoded(page, encoded)

    def _write_rest(self) -> Plan[None]:
        """Write the pages of all queued rows. In a file without pages, encodes many small pages at a time."""
        queues = self._queues
        yield from self._write_encoding()
        if self._sums_in is not None or not isinstance(queues, LeafQueues) or self._layout.has_pages:
            yield from self._write_pages(queues.flush())
            return
        pending: deque[tuple[list[ClosedPage], Any]] = deque()
        for group in queues.flush_groups():
            if pending and len(pending) >= self._pages_ahead:
                yield from self._write_group(*pending.popleft())
            num_bytes = sum([page.num_bytes for page in group])
            ticket = yield Begin(partial(queues.encode_group, group), num_bytes)
            pending.append((group, ticket))
            self._encoding_bytes += num_bytes
        while pending:
            yield from self._write_group(*pending.popleft())

    def _write_group(self, group: list[ClosedPage], ticket: Any) -> Plan[None]:
        encoded: EncodedGroup = yield Result(ticket)
        self._encoding_bytes -= sum([page.num_bytes for page in group])
        for at, pages in encoded:
            page = group[at]
            if not isinstance(pages, list):
                yield from self._writes.add(self._layout.small_pages(page.column, pages))
                continue
            yield from self._write_encoded(page, pages)

    def _write_encoded(self, page: ClosedPage, encoded: list[EncodedPage]) -> Plan[None]:
        self.page_sizes.add(page, encoded)
        first_row = page.first_row
        for encoded_page in encoded:
            for buffers in self._layout.page(page.column, first_row, encoded_page):
                yield from self._writes.add(buffers)
            first_row += self._queues.num_rows(page, encoded_page)

    def _encode(self, page: ClosedPage) -> tuple[list[EncodedPage], LeafSums | None]:
        return (self._queues.encode(page), None) if self._sums_in is None else self._queues.encode_summed(page)

    @cached_property
    def _pages_ahead(self) -> int:
        return cpu_count()

    # -- pages of other files -----------------------------------------------------------------------------------------

    def add_page(self, column: int, first_row: int, page: EncodedPage) -> Plan[None]:
        """Write an already encoded page; pages of a column come in row order.

        first_row  its first row in this file
        """
        yield from self._write_encoding()
        for buffers in self._layout.page(column, first_row, page):
            yield from self._writes.add(buffers)

    @property
    def struct_columns(self) -> frozenset[int]:
        """The columns of structs in a file of version 2.0; each has one page, which `finish` writes."""
        assert not isinstance(self._queues, LeafQueues), "later versions have no columns of structs"
        return self._queues.struct_columns

    def add_structs(self, column: int, num_rows: int) -> None:
        """Count structs whose members' pages are written by `add_page`, in a file of version 2.0."""
        assert not isinstance(self._queues, LeafQueues), "later versions have no columns of structs"
        self._queues.add_structs(column, num_rows)
        if self._sums_in is not None:
            self._sums_in[column] += LeafSums(num_rows)

    def end_pages(self, num_rows: int) -> None:
        """Count the rows that `add_page` has added to all columns."""
        self.num_rows += num_rows

    # -- the rest of the file -----------------------------------------------------------------------------------------

    def add_schema_metadata(self, key: str, value: str) -> None:
        """Add to the metadata of the file's schema; an existing key gets the new value."""
        self._metadata[key] = value.encode()

    def add_global_buffer(self, data: Any) -> Plan[int]:
        """Write a global buffer; returns its index, from 1 on."""
        index, buffers = self._layout.global_buffer(data)
        yield from self._writes.add(buffers)
        yield from self._writes.flush()
        return index

    def finish(self) -> Plan[WrittenFile]:
        """Write the held rows and the file's metadata, which completes the file."""
        yield from self._add_gathered()
        yield from self._write_rest()
        if self._sums_in is not None:
            check_sums(dict(enumerate(self._sums_in)), dict(enumerate(self._sums_out)), self.path)
        sidecars = yield from self._blobs.finish()
        schema = self.schema
        if self._plan.file_fields != schema.fields:
            schema = replace(schema, fields=self._plan.file_fields)
        for buffers in self._layout.finish(schema, self._metadata, self.num_rows):
            yield from self._writes.add(buffers)
        yield from self._writes.flush()
        return WrittenFile(
            path=self.path,
            num_rows=self.num_rows,
            size_bytes=self._layout.size_bytes,
            field_ids=self._plan.field_ids,
            column_indices=tuple(range(self._plan.num_columns)),
            version=self.version,
            sidecars=sidecars,
        )
