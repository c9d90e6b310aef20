"""Compaction as plans: what is to be done, one task of it, and the commit of what was done (spec: commit, 10; 8.3).

    plan      candidates and bins of the open version
    execute   rows of one task into new files; any number of processes, each its own task
    commit    ReserveFragments takes the new ids out of use, Rewrite puts the new fragments in the place of the old ones

Both commits are made for the version that was planned on, so that what others changed since is noticed. Between them
the table has a version more, with the same rows; a process that ends there leaves files that nobody refers to. So what
can be refused is refused before the first: results that do not fit, and changes of others that are known by then.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lance_io.changes.compaction.compaction_options import CompactionSettings, compaction_options
from lance_io.changes.compaction.compaction_values import CompactionMetrics, RewriteResult, TaskValues
from lance_io.changes.compaction.copy_blobs import BlobCopies
from lance_io.changes.compaction.copy_pages import copy_pages_of, obstacle_to_copying
from lance_io.changes.compaction.lineage_files import LineageFiles
from lance_io.changes.compaction.plan_tasks import SourceFragment, plan_bins
from lance_io.changes.compaction.recorded_segments import segments_then
from lance_io.changes.compaction.rewrite_fragments import carry_lineage, new_files, rewrite_rows_of, scan_of
from lance_io.changes.compaction.verify_rows import verify_rows
from lance_io.changes.edits.change_plans import commit_target, move_to
from lance_io.changes.upkeep.remove_versions import after_commit
from lance_io.commit.commit_files import CommitFiles
from lance_io.commit.commit_request import CommitRequest
from lance_io.commit.loop import commit
from lance_io.errors import OperationError, UsageError
from lance_io.format.version import V0_1
from lance_io.io import trace_events
from lance_io.plans.plan import RollBackOnError
from lance_io.reads.metadata.describe import fragment_metadata, stored_fragment
from lance_io.reads.open_version import check_out
from lance_io.reads.rows.deletions_and_ids import load_live, load_live_counts
from lance_io.reads.version.index_entries import load_indices
from lance_io.table.manifest.fragment_reuse import addresses_of, encode_addresses, find_reuse, map_coverage
from lance_io.table.transaction.named_twice import added_files
from lance_io.table.transaction.operations import ReserveFragments, Rewrite, RewriteGroup
from lance_io.table.transaction.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lance_io.changes.write.data_files import NewFiles
    from lance_io.changes.write.write_progress import FragmentWriteProgress
    from lance_io.plans.plan import Plan
    from lance_io.reads.metadata.fragment_metadata import FragmentMetadata
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.fragment import Fragment
    from lance_io.table.manifest.index_section import IndexMetadata


def plan_compaction(state: DatasetState, given: Mapping[str, Any]) -> Plan[tuple[CompactionSettings, list[TaskValues]]]:
    """What is to be done; reads deletion files only where the manifest does not say how many rows they list.

    given  keywords; errors as `compaction_options`
    """
    if given.get("memory_limit") is None and state.memory_limit is not None:
        given = {**given, "memory_limit": state.memory_limit}
    options = compaction_options(given, state.manifest.config, state.manifest.data_version)
    if options.defer_index_remap and state.has_stable_row_ids:
        raise OperationError(
            "Not supported: Cannot compact with defer_index_remap: the dataset uses stable row IDs, and recording "
            "their row-address moves in a fragment reuse index is not supported. Indices by row id stay valid without "
            f"it, in {state.location.uri}",
            path=state.location.uri,
        )
    sources = yield from source_fragments(state)
    fragments = state.manifest.fragments
    tasks = [
        TaskValues(state.manifest.version, [fragment_metadata(fragments[one.place]) for one in each], options)
        for each in plan_bins(sources, options)
    ]
    return options, tasks


def source_fragments(state: DatasetState) -> Plan[list[SourceFragment]]:
    """What planning has to know of all fragments."""
    counts = yield from load_live_counts(state, state.all_places)
    covered = _coverage((yield from load_indices(state)))
    sources = []
    for place, (fragment, num_live) in enumerate(zip(state.manifest.fragments, counts, strict=True)):
        num_rows = int(state.physical_rows[place])
        num_bytes = sum(file.size_bytes or 0 for file in fragment.files)
        known_by = frozenset(covered[fragment.id])
        sources.append(SourceFragment(place, fragment.id, num_rows, num_rows - num_live, num_bytes, known_by))
    return sources


def _coverage(indices: Sequence[IndexMetadata]) -> defaultdict[int, set[str]]:
    """By fragment id, the index segments that know it."""
    covered: defaultdict[int, set[str]] = defaultdict(set)
    reuse = find_reuse(indices)
    for index in indices:
        if not index.is_system:
            for fragment_id in map_coverage(index.fragment_ids or frozenset(), reuse):
                covered[fragment_id].add(index.uuid)
    return covered


# -- one task ----------------------------------------------------------------------------------------------------------


def execute_task(
    state: DatasetState, task: TaskValues, progress: FragmentWriteProgress | None = None
) -> Plan[RewriteResult]:
    """Write the rows of a task into new files, which no version refers to yet.

    The version of the task is read, whichever one is open. Raises `OSError` where it is gone, and `UsageError` for
    fragments that it does not have like this.
    """
    state = yield from _at_version(state, task.read_version)
    written, files = yield from _write(state, task, progress)
    yield RollBackOnError(_close_all(files), partial(_roll_back, files))
    return written


def _close_all(files: Iterable[NewFiles]) -> Plan[None]:
    """Make the last file of each visible."""
    for each in files:
        yield from each.close_last()


def _roll_back(files: Iterable[NewFiles], cause: BaseException) -> Plan[None]:
    for each in files:
        yield from each.roll_back(cause)


def _at_version(state: DatasetState, version: int) -> Plan[DatasetState]:
    return state if state.manifest.version == version else (yield from check_out(state, version))


def _write(
    state: DatasetState, task: TaskValues, progress: FragmentWriteProgress | None
) -> Plan[tuple[RewriteResult, list[NewFiles]]]:
    """The rows of a task in new files, and what the manifest does not hold in others; the last are not visible yet."""
    places = _places_of(state, task.fragments)
    counts = yield from load_live_counts(state, places)
    copies = BlobCopies(state) if state.schema.has_blobs and state.manifest.data_version != V0_1 else None
    files = new_files(state, sum(counts), task.options, progress, copies)

    lineage = LineageFiles(state, task.options.file_version(state.manifest.data_version))

    is_copied = _is_copied(state, places, task.options)

    def write() -> Plan[RewriteResult]:
        if is_copied:
            yield from copy_pages_of(state, places, files, task.options)
        else:
            yield from rewrite_rows_of(state, places, files, task.options, copies)
        fragments = yield from carry_lineage(state, places, files.fragments)
        fragments = yield from lineage.spill(fragments)
        if sum(fragment.physical_rows or 0 for fragment in fragments) != sum(counts):
            raise OperationError(f"{sum(counts):,} rows were read, and others written", path=state.location.uri)
        if task.options.verify == "read":
            yield from _close_all([files, *lineage.files])
            yield from verify_rows(state, scan_of(state, places, task.options), fragments)
        return RewriteResult(
            read_version=task.read_version,
            metrics=_metrics(task.fragments, fragments),
            new_fragments=[fragment_metadata(fragment) for fragment in fragments],
            original_fragments=list(task.fragments),
            row_addrs=(yield from _moved_rows(state, places)),
        )

    def roll_back(cause: BaseException) -> Plan[None]:
        return _roll_back([files, *lineage.files], cause)

    result: RewriteResult = yield RollBackOnError(write(), roll_back)
    return result, [files, *lineage.files]


def _moved_rows(state: DatasetState, places: Sequence[int]) -> Plan[bytes | None]:
    """The addresses of the rows that are moved; None where no index names rows by them."""
    if state.has_stable_row_ids or not state.has_index:
        return None
    live = yield from load_live(state, places)
    rows = {state.fragment_ids[place]: addresses_of(live[place].num_rows, live[place].deleted) for place in places}
    return encode_addresses(rows)


def _is_copied(state: DatasetState, places: Sequence[int], options: CompactionSettings) -> bool:
    """Whether pages are copied as they are. Raises `OperationError` where they have to be and cannot."""
    if not options.may_copy:
        return False
    obstacle = obstacle_to_copying(state, places, options.file_version(state.manifest.data_version))
    if obstacle is not None and options.compaction_mode == "force_binary_copy":
        raise OperationError(f"binary copy is not supported here: {obstacle}", path=state.location.uri)
    return obstacle is None


def _places_of(state: DatasetState, fragments: Iterable[FragmentMetadata]) -> list[int]:
    """Where the fragments of a task are. Raises `UsageError` where the version has others of these ids."""
    places = state.places_by_id([fragment.id for fragment in fragments])
    for place, fragment in zip(places, fragments, strict=True):
        there = [file.path for file in state.manifest.fragments[place].files]
        if there != [file.path for file in fragment.files]:
            raise UsageError(
                f"fragment {fragment.id} of version {state.manifest.version} has data files {there}, the task has "
                f"{[file.path for file in fragment.files]}: it is of another table"
            )
    return places


def _metrics(old: Sequence[FragmentMetadata], new: Sequence[Fragment]) -> CompactionMetrics:
    return CompactionMetrics(
        fragments_removed=len(old),
        fragments_added=len(new),
        files_removed=sum(len(fragment.files) + (fragment.deletion_file is not None) for fragment in old),
        files_added=sum(len(fragment.files) for fragment in new),
    )


# -- the commit --------------------------------------------------------------------------------------------------------


def commit_compaction(
    state: DatasetState, results: Sequence[RewriteResult], given: Mapping[str, Any]
) -> Plan[tuple[DatasetState, CompactionMetrics]]:
    """Put the new fragments of some tasks in the place of the old ones; nothing without results.

    given  keywords of the compaction
    Rows keep their order among the tasks, whatever that of the results. Raises as `commit` does, and `OperationError`
    for two results of one task, before anything is committed: which of them to take is the caller's to say. The files
    of the other stay for a cleanup.
    """
    options = compaction_options(given, state.manifest.config, state.manifest.data_version)
    return (yield from _commit(state, results, CommitFiles(), (), defers=options.defer_index_remap))


def _commit(
    state: DatasetState,
    results: Sequence[RewriteResult],
    files: CommitFiles,
    alongside: Sequence[Plan[Any]],
    *,
    defers: bool | None,
) -> Plan[tuple[DatasetState, CompactionMetrics]]:
    """files: what was made for the second commit, whose outcome says what becomes of it."""
    metrics = sum((result.metrics for result in results), CompactionMetrics())
    if not results:
        return state, metrics
    ordered = sorted(results, key=lambda result: min((one.id for one in result.original_fragments), default=0))
    read_version = min(result.read_version for result in results)
    num_new = sum(len(result.new_fragments) for result in results)
    next_id = 0
    added_files(None, Rewrite(_groups(ordered, next_id)))  # refused before ids are reserved for what cannot be
    then = yield from segments_then(state)

    def rewrite_to(next_id: int) -> Plan[Transaction]:
        moved = yield from _recorded_moves(state, ordered, defers=defers)
        groups = _groups(ordered, next_id)
        return Transaction(read_version, Rewrite(groups, (), moved, bool(defers), then))

    if num_new:
        rewrite = yield from rewrite_to(next_id)
        reserve = Transaction(read_version, ReserveFragments(num_new))
        request = CommitRequest(reserve, base=state.manifest, alongside=alongside, followed_by=rewrite)
        reserved = yield from commit(commit_target(state), request)
        next_id = (reserved.manifest.max_fragment_id or 0) - num_new + 1
        state, alongside = move_to(state, reserved), ()
    rewrite = yield from rewrite_to(next_id)
    request = CommitRequest(rewrite, base=state.manifest, files=files, alongside=alongside)
    after = move_to(state, (yield from commit(commit_target(state), request)))
    yield from after_commit(after)
    return after, metrics


def _groups(results: Sequence[RewriteResult], next_id: int) -> tuple[RewriteGroup, ...]:
    """What the new fragments of each result take the place of; numbered from `next_id` on."""
    groups = []
    for result in results:
        end = next_id + len(result.new_fragments)
        new = zip(range(next_id, end), result.new_fragments, strict=True)
        groups.append(
            RewriteGroup(
                tuple(stored_fragment(one) for one in result.original_fragments),
                tuple(replace(stored_fragment(one), id=fragment_id) for fragment_id, one in new),
            )
        )
        next_id = end
    return tuple(groups)


def _recorded_moves(
    state: DatasetState, results: Sequence[RewriteResult], *, defers: bool | None
) -> Plan[tuple[bytes | None, ...] | None]:
    """Where rows were, for the fragment reuse index; None where indices are told otherwise.

    A table that has such a record goes on with it: its indices name fragments that are gone, and only it says what
    became of them.
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
                "a task was executed when the table had no index, and does not say where its rows were: execute it "
                "again",
                path=state.location.uri,
            )
        return None
    return moves


# -- all of it ---------------------------------------------------------------------------------------------------------


def compact_files(
    state: DatasetState, given: Mapping[str, Any], progress: FragmentWriteProgress | None = None
) -> Plan[tuple[DatasetState, CompactionMetrics]]:
    """Plan, execute and commit. What was written is removed where that fails, unless it may have been committed."""
    if trace_events.listeners:
        trace_events.tell_dataset("compacting", state.location.uri)
    state.check_decides()
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
        made = CommitFiles()
        publish = [files.publish(made) for files in written]
        return (yield from _commit(state, results, made, publish, defers=options.defer_index_remap))

    done: tuple[DatasetState, CompactionMetrics] = yield RollBackOnError(work(), partial(_roll_back, written))
    return done
