"""Which rows a predicate deletes, and what their fragments become (spec: table, section 4).

A deletion file lists all rows that a fragment ever lost, so the new ones are merged with those of the old file. A
fragment that loses its last row leaves the table.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lance_io.commit.steps import Put, Together
from lance_io.dataset import execute
from lance_io.dataset.loading import load_live
from lance_io.dataset.options import scan_options
from lance_io.dataset.system import ROW_ADDRESS
from lance_io.errors import UsageError
from lance_io.table.deletion import deletion_kind, encode_deletions
from lance_io.table.fragment import DeletionFile
from lance_io.table.paths import deletion_file_place

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_io.commit.steps import Plan
    from lance_io.dataset.options import ScanOptions
    from lance_io.dataset.state import DatasetState
    from lance_io.spans import IntArray
    from lance_io.store.api import Durability
    from lance_io.table.fragment import Fragment
    from lance_io.table.roaring import U32Array


@dataclass(frozen=True, slots=True, eq=False)
class Deletion:
    """What becomes of the fragments that lose rows.

    num_rows  rows that are deleted now
    updated   fragments with their new deletion files
    removed   ids of fragments that lose their last rows
    affected  offsets of the rows that are deleted now, by fragment id
    files     content of the new deletion files, by key
    """

    num_rows: int
    updated: list[Fragment] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    affected: dict[int, U32Array] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)

    def uploads(self, state: DatasetState, durability: Durability | None = None) -> list[Plan[Any]]:
        """Plans that write the files."""
        return [_put(state, key, data, durability) for key, data in self.files.items()]


def _put(state: DatasetState, key: str, data: bytes, durability: Durability | None) -> Plan[None]:
    yield Put(state.location.store, key, data, durability=durability)


def matching_rows(state: DatasetState, predicate: Any, fragment_ids: tuple[int, ...] | None = None) -> Plan[IntArray]:
    """Addresses of the rows that pass a filter, in the order of the table."""
    options = scan_options(columns=[], filter=predicate, with_row_address=True)
    if fragment_ids is not None:
        options = replace(options, fragments=fragment_ids)
    table: pa.Table = yield CollectScan(state, options)
    addresses: IntArray = table[ROW_ADDRESS].combine_chunks().to_numpy().astype(np.int64)
    return addresses


def deletion_of(state: DatasetState, addresses: IntArray) -> Plan[Deletion]:
    """What deleting rows that are there makes of their fragments; reads the old deletion files, writes nothing."""
    deletion = Deletion(len(addresses))
    ids = addresses >> 32
    bounds = np.flatnonzero(np.diff(ids)) + 1
    groups = [part for part in np.split(addresses, bounds) if len(part)]
    places = state.places_by_id([int(part[0]) >> 32 for part in groups])
    live = yield from load_live(state, places)
    for place, part in zip(places, groups, strict=True):
        fragment = state.manifest.fragments[place]
        offsets = part & 0xFFFFFFFF
        deletion.affected[fragment.id] = offsets.astype(np.uint32)
        before = live[place].deleted
        deleted = np.union1d(offsets, before) if before is not None and len(before) else np.sort(offsets)
        if len(deleted) == int(state.physical_rows[place]):
            deletion.removed.append(fragment.id)
        else:
            deletion.updated.append(_updated(state, fragment, deleted.astype(np.uint32), deletion.files))
    return deletion


def _updated(state: DatasetState, fragment: Fragment, deleted: U32Array, files: dict[str, bytes]) -> Fragment:
    kind = deletion_kind(len(deleted))
    file = DeletionFile(kind, state.manifest.version, secrets.randbits(64), len(deleted), None)
    place = deletion_file_place(fragment.id, file, state.manifest.base_paths)
    files[state.location.key(place.relative)] = encode_deletions(deleted, kind)
    return replace(fragment, deletion_file=file)


@dataclass(frozen=True, slots=True, eq=False)
class CollectScan:
    """An `Ask` for the result of a scan, as a table."""

    state: DatasetState
    options: ScanOptions

    def now(self) -> pa.Table:
        """See `Ask`."""
        return execute.collect(self.state, self.options, self._schema)

    async def later(self) -> pa.Table:
        """See `Ask`."""
        return await execute.collect_async(self.state, self.options, self._schema)

    @property
    def _schema(self) -> pa.Schema:
        from lance_io.dataset.scan import scan_projection

        return scan_projection(self.state, self.options).arrow_schema


# -- in one fragment, without a commit --------------------------------------------------------------------------------


def delete_from_fragment(state: DatasetState, place: int, predicate: Any) -> Plan[Fragment | None]:
    """Write the deletion file of a fragment without the rows that pass a filter; None when none would be left."""
    addresses = yield from matching_rows(state, predicate, (state.fragment_ids[place],))
    return (yield from _written(state, place, addresses))


def delete_offsets(state: DatasetState, place: int, offsets: IntArray) -> Plan[Fragment | None]:
    """The same for rows given by their physical offsets; those that are deleted already do not matter.

    Raises `UsageError` for an offset beyond the fragment.
    """
    num_rows = int(state.physical_rows[place])
    wanted = np.unique(offsets)
    if len(wanted) and not 0 <= int(wanted[0]) <= int(wanted[-1]) < num_rows:
        raise UsageError(f"fragment {state.fragment_ids[place]} has rows 0 to {num_rows - 1}")
    return (yield from _written(state, place, (state.fragment_ids[place] << 32) + wanted))


def _written(state: DatasetState, place: int, addresses: IntArray) -> Plan[Fragment | None]:
    deletion = yield from deletion_of(state, addresses)
    yield Together(deletion.uploads(state))
    if deletion.removed:
        return None
    return deletion.updated[0] if deletion.updated else state.manifest.fragments[place]
