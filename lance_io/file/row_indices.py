"""Checks of numbers that callers pass: row numbers, starts and lengths of ranges, batch sizes."""

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

    Raises `TypeError` for anything else, including masks, masked numbers and sets, and `OverflowError` for negative
    numbers and numbers beyond 64 bits.
    """
    if type(indices) is not list:
        indices = _sequence(indices)
    numbers = np.asarray(indices)
    if not numbers.size:
        return np.empty(0, dtype=np.int64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        numbers = np.array([_checked_number(number) for number in indices], dtype=np.int64)
    elif numbers.dtype == np.uint64:
        numbers = np.minimum(numbers, np.uint64(NO_ROW))
    if type(indices) is not list or numbers.dtype != np.int64:  # kernels take no strides
        numbers = np.require(numbers, np.int64, ("C", "ALIGNED"))
    if numbers[numbers.argmin()] < 0:  # several times as fast as `min` for few numbers
        raise OverflowError("can't convert negative int to unsigned")
    return numbers


def _sequence(indices: Any) -> Any:
    """A list or numpy array of indices of any supported type."""
    if isinstance(indices, (Set, Mapping)):
        raise TypeError(f"row numbers must be a sequence, got {type(indices)}")
    if isinstance(indices, np.ndarray) and type(indices) is not np.ndarray and np.ma.is_masked(indices):
        raise TypeError("row numbers must not be masked")
    if isinstance(indices, (pa.Array, pa.ChunkedArray)):
        if indices.null_count:
            raise TypeError("row numbers must not be null")
        return indices.to_numpy(zero_copy_only=False)
    return indices if hasattr(indices, "__len__") else list(indices)


def _checked_number(index: Any) -> int:
    number = operator.index(index)
    if number >= 1 << 64:
        raise OverflowError("int too big to convert")
    return min(number, NO_ROW)


def checked_count(number: Any) -> int:
    """A row count or row number. Raises `TypeError` for other than an integer, `OverflowError` below zero."""
    value = operator.index(number)
    if value < 0:
        raise OverflowError("can't convert negative int to unsigned")
    return value


def batch_rows(number: Any) -> int:
    """A number of rows per batch. Raises the errors of `checked_count`, and UsageError for zero."""
    value = checked_count(number)
    if value == 0:
        raise UsageError("batch_size must be greater than 0")
    return value
