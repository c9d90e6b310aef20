"""Column metadata: the pages of each column (spec: file container, section 3).

    ColumnMetadata
      encoding        column encoding: Any of lance.encodings.ColumnEncoding
      pages[]
        buffer_offsets, buffer_sizes   absolute file offsets and exact sizes, in bytes
        length                         rows (below a fixed-size list of structs: its flattened slots)
        encoding                       page layout: Any of lance.encodings21.PageLayout
        priority                       table row of its first row, or 0 for unknown
      buffer_offsets, buffer_sizes     of the column itself, empty today

Fast path: a kernel parses messages in the form that all writers produce, and checks the ranges of all buffers. Other
messages are parsed in general: the lengths of all pages at once, because they locate rows; the rest of a page is
decoded and checked when that page is first needed. A page layout stays serialized here; `encodings/` decodes it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, overload

import numpy as np

from lance_io import _kernels
from lance_io.errors import FormatError, UnsupportedError
from lance_io.format.error_context import FILE_ERRORS, add_location
from lance_io.format.footer import (
    ALIGNMENT_BYTES,
    Footer,
    OffsetTable,
    decode_offset_table,
)
from lance_io.format.version import V2_0, V2_1, V2_2, FileVersion
from lance_io.format.wire import I64_MAX, parse_message, unpack_any
from lance_io.lazy_names import lazy_module
from lance_io.limits import PAGE_ROWS_MAX
from lance_io.proto import file_pb2
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lance_io.format.wire import Buffer
    from lance_io.proto import encodings_pb2
    from lance_io.spans import IntArray
else:
    encodings_pb2 = lazy_module("lance_io.proto.encodings_pb2")  # for columns that no known writer writes

COLUMN_ENCODING_TYPE: Final = "lance.encodings.ColumnEncoding"
_ORDINARY_COLUMN: Final = b"\x0a\x1f/lance.encodings.ColumnEncoding\x12\x02\x0a\x00"  # from every writer
ORDINARY_START: Final = (
    b"\x0a\x29\x12\x27\x0a\x25" + _ORDINARY_COLUMN
)  # `encoding.direct.encoding`, in front of the pages
PAGE_TYPES: Final = {
    V2_0: "lance.encodings.ArrayEncoding",
    V2_1: "lance.encodings21.PageLayout",
    V2_2: "lance.encodings21.PageLayout",
}


class PageInfo(NamedTuple):
    """One page of a column (a tuple, because wide tables have many).

    buffer_offsets, buffer_sizes  file offsets and exact sizes of its buffers, in bytes; checked to lie in the data
    num_rows                      its length: rows, or slots below a fixed-size list of structs
    priority                      top-level row number of its first row as written; 0 if the writer omitted it
    type_name                     message type of `encoding`, such as `lance.encodings21.PageLayout`
    encoding                      the serialized layout message
    """

    buffer_offsets: tuple[int, ...]
    buffer_sizes: tuple[int, ...]
    num_rows: int
    priority: int
    type_name: str
    encoding: bytes

    @property
    def data_bytes(self) -> int:
        """Bytes of its buffers in the file, without padding."""
        return sum(self.buffer_sizes)


@dataclass(frozen=True, slots=True, eq=False)
class ColumnInfo:
    """One column of a data file.

    index           its number in the file
    pages           in row order, each decoded on first access; the access raises as `decode_column` does
    row_starts      i64[pages + 1], row number of each page's first row; the last entry is the column's length
    buffer_offsets, buffer_sizes  column-level buffers, in bytes
    """

    index: int
    pages: Sequence[PageInfo]
    row_starts: IntArray
    buffer_offsets: tuple[int, ...]
    buffer_sizes: tuple[int, ...]

    @property
    def num_rows(self) -> int:
        """Sum of the page lengths."""
        return int(self.row_starts[-1])


def decode_column_table(data: Buffer, footer: Footer) -> OffsetTable:
    """The ranges of the metadata of each column; `data` begins at `footer.column_table_at`.

    Raises `FormatError` for messages outside of the column metadata section and for overlapping ones.
    """
    table = decode_offset_table(
        data, footer.num_columns, start=footer.columns_at, end=footer.column_table_at, what="column metadata"
    )
    starts, ends = table.positions, table.positions + table.sizes
    order = np.arange(len(starts))
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    if len(order) and int(starts[0]) != footer.columns_at:
        raise FormatError(f"column metadata begins at {int(starts[0])}, the footer has {footer.columns_at}")
    overlaps = ends[:-1] > starts[1:]
    if overlaps.any():
        later = int(order[int(overlaps.argmax()) + 1])
        raise FormatError(f"column metadata {later} overlaps the one before it")
    return table


def decode_column(data: Buffer, column_index: int, footer: Footer, path: str | None = None) -> ColumnInfo:
    """Parse the metadata message of one column, all of `data`. Its pages are parsed on first access.

    path  of the file, for messages
    Raises `FormatError` for anything the specification forbids, `UnsupportedError` for encodings of another kind;
    both name column and page.
    """
    column = _ordinary_column(data, column_index, footer)
    return _decode_column(data, column_index, footer, path) if column is None else column


def _ordinary_column(data: Buffer, column_index: int, footer: Footer) -> ColumnInfo | None:
    """The column if its message has the usual form and passes all checks, else None."""
    page_type = PAGE_TYPES.get(footer.version)
    if page_type is None:
        return None
    alignment = ALIGNMENT_BYTES if footer.version >= V2_1 else 1
    parsed = _kernels.column_pages(data, ORDINARY_START, page_type, footer.columns_at, alignment, PAGE_ROWS_MAX)
    if parsed is None:
        return None
    row_starts, pages = parsed
    page_infos = LazySequence(len(pages), lambda number: PageInfo._make(pages[number]))
    return ColumnInfo(column_index, page_infos, np.frombuffer(memoryview(row_starts), dtype=np.int64), (), ())


def decode_columns(
    messages: Buffer, columns: Sequence[int], footer: Footer
) -> Sequence[tuple[bytes | None, int, list[Any]] | None]:
    """Parse some columns in the usual form with one kernel call.

    messages  the file from `footer.columns_at` on, at least to the end of the column table

    For each `(row_starts i64[pages + 1] as bytes, number of rows, the fields of a PageInfo for each page)`; row starts
    are None for a single page. None for a column that has another form or a fault: `decode_column` reports it.
    """
    page_type = PAGE_TYPES.get(footer.version)
    if page_type is None:
        return [None] * len(columns)
    alignment = ALIGNMENT_BYTES if footer.version >= V2_1 else 1
    section = footer.columns_at, footer.column_table_at
    return _kernels.file_columns(messages, *section, list(columns), ORDINARY_START, page_type, alignment, PAGE_ROWS_MAX)


def ordinary_info(index: int, row_starts: bytes | None, num_rows: int, pages: list[Any]) -> ColumnInfo:
    """Build a `ColumnInfo` from an entry of `decode_columns`."""
    starts = [0, num_rows] if row_starts is None else np.frombuffer(row_starts, dtype=np.int64)
    return ColumnInfo(index, _OrdinaryPages(pages), np.asarray(starts, dtype=np.int64), (), ())


def _decode_column(data: Buffer, column_index: int, footer: Footer, path: str | None) -> ColumnInfo:
    try:
        message = parse_message(file_pb2.ColumnMetadata, data, "column metadata")
        _check_column_encoding(message)
        offsets, sizes = _buffers(message.buffer_offsets, message.buffer_sizes, footer)
        lengths = [page.length for page in message.pages]
        row_starts = _row_starts(lengths)
    except FILE_ERRORS as error:
        raise add_location(error, f"column {column_index}", path) from error.__cause__

    def page(number: int) -> PageInfo:
        try:
            return _decode_page(message.pages[number], footer)
        except FILE_ERRORS as error:
            raise add_location(error, f"column {column_index}, page {number}", path) from error.__cause__

    return ColumnInfo(column_index, LazySequence(len(lengths), page), row_starts, offsets, sizes)


def _check_column_encoding(message: file_pb2.ColumnMetadata) -> None:
    if message.encoding.direct.encoding == _ORDINARY_COLUMN:
        return
    type_name, value = _direct_encoding(message.encoding, "column encoding")
    if type_name != COLUMN_ENCODING_TYPE:
        raise UnsupportedError(f"column encoding of type {type_name!r}; known is {COLUMN_ENCODING_TYPE}")
    kind = parse_message(encodings_pb2.ColumnEncoding, value, "column encoding").WhichOneof("column_encoding")
    if kind is None:
        raise FormatError("column encoding: expected a kind, found none")
    if kind == "zone_index":
        raise UnsupportedError("column encoding 'zone_index' is not read")


def _direct_encoding(encoding: file_pb2.Encoding, what: str) -> tuple[str, bytes]:
    location = encoding.WhichOneof("location")
    if location is None:
        raise FormatError(f"{what} is missing")
    if location != "direct":
        raise UnsupportedError(f"{what} stored as {location!r}; only 'direct' is read")
    return unpack_any(encoding.direct.encoding, what)


def _decode_page(page: file_pb2.ColumnMetadata.Page, footer: Footer) -> PageInfo:
    type_name, encoding = _direct_encoding(page.encoding, "page encoding")
    _check_page_type(type_name, footer.version)
    offsets, sizes = _buffers(page.buffer_offsets, page.buffer_sizes, footer)
    if page.priority > I64_MAX:
        raise FormatError(f"first row {page.priority}, at most {I64_MAX}")
    return PageInfo(offsets, sizes, page.length, page.priority, type_name, encoding)


def _check_page_type(type_name: str, version: FileVersion) -> None:
    expected = PAGE_TYPES.get(version)
    if type_name != expected:
        raise UnsupportedError(f"page encoding of type {type_name!r} in a file of version {version}, not {expected!r}")


def _buffers(offsets: Sequence[int], sizes: Sequence[int], footer: Footer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Both lists as tuples, after checking that they describe buffers inside the data part of the file."""
    if not offsets and not sizes:  # the usual case for column buffers
        return (), ()
    if len(offsets) != len(sizes):
        raise FormatError(f"{len(offsets)} buffer offsets, but {len(sizes)} buffer sizes")
    buffers = tuple(offsets), tuple(sizes)
    end = footer.columns_at
    aligned = footer.version >= V2_1
    for offset, size in zip(*buffers, strict=True):
        if offset + size > end:
            raise FormatError(f"buffer of {size} bytes at {offset} runs past the data, which ends at {end}")
        if aligned and offset % ALIGNMENT_BYTES:
            raise FormatError(f"buffer at offset {offset} is not aligned to {ALIGNMENT_BYTES} bytes")
    return buffers


def _row_starts(lengths: Sequence[int]) -> IntArray:
    if lengths and max(lengths) > PAGE_ROWS_MAX:
        number = next(number for number, length in enumerate(lengths) if length > PAGE_ROWS_MAX)
        raise FormatError(f"{lengths[number]} rows, at most {PAGE_ROWS_MAX}", where=f"page {number}")
    starts = list(accumulate(lengths, initial=0))
    if starts[-1] > I64_MAX:
        raise FormatError(f"{starts[-1]} rows in {len(lengths)} pages")
    return np.array(starts, dtype=np.int64)


T = TypeVar("T")


class LazyItems(Sequence[T], ABC):
    """`count` items; `_make_item` builds each on first access, at most once per thread, and it is cached.

    If that raises, this access and each further one raise.
    """

    __slots__ = ("_items",)

    def __init__(self, count: int) -> None:
        self._items: list[Any] = [None] * count

    @abstractmethod
    def _make_item(self, number: int) -> T:
        """Build an item; `number` is not negative."""

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, number: int) -> T: ...
    @overload
    def __getitem__(self, number: slice) -> list[T]: ...

    def __getitem__(self, number: int | slice) -> T | list[T]:
        if type(number) is slice:
            return [self[index] for index in range(*number.indices(len(self._items)))]
        item: T | None = self._items[number]
        if item is None:
            item = self._items[number] = self._make_item(number if number >= 0 else number + len(self._items))
        return item

    def __iter__(self) -> Iterator[T]:
        return (self[number] for number in range(len(self._items)))


class LazySequence(LazyItems[T]):
    """Items that a function builds."""

    __slots__ = ("_make",)

    def __init__(self, count: int, make: Callable[[int], T]) -> None:
        super().__init__(count)
        self._make = make

    def _make_item(self, number: int) -> T:
        return self._make(number)


class _OrdinaryPages(LazyItems[PageInfo]):
    """The pages in column metadata. No closures: there is one instance per column of each file."""

    __slots__ = ("_fields",)

    def __init__(self, fields: list[Any]) -> None:
        super().__init__(len(fields))
        self._fields = fields

    def _make_item(self, number: int) -> PageInfo:
        return PageInfo._make(self._fields[number])
