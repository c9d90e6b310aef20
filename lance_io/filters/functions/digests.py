"""Digests of texts and byte strings."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from lance_io.errors import BindError
from lance_io.filters.functions.function_registry import SqlFunctions
from lance_io.filters.kernel_calls import changed_texts, digests

if TYPE_CHECKING:
    from lance_io.filters.elementwise import Value

_ALGORITHMS = ("md5", "sha224", "sha256", "sha384", "sha512", "blake2s", "blake2b", "blake3")


def digest(value: Value, name: pa.Scalar) -> pa.Array:
    """The digest by the named algorithm, as bytes."""
    if name.as_py() not in _ALGORITHMS:
        raise BindError(
            f"There is no built-in digest algorithm named {name.as_py()!r}, "
            f"currently supported algorithms are: {', '.join(_ALGORITHMS)}"
        )
    return digests(name.as_py(), value)


def md5(value: Value) -> pa.Array:
    """The digest in hexadecimal digits."""
    return changed_texts("to_hex", pa.string(), digests("md5", value))


FUNCTIONS = SqlFunctions()
FUNCTIONS.define("md5", "bytes", md5)
FUNCTIONS.define("sha224", "bytes", partial(digests, "sha224"))
FUNCTIONS.define("sha256", "bytes", partial(digests, "sha256"))
FUNCTIONS.define("sha384", "bytes", partial(digests, "sha384"))
FUNCTIONS.define("sha512", "bytes", partial(digests, "sha512"))
FUNCTIONS.define("digest", "bytes word", digest)
