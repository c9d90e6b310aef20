"""A column of an opened file, and the layouts of its pages.

A page is looked into when it is first touched: until then there is what the metadata says about it. Pages of one writer
differ in little but their place, and so do those of many files: a layout is made once for all pages whose messages are
the same byte by byte but for numbers of items and the symbols of strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeGuard, overload

from lance_io._kernels import split_items
from lance_io.codecs.tree import FSST_TABLE_BYTES
from lance_io.encodings.api import ArrayLayout
from lance_io.encodings.registry import open_page
from lance_io.encodings.v2_1.fullzip import FullZipPage
from lance_io.encodings.v2_1.miniblock import MiniBlockPage, symbols_at
from lance_io.encodings.v2_1.page import PageSource
from lance_io.encodings.v2_2.constant import ConstantPage, value_at
from lance_io.errors import FormatError
from lance_io.format.columns import PageInfo
from lance_io.format.error_context import REFUSALS, place_error
from lance_io.records import dataclass

if TYPE_CHECKING:
    from lance_io.encodings.api import PageLayout
    from lance_io.file.open.array_columns import ArrayPages
    from lance_io.format.version import FileVersion
    from lance_io.levels.path import LeafPath
    from lance_io.spans import IntArray

SHARED_LAYOUTS_MAX: Final = 64  # page layouts that are remembered for files of the same schema
SHARED_LAYOUT_BYTES_MAX: Final = 1024  # a longer message has a table of symbols, which no other page has


def where(index: int, path: LeafPath) -> str:
    """A column for messages."""
    return f'column {index} ("{path.name}")'


class Pages(Sequence["PageLayout"]):
    """Layouts of the pages of a column in row order, each made when it is first asked for.

    That raises FormatError and UnsupportedError, which name column and page.
    """

    __slots__ = ("_index", "_infos", "_items", "_key", "_layouts", "_path", "_row_starts", "_version")

    def __init__(
        self,
        key: str,
        version: FileVersion,
        index: int,
        path: LeafPath,
        infos: Sequence[Any],
        row_starts: IntArray,
        layouts: Layouts | None,
    ) -> None:
        """Pages of the column `index` of the file `key`.

        infos    what the metadata says about each, as `PageInfo`; a list of plain tuples becomes that of the layouts
        layouts  those of other pages; None not to share any
        """
        self._key = key
        self._version = version
        self._index = index
        self._path = path
        self._infos = infos
        self._items: list[Any] = infos if type(infos) is list else [None] * len(infos)
        self._row_starts = row_starts
        self._layouts = layouts

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, number: int) -> PageLayout: ...
    @overload
    def __getitem__(self, number: slice) -> list[PageLayout]: ...

    def __getitem__(self, number: int | slice) -> PageLayout | list[PageLayout]:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self._items)))]
        item = self._items[number]
        if item is not None and type(item) is not tuple:
            return item  # type: ignore[no-any-return]
        info = self._infos[number] if item is None else PageInfo._make(item)
        layout = self._open(info, number if number >= 0 else number + len(self._items))
        if not _is_plain(layout):  # others are made in no time, and there may be many
            self._items[number] = layout
        return layout

    def info(self, number: int) -> PageInfo | None:
        """What the metadata says about a page; None if it was asked for before."""
        item = self._items[number]
        return PageInfo._make(item) if type(item) is tuple else None

    @property
    def lone(self) -> list[tuple[int, PageInfo]] | None:
        """The column and what the metadata says about its only page; None where there are others, or it was read."""
        info = self.info(0) if len(self._items) == 1 else None
        return None if info is None else [(self._index, info)]

    @property
    def headers(self) -> Sequence[tuple[int, bytes]]:
        """No structs have columns of their own here; see `ArrayPages`."""
        return ()

    def num_bytes(self, number: int) -> int:
        """Bytes that the buffers of a page occupy in the file, padding not counted."""
        item = self._items[number]
        if type(item) is tuple:
            return sum(item[1])
        num_bytes: int = self._infos[number].data_bytes if item is None else item.source.num_bytes
        return num_bytes

    def _open(self, page: PageInfo, number: int) -> PageLayout:
        if page.priority and page.priority != self._row_starts[number]:
            text = f"first row {page.priority} noted, but {self._row_starts[number]} rows in the pages before it"
            raise FormatError(text, path=self._key, where=self._where(number))
        layouts = self._layouts
        known = None if layouts is None else layouts.like(page, self._version, self._index)
        if known is not None:
            return known
        try:
            layout = open_page(self._version, page, self._path)
        except REFUSALS as error:
            raise place_error(error, self._where(number), self._key) from error.__cause__
        if layouts is not None and (isinstance(layout, MiniBlockPage) or _is_plain(layout)):
            layouts.remember(layout, page, self._version, self._index)
        return layout

    def _where(self, number: int) -> str:
        return f"{where(self._index, self._path)}, page {number}"


def _is_plain(page: PageLayout) -> TypeGuard[ConstantPage]:
    return type(page) is ConstantPage and page.is_plain


class OnePage(Sequence["PageLayout"]):
    """The page of a leaf that has one for all of its rows, as in files of version 0.1.

    num_bytes  of it, about
    """

    __slots__ = ("_num_bytes", "_page")

    def __init__(self, page: PageLayout, num_bytes: int) -> None:
        self._page = page
        self._num_bytes = num_bytes

    def __len__(self) -> int:
        return 1

    @overload
    def __getitem__(self, number: int) -> PageLayout: ...
    @overload
    def __getitem__(self, number: slice) -> list[PageLayout]: ...
    def __getitem__(self, number: int | slice) -> PageLayout | list[PageLayout]:
        return self._page if number in (0, -1) else [self._page][number]

    @property
    def lone(self) -> list[tuple[int, PageInfo]] | None:
        """Nothing is said about it."""
        return None

    @property
    def headers(self) -> Sequence[tuple[int, bytes]]:
        """None; see `ArrayPages`."""
        return ()

    def num_bytes(self, number: int) -> int:
        """Bytes of the page, about."""
        return self._num_bytes


class Layouts:
    """Mini-block pages of files of one schema, by what their layout depends on: messages without numbers of items.

    Messages with a table of symbols, which no two pages share, are known by what is around it as well.
    """

    def __init__(self) -> None:
        self._same: dict[tuple[Any, ...], MiniBlockPage] = {}
        self._coded: dict[tuple[Any, ...], tuple[bytes, bytes, MiniBlockPage]] = {}
        self._constant: dict[tuple[Any, ...], tuple[bytes, bytes, ConstantPage]] = {}

    def _constant_like(self, page: PageInfo, version: FileVersion, index: int) -> ConstantPage | None:
        """The same for pages of one value, whatever that is."""
        encoding = page.encoding
        known = self._constant.get((version.minor, index, len(page.buffer_sizes), len(encoding)))
        if known is None or not (encoding.startswith(known[0]) and encoding.endswith(known[1])):
            return None
        before, behind, layout = known
        value = None if layout.inline_value is None else encoding[len(before) : len(encoding) - len(behind)]
        _, _, _, path, rules = layout.source
        return layout.elsewhere(PageSource(page.buffer_offsets, page.buffer_sizes, page.num_rows, path, rules), value)

    def like(self, page: PageInfo, version: FileVersion, index: int) -> MiniBlockPage | ConstantPage | None:
        """The layout of a page of the column `index`, if there was one whose message is the same.

        None as well for what a check refuses, of the symbols or the number of items: then the message's decoder tells.
        """
        parts = split_items(page.encoding)
        if parts is None:
            return self._constant_like(page, version, index)
        before, num_items, behind = parts
        sizes, symbols = page.buffer_sizes, None
        if len(before) <= SHARED_LAYOUT_BYTES_MAX:
            known = self._same.get((version.minor, index, len(sizes), before, behind))
        else:
            coded = self._coded.get((version.minor, index, len(sizes), len(before), behind))
            if coded is None or not (before.startswith(coded[0]) and before.endswith(coded[1])):
                return None
            known, symbols = coded[2], before[len(coded[0]) : len(before) - len(coded[1])]
        if known is None or not known.may_have(num_items, page.num_rows):
            return None
        found = known.elsewhere(page.buffer_offsets, sizes, num_items, page.num_rows)
        return found if symbols is None or found.recode(symbols) else None

    def remember(self, layout: MiniBlockPage | ConstantPage, page: PageInfo, version: FileVersion, index: int) -> None:
        """A layout for further pages, if it is worth it and there is room."""
        if isinstance(layout, ConstantPage):
            around = value_at(page.encoding, layout) if len(page.encoding) <= SHARED_LAYOUT_BYTES_MAX else None
            if around is not None:
                if len(self._constant) >= SHARED_LAYOUTS_MAX:
                    self._constant.clear()
                key = version.minor, index, len(page.buffer_sizes), len(page.encoding)
                self._constant[key] = (*around, layout)
            return
        parts = split_items(page.encoding)
        if parts is None:
            return
        before, _, behind = parts
        of_page = (version.minor, index, len(page.buffer_sizes))
        if len(before) <= SHARED_LAYOUT_BYTES_MAX:
            if len(self._same) >= SHARED_LAYOUTS_MAX:
                self._same.clear()
            self._same[*of_page, before, behind] = layout
        else:
            if len(self._coded) >= SHARED_LAYOUTS_MAX:
                self._coded.clear()
            at = symbols_at(page.encoding, layout)
            if at is not None and at + FSST_TABLE_BYTES <= len(before):
                around = before[:at], before[at + FSST_TABLE_BYTES :]
                self._coded.setdefault((*of_page, len(before), behind), (*around, layout))


@dataclass(slots=True, eq=False)
class Column:
    """One column of an opened file.

    identity    of the file: store, key and size
    row_starts  i64[pages + 1], table rows before each page
    pages       layouts, in row order, each made when it is first asked for
    paged_by    what messages call the column whose pages these are, where it is another
    """

    identity: tuple[str, str, int]
    index: int
    path: LeafPath
    row_starts: IntArray
    pages: Pages | ArrayPages | OnePage
    paged_by: str | None = None
    _keys: list[tuple[Any, ...]] | None = None
    _alike: tuple[str, set[int]] | None = None  # a join key, and numbers of pages that have it

    @property
    def keys(self) -> list[tuple[Any, ...]]:
        """Search-cache key of each page's index: of pages of lists it says where the items of this leaf are, too."""
        keys = self._keys
        if keys is None:
            keys = self._keys = [(self.identity, self.index, number) for number in range(len(self.pages))]
        return keys

    def join_key(self, numbers: Sequence[int]) -> str | None:
        """What these pages have in common with all pages whose rows can be decoded into one array with theirs.

        Rows of pages, be they of several files, whose keys are equal make one array. None for pages that are decoded
        one by one, and for no pages.
        """
        if len(self.pages) == 1:
            return join_key_of(self.pages[0]) if numbers else None
        alike = self._alike
        if alike is not None and alike[1].issuperset(numbers):  # the usual case, without looking at pages
            return alike[0] if numbers else None
        found = {join_key_of(self.pages[number]) for number in numbers}
        key = found.pop() if len(found) == 1 else None
        if key is not None:
            if alike is None:
                alike = self._alike = key, set()  # of two threads that come first, one is remembered
            if alike[0] == key:
                alike[1].update(numbers)
        return key

    @property
    def where(self) -> str:
        """The column that has the pages, for messages."""
        return where(self.index, self.path) if self.paged_by is None else self.paged_by


def join_key_of(page: PageLayout) -> str | None:
    """What a page has in common with those whose rows make one array with its own; None for all others."""
    return page.join_key if isinstance(page, (MiniBlockPage, FullZipPage, ArrayLayout)) else None
