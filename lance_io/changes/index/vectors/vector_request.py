"""The arguments of an IVF build, checked against the schema; names, defaults and errors are pylance's."""

from __future__ import annotations

import operator
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io.caller_text import utf8
from lance_io.changes.index.index_request import NoSuchKind, WrongColumnType, find_column, storage_type
from lance_io.changes.index.vectors.vector_settings import MAX_ROUNDS, SAMPLE_RATE, Training, VectorRequest
from lance_io.errors import UnsupportedError, UsageError
from lance_io.index.build.vectors.vector_models import CODEWORD_BITS, VectorKind, computing_type
from lance_io.index.vector.distances import Metric
from lance_io.index.vector.vector_details import Coding

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from lance_io.reads.version.state import DatasetState

BUILT: Final = {f"IVF_{coding.value}": coding for coding in (Coding.FLAT, Coding.PQ, Coding.SQ)}
_PEER: Final = ("IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_HNSW_FLAT", "IVF_HNSW_PQ", "IVF_HNSW_SQ", "IVF_RQ")
_METRICS: Final = {**{metric.value: metric for metric in Metric}, "euclidean": Metric.L2}
_ITEMS: Final = (pa.float16(), pa.float32(), pa.float64(), pa.uint8())
_U32_MAX: Final = (1 << 32) - 1
REFUSED: Final = {
    "accelerator": "this release trains on the processor only; leave it out",
    "ivf_centroids_file": "load the file with `numpy.load`, and pass its array as `ivf_centroids`",
    "precomputed_partition_dataset": "this release assigns partitions while it builds; leave it out",
    "rabitq_model": "this release builds no IVF_RQ index; use pylance, on the same table",
    "streaming_sample_rate": "the sample never exceeds `memory_limit`; leave it out",
    "streaming_coreset_rate": "the sample never exceeds `memory_limit`; leave it out",
    "streaming_refine_passes": "the sample never exceeds `memory_limit`; leave it out",
}
"""Arguments of pylance that are refused, and what to do instead."""


def vector_request(
    state: DatasetState, column: Any, index_type: Any, name: str | None, given: Mapping[str, Any]
) -> VectorRequest:
    """Check the arguments of a build.

    given  other arguments by name; those that pylance ignores are ignored

    Raises `ColumnNotFound`, `WrongColumnType`, `UnsupportedError` for what is not built here, and `UsageError`.
    """
    path, field, vectors = vector_column(state, column)
    num_parts = given.get("num_sub_vectors")
    if num_parts is not None and (num_parts < 1 or vectors.list_size % num_parts):
        raise UsageError(f"dimension ({vectors.list_size}) must be divisible by num_sub_vectors ({num_parts})")
    metric = checked_metric(given.get("metric", "L2"))
    coding = _coding_of(index_type)
    for argument, instead in REFUSED.items():
        if given.get(argument) is not None:
            raise UnsupportedError(f"{argument} is not offered by this release: {instead}")
    if given.get("index_cache_size") is not None:
        warnings.warn(
            "The 'index_cache_size' parameter of create_index is ignored. The index cache is sized on the dataset, via "
            "dataset(..., index_cache_size_bytes=...) or a Session.",
            DeprecationWarning,
            stacklevel=2,
        )
    kind = _checked_kind(coding, metric, num_parts, given, vectors)
    name = f"{path}_idx" if name is None else name
    utf8(name, "the name of an index")
    request = VectorRequest(path, field, name, vectors, kind, _training(given))
    return _with_models(request, given)


def vector_column(state: DatasetState, column: Any) -> tuple[str, Any, pa.FixedSizeListType]:
    """Path, field and storage type of a column of vectors."""
    if not isinstance(column, str):
        columns = [*column]
        if len(columns) != 1:
            raise UsageError(f"an index covers a single column, got {columns}")
        column = columns[0]
    path, field = find_column(state, column)
    dtype = storage_type(field.arrow_type)
    if (pa.types.is_list(dtype) or pa.types.is_large_list(dtype)) and pa.types.is_fixed_size_list(dtype.value_type):
        raise UnsupportedError(f"column {path} has lists of vectors: this release builds no index over these")
    if not pa.types.is_fixed_size_list(dtype):
        raise WrongColumnType(
            f"Vector column {path} must be FixedSizeListArray 1-dimensional FixedShapeTensorArray, got {dtype}"
        )
    if dtype.value_type not in _ITEMS:
        raise WrongColumnType(f"Vector column {path} must have floating value type, got {dtype.value_type}")
    return path, field, dtype


def checked_metric(metric: Any) -> Metric:
    """A metric by its name. Raises `UsageError` for any other value."""
    if not isinstance(metric, str) or metric.lower() not in _METRICS:
        raise UsageError(f"Metric {metric} not supported.")
    return _METRICS[metric.lower()]


def _coding_of(index_type: Any) -> Coding:
    name = str(getattr(index_type, "index_type", index_type)).upper()
    if name not in _PEER:
        raise NoSuchKind(f"Only {[*_PEER]} index types supported. Got {name}")
    if name not in BUILT:
        raise NoSuchKind(
            f"this release builds no {name} index, only {', '.join(BUILT)}; use pylance, on the same table"
        )
    return BUILT[name]


def is_vector_kind(index_type: Any) -> bool:
    """Whether a name is that of a kind of vector index."""
    return isinstance(index_type, str) and index_type.upper().startswith("IVF_")


def _checked_kind(
    coding: Coding, metric: Metric, num_parts: Any, given: Mapping[str, Any], vectors: pa.FixedSizeListType
) -> VectorKind:
    size = given.get("target_partition_size")
    size = None if size is None else _number("target_partition_size", size, 1)
    is_bytes = vectors.value_type == pa.uint8()
    if is_bytes != (metric is Metric.HAMMING) or (is_bytes and coding is not Coding.FLAT):
        raise UsageError(
            f"vectors of {vectors.value_type} have no IVF_{coding.value} index with the metric {metric}: hamming goes "
            "with IVF_FLAT and uint8, the other metrics with floats"
        )
    if coding is Coding.FLAT:
        return VectorKind(coding, metric, partition_rows=size)
    if coding is Coding.SQ:
        return VectorKind(coding, metric, partition_rows=size)
    if num_parts is None:
        raise UsageError("num_partitions and num_sub_vectors are required for IVF_PQ")
    bits = 8 if given.get("num_bits") is None else operator.index(given["num_bits"])
    if bits not in CODEWORD_BITS:
        raise UsageError(f"ProductQuantization: num_bits {bits} not supported, expected 4 or 8")
    if num_parts * bits % 8:
        raise UsageError(f"PQ: num_sub_vectors must be divisible by 2 for num_bits=4, but got {num_parts}")
    return VectorKind(coding, metric, num_parts, bits, size)


def _training(given: Mapping[str, Any]) -> Training:
    num_partitions = given.get("num_partitions")
    if isinstance(num_partitions, float):
        warnings.warn("num_partitions is float, converting to int", stacklevel=2)
        num_partitions = int(num_partitions)
    elif num_partitions is not None and not isinstance(num_partitions, int):
        raise TypeError(f"num_partitions must be int, got {type(num_partitions)}")
    if num_partitions is not None:
        num_partitions = _number("num_partitions", num_partitions, 1)
    sample_rate, max_rounds = given.get("sample_rate"), given.get("max_iters")
    return Training(
        num_partitions,
        SAMPLE_RATE if sample_rate is None else _number("sample_rate", sample_rate, 1),
        MAX_ROUNDS if max_rounds is None else _number("max_iters", max_rounds, 1),
        transposed=not given.get("skip_transpose", False),
    )


def _number(name: str, value: Any, least: int) -> int:
    number = operator.index(value)
    if number < 0:
        raise OverflowError("can't convert negative int to unsigned")
    if not least <= number <= _U32_MAX:
        raise UsageError(f"{name} must be from {least} to {_U32_MAX:,}, got {number}")
    return number


def _with_models(request: VectorRequest, given: Mapping[str, Any]) -> VectorRequest:
    """The request with the centroids and the codebook that are given."""
    centroids, codebook = given.get("ivf_centroids"), given.get("pq_codebook")
    if centroids is None and codebook is not None:
        raise UsageError("ivf_centroids must be specified when pq_codebook is provided")
    if centroids is None:
        return request
    matrix = given_centroids(centroids, request.vectors)
    wanted = request.training.num_partitions
    if wanted is not None and wanted != len(matrix):
        raise UsageError(f"Ivf centroids has {len(matrix)} clusters, but num_partitions={wanted}")
    training = replace(request.training, centroids=matrix)
    if codebook is not None and request.vector_kind.coding is Coding.PQ:
        training = replace(training, codebook=given_codebook(codebook, request.vector_kind, request.vectors))
    return replace(request, training=training)


def given_centroids(centroids: Any, vectors: pa.FixedSizeListType) -> npt.NDArray[Any]:
    """Centroids [partitions, dim] in the computing type."""
    matrix = _matrix(centroids, "Ivf centroids")
    if matrix.ndim != 2:
        raise UsageError(f"Ivf centroids must be 2D array: (clusters, dim), got {matrix.shape}")
    if not len(matrix):
        raise UsageError(f"Ivf centroids must have at least one cluster, got {matrix.shape}")
    if matrix.shape[1] != vectors.list_size:
        raise UsageError(
            f"Failed to cast centroids to vector type: they have {matrix.shape[1]} numbers, the vectors of the column "
            f"{vectors.list_size}"
        )
    return _converted(matrix, vectors, "Ivf centroids")


def given_codebook(codebook: Any, kind: VectorKind, vectors: pa.FixedSizeListType) -> npt.NDArray[Any]:
    """A codebook [parts, codewords, width] in the computing type."""
    values, num_words = _matrix(codebook, "PQ codebook"), 1 << kind.bits
    if isinstance(codebook, np.ndarray) and (values.ndim != 3 or values.shape[:2] != (kind.num_parts, num_words)):
        raise UsageError(
            f"PQ codebook must be 3D array: (sub_vectors, {num_words}, dim) for num_bits={kind.bits}, got "
            f"{values.shape}"
        )
    if values.size != num_words * vectors.list_size:
        raise UsageError(
            f"PQ codebook has {values.size} values, but the vector column requires {num_words * vectors.list_size} "
            f"({num_words} centroids x dimension {vectors.list_size} for num_bits {kind.bits})"
        )
    width = vectors.list_size // kind.num_parts
    return _converted(values.reshape(kind.num_parts, num_words, width), vectors, "PQ codebook")


def _matrix(values: Any, what: str) -> npt.NDArray[Any]:
    """Numbers from numpy or Arrow."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if isinstance(values, pa.FixedSizeListArray):
        flat = values.flatten()
        if values.null_count or flat.null_count:
            raise UsageError(f"{what} has nulls")
        matrix: npt.NDArray[Any] = flat.to_numpy(zero_copy_only=False).reshape(len(values), values.type.list_size)
        return matrix
    if isinstance(values, np.ndarray):
        return values
    raise TypeError(f"{what} must be a numpy array or an Arrow array of fixed-size lists, got {type(values)}")


def _converted(values: npt.NDArray[Any], vectors: pa.FixedSizeListType, what: str) -> npt.NDArray[Any]:
    dtype = computing_type(vectors.value_type)
    if (values.dtype.kind != "f" and dtype != np.uint8) or (dtype == np.uint8 and values.dtype != dtype):
        raise TypeError(f"{what} must be floating number, got {values.dtype}")
    if dtype != np.uint8 and not np.isfinite(values).all():
        raise UsageError(f"{what} has numbers that are not finite")
    return np.ascontiguousarray(values, dtype)
