"""Methods of datasets that remove old versions, leftover files and whole tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io import runtime
from lance_io.lazy_names import lazy_module
from lance_io.limits import CLEANUP_FILES_SHOWN
from lance_io.plans.lazy_module import lazy_plans
from lance_io.reads.properties import DatasetProperties
from lance_io.reads.run_plan import AsyncFace, SyncFace, run_change
from lance_io.store.provided_options import with_provider
from lance_io.store.url import uri_on

if TYPE_CHECKING:
    from datetime import timedelta
    from os import PathLike

    from lance_io.changes.upkeep import drop_table as drops
    from lance_io.changes.upkeep import remove_versions as cleanups
    from lance_io.changes.upkeep.remove_versions import CleanupExplanation
    from lance_io.commit.cleanups.cleanup_values import CleanupStats
    from lance_io.reads.metadata.file_listing import Progress
else:
    cleanups = lazy_plans("lance_io.changes.upkeep.remove_versions")
    drops = lazy_module("lance_io.changes.upkeep.drop_table")


class DatasetCleanups(SyncFace, DatasetProperties):
    """Cleanups of `LanceDataset`."""

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

        The call reads manifests only where the listing cannot decide. An old manifest expires unread, because it was
        committed before its object was written. Unreferenced files older than seven days are removed. This version, all
        newer versions, tagged versions and versions that branches refer to always stay.

        Args:
            older_than: Minimum age of the versions to remove; two weeks if no other criterion is given. Versions
                younger than ten minutes stay unless the value is zero or `versions` lists them; `young_versions_kept`
                of the result counts them.
            retain_versions: Number of newest versions to keep.
            delete_unverified: True also removes unreferenced files younger than seven days. Use it only while no writer
                is active: they may belong to a commit under way.
            error_if_tagged_old_versions: False keeps tagged versions silently.
            delete_rate_limit: Maximum number of files to remove per second.
            versions: Remove only these versions, however young.
            delete_concurrency: Accepted and ignored; each store bounds its requests.
            progress: Called repeatedly: `progress(versions_examined, total)`, then `progress(files_removed, total)`.
                Not in pylance.

        Returns:
            Counts of removed versions, files and bytes.

        Raises:
            OSError: A tagged version would be removed, or a manifest cannot be read; nothing is removed then.
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
        """List what `cleanup_old_versions` would remove, and remove nothing.

        Args:
            older_than: See `LanceDataset.cleanup_old_versions`.
            retain_versions: See `LanceDataset.cleanup_old_versions`.
            delete_unverified: See `LanceDataset.cleanup_old_versions`.
            error_if_tagged_old_versions: See `LanceDataset.cleanup_old_versions`.
            delete_rate_limit: Accepted and ignored.
            versions: See `LanceDataset.cleanup_old_versions`.
            include_files: True lists the files.
            max_files: Maximum number of files to list.

        Returns:
            The versions and files.

        Raises:
            OSError: See `LanceDataset.cleanup_old_versions`.
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
        """Remove a table with all of its files.

        Args:
            base_uri: URI of the table.
            storage_options: Credentials and settings of the store.
            ignore_not_found: True accepts that there is no table.
            filesystem: File system of fsspec or pyarrow, or store of obstore, on which `base_uri` is a path.
            storage_options_provider: Provider of storage options; see `lance_io.dataset`.

        Raises:
            OSError: The table does not exist, unless `ignore_not_found`.
        """
        options = with_provider(storage_options, storage_options_provider)
        drops.drop(uri_on(filesystem, base_uri), options, ignore_not_found)


class AsyncDatasetCleanups(AsyncFace, DatasetProperties):
    """Cleanups of `AsyncDataset`: the same names and parameters, awaitable."""

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
        """Remove old versions and unreferenced files. See `LanceDataset.cleanup_old_versions`."""
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
        """List what a cleanup would remove. See `LanceDataset.explain_cleanup_old_versions`."""
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
        """Remove a table with all of its files. See `LanceDataset.drop`."""
        await runtime.load_modules(drops.__name__)
        options = with_provider(storage_options, storage_options_provider)
        await drops.drop_async(uri_on(filesystem, base_uri), options, ignore_not_found)
