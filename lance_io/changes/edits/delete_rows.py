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

_ADDRESS_SCHEMA: Final = pa.schema([(ROW_ADDRESS, pa.uint64())])
_BATCH_ROWS: Final = 1 << 16  # rows of a batch of the scan


@dataclass(frozen=True, slots=True, eq=False)
class Deletion:
    """A deletion of rows that is computed and not yet written.

    num_rows              number of `deleted_offsets`
    updated_fragments     fragments that keep some rows, each with its new deletion file
    removed_fragment_ids  ids of fragments that lose their last row
    deleted_offsets       offsets of the rows to delete, by fragment id
    deletion_files        content of the new deletion files, by key
    """

    num_rows: int
    updated_fragments: list[Fragment] = field(default_factory=list)
    removed_fragment_ids: list[int] = field(default_factory=list)
    deleted_offsets: dict[int, U32Array] = field(default_factory=dict)
    deletion_files: dict[str, bytes] = field(default_factory=dict)

    def commit_files(self) -> CommitFiles:
        """The deletion files, in the form in which a commit writes files."""
        if trace_events.listeners:
            trace_events.emit_files("create", "deletion", self.deletion_files)
        return CommitFiles(self.deletion_files)


def find_matching_rows(
    state: DatasetState,
    predicate: Any,
    fragment_ids: tuple[int, ...] | None = None,
    progress: Progress | None = None,
) -> Plan[dict[int, U32Array]]:
    """Scan for the rows that pass a filter; returns their offsets, ascending, by fragment id.

    fragment_ids  fragments to scan; None for all
    progress      called with the number of matching rows
    Raises `TypeError` for None, `BindError` for SQL in which something such as `order by` follows the condition,
    `OperationError` for a filter that fails for a row.
    """
    if predicate is None:  # a scan without a filter returns all rows, so all would be deleted
        raise TypeError("predicate: expected SQL text or an expression, found None")
    if isinstance(predicate, str):
        yield Import(COMPILER)
        filters.check_change(predicate)
    options = scan_options(columns=[], filter=predicate, with_row_address=True, batch_size=_BATCH_ROWS)
    if fragment_ids is not None:
        options = replace(options, fragments=fragment_ids)
    matches = OffsetCollector()
    row_progress = RowProgress(progress, None)  # the total is unknown until the scan ends

    def add_matches(batch: pa.RecordBatch) -> None:
        matches.add(batch)
        row_progress.add(batch.num_rows)

    try:
        yield Each(scan_batches(state, options, _ADDRESS_SCHEMA), add_matches)
    except EvaluationError as error:
        raise OperationError(error.message, path=state.location.uri) from error
    return matches.take_by_fragment()


def compute_deletion(state: DatasetState, offsets_by_fragment: Mapping[int, U32Array]) -> Plan[Deletion]:
    """Compute the deletion of rows; reads the old deletion files, writes nothing.

    offsets_by_fragment  offsets of the rows, ascending, by fragment id
    """
    num_rows = sum(len(offsets) for offsets in offsets_by_fragment.values())
    deletion = Deletion(num_rows, deleted_offsets=dict(offsets_by_fragment))
    fragment_indexes = state.fragment_indexes_of(list(offsets_by_fragment))
    live_before = yield from load_live(state, fragment_indexes)
    for fragment_index, offsets in zip(fragment_indexes, offsets_by_fragment.values(), strict=True):
        fragment = state.manifest.fragments[fragment_index]
        old = live_before[fragment_index].deleted  # offsets in the old deletion file
        deleted = _merge_offsets(offsets, old.astype(np.uint32)) if old is not None and len(old) else offsets
        if len(deleted) == int(state.physical_rows[fragment_index]):
            deletion.removed_fragment_ids.append(fragment.id)
        else:
            deletion.updated_fragments.append(with_new_deletion_file(state, fragment, deleted, deletion.deletion_files))
    return deletion


def _merge_offsets(new: U32Array, old: U32Array) -> U32Array:
    """Sorted union of two ascending arrays. `np.union1d` would need three times the memory."""
    merged = np.concatenate((new, old))
    merged.sort(kind="stable")  # a stable sort recognises the two sorted runs and merges them
    return distinct(merged) if (merged[1:] == merged[:-1]).any() else merged


def with_new_deletion_file(
    state: DatasetState, fragment: Fragment, deleted: U32Array, deletion_files: dict[str, bytes]
) -> Fragment:
    """The fragment with a new deletion file, which lists `deleted`; adds the file's content to `deletion_files`."""
    kind = deletion_kind(len(deleted))
    file = DeletionFile(kind, state.manifest.version, secrets.randbits(64), len(deleted), None)
    location = deletion_file_location(fragment.id, file, state.manifest.base_paths)
    deletion_files[state.location.key(location.relative)] = encode_deletions(deleted, kind)
    return replace(fragment, deletion_file=file)


class OffsetCollector:
    """Collects offsets of rows, four bytes each."""

    def __init__(self) -> None:
        self._parts: dict[int, list[U32Array]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch with `_rowaddr`."""
        self.add_addresses(values_of(batch.column(ROW_ADDRESS)))

    def add_addresses(self, addresses: npt.NDArray[np.uint64]) -> None:
        """Add rows by address. In `addresses` the rows of a fragment are adjacent."""
        fragment_ids = addresses >> 32
        bounds = [0, *(np.flatnonzero(fragment_ids[1:] != fragment_ids[:-1]) + 1).tolist(), len(fragment_ids)]
        for start, end in pairwise(bounds):
            if start < end:
                self._parts.setdefault(int(fragment_ids[start]), []).append(addresses[start:end].astype(np.uint32))

    def take_by_fragment(self) -> dict[int, U32Array]:
        """Remove and return all offsets, ascending, by fragment id."""
        return {fragment_id: _join_ascending(self._parts.pop(fragment_id)) for fragment_id in list(self._parts)}


def _join_ascending(parts: list[U32Array]) -> U32Array:
    offsets = np.concatenate(parts)
    if (offsets[1:] < offsets[:-1]).any():
        offsets.sort()
    return offsets


# -- one fragment, without a commit -----------------------------------------------------------------------------------


def delete_from_fragment(state: DatasetState, fragment_index: int, predicate: Any) -> Plan[Fragment | None]:
    """Delete the rows of a fragment that pass a filter: writes a deletion file, without a commit.

    Returns the fragment with that file, None if no row is left.
    """
    offsets = yield from find_matching_rows(state, predicate, (state.fragment_ids[fragment_index],))
    return (yield from _write_deletion_file(state, fragment_index, offsets))


def delete_offsets(state: DatasetState, fragment_index: int, offsets: IntArray) -> Plan[Fragment | None]:
    """Delete rows of a fragment by physical offset, without a commit; ignores rows that are deleted already.

    Returns the fragment with its new deletion file, None if no row is left.
    Raises `UsageError` for an offset beyond the fragment.
    """
    num_rows = int(state.physical_rows[fragment_index])
    wanted = distinct(offsets)
    if len(wanted) and not 0 <= int(wanted[0]) <= int(wanted[-1]) < num_rows:
        raise UsageError(f"fragment {state.fragment_ids[fragment_index]} has rows 0 to {num_rows - 1}")
    return (
        yield from _write_deletion_file(
            state, fragment_index, {state.fragment_ids[fragment_index]: wanted.astype(np.uint32)}
        )
    )


def _write_deletion_file(
    state: DatasetState, fragment_index: int, offsets_by_fragment: Mapping[int, U32Array]
) -> Plan[Fragment | None]:
    deletion = yield from compute_deletion(state, offsets_by_fragment)
    files, store = deletion.commit_files(), state.location.store
    puts = Together(files.puts(store, files.contents))
    yield RollBackOnError(ask(puts), lambda _: files.roll_back(store))
    if deletion.removed_fragment_ids:
        return None
    return deletion.updated_fragments[0] if deletion.updated_fragments else state.manifest.fragments[fragment_index]
