"""Stable row ids and row versions of a fragment (spec: table, section 6).

A sequence lists one u64 per physical row, deleted ones included, as a concatenation of segments:

    Range            start, end (exclusive)
    RangeWithHoles   start, end, and the missing values in between, ascending
    RangeWithBitmap  start, end, ceil((end - start) / 8) bytes; value start + i is present if bit i is set, LSB first
    SortedArray      values, ascending
    Array            values in any order

Arrays hold u16 or u32 offsets to a base, or u64 values. A version sequence is a list of (segment, version), of whose
segments only the number of values counts.

The manifest has the number of rows: counts are checked against it before anything is allocated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from lance_io.errors import FormatError
from lance_io.format.wire import parse_message
from lance_io.proto import rowids_pb2
from lance_io.records import dataclass
from lance_io.table.manifest.row_id_segments import Form, cut_segments

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_io.format.wire import Buffer
U64Array = npt.NDArray[np.uint64]
_U64_MAX: Final = (1 << 64) - 1


def decode_row_ids(data: Buffer, num_rows: int) -> U64Array:
    """The row id of each physical row, u64[num_rows].

    Raises `FormatError` for a sequence of another length, or with values out of order or range.
    """
    message = parse_message(rowids_pb2.RowIdSequence, data, "row id sequence")
    pieces: list[U64Array] = []
    starts: list[int] = []  # of the ranges since the last piece: there may be very many short ranges
    counts: list[int] = []
    total = 0
    for segment in message.segments:
        count = _count(segment)
        total += count
        if total > num_rows:
            raise FormatError(f"row id sequence: more than the {num_rows} ids of the fragment's rows")
        if segment.HasField("range"):
            starts.append(segment.range.start)
            counts.append(count)
            continue
        pieces += [_ranges(starts, counts), _values(segment, count)]
        starts, counts = [], []
    if total != num_rows:
        raise FormatError(f"row id sequence: {total} ids for {num_rows} rows")
    return np.concatenate([*pieces, _ranges(starts, counts)])


def encode_row_ids(ids: U64Array) -> bytes:
    """A sequence of these ids, u64[n], in the segments that take the fewest bytes (spec: table, 6.1)."""
    message = rowids_pb2.RowIdSequence()
    cuts = cut_segments(ids)
    firsts = ids[[start for start, _, _ in cuts]].tolist() if len(ids) else []
    for (start, end, form), first in zip(cuts, firsts, strict=True):  # maybe very many, with a few ids each
        segment = message.segments.add()
        if form is Form.RANGE:
            segment.range.start, segment.range.end = first, first + end - start
        else:
            _fill_segment(segment, ids[start:end], form)
    if not len(ids):
        message.segments.add().range.SetInParent()
    return message.SerializeToString()


def _fill_segment(segment: rowids_pb2.U64Segment, ids: U64Array, form: Form) -> None:
    if form in (Form.ARRAY, Form.SORTED):
        is_sorted = form is Form.SORTED or bool((ids[1:] > ids[:-1]).all())
        _fill_array(segment.sorted_array if is_sorted else segment.array, ids)
        return
    start, end = int(ids[0]), int(ids[-1]) + 1
    if end - start == len(ids):  # a part without holes of a segment with holes
        segment.range.start, segment.range.end = start, end
        return
    is_there = np.zeros(end - start, dtype=bool)  # not much longer than the ids: their gaps are small
    is_there[(ids - np.uint64(start)).astype(np.int64)] = True
    if form is Form.HOLES:
        segment.range_with_holes.start, segment.range_with_holes.end = start, end
        missing = np.flatnonzero(~is_there).astype(np.uint64)
        _fill_array(segment.range_with_holes.holes, missing + np.uint64(start))
    else:
        segment.range_with_bitmap.start, segment.range_with_bitmap.end = start, end
        segment.range_with_bitmap.bitmap = np.packbits(is_there, bitorder="little").tobytes()


def _fill_array(array: rowids_pb2.EncodedU64Array, values: U64Array) -> None:
    base = int(values.min())
    offsets = values - np.uint64(base)
    span = int(offsets.max())
    if span < 1 << 16:
        array.u16_array.base, array.u16_array.offsets = base, offsets.astype("<u2").tobytes()
    elif span < 1 << 32:
        array.u32_array.base, array.u32_array.offsets = base, offsets.astype("<u4").tobytes()
    else:
        array.u64_array.values = values.astype("<u8").tobytes()


def count_row_ids(message: rowids_pb2.RowIdSequence) -> int:
    """The number of ids of a sequence, without expanding it. Raises `FormatError`."""
    return sum(_count(segment) for segment in message.segments)


def count_ids_of(data: Buffer) -> int:
    """The number of ids of a serialized sequence, without expanding it. Raises `FormatError`."""
    return count_row_ids(parse_message(rowids_pb2.RowIdSequence, data, "row id sequence"))


def decode_row_versions(data: Buffer | None, num_rows: int) -> U64Array:
    """The version of each physical row in a version sequence, u64[num_rows]; all 1 without a sequence.

    Raises `FormatError` for a sequence of another length.
    """
    if data is None:
        return np.ones(num_rows, dtype=np.uint64)
    message = parse_message(rowids_pb2.RowDatasetVersionSequence, data, "row version sequence")
    counts = [_count(run.span) for run in message.runs]
    if sum(counts) != num_rows:
        raise FormatError(f"row version sequence: {sum(counts)} versions for {num_rows} rows")
    return np.repeat(np.array([run.version for run in message.runs], dtype=np.uint64), counts)


def _ranges(starts: list[int], counts: list[int]) -> U64Array:
    """The values of consecutive ranges."""
    lengths = np.array(counts, dtype=np.int64)
    skipped = (np.cumsum(lengths) - lengths).astype(np.uint64)  # values in front of each range
    shifts = np.array(starts, dtype=np.uint64) - skipped  # may wrap around, and back when added
    values: U64Array = np.repeat(shifts, lengths) + np.arange(sum(counts), dtype=np.uint64)
    return values


def _count(segment: rowids_pb2.U64Segment) -> int:
    """The number of values of a segment, without expanding it."""
    kind = segment.WhichOneof("segment")
    if kind is None:
        raise FormatError("row id sequence: a segment of no known kind")
    if kind == "sorted_array":
        return _array_length(segment.sorted_array)
    if kind == "array":
        return _array_length(segment.array)
    if kind == "range":
        return _span(segment.range.start, segment.range.end)
    if kind == "range_with_holes":
        holes = segment.range_with_holes
        span = _span(holes.start, holes.end)
        if (missing := _array_length(holes.holes)) > span:
            raise FormatError(f"row id sequence: {missing} holes in a range of {span}")
        return span - missing
    bitmap = segment.range_with_bitmap
    span = _span(bitmap.start, bitmap.end)
    if len(bitmap.bitmap) != (span + 7) // 8:
        raise FormatError(f"row id sequence: a bitmap of {len(bitmap.bitmap)} bytes for a range of {span}")
    return int.from_bytes(bitmap.bitmap, "little").bit_count()


def _span(start: int, end: int) -> int:
    if end < start:
        raise FormatError(f"row id sequence: a range from {start} to {end}")
    return end - start


def _values(segment: rowids_pb2.U64Segment, count: int) -> U64Array:
    """The `count` values (see `_count`) of a segment that is not a plain range."""
    kind = segment.WhichOneof("segment")
    if kind == "array":
        return _array(segment.array)
    if kind == "sorted_array":
        values = _array(segment.sorted_array)
        if (values[1:] < values[:-1]).any():
            raise FormatError("row id sequence: a sorted array is not sorted")
        return values
    if kind == "range_with_holes":
        return _with_holes(segment.range_with_holes, count)
    bitmap = segment.range_with_bitmap
    bits = np.unpackbits(np.frombuffer(bitmap.bitmap, dtype=np.uint8), bitorder="little")
    present = np.flatnonzero(bits).astype(np.uint64)
    if len(present) and int(present[-1]) >= bitmap.end - bitmap.start:
        raise FormatError("row id sequence: a bitmap has bits behind the end of its range")
    return present + np.uint64(bitmap.start)


def _with_holes(segment: rowids_pb2.U64Segment.RangeWithHoles, count: int) -> U64Array:
    holes = _array(segment.holes)
    outside = len(holes) and (int(holes[0]) < segment.start or int(holes[-1]) >= segment.end)
    if outside or (holes[1:] <= holes[:-1]).any():
        raise FormatError("row id sequence: holes are not ascending values inside of their range")
    kept = np.ones(count + len(holes), dtype=bool)
    kept[(holes - np.uint64(segment.start)).astype(np.int64)] = False
    return np.flatnonzero(kept).astype(np.uint64) + np.uint64(segment.start)


def _array_length(array: rowids_pb2.EncodedU64Array) -> int:
    content, width = _array_content(array)
    if len(content) % width:
        raise FormatError(f"row id sequence: an array of {len(content)} bytes, expected a multiple of {width}")
    return len(content) // width


def _array_content(array: rowids_pb2.EncodedU64Array) -> tuple[bytes, int]:
    kind = array.WhichOneof("array")
    if kind == "u16_array":
        return array.u16_array.offsets, 2
    if kind == "u32_array":
        return array.u32_array.offsets, 4
    return array.u64_array.values, 8  # an absent array has no values


def _array(array: rowids_pb2.EncodedU64Array) -> U64Array:
    content, width = _array_content(array)
    numbers = np.frombuffer(content, dtype=f"<u{width}").astype(np.uint64)
    base = array.u16_array.base if width == 2 else array.u32_array.base if width == 4 else 0
    if base and len(numbers) and base + int(numbers.max()) > _U64_MAX:
        raise FormatError(f"row id sequence: offsets to {base} pass 64 bits")
    return numbers + np.uint64(base)


@dataclass(frozen=True, slots=True, eq=False)
class RowIdIndex:
    """Maps stable row ids to row addresses.

    ids        u64[n], ascending
    addresses  u64[n], row address of each id
    """

    ids: U64Array
    addresses: U64Array

    @property
    def nbytes(self) -> int:
        """Memory of both arrays, in bytes."""
        return self.ids.nbytes + self.addresses.nbytes

    def lookup(self, ids: U64Array) -> tuple[U64Array, npt.NDArray[np.bool_]]:
        """The addresses of rows by their ids in any order, and which ids exist (other ids get address 0)."""
        if not len(self.ids):
            return np.zeros(len(ids), dtype=np.uint64), np.zeros(len(ids), dtype=bool)
        slots = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        exists = self.ids[slots] == ids
        return np.where(exists, self.addresses[slots], np.uint64(0)), exists


def build_row_id_index(fragments: Iterable[tuple[int, U64Array, npt.NDArray[Any] | None]]) -> RowIdIndex:
    """The index over (fragment id, row ids by physical row, deleted offsets as integers or None) of all fragments.

    Deleted rows are left out: a deleted row keeps its id in the sequence although the row may have moved. Raises
    `FormatError` if two rows have the same id.
    """
    ids: list[U64Array] = [np.empty(0, dtype=np.uint64)]
    addresses: list[U64Array] = [np.empty(0, dtype=np.uint64)]
    for fragment_id, sequence, deleted in fragments:
        offsets = np.arange(len(sequence), dtype=np.uint64)
        if deleted is not None and len(deleted):
            offsets = np.delete(offsets, deleted)
            sequence = np.delete(sequence, deleted)
        ids.append(sequence)
        addresses.append(offsets | np.uint64(fragment_id << 32))
    all_ids, all_addresses = np.concatenate(ids), np.concatenate(addresses)
    if (all_ids[1:] <= all_ids[:-1]).any():
        order = np.argsort(all_ids, kind="stable")
        all_ids, all_addresses = all_ids[order], all_addresses[order]
        twice = np.flatnonzero(all_ids[1:] == all_ids[:-1])
        if len(twice):
            raise FormatError(f"row id {int(all_ids[twice[0]])} belongs to more than one row")
    return RowIdIndex(all_ids, all_addresses)
