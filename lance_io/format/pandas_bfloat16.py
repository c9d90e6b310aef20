"""bfloat16 as a type of pandas, under pylance's names; loads pandas, and is loaded by what is asked for it.

Values are kept as Arrow has them, and do not change. To compute with them: `series.astype("float32")`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.extensions import ExtensionArray, ExtensionDtype, register_extension_dtype

from lance_io.format.extensions import BFloat16, BFloat16Array, BFloat16Type

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

NAME = "lance.bfloat16"


@register_extension_dtype
class PandasBFloat16Type(ExtensionDtype):  # type: ignore[misc]
    """The dtype "lance.bfloat16"; nulls are None."""

    kind: ClassVar[str] = "f"
    na_value: ClassVar[None] = None
    name: ClassVar[str] = NAME
    type: ClassVar[Any] = BFloat16
    _is_numeric: ClassVar[bool] = True

    def __from_arrow__(self, array: pa.Array | pa.ChunkedArray) -> PandasBFloat16Array:
        return PandasBFloat16Array(array)

    @classmethod
    def construct_array_type(cls) -> Any:
        """The class of arrays of it."""
        return PandasBFloat16Array

    @classmethod
    def construct_from_string(cls, string: str) -> Self:
        """The dtype by its name. Raises `TypeError` for another."""
        if string != NAME:
            raise TypeError(f"Cannot construct a '{cls.__name__}' from '{string}'")
        return cls()


class PandasBFloat16Array(ExtensionArray):  # type: ignore[misc]
    """A column of bfloat16 values of a data frame.

    data  an array of Arrow, of this type; chunks are put together
    """

    def __init__(self, data: pa.Array | pa.ChunkedArray) -> None:
        if isinstance(data, pa.ChunkedArray):
            data = pa.concat_arrays(data.chunks) if data.num_chunks else pa.array([], data.type)
        if getattr(data.type, "extension_name", None) != NAME:
            raise TypeError(f"expected an array of {NAME}, found {data.type}")
        self.data: BFloat16Array = pa.ExtensionArray.from_storage(BFloat16Type(), data.storage)

    @classmethod
    def _of(cls, storage: pa.Array) -> Self:
        return cls(pa.ExtensionArray.from_storage(BFloat16Type(), storage))

    @classmethod
    def _from_sequence(cls, scalars: Iterable[Any], *, dtype: Any = None, copy: bool = False) -> Self:
        values = [None if one is None or one is pd.NA else float(one) for one in scalars]
        return cls(BFloat16Array.from_float32(pa.array(values, pa.float32())))

    @classmethod
    def _from_factorized(cls, values: Iterable[Any], original: Any) -> Self:
        return cls._from_sequence(values)

    @classmethod
    def _concat_same_type(cls, to_concat: Sequence[Self]) -> Self:
        return cls._of(pa.concat_arrays([one.data.storage for one in to_concat]))

    @classmethod
    def from_numpy(cls, array: np.ndarray[Any, Any]) -> Self:
        """From an array of the type `bfloat16` of `ml_dtypes`, or of floats, which are rounded."""
        return cls(BFloat16Array.from_numpy(array))

    @property
    def dtype(self) -> PandasBFloat16Type:
        """`PandasBFloat16Type`."""
        return PandasBFloat16Type()

    @property
    def nbytes(self) -> int:
        """Bytes that the values take."""
        return int(self.data.nbytes)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, item: Any) -> Any:
        """A value, None where it is null; or values: those of a slice, of a mask, or at some places."""
        item = pd.api.indexers.check_array_indexer(self, item)
        if isinstance(item, (int, np.integer)):
            return self.data[int(item)].as_py()
        if isinstance(item, slice):
            return self._of(self.data.storage.take(pa.array(np.arange(len(self))[item])))
        item = np.asarray(item)
        return self.take(np.flatnonzero(item) if item.dtype == np.bool_ else item)

    def take(self, indices: Any, *, allow_fill: bool = False, fill_value: Any = None) -> Self:
        """The values at some places, as `pandas.api.extensions.take` has them."""
        places = np.asarray(indices, dtype=np.int64)
        lowest, highest = (int(places.min()), int(places.max())) if len(places) else (0, -1)
        if allow_fill and lowest < -1:
            raise ValueError("indices must be at least -1, which stands for what is filled")
        if highest >= len(self) or (lowest < -len(self) and not allow_fill):
            raise IndexError(f"places {lowest} to {highest} of {len(self)} values")
        absent = places < 0 if allow_fill else np.zeros(len(places), dtype=bool)
        wrapped = np.where(places < 0, places + len(self), places)
        taken = self._of(self.data.storage.take(pa.array(wrapped, mask=absent)))
        if not absent.any() or pd.isna(fill_value):
            return taken
        values = [fill_value if is_absent else value for is_absent, value in zip(absent, taken, strict=True)]
        return self._from_sequence(values)

    def copy(self) -> Self:
        """The same values, which nobody changes."""
        return type(self)(self.data)

    def isna(self) -> npt.NDArray[np.bool_]:
        """Which values are null."""
        found: npt.NDArray[np.bool_] = self.data.is_null().to_numpy(zero_copy_only=False)
        return found

    def __eq__(self, other: object) -> Any:
        if isinstance(other, (pd.Series, pd.Index, pd.DataFrame)):
            return NotImplemented
        theirs = other.to_numpy(np.float32) if isinstance(other, PandasBFloat16Array) else other
        return np.asarray(self.to_numpy(np.float32) == theirs)

    def to_numpy(self, dtype: Any = None, copy: bool = False, na_value: Any = np.nan) -> np.ndarray[Any, Any]:
        """As an array of the type `bfloat16` of `ml_dtypes`, or of another type.

        dtype     None for `bfloat16`
        copy      accepted
        na_value  what nulls become, of another type

        Raises `ValueError` where there are nulls, `ModuleNotFoundError` without `ml_dtypes`: both for `bfloat16` alone.
        """
        if dtype is None:
            return self.data.to_numpy()
        if np.dtype(dtype) == np.dtype(object):
            made = np.empty(len(self), dtype=object)
            made[:] = self.data.to_pylist()
            return made
        values: np.ndarray[Any, Any] = self.data.to_float32().to_numpy(zero_copy_only=False)
        values = np.where(self.isna(), np.float32(na_value), values)
        return values.astype(dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self.to_numpy(np.dtype(object) if dtype is None else dtype)

    def __arrow_array__(self, type: pa.DataType | None = None) -> pa.Array:
        if type in (None, self.data.type, self.data.type.storage_type):  # pyarrow asks for the last of extension types
            return self.data
        return self.data.to_float32().cast(type)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._of, (self.data.storage,)
