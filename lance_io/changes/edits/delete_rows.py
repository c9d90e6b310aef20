"""Which rows a predicate deletes, and what their fragments become (spec: table, section 4).

A deletion file lists all rows that a fragment ever lost, so the new ones are merged with those of the old file. A
fragment that loses its last row leaves the table.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io.changes.edits.row_progress import RowProgress
from lance_io.commit.commit_files import CommitFiles
from lance_io.errors import EvaluationError, OperationError, UsageError
from lance_io.io import trace_events
from lance_io.lazy_names import later
from lance_io.levels.arrays import values_of
from lance_io.plans.plan import Import, RollBackOnError, Together, ask
from lance_io.plans.streams import Each
from lance_io.reads.rows.deletions_and_ids import load_live
from lance_io.reads.scan.execute import scan_batches
from lance_io.reads.scan.scan_options import scan_options
from lance_io.reads.version.column_lists import COMPILER
from lance_io.reads.version.system_columns import ROW_ADDRESS
from lance_io.spans import distinct
from lance_io.table.manifest.deletion_file import deletion_kind, encode_deletions
from lance_io.table.manifest.fragment import DeletionFile
from lance_io.table.manifest.paths import deletion_file_place

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from lance_io import filters
    from lance_io.plans.plan import Plan
    from lance_io.reads.metadata.file_listing import Progress
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray
    from lance_io.table.manifest.fragment import Fragment
    from lance_io.table.manifest.roaring import U32Array

else:
    filters = later("lance_io.filters")

_ADDRESSES: Final = pa.schema([(ROW_ADDRESS, pa.uint64())])
_BATCH_ROWS: Final = 1 << 16  # of the scan for them


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

    def commit_files(self) -> CommitFiles:
        """The files for a commit, which writes them."""
        if trace_events.listeners:
            trace_events.tell_files("create", "deletion", self.files)
        return CommitFiles(self.files)


def matching_rows(
    state: DatasetState,
    predicate: Any,
    fragment_ids: tuple[int, ...] | None = None,
    progress: Progress | None = None,
) -> Plan[dict[int, U32Array]]:
    """Offsets of the rows that pass a filter, ascending, by fragment id.

    progress  is told how many are found
    Raises `TypeError` for None, `BindError` for a text with more than a condition, `OperationError` for a filter that
    cannot be computed for a row.
    """
    if predicate is None:  # a scan would give all rows, and they would be gone
        raise TypeError("predicate: expected SQL text or an expression, found None")
    if isinstance(predicate, str):
        yield Import(COMPILER)
        filters.check_change(predicate)
    options = scan_options(columns=[], filter=predicate, with_row_address=True, batch_size=_BATCH_ROWS)
    if fragment_ids is not None:
        options = replace(options, fragments=fragment_ids)
    found, told = Offsets(), RowProgress(progress, None)  # four bytes are kept of each row, batches go as they come

    def add(batch: pa.RecordBatch) -> None:
        found.add(batch)
        told.add(batch.num_rows)

    try:
        yield Each(scan_batches(state, options, _ADDRESSES), add)
    except EvaluationError as error:
        raise OperationError(error.message, path=state.location.uri) from error
    return found.by_fragment()


def deletion_of(state: DatasetState, rows: Mapping[int, U32Array]) -> Plan[Deletion]:
    """What deleting rows that are there makes of their fragments; reads the old deletion files, writes nothing.

    rows  offsets, ascending, by fragment id
    """
    deletion = Deletion(sum(len(offsets) for offsets in rows.values()), affected=dict(rows))
    places = state.places_by_id(list(rows))
    live = yield from load_live(state, places)
    for place, offsets in zip(places, rows.values(), strict=True):
        fragment = state.manifest.fragments[place]
        before = live[place].deleted
        deleted = _merge_offsets(offsets, before.astype(np.uint32)) if before is not None and len(before) else offsets
        if len(deleted) == int(state.physical_rows[place]):
            deletion.removed.append(fragment.id)
        else:
            deletion.updated.append(_update_fragment(state, fragment, deleted, deletion.files))
    return deletion


def _merge_offsets(offsets: U32Array, before: U32Array) -> U32Array:
    """Both, ascending, each once. `np.union1d` would hold three times as much."""
    merged = np.concatenate((offsets, before))
    merged.sort(kind="stable")  # two runs, which it merges
    return distinct(merged) if (merged[1:] == merged[:-1]).any() else merged


def _update_fragment(state: DatasetState, fragment: Fragment, deleted: U32Array, files: dict[str, bytes]) -> Fragment:
    kind = deletion_kind(len(deleted))
    file = DeletionFile(kind, state.manifest.version, secrets.randbits(64), len(deleted), None)
    place = deletion_file_place(fragment.id, file, state.manifest.base_paths)
    files[state.location.key(place.relative)] = encode_deletions(deleted, kind)
    return replace(fragment, deletion_file=file)


class Offsets:
    """Offsets of rows, of which four bytes are kept each."""

    def __init__(self) -> None:
        self._parts: dict[int, list[U32Array]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """The rows of a batch."""
        self.add_addresses(values_of(batch.column(ROW_ADDRESS)))

    def add_addresses(self, addresses: npt.NDArray[np.uint64]) -> None:
        """Rows by their addresses; those of a fragment stand together."""
        ids = addresses >> 32
        bounds = [0, *(np.flatnonzero(ids[1:] != ids[:-1]) + 1).tolist(), len(ids)]
        for start, end in pairwise(bounds):
            if start < end:
                self._parts.setdefault(int(ids[start]), []).append(addresses[start:end].astype(np.uint32))

    def by_fragment(self) -> dict[int, U32Array]:
        """All of them, ascending, by fragment id; those of the parts are given away."""
        return {fragment_id: _ascending(self._parts.pop(fragment_id)) for fragment_id in list(self._parts)}


def _ascending(parts: list[U32Array]) -> U32Array:
    offsets = np.concatenate(parts)
    if (offsets[1:] < offsets[:-1]).any():
        offsets.sort()
    return offsets


# -- in one fragment, without a commit --------------------------------------------------------------------------------


def delete_from_fragment(state: DatasetState, place: int, predicate: Any) -> Plan[Fragment | None]:
    """Write the deletion file of a fragment without the rows that pass a filter; None when none would be left."""
    rows = yield from matching_rows(state, predicate, (state.fragment_ids[place],))
    return (yield from _write_deletions(state, place, rows))


def delete_offsets(state: DatasetState, place: int, offsets: IntArray) -> Plan[Fragment | None]:
    """The same for rows given by their physical offsets; those that are deleted already do not matter.

    Raises `UsageError` for an offset beyond the fragment.
    """
    num_rows = int(state.physical_rows[place])
    wanted = distinct(offsets)
    if len(wanted) and not 0 <= int(wanted[0]) <= int(wanted[-1]) < num_rows:
        raise UsageError(f"fragment {state.fragment_ids[place]} has rows 0 to {num_rows - 1}")
    return (yield from _write_deletions(state, place, {state.fragment_ids[place]: wanted.astype(np.uint32)}))


def _write_deletions(state: DatasetState, place: int, rows: Mapping[int, U32Array]) -> Plan[Fragment | None]:
    deletion = yield from deletion_of(state, rows)
    files, store = deletion.commit_files(), state.location.store
    puts = Together(files.puts(store, files.contents))
    yield RollBackOnError(ask(puts), lambda _: files.roll_back(store))
    if deletion.removed:
        return None
    return deletion.updated[0] if deletion.updated else state.manifest.fragments[place]
