"""Locations of blobs, from which the writer copies their bytes into new data files without decoding.

in the data file, or a sidecar   copied by ranges, a few MiB at a time (`file/write/blob_pages.py`)
outside of the table, managed    not copied; a managed blob below a base path is then named with that base
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_io.errors import FormatError
from lance_io.file.take.blob_bytes import numbers_of
from lance_io.levels.arrays import booleans, mask_of, numbers, values_of
from lance_io.levels.blob_source import BLOB_SOURCE
from lance_io.levels.retype import concat
from lance_io.reads.blobs.blob_values import (
    BLOB_BYTES_MAX,
    EXTERNAL,
    MANAGED,
    MANAGED_IN_BASE,
    BlobBinaries,
    sidecar_key,
)
from lance_io.reads.rows.read_rows import ranges_of, read_bytes
from lance_io.reads.version.object_keys import StoredObject
from lance_io.reads.version.system_columns import ROW_ADDRESS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_io.format.schema import Field
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray


class BlobCopies(BlobBinaries):
    """Replaces blob descriptions in batches by locations of the bytes, and reads these."""

    def __init__(self, state: DatasetState) -> None:
        blobs = {path: field_id for field in state.schema.fields for path, field_id in _blob_field_paths(field, ())}
        super().__init__(state, blobs)
        self._objects: dict[StoredObject, int] = {}

    def locate(self, batch: pa.RecordBatch) -> Plan[pa.RecordBatch]:
        """Replace the blobs of a batch by their locations, and drop the row addresses. The rows have one fragment.

        Forgets earlier locations.
        """
        self._objects.clear()
        fragment_id = int(values_of(batch.column(ROW_ADDRESS))[0]) >> 32
        columns = {name: batch.column(name) for name in batch.schema.names if name != ROW_ADDRESS}
        yield from self.replace(columns, [(self._state.fragment_index_by_id[fragment_id], batch.num_rows)])
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))

    def read(self, source: int, starts: IntArray, lengths: IntArray) -> Plan[Sequence[memoryview]]:
        """Read ranges of an object, given by its number; see `PayloadReader`."""
        stored = list(self._objects)[source]
        fetched = yield from read_bytes(self._state.context_of(stored.store), stored.key, ranges_of(starts, lengths))
        return [memoryview(fetched.piece(number, length)) for number, length in enumerate(lengths.tolist())]

    def _bytes(self, descriptions: pa.StructArray, field_id: int, runs: list[tuple[int, int]]) -> Plan[pa.Array]:
        yield from ()  # a plan without requests
        pieces = []
        start = 0
        for fragment_index, count in runs:
            pieces.append(self._sources(fragment_index, field_id, descriptions.slice(start, count)))
            start += count
        return concat(pieces) if pieces else pa.nulls(0, BLOB_SOURCE)

    def _sources(self, fragment_index: int, field_id: int, descriptions: pa.StructArray) -> pa.StructArray:
        """Locations of the blobs of one fragment. Raises `FormatError` for impossible positions."""
        file = self._state.manifest.fragments[fragment_index].file_of(field_id)
        if file is None:
            return pa.nulls(len(descriptions), BLOB_SOURCE)
        here = self._state.object_keys.data_object(file)
        valid = mask_of(descriptions.is_valid())
        starts, sizes = numbers_of(descriptions, "position", valid), numbers_of(descriptions, "size", valid)
        if len(sizes) and (int(starts.max()) > BLOB_BYTES_MAX << 8 or int(sizes.max()) > BLOB_BYTES_MAX):
            raise FormatError("a blob's description names a position or size beyond any file", path=here.key)
        kinds = ids = np.zeros(len(sizes), np.int64)
        uris = pa.nulls(len(sizes), pa.string())
        if descriptions.type.get_field_index("kind") >= 0:
            kinds, ids = numbers_of(descriptions, "kind", valid), numbers_of(descriptions, "blob_id", valid)
            uris = descriptions.field("blob_uri")
        if len(kinds) and int(kinds.max()) > MANAGED_IN_BASE:
            raise FormatError(f"blob kind {int(kinds.max())}; known are 0 to {MANAGED_IN_BASE}", path=here.key)
        sources = np.full(len(sizes), -1, np.int32)
        moved = np.flatnonzero(valid & (kinds < EXTERNAL))
        sidecar_ids = ids[moved] * (kinds[moved] > 0)  # 0 for the data file itself
        for sidecar_id in np.unique(sidecar_ids).tolist():
            key = here.key if sidecar_id == 0 else sidecar_key(here.key, sidecar_id)
            number = self._objects.setdefault(StoredObject(here.store, key), len(self._objects))
            sources[moved[sidecar_ids == sidecar_id]] = number
        if file.base_id is not None:
            ids = np.where(kinds == MANAGED, file.base_id, ids)
            kinds = np.where(kinds == MANAGED, MANAGED_IN_BASE, kinds)
        positions = numbers(starts.astype(np.uint64))
        members = [numbers(sources), positions, numbers(kinds.astype(np.uint8)), positions]
        members += [numbers(sizes.astype(np.uint64)), numbers(ids.astype(np.uint32)), uris]
        mask = None if valid.all() else booleans(~valid)
        return pa.StructArray.from_arrays(members, fields=list(BLOB_SOURCE), mask=mask)


def _blob_field_paths(field: Field, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Paths from a top-level field to each of its blob fields, with the ids of these."""
    path = (*above, field.name)
    if field.holds_blobs:
        yield path, field.id
        return
    for child in field.children:
        yield from _blob_field_paths(child, path)
