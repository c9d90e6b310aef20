"""JSON columns: stored as JSONB in a large_binary column, shown as JSON text.

    container  u32 BE  kind in the top 3 bits, count in the others; then `count` entries (an object: `count` for its
                       keys, then `count` for its values); then the payloads of the entries, in the same order
               kind    1 a scalar (one entry), 2 an object, 4 an array
    entry      u32 BE  bits 28-30: type, bits 0-27: length of the payload in bytes
               type    0 null, 1 string, 2 number, 3 false, 4 true, 5 container; null, false and true have no payload
    string     UTF-8 bytes
    number     u8 tag, then by tag
               0x00 zero; 0x10 NaN; 0x20 infinity; 0x30 -infinity;
               0x40 signed, 0x50 unsigned: an integer of 1, 2, 4 or 8 bytes BE; 0x60: f64 BE

(Layout found by writing values with pylance 14 and reading their bytes.)
"""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from typing import Final

import pyarrow as pa

from lance_io.errors import FormatError

DEPTH_MAX: Final = 128
SCALAR, OBJECT, ARRAY = 1, 2, 4
_U32 = struct.Struct(">I")
_F64 = struct.Struct(">d")
_KIND_SHIFT: Final = 29
_COUNT_MASK: Final = (1 << _KIND_SHIFT) - 1
_TYPE_SHIFT: Final = 28
_LENGTH_MASK: Final = (1 << _TYPE_SHIFT) - 1
_LITERALS: Final = {0: "null", 3: "false", 4: "true"}
_NUMBERS: Final = {0x00: "0", 0x10: "NaN", 0x20: "Infinity", 0x30: "-Infinity"}


def json_texts(column: pa.Array) -> pa.Array:
    """JSON texts of a large_binary array of JSONB values. Raises `FormatError` for bytes that are none."""
    return pa.array([None if value is None else json_text(value) for value in column.to_pylist()], pa.string())


def json_text(data: bytes) -> str:
    """JSON text of one JSONB value. Raises `FormatError` for bytes that are none."""
    return _container(memoryview(data), 0)


def _container(data: memoryview, depth: int) -> str:
    if depth > DEPTH_MAX:
        raise FormatError(f"JSONB value: nested deeper than {DEPTH_MAX}")
    header = _u32(data, 0)
    kind, count = header >> _KIND_SHIFT, header & _COUNT_MASK
    num_entries = 2 * count if kind == OBJECT else count
    if kind not in (SCALAR, OBJECT, ARRAY) or (kind == SCALAR and count > 1) or 4 + 4 * num_entries > len(data):
        raise FormatError(f"JSONB value: header {header:#x} in {len(data)} bytes")
    position = 4 + 4 * max(num_entries, kind == SCALAR)
    texts = []
    for number in range(max(num_entries, kind == SCALAR)):
        entry = _u32(data, 4 + 4 * number)
        end = position + (entry & _LENGTH_MASK)
        if end > len(data):
            raise FormatError(f"JSONB value: entry {number} ends at {end} of {len(data)} bytes")
        texts.append(_entry(entry >> _TYPE_SHIFT & 7, data[position:end], depth))
        position = end
    if kind == SCALAR:
        return texts[0]
    if kind == ARRAY:
        return f"[{','.join(texts)}]"
    return "{" + ",".join(f"{key}:{value}" for key, value in zip(texts[:count], texts[count:], strict=True)) + "}"


def _entry(kind: int, payload: memoryview, depth: int) -> str:
    if kind in _LITERALS:
        return _LITERALS[kind]
    if kind == 1:
        try:
            return json.dumps(str(payload, "utf-8"), ensure_ascii=False)
        except UnicodeDecodeError as error:
            raise FormatError(f"JSONB value: a string that is no UTF-8: {error}") from error
    if kind == 2:
        return _number(payload)
    if kind == 5:
        return _container(payload, depth + 1)
    raise FormatError(f"JSONB value: entry of type {kind}")


def _number(payload: memoryview) -> str:
    if not len(payload):
        raise FormatError("JSONB value: a number without bytes")
    tag, rest = payload[0], bytes(payload[1:])
    if tag in _NUMBERS and not rest:
        return _NUMBERS[tag]
    if tag in (0x40, 0x50) and len(rest) in (1, 2, 4, 8):
        return str(int.from_bytes(rest, "big", signed=tag == 0x40))
    if tag == 0x60 and len(rest) == _F64.size:
        return _float_text(_F64.unpack(rest)[0])
    raise FormatError(f"JSONB value: a number with tag {tag:#x} and {len(rest)} bytes")


def _float_text(value: float) -> str:
    """The shortest text that reads back as `value`, without an exponent from 1e-5 to below 1e16, as pylance has it."""
    text = repr(value)
    mantissa, minus, exponent = text.partition("e-")
    if not minus:
        return text
    return format(Decimal(text), "f") if exponent == "05" else f"{mantissa}e-{int(exponent)}"


def _u32(data: memoryview, position: int) -> int:
    if position + 4 > len(data):
        raise FormatError(f"JSONB value: {len(data)} bytes, expected 4 at {position}")
    value: int = _U32.unpack_from(data, position)[0]
    return value
