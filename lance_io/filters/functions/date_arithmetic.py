"""Times moved by intervals, and times cut to whole intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lance_io.filters.elementwise import broadcast
from lance_io.filters.expressions.casts import parse_interval
from lance_io.filters.functions.function_registry import SqlFunctions
from lance_io.filters.kernel_calls import flags

if TYPE_CHECKING:
    from lance_io.filters.elementwise import Value

_SECOND: Final = 10**9
_DAY: Final = 86_400 * _SECOND
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def later(value: Value, span: Value) -> pa.Array:
    """A date or time moved by a span: months, which end with their last day, then days, then the rest.

    The result has the type of the value, cut to its unit; months and days are those of its zone. Raises
    pa.ArrowInvalid for what its type cannot hold, and for times that a change of clocks leaves out.
    """
    return _shift_all(value, span, 1)


def earlier(value: Value, span: Value) -> pa.Array:
    """The same backwards."""
    return _shift_all(value, span, -1)


def _shift_all(value: Value, span: Value, sign: int) -> pa.Array:
    (values,) = broadcast(value, *([span] if isinstance(span, pa.Array) else []))[:1]
    spans = span if isinstance(span, pa.Array) else pa.repeat(span, 1)  # of a literal: one for all rows
    parts = [each or (0, 0, 0) for each in spans.to_pylist()]
    months, days, nanoseconds = sign * np.array(parts, np.int64).reshape(-1, 3).T
    is_null = ~(flags(values) & flags(spans))
    kind = values.type
    if pt.is_date32(kind):
        ticks = _shift(_ticks_of(values), 1, months, days + np.trunc(nanoseconds / _DAY).astype(np.int64))
        return pa.array(ticks, pa.int64(), mask=is_null).cast(pa.int32()).cast(kind)
    stamps = values if pt.is_timestamp(kind) else values.cast(pa.timestamp("ms"))
    unit, zone = stamps.type.unit, stamps.type.tz
    per_second = _PER_SECOND[unit]
    local = pc.local_timestamp(stamps) if zone else stamps
    ticks = _shift(_ticks_of(local), 86_400 * per_second, months, days)
    moved = pa.array(ticks, pa.int64(), mask=is_null).cast(pa.timestamp(unit))
    if zone:
        moved = pc.assume_timezone(moved, zone, ambiguous="earliest")
    rest = nanoseconds // (_SECOND // per_second)
    if rest.any():
        moved = pc.add_checked(moved.cast(pa.int64()), pa.array(np.broadcast_to(rest, len(moved))))
    return moved.cast(stamps.type).cast(kind)


def _ticks_of(values: pa.Array) -> np.ndarray:
    integers = values.cast(pa.int32()).cast(pa.int64()) if pt.is_date32(values.type) else values.cast(pa.int64())
    ticks: np.ndarray = pc.fill_null(integers, 0).to_numpy()
    return ticks


def _shift(ticks: np.ndarray, per_day: int, months: np.ndarray, days: np.ndarray) -> np.ndarray:
    date = (ticks // per_day).astype("M8[D]")
    month = date.astype("M8[M]")
    target = month + months.astype("m8[M]")
    last = (target + np.timedelta64(1, "M")).astype("M8[D]") - np.timedelta64(1, "D")
    found = np.minimum(target.astype("M8[D]") + (date - month.astype("M8[D]")), last).astype(np.int64) + days
    if (np.abs(found.astype(np.float64)) * per_day >= 2**63).any():
        raise pa.ArrowInvalid("date arithmetic goes beyond the times that the type can hold")
    shifted: np.ndarray = found * per_day + ticks % per_day
    return shifted


def bin_times(span: pa.Scalar, value: Value, origin: Value | None = None) -> pa.Array | pa.Scalar:
    """The beginning of the span that a time lies in; spans are counted from `origin`, else from 1970.

    The result is in nanoseconds; of an interval literal and a timestamp without a zone it is in the timestamp's unit.
    Raises pa.ArrowInvalid for an empty span, and one that mixes months with days.
    """
    is_text = isinstance(span, pa.StringScalar)
    if not isinstance(span, pa.Scalar) or not span.is_valid:  # no scalar: only the result's type is asked for
        return pa.nulls(len(value), pa.timestamp("ns"))
    width = parse_interval(span.as_py()) if is_text else span.as_py()
    zone = value.type.tz if pt.is_timestamp(value.type) else None
    times = pc.cast(value, pa.timestamp("ns", zone))
    start = 0 if origin is None else _origin(origin)
    ticks = pc.fill_null(pc.cast(times, pa.int64()), 0).to_numpy(zero_copy_only=False)
    found = pa.array(_floors(ticks, start, width), pa.int64(), mask=np.asarray(times.is_null()))
    stamps = found.cast(pa.timestamp("ns", zone))
    return stamps if is_text or zone or not pt.is_timestamp(value.type) else stamps.cast(value.type, safe=False)


def _origin(origin: Value) -> int:
    if not isinstance(origin, pa.Scalar):
        raise pa.ArrowInvalid("DATE_BIN only supports literal values for the origin argument, not arrays")
    ticks: int = pc.cast(pc.cast(origin, pa.timestamp("ns", getattr(origin.type, "tz", None))), pa.int64()).as_py() or 0
    return ticks


def _floors(ticks: np.ndarray, origin: int, width: pa.MonthDayNano) -> np.ndarray:
    if width.months and (width.days or width.nanoseconds):
        raise pa.ArrowInvalid("DATE_BIN stride does not support combination of month, day and nanosecond intervals")
    if width.months:
        return _month_floors(ticks, origin, abs(width.months))
    step = abs(width.days * _DAY + width.nanoseconds)
    if not 0 < step < 1 << 63:
        raise pa.ArrowInvalid("DATE_BIN stride must be non-zero" if not step else "DATE_BIN stride is too long")
    floors: np.ndarray = (ticks - origin) // step * step + origin
    return floors


def _month_floors(ticks: np.ndarray, origin: int, months: int) -> np.ndarray:
    """As `_floors`, in calendar months; the day of the month and the time are those of the origin."""
    start = np.datetime64(origin, "ns")
    first = start.astype("M8[M]")
    rest = start - first.astype("M8[ns]")
    passed = (ticks.astype("M8[ns]").astype("M8[M]") - first).astype(np.int64) // months * months
    begins = (first + passed.astype("m8[M]")).astype("M8[ns]") + rest
    late = begins > ticks.astype("M8[ns]")
    begins[late] = (first + (passed[late] - months).astype("m8[M]")).astype("M8[ns]") + rest
    found: np.ndarray = begins.astype(np.int64)
    return found


FUNCTIONS = SqlFunctions()
FUNCTIONS.define("date_bin", "span when when?", bin_times)
FUNCTIONS.define("+", "when any", later)  # of times and spans; what Arrow adds up is a `Call`
FUNCTIONS.define("-", "when any", earlier)
