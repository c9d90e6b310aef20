"""References of versions to managed blobs. Only the descriptions in data files contain them (feature flag 16384).

After a compaction has copied descriptions, data files share blobs, so a cleanup has to check all of them. It reads the
description columns of each data file once.
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
    """References of the versions of one table, on any of its branches; caches the result for each data file."""

    def __init__(self, state: DatasetState) -> None:
        self._state = state
        self._known: dict[tuple[str, int | None, str | None, tuple[int, ...]], frozenset[str]] = {}

    def paths(self, manifest: Manifest) -> Plan[set[str]]:
        """Paths of the objects that blobs of a version are in, below the folder that manages them.

        Includes objects of other tables, which a clone refers to, and of other branches.
        """
        location = branch_location(self._state.root, manifest.branch)
        state = replace(self._state, location=location, manifest=manifest)
        blob_paths = {path[-1].id: path for top in state.schema.fields for path in blob_field_paths(top)}
        paths: set[str] = set()
        for fragment_index, fragment in enumerate(manifest.fragments if blob_paths else ()):
            for file in fragment.files:
                here = tuple(sorted(blob_paths.keys() & {*file.fields}))
                key = (file.path, file.base_id, manifest.branch, here)
                if here and key not in self._known:
                    self._known[key] = yield from _named(
                        state, [blob_paths[field_id] for field_id in here], fragment_index
                    )
                paths |= self._known.get(key, frozenset())
        return paths


def blob_field_paths(field: Field, *above: Field, every_kind: bool = False) -> Iterator[tuple[Field, ...]]:
    """The fields from a top-level one down to each blob in it.

    every_kind  includes blobs of version 1, which are never managed
    """
    if field.is_blob_v2 or (every_kind and field.holds_blobs):
        yield (*above, field)
        return
    for child in field.children:
        yield from blob_field_paths(child, *above, field, every_kind=every_kind)


def _named(state: DatasetState, blob_paths: list[tuple[Field, ...]], fragment_index: int) -> Plan[frozenset[str]]:
    fields = state.pruned_fields([tuple(field.name for field in path) for path in blob_paths])
    columns = yield from read_columns(state, fields, fragment_index)
    arrays = [(field, chunk) for field, column in zip(fields, columns, strict=True) for chunk in column.chunks]
    descriptions = [blobs for field, array in arrays for blobs in descriptions_in(field, array)]
    return frozenset(path for blobs in descriptions for path in _paths_in(blobs))


def _paths_in(descriptions: pa.StructArray) -> Iterator[str]:
    is_managed = pc.greater_equal(descriptions.field("kind"), MANAGED)
    yield from filter(None, pc.unique(descriptions.field("blob_uri").filter(is_managed)).to_pylist())


def descriptions_in(field: Field, array: pa.Array) -> Iterator[pa.StructArray]:
    """The descriptions of blobs in a column, at any depth."""
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
