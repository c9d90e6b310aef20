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

from itertools import pairwise
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
_HELD_ROWS_MAX: Final = 1 << 18  # that wait to be compressed
_MERGED_ROWS: Final = 1 << 18  # of containers that are taken apart at once
_PUT_UNITS: Final = 1 << 20  # that are put in their places at once

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
    def nbytes(self) -> int:
        """Memory, in bytes."""
        return self.keys.nbytes + self.highs.nbytes + self.counts.nbytes + self.data.nbytes

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
    _put_content(out, target, ends, containers.data)
    return _binaries(out, np.append(map_at, total))


def _sums(values: IntArray, starts: IntArray) -> IntArray:
    return np.add.reduceat(values, starts) if len(starts) else np.empty(0, np.int64)


def _put(out: Units, at: IntArray, values: npt.NDArray[Any]) -> None:
    """Write u32 values."""
    wide = values.astype(np.uint32)
    out[at] = wide.astype(np.uint16)
    out[at + 1] = (wide >> np.uint32(16)).astype(np.uint16)


def _put_content(out: Units, target: IntArray, ends: IntArray, data: Units) -> None:
    """Write the contents of containers, some at a time.

    target  where each begins
    ends    where each ends in `data`
    """
    cuts = np.searchsorted(ends, np.arange(_PUT_UNITS, len(data) + _PUT_UNITS, _PUT_UNITS), side="right")
    for first, end in pairwise([0, *cuts.tolist()]):
        if first < end:
            start, stop = int(ends[first - 1]) if first else 0, int(ends[end - 1])
            units = np.diff(ends[first:end], prepend=start)
            shift = target[first:end] - ends[first:end] + units
            out[np.repeat(shift, units) + np.arange(start, stop)] = data[start:stop]


def _binaries(out: Units, bounds: IntArray) -> pa.Array:
    offsets = (2 * bounds).astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(bounds) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(out))]
    )


class RowMap:
    """One growing set of rows, in any order, compressed as it grows.

    It is a list of sequences of ascending containers. Rows that ascend go on with the last sequence, others begin a new
    one. Each is more than twice as large as the next, or they become one: so rows are merged few times.
    """

    def __init__(self) -> None:
        self._held: list[RowArray] = []
        self._held_rows = 0
        self._sequences: list[_Sequence] = []

    def add(self, rows: RowArray) -> None:
        """Add rows."""
        if not len(rows):
            return
        self._held.append(rows)
        self._held_rows += len(rows)
        if self._held_rows > _HELD_ROWS_MAX:
            self._compress()

    def _compress(self) -> None:
        rows = _ascending(self._held)
        highs = rows >> np.uint64(16)
        end = int(np.searchsorted(highs, highs[-1]))  # the last container may grow
        self._held, self._held_rows = [rows[end:].copy()], len(rows) - end
        if not end:
            return
        new = containers_of(rows[:end], np.zeros(end, np.int64))
        sequences = self._sequences
        if sequences and sequences[-1].last < new.highs[0]:
            sequences[-1].parts.append(new)
        else:
            sequences.append(_Sequence([new]))
        while len(sequences) > 1 and sequences[-2].nbytes <= 2 * sequences[-1].nbytes:
            smaller = sequences.pop()
            sequences[-1] = _Sequence([merge_containers([*sequences[-1].parts, *smaller.parts])])

    def encode(self) -> bytes:
        """The RowAddrTreeMap of all rows."""
        rows = _ascending(self._held)
        rest = containers_of(rows, np.zeros(len(rows), np.int64))
        parts = [part for sequence in self._sequences for part in sequence.parts]
        is_ascending = len(self._sequences) < 2 and not (parts and len(rest) and parts[-1].highs[-1] >= rest.highs[0])
        parts = [*parts, rest] if len(rest) or not parts else parts
        maps = encode_maps(join_containers(parts) if is_ascending else merge_containers(parts))
        content: bytes = maps[0].as_py() if len(maps) else bytes(4)
        return content


@dataclass(frozen=True, slots=True, eq=False)
class _Sequence:
    """Containers of ascending rows, in several parts."""

    parts: list[Containers]

    @property
    def last(self) -> int:
        """Upper bits of the last rows."""
        return int(self.parts[-1].highs[-1])

    @property
    def nbytes(self) -> int:
        """Memory, in bytes."""
        return sum([part.nbytes for part in self.parts])


def _ascending(rows: Sequence[RowArray]) -> RowArray:
    """Rows in ascending order, each once."""
    joined = np.concatenate(rows) if rows else np.empty(0, np.uint64)
    return joined if (joined[1:] > joined[:-1]).all() else distinct(joined)


def merge_containers(parts: Sequence[Containers]) -> Containers:
    """The containers of all rows of one key. Few containers at a time are taken apart."""
    joined = join_containers(parts)
    order = np.argsort(joined.highs, kind="stable")
    highs = joined.highs[order]
    is_shared = highs[1:] == highs[:-1]
    ends = np.append(np.flatnonzero(~is_shared) + 1, len(order))[: len(order)]  # where other upper bits begin
    num_rows = np.cumsum(joined.counts[order])[ends - 1]
    starts_of_data = np.cumsum(joined.units) - joined.units
    merged, first, done = [], 0, 0
    while first < len(order):
        at = int(np.searchsorted(num_rows, done + _MERGED_ROWS, side="right")) - 1
        at = max(at, int(np.searchsorted(ends, first, side="right")))  # at least one
        end, done = int(ends[at]), int(num_rows[at])
        window = _chosen(joined, order[first:end], starts_of_data)
        if is_shared[first : end - 1].any():
            rows = distinct(_rows_of(window))
            window = containers_of(rows, np.zeros(len(rows), np.int64))
        merged.append(window)
        first = end
    return join_containers(merged or parts[:1])


def _chosen(containers: Containers, order: IntArray, starts_of_data: IntArray) -> Containers:
    """Some containers, in another order. starts_of_data: where the content of each begins."""
    units = containers.units[order]
    before = np.cumsum(units) - units
    positions = np.repeat(starts_of_data[order] - before, units) + np.arange(int(units.sum()))
    return Containers(
        containers.keys[order], containers.highs[order], containers.counts[order], containers.data[positions]
    )


def _rows_of(containers: Containers) -> RowArray:
    """The rows of containers, one container after the other."""
    bases = containers.highs << np.uint64(16)
    ends = np.cumsum(containers.units)
    parts, first, start = [], 0, 0
    for at in [*np.flatnonzero(containers.counts > _ARRAY_ROWS_MAX).tolist(), len(containers)]:
        end = int(ends[at - 1]) if at else 0  # arrays between two sets of bits are taken at once
        parts.append(np.repeat(bases[first:at], containers.counts[first:at]) | containers.data[start:end])
        if at < len(containers):
            bits = np.unpackbits(containers.data[end : end + _BITSET_UNITS].view(np.uint8), bitorder="little")
            parts.append(np.flatnonzero(bits.view(np.bool_)).astype(np.uint64) | bases[at])
            first, start = at + 1, end + _BITSET_UNITS
    return np.concatenate(parts)
