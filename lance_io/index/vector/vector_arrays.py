"""Arrow arrays of vectors as matrices, zero-copy where possible."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_io.records import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_io.spans import IntArray

    BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class VectorRows:
    """Rows with one vector each, or with several.

    matrix   [vectors, dim] as stored: float16, float32, float64, uint8, or the 16 bits of bfloat16
    present  mask of the rows with a vector; None for all
    starts   i64[rows + 1], start of each row's vectors; None if each row has one
    """

    matrix: npt.NDArray[Any]
    present: BoolArray | None
    starts: IntArray | None = None

    @property
    def num_rows(self) -> int:
        """Number of rows, including those without a vector."""
        return len(self.matrix) if self.starts is None else len(self.starts) - 1


def vector_rows(array: pa.Array) -> VectorRows:
    """The rows of an array of fixed-size lists, or of lists of these; null vectors in a list are dropped.

    Null items of a vector become 0.
    """
    if not pa.types.is_fixed_size_list(array.type):
        return _lists_of_vectors(array)
    return VectorRows(_matrix(array), _validity(array))


def as_floats(matrix: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert any float matrix to float32 or float64; returns the matrix itself if it has one of these types."""
    if matrix.dtype == np.uint16:  # bfloat16: the upper half of a float32
        return (matrix.astype(np.uint32) << 16).view(np.float32)
    return matrix.astype(np.float32) if matrix.dtype == np.float16 else matrix


def _matrix(array: pa.FixedSizeListArray) -> npt.NDArray[Any]:
    dim = array.type.list_size
    items = array.values.slice(array.offset * dim, len(array) * dim)
    if isinstance(items, pa.ExtensionArray):  # bfloat16, if its type is registered (perhaps by pylance)
        items = items.storage
    dtype = np.dtype(np.uint16) if pa.types.is_fixed_size_binary(items.type) else np.dtype(items.type.to_pandas_dtype())
    if not len(items):
        return np.empty((len(array), dim), dtype)
    flat = np.frombuffer(items.buffers()[1], dtype, len(items), items.offset * dtype.itemsize)
    valid = _validity(items)
    if valid is not None:
        flat = np.where(valid, flat, np.zeros(1, dtype))
    return flat.reshape(len(array), dim)


def _validity(array: pa.Array) -> BoolArray | None:
    """Mask of the values that are not null; None for all."""
    if not array.null_count:
        return None
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    first, last = array.offset // 8, -(-(array.offset + len(array)) // 8)
    skip = array.offset % 8
    return np.unpackbits(bits[first:last], bitorder="little")[skip : skip + len(array)].astype(np.bool_)


def _lists_of_vectors(array: pa.ListArray) -> VectorRows:
    starts: IntArray = np.zeros(1, np.int64)
    if len(array):
        width: np.dtype[Any] = np.dtype(np.int64 if pa.types.is_large_list(array.type) else np.int32)
        ends = np.frombuffer(array.buffers()[1], width, len(array) + 1, array.offset * width.itemsize)
        starts = ends.astype(np.int64)
    inner = array.values.slice(starts[0], starts[-1] - starts[0])
    starts -= starts[0]
    valid = _validity(array)
    rows = VectorRows(_matrix(inner), valid, starts)
    kept = _validity(inner)
    if valid is not None and (starts[1:] > starts[:-1])[~valid].any():  # drop hidden vectors of null lists
        of_rows = np.repeat(valid, np.diff(starts))
        kept = of_rows if kept is None else kept & of_rows
    if kept is not None:
        before: IntArray = np.concatenate((np.zeros(1, np.int64), np.cumsum(kept, dtype=np.int64)))
        rows = replace(rows, matrix=rows.matrix[kept], starts=before[starts])
    return rows
