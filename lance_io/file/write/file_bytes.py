"""Rows to the bytes of one data file, without any I/O.

    record batch ──ingest──> stored arrays ──small ones are gathered──> leaf chunks ──queues──> closed pages
    closed page ──encode (CPU pool)──> encoded page ──places──> buffers to write

`FileWriter` is a set of plans: encoding runs beside the writing of what was encoded before, at most one page per
processor ahead.

What it holds is bounded, whatever the size of the file: the open page of every column, the pages being encoded, and
the initialisation data that goes to the end of the file (`file_layout.py`); plus some hundred bytes of metadata per
page.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from lance_io.file.write.blob_pages import BlobSink
from lance_io.file.write.file_layout import FilePlaces
from lance_io.file.write.leaf_queues import LeafQueues
from lance_io.file.write.page_sizes import PageSizes
from lance_io.file.write.uploads import GatheredWrites
from lance_io.file.write.write_plan import file_plan
from lance_io.format.version import V2_0
from lance_io.lazy_names import later
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
    array_queues = later("lance_io.file.write.array_queues")  # with all that writes 2.0, which few tables need

PAGE_BYTES: Final = 8 * MIB  # leaf data of a page: large enough to read at full speed, small enough to hold some
COLUMNS_AT_FULL_SIZE: Final = 32  # with more leaf columns their pages are smaller, so that all together do not grow
GATHERED_ROWS: Final = 8192  # smaller batches are put together first: a batch costs about as much as its 8,192 rows
GATHERED_BYTES: Final = 1 * MIB
GATHERED_BATCHES: Final = 1024
WRITTEN_AT_ONCE_BYTES: Final = 64 * KIB  # smaller pages share a write
NEARLY: Final = 0.9  # share of a limit of bytes at which a file may end


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A data file that has been written, as a table's metadata names it (spec: table, section 2.6).

    path                        object key of the file
    num_rows, size_bytes        of the file
    field_ids, column_indices   of its columns, parallel
    sidecars                    names of the files beside it, without its stem; see `key_beside`
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

    path          object key of the file, for messages and the result
    schema        top-level fields in the order of the file's columns, with the ids that they have in the table
    version       of the file
    sink          takes the bytes
    page_bytes    leaf data at which a page closes
    cache_bytes   leaf data that may wait for its page after a batch, of all top-level columns together
    blob_references  whether blobs may lie outside, by a URI
    new_blob_name    makes the name of a file of the larger ones, if the table manages these
    payloads         reads those that batches name in other files (`levels/blob_source.py`)
    checks_rows      whether what the rows add up to is compared with what goes into pages
    first_row        number of the first row among all that are written, for errors; None for rows that are in a table
                     already, and whose texts are taken as they are
    page_sizes       how large rows become as pages, known from other files of such rows

    Raises `SchemaError` and `UnsupportedError` for schemas that files of this version cannot hold, and for encoding
    options that make no sense. After an error in `add` or `finish` the file cannot be completed.
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
    ) -> None:
        self.path = path
        self.schema = schema
        self.version = version
        self.num_rows = 0
        self._first_row = first_row
        self._metadata = dict(schema.metadata)
        self._plan = plan = file_plan(schema, version)
        self._page_bytes = max(1, page_bytes * COLUMNS_AT_FULL_SIZE // max(COLUMNS_AT_FULL_SIZE, plan.num_columns))
        self._cache_bytes = self._page_bytes if cache_bytes is None else cache_bytes // max(1, len(schema))
        self._queues = self._make_queues()
        self.page_sizes = PageSizes(plan.num_columns) if page_sizes is None else page_sizes
        self._places = FilePlaces(version, plan.num_columns, plan.blob_columns)
        self._blobs = BlobSink(
            self._places, sink, references=blob_references, new_name=new_blob_name, payloads=payloads
        )
        self._writes = GatheredWrites(sink, WRITTEN_AT_ONCE_BYTES)
        self._gathered: list[list[pa.Array]] = []
        self._gathered_rows = self._gathered_bytes = 0
        self._gathered_bytes_max = min(GATHERED_BYTES, self._cache_bytes)
        self._can_gather = not plan.has_dictionaries
        self._encoding_bytes = 0
        self._came: list[LeafSums] | None = None
        if checks_rows:
            self._came = [LeafSums()] * plan.num_columns
            self._went = [LeafSums()] * plan.num_columns

    def _make_queues(self) -> LeafQueues | array_queues.ArrayQueues:
        fields, plan, sizes = self.schema.fields, self._plan, (self._page_bytes, self._cache_bytes)
        if self.version == V2_0:
            return array_queues.ArrayQueues(fields, plan, *sizes)
        return LeafQueues(fields, plan, self.version, *sizes)

    @property
    def held_bytes(self) -> int:
        """Leaf data of the rows that are held or being encoded, and initialisation data, in bytes."""
        waiting = sum(self._queues.waiting_bytes) + self._gathered_bytes
        return waiting + self._encoding_bytes + self._places.held_bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of the file so far: of the pages that have been encoded."""
        return self._places.size_bytes + self._places.held_bytes

    @property
    def _expected_bytes(self) -> int:
        """Bytes that the file will have with the rows that wait."""
        waiting = self.page_sizes.estimate(self._queues.waiting_bytes)
        return self.size_bytes + waiting + self.page_sizes.estimate_all(self._gathered_bytes)

    def reaches(self, num_bytes: int) -> Plan[bool]:
        """Whether the file with all its rows has about so many bytes as they are stored, at least `NEARLY` of them.

        What waits counts by how the pages of its column have come out so far. Where that says yes, the pages are closed
        to see it; of columns without any yet what waits is encoded for its size alone.
        """
        if self._expected_bytes < num_bytes:
            return False
        if self.size_bytes >= num_bytes:
            return True
        yield from self._add_gathered()
        unknown = [page for page in self._queues.peek() if not self.page_sizes.knows(page.column)]
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
        """The columns of a batch as they are stored, in the order of the schema. Runs in any thread.

        Raises `SchemaError` for a batch that does not fit the schema: a column that is missing or of another type, a
        null where none may be, text that is no JSON. The writer is as it was then.
        """
        return [ingest(batch.column(index)) for index, ingest in self._plan.ingesters(batch.schema)]

    def text_check(self, arrays: list[pa.Array]) -> Callable[[], None] | None:
        """What raises `InvalidText` for ingested arrays with text that is no UTF-8, in any thread; None for no text."""
        places = self._plan.text_places
        if self._first_row is None or not places:
            return None
        return partial(check_texts, self.schema.fields, arrays, places, self._first_row + self.num_rows)

    def add(self, arrays: list[pa.Array], num_rows: int, *, held: bool = False) -> Plan[None]:
        """Append the rows of `ingested` arrays.

        held  their memory stays as it is until the file is written, whether it is referred to here or not: rows that
              wait for their page need no copy
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
        """Let rows wait for their pages, and write those that are full."""
        if self._came is not None:
            found = yield Compute(partial(self._queues.sum_rows, arrays), lambda: 1 << 20)
            self._came = [before + more for before, more in zip(self._came, found, strict=True)]
        yield from self._write_pages(self._queues.add(arrays, held=held))

    # -- pages ------------------------------------------------------------------------------------------------------

    def _write_pages(self, closed: Iterator[ClosedPage]) -> Plan[None]:
        """Encode pages side by side, a few ahead, and write them in order."""
        under_way: deque[tuple[ClosedPage, Any]] = deque()
        for page in closed:
            if under_way and len(under_way) >= self._pages_ahead:
                yield from self._write_first(under_way)
            ticket = yield Begin(partial(self._encode, page), page.num_bytes)
            under_way.append((page, ticket))
            self._encoding_bytes += page.num_bytes
        while under_way:
            yield from self._write_first(under_way)

    def _write_first(self, under_way: deque[tuple[ClosedPage, Any]]) -> Plan[None]:
        page, ticket = under_way.popleft()
        encoded: list[EncodedPage]
        encoded, sums = yield Result(ticket)
        if sums is not None:
            self._went[page.column] += sums
        self._encoding_bytes -= page.num_bytes
        yield from self._write_encoded(page, encoded)

    def _write_rest(self) -> Plan[None]:
        """Write the pages of the rows that are left; in a file without pages small ones are encoded many at a time."""
        queues = self._queues
        if self._came is not None or not isinstance(queues, LeafQueues) or self._places.has_pages:
            yield from self._write_pages(queues.flush())
            return
        under_way: deque[tuple[list[ClosedPage], Any]] = deque()
        for group in queues.flush_groups():
            if under_way and len(under_way) >= self._pages_ahead:
                yield from self._write_group(*under_way.popleft())
            num_bytes = sum([page.num_bytes for page in group])
            ticket = yield Begin(partial(queues.encode_group, group), num_bytes)
            under_way.append((group, ticket))
            self._encoding_bytes += num_bytes
        while under_way:
            yield from self._write_group(*under_way.popleft())

    def _write_group(self, group: list[ClosedPage], ticket: Any) -> Plan[None]:
        encoded: EncodedGroup = yield Result(ticket)
        self._encoding_bytes -= sum([page.num_bytes for page in group])
        for at, made in encoded:
            page = group[at]
            if not isinstance(made, list):
                yield from self._writes.add(self._places.small_pages(page.column, made))
                continue
            yield from self._write_encoded(page, made)

    def _write_encoded(self, page: ClosedPage, encoded: list[EncodedPage]) -> Plan[None]:
        self.page_sizes.add(page, encoded)
        first_row = page.first_row
        for one in encoded:
            for buffers in self._places.page(page.column, first_row, one):
                yield from self._writes.add(buffers)
            first_row += self._queues.num_rows(page, one)

    def _encode(self, page: ClosedPage) -> tuple[list[EncodedPage], LeafSums | None]:
        return (self._queues.encode(page), None) if self._came is None else self._queues.encode_summed(page)

    @cached_property
    def _pages_ahead(self) -> int:
        return cpu_count()

    # -- pages of other files -----------------------------------------------------------------------------------------

    def add_page(self, column: int, first_row: int, page: EncodedPage) -> Plan[None]:
        """Write a page that is encoded already, as it is; pages of a column come in the order of their rows.

        first_row  of its rows, in this file
        """
        for buffers in self._places.page(column, first_row, page):
            yield from self._writes.add(buffers)

    @property
    def struct_columns(self) -> frozenset[int]:
        """Which columns are of structs, in a file of version 2.0: each has one page, made at the end of the file."""
        assert not isinstance(self._queues, LeafQueues), "later versions have no columns of structs"
        return self._queues.struct_columns

    def add_structs(self, column: int, num_rows: int) -> None:
        """Count structs whose members' pages are written as they are, in a file of version 2.0."""
        assert not isinstance(self._queues, LeafQueues), "later versions have no columns of structs"
        self._queues.add_structs(column, num_rows)
        if self._came is not None:
            self._came[column] += LeafSums(num_rows)

    def end_pages(self, num_rows: int) -> None:
        """All columns have so many rows more by pages that were written as they are."""
        self.num_rows += num_rows

    # -- the rest of the file -----------------------------------------------------------------------------------------

    def add_schema_metadata(self, key: str, value: str) -> None:
        """Add to the metadata of the file's schema; a key that is there gets the new value."""
        self._metadata[key] = value.encode()

    def add_global_buffer(self, data: Any) -> Plan[int]:
        """Write a global buffer; gives its index, from 1 on."""
        index, buffers = self._places.global_buffer(data)
        yield from self._writes.add(buffers)
        yield from self._writes.flush()
        return index

    def finish(self) -> Plan[WrittenFile]:
        """Write what is held, and the file's metadata. The file is whole then."""
        yield from self._add_gathered()
        yield from self._write_rest()
        if self._came is not None:
            check_sums(dict(enumerate(self._came)), dict(enumerate(self._went)), self.path)
        sidecars = yield from self._blobs.finish()
        schema = self.schema
        if self._plan.described != schema.fields:
            schema = replace(schema, fields=self._plan.described)
        for buffers in self._places.finish(schema, self._metadata, self.num_rows):
            yield from self._writes.add(buffers)
        yield from self._writes.flush()
        return WrittenFile(
            path=self.path,
            num_rows=self.num_rows,
            size_bytes=self._places.size_bytes,
            field_ids=self._plan.field_ids,
            column_indices=tuple(range(self._plan.num_columns)),
            version=self.version,
            sidecars=sidecars,
        )
