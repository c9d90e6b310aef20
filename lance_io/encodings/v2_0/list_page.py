"""Lists of version 2.0: their ends in one column, the items in the columns after it (spec: 5.4).

    offsets   u64 for each list: its end among the items of the page, plus `null_offset_adjustment` if it is null
    items     values, or further lists; their pages need not begin where those of the lists do

So a leaf below lists is read through a chain of columns. Its rows and pages are those of the outermost list: reading a
page of lists goes on to the pages that hold the items. All rows of a page take one round, because the page has the
number of its items. Some rows take one more round per level of lists. The indexes of small item pages (ends of strings,
items of a dictionary, compressed bytes) are fetched together with the ends.
"""

from __future__ import annotations

from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io._kernels import DamagedError
from lance_io.encodings.api import ArrayLayout, PageDescription, RowSelection
from lance_io.encodings.decoded_size import FSST_GROWTH, FSST_USUALLY, OFFSET_BYTES
from lance_io.encodings.rounds import merge_ranges, together
from lance_io.encodings.v2_0.array import open_ends
from lance_io.encodings.v2_0.array_page import ArrayPage, cut_by_ends, ends_known, structs_around
from lance_io.encodings.v2_0.buffers import Runs
from lance_io.encodings.v2_0.located import LocatedIndex, around_leaf, locate_lists
from lance_io.encodings.v2_0.variable import ENDS_KEPT_BYTES_MAX, ENDS_READ_BYTES_MAX, PLAIN_KEPT_BYTES_MAX, Ends
from lance_io.encodings.v2_0.whole import whole_lists
from lance_io.encodings.v2_1.page import damage_error
from lance_io.errors import FormatError
from lance_io.format.error_context import FILE_ERRORS, FileError, add_location
from lance_io.levels.assemble import nest
from lance_io.levels.item_lists import with_nulls
from lance_io.levels.join import join_arrays
from lance_io.levels.path import NodeKind
from lance_io.levels.row_bytes import fixed_bits
from lance_io.records import dataclass
from lance_io.spans import Fetched, distinct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_io._kernels import Leaf, WholeArray
    from lance_io.encodings.api import PageIndex, PageLayout
    from lance_io.encodings.cuts import PageCuts
    from lance_io.encodings.item_reads import ItemSelection
    from lance_io.encodings.v2_0.array_page import ArraySource
    from lance_io.encodings.v2_0.variable import EndsIndex
    from lance_io.levels.path import LeafPath
    from lance_io.spans import IntArray, Ranges, Steps


INDEXED_PAGES_MAX: Final = 4  # item pages per page of lists whose indexes are cached
INDEX_BYTES_MAX: Final = ENDS_KEPT_BYTES_MAX + PLAIN_KEPT_BYTES_MAX
_NO_INDEXES: Final[Mapping[int, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """The column that holds the items of lists.

    where       the column's name in messages
    row_starts  i64[pages + 1], items before each of its pages
    pages       its pages
    dtype       of the items
    """

    where: str
    row_starts: IntArray
    pages: Sequence[PageLayout]
    dtype: pa.DataType

    @property
    def num_items(self) -> int:
        """Number of items in all pages."""
        return int(self.row_starts[-1])

    def read(self, starts: IntArray, ends: IntArray, known: Mapping[int, PageIndex] = _NO_INDEXES) -> Steps[pa.Array]:
        """Ranges of items, ascending and disjoint. Raises FormatError for missing items, naming the page.

        known  indexes of pages
        """
        is_filled = ends > starts
        starts, ends = starts[is_filled], ends[is_filled]
        if not len(starts):
            return pa.array([], self.dtype)
        if int(ends[-1]) > self.num_items:
            raise FormatError(f"items up to {int(ends[-1])} wanted of {self.where}, which has {self.num_items}")
        first = int(self.row_starts.searchsorted(starts[0], side="right")) - 1
        last = int(self.row_starts.searchsorted(ends[-1], side="left"))
        parts = [self._read_page(number, starts, ends, known.get(number)) for number in range(first, last)]
        arrays = yield from together(parts)
        return join_arrays([array for array in arrays if array is not None])

    def _read_page(
        self, number: int, starts: IntArray, ends: IntArray, known: PageIndex | None
    ) -> Steps[pa.Array | None]:
        low, high = self.row_starts[number : number + 2].tolist()
        first, last = int(ends.searchsorted(low, side="right")), int(starts.searchsorted(high, side="left"))
        if first >= last or low == high:
            return None
        of_page = starts[first:last].clip(low, high) - low, ends[first:last].clip(low, high) - low
        is_whole = last - first == 1 and of_page[0][0] == 0 and of_page[1][0] == high - low
        try:
            page = self.pages[number]
            if is_whole and known is None:
                return (yield from page.scan())
            selection = RowSelection(*of_page, int((of_page[1] - of_page[0]).sum()))
            return (yield from page.read(known, selection))
        except FILE_ERRORS as error:
            raise self._with_page(error, number) from error.__cause__

    def _with_page(self, error: FileError, number: int) -> FileError:
        return add_location(error, f"{self.where}, page {number}")

    def index_ranges(self, start: int, end: int) -> dict[int, Ranges]:
        """Index ranges of the pages with the items `start` to `end`, by page number; empty if they are too large."""
        ranges_by_page: dict[int, Ranges] = {}
        first = int(self.row_starts.searchsorted(start, side="right")) - 1
        last = int(self.row_starts.searchsorted(end, side="left"))
        if start >= end or last > len(self.pages) or last - first > INDEXED_PAGES_MAX:
            return ranges_by_page
        for number in range(first, last):
            is_empty = self.row_starts[number] == self.row_starts[number + 1]
            ranges = None if is_empty else self.pages[number].index_ranges()
            if ranges is not None:
                ranges_by_page[number] = ranges
        return ranges_by_page if sum(each.num_bytes for each in ranges_by_page.values()) <= INDEX_BYTES_MAX else {}

    def load_index(self, number: int, fetched: Fetched) -> PageIndex:
        """The index of a page. Raises FormatError that names the page."""
        try:
            return self.pages[number].load_index(fetched)
        except FILE_ERRORS as error:
            raise self._with_page(error, number) from error.__cause__

    def one_page(self, start: int, end: int) -> tuple[ArrayPage, int] | None:
        """The page that holds all items `start` to `end`, and the position of the first item in it.

        None if several pages hold them, or if kernels do not support its values or these have no fixed width.
        """
        number = int(self.row_starts.searchsorted(start, side="right")) - 1
        if start >= end or end > int(self.row_starts[number + 1]):
            return None
        page: Any = self.pages[number]
        if not isinstance(page, ArrayPage) or page.kind is None or not page.kind.row_bits:
            return None
        return page, start - int(self.row_starts[number])

    def bytes_between(self, start: int, end: int) -> int:
        """Approximate bytes of the items `start` to `end`."""
        total = 0
        first = max(int(self.row_starts.searchsorted(start, side="right")) - 1, 0)
        for number in range(first, len(self.pages)):
            low, high = self.row_starts[number : number + 2].tolist()
            if low >= end:
                break
            if high > low:
                share: Any = self.pages[number]
                total += share.num_bytes * (min(end, high) - max(start, low)) // (high - low)
        return max(total, 0)


class ListPage(ArrayLayout):
    """One page of the ends of lists.

    path        of the leaf that is read
    depth       position of the list's node in the path
    above       number of path nodes that outer lists have already added
    first_item  number of items in the previous pages
    items       the column of the items
    """

    stride_bytes = 0  # the file layout of lists differs from the memory layout

    def __init__(
        self, source: ArraySource, path: LeafPath, depth: int, above: int, first_item: int, items: Items | None
    ) -> None:
        message = source.message.list
        self.source = source
        self.num_rows = source.num_rows
        self.path = path
        self.depth = depth
        self.node = path.nodes[depth]
        self.structs = path.nodes[above:depth]
        self.num_items = message.num_items
        self.first_item = first_item
        self.items = items
        ends = open_ends(message.offsets, source.num_rows, source.buffers)
        wide = pa.types.is_large_list(self.node.arrow_type) or pa.types.is_large_binary(self.node.arrow_type)
        wide = wide or pa.types.is_large_string(self.node.arrow_type)
        self.shared_offset = ends.offset_bytes
        self.ends = Ends(source.num_rows, ends, message.null_offset_adjustment, message.num_items, wide=wide)
        if source.num_rows and message.null_offset_adjustment <= message.num_items:
            raise FormatError(
                f"lists of {message.num_items} items with a null adjustment of {message.null_offset_adjustment}"
            )

    @cached_property
    def _item_page(self) -> tuple[ArrayPage, int] | None:
        """The page of all items of this page, and the position of its first item; None if kernels cannot read it."""
        is_outermost = self.structs == self.path.nodes[: self.depth]
        if self.items is None or not is_outermost or self.node.kind is not NodeKind.LIST:
            return None
        return self.items.one_page(self.first_item, self.first_item + self.num_items)

    @cached_property
    def join_key(self) -> str | None:  # type: ignore[override]  # computed on first use
        """Equal for pages whose rows can be decoded into one array; None for pages that are decoded alone."""
        item_page = self._item_page
        if item_page is None or item_page[0].kind is None or not self.ends.are_few:
            return None
        return f"lists {self.path.array_kind} {item_page[0].kind.shape!r}"

    @cached_property
    def _below(self) -> dict[int, Ranges]:
        """Index ranges of the pages of items, by page number."""
        if self.items is None or self._item_page is not None:
            return {}
        return self.items.index_ranges(self.first_item, self.first_item + self.num_items)

    @cached_property
    def whole(self) -> WholeArray | None:  # type: ignore[override]  # computed on first use
        """The page for the kernel that decodes whole pages together; None if it must be read by itself."""
        item_page = self._item_page
        if item_page is None:
            return None
        page, first_slot = item_page
        assert page.kind is not None, "the item page has a kind"
        return whole_lists(self.ends, page.values, page.kind, first_slot, around_leaf(self.path.nodes[:-1]))

    def locate(self, index: EndsIndex | None) -> LocatedIndex:
        """The ends with the page for kernels, if they support it."""
        item_page = self._item_page if index is not None and self.join_key is not None else None
        if item_page is None or index is None:
            return LocatedIndex(index, None)
        page, first_slot = item_page
        assert page.kind is not None, "it has a key"
        try:
            return locate_lists(self.ends, index, page.kind, first_slot, around_leaf(self.path.nodes[:-1]))
        except DamagedError as error:
            raise damage_error(error) from None

    def build(self, leaf: Leaf) -> pa.Array:
        """Nest rows of this page, or of pages with the same `join_key`, that kernels decoded."""
        assert self._item_page is not None, "kernels decode only pages with an item page"
        return nest(self.path, self._item_page[0].leaf_array(leaf), leaf[2])

    @cached_property
    def num_bytes(self) -> int:
        """Approximate bytes of the ends and the items."""
        if self.items is None:
            return self.source.num_bytes
        return self.source.num_bytes + self.items.bytes_between(self.first_item, self.first_item + self.num_items)

    def decoded_bound(self, num_slots: int, data_bytes: int, *, usual: bool) -> int:
        """See `ArrayLayout`; text in lists is assumed to be FSST-coded."""
        offset_bytes = OFFSET_BYTES * num_slots
        bits = fixed_bits(self.path.leaf_type)
        if bits is None:
            growth = FSST_USUALLY if usual else FSST_GROWTH
            return growth * data_bytes + OFFSET_BYTES * self.num_items + offset_bytes
        return self.num_items * bits // 8 + offset_bytes

    def longest_item(self, data: memoryview) -> int:
        """Not implemented: lists have no dictionary of their own."""
        raise NotImplementedError

    @property
    def is_compressed(self) -> bool:
        """False: compressed items are detected page by page."""
        return False

    def index_ranges(self) -> Ranges | None:
        """Ranges of the ends, if they are few, and of the indexes of item pages."""
        ends = self.ends.index_ranges()
        return None if ends is None else merge_ranges([ends, *self._below.values()])

    def load_index(self, fetched: Fetched) -> LocatedIndex:
        """The ends, and the indexes of item pages."""
        ends = self.ends.load_index(fetched)
        if self.items is None or not self._below:
            return self.locate(ends)
        below: dict[int, PageIndex] = {}
        at = 1
        for number, ranges in self._below.items():
            part = Fetched(fetched.buffer, fetched.offsets[at : at + len(ranges.starts)])
            below[number] = self.items.load_index(number, part)
            at += len(ranges.starts)
        return LocatedIndex(ends, None, below)

    def read(self, index: PageIndex | None, selection: RowSelection) -> Steps[pa.Array]:
        """The selected rows: one round for unknown ends, then the rounds of the items."""
        assert self.items is not None, "a page of lists is read with its items"
        known = index.below if isinstance(index, LocatedIndex) else _NO_INDEXES
        try:
            spans = yield from self.ends.read(Runs.of(selection), ends_known(index))
            items = yield from self.items.read(spans.starts + self.first_item, spans.ends + self.first_item, known)
        except DamagedError as error:
            raise damage_error(error) from None
        return self._lists(selection.num_rows, spans.validity, spans.offsets, spans.null_count, items)

    def cut(self, start: int, end: int, piece_bytes: int, known: PageIndex | None) -> Steps[PageCuts | None]:
        """At any list, from all ends (one round)."""
        if self.is_compressed:
            return None
        return (yield from cut_by_ends(self.ends, self.num_bytes, start, end, piece_bytes, known))

    def read_indexed(self, selection: RowSelection, *, was_read: bool) -> Steps[tuple[pa.Array, PageIndex | None]]:
        """The selected rows in no more rounds than `read`, and the index, which may save rounds for the items."""
        index = yield from self.find_index(was_read=was_read)
        return (yield from self.read(index, selection)), index

    def find_index(self, *, was_read: bool) -> Steps[PageIndex | None]:
        """See `ArrayLayout`."""
        ranges = self.index_ranges()
        if ranges is None:
            return self.locate(None)
        if was_read or ranges.num_bytes <= ENDS_READ_BYTES_MAX:
            return self.load_index((yield ranges))
        return None

    @property
    def reads_items(self) -> bool:  # type: ignore[override]
        """Whether list items can be read alone: yes for outermost lists, no for strings stored as lists of bytes."""
        return self.items is not None and self.node.kind is NodeKind.LIST and self.depth == self.path.list_depth

    def read_items(self, index: PageIndex | None, wanted: ItemSelection) -> Steps[pa.Array]:
        """See `ArrayLayout`: one round for unknown ends, then the rounds of the items."""
        assert self.items is not None, "a page of lists is read with its items"
        known = index.below if isinstance(index, LocatedIndex) else _NO_INDEXES
        rows = distinct(wanted.rows)
        try:
            spans = yield from self.ends.as_wide().read(Runs(rows, rows + 1, len(rows)), ends_known(index))
            lengths = spans.ends - spans.starts
            if spans.validity is not None:  # a null list may have hidden items
                bits = np.frombuffer(spans.validity, np.uint8)
                lengths *= np.unpackbits(bits, count=len(rows), bitorder="little")
            at = rows.searchsorted(wanted.rows)
            is_there = (wanted.items >= 0) & (wanted.items < lengths[at])
            starts = (spans.starts[at] + wanted.items)[is_there] + self.first_item
            items = yield from self.items.read(starts, starts + 1, known)
        except DamagedError as error:
            raise damage_error(error) from None
        return with_nulls(items, is_there)

    def scan(self) -> Steps[pa.Array]:
        """All rows: ends and items in one round."""
        assert self.items is not None, "a page of lists is read with its items"
        if not self.num_rows:
            return self._lists(0, None, bytes(8), 0, pa.array([], self.items.dtype))
        first, end = np.array([self.first_item]), np.array([self.first_item + self.num_items])
        parts: list[Steps[Any]] = [self.ends.buffer.fetch_all(), self.items.read(first, end)]
        data, items = yield from together(parts)
        try:
            spans = self.ends.of_all(data)
        except DamagedError as error:
            raise damage_error(error) from None
        return self._lists(self.num_rows, spans.validity, spans.offsets, spans.null_count, items)

    def _lists(self, num_rows: int, validity: Any, offsets: Any, null_count: int, items: pa.Array) -> pa.Array:
        bitmap = None if validity is None else pa.py_buffer(validity)
        buffers = [bitmap, pa.py_buffer(offsets)]
        dtype = self.node.arrow_type
        if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
            array = pa.Array.from_buffers(dtype, num_rows, buffers, null_count, children=[items])
        else:  # very old writers stored strings as lists of bytes
            array = pa.Array.from_buffers(dtype, num_rows, [*buffers, _plain_bytes(items)], null_count)
        return structs_around(self.structs, array)

    def describe(self) -> PageDescription:
        """A readable description: layout, sizes, number of items."""
        details: dict[str, str | int] = {"items": self.num_items}
        codec = f"{self.ends.buffer}flat(64)"
        return PageDescription("list", codec, self.num_rows, self.source.num_bytes, details)


def _plain_bytes(items: pa.Array) -> pa.Buffer:
    if items.null_count:
        raise FormatError("null bytes in strings that are stored as lists of bytes")
    data = items.buffers()[1]
    return pa.py_buffer(b"") if data is None else data.slice(items.offset, len(items))
