"""Change rows by address: tasks find deleted rows and write new ones, the planner commits them as one version.

    plan_row_job(version)         planner: the job of the version that the tasks read
    write_files(...)              task: rows that are new, and rows that move, into files of their own
    commit_rows(...)              planner: deletion files, new fragments, one transaction of that version

Rows that move keep their stable ids. The result is one `Delete`, or one `Update` if there are new rows, as pylance
makes it. It is rebased on concurrent commits that touched no fragment in which it deletes rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

import numpy as np

from lance_io.changes.edits.delete_rows import compute_deletion, find_matching_rows
from lance_io.changes.edits.rewrite_rows import with_row_ids
from lance_io.changes.merge.inserted_keys import InsertedKeys
from lance_io.changes.merge.merge_clauses import primary_key
from lance_io.changes.upkeep.remove_versions import after_commit
from lance_io.codecs.roaring import decode_roaring
from lance_io.commit.commit_loop import commit
from lance_io.commit.commit_request import CommitRequest
from lance_io.dataset.distributed.added_columns import merge_of
from lance_io.dataset.distributed.job_commit import COMMIT_RETRIES
from lance_io.dataset.distributed.job_history import JOB_PROPERTY
from lance_io.dataset.distributed.write_job import JOB_DIGITS, WriteJob, run_writes, write_target
from lance_io.errors import OperationError, UsageError
from lance_io.reads.metadata.describe import stored_fragment
from lance_io.reads.metadata.fragment_metadata import FragmentMetadata
from lance_io.table.transaction.operations import Delete, KeyFilter, Merge, Update
from lance_io.table.transaction.transaction import COMMIT_MESSAGE_KEY, Transaction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from lance_io.changes.edits.delete_rows import Deletion
    from lance_io.changes.write.write_rows import WriteTarget
    from lance_io.codecs.roaring import U32Array
    from lance_io.dataset.distributed.table_version import TableVersion
    from lance_io.dataset.distributed.task_files import WrittenFiles
    from lance_io.format.schema import Schema
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.fragment import Fragment

# A change that meets all rows which others add or rewrite: its keys are of no field, so they may be any.
_MEETS_NEW_ROWS: Final = Update(inserted_rows=KeyFilter((), frozenset()))


@dataclass(frozen=True)
class MovedFiles:
    """Files of rows that were in the table before. It holds only plain values, so it can be pickled.

    Attributes:
        files: The files.
        row_ids: Stable ids of the rows, in their order, as bytes of int64; None if the table has none.
    """

    files: WrittenFiles
    row_ids: bytes | None = None


@dataclass(frozen=True)
class RowChange:
    """The change of one task. It holds only plain values, so it can be pickled.

    Attributes:
        deleted: Portable Roaring bitmaps of the offsets of rows that leave their fragment, by its id.
        moved: Their new files.
        inserted: Files of rows that are new.
        num_updated: Rows that have new values.
        keys: Declared primary keys of the new rows, from `PrimaryKeys.to_bytes`; None where it is not known.
    """

    deleted: Mapping[int, bytes]
    moved: Sequence[MovedFiles] = ()
    inserted: Sequence[WrittenFiles] = ()
    num_updated: int = 0
    keys: bytes | None = None

    @property
    def written(self) -> list[WrittenFiles]:
        """All files."""
        return [*(moved.files for moved in self.moved), *self.inserted]


@dataclass(frozen=True)
class ChangedRows:
    """The result of a change of rows.

    Attributes:
        version: Number of the version; None if nothing changed.
        num_deleted: Rows that left, without those that moved.
        num_updated: Rows with new values.
        num_inserted: New rows.
        num_bytes: Bytes of the new data files.
    """

    version: int | None
    num_deleted: int
    num_updated: int
    num_inserted: int
    num_bytes: int


def plan_row_job(version: TableVersion) -> WriteJob:
    """Plan a job that changes rows of a version.

    Args:
        version: The version that the tasks read.

    Returns:
        The job; its files have all columns of the table.
    """
    manifest, uuid = version.state.manifest, uuid4()
    return WriteJob(
        uuid=str(uuid),
        job_id=uuid.hex[:JOB_DIGITS],
        job_id_search=None,
        is_overwrite=False,
        read_version=manifest.version,
        schema=manifest.schema,
        columns=tuple(manifest.schema.names),
        data_version=manifest.data_version,
    )


def commit_rows(
    version: TableVersion,
    job: WriteJob,
    changes: Sequence[RowChange],
    *,
    deletes_where: str | None = None,
    deleted: Mapping[int, U32Array] | None = None,
    meets_new_rows: bool = False,
    key_columns: Sequence[str] | None = None,
    adds_columns: bool = False,
    retries: int = COMMIT_RETRIES,
    message: str | None = None,
    properties: Mapping[str, str] | None = None,
    deleted_property: str | None = None,
) -> ChangedRows:
    """Commit the changes of all tasks as one version.

    Args:
        version: The version that the tasks read.
        job: The job of the tasks.
        changes: The change of each task, each task once.
        deletes_where: SQL predicate of rows that leave as well; None for none.
        deleted: Offsets of rows that leave as well, ascending, by fragment id.
        meets_new_rows: True makes any commit that added or rewrote rows since the version a conflict.
        key_columns: Columns by which the change looked for rows before it inserted others. If they are the declared
            primary key and all tasks know their keys, the transaction carries these: commits of other keys are then no
            conflict.
        adds_columns: Whether the version is one of `TableVersion.with_columns`, whose columns are committed with the
            rows. Then any commit that changed rows since is a conflict.
        retries: Maximum number of retries after losing a race.
        message: Message stored with the transaction.
        properties: Properties of the transaction.
        deleted_property: Name of a property that says how many rows left; None for none.

    Returns:
        The result; without a version if no row is deleted or written.

    Raises:
        CommitConflictError: A change of another writer conflicts with this one.
        OperationError: Two tasks changed one row. A row that a change of nothing but deletes names twice is no error.
        UsageError: An offset is beyond its fragment.
    """
    target = write_target(version.place)
    texts = {**(properties or {}), **({} if message is None else {COMMIT_MESSAGE_KEY: message})}
    change = _Change(target, version.state, job, changes, {**texts, JOB_PROPERTY: job.job_id})
    change.deleted_property = deleted_property
    change.adds_columns = adds_columns
    if meets_new_rows and key_columns is not None:
        change.keys = joined_keys(version.state.schema, key_columns, [each.keys for each in changes if each.inserted])
    return run_writes(target, change.commit(deletes_where, deleted or {}, meets_new_rows, retries))


class _Change:
    """A change while it is committed."""

    deleted_property: str | None = None
    adds_columns = False
    keys: KeyFilter | None = None

    def __init__(
        self,
        target: WriteTarget,
        state: DatasetState,
        job: WriteJob,
        changes: Sequence[RowChange],
        properties: Mapping[str, str],
    ) -> None:
        self._target = target
        self._state = state
        self._job = job
        self._changes = changes
        self._properties = properties

    def commit(
        self, where: str | None, deleted: Mapping[int, U32Array], meets_new_rows: bool, retries: int
    ) -> Plan[ChangedRows]:
        """Commit the change."""
        state = self._state
        rows = _deleted_rows(state, self._changes)
        leaving = dict((yield from find_matching_rows(state, where)) if where is not None else deleted)
        if leaving and rows:
            raise UsageError("rows leave by address or by a predicate, not both")
        deletion = yield from compute_deletion(state, rows or leaving)
        inserted = [files for change in self._changes for files in change.inserted]
        fragments = (*(yield from self._moved()), *_fragments(inserted))
        num_updated = sum(change.num_updated for change in self._changes)
        num_inserted = sum(files.num_rows for files in inserted)
        result = ChangedRows(
            None,
            num_deleted=deletion.num_rows - num_updated,
            num_updated=num_updated,
            num_inserted=num_inserted,
            num_bytes=sum(files.num_bytes for change in self._changes for files in change.written),
        )
        if not deletion.num_rows and not fragments and not self.adds_columns:
            return result
        transaction = self._transaction(deletion, fragments, where, result)
        meets = meets_new_rows and self.keys is None  # else the transaction's own keys decide
        request = CommitRequest(
            transaction,
            base=None if self.adds_columns else state.manifest,
            files=deletion.commit_files(),
            max_retries=retries + 1,
            followed_by=Transaction(state.manifest.version, _MEETS_NEW_ROWS) if meets else None,
        )
        after = self._target.state((yield from commit(self._target.commit_target(), request)))
        yield from after_commit(after)
        return _of_version(result, after.manifest.version)

    def _transaction(
        self, deletion: Deletion, fragments: tuple[Fragment, ...], where: str | None, result: ChangedRows
    ) -> Transaction:
        state, properties = self._state, self._properties
        operation: Delete | Update | Merge
        if self.adds_columns:
            operation = merge_of(state, deletion, fragments)
        elif fragments:
            operation = Update(
                tuple(deletion.removed_fragment_ids),
                tuple(deletion.updated_fragments),
                fragments,
                fields_for_preserving_frag_bitmap=tuple(field.id for field in state.schema.walk()),
                inserted_rows=self.keys,
            )
        else:
            operation = Delete(
                tuple(deletion.updated_fragments), tuple(deletion.removed_fragment_ids), where or "_rowaddr"
            )
        if self.deleted_property is not None:
            properties = {**properties, self.deleted_property: str(result.num_deleted)}
        return Transaction(state.manifest.version, operation, uuid=self._job.uuid, properties=properties)

    def _moved(self) -> Plan[tuple[Fragment, ...]]:
        moved = [files for change in self._changes for files in change.moved]
        if not self._state.has_stable_row_ids:
            return _fragments(files.files for files in moved)
        fragments: list[Fragment] = []
        for files in moved:
            ids = np.frombuffer(files.row_ids or b"", np.int64).astype(np.uint64)
            if len(ids) != files.files.num_rows:
                raise OperationError(f"{files.files.num_rows} rows moved with {len(ids)} row ids")
            fragments += yield from with_row_ids(self._state, _fragments([files.files]), ids)
        return tuple(fragments)


def _of_version(result: ChangedRows, version: int) -> ChangedRows:
    return ChangedRows(version, result.num_deleted, result.num_updated, result.num_inserted, result.num_bytes)


def _fragments(written: Any) -> tuple[Fragment, ...]:
    return tuple(stored_fragment(FragmentMetadata.from_json(text)) for files in written for text in files.fragments)


def _deleted_rows(state: DatasetState, changes: Sequence[RowChange]) -> dict[int, U32Array]:
    """Offsets of the rows that all tasks deleted, ascending, by fragment id.

    A change that only deletes may name a row several times, as a MERGE whose source has its key in several tasks.
    """
    only_deletes = not any(change.num_updated or change.moved for change in changes)
    parts: dict[int, list[U32Array]] = {}
    for change in changes:
        for fragment_id, bitmap in change.deleted.items():
            parts.setdefault(fragment_id, []).append(decode_roaring(bitmap))
    rows: dict[int, U32Array] = {}
    for fragment_id in sorted(parts):
        offsets = np.sort(np.concatenate(parts[fragment_id]))
        if only_deletes:
            offsets = np.unique(offsets)
        if (offsets[1:] == offsets[:-1]).any():
            raise OperationError(f"a row of fragment {fragment_id} is deleted twice: nothing is committed")
        (index,) = state.fragment_indexes_of([fragment_id])
        if len(offsets) and int(offsets[-1]) >= int(state.physical_rows[index]):
            raise UsageError(f"fragment {fragment_id} has no row {offsets[-1]}")
        if len(offsets):
            rows[fragment_id] = offsets
    return rows


# -- declared primary keys of inserted rows: a Bloom filter for the transaction (spec: commit, 2.2 and 4) --------------


class PrimaryKeys:
    """The keys of the rows of one task.

    Args:
        columns: The key's columns.
        schema: The table's schema.
    """

    def __init__(self, columns: Sequence[str], schema: Schema) -> None:
        self._columns = tuple(columns)
        self._keys = InsertedKeys(columns, schema)

    @classmethod
    def of(cls, job: WriteJob) -> Self | None:
        """The collector for the rows of a task.

        Args:
            job: The job.

        Returns:
            The collector; None if the table declares no primary key, or the rows lack columns of it.
        """
        columns = primary_key(job.schema)
        return cls(columns, job.schema) if columns and set(columns) <= set(job.columns) else None

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the keys of rows.

        Args:
            batch: The rows, as they are stored.
        """
        self._keys.add({name: batch.column(name) for name in self._columns})

    def to_bytes(self) -> bytes:
        """The keys so far, for the planner."""
        return self._keys.filter().bitmap


def joined_keys(schema: Schema, columns: Sequence[str], of_tasks: Sequence[bytes | None]) -> KeyFilter | None:
    """The keys of all tasks; None if the columns are not the table's primary key, or a task does not know its keys."""
    declared = primary_key(schema)
    if not declared or sorted(columns) != sorted(declared) or any(bitmap is None for bitmap in of_tasks):
        return None
    filter = InsertedKeys(declared, schema).filter()
    joined = np.frombuffer(filter.bitmap, np.uint8).copy()
    for bitmap in of_tasks:
        if bitmap is None or len(bitmap) != len(joined):
            raise UsageError("a task sent keys of another form")
        joined |= np.frombuffer(bitmap, np.uint8)
    return replace(filter, bitmap=joined.tobytes())
