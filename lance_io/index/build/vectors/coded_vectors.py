"""The bytes of a row in the partitions of an index (spec: indices, 6.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io.index.build.vectors.product_training import ProductEncoder
from lance_io.index.vector.distances import Metric
from lance_io.index.vector.vector_details import Coding

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_io.index.build.vectors.usable_vectors import UsableVectors
    from lance_io.index.build.vectors.vector_models import VectorModel
    from lance_io.spans import IntArray

_LEVELS: Final = 255
_BLOCK_ROWS: Final = 4096


class RowBytes:
    """Codes rows as a model says."""

    def __init__(self, model: VectorModel) -> None:
        self._model = model
        self._encoder: ProductEncoder | None = None
        if model.codebook is not None:
            self._encoder = ProductEncoder(model.codebook, model.kind.bits)

    @property
    def width(self) -> int:
        """Bytes of a row."""
        kind, dim = self._model.kind, self._model.dim
        match kind.coding:
            case Coding.PQ:
                return kind.num_parts * kind.bits // 8
            case Coding.SQ:
                return dim
            case _:
                return dim * self._model.stored_type.itemsize

    def field(self) -> pa.Field:
        """The column of `auxiliary.idx`."""
        match self._model.kind.coding:
            case Coding.PQ:
                return pa.field("__pq_code", pa.list_(pa.uint8(), self.width))
            case Coding.SQ:
                return pa.field("__sq_code", pa.list_(pa.uint8(), self.width))
            case _:
                return pa.field("flat", pa.list_(self._model.item, self._model.dim))

    def of(self, vectors: UsableVectors, partitions: IntArray) -> npt.NDArray[np.uint8]:
        """The bytes of rows, [n, width]."""
        if self._encoder is not None:
            return self._product_codes(vectors.values, partitions, self._encoder)
        if self._model.bounds is not None:
            return scalar_codes(vectors.values, *self._model.bounds)
        stored = np.ascontiguousarray(vectors.stored)
        return stored.view(np.uint8).reshape(len(stored), self.width)

    def _product_codes(
        self, values: npt.NDArray[Any], partitions: IntArray, encoder: ProductEncoder
    ) -> npt.NDArray[np.uint8]:
        codes = np.empty((len(values), self.width), np.uint8)
        for start in range(0, len(values), _BLOCK_ROWS):
            end = min(start + _BLOCK_ROWS, len(values))
            codes[start:end] = encoder.codes(residuals(self._model, values[start:end], partitions[start:end]))
        return codes


def residuals(model: VectorModel, values: npt.NDArray[Any], partitions: IntArray) -> npt.NDArray[Any]:
    """The vectors that product codes stand for: residuals, for dot the vectors themselves."""
    if model.kind.metric is Metric.DOT:
        return values
    nearest: npt.NDArray[Any] = model.centroids[partitions]
    difference: npt.NDArray[Any] = np.subtract(values, nearest, out=nearest if nearest.dtype == values.dtype else None)
    return difference


def scalar_codes(values: npt.NDArray[Any], start: float, end: float) -> npt.NDArray[np.uint8]:
    """A byte for each number: its step from `start` to `end`, rounded down."""
    codes = np.empty(values.shape, np.uint8)
    scale = _LEVELS / (end - start) if end > start else 0.0
    for first in range(0, len(values), _BLOCK_ROWS):
        steps = values[first : first + _BLOCK_ROWS] - values.dtype.type(start)
        steps *= values.dtype.type(scale)
        np.clip(steps, 0, _LEVELS, out=steps)
        codes[first : first + len(steps)] = steps
    return codes
