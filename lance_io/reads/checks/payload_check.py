"""Check that blob files exist and are long enough. Reads descriptions, no bytes of blobs.

Sidecars and managed blobs are looked up in listings of their folders, one for each folder; data files one by one.
Objects outside of the table do not belong to the table and are not checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lance_io.errors import FormatError, NotFound
from lance_io.format.version import V0_1
from lance_io.plans.store_requests import Head, List
from lance_io.reads.blobs.blob_values import EXTERNAL, locate_in_file
from lance_io.reads.blobs.managed_blobs import blob_field_paths, descriptions_in
from lance_io.reads.rows.read_rows import read_columns

if TYPE_CHECKING:
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.object_keys import StoredObject
    from lance_io.reads.version.state import DatasetState
    from lance_io.store.api import ObjectMeta
    from lance_io.table.manifest.fragment import DataFile


class PayloadCheck:
    """Checks blobs of fragments of one version; caches listings."""

    def __init__(self, state: DatasetState) -> None:
        self._state = state
        self._listed: dict[tuple[str, str], dict[str, int]] = {}  # store and folder: sizes in bytes, by key
        self._blob_paths = {
            path[-1].id: path for top in state.schema.fields for path in blob_field_paths(top, every_kind=True)
        }

    def check(self, fragment_index: int) -> Plan[None]:
        """Raise `NotFound` for a missing blob file, `FormatError` for blobs that end beyond their file."""
        state, fragment = self._state, self._state.manifest.fragments[fragment_index]
        for file in fragment.files:
            blob_paths = [self._blob_paths[field_id] for field_id in sorted(self._blob_paths.keys() & {*file.fields})]
            if not blob_paths or file.version == V0_1:  # files of version 0.1 have bytes instead of descriptions
                continue
            fields = state.pruned_fields([tuple(field.name for field in path) for path in blob_paths])
            columns = yield from read_columns(state, fields, fragment_index)
            for field, column in zip(fields, columns, strict=True):
                for chunk in column.chunks:
                    for descriptions in descriptions_in(field, chunk):
                        yield from self._check_file(file, descriptions, f"fragment {fragment.id}")

    def _check_file(self, file: DataFile, descriptions: pa.StructArray, where: str) -> Plan[None]:
        data = self._state.object_keys.data_object(file)
        if descriptions.type.get_field_index("kind") >= 0:
            is_own = pc.fill_null(pc.not_equal(descriptions.field("kind"), pa.scalar(EXTERNAL, pa.uint8())), True)
            descriptions = descriptions.filter(is_own)
        located = yield from locate_in_file(self._state, data, descriptions, file.base_id)
        ends = np.where(located.sizes > 0, located.starts + located.sizes, 0)
        for number, stored_object in enumerate(located.objects):
            here = located.keys == number
            if not (end := int(ends[here].max(initial=0))):
                continue
            size = yield from self._size_bytes(stored_object, is_data=stored_object == data)
            if end > size:
                raise FormatError(
                    f"a blob ends at {end}, beyond the end of its file at {size}", path=stored_object.key, where=where
                )

    def _size_bytes(self, stored_object: StoredObject, *, is_data: bool) -> Plan[int]:
        if is_data:
            meta: ObjectMeta = yield Head(stored_object.store, stored_object.key)
            return meta.size_bytes
        folder = stored_object.key.rpartition("/")[0] + "/"
        known = self._listed.get((stored_object.store.identity, folder))
        if known is None:
            listed = yield List(stored_object.store, folder)
            known = self._listed[stored_object.store.identity, folder] = {meta.key: meta.size_bytes for meta in listed}
        if stored_object.key not in known:
            raise NotFound("the file does not exist, but a blob refers to it", path=stored_object.key)
        return known[stored_object.key]
