"""Whether the files that blobs lie in are there, and long enough: descriptions are read, bytes are not.

Sidecars and managed blobs are looked up in listings of their folders, each listed once, and data files one by one.
Objects outside of the table are not the table's, and are not looked at.
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
from lance_io.reads.blobs.managed_blobs import descriptions_in, ways_to_blobs
from lance_io.reads.rows.read_rows import read_columns

if TYPE_CHECKING:
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.object_keys import StoredObject
    from lance_io.reads.version.state import DatasetState
    from lance_io.store.api import ObjectMeta
    from lance_io.table.manifest.fragment import DataFile


class PayloadCheck:
    """Checks blobs of fragments of one version; what was listed is remembered."""

    def __init__(self, state: DatasetState) -> None:
        self._state = state
        self._listed: dict[tuple[str, str], dict[str, int]] = {}  # store and folder: sizes in bytes, by key
        self._ways = {way[-1].id: way for top in state.schema.fields for way in ways_to_blobs(top, every_kind=True)}

    def check(self, place: int) -> Plan[None]:
        """Raise `NotFound` for a file of blobs that is not there, `FormatError` for blobs that reach beyond theirs."""
        state, fragment = self._state, self._state.manifest.fragments[place]
        for file in fragment.files:
            ways = [self._ways[one] for one in sorted(self._ways.keys() & {*file.fields})]
            if not ways or file.version == V0_1:  # which has bytes in the place of descriptions
                continue
            fields = state.pruned_fields([tuple(field.name for field in way) for way in ways])
            columns = yield from read_columns(state, fields, place)
            for field, column in zip(fields, columns, strict=True):
                for chunk in column.chunks:
                    for descriptions in descriptions_in(field, chunk):
                        yield from self._check_file(file, descriptions, f"fragment {fragment.id}")

    def _check_file(self, file: DataFile, descriptions: pa.StructArray, where: str) -> Plan[None]:
        data = self._state.places.data_object(file)
        if descriptions.type.get_field_index("kind") >= 0:
            is_own = pc.fill_null(pc.not_equal(descriptions.field("kind"), pa.scalar(EXTERNAL, pa.uint8())), True)
            descriptions = descriptions.filter(is_own)
        located = yield from locate_in_file(self._state, data, descriptions, file.base_id)
        ends = np.where(located.sizes > 0, located.starts + located.sizes, 0)
        for number, place in enumerate(located.objects):
            here = located.keys == number
            if not (end := int(ends[here].max(initial=0))):
                continue
            size = yield from self._size_bytes(place, is_data=place == data)
            if end > size:
                raise FormatError(
                    f"a blob ends at {end}, behind the end of its file at {size}", path=place.key, where=where
                )

    def _size_bytes(self, place: StoredObject, *, is_data: bool) -> Plan[int]:
        if is_data:
            meta: ObjectMeta = yield Head(place.store, place.key)
            return meta.size_bytes
        folder = place.key.rpartition("/")[0] + "/"
        known = self._listed.get((place.store.identity, folder))
        if known is None:
            found = yield List(place.store, folder)
            known = self._listed[place.store.identity, folder] = {meta.key: meta.size_bytes for meta in found}
        if place.key not in known:
            raise NotFound("there is no such file, but a blob is said to be in it", path=place.key)
        return known[place.key]
