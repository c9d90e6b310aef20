"""Changes of an open table as plans: each returns the new version, and the result for the caller.

A change is computed on the open version and committed on the newest one. On a conflict that a retry may solve, deletes
and updates are computed again on the newest version; other changes raise.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from lance_io.changes.edits.delete_rows import compute_deletion, find_matching_rows
from lance_io.changes.operations.convert import stored_base
from lance_io.changes.operations.lance_operation import DatasetBasePath
from lance_io.changes.upkeep.remove_versions import after_commit
from lance_io.commit.commit_loop import commit
from lance_io.commit.commit_request import CommitRequest
from lance_io.commit.target import CommitTarget
from lance_io.errors import BindError, CommitConflictError, LanceError, NotFound, OperationError
from lance_io.reads.open_version import check_out
from lance_io.reads.version.index_entries import load_indices
from lance_io.reads.version.versions import cache_manifest
from lance_io.table.transaction.operations import CreateIndex, Delete, Restore, UpdateBases, UpdateConfig, UpdateMap
from lance_io.table.transaction.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import timedelta

    from lance_io.codecs.roaring import U32Array
    from lance_io.commit.commit_files import CommitFiles
    from lance_io.commit.target import CommittedVersion
    from lance_io.plans.plan import Plan
    from lance_io.reads.metadata.file_listing import Progress
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.transaction.operations import Operation

T = TypeVar("T")


def commit_target(state: DatasetState) -> CommitTarget:
    """The commit target of an open table."""
    return CommitTarget(state.location, state.session.handler(state.location, state.commit_lock))


def open_committed(state: DatasetState, committed: CommittedVersion) -> DatasetState:
    """Open the version that was committed, in the same way as `state`."""
    cache_manifest(state.location, committed.file, committed.manifest, state.session.cache)
    return replace(state, manifest=committed.manifest)


def change(
    state: DatasetState,
    operation: Operation,
    *,
    affected: Mapping[int, U32Array] | None = None,
    files: CommitFiles | None = None,
    alongside: Sequence[Plan[Any]] = (),
    properties: Mapping[str, str] | None = None,
) -> Plan[DatasetState]:
    """Commit an operation computed on the open version.

    affected    offsets of the deleted rows, by fragment
    files       files of the operation, as for `CommitRequest`
    alongside   uploads of its data files
    properties  properties of the transaction
    Raises as `commit` does.
    """
    transaction = Transaction(state.manifest.version, operation, properties=properties or {})
    request = CommitRequest(transaction, base=state.manifest, affected=affected, files=files, alongside=alongside)
    after = open_committed(state, (yield from commit(commit_target(state), request)))
    yield from after_commit(after)
    return after


# -- rows ------------------------------------------------------------------------------------------------------------


class DeleteResult(TypedDict):
    """Result of a delete."""

    num_deleted_rows: int


def delete_rows(
    state: DatasetState,
    predicate: Any,
    conflict_retries: int,
    retry_timeout: timedelta,
    progress: Progress | None = None,
) -> Plan[tuple[DatasetState, DeleteResult]]:
    """Delete the rows that pass a filter.

    conflict_retries  number of retries after conflicts
    retry_timeout     time after which no retry starts
    progress          called with the number of matching rows; each attempt counts from 0
    """
    attempt = partial(_delete, predicate=predicate, progress=progress)
    return (yield from repeat_on_conflict(state, attempt, conflict_retries, retry_timeout))


def repeat_on_conflict(
    state: DatasetState, attempt: Callable[[DatasetState], Plan[T]], conflict_retries: int, retry_timeout: timedelta
) -> Plan[T]:
    """Make a change; after a conflict, retry it on the newest version.

    attempt           makes the change on a version
    conflict_retries  number of retries
    retry_timeout     time after which no retry starts

    Raises `CommitConflictError`: the original one if a retry cannot help, one about too many writers after the last
    retry.
    """
    state.check_commits()
    started, retries, retry_seconds = time.monotonic(), 0, retry_timeout.total_seconds()
    while True:
        try:
            return (yield from attempt(state))
        except CommitConflictError as error:
            if not error.retryable:
                raise
            if retries >= conflict_retries:
                raise _too_many_writers(f"{conflict_retries} retries", error) from error
            retries += 1
            if time.monotonic() - started > retry_seconds:
                text = f"{retries} times, but failed on retry_timeout of {retry_seconds:.3f} seconds"
                raise _too_many_writers(text, error) from error
            state = yield from check_out(state, None)


def _too_many_writers(attempted: str, last: CommitConflictError) -> CommitConflictError:
    text = f"Too many concurrent writers. Attempted {attempted}. {last.message}"
    return CommitConflictError(text, path=last.path, retryable=True)


def _delete(state: DatasetState, predicate: Any, progress: Progress | None) -> Plan[tuple[DatasetState, DeleteResult]]:
    rows = yield from find_matching_rows(state, predicate, progress=progress)
    deletion = yield from compute_deletion(state, rows)
    operation = Delete(tuple(deletion.updated_fragments), tuple(deletion.removed_fragment_ids), str(predicate))
    after = yield from change(state, operation, affected=deletion.deleted_offsets, files=deletion.commit_files())
    return after, DeleteResult(num_deleted_rows=deletion.num_rows)


def truncate(state: DatasetState, conflict_retries: int, retry_timeout: timedelta) -> Plan[DatasetState]:
    """Delete all rows without reading any. Parameters as for `delete_rows`."""
    return (yield from repeat_on_conflict(state, _truncate, conflict_retries, retry_timeout))


def _truncate(state: DatasetState) -> Plan[DatasetState]:
    return (yield from change(state, Delete((), tuple(state.fragment_ids), "true")))


def restore(state: DatasetState) -> Plan[DatasetState]:
    """Commit the open version as the newest one again, discarding later changes."""
    newest = yield from check_out(state, None)
    return (yield from change(newest, Restore(state.manifest.version)))


def add_bases(state: DatasetState, bases: Iterable[Any], properties: Mapping[str, str] | None) -> Plan[DatasetState]:
    """Declare base paths.

    Raises `TypeError` for an item that is no `DatasetBasePath`, `OperationError` for a name, path or id that is
    declared already.
    """
    new_bases = [*bases]
    for base in new_bases:
        if not isinstance(base, DatasetBasePath):
            raise TypeError(f"new_bases: expected DatasetBasePaths, found {base!r}")
        if not base.path:
            raise OperationError(f"new_bases: {base} has no path")
    return (yield from change(state, UpdateBases(tuple(map(stored_base, new_bases))), properties=properties))


class IndexNotFound(NotFound, RuntimeError):
    """The table has no index of this name; pylance raises `RuntimeError`."""


def drop_index(state: DatasetState, name: str) -> Plan[DatasetState]:
    """Remove all segments of an index from the table. Raises `IndexNotFound`."""
    segments = tuple(index for index in (yield from load_indices(state)) if index.name == name)
    if not segments:
        raise IndexNotFound(f"Lance index not found: name={name}", path=state.location.uri)
    while segments:  # a concurrent compaction may have replaced segments
        state = yield from change(state, CreateIndex(removed_indices=segments))
        segments = tuple(index for index in (yield from load_indices(state)) if index.name == name)
    return state


# -- configuration and metadata ----------------------------------------------------------------------------------------


def update_config(state: DatasetState, values: Mapping[str, str | None], *, replace_all: bool) -> Plan[DatasetState]:
    """Change the table's configuration; None removes a key."""
    return (yield from change(state, UpdateConfig(config_updates=_updates(values, replace_all))))


def delete_config_keys(state: DatasetState, keys: Iterable[str]) -> Plan[DatasetState]:
    """Remove entries of the table's configuration. Raises `TypeError` for a string: it would be a list of letters."""
    if isinstance(keys, str):
        raise TypeError(f"expected a list of keys, found the text {keys!r}")
    return (yield from update_config(state, dict.fromkeys(keys), replace_all=False))


def update_metadata(state: DatasetState, values: Mapping[str, str | None], *, replace_all: bool) -> Plan[DatasetState]:
    """Change the table's metadata."""
    return (yield from change(state, UpdateConfig(table_metadata_updates=_updates(values, replace_all))))


def update_schema_metadata(
    state: DatasetState, values: Mapping[str, str | None], *, replace_all: bool
) -> Plan[DatasetState]:
    """Change the metadata of the schema."""
    return (yield from change(state, UpdateConfig(schema_metadata_updates=_updates(values, replace_all))))


def update_field_metadata(
    state: DatasetState, updates: Mapping[str | int, Mapping[str, str | None]], *, replace_all: bool
) -> Plan[DatasetState]:
    """Change the metadata of fields, given by path or id. Raises `BindError` for an unknown field."""
    by_id = {_field_id(state, field): _updates(values, replace_all) for field, values in updates.items()}
    return (yield from change(state, UpdateConfig(field_metadata_updates=by_id)))


def _updates(values: Mapping[str, str | None], replace_all: bool) -> UpdateMap:
    if not isinstance(values, Mapping):
        raise TypeError(f"expected a dict of keys and values, found {values!r}")
    return UpdateMap(dict(values), replace_all)


class FieldNotFound(BindError):
    """An update of metadata names an unknown field; pylance's message begins with the field."""

    def __str__(self) -> str:
        return LanceError.__str__(self)


def _field_id(state: DatasetState, field: str | int) -> int:
    try:
        if isinstance(field, int):
            return state.schema.by_id[field].id
        return state.schema.find(field).id
    except (KeyError, ValueError) as error:
        raise FieldNotFound(f"Field {field!r} not found.\nAvailable fields: {state.schema.names}") from error
