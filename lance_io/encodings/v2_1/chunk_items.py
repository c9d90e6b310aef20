"""Reads single list items of a mini-block page with one level of lists, from the chunks of these items only.

    row -> the chunk that it begins in         row starts
    row that continues -> its first item       number of its levels at the end of that chunk ("unfinished")
    item -> the chunk that holds it            item starts

A row that does not continue in the next chunk is in one chunk, whose levels delimit the row. So each item takes one
chunk, in one round. Of a fetched chunk only the levels that own an item are kept, without repetition: the result is a
chunk of a page without lists whose rows are the items, and the kernel takes the selected ones. Specification:
structural encodings 2.1, section 3.4.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from lance_io import _kernels
from lance_io._kernels import DamagedError
from lance_io.encodings.v2_1.miniblock import chunk_buffers
from lance_io.encodings.v2_1.page import damage_error
from lance_io.errors import FormatError
from lance_io.gil import yielding
from lance_io.levels.item_lists import with_nulls
from lance_io.levels.path import DEFINITION_LEVELS
from lance_io.records import dataclass
from lance_io.spans import Ranges, distinct, int64s, uint8s

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from lance_io._kernels import Layer
    from lance_io.encodings.item_reads import ItemSelection
    from lance_io.encodings.v2_1.miniblock import MiniBlockIndex, MiniBlockPage
    from lance_io.spans import IntArray, Steps

ALIGNMENT = 8  # of the buffers in a chunk, in bytes
PAD = b"\xfe"


@dataclass(slots=True, eq=False)
class _ItemLocations:
    """Locations of the selected items according to the index.

    chunks  i64[n], the chunk that may hold each item; -1 if there is no such item
    row     i64[n], number of the row among those that begin in that chunk; -1 for a row that began earlier
    offset  i64[n], the item's number in its row, or in the chunk if the row began earlier
    """

    chunks: IntArray
    row: IntArray
    offset: IntArray


def read_chunk_items(page: MiniBlockPage, index: MiniBlockIndex, wanted: ItemSelection) -> Steps[pa.Array]:
    """The selected items, null where a row has no such item; one chunk each, in one round. Raises FormatError."""
    locations = _locate(index, wanted)
    chunks = distinct(locations.chunks[locations.chunks >= 0])
    offsets = int64s(index.byte_offsets)
    items = page.of_items()
    parts = _Parts(page, items, index)
    item_numbers = np.full(len(wanted.rows), -1, dtype=np.int64)
    definition = np.zeros(len(item_numbers), dtype=np.uint16)
    if len(chunks):
        is_first = np.append(True, chunks[1:] != chunks[:-1] + 1)  # adjacent chunks are one range
        firsts = np.flatnonzero(is_first)
        ends = chunks[np.append(firsts[1:], len(chunks)) - 1]
        base = page.source.buffer_offsets[1]
        fetched = yield Ranges(offsets[chunks[firsts]] + base, offsets[ends + 1] + base)
        runs = np.cumsum(is_first) - 1
        starts = fetched.offsets[runs] + offsets[chunks] - offsets[chunks[firsts]][runs]
        data = memoryview(fetched.buffer).cast("B")
        order = np.argsort(locations.chunks, kind="stable")
        bounds = locations.chunks[order].searchsorted(np.append(chunks, chunks[-1] + 1))
        for number, (chunk, start) in enumerate(yielding(list(zip(chunks.tolist(), starts.tolist(), strict=True)))):
            in_chunk = order[bounds[number] : bounds[number + 1]]
            size = int(offsets[chunk + 1] - offsets[chunk])
            try:
                item_numbers[in_chunk], definition[in_chunk] = parts.add(
                    chunk, data[start : start + size], locations.row[in_chunk], locations.offset[in_chunk]
                )
            except FormatError as error:
                raise FormatError(f"chunk {chunk}: {error}") from None
    exists = item_numbers >= 0
    return with_nulls(parts.decode(item_numbers[exists], definition[exists]), exists)


def _locate(index: MiniBlockIndex, wanted: ItemSelection) -> _ItemLocations:
    starts, item_starts = int64s(index.row_starts), int64s(index.item_starts)
    rows, items = wanted.rows, np.minimum(wanted.items, item_starts[-1])
    if not len(rows) or len(starts) < 2:
        none = np.full(len(rows), -1, dtype=np.int64)
        return _ItemLocations(none, none, none)
    assert index.unfinished is not None, "a page with lists has a repetition index"
    preamble = np.append(uint8s(index.preamble), 0)
    begins = starts.searchsorted(rows, side="right") - 1
    continues = (preamble[begins + 1] != 0) & (rows == starts[begins + 1] - 1)
    # the chunk in which a continued row ends: the first later chunk after which a row begins
    last = np.flatnonzero((starts[1:] > starts[:-1]) | (preamble[1:] == 0))
    ends = last[np.minimum(last.searchsorted(begins + 1), len(last) - 1)]
    unfinished = index.unfinished.astype(np.int64)
    _check_unfinished(unfinished, np.diff(item_starts), distinct(begins[continues]), distinct(ends[continues]))
    position = item_starts[begins + 1] - unfinished[begins] + items
    chunks = np.where(continues, item_starts.searchsorted(position, side="right") - 1, begins)
    is_missing = (items < 0) | (continues & (position >= item_starts[ends + 1]))
    is_behind = chunks > begins
    return _ItemLocations(
        np.where(is_missing, -1, chunks),
        np.where(is_behind, -1, rows - starts[begins]),
        np.where(is_behind, position - item_starts[np.maximum(chunks, 0)], items),
    )


def _check_unfinished(unfinished: IntArray, num_items: IntArray, begins: IntArray, ends: IntArray) -> None:
    """Raise FormatError unless the levels of continued rows fit the items.

    A continued row has at most as many levels in its first chunk as this has items, and all items of the chunks between
    its first and last. Each of its levels is an item, because an empty list is a single level.
    """
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        between = slice(begin + 1, end)
        if unfinished[begin] > num_items[begin] or (unfinished[between] != num_items[between]).any():
            raise FormatError(
                f"repetition index: the levels of the row that continues after chunk {begin} do not fit the items there"
            )


class _Parts:
    """Collects chunks, rewritten without lists."""

    def __init__(self, page: MiniBlockPage, items: MiniBlockPage, index: MiniBlockIndex) -> None:
        assert index.unfinished is not None, "a page with lists has a repetition index"
        self._page = page
        self._items = items
        self._dictionary = index.dictionary
        self._num_items = np.diff(int64s(index.item_starts))
        self._num_rows = np.diff(int64s(index.row_starts))
        self._preamble = uint8s(index.preamble)
        self._unfinished = index.unfinished
        self._layers = page.layers[: len(items.layers)]
        self._max_visible = sum([DEFINITION_LEVELS[layer] for layer in self._layers])
        self._num_sizes = chunk_buffers(page.codec)
        self._size_bytes = 4 if page.source.rules.wide_chunks else 2
        self._bytes = bytearray()
        self._byte_offsets = [0]
        self._item_starts = [0]

    def add(
        self, number: int, chunk: memoryview, rows: IntArray, offsets: IntArray
    ) -> tuple[IntArray, npt.NDArray[np.uint16]]:
        """Add a chunk; parameters as in `_ItemLocations`.

        Returns the number of each selected item among the items of all chunks so far, -1 for a missing item; and its
        definition level.
        """
        repetition, definition, values_at = self._levels(chunk)
        starts = self._row_starts(number, repetition)  # not empty: rows were selected
        level = _item_levels(rows, offsets, starts, len(repetition))
        exists = level >= 0
        level = np.where(exists, level, 0)
        visible = definition <= self._max_visible
        _check_alone(repetition, visible)
        owned = np.cumsum(visible)  # each of these levels owns an item
        num_items = int(owned[-1])
        if num_items != self._num_items[number]:
            raise FormatError(f"its levels own {num_items} items, the chunk table has {self._num_items[number]}")
        self._write(chunk, values_at)
        first = self._item_starts[-1]
        self._item_starts.append(first + num_items)
        return np.where(exists & visible[level], first + owned[level] - 1, -1), definition[level]

    def _levels(self, chunk: memoryview) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint16], int]:
        """Repetition levels, definition levels, and the position of the values."""
        codecs = self._page.level_codecs
        sizes_at = 2 + 2 * len(codecs)
        at = _aligned(sizes_at + self._size_bytes * self._num_sizes)
        if at > len(chunk):
            raise FormatError(f"its {len(chunk)} bytes are too few for a header")
        num_levels, *sizes = struct.unpack_from(f"<{1 + len(codecs)}H", chunk)
        vectors: list[Any] = []
        for codec, size in zip(codecs.values(), sizes, strict=True):
            if at + size > len(chunk):
                raise FormatError(f"levels of {size} bytes at {at} in a chunk of {len(chunk)}")
            try:
                levels: Any = _kernels.decode_levels(codec.program(), chunk[at : at + size], num_levels)
            except DamagedError as error:
                raise damage_error(error) from None
            vectors.append(np.frombuffer(levels, dtype=np.uint16))
            at = _aligned(at + size)
        definition = vectors[1] if len(vectors) > 1 else np.zeros(num_levels, dtype=np.uint16)
        return vectors[0], definition, min(at, len(chunk))

    def _row_starts(self, number: int, repetition: npt.NDArray[np.uint16]) -> IntArray:
        """Levels at which rows begin. Raises FormatError unless the chunk agrees with the index."""
        if repetition.max(initial=0) > 1:
            raise FormatError(f"repetition level {repetition.max()} is above 1, the number of lists")
        starts = np.flatnonzero(repetition)
        num_rows = int(self._num_rows[number])
        opens_row = len(repetition) == 0 or repetition[0] == 1
        if len(starts) != num_rows or opens_row == bool(self._preamble[number]):
            raise FormatError(f"repetition levels hold {len(starts)} rows, or the end of one; the index has {num_rows}")
        unfinished, num_left = int(self._unfinished[number]), len(repetition) - int(starts[-1] if len(starts) else 0)
        if unfinished and unfinished != num_left:
            raise FormatError(f"a row continues after {num_left} levels, the index has {unfinished}")
        return starts

    def _write(self, chunk: memoryview, values_at: int) -> None:
        """Append the chunk without its levels; values are unchanged."""
        sizes_at = 2 + 2 * len(self._page.level_codecs)
        sizes = chunk[sizes_at : sizes_at + self._size_bytes * self._num_sizes]
        for part in (b"\x00\x00" + sizes, chunk[values_at:]):
            self._bytes += part
            self._bytes += PAD * (-len(self._bytes) % ALIGNMENT)
        self._byte_offsets.append(len(self._bytes))

    def decode(self, wanted: IntArray, definition: npt.NDArray[np.uint16]) -> pa.Array:
        """Items of all chunks by number, ascending, with their definition levels."""
        chunk_ids = np.arange(len(self._byte_offsets) - 1, dtype=np.int64)
        byte_offsets = np.array(self._byte_offsets, dtype=np.int64)
        item_starts = np.array(self._item_starts, dtype=np.int64)
        index = self._items.index(byte_offsets, item_starts, None, None, self._dictionary)
        zero = np.zeros(1, dtype=np.int64)
        try:
            num_items, values, _ = _kernels.decode_miniblock(
                index.page, self._bytes, zero, zero, chunk_ids, wanted, None
            )
        except DamagedError as error:
            raise damage_error(error) from None
        return self._items.build((num_items, values, _item_layers(self._layers, definition)), index)


def _item_layers(layers: Sequence[int], definition: npt.NDArray[np.uint16]) -> list[Layer]:
    """The layers below a list, in the form of the kernels, for items with these definition levels (spec: 2.4)."""
    kernel_layers: list[Layer] = []
    level = 0
    for layer in layers:
        valid = definition <= level
        num_nulls = len(definition) - int(valid.sum()) if DEFINITION_LEVELS[layer] else 0
        bitmap: Any = np.packbits(valid, bitorder="little") if num_nulls else None
        kernel_layers.append((len(definition), bitmap, num_nulls, None))
        level += DEFINITION_LEVELS[layer]
    return kernel_layers


def _item_levels(rows: IntArray, offsets: IntArray, starts: IntArray, num_levels: int) -> IntArray:
    """The level of each item; -1 where its row ends before it. Parameters as in `_ItemLocations`; starts of rows."""
    borders = np.append(starts, num_levels)  # row -1, the end of an earlier row, is from 0 to the first start
    level = np.where(rows < 0, 0, borders[np.maximum(rows, 0)]) + offsets
    levels: IntArray = np.where(level < borders[rows + 1], level, -1)
    return levels


def _check_alone(repetition: npt.NDArray[np.uint16], visible: npt.NDArray[np.bool_]) -> None:
    """Raise FormatError if a row with a level that owns no item has other levels."""
    continues = np.append(repetition[1:] == 0, False)
    if bool((~visible & (continues | (repetition == 0))).any()):
        raise FormatError("a null or empty list has further items")


def _aligned(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT
