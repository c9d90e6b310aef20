"""Compaction by many tasks: each rewrites fragments that belong together, the planner replaces all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lance_io.changes.compaction.compact_files import commit_compaction, execute_task, plan_compaction
from lance_io.changes.compaction.compaction_values import CompactionMetrics, TaskValues
from lance_io.commit.commit_files import CommitFiles
from lance_io.dataset.distributed.table_jobs import (
    JobPart,
    TableJob,
    discard_data_files,
    new_digits,
    remove_data_files,
)
from lance_io.dataset.distributed.table_version import TableVersion
from lance_io.plans.plan import RollBackOnError
from lance_io.reads.open_version import check_out
from lance_io.reads.run_plan import run

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lance_io.changes.compaction.compaction_values import RewriteResult
    from lance_io.dataset.distributed.table_jobs import Outcome
    from lance_io.dataset.distributed.table_place import TablePlace
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.store.url import Location


@dataclass(frozen=True)
class RewritePart(JobPart):
    """Fragments to rewrite together. It holds plain values, so it can be pickled.

    Attributes:
        task: The fragments, and the options of the compaction.
    """

    task: TaskValues


@dataclass(frozen=True)
class CompactionJob(TableJob):
    """A compaction. It holds plain values, so it can be pickled.

    Attributes:
        options: Keywords of `DatasetOptimizer.compact_files`.
    """

    options: Mapping[str, Any] = field(default_factory=dict)

    def _task(self, state: DatasetState, part: RewritePart) -> Plan[RewriteResult]:
        return execute_task(state, part.task, None, self._new_file_name)

    def _commit(self, state: DatasetState, results: Sequence[RewriteResult]) -> Plan[Outcome]:
        if not results:
            return _outcome(state, CompactionMetrics())
        newest = yield from check_out(state, None)
        files = CommitFiles()
        kept = _names(results)

        def remove(_: BaseException) -> Plan[None]:
            return self._tidy(state.location, () if files.may_remove else kept)

        committing = commit_compaction(newest, results, self.options, files)
        after, metrics = yield RollBackOnError(committing, remove)
        yield from self._tidy(state.location, kept)
        return _outcome(after, metrics)

    def _discard(self, state: DatasetState, value: RewriteResult) -> Plan[None]:
        return discard_data_files(state, _names([value]))

    def _remove_files(self, location: Location, kept: Collection[str]) -> Plan[int]:
        return remove_data_files(location, self.digits, kept)


def _names(results: Sequence[RewriteResult]) -> list[str]:
    """Names of the new data files."""
    return [str(file.path) for result in results for fragment in result.new_fragments for file in fragment.files]


def _outcome(state: DatasetState, metrics: CompactionMetrics) -> Outcome:
    return {
        "version": state.manifest.version,
        "fragments_removed": metrics.fragments_removed,
        "fragments_added": metrics.fragments_added,
        "files_removed": metrics.files_removed,
        "files_added": metrics.files_added,
    }


def plan_compacted(
    place: TablePlace,  # plain: public parameter
    options: Mapping[str, Any],
) -> tuple[CompactionJob, list[RewritePart]]:
    """Plan a compaction.

    Args:
        place: The table.
        options: Keywords of `DatasetOptimizer.compact_files`.

    Returns:
        The job, and its parts; none if nothing is to do.

    Raises:
        UsageError: An option has an invalid value.
    """
    state = TableVersion.open(place).state
    return run(state, _plan(state, options))


def _plan(state: DatasetState, options: Mapping[str, Any]) -> Plan[tuple[CompactionJob, list[RewritePart]]]:
    state.check_commits()
    _, tasks = yield from plan_compaction(state, options)
    parts = [RewritePart(number, task) for number, task in enumerate(tasks)]
    return CompactionJob(new_digits(), state.manifest.version, len(parts), dict(options)), parts
