"""Moving rows: new fragments hold them, their old copies are deleted (spec: table, 2.8 and 6).

    scan of the rows, with their addresses --batch by batch--> `NewFiles`
                                    \\--> addresses (4 bytes a row) and stable row ids (8 bytes a row), kept in memory

Rows keep their stable ids: new fragments list the old ids, in the order in which the rows are written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lance_io.changes.edits.delete_rows import OffsetCollector, compute_deletion
from lance_io.changes.operations.schema_fit import check_mixture, check_version
from lance_io.changes.write.data_files import NewFiles
from lance_io.levels.arrays import values_of
from lance_io.plans.cpu_requests import Compute
from lance_io.plans.streams import EachInPlan
from lance_io.reads.rows.deletions_and_ids import load_row_columns
from lance_io.reads.version.system_columns import ROW_ADDRESS, ROW_ID
from lance_io.table.manifest.row_ids import encode_row_ids
from lance_io.table.transaction.lineage import encode_row_versions

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lance_io.changes.edits.blob_payloads import BlobPayloads
    from lance_io.changes.edits.delete_rows import Deletion
    from lance_io.changes.edits.row_progress import RowProgress
    from lance_io.changes.write.data_files import DataFolder
    from lance_io.format.schema import Schema
    from lance_io.format.version import FileVersion
    from lance_io.plans.plan import Plan
    from lance_io.plans.streams import Stream
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.fragment import Fragment
    from lance_io.table.manifest.row_ids import U64Array


@dataclass(frozen=True, slots=True, eq=False)
class MovedRows:
    """The result of moving rows.

    deletion   deletion of the rows from their old fragments
    fragments  new fragments, of id 0, with the stable ids of the rows if the table has any
    """

    deletion: Deletion
    fragments: tuple[Fragment, ...]


def new_row_files(
    state: DatasetState,
    version: FileVersion | None,
    schema: Schema | None = None,
    folders: Sequence[DataFolder] | None = None,
) -> NewFiles:
    """New data files with all columns of the table.

    version  file version, None for the table's
    schema   schema of the written rows if it differs from the table's, for example in the form of blobs
    folders  folders that receive the files in turn, None for the table's own
    Raises `OperationError` for a version that cannot be mixed with the table's, `SchemaError` for one that cannot hold
    the schema.
    """
    of_table = state.manifest.data_version
    if version is not None:
        check_mixture(version, of_table)
        check_version(state.schema, version)
    return NewFiles(state.location, state.schema if schema is None else schema, version or of_table, folders=folders)


def move_rows(
    state: DatasetState, rows: Stream, files: NewFiles, payloads: BlobPayloads, progress: RowProgress
) -> Plan[MovedRows]:
    """Write rows of the open version into new files; does not change the table yet.

    rows   record batches in the order of the table: the columns of `files`, then `_rowid` if the table has stable
           row ids, then `_rowaddr`
    files  the caller removes its files on failure: see `NewFiles.roll_back`
    payloads  loads the bytes of blobs, of which the rows have descriptions
    progress  counts the written rows
    """
    mover = _RowMover(state, files, payloads, progress)
    yield EachInPlan(rows, mover.add)
    yield from files.complete_last_file()
    deletion = yield from compute_deletion(state, mover.offsets.take_by_fragment())
    return MovedRows(deletion, (yield from mover.fragments()))


class _RowMover:
    def __init__(self, state: DatasetState, files: NewFiles, payloads: BlobPayloads, progress: RowProgress) -> None:
        self.offsets = OffsetCollector()
        self._state = state
        self._files = files
        self._payloads = payloads
        self._progress = progress
        self._ids: list[U64Array] | None = [] if state.has_stable_row_ids else None

    def add(self, batch: pa.RecordBatch) -> Plan[None]:
        """Write a batch and remember the old addresses of its rows."""
        self.offsets.add(batch)
        system = [ROW_ADDRESS]
        if self._ids is not None:
            self._ids.append(values_of(batch.column(ROW_ID)).copy())
            system.append(ROW_ID)
        for load in self._payloads.batches(batch):
            part = yield from load
            yield from self._files.add(part.drop_columns(system))
            self._progress.add(part.num_rows)

    def fragments(self) -> Plan[tuple[Fragment, ...]]:
        """The new fragments, with the ids of their rows."""
        ids = np.concatenate(self._ids) if self._ids else None
        return with_row_ids(self._state, self._files.fragments, ids)


def with_row_ids(
    state: DatasetState, fragments: Sequence[Fragment], ids: U64Array | None
) -> Plan[tuple[Fragment, ...]]:
    """Give new fragments the stable row ids `ids`, in the order of their rows; None if the table has none.

    A commit looks up the version that created each row. It cannot if data files of the table store these versions:
    then the fragments list them (spec: table, 6.6).
    """
    if ids is None or not fragments:
        return tuple(fragments)
    ends = np.cumsum([fragment.physical_rows for fragment in fragments])
    parts = np.split(ids, ends[:-1])
    encoded = yield Compute(lambda: [encode_row_ids(part) for part in parts], lambda: ids.nbytes)
    created: list[bytes | None] = [None] * len(parts)
    if state.has_spilled_lineage:
        versions = yield from _created_at(state, ids)
        created = [encode_row_versions(part) for part in np.split(versions, ends[:-1])]
    return tuple(
        replace(fragment, row_ids=sequence, created_at_versions=its_versions) if len(part) else fragment
        for fragment, part, sequence, its_versions in zip(fragments, parts, encoded, created, strict=True)
    )


def _created_at(state: DatasetState, ids: U64Array) -> Plan[U64Array]:
    """The version that created each row, by stable row id: moving a row does not change it."""
    created = np.ones(len(ids), dtype=np.uint64)
    order = np.argsort(ids)
    ordered = ids[order]
    for fragment_index in state.all_fragment_indexes:
        lineage = (yield from load_row_columns(state, [fragment_index], [ROW_ID])).lineages[fragment_index]
        if lineage.created_at is None:
            continue
        slots = np.minimum(np.searchsorted(ordered, lineage.row_ids), len(ordered) - 1)
        is_there = ordered[slots] == lineage.row_ids
        created[order[slots[is_there]]] = lineage.created_at[is_there]
    return created
