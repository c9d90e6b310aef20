"""Common types for two operands of a filter, and literals fitted to a column.

    kind       types                                    combines with
    bool       bool                                     bool
    number     integers, floats, decimals               number
    text       strings and binaries of every layout     text
    calendar   dates and timestamps                     calendar; a timestamp without a zone is a local time in the
                                                        other's zone, a date begins at midnight in UTC
    time, duration                                      their own kind

A null literal combines with every type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lance_io.filters.expressions.sql_types import decimal_of, is_list, is_string, is_text, kind
from lance_io.levels.arrays import from_scalars, scalar

if TYPE_CHECKING:
    from lance_io.filters.elementwise import Value

_DECIMAL_DIGITS_MAX = 38  # of decimal128
_UNITS = ("s", "ms", "us", "ns")  # coarse to fine


def common_type(left: pa.DataType, right: pa.DataType, *, exact: bool = False) -> pa.DataType | None:
    """The type to which two operands are widened, or None if their types do not combine.

    exact  for comparisons: unsigned 64-bit and a signed integer become decimals; else int64
    """
    if left == right or pt.is_null(right):
        return left
    if pt.is_null(left):
        return right
    if is_list(left) and is_list(right):
        items = common_type(left.value_type, right.value_type, exact=exact)
        if items is None:
            return None
        return pa.large_list(items) if pt.is_large_list(left) or pt.is_large_list(right) else pa.list_(items)
    if kind(left) != kind(right):
        return None
    match kind(left):
        case "number":
            return _common_number(left, right, exact)
        case "text":
            return pa.large_string() if is_string(left) and is_string(right) else pa.large_binary()
        case "calendar":
            return _common_calendar(left, right)
        case "time":
            return pa.time64("ns")
        case "duration":
            return pa.duration(max(left.unit, right.unit, key=_UNITS.index))
        case _:
            return None


def _common_number(left: pa.DataType, right: pa.DataType, exact: bool) -> pa.DataType:
    if pt.is_floating(left) or pt.is_floating(right):
        floats = [t for t in (left, right) if pt.is_floating(t)]
        single = all(t.bit_width <= 32 for t in floats) and not (pt.is_decimal(left) or pt.is_decimal(right))
        return pa.float32() if single else pa.float64()
    if pt.is_decimal(left) or pt.is_decimal(right):
        return _common_decimal(decimal_of(left), decimal_of(right))
    return _common_integer(left, right, exact)


def _common_integer(left: pa.DataType, right: pa.DataType, exact: bool) -> pa.DataType:
    if pt.is_signed_integer(left) == pt.is_signed_integer(right):
        return max(left, right, key=lambda t: t.bit_width)
    unsigned, signed = (left, right) if pt.is_unsigned_integer(left) else (right, left)
    bits = max(signed.bit_width, 2 * unsigned.bit_width)
    if bits > 64:
        return pa.decimal128(20, 0) if exact else pa.int64()
    return {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits]


def _common_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    scale = max(left.scale, right.scale)
    precision = max(left.precision - left.scale, right.precision - right.scale) + scale
    wide = precision > _DECIMAL_DIGITS_MAX or left.bit_width > 128 or right.bit_width > 128
    return pa.decimal256(min(precision, 76), scale) if wide else pa.decimal128(precision, scale)


def _common_calendar(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    stamps = [t for t in (left, right) if pt.is_timestamp(t)]
    if not stamps:
        return pa.date64()
    unit = max((t.unit for t in stamps), key=_UNITS.index)
    if len(stamps) == 1 and pt.is_date64(left if stamps[0] is right else right):
        unit = max(unit, "ms", key=_UNITS.index)
    return pa.timestamp(unit, next((t.tz for t in stamps if t.tz), None))


def cast(value: Value, to: pa.DataType, *, safe: bool = True) -> Value:
    """Arrow's cast, with two exceptions.

    Timestamps without a zone become local times of the target's zone. Null lists of a fixed size, which hold items,
    become empty like other null lists. Raises pa.ArrowInvalid, also for local times that occur twice or never.
    """
    if pt.is_timestamp(to) and to.tz and pt.is_timestamp(value.type) and not value.type.tz:
        return pc.assume_timezone(pc.cast(value, pa.timestamp(to.unit), safe=safe), to.tz)
    if pt.is_fixed_size_list(value.type) and pt.is_list(to) and isinstance(value, pa.Array) and value.null_count:
        ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(value), 0).cast(pa.int32()))
        size = scalar(value.type.list_size, ends.type)
        starts = pc.if_else(value.is_valid(), pc.subtract(ends, size), pa.scalar(None, ends.type))
        items = cast(pc.list_flatten(value), to.value_type, safe=safe)
        return pa.ListArray.from_arrays(pa.concat_arrays([starts, ends[-1:]]), items).cast(to)
    return pc.cast(value, to, safe=safe)


def fit_literal(value: pa.Scalar, to: pa.DataType) -> pa.Scalar | None:
    """A literal as a value of a column's type; None if the cast would change it.

    Digits that a float cannot hold are rounded, as for every float literal; everything else must be exact.
    """
    if not value.is_valid:
        return value if value.type == to else pa.scalar(None, to)
    fitted = fit_literals(pa.repeat(value, 1), to)
    return None if fitted is None else fitted[0]


def fit_literals(values: pa.Array, to: pa.DataType) -> pa.Array | None:
    """`fit_literal` for an array without nulls; None if the cast would change a value."""
    source = values.type
    if source == to:
        return values
    if kind(source) != kind(to) or (pt.is_floating(source) and not pt.is_floating(to)):
        return None
    try:
        return values.cast(to, safe=False) if pt.is_floating(to) else _cast_exactly(values, to)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def narrowest(value: pa.Scalar) -> pa.Scalar:
    """An integer literal in the smallest type of its signedness that holds it; other literals unchanged."""
    t = value.type
    if not value.is_valid or not pt.is_integer(t):
        return value
    signed = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
    unsigned = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
    for candidate in signed if pt.is_signed_integer(t) else unsigned:
        fitted = fit_literal(value, candidate)
        if fitted is not None:
            return fitted
    return value


def fit_values(values: pa.Array, to: pa.DataType) -> pa.Array | None:
    """A list of values as an array of a column's type, without those that the type cannot represent.

    Returns None if the kinds do not combine. Strings are parsed as numbers, dates and so on; raises pa.ArrowInvalid for
    one that cannot be parsed.
    """
    source = values.type
    if pt.is_null(source) or source == to or (is_string(source) and not is_text(to)):
        return values.cast(to)
    if kind(source) != kind(to):
        return None
    whole = _cast_exactly(values, to)
    if whole is not None:
        return whole
    kept = [fitted for i in range(len(values)) if (fitted := _cast_exactly(values[i : i + 1], to)) is not None]
    return pa.concat_arrays(kept) if kept else pa.array([], to)


def with_both_zeros(values: pa.Array) -> pa.Array:
    """Values to look for. If they have 0.0 or -0.0, both are included: membership compares bits."""
    if not pt.is_floating(values.type):
        return values
    zeros = [scalar(zero, values.type) for zero in (0.0, -0.0)]
    has_zero = pc.any(pc.equal(values, zeros[0])).as_py()
    return pa.concat_arrays([values, from_scalars(zeros, values.type)]).unique() if has_zero else values


def _cast_exactly(values: pa.Array, to: pa.DataType) -> pa.Array | None:
    try:
        if pt.is_integer(values.type) and pt.is_decimal(to):  # Arrow's direct cast needs room for absent digits
            values = values.cast(decimal_of(values.type))
        fitted = cast(values, to)
        # Arrow's safe cast of a timestamp to a date drops the time of day.
        return fitted if not pt.is_date(to) or fitted.cast(values.type).equals(values) else None
    except pa.ArrowInvalid:
        return None
