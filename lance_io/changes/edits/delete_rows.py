"""Deletes: the rows that a predicate selects, and the new deletion files of their fragments (spec: table, section 4).

A deletion file lists all deleted rows of a fragment, so new offsets are merged with those of the old file. A fragment
that loses its last row is removed from the table.
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
from lance_io.lazy_names import lazy_module
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
from lance_io.table.manifest.paths import deletion_file_location

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from lance_io import filters
    from lance_io.codecs.roaring import U32Array
    from lance_io.plans.plan import Plan
    from lance_io.reads.metadata.file_listing import Progress
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray
    from lance_io.table.manifest.fragment import Fragment

else:
    filters = lazy_module("lance_io.filters")

_ADDRESSES: Final = pa.schema([(ROW_ADDRESS, pa.uint64())])
_BATCH_ROWS: Final = 1 << 16  # of a batch of the scan


@dataclass(frozen=True, slots=True, eq=False)
class Deletion:
    """A deletion of rows.

    num_rows  number of newly deleted rows
    updated   fragments with their new deletion files
    removed   ids of fragments that lose their last row
    affected  offsets of the newly deleted rows, by fragment id
    files     content of the new deletion files, by key
    """

    num_rows: int
    updated: list[Fragment] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    affected: dict[int, U32Array] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)

    def commit_files(self) -> CommitFiles:
        """The deletion files, for the commit that writes them."""
        if trace_events.listeners:
            trace_events.emit_files("create", "deletion", self.files)
        return CommitFiles(self.files)


def matching_rows(
    state: DatasetState,
    predicate: Any,
    fragment_ids: tuple[int, ...] | None = None,
    progress: Progress | None = None,
) -> Plan[dict[int, U32Array]]:
    """Offsets of the rows that pass a filter, ascending, by fragment id.

    progress  called with the number of matching rows
    Raises `TypeError` for None, `BindError` for SQL with more than a condition, `OperationError` for a filter that
    fails for a row.
    """
    if predicate is None:  # a scan would return all rows, and delete them
        raise TypeError("predicate: expected SQL text or an expression, found None")
    if isinstance(predicate, str):
        yield Import(COMPILER)
        filters.check_change(predicate)
    options = scan_options(columns=[], filter=predicate, with_row_address=True, batch_size=_BATCH_ROWS)
    if fragment_ids is not None:
        options = replace(options, fragments=fragment_ids)
    matches, row_progress = Offsets(), RowProgress(progress, None)  # keeps four bytes of each row, no batches

    def add(batch: pa.RecordBatch) -> None:
        matches.add(batch)
        row_progress.add(batch.num_rows)

    try:
        yield Each(scan_batches(state, options, _ADDRESSES), add)
    except EvaluationError as error:
        raise OperationError(error.message, path=state.location.uri) from error
    return matches.by_fragment()


def deletion_of(state: DatasetState, rows: Mapping[int, U32Array]) -> Plan[Deletion]:
    """Compute the deletion of live rows; reads the old deletion files, writes nothing.

    rows  offsets, ascending, by fragment id
    """
    deletion = Deletion(sum(len(offsets) for offsets in rows.values()), affected=dict(rows))
    fragment_indexes = state.fragment_indexes_of(list(rows))
    live = yield from load_live(state, fragment_indexes)
    for fragment_index, offsets in zip(fragment_indexes, rows.values(), strict=True):
        fragment = state.manifest.fragments[fragment_index]
        before = live[fragment_index].deleted
        deleted = _merge_offsets(offsets, before.astype(np.uint32)) if before is not None and len(before) else offsets
        if len(deleted) == int(state.physical_rows[fragment_index]):
            deletion.removed.append(fragment.id)
        else:
            deletion.updated.append(updated_fragment(state, fragment, deleted, deletion.files))
    return deletion


def _merge_offsets(offsets: U32Array, before: U32Array) -> U32Array:
    """Sorted union of both. `np.union1d` would need three times the memory."""
    merged = np.concatenate((offsets, before))
    merged.sort(kind="stable")  # merges two sorted runs
    return distinct(merged) if (merged[1:] == merged[:-1]).any() else merged


def updated_fragment(state: DatasetState, fragment: Fragment, deleted: U32Array, files: dict[str, bytes]) -> Fragment:
    """The fragment with a deletion file of these rows, which goes into `files`."""
    kind = deletion_kind(len(deleted))
    file = DeletionFile(kind, state.manifest.version, secrets.randbits(64), len(deleted), None)
    location = deletion_file_location(fragment.id, file, state.manifest.base_paths)
    files[state.location.key(location.relative)] = encode_deletions(deleted, kind)
    return replace(fragment, deletion_file=file)


class Offsets:
    """Collects offsets of rows, four bytes each."""

    def __init__(self) -> None:
        self._parts: dict[int, list[U32Array]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch with `_rowaddr`."""
        self.add_addresses(values_of(batch.column(ROW_ADDRESS)))

    def add_addresses(self, addresses: npt.NDArray[np.uint64]) -> None:
        """Add rows by address; rows of a fragment are adjacent."""
        ids = addresses >> 32
        bounds = [0, *(np.flatnonzero(ids[1:] != ids[:-1]) + 1).tolist(), len(ids)]
        for start, end in pairwise(bounds):
            if start < end:
                self._parts.setdefault(int(ids[start]), []).append(addresses[start:end].astype(np.uint32))

    def by_fragment(self) -> dict[int, U32Array]:
        """All offsets, ascending, by fragment id. Empties the collection."""
        return {fragment_id: _ascending(self._parts.pop(fragment_id)) for fragment_id in list(self._parts)}


def _ascending(parts: list[U32Array]) -> U32Array:
    offsets = np.concatenate(parts)
    if (offsets[1:] < offsets[:-1]).any():
        offsets.sort()
    return offsets


# -- one fragment, without a commit -----------------------------------------------------------------------------------


def delete_from_fragment(state: DatasetState, fragment_index: int, predicate: Any) -> Plan[Fragment | None]:
    """Delete the rows of a fragment that pass a filter: writes its deletion file. None if no row is left."""
    rows = yield from matching_rows(state, predicate, (state.fragment_ids[fragment_index],))
    return (yield from _write_deletions(state, fragment_index, rows))


def delete_offsets(state: DatasetState, fragment_index: int, offsets: IntArray) -> Plan[Fragment | None]:
    """Delete rows of a fragment by physical offset; ignores rows that are deleted already. None if no row is left.

    Raises `UsageError` for an offset beyond the fragment.
    """
    num_rows = int(state.physical_rows[fragment_index])
    wanted = distinct(offsets)
    if len(wanted) and not 0 <= int(wanted[0]) <= int(wanted[-1]) < num_rows:
        raise UsageError(f"fragment {state.fragment_ids[fragment_index]} has rows 0 to {num_rows - 1}")
    return (
        yield from _write_deletions(
            state, fragment_index, {state.fragment_ids[fragment_index]: wanted.astype(np.uint32)}
        )
    )


def _write_deletions(state: DatasetState, fragment_index: int, rows: Mapping[int, U32Array]) -> Plan[Fragment | None]:
    deletion = yield from deletion_of(state, rows)
    files, store = deletion.commit_files(), state.location.store
    puts = Together(files.puts(store, files.contents))
    yield RollBackOnError(ask(puts), lambda _: files.roll_back(store))
    if deletion.removed:
        return None
    return deletion.updated[0] if deletion.updated else state.manifest.fragments[fragment_index]
