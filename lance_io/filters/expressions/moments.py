"""Overflow checks for casts of dates, timestamps and durations to other units."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

_UNIT_NS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY_NS: Final = 86_400 * 10**9
_KINDS: Final = {pa.date32(): "Date32", pa.date64(): "Date64"}


def check_moments(array: pa.Array, to: pa.DataType, name: str | None = None) -> None:
    """Raise `pa.ArrowInvalid` for dates, timestamps and durations that overflow `to`: Arrow would wrap them around.

    Other types are ignored.

    name  of `to`, for the error
    """
    source = array.type
    is_span = pt.is_duration(source) and pt.is_duration(to)
    if not len(array) or not (is_span or (_is_day_or_moment(source) and (_is_day_or_moment(to) or pt.is_time(to)))):
        return
    per_unit, per_new = _unit_ns(source), _DAY_NS if pt.is_date64(to) else _unit_ns(to)
    bits = 32 if pt.is_date(to) and not pt.is_date(source) else to.bit_width if pt.is_date32(to) else 64
    if per_new >= per_unit and bits == 64:
        return
    numbers = array.cast(pa.int32() if pt.is_date32(source) else pa.int64())
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1
    extremes: dict[str, Any] = pc.min_max(numbers).as_py()
    for value in extremes.values():
        if value is not None and not least <= value * per_unit // per_new <= most:
            raise pa.ArrowInvalid(f"Overflow happened on: {value} as {source} is no {name or _KINDS.get(to, to)}")


def _is_day_or_moment(dtype: pa.DataType) -> bool:
    return bool(pt.is_date(dtype) or pt.is_timestamp(dtype))


def _unit_ns(moments: pa.DataType) -> int:
    return _DAY_NS if pt.is_date32(moments) else _UNIT_NS["ms" if pt.is_date64(moments) else moments.unit]
