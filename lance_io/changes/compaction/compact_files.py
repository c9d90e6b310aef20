"""Compaction as plans: planning, executing one task, and committing results (spec: commit, 10; 8.3).

    plan      candidates and bins of the open version
    execute   rows of one task into new files; tasks may run in different processes
    commit    ReserveFragments reserves the new ids, Rewrite replaces the old fragments by the new ones

Both commits are based on the planned version, so that they detect later changes by other writers. Between them the
table has one more version, with the same rows; a process that ends there leaves unreferenced files. So everything that
can be refused is refused before the first commit: results that do not fit, and conflicts that are known by then.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lance_io.changes.compaction.compaction_options import CompactionSettings, compaction_options
from lance_io.changes.compaction.compaction_values import CompactionMetrics, RewriteResult, TaskValues
from lance_io.changes.compaction.copy_blobs import BlobCopies
from lance_io.changes.compaction.copy_pages import copy_pages_of, reason_not_to_copy
from lance_io.changes.compaction.lineage_files import LineageFiles
from lance_io.changes.compaction.plan_tasks import SourceFragment, plan_bins
from lance_io.changes.compaction.recorded_segments import segments_after_compactions
from lance_io.changes.compaction.rewrite_fragments import carry_lineage, new_files, rewrite_rows_of, scan_of
from lance_io.changes.compaction.verify_rows import verify_rows
from lance_io.changes.edits.change_plans import commit_target, open_committed
from lance_io.changes.index.remap_indices import remap_indices, remove_remapped
from lance_io.changes.upkeep.remove_versions import after_commit
from lance_io.changes.write.data_files import data_file_name
from lance_io.commit.commit_files import CommitFiles
from lance_io.commit.commit_loop import commit
from lance_io.commit.commit_request import CommitRequest
from lance_io.errors import OperationError, UsageError
from lance_io.format.version import V0_1
from lance_io.io import trace_events
from lance_io.plans.plan import RollBackOnError
from lance_io.reads.metadata.describe import fragment_metadata, stored_fragment
from lance_io.reads.open_version import check_out
from lance_io.reads.rows.deletions_and_ids import load_live, load_live_counts
from lance_io.reads.version.index_entries import load_indices
from lance_io.table.manifest.fragment_reuse import encode_addresses, find_reuse, live_offsets, map_coverage
from lance_io.table.transaction.duplicate_names import added_files
from lance_io.table.transaction.operations import ReserveFragments, Rewrite, RewriteGroup
from lance_io.table.transaction.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lance_io.changes.index.remap_indices import Remapped
    from lance_io.changes.write.data_files import NewFiles
    from lance_io.changes.write.write_progress import FragmentWriteProgress
    from lance_io.commit.target import CommittedVersion
    from lance_io.plans.plan import Plan
    from lance_io.reads.metadata.fragment_metadata import FragmentMetadata
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.fragment import Fragment
    from lance_io.table.manifest.index_section import IndexMetadata


def plan_compaction(state: DatasetState, given: Mapping[str, Any]) -> Plan[tuple[CompactionSettings, list[TaskValues]]]:
    """Plan the tasks; reads deletion files only if the manifest lacks their numbers of rows.

    given  keywords; errors as `compaction_options`
    """
    if given.get("memory_limit") is None and state.memory_limit is not None:
        given = {**given, "memory_limit": state.memory_limit}
    options = compaction_options(given, state.manifest.config, state.manifest.data_version)
    if options.defer_index_remap and state.has_stable_row_ids:
        raise OperationError(
            "Not supported: Cannot compact with defer_index_remap: the dataset uses stable row IDs, and recording "
            "their row-address moves in a fragment reuse index is not supported. Indices by row id stay valid without "
            f"it: {state.location.uri}",
            path=state.location.uri,
        )
    sources = yield from source_fragments(state)
    fragments = state.manifest.fragments
    tasks = [
        TaskValues(state.manifest.version, [fragment_metadata(fragments[source.index]) for source in task], options)
        for task in plan_bins(sources, options)
    ]
    return options, tasks


def source_fragments(state: DatasetState) -> Plan[list[SourceFragment]]:
    """The properties of all fragments that planning needs."""
    counts = yield from load_live_counts(state, state.all_fragment_indexes)
    covered = _coverage((yield from load_indices(state)))
    sources = []
    for index, (fragment, num_live) in enumerate(zip(state.manifest.fragments, counts, strict=True)):
        num_rows = int(state.physical_rows[index])
        num_bytes = sum(file.size_bytes or 0 for file in fragment.files)
        covered_by = frozenset(covered[fragment.id])
        sources.append(SourceFragment(index, fragment.id, num_rows, num_rows - num_live, num_bytes, covered_by))
    return sources


def _coverage(indices: Sequence[IndexMetadata]) -> defaultdict[int, set[str]]:
    """The index segments that cover each fragment, by fragment id."""
    covered: defaultdict[int, set[str]] = defaultdict(set)
    reuse = find_reuse(indices)
    for index in indices:
        if not index.is_system:
            for fragment_id in map_coverage(index.fragment_ids or frozenset(), reuse):
                covered[fragment_id].add(index.uuid)
    return covered


# -- one task ----------------------------------------------------------------------------------------------------------


def execute_task(
    state: DatasetState,
    task: TaskValues,
    progress: FragmentWriteProgress | None = None,
    new_name: Callable[[], str] = data_file_name,
) -> Plan[RewriteResult]:
    """Write the rows of a task into new files, which no version refers to yet.

    new_name  returns the name of a file

    Reads the version of the task, independent of the open one. Raises `OSError` if that version is gone, and
    `UsageError` if its fragments differ from the task's.
    """
    state = yield from _at_version(state, task.read_version)
    written, files = yield from _write(state, task, progress, new_name)
    yield RollBackOnError(_close_all(files), partial(_roll_back, files))
    return written


def _close_all(files: Iterable[NewFiles]) -> Plan[None]:
    """Make the last file of each visible."""
    for each in files:
        yield from each.publish_last_file()


def _roll_back(files: Iterable[NewFiles], cause: BaseException) -> Plan[None]:
    for each in files:
        yield from each.roll_back(cause)


def _at_version(state: DatasetState, version: int) -> Plan[DatasetState]:
    return state if state.manifest.version == version else (yield from check_out(state, version))


def _write(
    state: DatasetState,
    task: TaskValues,
    progress: FragmentWriteProgress | None,
    new_name: Callable[[], str] = data_file_name,
) -> Plan[tuple[RewriteResult, list[NewFiles]]]:
    """Write the rows of a task, and spilled lineage, to new files; the last files are not visible yet."""
    indexes = _indexes_of(state, task.fragments)
    counts = yield from load_live_counts(state, indexes)
    copies = BlobCopies(state) if state.schema.has_blobs and state.manifest.data_version != V0_1 else None
    files = new_files(state, sum(counts), task.options, progress, copies, new_name)

    lineage = LineageFiles(state, task.options.file_version(state.manifest.data_version), new_name)

    is_copied = _is_copied(state, indexes, task.options)

    def write() -> Plan[RewriteResult]:
        if is_copied:
            yield from copy_pages_of(state, indexes, files, task.options)
        else:
            yield from rewrite_rows_of(state, indexes, files, task.options, copies)
        fragments = yield from carry_lineage(state, indexes, files.fragments)
        fragments = yield from lineage.spill(fragments)
        num_written = sum(fragment.physical_rows or 0 for fragment in fragments)
        if num_written != sum(counts):
            text = f"{sum(counts):,} rows were read, but {num_written:,} written"
            raise OperationError(text, path=state.location.uri)
        if task.options.verify == "read":
            yield from _close_all([files, *lineage.files])
            yield from verify_rows(state, scan_of(state, indexes, task.options), fragments)
        return RewriteResult(
            read_version=task.read_version,
            metrics=_metrics(task.fragments, fragments),
            new_fragments=[fragment_metadata(fragment) for fragment in fragments],
            original_fragments=list(task.fragments),
            row_addrs=(yield from _moved_rows(state, indexes)),
        )

    def roll_back(cause: BaseException) -> Plan[None]:
        return _roll_back([files, *lineage.files], cause)

    result: RewriteResult = yield RollBackOnError(write(), roll_back)
    return result, [files, *lineage.files]


def _moved_rows(state: DatasetState, indexes: Sequence[int]) -> Plan[bytes | None]:
    """The addresses of the moved rows; None if no index refers to rows by address."""
    if state.has_stable_row_ids or not state.has_index:
        return None
    live = yield from load_live(state, indexes)
    rows = {state.fragment_ids[index]: live_offsets(live[index].num_rows, live[index].deleted) for index in indexes}
    return encode_addresses(rows)


def _is_copied(state: DatasetState, indexes: Sequence[int], options: CompactionSettings) -> bool:
    """Whether encoded pages are copied. Raises `OperationError` if the options demand it and it is impossible."""
    if not options.may_copy:
        return False
    reason = reason_not_to_copy(state, indexes, options.file_version(state.manifest.data_version))
    if reason is not None and options.compaction_mode == "force_binary_copy":
        raise OperationError(f"binary copy is not supported here: {reason}", path=state.location.uri)
    return reason is None


def _indexes_of(state: DatasetState, fragments: Iterable[FragmentMetadata]) -> list[int]:
    """Indexes of the fragments of a task. Raises `UsageError` if the version's fragments with these ids differ."""
    indexes = state.fragment_indexes_of([fragment.id for fragment in fragments])
    for index, fragment in zip(indexes, fragments, strict=True):
        there = [file.path for file in state.manifest.fragments[index].files]
        if there != [file.path for file in fragment.files]:
            raise UsageError(
                f"fragment {fragment.id} of version {state.manifest.version} has data files {there}, the task has "
                f"{[file.path for file in fragment.files]}: the task belongs to another table"
            )
    return indexes


def _metrics(old: Sequence[FragmentMetadata], new: Sequence[Fragment]) -> CompactionMetrics:
    return CompactionMetrics(
        fragments_removed=len(old),
        fragments_added=len(new),
        files_removed=sum(len(fragment.files) + (fragment.deletion_file is not None) for fragment in old),
        files_added=sum(len(fragment.files) for fragment in new),
    )


# -- the commit --------------------------------------------------------------------------------------------------------


def commit_compaction(
    state: DatasetState,
    results: Sequence[RewriteResult],
    given: Mapping[str, Any],
    files: CommitFiles | None = None,
) -> Plan[tuple[DatasetState, CompactionMetrics]]:
    """Replace the old fragments of some tasks by the new ones; does nothing without results.

    given  keywords of the compaction
    files  of the second commit: its outcome says whether a caller may remove the files of the results
    Rows keep the order of the tasks, independent of the order of results. Raises as `commit` does, and `OperationError`
    for two results of one task, before anything is committed: the caller has to choose one. A cleanup removes the files
    of the other.
    """
    options = compaction_options(given, state.manifest.config, state.manifest.data_version)
    return (yield from _commit(state, results, files or CommitFiles(), (), options))


def _commit(
    state: DatasetState,
    results: Sequence[RewriteResult],
    files: CommitFiles,
    alongside: Sequence[Plan[Any]],
    options: CompactionSettings,
) -> Plan[tuple[DatasetState, CompactionMetrics]]:
    """files: files of the second commit, whose outcome decides whether they are kept."""
    defers = options.defer_index_remap
    metrics = sum((result.metrics for result in results), CompactionMetrics())
    if not results:
        return state, metrics
    ordered = sorted(results, key=lambda result: min((old.id for old in result.original_fragments), default=0))
    read_version = min(result.read_version for result in results)
    num_new = sum(len(result.new_fragments) for result in results)
    next_id = 0
    added_files(None, Rewrite(_groups(ordered, next_id)))  # raises for invalid results, before ids are reserved
    segments = yield from segments_after_compactions(state)

    def rewrite_to(next_id: int) -> Plan[Transaction]:
        moved = yield from _recorded_moves(state, ordered, defers=defers)
        groups = _groups(ordered, next_id)
        return Transaction(read_version, Rewrite(groups, (), moved, bool(defers), segments))

    if num_new:
        rewrite = yield from rewrite_to(next_id)
        reserve = Transaction(read_version, ReserveFragments(num_new))
        request = CommitRequest(reserve, base=state.manifest, alongside=alongside, followed_by=rewrite)
        reserved = yield from commit(commit_target(state), request)
        next_id = (reserved.manifest.max_fragment_id or 0) - num_new + 1
        state, alongside = open_committed(state, reserved), ()
    rewrite = yield from rewrite_to(next_id)
    after = yield from _commit_rewrite(state, rewrite, files, alongside, options)
    yield from after_commit(after)
    return after, metrics


def _commit_rewrite(
    state: DatasetState,
    rewrite: Transaction,
    files: CommitFiles,
    alongside: Sequence[Plan[Any]],
    options: CompactionSettings,
) -> Plan[DatasetState]:
    """The second commit, with new segments of the indices that would lose the fragments."""
    operation, defers = rewrite.operation, options.defer_index_remap
    assert isinstance(operation, Rewrite)
    remapped: list[Remapped] = []
    if state.has_index:
        remapped = yield from remap_indices(
            state,
            operation.groups,
            options.memory_limit_bytes,
            defers=defers,
            records=operation.moved_rows is not None,
        )
        operation = replace(operation, rewritten_indices=tuple(rewritten for rewritten, _ in remapped))
        rewrite = Transaction(rewrite.read_version, operation)
    keys = [key for _, segment in remapped for key in segment.files.keys]
    files.add_data(keys)
    request = CommitRequest(rewrite, base=state.manifest, files=files, alongside=alongside)

    def roll_back(cause: BaseException) -> Plan[None]:
        if files.may_remove:
            files.drop_data(keys)
            yield from remove_remapped(remapped, cause)

    committed: CommittedVersion = yield RollBackOnError(commit(commit_target(state), request), roll_back)
    return open_committed(state, committed)


def _groups(results: Sequence[RewriteResult], next_id: int) -> tuple[RewriteGroup, ...]:
    """Old and new fragments of each result; new ids start at `next_id`."""
    groups = []
    for result in results:
        end = next_id + len(result.new_fragments)
        new = zip(range(next_id, end), result.new_fragments, strict=True)
        groups.append(
            RewriteGroup(
                tuple(stored_fragment(fragment) for fragment in result.original_fragments),
                tuple(replace(stored_fragment(fragment), id=fragment_id) for fragment_id, fragment in new),
            )
        )
        next_id = end
    return tuple(groups)


def _recorded_moves(
    state: DatasetState, results: Sequence[RewriteResult], *, defers: bool | None
) -> Plan[tuple[bytes | None, ...] | None]:
    """Old addresses of rows, for the fragment reuse index; None if the compaction does not use it.

    A table that has such an index keeps using it: other indices refer to fragments that are gone, and only the
    fragment reuse index maps them.
    """
    moves = tuple(result.row_addrs for result in results)
    if defers is None and not state.has_stable_row_ids:
        return moves
    has_record = find_reuse((yield from load_indices(state))) is not None
    if not defers and not has_record:
        return None
    if None in moves and defers:
        if has_record:
            raise OperationError(
                "a task was executed when the table had no index, so its result lacks the old row addresses: execute "
                "it again",
                path=state.location.uri,
            )
        return None
    return moves


# -- plan, execute and commit ------------------------------------------------------------------------------------------


def compact_files(
    state: DatasetState, given: Mapping[str, Any], progress: FragmentWriteProgress | None = None
) -> Plan[tuple[DatasetState, CompactionMetrics]]:
    """Plan, execute and commit. On failure the new files are removed, unless they may have been committed."""
    if trace_events.listeners:
        trace_events.emit_dataset("compacting", state.location.uri)
    state.check_commits()
    options, tasks = yield from plan_compaction(state, given)
    results: list[RewriteResult] = []
    written: list[NewFiles] = []

    def work() -> Plan[tuple[DatasetState, CompactionMetrics]]:
        for task in tasks:
            result, files = yield from _write(state, task, progress)
            written.extend(files)
            results.append(result)
            if task is not tasks[-1]:
                yield from _close_all(files)
        commit_files = CommitFiles()
        publish = [files.publish_for_commit(commit_files) for files in written]
        return (yield from _commit(state, results, commit_files, publish, options))

    done: tuple[DatasetState, CompactionMetrics] = yield RollBackOnError(work(), partial(_roll_back, written))
    return done
