"""Methods of datasets that change the table, synchronous and asynchronous.

Each change commits a new version and moves the object that it is called on to that version; other open objects stay at
theirs.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lance_io import runtime
from lance_io.dataset.cleanup_methods import AsyncDatasetCleanups, DatasetCleanups
from lance_io.dataset.indices.index_methods import AsyncDatasetIndices, DatasetIndices
from lance_io.lazy_names import lazy_module
from lance_io.plans.lazy_module import lazy_plans
from lance_io.reads.run_plan import run_change

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from lance_io.changes.columns import evolve_schema as evolution
    from lance_io.changes.columns.schema_edits import AlterColumn
    from lance_io.changes.edits import change_plans as changes
    from lance_io.changes.edits import update_rows as updates_plans
    from lance_io.changes.edits.change_plans import DeleteResult
    from lance_io.changes.edits.update_rows import UpdateResult
    from lance_io.changes.merge import merge_builder as merges
    from lance_io.changes.merge.merge_builder import AsyncMergeInsertBuilder, MergeInsertBuilder
    from lance_io.changes.write import run_write as writes
    from lance_io.dataset import column_methods as row_changes
    from lance_io.dataset import optimizer as optimizers
    from lance_io.dataset.optimizer import AsyncDatasetOptimizer, DatasetOptimizer
    from lance_io.reads.metadata.file_listing import Progress
else:
    changes = lazy_plans("lance_io.changes.edits.change_plans")
    updates_plans = lazy_plans("lance_io.changes.edits.update_rows")
    evolution = lazy_plans("lance_io.changes.columns.evolve_schema")
    row_changes = lazy_module("lance_io.dataset.column_methods")
    optimizers = lazy_module("lance_io.dataset.optimizer")
    merges = lazy_module("lance_io.changes.merge.merge_builder")
    writes = lazy_module("lance_io.changes.write.run_write")

CONFLICT_RETRIES = 10
RETRY_TIMEOUT = timedelta(seconds=30)


class DatasetChanges(DatasetIndices, DatasetCleanups):
    """Changes of `LanceDataset`."""

    # -- rows -------------------------------------------------------------------------------------------------------

    def delete(
        self,
        predicate: Any,
        *,
        conflict_retries: int = CONFLICT_RETRIES,
        retry_timeout: timedelta = RETRY_TIMEOUT,
        progress: Progress | None = None,
    ) -> DeleteResult:
        """Delete the rows that pass a filter.

        Args:
            predicate: SQL text or a boolean `pyarrow.compute` expression.
            conflict_retries: Maximum number of retries after another writer changed the same rows.
            retry_timeout: No retry starts after this time.
            progress: `progress(rows_found, None)` is called repeatedly; the total is not known in advance. Not in
                pylance.

        Returns:
            The result of the deletion.

        Raises:
            OSError: The predicate does not fit the table.
            CommitConflictError: Conflicts remain after all retries.
        """
        begun = self._state
        changed, done = self._run(changes.delete_rows(begun, predicate, conflict_retries, retry_timeout, progress))
        self._move_to(changed, begun)
        return done

    def update(
        self,
        updates: dict[str, str],
        where: Any = None,
        conflict_retries: int = CONFLICT_RETRIES,
        retry_timeout: timedelta = RETRY_TIMEOUT,
        data_storage_version: str | None = None,
        *,
        memory_limit: int | None = None,
        progress: Progress | None = None,
    ) -> UpdateResult:
        """Set new values in the rows that pass a filter: `update({"price": "price * 1.1"}, where="stock > 0")`.

        The update writes these rows, with all their columns, into new fragments at the end of the table; they keep
        their stable row ids. After an error nothing has changed.

        Args:
            updates: SQL expressions by column, cast to its type. All of them see the old values.
            where: SQL text or expression; None for all rows.
            conflict_retries: Maximum number of retries after another writer changed the same rows.
            retry_timeout: No retry starts after this time.
            data_storage_version: File version of the new data files; None for the table's.
            memory_limit: Bytes that the update may hold, in addition to the writer's buffers; None for the table's
                limit.
            progress: `progress(rows_written, rows_total)` is called repeatedly; the total is None with `where`. A retry
                starts from 0. Not in pylance.

        Returns:
            The result of the update.

        Raises:
            ValueError: A column or expression does not fit the table.
            OSError: An expression fails for a row, or is null in a column without nulls.
            CommitConflictError: Conflicts remain after all retries.
        """
        begun = self._state
        plan = updates_plans.update_rows(
            begun, updates, where, conflict_retries, retry_timeout, data_storage_version, memory_limit, progress
        )
        changed, done = self._run(plan)
        self._move_to(changed, begun)
        return done

    def merge_insert(self, on: str | Iterable[str] | None = None) -> MergeInsertBuilder:
        """Start a merge of rows into the table by key. The builder's clauses say what to do with rows that match, and
        with the others.

            ds.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)

        Args:
            on: Name or names of the key columns; None for the declared primary key.

        Returns:
            A builder; `execute` runs the merge.

        Raises:
            ValueError: A column does not exist, or the table declares no primary key.
        """
        return merges.MergeInsertBuilder(self, on)

    def truncate_table(self) -> None:
        """Delete all rows and keep the schema.

        Raises:
            CommitConflictError: Conflicts with other writers remain after all retries.
        """
        self._change(changes.truncate(self._state, CONFLICT_RETRIES, RETRY_TIMEOUT))

    def insert(self, data: Any, *, mode: str = "append", **kwargs: Any) -> None:
        """Write rows to this table.

        Args:
            data: Rows; see `lance_io.write_dataset`.
            mode: "append" or "overwrite".
            kwargs: Other keywords of `lance_io.write_dataset`.

        Raises:
            OSError: The rows do not fit the table, or another writer's changes conflict.
            ValueError: A keyword has an invalid value.
        """
        begun = self._state
        written = writes.write_table(data, self, mode=mode, **kwargs)
        self._move_to(replace(begun, manifest=written.manifest), begun)

    # -- columns ----------------------------------------------------------------------------------------------------

    def add_columns(
        self,
        transforms: Any,
        read_columns: list[str] | None = None,
        reader_schema: Any = None,
        batch_size: int | None = None,
        *,
        memory_limit: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Add columns, with values or without.

        A struct that exists gains the members that it lacks. With values, each fragment gets one new data file that
        holds only the new columns. After an error nothing has changed.

        Args:
            transforms: `pa.Field`s (one, a list, a schema) for columns without values; a dict of SQL expressions by
                name; a function or `batch_udf` that takes a record batch and returns one with the new columns; or a
                table, data frame, reader or iterable of record batches with a row for each row of the table.
            read_columns: Columns for a function, also `_rowid` and `_rowaddr`; None for all.
            reader_schema: Schema of an iterable of record batches.
            batch_size: Rows computed at once; by default 8,192, or as many as the memory limit allows. The batches of a
                function never span fragments.
            memory_limit: Bytes that the call may hold, in addition to the writer's buffers; None for the table's limit.
            progress: `progress(rows_done, rows_total)` is called repeatedly. Not in pylance.

        Raises:
            OSError: A column exists, the function raises, or there are too few or too many rows.
            ValueError: An expression does not fit the table.
            TypeError: The function fails on a sample of one row.
        """
        begun = self._state
        changed = row_changes.add_columns(
            begun, transforms, read_columns, reader_schema, batch_size, memory_limit, progress
        )
        self._move_to(changed, begun)

    def merge(
        self,
        data_obj: Any,
        left_on: str,
        right_on: str | None = None,
        schema: pa.Schema | None = None,
        *,
        memory_limit: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Add the columns of another table by key (a left join); rows without a match get nulls.

        If several rows have the same key, the last one counts. A null key equals a null key.

        Args:
            data_obj: A table, data frame, reader or iterable of record batches. Data that is not in memory is read
                once.
            left_on: Key column of this table, also `_rowid` and `_rowaddr`.
            right_on: Key column of `data_obj`; None for `left_on`.
            schema: Schema of an iterable of record batches.
            memory_limit: Bytes that the call may hold; the rest goes to local disk. The writer's buffers and `data_obj`
                itself do not count. None for the table's limit.
            progress: `progress(rows_done, rows_total)` is called repeatedly. Not in pylance.

        Raises:
            OSError: A column exists on both sides, the keys have different types, or a row without a match would get a
                null in a column without nulls.
        """
        begun = self._state
        changed = row_changes.merge(begun, data_obj, left_on, right_on, schema, memory_limit, progress)
        self._move_to(changed, begun)

    def alter_columns(
        self,
        *alterations: AlterColumn | Mapping[str, Any],
        memory_limit: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Rename columns, allow or forbid nulls, or cast them: `alter_columns({"path": "a.b", "name": "c"})`.

        All paths refer to the schema before the call. A cast writes one new file for each fragment; all else changes
        the schema only.

        Args:
            alterations: Dicts of `path` and at least one of `name`, `nullable` and `data_type` (of pyarrow).
            memory_limit: Bytes that a cast may hold, in addition to the writer's buffers; None for the table's limit.
            progress: `progress(rows_cast, rows_total)` is called repeatedly. Not in pylance.

        Raises:
            OSError: A column does not exist, has nulls and may no longer, has an index, or cannot be cast to the type.
        """
        self._change(evolution.alter_columns(self._state, alterations, memory_limit, progress))

    def drop_columns(self, columns: list[str]) -> None:
        """Remove columns, or members of structs, from the schema. `optimize.compact_files` and a cleanup free their
        space.

        Args:
            columns: Names or dotted paths.

        Raises:
            ValueError: A column does not exist, or no column would remain.
        """
        self._change(evolution.drop_columns(self._state, columns))

    def restore(self) -> None:
        """Commit this version as the newest one."""
        self._change(changes.restore(self._state))

    @property
    def optimize(self) -> DatasetOptimizer:
        """Maintenance of the table, such as `optimize.compact_files()`."""
        return optimizers.DatasetOptimizer(self)


class AsyncDatasetChanges(AsyncDatasetIndices, AsyncDatasetCleanups):
    """Changes of `AsyncDataset`: the same names and parameters, awaitable."""

    async def delete(
        self,
        predicate: Any,
        *,
        conflict_retries: int = CONFLICT_RETRIES,
        retry_timeout: timedelta = RETRY_TIMEOUT,
        progress: Progress | None = None,
    ) -> DeleteResult:
        """Delete the rows that pass a filter. See `LanceDataset.delete`."""
        state = self._state
        plan = changes.delete_rows(state, predicate, conflict_retries, retry_timeout, progress)
        changed, done = await run_change(plan, answers_sync=state.answers_sync)
        self._move_to(changed, state)
        return done

    async def update(
        self,
        updates: dict[str, str],
        where: Any = None,
        conflict_retries: int = CONFLICT_RETRIES,
        retry_timeout: timedelta = RETRY_TIMEOUT,
        data_storage_version: str | None = None,
        *,
        memory_limit: int | None = None,
        progress: Progress | None = None,
    ) -> UpdateResult:
        """Set new values in the rows that pass a filter. See `LanceDataset.update`."""
        state = self._state
        plan = updates_plans.update_rows(
            state, updates, where, conflict_retries, retry_timeout, data_storage_version, memory_limit, progress
        )
        changed, done = await run_change(plan, answers_sync=state.answers_sync)
        self._move_to(changed, state)
        return done

    def merge_insert(self, on: str | Iterable[str] | None = None) -> AsyncMergeInsertBuilder:
        """Start a merge of rows into the table by key. See `LanceDataset.merge_insert`."""
        return merges.AsyncMergeInsertBuilder(self, on)

    async def truncate_table(self) -> None:
        """Delete all rows and keep the schema. See `LanceDataset.truncate_table`."""
        await self._change(changes.truncate(self._state, CONFLICT_RETRIES, RETRY_TIMEOUT))

    async def insert(self, data: Any, *, mode: str = "append", **kwargs: Any) -> None:
        """Write rows to this table. See `LanceDataset.insert`; `data` may be an asynchronous iterable of record
        batches.
        """
        await runtime.load_modules(writes.__name__)
        begun = self._state
        written = await writes.write_table_async(data, self, mode=mode, **kwargs)
        self._move_to(replace(begun, manifest=written.manifest), begun)

    async def add_columns(
        self,
        transforms: Any,
        read_columns: list[str] | None = None,
        reader_schema: Any = None,
        batch_size: int | None = None,
        *,
        memory_limit: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Add columns. See `LanceDataset.add_columns`; `transforms` may be an asynchronous iterable of batches."""
        await runtime.load_modules(row_changes.__name__)
        begun = self._state
        changed = await row_changes.add_columns_async(
            begun, transforms, read_columns, reader_schema, batch_size, memory_limit, progress
        )
        self._move_to(changed, begun)

    async def merge(
        self,
        data_obj: Any,
        left_on: str,
        right_on: str | None = None,
        schema: pa.Schema | None = None,
        *,
        memory_limit: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Add the columns of another table by key. See `LanceDataset.merge`."""
        await runtime.load_modules(row_changes.__name__)
        begun = self._state
        changed = await row_changes.merge_async(begun, data_obj, left_on, right_on, schema, memory_limit, progress)
        self._move_to(changed, begun)

    async def alter_columns(
        self,
        *alterations: AlterColumn | Mapping[str, Any],
        memory_limit: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Rename columns, allow or forbid nulls, or cast them. See `LanceDataset.alter_columns`."""
        await self._change(evolution.alter_columns(self._state, alterations, memory_limit, progress))

    async def drop_columns(self, columns: list[str]) -> None:
        """Remove columns from the schema. See `LanceDataset.drop_columns`."""
        await self._change(evolution.drop_columns(self._state, columns))

    async def restore(self) -> None:
        """Commit this version as the newest one. See `LanceDataset.restore`."""
        await self._change(changes.restore(self._state))

    @property
    def optimize(self) -> AsyncDatasetOptimizer:
        """Maintenance of the table, awaitable. See `LanceDataset.optimize`."""
        return optimizers.AsyncDatasetOptimizer(self)
