"""Queues of rows that wait for their page, one per leaf column.

A page closes at the row with which its leaf data reaches the page size, and a larger row stays whole. A queue copies
its rows, unless their memory is known not to change: a batch may be a slice of huge buffers, or of memory that its
owner reuses for the next batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_io.levels.chunks import LeafChunk
    from lance_io.levels.path import LeafPath


@dataclass(frozen=True, slots=True, eq=False)
class ClosedPage:
    """Rows of one page, not encoded yet.

    column     index of the column in the file
    first_row  top-level row number of the first row
    """

    column: int
    first_row: int
    chunks: Sequence[LeafChunk]
    num_bytes: int


class ColumnQueue:
    """The open page of one leaf column.

    page_bytes      leaf data at which a page closes
    held_bytes_max  leaf data above which a page closes after `add`
    num_bytes       leaf data held
    """

    def __init__(self, column: int, path: LeafPath, page_bytes: int, held_bytes_max: int) -> None:
        self.column = column
        self.path = path
        self.num_bytes = 0
        self._page_bytes = page_bytes
        self._held_bytes_max = held_bytes_max
        self._rows_max = page_bytes  # limit for rows without leaf data, because levels need memory, too
        self._entries_max = _dictionary_entries_max(path.leaf_type)
        self._chunks: list[LeafChunk] = []
        self._num_rows = 0
        self._first_row = 0
        self._dictionary: pa.Array | None = None
        self._entries = 0

    def add(self, chunk: LeafChunk, *, held: bool = False) -> Iterator[ClosedPage]:
        """Append rows; yields the pages that they fill. Exhaust it: the remaining rows are queued at its end.

        held  whether the memory of these rows stays unchanged and alive anyway: they are not copied
        """
        while chunk.num_rows:
            num_bytes = chunk.num_bytes
            count = self._fitting(chunk, num_bytes)
            if count == chunk.num_rows and not self._is_full_with(chunk.num_rows, num_bytes):
                self._append(chunk if held else chunk.copy(), num_bytes)
                if self.num_bytes > self._held_bytes_max:
                    yield self._close()
                return
            if count:
                filling = chunk.slice(0, count)
                self._append(filling, filling.num_bytes)
                chunk = chunk.slice(count, chunk.num_rows - count)
            yield self._close()

    def flush(self) -> Iterator[ClosedPage]:
        """Close the page of the queued rows, if there are any."""
        if self._num_rows:
            yield self._close()

    def peek(self) -> Iterator[ClosedPage]:
        """The page of the queued rows, if there are any; the rows stay queued."""
        if self._num_rows:
            yield self._page()

    def _fitting(self, chunk: LeafChunk, num_bytes: int) -> int:
        """How many rows of a chunk of this size fit the open page."""
        if self._num_rows and self._entries_max and self._entries + self._new_entries(chunk) > self._entries_max:
            return 0
        room, rows = self._page_bytes - self.num_bytes, self._rows_max - self._num_rows
        if num_bytes <= room:
            return min(chunk.num_rows, rows)
        count = min(chunk.rows_within(room), rows)
        if count == 1 and self._num_rows and chunk.slice(0, 1).num_bytes > room:
            return 0
        return count

    def _is_full_with(self, num_rows: int, num_bytes: int) -> bool:
        return self.num_bytes + num_bytes >= self._page_bytes or self._num_rows + num_rows >= self._rows_max

    def _append(self, chunk: LeafChunk, num_bytes: int) -> None:
        if self._entries_max:
            self._entries += self._new_entries(chunk)
            self._dictionary = chunk.leaf.dictionary
        self._chunks.append(chunk)
        self._num_rows += chunk.num_rows
        self.num_bytes += num_bytes

    def _page(self) -> ClosedPage:
        return ClosedPage(self.column, self._first_row, self._chunks, self.num_bytes)

    def _close(self) -> ClosedPage:
        page = self._page()
        self._first_row += self._num_rows
        self._chunks, self._num_rows, self.num_bytes = [], 0, 0
        self._dictionary, self._entries = None, 0
        return page

    def _new_entries(self, chunk: LeafChunk) -> int:
        """Upper bound of the dictionary entries that these rows add to the page."""
        dictionary, known = chunk.leaf.dictionary, self._dictionary
        if known is None or not dictionary.slice(0, len(known)).equals(known):
            return len(dictionary)
        return len(dictionary) - len(known)  # it extends the previous dictionary


def _dictionary_entries_max(dtype: pa.DataType) -> int:
    """How many dictionary entries an index of this type can address; 0 if this is no narrow dictionary."""
    if not isinstance(dtype, pa.DictionaryType) or dtype.index_type.bit_width > 16:
        return 0
    is_signed = pa.types.is_signed_integer(dtype.index_type)
    entries: int = 1 << (dtype.index_type.bit_width - is_signed)
    return entries
