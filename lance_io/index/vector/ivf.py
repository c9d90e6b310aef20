"""IVF: vectors in partitions, each around a centroid (spec: indices, 6).

    index.idx      the centroids, and the kind of the index
    auxiliary.idx  the rows of each partition one after another: row number, and vector or code

A segment keeps in memory the centroids, the codebook, and which rows of the file each partition has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from lance_io.errors import FormatError, UnsupportedError
from lance_io.format.wire import parse_message
from lance_io.index.vector.distances import Metric, exact
from lance_io.index.vector.vector_codes import (
    ProductCodes,
    ScalarCodes,
    parse_json,
    read_codes,
    read_tensor,
    storage_of,
)
from lance_io.index.vector.vector_details import Coding
from lance_io.proto import index_pb2
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from lance_io.format.wire import Buffer
    from lance_io.index.vector.distances import Distances, FloatArray
    from lance_io.index.vector.vector_codes import Codes
    from lance_io.index.vector.vector_details import VectorDetails
    from lance_io.spans import IntArray

INDEX_FILE: Final = "index.idx"
ROWS_FILE: Final = "auxiliary.idx"
LAYOUT: Final = "lance:ivf"
STORAGE: Final = "storage_metadata"
_ABOUT: Final = "lance:index"
_ROW_ID: Final = "_rowid"
_COLUMNS: Final = {Coding.FLAT: "flat", Coding.PQ: "__pq_code", Coding.SQ: "__sq_code"}
_TYPES: Final = {kind: coding for coding in _COLUMNS for kind in (f"IVF_{coding.value}", f"IVF_HNSW_{coding.value}")}
_METRICS: Final = {metric.value: metric for metric in Metric}
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
    """

    kind: str
    metric: Metric
    coding: Coding
    codes: Codes | None
    centroids: npt.NDArray[Any]
    offsets: IntArray
    lengths: IntArray
    item: pa.DataType

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
    def columns(self) -> tuple[str, str]:
        """The columns of a partition."""
        return _ROW_ID, _COLUMNS[self.coding]

    @property
    def row_bytes(self) -> int:
        """Bytes of a stored row."""
        if self.codes is not None:
            return 8 + self.codes.width
        return 8 + int(self.centroids.shape[1]) * (int(self.item.bit_width) // 8)

    @property
    def can_cut(self) -> bool:
        """Whether a part of a partition can be read by itself."""
        return not (isinstance(self.codes, ProductCodes) and self.codes.transposed)

    def nearest(self, query: FloatArray) -> IntArray:
        """All partitions that have rows, those with the nearest centroids first.

        query  [dim], of unit length for cosine
        """
        metric = Metric.L2 if self.metric is Metric.COSINE else self.metric
        chosen = np.flatnonzero(self.lengths)
        if len(chosen) > _EXACT_CENTROIDS_MAX and metric is not Metric.HAMMING:
            chosen = chosen[np.argsort(_likely(metric, self.centroids[chosen], query), kind="stable")]
        near, far = chosen[:_EXACT_CENTROIDS_MAX], chosen[_EXACT_CENTROIDS_MAX:]
        order = np.argsort(exact(metric, self.centroids[near], query), kind="stable")
        return np.concatenate((near[order], far))

    def check_partition(self, rows: pa.Array, values: pa.Array) -> Partition:
        """Rows of a partition as they were read. Raises `FormatError` for nulls."""
        if rows.null_count or values.null_count or values.values.null_count:
            raise FormatError(f"a row of {ROWS_FILE} is null")
        numbers = np.frombuffer(rows.buffers()[1], np.uint64, len(rows), rows.offset * 8)
        if self.codes is None:
            return Partition(numbers, values, None)
        width = self.codes.width
        first = (values.offset * width) + values.values.offset
        stored = np.frombuffer(values.values.buffers()[1], np.uint8, len(rows) * width, first).reshape(-1, width)
        if isinstance(self.codes, ProductCodes):
            return Partition(numbers, None, self.codes.rows_of(stored))
        return Partition(numbers, None, stored)

    def distances(self, query: FloatArray, number: int, partition: Partition) -> Distances:
        """Distances of the coded rows of partition `number` from a query, of unit length for cosine."""
        codes, stored = self.codes, partition.codes
        assert codes is not None and stored is not None, "vectors as they are go to the flat search"
        if isinstance(codes, ScalarCodes):
            return codes.distances(self.metric, query, stored)
        return codes.distances(self.metric, query, self.centroids[number], stored)


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """Rows of a partition, or of a part of one.

    rows     u64[n], row numbers in the space of the index
    vectors  as they are, or None
    codes    product codes by column, scalar codes by row, or None
    """

    rows: npt.NDArray[np.uint64]
    vectors: pa.FixedSizeListArray | None
    codes: npt.NDArray[np.uint8] | None

    @property
    def nbytes(self) -> int:
        """Memory, in bytes."""
        values = self.vectors.nbytes if self.vectors is not None else 0
        return 256 + self.rows.nbytes + values + (0 if self.codes is None else self.codes.nbytes)


def _likely(metric: Metric, centroids: npt.NDArray[Any], query: FloatArray) -> FloatArray:
    """Distances that may have rounding errors, but for a constant."""
    products: FloatArray = centroids @ query
    if metric is Metric.DOT:
        return -products
    squares: FloatArray = np.einsum("ij,ij->i", centroids, centroids)
    return squares - 2 * products


def codebook_number(types: Mapping[str, pa.DataType], metadata: Mapping[str, str]) -> int | None:
    """The global buffer of the codebook; None for an index without one. Raises `FormatError`."""
    if _COLUMNS[Coding.PQ] not in types:
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
    name = _COLUMNS[coding]
    for column, dtype in ((_ROW_ID, pa.uint64()), (name, None)):
        stored = rows.types.get(column)
        if stored is None or (dtype is not None and stored != dtype):
            raise FormatError(f"{ROWS_FILE}: expected a column {column}, there is {stored or 'none'}")
    stored = rows.types[name]
    width, value = (dim, item) if codes is None else (codes.width, pa.uint8())
    if not (pa.types.is_fixed_size_list(stored) and stored.list_size == width and stored.value_type == value):
        raise FormatError(f"{ROWS_FILE}: expected {name} as lists of {width} {value}, there is {stored}")
    if coding is not Coding.FLAT and is_bytes:
        raise FormatError(f"{ROWS_FILE}: codes of vectors of bytes")
    return Ivf(kind, metric, coding, codes, centroids, offsets, lengths, item)


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
