"""The columns that a projection reads from a file, and derived state that all takes of them share.

Pages are numbered over all columns here, in column order.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from dataclasses import field
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from lance_io._kernels import PageRows
from lance_io.encodings.api import ArrayLayout
from lance_io.encodings.decoded_size import decoded_bound
from lance_io.encodings.v2_1.fullzip import FullZipPage
from lance_io.file.open.column_pages import join_key_of
from lance_io.lazy_names import lazy_module
from lance_io.levels.chunks import LIST_KINDS
from lance_io.levels.row_bytes import fixed_bits
from lance_io.limits import KIB, MIB
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import pyarrow as pa

    from lance_io._kernels import Leaf
    from lance_io.encodings import item_reads
    from lance_io.encodings.api import PageLayout
    from lance_io.file.open.column_pages import Column
    from lance_io.file.open.leaf_projection import FileColumns
    from lance_io.format.version import FileVersion
    from lance_io.spans import IntArray
else:
    item_reads = lazy_module("lance_io.encodings.item_reads")  # few takes read items

PAGE_BYTES_USUAL: Final = 8 * MIB  # values per page at which writers (also pylance's) close a page,
ITEM_BYTES_USUAL: Final = 4 * KIB  # of the chunk that holds an item, during decoding
COLUMNS_USUAL: Final = 32  # unless a file has more columns than this


class TableFile(Protocol):
    """Interface of an opened file of any version.

    identity         store, key and size: key of cache entries about the file
    key, size_bytes  the object
    """

    identity: tuple[str, str, int]
    key: str
    size_bytes: int
    num_rows: int
    version: FileVersion

    @property
    def nbytes(self) -> int:
        """Approximate memory held, in bytes."""
        ...

    def missing(self, columns: list[int]) -> list[int]:
        """Those of these columns whose metadata has not been read."""
        ...

    def stored_bytes(self, columns: Sequence[int]) -> int | None:
        """Bytes of the pages of some columns; None if too little is known of them."""
        ...

    def view(self, file_columns: FileColumns, *, keep: bool = True) -> FileView:
        """The columns of a projection, cached if `keep`; raises FormatError and UnsupportedError."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class JoinablePages:
    """Pages of all columns; the pages of a column either all decode into one array or are all decoded alone.

    join_keys      `Column.join_key` per column; None for a column whose pages decode alone
    joined         per column: its number among the joined columns, None if its pages decode alone
    alone          positions of the columns whose pages decode alone
    builders       array builders of the joined columns
    stride_bytes   largest size of a value that is stored as in memory
    needs_located  whether joining some pages requires their index, which locates their values
    pages          numbers of the pages that have been checked
    """

    join_keys: list[str | None]
    joined: list[int | None]
    alone: list[int]
    builders: list[Callable[[Leaf], pa.Array]]
    stride_bytes: int
    needs_located: bool
    pages: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, heads: Sequence[Any]) -> JoinablePages:
        """Derive the state from the first page of each column."""
        join_keys = [join_key_of(page) for page in heads]
        count = itertools.count()
        joined = [None if key is None else next(count) for key in join_keys]
        builders = [page.build for page, key in zip(heads, join_keys, strict=True) if key is not None]
        are_arrays = bool(heads) and is_array(heads[0])  # then all pages of the file are
        placed = [page for page, key in zip(heads, join_keys, strict=True) if key is not None]
        strides = [page.stride_bytes for page in placed if are_arrays or type(page) is FullZipPage]
        alone = [at for at, key in enumerate(join_keys) if key is None]
        return cls(join_keys, joined, alone, builders, max(strides, default=0), are_arrays)


def is_array(page: Any) -> bool:
    """Whether a page is of version 2.0; its index is built when it is first read."""
    return isinstance(page, ArrayLayout)


def stride_of(page: Any) -> int:
    """Bytes per value of a page with a `join_key` whose values are stored as in memory; 0 for other pages."""
    is_placed = type(page) is FullZipPage or is_array(page)
    return page.stride_bytes if is_placed and page.join_key is not None else 0


def _row_bytes(column: Column, num_columns: int) -> float:
    """Approximate memory of a row of a column, in bytes.

    Writers close a page at a fixed number of uncompressed bytes. So any page but the last gives the size of values,
    unless its stored size is larger, or its layout bounds it more tightly: writers close pages of lists earlier. For a
    single page, the estimate is the decoded size that its layout implies, or its stored size.

    num_columns  columns of the file: pages are smaller if there are many
    """
    nodes = column.path.nodes
    has_lists = len(nodes) > 1 and any([node.kind in LIST_KINDS for node in nodes])
    bits = None if has_lists else fixed_bits(column.path.leaf_type)
    if bits is not None:
        return column.path.slots_per_row * bits / 8
    num_pages, row_starts = len(column.pages), column.row_starts
    if not num_pages:
        return 0.0
    stored_bytes = column.pages.num_bytes(0)
    if num_pages > 1:
        closed_at = PAGE_BYTES_USUAL * min(1.0, COLUMNS_USUAL / num_columns)
        usual = closed_at * (num_pages - 1) / max(1, int(row_starts[-2]))
        num_rows = max(1, int(row_starts[1]))
        bound = decoded_bound(column.pages[0], num_rows * column.path.slots_per_row, stored_bytes)
        return max(usual if bound is None else min(usual, bound / num_rows), stored_bytes / num_rows)
    num_rows = int(row_starts[-1])
    num_bytes = decoded_bound(column.pages[0], num_rows * column.path.slots_per_row, stored_bytes, usual=True)
    return (stored_bytes if num_bytes is None else num_bytes) / max(1, num_rows)


class FileView:
    """Columns of a file, checked to have the types that the table declares.

    file_columns  the file and the leaves to read
    columns       its columns
    """

    def __init__(self, file_columns: FileColumns, columns: list[Column]) -> None:
        self.file_columns = file_columns
        self.columns = columns
        self._joinable: JoinablePages | None = None

    @cached_property
    def row_bytes(self) -> float:
        """Approximate memory of a row of the columns, in bytes: from types of fixed size, otherwise from pages."""
        fixed = self.file_columns.leaf_columns.fixed_row_bytes
        if fixed is not None:
            return fixed
        return sum([_row_bytes(column, len(self.file_columns.ref.columns)) for column in self.columns])

    def row_bytes_of(self, items: Collection[int]) -> float:
        """As `row_bytes`, if a take wants only list items of the leaves `items`: one chunk each, if pages allow it."""
        total = 0.0
        for leaf_id, column in zip(self.file_columns.leaf_ids, self.columns, strict=True):
            is_small = leaf_id in items and all([item_reads.reads_items(page) for page in column.pages[:1]])
            total += ITEM_BYTES_USUAL if is_small else _row_bytes(column, len(self.file_columns.ref.columns))
        return total

    @cached_property
    def keys(self) -> list[tuple[Any, ...]]:
        """Search-cache keys of the indexes of all pages."""
        return [key for column in self.columns for key in column.keys]

    @cached_property
    def _row_starts(self) -> tuple[IntArray, list[int]]:
        """Concatenated `Column.row_starts` of all columns, and the end of each column's part."""
        parts = [column.row_starts for column in self.columns]
        return np.concatenate(parts), list(accumulate(map(len, parts)))

    def split(self, rows: IntArray) -> PageRows:
        """Group ascending rows of the file by column and page."""
        return PageRows(rows, *self._row_starts)

    def joinable(self, pages: Sequence[int]) -> JoinablePages | None:
        """The join state of ascending page numbers. None if pages of a column differ, or a column has no such page."""
        known = self._joinable
        if known is not None and known.pages.issuperset(pages):  # fast path: without looking at pages
            return known
        by_column = self._by_column(pages)
        if not all(by_column):
            return None
        joinable = known if known is not None else JoinablePages.of([column_pages[0] for column_pages in by_column])
        num_seen = int(known is None)  # pages of each column that the join state covers already
        for column_pages, key in zip(by_column, joinable.join_keys, strict=True):
            if len(column_pages) > num_seen and any([join_key_of(page) != key for page in column_pages]):
                return None
        if known is None:  # if two threads race, one of the two is kept
            self._joinable = joinable
        joinable.pages.update(pages)
        return joinable

    def _by_column(self, pages: Sequence[int]) -> list[list[PageLayout]]:
        by_column: list[list[PageLayout]] = [[] for _ in self.columns]
        starts, at = [*self._page_starts, pages[-1] + 1] if pages else [], 0
        for number in pages:
            while number >= starts[at + 1]:
                at += 1
            by_column[at].append(self.columns[at].pages[number - starts[at]])
        return by_column

    def page(self, number: int) -> tuple[Column, int]:
        """A page's column, and its number in the column."""
        at = bisect_right(self._page_starts, number) - 1
        return self.columns[at], number - self._page_starts[at]

    @cached_property
    def _page_starts(self) -> list[int]:
        """Number of pages before each column."""
        return list(accumulate([len(column.keys) for column in self.columns[:-1]], initial=0))
