"""Arrow types by name: `arrow_typeof` writes them, `arrow_cast` parses them.

    Int8 .. UInt64, Float16 .. Float64, Boolean, Null, Utf8, LargeUtf8, Utf8View, Binary, LargeBinary, BinaryView
    FixedSizeBinary(4)   Decimal32(5, 2) .. Decimal256(40, 2)   Date32, Date64
    Timestamp(µs)   Timestamp(µs, "UTC")   Time32(s), Time64(ns)   Duration(ms)   Interval(MonthDayNano)
    List(Int64)   LargeList(Int64)   FixedSizeList(2 x Int32)   Struct("a": Int64, "b": non-null Utf8)
    Dictionary(Int32, Utf8)   Map("entries": non-null Struct("key": non-null Utf8, "value": Int64), unsorted)

The parser also accepts long names of units, `Some("UTC")` and `None` for zones, and `us` for `µs`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lance_io.errors import BindError
from lance_io.filters.elementwise import broadcast
from lance_io.filters.expressions.casts import sql_cast
from lance_io.filters.expressions.sql_types import is_list
from lance_io.filters.functions.function_registry import SqlFunctions
from lance_io.filters.syntax.tokens import END, tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.filters.elementwise import Value

_SIMPLE: Final[dict[str, pa.DataType]] = {
    **{f"Int{bits}": getattr(pa, f"int{bits}")() for bits in (8, 16, 32, 64)},
    **{f"UInt{bits}": getattr(pa, f"uint{bits}")() for bits in (8, 16, 32, 64)},
    **{f"Float{bits}": getattr(pa, f"float{bits}")() for bits in (16, 32, 64)},
    "Boolean": pa.bool_(),
    "Null": pa.null(),
    "Utf8": pa.string(),
    "LargeUtf8": pa.large_string(),
    "Utf8View": pa.string_view(),
    "Binary": pa.binary(),
    "LargeBinary": pa.large_binary(),
    "BinaryView": pa.binary_view(),
    "Date32": pa.date32(),
    "Date64": pa.date64(),
}
_NAMES: Final = {dtype: name for name, dtype in _SIMPLE.items()}
_DECIMALS: Final = {f"Decimal{bits}": getattr(pa, f"decimal{bits}") for bits in (32, 64, 128, 256)}
_TIMES: Final[dict[str, Callable[..., pa.DataType]]] = {"Time32": pa.time32, "Time64": pa.time64}
_UNITS: Final = {"Second": "s", "Millisecond": "ms", "Microsecond": "us", "Nanosecond": "ns", "µs": "us"}
_TOKEN: Final = re.compile(r'\s*(?:"(?P<text>(?:[^"\\]|\\.)*)"|(?P<word>[\w-]+)|(?P<sign>[(),:]))')
_DEPTH_MAX: Final = 32


def type_name(t: pa.DataType) -> str:
    """The name of a type."""
    if t in _NAMES:
        return _NAMES[t]
    if pt.is_decimal(t):
        return f"Decimal{t.bit_width}({t.precision}, {t.scale})"
    if pt.is_timestamp(t):
        zone = f', "{t.tz}"' if t.tz else ""
        return f"Timestamp({_unit_name(t)}{zone})"
    if pt.is_time(t):
        return f"Time{t.bit_width}({_unit_name(t)})"
    if pt.is_duration(t):
        return f"Duration({_unit_name(t)})"
    if pt.is_interval(t):
        return "Interval(MonthDayNano)"
    if pt.is_fixed_size_binary(t):
        return f"FixedSizeBinary({t.byte_width})"
    if pt.is_dictionary(t):
        return f"Dictionary({type_name(t.index_type)}, {type_name(t.value_type)})"
    return _name_nested(t)


def _unit_name(t: pa.DataType) -> str:
    return "µs" if t.unit == "us" else str(t.unit)


def _name_nested(t: pa.DataType) -> str:
    if pt.is_fixed_size_list(t):
        return f"FixedSizeList({t.list_size} x {_item_name(t.value_field)})"
    if pt.is_list(t) or pt.is_large_list(t):
        return f"{'Large' if pt.is_large_list(t) else ''}List({_item_name(t.value_field)})"
    if pt.is_struct(t):
        return f"Struct({', '.join(map(_field_name, t))})"
    if pt.is_map(t):
        entries = f"Struct({_field_name(t.key_field)}, {_field_name(t.item_field)})"
        return f'Map("entries": non-null {entries}, {"sorted" if t.keys_sorted else "unsorted"})'
    return str(t)


def _item_name(field: pa.Field) -> str:
    return ("" if field.nullable else "non-null ") + type_name(field.type)


def _field_name(field: pa.Field) -> str:
    return f'"{field.name}": {_item_name(field)}'


def parse_type(text: str) -> pa.DataType:
    """The type with this name. Raises BindError for an unknown name."""
    return _Parser(text).whole()


class _Parser:
    """Parses the name of a type."""

    def __init__(self, text: str) -> None:
        self._text = text
        parsed = tokens(_TOKEN, text)
        if parsed is None:
            raise self._unknown()
        self._tokens = parsed
        self._at = 0

    def _unknown(self) -> BindError:
        return BindError(
            f"Unsupported type {self._text[:200]!r}. "
            "Must be a supported arrow type name such as 'Int32' or 'Timestamp(ns)'"
        )

    def whole(self) -> pa.DataType:
        try:
            dtype = self._type(0)
        except (ValueError, pa.ArrowException) as error:
            raise self._unknown() from error
        if self._tokens[self._at] != END:
            raise self._unknown()
        return dtype

    def _next(self, kind: str) -> str:
        actual, text = self._tokens[self._at]
        if actual != kind:
            raise self._unknown()
        self._at += 1
        return text

    def _skip(self, text: str) -> bool:
        is_next = self._tokens[self._at] in (("sign", text), ("word", text))
        self._at += is_next
        return is_next

    def _expect(self, text: str) -> None:
        if not self._skip(text):
            raise self._unknown()

    def _type(self, depth: int) -> pa.DataType:
        name = self._next("word")
        if name in _SIMPLE:
            return _SIMPLE[name]
        if depth > _DEPTH_MAX:
            raise self._unknown()
        self._expect("(")
        dtype = self._with_arguments(name, depth + 1)
        self._expect(")")
        return dtype

    def _with_arguments(self, name: str, depth: int) -> pa.DataType:
        match name:
            case "Timestamp":
                return pa.timestamp(self._unit(), self._zone())
            case "Time32" | "Time64":
                return _TIMES[name](self._unit())
            case "Duration":
                return pa.duration(self._unit())
            case "Interval":
                self._expect("MonthDayNano")
                return pa.month_day_nano_interval()
            case "FixedSizeBinary":
                return pa.binary(int(self._next("word")))
            case "Dictionary":
                index = self._type(depth)
                self._expect(",")
                return pa.dictionary(index, self._type(depth))
            case "List":
                return pa.list_(self._field("item", depth))
            case "LargeList":
                return pa.large_list(self._field("item", depth))
            case "FixedSizeList":
                size = int(self._next("word"))
                if not self._skip("x"):
                    self._expect(",")
                return pa.list_(self._field("item", depth), size)
            case "Struct":
                return self._struct(depth)
        return self._decimal(name)

    def _decimal(self, name: str) -> pa.DataType:
        if name not in _DECIMALS:
            raise self._unknown()
        precision = int(self._next("word"))
        self._expect(",")
        return _DECIMALS[name](precision, int(self._next("word")))

    def _unit(self) -> str:
        unit = self._next("word")
        return _UNITS.get(unit, unit)

    def _zone(self) -> str | None:
        if not self._skip(",") or self._skip("None"):
            return None
        if not self._skip("Some"):
            return self._next("text")
        self._expect("(")
        zone = self._next("text")
        self._expect(")")
        return zone

    def _field(self, name: str, depth: int) -> pa.Field:
        nullable = not self._skip("non-null")
        self._skip("nullable")
        return pa.field(name, self._type(depth), nullable)

    def _struct(self, depth: int) -> pa.DataType:
        fields: list[pa.Field] = []
        while not fields or self._skip(","):
            name = self._next("text")
            self._expect(":")
            fields.append(self._field(name, depth))
        return pa.struct(fields)


def cast_to_arrow(value: Value, name: pa.Scalar) -> Value:
    """A value cast to the Arrow type with this name."""
    return _convert(value, parse_type(name.as_py() or ""))


def _convert(value: Value, to: pa.DataType) -> Value:
    source = value.type
    if source == to:
        return value
    if pt.is_null(source):
        return pa.nulls(len(value), to) if isinstance(value, pa.Array) else pa.scalar(None, to)
    if pt.is_nested(to) and not is_list(source) and is_list(to):  # a single item
        (items,) = broadcast(_convert(value, to.value_type))
        return pa.ListArray.from_arrays(pa.array(range(len(items) + 1), pa.int32()), items).cast(to)
    if pt.is_duration(to) and pt.is_integer(source):
        return pc.cast(pc.cast(value, pa.int64()), to)
    if pt.is_time(to) and pt.is_integer(source):
        if source.bit_width != to.bit_width:
            raise pa.ArrowNotImplementedError(f"Unsupported CAST from {source} to {to}")
        return pc.cast(value, to)
    if pt.is_nested(to) or pt.is_dictionary(to) or pt.is_dictionary(source):
        return pc.dictionary_encode(value) if pt.is_dictionary(to) and source == to.value_type else pc.cast(value, to)
    return sql_cast(value, to, lenient=False)


def arrow_type(value: Value) -> pa.Array:
    """The name of the Arrow type, for each row."""
    name = pa.scalar(type_name(value.type))
    num_rows = len(value) if isinstance(value, pa.Array) else 1
    return pa.repeat(name, num_rows) if num_rows else pa.nulls(0, pa.string())


FUNCTIONS = SqlFunctions()
FUNCTIONS.define("arrow_cast", "any word", cast_to_arrow)
FUNCTIONS.define("arrow_typeof", "any", arrow_type)
