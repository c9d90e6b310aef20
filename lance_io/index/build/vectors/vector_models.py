"""The learned part of an IVF index: what must be the same in all segments that share it (spec: indices, 6)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io.index.vector.vector_details import METRICS, Coding
from lance_io.proto import index_pb2, table_pb2
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_io.index.vector.distances import FloatArray, Metric

DETAILS_URL: Final = "/lance.index.pb.VectorIndexDetails"
VERSION: Final = 1
CODEWORD_BITS: Final = (4, 8)
_TENSOR_TYPES: Final = {np.dtype("<f2"): 1, np.dtype("<f4"): 2, np.dtype("<f8"): 3, np.dtype("u1"): 4}


@dataclass(frozen=True, slots=True)
class VectorKind:
    """The part of an index that its arguments decide.

    coding         how it stores vectors
    metric         that it measures
    num_parts      of a product code; 0 for other codings
    bits           of a code; 8 but for product codes of 4
    partition_rows  rows that a partition should have; None without a wish
    """

    coding: Coding
    metric: Metric
    num_parts: int = 0
    bits: int = 8
    partition_rows: int | None = None

    @property
    def name(self) -> str:
        """The type of the index."""
        return f"IVF_{self.coding.value}"

    def details(self) -> bytes:
        """The details message of a segment."""
        message = table_pb2.VectorIndexDetails(metric=METRICS.index(self.metric))
        if self.partition_rows is not None:
            message.target_partition_size = self.partition_rows
        match self.coding:
            case Coding.PQ:
                message.pq.num_bits, message.pq.num_sub_vectors = self.bits, self.num_parts
            case Coding.SQ:
                message.sq.num_bits = self.bits
            case _:
                message.flat.SetInParent()
        return message.SerializeToString()


@dataclass(frozen=True, slots=True, eq=False)
class VectorModel:
    """What was learned from a sample.

    kind        of the index
    item        type of the numbers of the column
    centroids   [partitions, dim]; float32 or float64, uint8 for hamming
    codebook    [parts, codewords, width] of product codes, else None
    bounds      range of the numbers, of scalar codes, else None
    transposed  whether the product codes of a partition are stored column by column
    distance    mean distance of the sample from the nearest centroid; None if it is not known
    """

    kind: VectorKind
    item: pa.DataType
    centroids: npt.NDArray[Any]
    codebook: FloatArray | None = None
    bounds: tuple[float, float] | None = None
    transposed: bool = True
    distance: float | None = None

    @property
    def dim(self) -> int:
        """Numbers of a vector."""
        return int(self.centroids.shape[1])

    @property
    def num_partitions(self) -> int:
        """Number of partitions."""
        return len(self.centroids)

    @property
    def stored_type(self) -> np.dtype[Any]:
        """The type of centroids and codewords in files: that of the column."""
        dtype: np.dtype[Any] = np.dtype(self.item.to_pandas_dtype())
        return dtype

    def centroid_message(self) -> bytes:
        """`lance:ivf` of `index.idx`: centroids, and partitions without rows."""
        zeros = [0] * self.num_partitions
        message = index_pb2.Ivf(offsets=zeros, lengths=zeros)
        message.centroids.CopyFrom(tensor(self.centroids.astype(self.stored_type)))
        return message.SerializeToString()

    def codebook_message(self) -> bytes:
        """The global buffer of the codebook."""
        assert self.codebook is not None, "a model of product codes"
        words = self.codebook.astype(self.stored_type)
        return tensor(words.reshape(words.shape[1], -1)).SerializeToString()

    def storage_text(self, codebook_number: int | None, *, transposed: bool) -> str:
        """`storage_metadata` of `auxiliary.idx`.

        codebook_number  of the global buffer
        """
        about: dict[str, Any]
        match self.kind.coding:
            case Coding.PQ:
                about = {
                    "codebook_position": codebook_number,
                    "nbits": self.kind.bits,
                    "num_sub_vectors": self.kind.num_parts,
                    "dimension": self.dim,
                    "codebook_tensor": [],
                    "transposed": transposed,
                }
            case Coding.SQ:
                assert self.bounds is not None, "a model of scalar codes"
                start, end = self.bounds
                about = {"dim": self.dim, "num_bits": 8, "bounds": {"start": start, "end": end}}
            case _:
                about = {"dim": self.dim}
        return json.dumps([json.dumps(about, separators=(",", ":"))])


def tensor(values: npt.NDArray[Any]) -> index_pb2.Tensor:
    """A matrix as its message."""
    shape: Sequence[int] = values.shape
    return index_pb2.Tensor(data_type=_TENSOR_TYPES[values.dtype], shape=shape, data=values.tobytes())


def computing_type(item: pa.DataType) -> np.dtype[Any]:
    """The type in which vectors of a column are compared."""
    if item == pa.uint8():
        return np.dtype(np.uint8)
    return np.dtype(np.float64 if item == pa.float64() else np.float32)
