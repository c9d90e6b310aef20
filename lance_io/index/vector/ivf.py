"""IVF: vectors in partitions, each around a centroid (spec: indices, 6).

    index.idx      the centroids, and the kind of the index
    auxiliary.idx  the rows of each partition one after another: row number, and vector or code

A segment keeps in memory the centroids, the codebook, and which rows of the file each partition has.
"""

from __future__ import annotations

from math import ceil, isqrt
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from lance_io.errors import FormatError, UnsupportedError
from lance_io.format.wire import parse_message
from lance_io.index.vector.distances import Metric, exact_of_many, exact_of_pairs
from lance_io.index.vector.rotated_codes import RotatedCodes
from lance_io.index.vector.storage_metadata import parse_json, storage_of
from lance_io.index.vector.vector_arrays import vector_rows
from lance_io.index.vector.vector_codes import ProductCodes, ScalarCodes, read_codes, read_tensor
from lance_io.index.vector.vector_details import Coding, mean_distance_of
from lance_io.proto import index_pb2
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from lance_io.format.wire import Buffer
    from lance_io.index.vector.distances import Distances, FloatArray, Pairs
    from lance_io.index.vector.vector_codes import Codes
    from lance_io.index.vector.vector_details import VectorDetails
    from lance_io.spans import IntArray

INDEX_FILE: Final = "index.idx"
ROWS_FILE: Final = "auxiliary.idx"
LAYOUT: Final = "lance:ivf"
STORAGE: Final = "storage_metadata"
_ABOUT: Final = "lance:index"
_ROW_ID: Final = "_rowid"
_VECTORS: Final = "flat"
_GRAPHS: Final = (Coding.FLAT, Coding.PQ, Coding.SQ)  # that an index with graphs may have
_TYPES: Final = {
    **{f"IVF_{coding.value}": coding for coding in Coding},
    **{f"IVF_HNSW_{coding.value}": coding for coding in _GRAPHS},
}
_METRICS: Final = {metric.value: metric for metric in Metric}
_NEAR: Final = 1.1  # times the distance of the nearest centroid: recall and bytes are those of pylance, or better
_SHARE: Final = 0.6  # of the root of the number of partitions
_EXACT_CENTROIDS_MAX: Final = 4096  # that are compared one by one; of more, a product chooses the likely ones first


class FileHead(NamedTuple):
    """A file of an index before its rows are read.

    metadata  of its schema
    buffer    the global buffer that `lance:ivf` names
    """

    num_rows: int
    types: Mapping[str, pa.DataType]
    metadata: Mapping[str, str]
    buffer: Buffer


@dataclass(frozen=True, slots=True, eq=False)
class Ivf:
    """A segment of an IVF index.

    kind       such as "IVF_PQ"
    metric     that it measures
    coding     how it stores vectors
    codes      of its vectors; None for vectors as they are
    centroids  [partitions, dim]
    offsets    i64[partitions], the first row of each partition in its file
    lengths    i64[partitions], its number of rows
    item       type of the numbers of a vector
    mean_distance  mean squared distance of its vectors from their centroids, if the file says it
    """

    kind: str
    metric: Metric
    coding: Coding
    codes: Codes | None
    centroids: npt.NDArray[Any]
    offsets: IntArray
    lengths: IntArray
    item: pa.DataType
    mean_distance: float | None = None

    @property
    def nbytes(self) -> int:
        """Memory, in bytes."""
        codebook = self.codes.codebook.nbytes if isinstance(self.codes, ProductCodes) else 0
        return 1024 + self.centroids.nbytes + self.offsets.nbytes + self.lengths.nbytes + codebook

    @property
    def num_partitions(self) -> int:
        """Number of partitions, empty ones included."""
        return len(self.lengths)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a partition."""
        return (_ROW_ID, _VECTORS) if self.codes is None else (_ROW_ID, *self.codes.columns)

    @property
    def row_bytes(self) -> int:
        """Bytes of a stored row."""
        if self.codes is not None:
            return 8 + self.codes.row_bytes
        return 8 + int(self.centroids.shape[1]) * (int(self.item.bit_width) // 8)

    @property
    def can_cut(self) -> bool:
        """Whether a part of a partition can be read by itself."""
        is_transposed = isinstance(self.codes, ProductCodes) and self.codes.transposed
        return not is_transposed and not isinstance(self.codes, RotatedCodes)

    def nearest(self, query: FloatArray) -> IntArray:
        """All partitions that have rows, those with the nearest centroids first.

        query  [dim], of unit length for cosine
        """
        metric = Metric.L2 if self.metric is Metric.COSINE else self.metric
        chosen = np.flatnonzero(self.lengths)
        if len(chosen) > _EXACT_CENTROIDS_MAX and metric is not Metric.HAMMING:
            chosen = chosen[np.argsort(_likely(metric, self.centroids[chosen], query), kind="stable")]
        near, far = chosen[:_EXACT_CENTROIDS_MAX], chosen[_EXACT_CENTROIDS_MAX:]
        near_centroids = self.centroids if len(near) == len(self.centroids) else self.centroids[near]
        order = np.argsort(exact_of_many(metric, [near_centroids], query), kind="stable")
        return np.concatenate((near[order], far))

    def num_likely(self, order: IntArray, query: FloatArray, k: int) -> int:
        """The partitions that likely have the k nearest rows, of those in the order of `nearest`.

        A neighbour lies in the partition of another centroid mainly where that is about as near as the nearest one:
        these are counted, between a quarter of the root of all partitions and the root; many rows need more.
        """
        root = isqrt(self.num_partitions)
        least = max(1, root // 4, 2 * isqrt(k))
        most = min(max(root, 2 * least), len(order))
        if self.metric not in (Metric.L2, Metric.COSINE):  # no ratio of such distances says what is near
            return max(least, ceil(_SHARE * root))
        if most <= least:
            return least
        squares = exact_of_many(Metric.L2, [self.centroids[order[:most]]], query)
        return max(least, int(np.count_nonzero(squares <= _NEAR**2 * squares[0])))

    def check_partition(self, rows: pa.Array, *stored: pa.Array) -> Partition:
        """Rows of a partition as they were read, in the order of `columns`. Raises `FormatError` for nulls."""
        for column in (rows, *stored):
            is_list = pa.types.is_fixed_size_list(column.type)
            if column.null_count or (is_list and column.values.null_count):
                raise FormatError(f"a row of {ROWS_FILE} is null")
        row_numbers = _plain_numbers(rows, np.uint64)
        codes = self.codes
        if codes is None:
            return Partition(row_numbers, vector_rows(stored[0]).matrix)
        bytes_of = [_bytes_of_lists(lists, width) for lists, width in zip(stored, codes.widths, strict=False)]
        if isinstance(codes, RotatedCodes):
            factors = np.stack([_plain_numbers(column, np.float32) for column in stored[len(bytes_of) :]])
            return Partition(row_numbers, codes.rows_of(bytes_of), factors)
        return Partition(row_numbers, codes.rows_of(bytes_of[0]) if isinstance(codes, ProductCodes) else bytes_of[0])

    def distances(
        self, queries: FloatArray, numbers: Sequence[int], partitions: Sequence[Partition], pairs: Pairs
    ) -> Distances:
        """Distances of the rows of some partitions from the queries that want them; NaN if undefined.

        queries  [m, dim], of unit length for cosine
        numbers  of the partitions
        """
        codes, stored = self.codes, [partition.values for partition in partitions]
        if codes is None:
            return exact_of_pairs(self.metric, stored, queries, pairs)
        if isinstance(codes, ScalarCodes):
            return codes.distances(self.metric, queries, stored, pairs)
        centroids = self.centroids[[*numbers]]
        if isinstance(codes, ProductCodes):
            return codes.distances(self.metric, queries, centroids, stored, pairs)
        rotated = [codes.rotate(query) for query in queries]
        out = np.empty(pairs.num_rows, np.float32)
        for at, number, start in pairs.triples.tolist():
            values, factors = partitions[at].values, partitions[at].factors
            assert factors is not None, "rotated codes have factors"
            out[start : start + len(values)] = codes.distances(
                self.metric, queries[number], rotated[number], centroids[at], values, factors
            )
        return out


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """Rows of a partition, or of a part of one.

    rows     u64[n], row numbers in the space of the index
    values   vectors [n, dim] as they are; product codes by column, other codes by row
    factors  of rotated codes, [2, n]
    """

    rows: npt.NDArray[np.uint64]
    values: npt.NDArray[Any]
    factors: npt.NDArray[np.float32] | None = None

    @property
    def nbytes(self) -> int:
        """Memory, in bytes."""
        factors = 0 if self.factors is None else self.factors.nbytes
        return 256 + self.rows.nbytes + self.values.nbytes + factors


def _plain_numbers(column: pa.Array, dtype: Any) -> npt.NDArray[Any]:
    """The numbers of a column without nulls, where they are."""
    return np.frombuffer(column.buffers()[1], dtype, len(column), column.offset * np.dtype(dtype).itemsize)


def _bytes_of_lists(column: pa.Array, width: int) -> npt.NDArray[np.uint8]:
    """The bytes of lists without nulls, [n, width], where they are."""
    first = column.offset * width + column.values.offset
    return np.frombuffer(column.values.buffers()[1], np.uint8, len(column) * width, first).reshape(-1, width)


def _likely(metric: Metric, centroids: npt.NDArray[Any], query: FloatArray) -> FloatArray:
    """Distances that may have rounding errors, but for a constant."""
    products: FloatArray = centroids @ query
    if metric is Metric.DOT:
        return -products
    squares: FloatArray = np.einsum("ij,ij->i", centroids, centroids)
    return squares - 2 * products


def codebook_number(types: Mapping[str, pa.DataType], metadata: Mapping[str, str]) -> int | None:
    """The global buffer of the codebook; None for an index without one. Raises `FormatError`."""
    if ProductCodes.columns[0] not in types:
        return None
    number = storage_of(metadata.get(STORAGE)).get("codebook_position")
    if not isinstance(number, int) or isinstance(number, bool) or not 0 < number < 1 << 31:
        raise FormatError(f"{STORAGE}: expected codebook_position to name a buffer, found {str(number)[:40]}")
    return number


def open_ivf(
    index: FileHead, rows: FileHead, codebook: Buffer | None, details: VectorDetails, dim: int, item: pa.DataType
) -> Ivf:
    """A segment from the heads of its files.

    dim, item  of the column's vectors
    Raises `FormatError` for a contradiction, `UnsupportedError` for a kind that this release does not search.
    """
    kind, metric, coding = _kind(index.metadata.get(_ABOUT), details)
    message = parse_message(index_pb2.Ivf, index.buffer, f"{LAYOUT} of {INDEX_FILE}")
    centroids = read_tensor(message.centroids, "centroids")
    is_bytes = centroids.dtype == np.uint8
    if centroids.shape[1] != dim or is_bytes != (item == pa.uint8()) or is_bytes != (metric is Metric.HAMMING):
        raise FormatError(
            f"centroids: {centroids.dtype} of {centroids.shape[1]} numbers with the metric {metric}, for vectors of "
            f"{dim} numbers of type {item}"
        )
    layout = parse_message(index_pb2.Ivf, rows.buffer, f"{LAYOUT} of {ROWS_FILE}")
    offsets, lengths = _row_ranges(layout, len(centroids), rows.num_rows)
    codes = read_codes(coding.value, rows.metadata.get(STORAGE), codebook, dim)
    _check_columns(rows.types, codes, dim, item)
    if coding is not Coding.FLAT and is_bytes:
        raise FormatError(f"{ROWS_FILE}: codes of vectors of bytes")
    mean_distance = mean_distance_of(index.metadata)
    return Ivf(kind, metric, coding, codes, centroids, offsets, lengths, item, mean_distance)


def _check_columns(types: Mapping[str, pa.DataType], codes: Codes | None, dim: int, item: pa.DataType) -> None:
    expected = {_ROW_ID: pa.uint64()}
    if codes is None:
        expected[_VECTORS] = pa.list_(item, dim)
    else:
        widths = [*codes.widths]
        for name in codes.columns:
            expected[name] = pa.list_(pa.uint8(), widths.pop(0)) if widths else pa.float32()
    for name, dtype in expected.items():
        stored = types.get(name)
        if stored is None or not _is_like(stored, dtype):
            raise FormatError(f"{ROWS_FILE}: expected a column {name} of {_shown(dtype)}, there is {stored or 'none'}")


def _is_like(stored: pa.DataType, expected: pa.DataType) -> bool:
    """Whether two types are the same but for names of items."""
    if not pa.types.is_fixed_size_list(expected):
        return bool(stored == expected)
    is_list = pa.types.is_fixed_size_list(stored) and stored.list_size == expected.list_size
    return bool(is_list and stored.value_type == expected.value_type)


def _shown(dtype: pa.DataType) -> str:
    is_list = pa.types.is_fixed_size_list(dtype)
    return f"lists of {dtype.list_size} {dtype.value_type}" if is_list else str(dtype)


def _kind(text: str | None, details: VectorDetails) -> tuple[str, Metric, Coding]:
    about = parse_json(text, _ABOUT)
    if not isinstance(about, dict):
        raise FormatError(f"{_ABOUT}: expected a JSON object in the metadata of {INDEX_FILE}")
    kind, metric_name = about.get("type"), about.get("distance_type")
    coding = _TYPES.get(str(kind))
    if coding is None:
        raise UnsupportedError(f"an index of type {str(kind)[:40]}")
    metric = _METRICS.get(str(metric_name))
    if metric is None:
        raise UnsupportedError(f"an index with the metric {str(metric_name)[:40]}")
    if (details.coding or coding) is not coding or (details.metric or metric) is not metric:
        raise FormatError(
            f"{INDEX_FILE}: {kind} with the metric {metric}; the manifest says {details.coding} and {details.metric}"
        )
    return str(kind), metric, coding


def _row_ranges(layout: index_pb2.Ivf, num_partitions: int, num_rows: int) -> tuple[IntArray, IntArray]:
    offsets = np.array(layout.offsets, dtype=np.uint64)
    lengths: IntArray = np.array(layout.lengths, dtype=np.int64)
    if len(offsets) != num_partitions or len(lengths) != num_partitions:
        raise FormatError(
            f"{ROWS_FILE}: {len(offsets)} offsets and {len(lengths)} lengths for {num_partitions} partitions"
        )
    if num_partitions and int(offsets.max()) > num_rows:
        raise FormatError(f"{ROWS_FILE}: a partition begins at row {int(offsets.max())} of {num_rows}")
    starts: IntArray = offsets.astype(np.int64)
    filled = np.flatnonzero(lengths)
    order = filled[np.argsort(starts[filled], kind="stable")]
    ends = starts[order] + lengths[order]
    if len(order) and (int(ends[-1]) > num_rows or (ends[:-1] > starts[order][1:]).any()):
        raise FormatError(f"{ROWS_FILE}: partitions overlap, or pass its {num_rows} rows")
    return starts, lengths
