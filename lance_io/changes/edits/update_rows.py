"""`update`: rows that pass a filter get new values, each computed from the row as it was.

The rows are read once, with all their columns, and written anew; see `rewrite_rows.py`. A batch is cast to the
table's types as it is computed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from lance_io.changes.edits.blob_payloads import BlobPayloads
from lance_io.changes.edits.change_plans import change, repeat_on_conflict
from lance_io.changes.edits.rewrite_rows import files_like, move_rows
from lance_io.changes.edits.row_progress import RowProgress
from lance_io.errors import EvaluationError, OperationError, SchemaError, UsageError
from lance_io.file.write.writers import version_for_tables
from lance_io.format.schema import split_path
from lance_io.lazy_names import later
from lance_io.plans.plan import Import, RollBackOnError
from lance_io.reads.memory_limit import batch_rows, limit_of, scan_bounds
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
    filters = later("lance_io.filters")


class UpdateResult(TypedDict):
    """What an update did."""

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
    """Give the rows that pass a filter new values.

    updates               SQL expressions by column, which are cast to its type; all of them see the old row
    where                 a filter, None for all rows
    conflict_retries      how often it is made anew after a conflict
    retry_timeout         not after this time
    data_storage_version  of the new files, None for the table's
    memory_limit          bytes, None for that of the table
    progress              is told how many rows are written, by each attempt from the beginning, and without `where`
                          of how many
    Raises `UsageError` without updates, for a column that is not there or not at the top and for one of blobs,
    `TypeError` for what is no text, `BindError` for an expression that does not fit, `OperationError` for one that
    cannot be computed for a row, and as `delete_rows`.
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
        **scan_bounds(limit_bytes),
    )
    files = files_like(state, version)
    payloads = BlobPayloads(state, rows, limit_bytes // 8)
    num_rows = None
    if progress is not None and where is None:
        num_rows = sum((yield from load_live_counts(state, state.all_places)))
    told = RowProgress(progress, num_rows)

    def write() -> Plan[tuple[DatasetState, UpdateResult]]:
        try:
            moved = yield from move_rows(state, projected_batches(state, options, rows), files, payloads, told)
        except (EvaluationError, SchemaError) as error:  # of a value that cannot be computed, or be in the column
            raise OperationError(error.message, path=state.location.uri) from error
        deletion = moved.deletion
        operation = Update(
            tuple(deletion.removed),
            tuple(deletion.updated),
            moved.fragments,
            fields_for_preserving_frag_bitmap=tuple(one.id for field in assigned for one in field.walk()),
        )
        made = deletion.commit_files()
        publish = [files.publish(made)]
        after = yield from change(state, operation, affected=deletion.affected, files=made, alongside=publish)
        return after, UpdateResult(num_rows_updated=deletion.num_rows)

    done: tuple[DatasetState, UpdateResult] = yield RollBackOnError(write(), files.roll_back)
    return done


def _target(state: DatasetState, column: str) -> Field:
    """The field that gets new values."""
    path = split_path(column)
    found = next((field for field in state.schema.fields if field.name == path[0]), None)
    if found is None and column in SYSTEM_COLUMNS:
        raise UsageError(
            f"Invalid user input: Column '{column}' does not exist in dataset schema: it is a reserved metadata column "
            "and cannot be updated"
        )
    if found is None:
        names = ", ".join(state.schema.names)
        raise UsageError(f"Column '{column}' does not exist in dataset schema. Its columns are {names}")
    if len(path) > 1:
        raise UsageError(
            f"Nested column references are not yet supported. Referenced: {column}. Set the struct by named_struct"
        )
    if any(one.is_blob_v2 for one in found.walk()):
        raise UsageError(f"Direct updates to column '{column}' containing blob v2 values are not supported")
    return found


def _new_rows(state: DatasetState, updates: Mapping[str, str]) -> Projection:
    """All columns of the table, those that are assigned computed from the others."""
    found = project(state.schema, None, with_row_id=state.has_stable_row_ids, with_row_address=True)
    outputs = (
        _computed(state, output, updates[output.name]) if output.name in updates else output for output in found.outputs
    )
    return replace(found, outputs=tuple(outputs))


def _computed(state: DatasetState, output: OutputColumn, text: str) -> OutputColumn:
    value = filters.compile_value(text, state.schema.described, _target(state, output.name).describe_blobs())
    return OutputColumn(output.name, (), output.field, value)
