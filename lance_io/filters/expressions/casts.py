"""Casts of SQL text, which accept more than Arrow's, and the parser of intervals.

`cast` fails on a value that does not fit (`pyarrow.ArrowInvalid`), `try_cast` makes it null. Casts to integers cut
fractions; casts to decimals round them, halves away from zero.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lance_io.filters.expressions.coercion import cast
from lance_io.filters.expressions.moments import check_moments
from lance_io.filters.expressions.sql_types import decimal_of, is_list, is_string
from lance_io.filters.expressions.stored_json import holds_documents, to_documents
from lance_io.filters.expressions.times_of_day import times_of_texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.filters.elementwise import Value

_FRACTION_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}

_TRUE = ("t", "true", "y", "yes", "on", "1")
_FALSE = ("f", "false", "n", "no", "off", "0")
_NUMBER = r"(?i)^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?$|^[+-]?(nan|inf|infinity)$"
_INTEGER = r"^[+-]?[0-9]+$"
_ZONED = r"[:0-9][T ][0-9:.]+(Z|[+-][0-9]{2}:?[0-9]{2})$"

_FEW_TEXTS: Final = 16

_SECOND: Final = 10**9
_DAY: Final = 86_400 * _SECOND
_NANOSECONDS_OF: Final = {
    "hour": 3600 * _SECOND,
    "minute": 60 * _SECOND,
    "second": _SECOND,
    "millisecond": 10**6,
    "microsecond": 10**3,
    "nanosecond": 1,
}
_MONTHS_OF: Final = {"month": 1, "year": 12, "decade": 120, "century": 1200}
_DAYS_OF: Final = {"day": 1, "week": 7}
_SHORT_UNITS: Final = {
    **dict.fromkeys(("h", "hr"), "hour"),
    **dict.fromkeys(("m", "min"), "minute"),
    **dict.fromkeys(("s", "sec"), "second"),
    **{"ms": "millisecond", "us": "microsecond", "ns": "nanosecond", "d": "day", "w": "week"},
    **dict.fromkeys(("mon",), "month"),
    **dict.fromkeys(("y", "yr"), "year"),
    "centuries": "century",
}
_INTERVAL_PART: Final = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-z]+)", re.IGNORECASE)


def sql_cast(value: Value, to: pa.DataType, *, lenient: bool) -> Value:
    """A value converted like `cast`, or like `try_cast` when `lenient`.

    Raises pa.ArrowInvalid for a value that does not fit (unless lenient), pa.ArrowNotImplementedError if there is no
    conversion between the types.
    """
    if isinstance(value, pa.Scalar):
        return sql_cast(pa.repeat(value, 1), to, lenient=lenient)[0]
    return _convert_or_null(_null_likely_misfits(value, to), to) if lenient else _convert(value, to)


def _convert_or_null(value: pa.Array, to: pa.DataType) -> pa.Array:
    """Convert; values that do not fit become null, found by halving the array until each stands alone."""
    try:
        return _convert(value, to)
    except pa.ArrowInvalid:
        if len(value) <= 1:
            return pa.nulls(len(value), to)
        half = len(value) // 2
        return pa.concat_arrays([_convert_or_null(value[:half], to), _convert_or_null(value[half:], to)])


def _null_likely_misfits(value: pa.Array, to: pa.DataType) -> pa.Array:
    """The values with nulls for most that cannot be converted: finding each by halving would be slow."""
    source = value.type
    if is_string(source) and (pt.is_integer(to) or pt.is_floating(to) or pt.is_decimal(to)):
        fits = pc.match_substring_regex(value, _INTEGER if pt.is_integer(to) else _NUMBER)
    elif (pt.is_integer(source) or pt.is_floating(source)) and pt.is_integer(to):
        low, high = _integer_range(to)
        floats = value.cast(pa.float64(), safe=False)
        fits = pc.and_(pc.greater_equal(floats, float(low)), pc.less_equal(floats, float(high)))
    else:
        return value
    return pc.if_else(fits, value, pa.scalar(None, source))


def _convert(value: pa.Array, to: pa.DataType) -> pa.Array:
    source = value.type
    if source == to:
        return value
    if holds_documents(to):
        return to_documents(value, to, _convert)
    if is_string(source):
        return _from_string(value, to)
    if is_string(to):
        return _to_string(value, to)
    if pt.is_integer(to):
        return _to_integer(value, to)
    if pt.is_decimal(to):
        return _to_decimal(value, to)
    if pt.is_boolean(to) and (pt.is_integer(source) or pt.is_floating(source)):
        return pc.not_equal(value, pa.scalar(0, source))
    if pt.is_int32(source) and pt.is_date64(to):  # days; wider integers are milliseconds
        return value.cast(pa.date32()).cast(to)
    if pt.is_integer(source) and pt.is_temporal(to):
        return value.cast(pa.int32() if pt.is_date32(to) else pa.int64()).cast(to)
    if pt.is_integer(source) and (pt.is_binary(to) or pt.is_large_binary(to)):
        return value.view(pa.binary(source.bit_width // 8)).cast(to)
    if pt.is_timestamp(to) and (pt.is_floating(source) or pt.is_decimal(source)):
        return _to_integer(value, pa.int64()).cast(to)
    if (pt.is_timestamp(source) or pt.is_duration(source)) and pt.is_floating(to):
        return value.cast(pa.int64()).cast(to, safe=False)
    check_moments(value, to)
    return cast(value, to, safe=False)


def _to_integer(value: pa.Array, to: pa.DataType) -> pa.Array:
    source = value.type
    if pt.is_decimal(source):
        return pc.cast(value, options=pc.CastOptions(to, allow_decimal_truncate=True))
    if pt.is_floating(source):
        whole = pc.trunc(value)
        low, high = _integer_range(to)
        # A float may not represent the largest integer: compare with the power of two above it.
        fits = pc.and_(pc.greater_equal(whole, float(low)), pc.less(whole, float(high + 1)))
        if pc.all(fits).as_py() is False:
            wrong = value[pc.index(fits, False).as_py()].as_py()
            raise pa.ArrowInvalid(f"Cast error: Can't cast value {wrong} to type {to}")
        return pc.cast(whole, to, safe=False)
    if pt.is_temporal(source):
        value = value.cast(pa.int32() if source.bit_width == 32 else pa.int64())
    return value.cast(to)


def _integer_range(t: pa.DataType) -> tuple[int, int]:
    bits = t.bit_width
    return (0, (1 << bits) - 1) if pt.is_unsigned_integer(t) else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _to_decimal(value: pa.Array, to: pa.DataType) -> pa.Array:
    if pt.is_timestamp(value.type) or pt.is_duration(value.type):
        value = value.cast(pa.int64())
    if pt.is_integer(value.type):
        value = value.cast(decimal_of(value.type))
    elif pt.is_floating(value.type) or (pt.is_decimal(value.type) and value.type.scale > to.scale):
        value = pc.round(value, ndigits=to.scale, round_mode="half_towards_infinity")
    return pc.cast(value, to)


def _to_string(value: pa.Array, to: pa.DataType) -> pa.Array:
    source = value.type
    if is_list(source):
        return _list_to_string(value, to)
    if pt.is_floating(source):
        return _spell_distinct(value, lambda number: _spell(number, source)).cast(to)
    if pt.is_decimal(source):  # Arrow writes small ones with an exponent
        return _spell_distinct(value, lambda number: f"{number:f}").cast(to)
    if pt.is_duration(source):
        distinct = value.dictionary_encode()
        shown = [_show_span(ticks, source.unit) for ticks in distinct.dictionary.cast(pa.int64()).to_pylist()]
        return pa.array(shown, to).take(distinct.indices)
    if pt.is_date64(source):
        return _to_string(value.cast(pa.timestamp("s")), to)
    if pt.is_timestamp(source):  # `%S` includes the fraction, in all digits of the unit
        text = _in_threes(pc.strftime(value, "%Y-%m-%dT%H:%M:%S"))
        if source.tz:
            zone = pc.replace_substring_regex(pc.strftime(value, "%Ez"), r"^\+00:00$", "Z")
            text = pc.binary_join_element_wise(text, zone, "")
        return text.cast(to)
    text = pc.cast(value, to)
    return _in_threes(text) if pt.is_time(source) else text


def positional(floats: pa.Array) -> pa.Array:
    """Floats as text without an exponent, with all their digits and no trailing point."""
    kind = floats.type.to_pandas_dtype()

    def spelled(number: float) -> str:
        if number != number:
            return "NaN"
        return str(np.format_float_positional(kind(number), unique=True, trim="-"))

    return _spell_distinct(floats, spelled)


def _spell_distinct(numbers: pa.Array, spelled: Callable[[Any], str]) -> pa.Array:
    distinct = numbers.dictionary_encode()
    return pa.array([spelled(number) for number in distinct.dictionary.to_pylist()], pa.string()).take(distinct.indices)


def _in_threes(text: pa.Array) -> pa.Array:
    """Times with fractions of zero, three, six or nine digits, as few as suffice."""
    text = pc.replace_substring_regex(text, r"\.0+$", "")
    text = pc.replace_substring_regex(text, r"(\.[0-9]{3})(000|000000)$", r"\1")
    return pc.replace_substring_regex(text, r"(\.[0-9]{6})000$", r"\1")


def _show_span(ticks: int, unit: str) -> str:
    """A duration in days, hours, minutes and seconds, each with the sign of the whole."""
    sign = "-" if ticks < 0 else ""
    digits = _FRACTION_DIGITS[unit]
    seconds, below = divmod(abs(ticks), 10**digits)
    counts = (seconds // 86400, "days"), (seconds // 3600 % 24, "hours"), (seconds // 60 % 60, "mins")
    fraction = f".{below:0{digits}}" if digits else ""
    last = f"{sign if seconds % 60 or below else ''}{seconds % 60}{fraction} secs"
    return " ".join([*(f"{sign if count else ''}{count} {name}" for count, name in counts), last])


def _list_to_string(value: pa.Array, to: pa.DataType) -> pa.Array:
    """`[1, 2]`; null items are empty."""
    shown = _convert(pc.list_flatten(value), pa.string()).to_pylist()
    lengths = pc.fill_null(pc.list_value_length(value), 0).to_pylist()
    ends = np.cumsum(lengths).tolist()
    rows = [", ".join(item or "" for item in shown[end - n : end]) for n, end in zip(lengths, ends, strict=True)]
    return pc.if_else(value.is_valid(), pa.array([f"[{row}]" for row in rows], to), pa.scalar(None, to))


def _spell(number: float, t: pa.DataType) -> str:
    """A float in the fewest digits that round-trip; from 1e16 on and below 1e-5 with an exponent."""
    if number != number:
        return "NaN"
    if number in (float("inf"), -float("inf")):
        return "inf" if number > 0 else "-inf"
    kind = np.float32 if pt.is_float32(t) else np.float64
    mantissa, exponent = np.format_float_scientific(kind(number), unique=True, trim="-").split("e")
    power = int(exponent)
    if not -5 <= power < 16:
        return f"{mantissa}e{power}"
    return np.format_float_positional(kind(number), unique=True, trim="0")


def _from_string(value: pa.Array, to: pa.DataType) -> pa.Array:
    if pt.is_boolean(to):
        lower = pc.utf8_lower(value)
        yes = pc.is_in(lower, value_set=pa.array(_TRUE, lower.type))
        unknown = pc.and_(pc.is_valid(value), pc.invert(pc.or_(yes, pc.is_in(lower, pa.array(_FALSE, lower.type)))))
        if pc.any(unknown).as_py():
            wrong = value[pc.index(unknown, True).as_py()].as_py()
            raise pa.ArrowInvalid(f"Cast error: Cannot cast value {wrong!r} to value of Boolean type")
        return pc.if_else(pc.is_valid(value), yes, pa.scalar(None, pa.bool_()))
    if pt.is_integer(to):
        value = pc.replace_substring_regex(value, r"^\+", "")
    elif pt.is_date(to):
        dates = _plain_dates(value, to)
        if dates is not None:
            return dates
        for _ in range(2):  # twice, for a month and a day of one digit: matches may not overlap
            value = pc.replace_substring_regex(value, r"-([0-9])(-|$)", r"-0\1\2")
        value = pc.replace_substring_regex(value, r"^([0-9]{4}-[0-9]{2}-[0-9]{2})[T ][0-9:.]+$", r"\1")
        zoned = pc.match_substring_regex(value, _ZONED)
        if pc.any(zoned).as_py():  # the day of the moment in UTC
            nothing = pa.scalar(None, value.type)
            moments = _to_timestamp(pc.if_else(zoned, value, nothing), pa.timestamp("us"))
            return pc.coalesce(moments.cast(to, safe=False), pc.cast(pc.if_else(zoned, nothing, value), to))
    elif pt.is_timestamp(to):
        return _to_timestamp(value, to)
    elif pt.is_time(to):
        return times_of_texts(value, to)
    elif pt.is_decimal(to):
        return _text_to_decimal(value, to)
    elif pt.is_interval(to):
        return pa.array([None if text is None else parse_interval(text) for text in value.to_pylist()], to)
    return pc.cast(value, to)


def _plain_dates(value: pa.Array, to: pa.DataType) -> pa.Array | None:
    """Dates of texts by Arrow's parser if all are dates, or all are timestamps; else None."""
    for form in (to, pa.timestamp("us")):
        moments = _read_by_arrow(value, form)
        if moments is not None:
            return moments.cast(to, safe=False)
    return None


def _read_by_arrow(value: pa.Array, form: pa.DataType) -> pa.Array | None:
    """Texts by Arrow's parser; None if it fails. The first few are tried alone: failing on a long column is slow."""
    try:
        pc.cast(value[:_FEW_TEXTS], form)
        return pc.cast(value, form)
    except pa.ArrowInvalid:
        return None


def _text_to_decimal(value: pa.Array, to: pa.DataType) -> pa.Array:
    """Texts as decimals. Digits below the scale are rounded; Arrow refuses them."""
    digits = pc.max(pc.utf8_length(pc.replace_substring_regex(value, r"(?i)^[^.]*\.?([0-9]*).*$", r"\1"))).as_py() or 0
    if digits <= to.scale:
        return pc.cast(value, to)
    return _to_decimal(pc.cast(value, pa.decimal256(76, min(digits, 76))), to)


def _to_timestamp(value: pa.Array, to: pa.DataType) -> pa.Array:
    """ISO 8601 texts, with or without a zone. Without one they are local times in the zone of `to`, or UTC.

    Digits below the unit are dropped.
    """
    plain = _read_by_arrow(value, pa.timestamp(to.unit))  # most texts have neither zones nor more digits
    if plain is not None:
        return cast(plain, to)
    value = pc.replace_substring_regex(value, rf"(\.[0-9]{{{_FRACTION_DIGITS[to.unit]}}})[0-9]+", r"\1")
    if to.unit == "s":
        value = pc.replace_substring_regex(value, r"\.($|[Z+-])", r"\1")
    zoned = pc.match_substring_regex(value, _ZONED)
    nothing = pa.scalar(None, value.type)
    local = pc.cast(pc.if_else(zoned, nothing, value), pa.timestamp(to.unit))
    if not pc.any(zoned).as_py():
        return cast(local, to)
    shifted = pc.cast(pc.if_else(zoned, value, nothing), pa.timestamp(to.unit, "UTC"))
    return pc.coalesce(shifted.cast(to), cast(local, to))


def parse_interval(text: str) -> pa.MonthDayNano:
    """The interval of a text such as `1 hour 30 minutes`. Raises pa.ArrowInvalid for other text."""
    wrong = pa.ArrowInvalid(f"Invalid input syntax for type interval: {text[:100]!r}")
    months = days = nanoseconds = at = 0
    while at < len(text.rstrip()):
        match = _INTERVAL_PART.match(text, at)
        if match is None or len(match[1]) > 18:
            raise wrong
        at, word = match.end(), match[2].lower()
        unit = _SHORT_UNITS.get(word) or _SHORT_UNITS.get(word.removesuffix("s"), word.removesuffix("s"))
        number = float(match[1]) if "." in match[1] else int(match[1])
        if unit in _NANOSECONDS_OF:
            nanoseconds += int(number * _NANOSECONDS_OF[unit])
        elif unit in _DAYS_OF:
            whole = int(number * _DAYS_OF[unit])
            days, nanoseconds = days + whole, nanoseconds + int((number * _DAYS_OF[unit] - whole) * _DAY)
        elif unit in _MONTHS_OF and number == int(number):
            months += int(number) * _MONTHS_OF[unit]
        else:
            raise wrong
    if at == 0 or max(abs(months), abs(days)) >= 1 << 31 or abs(nanoseconds) >= 1 << 63:
        raise wrong
    return pa.MonthDayNano([months, days, nanoseconds])
