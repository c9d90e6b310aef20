"""The texts that name a type in a schema, to and from Arrow (spec: file container, section 2.1).

text                                    Arrow
null bool int8 .. uint64                the same
halffloat float double                  float16 float32 float64
string large_string binary large_binary the same; views are written as string and binary
json                                    large_binary holding JSONB
fixed_size_binary:n                     fixed_size_binary(n)
decimal:128:p:s  decimal:256:p:s        decimal128(p, s), decimal256(p, s)
date32:day date64:ms                    date32, date64
time32:s|ms time64:us|ns                the same
timestamp:u:tz                          timestamp(u, tz); tz is the rest of the text, `-` for none
duration:u                              duration(u)
dict:V:K:false                          dictionary(K, V), V may hold colons
fixed_size_list:T:n                     fixed-size list of n primitive T, T may hold colons; T may be nested,
                                        or `lance.bfloat16`
list large_list list.struct large_list.struct struct map fixed_size_list:struct:n
                                        nested: their children are separate fields

Nested texts alone have no Arrow type; `schema.py` builds it from the children.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lance_io.errors import FormatError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

EXTENSION_NAME: Final = b"ARROW:extension:name"
EXTENSION_METADATA: Final = b"ARROW:extension:metadata"
BFLOAT16: Final = "lance.bfloat16"

LISTS: Final = frozenset({"list", "large_list", "list.struct", "large_list.struct"})
_STRUCT_ITEMS: Final = "fixed_size_list:struct:"

_FIXED: Final[Mapping[str, pa.DataType]] = MappingProxyType(
    {
        "null": pa.null(),
        "bool": pa.bool_(),
        "int8": pa.int8(),
        "int16": pa.int16(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "uint8": pa.uint8(),
        "uint16": pa.uint16(),
        "uint32": pa.uint32(),
        "uint64": pa.uint64(),
        "halffloat": pa.float16(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "large_string": pa.large_string(),
        "binary": pa.binary(),
        "large_binary": pa.large_binary(),
        "json": pa.large_binary(),
        "date32:day": pa.date32(),
        "date64:ms": pa.date64(),
        "time32:s": pa.time32("s"),
        "time32:ms": pa.time32("ms"),
        "time64:us": pa.time64("us"),
        "time64:ns": pa.time64("ns"),
        "duration:s": pa.duration("s"),
        "duration:ms": pa.duration("ms"),
        "duration:us": pa.duration("us"),
        "duration:ns": pa.duration("ns"),
    }
)
_NAMES: Final[Mapping[pa.DataType, str]] = MappingProxyType(
    {arrow: name for name, arrow in _FIXED.items() if name != "json"}
)
_TIME_UNITS: Final = frozenset({"s", "ms", "us", "ns"})
_timestamp_type: Final[Callable[[str, str | None], pa.DataType]] = pa.timestamp
_dictionary_type: Final[Callable[[pa.DataType, pa.DataType], pa.DataType]] = pa.dictionary
_DECIMAL_DIGITS: Final = MappingProxyType({"128": 38, "256": 76})
_I32_MAX: Final = (1 << 31) - 1
_NESTED_LISTS_MAX: Final = 32  # fixed-size lists of fixed-size lists; Arrow's own interchange stops at 64 levels
_TEXT_CHARS_SHOWN: Final = 100


def is_nested(logical_type: str) -> bool:
    """Whether a field of this type has child fields."""
    return logical_type in LISTS or logical_type in ("struct", "map") or logical_type.startswith(_STRUCT_ITEMS)


def primitive_type(logical_type: str) -> pa.DataType:
    """The Arrow storage type of a field without children.

    Raises `UnsupportedError` for unknown texts and nested types, naming the text; `FormatError` for a known type with
    impossible numbers.
    """
    fixed = _FIXED.get(logical_type)
    if fixed is not None:
        return fixed
    kind, _, rest = logical_type.partition(":")
    reader = _PARAMETRIC.get(kind)
    if reader is None or not rest:
        raise _unknown(logical_type)
    return reader(logical_type, rest)


def fixed_size_list_dimension(logical_type: str) -> int:
    """The number of items of `fixed_size_list:T:n`. Raises as `primitive_type` does."""
    head, _, dimension = logical_type.rpartition(":")
    if not head.startswith("fixed_size_list:"):
        raise _unknown(logical_type)
    return _number(logical_type, dimension, 1, _I32_MAX)


def fixed_size_list_type(item: pa.DataType, dimension: int, metadata: dict[bytes, bytes] | None = None) -> pa.DataType:
    """A fixed-size list as it is always read: its item is nullable and called `item`."""
    return pa.list_(pa.field("item", item, nullable=True, metadata=metadata), dimension)


def logical_type(arrow: pa.DataType) -> str:
    """The text that names an Arrow storage type (without the children of nested types).

    Raises `UnsupportedError` for types that the format cannot hold.
    """
    name = _NAMES.get(arrow)
    if name is not None:
        return name
    if pa.types.is_struct(arrow):
        return "struct"
    if pa.types.is_map(arrow):
        if arrow.keys_sorted:
            raise UnsupportedError("maps with sorted keys cannot be stored")
        return "map"
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        name = "list" if pa.types.is_list(arrow) else "large_list"
        item = arrow.value_type
        stored = item.storage_type if isinstance(item, pa.BaseExtensionType) else item
        return f"{name}.struct" if pa.types.is_struct(stored) else name
    if pa.types.is_fixed_size_list(arrow):
        return f"fixed_size_list:{_item_name(arrow.value_field)}:{arrow.list_size}"
    return _parametric_name(arrow)


def _item_name(item: pa.Field[Any]) -> str:
    if _extension_name(item) == BFLOAT16:
        return BFLOAT16
    is_extension = isinstance(item.type, pa.BaseExtensionType)
    if not (is_extension and pa.types.is_nested(item.type.storage_type)):
        name = logical_type(item.type)
        if name == "struct" or not is_nested(name):
            return name
    raise UnsupportedError(f"a fixed-size list of {item.type} cannot be stored")


def _extension_name(field: pa.Field[Any]) -> str | None:
    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name)
    name = (field.metadata or {}).get(EXTENSION_NAME)
    return None if name is None else name.decode()


def _parametric_name(arrow: pa.DataType) -> str:
    if pa.types.is_string_view(arrow):
        return "string"
    if pa.types.is_binary_view(arrow):
        return "binary"
    if pa.types.is_fixed_size_binary(arrow) and not pa.types.is_decimal(arrow):
        return f"fixed_size_binary:{arrow.byte_width}"
    if pa.types.is_decimal128(arrow) or pa.types.is_decimal256(arrow):
        return f"decimal:{arrow.bit_width}:{arrow.precision}:{arrow.scale}"
    if pa.types.is_timestamp(arrow):
        return f"timestamp:{arrow.unit}:{arrow.tz or '-'}"
    if pa.types.is_dictionary(arrow):
        return f"dict:{logical_type(arrow.value_type)}:{logical_type(arrow.index_type)}:false"
    raise UnsupportedError(f"the Arrow type {arrow} cannot be stored")


def _fixed_size_binary(text: str, rest: str) -> pa.DataType:
    return pa.binary(_number(text, rest, 0, _I32_MAX))


def _decimal(text: str, rest: str) -> pa.DataType:
    parts = rest.split(":")
    digits = _DECIMAL_DIGITS.get(parts[0])
    if digits is None or len(parts) != 3:
        raise _unknown(text)
    precision, scale = _number(text, parts[1], 1, digits), _number(text, parts[2], -128, 127)
    return pa.decimal128(precision, scale) if parts[0] == "128" else pa.decimal256(precision, scale)


def _timestamp(text: str, rest: str) -> pa.DataType:
    unit, colon, zone = rest.partition(":")
    if unit not in _TIME_UNITS or not colon:
        raise _unknown(text)
    return _timestamp_type(unit, None if zone in ("-", "") else zone)


def _dictionary(text: str, rest: str) -> pa.DataType:
    parts = rest.rsplit(":", 2)
    if len(parts) != 3 or parts[2] not in ("false", "true"):
        raise _unknown(text)
    value, index = primitive_type(_without_nesting(text, parts[0])), _FIXED.get(parts[1])
    if index is None or not pa.types.is_integer(index):
        raise _unknown(text)
    return _dictionary_type(index, value)  # the flag for ordered values is not kept


def _without_nesting(text: str, inner: str) -> str:
    if inner.startswith(("dict:", "fixed_size_list:")):
        raise _unknown(text)
    return inner


def _fixed_size_list(text: str, rest: str) -> pa.DataType:
    """Strips `fixed_size_list:` and its dimension in a loop, so that no text can cause deep recursion."""
    dimensions: list[int] = []
    inner = text
    while inner.startswith("fixed_size_list:"):
        dimensions.append(fixed_size_list_dimension(inner))
        inner = inner[len("fixed_size_list:") :].rpartition(":")[0]
        if len(dimensions) > _NESTED_LISTS_MAX:
            raise UnsupportedError(f"fixed-size lists nested more than {_NESTED_LISTS_MAX} deep")
    arrow: pa.DataType
    metadata: dict[bytes, bytes] | None = None
    if inner == BFLOAT16:
        arrow, metadata = pa.binary(2), {EXTENSION_NAME: BFLOAT16.encode(), EXTENSION_METADATA: b""}
    elif inner.startswith("dict:"):
        raise _unknown(text)
    else:
        arrow = primitive_type(inner)
    num_items = 1
    for dimension in reversed(dimensions):
        num_items *= dimension
        arrow, metadata = fixed_size_list_type(arrow, dimension, metadata), None
    if num_items > _I32_MAX:
        raise FormatError(f"type {_shown(text)}: {num_items} items per value, at most {_I32_MAX}")
    return arrow


_PARAMETRIC: Final = {
    "fixed_size_binary": _fixed_size_binary,
    "decimal": _decimal,
    "timestamp": _timestamp,
    "dict": _dictionary,
    "fixed_size_list": _fixed_size_list,
}


def _number(text: str, digits: str, least: int, most: int) -> int:
    unsigned = digits.removeprefix("-")
    if not (unsigned.isascii() and unsigned.isdecimal()) or len(unsigned) > 10:
        raise _unknown(text)
    number = int(digits)
    if not least <= number <= most:
        raise FormatError(f"type {_shown(text)}: expected a number from {least} to {most}, found {number}")
    return number


def _unknown(text: str) -> UnsupportedError:
    return UnsupportedError(f"unknown logical type {_shown(text)}")


def _shown(text: str) -> str:
    """`text` quoted for an error message, shortened if a damaged file made it long."""
    return repr(text if len(text) <= _TEXT_CHARS_SHOWN else text[:_TEXT_CHARS_SHOWN] + "…")
