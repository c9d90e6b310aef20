"""Codes of vectors in the partitions of an index, and their distances from a query (spec: indices, 6.2 and 6.3).

    product codes  a codeword for each part of the residual `vector - centroid`, or of the vector itself for dot
    scalar codes   a byte for each number, from the range of the sampled numbers
    rotated codes  `rotated_codes`

Distances are float32, except that those of float64 codebooks are computed in float64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lance_io._kernels import scan_product_codes, scan_scalar_codes
from lance_io.errors import FormatError, UnsupportedError
from lance_io.format.wire import parse_message
from lance_io.index.vector.distances import Metric
from lance_io.index.vector.rotated_codes import RotatedCodes, read_rotated_codes
from lance_io.index.vector.storage_metadata import storage_of, whole
from lance_io.index.vector.vector_arrays import as_floats
from lance_io.proto import index_pb2
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from lance_io.format.wire import Buffer
    from lance_io.index.vector.distances import Distances, FloatArray, Pairs

_DTYPES: Final[Mapping[int, np.dtype[Any]]] = {
    0: np.dtype("<u2"),  # bfloat16
    1: np.dtype("<f2"),
    2: np.dtype("<f4"),
    3: np.dtype("<f8"),
    4: np.dtype("u1"),
}
_LEVELS: Final = 255  # steps of a scalar code


@dataclass(frozen=True, slots=True, eq=False)
class ProductCodes:
    """Product quantization.

    codebook    [parts, codewords, width]
    bits        8 or 4 of a code; two codes of 4 bits share a byte, the low half first
    transposed  whether the bytes of a partition are stored column by column
    """

    codebook: FloatArray
    bits: int
    transposed: bool

    columns = ("__pq_code",)

    @property
    def widths(self) -> tuple[int, ...]:
        """Bytes of a row in each column."""
        return (self.width,)

    @property
    def row_bytes(self) -> int:
        """Memory of a row, in bytes."""
        return self.width

    @property
    def width(self) -> int:
        """Bytes of a row."""
        return len(self.codebook) * self.bits // 8

    def rows_of(self, stored: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """The bytes of a partition [n, width] as columns [width, n]: one for each part, or for two of 4 bits."""
        if self.transposed:
            return stored.reshape(-1).reshape(self.width, len(stored))
        return np.ascontiguousarray(stored.T)

    def distances(
        self,
        metric: Metric,
        queries: FloatArray,
        centroids: FloatArray,
        pieces: Sequence[npt.NDArray[np.uint8]],
        pairs: Pairs,
    ) -> Distances:
        """Distances of the rows of some partitions from the queries that want them.

        queries    [m, dim], of unit length for cosine
        centroids  [pieces, dim], those of the partitions
        pieces     from `rows_of`
        """
        dtype, triples = self.codebook.dtype, pairs.triples
        is_dot = metric is Metric.DOT
        targets = queries if is_dot else queries[triples[:, 1]] - centroids[triples[:, 0]]
        if not is_dot:
            triples = triples.copy()
            triples[:, 1] = np.arange(len(triples))
        out = np.empty(pairs.num_rows, np.float32)
        scan_product_codes(
            np.ascontiguousarray(self.codebook),
            dtype.itemsize,
            self.codebook.shape,
            is_dot,
            np.ascontiguousarray(targets, dtype),
            [np.ascontiguousarray(columns) for columns in pieces],
            triples,
            out,
            pairs.threads,
        )
        return out


@dataclass(frozen=True, slots=True, eq=False)
class ScalarCodes:
    """Scalar quantization.

    dim         numbers of a vector
    start, end  the sampled range
    """

    dim: int
    start: float
    end: float

    columns = ("__sq_code",)

    @property
    def widths(self) -> tuple[int, ...]:
        """Bytes of a row in each column."""
        return (self.dim,)

    @property
    def row_bytes(self) -> int:
        """Memory of a row, in bytes."""
        return self.dim

    def distances(
        self, metric: Metric, queries: FloatArray, pieces: Sequence[npt.NDArray[np.uint8]], pairs: Pairs
    ) -> Distances:
        """Distances of rows [n, dim] of some partitions from the queries that want them, of unit length for cosine."""
        step = (self.end - self.start) / _LEVELS
        out = np.empty(pairs.num_rows, np.float32)
        codes, triples = [np.ascontiguousarray(piece) for piece in pieces], pairs.triples
        if metric is Metric.DOT:
            bases = 1 - self.start * queries.sum(axis=1, dtype=np.float64)
            wide = np.ascontiguousarray(queries, np.float32)
            scan_scalar_codes(wide, self.dim, True, -step, bases, codes, triples, out, pairs.threads)
            return out
        with np.errstate(all="ignore"):
            scaled = np.nan_to_num((queries.astype(np.float64) - self.start) / step if step else queries * 0.0)
        wanted = scaled.clip(0, _LEVELS).astype(np.uint8)  # truncated, as stored codes are
        zeros = np.zeros(len(queries))
        scan_scalar_codes(wanted, self.dim, False, step * step, zeros, codes, triples, out, pairs.threads)
        return out


Codes = ProductCodes | ScalarCodes | RotatedCodes


def read_codes(coding: str, text: str | None, codebook: Buffer | None, dim: int) -> Codes | None:
    """The codes that `storage_metadata` describes; None for vectors as they are.

    coding    "FLAT", "PQ", "SQ" or "RQ"
    codebook  of product codes: the buffer that `codebook_position` names
    Raises `FormatError` for a contradiction, `UnsupportedError` for codes that this release does not know.
    """
    if coding == "FLAT":
        return None
    about = storage_of(text)
    if coding == "RQ":
        return read_rotated_codes(about, dim)
    return _product_codes(about, codebook, dim) if coding == "PQ" else _scalar_codes(about, dim)


def read_tensor(data: Buffer | index_pb2.Tensor, what: str) -> npt.NDArray[Any]:
    """A tensor [rows, columns]; bfloat16 as float32, float16 too. Raises `FormatError` or `UnsupportedError`."""
    tensor = data if isinstance(data, index_pb2.Tensor) else parse_message(index_pb2.Tensor, data, what)
    dtype = _DTYPES.get(tensor.data_type)
    if dtype is None:
        raise UnsupportedError(f"{what}: numbers of type {tensor.data_type}")
    shape = [*tensor.shape]
    if len(shape) != 2 or shape[0] * shape[1] * dtype.itemsize != len(tensor.data):
        raise FormatError(f"{what}: {len(tensor.data)} bytes of {dtype} do not have the shape {shape[:4]}")
    values = np.frombuffer(tensor.data, dtype).reshape(shape)
    return values if dtype == np.uint8 else as_floats(values)


def _product_codes(about: Mapping[str, Any], codebook: Buffer | None, dim: int) -> ProductCodes:
    bits = whole(about, "nbits", 1, 64)
    if bits not in (4, 8):
        raise UnsupportedError(f"product codes of {bits} bits")
    whole(about, "dimension", dim, dim)
    parts = whole(about, "num_sub_vectors", 1, dim)
    transposed = about.get("transposed", False)
    if dim % parts or (parts * bits) % 8 or not isinstance(transposed, bool):
        raise FormatError(f"storage_metadata: {parts} parts of {bits} bits for vectors of {dim} numbers")
    if codebook is None:
        raise FormatError("storage_metadata: expected codebook_position to name a buffer")
    words = read_tensor(codebook, "codebook")
    if words.dtype == np.uint8 or words.size != dim << bits:
        raise FormatError(f"codebook: {words.size} numbers of type {words.dtype}, expected {dim << bits} floats")
    return ProductCodes(words.reshape(parts, 1 << bits, dim // parts), bits, transposed)


def _scalar_codes(about: Mapping[str, Any], dim: int) -> ScalarCodes:
    bits = whole(about, "num_bits", 1, 64)
    if bits != 8:
        raise UnsupportedError(f"scalar codes of {bits} bits")
    whole(about, "dim", dim, dim)
    bounds = about.get("bounds")
    ends: list[Any] = [bounds.get(key) for key in ("start", "end")] if isinstance(bounds, dict) else []
    if len(ends) != 2 or any(not isinstance(end, int | float) or not abs(end) < 1e300 for end in ends):
        raise FormatError(f"storage_metadata: expected bounds with start and end, found {str(bounds)[:80]}")
    start, end = (float(each) for each in ends)
    if not start <= end:
        raise FormatError(f"storage_metadata: bounds from {start} to {end} fall")
    return ScalarCodes(dim, start, end)
