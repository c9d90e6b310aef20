"""Functions of text filters from characters and bytes to codes, digits and digests, and back."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import TYPE_CHECKING

import pyarrow as pa

from lance_io.errors import BindError
from lance_io.filters.elementwise import by_value
from lance_io.filters.functions.blake3 import blake3

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.filters.elementwise import Value

_TEXT, _BOOL, _I32, _I64, _BYTES = pa.string(), pa.bool_(), pa.int32(), pa.int64(), pa.binary()


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


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _hashed(name: str) -> Callable[[bytes], bytes]:
    return lambda data: hashlib.new(name, data, usedforsecurity=False).digest()


def _digest(name: str) -> Callable[[Value], pa.Array]:
    return lambda value: by_value(lambda one: hashlib.new(name, _bytes(one)).digest(), _BYTES, value)


sha224, sha256, sha384, sha512 = _digest("sha224"), _digest("sha256"), _digest("sha384"), _digest("sha512")


_DIGESTS: dict[str, Callable[[bytes], bytes]] = {
    **{name: _hashed(name) for name in ("md5", "sha224", "sha256", "sha384", "sha512", "blake2s", "blake2b")},
    "blake3": blake3,
}


def digest(value: Value, name: pa.Scalar) -> pa.Array:
    """The digest by the algorithm with a name, as bytes."""
    compute = _DIGESTS.get(name.as_py() or "")
    if compute is None:
        raise BindError(
            f"There is no built-in digest algorithm named {name.as_py()!r}, "
            f"currently supported algorithms are: {', '.join(_DIGESTS)}"
        )
    return by_value(lambda one: compute(_bytes(one)), _BYTES, value)


def md5(value: Value) -> pa.Array:
    """The digest in hexadecimal digits."""
    return by_value(lambda one: hashlib.md5(_bytes(one), usedforsecurity=False).hexdigest(), _TEXT, value)


def encoded(value: Value, form: pa.Scalar) -> pa.Array:
    """Bytes as `hex` or `base64` text."""
    match form.as_py():
        case "hex":
            return by_value(lambda one: _bytes(one).hex(), _TEXT, value)
        case "base64":
            return by_value(lambda one: base64.b64encode(_bytes(one)).decode().rstrip("="), _TEXT, value)
        case other:
            raise BindError(f"there is no built-in encoding named {other!r}, only 'hex' and 'base64'")


def decoded(value: Value, form: pa.Scalar) -> pa.Array:
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
