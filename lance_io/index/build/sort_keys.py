"""The order of values in an index (spec: indices, 2.1): nulls, then numbers, or bytes of texts, or IEEE's total order.

Types of a fixed width become numpy integers that sort as their values do. They are sorted by 16 bits at a time, which
numpy does in linear time; it takes a third of the time of a comparison sort.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from lance_io import compute as pc
from lance_io.levels.arrays import numbers, true_positions

if TYPE_CHECKING:
    from lance_io.spans import IntArray

Keys = npt.NDArray[Any]

_DIGIT_BITS: Final = 16
_SMALL_ROWS: Final = 1 << 15  # below, one comparison sort beats several passes
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
    keys = number_keys(values)
    if keys is None:
        order = pc.array_sort_indices(values, order="ascending", null_placement="at_start")
        return np.asarray(order.to_numpy(), np.int64)
    if not values.null_count:
        return None if _is_ascending(keys) else stable_order(keys)
    mask = values.is_null()
    present = true_positions(values.is_valid())
    nulls = true_positions(mask)
    return np.concatenate((nulls, present[stable_order(keys[present])]))


def _is_ascending(keys: Keys) -> bool:
    return not (keys[1:] < keys[:-1]).any()


def stable_order(keys: Keys) -> IntArray:
    """Positions of integers in ascending order, equal ones in their present order."""
    if len(keys) < _SMALL_ROWS or keys.dtype.itemsize <= 2:
        return np.argsort(keys, kind="stable")
    low = keys.min()
    span = int(keys.max()) - int(low)
    digits = (keys - low).view(f"u{keys.dtype.itemsize}")  # wraps around for signed integers, which is right
    order: IntArray | None = None
    for shift in range(0, max(1, span.bit_length()), _DIGIT_BITS):
        digit = (digits >> digits.dtype.type(shift)).astype(np.uint16)
        if order is None:
            order = np.argsort(digit, kind="stable")
        else:
            order = order[np.argsort(digit[order], kind="stable")]
    assert order is not None
    return order


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
