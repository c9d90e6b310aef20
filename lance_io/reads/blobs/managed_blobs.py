"""Which managed blobs versions refer to: only the descriptions in data files know (feature flag 16384).

Data files share payloads once a compaction has copied descriptions, so a cleanup has to look at them all. It reads the
columns of descriptions of each data file once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from lance_io.levels.lists import visible_items
from lance_io.reads.blobs.blob_values import MANAGED
from lance_io.reads.rows.read_rows import read_columns
from lance_io.reads.version.object_keys import branch_location

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from lance_io.format.schema import Field
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.manifest import Manifest


class ManagedBlobs:
    """Answers for versions of one table, on any of its branches; what was read of a data file is remembered."""

    def __init__(self, state: DatasetState) -> None:
        self._state = state
        self._known: dict[tuple[str, int | None, str | None, tuple[int, ...]], frozenset[str]] = {}

    def paths(self, manifest: Manifest) -> Plan[set[str]]:
        """The paths, below the folder of whoever manages them, of the objects that blobs of a version are in.

        Those of other tables, which a clone refers to, and of other branches are among them.
        """
        location = branch_location(self._state.root, manifest.branch)
        state = replace(self._state, location=location, manifest=manifest)
        ways = {way[-1].id: way for top in state.schema.fields for way in ways_to_blobs(top)}
        found: set[str] = set()
        for place, fragment in enumerate(manifest.fragments if ways else ()):
            for file in fragment.files:
                here = tuple(sorted(ways.keys() & {*file.fields}))
                key = (file.path, file.base_id, manifest.branch, here)
                if here and key not in self._known:
                    self._known[key] = yield from _named(state, [ways[one] for one in here], place)
                found |= self._known.get(key, frozenset())
        return found


def ways_to_blobs(field: Field, *above: Field, every_kind: bool = False) -> Iterator[tuple[Field, ...]]:
    """The fields from a top-level one down to each blob in it.

    every_kind  also those of the first kind, which is never managed
    """
    if field.is_blob_v2 or (every_kind and field.holds_blobs):
        yield (*above, field)
        return
    for child in field.children:
        yield from ways_to_blobs(child, *above, field, every_kind=every_kind)


def _named(state: DatasetState, ways: list[tuple[Field, ...]], place: int) -> Plan[frozenset[str]]:
    fields = state.pruned_fields([tuple(field.name for field in way) for way in ways])
    columns = yield from read_columns(state, fields, place)
    arrays = [(field, chunk) for field, column in zip(fields, columns, strict=True) for chunk in column.chunks]
    found = [blobs for field, array in arrays for blobs in descriptions_in(field, array)]
    return frozenset(path for blobs in found for path in _paths_in(blobs))


def _paths_in(descriptions: pa.StructArray) -> Iterator[str]:
    is_managed = pc.greater_equal(descriptions.field("kind"), MANAGED)
    yield from filter(None, pc.unique(descriptions.field("blob_uri").filter(is_managed)).to_pylist())


def descriptions_in(field: Field, array: pa.Array) -> Iterator[pa.StructArray]:
    """The descriptions of blobs in a column that has some, wherever they are in it."""
    if field.holds_blobs:
        yield array
        return
    if field.logical_type == "struct":
        for child in field.children:
            yield from descriptions_in(child, array.field(child.name))
        return
    items, _ = visible_items(array)
    for child in field.children:
        yield from descriptions_in(child, items)
