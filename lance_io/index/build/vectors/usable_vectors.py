"""The vectors that an index holds: not null, all numbers finite, for cosine not zero, and of unit length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lance_io.index.vector.distances import Metric
from lance_io.index.vector.vector_arrays import as_floats, vector_rows
from lance_io.records import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa


@dataclass(frozen=True, slots=True, eq=False)
class UsableVectors:
    """Vectors of some rows.

    stored  [n, dim] in the type of the column, of unit length for cosine
    values  the same as float32 or float64; for hamming the bytes
    kept    mask of the rows that have one, of all rows; None for all
    """

    stored: npt.NDArray[Any]
    values: npt.NDArray[Any]
    kept: npt.NDArray[np.bool_] | None


def usable_vectors(array: pa.Array, metric: Metric) -> UsableVectors:
    """The vectors of an array of fixed-size lists."""
    rows = vector_rows(array)
    stored, kept = rows.matrix, rows.present
    if metric is Metric.HAMMING:
        stored = stored if kept is None else stored[kept]
        return UsableVectors(stored, stored, kept)
    values = as_floats(stored)
    with np.errstate(all="ignore"):
        squares = np.einsum("ij,ij->i", values, values)
        bad = ~np.isfinite(squares)
        if bad.any():  # numbers whose square overflows are numbers, too
            wide = values[bad].astype(np.float64) if metric is Metric.COSINE else values[bad]
            bad[bad] = ~np.isfinite(wide).all(axis=1)
        if metric is Metric.COSINE:
            bad |= squares == 0
        usable = ~bad if kept is None else kept & ~bad
        kept = None if usable.all() else usable
        if kept is not None:
            stored, values, squares = stored[kept], values[kept], squares[kept]
        if metric is not Metric.COSINE:
            return UsableVectors(stored, values, kept)
        unit = values / _lengths(values, squares)[:, None]
        return UsableVectors(unit.astype(stored.dtype), unit, kept)


def _lengths(values: npt.NDArray[Any], squares: npt.NDArray[Any]) -> npt.NDArray[Any]:
    lengths: npt.NDArray[Any] = np.sqrt(squares)
    limits = np.finfo(squares.dtype)
    rough = ~((squares > limits.tiny * 1e8) & (squares < limits.max))
    if rough.any():  # squares that overflow, or lose digits
        largest = np.abs(values[rough]).max(axis=1, keepdims=True)
        scaled = values[rough] / largest
        lengths[rough] = largest[:, 0] * np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
    return lengths
