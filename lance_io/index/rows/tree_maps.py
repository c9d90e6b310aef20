"""Row sets as index files store them (spec: indices, 2.4): maps from the upper half of row numbers to Roaring bitmaps.

RowAddrTreeMap   u32 number of entries, then of each: u32 upper half, u32 size of the bitmap (0: all rows), bitmap
treemap          u64 number of entries, then of each: u32 upper half, bitmap
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import numpy as np

from lance_io.codecs.roaring import decode_runs, measure_bitmap, runs_max
from lance_io.errors import FormatError
from lance_io.index.rows.row_set import RowSet

if TYPE_CHECKING:
    from lance_io.format.wire import Buffer
    from lance_io.index.details import Space

_HALF: Final = 1 << 32
_NULL_RUNS_MAX: Final = 1 << 22  # 64 MiB in memory


def decode_tree_map(data: Buffer, space: Space) -> RowSet:
    """The rows of a RowAddrTreeMap. Raises `FormatError`."""
    view = memoryview(data).cast("B")
    count, position = _number(view, 0, 4), 4
    entries: list[tuple[int, memoryview | None]] = []
    for _ in range(min(count, len(view) // 8 + 1)):
        upper, size = _number(view, position, 4), _number(view, position + 4, 4)
        position += 8
        if size > len(view) - position:
            raise FormatError(f"row set: a bitmap of {size} bytes, {len(view) - position} are left. It is cut off")
        entries.append((upper, view[position : position + size] if size else None))
        position += size
    if len(entries) != count or position != len(view):
        raise FormatError(f"row set: {count} entries end at byte {position} of {len(view)}")
    parts = []
    for upper, bitmap in entries:
        if bitmap is None:
            parts.append((upper, np.zeros(1, np.int64), np.full(1, _HALF, np.int64)))
            continue
        starts, ends, num_bytes = decode_runs(bitmap)
        if num_bytes != len(bitmap):
            raise FormatError(f"row set: a bitmap of {num_bytes} bytes where {len(bitmap)} are announced")
        parts.append((upper, starts, ends))
    return _joined(parts, space)


def tree_map_runs_max(data: Buffer) -> int:
    """The most runs that the rows of a RowAddrTreeMap can be, by its headers; of a damaged one those of a part."""
    view = memoryview(data).cast("B")
    num_runs, position = 0, 4
    while position + 8 <= len(view):
        size = _number(view, position + 4, 4)
        position += 8
        num_runs += runs_max(view[position : position + size]) if size else 1
        position += size
    return num_runs


def decode_nulls(data: Buffer, space: Space) -> RowSet | None:
    """The rows of a RowAddrTreeMap that a segment holds as long as it is open. Raises `FormatError`.

    None for a set that decodes to more than 64 MiB: alternating rows take 64 times their bytes in the file. The
    segment then answers as one that does not list its nulls.
    """
    return None if tree_map_runs_max(data) > _NULL_RUNS_MAX else decode_tree_map(data, space)


def decode_treemap64(data: Buffer, space: Space) -> RowSet:
    """The rows of a treemap. Raises `FormatError`."""
    view = memoryview(data).cast("B")
    count, position = _number(view, 0, 8), 8
    parts = []
    for _ in range(min(count, len(view) // 8 + 1)):
        upper = _number(view, position, 4)
        starts, ends, num_bytes = decode_runs(view[position + 4 :])
        position += 4 + num_bytes
        parts.append((upper, starts, ends))
    if len(parts) != count or position != len(view):
        raise FormatError(f"row set: {count} entries end at byte {position} of {len(view)}")
    return _joined(parts, space)


def treemap64_runs_max(data: Buffer) -> int:
    """The runs that a treemap decodes to, at most, by its headers; those before a damaged part."""
    view = memoryview(data).cast("B")
    num_runs, position, num_bytes = 0, 8, 1
    while num_bytes and position + 4 <= len(view):
        here, num_bytes = measure_bitmap(view[position + 4 :])
        num_runs += here
        position += 4 + num_bytes
    return num_runs


def _number(view: memoryview, position: int, width: int) -> int:
    piece = view[position : position + width]
    if len(piece) < width:
        raise FormatError(f"row set: expected {width} bytes at {position}, found {len(piece)}. It is cut off")
    return int.from_bytes(piece, "little")


def _joined(parts: list[tuple[int, np.ndarray, np.ndarray]], space: Space) -> RowSet:
    uppers = [upper for upper, _, _ in parts]
    if any(second <= first for first, second in itertools.pairwise(uppers)):
        raise FormatError("row set: its entries do not ascend, or one occurs twice")
    if not parts:
        return RowSet.none(space)
    if uppers[-1] == _HALF - 1:
        raise FormatError("row set: it names rows of fragment 4294967295, which no table has")
    starts = np.concatenate([starts.astype(np.uint64) + np.uint64(upper << 32) for upper, starts, _ in parts])
    ends = np.concatenate([ends.astype(np.uint64) + np.uint64(upper << 32) for upper, _, ends in parts])
    return RowSet.of_runs(space, starts, ends)
