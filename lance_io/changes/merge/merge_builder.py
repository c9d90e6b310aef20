"""`merge_insert`: a builder of clauses, which `execute` runs; its synchronous and its asynchronous face."""

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


class _Face(Protocol):
    _state: DatasetState

    def _move_to(self, made: DatasetState, begun: DatasetState) -> None: ...


class MergeClausesBuilder:
    """The clauses of a merge; every method changes the builder and gives it back.

    dataset  moves to the version that a merge makes
    on       key columns, None for the declared primary key

    Raises `ValueError` for a column that is not there, and where there is no key.
    """

    def __init__(self, dataset: Any, on: Any = None) -> None:
        self._dataset: _Face = dataset
        self._clauses = MergeClauses(key_columns(on, dataset._state.schema))

    def _with(self: T, **clauses: Any) -> T:
        self._clauses = replace(self._clauses, **clauses)  # type: ignore[attr-defined]
        return self

    def when_matched_update_all(self: T, condition: str | None = None) -> T:
        """Rows of the table that a row of the source matches get its values.

        condition  SQL over columns named with `source.` and `target.`; where it is not true the row stays as it is

        Of this, `when_matched_delete` and `when_matched_fail` the last one counts.
        """
        if condition is not None and not isinstance(condition, str):
            raise TypeError(f"condition: expected SQL text, found {condition!r}")
        return self._with(matched="update", condition=condition)  # type: ignore[attr-defined, no-any-return]

    def when_matched_delete(self: T) -> T:
        """Rows of the table that a row of the source matches are deleted."""
        return self._with(matched="delete", condition=None)  # type: ignore[attr-defined, no-any-return]

    def when_matched_fail(self: T) -> T:
        """Where any row matches, the merge fails and changes nothing."""
        return self._with(matched="fail", condition=None)  # type: ignore[attr-defined, no-any-return]

    def when_not_matched_insert_all(self: T) -> T:
        """Rows of the source that match none of the table are inserted."""
        return self._with(inserts=True)  # type: ignore[attr-defined, no-any-return]

    def when_not_matched_by_source_delete(self: T, expr: str | None = None) -> T:
        """Rows of the table that no row of the source matches are deleted.

        expr  SQL over the table's columns, without prefix: only rows for which it is true go

        Raises `ValueError` where it does not fit the table.
        """
        if expr is not None:
            if not isinstance(expr, str):
                raise TypeError(f"expr: expected SQL text, found {expr!r}")
            check_change(expr)
            compile_filter(expr, self._dataset._state.stored_schema)  # type: ignore[attr-defined]
        return self._with(deletes_rest=True, rest_filter=expr)  # type: ignore[attr-defined, no-any-return]

    def conflict_retries(self: T, max_retries: int) -> T:
        """How often the merge is made anew after a conflict with another writer; 10 unless said."""
        retries = operator.index(max_retries)
        if not 0 <= retries <= _COUNT_MAX:
            raise OverflowError(f"conflict_retries: expected 0 to {_COUNT_MAX}, found {retries}")
        return self._with(conflict_retries=retries)  # type: ignore[attr-defined, no-any-return]

    def retry_timeout(self: T, timeout: timedelta) -> T:
        """For how long it is made anew; 30 seconds unless said."""
        if not isinstance(timeout, timedelta):
            raise TypeError(f"timeout: expected a timedelta, found {timeout!r}")
        return self._with(retry_timeout=timeout)  # type: ignore[attr-defined, no-any-return]

    def data_storage_version(self: T, version: str) -> T:
        """File version of the new data files; the table's unless said."""
        return self._with(version=version_for_tables(version))  # type: ignore[attr-defined, no-any-return]

    def use_index(self: T, use_index: bool) -> T:
        """Whether an index on the key may decide how the result is written, as it does in pylance.

        Keys are found by a scan of the key columns either way, with the same rows. A source that lacks columns is
        written as columns of the fragments it meets where there is such an index, unless this is False.
        """
        return self._with(uses_index=bool(use_index))  # type: ignore[attr-defined, no-any-return]

    def write_mode(self: T, mode: str) -> T:
        """How updated rows are written: "rewrite_rows" as whole rows in new fragments, "rewrite_columns" as one more
        file of the source's columns for each fragment that has matches, "auto" as pylance chooses.
        """
        if mode not in WRITE_MODES:
            raise UsageError(f"Invalid write_mode: {mode}. Expected one of {', '.join(map(repr, WRITE_MODES))}")
        return self._with(write_mode=mode)  # type: ignore[attr-defined, no-any-return]

    def target_bases(self: T, bases: Sequence[str]) -> T:
        """Base paths that files of new fragments go to, in turn, by name or path; the table's URI is its own folder.

        Columns that are written for fragments, and deletion files, go to the table's own folder. A path that the table
        does not declare fails when the merge is made.
        """
        if isinstance(bases, str) or not all(isinstance(one, str) for one in bases):
            raise TypeError(f"bases: expected a list of names or paths, found {bases!r}")
        return self._to_bases(TargetBases(names=tuple(bases)))  # type: ignore[attr-defined, no-any-return]

    def target_all_bases(self: T, include_primary: bool = True) -> T:
        """The same for all base paths that the table declares then. include_primary: and its own folder, first."""
        bases = TargetBases(all_of=True, has_own=bool(include_primary))
        return self._to_bases(bases)  # type: ignore[attr-defined, no-any-return]

    def _to_bases(self: T, bases: TargetBases) -> T:
        known = self._clauses.bases  # type: ignore[attr-defined]
        if known is not None and known.all_of != bases.all_of:
            raise UsageError("Cannot specify target_all_bases together with target_bases: take one of them")
        return self._with(bases=bases)  # type: ignore[attr-defined, no-any-return]

    def mark_sstables_as_compacted(self, sstables: Any) -> NoReturn:
        """Not offered: this release has no write-ahead log in memory."""
        raise UnsupportedError("merge_insert: this release has no write-ahead log in memory (MemWAL)")

    def _plan(self, make: Callable[..., Plan[T]], memory_limit: int | None, **more: Any) -> Callable[[Any], Plan[T]]:
        self._clauses.check_changes()
        state = self._dataset._state
        return partial(make, state, self._clauses, limit_of(state, memory_limit), **more)


class MergeInsertBuilder(MergeClausesBuilder):
    """A merge of rows into a table, as `LanceDataset.merge_insert` gives it."""

    def execute(
        self,
        data_obj: Any,
        *,
        schema: pa.Schema | None = None,
        memory_limit: int | None = None,
        progress: Progress | None = None,
    ) -> ExecuteResult:
        """Merge rows, in one commit; moves the dataset to the new version.

        data_obj      whatever `write_dataset` takes. What is not in memory is read once
        schema        of forms that carry none
        memory_limit  bytes that the merge may hold, those of the table unless said: what does not fit goes to local
                      disk. Beside it are what a writer fills, and `data_obj` itself where that is in memory
        progress      called with how many rows are written, updated and inserted ones, and of how many: once keys have
                      met, and from the beginning when a conflict has the merge made anew. Not in pylance

        The source may lack columns: updated rows keep what they have there, inserted ones are null. A key with a null
        matches nothing. Raises `OSError` for columns that do not fit, for two rows of the source that match one row of
        the table, and where rows match that must not; nothing has changed then.
        """
        begun = self._dataset._state
        made, done = self._run(merge_rows, data_obj, schema, memory_limit, progress=progress)
        self._dataset._move_to(made, begun)
        return done

    def execute_uncommitted(
        self, data_obj: Any, *, schema: pa.Schema | None = None, memory_limit: int | None = None
    ) -> tuple[Transaction, ExecuteResult]:
        """The same without the commit: a transaction for `LanceDataset.commit`, whose files are written."""
        transaction, done = self._run(prepare_merge, data_obj, schema, memory_limit)
        return to_public(transaction), done

    def explain_plan(self, schema: pa.Schema | None = None, verbose: bool = False) -> str:
        """How rows of a stream of this schema would be merged; the table's schema unless said. Reads no row.

        verbose  also what is read of each column
        """
        state = self._dataset._state
        return run(state, explain_merge(state, self._clauses, schema, verbose))

    def analyze_plan(self, data_obj: Any, *, schema: pa.Schema | None = None, memory_limit: int | None = None) -> str:
        """Merge rows without a commit and without leaving files; tells how that was done and what it took."""
        return self._run(analyze_merge, data_obj, schema, memory_limit)

    def _run(self, make: Callable[..., Plan[T]], data: Any, schema: Any, memory_limit: int | None, **more: Any) -> T:
        plan_of, answers_sync = self._plan(make, memory_limit, **more), self._dataset._state.answers_sync

        def merge() -> T:
            return run_change_with_rows(rows_of(data, schema), plan_of, answers_sync=answers_sync)

        return call_metrics.watch_call(make, merge) if call_metrics.watchers else merge()


class AsyncMergeInsertBuilder(MergeClausesBuilder):
    """The same for `AsyncDataset`: same names, same parameters; what runs a merge is awaitable."""

    async def execute(
        self,
        data_obj: Any,
        *,
        schema: pa.Schema | None = None,
        memory_limit: int | None = None,
        progress: Progress | None = None,
    ) -> ExecuteResult:
        """`MergeInsertBuilder.execute`; `data_obj` may also be an asynchronous iterable of record batches."""
        begun = self._dataset._state
        made, done = await self._run(merge_rows, data_obj, schema, memory_limit, progress=progress)
        self._dataset._move_to(made, begun)
        return done

    async def execute_uncommitted(
        self, data_obj: Any, *, schema: pa.Schema | None = None, memory_limit: int | None = None
    ) -> tuple[Transaction, ExecuteResult]:
        """`MergeInsertBuilder.execute_uncommitted`."""
        transaction, done = await self._run(prepare_merge, data_obj, schema, memory_limit)
        return to_public(transaction), done

    async def explain_plan(self, schema: pa.Schema | None = None, verbose: bool = False) -> str:
        """`MergeInsertBuilder.explain_plan`."""
        state = self._dataset._state
        return await run_awaited(state, explain_merge(state, self._clauses, schema, verbose))

    async def analyze_plan(
        self, data_obj: Any, *, schema: pa.Schema | None = None, memory_limit: int | None = None
    ) -> str:
        """`MergeInsertBuilder.analyze_plan`."""
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
