"""Characters and bytes as codes and digits, and back."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

import pyarrow as pa

from lance_io.errors import BindError
from lance_io.filters.elementwise import by_bytes, by_value
from lance_io.filters.functions.function_registry import SqlFunctions

if TYPE_CHECKING:
    from lance_io.filters.elementwise import Value

_TEXT, _I32, _BYTES = pa.string(), pa.int32(), pa.binary()


def code_of_first(value: Value) -> pa.Array:
    """The code point of the first character, i32; 0 for an empty text."""
    return by_value(lambda text: ord(text[0]) if text else 0, _I32, value)


def character(value: Value) -> pa.Array:
    """The character with a code point. Raises pa.ArrowInvalid if there is none."""

    def one(code: int) -> str:
        if not 0 <= code < 0x110000 or 0xD800 <= code < 0xE000:
            raise pa.ArrowInvalid(f"invalid Unicode scalar value: {code}")
        return chr(code)

    return by_value(one, _TEXT, value)


def hexadecimal(value: Value) -> pa.Array:
    """An integer in base 16, negative ones as their 64 bits."""
    return by_value(lambda number: format(number & ((1 << 64) - 1), "x"), _TEXT, value)


def encode(value: Value, form: pa.Scalar) -> pa.Array:
    """Bytes as `hex` or `base64` text."""
    match form.as_py():
        case "hex":
            return by_bytes(bytes.hex, _TEXT, value)
        case "base64":
            return by_bytes(lambda one: base64.b64encode(one).decode().rstrip("="), _TEXT, value)
        case other:
            raise BindError(f"there is no built-in encoding named {other!r}, only 'hex' and 'base64'")


def decode(value: Value, form: pa.Scalar) -> pa.Array:
    """The bytes of `hex` or `base64` text. Raises pa.ArrowInvalid for other text."""

    def one(text: str) -> bytes:
        try:
            if form.as_py() == "hex":
                return bytes.fromhex(text)
            return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
        except (ValueError, binascii.Error) as error:
            raise pa.ArrowInvalid(f"Failed to decode value using {form.as_py()}: {error}") from None

    if form.as_py() not in ("hex", "base64"):
        raise BindError(f"there is no built-in encoding named {form.as_py()!r}, only 'hex' and 'base64'")
    return by_value(one, _BYTES, value)


FUNCTIONS = SqlFunctions()
FUNCTIONS.define("ascii", "text", code_of_first)
FUNCTIONS.define("chr", "int", character)
FUNCTIONS.define("to_hex", "int", hexadecimal)
FUNCTIONS.define("encode", "bytes word", encode)
FUNCTIONS.define("decode", "text word", decode)
