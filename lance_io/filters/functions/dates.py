"""Date and time functions of text filters. Timestamps without a zone are UTC."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lance_io.errors import BindError
from lance_io.filters.elementwise import broadcast
from lance_io.filters.expressions.casts import sql_cast
from lance_io.filters.expressions.sql_types import is_string
from lance_io.filters.functions.function_registry import SqlFunctions
from lance_io.filters.functions.time_formats import known_items, read_time, read_time_of_day
from lance_io.filters.kernel_calls import changed_texts, flags, read_times
from lance_io.levels.arrays import values_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from lance_io.filters.elementwise import Value

    Flags = npt.NDArray[np.bool_]

_PARTS: dict[str, Callable[[Value], Value]] = {
    "year": pc.year,
    "isoyear": pc.iso_year,
    "quarter": pc.quarter,
    "month": pc.month,
    "week": pc.iso_week,
    "day": pc.day,
    "dow": lambda value: pc.day_of_week(value, week_start=7),
    "isodow": lambda value: pc.day_of_week(value, count_from_zero=False, week_start=1),
    "doy": pc.day_of_year,
    "hour": lambda value: pc.hour(_stamp(value)),
    "minute": lambda value: pc.minute(_stamp(value)),
    "second": lambda value: pc.second(_stamp(value)),
    "millisecond": lambda value: _below_minute(value, 10**3),
    "microsecond": lambda value: _below_minute(value, 10**6),
    "nanosecond": lambda value: _below_minute(value, 10**9),
    "epoch": lambda value: _seconds(value),
}
_OF_DAYS = ("year", "isoyear", "quarter", "month", "week", "day", "dow", "isodow", "doy")
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")
_FIRST_OF_MONTHS = np.arange("0001-01", "10000-02", dtype="M8[M]").astype("M8[D]").astype(np.int64)
"""Days from 1970 to the first day of every month in Python's date range, and of one more."""
_NUMBERS = re.compile(r"(?:[^%]|%[YymdjHMS%])*", re.DOTALL)  # patterns that a kernel formats
_YEARS = tuple(int(np.datetime64(year, "s").astype(np.int64)) for year in ("0000-01-01", "10000-01-01"))
_TIMES = ("%H:%M:%S%.f", "%H:%M")


def _stamp(value: Value) -> Value:
    """The value as a timestamp; a time of day falls on the first day of 1970."""
    if pt.is_time(value.type):
        ticks = pc.cast(value, pa.int32() if pt.is_time32(value.type) else pa.int64())
        return pc.cast(pc.cast(ticks, pa.int64()), pa.timestamp(value.type.unit))
    return value if pt.is_timestamp(value.type) else pc.cast(value, pa.timestamp("us"))


def _seconds(value: Value) -> Value:
    """Seconds since 1970 with their fraction, f64."""
    stamp = _stamp(value)
    ticks = pc.cast(pc.cast(stamp, pa.int64()), pa.float64(), safe=False)
    return pc.divide(ticks, float(_PER_SECOND[stamp.type.unit]))


def _below_minute(value: Value, per_second: int) -> Value:
    """The seconds of the minute with their fraction, in units of 1 / `per_second`, i64."""
    return pc.divide(_nanoseconds(_stamp(value), "minute"), 10**9 // per_second)


def _nanoseconds(stamp: Value, since: str) -> Value:
    """Nanoseconds since the start of the minute or second, i64."""
    passed = pc.subtract(stamp, pc.floor_temporal(stamp, unit=since))
    return pc.cast(pc.cast(passed, pa.duration("ns")), pa.int64())


def _check_word(word: pa.Scalar, names: tuple[str, ...] | dict[str, Callable[[Value], Value]]) -> str:
    text = (word.as_py() or "").lower()
    name = text[:-1] if text not in names and text.endswith("s") else text
    if name not in names:
        raise BindError(f"Date part {text!r} not supported; known are {', '.join(names)}")
    return name


def part(word: pa.Scalar, value: Value) -> Value:
    """A component, i32; `nanosecond` is i64, `epoch` (seconds since 1970) f64."""
    name = _check_word(word, _PARTS)
    if pt.is_time(value.type) and name in _OF_DAYS:
        raise BindError(f"Date part {name!r} not supported for {value.type}, which belongs to no day")
    component = _PARTS[name](value)
    return component if name in ("epoch", "nanosecond") else pc.cast(component, pa.int32())


def truncate(word: pa.Scalar, value: Value) -> Value:
    """The start of the year, quarter, month, week (Monday), day and so on, as a timestamp."""
    stamp = _stamp(value)
    return pc.floor_temporal(stamp, unit=_check_word(word, _UNITS))


def _read(value: Value, patterns: Sequence[str], *, of_day: bool) -> pa.Array:
    """Parse texts by the first pattern that fits: nanoseconds, i64. Raises pa.ArrowInvalid where none fits."""
    nanoseconds, failed = read_times(value, known_items(patterns), of_day=of_day)
    if failed is not None:
        raise _unreadable(value[failed].as_py(), patterns, of_day=of_day)
    return nanoseconds


def _unreadable(text: str, patterns: Sequence[str], *, of_day: bool) -> pa.ArrowInvalid:
    """The error that says why no pattern fits."""
    kind = "time" if of_day else "timestamp"
    failed = "there is no pattern"
    for pattern in patterns:
        try:
            (read_time_of_day if of_day else read_time)(text, pattern)
        except ValueError as error:
            failed = f"using format {pattern!r}: {error}"
        else:
            return pa.ArrowInvalid(f"the {kind} {text!r} does not fit in nanoseconds since 1970")
    return pa.ArrowInvalid(f"Error parsing {kind} from {text!r} {failed}")


def _words(patterns: tuple[pa.Scalar, ...]) -> list[str]:
    return [pattern.as_py() for pattern in patterns if pattern.is_valid]


def to_date(value: Value, *patterns: pa.Scalar) -> Value:
    """A date from a text (by the first pattern that fits, if any are given), a timestamp, or days since 1970."""
    if patterns and is_string(value.type):
        ticks = _read(value, _words(patterns), of_day=False)
        return ticks.cast(pa.timestamp("ns")).cast(pa.date32(), safe=False)
    return sql_cast(value, pa.date32(), lenient=False)


def _to_timestamp(value: Value, unit: str, patterns: tuple[pa.Scalar, ...] = ()) -> Value:
    """Numbers count `unit`s since 1970; the result has that unit."""
    to = pa.timestamp(unit)
    if pt.is_timestamp(value.type):
        return pc.cast(value, to, safe=False)
    if patterns and is_string(value.type):
        return _read(value, _words(patterns), of_day=False).cast(pa.timestamp("ns")).cast(to, safe=False)
    if is_string(value.type) or pt.is_date(value.type):
        return sql_cast(value, to, lenient=False)
    return pc.cast(sql_cast(value, pa.int64(), lenient=False), to)


def to_timestamp(value: Value, *patterns: pa.Scalar) -> Value:
    """A timestamp[ns] from a text, a date, a timestamp, or a number of seconds since 1970.

    patterns  for texts: the first that fits is used (`time_formats`)
    """
    if pt.is_floating(value.type) or pt.is_decimal(value.type):
        ticks = sql_cast(pc.multiply(pc.cast(value, pa.float64()), 1e9), pa.int64(), lenient=False)
        return pc.cast(ticks, pa.timestamp("ns"))
    if pt.is_integer(value.type):
        return pc.cast(_to_timestamp(value, "s"), pa.timestamp("ns"))
    return _to_timestamp(value, "ns", patterns)


def to_timestamp_seconds(value: Value, *patterns: pa.Scalar) -> Value:
    """A timestamp[s]; numbers are seconds."""
    return _to_timestamp(value, "s", patterns)


def to_timestamp_millis(value: Value, *patterns: pa.Scalar) -> Value:
    """A timestamp[ms]; numbers are milliseconds."""
    return _to_timestamp(value, "ms", patterns)


def to_timestamp_micros(value: Value, *patterns: pa.Scalar) -> Value:
    """A timestamp[us]; numbers are microseconds."""
    return _to_timestamp(value, "us", patterns)


def to_timestamp_nanos(value: Value, *patterns: pa.Scalar) -> Value:
    """A timestamp[ns]; numbers are nanoseconds."""
    return _to_timestamp(value, "ns", patterns)


def to_time(value: Value, *patterns: pa.Scalar) -> Value:
    """The time of day, time64[ns], of a text (by patterns, if any are given) or of a timestamp in its own zone."""
    if pt.is_timestamp(value.type):
        return pc.cast(pc.cast(to_local_time(value), pa.timestamp("ns")), pa.time64("ns"))
    if not is_string(value.type):
        raise pa.ArrowInvalid(f"Unsupported data type {value.type} for function to_time")
    return _read(value, _words(patterns) or _TIMES, of_day=True).cast(pa.time64("ns"))


def to_unixtime(value: Value, *patterns: pa.Scalar) -> Value:
    """Whole seconds since 1970, i64, of a text (by patterns, if any are given), a date or a timestamp.

    Integers are seconds already. Fractions are cut, towards 1970.
    """
    if pt.is_integer(value.type):
        return pc.cast(value, pa.int64())
    if is_string(value.type):
        value = _to_timestamp(value, "ns", patterns)
    stamp = _stamp(value)
    return pc.divide(pc.cast(stamp, pa.int64()), _PER_SECOND[stamp.type.unit])


def format_time(value: Value, pattern: pa.Scalar) -> Value:
    """Format by a pattern with `%Y`, `%m`, `%d`, `%H` and so on; `%f` and its variants are digits of the second."""
    stamp = _stamp(value)
    # Arrow writes the digits of the unit behind `%S`.
    seconds = pc.cast(pc.floor_temporal(stamp, unit="second"), pa.timestamp("s", stamp.type.tz))
    pieces = re.split(r"(%\.?[369]?f)", pattern.as_py() or "")
    texts = [_shown(seconds, piece) for piece in pieces[::2]]
    if len(texts) == 1:
        return texts[0]
    digits = pc.utf8_lpad(pc.cast(_nanoseconds(stamp, "second"), pa.string()), 9, "0")
    for number, piece in enumerate(pieces[1::2]):
        texts.insert(2 * number + 1, _fraction(digits, piece))
    return pc.binary_join_element_wise(*texts, "")


def _shown(seconds: Value, pattern: str) -> Value:
    """Times of whole seconds by a pattern without fractions."""
    if _NUMBERS.fullmatch(pattern) and isinstance(seconds, pa.Array):
        local = (pc.local_timestamp(seconds) if seconds.type.tz else seconds).cast(pa.int64())
        low, high = (extreme.as_py() for extreme in pc.min_max(local).values())
        if low is None or (_YEARS[0] <= low and high < _YEARS[1]):
            return changed_texts("format_time", pa.string(), local, pa.scalar(pattern))
    return pc.strftime(seconds, format=pattern, locale="C")


def _fraction(digits: pa.Array, piece: str) -> pa.Array:
    """Nine digits formatted by `%.3f` and the like: a point and that many digits; `%.f` drops trailing `000`s."""
    count, point = piece.strip("%.f"), "." if "." in piece else ""
    if not count and point:
        kept = pc.replace_substring_regex(digits, r"^0{9}$|0{6}$|0{3}$", "")
        return pc.replace_substring_regex(kept, r"^(.)", r".\1")
    return pc.binary_join_element_wise(point, pc.utf8_slice_codeunits(digits, 0, int(count or 9)), "")


def _numbers_of(*values: Value) -> tuple[list[npt.NDArray[np.int64]], Flags]:
    """The numbers of a date or time, 1 in rows with a null; and the rows without nulls."""
    columns = broadcast(*values)
    present = np.logical_and.reduce([flags(column) for column in columns])
    return [np.where(present, values_of(column.fill_null(1)), 1) for column in columns], present


def _check_parts(kind: str, exists: Flags, parts: list[npt.NDArray[np.int64]]) -> None:
    if not exists.all():
        wrong = ", ".join(str(part[np.argmin(exists)]) for part in parts)
        raise pa.ArrowInvalid(f"Unable to make a {kind} from {wrong}: there is none")


def make_date(year: Value, month: Value, day: Value) -> Value:
    """A date from numbers. Raises pa.ArrowInvalid for a day that does not exist."""
    parts, present = _numbers_of(year, month, day)
    years, months, days = parts
    known = (years >= dt.MINYEAR) & (years <= dt.MAXYEAR) & (months >= 1) & (months <= 12)
    _check_parts("date", known, parts)
    firsts = _FIRST_OF_MONTHS[(years - dt.MINYEAR) * 12 + months - 1]
    length = _FIRST_OF_MONTHS[(years - dt.MINYEAR) * 12 + months] - firsts
    _check_parts("date", (days >= 1) & (days <= length), parts)
    return pa.array((firsts + days - 1).astype(np.int32), mask=~present).cast(pa.date32())


def now() -> pa.Scalar:
    """The current time in UTC, timestamp[ns] without a zone."""
    return pa.scalar(dt.datetime.now(dt.UTC).replace(tzinfo=None), pa.timestamp("us")).cast(pa.timestamp("ns"))


def today() -> pa.Scalar:
    """The current date in UTC."""
    return pa.scalar(dt.datetime.now(dt.UTC).date(), pa.date32())


def time_of_day() -> pa.Scalar:
    """The current time of day in UTC, time64[ns]."""
    return pa.scalar(dt.datetime.now(dt.UTC).time(), pa.time64("us")).cast(pa.time64("ns"))


def make_time(hour: Value, minute: Value, second: Value) -> pa.Array:
    """A time32[s] from numbers. Raises pa.ArrowInvalid for a time that does not exist."""
    parts, present = _numbers_of(hour, minute, second)
    limits = zip(parts, (24, 60, 60), strict=True)
    _check_parts("time", np.logical_and.reduce([(part >= 0) & (part < end) for part, end in limits]), parts)
    hours, minutes, seconds = parts
    total = (hours * 60 + minutes) * 60 + seconds
    return pa.array(total.astype(np.int32), mask=~present).cast(pa.time32("s"))


def to_local_time(value: Value) -> Value:
    """The local time in the value's own zone, without a zone."""
    stamp = _stamp(value)
    return pc.local_timestamp(stamp) if stamp.type.tz else stamp


FUNCTIONS = SqlFunctions()
FUNCTIONS.define("date_part datepart", "word clock", part)
FUNCTIONS.define("date_trunc datetrunc", "word when", truncate)
FUNCTIONS.define("to_date", "any word*", to_date)
FUNCTIONS.define("to_timestamp", "any word*", to_timestamp)
FUNCTIONS.define("to_timestamp_seconds from_unixtime", "any word*", to_timestamp_seconds)
FUNCTIONS.define("to_timestamp_millis", "any word*", to_timestamp_millis)
FUNCTIONS.define("to_timestamp_micros", "any word*", to_timestamp_micros)
FUNCTIONS.define("to_timestamp_nanos", "any word*", to_timestamp_nanos)
FUNCTIONS.define("to_unixtime", "any word*", to_unixtime)
FUNCTIONS.define("to_time", "any word*", to_time)
FUNCTIONS.define("to_char date_format", "clock word", format_time)
FUNCTIONS.define("make_date", "int int int", make_date)
FUNCTIONS.define("make_time", "int int int", make_time)
FUNCTIONS.define("to_local_time", "when", to_local_time)
FUNCTIONS.define("now current_timestamp", "", now, at_bind=True)
FUNCTIONS.define("current_date today", "", today, at_bind=True)
FUNCTIONS.define("current_time", "", time_of_day, at_bind=True)
