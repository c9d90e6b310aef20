"""Upper bounds for the decoded size of a page's rows, computed before decoding. Pure.

    fixed width        the bits of the type for each possible value
    uncompressed text  its bytes
    FSST               eight times its bytes: no symbol is longer
    dictionary         the longest item for each possible value
    zstd, LZ4          the size in the frame header, available after the fetch; per page in version 2.0

`decoded_bound` uses a page's metadata only, and returns None if the size is in the page's bytes. `read_measured` reads
those bytes and returns an upper bound for each part that can be decoded by itself. A false size allocates nothing
extra: kernels decode no more than the announced size. Null bitmaps and list offsets are not counted.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from lance_io import _kernels
from lance_io.codecs.tree import (
    ChildrenShape,
    Codec,
    FixedShape,
    Fsst,
    General,
    ListShape,
    Shape,
    VariablePackedStruct,
    VariableShape,
)
from lance_io.encodings.api import ArrayLayout, RowSelection
from lance_io.encodings.v2_1.fullzip import FullZipIndex, FullZipPage
from lance_io.encodings.v2_1.miniblock import MiniBlockIndex, MiniBlockPage, chunk_borders, longest, whole_ranges
from lance_io.lazy_names import lazy_module
from lance_io.levels.path import LIST_LAYERS
from lance_io.levels.row_bytes import fixed_bits
from lance_io.records import dataclass
from lance_io.spans import Fetched, Ranges, int64s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt
    import pyarrow as pa

    from lance_io.encodings.api import PageIndex, PageLayout
    from lance_io.encodings.v2_1 import blob as blob_pages
    from lance_io.encodings.v2_1 import constant as null_pages
    from lance_io.spans import IntArray, Steps

    _Parts = tuple[PageIndex | None, "SizedParts | EvenParts"]
else:
    blob_pages = lazy_module("lance_io.encodings.v2_1.blob")
    null_pages = lazy_module("lance_io.encodings.v2_1.constant")

FSST_GROWTH: Final = 8
FSST_USUALLY: Final = 3  # usual text; repetitive text grows more, and is counted after decoding
OFFSET_BYTES: Final = 8
ITEMS_PART_BYTES: Final = 4 << 20  # chunks with more text from a dictionary are cut inside
PACKED_GROWTH: Final = 255  # of packed rows with compressed members: only decoding locates their frames
INFLATED_BYTES_MAX: Final = 1 << 31  # limit of the kernels for a frame
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_NUMBER: Final = int.from_bytes(_ZSTD_MAGIC, "little")
_Items = TypeVar("_Items", int, "IntArray")


def decoded_bound(page: PageLayout, num_slots: int, data_bytes: int, *, usual: bool = False) -> int | None:
    """Upper bound of the decoded bytes of `num_slots` slots of a page; None if only the page's bytes contain it.

    data_bytes  approximate bytes read for these slots
    usual       estimate the usual size instead: ordinary text, dictionary items of similar size
    """
    if isinstance(page, MiniBlockPage):
        return _miniblock_bound(page, num_slots, data_bytes, usual)
    if isinstance(page, FullZipPage):
        return _fullzip_bound(page, num_slots, data_bytes, usual)
    if isinstance(page, ArrayLayout):
        return page.decoded_bound(num_slots, data_bytes, usual=usual)
    if isinstance(page, null_pages.NullPage):
        return _constant_bound(page, num_slots)
    if isinstance(page, blob_pages.BlobPage):
        return decoded_bound(page.inner, num_slots, data_bytes, usual=usual)
    return data_bytes + OFFSET_BYTES * num_slots  # version 0.1 compresses nothing


def value_bits(shape: Shape) -> int | None:
    """Bits of each value of a shape in memory; None where values differ."""
    if type(shape) is FixedShape:  # fast path: the common case, on every page
        return shape.bits
    match shape:
        case FixedShape(bits):
            return bits
        case ListShape(items, _, inner):
            bits_or_none = value_bits(inner)
            return None if bits_or_none is None else items * bits_or_none
        case ChildrenShape(children):
            member_bits = [value_bits(child) for child in children]
            return None if None in member_bits else sum([bits for bits in member_bits if bits is not None])
        case VariableShape():
            return None


def _growth(codec: Codec, usual: bool = False) -> int | None:
    """Upper bound of the growth factor of variable-width values; None if the frame headers contain the size."""
    match codec:
        case General():
            return None
        case Fsst():
            return FSST_USUALLY if usual else FSST_GROWTH
        case VariablePackedStruct(members):
            growths = [_growth(member.values, usual) for member in members]
            return None if None in growths else max([1, *[growth for growth in growths if growth is not None]])
        case _:
            return 1


def _even_bytes(page: MiniBlockPage, items: _Items) -> _Items | None:
    """The bytes of items that are equally large: numbers, and indices of a dictionary; None for others.

    items  a number of items, or one for each chunk
    """
    if page.keeps_indices and page.dictionary is not None:
        return items * OFFSET_BYTES
    bits = value_bits(page.value_shape)
    return None if bits is None else items * bits // 8


def _miniblock_bound(page: MiniBlockPage, num_slots: int, data_bytes: int, usual: bool) -> int | None:
    items = page.num_items if page.has_lists else num_slots
    even_bytes = _even_bytes(page, items)
    if even_bytes is not None:
        return even_bytes
    if page.dictionary is not None:
        growth = _growth(page.dictionary, usual)
        return None if growth is None else items * _item_bytes(page, growth * page.source.buffer_sizes[2], usual)
    growth = _growth(page.codec, usual)
    return None if growth is None else growth * data_bytes + items * OFFSET_BYTES


def _item_bytes(page: MiniBlockPage, items_bytes: int, usual: bool) -> int:
    """Bytes of the longest item of a dictionary of `items_bytes` bytes; with `usual`, of an average item."""
    return OFFSET_BYTES + (items_bytes // max(1, page.num_dictionary_items) if usual else items_bytes)


def has_packed_dictionary(page: PageLayout) -> bool:
    """Whether `dictionary_bound` works for a page."""
    return isinstance(page, MiniBlockPage) and not page.keeps_indices and isinstance(page.dictionary, General)


def dictionary_bound(page: MiniBlockPage, compressed: memoryview) -> int:
    """Upper bound of a page's decoded bytes, from its compressed dictionary."""
    codec = page.dictionary
    assert isinstance(codec, General), "see has_packed_dictionary"
    items = page.num_items if page.has_lists else page.num_rows
    num_bytes = (_growth(codec.values) or 1) * _frame_bytes(codec.scheme, compressed)
    return items * _item_bytes(page, num_bytes, usual=False)


def _fullzip_bound(page: FullZipPage, num_slots: int, data_bytes: int, usual: bool) -> int | None:
    if not page.is_variable:
        return data_bytes if page.has_index else num_slots * max(1, page.bits) // 8
    growth = _growth(page.codec, usual)
    return None if growth is None else growth * data_bytes + OFFSET_BYTES * num_slots


def _constant_bound(page: Any, num_slots: int) -> int:
    items = num_slots
    if any(layer in LIST_LAYERS for layer in page.layers):
        message = getattr(page, "message", None)  # in version 2.2, where levels may be compressed
        announced = [message.num_rep_values, message.num_def_values] if message is not None else []
        items = max([num_slots, *announced, *[size // 2 for size in page.source.buffer_sizes]])
    bits = fixed_bits(page.source.path.leaf_type)
    if bits is not None:
        return items * bits // 8
    value_bytes = page.source.buffer_sizes[0] if len(page.source.buffer_sizes) in (1, 3) else 0
    return items * (value_bytes + OFFSET_BYTES)


# -- sizes from the page's bytes -----------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class MeasuredPage:
    """The bytes that were read for some slots of a page.

    start       file offset of the data
    data        of these slots
    num_bytes   upper bound of the decoded bytes of all slots
    find_parts  returns the index of the page, if it has one, and the parts that can be decoded by themselves
    whole       the bytes that `scan` of the page requests, if all of them were read
    """

    start: int
    data: memoryview
    num_bytes: int
    find_parts: Callable[[], _Parts]
    whole: Fetched | None = None

    @classmethod
    def of_parts(
        cls,
        index: PageIndex | None,
        start: int,
        data: memoryview,
        parts: SizedParts | EvenParts,
        whole: Fetched | None = None,
    ) -> MeasuredPage:
        """A page whose parts are known."""
        return cls(start, data, parts.num_bytes, lambda: (index, parts), whole)


@dataclass(slots=True, eq=False)
class SizedParts:
    """Slots that can be cut only between parts.

    slots   i64[n + 1], ascending: the start of each part that can be decoded by itself, and the end of the last
    sizes   i64[n], upper bound of the decoded bytes of each part
    """

    slots: IntArray
    sizes: IntArray

    @property
    def num_bytes(self) -> int:
        """Upper bound of the decoded bytes of all parts."""
        return int(self.sizes.sum())

    def cut(self, part_bytes: int, slots_per_row: int) -> Iterator[tuple[int, int, int]]:
        """Start, end and bound of consecutive parts of about `part_bytes`, at least one row each."""
        first, slots = 0, self.slots
        sums = np.concatenate(([0], np.cumsum(self.sizes)))
        while first < len(self.sizes):
            end = max(first + 1, int(np.searchsorted(sums, sums[first] + part_bytes, side="right")) - 1)
            while end < len(self.sizes) and (slots[end] == slots[first] or slots[end] % slots_per_row):
                end += 1
            if slots[end] > slots[first]:
                yield int(slots[first]), int(slots[end]), int(sums[end] - sums[first])
            first = end


@dataclass(slots=True, eq=False)
class EvenParts:
    """Slots `start` to `end`, which can be cut anywhere; each decodes to at most `slot_bytes`.

    Uses constant memory: a few bytes of codes may represent millions of long items.
    """

    start: int
    end: int
    slot_bytes: int

    @property
    def num_bytes(self) -> int:
        """Upper bound of the decoded bytes of all slots."""
        return self.slot_bytes * (self.end - self.start)

    def cut(self, part_bytes: int, slots_per_row: int) -> Iterator[tuple[int, int, int]]:
        """See `SizedParts`."""
        num_rows = part_bytes // max(1, self.slot_bytes * slots_per_row)
        step = max(1, num_rows) * slots_per_row
        for start in range(self.start, self.end, step):
            end = min(start + step, self.end)
            yield start, end, self.slot_bytes * (end - start)


def can_measure(page: PageLayout) -> bool:
    """Whether `read_measured` works for a page."""
    if isinstance(page, ArrayLayout):
        return page.items_range is not None
    return isinstance(page, MiniBlockPage) or (isinstance(page, FullZipPage) and page.is_variable)


def read_measured(
    page: PageLayout, index: PageIndex | None, start: int, end: int, *, is_whole: bool
) -> Steps[MeasuredPage]:
    """The bytes of slots `start` to `end` of a page that `can_measure` accepts, and bounds of their decoded size.

    is_whole  nearly the whole page is wanted, so its index is read in the same round

    One round; two for a part of a page without its index. Raises FormatError.
    """
    if isinstance(page, ArrayLayout):
        return (yield from _measure_items(page, start, end))
    if isinstance(page, MiniBlockPage):
        return (yield from _measure_chunks(page, index, start, end, is_whole=is_whole))
    assert isinstance(page, FullZipPage), "see can_measure"
    return (yield from _measure_entries(page, index, start, end, is_whole=is_whole))


def scan_fetched(page: PageLayout, fetched: Fetched) -> pa.Array:
    """All rows of a page, from the fetched bytes of its scan."""
    if isinstance(page, MiniBlockPage):
        return page.decode_scan(fetched)
    steps = page.scan()
    next(steps)
    try:
        steps.send(fetched)
    except StopIteration as done:
        return done.value
    raise AssertionError("a scan has one round")


def _measure_items(page: ArrayLayout, start: int, end: int) -> Steps[MeasuredPage]:
    assert page.items_range is not None, "see can_measure"
    low, high = page.items_range
    fetched = yield Ranges.of((low, high), keep=True)
    data = fetched.piece(0, high - low)
    return MeasuredPage.of_parts(None, low, data, EvenParts(start, end, page.longest_item(data) + OFFSET_BYTES))


def _measure_chunks(
    page: MiniBlockPage, index: PageIndex | None, start: int, end: int, *, is_whole: bool
) -> Steps[MeasuredPage]:
    base, size = page.source.buffer_offsets[1], page.source.buffer_sizes[1]
    if is_whole and not isinstance(index, MiniBlockIndex):
        ranges = whole_ranges([page])
        ranges.keep = True
        whole = yield ranges
        find_parts = partial(_parts_of_whole, page, whole, start, end)
        return MeasuredPage(base, whole.piece(1, size), _whole_bytes(page, whole), find_parts, whole)
    if not isinstance(index, MiniBlockIndex):
        wanted = page.index_ranges()
        assert wanted is not None, "mini-block pages have a chunk table"
        index = page.load_index((yield wanted))
    chunks = page.chunk_ranges(index, RowSelection.span(start, end))
    first, until = int(chunks.starts.min(initial=base + size)), int(chunks.ends.max(initial=0))
    fetched = yield Ranges.of((first, max(first, until)), keep=True)
    data = fetched.piece(0, max(0, until - first))
    return MeasuredPage.of_parts(index, first, data, _chunk_parts(page, index, start, end, first, data))


def _whole_bytes(page: MiniBlockPage, whole: Fetched) -> int:
    """Upper bound of the decoded bytes of all rows of a page, from all of its bytes, without its index."""
    sizes, items = page.source.buffer_sizes, page.num_items
    even_bytes = _even_bytes(page, items)
    if even_bytes is not None:
        return even_bytes
    if page.dictionary is not None:
        return items * (page.longest_item(whole.piece(2, sizes[2])) + OFFSET_BYTES)
    growth = _growth(page.codec)
    if growth is not None:
        return growth * sizes[1] + items * OFFSET_BYTES
    borders = chunk_borders(whole.piece(0, sizes[0]), wide=page.source.rules.wide_chunks)
    return int(_frame_sizes(page, whole.piece(1, sizes[1]), borders).sum()) + items * OFFSET_BYTES


def _parts_of_whole(page: MiniBlockPage, whole: Fetched, start: int, end: int) -> _Parts:
    index = page.load_index(Fetched(whole.buffer, np.delete(whole.offsets, 1)))
    base, size = page.source.buffer_offsets[1], page.source.buffer_sizes[1]
    return index, _chunk_parts(page, index, start, end, base, whole.piece(1, size))


def _chunk_parts(
    page: MiniBlockPage, index: MiniBlockIndex, start: int, end: int, first: int, data: memoryview
) -> SizedParts | EvenParts:
    """The parts of the chunks with some slots; `data` begins at byte `first` of the file."""
    starts = int64s(index.item_starts if index.row_starts is None else index.row_starts)
    low = max(0, int(starts.searchsorted(start, side="right")) - 1)
    high = max(low, int(starts.searchsorted(end, side="left")))
    items = np.diff(int64s(index.item_starts)[low : high + 1])
    borders = int64s(index.byte_offsets)[low : high + 1] + (page.source.buffer_offsets[1] - first)
    sizes = _chunk_sizes(page, index, items, borders, data)
    if page.dictionary is not None and index.row_starts is None and int(sizes.max(initial=0)) > ITEMS_PART_BYTES:
        return EvenParts(start, end, int(sizes.max()) // max(1, int(items.max())))
    return SizedParts(starts[low : high + 1].clip(start, end), sizes)


def _chunk_sizes(
    page: MiniBlockPage, index: MiniBlockIndex, items: IntArray, borders: IntArray, data: memoryview
) -> IntArray:
    even_bytes = _even_bytes(page, items)
    if even_bytes is not None:
        return even_bytes
    if page.dictionary is not None:
        offsets = None if index.dictionary is None else index.dictionary[0]
        return items * (longest(page.value_shape, offsets) + OFFSET_BYTES)
    growth = _growth(page.codec)
    if growth is not None:
        return growth * np.diff(borders) + items * OFFSET_BYTES
    return _frame_sizes(page, data, borders) + items * OFFSET_BYTES


def _frame_sizes(page: MiniBlockPage, data: memoryview, borders: IntArray) -> IntArray:
    """Upper bound of the decoded bytes of compressed chunks, from the sizes before their frames (spec: 4 and 8.5)."""
    assert isinstance(page.codec, General), "others have a growth"
    scheme, num_levels = page.codec.scheme, len(page.level_codecs)
    content = np.frombuffer(data, np.uint8)
    starts, ends = borders[:-1].clip(0, len(content)), borders[1:].clip(0, len(content))
    head_bytes = 2 + 2 * num_levels + (4 if page.source.rules.wide_chunks else 2)
    at: IntArray = starts + (head_bytes + 7) // 8 * 8
    for level in range(num_levels):
        end: IntArray = at - starts + _numbers_at(content, starts + (2 + 2 * level), 2)
        at = starts + np.asarray((end + 7) // 8 * 8, np.int64)
    width = 4 if scheme == "lz4" else 8
    heads = np.where(at + width <= ends, _numbers_at(content, at, width).view(np.uint64), np.uint64(0))
    limits: Any = 255 * (ends - at).clip(0) if scheme == "lz4" else INFLATED_BYTES_MAX
    sizes = np.minimum(heads, np.uint64(1) << np.uint64(62)).astype(np.int64)
    if scheme == "zstd":
        for bare in np.flatnonzero(heads & np.uint64(0xFFFFFFFF) == np.uint64(_ZSTD_NUMBER)).tolist():
            sizes[bare] = _frame_bytes(scheme, data[at[bare] : ends[bare]])
    bounded: IntArray = np.minimum(sizes, limits)
    return (_growth(page.codec.values) or 1) * bounded


def _numbers_at(content: npt.NDArray[np.uint8], at: IntArray, width: int) -> IntArray:
    """Little-endian numbers of `width` bytes; bytes beyond the end count as 0."""
    values = np.zeros((len(at), 8), np.uint8)
    for byte in range(width):
        inside = at + byte < len(content)
        values[inside, byte] = content[at[inside] + byte]
    numbers: IntArray = values.view("<i8")[:, 0]
    return numbers


def _frame_bytes(scheme: str, compressed: memoryview) -> int:
    """Decompressed size that a compressed buffer announces (spec: 8.5); decoding rejects impossible sizes."""
    if len(compressed) < (4 if scheme == "lz4" else 8):
        return 0
    if scheme == "lz4":
        return min(int.from_bytes(compressed[:4], "little"), 255 * len(compressed))
    if bytes(compressed[:4]) != _ZSTD_MAGIC or compressed[4] & 0x10:
        return min(int.from_bytes(compressed[:8], "little"), INFLATED_BYTES_MAX)
    return min(_content_bytes(bytes(compressed[4:24])), INFLATED_BYTES_MAX)


def _content_bytes(head: bytes) -> int:
    """The content size in the header of a zstd frame, after its magic number (RFC 8878, 3.1.1.1)."""
    flags = head[0]
    is_single, size_flag = bool(flags & 0x20), flags >> 6
    if not size_flag and not is_single:
        return sys.maxsize  # not announced
    at = 1 + (not is_single) + (0, 1, 2, 4)[flags & 3]
    width = (1, 2, 4, 8)[size_flag]
    return int.from_bytes(head[at : at + width], "little") + (256 if width == 2 else 0)


def _measure_entries(
    page: FullZipPage, index: PageIndex | None, start: int, end: int, *, is_whole: bool
) -> Steps[MeasuredPage]:
    base = page.source.buffer_offsets[0]
    whole: Fetched | None = None
    if isinstance(index, FullZipIndex) or not is_whole:
        if not isinstance(index, FullZipIndex):
            index = page.load_index((yield page.source.ranges([1], "index")))
        low, high = page.data_bounds(index, RowSelection.span(start, end))
        fetched = yield Ranges.of((base + low, base + high), keep=True)
        data = fetched.piece(0, high - low)
    else:
        fetched = yield page.source.ranges([0, 1], "data", keep=True)
        index = page.load_index(Fetched(fetched.buffer, fetched.offsets[1:]))
        low, data = 0, fetched.piece(0, page.source.buffer_sizes[0])
        whole = Fetched(fetched.buffer, fetched.offsets[:1])
        page.data_bounds(index, RowSelection.span(start, end))  # rejects a damaged index
    entries = np.frombuffer(index.entries, dtype=f"<u{index.width_bytes}")[start : end + 1]
    limit = np.uint64(low + len(data))
    offsets = np.maximum.accumulate(np.minimum(entries, limit).astype(np.int64) - low)
    slots = np.arange(start, end + 1, dtype=np.int64)
    parts = SizedParts(slots, _entry_sizes(page, offsets.clip(0), data))
    return MeasuredPage.of_parts(index, base + low, data, parts, whole)


def _entry_sizes(page: FullZipPage, offsets: IntArray, data: memoryview) -> IntArray:
    growth = _growth(page.codec)
    if growth is not None:
        return growth * np.diff(offsets) + OFFSET_BYTES
    codec = page.codec
    if not isinstance(codec, General):  # packed rows, of which members are compressed
        return PACKED_GROWTH * np.diff(offsets) + OFFSET_BYTES
    sizes = _announced(page, codec, data, offsets[:-1], np.diff(offsets), unannounced_bytes=INFLATED_BYTES_MAX)
    return sizes * (_growth(codec.values) or 1) + OFFSET_BYTES


def _announced(
    page: FullZipPage, codec: General, data: Any, offsets: IntArray, lengths: IntArray, *, unannounced_bytes: int
) -> IntArray:
    """Decompressed bytes of each range of entries, from the sizes in front of their frames."""
    heads = (page.control_bytes, page.level_bits["definition"], page.bits // 8)
    starts = np.ascontiguousarray(offsets)
    return int64s(_kernels.announced_entries(codec.scheme, heads, unannounced_bytes, data, starts, lengths))


def announced_bytes(page: FullZipPage, fetched: Fetched, lengths: IntArray) -> int:
    """Decompressed bytes that fetched entries announce; 0 if they do not announce any.

    lengths  of the ranges, i64[n]
    """
    codec = page.codec
    if not page.is_variable or not isinstance(codec, General):
        return 0
    return int(_announced(page, codec, fetched.buffer, fetched.offsets, lengths, unannounced_bytes=0).sum())
