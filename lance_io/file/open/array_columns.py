"""Columns of a file of version 2.0 (spec: encodings 2.0, section 2).

Every field has a column there: a struct has a header without values, a list has the end offset of each list. Reading a
leaf below lists reads all of their columns, so its `Column` has the rows and pages of the outermost list.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lance_io.encodings.v2_0.array_page import SHARED_MESSAGE_BYTES_MAX, ArrayPage, ArraySource, HeaderPage
from lance_io.encodings.v2_0.list_page import Items, ListPage
from lance_io.errors import FormatError
from lance_io.format.columns import LazyItems
from lance_io.format.error_context import FILE_ERRORS, add_location, add_page_locations
from lance_io.format.schema import Field
from lance_io.levels.path import LeafPath, NodeKind, PathNode, column_paths
from lance_io.limits import VALUE_BYTES_MAX
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.format.columns import ColumnInfo, PageInfo
    from lance_io.format.error_context import FileErrorT
    from lance_io.format.schema import Schema
    from lance_io.spans import IntArray

SHARED_PAGES_MAX: Final = 256
_BYTES: Final = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


class ArrayPages(LazyItems[Any]):
    """Layouts of the pages of a column in row order, created on first use.

    Plain objects without closures: a table of many files has one per column of each file, and the garbage collector
    traverses every object that refers to others.
    """

    __slots__ = ("_columns", "_index", "_info", "_path")

    def __init__(self, columns: ArrayColumns, index: int, info: ColumnInfo, path: LeafPath) -> None:
        super().__init__(len(info.pages))
        self._columns = columns
        self._index = index
        self._info = info
        self._path = path

    @abstractmethod
    def _make_page(self, number: int) -> Any:
        """The page; errors do not name its location."""

    def _make_item(self, number: int) -> Any:
        try:
            return self._make_page(number)
        except FILE_ERRORS as error:
            raise self._columns.with_location(error, self._index, number) from error.__cause__

    def _source(self, number: int) -> ArraySource:
        info = self._info
        column_buffers = tuple(zip(info.buffer_offsets, info.buffer_sizes, strict=True))
        return ArraySource.of(info.pages[number], column_buffers)

    @property
    def only_pages(self) -> list[tuple[int, PageInfo]] | None:
        """The columns that rows are read from, lists first, each with its only page; None if one has several pages."""
        pages = self._info.pages
        return [(self._index, pages[0])] if len(pages) == 1 and not self._info.buffer_offsets else None

    @property
    def headers(self) -> list[tuple[int, bytes]]:
        """The header columns of structs above the leaf, with the messages of their pages."""
        return self._columns.headers_above(self._index)

    def num_bytes(self, number: int) -> int:
        """Approximate bytes that a page occupies in the file, including the items of its lists."""
        num_bytes: int = self[number].num_bytes
        return num_bytes


class _HeaderPages(ArrayPages):
    """Pages of the header column of structs."""

    __slots__ = ()

    def _make_page(self, number: int) -> HeaderPage:
        return HeaderPage(self._source(number))


class _LeafPages(ArrayPages):
    """Pages of a column of values. above: number of path nodes that other columns hold."""

    __slots__ = ("_above",)

    def __init__(self, columns: ArrayColumns, index: int, info: ColumnInfo, path: LeafPath, above: int) -> None:
        super().__init__(columns, index, info, path)
        self._above = above

    def _make_page(self, number: int) -> ArrayPage:
        info = self._info.pages[number]
        if self._above or self._info.buffer_offsets or len(info.encoding) > SHARED_MESSAGE_BYTES_MAX:
            return ArrayPage(self._source(number), self._path, self._above)
        shared_pages = self._columns.shared_pages
        key = self._index, id(self._path), info.type_name, info.encoding, info.num_rows, info.buffer_sizes
        known = shared_pages.get(key)
        if known is not None:
            return known.relocated(info) or ArrayPage(self._source(number), self._path, self._above)
        page = ArrayPage(self._source(number), self._path, self._above)
        if len(shared_pages) >= SHARED_PAGES_MAX:
            shared_pages.clear()
        shared_pages[key] = page  # keeps the path alive, so no other path gets its identity
        return page


class _ListPages(ArrayPages):
    """Pages of a column of list ends.

    depth    depth of the lists in the path
    above    number of path nodes that other columns hold
    content  items of the lists; None if the pages are only described
    """

    __slots__ = ("_above", "_content", "_depth", "_first_items", "_sources")

    def __init__(
        self,
        columns: ArrayColumns,
        index: int,
        info: ColumnInfo,
        path: LeafPath,
        depth: int,
        above: int,
        content: Items | None,
    ) -> None:
        super().__init__(columns, index, info, path)
        self._depth = depth
        self._above = above
        self._content = content
        self._sources: list[ArraySource] = []
        self._first_items: list[int] = []

    @property
    def only_pages(self) -> list[tuple[int, PageInfo]] | None:
        """See `ArrayPages`."""
        own, below = super().only_pages, self._below
        pages_below = None if own is None or below is None else below.only_pages
        return None if own is None or pages_below is None else own + pages_below

    @property
    def headers(self) -> list[tuple[int, bytes]]:
        """See `ArrayPages`."""
        return super().headers if self._below is None else self._below.headers

    @property
    def _below(self) -> ArrayPages | None:
        pages = None if self._content is None else self._content.pages
        return pages if isinstance(pages, ArrayPages) else None

    def _make_item(self, number: int) -> Any:
        self._count_items()
        return super()._make_item(number)

    def _make_page(self, number: int) -> ListPage:
        source = self._sources[number]
        if source.message.WhichOneof("array_encoding") != "list":
            raise FormatError(f"lists stored as {source.message.WhichOneof('array_encoding')!r}")
        return ListPage(source, self._path, self._depth, self._above, self._first_items[number], self._content)

    def _count_items(self) -> None:
        """Count the items before each page, once for all pages."""
        if self._first_items:
            return
        sources = []
        for number in range(len(self)):
            try:
                sources.append(self._source(number))
            except FILE_ERRORS as error:
                raise self._columns.with_location(error, self._index, number) from error.__cause__
        first_items = list(accumulate((source.message.list.num_items for source in sources), initial=0))
        content = self._content
        if content is not None and first_items[-1] != content.num_items:
            text = f"{first_items[-1]} items in all pages; {content.where} has {content.num_items}"
            raise self._columns.with_all_pages(FormatError(text), self._index, len(self))
        self._sources, self._first_items = sources, first_items


@dataclass(frozen=True, slots=True, eq=False)
class ColumnTree:
    """The hierarchy of a file's columns.

    paths         paths of all columns, in order; those of headers and lists end at their field
    lists         per column: the columns of the lists above it, outermost first
    headers       per column: the header columns of the structs above it
    shared_pages  cached pages of files with this tree, by everything but their location: most pages differ only there
    """

    paths: tuple[LeafPath, ...]
    lists: tuple[tuple[int, ...], ...]
    headers: tuple[tuple[int, ...], ...]
    shared_pages: dict[tuple[Any, ...], ArrayPage] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, schema: Schema, value_bytes_max: int = VALUE_BYTES_MAX) -> ColumnTree:
        """The tree of a file with this schema, as writers number columns. A value may decode to `value_bytes_max`."""
        return cls._of([path.allowing(value_bytes_max) for top in schema.fields for path in column_paths(top)])

    @classmethod
    def _of(cls, paths: list[LeafPath]) -> ColumnTree:
        above: list[int] = []
        lists, headers = [], []
        for index, path in enumerate(paths):
            del above[len(path.nodes) - 1 :]
            structs = [column for column in above if paths[column].nodes[-1].kind is NodeKind.STRUCT]
            headers.append(tuple(structs))
            lists.append(tuple(column for column in above if column not in structs))
            above.append(index)
        return cls(tuple(paths), tuple(lists), tuple(headers))

    def with_byte_lists(self, num_columns: int, is_list: Callable[[int], bool]) -> ColumnTree:
        """The same tree with strings as lists of bytes in two columns, as very old writers stored them.

        num_columns  number of columns of the file
        is_list      whether the pages of a column hold list ends
        """
        paths: list[LeafPath] = []
        for path in self.paths:
            column = len(paths)
            paths.append(path)
            is_leaf = path.nodes[-1].kind is NodeKind.LEAF
            if is_leaf and path.leaf_type in _BYTES and column < num_columns and is_list(column):
                paths.append(_byte_path(path))
        return ColumnTree._of(paths)

    def columns_of(self, index: int) -> tuple[int, ...]:
        """The columns that reading a leaf needs: those of its lists, its own, and that of its bytes."""
        own = (index, index + 1) if self.is_byte_list(index) else (index,)
        return (*self.lists[index], *own)

    def is_byte_list(self, index: int) -> bool:
        """Whether a column holds the ends of strings whose bytes are in the next column."""
        return index + 1 < len(self.paths) and self.paths[index + 1].leaf.id == _BYTES_ID


_BYTES_ID: Final = -3  # an id that no field has


def _byte_path(path: LeafPath) -> LeafPath:
    item = Field(_BYTES_ID, "item", "uint8")
    byte_path = LeafPath((*path.nodes, PathNode(NodeKind.LEAF, item, item.arrow_type)))
    return byte_path.allowing(path.value_bytes_max)


class ArrayColumns:
    """Creates the pages of the columns of one file.

    key           object key of the file
    tree          tree of its columns
    info_of       returns the decoded metadata of a column
    shared_pages  see `ColumnTree`
    """

    def __init__(self, key: str, tree: ColumnTree, info_of: Callable[[int], ColumnInfo]) -> None:
        self._key = key
        self._tree = tree
        self._info_of = info_of
        self.shared_pages = tree.shared_pages

    def rows_and_pages(self, index: int, path: LeafPath) -> tuple[int, IntArray, ArrayPages]:
        """The pages to read a leaf from: their column, the rows before each page, and the pages.

        path  path of the leaf, as the table declares it
        """
        columns = self._tree.columns_of(index)
        depths = [len(self._tree.paths[column].nodes) - 1 for column in columns[:-1]]
        own_path = path if columns[-1] == index else self._tree.paths[columns[-1]]
        above = depths[-1] + 1 if depths else 0
        info = self._info_of(columns[-1])
        pages: ArrayPages = _LeafPages(self, columns[-1], info, own_path, above)
        for level in reversed(range(len(depths))):
            items = Items(self.where(columns[level + 1]), info.row_starts, pages, _type_below(path, depths[level]))
            above = depths[level - 1] + 1 if level else 0
            info = self._info_of(columns[level])
            pages = _ListPages(self, columns[level], info, path, depths[level], above, items)
        return columns[0], info.row_starts, pages

    def stored_pages(self, index: int) -> tuple[IntArray, ArrayPages]:
        """The pages of a column as stored in the file, for descriptions."""
        path, info = self._tree.paths[index], self._info_of(index)
        kind = path.nodes[-1].kind
        if kind is NodeKind.LIST or self._tree.is_byte_list(index):
            pages: ArrayPages = _ListPages(self, index, info, path, len(path.nodes) - 1, 0, None)
        elif kind is NodeKind.STRUCT:
            pages = _HeaderPages(self, index, info, path)
        else:
            pages = _LeafPages(self, index, info, path, 0)
        return info.row_starts, pages

    def check_header(self, index: int) -> None:
        """Raise FormatError unless a column is the header of structs."""
        pages = self._info_of(index).pages
        if len(pages) != 1:
            raise FormatError(f"{len(pages)} pages; the header of structs has one", where=self.where(index))
        self.stored_pages(index)[1][0]

    def headers_above(self, index: int) -> list[tuple[int, bytes]]:
        """The header columns of structs above a leaf, with the messages of their pages."""
        return [(header, self._info_of(header).pages[0].encoding) for header in self._tree.headers[index]]

    def where(self, index: int) -> str:
        """Name of a column for error messages."""
        return f'column {index} ("{self._tree.paths[index].name}")'

    def with_location(self, error: FileErrorT, index: int, number: int) -> FileErrorT:
        """An error of a page, with its location added."""
        return add_location(error, f"{self.where(index)}, page {number}", self._key)

    def with_all_pages(self, error: FormatError, index: int, num_pages: int) -> FormatError:
        """An error that concerns all pages of a column together."""
        return add_page_locations(error, [(self._key, self.where(index), number) for number in range(num_pages)])


def _type_below(path: LeafPath, depth: int) -> pa.DataType:
    """Type of the items of the lists at a depth of the path; bytes below the leaf itself."""
    return path.nodes[depth + 1].arrow_type if depth + 1 < len(path.nodes) else pa.uint8()


def first_page_is_list(info: ColumnInfo) -> bool:
    """Whether a column holds list ends, by its first page."""
    return bool(len(info.pages)) and ArraySource.of(info.pages[0], ()).message.WhichOneof("array_encoding") == "list"
