"""A column of an opened file, and the layouts of its pages.

The message of a page is parsed on first use; until then only the raw metadata is kept. Pages of one writer, even of
many files, differ in little but their location: pages whose messages are byte-identical except for item counts and
string symbol tables share one parsed layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeGuard, overload

from lance_io._kernels import split_items
from lance_io.codecs.tree import FSST_TABLE_BYTES
from lance_io.encodings.api import ArrayLayout
from lance_io.encodings.open_page import open_page
from lance_io.encodings.v2_1.fullzip import FullZipPage
from lance_io.encodings.v2_1.miniblock import MiniBlockPage, symbols_at
from lance_io.encodings.v2_1.page import PageSource
from lance_io.errors import FormatError
from lance_io.format.columns import PageInfo
from lance_io.format.error_context import FILE_ERRORS, add_location
from lance_io.lazy_names import lazy_module
from lance_io.records import dataclass

if TYPE_CHECKING:
    from lance_io.encodings.api import PageLayout
    from lance_io.encodings.v2_2 import constant as constant_pages
    from lance_io.encodings.v2_2.constant import ConstantPage
    from lance_io.file.open.array_columns import ArrayPages
    from lance_io.format.version import FileVersion
    from lance_io.levels.path import LeafPath
    from lance_io.spans import IntArray
else:
    constant_pages = lazy_module("lance_io.encodings.v2_2.constant")

SHARED_LAYOUTS_MAX: Final = 64  # cached page layouts for files of the same schema
SHARED_LAYOUT_BYTES_MAX: Final = 1024  # a longer message has a symbol table, which no other page shares


def where(index: int, path: LeafPath) -> str:
    """Name of a column for error messages."""
    return f'column {index} ("{path.name}")'


class Pages(Sequence["PageLayout"]):
    """Layouts of the pages of a column in row order, created on first use.

    Creating one raises FormatError and UnsupportedError that name column and page.
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

        infos    metadata of each page, as `PageInfo`; layouts replace the tuples of a plain list in place
        layouts  shared layouts of other pages; None to share none
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
            return [self[at] for at in range(*number.indices(len(self._items)))]
        item = self._items[number]
        if item is not None and type(item) is not tuple:
            return item  # type: ignore[no-any-return]
        info = self._infos[number] if item is None else PageInfo._make(item)
        layout = self._open(info, number if number >= 0 else number + len(self._items))
        if not _is_plain(layout):  # plain ones are cheap to recreate, and there may be many
            self._items[number] = layout
        return layout

    def info(self, number: int) -> PageInfo | None:
        """Metadata of a page; None once its layout has been created."""
        item = self._items[number]
        return PageInfo._make(item) if type(item) is tuple else None

    @property
    def only_pages(self) -> list[tuple[int, PageInfo]] | None:
        """The column and the metadata of its only page. None for several pages, or once the layout was created."""
        info = self.info(0) if len(self._items) == 1 else None
        return None if info is None else [(self._index, info)]

    @property
    def headers(self) -> Sequence[tuple[int, bytes]]:
        """Empty: structs have no columns of their own here; see `ArrayPages`."""
        return ()

    def num_bytes(self, number: int) -> int:
        """Bytes that the buffers of a page occupy in the file, without padding."""
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
        known = None if layouts is None else layouts.find(page, self._version, self._index)
        if known is not None:
            return known
        try:
            layout = open_page(self._version, page, self._path)
        except FILE_ERRORS as error:
            raise add_location(error, self._where(number), self._key) from error.__cause__
        if layouts is not None and (isinstance(layout, MiniBlockPage) or _is_plain(layout)):
            layouts.add(layout, page, self._version, self._index)
        return layout

    def _where(self, number: int) -> str:
        return f"{where(self._index, self._path)}, page {number}"


def _is_plain(page: PageLayout) -> TypeGuard[ConstantPage]:
    if type(page) is MiniBlockPage or type(page) is FullZipPage:  # fast path: nearly all pages
        return False
    return type(page) is constant_pages.ConstantPage and page.is_plain


class SinglePage(Sequence["PageLayout"]):
    """The page of a leaf that has one page for all of its rows, as in files of version 0.1.

    num_bytes  its approximate size
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
    def only_pages(self) -> list[tuple[int, PageInfo]] | None:
        """None: the page has no metadata."""
        return None

    @property
    def headers(self) -> Sequence[tuple[int, bytes]]:
        """Empty; see `ArrayPages`."""
        return ()

    def num_bytes(self, number: int) -> int:
        """Approximate bytes of the page."""
        return self._num_bytes


class Layouts:
    """Cached page layouts of files of one schema, keyed by their messages without item counts.

    The key of a message with a symbol table, which no two pages share, leaves out the table as well.
    """

    def __init__(self) -> None:
        self._same: dict[tuple[Any, ...], MiniBlockPage] = {}
        self._coded: dict[tuple[Any, ...], tuple[bytes, bytes, MiniBlockPage]] = {}
        self._constant: dict[tuple[Any, ...], tuple[bytes, bytes, ConstantPage]] = {}

    def _find_constant(self, page: PageInfo, version: FileVersion, index: int) -> ConstantPage | None:
        """The layout of a page of one value, which may be any value."""
        encoding = page.encoding
        known = self._constant.get((version.minor, index, len(page.buffer_sizes), len(encoding)))
        if known is None or not (encoding.startswith(known[0]) and encoding.endswith(known[1])):
            return None
        before, behind, layout = known
        value = None if layout.inline_value is None else encoding[len(before) : len(encoding) - len(behind)]
        _, _, _, path, rules = layout.source
        return layout.relocated(PageSource(page.buffer_offsets, page.buffer_sizes, page.num_rows, path, rules), value)

    def find(self, page: PageInfo, version: FileVersion, index: int) -> MiniBlockPage | ConstantPage | None:
        """The layout of a page of the column `index`, if a page with an equal message is cached.

        None also if a check of the symbols or the item count fails: the message's decoder then raises the error.
        """
        parts = split_items(page.encoding)
        if parts is None:
            return self._find_constant(page, version, index)
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
        layout = known.relocated(page.buffer_offsets, sizes, num_items, page.num_rows)
        return layout if symbols is None or layout.set_symbols(symbols) else None

    def add(self, layout: MiniBlockPage | ConstantPage, page: PageInfo, version: FileVersion, index: int) -> None:
        """Cache a layout for further pages, if its message qualifies."""
        if not isinstance(layout, MiniBlockPage):
            if len(page.encoding) > SHARED_LAYOUT_BYTES_MAX:
                return
            around = constant_pages.value_at(page.encoding, layout)
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
class OnlyPage:
    """Facts about a column's only page that each scan of all rows needs: scans of many small files need nothing else.

    num_bytes, bound, expected_bytes  see `Piece`
    """

    num_bytes: int
    bound: int | None
    expected_bytes: int


@dataclass(slots=True, eq=False)
class Column:
    """One column of an opened file.

    identity    store, key and size of the file
    row_starts  i64[pages + 1], table rows before each page
    pages       layouts in row order, created on first use
    paged_by    name of the column that owns these pages for error messages, None if it is this column
    only_page   facts about the only page; None for several pages, for a page of constants that scans cut, and until a
                scan has computed them
    """

    identity: tuple[str, str, int]
    index: int
    path: LeafPath
    row_starts: IntArray
    pages: Pages | ArrayPages | SinglePage
    paged_by: str | None = None
    only_page: OnlyPage | None = None
    _keys: list[tuple[Any, ...]] | None = None
    _known_join_key: tuple[str, set[int]] | None = None  # a join key, and the numbers of pages with this key

    @property
    def keys(self) -> list[tuple[Any, ...]]:
        """Search-cache key of each page's index. The index of a list page locates the items of this leaf, too."""
        keys = self._keys
        if keys is None:
            keys = self._keys = [(self.identity, self.index, number) for number in range(len(self.pages))]
        return keys

    def join_key(self, numbers: Sequence[int]) -> str | None:
        """Key of the pages whose rows decode into one array.

        Pages with equal keys, also of several files, decode together. None for pages that are decoded one by one, and
        for no pages.
        """
        if len(self.pages) == 1:
            return join_key_of(self.pages[0]) if numbers else None
        known = self._known_join_key
        if known is not None and known[1].issuperset(numbers):  # fast path: without looking at pages
            return known[0] if numbers else None
        keys = {join_key_of(self.pages[number]) for number in numbers}
        key = keys.pop() if len(keys) == 1 else None
        if key is not None:
            if known is None:
                known = self._known_join_key = key, set()  # if two threads race, one of the two is kept
            if known[0] == key:
                known[1].update(numbers)
        return key

    @property
    def where(self) -> str:
        """Name of the column that owns the pages, for error messages."""
        return where(self.index, self.path) if self.paged_by is None else self.paged_by


def join_key_of(page: PageLayout) -> str | None:
    """Key that a page shares with pages whose rows decode into one array with its own; None if it decodes alone."""
    return page.join_key if isinstance(page, (MiniBlockPage, FullZipPage, ArrayLayout)) else None
