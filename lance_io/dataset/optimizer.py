"""`dataset.optimize` and `Compaction`: one call that compacts, or its three steps for jobs of many processes.

    plan = Compaction.plan(dataset, {"target_rows_per_fragment": 1_000_000})
    results = pool.map(execute, plan.tasks)  # each task.execute(dataset); tasks and results pickle
    Compaction.commit(dataset, results)

`AsyncDataset` has the same in `AsyncCompaction`, and `await task.execute_async(dataset)`.
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
from lance_io.not_offered import NotOffered
from lance_io.plans.lazy_module import later_plans
from lance_io.reads.run_plan import run_change

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_io.changes.compaction import compact_files as plans
    from lance_io.changes.compaction.compaction_options import CompactionMode, Verify
    from lance_io.changes.write.write_arguments import AutoCleanupConfig
    from lance_io.changes.write.write_progress import FragmentWriteProgress
    from lance_io.dataset.change_methods import AsyncDatasetChanges, DatasetChanges
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
else:
    plans = later_plans("lance_io.changes.compaction.compact_files")

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
    """Fragments that are rewritten together, in whatever process has the table."""

    def execute(self, dataset: DatasetChanges) -> RewriteResult:
        """Write their rows into new files. The table is as it was until `Compaction.commit`.

        dataset  the table, open at any version: that of the task is read
        """
        return dataset._run(plans.execute_task(dataset._state, self))

    async def execute_async(self, dataset: AsyncDatasetChanges) -> RewriteResult:
        """The same for an `AsyncDataset`."""
        state = dataset._state
        return await run_change(plans.execute_task(state, self), answers_sync=state.answers_sync)


@dataclass(frozen=True, repr=False)
class CompactionPlan(ReducesToJson):
    """What a compaction has to do.

    read_version  the version that was planned on
    tasks         in the order of the table; each may be executed in another process
    options       of the compaction
    """

    read_version: int
    tasks: list[CompactionTask]
    options: CompactionSettings

    def num_tasks(self) -> int:
        """How many tasks there are."""
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
    """The steps of a compaction; options are a dict of the keywords of `compact_files`, such as `CompactionOptions`."""

    @staticmethod
    def plan(dataset: DatasetChanges, options: CompactionOptions | Mapping[str, Any] | None = None) -> CompactionPlan:
        """What is to be done for the open version. Raises as `compact_files` for options that make no sense."""
        return dataset._run(_plan(dataset._state, options or {}))

    @staticmethod
    def execute(
        dataset: DatasetChanges, options: CompactionOptions | Mapping[str, Any] | None = None
    ) -> CompactionMetrics:
        """Plan, execute and commit here; moves the dataset to the new version."""
        begun = dataset._state
        made, metrics = dataset._run(plans.compact_files(begun, options or {}))
        dataset._move_to(made, begun)
        return metrics

    @staticmethod
    def commit(
        dataset: DatasetChanges,
        rewrites: Sequence[RewriteResult],
        options: CompactionOptions | Mapping[str, Any] | None = None,
    ) -> CompactionMetrics:
        """Put what tasks have written in the place of what they read, in one version; moves the dataset to it.

        rewrites  of tasks of one plan; not all of them need be there. Rows keep their order, whatever that of the list
        Raises `CommitConflictError` where what they read was changed meanwhile: the files stay, for `cleanup`.
        """
        begun = dataset._state
        made, metrics = dataset._run(plans.commit_compaction(begun, rewrites, options or {}))
        dataset._move_to(made, begun)
        return metrics


class AsyncCompaction:
    """The same for an `AsyncDataset`; see `Compaction`."""

    @staticmethod
    async def plan(
        dataset: AsyncDatasetChanges, options: CompactionOptions | Mapping[str, Any] | None = None
    ) -> CompactionPlan:
        """`Compaction.plan`."""
        return await dataset._run(_plan(dataset._state, options or {}))

    @staticmethod
    async def execute(
        dataset: AsyncDatasetChanges, options: CompactionOptions | Mapping[str, Any] | None = None
    ) -> CompactionMetrics:
        """`Compaction.execute`."""
        state = dataset._state
        plan = plans.compact_files(state, options or {})
        made, metrics = await run_change(plan, answers_sync=state.answers_sync)
        dataset._move_to(made, state)
        return metrics

    @staticmethod
    async def commit(
        dataset: AsyncDatasetChanges,
        rewrites: Sequence[RewriteResult],
        options: CompactionOptions | Mapping[str, Any] | None = None,
    ) -> CompactionMetrics:
        """`Compaction.commit`."""
        state = dataset._state
        plan = plans.commit_compaction(state, rewrites, options or {})
        made, metrics = await run_change(plan, answers_sync=state.answers_sync)
        dataset._move_to(made, state)
        return metrics


# -- dataset.optimize --------------------------------------------------------------------------------------------------


def _cleanup_config(auto_cleanup_config: AutoCleanupConfig) -> dict[str, str | None]:
    return {
        "lance.auto_cleanup.interval": str(auto_cleanup_config["interval"]),
        "lance.auto_cleanup.older_than": f"{auto_cleanup_config['older_than_seconds']}s",
    }


_CLEANUP_KEYS = ("lance.auto_cleanup.interval", "lance.auto_cleanup.older_than")


class DatasetOptimizer:
    """What keeps a table fast: `dataset.optimize`."""

    optimize_indices = NotOffered("let pylance bring its indices up to date: `lance.dataset(uri).optimize.{name}()`")

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
        """Put small fragments together, and leave out deleted rows and dropped columns.

        target_rows_per_fragment  rows that a fragment should have, 1,048,576 by default. Neighbours with fewer are put
                                  together; one without such a neighbour stays
        max_rows_per_group        rows of a batch, in files of version 0.1
        max_bytes_per_file        stored bytes at which a data file ends, as in `write_dataset`; fragments with nearly
                                  as many stay as they are, and do not part those that are put together
        materialize_deletions, materialize_deletions_threshold  whether fragments are rewritten for their deleted rows,
                                  where these are more than this share of all: 0.1 by default
        defer_index_remap         where row ids are not stable: True leaves all indices as they are, and records where
                                  their rows went; False takes these rows out of them. By default those indices stay
                                  that find their rows by the record, whatever pylance does next: not B-trees and full
                                  text indices, nor HNSW indices once rows are deleted. They are kept from growing the
                                  table's versions: above 200 kB of record rows are taken out of them
        num_threads               accepted; work is bounded by the processors
        batch_size                rows that are handed on at once
        compaction_mode           "reencode", the default, makes full pages; "force_binary_copy" copies pages as they
                                  are, and "try_binary_copy" does where it can
        binary_copy_read_batch_bytes  bytes of pages that are read at once, 16 MiB by default
        max_source_fragments, max_source_rows, max_source_bytes  no further fragments are taken beyond these
        excluded_fragment_ids     fragments that stay as they are, and between which nothing is put together
        data_storage_version      file version of new files; the table's by default
        io_buffer_size            bytes that are read ahead
        memory_limit              bytes that rows under way may take; that of the table unless said; not in pylance
        verify                    "write" (the default) compares the rows that come with those that go into pages,
                                  "read" reads the new files back as well; not in pylance
        progress                  is told of every new fragment; not in pylance

        What is left open, the table's configuration may say: `lance.compaction.<name>`. Two versions are committed:
        one that reserves fragment ids, and one with the new fragments, which come behind those that stay. The same
        rows are there in both. Raises `CommitConflictError` where another writer changed the same fragments.
        """
        given = {name: value for name, value in locals().items() if name not in ("self", "progress")}
        dataset = self._dataset
        begun = dataset._state
        made, metrics = dataset._run(plans.compact_files(begun, given, progress))
        dataset._move_to(made, begun)
        return metrics

    def enable_auto_cleanup(self, auto_cleanup_config: AutoCleanupConfig, **kwargs: Any) -> None:
        """Clean up old versions after every so many commits; `interval` versions and `older_than_seconds`."""
        self._dataset.update_config(_cleanup_config(auto_cleanup_config))

    def disable_auto_cleanup(self, **kwargs: Any) -> None:
        """Clean up only when asked to."""
        self._dataset.delete_config_keys([*_CLEANUP_KEYS])


class AsyncDatasetOptimizer:
    """The same for `AsyncDataset`: same names, same parameters, awaitable."""

    optimize_indices = DatasetOptimizer.__dict__["optimize_indices"]

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
        """`DatasetOptimizer.compact_files`."""
        given = {name: value for name, value in locals().items() if name not in ("self", "progress")}
        state = self._dataset._state
        plan = plans.compact_files(state, given, progress)
        made, metrics = await run_change(plan, answers_sync=state.answers_sync)
        self._dataset._move_to(made, state)
        return metrics

    async def enable_auto_cleanup(self, auto_cleanup_config: AutoCleanupConfig, **kwargs: Any) -> None:
        """`DatasetOptimizer.enable_auto_cleanup`."""
        await self._dataset.update_config(_cleanup_config(auto_cleanup_config))

    async def disable_auto_cleanup(self, **kwargs: Any) -> None:
        """`DatasetOptimizer.disable_auto_cleanup`."""
        await self._dataset.delete_config_keys([*_CLEANUP_KEYS])
