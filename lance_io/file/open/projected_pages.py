"""The columns that a projection reads of a file, and what follows from that for every take of them.

Pages are numbered over all columns here, those of one column behind those of the one before.
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
from lance_io.encodings.item_reads import reads_items
from lance_io.encodings.v2_1.fullzip import FullZipPage
from lance_io.file.open.column_pages import join_key_of
from lance_io.levels.chunks import LIST_KINDS
from lance_io.levels.row_bytes import fixed_bits
from lance_io.limits import KIB, MIB
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import pyarrow as pa

    from lance_io._kernels import Leaf
    from lance_io.encodings.api import PageLayout
    from lance_io.file.open.column_pages import Column
    from lance_io.file.open.leaf_projection import FileColumns
    from lance_io.format.version import FileVersion
    from lance_io.spans import IntArray


PAGE_BYTES_USUAL: Final = 8 * MIB  # of values, at which writers close a page, pylance's as well,
ITEM_BYTES_USUAL: Final = 4 * KIB  # of a chunk that holds an item, while that is decoded
COLUMNS_USUAL: Final = 32  # unless there are more columns than this


class TableFile(Protocol):
    """What an opened file of any version offers to whoever reads columns of a table in it.

    identity         store, key and size: what cache entries about the file are known by
    key, size_bytes  the object
    """

    identity: tuple[str, str, int]
    key: str
    size_bytes: int
    num_rows: int
    version: FileVersion

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes, about."""
        ...

    def missing(self, columns: list[int]) -> list[int]:
        """Which of these columns' metadata has not been read."""
        ...

    def view(self, here: FileColumns, *, keep: bool = True) -> FileView:
        """The columns of a projection, remembered if `keep` says so; raises FormatError and UnsupportedError."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class AlikePages:
    """Pages of all columns, of which those of a column make one array with each other or are all read by themselves.

    join_keys     `Column.join_key` of each column's; None for those that are read by themselves
    joined        numbers of the columns among those whose pages make one array; None for the others
    alone         places of the others
    builders      what makes the arrays of the columns whose pages do, from leaves
    stride_bytes  most bytes that a value takes which lies in the file as in memory
    needs_located  whether some can only be decoded with others when their index says where they are
    pages         numbers of the pages that were looked at
    """

    join_keys: list[str | None]
    joined: list[int | None]
    alone: list[int]
    builders: list[Callable[[Leaf], pa.Array]]
    stride_bytes: int
    needs_located: bool
    pages: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, heads: Sequence[Any]) -> AlikePages:
        """What follows from the first page of each column."""
        join_keys = [join_key_of(page) for page in heads]
        count = itertools.count()
        joined = [None if key is None else next(count) for key in join_keys]
        builders = [page.build for page, key in zip(heads, join_keys, strict=True) if key is not None]
        are_arrays = bool(heads) and is_array(heads[0])  # all of a file are
        placed = [page for page, key in zip(heads, join_keys, strict=True) if key is not None]
        strides = [page.stride_bytes for page in placed if are_arrays or type(page) is FullZipPage]
        alone = [at for at, key in enumerate(join_keys) if key is None]
        return cls(join_keys, joined, alone, builders, max(strides, default=0), are_arrays)


def is_array(page: Any) -> bool:
    """Whether it is a page of version 2.0, whose index is found when it is first read."""
    return isinstance(page, ArrayLayout)


def stride_of(page: Any) -> int:
    """Bytes of a value of a page with a `join_key` that lies in the file as in memory; 0 for others."""
    is_placed = type(page) is FullZipPage or is_array(page)
    return page.stride_bytes if is_placed and page.join_key is not None else 0


def _row_bytes(column: Column, num_columns: int) -> float:
    """What a row of a column takes in memory, about.

    Writers close a page when its values take so many bytes, whatever they are compressed to; so a page that is not the
    last one tells how large values are, unless it is larger as it is stored. Of a single page there is what it says of
    itself, and how it is stored where it does not.

    num_columns  of the file: with many their pages are smaller
    """
    bits = None if any(node.kind in LIST_KINDS for node in column.path.nodes) else fixed_bits(column.path.leaf_type)
    if bits is not None:
        return column.path.slots_per_row * bits / 8
    num_pages, row_starts = len(column.pages), column.row_starts
    if not num_pages:
        return 0.0
    stored_bytes = column.pages.num_bytes(0)
    if num_pages > 1:
        closed_at = PAGE_BYTES_USUAL * min(1.0, COLUMNS_USUAL / num_columns)
        usual = closed_at * (num_pages - 1) / max(1, int(row_starts[-2]))
        return max(usual, stored_bytes / max(1, int(row_starts[1])))
    num_rows = int(row_starts[-1])
    num_bytes = decoded_bound(column.pages[0], num_rows * column.path.slots_per_row, stored_bytes, usual=True)
    return (stored_bytes if num_bytes is None else num_bytes) / max(1, num_rows)


class FileView:
    """Columns of a file, checked to have the types that the table declares.

    here     what is read
    columns  its columns
    """

    def __init__(self, here: FileColumns, columns: list[Column]) -> None:
        self.here = here
        self.columns = columns
        self._alike: AlikePages | None = None

    @cached_property
    def row_bytes(self) -> float:
        """What a row of the columns takes in memory, about: by types where these say, and by pages."""
        fixed = self.here.of_leaves.fixed_row_bytes
        if fixed is not None:
            return fixed
        return sum([_row_bytes(column, len(self.here.ref.columns)) for column in self.columns])

    def row_bytes_of(self, items: Collection[int]) -> float:
        """The same where only items of the lists of some leaves are wanted: a chunk each, where pages are read so."""
        total = 0.0
        for leaf_id, column in zip(self.here.leaf_ids, self.columns, strict=True):
            is_small = leaf_id in items and all([reads_items(page) for page in column.pages[:1]])
            total += ITEM_BYTES_USUAL if is_small else _row_bytes(column, len(self.here.ref.columns))
        return total

    @cached_property
    def keys(self) -> list[tuple[Any, ...]]:
        """Search-cache keys of the indexes of all pages."""
        return [key for column in self.columns for key in column.keys]

    @cached_property
    def _row_starts(self) -> tuple[IntArray, list[int]]:
        """`Column.row_starts` of all columns one after the other, and where each column's part ends."""
        parts = [column.row_starts for column in self.columns]
        return np.concatenate(parts), list(accumulate(map(len, parts)))

    def split(self, rows: IntArray) -> PageRows:
        """Ascending rows of the file by column and page."""
        return PageRows(rows, *self._row_starts)

    def alike(self, pages: Sequence[int]) -> AlikePages | None:
        """What is known of these pages, some of each column, ascending; None where those of a column differ."""
        found = self._alike
        if found is not None and found.pages.issuperset(pages):  # the usual case, without looking at pages
            return found
        by_column = self._by_column(pages)
        if not all(by_column):
            return None
        first = found if found is not None else AlikePages.of([of_column[0] for of_column in by_column])
        num_seen = int(found is None)  # of each column
        for of_column, key in zip(by_column, first.join_keys, strict=True):
            if len(of_column) > num_seen and any([join_key_of(page) != key for page in of_column]):
                return None
        if found is None:  # of two threads that come first, one is remembered
            self._alike = first
        first.pages.update(pages)
        return first

    def _by_column(self, pages: Sequence[int]) -> list[list[PageLayout]]:
        found: list[list[PageLayout]] = [[] for _ in self.columns]
        starts, at = [*self._page_starts, pages[-1] + 1] if pages else [], 0
        for number in pages:
            while number >= starts[at + 1]:
                at += 1
            found[at].append(self.columns[at].pages[number - starts[at]])
        return found

    def page(self, number: int) -> tuple[Column, int]:
        """A page's column, and its number there."""
        at, place = self._place(number)
        return self.columns[at], place

    def _place(self, number: int) -> tuple[int, int]:
        at = bisect_right(self._page_starts, number) - 1
        return at, number - self._page_starts[at]

    @cached_property
    def _page_starts(self) -> list[int]:
        """Pages before each column."""
        return list(accumulate([len(column.keys) for column in self.columns[:-1]], initial=0))
