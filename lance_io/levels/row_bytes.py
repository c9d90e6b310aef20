"""Bytes of the values of rows, by which batches are cut. No I/O.

    fixed width      the bits of the type, also for nulls
    text, binary     their bytes, and an offset; for a null the offset
    lists, maps      their items, and an offset; for a null the offset
    structs          their members
    dictionaries     the index
    validity bits    nothing

So the number depends only on the values and their types: not on their encoding, on page borders, or on the memory that
an array is a slice of. The cost for a range of rows does not depend on its length, unless nulls hide bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from lance_io.errors import ResourceLimitError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

NARROW_MAX: Final = (1 << 31) - 1  # bytes of text, or items, that 32-bit offsets can address

Before: TypeAlias = Callable[[int], int]
"""Maps a row to the bits, bytes or items of the rows before it."""


def check_row_bytes(
    array: pa.Array | pa.ChunkedArray,
    bytes_max: int,
    first_row: int = 0,
    advice: str = "open the table with a larger one to read it",
) -> None:
    """Raise ResourceLimitError for the first row larger than `bytes_max`.

    first_row  number of the first row, for the error
    advice     advice to the user, for the error
    """
    for chunk in array.chunks if isinstance(array, pa.ChunkedArray) else [array]:
        if chunk.nbytes > bytes_max:
            row = _row_above(RowBytes([chunk]), 0, len(chunk), bytes_max)
            if row is not None:
                num_bytes = RowBytes([chunk]).between(row, row + 1)
                raise ResourceLimitError(
                    f"a value of {num_bytes} bytes; max_decoded_bytes is {bytes_max}: {advice}",
                    where=f"row {first_row + row}",
                )
        first_row += len(chunk)


def _row_above(sizes: RowBytes, start: int, end: int, bytes_max: int) -> int | None:
    """The first row from `start` to `end` that is larger than `bytes_max`."""
    if start >= end or sizes.between(start, end) <= bytes_max:
        return None
    if end - start == 1:
        return start
    middle = (start + end) // 2
    row = _row_above(sizes, start, middle, bytes_max)
    return _row_above(sizes, middle, end, bytes_max) if row is None else row


def fixed_bits(dtype: pa.DataType) -> int | None:
    """Bits of each value of a type; None if values differ in size."""
    try:
        return int(dtype.bit_width)  # fast path: numbers
    except ValueError:
        pass
    if isinstance(dtype, pa.BaseExtensionType):
        return fixed_bits(dtype.storage_type)
    if pa.types.is_dictionary(dtype):
        return fixed_bits(dtype.index_type)
    if pa.types.is_struct(dtype):
        members = [fixed_bits(dtype.field(i).type) for i in range(dtype.num_fields)]
        return None if None in members else sum([bits for bits in members if bits is not None])
    if pa.types.is_fixed_size_list(dtype):
        bits = fixed_bits(dtype.value_type)
        return None if bits is None else bits * int(dtype.list_size)
    return 0 if pa.types.is_null(dtype) else None


class RowBytes:
    """The bytes of the rows of arrays of equal length.

    narrow  per column with 32-bit offsets, also nested ones: the bytes or items that the offsets count
    """

    def __init__(self, arrays: Sequence[pa.Array]) -> None:
        self.narrow: list[Before] = []
        self._parts = [self._bits_before(array, lambda row: row) for array in arrays]

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> RowBytes:
        """The row bytes of a batch."""
        return cls(batch.columns)

    def bits_before(self, row: int) -> int:
        """Bits of all rows before a row."""
        return sum([part(row) for part in self._parts])

    def between(self, start: int, end: int) -> int:
        """Bytes of rows `start` to `end`, rounded up."""
        return -(-(self.bits_before(end) - self.bits_before(start)) // 8)

    def fit(self, start: int, end: int, room_bits: int) -> int:
        """Number of rows from `start` on, before `end`, that fit `room_bits`; the row that fills them is the last."""
        return _fit(self.bits_before, start, end, room_bits)

    def fit_narrow(self, start: int, end: int, used: Sequence[int]) -> int:
        """Number of rows that 32-bit offsets can still address after `used` bytes or items, one per `narrow`."""
        for before, taken in zip(self.narrow, used, strict=True):
            end = start + _fit(before, start, end, NARROW_MAX - taken)
        return end - start

    # -- by type -----------------------------------------------------------------------------------------------------

    def _bits_before(self, array: pa.Array, first_value: Before) -> Before:
        """Bits of the values before a value of an array; `first_value` maps a row to its first value there."""
        dtype = array.type
        if isinstance(dtype, pa.BaseExtensionType):
            return self._bits_before(array.storage, first_value)
        bits = fixed_bits(dtype)
        if bits is not None:
            return lambda row, bits=bits: row * bits  # type: ignore[misc]
        if pa.types.is_string(dtype) or pa.types.is_binary(dtype):
            return self._of_offsets(array, first_value, np.int32, lambda at: 8 * at)
        if pa.types.is_large_string(dtype) or pa.types.is_large_binary(dtype):
            return self._of_offsets(array, first_value, np.int64, lambda at: 8 * at)
        if pa.types.is_list(dtype) or pa.types.is_map(dtype):
            return self._of_lists(array, first_value, np.int32)
        if pa.types.is_large_list(dtype):
            return self._of_lists(array, first_value, np.int64)
        if pa.types.is_struct(dtype):
            parts = [self._bits_before(member, first_value) for member in array.flatten()]
            return lambda row: sum([part(row) for part in parts])
        if pa.types.is_fixed_size_list(dtype):
            size = int(dtype.list_size)
            values = array.values.slice(array.offset * size, len(array) * size)
            items = self._bits_before(values, lambda row: first_value(row) * size)
            return lambda row: items(row * size)
        each = 8 * array.nbytes / max(1, len(array))  # for types that no file stores
        return lambda row: int(row * each)

    def _of_lists(self, array: Any, first_value: Before, width: type[np.integer[Any]]) -> Before:
        offsets = offsets_of(array, width)
        first, end = int(offsets[0]), int(offsets[-1])
        items = array.values if not pa.types.is_map(array.type) else _map_entries(array)
        inner = self._bits_before(items.slice(first, end - first), lambda row: int(offsets[first_value(row)]) - first)
        return self._of_offsets(array, first_value, width, lambda at: inner(at - first))

    def _of_offsets(
        self, array: pa.Array, first_value: Before, width: type[np.integer[Any]], bits_at: Before
    ) -> Before:
        """Bits of the offsets and of the bytes or items before an offset, which `bits_at` computes."""
        offsets = offsets_of(array, width)
        first, offset_bits = int(offsets[0]), 8 * np.dtype(width).itemsize
        if width is np.int32:
            self.narrow.append(lambda row: int(offsets[first_value(row)]) - first)
        hidden = _hidden(array, offsets)
        if hidden is None:
            base = bits_at(first)
            return lambda row: bits_at(int(offsets[row])) - base + row * offset_bits
        shown = [bits_at(end) - bits_at(start) for start, end in zip(*hidden, strict=True)]
        sums = np.concatenate(([0], np.cumsum(shown, dtype=np.int64)))
        return lambda row: int(sums[row]) + row * offset_bits


def _fit(before: Before, start: int, end: int, room: int) -> int:
    if room < 0:
        return 0
    base = before(start)
    if before(end) - base <= room and before(max(start, end - 1)) - base < room:
        return end - start
    low, high = start, end  # searches the first row after which the room is full
    while low < high:
        middle = (low + high) // 2
        if before(middle) - base >= room:
            high = middle
        else:
            low = middle + 1
    return low - start if before(low) - base <= room else low - start - 1


def offsets_of(array: pa.Array, width: type[np.integer[Any]]) -> npt.NDArray[Any]:
    """The offsets of an array of text or lists, one more than rows, of the given width."""
    if not len(array):  # may have no buffer
        return np.zeros(1, width)
    size = np.dtype(width).itemsize
    return np.frombuffer(array.buffers()[1], width, len(array) + 1, array.offset * size)


def _hidden(array: pa.Array, offsets: npt.NDArray[Any]) -> tuple[list[int], list[int]] | None:
    """Start and end of the visible bytes or items per row, if nulls hide any; otherwise None."""
    if not array.null_count:
        return None
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    null = np.unpackbits(bits, count=array.offset + len(array), bitorder="little")[array.offset :] == 0
    if not (offsets[1:] != offsets[:-1])[null].any():
        return None
    return offsets[:-1].tolist(), np.where(null, offsets[:-1], offsets[1:]).tolist()


def _map_entries(array: pa.MapArray) -> pa.StructArray:
    """All entries of a map, regardless of slices."""
    entries = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
    return entries
