"""`update`: rows that pass a filter get new values, computed from the old row.

The rows are read once, with all their columns, and moved to new fragments; see `rewrite_rows.py`. Each batch is cast
to the table's types when it is computed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from lance_io.changes.edits.blob_payloads import BlobPayloads
from lance_io.changes.edits.change_plans import change, repeat_on_conflict
from lance_io.changes.edits.rewrite_rows import move_rows, new_row_files
from lance_io.changes.edits.row_progress import RowProgress
from lance_io.errors import EvaluationError, OperationError, SchemaError, UsageError
from lance_io.file.write.writers import version_for_tables
from lance_io.format.schema import split_path
from lance_io.lazy_names import lazy_module
from lance_io.plans.plan import Import, RollBackOnError
from lance_io.reads.memory_limit import batch_rows, limit_of, scan_memory_options
from lance_io.reads.rows.deletions_and_ids import load_live_counts
from lance_io.reads.scan.execute import projected_batches
from lance_io.reads.scan.scan_options import scan_options
from lance_io.reads.version.column_lists import COMPILER, OutputColumn, project
from lance_io.reads.version.system_columns import SYSTEM_COLUMNS
from lance_io.table.transaction.operations import Update

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from lance_io import filters
    from lance_io.format.schema import Field
    from lance_io.format.version import FileVersion
    from lance_io.plans.plan import Plan
    from lance_io.reads.metadata.file_listing import Progress
    from lance_io.reads.version.column_lists import Projection
    from lance_io.reads.version.state import DatasetState
else:
    filters = lazy_module("lance_io.filters")


class UpdateResult(TypedDict):
    """Result of an update."""

    num_rows_updated: int


def update_rows(
    state: DatasetState,
    updates: Mapping[str, str],
    where: Any,
    conflict_retries: int,
    retry_timeout: timedelta,
    data_storage_version: str | None,
    memory_limit: int | None,
    progress: Progress | None = None,
) -> Plan[tuple[DatasetState, UpdateResult]]:
    """Update the rows that pass a filter.

    updates               SQL expressions by column, cast to the type of the column; all of them see the old row
    where                 a filter, None for all rows
    conflict_retries      number of retries after conflicts
    retry_timeout         time after which no retry starts
    data_storage_version  version of the new files, None for the table's
    memory_limit          bytes, None for the limit of the table
    progress              called with the number of written rows, and without `where` with the total; each attempt
                          counts from 0
    Raises `UsageError` without updates and for columns that are missing, nested or hold blobs, `TypeError` for keys or
    values that are no strings, `BindError` for an expression that does not fit, `OperationError` for one that fails
    for a row, and as `delete_rows`.
    """
    if not updates:
        raise UsageError("No updates provided")
    for column, text in updates.items():
        if not isinstance(column, str) or not isinstance(text, str):
            raise TypeError(f"updates: expected SQL expressions by column, found {text!r} for {column!r}")
    version = None if data_storage_version is None else version_for_tables(data_storage_version)
    limit_bytes = limit_of(state, memory_limit)
    attempt = partial(
        _update, updates=updates, where=where, version=version, limit_bytes=limit_bytes, progress=progress
    )
    return (yield from repeat_on_conflict(state, attempt, conflict_retries, retry_timeout))


def _update(
    state: DatasetState,
    *,
    updates: Mapping[str, str],
    where: Any,
    version: FileVersion | None,
    limit_bytes: int,
    progress: Progress | None,
) -> Plan[tuple[DatasetState, UpdateResult]]:
    yield Import(COMPILER)
    filters.check_change(where)
    assigned = [_target(state, column) for column in updates]
    rows = _new_rows(state, dict(zip((field.name for field in assigned), updates.values(), strict=True)))
    options = scan_options(
        filter=where,
        with_row_id=state.has_stable_row_ids,
        with_row_address=True,
        batch_size=batch_rows(rows.arrow_schema.types, limit_bytes),
        **scan_memory_options(limit_bytes),
    )
    files = new_row_files(state, version)
    payloads = BlobPayloads(state, rows, limit_bytes // 8)
    num_rows = None
    if progress is not None and where is None:
        num_rows = sum((yield from load_live_counts(state, state.all_fragment_indexes)))
    row_progress = RowProgress(progress, num_rows)

    def write() -> Plan[tuple[DatasetState, UpdateResult]]:
        try:
            batches = projected_batches(state, options, rows)
            moved = yield from move_rows(state, batches, files, payloads, row_progress)
        except (EvaluationError, SchemaError) as error:  # a value cannot be computed, or does not fit the column
            raise OperationError(error.message, path=state.location.uri) from error
        deletion = moved.deletion
        operation = Update(
            tuple(deletion.removed_fragment_ids),
            tuple(deletion.updated_fragments),
            moved.fragments,
            fields_for_preserving_frag_bitmap=tuple(part.id for field in assigned for part in field.walk()),
        )
        commit_files = deletion.commit_files()
        publish = [files.publish_for_commit(commit_files)]
        after = yield from change(
            state, operation, affected=deletion.deleted_offsets, files=commit_files, alongside=publish
        )
        return after, UpdateResult(num_rows_updated=deletion.num_rows)

    done: tuple[DatasetState, UpdateResult] = yield RollBackOnError(write(), files.roll_back)
    return done


def _target(state: DatasetState, column: str) -> Field:
    """The updated field. Raises `UsageError` for columns that cannot be updated."""
    path = split_path(column)
    target = next((field for field in state.schema.fields if field.name == path[0]), None)
    if target is None and column in SYSTEM_COLUMNS:
        raise UsageError(
            f"Invalid user input: Column '{column}' does not exist in dataset schema: it is a reserved metadata column "
            "and cannot be updated"
        )
    if target is None:
        names = ", ".join(state.schema.names)
        raise UsageError(f"Column '{column}' does not exist in dataset schema. Its columns are {names}")
    if len(path) > 1:
        raise UsageError(
            f"Nested column references are not yet supported. Referenced: {column}. Set the struct by named_struct"
        )
    if any(field.is_blob_v2 for field in target.walk()):
        raise UsageError(f"Direct updates to column '{column}' containing blob v2 values are not supported")
    return target


def _new_rows(state: DatasetState, updates: Mapping[str, str]) -> Projection:
    """All columns of the table; updated columns are computed from the old row."""
    projection = project(state.schema, None, with_row_id=state.has_stable_row_ids, with_row_address=True)
    outputs = (
        _computed(state, output, updates[output.name]) if output.name in updates else output
        for output in projection.outputs
    )
    return replace(projection, outputs=tuple(outputs))


def _computed(state: DatasetState, output: OutputColumn, text: str) -> OutputColumn:
    value = filters.compile_value(text, state.schema.described, _target(state, output.name).describe_blobs())
    return OutputColumn(output.name, (), output.field, value)
