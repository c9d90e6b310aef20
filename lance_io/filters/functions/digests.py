"""Digests of texts and byte strings."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pyarrow as pa

from lance_io.errors import BindError
from lance_io.filters.elementwise import by_bytes
from lance_io.filters.functions.blake3 import blake3
from lance_io.filters.functions.function_registry import SqlFunctions

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.filters.elementwise import Value

_TEXT, _BYTES = pa.string(), pa.binary()


def _hasher(name: str) -> Callable[[bytes], bytes]:
    return lambda data: hashlib.new(name, data, usedforsecurity=False).digest()


def _digest(name: str) -> Callable[[Value], pa.Array]:
    return lambda value: by_bytes(lambda one: hashlib.new(name, one).digest(), _BYTES, value)


sha224, sha256, sha384, sha512 = _digest("sha224"), _digest("sha256"), _digest("sha384"), _digest("sha512")


_DIGESTS: dict[str, Callable[[bytes], bytes]] = {
    **{name: _hasher(name) for name in ("md5", "sha224", "sha256", "sha384", "sha512", "blake2s", "blake2b")},
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
    return by_bytes(compute, _BYTES, value)


def md5(value: Value) -> pa.Array:
    """The digest in hexadecimal digits."""
    return by_bytes(lambda one: hashlib.md5(one, usedforsecurity=False).hexdigest(), _TEXT, value)


FUNCTIONS = SqlFunctions()
FUNCTIONS.define("md5", "bytes", md5)
FUNCTIONS.define("sha224", "bytes", sha224)
FUNCTIONS.define("sha256", "bytes", sha256)
FUNCTIONS.define("sha384", "bytes", sha384)
FUNCTIONS.define("sha512", "bytes", sha512)
FUNCTIONS.define("digest", "bytes word", digest)
