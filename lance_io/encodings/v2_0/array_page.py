"""Pages of version 2.0: an array of the leaf's values, nested in structs (spec: encodings 2.0, section 2).

Structs have no validity: those above a leaf are never null. Lists have columns of their own (`list_page.py`).
"""

from __future__ import annotations

from dataclasses import field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io._kernels import DamagedError, WholeArray
from lance_io.encodings.api import ArrayLayout, PageDescription, RowSelection
from lance_io.encodings.cuts import PageCuts, cut_evenly
from lance_io.encodings.decoded_size import FSST_GROWTH, FSST_USUALLY, OFFSET_BYTES
from lance_io.encodings.v2_0.array import WithNulls, open_array
from lance_io.encodings.v2_0.buffers import PageBuffers, Runs
from lance_io.encodings.v2_0.dictionary import DictionaryValues, ItemsIndex
from lance_io.encodings.v2_0.located import LocatedIndex, around_leaf, kind_of, locate_values
from lance_io.encodings.v2_0.variable import Coded, EndsIndex, FixedSizeStrings, Variable
from lance_io.encodings.v2_0.whole import whole_values
from lance_io.encodings.v2_1.blob import DESCRIPTOR_TYPE
from lance_io.encodings.v2_1.page import damage_error
from lance_io.encodings.values import build_values
from lance_io.errors import FormatError, UnsupportedError
from lance_io.format.wire import parse_message
from lance_io.levels.assemble import nest, select_members
from lance_io.levels.path import NodeKind
from lance_io.levels.row_bytes import fixed_bits
from lance_io.proto import encodings_pb2 as pb
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io._kernels import Leaf
    from lance_io.encodings.api import PageIndex
    from lance_io.encodings.v2_0.array import ArrayEncoding
    from lance_io.encodings.v2_0.located import ValuesKind
    from lance_io.encodings.v2_0.variable import Ends
    from lance_io.encodings.v2_0.whole import Described
    from lance_io.format.columns import PageInfo
    from lance_io.levels.path import LeafPath, PathNode
    from lance_io.spans import Fetched, IntArray, Ranges, Steps

ENCODING_TYPE: Final = "lance.encodings.ArrayEncoding"
SHARED_MESSAGE_BYTES_MAX: Final = 256  # pages of a table share few messages; those with symbols are larger
SHARED_MESSAGES_MAX: Final = 1024
BORDERS_PER_PIECE: Final = 64  # candidate cuts, which are faster to examine than all values


@dataclass(frozen=True, slots=True, eq=False)
class ArraySource:
    """One page, as its column's metadata describe it.

    num_rows   values of the column in the page
    num_bytes  of its buffers
    message    the encoding of the values
    buffers    that the message may refer to
    """

    num_rows: int
    num_bytes: int
    message: pb.ArrayEncoding
    buffers: PageBuffers = field(repr=False)

    @classmethod
    def of(cls, page: PageInfo, column_buffers: tuple[tuple[int, int], ...]) -> ArraySource:
        """The source of a page. Raises FormatError and UnsupportedError."""
        if page.type_name != ENCODING_TYPE:
            raise UnsupportedError(f"page encoding {page.type_name!r}; file version 2.0 uses {ENCODING_TYPE!r}")
        parse = _shared_message if len(page.encoding) <= SHARED_MESSAGE_BYTES_MAX else _message
        own = tuple(zip(page.buffer_offsets, page.buffer_sizes, strict=True))
        return cls(page.num_rows, page.data_bytes, parse(page.encoding), PageBuffers(own, column_buffers))


def _message(encoding: bytes) -> pb.ArrayEncoding:
    return parse_message(pb.ArrayEncoding, encoding, "page encoding")


_shared_message = lru_cache(maxsize=SHARED_MESSAGES_MAX)(_message)


def text_bound(values: ArrayEncoding) -> tuple[int, int]:
    """Upper bound of the bytes of all variable-width values; growth factor over the bytes read, 0 if unknown."""
    if isinstance(values, WithNulls):
        return text_bound(values.values)
    offset_bytes = OFFSET_BYTES * values.num_values
    if isinstance(values, DictionaryValues):
        return values.num_values * text_bound(values.items)[0] + offset_bytes, 0
    if isinstance(values, Variable):
        growth = FSST_GROWTH if isinstance(values, Coded) and values.is_coded else 1
        return growth * values.ends.end_max + offset_bytes, 0 if values.data.scheme else growth
    if isinstance(values, FixedSizeStrings):
        return values.num_values * values.width_bytes + offset_bytes, 0 if values.buffer.scheme else 1
    return offset_bytes, 0


def structs_around(nodes: Sequence[PathNode], array: pa.Array) -> pa.Array:
    """Wrap an array in the structs on its path."""
    for node in reversed(nodes):
        if node.kind is not NodeKind.STRUCT:
            raise UnsupportedError(f"fields of type {node.field.logical_type!r} are not part of file version 2.0")
        array = pa.Array.from_buffers(node.arrow_type, len(array), [None], 0, children=[array])
    return array


def ends_known(index: PageIndex | None) -> EndsIndex | ItemsIndex | None:
    """The ends or items that an index of a page holds."""
    if isinstance(index, LocatedIndex):
        return index.known
    return index if isinstance(index, (EndsIndex, ItemsIndex)) else None


class ArrayPage(ArrayLayout):
    """One page of a leaf column.

    path    of the column
    above   number of path nodes that enclosing lists have already added
    kind    its values, if kernels support them
    """

    _info: PageInfo  # of a page that `relocated` returned

    def __init__(self, source: ArraySource, path: LeafPath, above: int) -> None:
        self.source = source
        self.num_rows = source.num_rows
        self.num_bytes = source.num_bytes
        self.path = path
        self.structs = path.nodes[above:-1]
        self.above = above
        self._shape = None if self.kind is None else self.kind.shape
        self.join_key = self._join_key()
        self.stride_bytes = 0 if self.kind is None else self.kind.stride_bytes

    # Set in the constructor, or computed on first use for a page that `relocated` returned.

    @cached_property
    def source(self) -> ArraySource:
        """The page as its column's metadata describe it."""
        return ArraySource.of(self._info, ())

    @cached_property
    def values(self) -> ArrayEncoding:
        """The encoding of the values."""
        source = self.source
        return open_array(source.message, self.path.leaf_type, source.num_rows, source.buffers)

    @cached_property
    def kind(self) -> ValuesKind | None:
        """Its values, if kernels support them."""
        return None if self.path.leaf.is_blob or self.path.members is not None else kind_of(self.values)

    @cached_property
    def _relative(self) -> tuple[Described, list[tuple[int, int, int]]] | None:
        """The arguments of `whole`, each range as the number of its buffer and the bytes in that buffer."""
        if self.kind is None or self.above or any(node.kind is not NodeKind.STRUCT for node in self.structs):
            return None  # below lists, the list's page covers it
        described = whole_values(self.values, self.kind, self.num_rows, around_leaf(self.structs))
        if described is None:
            return None
        buffer_ranges = []
        for start, end in described[1]:
            number = self.source.buffers.own_at(start, end)
            if number is None:
                return None
            at = self.source.buffers.of_page[number][0]
            buffer_ranges.append((number, start - at, end - at))
        return described[0], buffer_ranges

    def relocated(self, page: PageInfo) -> ArrayPage | None:
        """This page at the offsets of `page`, with equal message, rows and buffer sizes; None if that is impossible."""
        relative = self._relative
        if relative is None:
            return None
        copy = ArrayPage.__new__(ArrayPage)
        copy._info = page
        copy.num_rows = self.num_rows
        copy.num_bytes = self.num_bytes
        copy.path = self.path
        copy.structs = self.structs
        copy.above = self.above
        copy._shape = self._shape
        copy._text_bound = self._text_bound
        copy.join_key = self.join_key
        copy.stride_bytes = self.stride_bytes
        copy._relative = relative
        return copy

    def _join_key(self) -> str | None:
        is_located = not isinstance(self.values, Variable) or self.values.ends.are_few
        if self.kind is None or self.above or not is_located:
            return None
        return f"array {self.path.array_kind} {self.kind.shape!r}"

    @cached_property
    def whole(self) -> WholeArray | None:  # type: ignore[override]  # computed on first use
        """The page for the kernel that decodes whole pages together; None if it must be read by itself."""
        if "source" not in self.__dict__ and self._relative is not None:  # fast path: no message was parsed
            (described, ranges), offsets = self._relative, self._info.buffer_offsets
            return WholeArray(*described, [(offsets[at] + start, offsets[at] + end) for at, start, end in ranges])
        if self.kind is None or self.above:
            return None
        parts = whole_values(self.values, self.kind, self.num_rows, around_leaf(self.structs))
        return None if parts is None else WholeArray(*parts[0], parts[1])

    @cached_property
    def _text_bound(self) -> tuple[int, int]:
        """See `text_bound`."""
        return text_bound(self.values)

    def decoded_bound(self, num_slots: int, data_bytes: int, *, usual: bool) -> int:
        """See `ArrayLayout`."""
        bits = fixed_bits(self.path.leaf_type)
        if bits is not None:
            return num_slots * bits // 8
        total, growth = self._text_bound
        if growth:  # values can be read separately
            return min(total, min(growth, FSST_USUALLY if usual else growth) * data_bytes + OFFSET_BYTES * num_slots)
        if usual and isinstance(self.values, DictionaryValues):
            return num_slots * (total // max(1, self.num_rows * self.values.items.num_values) + OFFSET_BYTES)
        return total if self.is_compressed else total * num_slots // max(1, self.num_rows)

    @cached_property
    def items_range(self) -> tuple[int, int] | None:  # type: ignore[override]  # computed on first use
        """See `ArrayLayout`."""
        if not isinstance(self.values, DictionaryValues) or self.values.item_width is None:
            return None
        buffers = self.source.buffers.of_page
        start, end = min(at for at, _ in buffers), max(at + size for at, size in buffers)
        return (start, end) if end - start <= 2 * self.num_bytes else None

    def longest_item(self, data: memoryview) -> int:
        """See `ArrayLayout`."""
        assert self.items_range is not None and isinstance(self.values, DictionaryValues), "see items_range"
        try:
            return self.values.longest_item(data, self.items_range[0])
        except DamagedError as error:
            raise damage_error(error) from None

    @property
    def row_bits(self) -> int | None:
        """Bits of a row, if any parts of the rows can be read separately."""
        return self.values.row_bits

    @property
    def is_compressed(self) -> bool:
        """Whether strings can only be read all together."""
        return isinstance(self.values, Variable) and bool(self.values.data.scheme)

    def index_ranges(self) -> Ranges | None:
        """Ranges of the ends of strings or the items of a dictionary, if they are few."""
        return self.values.index_ranges()

    def load_index(self, fetched: Fetched) -> LocatedIndex:
        """The index of the values."""
        try:
            return self.locate(self.values.load_index(fetched))
        except DamagedError as error:
            raise damage_error(error) from None

    def locate(self, index: EndsIndex | ItemsIndex | None) -> LocatedIndex:
        """The index with the page for kernels, if they support it."""
        if self.kind is None or self.join_key is None or (index is None and not self.kind.row_bits):
            return LocatedIndex(index, None)
        try:
            return locate_values(self.values, self.kind, self.num_rows, around_leaf(self.structs), index)
        except DamagedError as error:
            raise damage_error(error) from None

    def build(self, leaf: Leaf) -> pa.Array:
        """Nest rows of this page, or of pages with the same `join_key`, that kernels decoded."""
        return nest(self.path, self.leaf_array(leaf), leaf[2])

    def leaf_array(self, leaf: Leaf) -> pa.Array:
        """The leaf array over values that kernels decoded."""
        assert self._shape is not None, "kernels decode only pages with a kind"
        num_items, values, layers = leaf
        _, bitmap, null_count, _ = layers[0]
        return build_values(self.path.leaf_type, self._shape, values, num_items, bitmap, null_count)

    def read(self, index: PageIndex | None, selection: RowSelection) -> Steps[pa.Array]:
        """The selected rows: one round, or two for strings whose ends are unknown."""
        try:
            array = yield from self.values.read(Runs.of(selection), ends_known(index))
        except DamagedError as error:
            raise damage_error(error) from None
        return self._nest(array)

    def cut(self, start: int, end: int, piece_bytes: int, known: PageIndex | None) -> Steps[PageCuts | None]:
        """Anywhere if values have one width, else at any value, from all ends (one round)."""
        if self.row_bits is not None:
            num_bytes = self.row_bits * (end - start) // 8
            slots = even_borders(start, end, max(1, num_bytes // max(1, piece_bytes)))
            return PageCuts(known, slots, np.diff(slots) * self.row_bits // 8)
        if isinstance(self.values, Variable) and not self.is_compressed:
            ends = self.values.ends
            return (yield from cut_by_ends(ends, self.num_bytes, start, end, piece_bytes, known))
        return None

    def read_indexed(self, selection: RowSelection, *, was_read: bool) -> Steps[tuple[pa.Array, PageIndex | None]]:
        """The selected rows in as many rounds as `read` needs, and the index that these rounds contain."""
        try:
            array, index = yield from self.values.read_indexed(Runs.of(selection), was_read)
        except DamagedError as error:
            raise damage_error(error) from None
        is_open = index is None and not was_read and self.index_ranges() is not None
        return self._nest(array), None if is_open else self.locate(index)

    def scan(self) -> Steps[pa.Array]:
        """All rows, in one round."""
        try:
            array = yield from self.values.scan()
        except DamagedError as error:
            raise damage_error(error) from None
        return self._nest(array)

    def _nest(self, array: pa.Array) -> pa.Array:
        if self.path.leaf.is_blob:
            array = _descriptors(array)
        if self.path.members is not None:
            array = select_members(self.path.members, array, self.path.nodes[-1].arrow_type)
        return structs_around(self.structs, array)

    def describe(self) -> PageDescription:
        """A readable description: layout, encodings, sizes."""
        layout = "blob" if self.path.leaf.is_blob else "array"
        return PageDescription(layout, str(self.values), self.num_rows, self.num_bytes)


def _descriptors(stored: pa.Array) -> pa.Array:
    """Blob descriptors; stored null blobs have position 1 and size 0 (spec: 5.11)."""
    if stored.null_count == len(stored):
        return stored
    position = stored.field(0).to_numpy()
    size = stored.field(1).to_numpy()
    nulls = (size == 0) & (position == 1)
    if stored.null_count:
        nulls |= stored.is_null().to_numpy(zero_copy_only=False)
    odd = (size == 0) & (position > 1) & ~nulls
    if odd.any():
        raise FormatError(f"a blob of no bytes at {int(position[odd][0])}; expected 0, or 1 for null")
    if not nulls.any():
        return stored
    validity = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    children = [pa.array(np.where(nulls, np.uint64(0), position)), stored.field(1)]
    return pa.Array.from_buffers(DESCRIPTOR_TYPE, len(stored), [validity], int(nulls.sum()), children=children)


class HeaderPage:
    """The page of a struct's header column, which holds no values. It is described, never read."""

    def __init__(self, source: ArraySource) -> None:
        self.source = source
        self.num_rows = source.num_rows
        self.num_bytes = source.num_bytes
        if source.message.WhichOneof("array_encoding") != "struct":
            raise FormatError(f"the header of structs stored as {source.message.WhichOneof('array_encoding')!r}")

    def describe(self) -> PageDescription:
        """A readable description: layout and sizes."""
        return PageDescription("struct", "none", self.num_rows, self.num_bytes)


def even_borders(start: int, end: int, num_parts: int) -> IntArray:
    """Borders that divide slots `start` to `end` into about equal parts."""
    parts: Any = np.arange(num_parts + 1, dtype=np.int64)
    borders: IntArray = start + (end - start) * parts // num_parts
    return borders


def cut_by_ends(
    ends: Ends, num_bytes: int, start: int, end: int, piece_bytes: int, known: PageIndex | None
) -> Steps[PageCuts | None]:
    """Cut at any value, by all ends; None if the ends are compressed.

    num_bytes  of the page
    known      the page's index, if it was read before
    """
    if ends.buffer.scheme:
        return None
    index = ends_known(known)
    if not isinstance(index, EndsIndex):
        index = yield from ends.read_all()
    bytes_per_end = num_bytes / max(1, ends.end_max)  # of items or bytes, including the ends
    num_borders = BORDERS_PER_PIECE * max(1, num_bytes // max(1, piece_bytes))
    slots = even_borders(start, end, min(num_borders, max(1, end - start)))
    offsets = (ends.borders(index, slots) * bytes_per_end).astype(np.int64)
    if (np.diff(offsets) > piece_bytes).any():  # a few values have most of the bytes
        slots = np.arange(start, end + 1, dtype=np.int64)
        offsets = (ends.borders(index, slots) * bytes_per_end).astype(np.int64)
    return cut_evenly(index, slots, offsets, piece_bytes)
