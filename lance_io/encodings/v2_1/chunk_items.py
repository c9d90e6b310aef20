"""Items of rows of a mini-block page with one level of lists: the chunks that hold them, not those of the whole lists.

    row -> the chunk that it begins in         row starts
    row that runs on -> its first item         how many of its levels are unfinished at the end of that chunk
    item -> the chunk that holds it            item starts

A row that does not run on is in one chunk, and which of its levels are the row is seen there. So each item takes one
chunk, in one round. In a fetched chunk only levels that own an item are kept, and none that repeat: then it is a chunk
of a page without lists, whose rows are the items, and the kernel takes those that are wanted. Specification: structural
encodings 2.1, section 3.4.
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
from lance_io.levels.item_lists import with_nulls
from lance_io.levels.path import DEFINITION_LEVELS
from lance_io.records import dataclass
from lance_io.spans import Ranges, distinct, int64s, uint8s
from lance_io.turns import in_turns

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from lance_io._kernels import Layer
    from lance_io.encodings.item_reads import ItemSelection
    from lance_io.encodings.v2_1.miniblock import MiniBlockIndex, MiniBlockPage
    from lance_io.spans import IntArray, Steps

ALIGNMENT = 8  # of what is in a chunk
PAD = b"\xfe"


@dataclass(slots=True, eq=False)
class _Places:
    """Where wanted items are, as far as the index says.

    chunks  i64[n], the chunk that may hold each; -1 where the index says that there is no such item
    row     i64[n], for a row that begins in that chunk, its number among those; -1 for one that began before
    offset  i64[n], the item's number in that row, or from the start of the chunk on
    """

    chunks: IntArray
    row: IntArray
    offset: IntArray


def read_chunk_items(page: MiniBlockPage, index: MiniBlockIndex, wanted: ItemSelection) -> Steps[pa.Array]:
    """The wanted items, null where a row has none, in one round: a chunk for each. Raises FormatError."""
    places = _locate(index, wanted)
    chunks = distinct(places.chunks[places.chunks >= 0])
    offsets = int64s(index.byte_offsets)
    items = page.of_items()
    parts = _Parts(page, items, index)
    found = np.full(len(wanted.rows), -1, dtype=np.int64)
    definition = np.zeros(len(found), dtype=np.uint16)
    if len(chunks):
        is_first = np.append(True, chunks[1:] != chunks[:-1] + 1)  # chunks side by side are one range
        firsts = np.flatnonzero(is_first)
        ends = chunks[np.append(firsts[1:], len(chunks)) - 1]
        base = page.source.buffer_offsets[1]
        fetched = yield Ranges(offsets[chunks[firsts]] + base, offsets[ends + 1] + base)
        runs = np.cumsum(is_first) - 1
        starts = fetched.offsets[runs] + offsets[chunks] - offsets[chunks[firsts]][runs]
        data = memoryview(fetched.buffer).cast("B")
        order = np.argsort(places.chunks, kind="stable")
        bounds = places.chunks[order].searchsorted(np.append(chunks, chunks[-1] + 1))
        for number, (chunk, start) in enumerate(in_turns(list(zip(chunks.tolist(), starts.tolist(), strict=True)))):
            here = order[bounds[number] : bounds[number + 1]]
            size = int(offsets[chunk + 1] - offsets[chunk])
            try:
                of_chunk = parts.add(chunk, data[start : start + size], places.row[here], places.offset[here])
                found[here], definition[here] = of_chunk
            except FormatError as error:
                raise FormatError(f"chunk {chunk}: {error}") from None
    is_there = found >= 0
    return with_nulls(parts.decode(found[is_there], definition[is_there]), is_there)


def _locate(index: MiniBlockIndex, wanted: ItemSelection) -> _Places:
    starts, item_starts = int64s(index.row_starts), int64s(index.item_starts)
    rows, items = wanted.rows, np.minimum(wanted.items, item_starts[-1])
    if not len(rows) or len(starts) < 2:
        none = np.full(len(rows), -1, dtype=np.int64)
        return _Places(none, none, none)
    assert index.unfinished is not None, "a page with lists has a repetition index"
    preamble = np.append(uint8s(index.preamble), 0)
    begins = starts.searchsorted(rows, side="right") - 1
    runs_on = (preamble[begins + 1] != 0) & (rows == starts[begins + 1] - 1)
    # the chunk in which a row ends that runs on: the next one behind which a row begins
    last = np.flatnonzero((starts[1:] > starts[:-1]) | (preamble[1:] == 0))
    ends = last[np.minimum(last.searchsorted(begins + 1), len(last) - 1)]
    unfinished = index.unfinished.astype(np.int64)
    _check_unfinished(unfinished, np.diff(item_starts), distinct(begins[runs_on]), distinct(ends[runs_on]))
    position = item_starts[begins + 1] - unfinished[begins] + items
    chunks = np.where(runs_on, item_starts.searchsorted(position, side="right") - 1, begins)
    is_missing = (items < 0) | (runs_on & (position >= item_starts[ends + 1]))
    is_behind = chunks > begins
    return _Places(
        np.where(is_missing, -1, chunks),
        np.where(is_behind, -1, rows - starts[begins]),
        np.where(is_behind, position - item_starts[np.maximum(chunks, 0)], items),
    )


def _check_unfinished(unfinished: IntArray, num_items: IntArray, begins: IntArray, ends: IntArray) -> None:
    """Raise FormatError where a row that runs on has more levels in a chunk than this has items, or has not all of a
    chunk that lies between its first and its last one. Such a row has items only, as an empty list is one level.
    """
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        between = slice(begin + 1, end)
        if unfinished[begin] > num_items[begin] or (unfinished[between] != num_items[between]).any():
            raise FormatError(
                f"repetition index: the levels of the row that runs on behind chunk {begin} do not fit the items there"
            )


class _Parts:
    """Chunks without lists, as they are made."""

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
        """Add a chunk: where each item wanted of it is among the items of all chunks so far, -1 for one that is not
        there; and its definition level. Parameters as `_Places`.
        """
        repetition, definition, values_at = self._levels(chunk)
        starts = self._row_starts(number, repetition)  # so there are levels, as rows are wanted
        level = _item_levels(rows, offsets, starts, len(repetition))
        is_there = level >= 0
        level = np.where(is_there, level, 0)
        visible = definition <= self._max_visible
        _check_alone(repetition, visible)
        owned = np.cumsum(visible)  # an item for each of these levels
        num_items = int(owned[-1])
        if num_items != self._num_items[number]:
            raise FormatError(f"its levels own {num_items} items, the chunk table says {self._num_items[number]}")
        self._write(chunk, values_at)
        first = self._item_starts[-1]
        self._item_starts.append(first + num_items)
        return np.where(is_there & visible[level], first + owned[level] - 1, -1), definition[level]

    def _levels(self, chunk: memoryview) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint16], int]:
        """Both vectors of levels, and where the values begin."""
        codecs = self._page.level_codecs
        sizes_at = 2 + 2 * len(codecs)
        at = _aligned(sizes_at + self._size_bytes * self._num_sizes)
        if at > len(chunk):
            raise FormatError(f"its {len(chunk)} bytes are too few for a header")
        num_levels, *sizes = struct.unpack_from(f"<{1 + len(codecs)}H", chunk)
        found: list[Any] = []
        for codec, size in zip(codecs.values(), sizes, strict=True):
            if at + size > len(chunk):
                raise FormatError(f"levels of {size} bytes at {at} in a chunk of {len(chunk)}")
            try:
                levels: Any = _kernels.decode_levels(codec.program(), chunk[at : at + size], num_levels)
            except DamagedError as error:
                raise damage_error(error) from None
            found.append(np.frombuffer(levels, dtype=np.uint16))
            at = _aligned(at + size)
        definition = found[1] if len(found) > 1 else np.zeros(num_levels, dtype=np.uint16)
        return found[0], definition, min(at, len(chunk))

    def _row_starts(self, number: int, repetition: npt.NDArray[np.uint16]) -> IntArray:
        """Levels at which rows begin. Raises FormatError unless the index says the same of the chunk."""
        if repetition.max(initial=0) > 1:
            raise FormatError(f"repetition level {repetition.max()} is above 1, the number of lists")
        starts = np.flatnonzero(repetition)
        num_rows = int(self._num_rows[number])
        opens_row = len(repetition) == 0 or repetition[0] == 1
        if len(starts) != num_rows or opens_row == bool(self._preamble[number]):
            raise FormatError(f"repetition levels hold {len(starts)} rows, or a rest of one, the index says {num_rows}")
        unfinished, num_left = int(self._unfinished[number]), len(repetition) - int(starts[-1] if len(starts) else 0)
        if unfinished and unfinished != num_left:
            raise FormatError(f"a row goes on behind {num_left} levels, the index says {unfinished}")
        return starts

    def _write(self, chunk: memoryview, values_at: int) -> None:
        """The chunk without its levels; values stay as they are."""
        sizes_at = 2 + 2 * len(self._page.level_codecs)
        sizes = chunk[sizes_at : sizes_at + self._size_bytes * self._num_sizes]
        for part in (b"\x00\x00" + sizes, chunk[values_at:]):
            self._bytes += part
            self._bytes += PAD * (-len(self._bytes) % ALIGNMENT)
        self._byte_offsets.append(len(self._bytes))

    def decode(self, wanted: IntArray, definition: npt.NDArray[np.uint16]) -> pa.Array:
        """Items of all chunks by number, ascending, and their definition levels."""
        chunk_ids = np.arange(len(self._byte_offsets) - 1, dtype=np.int64)
        byte_offsets, item_starts = (np.array(one, dtype=np.int64) for one in (self._byte_offsets, self._item_starts))
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
    """What kernels say of the layers below a list, of items with these definition levels (spec: 2.4)."""
    found: list[Layer] = []
    level = 0
    for layer in layers:
        valid = definition <= level
        num_nulls = len(definition) - int(valid.sum()) if DEFINITION_LEVELS[layer] else 0
        bitmap: Any = np.packbits(valid, bitorder="little") if num_nulls else None
        found.append((len(definition), bitmap, num_nulls, None))
        level += DEFINITION_LEVELS[layer]
    return found


def _item_levels(rows: IntArray, offsets: IntArray, starts: IntArray, num_levels: int) -> IntArray:
    """The level of each item; -1 where its row ends before it. Parameters as `_Places`, and where rows begin."""
    borders = np.append(starts, num_levels)  # row -1, the rest of an earlier one, is from 0 to the first
    level = np.where(rows < 0, 0, borders[np.maximum(rows, 0)]) + offsets
    found: IntArray = np.where(level < borders[rows + 1], level, -1)
    return found


def _check_alone(repetition: npt.NDArray[np.uint16], visible: npt.NDArray[np.bool_]) -> None:
    """Raise FormatError where a row has a level without an item, and others."""
    goes_on = np.append(repetition[1:] == 0, False)
    if bool((~visible & (goes_on | (repetition == 0))).any()):
        raise FormatError("a list that is null or empty goes on")


def _aligned(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT
