"""Characters and bytes as codes and digits, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lance_io.errors import BindError
from lance_io.filters.functions.function_registry import SqlFunctions
from lance_io.filters.kernel_calls import changed_texts, measured_texts

if TYPE_CHECKING:
    from lance_io.filters.elementwise import Value

_TEXT, _I32, _BYTES = pa.string(), pa.int32(), pa.binary()
_FORMS = ("hex", "base64")


def code_of_first(value: Value) -> pa.Array:
    """The code point of the first character, i32; 0 for an empty text."""
    return measured_texts("code_of_first", _I32, value)


def character(value: Value) -> pa.Array:
    """The character of a code point. Raises pa.ArrowInvalid if there is none."""
    return changed_texts("character", _TEXT, value)


def hexadecimal(value: Value) -> pa.Array:
    """An integer in base 16, negative ones as their 64 bits."""
    return changed_texts("hexadecimal", _TEXT, value)


def _checked(form: pa.Scalar) -> str:
    name = str(form.as_py())
    if name not in _FORMS:
        raise BindError(f"there is no built-in encoding named {form.as_py()!r}, only 'hex' and 'base64'")
    return name


def encode(value: Value, form: pa.Scalar) -> pa.Array:
    """Bytes as `hex` or `base64` text."""
    return changed_texts(f"to_{_checked(form)}", _TEXT, value)


def decode(value: Value, form: pa.Scalar) -> pa.Array:
    """The bytes of `hex` or `base64` text. Raises pa.ArrowInvalid for other text."""
    return changed_texts(f"from_{_checked(form)}", _BYTES, value)


FUNCTIONS = SqlFunctions()
FUNCTIONS.define("ascii", "text", code_of_first)
FUNCTIONS.define("chr", "int", character)
FUNCTIONS.define("to_hex", "int", hexadecimal)
FUNCTIONS.define("encode", "bytes word", encode)
FUNCTIONS.define("decode", "text word", decode)
