"""Bytes of each row, for all rows at once, and row ranges of limited size. No I/O.

Counts as `row_bytes.py`, except that the hidden bytes of nulls count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_io.levels.row_bytes import fixed_bits, offsets_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_io.spans import IntArray


def row_sizes(arrays: Sequence[pa.Array], num_rows: int) -> IntArray:
    """Bytes of each row over arrays of equal length, i64[num_rows]."""
    total = np.zeros(num_rows, np.int64)
    for array in arrays:
        total += _sizes(array)
    return total


def cut_by_size(sizes: IntArray, bytes_max: int) -> Iterator[tuple[int, int]]:
    """Split rows into ranges of at most `bytes_max`, or of one larger row: start and end of each."""
    if not len(sizes):
        return
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + bytes_max, side="right")))
        yield start, end
        start = end


def _sizes(array: pa.Array) -> Any:
    dtype = array.type
    if isinstance(dtype, pa.BaseExtensionType):
        return _sizes(array.storage)
    bits = fixed_bits(dtype)
    if bits is not None:
        return -(-bits // 8)
    if pa.types.is_string(dtype) or pa.types.is_binary(dtype):
        return np.diff(offsets_of(array, np.int32)).astype(np.int64) + 4
    if pa.types.is_large_string(dtype) or pa.types.is_large_binary(dtype):
        return np.diff(offsets_of(array, np.int64)) + 8
    if pa.types.is_struct(dtype):
        return row_sizes([array.field(i) for i in range(dtype.num_fields)], len(array))
    if pa.types.is_fixed_size_list(dtype):
        size = int(dtype.list_size)
        items = array.values.slice(array.offset * size, len(array) * size)
        return row_sizes([items], len(items)).reshape(len(array), size).sum(axis=1)
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype) or pa.types.is_map(dtype):
        return _of_lists(array)
    return -(-array.nbytes // max(1, len(array)))  # for types that no file stores


def _of_lists(array: Any) -> IntArray:
    is_large = pa.types.is_large_list(array.type)
    offsets = offsets_of(array, np.int64 if is_large else np.int32)
    first, end = int(offsets[0]), int(offsets[-1])
    members = [array.keys, array.items] if pa.types.is_map(array.type) else [array.values]
    items = row_sizes([member.slice(first, end - first) for member in members], end - first)
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(items)))
    sizes: IntArray = np.diff(ends[offsets - first]) + (8 if is_large else 4)
    return sizes
