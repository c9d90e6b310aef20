"""`merge_insert` as a plan: pull the source once, then match, write and commit; retries after conflicts.

rows of the source -> `SourceRows`, once
each attempt:  check columns -> join by key -> write rows or columns -> one Update transaction
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypedDict, TypeVar

import pyarrow as pa

from lance_io.changes.columns.rewrite_columns import column_files
from lance_io.changes.edits.change_plans import change, repeat_on_conflict
from lance_io.changes.edits.delete_rows import compute_deletion
from lance_io.changes.edits.rewrite_rows import new_row_files
from lance_io.changes.edits.row_progress import RowProgress
from lance_io.changes.join.placed_rows import RowPositions
from lance_io.changes.join.source_rows import SourceRows
from lance_io.changes.merge.inserted_keys import InsertedKeys
from lance_io.changes.merge.match_rows import MergeConditions, RowMatches, match_rows
from lance_io.changes.merge.merge_clauses import compile_condition
from lance_io.changes.merge.merge_text import describe_merge, measure_merge
from lance_io.changes.merge.patched_columns import ColumnPatcher, reasons_not_to_patch
from lance_io.changes.merge.source_fit import fit_source
from lance_io.changes.merge.written_rows import RowWriter, whole_schema
from lance_io.codecs.roaring import encode_roaring
from lance_io.commit.commit_files import CommitFiles
from lance_io.errors import LanceError, OperationError
from lance_io.filters import compile_filter
from lance_io.format.version import V0_1
from lance_io.plans.plan import Import, RollBackOnError, Together, ask
from lance_io.reads.version.column_lists import COMPILER
from lance_io.reads.version.index_entries import load_indices
from lance_io.table.transaction.operations import Update
from lance_io.table.transaction.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lance_io.changes.merge.merge_clauses import MergeClauses
    from lance_io.changes.merge.source_fit import SourceFit
    from lance_io.changes.write.data_files import DataFolder, NewFiles
    from lance_io.changes.write.input_data import AsyncRows, Rows
    from lance_io.changes.write.target_bases import TargetBases
    from lance_io.codecs.roaring import U32Array
    from lance_io.plans.plan import Plan
    from lance_io.reads.metadata.file_listing import Progress
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.fragment import Fragment
    from lance_io.table.transaction.operations import KeyFilter

T = TypeVar("T")
SOURCE_SHARE: Final = 4  # a quarter of the memory limit holds rows of the source


class ExecuteResult(TypedDict):
    """Result of a merge: numbers of inserted and updated rows, and of rows deleted by a delete clause."""

    num_inserted_rows: int
    num_updated_rows: int
    num_deleted_rows: int


@dataclass(frozen=True)
class PreparedMerge:
    """A merge that is ready to commit.

    operation  the change
    affected   offsets of the rows that it deletes, by fragment; None if it rewrites columns in place
    files      files of the commit; the deletion files are not written yet
    uploads    plans that make its data files visible
    joined     the join method, as text
    written    the new data files, a fragment each
    """

    operation: Update
    affected: Mapping[int, U32Array] | None
    files: CommitFiles
    uploads: Sequence[Plan[object]]
    result: ExecuteResult
    joined: str
    written: Sequence[Fragment]


def merge_rows(
    state: DatasetState,
    clauses: MergeClauses,
    limit_bytes: int,
    rows: Rows | AsyncRows,
    progress: Progress | None = None,
) -> Plan[tuple[DatasetState, ExecuteResult]]:
    """Merge rows into the table; returns the new version and the result.

    limit_bytes  memory limit
    progress     called with the number of written rows and the total; each attempt counts from 0
    Raises `UsageError` for clauses that change nothing, `OperationError` and `SchemaError` for rows that do not fit,
    and as `repeat_on_conflict`.
    """
    state.check_commits()
    source = yield from _pull(clauses, limit_bytes, rows)

    def attempt(state: DatasetState) -> Plan[tuple[DatasetState, ExecuteResult]]:
        def commit(merged: PreparedMerge) -> Plan[tuple[DatasetState, ExecuteResult]]:
            after = yield from change(
                state, merged.operation, affected=merged.affected, files=merged.files, alongside=merged.uploads
            )
            return after, merged.result

        return (yield from _Merge(state, clauses, source, limit_bytes, progress).run(commit))

    try:
        return (yield from repeat_on_conflict(state, attempt, clauses.conflict_retries, clauses.retry_timeout))
    finally:
        source.close()


def prepare_merge(
    state: DatasetState, clauses: MergeClauses, limit_bytes: int, rows: Rows | AsyncRows
) -> Plan[tuple[Transaction, ExecuteResult]]:
    """Merge without a commit; returns the transaction, whose files are written."""
    source = yield from _pull(clauses, limit_bytes, rows)

    def keep(merged: PreparedMerge) -> Plan[tuple[Transaction, ExecuteResult]]:
        files, store = merged.files, state.location.store
        plans = [*merged.uploads, *files.puts(store, files.contents)]
        yield RollBackOnError(ask(Together(plans)), lambda _: files.roll_back(store))
        return Transaction(state.manifest.version, merged.operation), merged.result

    try:
        return (yield from _Merge(state, clauses, source, limit_bytes).run(keep))
    finally:
        source.close()


def count_merge(
    state: DatasetState, clauses: MergeClauses, limit_bytes: int, rows: Rows | AsyncRows
) -> Plan[ExecuteResult]:
    """Count the effects of a merge: compares keys, writes nothing."""
    source = yield from _pull(clauses, limit_bytes, rows)
    try:
        return (yield from _Merge(state, clauses, source, limit_bytes).count())
    finally:
        source.close()


def _pull(clauses: MergeClauses, limit_bytes: int, rows: Rows | AsyncRows) -> Plan[SourceRows]:
    clauses.check_changes()
    yield Import(COMPILER)
    source = SourceRows(rows.schema, limit_bytes // SOURCE_SHARE, is_empty=rows.num_rows == 0)
    try:
        yield from source.pull(rows)
    except BaseException:
        source.close()
        raise
    return source


class _Merge:
    """One attempt of a merge, on one version."""

    def __init__(
        self,
        state: DatasetState,
        clauses: MergeClauses,
        source: SourceRows,
        limit_bytes: int,
        progress: Progress | None = None,
    ) -> None:
        self._state = state
        self._clauses = clauses
        self._source = source
        self._limit_bytes = limit_bytes
        self._progress = progress
        self._fit = fit_columns(state, clauses, source.schema, has_rows=not source.is_empty)

    def run(self, finish: Callable[[PreparedMerge], Plan[T]]) -> Plan[T]:
        """Make the change and run `finish`; if that raises, the new files are removed."""
        state, clauses, fit = self._state, self._clauses, self._fit
        patches = yield from writes_columns(state, clauses, fit)
        matches = self._new_matches(patches)
        try:
            joined = yield from match_rows(state, self._source, fit, clauses, matches, self._limit_bytes)
            folders = None if clauses.bases is None else _folders(state, clauses.bases)
            files = new_row_files(state, clauses.version, fit.schema if patches else whole_schema(fit), folders)
            write = self._patch_columns if patches else self._write_rows
            done: T = yield RollBackOnError(write(matches, files, joined, finish), files.roll_back)
            return done
        finally:
            matches.close()

    def count(self) -> Plan[ExecuteResult]:
        """Count the effects of the change."""
        state, clauses = self._state, self._clauses
        matches = self._new_matches((yield from writes_columns(state, clauses, self._fit)))
        try:
            yield from match_rows(state, self._source, self._fit, clauses, matches, self._limit_bytes)
            return _result(matches, self._num_inserts(matches))
        finally:
            matches.close()

    def _num_inserts(self, matches: RowMatches) -> int:
        return int((~matches.is_matched).sum()) if self._clauses.inserts else 0

    def _row_progress(self, matches: RowMatches) -> RowProgress:
        return RowProgress(self._progress, matches.num_updated + self._num_inserts(matches))

    def _new_matches(self, patches: bool) -> RowMatches:
        """An empty set of matches. With stable row ids they have the order of the table: then ids take few bytes."""
        in_table_order = not patches and self._clauses.matched == "update" and self._source.has_random_access
        in_table_order = in_table_order and self._state.has_stable_row_ids
        return RowMatches(
            self._clauses,
            compile_conditions(self._state, self._clauses, self._fit),
            self._source.num_rows,
            moves_updated=not patches,
            memory_bytes=self._limit_bytes // 8,
            positions=RowPositions(self._state, self._state.all_fragment_indexes) if in_table_order else None,
        )

    def _write_rows(
        self, matches: RowMatches, files: NewFiles, joined: str, finish: Callable[[PreparedMerge], Plan[T]]
    ) -> Plan[T]:
        state = self._state
        writer = RowWriter(state, self._source, self._fit, files, self._limit_bytes, self._row_progress(matches))
        if self._clauses.matched == "update":
            yield from writer.write_updated(matches)
        keys = yield from self._insert(writer, matches)
        yield from files.complete_last_file()
        deletion = yield from compute_deletion(state, matches.deleted())
        operation = Update(
            tuple(deletion.removed_fragment_ids),
            tuple(deletion.updated_fragments),
            (yield from writer.fragments()),
            fields_for_preserving_frag_bitmap=tuple(field.id for field in state.schema.walk()),
            inserted_rows=keys,
        )
        commit_files, result = deletion.commit_files(), _result(matches, writer.num_inserted)
        uploads = [files.publish_for_commit(commit_files)]
        merged = PreparedMerge(
            operation, deletion.deleted_offsets, commit_files, uploads, result, joined, files.fragments
        )
        return (yield from finish(merged))

    def _patch_columns(
        self, matches: RowMatches, files: NewFiles, joined: str, finish: Callable[[PreparedMerge], Plan[T]]
    ) -> Plan[T]:
        """Write columns for the fragments that have matches. files: receive the inserted rows."""
        state, clauses = self._state, self._clauses
        patcher = ColumnPatcher(state, self._source, self._fit, clauses, self._limit_bytes)
        patches = column_files(state, patcher.schema, clauses.version)
        progress = self._row_progress(matches)
        writer = RowWriter(state, self._source, self._fit, files, self._limit_bytes, progress, pads=False)

        def write() -> Plan[T]:
            offsets = matches.patched()
            touched = state.fragment_indexes_of(list(offsets))
            if patcher.field_ids and touched:
                changed = yield from patcher.write(matches, patches, progress)
            else:  # matched rows stay unchanged
                changed = [state.manifest.fragments[index] for index in touched]
            keys = yield from self._insert(writer, matches)
            yield from files.complete_last_file()
            bitmaps = {fragment_id: encode_roaring(rows) for fragment_id, rows in offsets.items()}
            operation = Update(
                updated_fragments=tuple(changed),
                new_fragments=tuple(files.fragments),
                fields_modified=patcher.field_ids if touched else (),
                update_mode="rewrite_columns",
                inserted_rows=keys,
                updated_fragment_offsets=bitmaps if state.has_stable_row_ids else {},
            )
            commit_files = CommitFiles()
            uploads = [patches.publish_for_commit(commit_files), files.publish_for_commit(commit_files)]
            written = [*patches.fragments, *files.fragments]
            result = _result(matches, writer.num_inserted)
            merged = PreparedMerge(operation, None, commit_files, uploads, result, joined, written)
            return (yield from finish(merged))

        done: T = yield RollBackOnError(write(), patches.roll_back)
        return done

    def _insert(self, writer: RowWriter, matches: RowMatches) -> Plan[KeyFilter | None]:
        if not self._clauses.inserts:
            return None
        keys = InsertedKeys.wanted(self._clauses.on, self._state.schema)
        yield from writer.write_inserted(matches, keys)
        return None if keys is None else keys.filter()


def _folders(state: DatasetState, bases: TargetBases) -> tuple[DataFolder, ...]:
    if not bases.are_given:
        raise OperationError("target_bases cannot be empty: leave it out to write into the table's own folder")
    return bases.folders(state, state.manifest.base_paths)


def _result(matches: RowMatches, num_inserted: int) -> ExecuteResult:
    return ExecuteResult(
        num_inserted_rows=num_inserted,
        num_updated_rows=matches.num_updated,
        num_deleted_rows=matches.num_deleted,
    )


# -- decisions based on the columns of the source ----------------------------------------------------------------------


def fit_columns(state: DatasetState, clauses: MergeClauses, schema: pa.Schema, *, has_rows: bool = True) -> SourceFit:
    """Map the columns of a source to the table. Raises `OperationError` and `SchemaError` if they do not fit.

    has_rows  whether the source may have rows to insert
    """
    fit = fit_source(schema, state.schema, clauses.version or state.manifest.data_version)
    absent = [name for name in clauses.on if name not in fit.names]
    if absent:
        raise OperationError(
            f"No field named {absent[0]}: the source needs all key columns. Its fields are {', '.join(fit.names)}"
        )
    if clauses.inserts and has_rows:
        fit.check_insertable()
    return fit


def compile_conditions(state: DatasetState, clauses: MergeClauses, fit: SourceFit) -> MergeConditions:
    """Compile the conditions of the clauses for the columns of source and table."""
    update = rest = None
    if clauses.condition is not None:
        source = pa.schema([pa.field(field.name, field.arrow_type) for field in fit.schema.fields])
        update = compile_condition(clauses.condition, source, state.stored_schema)
    if clauses.rest_filter is not None:
        rest = compile_filter(clauses.rest_filter, state.stored_schema)
    return MergeConditions(update, rest)


def writes_columns(state: DatasetState, clauses: MergeClauses, fit: SourceFit) -> Plan[bool]:
    """Whether to write columns for the fragments that have matches, instead of rows; decides as pylance does.

    Raises `OperationError` if `write_mode` demands columns and the merge does not support them.
    """
    if clauses.write_mode == "rewrite_rows":
        return False
    reasons = reasons_not_to_patch(state, fit, clauses)
    if clauses.write_mode == "rewrite_columns":
        if set(fit.names) == set(clauses.on):
            reasons.append("the source carries no column besides the join key")
        if clauses.inserts:
            reasons.append("inserting unmatched source rows adds rows, which patching cannot do")
        if clauses.matched != "update":
            reasons.append("matched rows are not updated")
        if reasons:
            raise OperationError(
                f"MergeInsertWriteMode::RewriteColumns cannot express this merge insert: {'; '.join(reasons)}. Use "
                "write_mode 'auto' or 'rewrite_rows' instead"
            )
        return True
    if reasons or clauses.matched in ("delete", "fail"):
        return False
    if clauses.inserts and state.manifest.data_version == V0_1:  # its fragments need all columns
        return False
    return bool(fit.partial_structs) or (yield from _has_key_index(state, clauses))


def _has_key_index(state: DatasetState, clauses: MergeClauses) -> Plan[bool]:
    if not clauses.uses_index or len(clauses.on) > 1:
        return False
    key = state.schema.find(clauses.on[0]).id
    indices = yield from load_indices(state)
    return any(index.fields == (key,) and index.is_scalar for index in indices)


# -- plans as text -----------------------------------------------------------------------------------------------------


def explain_merge(state: DatasetState, clauses: MergeClauses, schema: pa.Schema | None, verbose: bool) -> Plan[str]:
    """The plan of a merge as text; reads no row.

    schema   schema of the source, None for the table's
    verbose  add the columns that are read
    """
    clauses.check_changes()
    yield Import(COMPILER)
    fit = fit_columns(state, clauses, state.arrow_schema if schema is None else schema)
    conditions = compile_conditions(state, clauses, fit)
    patches = yield from writes_columns(state, clauses, fit)
    return describe_merge(state, clauses, fit, conditions, patches=patches, verbose=verbose)


class _AnalysisDone(LanceError):
    """Raised to roll back an analyzed merge before its commit; the message is the report."""


def analyze_merge(state: DatasetState, clauses: MergeClauses, limit_bytes: int, rows: Rows | AsyncRows) -> Plan[str]:
    """Merge rows without the commit and remove the files again; returns the plan with measurements."""
    source = yield from _pull(clauses, limit_bytes, rows)
    started = time.monotonic()

    def report(merged: PreparedMerge) -> Plan[str]:
        yield from ()
        fit = fit_columns(state, clauses, source.schema, has_rows=not source.is_empty)
        conditions = compile_conditions(state, clauses, fit)
        patches = merged.operation.update_mode == "rewrite_columns"
        done = measure_merge(merged.result, merged.written, merged.joined, source, time.monotonic() - started)
        text = describe_merge(state, clauses, fit, conditions, patches=patches, verbose=True, done=done)
        raise _AnalysisDone(text)

    try:
        yield from _Merge(state, clauses, source, limit_bytes).run(report)
    except _AnalysisDone as report_end:
        return report_end.message
    finally:
        source.close()
    raise AssertionError("a report ends the merge")
