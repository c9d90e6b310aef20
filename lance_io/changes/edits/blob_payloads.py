"""Blobs of moved rows: read as bytes, in batches of limited size.

The rows have descriptions of their blobs, with sizes. So no batch exceeds the caller's limit, except for a single row
whose blobs exceed it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_io.levels.arrays import values_of
from lance_io.reads.blobs.blob_values import wanted_binaries
from lance_io.reads.version.blob_fields import with_binaries
from lance_io.reads.version.column_lists import extract
from lance_io.reads.version.system_columns import ROW_ADDRESS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_io.format.schema import Field
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.column_lists import Projection
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray


class BlobPayloads:
    """Replaces blob descriptions in batches of a projection by the bytes of the blobs.

    batch_bytes  limit for the blobs of a batch
    """

    def __init__(self, state: DatasetState, projection: Projection, batch_bytes: int) -> None:
        self._state = state
        shown = {}
        outputs = []
        for output in projection.outputs:
            is_stored = not output.is_system and output.computed is None
            field = state.field_at(output.path) if is_stored else None
            if field is not None and field.describe_blobs() is not field:
                shown[output.name] = with_binaries(field, marked=True).to_arrow()
                output = replace(output, field=shown[output.name])
            outputs.append(output)
        self._shown = shown
        self._paths = [path for name in shown for path in _sized_paths(state.schema.find(name), (name,))]
        self._binaries = wanted_binaries(state, replace(projection, outputs=tuple(outputs))) if shown else None
        self._batch_bytes = batch_bytes

    def batches(self, batch: pa.RecordBatch) -> Iterator[Plan[pa.RecordBatch]]:
        """Plans that load the rows of a batch, part by part; the batch has `_rowaddr`."""
        if self._binaries is None:
            yield _ready(batch)
            return
        ends = np.cumsum(self._row_bytes(batch))
        start = 0
        while start < batch.num_rows:
            before = int(ends[start - 1]) if start else 0
            end = max(start + 1, int(np.searchsorted(ends, before + self._batch_bytes, side="right")))
            yield self._load(batch.slice(start, end - start))
            start = end

    def _row_bytes(self, batch: pa.RecordBatch) -> IntArray:
        row_bytes = np.zeros(batch.num_rows, np.int64)
        for path in self._paths:
            sizes = extract(extract(batch.column(path[0]), path[1:]), ("size",)).cast(pa.int64()).fill_null(0)
            row_bytes += values_of(sizes)
        return row_bytes

    def _load(self, part: pa.RecordBatch) -> Plan[pa.RecordBatch]:
        assert self._binaries is not None
        fragment_indexes = self._state.find_fragment_indexes(
            (values_of(part.column(ROW_ADDRESS)) >> np.uint64(32)).astype(np.int64)
        )
        cuts = [0, *(np.flatnonzero(fragment_indexes[1:] != fragment_indexes[:-1]) + 1).tolist(), len(fragment_indexes)]
        runs = [(int(fragment_indexes[start]), end - start) for start, end in pairwise(cuts)]
        columns = {name: part.column(name) for name in part.schema.names}
        yield from self._binaries.replace(columns, runs)
        fields = [self._shown.get(field.name, field).with_type(columns[field.name].type) for field in part.schema]
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=pa.schema(fields))


def _ready(batch: pa.RecordBatch) -> Plan[pa.RecordBatch]:
    yield from ()
    return batch


def _sized_paths(field: Field, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Paths of the blobs that a row has at most once (not in lists)."""
    if field.holds_blobs:
        yield path
    elif field.logical_type == "struct":
        for child in field.children:
            yield from _sized_paths(child, (*path, child.name))
