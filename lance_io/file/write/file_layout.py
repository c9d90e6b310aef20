"""Where the buffers of a file that is being written go.

    | page data, blobs, global buffers | ... | initialisation data | descriptor | column metadata | tables | footer |
                                                                    ^ global buffer 0

Page buffers are written as they come, with one exception: what a reader needs before it can locate rows inside of
pages (chunk metadata, dictionaries, repetition indexes) is held back and written in one piece right before the
descriptor, column by column. The end of the file then holds all that random access begins with, and one read gets it.
Readers that know nothing of this find the buffers by their offsets, as ever.

`INDEX_BYTES_HELD_MAX` bounds what is held: when that much has gathered, it is written where the file happens to be, and
gathering starts again. A large dictionary or repetition index stays beside its page: bringing it along would cost
every reader more than it saves the one who needs it.
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


_NOWHERE: Final = -1  # offset of a buffer that is held


@dataclass(slots=True, eq=False)
class _Page:
    """A page on its way into the metadata, without its data.

    There may be very many, so what they have is nothing that the garbage collector has to look at again and again.

    offsets, sizes  of its buffers; offsets are `_NOWHERE` where `held` has the buffer
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
    """The first pages of neighbouring columns, their index held.

    column   the first one
    data_at  file offset of their data
    """

    column: int
    pages: SmallPages
    data_at: int
    number: int = 0


class FilePlaces:
    """Gives every buffer its place in the file, and makes the metadata that says so.

    The methods that return buffers return what is to be written next: the caller writes it, all of it, in order.

    blob_columns  columns that are marked as blobs
    size_bytes  bytes given out so far
    held_bytes  initialisation data that waits for its place
    has_pages   whether any page has been given its place
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
        """A place for one buffer at the next multiple of 64, made of `parts`: its file offset and what to write."""
        offset = self.size_bytes
        num_bytes = num_bytes_of(parts)
        filling = padding(num_bytes)
        self.size_bytes = offset + num_bytes + len(filling)
        return offset, [*parts, filling] if filling else list(parts)

    def reserve(self, num_bytes: int) -> tuple[int, bytes]:
        """A place for a buffer of so many bytes, which the caller writes: its file offset, and what follows it."""
        offset = self.size_bytes
        filling = padding(num_bytes)
        self.size_bytes = offset + num_bytes + len(filling)
        return offset, filling

    def global_buffer(self, data: Any) -> tuple[int, list[Any]]:
        """A place for a global buffer: its index (0 is the descriptor's, so the first is 1) and what to write."""
        offset, buffers = self.append([data])
        self._globals.append((offset, memoryview(data).nbytes))
        return len(self._globals), buffers

    def page(self, column: int, first_row: int, page: EncodedPage) -> Iterator[list[Any]]:
        """Places for the buffers of the next page of a column.

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
                offsets.append(_NOWHERE)
                self.held_bytes += sizes[at]
            else:
                offset, parts = self.append(buffer.parts)
                data += parts
                held.append(None)
                offsets.append(offset)
        placed = _Page(column, number, first_row, page.num_rows, page.layout, tuple(offsets), sizes, tuple(held))
        if data:
            yield data
        if _NOWHERE not in offsets:
            self._entries[column].append(self._entry(placed))
            return
        self._entries[column].append(b"")
        self._held.append(placed)
        if self.held_bytes >= INDEX_BYTES_HELD_MAX:
            yield self._place_held()

    def small_pages(self, column: int, pages: SmallPages) -> list[Any]:
        """Places for the first pages of neighbouring columns.

        column  the first one
        """
        self.has_pages = True
        num_bytes = memoryview(pages.data).nbytes  # which is a multiple of the alignment
        self._held.append(_SmallPages(column, pages, self.size_bytes))
        self.size_bytes += num_bytes
        self.held_bytes += memoryview(pages.index).nbytes
        buffers = [pages.data] if num_bytes else []
        return buffers + self._place_held() if self.held_bytes >= INDEX_BYTES_HELD_MAX else buffers

    def finish(self, schema: Schema, metadata: Mapping[str, bytes], num_rows: int) -> Iterator[list[Any]]:
        """The rest of the file: held buffers, descriptor, column metadata, tables, footer."""
        if self._held:
            yield self._place_held()
        descriptor = encode_file_descriptor(schema, num_rows, metadata)
        descriptor_at = self.size_bytes
        columns_at = descriptor_at + len(descriptor)
        columns = [
            encode_column(entries, is_blob=column in self._blob_columns) for column, entries in enumerate(self._entries)
        ]
        places = [(descriptor_at, len(descriptor)), *self._globals]
        tail = encode_tail(columns, places, columns_at=columns_at, version=self._version)
        self.size_bytes = columns_at + sum(map(len, tail))
        yield [descriptor, *tail]

    def _place_held(self) -> list[Any]:
        """Places for all that is held, column by column: what a projection needs lies side by side."""
        written: list[Any] = []
        for one in sorted(self._held, key=lambda one: (one.column, one.number)):
            if isinstance(one, _SmallPages):
                entries = one.pages.entries(PAGE_TYPES[self._version], one.data_at, self.size_bytes)
                self._entries[one.column : one.column + len(entries)] = [[entry] for entry in entries]
                index_bytes = memoryview(one.pages.index).nbytes
                self.size_bytes += index_bytes
                written += [one.pages.index] if index_bytes else []
                continue
            offsets = []
            for known, buffer in zip(one.offsets, one.held, strict=True):
                if buffer is None:
                    offsets.append(known)
                else:
                    offset, parts = self.append([buffer])
                    offsets.append(offset)
                    written += parts
            one.offsets = tuple(offsets)
            self._entries[one.column][one.number] = self._entry(one)
        self._held, self.held_bytes = [], 0
        return written

    def _entry(self, page: _Page) -> bytes:
        return encode_page_entry(
            page.offsets,
            page.sizes,
            num_rows=page.num_rows,
            first_row=0 if self._version == V2_0 else page.first_row,  # which does not say
            layout=page.layout,
            version=self._version,
        )


def _is_held(number: int, num_bytes: int) -> bool:
    """Whether an index of a page is initialisation data; the first buffer of a page can only be chunk metadata."""
    return number == 0 or num_bytes <= INDEX_BUFFER_HELD_BYTES_MAX
