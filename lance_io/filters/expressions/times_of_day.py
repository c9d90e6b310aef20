"""Parses texts as times of day, for casts to `time32` and `time64`.

    7:05  07:05:30  07:05:30.25  7:05 PM  07:05:30.25 am    up to nine digits count; digits below the unit are cut
    25530                                                   a number of units since midnight

The reference reader accepts times that no day has (`23:59:60`, a negative number); here they are errors.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_TIME: Final = (
    r"^(?P<hour>[0-9]{1,2}):(?P<minute>[0-5][0-9])"
    r"(?::(?P<second>[0-5][0-9]|60)(?:\.(?P<fraction>[0-9]+))?)?(?: (?P<half>[AaPp][Mm]))?$"
)
_NUMBER: Final = r"^\+?0*(?P<number>[0-9]{1,15})$"
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY: Final = 86_400


def times_of_texts(texts: pa.Array, to: pa.DataType) -> pa.Array:
    """The times, of type `to`. Raises `pa.ArrowInvalid` for a text that is not a time."""

    texts = texts.cast(pa.large_string())
    parts = pc.extract_regex(texts, _TIME)
    hour, minute, second = (_number(parts, name) for name in ("hour", "minute", "second"))
    half = pc.utf8_lower(pc.struct_field(parts, "half"))
    is_halved = pc.not_equal(half, "")
    in_half = pc.and_(pc.greater_equal(hour, 1), pc.less_equal(hour, 12))
    since_noon = pc.if_else(pc.equal(hour, 12), pa.scalar(0, pa.int64()), hour)
    halved = pc.if_else(pc.equal(half, "pm"), pc.add(since_noon, 12), since_noon)
    hour = pc.if_else(is_halved, pc.if_else(in_half, halved, pa.scalar(None, pa.int64())), hour)
    seconds = pc.add(pc.multiply(pc.add(pc.multiply(hour, 60), minute), 60), second)
    digits = pc.utf8_slice_codeunits(pc.utf8_rpad(pc.struct_field(parts, "fraction"), 9, "0"), 0, 9)
    per_second = _PER_SECOND[to.unit]
    ticks = pc.add(pc.multiply(seconds, per_second), pc.divide(digits.cast(pa.int64()), 10**9 // per_second))
    numbers = pc.struct_field(pc.extract_regex(texts, _NUMBER), "number")
    ticks = pc.coalesce(ticks, numbers.cast(pa.int64()))
    wrong = pc.and_(texts.is_valid(), pc.fill_null(pc.greater_equal(ticks, _DAY * per_second), True))
    if pc.any(wrong).as_py():
        text = texts[pc.index(wrong, True).as_py()].as_py()
        raise pa.ArrowInvalid(f"Cast error: Cannot cast string {text[:100]!r} to value of {to} type: no time of a day")
    return ticks.cast(pa.int32() if to.bit_width == 32 else pa.int64()).cast(to)


def _number(parts: pa.StructArray, name: str) -> pa.Array:
    """A part as a number, 0 where it is absent."""
    text = pc.struct_field(parts, name)
    return pc.if_else(pc.equal(text, ""), "0", text).cast(pa.int64())
