"""Blobs on their way into new data files: where each is, so that the writer copies its bytes and decodes nothing.

in the data file, or a sidecar   copied by ranges, a few MiB at a time (`file/write/blob_pages.py`)
outside of the table, managed    stays where it is; what is managed below a base path is named with that base now
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_io.errors import FormatError
from lance_io.file.take.blob_bytes import numbers_of
from lance_io.levels.arrays import values_of
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
    """Makes batches whose blobs are descriptions into ones that say where the bytes are, and reads these."""

    def __init__(self, state: DatasetState) -> None:
        blobs = {path: field_id for field in state.schema.fields for path, field_id in _ways_to_blobs(field, ())}
        super().__init__(state, blobs)
        self._objects: dict[StoredObject, int] = {}

    def locate(self, batch: pa.RecordBatch) -> Plan[pa.RecordBatch]:
        """A batch of rows of one fragment, with their addresses, as one without these and with places of blobs.

        What was located before is forgotten.
        """
        self._objects.clear()
        fragment_id = int(values_of(batch.column(ROW_ADDRESS))[0]) >> 32
        columns = {name: batch.column(name) for name in batch.schema.names if name != ROW_ADDRESS}
        yield from self.replace(columns, [(self._state.place_by_id[fragment_id], batch.num_rows)])
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))

    def read(self, source: int, starts: IntArray, lengths: IntArray) -> Plan[Sequence[memoryview]]:
        """Ranges of an object, by its number; see `PayloadReader`."""
        place = list(self._objects)[source]
        fetched = yield from read_bytes(self._state.context_of(place.store), place.key, ranges_of(starts, lengths))
        return [memoryview(fetched.piece(number, length)) for number, length in enumerate(lengths.tolist())]

    def _bytes(self, descriptions: pa.StructArray, field_id: int, runs: list[tuple[int, int]]) -> Plan[pa.Array]:
        yield from ()  # nothing is asked for
        pieces = []
        start = 0
        for place, count in runs:
            pieces.append(self._sources(place, field_id, descriptions.slice(start, count)))
            start += count
        return concat(pieces) if pieces else pa.nulls(0, BLOB_SOURCE)

    def _sources(self, place: int, field_id: int, descriptions: pa.StructArray) -> pa.StructArray:
        """Where the blobs of one fragment are. Raises `FormatError` for positions that cannot be."""
        file = self._state.manifest.fragments[place].file_of(field_id)
        if file is None:
            return pa.nulls(len(descriptions), BLOB_SOURCE)
        here = self._state.places.data_object(file)
        valid = np.asarray(descriptions.is_valid())
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
        for one in np.unique(ids[moved] * (kinds[moved] > 0)).tolist():
            key = here.key if one == 0 else sidecar_key(here.key, one)
            number = self._objects.setdefault(StoredObject(here.store, key), len(self._objects))
            sources[moved[(ids[moved] * (kinds[moved] > 0)) == one]] = number
        if file.base_id is not None:
            ids = np.where(kinds == MANAGED, file.base_id, ids)
            kinds = np.where(kinds == MANAGED, MANAGED_IN_BASE, kinds)
        members = [sources, starts.astype(np.uint64), kinds.astype(np.uint8), starts.astype(np.uint64)]
        members += [sizes.astype(np.uint64), ids.astype(np.uint32)]
        mask = None if valid.all() else pa.array(~valid)
        return pa.StructArray.from_arrays([*map(pa.array, members), uris], fields=list(BLOB_SOURCE), mask=mask)


def _ways_to_blobs(field: Field, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Names from a top-level field down to each blob in it, and the id of that."""
    path = (*above, field.name)
    if field.holds_blobs:
        yield path, field.id
        return
    for child in field.children:
        yield from _ways_to_blobs(child, path)
