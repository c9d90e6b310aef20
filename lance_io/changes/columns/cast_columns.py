"""Casts of columns: the supported ones, and their results (`alter_columns`). Pure.

from                                  to
integers, dictionaries of integers    each other, if the values fit
floats                                floats; values that are too large become infinite
text, dictionaries of text            each other
binaries                              each other
dates of 32 bits, timestamps          dates, timestamps of any unit and zone
times of day, durations               the same with another unit, truncated if it is coarser
decimals                              decimals of other precision and scale
vectors of floats or integers         vectors of other floats or integers with the same length, lists
lists                                 lists with offsets of another width, or with other integers; vectors
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lance_io.changes.columns.type_texts import debug_type
from lance_io.filters.expressions.casts import sql_cast
from lance_io.filters.expressions.moments import check_moments
from lance_io.levels.lists import items_of, with_items

if TYPE_CHECKING:
    from lance_io.format.schema import Field


def can_cast(source: pa.DataType, to: pa.DataType) -> bool:
    """Whether the cast is supported."""
    if source == to:
        return True
    if _is_any_list(source):
        return _is_any_list(to) and _can_cast_lists(source, to)
    return any(is_from(source) and is_to(to) for is_from, is_to in _PAIRS)


def _can_cast_lists(source: pa.DataType, to: pa.DataType) -> bool:
    """Vectors keep their length. Items may become other integers; items of vectors may become other floats."""
    inner, wanted = source.value_type, to.value_type
    sizes = [dtype.list_size for dtype in (source, to) if pt.is_fixed_size_list(dtype)]
    if len(set(sizes)) > 1:
        return False
    is_wider = pt.is_integer(inner) and pt.is_integer(wanted)
    if not sizes:
        return bool(inner == wanted or is_wider)
    return bool(is_wider or (pt.is_floating(inner) and pt.is_floating(wanted)))


def _is_any_list(dtype: pa.DataType) -> bool:
    return bool(pt.is_list(dtype) or pt.is_large_list(dtype) or pt.is_fixed_size_list(dtype))


def _is_text(dtype: pa.DataType) -> bool:
    values = dtype.value_type if pt.is_dictionary(dtype) else dtype
    return bool(pt.is_string(values) or pt.is_large_string(values))


def _is_bytes(dtype: pa.DataType) -> bool:
    return bool(pt.is_binary(dtype) or pt.is_large_binary(dtype))


def _is_count(dtype: pa.DataType) -> bool:
    return bool(pt.is_integer(dtype.value_type if pt.is_dictionary(dtype) else dtype))


def _is_day_or_moment(dtype: pa.DataType) -> bool:
    return bool(pt.is_date(dtype) or pt.is_timestamp(dtype))


_PAIRS: Any = (
    (_is_count, _is_count),
    (pt.is_floating, pt.is_floating),
    (_is_text, _is_text),
    (_is_bytes, _is_bytes),
    (_is_day_or_moment, _is_day_or_moment),
    (pt.is_timestamp, pt.is_time),
    (pt.is_time, pt.is_time),
    (pt.is_duration, pt.is_duration),
    (pt.is_decimal, pt.is_decimal),
)


def cast_within(array: pa.Array, before: Field, after: Field) -> pa.Array:
    """Cast the fields of a column that have another id in `after`.

    before, after  the same tree of fields, pruned to the cast fields, or to all fields that share a file with them
    Raises `pa.ArrowInvalid` for a value that does not fit.
    """
    if before.id != after.id:
        return cast_values(array, after.arrow_type)
    if before.children == after.children:
        return array
    members = list(zip(before.children, after.children, strict=True))
    if pt.is_struct(array.type):
        cast = [cast_within(array.field(i), *pair) for i, pair in enumerate(members)]
        fields = [
            pa.field(child.name, member.type, child.nullable) for (_, child), member in zip(members, cast, strict=True)
        ]
        return pa.StructArray.from_arrays(cast, fields=fields, mask=array.is_null() if array.null_count else None)
    if pt.is_fixed_size_list(array.type):
        size = array.type.list_size
        items = cast_within(array.values.slice(array.offset * size, len(array) * size), *members[0])
        dtype = pa.list_(pa.field(members[0][1].name, items.type, members[0][1].nullable), size)
        return pa.FixedSizeListArray.from_arrays(items, type=dtype, mask=array.is_null() if array.null_count else None)
    items, offsets = items_of(array)
    return with_items(array, offsets, cast_within(items, *members[0]))


def cast_values(array: pa.Array, to: pa.DataType) -> pa.Array:
    """Cast values to another type that `can_cast` allows. Raises `pa.ArrowInvalid` for a value that does not fit."""
    source = array.type
    if source == to:
        return array
    if pt.is_dictionary(source):
        return cast_values(pc.cast(array, source.value_type), to)
    if pt.is_dictionary(to):
        _check_integers(array, to.value_type)
        return pc.cast(pc.dictionary_encode(pc.cast(array, to.value_type)), to)
    if _is_any_list(source):
        _check_lengths(array, to)
        _check_integers(pc.list_flatten(array), to.value_type)
        return pc.cast(array, to, safe=not pt.is_floating(source.value_type))
    _check_integers(array, to)
    check_moments(array, to, debug_type(to))
    return sql_cast(array, to, lenient=False)


def _check_lengths(array: pa.Array, to: pa.DataType) -> None:
    if pt.is_fixed_size_list(array.type) or not pt.is_fixed_size_list(to):
        return
    lengths = pc.list_value_length(array).fill_null(to.list_size).to_numpy()
    wrong = np.flatnonzero(lengths != to.list_size)
    if len(wrong):
        row = int(wrong[0])
        raise pa.ArrowInvalid(
            f"Cannot cast to FixedSizeList({to.list_size}): value at index {row} has length {int(lengths[row])}"
        )


def _check_integers(array: pa.Array, to: pa.DataType) -> None:
    if not (pt.is_integer(array.type) and pt.is_integer(to)) or not len(array):
        return
    least, most = _range_of(to)
    for value in pc.min_max(array).as_py().values():
        if value is not None and not least <= value <= most:
            bad = next(item for item in array.to_pylist() if item is not None and not least <= item <= most)
            raise pa.ArrowInvalid(f"Can't cast value {bad} to type {debug_type(to)}")


def _range_of(integer: pa.DataType) -> tuple[int, int]:
    bits, signed = integer.bit_width, pt.is_signed_integer(integer)
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
