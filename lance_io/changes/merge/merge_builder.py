"""`merge_insert`: a builder of clauses, with synchronous and asynchronous `execute`."""

from __future__ import annotations

import operator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from lance_io.changes.merge.merge_clauses import WRITE_MODES, MergeClauses, key_columns
from lance_io.changes.merge.merge_plan import analyze_merge, explain_merge, merge_rows, prepare_merge
from lance_io.changes.operations.convert import to_public
from lance_io.changes.write.input_data import async_rows_of, rows_of
from lance_io.changes.write.run_write import run_change_with_rows, run_change_with_rows_async
from lance_io.changes.write.target_bases import TargetBases
from lance_io.errors import UnsupportedError, UsageError
from lance_io.file.write.writers import version_for_tables
from lance_io.filters import check_change, compile_filter
from lance_io.io import call_metrics
from lance_io.reads.memory_limit import limit_of
from lance_io.reads.run_plan import run, run_awaited

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from lance_io.changes.merge.merge_plan import ExecuteResult
    from lance_io.changes.operations.lance_operation import Transaction
    from lance_io.plans.plan import Plan
    from lance_io.reads.metadata.file_listing import Progress
    from lance_io.reads.version.state import DatasetState

T = TypeVar("T")
_COUNT_MAX = (1 << 32) - 1


class _Dataset(Protocol):
    _state: DatasetState

    def _move_to(self, new: DatasetState, begun: DatasetState) -> None: ...


class MergeClausesBuilder:
    """The clauses of a merge. Each method changes the builder and returns it.

    Args:
        dataset: Dataset of the table. A merge moves it to the new version.
        on: Key column, list of key columns, or None for the declared primary key.

    Raises:
        ValueError: A key column does not exist, or `on` is None and the table declares no primary key.
        TypeError: `on` is no string or iterable of strings.
    """

    def __init__(self, dataset: Any, on: Any = None) -> None:
        self._dataset: _Dataset = dataset
        self._clauses = MergeClauses(key_columns(on, dataset._state.schema))

    def _with(self: T, **clauses: Any) -> T:
        self._clauses = replace(self._clauses, **clauses)  # type: ignore[attr-defined]
        return self

    def when_matched_update_all(self: T, condition: str | None = None) -> T:
        """Update table rows that a source row matches with its values.

        The last call of this method, `when_matched_delete` and `when_matched_fail` counts.

        Args:
            condition: SQL over columns with the prefixes `source.` and `target.`. Rows for which it is not true stay
                unchanged. None updates all matches.

        Raises:
            TypeError: `condition` is no string.
        """
        if condition is not None and not isinstance(condition, str):
            raise TypeError(f"condition: expected SQL text, found {condition!r}")
        return self._with(matched="update", condition=condition)  # type: ignore[attr-defined, no-any-return]

    def when_matched_delete(self: T) -> T:
        """Delete table rows that a source row matches. Replaces other `when_matched` clauses."""
        return self._with(matched="delete", condition=None)  # type: ignore[attr-defined, no-any-return]

    def when_matched_fail(self: T) -> T:
        """Fail without any change if a row matches. Replaces other `when_matched` clauses."""
        return self._with(matched="fail", condition=None)  # type: ignore[attr-defined, no-any-return]

    def when_not_matched_insert_all(self: T) -> T:
        """Insert source rows that match no table row."""
        return self._with(inserts=True)  # type: ignore[attr-defined, no-any-return]

    def when_not_matched_by_source_delete(self: T, expr: str | None = None) -> T:
        """Delete table rows that no source row matches.

        Args:
            expr: SQL over the table's columns, without prefix. Only rows for which it is true are deleted. None
                deletes all rows without a match.

        Raises:
            TypeError: `expr` is no string.
            ValueError: `expr` does not fit the table.
        """
        if expr is not None:
            if not isinstance(expr, str):
                raise TypeError(f"expr: expected SQL text, found {expr!r}")
            check_change(expr)
            compile_filter(expr, self._dataset._state.stored_schema)  # type: ignore[attr-defined]
        return self._with(deletes_rest=True, rest_filter=expr)  # type: ignore[attr-defined, no-any-return]

    def conflict_retries(self: T, max_retries: int) -> T:
        """Set the number of retries after conflicts with other writers; the default is 10.

        Args:
            max_retries: Number of retries, from 0 to 4,294,967,295.

        Raises:
            OverflowError: `max_retries` is out of range.
        """
        retries = operator.index(max_retries)
        if not 0 <= retries <= _COUNT_MAX:
            raise OverflowError(f"conflict_retries: expected 0 to {_COUNT_MAX}, found {retries}")
        return self._with(conflict_retries=retries)  # type: ignore[attr-defined, no-any-return]

    def retry_timeout(self: T, timeout: timedelta) -> T:
        """Set the time after which no retry starts; the default is 30 seconds.

        Args:
            timeout: Time since the start of the merge.

        Raises:
            TypeError: `timeout` is no timedelta.
        """
        if not isinstance(timeout, timedelta):
            raise TypeError(f"timeout: expected a timedelta, found {timeout!r}")
        return self._with(retry_timeout=timeout)  # type: ignore[attr-defined, no-any-return]

    def data_storage_version(self: T, version: str) -> T:
        """Set the file version of new data files; the default is the table's.

        Args:
            version: File version, for example "2.1".

        Raises:
            ValueError: The version is unknown.
        """
        return self._with(version=version_for_tables(version))  # type: ignore[attr-defined, no-any-return]

    def use_index(self: T, use_index: bool) -> T:
        """Set whether an index on the key counts; the default is True.

        If it does, the rows of a source that is small beside the table are looked up by a BTREE or BITMAP, and a
        source that lacks columns is written as columns of the fragments with matches, as in pylance. The rows are the
        same either way.

        Args:
            use_index: Whether an index counts.
        """
        return self._with(uses_index=bool(use_index))  # type: ignore[attr-defined, no-any-return]

    def write_mode(self: T, mode: str) -> T:
        """Set the way updated rows are written; the default is "auto".

        Args:
            mode: "rewrite_rows" writes whole rows into new fragments. "rewrite_columns" writes one more file with the
                source's columns for each fragment that has matches. "auto" chooses as pylance does.

        Raises:
            ValueError: The mode is unknown.
        """
        if mode not in WRITE_MODES:
            raise UsageError(f"Invalid write_mode: {mode}. Expected one of {', '.join(map(repr, WRITE_MODES))}")
        return self._with(write_mode=mode)  # type: ignore[attr-defined, no-any-return]

    def target_bases(self: T, bases: Sequence[str]) -> T:
        """Set the base paths that receive files of new fragments, in turn.

        Columns written for existing fragments, and deletion files, go to the table's own folder. The merge fails for a
        base path that the table does not declare.

        Args:
            bases: Names or paths of base paths. The table's URI stands for its own folder.

        Raises:
            TypeError: `bases` is no list of strings.
            ValueError: The builder has `target_all_bases`.
        """
        if isinstance(bases, str) or not all(isinstance(base, str) for base in bases):
            raise TypeError(f"bases: expected a list of names or paths, found {bases!r}")
        return self._to_bases(TargetBases(names=tuple(bases)))  # type: ignore[attr-defined, no-any-return]

    def target_all_bases(self: T, include_primary: bool = True) -> T:
        """Write files of new fragments to all base paths in turn. See `target_bases`.

        Args:
            include_primary: Whether the table's own folder takes part, as the first.

        Raises:
            ValueError: The builder has `target_bases`.
        """
        bases = TargetBases(all_of=True, has_own=bool(include_primary))
        return self._to_bases(bases)  # type: ignore[attr-defined, no-any-return]

    def _to_bases(self: T, bases: TargetBases) -> T:
        known = self._clauses.bases  # type: ignore[attr-defined]
        if known is not None and known.all_of != bases.all_of:
            raise UsageError("Cannot specify target_all_bases together with target_bases: use one of them")
        return self._with(bases=bases)  # type: ignore[attr-defined, no-any-return]

    def mark_sstables_as_compacted(self, sstables: Any) -> NoReturn:
        """Not offered: this release has no write-ahead log in memory.

        Args:
            sstables: Ignored.

        Raises:
            NotImplementedError: Always.
        """
        raise UnsupportedError("merge_insert: this release has no write-ahead log in memory (MemWAL)")

    def _plan(self, make: Callable[..., Plan[T]], memory_limit: int | None, **more: Any) -> Callable[[Any], Plan[T]]:
        self._clauses.check_changes()
        state = self._dataset._state
        return partial(make, state, self._clauses, limit_of(state, memory_limit), **more)


class MergeInsertBuilder(MergeClausesBuilder):
    """A merge of rows into a table, returned by `LanceDataset.merge_insert`. See `MergeClausesBuilder`."""

    def execute(
        self,
        data_obj: Any,
        *,
        schema: pa.Schema | None = None,
        memory_limit: int | None = None,
        progress: Progress | None = None,
    ) -> ExecuteResult:
        """Merge rows in one commit and move the dataset to the new version.

        The source may lack columns: updated rows keep their values there, inserted rows are null. A key with a null
        matches nothing.

        Args:
            data_obj: Rows in any form that `write_dataset` takes. Rows that are not in memory are read once.
            schema: Schema for data that carries none.
            memory_limit: Memory limit of the merge in bytes, None for the table's. Rows beyond it spill to local disk.
                The buffers of the writer, and `data_obj` if it is in memory, do not count.
            progress: `progress(done, total)` is called repeatedly with the number of written rows, updated and
                inserted, once the matches are known. A retry counts from 0. Not in pylance.

        Returns:
            The numbers of inserted, updated and deleted rows.

        Raises:
            OSError: Columns do not fit, two source rows match a table row, or a row matches in spite of
                `when_matched_fail`. The table is unchanged then.
            ValueError: The clauses change nothing.
        """
        begun = self._dataset._state
        merged, result = self._run(merge_rows, data_obj, schema, memory_limit, progress=progress)
        self._dataset._move_to(merged, begun)
        return result

    def execute_uncommitted(
        self, data_obj: Any, *, schema: pa.Schema | None = None, memory_limit: int | None = None
    ) -> tuple[Transaction, ExecuteResult]:
        """Merge rows without the commit: writes all files. Pass the transaction to `LanceDataset.commit`.

        Args:
            data_obj: Rows in any form that `write_dataset` takes.
            schema: Schema for data that carries none.
            memory_limit: Memory limit in bytes, None for the table's.

        Returns:
            The transaction, and the numbers of inserted, updated and deleted rows.

        Raises:
            OSError: As for `execute`.
            ValueError: The clauses change nothing.
        """
        transaction, result = self._run(prepare_merge, data_obj, schema, memory_limit)
        return to_public(transaction), result

    def explain_plan(self, schema: pa.Schema | None = None, verbose: bool = False) -> str:
        """The plan of a merge as text. Reads no rows.

        Args:
            schema: Schema of the source, None for the table's.
            verbose: Add the columns of the condition and the types of the source.

        Returns:
            The plan.

        Raises:
            OSError: The columns do not fit the table.
            ValueError: The clauses change nothing.
        """
        state = self._dataset._state
        return run(state, explain_merge(state, self._clauses, schema, verbose))

    def analyze_plan(self, data_obj: Any, *, schema: pa.Schema | None = None, memory_limit: int | None = None) -> str:
        """Merge rows without a commit, remove the files again and return the plan with measurements.

        Args:
            data_obj: Rows in any form that `write_dataset` takes.
            schema: Schema for data that carries none.
            memory_limit: Memory limit in bytes, None for the table's.

        Returns:
            The plan with duration, bytes and numbers of rows.

        Raises:
            OSError: As for `execute`.
            ValueError: The clauses change nothing.
        """
        return self._run(analyze_merge, data_obj, schema, memory_limit)

    def _run(self, make: Callable[..., Plan[T]], data: Any, schema: Any, memory_limit: int | None, **more: Any) -> T:
        plan_of, answers_sync = self._plan(make, memory_limit, **more), self._dataset._state.answers_sync

        def merge() -> T:
            return run_change_with_rows(rows_of(data, schema), plan_of, answers_sync=answers_sync)

        return call_metrics.watch_call(make, merge) if call_metrics.watchers else merge()


class AsyncMergeInsertBuilder(MergeClausesBuilder):
    """See `MergeInsertBuilder`; methods that run a merge are awaitable."""

    async def execute(
        self,
        data_obj: Any,
        *,
        schema: pa.Schema | None = None,
        memory_limit: int | None = None,
        progress: Progress | None = None,
    ) -> ExecuteResult:
        """See `MergeInsertBuilder.execute`; `data_obj` may also be an asynchronous iterable of record batches."""
        begun = self._dataset._state
        merged, result = await self._run(merge_rows, data_obj, schema, memory_limit, progress=progress)
        self._dataset._move_to(merged, begun)
        return result

    async def execute_uncommitted(
        self, data_obj: Any, *, schema: pa.Schema | None = None, memory_limit: int | None = None
    ) -> tuple[Transaction, ExecuteResult]:
        """See `MergeInsertBuilder.execute_uncommitted`."""
        transaction, result = await self._run(prepare_merge, data_obj, schema, memory_limit)
        return to_public(transaction), result

    async def explain_plan(self, schema: pa.Schema | None = None, verbose: bool = False) -> str:
        """See `MergeInsertBuilder.explain_plan`."""
        state = self._dataset._state
        return await run_awaited(state, explain_merge(state, self._clauses, schema, verbose))

    async def analyze_plan(
        self, data_obj: Any, *, schema: pa.Schema | None = None, memory_limit: int | None = None
    ) -> str:
        """See `MergeInsertBuilder.analyze_plan`."""
        return await self._run(analyze_merge, data_obj, schema, memory_limit)

    async def _run(
        self, make: Callable[..., Plan[T]], data: Any, schema: Any, memory_limit: int | None, **more: Any
    ) -> T:
        plan_of, answers_sync = self._plan(make, memory_limit, **more), self._dataset._state.answers_sync
        rows = await async_rows_of(data, schema)
        if call_metrics.watchers:
            with call_metrics.count_call(make):
                return await run_change_with_rows_async(rows, plan_of, answers_sync=answers_sync)
        return await run_change_with_rows_async(rows, plan_of, answers_sync=answers_sync)
