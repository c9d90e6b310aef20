"""Rows that wait for their page: one queue per leaf column.

A page closes at the row with which its leaf data reaches the budget, so a page is as large as the budget allows and a
row that is larger by itself stays whole. What a queue keeps is copied out of the memory it came in, unless it is known
to stay as it is: a batch may be a slice of something huge, or memory that its owner fills again for the next one.
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
    """Rows that will be one page.

    column     index of the column in the file
    first_row  top-level row number of the first
    """

    column: int
    first_row: int
    chunks: Sequence[LeafChunk]
    num_bytes: int


class ColumnQueue:
    """The open page of one leaf column.

    page_bytes      leaf data at which a page closes
    held_bytes_max  leaf data above which a page closes when all rows that were given have been queued
    num_bytes       leaf data that is held
    """

    def __init__(self, column: int, path: LeafPath, page_bytes: int, held_bytes_max: int) -> None:
        self.column = column
        self.path = path
        self.num_bytes = 0
        self._page_bytes = page_bytes
        self._held_bytes_max = held_bytes_max
        self._rows_max = page_bytes  # where rows have no leaf data at all: levels need memory, too
        self._entries_max = _dictionary_entries_max(path.leaf_type)
        self._chunks: list[LeafChunk] = []
        self._num_rows = 0
        self._first_row = 0
        self._dictionary: pa.Array | None = None
        self._entries = 0

    def add(self, chunk: LeafChunk, *, held: bool = False) -> Iterator[ClosedPage]:
        """Append rows; the pages that they fill, one by one. Exhaust it: what is left over is kept at the end.

        held  the memory of these rows stays as it is, and keeping it costs nothing: they need no copy
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
        """The page of the rows that are left, if any are."""
        if self._num_rows:
            yield self._close()

    def peek(self) -> Iterator[ClosedPage]:
        """The page that these rows would be, if any are there; they go on waiting."""
        if self._num_rows:
            yield self._page()

    def _fitting(self, chunk: LeafChunk, num_bytes: int) -> int:
        """How many rows of a chunk of this size still belong to the open page; none when they begin another."""
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
        """By how much the dictionary of the page may grow with these rows."""
        dictionary, known = chunk.leaf.dictionary, self._dictionary
        if known is None or not dictionary.slice(0, len(known)).equals(known):
            return len(dictionary)
        return len(dictionary) - len(known)  # which goes on where the last one ended


def _dictionary_entries_max(dtype: pa.DataType) -> int:
    """How many dictionary entries an index of this type can name; 0 when it is no narrow dictionary."""
    if not isinstance(dtype, pa.DictionaryType) or dtype.index_type.bit_width > 16:
        return 0
    is_signed = pa.types.is_signed_integer(dtype.index_type)
    entries: int = 1 << (dtype.index_type.bit_width - is_signed)
    return entries
