"""bfloat16 as a pandas type, under pylance's names. Imports pandas, so it is imported on demand only.

Values keep their Arrow form and are immutable. To compute with them: `series.astype("float32")`.
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
    """The pandas dtype "lance.bfloat16"; nulls are None."""

    kind: ClassVar[str] = "f"
    na_value: ClassVar[None] = None
    name: ClassVar[str] = NAME
    type: ClassVar[Any] = BFloat16
    _is_numeric: ClassVar[bool] = True

    def __from_arrow__(self, array: pa.Array | pa.ChunkedArray) -> PandasBFloat16Array:
        return PandasBFloat16Array(array)

    @classmethod
    def construct_array_type(cls) -> Any:
        """Return `PandasBFloat16Array`, the class of arrays of this dtype."""
        return PandasBFloat16Array

    @classmethod
    def construct_from_string(cls, string: str) -> Self:
        """Create the dtype from its name.

        Args:
            string: The name, `"lance.bfloat16"`.

        Raises:
            TypeError: It is another name.
        """
        if string != NAME:
            raise TypeError(f"Cannot construct a '{cls.__name__}' from '{string}'")
        return cls()


class PandasBFloat16Array(ExtensionArray):  # type: ignore[misc]
    """A pandas array of bfloat16 values.

    Args:
        data: Arrow array or chunked array of the type `lance.bfloat16`; chunks are concatenated.

    Raises:
        TypeError: `data` has another type.
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
        values = [None if value is None or value is pd.NA else float(value) for value in scalars]
        return cls(BFloat16Array.from_float32(pa.array(values, pa.float32())))

    @classmethod
    def _from_factorized(cls, values: Iterable[Any], original: Any) -> Self:
        return cls._from_sequence(values)

    @classmethod
    def _concat_same_type(cls, to_concat: Sequence[Self]) -> Self:
        return cls._of(pa.concat_arrays([part.data.storage for part in to_concat]))

    @classmethod
    def from_numpy(cls, array: np.ndarray[Any, Any]) -> Self:
        """Convert from numpy.

        Args:
            array: 1-d, of the type `bfloat16` of `ml_dtypes`; or of floats, which are rounded, ties to even.
        """
        return cls(BFloat16Array.from_numpy(array))

    @property
    def dtype(self) -> PandasBFloat16Type:
        """The dtype, a `PandasBFloat16Type`."""
        return PandasBFloat16Type()

    @property
    def nbytes(self) -> int:
        """Memory of the values in bytes."""
        return int(self.data.nbytes)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, item: Any) -> Any:
        """A single value, None if null; or an array of the values of a slice, a mask, or positions."""
        item = pd.api.indexers.check_array_indexer(self, item)
        if isinstance(item, (int, np.integer)):
            return self.data[int(item)].as_py()
        if isinstance(item, slice):
            return self._of(self.data.storage.take(pa.array(np.arange(len(self))[item])))
        item = np.asarray(item)
        return self.take(np.flatnonzero(item) if item.dtype == np.bool_ else item)

    def take(self, indices: Any, *, allow_fill: bool = False, fill_value: Any = None) -> Self:
        """Select values by position; see `pandas.api.extensions.take`.

        Args:
            indices: Positions, ints. Negative ones count from the end; with `allow_fill`, -1 means a missing value.
            allow_fill: Whether -1 means a missing value.
            fill_value: Value for missing ones; None or a pandas null for null.

        Raises:
            ValueError: An index is below -1 with `allow_fill`.
            IndexError: An index is out of range.
        """
        positions = np.asarray(indices, dtype=np.int64)
        lowest, highest = (int(positions.min()), int(positions.max())) if len(positions) else (0, -1)
        if allow_fill and lowest < -1:
            raise ValueError("indices must be at least -1, which stands for a missing value")
        if highest >= len(self) or (lowest < -len(self) and not allow_fill):
            raise IndexError(f"indices {lowest} to {highest} of {len(self)} values")
        absent = positions < 0 if allow_fill else np.zeros(len(positions), dtype=bool)
        wrapped = np.where(positions < 0, positions + len(self), positions)
        taken = self._of(self.data.storage.take(pa.array(wrapped, mask=absent)))
        if not absent.any() or pd.isna(fill_value):
            return taken
        values = [fill_value if is_absent else value for is_absent, value in zip(absent, taken, strict=True)]
        return self._from_sequence(values)

    def copy(self) -> Self:
        """Return an array of the same values, which are immutable and therefore shared."""
        return type(self)(self.data)

    def isna(self) -> npt.NDArray[np.bool_]:
        """Return a boolean mask of the nulls."""
        mask: npt.NDArray[np.bool_] = self.data.is_null().to_numpy(zero_copy_only=False)
        return mask

    def __eq__(self, other: object) -> Any:
        if isinstance(other, (pd.Series, pd.Index, pd.DataFrame)):
            return NotImplemented
        theirs = other.to_numpy(np.float32) if isinstance(other, PandasBFloat16Array) else other
        return np.asarray(self.to_numpy(np.float32) == theirs)

    def to_numpy(self, dtype: Any = None, copy: bool = False, na_value: Any = np.nan) -> np.ndarray[Any, Any]:
        """Convert to numpy.

        Args:
            dtype: numpy type of the result; None for the type `bfloat16` of `ml_dtypes`.
            copy: Accepted as in pandas, without effect.
            na_value: Value for nulls if `dtype` is a numeric type.

        Raises:
            ValueError: There are nulls, and `dtype` is None.
            ModuleNotFoundError: `dtype` is None, and `ml_dtypes` is not installed.
        """
        if dtype is None:
            return self.data.to_numpy()
        if np.dtype(dtype) == np.dtype(object):
            objects = np.empty(len(self), dtype=object)
            objects[:] = self.data.to_pylist()
            return objects
        values: np.ndarray[Any, Any] = self.data.to_float32().to_numpy(zero_copy_only=False)
        values = np.where(self.isna(), np.float32(na_value), values)
        return values.astype(dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self.to_numpy(np.dtype(object) if dtype is None else dtype)

    def __arrow_array__(self, type: pa.DataType | None = None) -> pa.Array:
        if type in (None, self.data.type, self.data.type.storage_type):  # pyarrow may ask for the storage type
            return self.data
        return self.data.to_float32().cast(type)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._of, (self.data.storage,)
