"""Numbers that callers give: rows wanted, where a range begins, how large batches are."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_io.errors import UsageError

if TYPE_CHECKING:
    from lance_io.spans import IntArray

NO_ROW = np.iinfo(np.int64).max  # stands for row numbers above the range of i64: no table has such a row


def row_numbers(indices: Any) -> IntArray:
    """Row numbers as i64[n], from a list, range, numpy or Arrow array of integers.

    Raises `TypeError` for anything else, masks, masked numbers and sets among it, and `OverflowError` for negative
    numbers and those beyond 64 bits.
    """
    if type(indices) is not list:
        indices = _sequence(indices)
    numbers = np.asarray(indices)
    if not numbers.size:
        return np.empty(0, dtype=np.int64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        numbers = np.array([_one_number(one) for one in indices], dtype=np.int64)
    elif numbers.dtype == np.uint64:
        numbers = np.minimum(numbers, np.uint64(NO_ROW))
    if type(indices) is not list or numbers.dtype != np.int64:  # kernels take no strides
        numbers = np.require(numbers, np.int64, ("C", "ALIGNED"))
    if numbers[numbers.argmin()] < 0:  # for few numbers several times as fast as `min`
        raise OverflowError("can't convert negative int to unsigned")
    return numbers


def _sequence(indices: Any) -> Any:
    """A list or numpy array of what may be anything."""
    if isinstance(indices, (Set, Mapping)):
        raise TypeError(f"row numbers must be a sequence, got {type(indices)}")
    if isinstance(indices, np.ndarray) and type(indices) is not np.ndarray and np.ma.is_masked(indices):
        raise TypeError("row numbers must not be masked")
    if isinstance(indices, (pa.Array, pa.ChunkedArray)):
        if indices.null_count:
            raise TypeError("row numbers must not be null")
        return indices.to_numpy(zero_copy_only=False)
    return indices if hasattr(indices, "__len__") else list(indices)


def _one_number(one: Any) -> int:
    number = operator.index(one)
    if number >= 1 << 64:
        raise OverflowError("int too big to convert")
    return min(number, NO_ROW)


def count(number: Any) -> int:
    """A number of rows, or of the first. Raises `TypeError` for what is no integer, `OverflowError` below zero."""
    value = operator.index(number)
    if value < 0:
        raise OverflowError("can't convert negative int to unsigned")
    return value


def batch_rows(number: Any) -> int:
    """A number of rows per batch; raises what `count` does, and UsageError for none."""
    value = count(number)
    if value == 0:
        raise UsageError("batch_size must be greater than 0")
    return value
