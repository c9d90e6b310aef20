"""Pages of version 2.0 for kernels: those whose rows can be located without a read.

A take plans and decodes all such pages of all its files with one kernel call each. They hold values of one width,
strings with known ends, strings with a known dictionary, or lists of values of one width with known ends.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from lance_io import _kernels
from lance_io.codecs.tree import FixedShape, ListShape, Shape, VariableShape
from lance_io.encodings.v2_0.array import WithNulls
from lance_io.encodings.v2_0.dictionary import DictionaryValues, ItemsIndex
from lance_io.encodings.v2_0.fixed import FixedSizeLists, Flat, FlatBits
from lance_io.encodings.v2_0.variable import Coded, Ends, EndsIndex, Variable
from lance_io.encodings.values import buffer_count
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_io.encodings.api import PageIndex
    from lance_io.encodings.v2_0.array import ArrayEncoding
    from lance_io.levels.path import PathNode

PAGE_BYTES = 256  # memory of a page without its tables


@dataclass(frozen=True, slots=True, eq=False)
class LocatedIndex:
    """Locates the rows of a page.

    index  `EndsIndex` or `ItemsIndex`; None if there is no index, or if `page` holds the ends
    page   the page for kernels; None for pages that are read by themselves
    below  for lists: the indexes of the pages of their items, by number
    """

    index: EndsIndex | ItemsIndex | None
    page: _kernels.ArrayPage | None
    below: Mapping[int, PageIndex] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        own_bytes = 0 if self.index is None else self.index.nbytes
        below_bytes = sum(index.nbytes for index in self.below.values())
        return PAGE_BYTES + own_bytes + below_bytes + (0 if self.page is None else self.page.nbytes)

    @property
    def known(self) -> EndsIndex | ItemsIndex | None:
        """The index of the values; if `page` holds the ends, they are taken from it."""
        if self.index is not None or self.page is None:
            return self.index
        ends = self.page.stored_ends()
        return None if ends is None else EndsIndex(memoryview(ends))


class ValuesKind(NamedTuple):
    """Values that kernels support.

    shape       of a leaf of these values
    base_bytes  file offset of the values
    row_bits    of a value; 0 for variable width
    present_at  file offset of the validity bitmap, or None
    """

    shape: Shape
    base_bytes: int
    row_bits: int
    present_at: int | None = None

    @property
    def stride_bytes(self) -> int:
        """Bytes of a value whose file layout equals its memory layout; 0 for others."""
        return 0 if self.present_at is not None else self.row_bits // 8

    @property
    def num_bitmaps(self) -> int:
        """Number of absent bitmaps that precede the values in a leaf's buffers."""
        return buffer_count(self.shape) - 1 if isinstance(self.shape, ListShape) else 0


def kind_of(values: ArrayEncoding) -> ValuesKind | None:
    """The description of an array for kernels; None for arrays that they do not support."""
    present_at = None
    if isinstance(values, WithNulls):
        if values.present.buffer.scheme or not isinstance(values.values, (Flat, FlatBits, FixedSizeLists)):
            return None
        present_at, values = values.present.buffer.offset_bytes, values.values
    match values:
        case Flat(buffer=buffer, width_bytes=width) if not buffer.scheme:
            return ValuesKind(FixedShape(8 * width), buffer.offset_bytes, 8 * width, present_at)
        case FlatBits(buffer=buffer) if not buffer.scheme:
            return ValuesKind(FixedShape(1), buffer.offset_bytes, 1, present_at)
        case FixedSizeLists(items=items, dtype=dtype):
            inner = None if isinstance(items, WithNulls) else kind_of(items)
            if inner is None or inner.row_bits % 8 or not inner.row_bits:
                return None
            shape = ListShape(dtype.list_size, False, inner.shape)
            return ValuesKind(shape, inner.base_bytes, inner.row_bits * dtype.list_size, present_at)
        case Coded(is_coded=True):
            return None
        case Variable(ends=ends, data=data) if not ends.buffer.scheme and not data.scheme:
            return ValuesKind(VariableShape(64 if ends.wide else 32), data.offset_bytes, 0)
        case DictionaryValues(dtype=dtype, codes=Flat(buffer=buffer)) if dtype == pa.string() and not buffer.scheme:
            return ValuesKind(VariableShape(32), buffer.offset_bytes, 0)
    return None


def around_leaf(nodes: Sequence[PathNode]) -> bytes:
    """The nodes above a leaf for kernels, outermost first: structs, and lists of both widths."""
    kinds = bytearray()
    for node in reversed(nodes):
        dtype = node.arrow_type
        kinds += b"L" if pa.types.is_large_list(dtype) else b"l" if pa.types.is_list(dtype) else b"s"
    return bytes(kinds)


def locate_values(
    values: ArrayEncoding, kind: ValuesKind, num_rows: int, around: bytes, index: EndsIndex | ItemsIndex | None
) -> LocatedIndex:
    """Locate a page of values. Raises DamagedError for ends that contradict the format."""
    ends, items = None, None
    if isinstance(values, Variable):
        assert isinstance(index, EndsIndex), "ends of values are their index"
        ends = _kernel_ends(values.ends, index)
    elif isinstance(values, DictionaryValues):
        assert isinstance(index, ItemsIndex), "items of a dictionary are its index"
        if index.items.null_count or index.items.offset:
            return LocatedIndex(index, None)
        _, offsets, data = index.items.buffers()
        items = (offsets or bytes(4), data or b"")
        items = (memoryview(items[0])[: 4 * (len(index.items) + 1)], items[1])
    page = _kernels.ArrayPage(
        num_rows, around, kind.base_bytes, kind.row_bits, kind.present_at, kind.num_bitmaps, ends, items, None
    )
    return LocatedIndex(index if ends is None else None, page)


def locate_lists(ends: Ends, index: EndsIndex, kind: ValuesKind, first_slot: int, around: bytes) -> LocatedIndex:
    """Locate a page of lists of values of one width.

    first_slot  position of its first item among the values of `kind`
    """
    lists = _kernel_ends(ends, index), first_slot
    page = _kernels.ArrayPage(
        ends.num_values, around, kind.base_bytes, kind.row_bits, kind.present_at, kind.num_bitmaps, None, None, lists
    )
    return LocatedIndex(None, page)


def _kernel_ends(ends: Ends, index: EndsIndex) -> tuple[Any, int, int, bool]:
    return index.data, ends.adjustment, ends.end_max, ends.wide
