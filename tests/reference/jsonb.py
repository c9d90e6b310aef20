"""A plain decoder of stored JSON values, to hold the kernel to. The layout is in `lance_io.levels.jsonb`."""

from __future__ import annotations

import json
import math
import struct
from typing import Final, TypeAlias

from lance_io.errors import FormatError, UnsupportedError
from lance_io.levels.jsonb import JSON_DEPTH_MAX

_HEADER: Final = struct.Struct(">I")
_FLOAT: Final = struct.Struct(">d")
_COUNT_MASK: Final = (1 << 28) - 1
_ARRAY, _OBJECT, _SCALAR = 8, 4, 2
_NULL, _STRING, _NUMBER, _FALSE, _TRUE, _CONTAINER, _EXTENSION = range(7)
_WORDS: Final = {_NULL: "null", _FALSE: "false", _TRUE: "true"}
_WORD_NUMBERS: Final = {0x00: "0", 0x10: "null", 0x20: "null", 0x30: "null"}
_SIGNED, _UNSIGNED, _FLOATING, _DECIMAL = 0x40, 0x50, 0x60, 0x70
_INTEGER_BYTES: Final = frozenset({1, 2, 4, 8})
_DECIMAL_BYTES: Final = frozenset({8, 16, 32})
_quoted: Final = json.JSONEncoder(ensure_ascii=False).encode

_Nested: TypeAlias = tuple[int, int, int]  # start, end and depth of an array or object that is still to be read


def json_text(data: bytes) -> str:
    """The text of one stored JSON value. Raises as `json_texts` does."""
    if not data:
        return "null"
    kind, count = _header(data, 0, len(data))
    if kind == _SCALAR:
        if count:
            raise FormatError(f"expected 0 in the header of a scalar, found {count}")
        (piece,) = _items(data, 4, len(data), 1, 0)
        if not isinstance(piece, str):
            raise FormatError("expected a scalar, found an array or object")
        return piece
    pieces: list[str] = []
    waiting: list[str | _Nested] = [(0, len(data), 1)]  # what is still to be written, the next at the end
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            pieces.append(part)
        else:
            waiting.extend(reversed(_members(data, *part)))
    return "".join(pieces)


def _header(data: bytes, start: int, end: int) -> tuple[int, int]:
    """Kind and count of the array, object or scalar at `start`."""
    if end - start < _HEADER.size:
        raise FormatError(f"expected a header of 4 bytes at {start}, found {end - start} bytes")
    (header,) = _HEADER.unpack_from(data, start)
    return header >> 28, header & _COUNT_MASK


def _members(data: bytes, start: int, end: int, depth: int) -> list[str | _Nested]:
    """An array or object as pieces of text, with what lies deeper left to be read."""
    if depth > JSON_DEPTH_MAX:
        raise UnsupportedError(f"JSON nested more than {JSON_DEPTH_MAX} deep")
    kind, count = _header(data, start, end)
    start += _HEADER.size
    if kind == _ARRAY:
        items = _items(data, start, end, count, depth)
        return _joined("[", [[item] for item in items], "]")
    if kind != _OBJECT:
        raise FormatError(f"expected the header of an array or object at {start - 4}, found the kind {kind}")
    items = _items(data, start, end, 2 * count, depth)
    for key in items[:count]:
        if not isinstance(key, str) or not key.startswith('"'):
            raise FormatError(f"the object at {start - 4} has a key that is no string")
    return _joined("{", [[key, ":", value] for key, value in zip(items[:count], items[count:], strict=True)], "}")


def _joined(opening: str, members: list[list[str | _Nested]], closing: str) -> list[str | _Nested]:
    parts: list[str | _Nested] = [opening]
    for index, member in enumerate(members):
        if index:
            parts.append(",")
        parts.extend(member)
    parts.append(closing)
    return parts


def _items(data: bytes, start: int, end: int, count: int, depth: int) -> list[str | _Nested]:
    """The values of the `count` entries at `start`, which have to fill the bytes up to `end`."""
    position = start + 4 * count
    if position > end:
        raise FormatError(f"{count} entries at {start} run past the end at {end}")
    items: list[str | _Nested] = []
    for entry in struct.unpack_from(f">{count}I", data, start):
        kind, length = entry >> 28, entry & _COUNT_MASK
        if length > end - position:
            raise FormatError(f"a value of {length} bytes at {position} runs past the end at {end}")
        if kind == _CONTAINER:
            items.append((position, position + length, depth + 1))
        else:
            items.append(_scalar(kind, data[position : position + length]))
        position += length
    if position != end:
        raise FormatError(f"expected the last value to end at {end}, found {position}")
    return items


def _scalar(kind: int, content: bytes) -> str:
    if kind == _STRING:
        return _quoted(_utf8(content))
    if kind == _NUMBER:
        return _number(content)
    if kind == _EXTENSION:
        if content[:1] != b"\0":
            raise UnsupportedError(f"JSON holds an extension of kind {content[:1].hex() or 'none'}")
        return f'"{content[1:].hex()}"'
    word = _WORDS.get(kind)
    if word is None or content:
        raise FormatError(f"an entry of type {kind} and {len(content)} bytes")
    return word


def _utf8(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise FormatError(f"a string is not UTF-8: {error.reason} at byte {error.start}") from error


def _number(content: bytes) -> str:
    kind, digits = content[:1], content[1:]
    size = len(digits)
    match kind[0] if kind else -1:
        case number if number in _WORD_NUMBERS and not size:
            return _WORD_NUMBERS[number]
        case 0x40 | 0x50 as number if size in _INTEGER_BYTES:
            return str(int.from_bytes(digits, "big", signed=number == _SIGNED))
        case 0x60 if size == _FLOAT.size:
            return _float(_FLOAT.unpack(digits)[0])
        case 0x70 if size - 1 in _DECIMAL_BYTES:
            return _decimal(int.from_bytes(digits[:-1], "big", signed=True), digits[-1])
    raise FormatError(f"a number of kind {kind.hex() or 'none'} with {size} bytes")


def _float(number: float) -> str:
    """Python's shortest digits, with an exponent where JSON writers put one."""
    if not math.isfinite(number):
        return "null"
    mantissa, _, exponent = repr(number).partition("e")
    if not exponent:
        return mantissa
    if exponent == "-05":
        sign = "-" if number < 0 else ""
        return f"{sign}0.0000{mantissa.lstrip('-').replace('.', '')}"
    return f"{mantissa}e{int(exponent):+d}" if number else mantissa


def _decimal(unscaled: int, scale: int) -> str:
    if not scale:
        return str(unscaled)
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"
