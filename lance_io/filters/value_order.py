"""Comparing lists, maps and structs: item by item, the first difference decides, a shorter list comes first.

Inside a value nulls are equal to each other and below everything else; floats compare by total order. A value that is
null itself gives null.
"""

from __future__ import annotations

import operator
import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from lance_io.filters.elementwise import arrays
from lance_io.levels.lists import with_inner

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.filters.elementwise import Value
    from lance_io.spans import IntArray

    Null = tuple[int]

_TESTS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_SIGN: Final = 1 << 63


def is_list(t: pa.DataType) -> bool:
    """Whether values are lists, in any of Arrow's layouts but views."""
    return bool(pt.is_list(t) or pt.is_large_list(t) or pt.is_fixed_size_list(t))


def sort_keys(values: pa.Array | pa.ChunkedArray, *, nulls_below: bool = True) -> list[Any]:
    """A Python object for each value such that the objects compare as the values do; None for nulls.

    nulls_below  nulls inside a value are below everything else, or above
    """
    stored = _stored(values.type)
    to_key = _key_of(stored, (0,) if nulls_below else (2,))
    plain = values if stored.equals(values.type) else values.cast(stored)
    return [None if one is None else to_key(one) for one in plain.to_pylist()]


def codes(values: pa.Array) -> IntArray:
    """A number for each value of any type: the same for equal values, of which nulls are one."""
    if pt.is_nested(values.type):
        seen: dict[str, int] = {}
        return np.array([seen.setdefault(repr(key), len(seen)) for key in sort_keys(values)], dtype=np.int64)
    encoded: IntArray = values.dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
    return encoded


def compare(op: str, left: Value, right: Value) -> Value:
    """`left op right` for each row; both have one type."""
    if isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar):
        return compare(op, pa.repeat(left, 1), right)[0]
    test = _TESTS[op]
    pairs = zip(*[sort_keys(array) for array in arrays(left, right)], strict=True)
    return pa.array([None if a is None or b is None else test(a, b) for a, b in pairs], pa.bool_())


def _stored(t: pa.DataType) -> pa.DataType:
    """The type with dates and times as integers, extensions as they are stored, dictionaries as their values.

    Python's own dates and times end with the year 9999 and know no nanoseconds, `bool8` becomes True or False.
    """
    if isinstance(t, pa.BaseExtensionType):
        return _stored(t.storage_type)
    if pt.is_dictionary(t):
        return _stored(t.value_type)
    if pt.is_temporal(t):
        return pa.int32() if t.bit_width == 32 else pa.int64()
    return with_inner(t, _stored)


def _key_of(t: pa.DataType, null: Null) -> Callable[[Any], Any]:
    """The function from a Python value of a type, not null, to its key.

    null  the key of a null inside; those of other values begin with 1
    """
    if is_list(t):
        item = _or_null(t.value_type, null)
        return lambda items: [item(one) for one in items]
    if pt.is_map(t):
        key, value = _or_null(t.key_type, null), _or_null(t.item_type, null)
        return lambda entries: [(key(first), value(second)) for first, second in entries]
    if pt.is_struct(t):
        members = [(field.name, _or_null(field.type, null)) for field in t]
        return lambda members_of: [member(members_of[name]) for name, member in members]
    if pt.is_floating(t):
        return _total_order
    return lambda value: value


def _or_null(t: pa.DataType, null: Null) -> Callable[[Any], Any]:
    to_key = _key_of(t, null)
    return lambda value: null if value is None else (1, to_key(value))


def _total_order(number: float) -> int:
    """An integer that grows with the float: NaN above or below all numbers, -0.0 below 0.0."""
    bits = int.from_bytes(struct.pack(">d", number), "big")
    return bits ^ _SIGN if bits < _SIGN else ~bits & (2 * _SIGN - 1)
