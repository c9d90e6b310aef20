"""What every page layout offers, whatever its file version.

    index_ranges()          which bytes must be known before rows can be located (None: none, or read per take)
    load_index(fetched)     those bytes as a value with `nbytes`, for the search cache
    read(index, selection)  the selected rows; yields the data ranges, one round (two where it says so)
    scan()                  the whole page in one round, its index included, nothing cached
    describe()              what the page is made of, for people

A page's buffers are named by absolute file offsets, so layouts yield file ranges and know nothing of files.
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
    """What locates rows inside a page: chunk table, dictionary, repetition index."""

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes, as the search cache counts it."""
        ...


@dataclass(frozen=True, slots=True)
class NoIndex:
    """The index of a page that has none to be read: the search cache tells it from one that is missing."""

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return 64


@dataclass(frozen=True, slots=True)
class PageDescription:
    """A page for people: `layout`, codec chain as text, sizes in bytes, and what else its layout records.

    levels  how repetition and definition levels are stored, by these two names; those that the page has
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
        """Ranges of the page's index; None when it has none, or when it is so large that takes read it by entry."""
        ...

    def load_index(self, fetched: Fetched) -> PageIndex:
        """The index from the answer to `index_ranges`."""
        ...

    def read(self, index: PageIndex | None, selection: RowSelection) -> Steps[pa.Array]:
        """The selected rows, as an array nested as the path of the column says; a `NoIndex` is as good as None."""
        ...

    def scan(self) -> Steps[pa.Array]:
        """All rows, in one round."""
        ...

    def describe(self) -> PageDescription:
        """What the page is made of."""
        ...


class ArrayLayout(ABC):
    """A page of file version 2.0: its index is found on the way when rows are first read.

    Told by its class from pages of later versions, without what reads it, which loads when a file of 2.0 is opened.

    join_key      pages whose rows can be decoded into one array have the same; None for those decoded alone
    stride_bytes  bytes of a value that lies in the file as in memory, else 0
    shared_at     where in the file bytes lie that pages of sibling leaves need, too: the ends of their lists
    reads_items   whether it reads items of its lists without these: the methods for it are there
    whole         the page for the kernel that decodes all of it with others; None where it must be read by itself
    items_at      start and end of the bytes of the file that all of the page is in, where its text is in a dictionary
    """

    num_rows: int
    join_key: str | None
    stride_bytes: int
    reads_items: bool = False
    whole: WholeArray | None
    shared_at: int | None = None
    items_at: tuple[int, int] | None = None

    @abstractmethod
    def locate(self, index: Any) -> PageIndex:
        """An index that says where the page is, too."""

    @abstractmethod
    def read_indexed(self, selection: RowSelection, *, is_again: bool) -> Steps[tuple[pa.Array, PageIndex | None]]:
        """The selected rows, in no more rounds than they take, and the page's index.

        is_again  rows of it were read before: an index that takes many bytes is worth them now. It is None before that
        """

    def find_index(self, *, is_again: bool) -> Steps[PageIndex | None]:
        """The page's index, read if it is worth that; see `read_indexed`."""
        raise NotImplementedError

    def read_items(self, index: PageIndex | None, wanted: ItemSelection) -> Steps[pa.Array]:
        """As the function of this name (`item_reads.py`)."""
        raise NotImplementedError

    @abstractmethod
    def decoded_bound(self, num_slots: int, data_bytes: int, *, usual: bool) -> int:
        """As the function of this name (`decoded_size.py`) for this page, whose messages say it."""

    @abstractmethod
    def longest_item(self, data: memoryview) -> int:
        """Bytes of the longest item of its dictionary, which is in the bytes of `items_at`. Raises FormatError."""

    @abstractmethod
    def cut(self, start: int, end: int, piece_bytes: int, known: PageIndex | None) -> Steps[PageCuts | None]:
        """As `cut_page` for this page."""
