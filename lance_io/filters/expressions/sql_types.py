"""The types of SQL text: their names and kinds.

    name                                     Arrow type
    boolean                                  bool
    tinyint, smallint, int, integer, bigint  int8, int16, int32, int32, int64; with `unsigned` uint8 .. uint64
    float, double                            float32, float64
    decimal(p,s)                             decimal128(p, s), decimal256 above 38 digits
    string, text, varchar, char              string
    binary, date                             binary, date32
    timestamp, datetime                      timestamp[us]; (0), (3), (6), (9) choose s, ms, us, ns

The kinds are those of the table in `coercion`, which lists the kinds that combine.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.types as pt

from lance_io.errors import BindError

_TYPES = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "TINYINT UNSIGNED": pa.uint8(),
    "SMALLINT UNSIGNED": pa.uint16(),
    "INT UNSIGNED": pa.uint32(),
    "INTEGER UNSIGNED": pa.uint32(),
    "BIGINT UNSIGNED": pa.uint64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "CHAR": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
}
_UNITS = {"0": "s", "3": "ms", "6": "us", "9": "ns"}


def sql_type(name: str) -> pa.DataType:
    """The Arrow type of a type name in upper case, such as `DECIMAL(10,2)`. Raises BindError for an unknown name."""
    dtype = _TYPES.get(name)
    if dtype is not None:
        return dtype
    matched = re.fullmatch(r"DECIMAL\((\d{1,2}),(\d{1,2})\)", name)
    if matched:
        precision, scale = map(int, matched.groups())
        if 1 <= precision <= 76 and scale <= precision:
            return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    if name == "INTERVAL":
        return pa.month_day_nano_interval()
    matched = re.fullmatch(r"(?:TIMESTAMP|DATETIME)(?:\((\d)\))?", name)
    if matched and (matched[1] or "6") in _UNITS:
        return pa.timestamp(_UNITS[matched[1] or "6"])
    raise BindError(
        f"Unsupported data type: {name}. Supported are boolean, tinyint, smallint, int, bigint (each also unsigned), "
        "float, double, decimal(p,s), string, binary, date, timestamp(0|3|6|9)"
    )


def kind(t: pa.DataType) -> str:
    """The kind of a type, or its own name: types of one kind can be compared."""
    if pt.is_integer(t) or pt.is_floating(t) or pt.is_decimal(t):
        return "number"
    if is_text(t):
        return "text"
    if pt.is_date(t) or pt.is_timestamp(t):
        return "calendar"
    if pt.is_time(t):
        return "time"
    return "duration" if pt.is_duration(t) else str(t)


def is_string(t: pa.DataType) -> bool:
    """Whether values are UTF-8, in any of Arrow's layouts."""
    return bool(pt.is_string(t) or pt.is_large_string(t) or pt.is_string_view(t))


def is_text(t: pa.DataType) -> bool:
    """Whether values are strings or byte strings."""
    return bool(
        is_string(t) or pt.is_binary(t) or pt.is_large_binary(t) or pt.is_binary_view(t) or pt.is_fixed_size_binary(t)
    )


def is_list(t: pa.DataType) -> bool:
    """Whether values are lists, in any of Arrow's layouts but views."""
    return bool(pt.is_list(t) or pt.is_large_list(t) or pt.is_fixed_size_list(t))


def decimal_of(t: pa.DataType) -> pa.DataType:
    """The decimal type that holds every value of an integer type; a decimal type itself."""
    if pt.is_decimal(t):
        return t
    return pa.decimal128({8: 3, 16: 5, 32: 10, 64: 20}[t.bit_width], 0)
