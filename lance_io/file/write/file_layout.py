"""Layout of the buffers of a file that is being written.

    | page data, blobs, global buffers | ... | initialisation data | descriptor | column metadata | tables | footer |
                                                                    ^ global buffer 0

Page buffers are written as they come, with one exception: initialisation data, which readers need to locate rows inside
pages (chunk metadata, dictionaries, repetition indexes), is held and written in one piece right before the descriptor,
column by column. So one read of the file's end fetches everything that random access needs first. Other readers find
these buffers by their offsets, as usual.

`INDEX_BYTES_HELD_MAX` limits the held bytes: when it is reached, they are written at the current end of the file, and
holding starts again. A large dictionary or repetition index stays beside its page: at the file's end, it
would cost every reader more than it saves those that need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lance_io.encodings.written import Role, num_bytes_of
from lance_io.format.columns import PAGE_TYPES
from lance_io.format.tail import encode_column, encode_file_descriptor, encode_page_entry, encode_tail, padding
from lance_io.format.version import V2_0
from lance_io.limits import KIB, MIB
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from lance_io._kernels import SmallPages
    from lance_io.encodings.written import EncodedPage
    from lance_io.format.schema import Schema
    from lance_io.format.version import FileVersion

INDEX_BYTES_HELD_MAX: Final = 16 * MIB
INDEX_BUFFER_HELD_BYTES_MAX: Final = 64 * KIB  # of a dictionary or repetition index; chunk metadata is always held


_HELD_OFFSET: Final = -1  # offset of a buffer that is held


@dataclass(slots=True, eq=False)
class _Page:
    """Metadata of a page whose index is held.

    A file may have very many of these, so all attributes have types that the garbage collector does not traverse.

    offsets, sizes  per buffer; the offset is `_HELD_OFFSET` if `held` has the buffer
    """

    column: int
    number: int
    first_row: int
    num_rows: int
    layout: bytes
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    held: tuple[bytes | None, ...]


@dataclass(slots=True, eq=False)
class _SmallPages:
    """The first pages of neighbouring columns, with their index held.

    column   the first column
    data_at  file offset of their data
    """

    column: int
    pages: SmallPages
    data_at: int
    number: int = 0


class FileLayout:
    """Assigns file offsets to buffers, and encodes the metadata with these offsets.

    The caller writes all returned buffers, in order.

    blob_columns  columns that are marked as blobs
    size_bytes    bytes assigned so far
    held_bytes    initialisation data without an offset yet
    has_pages     whether any page has been added
    """

    def __init__(self, version: FileVersion, num_columns: int, blob_columns: Collection[int] = ()) -> None:
        self.size_bytes = 0
        self.held_bytes = 0
        self._version = version
        self._blob_columns = blob_columns
        self._entries: list[list[bytes]] = [[] for _ in range(num_columns)]
        self._held: list[_Page | _SmallPages] = []
        self.has_pages = False
        self._globals: list[tuple[int, int]] = []

    def append(self, parts: Sequence[Any]) -> tuple[int, list[Any]]:
        """Add a buffer that consists of `parts`, at the next multiple of 64: its file offset and the bytes to write."""
        offset = self.size_bytes
        num_bytes = num_bytes_of(parts)
        pad = padding(num_bytes)
        self.size_bytes = offset + num_bytes + len(pad)
        return offset, [*parts, pad] if pad else list(parts)

    def reserve(self, num_bytes: int) -> tuple[int, bytes]:
        """Reserve `num_bytes` for a buffer that the caller writes: its file offset, and the padding after it."""
        offset = self.size_bytes
        pad = padding(num_bytes)
        self.size_bytes = offset + num_bytes + len(pad)
        return offset, pad

    def global_buffer(self, data: Any) -> tuple[int, list[Any]]:
        """Add a global buffer: its index (0 is the descriptor, so the first is 1) and the bytes to write."""
        offset, buffers = self.append([data])
        self._globals.append((offset, memoryview(data).nbytes))
        return len(self._globals), buffers

    def page(self, column: int, first_row: int, page: EncodedPage) -> Iterator[list[Any]]:
        """Add the next page of a column; yields the buffers to write.

        first_row  top-level row number of the page's first row
        """
        self.has_pages = True
        sizes = tuple([buffer.num_bytes for buffer in page.buffers])
        number = len(self._entries[column])
        offsets: list[int] = []
        held: list[bytes | None] = []
        data: list[Any] = []
        for at, buffer in enumerate(page.buffers):
            if buffer.role is Role.INDEX and _is_held(at, sizes[at]):
                held.append(b"".join(buffer.parts))
                offsets.append(_HELD_OFFSET)
                self.held_bytes += sizes[at]
            else:
                offset, parts = self.append(buffer.parts)
                data += parts
                held.append(None)
                offsets.append(offset)
        entry = _Page(column, number, first_row, page.num_rows, page.layout, tuple(offsets), sizes, tuple(held))
        if data:
            yield data
        if _HELD_OFFSET not in offsets:
            self._entries[column].append(self._entry(entry))
            return
        self._entries[column].append(b"")
        self._held.append(entry)
        if self.held_bytes >= INDEX_BYTES_HELD_MAX:
            yield self._flush_held()

    def small_pages(self, column: int, pages: SmallPages) -> list[Any]:
        """Add the first pages of neighbouring columns; returns the buffers to write.

        column  the first column
        """
        self.has_pages = True
        num_bytes = memoryview(pages.data).nbytes  # a multiple of the alignment
        self._held.append(_SmallPages(column, pages, self.size_bytes))
        self.size_bytes += num_bytes
        self.held_bytes += memoryview(pages.index).nbytes
        buffers = [pages.data] if num_bytes else []
        return buffers + self._flush_held() if self.held_bytes >= INDEX_BYTES_HELD_MAX else buffers

    def finish(self, schema: Schema, metadata: Mapping[str, bytes], num_rows: int) -> Iterator[list[Any]]:
        """The rest of the file: held buffers, descriptor, column metadata, tables, footer."""
        if self._held:
            yield self._flush_held()
        descriptor = encode_file_descriptor(schema, num_rows, metadata)
        descriptor_at = self.size_bytes
        columns_at = descriptor_at + len(descriptor)
        columns = [
            encode_column(entries, is_blob=column in self._blob_columns) for column, entries in enumerate(self._entries)
        ]
        global_buffers = [(descriptor_at, len(descriptor)), *self._globals]
        tail = encode_tail(columns, global_buffers, columns_at=columns_at, version=self._version)
        self.size_bytes = columns_at + sum(map(len, tail))
        yield [descriptor, *tail]

    def _flush_held(self) -> list[Any]:
        """Assign offsets to all held buffers, column by column, so that those of a projection are contiguous."""
        written: list[Any] = []
        for page in sorted(self._held, key=lambda page: (page.column, page.number)):
            if isinstance(page, _SmallPages):
                entries = page.pages.entries(PAGE_TYPES[self._version], page.data_at, self.size_bytes)
                self._entries[page.column : page.column + len(entries)] = [[entry] for entry in entries]
                index_bytes = memoryview(page.pages.index).nbytes
                self.size_bytes += index_bytes
                written += [page.pages.index] if index_bytes else []
                continue
            offsets = []
            for old_offset, buffer in zip(page.offsets, page.held, strict=True):
                if buffer is None:
                    offsets.append(old_offset)
                else:
                    offset, parts = self.append([buffer])
                    offsets.append(offset)
                    written += parts
            page.offsets = tuple(offsets)
            self._entries[page.column][page.number] = self._entry(page)
        self._held, self.held_bytes = [], 0
        return written

    def _entry(self, page: _Page) -> bytes:
        return encode_page_entry(
            page.offsets,
            page.sizes,
            num_rows=page.num_rows,
            first_row=0 if self._version == V2_0 else page.first_row,  # 2.0 does not store it
            layout=page.layout,
            version=self._version,
        )


def _is_held(buffer_index: int, num_bytes: int) -> bool:
    """Whether to hold an index buffer of a page. One that comes first in its page is chunk metadata: always held."""
    return buffer_index == 0 or num_bytes <= INDEX_BUFFER_HELD_BYTES_MAX
