"""An opened data file: its schema, and its columns with the layouts of their pages.

Columns are parsed when they are first asked for, from metadata that was read at opening (or, in very wide files, for
the projection only): the lengths of their pages at once, the layout of a page when it is first touched.
Specification: file container, sections 2.2 and 3.
"""

from __future__ import annotations

from dataclasses import field
from functools import cached_property, partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lance_io.encodings.registry import open_page
from lance_io.encodings.v2_1.fullzip import FullZipPage
from lance_io.encodings.v2_1.miniblock import MiniBlockPage
from lance_io.errors import FormatError
from lance_io.format.columns import decode_column
from lance_io.format.lazy import LazySequence
from lance_io.format.places import REFUSALS, placed
from lance_io.levels.path import LeafPath, leaf_paths
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lance_io.encodings.api import PageLayout
    from lance_io.file.projection import FileColumns
    from lance_io.format.columns import ColumnInfo
    from lance_io.format.footer import Footer, OffsetTable
    from lance_io.format.globals import FileDescriptor
    from lance_io.format.version import FileVersion
    from lance_io.spans import IntArray

    Layouts = dict[tuple[Any, ...], MiniBlockPage]

VIEWS_MAX: Final = 8  # projections of one file that are remembered
SHARED_LAYOUTS_MAX: Final = 64  # page layouts that are remembered for files of the same schema
SHARED_LAYOUT_BYTES_MAX: Final = 1024  # a longer message has a symbol table, which no other page has


@dataclass(frozen=True, slots=True, eq=False)
class FileSchema:
    """What all files with the same descriptor share.

    descriptor  the file's own schema and its number of rows
    paths       the ways to its leaf columns
    skeletons   `LeafPath.skeleton` of each
    layouts     mini-block pages by what their layout depends on: pages of a writer differ in little but their place
    """

    descriptor: FileDescriptor
    paths: tuple[LeafPath, ...]
    skeletons: tuple[pa.DataType, ...]
    layouts: Layouts = field(default_factory=dict)

    @classmethod
    def of(cls, descriptor: FileDescriptor) -> FileSchema:
        """The leaves of a descriptor's schema."""
        paths = tuple(path for top in descriptor.schema.fields for path in leaf_paths(top))
        return cls(descriptor, paths, tuple(path.skeleton for path in paths))


@dataclass(slots=True, eq=False)
class Column:
    """One column of an opened file.

    row_starts  i64[pages + 1], table rows before each page
    pages       layouts, in row order, each made when it is first asked for: that raises FormatError and
                UnsupportedError, which name column and page
    info        what the metadata says about each page
    keys        search-cache key of each page's index
    skeleton    leaf type and nesting, without names
    accepted    the type that the table was last found to declare for this column, as the file has it
    """

    index: int
    path: LeafPath
    row_starts: IntArray
    pages: Sequence[PageLayout]
    info: ColumnInfo
    keys: list[tuple[Any, ...]]
    skeleton: pa.DataType
    accepted: pa.DataType | None = None
    _alike: tuple[str, set[int]] | None = None  # a join key, and numbers of pages that have it

    def join_key(self, numbers: Sequence[int]) -> str | None:
        """What these pages have in common with all pages whose rows can be decoded into one array with theirs.

        Rows of pages, be they of several files, whose keys are equal make one array. None for pages that are decoded
        one by one, and for no pages.
        """
        alike = self._alike
        if alike is not None and alike[1].issuperset(numbers):  # the usual case, without looking at pages
            return alike[0] if numbers else None
        found = {_join_key(self.pages[number]) for number in numbers}
        key = found.pop() if len(found) == 1 else None
        if key is not None:
            if alike is None:
                alike = self._alike = key, set()  # of two threads that come first, one is remembered
            if alike[0] == key:
                alike[1].update(numbers)
        return key

    @property
    def where(self) -> str:
        """The column for messages."""
        return _where(self.index, self.path)


@dataclass(frozen=True, eq=False)
class FileView:
    """The columns that a projection reads of a file, checked to have the types that the table declares.

    here      what is read
    columns   its columns
    keys      search-cache keys of the pages' indexes when every column has exactly one page, else None
    """

    here: FileColumns
    columns: list[Column]
    keys: list[tuple[Any, ...]] | None

    @cached_property
    def join_keys(self) -> list[str | None]:
        """`Column.join_key` of each column's first page."""
        return [column.join_key((0,)) for column in self.columns]

    @cached_property
    def row_starts(self) -> tuple[IntArray, list[int]]:
        """`Column.row_starts` of all columns one after the other, and where each column's part ends."""
        parts = [column.row_starts for column in self.columns]
        return np.concatenate(parts), list(accumulate(map(len, parts)))


class OpenedFile:
    """A data file whose metadata has been read.

    identity         store, key and size: what cache entries about the file are known by
    key, size_bytes  the object
    footer           sections and version
    schema           the file's own schema, its number of rows and its leaves
    column_table     where the metadata of each column is
    blocks           metadata messages by column, as far as they were read
    global_buffers   where the global buffers are
    """

    def __init__(
        self,
        identity: tuple[str, str, int],
        footer: Footer,
        schema: FileSchema,
        column_table: OffsetTable,
        global_buffers: OffsetTable,
        blocks: dict[int, bytes],
    ) -> None:
        self.identity = identity
        self.key = identity[1]
        self.size_bytes = footer.file_bytes
        self.footer = footer
        self.version = footer.version
        self.descriptor = schema.descriptor
        self.num_rows = schema.descriptor.num_rows
        self.column_table = column_table
        self.global_buffers = global_buffers
        self.blocks = blocks
        self.paths = schema.paths
        self._schema = schema
        self._columns: dict[int, Column] = {}
        self._others: dict[int, Column] = {}  # those of which a table declares other members, as it last did
        self._views: dict[int, FileView] = {}  # by identity of `here`, which they keep
        if footer.num_columns != len(self.paths):
            raise FormatError(
                f"{footer.num_columns} columns in a file whose schema has {len(self.paths)} leaf columns", path=self.key
            )

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes, about: messages, and what parsing makes of them."""
        return 4096 + 4 * sum(map(len, self.blocks.values())) + 1024 * len(self.paths)

    def missing(self, columns: list[int]) -> list[int]:
        """Which of these columns' metadata has not been read."""
        return [column for column in columns if column not in self.blocks]

    def column(self, index: int) -> Column:
        """The column, parsed on first use. Raises FormatError and UnsupportedError that name column and page."""
        column = self._columns.get(index)
        if column is None:
            try:
                column = self._columns[index] = self._parse(index)
            except REFUSALS as error:
                error.path = self.key
                raise
        return column

    def view(self, here: FileColumns) -> FileView:
        """The columns of a projection; raises as `column`, and FormatError for types other than the table's."""
        view = self._views.get(id(here))
        if view is None:
            wanted = zip(here.columns, here.paths, here.types, strict=True)
            columns = [self._declared(index, path, dtype) for index, path, dtype in wanted]
            is_single = all(len(column.keys) == 1 for column in columns)
            view = FileView(here, columns, [column.keys[0] for column in columns] if is_single else None)
            if len(self._views) >= VIEWS_MAX:
                self._views.clear()
            self._views[id(here)] = view
        return view

    def _declared(self, index: int, declared: LeafPath, dtype: pa.DataType) -> Column:
        """The column as a table declares it, whose `LeafPath.skeleton` is `dtype`; FormatError for another type."""
        column = self.column(index)
        if dtype is column.accepted:  # the usual case, without comparing
            return column
        is_same = dtype == column.skeleton and not declared.leaf.is_packed  # members of packed structs have ids, too
        path = column.path if is_same else column.path.as_declared(declared)
        if path is None:
            raise FormatError(f"{column.skeleton} in the file, {dtype} in the table", path=self.key, where=column.where)
        if path is column.path:
            column.accepted = dtype
            return column
        other = self._others.get(index)
        if other is None or other.path != path:
            other = self._others[index] = self._opened(column, path)
        return other

    def _opened(self, column: Column, path: LeafPath) -> Column:
        """A column whose pages are read as of another path."""
        info = column.info
        # These layouts are not shared: the ones that are know the path of the file's own schema.
        pages = LazySequence(len(info.pages), partial(_open_page, self.key, self.version, info, path, None))
        return Column(column.index, path, column.row_starts, pages, info, column.keys, path.skeleton)

    def _parse(self, index: int) -> Column:
        if not 0 <= index < len(self.paths):
            raise FormatError(f"the manifest names column {index}; the file has {len(self.paths)}")
        info = decode_column(self.blocks[index], index, self.footer, self.key)
        path = self.paths[index]
        pages = LazySequence(
            len(info.pages), partial(_open_page, self.key, self.version, info, path, self._schema.layouts)
        )
        keys = [(self.identity, index, number) for number in range(len(pages))]
        column = Column(index, path, info.row_starts, pages, info, keys, self._schema.skeletons[index])
        slots = path.slots_per_row
        if slots > 1:
            column.row_starts = _rows_of_slots(column, slots)
        if info.num_rows != self.num_rows * slots:
            found = info.num_rows // slots
            raise FormatError(f"{found} rows in its pages; the file has {self.num_rows}", where=column.where)
        return column


def _rows_of_slots(column: Column, slots: int) -> IntArray:
    starts = column.row_starts
    uneven = np.flatnonzero(starts % slots)
    if len(uneven):
        number = int(uneven[0]) - 1
        num_slots = int(starts[number + 1] - starts[number])
        raise FormatError(f"{num_slots} slots for lists of {slots}", where=f"{column.where}, page {number}")
    return starts // slots


def _open_page(
    key: str, version: FileVersion, info: ColumnInfo, path: LeafPath, layouts: Layouts | None, number: int
) -> PageLayout:
    page = info.pages[number]
    if page.priority and page.priority * path.slots_per_row != info.row_starts[number]:
        first_row = int(info.row_starts[number]) // path.slots_per_row
        where = f"{_where(info.index, path)}, page {number}"
        raise FormatError(
            f"first row {page.priority} noted, but {first_row} rows in the pages before it", path=key, where=where
        )
    depends_on = (version.minor, info.index, page.num_rows, len(page.buffer_sizes), page.encoding)
    known = None if layouts is None else layouts.get(depends_on)
    if known is not None:
        return known.elsewhere(page.buffer_offsets, page.buffer_sizes)
    try:
        layout = open_page(version, page, path)
    except REFUSALS as error:
        raise placed(error, f"{_where(info.index, path)}, page {number}", key) from error.__cause__
    if layouts is not None and isinstance(layout, MiniBlockPage) and len(page.encoding) <= SHARED_LAYOUT_BYTES_MAX:
        if len(layouts) < SHARED_LAYOUTS_MAX:
            layouts[depends_on] = layout
    return layout


def _join_key(page: PageLayout) -> str | None:
    return page.join_key if isinstance(page, (MiniBlockPage, FullZipPage)) else None


def _where(index: int, path: LeafPath) -> str:
    return f'column {index} ("{path.name}")'
