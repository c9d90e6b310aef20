"""The methods of datasets that change the table, synchronous and asynchronous.

Every change commits a new version and moves the object that it is called on to it; other open objects stay where they
are.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lance_io import runtime
from lance_io.dataset.metadata_methods import AsyncMetadataChanges, MetadataChanges, warn_deprecated
from lance_io.lazy_names import later
from lance_io.limits import CLEANUP_FILES_SHOWN
from lance_io.plans.lazy_module import later_plans
from lance_io.reads.run_plan import run_change
from lance_io.store.provided_options import with_provider
from lance_io.store.url import uri_on

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from os import PathLike

    import pyarrow as pa

    from lance_io.changes.columns import evolve_schema as evolution
    from lance_io.changes.columns.schema_edits import AlterColumn
    from lance_io.changes.edits import change_plans as changes
    from lance_io.changes.edits import update_rows as updates_plans
    from lance_io.changes.edits.change_plans import DeleteResult
    from lance_io.changes.edits.update_rows import UpdateResult
    from lance_io.changes.merge import merge_builder as merges
    from lance_io.changes.merge.merge_builder import AsyncMergeInsertBuilder, MergeInsertBuilder
    from lance_io.changes.upkeep import drop_table as drops
    from lance_io.changes.upkeep import remove_versions as cleanups
    from lance_io.changes.upkeep.remove_versions import CleanupExplanation
    from lance_io.changes.write import run_write as writes
    from lance_io.commit.cleanups.cleanup_values import CleanupStats
    from lance_io.dataset import column_methods as row_changes
    from lance_io.dataset import optimizer as optimizers
    from lance_io.dataset.optimizer import AsyncDatasetOptimizer, DatasetOptimizer
    from lance_io.reads.metadata import index_descriptions
    from lance_io.reads.metadata import index_descriptions as index_listing
    from lance_io.reads.metadata.file_listing import Progress
    from lance_io.reads.metadata.index_descriptions import IndexDescription
else:
    changes = later_plans("lance_io.changes.edits.change_plans")
    cleanups = later_plans("lance_io.changes.upkeep.remove_versions")
    updates_plans = later_plans("lance_io.changes.edits.update_rows")
    index_descriptions = later_plans("lance_io.reads.metadata.index_descriptions")
    index_listing = later("lance_io.reads.metadata.index_descriptions")
    evolution = later_plans("lance_io.changes.columns.evolve_schema")
    row_changes = later("lance_io.dataset.column_methods")
    optimizers = later("lance_io.dataset.optimizer")
    drops = later("lance_io.changes.upkeep.drop_table")
    merges = later("lance_io.changes.merge.merge_builder")
    writes = later("lance_io.changes.write.run_write")

CONFLICT_RETRIES = 10
RETRY_TIMEOUT = timedelta(seconds=30)


class DatasetChanges(MetadataChanges):
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
        """Delete the rows that pass a filter, text or expression.

        conflict_retries, retry_timeout  how often and how long it is made anew when another writer changed the same
                                         rows meanwhile
        progress  called with how many rows are found, and None: of how many is not known before. Not in pylance
        Raises `OSError` for a predicate that does not fit, `CommitConflictError` when retries did not help.
        """
        begun = self._state
        made, done = self._run(changes.delete_rows(begun, predicate, conflict_retries, retry_timeout, progress))
        self._move_to(made, begun)
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
        """Give the rows that pass a filter new values: `update({"price": "price * 1.1"}, where="stock > 0")`.

        updates               SQL expressions by column, cast to its type; all of them see the row as it was
        where                 text or expression; None for all rows
        conflict_retries, retry_timeout  as for `delete`
        data_storage_version  file version of the new data files; None for the table's
        memory_limit  bytes that the update may hold beside what a writer fills; that of the table unless said
        progress      called with how many rows are written, and of how many, which is None with `where`; from the
                      beginning when a conflict has the update made anew. Not in pylance

        The rows are written anew, with all their columns, into new fragments at the end of the table, and keep their
        stable row ids. Raises `ValueError` for a column or expression that does not fit, `OSError` for one that cannot
        be computed for a row, or is null in a column that has no nulls; nothing has changed then.
        """
        begun = self._state
        plan = updates_plans.update_rows(
            begun, updates, where, conflict_retries, retry_timeout, data_storage_version, memory_limit, progress
        )
        made, done = self._run(plan)
        self._move_to(made, begun)
        return done

    def merge_insert(self, on: str | Iterable[str] | None = None) -> MergeInsertBuilder:
        """A merge of rows into the table by key: what happens to rows that match and to others is said by clauses.

        on  key columns, None for the declared primary key

            ds.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)

        Raises `ValueError` for a column that is not there, and where there is no key.
        """
        return merges.MergeInsertBuilder(self, on)

    def truncate_table(self) -> None:
        """Delete all rows and keep the schema."""
        self._change(changes.truncate(self._state, CONFLICT_RETRIES, RETRY_TIMEOUT))

    def insert(self, data: Any, *, mode: str = "append", **kwargs: Any) -> None:
        """Write rows to this table; keywords as for `write_dataset`."""
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

        transforms     `pa.Field`s (one, a list, a schema): columns without values; a dict of SQL expressions by name; a
                       function, or a `batch_udf`, that gets a record batch and gives one with the new columns; a
                       table, data frame, reader or iterable of record batches with a row for each row of the table
        read_columns   what a function gets, also `_rowid` and `_rowaddr`; all columns by default
        reader_schema  of an iterable of record batches
        batch_size     rows that are computed at once, 8,192 or as many as the limit allows unless said; a function's
                       batches never lie in two fragments
        memory_limit   bytes that the call may hold beside what a writer fills; that of the table unless said
        progress       called with how many rows have values, and of how many. Not in pylance

        A struct that is there gets the members that it does not have. With values one data file is written for each
        fragment, which holds the new columns only. Raises `OSError` for a column that is there, for a function's error
        and for too few or too many rows, `ValueError` for an expression that does not fit the table, `TypeError` for a
        function that fails on a sample of one row. Nothing has changed then.
        """
        begun = self._state
        made = row_changes.add_columns(
            begun, transforms, read_columns, reader_schema, batch_size, memory_limit, progress
        )
        self._move_to(made, begun)

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
        """Add the columns of a table to the rows that have its keys; null for all others: a left join.

        data_obj      a table, data frame, reader or iterable of record batches (with `schema`). What is not in memory
                      is read once
        left_on       the key's column here, also `_rowid` and `_rowaddr`
        right_on      the key's column there, `left_on` by default
        memory_limit  bytes that the call may hold, those of the table unless said: what does not fit goes to local
                      disk. Beside it are what a writer fills, and `data_obj` itself where that is in memory
        progress      called with how many rows have values, and of how many. Not in pylance

        Of several rows with one key the last one counts, and a null key is equal to a null key. Raises `OSError` for a
        column that is on both sides, for keys of different types, and for a row without a match where a new column has
        no nulls.
        """
        begun = self._state
        made = row_changes.merge(begun, data_obj, left_on, right_on, schema, memory_limit, progress)
        self._move_to(made, begun)

    def alter_columns(
        self,
        *alterations: AlterColumn | Mapping[str, Any],
        memory_limit: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Rename columns, allow or forbid nulls, cast them: `alter_columns({"path": "a.b", "name": "c"})`.

        alterations   dicts of `path` and at least one of `name`, `nullable` and `data_type` (of pyarrow)
        memory_limit  bytes that a cast may hold beside what a writer fills; that of the table unless said
        progress      called with how many rows are cast, and of how many. Not in pylance

        All paths are as they were before the call. A cast writes the column anew, one file for each fragment; all else
        is a change of the schema. Raises `OSError` for a column that is not there, that has nulls and may no longer,
        that has an index, and for a type that it cannot be cast to.
        """
        self._change(evolution.alter_columns(self._state, alterations, memory_limit, progress))

    def drop_columns(self, columns: list[str]) -> None:
        """Take columns, or members of structs, out of the schema; `optimize.compact_files` and a cleanup free
        their space. Raises `ValueError` for a column that is not there, and for all columns.
        """
        self._change(evolution.drop_columns(self._state, columns))

    def drop_index(self, name: str) -> None:
        """Take an index, with all its segments, out of the table; its files go with a cleanup.

        Raises `RuntimeError` when there is none of that name (not that of a column: `describe_indices` has them).
        """
        self._change(changes.drop_index(self._state, name))

    def describe_indices(self) -> list[IndexDescription]:
        """The indices of this version by name, and their segments, as the manifest has them."""
        return self._run(index_descriptions.describe_indices(self._state))

    def list_indices(self) -> list[dict[str, Any]]:
        """The segments of all indices. Deprecated."""
        warn_deprecated("list_indices", "describe_indices()")
        return index_listing.index_segments(self.describe_indices())

    def restore(self) -> None:
        """Make this version the newest one again."""
        self._change(changes.restore(self._state))

    # -- compaction and cleaning up -----------------------------------------------------------------------------------

    @property
    def optimize(self) -> DatasetOptimizer:
        """What keeps the table fast: `optimize.compact_files()`."""
        return optimizers.DatasetOptimizer(self)

    def cleanup_old_versions(
        self,
        older_than: timedelta | None = None,
        retain_versions: int | None = None,
        *,
        delete_unverified: bool = False,
        error_if_tagged_old_versions: bool = True,
        delete_rate_limit: int | None = None,
        versions: list[int] | None = None,
        delete_concurrency: int | None = None,
        progress: Progress | None = None,
    ) -> CleanupStats:
        """Remove old versions, and files that no version refers to.

        older_than         versions committed longer ago; two weeks when nothing else is given. Those younger than ten
                           minutes are kept unless it is zero or `versions` names them; `young_versions_kept` of the
                           answer counts them
        retain_versions    keep the last so many
        versions           only these, however young
        delete_unverified  also files younger than seven days that no version refers to. Only when no writer is under
                           way: they may belong to a commit that is still to come
        error_if_tagged_old_versions  False keeps tagged versions silently
        delete_rate_limit  at most so many files a second
        delete_concurrency accepted; requests are bounded per store
        progress           called with how many versions were looked at, and of how many; then with how many files are
                           gone, and of how many. Not in pylance

        Manifests are read only where the listing cannot decide: an old one is expired unread, as it was committed
        before its object was written, and files that are older than seven days go without anybody naming them.
        This version and all newer ones, tagged versions and what branches refer to always stay. Raises `OSError` for
        tagged versions that would go, and for a manifest that cannot be read: nothing is removed on a guess.
        """
        plan = cleanups.clean_up(
            self._state,
            delete_rate_limit,
            progress,
            older_than=older_than,
            retain_versions=retain_versions,
            delete_unverified=delete_unverified,
            error_if_tagged=error_if_tagged_old_versions,
            versions=versions,
        )
        return self._run(plan)

    def explain_cleanup_old_versions(
        self,
        older_than: timedelta | None = None,
        retain_versions: int | None = None,
        *,
        delete_unverified: bool = False,
        error_if_tagged_old_versions: bool = True,
        delete_rate_limit: int | None = None,
        versions: list[int] | None = None,
        include_files: bool = False,
        max_files: int = CLEANUP_FILES_SHOWN,
    ) -> CleanupExplanation:
        """What `cleanup_old_versions` would remove; removes nothing.

        include_files  list the files, at most `max_files`
        """
        plan = cleanups.explain_cleanup(
            self._state,
            include_files=include_files,
            max_files=max_files,
            older_than=older_than,
            retain_versions=retain_versions,
            delete_unverified=delete_unverified,
            error_if_tagged=error_if_tagged_old_versions,
            versions=versions,
        )
        return self._run(plan)

    @staticmethod
    def drop(
        base_uri: str | PathLike[str],
        storage_options: dict[str, str] | None = None,
        ignore_not_found: bool | None = None,
        *,
        filesystem: Any = None,
        storage_options_provider: Any = None,
    ) -> None:
        """Remove a table with all of its files. Raises `OSError` when there is none, unless `ignore_not_found`."""
        options = with_provider(storage_options, storage_options_provider)
        drops.drop(uri_on(filesystem, base_uri), options, ignore_not_found)


class AsyncDatasetChanges(AsyncMetadataChanges):
    """The same for `AsyncDataset`: same names, same parameters, awaitable."""

    async def delete(
        self,
        predicate: Any,
        *,
        conflict_retries: int = CONFLICT_RETRIES,
        retry_timeout: timedelta = RETRY_TIMEOUT,
        progress: Progress | None = None,
    ) -> DeleteResult:
        """Delete the rows that pass a filter; see `LanceDataset.delete`."""
        state = self._state
        plan = changes.delete_rows(state, predicate, conflict_retries, retry_timeout, progress)
        made, done = await run_change(plan, answers_sync=state.answers_sync)
        self._move_to(made, state)
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
        """`LanceDataset.update`."""
        state = self._state
        plan = updates_plans.update_rows(
            state, updates, where, conflict_retries, retry_timeout, data_storage_version, memory_limit, progress
        )
        made, done = await run_change(plan, answers_sync=state.answers_sync)
        self._move_to(made, state)
        return done

    def merge_insert(self, on: str | Iterable[str] | None = None) -> AsyncMergeInsertBuilder:
        """A merge of rows into the table by key; see `LanceDataset.merge_insert`."""
        return merges.AsyncMergeInsertBuilder(self, on)

    async def truncate_table(self) -> None:
        """Delete all rows and keep the schema."""
        await self._change(changes.truncate(self._state, CONFLICT_RETRIES, RETRY_TIMEOUT))

    async def insert(self, data: Any, *, mode: str = "append", **kwargs: Any) -> None:
        """Write rows to this table; keywords as for `AsyncDataset.write`."""
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
        """Add columns; see `LanceDataset.add_columns`. Record batches may come from an asynchronous iterable too."""
        await runtime.load_modules(row_changes.__name__)
        begun = self._state
        made = await row_changes.add_columns_async(
            begun, transforms, read_columns, reader_schema, batch_size, memory_limit, progress
        )
        self._move_to(made, begun)

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
        """Add the columns of a table by a key; see `LanceDataset.merge`."""
        await runtime.load_modules(row_changes.__name__)
        begun = self._state
        made = await row_changes.merge_async(begun, data_obj, left_on, right_on, schema, memory_limit, progress)
        self._move_to(made, begun)

    async def alter_columns(
        self,
        *alterations: AlterColumn | Mapping[str, Any],
        memory_limit: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Rename columns, allow or forbid nulls, cast them; see `LanceDataset.alter_columns`."""
        await self._change(evolution.alter_columns(self._state, alterations, memory_limit, progress))

    async def drop_columns(self, columns: list[str]) -> None:
        """Take columns out of the schema; see `LanceDataset.drop_columns`."""
        await self._change(evolution.drop_columns(self._state, columns))

    async def drop_index(self, name: str) -> None:
        """Take an index out of the table; see `LanceDataset.drop_index`."""
        await self._change(changes.drop_index(self._state, name))

    async def describe_indices(self) -> list[IndexDescription]:
        """The indices of this version; see `LanceDataset.describe_indices`."""
        return await self._run(index_descriptions.describe_indices(self._state))

    async def list_indices(self) -> list[dict[str, Any]]:
        """The segments of all indices. Deprecated."""
        warn_deprecated("list_indices", "describe_indices()")
        return index_listing.index_segments(await self.describe_indices())

    async def restore(self) -> None:
        """Make this version the newest one again."""
        await self._change(changes.restore(self._state))

    @property
    def optimize(self) -> AsyncDatasetOptimizer:
        """`LanceDataset.optimize`, whose methods are awaited."""
        return optimizers.AsyncDatasetOptimizer(self)

    async def cleanup_old_versions(
        self,
        older_than: timedelta | None = None,
        retain_versions: int | None = None,
        *,
        delete_unverified: bool = False,
        error_if_tagged_old_versions: bool = True,
        delete_rate_limit: int | None = None,
        versions: list[int] | None = None,
        delete_concurrency: int | None = None,
        progress: Progress | None = None,
    ) -> CleanupStats:
        """Remove old versions, and files that no version refers to; see `LanceDataset.cleanup_old_versions`."""
        plan = cleanups.clean_up(
            self._state,
            delete_rate_limit,
            progress,
            older_than=older_than,
            retain_versions=retain_versions,
            delete_unverified=delete_unverified,
            error_if_tagged=error_if_tagged_old_versions,
            versions=versions,
        )
        return await run_change(plan, answers_sync=self._state.answers_sync)

    async def explain_cleanup_old_versions(
        self,
        older_than: timedelta | None = None,
        retain_versions: int | None = None,
        *,
        delete_unverified: bool = False,
        error_if_tagged_old_versions: bool = True,
        delete_rate_limit: int | None = None,
        versions: list[int] | None = None,
        include_files: bool = False,
        max_files: int = CLEANUP_FILES_SHOWN,
    ) -> CleanupExplanation:
        """What `cleanup_old_versions` would remove; removes nothing."""
        plan = cleanups.explain_cleanup(
            self._state,
            include_files=include_files,
            max_files=max_files,
            older_than=older_than,
            retain_versions=retain_versions,
            delete_unverified=delete_unverified,
            error_if_tagged=error_if_tagged_old_versions,
            versions=versions,
        )
        return await self._run(plan)

    @staticmethod
    async def drop(
        base_uri: Any,
        storage_options: dict[str, str] | None = None,
        ignore_not_found: bool | None = None,
        *,
        filesystem: Any = None,
        storage_options_provider: Any = None,
    ) -> None:
        """Remove a table with all of its files; see `LanceDataset.drop`."""
        await runtime.load_modules(drops.__name__)
        options = with_provider(storage_options, storage_options_provider)
        await drops.drop_async(uri_on(filesystem, base_uri), options, ignore_not_found)
