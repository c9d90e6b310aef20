"""Compaction: `dataset.optimize` in one call, `Compaction` in three steps for jobs of many processes.

    plan = Compaction.plan(dataset, {"target_rows_per_fragment": 1_000_000})
    results = pool.map(execute, plan.tasks)  # each task.execute(dataset); tasks and results pickle
    Compaction.commit(dataset, results)

For `AsyncDataset` there are `AsyncCompaction` and `await task.execute_async(dataset)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lance_io.changes.compaction.compaction_options import CompactionOptions, CompactionSettings
from lance_io.changes.compaction.compaction_values import (
    CompactionMetrics,
    ReducesToJson,
    RewriteResult,
    TaskValues,
    tasks_json,
)
from lance_io.lazy_names import lazy_module
from lance_io.plans.lazy_module import lazy_plans
from lance_io.reads.run_plan import run_change

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_io.changes.compaction import compact_files as plans
    from lance_io.changes.compaction.compaction_options import CompactionMode, Verify
    from lance_io.changes.index import build_progress
    from lance_io.changes.index import optimize_indices as index_plans
    from lance_io.changes.write.write_arguments import AutoCleanupConfig
    from lance_io.changes.write.write_progress import FragmentWriteProgress
    from lance_io.dataset.change_methods import AsyncDatasetChanges, DatasetChanges
    from lance_io.plans.plan import Plan
    from lance_io.reads.metadata.file_listing import Progress
    from lance_io.reads.version.state import DatasetState
else:
    build_progress = lazy_module("lance_io.changes.index.build_progress")
    index_plans = lazy_plans("lance_io.changes.index.optimize_indices")
    plans = lazy_plans("lance_io.changes.compaction.compact_files")

__all__ = [
    "AsyncCompaction",
    "Compaction",
    "CompactionMetrics",
    "CompactionOptions",
    "CompactionPlan",
    "CompactionTask",
    "RewriteResult",
]


class CompactionTask(TaskValues):
    """Fragments to rewrite together, in any process that can open the table."""

    def execute(self, dataset: DatasetChanges) -> RewriteResult:
        """Write the rows of the task's fragments into new files. The table does not change until `Compaction.commit`.

        Args:
            dataset: The table, open at any version; the task reads its own version.

        Returns:
            The new fragments, for `Compaction.commit`. It can be pickled.
        """
        return dataset._run(plans.execute_task(dataset._state, self))

    async def execute_async(self, dataset: AsyncDatasetChanges) -> RewriteResult:
        """Write the rows of the task's fragments into new files. See `CompactionTask.execute`."""
        state = dataset._state
        return await run_change(plans.execute_task(state, self), answers_sync=state.answers_sync)


@dataclass(frozen=True, repr=False)
class CompactionPlan(ReducesToJson):
    """The tasks of a compaction.

    Attributes:
        read_version: Version that the plan is based on.
        tasks: Tasks in the order of the table; each may run in another process.
        options: Options of the compaction.
    """

    read_version: int
    tasks: list[CompactionTask]
    options: CompactionSettings

    def num_tasks(self) -> int:
        """Number of tasks."""
        return len(self.tasks)

    def __repr__(self) -> str:
        return f"CompactionPlan(read_version={self.read_version}, tasks=<{len(self.tasks)} compaction tasks>)"

    def _to_json(self) -> dict[str, Any]:
        return tasks_json(self.read_version, self.tasks, self.options)

    @classmethod
    def _of_json(cls, values: Mapping[str, Any]) -> CompactionPlan:
        shared = {name: values[name] for name in ("read_version", "options")}
        tasks = [CompactionTask._of_json({"task": task, **shared}) for task in values["tasks"]]
        return cls(values["read_version"], tasks, CompactionSettings.from_json(values["options"]))


def _plan(state: DatasetState, given: Mapping[str, Any]) -> Plan[CompactionPlan]:
    options, tasks = yield from plans.plan_compaction(state, given)
    mine = [CompactionTask(task.read_version, task.fragments, task.options) for task in tasks]
    return CompactionPlan(state.manifest.version, mine, options)


class Compaction:
    """The steps of a compaction."""

    @staticmethod
    def plan(dataset: DatasetChanges, options: CompactionOptions | Mapping[str, Any] | None = None) -> CompactionPlan:
        """Plan a compaction of the open version.

        Args:
            dataset: The table.
            options: Keywords of `DatasetOptimizer.compact_files`, as a dict such as `CompactionOptions`.

        Returns:
            The tasks.

        Raises:
            ValueError: An option has an invalid value.
        """
        return dataset._run(_plan(dataset._state, options or {}))

    @staticmethod
    def execute(
        dataset: DatasetChanges, options: CompactionOptions | Mapping[str, Any] | None = None
    ) -> CompactionMetrics:
        """Plan, execute and commit a compaction in this process, and move `dataset` to the new version.

        Args:
            dataset: The table.
            options: Keywords of `DatasetOptimizer.compact_files`.

        Returns:
            Counts of removed and added fragments and files.

        Raises:
            ValueError: An option has an invalid value.
            CommitConflictError: Another writer changed the same fragments.
        """
        begun = dataset._state
        compacted, metrics = dataset._run(plans.compact_files(begun, options or {}))
        dataset._move_to(compacted, begun)
        return metrics

    @staticmethod
    def commit(
        dataset: DatasetChanges,
        rewrites: Sequence[RewriteResult],
        options: CompactionOptions | Mapping[str, Any] | None = None,
    ) -> CompactionMetrics:
        """Replace the fragments that tasks read by the ones that they wrote, and move `dataset` to the new version.

        Rows keep their order, independent of the order of `rewrites`.

        Args:
            dataset: The table.
            rewrites: Results of tasks of one plan; some may be missing.
            options: Keywords of `DatasetOptimizer.compact_files`.

        Returns:
            Counts of removed and added fragments and files.

        Raises:
            CommitConflictError: Another writer changed the same fragments. The new files stay; a cleanup removes them.
        """
        begun = dataset._state
        compacted, metrics = dataset._run(plans.commit_compaction(begun, rewrites, options or {}))
        dataset._move_to(compacted, begun)
        return metrics


class AsyncCompaction:
    """The steps of a compaction of an `AsyncDataset`."""

    @staticmethod
    async def plan(
        dataset: AsyncDatasetChanges, options: CompactionOptions | Mapping[str, Any] | None = None
    ) -> CompactionPlan:
        """Plan a compaction. See `Compaction.plan`."""
        return await dataset._run(_plan(dataset._state, options or {}))

    @staticmethod
    async def execute(
        dataset: AsyncDatasetChanges, options: CompactionOptions | Mapping[str, Any] | None = None
    ) -> CompactionMetrics:
        """Plan, execute and commit a compaction. See `Compaction.execute`."""
        state = dataset._state
        plan = plans.compact_files(state, options or {})
        compacted, metrics = await run_change(plan, answers_sync=state.answers_sync)
        dataset._move_to(compacted, state)
        return metrics

    @staticmethod
    async def commit(
        dataset: AsyncDatasetChanges,
        rewrites: Sequence[RewriteResult],
        options: CompactionOptions | Mapping[str, Any] | None = None,
    ) -> CompactionMetrics:
        """Commit the results of tasks. See `Compaction.commit`."""
        state = dataset._state
        plan = plans.commit_compaction(state, rewrites, options or {})
        compacted, metrics = await run_change(plan, answers_sync=state.answers_sync)
        dataset._move_to(compacted, state)
        return metrics


# -- dataset.optimize --------------------------------------------------------------------------------------------------


def _cleanup_config(auto_cleanup_config: AutoCleanupConfig) -> dict[str, str | None]:
    return {
        "lance.auto_cleanup.interval": str(auto_cleanup_config["interval"]),
        "lance.auto_cleanup.older_than": f"{auto_cleanup_config['older_than_seconds']}s",
    }


_CLEANUP_KEYS = ("lance.auto_cleanup.interval", "lance.auto_cleanup.older_than")


class DatasetOptimizer:
    """Maintenance of a table: `dataset.optimize`.

    Args:
        dataset: The table.
    """

    def __init__(self, dataset: DatasetChanges) -> None:
        self._dataset = dataset

    def compact_files(
        self,
        *,
        target_rows_per_fragment: int | None = None,
        max_rows_per_group: int | None = None,
        max_bytes_per_file: int | None = None,
        materialize_deletions: bool | None = None,
        materialize_deletions_threshold: float | None = None,
        defer_index_remap: bool | None = None,
        num_threads: int | None = None,
        batch_size: int | None = None,
        compaction_mode: CompactionMode | None = None,
        binary_copy_read_batch_bytes: int | None = None,
        max_source_fragments: int | None = None,
        max_source_rows: int | None = None,
        max_source_bytes: int | None = None,
        excluded_fragment_ids: Sequence[int] | None = None,
        data_storage_version: str | None = None,
        io_buffer_size: int | None = None,
        memory_limit: int | None = None,
        verify: Verify | None = None,
        progress: FragmentWriteProgress | None = None,
    ) -> CompactionMetrics:
        """Merge small fragments, and drop the data of deleted rows and dropped columns.

        The table's configuration may set defaults for these keywords: `lance.compaction.<name>`. The call commits two
        versions with the same rows: one reserves fragment ids, the other holds the new fragments, after those that
        stay.

        Args:
            target_rows_per_fragment: Target rows of a fragment, 1,048,576 by default. Neighbours with fewer rows are
                merged; a small fragment without such a neighbour stays.
            max_rows_per_group: Rows of a batch, in files of version 0.1.
            max_bytes_per_file: Stored bytes at which a data file ends, as in `write_dataset`. Fragments that nearly
                reach it stay as they are, and do not separate their neighbours.
            materialize_deletions: Whether deleted rows alone are a reason to rewrite a fragment.
            materialize_deletions_threshold: Share of deleted rows above which a fragment is rewritten, 0.1 by default.
            defer_index_remap: For tables without stable row ids. True keeps all indices and records where their rows
                moved. False builds the scalar indices over these rows again, in the same commit, and removes the rows
                from the others. By default an index stays if pylance always finds its rows by the record: B-trees are
                built again, full text indices lose the rows, and so do HNSW indices once rows are deleted. Above 200 kB
                of records, rows are removed from the indices, so that the versions of the table stay small.
            num_threads: Accepted and ignored; the number of processors bounds the work.
            batch_size: Rows handed on at once.
            compaction_mode: "reencode" (the default) writes full pages; "force_binary_copy" copies pages unchanged;
                "try_binary_copy" copies them where possible.
            binary_copy_read_batch_bytes: Bytes of pages read at once, 16 MiB by default.
            max_source_fragments: Maximum number of fragments to compact.
            max_source_rows: Maximum number of rows to compact.
            max_source_bytes: Maximum bytes to compact.
            excluded_fragment_ids: Fragments that stay; fragments on both sides of one are not merged.
            data_storage_version: File version of the new files; None for the table's.
            io_buffer_size: Bytes to read ahead.
            memory_limit: Maximum bytes of rows under way; None for the table's limit. Not in pylance.
            verify: "write" (the default) compares rows read with rows written to pages; "read" also reads the new files
                back. Not in pylance.
            progress: Receives each new fragment. Not in pylance.

        Returns:
            Counts of removed and added fragments and files.

        Raises:
            ValueError: An option has an invalid value.
            CommitConflictError: Another writer changed the same fragments.
        """
        given = {name: value for name, value in locals().items() if name not in ("self", "progress")}
        dataset = self._dataset
        begun = dataset._state
        compacted, metrics = dataset._run(plans.compact_files(begun, given, progress))
        dataset._move_to(compacted, begun)
        return metrics

    def optimize_indices(
        self,
        *,
        num_indices_to_merge: int | None = None,
        index_names: Sequence[str] | None = None,
        retrain: bool = False,
        memory_limit: int | None = None,
        progress: Progress | None = None,
        **kwargs: Any,
    ) -> None:
        """Bring scalar indices up to date: cover the fragments that no segment covers, and merge segments.

        All changes are one commit; if nothing is to do there is none. Indices of other kinds stay as they are.

        Args:
            num_indices_to_merge: 0 adds a segment for the uncovered fragments; 1 (the default) merges these with the
                last segment, k with the last k segments.
            index_names: Names of the indices; None for all.
            retrain: Whether all segments of an index become one; `num_indices_to_merge` is then ignored.
            memory_limit: MiB of rows that a build may hold in memory, 256 by default. Not in pylance.
            progress: `progress(rows_read, rows_total)` is called repeatedly, for each segment. Not in pylance.
            kwargs: Ignored, as by pylance.

        Raises:
            OverflowError: `num_indices_to_merge` is negative.
            NotImplementedError: `index_names` names an index of another kind.
            CommitConflictError: Conflicts with other writers remain after two repetitions.
        """
        dataset = self._dataset
        begun = dataset._state
        plan = index_plans.optimize_indices(
            begun,
            num_indices_to_merge=num_indices_to_merge,
            index_names=index_names,
            retrain=retrain,
            memory_limit=memory_limit,
            progress=build_progress.BuildProgress(progress),
        )
        dataset._move_to(dataset._run(plan), begun)

    def enable_auto_cleanup(self, auto_cleanup_config: AutoCleanupConfig, **kwargs: Any) -> None:
        """Configure the table to clean up old versions regularly.

        Args:
            auto_cleanup_config: `interval`, the number of commits between cleanups, and `older_than_seconds`, the
                minimum age of removed versions.
            kwargs: Ignored.
        """
        self._dataset.update_config(_cleanup_config(auto_cleanup_config))

    def disable_auto_cleanup(self, **kwargs: Any) -> None:
        """Configure the table to clean up only on demand.

        Args:
            kwargs: Ignored.
        """
        self._dataset.delete_config_keys([*_CLEANUP_KEYS])


class AsyncDatasetOptimizer:
    """Maintenance of a table, awaitable: `dataset.optimize`.

    Args:
        dataset: The table.
    """

    def __init__(self, dataset: AsyncDatasetChanges) -> None:
        self._dataset = dataset

    async def compact_files(
        self,
        *,
        target_rows_per_fragment: int | None = None,
        max_rows_per_group: int | None = None,
        max_bytes_per_file: int | None = None,
        materialize_deletions: bool | None = None,
        materialize_deletions_threshold: float | None = None,
        defer_index_remap: bool | None = None,
        num_threads: int | None = None,
        batch_size: int | None = None,
        compaction_mode: CompactionMode | None = None,
        binary_copy_read_batch_bytes: int | None = None,
        max_source_fragments: int | None = None,
        max_source_rows: int | None = None,
        max_source_bytes: int | None = None,
        excluded_fragment_ids: Sequence[int] | None = None,
        data_storage_version: str | None = None,
        io_buffer_size: int | None = None,
        memory_limit: int | None = None,
        verify: Verify | None = None,
        progress: FragmentWriteProgress | None = None,
    ) -> CompactionMetrics:
        """Merge small fragments. See `DatasetOptimizer.compact_files`."""
        given = {name: value for name, value in locals().items() if name not in ("self", "progress")}
        state = self._dataset._state
        plan = plans.compact_files(state, given, progress)
        compacted, metrics = await run_change(plan, answers_sync=state.answers_sync)
        self._dataset._move_to(compacted, state)
        return metrics

    async def optimize_indices(
        self,
        *,
        num_indices_to_merge: int | None = None,
        index_names: Sequence[str] | None = None,
        retrain: bool = False,
        memory_limit: int | None = None,
        progress: Progress | None = None,
        **kwargs: Any,
    ) -> None:
        """Bring scalar indices up to date. See `DatasetOptimizer.optimize_indices`."""
        state = self._dataset._state
        plan = index_plans.optimize_indices(
            state,
            num_indices_to_merge=num_indices_to_merge,
            index_names=index_names,
            retrain=retrain,
            memory_limit=memory_limit,
            progress=build_progress.BuildProgress(progress),
        )
        self._dataset._move_to(await run_change(plan, answers_sync=state.answers_sync), state)

    async def enable_auto_cleanup(self, auto_cleanup_config: AutoCleanupConfig, **kwargs: Any) -> None:
        """Configure regular cleanups. See `DatasetOptimizer.enable_auto_cleanup`."""
        await self._dataset.update_config(_cleanup_config(auto_cleanup_config))

    async def disable_auto_cleanup(self, **kwargs: Any) -> None:
        """Configure cleanups on demand only. See `DatasetOptimizer.disable_auto_cleanup`."""
        await self._dataset.delete_config_keys([*_CLEANUP_KEYS])
