"""The methods of datasets that change the table, synchronous and asynchronous.

Every change commits a new version and moves the object that it is called on to it; other open objects stay where they
are.
"""

from __future__ import annotations

import warnings
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from lance_io import runtime
from lance_io.dataset.lazy_module import later
from lance_io.dataset.run_plan import run
from lance_io.limits import CLEANUP_FILES_SHOWN
from lance_io.plans.plan import drive_async

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from lance_io.commit.cleanup import CleanupStats
    from lance_io.dataset.async_dataset import AsyncDataset
    from lance_io.dataset.changes import change_plans as changes
    from lance_io.dataset.changes import remove_versions as cleaning
    from lance_io.dataset.changes import transaction_history as history
    from lance_io.dataset.changes import uncancelled as finishing
    from lance_io.dataset.changes.lance_operation import LanceOperation, Transaction
    from lance_io.dataset.changes.remove_versions import CleanupExplanation
    from lance_io.dataset.lance_dataset import LanceDataset
    from lance_io.dataset.version.state import DatasetState
    from lance_io.plans.plan import Plan

    Values = Mapping[str, str | None]
else:
    changes, cleaning = (
        later("lance_io.dataset.changes.change_plans"),
        later("lance_io.dataset.changes.remove_versions"),
    )
    finishing, history = (
        later("lance_io.dataset.changes.uncancelled"),
        later("lance_io.dataset.changes.transaction_history"),
    )

T = TypeVar("T")
CONFLICT_RETRIES = 10
RETRY_TIMEOUT = timedelta(seconds=30)
COMMIT_TIMEOUT = timedelta(minutes=30)


class DeleteResult(TypedDict):
    """What a delete did."""

    num_deleted_rows: int


def _deprecated(old: str, new: str) -> None:
    warnings.warn(f"{old} is deprecated. Use {new} instead.", DeprecationWarning, stacklevel=3)


class DatasetChanges:
    """Changes of `LanceDataset`."""

    _state: DatasetState

    def _change(self, plan: Plan[DatasetState]) -> None:
        self._state = run(self._state, plan)

    # -- rows -------------------------------------------------------------------------------------------------------

    def delete(
        self, predicate: Any, *, conflict_retries: int = CONFLICT_RETRIES, retry_timeout: timedelta = RETRY_TIMEOUT
    ) -> DeleteResult:
        """Delete the rows that pass a filter, text or expression.

        conflict_retries, retry_timeout  how often and how long it is made anew when another writer changed the same
                                         rows meanwhile
        Raises `OSError` for a predicate that does not fit, `CommitConflictError` when retries did not help.
        """
        plan = changes.delete_rows(self._state, predicate, conflict_retries, retry_timeout.total_seconds())
        self._state, num_rows = run(self._state, plan)
        return DeleteResult(num_deleted_rows=num_rows)

    def truncate_table(self) -> None:
        """Delete all rows and keep the schema."""
        self._change(changes.truncate(self._state))

    def insert(self, data: Any, *, mode: str = "append", **kwargs: Any) -> None:
        """Write rows to this table; keywords as for `write_dataset`."""
        from lance_io.dataset.write.write_dataset import write_dataset

        self._state = write_dataset(data, self, mode=mode, **kwargs)._state  # type: ignore[arg-type]

    def restore(self) -> None:
        """Make this version the newest one again."""
        self._change(changes.restore(self._state))

    # -- configuration and metadata -----------------------------------------------------------------------------------

    def update_config(self, values: Values, *, replace: bool = False) -> dict[str, str]:
        """Set entries of the configuration; None removes one, `replace` all others. Gives the new configuration."""
        self._change(changes.update_config(self._state, values, replace_all=replace))
        return dict(self._state.manifest.config)

    def delete_config_keys(self, keys: list[str]) -> None:
        """Remove entries of the configuration."""
        self._change(changes.delete_config_keys(self._state, keys))

    def update_metadata(self, values: Values, *, replace: bool = False) -> dict[str, str]:
        """Set entries of the table's metadata; as `update_config`."""
        self._change(changes.update_metadata(self._state, values, replace_all=replace))
        return dict(self._state.manifest.table_metadata)

    def update_schema_metadata(self, values: Values, *, replace: bool = False) -> dict[str, str]:
        """Set entries of the schema's metadata; as `update_config`."""
        self._change(changes.update_schema_metadata(self._state, values, replace_all=replace))
        return schema_metadata(self._state)

    def replace_schema_metadata(self, new_metadata: dict[str, str]) -> None:
        """Give the schema other metadata. Deprecated."""
        _deprecated("replace_schema_metadata", "update_schema_metadata(metadata, replace=True)")
        self._change(changes.update_schema_metadata(self._state, new_metadata, replace_all=True))

    def update_field_metadata(self, field_updates: Mapping[str | int, Values], *, replace: bool = False) -> None:
        """Set entries of the metadata of fields, given by path or id; as `update_config`."""
        self._change(changes.update_field_metadata(self._state, field_updates, replace_all=replace))

    def replace_field_metadata(self, field_name: str, new_metadata: dict[str, str]) -> None:
        """Give a field other metadata. Deprecated."""
        _deprecated("replace_field_metadata", "update_field_metadata with field paths and replace=True")
        self._change(changes.update_field_metadata(self._state, {field_name: new_metadata}, replace_all=True))

    # -- history ----------------------------------------------------------------------------------------------------

    def read_transaction(self, version: int) -> Transaction | None:
        """What made a version; None when no record of it is left. Raises `OSError` for a version that is not there."""
        return public(run(self._state, history.transaction_of(self._state, version)))

    def get_transactions(self, recent_transactions: int = 10) -> list[Transaction | None]:
        """What made the newest versions, newest first."""
        found = run(self._state, history.recent_transactions(self._state.location, recent_transactions))
        return [public(one) for one in found]

    # -- cleaning up ------------------------------------------------------------------------------------------------

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

        This version and all newer ones, tagged versions and what branches refer to always stay. Raises `OSError` for
        tagged versions that would go, and for a manifest that cannot be read: nothing is removed on a guess.
        """
        policy = cleaning.cleanup_policy(
            older_than,
            retain_versions,
            delete_unverified=delete_unverified,
            error_if_tagged=error_if_tagged_old_versions,
            versions=versions,
        )
        return run(self._state, cleaning.clean_up(self._state, policy, delete_rate_limit))

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
        policy = cleaning.cleanup_policy(
            older_than,
            retain_versions,
            delete_unverified=delete_unverified,
            error_if_tagged=error_if_tagged_old_versions,
            versions=versions,
        )
        plan = cleaning.explain_cleanup(self._state, policy, include_files=include_files, max_files=max_files)
        return run(self._state, plan)

    # -- commits ----------------------------------------------------------------------------------------------------

    @staticmethod
    def commit(
        base_uri: str | PathLike[str] | LanceDataset,
        operation: LanceOperation.BaseOperation | Transaction,
        read_version: int | None = None,
        commit_lock: Any = None,
        storage_options: dict[str, str] | None = None,
        enable_v2_manifest_paths: bool | None = None,
        detached: bool | None = False,
        max_retries: int = 20,
        *,
        commit_message: str | None = None,
        enable_stable_row_ids: bool | None = None,
        namespace_client: Any = None,
        table_id: list[str] | None = None,
        namespace_client_managed_versioning: bool = False,
        base_store_params: Any = None,
        commit_timeout: timedelta | None = COMMIT_TIMEOUT,
    ) -> LanceDataset:
        """Commit an operation that was prepared somewhere; gives the version that it makes.

        base_uri      the table, or an open dataset (which stays at its version)
        operation     one of `LanceOperation`, or a whole `Transaction`: committing the same one again is recognised,
                      also that of a `CommitUnknownError`
        read_version  version that the operation was made for; not needed for `Overwrite` and `Restore`
        detached      make a version outside of the sequence, which only its number finds
        max_retries   attempts at most; 0 with an `Overwrite`: `read_version` must still be the newest
        commit_timeout  no further attempt after this time

        Raises `CommitConflictError` for changes of other writers that do not go together with it, `OSError` when
        there is no table and the operation is no `Overwrite`, and for one that does not fit the table or its files.
        """
        from lance_io.dataset.changes.commit_calls import commit

        return commit(
            base_uri,
            operation,
            read_version,
            commit_lock,
            storage_options,
            enable_v2_manifest_paths,
            detached,
            max_retries,
            commit_message=commit_message,
            enable_stable_row_ids=enable_stable_row_ids,
            namespace_client=namespace_client,
            table_id=table_id,
            namespace_client_managed_versioning=namespace_client_managed_versioning,
            base_store_params=base_store_params,
            commit_timeout=commit_timeout,
        )

    @staticmethod
    def commit_batch(
        dest: str | PathLike[str] | LanceDataset,
        transactions: list[Transaction],
        commit_lock: Any = None,
        storage_options: dict[str, str] | None = None,
        enable_v2_manifest_paths: bool | None = None,
        detached: bool | None = False,
        max_retries: int = 20,
        base_store_params: Any = None,
        commit_timeout: timedelta | None = COMMIT_TIMEOUT,
    ) -> dict[str, Any]:
        """Commit several appends as one; gives `{"dataset": ..., "merged": ...}`."""
        from lance_io.dataset.changes.commit_calls import commit_batch

        return commit_batch(
            dest,
            transactions,
            commit_lock,
            storage_options,
            enable_v2_manifest_paths=enable_v2_manifest_paths,
            detached=detached,
            max_retries=max_retries,
            base_store_params=base_store_params,
            commit_timeout=commit_timeout,
        )

    @staticmethod
    def drop(
        base_uri: str | PathLike[str],
        storage_options: dict[str, str] | None = None,
        ignore_not_found: bool | None = None,
    ) -> None:
        """Remove a table with all of its files. Raises `OSError` when there is none, unless `ignore_not_found`."""
        from lance_io.dataset.changes.drop_table import drop

        drop(base_uri, storage_options, ignore_not_found=bool(ignore_not_found))


class AsyncDatasetChanges:
    """The same for `AsyncDataset`: same names, same parameters, awaitable."""

    _state: DatasetState

    async def _change(self, plan: Plan[DatasetState]) -> None:
        self._state = await finishing.finished(plan)

    async def delete(
        self, predicate: Any, *, conflict_retries: int = CONFLICT_RETRIES, retry_timeout: timedelta = RETRY_TIMEOUT
    ) -> DeleteResult:
        """Delete the rows that pass a filter; see `LanceDataset.delete`."""
        plan = changes.delete_rows(self._state, predicate, conflict_retries, retry_timeout.total_seconds())
        self._state, num_rows = await finishing.finished(plan)
        return DeleteResult(num_deleted_rows=num_rows)

    async def truncate_table(self) -> None:
        """Delete all rows and keep the schema."""
        await self._change(changes.truncate(self._state))

    async def insert(self, data: Any, *, mode: str = "append", **kwargs: Any) -> None:
        """Write rows to this table; keywords as for `AsyncDataset.write`."""
        await runtime.loaded("lance_io.dataset.write.write_dataset")
        from lance_io.dataset.write.write_dataset import write_dataset_async

        self._state = (await write_dataset_async(data, self, mode=mode, **kwargs))._state  # type: ignore[arg-type]

    async def restore(self) -> None:
        """Make this version the newest one again."""
        await self._change(changes.restore(self._state))

    async def update_config(self, values: Values, *, replace: bool = False) -> dict[str, str]:
        """Set entries of the configuration; see `LanceDataset.update_config`."""
        await self._change(changes.update_config(self._state, values, replace_all=replace))
        return dict(self._state.manifest.config)

    async def delete_config_keys(self, keys: list[str]) -> None:
        """Remove entries of the configuration."""
        await self._change(changes.delete_config_keys(self._state, keys))

    async def update_metadata(self, values: Values, *, replace: bool = False) -> dict[str, str]:
        """Set entries of the table's metadata."""
        await self._change(changes.update_metadata(self._state, values, replace_all=replace))
        return dict(self._state.manifest.table_metadata)

    async def update_schema_metadata(self, values: Values, *, replace: bool = False) -> dict[str, str]:
        """Set entries of the schema's metadata."""
        await self._change(changes.update_schema_metadata(self._state, values, replace_all=replace))
        return schema_metadata(self._state)

    async def replace_schema_metadata(self, new_metadata: dict[str, str]) -> None:
        """Give the schema other metadata. Deprecated."""
        _deprecated("replace_schema_metadata", "update_schema_metadata(metadata, replace=True)")
        await self._change(changes.update_schema_metadata(self._state, new_metadata, replace_all=True))

    async def update_field_metadata(self, field_updates: Mapping[str | int, Values], *, replace: bool = False) -> None:
        """Set entries of the metadata of fields."""
        await self._change(changes.update_field_metadata(self._state, field_updates, replace_all=replace))

    async def replace_field_metadata(self, field_name: str, new_metadata: dict[str, str]) -> None:
        """Give a field other metadata. Deprecated."""
        _deprecated("replace_field_metadata", "update_field_metadata with field paths and replace=True")
        await self._change(changes.update_field_metadata(self._state, {field_name: new_metadata}, replace_all=True))

    async def read_transaction(self, version: int) -> Transaction | None:
        """What made a version; see `LanceDataset.read_transaction`."""
        return public(await runtime.wrap(drive_async(history.transaction_of(self._state, version))))

    async def get_transactions(self, recent_transactions: int = 10) -> list[Transaction | None]:
        """What made the newest versions, newest first."""
        plan = history.recent_transactions(self._state.location, recent_transactions)
        return [public(one) for one in await runtime.wrap(drive_async(plan))]

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
    ) -> CleanupStats:
        """Remove old versions, and files that no version refers to; see `LanceDataset.cleanup_old_versions`."""
        policy = cleaning.cleanup_policy(
            older_than,
            retain_versions,
            delete_unverified=delete_unverified,
            error_if_tagged=error_if_tagged_old_versions,
            versions=versions,
        )
        return await finishing.finished(cleaning.clean_up(self._state, policy, delete_rate_limit))

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
        policy = cleaning.cleanup_policy(
            older_than,
            retain_versions,
            delete_unverified=delete_unverified,
            error_if_tagged=error_if_tagged_old_versions,
            versions=versions,
        )
        plan = cleaning.explain_cleanup(self._state, policy, include_files=include_files, max_files=max_files)
        return await runtime.wrap(drive_async(plan))

    @staticmethod
    async def write(
        data_obj: Any, uri: Any = None, schema: Any = None, mode: str = "create", **options: Any
    ) -> AsyncDataset:
        """Write rows to a table; keywords as for `write_dataset`.

        data_obj  also an asynchronous iterable of record batches, which is advanced on the calling loop
        """
        await runtime.loaded("lance_io.dataset.write.write_dataset")
        from lance_io.dataset.write.write_dataset import write_dataset_async

        return await write_dataset_async(data_obj, uri, schema, mode, **options)

    @staticmethod
    async def commit(
        base_uri: Any,
        operation: LanceOperation.BaseOperation | Transaction,
        read_version: int | None = None,
        commit_lock: Any = None,
        storage_options: dict[str, str] | None = None,
        enable_v2_manifest_paths: bool | None = None,
        detached: bool | None = False,
        max_retries: int = 20,
        **options: Any,
    ) -> AsyncDataset:
        """Commit an operation that was prepared somewhere; see `LanceDataset.commit`."""
        await runtime.loaded("lance_io.dataset.changes.commit_calls")
        from lance_io.dataset.changes.commit_calls import commit_async

        return await commit_async(
            base_uri,
            operation,
            read_version,
            commit_lock=commit_lock,
            storage_options=storage_options,
            enable_v2_manifest_paths=enable_v2_manifest_paths,
            detached=detached,
            max_retries=max_retries,
            **options,
        )

    @staticmethod
    async def commit_batch(
        dest: Any,
        transactions: list[Transaction],
        commit_lock: Any = None,
        storage_options: dict[str, str] | None = None,
        enable_v2_manifest_paths: bool | None = None,
        detached: bool | None = False,
        max_retries: int = 20,
        base_store_params: Any = None,
        commit_timeout: timedelta | None = COMMIT_TIMEOUT,
    ) -> dict[str, Any]:
        """Commit several appends as one; see `LanceDataset.commit_batch`."""
        await runtime.loaded("lance_io.dataset.changes.commit_calls")
        from lance_io.dataset.changes.commit_calls import commit_async, merged_appends

        merged = merged_appends(transactions)
        committed = await commit_async(
            dest,
            merged,
            commit_lock=commit_lock,
            storage_options=storage_options,
            enable_v2_manifest_paths=enable_v2_manifest_paths,
            detached=detached,
            max_retries=max_retries,
            base_store_params=base_store_params,
            commit_timeout=commit_timeout,
        )
        return {"dataset": committed, "merged": merged}

    @staticmethod
    async def drop(
        base_uri: Any, storage_options: dict[str, str] | None = None, ignore_not_found: bool | None = None
    ) -> None:
        """Remove a table with all of its files; see `LanceDataset.drop`."""
        await runtime.loaded("lance_io.dataset.changes.drop_table")
        from lance_io.dataset.changes.drop_table import drop_async

        await drop_async(base_uri, storage_options, ignore_not_found=bool(ignore_not_found))


def public(transaction: Any) -> Transaction | None:
    """A stored transaction as users see it."""
    from lance_io.dataset.changes.convert import to_public

    return None if transaction is None else to_public(transaction)


def schema_metadata(state: DatasetState) -> dict[str, str]:
    """Metadata of the schema."""
    return {key: value.decode("utf-8", "replace") for key, value in state.schema.metadata.items()}
