"""The files of a segment of an IVF index (spec: indices, 6.1 and 6.2)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lance_io.index.build.index_file import NamedBuffer, NewIndexFile
from lance_io.index.build.vectors.clustering import Partitioner
from lance_io.index.build.vectors.coded_vectors import RowBytes
from lance_io.index.build.vectors.partition_runs import PartitionRuns
from lance_io.index.build.vectors.usable_vectors import usable_vectors
from lance_io.index.vector.ivf import INDEX_FILE, LAYOUT, ROWS_FILE, STORAGE
from lance_io.index.vector.vector_details import MEAN_DISTANCE
from lance_io.levels.arrays import numbers
from lance_io.proto import index_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

    from lance_io.index.build.index_file import BufferText, RowArray
    from lance_io.index.build.vectors.partition_runs import ByteStore, Group
    from lance_io.index.build.vectors.vector_models import VectorModel

_ROW_ID: Final = pa.field("_rowid", pa.uint64())
_MARKER: Final = pa.schema([pa.field("__flat_marker", pa.uint64(), nullable=False)])
_TRANSPOSED_SHARE: Final = 4  # of the limit, for the codes of one partition


class IvfBuilder:
    """Builds a segment.

    model        centroids and codes
    store        takes rows that do not fit into memory
    limit_bytes  of memory
    """

    def __init__(self, model: VectorModel, store: ByteStore, limit_bytes: int) -> None:
        self._model = model
        self._bytes = RowBytes(model)
        self._partitioner = Partitioner.of(model.kind.metric, model.centroids)
        self._limit_bytes = limit_bytes
        self._runs = PartitionRuns(store, model.num_partitions, self._bytes.width, limit_bytes)
        self._distance: float | None = 0.0  # the sum over all rows; None if that of some is not known

    def add(self, values: pa.Array, rows: RowArray) -> None:
        """See `IndexBuilder`."""
        vectors = usable_vectors(values, self._model.kind.metric)
        if vectors.kept is not None:
            rows = rows[vectors.kept]
        partitions, distances = self._partitioner.of_vectors(vectors.values)
        if self._distance is not None:
            self._distance += float(distances.sum(dtype=np.float64))
        self._runs.add(partitions, rows, self._bytes.of(vectors, partitions))

    def add_coded(
        self, partition: int, rows: RowArray, codes: npt.NDArray[np.uint8], mean_distance: float | None
    ) -> None:
        """Take rows of a partition that the model has coded before.

        codes          [n, width]
        mean_distance  of the vectors of their segment; None if it is not known
        """
        known = None if mean_distance is None else mean_distance * len(rows)
        self._distance = None if self._distance is None or known is None else self._distance + known
        self._runs.add(np.full(len(rows), partition, np.int64), rows, codes)

    def files(self) -> Iterator[NewIndexFile]:
        """See `IndexBuilder`."""
        model, lengths = self._model, self._runs.lengths
        largest = int(lengths.max(initial=0)) * (self._bytes.width + 8)
        transposed = model.codebook is not None and model.transposed
        transposed = transposed and largest <= self._limit_bytes // _TRANSPOSED_SHARE
        schema = pa.schema([_ROW_ID, self._bytes.field()])
        batches = self._batches(schema, transposed=transposed)
        yield NewIndexFile(ROWS_FILE, schema, batches, lambda: self._rows_metadata(transposed=transposed))
        yield NewIndexFile(INDEX_FILE, _MARKER, iter(()), self._index_metadata)

    def close(self) -> None:
        """See `IndexBuilder`."""
        self._runs.close()

    def _batches(self, schema: pa.Schema, *, transposed: bool) -> Iterator[pa.RecordBatch]:
        for group in self._runs.groups(whole=transposed):
            codes = _by_column(group) if transposed else group.codes
            column = _lists(codes, schema.field(1).type)
            yield pa.RecordBatch.from_arrays([numbers(group.rows), column], schema=schema)

    def _rows_metadata(self, *, transposed: bool) -> Mapping[str, BufferText]:
        model, lengths = self._model, self._runs.lengths
        layout = index_pb2.Ivf(offsets=(np.cumsum(lengths) - lengths).tolist(), lengths=lengths.tolist())
        storage: BufferText = model.storage_text(None, transposed=transposed)
        if model.codebook is not None:
            storage = NamedBuffer(
                model.codebook_message(), lambda number: model.storage_text(number, transposed=transposed)
            )
        return {LAYOUT: layout.SerializeToString(), STORAGE: storage, "distance_type": model.kind.metric.value}

    def _index_metadata(self) -> Mapping[str, BufferText]:
        kind, num_rows = self._model.kind, int(self._runs.lengths.sum())
        about = {"type": kind.name, "distance_type": kind.metric.value}
        metadata: dict[str, BufferText] = {
            "lance:index": json.dumps(about, separators=(",", ":")),
            LAYOUT: self._model.centroid_message(),
            "lance:flat": json.dumps([""] * self._model.num_partitions, separators=(",", ":")),
        }
        if self._distance is not None:
            # Some products differ in their last bits with the place of a row in its block: the digits behind these
            # would depend on memory and processor.
            metadata[MEAN_DISTANCE] = f"{self._distance / max(1, num_rows):.6g}"
        return metadata


def _by_column(group: Group) -> npt.NDArray[np.uint8]:
    """The codes of each partition column by column, in as many bytes a row."""
    out = np.empty_like(group.codes)
    start = 0
    for count in group.counts.tolist():
        end = start + count
        out[start:end] = np.ascontiguousarray(group.codes[start:end].T).reshape(count, out.shape[1])
        start = end
    return out


def _lists(codes: npt.NDArray[np.uint8], dtype: pa.FixedSizeListType) -> pa.FixedSizeListArray:
    flat = np.ascontiguousarray(codes)
    item = dtype.value_type
    values = pa.Array.from_buffers(item, len(codes) * dtype.list_size, [None, pa.py_buffer(flat)])
    return pa.FixedSizeListArray.from_arrays(values, type=dtype)
