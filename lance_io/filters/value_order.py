"""Sort keys for values that Arrow cannot compare, or compares otherwise.

    type                          `sort_keys`, in Python             `sortable`, for Arrow
    floats                        integers by IEEE total order: -NaN, -inf .. -0.0, 0.0 .. inf, NaN
    lists, structs, maps          lists of the keys of their items   ranks
    dictionaries, extensions      the values, as they are stored     the same
    others                        themselves                         themselves

Lists, maps and structs are compared item by item: the first difference decides, a shorter list comes first. A value
that is null itself stays null, and its comparison is null. Nulls inside a value are equal to each other, and below (or
on request above) everything else.
"""

from __future__ import annotations

import operator
import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lance_io.filters.elementwise import broadcast
from lance_io.filters.expressions.sql_types import is_list
from lance_io.levels.arrays import scalar
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
BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}
"""The float types that `total_order` takes, and the integer type of its keys."""


def sort_keys(values: pa.Array | pa.ChunkedArray, *, nulls_below: bool = True) -> list[Any]:
    """A Python object for each value, which compares as the value does; None for nulls.

    nulls_below  whether nulls inside a value sort below or above everything else
    """
    stored = _stored_type(values.type)
    to_key = _key_of(stored, (0,) if nulls_below else (2,))
    plain = values if stored.equals(values.type) else values.cast(stored)
    return [None if value is None else to_key(value) for value in plain.to_pylist()]


def codes(values: pa.Array) -> IntArray:
    """A code for each value of any type. Equal values share a code; nulls are equal to each other."""
    if pt.is_nested(values.type):
        seen: dict[str, int] = {}
        return np.array([seen.setdefault(repr(key), len(seen)) for key in sort_keys(values)], dtype=np.int64)
    encoded: IntArray = values.dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
    return encoded


def compare_nested(op: str, left: Value, right: Value) -> Value:
    """`left op right` for each row; both have one type, of lists, maps or structs."""
    if isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar):
        return compare_nested(op, pa.repeat(left, 1), right)[0]
    test = _TESTS[op]
    pairs = zip(*[sort_keys(array) for array in broadcast(left, right)], strict=True)
    return pa.array([None if a is None or b is None else test(a, b) for a, b in pairs], pa.bool_())


def _stored_type(t: pa.DataType) -> pa.DataType:
    """The type with dates and times as integers, extensions as their storage, dictionaries as their values.

    Python's own dates and times end with the year 9999 and have no nanoseconds; `bool8` becomes True or False.
    """
    if isinstance(t, pa.BaseExtensionType):
        return _stored_type(t.storage_type)
    if pt.is_dictionary(t):
        return _stored_type(t.value_type)
    if pt.is_temporal(t):
        return pa.int32() if t.bit_width == 32 else pa.int64()
    return with_inner(t, _stored_type)


def _key_of(t: pa.DataType, null: Null) -> Callable[[Any], Any]:
    """The function from a non-null Python value of a type to its key.

    null  the key of an inner null; keys of other inner values begin with 1
    """
    if is_list(t):
        item_key = _or_null(t.value_type, null)
        return lambda items: [item_key(item) for item in items]
    if pt.is_map(t):
        key, value = _or_null(t.key_type, null), _or_null(t.item_type, null)
        return lambda entries: [(key(first), value(second)) for first, second in entries]
    if pt.is_struct(t):
        members = [(field.name, _or_null(field.type, null)) for field in t]
        return lambda members_of: [member(members_of[name]) for name, member in members]
    if pt.is_floating(t):
        return _key_of_float
    return lambda value: value


def _or_null(t: pa.DataType, null: Null) -> Callable[[Any], Any]:
    to_key = _key_of(t, null)
    return lambda value: null if value is None else (1, to_key(value))


def _key_of_float(number: float) -> int:
    """An integer that grows with the float: NaN above or below all numbers, -0.0 below 0.0."""
    bits = int.from_bytes(struct.pack(">d", number), "big")
    return bits ^ _SIGN if bits < _SIGN else ~bits & (2 * _SIGN - 1)


def sortable(values: pa.ChunkedArray, *, nulls_below: bool) -> pa.ChunkedArray:
    """Keys for the values of a column (see the module's table)."""
    t = values.type
    if isinstance(t, pa.BaseExtensionType):
        stored = pa.chunked_array([chunk.storage for chunk in values.chunks], t.storage_type)
        return sortable(stored, nulls_below=nulls_below)
    if pt.is_dictionary(t):
        return sortable(values.cast(t.value_type), nulls_below=nulls_below)
    if pt.is_float16(t):
        return sortable(values.cast(pa.float32()), nulls_below=nulls_below)
    if pt.is_floating(t):
        return pa.chunked_array([total_order(chunk) for chunk in values.chunks], BITS[t])
    if pt.is_nested(t):
        return pa.chunked_array([_ranks(sort_keys(values, nulls_below=nulls_below))])
    return values


def total_order(floats: pa.Array, *, same_zero: bool = False) -> pa.Array:
    """Signed integers that sort as floats do in total order: a negative float gets its lower bits flipped.

    same_zero  give -0.0 the key of 0.0: adding 0.0 changes nothing else, not even NaN bits
    """
    bits = (pc.add(floats, scalar(0.0, floats.type)) if same_zero else floats).view(BITS[floats.type])
    zero, magnitude = scalar(0, bits.type), scalar((1 << (bits.type.bit_width - 1)) - 1, bits.type)
    return pc.if_else(pc.less(bits, zero), pc.bit_wise_xor(bits, magnitude), bits)


def _ranks(keys: list[object]) -> pa.Array:
    """For each key the number of smaller distinct keys; null for None."""
    present = [number for number, key in enumerate(keys) if key is not None]
    ranks = np.zeros(len(keys), dtype=np.int64)
    rank, before = 0, None
    for number in sorted(present, key=lambda index: keys[index]):  # type: ignore[arg-type, return-value]
        rank += keys[number] != before
        ranks[number], before = rank, keys[number]
    return pa.array(ranks, mask=np.array([key is None for key in keys], dtype=np.bool_))
