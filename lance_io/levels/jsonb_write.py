"""JSON text to the values that are stored (JSONB; `jsonb.py` shows the layout and reads it). Pure.

Members of objects come in the order of their keys' bytes. Whole numbers are stored in the fewest bytes that hold them,
above 64 bits as floats, as all numbers with a fraction or an exponent are. Empty text stands for null.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any, Final

import pyarrow as pa

from lance_io.errors import SchemaError
from lance_io.levels.jsonb import JSON_DEPTH_MAX

_ARRAY, _OBJECT, _SCALAR = 0x8 << 28, 0x4 << 28, 0x2 << 28
_NULL, _STRING, _NUMBER, _FALSE, _TRUE, _CONTAINER = (kind << 28 for kind in range(6))
_COUNT_MAX: Final = (1 << 28) - 1
_ZERO, _NOT_A_NUMBER, _INFINITY, _MINUS_INFINITY = b"\x00", b"\x10", b"\x20", b"\x30"
_SIGNED, _UNSIGNED, _FLOAT = b"\x40", b"\x50", b"\x60"
_WIDTHS: Final = (1, 2, 4, 8)  # bytes of a whole number
_NULL_DOCUMENT: Final = struct.pack(">II", _SCALAR, _NULL)


class _Members(list[tuple[str, Any]]):
    """The members of an object, in the order of the text."""


_decoder: Final = json.JSONDecoder(object_pairs_hook=_Members)


def jsonb_values(texts: pa.Array, name: str) -> pa.LargeBinaryArray:
    """The stored form of an array of JSON text; nulls stay null.

    name  of the field, for messages. Raises `SchemaError` for text that is no JSON, keys that come twice in an object,
    and documents nested too deep or larger than 256 MiB.
    """
    encoded = []
    for row, text in enumerate(texts.to_pylist()):
        try:
            encoded.append(None if text is None else _document(text))
        except (ValueError, RecursionError) as error:
            raise SchemaError(f"Failed to encode JSON: row {row} of `{name}`: {error}") from error
    return pa.array(encoded, pa.large_binary())


def _document(text: str) -> bytes:
    if not text:
        return _NULL_DOCUMENT
    value = _decoder.decode(text)
    if isinstance(value, list):
        return _container(value, 1)
    entry, data = _value(value, 0)
    return struct.pack(">II", _SCALAR, entry) + data


def _container(value: list[Any], depth: int) -> bytes:
    """An array or an object: header, entries, then what they describe."""
    if depth > JSON_DEPTH_MAX:
        raise ValueError(f"nested more than {JSON_DEPTH_MAX} levels deep")
    kind = _ARRAY
    items = value
    entries: list[int] = []
    pieces: list[bytes] = []
    if isinstance(value, _Members):
        kind = _OBJECT
        members = _sorted(value)
        for key, _ in members:
            entries.append(_STRING | _checked(len(key)))
            pieces.append(key)
        items = [member for _, member in members]
    for item in items:
        entry, data = _value(item, depth)
        entries.append(entry)
        pieces.append(data)
    header = struct.pack(f">{len(entries) + 1}I", kind | _checked(len(items)), *entries)
    return b"".join((header, *pieces))


def _sorted(members: _Members) -> list[tuple[bytes, Any]]:
    by_key = {key.encode("utf-8"): member for key, member in members}
    if len(by_key) < len(members):
        raise ValueError("an object has one key twice")
    return sorted(by_key.items(), key=lambda pair: pair[0])


def _value(value: Any, depth: int) -> tuple[int, bytes]:
    """The entry of a value, and its bytes."""
    if value is None:
        return _NULL, b""
    if value is True or value is False:
        return (_TRUE if value else _FALSE), b""
    if isinstance(value, str):
        kind, data = _STRING, value.encode("utf-8")
    elif isinstance(value, list):
        kind, data = _CONTAINER, _container(value, depth + 1)
    else:
        kind, data = _NUMBER, _number(value)
    return kind | _checked(len(data)), data


def _number(value: int | float) -> bytes:
    if isinstance(value, float):
        if math.isfinite(value):
            return _FLOAT + struct.pack(">d", value)
        if math.isnan(value):
            return _NOT_A_NUMBER
        return _INFINITY if value > 0 else _MINUS_INFINITY
    if value == 0:
        return _ZERO
    signed = value < 0
    bits = (value + 1).bit_length() + 1 if signed else value.bit_length()
    for width in _WIDTHS:
        if bits <= 8 * width:
            return (_SIGNED if signed else _UNSIGNED) + value.to_bytes(width, "big", signed=signed)
    try:
        return _number(float(value))
    except OverflowError:  # more digits than a float's range has
        return _MINUS_INFINITY if signed else _INFINITY


def _checked(count: int) -> int:
    if count > _COUNT_MAX:
        raise ValueError(f"{count} bytes or members in one place, at most {_COUNT_MAX}")
    return count
