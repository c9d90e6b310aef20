"""Keys of values: what sorted columns of index files are searched by (spec: indices, 2.1).

booleans, whole numbers, dates, times   numbers
floats                                  signed integers in IEEE total order: -NaN, -inf .. -0.0, 0.0 .. inf, NaN
text, binary                            bytes
decimals                                decimal numbers
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lance_io.errors import FormatError
from lance_io.levels.arrays import scalar
from lance_io.records import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_io.index.questions import Interval
    from lance_io.spans import IntArray

_SIGNED: Final = {16: np.int16, 32: np.int32, 64: np.int64}


def is_binary(dtype: pa.DataType) -> bool:
    """Whether values are compared byte by byte."""
    is_text = pt.is_string(dtype) or pt.is_large_string(dtype)
    return bool(is_text or pt.is_binary(dtype) or pt.is_large_binary(dtype) or pt.is_fixed_size_binary(dtype))


def has_keys(dtype: pa.DataType) -> bool:
    """Whether values of a type have keys."""
    return is_binary(dtype) or _is_number(dtype) or pt.is_decimal(dtype)


def _is_number(dtype: pa.DataType) -> bool:
    is_time = pt.is_date(dtype) or pt.is_time(dtype) or pt.is_timestamp(dtype) or pt.is_duration(dtype)
    return bool(is_time or pt.is_boolean(dtype) or pt.is_integer(dtype) or pt.is_floating(dtype))


def number_keys(values: pa.Array) -> npt.NDArray[Any]:
    """The keys of values that have numbers as keys; those of nulls mean nothing."""
    dtype = values.type
    if not len(values):
        return np.empty(0, np.int64)
    if pt.is_boolean(dtype):
        return number_keys(values.cast(pa.uint8()))
    if pt.is_float16(dtype):  # keys of a wider type, because filters compare half floats as such
        return number_keys(values.cast(pa.float32()))
    width = dtype.bit_width
    if pt.is_integer(dtype):
        kind: Any = np.dtype(f"{'u' if pt.is_unsigned_integer(dtype) else 'i'}{width // 8}")
    else:
        kind = np.dtype(_SIGNED[width])
    bits = np.frombuffer(values.buffers()[1], kind, len(values), values.offset * kind.itemsize)
    if not pt.is_floating(dtype):
        return bits
    keys: npt.NDArray[Any] = bits ^ ((bits >> (width - 1)) & np.iinfo(kind).max)
    return keys


def key_of(value: pa.Scalar) -> Any:
    """The key of a value that is not null."""
    if is_binary(value.type):
        return bytes(value.as_buffer())
    if pt.is_decimal(value.type):
        return value.as_py()
    return number_keys(pa.repeat(value, 1))[0]


def value_of_key(key: Any, dtype: pa.DataType) -> pa.Scalar:
    """The value of a key; the reverse of `key_of`."""
    if is_binary(dtype):
        return pa.array([key], pa.binary()).cast(dtype)[0]
    if pt.is_decimal(dtype):
        return pa.array([key], dtype)[0]
    if pt.is_boolean(dtype):
        return scalar(bool(key), dtype)
    if pt.is_float16(dtype):
        return value_of_key(key, pa.float32()).cast(dtype)
    bits = np.array([key])
    if pt.is_floating(dtype):
        bits = bits ^ ((bits >> (dtype.bit_width - 1)) & np.iinfo(bits.dtype).max)
    return pa.Array.from_buffers(dtype, 1, [None, pa.py_buffer(bits.tobytes())])[0]


class SortedKeys:
    """The keys of a sorted column without nulls, for binary search.

    what  the column, for errors
    Raises `FormatError` if the values have no keys, include nulls or are not sorted.
    """

    __slots__ = ("_numbers", "_values", "nbytes")

    def __init__(self, values: pa.Array, what: str) -> None:
        if values.null_count:
            raise FormatError(f"{what}: {values.null_count} nulls between values")
        self._values = values
        self.nbytes: int = values.nbytes
        self._numbers: npt.NDArray[Any] | None = None
        if _is_number(values.type):
            numbers = self._numbers = number_keys(values)
            is_sorted = bool((numbers[1:] >= numbers[:-1]).all())
        else:
            is_sorted = _is_sorted(values, what)
        if not is_sorted:
            raise FormatError(f"{what}: values are not in ascending order. The index is damaged")

    def __len__(self) -> int:
        return len(self._values)

    @property
    def type(self) -> pa.DataType:
        """Type of the values."""
        return self._values.type

    @property
    def values(self) -> pa.Array:
        """The values."""
        return self._values

    def value(self, position: int) -> pa.Scalar:
        """A value."""
        return self._values[position]

    def at(self, position: int) -> Any:
        """The key of a value."""
        return key_of(self._values[position]) if self._numbers is None else self._numbers[position]

    def slice(self, first: int, end: int) -> SortedKeys:
        """Some of the keys."""
        part = SortedKeys.__new__(SortedKeys)
        part._values = self._values.slice(first, max(0, end - first))
        part._numbers = None if self._numbers is None else self._numbers[first:end]
        part.nbytes = self.nbytes
        return part

    def is_at_most(self, other: SortedKeys) -> bool:
        """Whether each key is at most its counterpart in `other`, which has as many of the same type."""
        if self._numbers is not None and other._numbers is not None:
            return bool((self._numbers <= other._numbers).all())
        left, right = self._values, other._values
        if pt.is_fixed_size_binary(left.type):
            left, right = left.cast(pa.binary()), right.cast(pa.binary())
        return not pc.any(pc.greater(left, right)).as_py()

    @property
    def has_repeats(self) -> bool:
        """Whether a value occurs twice."""
        if self._numbers is not None:
            return bool((self._numbers[1:] == self._numbers[:-1]).any())
        return len(self._values.unique()) < len(self._values)

    @property
    def first(self) -> Any:
        """The least key."""
        return self.at(0)

    @property
    def last(self) -> Any:
        """The greatest key."""
        return self.at(len(self._values) - 1)

    def left(self, key: Any) -> int:
        """Number of values below a key."""
        if self._numbers is not None:
            return int(np.searchsorted(self._numbers, key, side="left"))
        return bisect_left(range(len(self._values)), key, key=self.at)

    def right(self, key: Any) -> int:
        """Number of values below a key or equal to it."""
        if self._numbers is not None:
            return int(np.searchsorted(self._numbers, key, side="right"))
        return bisect_right(range(len(self._values)), key, key=self.at)

    def lefts(self, keys: npt.NDArray[Any] | list[Any]) -> IntArray:
        """For each key the number of values below it."""
        if self._numbers is not None:
            return self._numbers.searchsorted(keys, side="left")
        return np.array([self.left(key) for key in keys], dtype=np.int64)

    def rights(self, keys: npt.NDArray[Any] | list[Any]) -> IntArray:
        """For each key the number of values below it or equal to it."""
        if self._numbers is not None:
            return self._numbers.searchsorted(keys, side="right")
        return np.array([self.right(key) for key in keys], dtype=np.int64)

    def equal_to(self, keys: npt.NDArray[Any] | list[Any]) -> tuple[IntArray, IntArray]:
        """For each key the range of equal values: first positions and ends."""
        return self.lefts(keys), self.rights(keys)


def keys_of(values: pa.Array) -> npt.NDArray[Any] | list[Any]:
    """The keys of values without nulls."""
    return number_keys(values) if _is_number(values.type) else [key_of(value) for value in values]


@dataclass(frozen=True, slots=True, eq=False)
class KeySpan:
    """Keys between two bounds; None for no bound.

    has_low, has_high  whether the bounds belong to it
    """

    low: Any = None
    high: Any = None
    has_low: bool = True
    has_high: bool = True

    @classmethod
    def of(cls, interval: Interval) -> KeySpan:
        """The keys of the values of an interval."""
        low = None if interval.low is None else key_of(interval.low)
        high = None if interval.high is None else key_of(interval.high)
        return cls(low, high, interval.has_low, interval.has_high)

    @classmethod
    def of_prefix(cls, prefix: bytes) -> KeySpan:
        """The keys of values that begin with these bytes."""
        stem = prefix.rstrip(b"\xff")
        end = stem[:-1] + bytes([stem[-1] + 1]) if stem else None
        return cls(prefix, end, has_high=False)

    def num_below(self, keys: SortedKeys) -> int:
        """Number of values below the span."""
        if self.low is None:
            return 0
        return keys.left(self.low) if self.has_low else keys.right(self.low)

    def num_above(self, keys: SortedKeys) -> int:
        """Number of values above the span."""
        if self.high is None:
            return 0
        return len(keys) - (keys.right(self.high) if self.has_high else keys.left(self.high))

    def within(self, keys: SortedKeys) -> tuple[int, int]:
        """The range of values inside the span."""
        first = self.num_below(keys)
        return first, max(first, len(keys) - self.num_above(keys))


def _is_sorted(values: pa.Array, what: str) -> bool:
    if not has_keys(values.type):
        raise FormatError(f"{what}: values of type {values.type} have no order in an index")
    if len(values) < 2:
        return True
    if pt.is_fixed_size_binary(values.type):
        values = values.cast(pa.binary())
    return not pc.any(pc.less(values.slice(1), values.slice(0, len(values) - 1))).as_py()
