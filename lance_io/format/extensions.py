"""The Arrow extension types of the format itself, and how schemas that name them become types.

    name             storage                                              holds
    lance.bfloat16   fixed_size_binary(2)                                 the upper half of a little-endian float32
    lance.blob.v2    struct of data, uri (and position, size)             one of inline bytes and a reference

Others are known once their module has added them, such as `lance_io.arrow`.

pyarrow keeps one registry of such types per process, and the reference implementation refuses to load when somebody
else has registered its names. So the types here are in the registry only for the moment in which a schema is resolved,
and only where nobody has registered others: whoever has theirs loaded gets theirs.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from importlib import import_module
from math import isfinite, isnan
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_registry_lock: Final = threading.Lock()


def to_bfloat16(values: Any) -> np.ndarray[Any, np.dtype[np.uint16]]:
    """The nearest bfloat16s of numbers, ties to even, as their 16 bits; what is too large becomes infinite."""
    with np.errstate(over="ignore"):
        bits = np.ascontiguousarray(values, "<f4").view("<u4")
    halves = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.where(is_nan, (bits >> 16).astype("<u2") | np.uint16(0x40), halves).astype("<u2")


PANDAS_MODULE: Final = "lance_io.format.pandas_bfloat16"  # which loads pandas, and stands on this one
_SHOWN_MAX: Final = 21  # values of an array that is shown whole


def _shortest_decimal(value: float) -> str:
    """The shortest decimal number whose nearest float32 is `value`, halves away from zero; numpy's are to even."""
    from decimal import ROUND_HALF_UP, ROUND_UP, Context, Decimal  # not with the package

    exact = Decimal(value)
    modes = (ROUND_HALF_UP, ROUND_UP)  # below a power of two values are denser than above it
    candidates = (Context(num_digits, mode).plus(exact) for num_digits in range(1, 10) for mode in modes)
    with np.errstate(over="ignore"):  # the largest rounds to infinity with few digits; nine tell all float32 apart
        text = f"{next(one for one in candidates if np.float32(one) == value):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


class BFloat16(float):
    """A float that a bfloat16 can hold: the nearest one of `value`."""

    def __new__(cls, value: float) -> Self:
        """Rounds ties to even. Raises `TypeError` for what is no number."""
        return cls.from_bytes(to_bfloat16([value]).tobytes())

    @classmethod
    def from_bytes(cls, bytes: bytes) -> Self:
        """The value that is stored as these two bytes, little-endian."""
        if len(bytes) != 2:
            raise ValueError(f"BFloat16.from_bytes: expected 2 bytes, got {len(bytes)}")
        return float.__new__(cls, np.frombuffer(b"\0\0" + bytes, dtype="<f4")[0])

    def as_float(self) -> float:
        """As a plain float."""
        return float(self)

    def __eq__(self, other: object) -> bool:
        """Whether `other` is the same number; pylance's `BFloat16`, which is no `float`, may be."""
        if type(other).__name__ == "BFloat16" and not isinstance(other, float):
            other = other.as_float()  # type: ignore[attr-defined]
        return float(self) == other

    def __hash__(self) -> int:
        return hash(float(self))

    def __repr__(self) -> str:
        """The shortest decimal number that is nearest to this one, without an exponent, as pylance shows it."""
        if not isfinite(self) or not self:
            return "NaN" if isnan(self) else f"{float(self):g}"
        return _shortest_decimal(float(self))


class BFloat16Scalar(pa.ExtensionScalar):  # type: ignore[misc]
    """One bfloat16 value; `as_py` gives the float that it stands for."""

    def as_py(self, **_kwargs: Any) -> BFloat16 | None:
        """The value as a Python float, None when null."""
        return None if self.value is None else BFloat16.from_bytes(self.value.as_py())

    def __eq__(self, other: object) -> bool:
        """Whether `other` is the same number: another scalar, a `BFloat16`, or a `bfloat16` of `ml_dtypes`."""
        if isinstance(other, BFloat16Scalar):
            return bool(self.as_py() == other.as_py())
        if type(other).__name__ == "bfloat16" and type(other).__module__ == "ml_dtypes":
            return bool(self.as_py() == float(other))  # type: ignore[arg-type]
        return isinstance(other, BFloat16) and bool(self.as_py() == other)

    def __hash__(self) -> int:
        return hash(self.as_py())


class BFloat16Array(pa.ExtensionArray):  # type: ignore[misc]
    """An array of bfloat16 values."""

    def __str__(self) -> str:
        """The numbers, of long arrays the first and the last ten."""
        shown = [f"  {one}" for one in (self if len(self) <= _SHOWN_MAX else self[:10])]
        text = ",\n".join(shown)
        if len(self) > _SHOWN_MAX:
            text += ",\n...\n" + ",\n".join([f"  {one}" for one in self[-10:]])
        return f"[\n{text}\n]"

    def __repr__(self) -> str:
        return f"<lance_io.arrow.BFloat16Array object at 0x{id(self):016x}>\n{self}"

    def to_float32(self) -> pa.FloatArray:
        """The same values in a type that Arrow computes with; every bfloat16 is a float32."""
        raw = self.storage.buffers()[1]
        halves = np.frombuffer(raw, dtype="<u2", count=self.offset + len(self))[self.offset :]
        values = (halves.astype("<u4") << 16).view("<f4")
        return pa.array(values, pa.float32(), mask=self.is_null().to_numpy(zero_copy_only=False))

    @classmethod
    def from_float32(cls, values: pa.FloatArray) -> Self:
        """The nearest bfloat16s of an array of floats."""
        bits = to_bfloat16(values.fill_null(0).to_numpy(zero_copy_only=False))
        validity = (
            None if not values.null_count else pa.array(values.is_valid().to_numpy(zero_copy_only=False)).buffers()[1]
        )
        storage = pa.Array.from_buffers(pa.binary(2), len(bits), [validity, pa.py_buffer(bits.tobytes())])
        array: Self = pa.ExtensionArray.from_storage(BFloat16Type(), storage)
        return array

    @classmethod
    def from_numpy(cls, array: np.ndarray[Any, Any]) -> Self:
        """From an array of the type `bfloat16` of `ml_dtypes`, or of floats, which are rounded."""
        values = array.view("<u2") if array.dtype.name == "bfloat16" else to_bfloat16(array)
        storage = pa.Array.from_buffers(pa.binary(2), len(values), [None, pa.py_buffer(values.tobytes())])
        made: Self = pa.ExtensionArray.from_storage(BFloat16Type(), storage)
        return made

    def to_numpy(self, zero_copy_only: bool = False) -> np.ndarray[Any, Any]:
        """As an array of the type `bfloat16` of `ml_dtypes`.

        Raises `ValueError` where there are nulls, `ModuleNotFoundError` without `ml_dtypes`, which `to_float32` does
        not need.
        """
        if self.null_count:
            raise ValueError("Cannot convert null values to numpy")
        from ml_dtypes import bfloat16

        raw = np.frombuffer(self.storage.buffers()[1], dtype="<u2", count=self.offset + len(self))
        return raw[self.offset :].view(bfloat16)


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

    def to_pandas_dtype(self) -> Any:
        """A `PandasBFloat16Type`. Raises `ModuleNotFoundError` without pandas."""
        return import_module(PANDAS_MODULE).PandasBFloat16Type()


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


_TYPES: Final[dict[str, Callable[[], pa.ExtensionType]]] = {"lance.bfloat16": BFloat16Type, "lance.blob.v2": BlobType}
EXTENSION_NAMES: Final = _TYPES.keys()


def add_extension(example: pa.ExtensionType) -> None:
    """Have schemas that name the extension of `example` resolved to its class from now on."""
    _TYPES[example.extension_name] = lambda: example


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
