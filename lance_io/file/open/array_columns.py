"""Columns of a file of version 2.0 (spec: encodings 2.0, section 2).

Every field has a column there: structs a header without values, lists the ends of each. A leaf below lists is read
through all of their columns, so the `Column` that takes and scans see has the rows and pages of the outermost one.
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
from lance_io.format.error_context import REFUSALS, at_pages, place_error
from lance_io.format.schema import Field
from lance_io.levels.path import LeafPath, NodeKind, PathNode, column_paths
from lance_io.limits import VALUE_BYTES_MAX
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.format.columns import ColumnInfo, PageInfo
    from lance_io.format.error_context import Refusal
    from lance_io.format.schema import Schema
    from lance_io.spans import IntArray

ALIKE_PAGES_MAX: Final = 256
_BYTES: Final = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


class ArrayPages(LazyItems[Any]):
    """Layouts of the pages of a column in row order, each made when it is first asked for.

    Plain objects without closures: a table of many files has as many of these as columns in all of them, and the
    garbage collector looks at everything that refers to something else.
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
        """A page; faults say nothing about where it is."""

    def _make_item(self, number: int) -> Any:
        try:
            return self._make_page(number)
        except REFUSALS as error:
            raise self._columns.place(error, self._index, number) from error.__cause__

    def _source(self, number: int) -> ArraySource:
        info = self._info
        column_buffers = tuple(zip(info.buffer_offsets, info.buffer_sizes, strict=True))
        return ArraySource.of(info.pages[number], column_buffers)

    @property
    def lone(self) -> list[tuple[int, PageInfo]] | None:
        """The columns that rows are read from, lists first, and their only pages; None where there are others."""
        pages = self._info.pages
        return [(self._index, pages[0])] if len(pages) == 1 and not self._info.buffer_offsets else None

    @property
    def headers(self) -> list[tuple[int, bytes]]:
        """The columns that stand for structs above the leaf, and the messages of their pages."""
        return self._columns.headers_above(self._index)

    def num_bytes(self, number: int) -> int:
        """Bytes that a page occupies in the file, with those of the items of its lists, about."""
        num_bytes: int = self[number].num_bytes
        return num_bytes


class _HeaderPages(ArrayPages):
    """Of a column that stands for structs."""

    __slots__ = ()

    def _make_page(self, number: int) -> HeaderPage:
        return HeaderPage(self._source(number))


class _LeafPages(ArrayPages):
    """Of a column of values. above: nodes of the path that other columns hold."""

    __slots__ = ("_above",)

    def __init__(self, columns: ArrayColumns, index: int, info: ColumnInfo, path: LeafPath, above: int) -> None:
        super().__init__(columns, index, info, path)
        self._above = above

    def _make_page(self, number: int) -> ArrayPage:
        info = self._info.pages[number]
        if self._above or self._info.buffer_offsets or len(info.encoding) > SHARED_MESSAGE_BYTES_MAX:
            return ArrayPage(self._source(number), self._path, self._above)
        alike = self._columns.alike
        key = self._index, id(self._path), info.type_name, info.encoding, info.num_rows, info.buffer_sizes
        known = alike.get(key)
        if known is not None:
            return known.elsewhere(info) or ArrayPage(self._source(number), self._path, self._above)
        page = ArrayPage(self._source(number), self._path, self._above)
        if len(alike) >= ALIKE_PAGES_MAX:
            alike.clear()
        alike[key] = page  # which keeps the path, so that no other one has its identity
        return page


class _ListPages(ArrayPages):
    """Of a column of ends of lists.

    depth    of the lists in the path
    above    nodes of the path that other columns hold
    content  what the lists hold; None where the pages are only described
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
    def lone(self) -> list[tuple[int, PageInfo]] | None:
        """See `ArrayPages`."""
        own, below = super().lone, self._below
        found = None if own is None or below is None else below.lone
        return None if own is None or found is None else own + found

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
        """Look once at all pages: how many items they have together."""
        if self._first_items:
            return
        sources = []
        for number in range(len(self)):
            try:
                sources.append(self._source(number))
            except REFUSALS as error:
                raise self._columns.place(error, self._index, number) from error.__cause__
        found = list(accumulate((one.message.list.num_items for one in sources), initial=0))
        content = self._content
        if content is not None and found[-1] != content.num_items:
            text = f"{found[-1]} items in all pages; {content.where} has {content.num_items}"
            raise self._columns.place_at_all(FormatError(text), self._index, len(self))
        self._sources, self._first_items = sources, found


@dataclass(frozen=True, slots=True, eq=False)
class ColumnTree:
    """How the columns of a file belong together.

    paths    of every column, in order: those of headers and lists end at their field
    lists    the columns of the lists above each, outermost first
    headers  those of the structs
    alike    pages of files that have this tree, by all but their places: most differ in nothing else
    """

    paths: tuple[LeafPath, ...]
    lists: tuple[tuple[int, ...], ...]
    headers: tuple[tuple[int, ...], ...]
    alike: dict[tuple[Any, ...], ArrayPage] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, schema: Schema, value_bytes_max: int = VALUE_BYTES_MAX) -> ColumnTree:
        """Of a file with this schema, as writers number columns; a value may decode to so many bytes."""
        return cls._of([path.allowing(value_bytes_max) for top in schema.fields for path in column_paths(top)])

    @classmethod
    def _of(cls, paths: list[LeafPath]) -> ColumnTree:
        above: list[int] = []
        lists, headers = [], []
        for index, path in enumerate(paths):
            del above[len(path.nodes) - 1 :]
            structs = [one for one in above if paths[one].nodes[-1].kind is NodeKind.STRUCT]
            headers.append(tuple(structs))
            lists.append(tuple(one for one in above if one not in structs))
            above.append(index)
        return cls(tuple(paths), tuple(lists), tuple(headers))

    def with_byte_lists(self, num_columns: int, is_list: Callable[[int], bool]) -> ColumnTree:
        """The same where strings may be lists of bytes, in two columns, as very old writers had them.

        num_columns  of the file
        is_list      whether the pages of a column are ends of lists
        """
        paths: list[LeafPath] = []
        for path in self.paths:
            place = len(paths)
            paths.append(path)
            is_leaf = path.nodes[-1].kind is NodeKind.LEAF
            if is_leaf and path.leaf_type in _BYTES and place < num_columns and is_list(place):
                paths.append(_byte_path(path))
        return ColumnTree._of(paths)

    def columns_of(self, index: int) -> tuple[int, ...]:
        """The columns that a leaf is read through: those of its lists, itself, and that of its bytes."""
        own = (index, index + 1) if self.is_byte_list(index) else (index,)
        return (*self.lists[index], *own)

    def is_byte_list(self, index: int) -> bool:
        """Whether a column is the ends of strings whose bytes are in the next one."""
        return index + 1 < len(self.paths) and self.paths[index + 1].leaf.id == _BYTES_ID


_BYTES_ID: Final = -3  # of no field


def _byte_path(path: LeafPath) -> LeafPath:
    item = Field(_BYTES_ID, "item", "uint8")
    made = LeafPath((*path.nodes, PathNode(NodeKind.LEAF, item, item.arrow_type)))
    return made.allowing(path.value_bytes_max)


class ArrayColumns:
    """Makes the pages of the columns of one file.

    key      of the file
    tree     of its columns
    alike    pages of files with the same tree, by all but their places
    info_of  what the metadata says about a column
    """

    def __init__(self, key: str, tree: ColumnTree, info_of: Callable[[int], ColumnInfo]) -> None:
        self._key = key
        self._tree = tree
        self._info_of = info_of
        self.alike = tree.alike

    def rows_and_pages(self, index: int, path: LeafPath) -> tuple[int, IntArray, ArrayPages]:
        """What a leaf is read from: the column whose pages these are, the rows before each, and the pages.

        path  of the leaf, as it is to be read
        """
        columns = self._tree.columns_of(index)
        depths = [len(self._tree.paths[column].nodes) - 1 for column in columns[:-1]]
        own_path = path if columns[-1] == index else self._tree.paths[columns[-1]]
        above = depths[-1] + 1 if depths else 0
        info = self._info_of(columns[-1])
        pages: ArrayPages = _LeafPages(self, columns[-1], info, own_path, above)
        for place in reversed(range(len(depths))):
            items = Items(self.where(columns[place + 1]), info.row_starts, pages, _type_below(path, depths[place]))
            above = depths[place - 1] + 1 if place else 0
            info = self._info_of(columns[place])
            pages = _ListPages(self, columns[place], info, path, depths[place], above, items)
        return columns[0], info.row_starts, pages

    def stored_pages(self, index: int) -> tuple[IntArray, ArrayPages]:
        """The pages of a column as they lie in the file, to be described."""
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
        """The columns that stand for structs above a leaf, and the messages of their pages."""
        return [(header, self._info_of(header).pages[0].encoding) for header in self._tree.headers[index]]

    def where(self, index: int) -> str:
        """A column for messages."""
        return f'column {index} ("{self._tree.paths[index].name}")'

    def place(self, error: Refusal, index: int, number: int) -> Refusal:
        """A fault of a page, with where that is."""
        return place_error(error, f"{self.where(index)}, page {number}", self._key)

    def place_at_all(self, error: FormatError, index: int, num_pages: int) -> FormatError:
        """A fault that all pages of a column make together."""
        return at_pages(error, [(self._key, self.where(index), number) for number in range(num_pages)])


def _type_below(path: LeafPath, depth: int) -> pa.DataType:
    """What the lists at a place of the path hold; bytes, below the leaf itself."""
    return path.nodes[depth + 1].arrow_type if depth + 1 < len(path.nodes) else pa.uint8()


def first_page_is_list(info: ColumnInfo) -> bool:
    """Whether a column has the ends of lists, by its first page."""
    return bool(len(info.pages)) and ArraySource.of(info.pages[0], ()).message.WhichOneof("array_encoding") == "list"
