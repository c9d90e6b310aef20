"""Methods of datasets about versions and files: listing, checkout, differences, tags, branches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_io.lazy_names import lazy_module
from lance_io.plans.lazy_module import lazy_plans
from lance_io.reads.open_version import check_out, latest_of
from lance_io.reads.properties import DatasetProperties
from lance_io.reads.run_plan import AsyncFace, SyncFace, run
from lance_io.reads.scan.scan_statistics import IoMeter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from typing import Self

    from lance_io.dataset import tags_and_branches
    from lance_io.dataset import version_delta as deltas
    from lance_io.dataset.tags_and_branches import Branches, Tags
    from lance_io.dataset.version_delta import AsyncDatasetDelta, DatasetDelta
    from lance_io.plans import streams
    from lance_io.plans.streams import SharedAsyncItems
    from lance_io.reads.checks import validation
    from lance_io.reads.metadata import describe, file_listing
    from lance_io.reads.metadata.describe import Version, VersionRef
    from lance_io.reads.metadata.file_listing import Progress
    from lance_io.reads.open_version import Ref
    from lance_io.reads.run_plan import Timeout
    from lance_io.reads.version.state import DatasetState
else:
    deltas = lazy_module("lance_io.dataset.version_delta")
    streams = lazy_module("lance_io.plans.streams")
    describe = lazy_plans("lance_io.reads.metadata.describe")
    file_listing = lazy_plans("lance_io.reads.metadata.file_listing")
    tags_and_branches = lazy_plans("lance_io.dataset.tags_and_branches")
    validation = lazy_plans("lance_io.reads.checks.validation")


class DatasetVersions(SyncFace, DatasetProperties):
    """Versions of `LanceDataset`."""

    if TYPE_CHECKING:

        @classmethod
        def _of(cls, state: DatasetState, meter: IoMeter | None = None) -> Self: ...

    @property
    def latest_version(self) -> int:
        """Number of the newest version of the branch. Each access asks the store."""
        return self._run(latest_of(self._state))

    def versions(self) -> list[Version]:
        """List all versions of the branch, oldest first. Reads every manifest.

        Returns:
            A `Version` for each: number, local time of the commit, totals.
        """
        return self._run(describe.describe_versions(self._state.location, self._state.session))

    def version_refs(self) -> list[VersionRef]:
        """List the numbers of all versions of the branch, oldest first, with one listing of the store.

        Returns:
            A `VersionRef` for each.
        """
        return self._run(describe.version_refs(self._state.location))

    def all_files(self) -> pa.RecordBatchReader:
        """List all files below the table's folder.

        Returns:
            A reader with the columns `base_uri`, `path`, `size_bytes` and `last_modified` (microseconds, UTC).
        """
        return self._run(file_listing.all_files(self._state))

    def tracked_files(
        self, *, min_version: int | None = None, progress: Progress | None = None
    ) -> pa.RecordBatchReader:
        """List the files that the versions of the branch refer to. Reads the manifests as you read the result.

        Args:
            min_version: Oldest version to include; None for all.
            progress: `progress(manifests_read, manifests_total)` is called repeatedly.

        Returns:
            A reader with the columns `version`, `base_uri`, `path` and `type`. A file has a row for each version.
        """

        @streams.shared
        def batches(state: DatasetState) -> Iterator[pa.RecordBatch]:
            for portion in run(state, file_listing.tracked_versions(state, min_version)):
                yield run(state, file_listing.tracked_files(state, portion))
                portion.report(progress)

        return pa.RecordBatchReader.from_batches(file_listing.TRACKED_FILES, batches(self._state))

    def checkout_version(self, version: Ref, *, timeout: Timeout = None) -> Self:
        """Open another version of the same table as a new object.

        Args:
            version: Number on this branch, tag, or `(branch, version)`; None for the newest.
            timeout: Seconds, or a `timedelta`, after which the call is cancelled.

        Returns:
            The other version.

        Raises:
            OSError: The version, tag or branch does not exist. The error is also a `ValueError`.
            TypeError: `version` is no number, string or pair.
            DeadlineExceeded: The call takes longer than `timeout`.
        """
        meter = IoMeter(self._state.location.store)
        return type(self)._of(self._run(check_out(self._state, version), timeout), meter)

    def checkout_latest(self, *, timeout: Timeout = None) -> None:
        """Move this object to the newest version of its branch.

        Args:
            timeout: Seconds, or a `timedelta`, after which the call is cancelled.

        Raises:
            DeadlineExceeded: The call takes longer than `timeout`.
        """
        begun = self._state
        self._move_to(self._run(check_out(begun, None), timeout), begun)

    @property
    def tags(self) -> Tags:
        """The table's tags: list, create, update, delete."""
        return tags_and_branches.Tags(self._state)

    @property
    def branches(self) -> Branches:
        """The table's branches: list, delete. `create_branch` creates one."""
        return tags_and_branches.Branches(self._state)

    def delta(
        self,
        compared_against: int | None = None,
        *,
        begin_version: int | None = None,
        end_version: int | None = None,
    ) -> DatasetDelta:
        """Compare two versions: rows inserted, updated and deleted, and transactions. Rows have the values of this
        version.

        Give either `compared_against`, or both `begin_version` and `end_version`.

        Args:
            compared_against: Version to compare this one with, older or newer.
            begin_version: Number of the first version; its own changes do not count.
            end_version: Number of the last version; its changes count.

        Returns:
            The differences; nothing is read before you call its methods.

        Raises:
            ValueError: Not exactly one of the two ways is used.
        """
        chosen = deltas.version_range(self._state, compared_against, begin_version, end_version)
        return deltas.DatasetDelta(self._state, *chosen)

    def validate(self) -> None:
        """Check that all files of the version exist and match the manifest, blob files included.

        Reads metadata and descriptions of blobs, no rows.

        Raises:
            FormatError: A file does not match the manifest.
            OSError: A file is missing.
        """
        self._run(validation.validate(self._state, self._state.all_fragment_indexes))


class AsyncDatasetVersions(AsyncFace, DatasetProperties):
    """Versions of `AsyncDataset`: the same names and parameters, awaitable."""

    if TYPE_CHECKING:

        @classmethod
        def _of(cls, state: DatasetState, meter: IoMeter | None = None) -> Self: ...

    async def latest_version(self) -> int:
        """Number of the newest version of the branch. See `LanceDataset.latest_version`."""
        return await self._run(latest_of(self._state))

    async def versions(self) -> list[Version]:
        """List all versions of the branch. See `LanceDataset.versions`."""
        return await self._run(describe.describe_versions(self._state.location, self._state.session))

    async def version_refs(self) -> list[VersionRef]:
        """List the numbers of all versions of the branch. See `LanceDataset.version_refs`."""
        return await self._run(describe.version_refs(self._state.location))

    async def all_files(self) -> pa.RecordBatchReader:
        """List all files below the table's folder. See `LanceDataset.all_files`."""
        return await self._run(file_listing.all_files(self._state))

    def tracked_files(
        self, *, min_version: int | None = None, progress: Progress | None = None
    ) -> SharedAsyncItems[pa.RecordBatch]:
        """List the files that the versions of the branch refer to, batch by batch. See `LanceDataset.tracked_files`."""

        @streams.shared_async
        async def batches() -> AsyncIterator[pa.RecordBatch]:
            state = self._state
            for portion in await self._run(file_listing.tracked_versions(state, min_version)):
                yield await self._run(file_listing.tracked_files(state, portion))
                portion.report(progress)

        return batches()

    async def tags(self) -> dict[str, Any]:
        """List the table's tags. See `Tags.list`.

        Returns:
            A dict for each tag, by name.
        """
        return await self._run(tags_and_branches.list_tags(self._state))

    async def branches(self) -> dict[str, Any]:
        """List the table's branches. See `Branches.list`.

        Returns:
            A dict for each branch, by name.
        """
        return await self._run(tags_and_branches.list_branches(self._state))

    async def checkout_version(self, version: Ref, *, timeout: Timeout = None) -> Self:
        """Open another version of the same table as a new object. See `LanceDataset.checkout_version`."""
        meter = IoMeter(self._state.location.store)
        return type(self)._of(await self._run(check_out(self._state, version), timeout), meter)

    async def checkout_latest(self, *, timeout: Timeout = None) -> None:
        """Move this object to the newest version of its branch. See `LanceDataset.checkout_latest`."""
        begun = self._state
        self._move_to(await self._run(check_out(begun, None), timeout), begun)

    def delta(
        self,
        compared_against: int | None = None,
        *,
        begin_version: int | None = None,
        end_version: int | None = None,
    ) -> AsyncDatasetDelta:
        """Compare two versions. See `LanceDataset.delta`."""
        chosen = deltas.version_range(self._state, compared_against, begin_version, end_version)
        return deltas.AsyncDatasetDelta(self._state, *chosen)

    async def validate(self) -> None:
        """Check the files of the version. See `LanceDataset.validate`."""
        await self._run(validation.validate(self._state, self._state.all_fragment_indexes))
