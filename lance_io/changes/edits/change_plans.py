"""Changes of an open table as plans: each gives the new version, and what its caller wants to know.

A change is made on the version that is open and committed on whatever is the newest by then. Where another writer's
change does not go together with it, but may with the same change made anew, deletes and updates are made anew;
everything else tells its caller.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from lance_io.changes.edits.delete_rows import deletion_of, matching_rows
from lance_io.changes.operations.convert import stored_base
from lance_io.changes.operations.lance_operation import DatasetBasePath
from lance_io.changes.upkeep.remove_versions import after_commit
from lance_io.commit.commit_request import CommitRequest
from lance_io.commit.loop import commit
from lance_io.commit.target import CommitTarget
from lance_io.errors import BindError, CommitConflictError, LanceError, NotFound, OperationError
from lance_io.reads.open_version import check_out
from lance_io.reads.version.index_entries import load_indices
from lance_io.reads.version.versions import keep_manifest
from lance_io.table.transaction.operations import CreateIndex, Delete, Restore, UpdateBases, UpdateConfig, UpdateMap
from lance_io.table.transaction.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import timedelta

    from lance_io.commit.commit_files import CommitFiles
    from lance_io.commit.target import CommittedVersion
    from lance_io.plans.plan import Plan
    from lance_io.reads.metadata.file_listing import Progress
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.roaring import U32Array
    from lance_io.table.transaction.operations import Operation

T = TypeVar("T")


def commit_target(state: DatasetState) -> CommitTarget:
    """Where changes of an open table are committed."""
    return CommitTarget(state.location, state.session.handler(state.location, state.commit_lock))


def move_to(state: DatasetState, committed: CommittedVersion) -> DatasetState:
    """The version that was committed, opened as the other was."""
    keep_manifest(state.location, committed.file, committed.manifest, state.session.cache)
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
    """Commit an operation that was made on the open version.

    affected    offsets of the rows that it deletes, by fragment
    files       what was made for it, as for `CommitRequest`
    alongside   uploads of the data files that it names
    properties  of the transaction
    Raises as `commit` does.
    """
    transaction = Transaction(state.manifest.version, operation, properties=properties or {})
    request = CommitRequest(transaction, base=state.manifest, affected=affected, files=files, alongside=alongside)
    after = move_to(state, (yield from commit(commit_target(state), request)))
    yield from after_commit(after)
    return after


# -- rows ------------------------------------------------------------------------------------------------------------


class DeleteResult(TypedDict):
    """What a delete did."""

    num_deleted_rows: int


def delete_rows(
    state: DatasetState,
    predicate: Any,
    conflict_retries: int,
    retry_timeout: timedelta,
    progress: Progress | None = None,
) -> Plan[tuple[DatasetState, DeleteResult]]:
    """Delete the rows that pass a filter.

    conflict_retries  how often it is made anew after a conflict
    retry_timeout     not after this time
    progress          is told how many rows are found, by each attempt from the beginning
    """
    attempt = partial(_delete, predicate=predicate, progress=progress)
    return (yield from repeat_on_conflict(state, attempt, conflict_retries, retry_timeout))


def repeat_on_conflict(
    state: DatasetState, attempt: Callable[[DatasetState], Plan[T]], conflict_retries: int, retry_timeout: timedelta
) -> Plan[T]:
    """Make a change, and after a conflict anew on the newest version.

    attempt           the change of a version
    conflict_retries  how often it is made anew
    retry_timeout     not after this time

    Raises `CommitConflictError`: as it came where making it anew would not help; of too many writers, with the last
    conflict, where it did not help.
    """
    state.check_decides()
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
    rows = yield from matching_rows(state, predicate, progress=progress)
    deletion = yield from deletion_of(state, rows)
    operation = Delete(tuple(deletion.updated), tuple(deletion.removed), str(predicate))
    after = yield from change(state, operation, affected=deletion.affected, files=deletion.commit_files())
    return after, DeleteResult(num_deleted_rows=deletion.num_rows)


def truncate(state: DatasetState, conflict_retries: int, retry_timeout: timedelta) -> Plan[DatasetState]:
    """Delete all rows; nothing is read. Parameters as for `delete_rows`."""
    return (yield from repeat_on_conflict(state, _truncate, conflict_retries, retry_timeout))


def _truncate(state: DatasetState) -> Plan[DatasetState]:
    return (yield from change(state, Delete((), tuple(state.fragment_ids), "true")))


def restore(state: DatasetState) -> Plan[DatasetState]:
    """Make the open version the newest one again, whatever has been committed since."""
    newest = yield from check_out(state, None)
    return (yield from change(newest, Restore(state.manifest.version)))


def add_bases(state: DatasetState, bases: Iterable[Any], properties: Mapping[str, str] | None) -> Plan[DatasetState]:
    """Declare base paths.

    Raises `TypeError` for what is no `DatasetBasePath`, `OperationError` for a name, path or id that is declared.
    """
    found = [*bases]
    for one in found:
        if not isinstance(one, DatasetBasePath):
            raise TypeError(f"new_bases: expected DatasetBasePaths, found {one!r}")
        if not one.path:
            raise OperationError(f"new_bases: {one} has no path")
    return (yield from change(state, UpdateBases(tuple(map(stored_base, found))), properties=properties))


class IndexNotFound(NotFound, RuntimeError):
    """A table has no index of a name; pylance raises `RuntimeError`."""


def drop_index(state: DatasetState, name: str) -> Plan[DatasetState]:
    """Take all segments of an index out of the table. Raises `IndexNotFound`."""
    segments = tuple(one for one in (yield from load_indices(state)) if one.name == name)
    if not segments:
        raise IndexNotFound(f"Lance index not found: name={name}", path=state.location.uri)
    while segments:  # a compaction by another writer may have put others in their place
        state = yield from change(state, CreateIndex(removed_indices=segments))
        segments = tuple(one for one in (yield from load_indices(state)) if one.name == name)
    return state


# -- configuration and metadata ----------------------------------------------------------------------------------------


def update_config(state: DatasetState, values: Mapping[str, str | None], *, replace_all: bool) -> Plan[DatasetState]:
    """Change the table's configuration; None removes a key."""
    return (yield from change(state, UpdateConfig(config_updates=_updates(values, replace_all))))


def delete_config_keys(state: DatasetState, keys: Iterable[str]) -> Plan[DatasetState]:
    """Remove entries of the table's configuration. Raises `TypeError` for one text, which is a list of letters."""
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
    """Change the metadata of fields, given by path or id. Raises `BindError` for a field that is not there."""
    by_id = {_field_id(state, field): _updates(values, replace_all) for field, values in updates.items()}
    return (yield from change(state, UpdateConfig(field_metadata_updates=by_id)))


def _updates(values: Mapping[str, str | None], replace_all: bool) -> UpdateMap:
    if not isinstance(values, Mapping):
        raise TypeError(f"expected a dict of keys and values, found {values!r}")
    return UpdateMap(dict(values), replace_all)


class FieldNotFound(BindError):
    """Metadata are to be set of a field that is not there; pylance's text begins with the field."""

    def __str__(self) -> str:
        return LanceError.__str__(self)


def _field_id(state: DatasetState, field: str | int) -> int:
    try:
        if isinstance(field, int):
            return state.schema.by_id[field].id
        return state.schema.find(field).id
    except (KeyError, ValueError) as error:
        raise FieldNotFound(f"Field {field!r} not found.\nAvailable fields: {state.schema.names}") from error
