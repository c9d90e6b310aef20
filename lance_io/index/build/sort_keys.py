"""The order of values in an index (spec: indices, 2.1): nulls, then numbers, or bytes of texts, or IEEE's total order.

Types of a fixed width become numpy integers that sort as their values do; of texts, the first bytes in which they
differ do so, and Arrow orders those that agree in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from lance_io import compute as pc
from lance_io.levels.arrays import numbers, true_positions, values_of

if TYPE_CHECKING:
    from lance_io.spans import IntArray

Keys = npt.NDArray[Any]

_SMALL_ROWS: Final = 1 << 12  # below, a sort of positions is fast enough
_SAMPLE_ROWS: Final = 1 << 12
_REPEATS: Final = 4
_WORD_BITS: Final = 64
_RADIX_BITS: Final = 16
_KEY_BYTES: Final = 8
_OFFSETS: Final[dict[pa.DataType, type[np.signedinteger[Any]]]] = {
    pa.string(): np.int32,
    pa.binary(): np.int32,
    pa.large_string(): np.int64,
    pa.large_binary(): np.int64,
}
_SIGNED: Final = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def number_keys(values: pa.Array) -> Keys | None:
    """Integers that sort as the values do, with any number in place of nulls; None for texts, binaries and decimals."""
    dtype = values.type
    if pt.is_boolean(dtype):
        return _memory(values.cast(pa.uint8()), np.dtype(np.uint8))
    if pt.is_floating(dtype):
        num_bits: int = dtype.bit_width
        bits = _memory(values, np.dtype(_SIGNED[num_bits // 8]))
        keys: Keys = bits ^ ((bits >> (num_bits - 1)) & ((1 << num_bits - 1) - 1))
        return keys
    if pt.is_unsigned_integer(dtype):
        return _memory(values, np.dtype(f"u{dtype.bit_width // 8}"))
    if pt.is_integer(dtype) or pt.is_temporal(dtype):
        if pt.is_interval(dtype):
            return None
        return _memory(values, np.dtype(f"i{dtype.bit_width // 8}"))
    return None


def _memory(values: pa.Array, dtype: np.dtype[Any]) -> Keys:
    if not len(values):
        return np.empty(0, dtype)
    return np.frombuffer(values.buffers()[1], dtype, len(values), values.offset * dtype.itemsize)


def sorted_order(values: pa.Array) -> IntArray | None:
    """Positions of the values in ascending order, equal ones in their present order; None if they are sorted."""
    if not values.null_count:
        keys = number_keys(values)
        if keys is None:
            return _order_of_others(values)
        return None if not (keys[1:] < keys[:-1]).any() else stable_order(keys)
    nulls, present = true_positions(values.is_null()), true_positions(values.is_valid())
    keys = number_keys(values)
    order = _order_of_others(take(values, present)) if keys is None else stable_order(keys[present])
    return np.concatenate((nulls, present[order]))


def stable_order(keys: Keys) -> IntArray:
    """Positions of integers in ascending order, equal ones in their present order.

    The upper bits of a key and its position make one number, and numpy sorts numbers several times as fast as it
    orders positions. Keys that agree in those bits are then ordered among themselves.
    """
    if len(keys) < _SMALL_ROWS or keys.dtype.itemsize <= 2:
        return _small_order(keys)
    low = keys.min()
    digits = (keys - low).view(f"u{keys.dtype.itemsize}").astype(np.uint64)  # wraps around for signed ones: right
    num_bits, position_bits = int(digits.max()).bit_length(), (len(keys) - 1).bit_length()
    if num_bits <= _RADIX_BITS:  # numpy sorts these in linear time
        return _small_order(digits.astype(np.uint16))
    dropped = max(0, num_bits + position_bits - _WORD_BITS)
    packed = (digits >> np.uint64(dropped)) << np.uint64(position_bits)
    packed |= np.arange(len(keys), dtype=np.uint64)
    if not dropped:
        digits = packed[:0]  # free the memory
    packed.sort()
    packed &= np.uint64((1 << position_bits) - 1)
    order: IntArray = packed.view(np.int64)
    if dropped:
        sorted_digits = digits[order]
        tied = _tied(sorted_digits >> np.uint64(dropped))
        some = order[tied]
        order[tied] = some[np.argsort(sorted_digits[tied], kind="stable")]
    return order


def _small_order(keys: Keys) -> IntArray:
    order: IntArray = np.argsort(keys, kind="stable")
    return order


def _tied(keys: Keys) -> IntArray:
    """Positions of ascending keys that are equal to a neighbour."""
    equal = keys[1:] == keys[:-1]
    tied = np.zeros(len(keys), np.bool_)
    tied[1:] |= equal
    tied[:-1] |= equal
    return np.flatnonzero(tied)


def _order_of_others(values: pa.Array) -> IntArray:
    """Positions of texts, binaries and decimals without nulls in ascending order, equal ones in their present order."""
    offset_type = _OFFSETS.get(values.type)
    if offset_type is None or len(values) < _SMALL_ROWS:
        return _arrow_order(values)
    sample = values.slice(0, _SAMPLE_ROWS).dictionary_encode().dictionary
    if _REPEATS * len(sample) < _SAMPLE_ROWS:  # most texts occur often
        return _order_by_rank(values.dictionary_encode())
    keys, sizes = _first_bytes(values, offset_type)
    order = stable_order(keys)
    keys = keys[order]
    pairs = np.flatnonzero(keys[1:] == keys[:-1])  # that of a position and the next
    first, second = sizes[order[pairs]], sizes[order[pairs + 1]]
    if not ((first != second) | (first > _KEY_BYTES)).any():
        return order
    tied = _tied(keys)
    some = order[tied]
    order[tied] = some[_arrow_order(take(values, some))]
    return order


def _arrow_order(values: pa.Array) -> IntArray:
    order = pc.array_sort_indices(values, order="ascending", null_placement="at_start")
    return np.asarray(order.to_numpy(), np.int64)


def _order_by_rank(encoded: pa.DictionaryArray) -> IntArray:
    """The order of values of which each occurs often: by the ranks of the distinct ones."""
    ranks = np.empty(len(encoded.dictionary), np.uint32)
    ranks[_arrow_order(encoded.dictionary)] = np.arange(len(ranks), dtype=np.uint32)
    return stable_order(ranks[values_of(encoded.indices)])


def _first_bytes(values: pa.Array, offset_type: type[np.signedinteger[Any]]) -> tuple[Keys, IntArray]:
    """Eight bytes of each text behind the prefix that all share, as a number, and the bytes that it has there."""
    ends = pc.min_max(values)
    shortest, longest = (_bytes_of(ends[name]) for name in ("min", "max"))
    prefix = next(
        (at for at, (low, high) in enumerate(zip(shortest, longest, strict=False)) if low != high),
        min(len(shortest), len(longest)),
    )
    _, offsets, data = values.buffers()
    size = np.dtype(offset_type).itemsize
    bounds = np.frombuffer(offsets, offset_type, len(values) + 1, values.offset * size).astype(np.int64)
    first, last = int(bounds[0]), int(bounds[-1])
    content = np.empty(0, np.uint8) if data is None or not data.size else np.frombuffer(data, np.uint8)[first:last]
    padded = np.concatenate((content, np.zeros(_KEY_BYTES, np.uint8)))
    words = np.ndarray((len(content) + 1,), ">u8", padded, strides=(1,))  # eight bytes from any position on
    sizes = np.diff(bounds) - prefix
    keys = words[bounds[:-1] - first + prefix].astype(np.uint64)
    short = np.flatnonzero(sizes < _KEY_BYTES)
    beyond = (np.uint64(8) * (_KEY_BYTES - sizes[short]).astype(np.uint64)) & np.uint64(63)
    keys[short] = np.where(sizes[short] > 0, keys[short] >> beyond << beyond, np.uint64(0))
    return keys, sizes


def _bytes_of(value: pa.Scalar) -> bytes:
    content = value.as_py()
    return content.encode() if isinstance(content, str) else bytes(content)


def take(values: pa.Array, order: IntArray) -> pa.Array:
    """The values at these positions."""
    return values.take(numbers(order))


class Comparable:
    """Keys of single values of one array, comparable with those of other arrays of the same type."""

    def __init__(self, values: pa.Array) -> None:
        self._values = values
        self._keys = number_keys(values)
        self._has_nulls = values.null_count > 0

    def __getitem__(self, position: int) -> tuple[Any, ...]:
        if self._has_nulls and not self._values[position].is_valid:
            return ()
        if self._keys is not None:
            return (int(self._keys[position]),)
        value = self._values[position]
        return (
            value.as_py().encode() if isinstance(value, (pa.StringScalar, pa.LargeStringScalar)) else value.as_py(),
        )


def changes(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Of sorted values, whether each but the first differs from the one before; every NaN and zero by its bits."""
    keys = number_keys(values)
    differs: npt.NDArray[np.bool_]
    if keys is not None:
        differs = keys[1:] != keys[:-1]
    else:
        equal = pc.equal(values.slice(1), values.slice(0, max(0, len(values) - 1)))
        differs = np.asarray(pc.invert(pc.fill_null(equal, True)).to_numpy(zero_copy_only=False), np.bool_)
    if values.null_count:
        null = np.asarray(values.is_null().to_numpy(zero_copy_only=False), np.bool_)
        both = null[1:] & null[:-1]
        differs = np.where(both, False, differs | (null[1:] != null[:-1]))
    return differs
