"""The Arrow extension types of the format itself, and how schemas that name them become types.

    name             storage                                              holds
    lance.bfloat16   fixed_size_binary(2)                                 the upper half of a little-endian float32
    lance.blob.v2    struct of data, uri (and position, size)             one of inline bytes and a reference

pyarrow keeps one registry of such types per process, and the reference implementation refuses to load when somebody
else has registered its names. So the types here are in the registry only for the moment in which a schema is resolved,
and only where nobody has registered others: whoever has theirs loaded gets theirs.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

_registry_lock: Final = threading.Lock()


class BFloat16Scalar(pa.ExtensionScalar):  # type: ignore[misc]
    """One bfloat16 value; `as_py` gives the float that it stands for."""

    def as_py(self, **_kwargs: Any) -> float | None:
        """The value as a Python float, None when null."""
        if self.value is None:
            return None
        return float(np.frombuffer(b"\0\0" + self.value.as_py(), dtype="<f4")[0])


class BFloat16Array(pa.ExtensionArray):  # type: ignore[misc]
    """An array of bfloat16 values."""

    def to_float32(self) -> pa.FloatArray:
        """The same values in a type that Arrow computes with; every bfloat16 is a float32."""
        raw = self.storage.buffers()[1]
        halves = np.frombuffer(raw, dtype="<u2", count=self.offset + len(self))[self.offset :]
        values = (halves.astype("<u4") << 16).view("<f4")
        return pa.array(values, pa.float32(), mask=self.is_null().to_numpy(zero_copy_only=False))


class BFloat16Type(pa.ExtensionType):  # type: ignore[misc]
    """Half-width floats with the exponent range of float32, as neural networks use them."""

    def __init__(self) -> None:
        super().__init__(pa.binary(2), "lance.bfloat16")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Self:
        if storage_type != pa.binary(2):
            raise pa.ArrowInvalid(f"lance.bfloat16 is stored as fixed_size_binary(2), found {storage_type}")
        return cls()

    def __arrow_ext_class__(self) -> type[BFloat16Array]:
        return BFloat16Array

    def __arrow_ext_scalar_class__(self) -> type[BFloat16Scalar]:
        return BFloat16Scalar


_BLOB_MEMBERS: Final[tuple[pa.Field[Any], ...]] = (
    pa.field("data", pa.large_binary()),
    pa.field("uri", pa.utf8()),
    pa.field("position", pa.uint64()),
    pa.field("size", pa.uint64()),
)


class BlobType(pa.ExtensionType):  # type: ignore[misc]
    """A blob column as it is written: per row either bytes or a reference to (a range of) another object.

    storage_type  the struct of all four members, or of `data` and `uri` only
    """

    def __init__(self, storage_type: pa.DataType | None = None) -> None:
        super().__init__(pa.struct(_BLOB_MEMBERS) if storage_type is None else storage_type, "lance.blob.v2")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Self:
        if storage_type not in (pa.struct(_BLOB_MEMBERS), pa.struct(_BLOB_MEMBERS[:2])):
            raise pa.ArrowInvalid(f"lance.blob.v2 is stored as {pa.struct(_BLOB_MEMBERS)}, found {storage_type}")
        return cls(storage_type)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.storage_type,)


_TYPES: Final = {"lance.bfloat16": BFloat16Type, "lance.blob.v2": BlobType}
EXTENSION_NAMES: Final = frozenset(_TYPES)


@contextmanager
def known_extensions() -> Iterator[None]:
    """Inside of the block, pyarrow resolves the names of `EXTENSION_NAMES` to somebody's types."""
    with _registry_lock:
        ours = [name for name, make in _TYPES.items() if _register(make())]
        try:
            yield
        finally:
            for name in ours:
                pa.unregister_extension_type(name)


def _register(extension: pa.ExtensionType) -> bool:
    """Register a type unless its name is taken."""
    try:
        pa.register_extension_type(extension)
    except pa.ArrowKeyError:
        return False
    return True
