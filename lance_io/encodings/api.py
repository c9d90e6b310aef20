"""The interface of every page layout, independent of the file version.

    index_ranges()          byte ranges of the page's index, which locates rows (None: no index, or read per take)
    load_index(fetched)     the parsed index, with `nbytes`, for the search cache
    read(index, selection)  the selected rows; yields the data ranges, one round (two where it says so)
    scan()                  the whole page in one round, its index included, nothing cached
    describe()              a readable description of the page

Layouts address a page's buffers by absolute file offsets: they yield file ranges and hold no file handles.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from lance_io.records import dataclass

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_io._kernels import WholeArray
    from lance_io.encodings.cuts import PageCuts
    from lance_io.encodings.item_reads import ItemSelection
    from lance_io.spans import Fetched, IntArray, Ranges, Steps


@dataclass(slots=True, eq=False)
class RowSelection:
    """Rows of one page: ascending, disjoint ranges.

    starts  i64[n], page-relative
    ends    i64[n], or None when every range is one row
    """

    starts: IntArray
    ends: IntArray | None
    num_rows: int

    @classmethod
    def of_rows(cls, rows: IntArray) -> RowSelection:
        """Single rows, ascending, each once."""
        return cls(rows, None, len(rows))

    @classmethod
    def span(cls, start: int, end: int) -> RowSelection:
        """Rows `start` to `end` (exclusive)."""
        return cls(np.array([start], dtype=np.int64), np.array([end], dtype=np.int64), end - start)

    def scale(self, slots_per_row: int) -> RowSelection:
        """The page slots of these rows, where a row has several (fixed-size lists of structs)."""
        if slots_per_row == 1:
            return self
        ends = self.starts + 1 if self.ends is None else self.ends
        return RowSelection(self.starts * slots_per_row, ends * slots_per_row, self.num_rows * slots_per_row)


class PageIndex(Protocol):
    """Locates rows inside a page: chunk table, dictionary, repetition index."""

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes, as the search cache counts it."""
        ...


@dataclass(frozen=True, slots=True)
class NoIndex:
    """The index of a page without one: lets the search cache distinguish "no index" from "not loaded"."""

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return 64


@dataclass(frozen=True, slots=True)
class PageDescription:
    """A readable description of a page: `layout`, codec chain as text, sizes in bytes, details of the layout.

    levels  how repetition and definition levels are stored, by these two names; only those that the page has
    """

    layout: str
    codec: str
    num_rows: int
    num_bytes: int
    details: dict[str, str | int] = field(default_factory=dict)
    levels: dict[str, str] = field(default_factory=dict)


class PageLayout(Protocol):
    """One page. Methods that are `Steps` raise FormatError when the bytes contradict the format."""

    num_rows: int

    def index_ranges(self) -> Ranges | None:
        """Ranges of the page's index; None if it has none, or if it is so large that takes read single entries."""
        ...

    def load_index(self, fetched: Fetched) -> PageIndex:
        """Parse the index from the bytes of `index_ranges`."""
        ...

    def read(self, index: PageIndex | None, selection: RowSelection) -> Steps[pa.Array]:
        """The selected rows, nested as the column's path says. `NoIndex` means the same as None."""
        ...

    def scan(self) -> Steps[pa.Array]:
        """All rows, in one round."""
        ...

    def describe(self) -> PageDescription:
        """A readable description of the page."""
        ...


class ArrayLayout(ABC):
    """A page of file version 2.0. Its index is located while rows are first read.

    Callers recognise these pages by this base class, without importing the readers: these load with the first 2.0 file.

    join_key       equal for pages whose rows can be decoded into one array; None for pages that are decoded alone
    stride_bytes   bytes of a value whose file layout equals its memory layout, else 0
    shared_offset  file offset of bytes that pages of sibling leaves need, too: the ends of their lists
    reads_items    whether `find_index` and `read_items` work: list items are read without their lists
    whole          the page for the kernel that decodes whole pages together; None if it must be read by itself
    items_range    start and end of the file bytes that contain the whole page, if its text has a dictionary
    """

    num_rows: int
    join_key: str | None
    stride_bytes: int
    reads_items: bool = False
    whole: WholeArray | None
    shared_offset: int | None = None
    items_range: tuple[int, int] | None = None

    @abstractmethod
    def locate(self, index: Any) -> PageIndex:
        """An index that includes the page's position in the file."""

    @abstractmethod
    def read_indexed(self, selection: RowSelection, *, was_read: bool) -> Steps[tuple[pa.Array, PageIndex | None]]:
        """The selected rows, in as few rounds as possible, and the page's index.

        was_read  rows of the page were read before, so a large index pays off now; the index is None before that
        """

    def find_index(self, *, was_read: bool) -> Steps[PageIndex | None]:
        """The page's index, if reading it pays off; see `read_indexed`."""
        raise NotImplementedError

    def read_items(self, index: PageIndex | None, wanted: ItemSelection) -> Steps[pa.Array]:
        """See `item_reads.read_items`."""
        raise NotImplementedError

    @abstractmethod
    def decoded_bound(self, num_slots: int, data_bytes: int, *, usual: bool) -> int:
        """See `decoded_size.decoded_bound`; computed from the page's messages."""

    @abstractmethod
    def longest_item(self, data: memoryview) -> int:
        """Bytes of the longest item of its dictionary, which is in the bytes of `items_range`. Raises FormatError."""

    @abstractmethod
    def cut(self, start: int, end: int, piece_bytes: int, known: PageIndex | None) -> Steps[PageCuts | None]:
        """See `cuts.cut_page`."""
