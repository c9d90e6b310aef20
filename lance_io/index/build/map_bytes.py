"""Bitmaps of rows, many at a time (spec: indices, 2.3 and 2.4).

A row of 64 bits is a fragment (or the upper half of an id), the number of a container in it, and 16 low bits. A bitmap
file has a bitmap for each key, up to one a row, so nothing here loops over bitmaps:

    rows, ascending within their key --> containers of at most 65,536 rows: their key, place, size and bytes
    containers of whole keys         --> the bytes of the maps, one after the other

    RowAddrTreeMap  u32 entries, then (u32 upper half, u32 bytes, Roaring) each       BITMAP, LABEL_LIST, null bitmaps
    treemap of 64   u64 entries, then (u32 upper half, Roaring) each                  NGRAM
    Roaring         u32 12346, u32 containers, (u16 number, u16 rows - 1) each, u32 offset each, containers
    container       up to 4096 rows: their low bits, u16 each; else 65,536 bits

All parts have an even number of bytes, so they are put together in units of two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_io.errors import ResourceLimitError
from lance_io.levels.arrays import distinct
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.index.build.index_file import RowArray
    from lance_io.spans import IntArray

_COOKIE: Final = 12346
_ARRAY_ROWS_MAX: Final = 4096
_BITS: Final = 1 << 16
_BITSET_UNITS: Final = _BITS // 16  # units are two bytes
_BINARY_BYTES_MAX: Final = (1 << 31) - 1

Units = npt.NDArray[np.uint16]


@dataclass(frozen=True, slots=True, eq=False)
class Containers:
    """Containers in the order of their keys and rows.

    keys     number of the key of each
    highs    the upper 48 bits of its rows
    counts   its rows
    data     the content of all, one after the other
    """

    keys: IntArray
    highs: RowArray
    counts: IntArray
    data: Units

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def units(self) -> IntArray:
        """Units of each."""
        return np.where(self.counts > _ARRAY_ROWS_MAX, _BITSET_UNITS, self.counts)

    def split(self, first: int) -> tuple[Containers, Containers]:
        """Those before a container, and the others."""
        at = int(self.units[:first].sum())
        return (
            Containers(self.keys[:first], self.highs[:first], self.counts[:first], self.data[:at]),
            Containers(self.keys[first:], self.highs[first:], self.counts[first:], self.data[at:]),
        )


def join_containers(parts: Sequence[Containers]) -> Containers:
    """Containers one after the other."""
    if len(parts) == 1:
        return parts[0]
    return Containers(
        np.concatenate([part.keys for part in parts]),
        np.concatenate([part.highs for part in parts]),
        np.concatenate([part.counts for part in parts]),
        np.concatenate([part.data for part in parts]),
    )


def containers_of(rows: RowArray, keys: IntArray) -> Containers:
    """The containers of rows.

    rows  ascending within each key, without duplicates
    keys  number of the key of each row, ascending
    """
    highs = rows >> np.uint64(16)
    starts = _starts(len(rows), keys, highs)
    counts = np.diff(starts, append=len(rows))
    low = rows.astype(np.uint16)
    large = np.flatnonzero(counts > _ARRAY_ROWS_MAX)
    return Containers(keys[starts], highs[starts], counts, _with_bitsets(low, starts, counts, large))


def _starts(num_rows: int, *columns: npt.NDArray[Any]) -> IntArray:
    """Where a row differs from the one before in any column."""
    differs = np.ones(num_rows, np.bool_)
    if num_rows:
        differs[1:] = False
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(differs)


def _with_bitsets(low: Units, starts: IntArray, counts: IntArray, large: IntArray) -> Units:
    """The low bits, with bits in place of those of large containers."""
    if not len(large):
        return low
    parts, done = [], 0
    for start, count in zip(starts[large].tolist(), counts[large].tolist(), strict=True):
        bits = np.zeros(_BITS, np.bool_)
        bits[low[start : start + count]] = True
        parts += [low[done:start], np.packbits(bits, bitorder="little").view("<u2")]
        done = start + count
    return np.concatenate([*parts, low[done:]])


def encode_maps(containers: Containers, *, sized: bool = True) -> pa.Array:
    """The maps of all keys that have containers, as binaries.

    sized  RowAddrTreeMaps; False gives treemaps of 64 bits
    """
    fragments = containers.highs >> np.uint64(16)
    map_starts = _starts(len(containers), containers.keys)
    entry_starts = _starts(len(containers), containers.keys, fragments)
    per_entry = np.diff(entry_starts, append=len(containers))
    entry_of = np.repeat(np.arange(len(entry_starts)), per_entry)
    units = containers.units
    ends = np.cumsum(units)
    content = ends - units  # where the content of each container begins, among all
    roaring = 4 + 4 * per_entry + _sums(units, entry_starts)
    head_units, entry_units = (2, 4) if sized else (4, 2)
    # maps begin where all entries before them end, and their own heads
    entries_before = np.searchsorted(entry_starts, map_starts)
    entry_ends = np.cumsum(roaring + entry_units)
    map_of_entry = np.repeat(np.arange(len(map_starts)), np.diff(entries_before, append=len(entry_starts)))
    entry_at = entry_ends - roaring - entry_units + head_units * (map_of_entry + 1)
    map_at = entry_at[entries_before] - head_units if len(map_starts) else np.empty(0, np.int64)
    total = int(entry_ends[-1]) + head_units * len(map_starts) if len(map_starts) else 0
    if 2 * total > _BINARY_BYTES_MAX:
        raise ResourceLimitError(f"bitmaps of {2 * total:,} bytes together, at most {_BINARY_BYTES_MAX:,}")
    out = np.zeros(total, np.uint16)
    _put(out, map_at, np.diff(entries_before, append=len(entry_starts)))
    _put(out, entry_at, fragments[entry_starts])
    if sized:
        _put(out, entry_at + 2, 2 * roaring)
    body = entry_at + entry_units
    _put(out, body, np.full(len(body), _COOKIE))
    _put(out, body + 2, per_entry)
    nth = np.arange(len(containers)) - entry_starts[entry_of]
    head = body[entry_of] + 4 + 2 * nth
    out[head] = containers.highs.astype(np.uint16)
    out[head + 1] = (containers.counts - 1).astype(np.uint16)
    inside = 4 + 4 * per_entry[entry_of] + content - content[entry_starts][entry_of]
    _put(out, body[entry_of] + 4 + 2 * per_entry[entry_of] + 2 * nth, 2 * inside)
    target = body[entry_of] + inside
    out[np.repeat(target - content, units) + np.arange(len(containers.data))] = containers.data
    return _binaries(out, np.append(map_at, total))


def _sums(values: IntArray, starts: IntArray) -> IntArray:
    return np.add.reduceat(values, starts) if len(starts) else np.empty(0, np.int64)


def _put(out: Units, at: IntArray, values: npt.NDArray[Any]) -> None:
    """Write u32 values."""
    wide = values.astype(np.uint32)
    out[at] = wide.astype(np.uint16)
    out[at + 1] = (wide >> np.uint32(16)).astype(np.uint16)


def _binaries(out: Units, bounds: IntArray) -> pa.Array:
    offsets = (2 * bounds).astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(bounds) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(out))]
    )


class RowMap:
    """One growing set of rows, compressed as it grows, as long as rows come in ascending order."""

    _HELD_ROWS_MAX: Final = 1 << 18

    def __init__(self) -> None:
        self._held: list[RowArray] = []
        self._held_rows = 0
        self._last = -1
        self._is_ascending = True
        self._parts: list[Containers] = []

    def add(self, rows: RowArray) -> None:
        """Add rows."""
        if not len(rows):
            return
        if int(rows[0]) <= self._last or (rows[1:] <= rows[:-1]).any():
            self._is_ascending = False
        self._last = int(rows[-1])
        self._held.append(rows)
        self._held_rows += len(rows)
        if self._is_ascending and self._held_rows > self._HELD_ROWS_MAX:
            self._compress()

    def _compress(self) -> None:
        rows = np.concatenate(self._held)
        highs = rows >> np.uint64(16)
        end = int(np.searchsorted(highs, highs[-1]))  # the last container may grow
        if end:
            self._parts.append(containers_of(rows[:end], np.zeros(end, np.int64)))
        self._held, self._held_rows = [rows[end:]], len(rows) - end

    def encode(self) -> bytes:
        """The RowAddrTreeMap of all rows."""
        rows = np.concatenate(self._held) if self._held else np.empty(0, np.uint64)
        if not self._is_ascending:
            rows = distinct(np.concatenate([rows, *map(_rows_of, self._parts)]))
            self._parts = []
        parts = [*self._parts, containers_of(rows, np.zeros(len(rows), np.int64))]
        maps = encode_maps(join_containers([part for part in parts if len(part)] or parts[:1]))
        content: bytes = maps[0].as_py() if len(maps) else bytes(4)
        return content


def _rows_of(containers: Containers) -> RowArray:
    """The rows of containers."""
    parts = []
    ends = np.cumsum(containers.units)
    for high, count, end in zip(containers.highs.tolist(), containers.counts.tolist(), ends.tolist(), strict=True):
        is_bitset = count > _ARRAY_ROWS_MAX
        data = containers.data[end - (_BITSET_UNITS if is_bitset else count) : end]
        low = np.flatnonzero(np.unpackbits(data.view(np.uint8), bitorder="little")) if is_bitset else data
        parts.append(low.astype(np.uint64) | np.uint64(high << 16))
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)
