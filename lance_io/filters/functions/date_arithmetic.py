"""Times shifted by intervals, and times floored to whole intervals."""

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
    """A date or time plus an interval: first months (a day past the month's end becomes its last), then days, the rest.

    The result has the value's type, cut to its unit; months and days are local to its zone. Raises pa.ArrowInvalid for
    overflow of the type, and for local times that a change of clocks skips.
    """
    return _shift_all(value, span, 1)


def earlier(value: Value, span: Value) -> pa.Array:
    """A date or time minus an interval; see `later`."""
    return _shift_all(value, span, -1)


def _shift_all(value: Value, span: Value, sign: int) -> pa.Array:
    (values,) = broadcast(value, *([span] if isinstance(span, pa.Array) else []))[:1]
    spans = span if isinstance(span, pa.Array) else pa.repeat(span, 1)  # a literal: one span for all rows
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
    shifted_days = np.minimum(target.astype("M8[D]") + (date - month.astype("M8[D]")), last).astype(np.int64) + days
    if (np.abs(shifted_days.astype(np.float64)) * per_day >= 2**63).any():
        raise pa.ArrowInvalid("date arithmetic goes beyond the times that the type can hold")
    shifted: np.ndarray = shifted_days * per_day + ticks % per_day
    return shifted


def bin_times(span: pa.Scalar, value: Value, origin: Value | None = None) -> pa.Array | pa.Scalar:
    """The start of the span that contains a time; spans are counted from `origin`, else from 1970.

    The result is in nanoseconds; for an interval literal and a timestamp without a zone it has the timestamp's unit.
    Raises pa.ArrowInvalid for an empty span, and for one that mixes months with days.
    """
    is_text = isinstance(span, pa.StringScalar)
    if not isinstance(span, pa.Scalar) or not span.is_valid:  # not a scalar: the binder needs only the result's type
        return pa.nulls(len(value), pa.timestamp("ns"))
    width = parse_interval(span.as_py()) if is_text else span.as_py()
    zone = value.type.tz if pt.is_timestamp(value.type) else None
    times = pc.cast(value, pa.timestamp("ns", zone))
    start = 0 if origin is None else _origin(origin)
    ticks = pc.fill_null(pc.cast(times, pa.int64()), 0).to_numpy(zero_copy_only=False)
    floors = pa.array(_floors(ticks, start, width), pa.int64(), mask=np.asarray(times.is_null()))
    stamps = floors.cast(pa.timestamp("ns", zone))
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
    """Like `_floors`, in calendar months; day of the month and time come from the origin."""
    start = np.datetime64(origin, "ns")
    first = start.astype("M8[M]")
    rest = start - first.astype("M8[ns]")
    passed = (ticks.astype("M8[ns]").astype("M8[M]") - first).astype(np.int64) // months * months
    begins = (first + passed.astype("m8[M]")).astype("M8[ns]") + rest
    late = begins > ticks.astype("M8[ns]")
    begins[late] = (first + (passed[late] - months).astype("m8[M]")).astype("M8[ns]") + rest
    floors: np.ndarray = begins.astype(np.int64)
    return floors


FUNCTIONS = SqlFunctions()
FUNCTIONS.define("date_bin", "span when when?", bin_times)
FUNCTIONS.define("+", "when any", later)  # times and intervals only; other sums are a `Call` of Arrow's kernel
FUNCTIONS.define("-", "when any", earlier)
