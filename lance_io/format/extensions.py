"""The Arrow extension types of the format, and their resolution in schemas that name them.

    name             storage                                              holds
    lance.bfloat16   fixed_size_binary(2)                                 the upper half of a little-endian float32
    lance.blob.v2    struct of data, uri (and position, size)             inline bytes, or a reference

Modules such as `lance_io.arrow` add further types.

pyarrow keeps one registry of such types per process, and the reference implementation fails to load if its names are
taken. So these types are registered only while a schema is resolved, and only if no other library has registered the
names: then the types of that library are used.
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
    """The bits of the nearest bfloat16s, ties to even; numbers that are too large become infinite."""
    with np.errstate(over="ignore"):
        bits = np.ascontiguousarray(values, "<f4").view("<u4")
    halves = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.where(is_nan, (bits >> 16).astype("<u2") | np.uint16(0x40), halves).astype("<u2")


PANDAS_MODULE: Final = "lance_io.format.pandas_bfloat16"  # loads pandas, and imports this module
_SHOWN_MAX: Final = 21  # longest array that is shown completely


def _shortest_decimal(value: float) -> str:
    """The shortest decimal number whose nearest float32 is `value`; halves round away from zero (numpy: to even)."""
    from decimal import ROUND_HALF_UP, ROUND_UP, Context, Decimal  # on demand, to keep the package's import fast

    exact = Decimal(value)
    modes = (ROUND_HALF_UP, ROUND_UP)  # values are denser below a power of two than above it
    candidates = (Context(num_digits, mode).plus(exact) for num_digits in range(1, 10) for mode in modes)
    with np.errstate(over="ignore"):  # of large numbers with few digits; nine digits always suffice
        text = f"{next(number for number in candidates if np.float32(number) == value):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


class BFloat16(float):
    """A float with a bfloat16 value.

    Args:
        value: The number, which is rounded to the nearest bfloat16, ties to even.

    Raises:
        TypeError: `value` is not a number.
    """

    def __new__(cls, value: float) -> Self:
        """Create a value; see the class."""
        return cls.from_bytes(to_bfloat16([value]).tobytes())

    @classmethod
    def from_bytes(cls, bytes: bytes) -> Self:
        """Decode a value from its stored form.

        Args:
            bytes: The two bytes of the value, little-endian.

        Raises:
            ValueError: There are not exactly two bytes.
        """
        if len(bytes) != 2:
            raise ValueError(f"BFloat16.from_bytes: expected 2 bytes, got {len(bytes)}")
        return float.__new__(cls, np.frombuffer(b"\0\0" + bytes, dtype="<f4")[0])

    def as_float(self) -> float:
        """Return the value as a plain float."""
        return float(self)

    def __eq__(self, other: object) -> bool:
        """Whether `other` is the same number; it may be pylance's `BFloat16`, which is not a `float`."""
        if type(other).__name__ == "BFloat16" and not isinstance(other, float):
            other = other.as_float()  # type: ignore[attr-defined]
        return float(self) == other

    def __hash__(self) -> int:
        return hash(float(self))

    def __repr__(self) -> str:
        """The shortest decimal number whose nearest value is this one, without an exponent, as in pylance."""
        if not isfinite(self) or not self:
            return "NaN" if isnan(self) else f"{float(self):g}"
        return _shortest_decimal(float(self))


class BFloat16Scalar(pa.ExtensionScalar):  # type: ignore[misc]
    """A scalar of a bfloat16 array."""

    def as_py(self, **_kwargs: Any) -> BFloat16 | None:
        """Return the value.

        Args:
            **_kwargs: Ignored; pyarrow passes options of other types.

        Returns:
            A `BFloat16`, which is a float, or None for a null.
        """
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
    """An Arrow array of bfloat16 values, with the extension type `lance.bfloat16`."""

    def __str__(self) -> str:
        """The numbers; only the first and the last ten of a long array."""
        shown = [f"  {value}" for value in (self if len(self) <= _SHOWN_MAX else self[:10])]
        text = ",\n".join(shown)
        if len(self) > _SHOWN_MAX:
            text += ",\n...\n" + ",\n".join([f"  {value}" for value in self[-10:]])
        return f"[\n{text}\n]"

    def __repr__(self) -> str:
        return f"<lance_io.arrow.BFloat16Array object at 0x{id(self):016x}>\n{self}"

    def to_float32(self) -> pa.FloatArray:
        """Convert to float32, which Arrow can compute with.

        Returns:
            An Arrow array of the same values, without a loss; nulls stay null.
        """
        raw = self.storage.buffers()[1]
        halves = np.frombuffer(raw, dtype="<u2", count=self.offset + len(self))[self.offset :]
        values = (halves.astype("<u4") << 16).view("<f4")
        return pa.array(values, pa.float32(), mask=self.is_null().to_numpy(zero_copy_only=False))

    @classmethod
    def from_float32(cls, values: pa.FloatArray) -> Self:
        """Convert from floats.

        Args:
            values: Arrow array of floats; each becomes the nearest bfloat16, ties to even. Nulls stay null.
        """
        bits = to_bfloat16(values.fill_null(0).to_numpy(zero_copy_only=False))
        validity = (
            None if not values.null_count else pa.array(values.is_valid().to_numpy(zero_copy_only=False)).buffers()[1]
        )
        storage = pa.Array.from_buffers(pa.binary(2), len(bits), [validity, pa.py_buffer(bits.tobytes())])
        array: Self = pa.ExtensionArray.from_storage(BFloat16Type(), storage)
        return array

    @classmethod
    def from_numpy(cls, array: np.ndarray[Any, Any]) -> Self:
        """Convert from numpy.

        Args:
            array: 1-d, of the type `bfloat16` of `ml_dtypes`; or of floats, which are rounded, ties to even.
        """
        values = array.view("<u2") if array.dtype.name == "bfloat16" else to_bfloat16(array)
        storage = pa.Array.from_buffers(pa.binary(2), len(values), [None, pa.py_buffer(values.tobytes())])
        converted: Self = pa.ExtensionArray.from_storage(BFloat16Type(), storage)
        return converted

    def to_numpy(self, zero_copy_only: bool = False) -> np.ndarray[Any, Any]:
        """Convert to numpy, zero-copy.

        Args:
            zero_copy_only: Accepted as in pyarrow; the conversion never copies.

        Returns:
            1-d array of the type `bfloat16` of `ml_dtypes`.

        Raises:
            ValueError: The array has nulls.
            ModuleNotFoundError: `ml_dtypes` is not installed; `to_float32` works without it.
        """
        if self.null_count:
            raise ValueError("Cannot convert null values to numpy")
        from ml_dtypes import bfloat16

        raw = np.frombuffer(self.storage.buffers()[1], dtype="<u2", count=self.offset + len(self))
        return raw[self.offset :].view(bfloat16)


class BFloat16Type(pa.ExtensionType):  # type: ignore[misc]
    """The Arrow type of bfloat16: half-width floats with the exponent range of float32, common in neural networks."""

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
        """Return the pandas dtype.

        Returns:
            A `PandasBFloat16Type`.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        return import_module(PANDAS_MODULE).PandasBFloat16Type()


_BLOB_MEMBERS: Final[tuple[pa.Field[Any], ...]] = (
    pa.field("data", pa.large_binary()),
    pa.field("uri", pa.utf8()),
    pa.field("position", pa.uint64()),
    pa.field("size", pa.uint64()),
)


class BlobType(pa.ExtensionType):  # type: ignore[misc]
    """The Arrow type of a blob column when it is written: each row has bytes, or a reference to a range of an object.

    Args:
        storage_type: The struct of all four members `data`, `uri`, `position` and `size`, or of `data` and `uri` only.
            None for all four.
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
    """Resolve the extension name of `example` to its class in all schemas from now on."""
    _TYPES[example.extension_name] = lambda: example


@contextmanager
def known_extensions() -> Iterator[None]:
    """Inside the block, pyarrow resolves `EXTENSION_NAMES`: to types that another library registered, else to ours."""
    with _registry_lock:
        ours = [name for name, make in _TYPES.items() if _register(make())]
        try:
            yield
        finally:
            for name in ours:
                pa.unregister_extension_type(name)


def _register(extension: pa.ExtensionType) -> bool:
    """Register a type unless its name is taken; returns whether it was registered."""
    try:
        pa.register_extension_type(extension)
    except pa.ArrowKeyError:
        return False
    return True
