"""Methods of datasets for branches, clones, base paths and manifest names, synchronous and asynchronous."""

from __future__ import annotations

from os import fspath
from typing import TYPE_CHECKING, Any

from lance_io.plans.lazy_module import lazy_plans
from lance_io.reads.properties import DatasetProperties
from lance_io.reads.run_plan import AsyncFace, SyncFace, run_change, run_sync
from lance_io.store.offers import offers_sync_writes
from lance_io.store.storage_options import options_of
from lance_io.store.url import load_client, uri_on

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from os import PathLike
    from typing import Self

    from lance_io.changes.edits import change_plans as changes
    from lance_io.changes.operations.lance_operation import DatasetBasePath
    from lance_io.changes.upkeep import change_branches as branch_plans
    from lance_io.changes.upkeep import clone_tables as clones
    from lance_io.changes.upkeep import rename_manifests as renamings
    from lance_io.reads.version.state import DatasetState
    from lance_io.store.url import Location

    Reference = int | str | tuple[str | None, int | None] | None
    Place = str | PathLike[str]
else:
    branch_plans = lazy_plans("lance_io.changes.upkeep.change_branches")
    changes = lazy_plans("lance_io.changes.edits.change_plans")
    clones = lazy_plans("lance_io.changes.upkeep.clone_tables")
    renamings = lazy_plans("lance_io.changes.upkeep.rename_manifests")


def _target(state: DatasetState, target_path: Place, options: Mapping[str, str] | None, filesystem: Any) -> Location:
    """Location of a clone, with the table's options unless the clone has its own."""
    uri = uri_on(filesystem, fspath(target_path))
    return state.session.locate(uri, options_of(state.storage_options if options is None else options))


class DatasetClones(SyncFace, DatasetProperties):
    """Branches and clones of `LanceDataset`."""

    if TYPE_CHECKING:

        def __init__(self, uri: Any, **options: Any) -> None: ...

        @classmethod
        def _of(cls, state: DatasetState) -> Self: ...

    def create_branch(
        self, branch: str, reference: Reference = None, storage_options: dict[str, str] | None = None
    ) -> Self:
        """Create a branch that starts at a version. Copies nothing. Cleanups keep the files that a branch refers to.

        Args:
            branch: Name; parts are separated by slashes: `team/try`.
            reference: Version number on the open branch, tag, or `(branch, version)` with None for "main" and for the
                newest; None for the open version.
            storage_options: Accepted and ignored; a branch lies in the table's folder.

        Returns:
            The branch's first version, with the same version number.

        Raises:
            OSError: The name is taken or invalid, or the version does not exist.
        """
        state = self._run(branch_plans.create_branch(self._state, branch, reference))
        return type(self)._of(state)

    def add_bases(
        self, new_bases: Iterable[DatasetBasePath], transaction_properties: dict[str, str] | None = None
    ) -> Self:
        """Declare base paths: folders, possibly in other stores, for data files. `target_bases` of a write names them.

        Commits a version and moves this object to it.

        Args:
            new_bases: Base paths, each with a unique path and name.
            transaction_properties: Properties stored with the transaction.

        Returns:
            This object.

        Raises:
            ValueError: A name or path is declared already.
        """
        begun = self._state
        self._move_to(self._run(changes.add_bases(begun, new_bases, transaction_properties)), begun)
        return self

    def migrate_manifest_paths_v2(self) -> None:
        """Rename the manifests of this branch to the V2 scheme, which finds the newest version in one request.

        This library, of this release or later, may read and write meanwhile. pylance refuses the table until the
        migration ends; handles that pylance opened before must not commit. Calling the method again resumes an
        interrupted migration of either library.

        Raises:
            FormatError: Two manifests with one number differ; all others have their new names. The message names both
                transactions.
            CommitConflictError: A cleanup of these versions does not end. You can retry.
        """
        self._run(renamings.rename_manifests(self._state))

    def shallow_clone(
        self,
        target_path: Place,
        reference: Reference,
        storage_options: dict[str, str] | None = None,
        *,
        filesystem: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Create a table that starts with a version of this one and refers to its files.

        The files belong to this table: a cleanup here that removes the version breaks the clone. Tag the version to
        keep it.

        Args:
            target_path: Path or URI of the new table.
            reference: See `LanceDataset.create_branch`.
            storage_options: Options of the new table; None for those of this one.
            filesystem: File system or store on which `target_path` is a path.
            kwargs: Keywords of `lance_io.dataset` for opening the clone.

        Returns:
            The new table.

        Raises:
            OSError: The new table exists already, or the version does not exist.
        """
        options = self._state.storage_options if storage_options is None else storage_options
        target = _target(self._state, target_path, storage_options, filesystem)
        plan = clones.shallow_clone(self._state, target, reference)
        run_sync(plan, answers_sync=self._state.answers_sync and offers_sync_writes(target.store))
        clone: Self = _open_clone(type(self), self._state, target_path, options, filesystem, kwargs)
        return clone

    def deep_clone(
        self,
        target_path: Place,
        reference: Reference,
        storage_options: dict[str, str] | None = None,
        *,
        filesystem: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Create a table with copies of a version's data, deletion and index files.

        The store itself copies within one bucket. A failed clone leaves copies behind, and a retry overwrites them; the
        table exists once all copies do.

        Args:
            target_path: Path or URI of the new table.
            reference: See `LanceDataset.create_branch`.
            storage_options: Options of the new table; None for those of this one.
            filesystem: File system or store on which `target_path` is a path.
            kwargs: Keywords of `lance_io.dataset` for opening the clone.

        Returns:
            The new table.

        Raises:
            OSError: The new table exists already, or the version does not exist.
        """
        options = self._state.storage_options if storage_options is None else storage_options
        target = _target(self._state, target_path, storage_options, filesystem)
        plan = clones.deep_clone(self._state, target, reference)
        run_sync(plan, answers_sync=self._state.answers_sync and offers_sync_writes(target.store))
        clone: Self = _open_clone(type(self), self._state, target_path, options, filesystem, kwargs)
        return clone


def _open_clone(
    open_dataset: Any, state: DatasetState, target_path: Place, options: Any, filesystem: Any, kwargs: dict[str, Any]
) -> Any:
    given = {"session": state.session, **kwargs}
    return open_dataset(uri_on(filesystem, fspath(target_path)), storage_options=options, **given)


class AsyncDatasetClones(AsyncFace, DatasetProperties):
    """Branches and clones of `AsyncDataset`: the same names and parameters, awaitable."""

    if TYPE_CHECKING:

        @classmethod
        def _of(cls, state: DatasetState) -> Self: ...

        @staticmethod
        def open(uri: Any, version: Any = None, **options: Any) -> Any: ...

    async def create_branch(
        self, branch: str, reference: Reference = None, storage_options: dict[str, str] | None = None
    ) -> Self:
        """Create a branch. See `LanceDataset.create_branch`."""
        plan = branch_plans.create_branch(self._state, branch, reference)
        return type(self)._of(await run_change(plan, answers_sync=self._state.answers_sync))

    async def delete_branch(self, branch: str) -> None:
        """Remove a branch with its versions and files. See `Branches.delete`."""
        plan = branch_plans.delete_branch(self._state, branch)
        await run_change(plan, answers_sync=self._state.answers_sync)

    async def replace_branch_metadata(self, branch: str, metadata: dict[str, str]) -> None:
        """Replace the metadata of a branch. See `Branches.replace_metadata`."""
        await self._run(branch_plans.replace_branch_metadata(self._state, branch, metadata))

    async def add_bases(
        self, new_bases: Iterable[DatasetBasePath], transaction_properties: dict[str, str] | None = None
    ) -> Self:
        """Declare base paths. See `LanceDataset.add_bases`."""
        begun = self._state
        plan = changes.add_bases(begun, new_bases, transaction_properties)
        self._move_to(await run_change(plan, answers_sync=begun.answers_sync), begun)
        return self

    async def migrate_manifest_paths_v2(self) -> None:
        """Rename the manifests to the V2 scheme. See `LanceDataset.migrate_manifest_paths_v2`."""
        await run_change(renamings.rename_manifests(self._state), answers_sync=self._state.answers_sync)

    async def shallow_clone(
        self,
        target_path: Place,
        reference: Reference,
        storage_options: dict[str, str] | None = None,
        *,
        filesystem: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Create a table that refers to this one's files. See `LanceDataset.shallow_clone`."""
        how = "shallow_clone"
        clone: Self = await self._clone(how, target_path, reference, storage_options, filesystem, kwargs)
        return clone

    async def deep_clone(
        self,
        target_path: Place,
        reference: Reference,
        storage_options: dict[str, str] | None = None,
        *,
        filesystem: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Create a table with copies of this one's files. See `LanceDataset.deep_clone`."""
        how = "deep_clone"
        clone: Self = await self._clone(how, target_path, reference, storage_options, filesystem, kwargs)
        return clone

    async def _clone(
        self, how: str, target_path: Place, reference: Reference, options: Any, filesystem: Any, kwargs: dict[str, Any]
    ) -> Any:
        await load_client(uri_on(filesystem, fspath(target_path)))
        state = self._state
        target = _target(state, target_path, options, filesystem)
        plan = getattr(clones, how)(state, target, reference)
        await run_change(plan, answers_sync=state.answers_sync and offers_sync_writes(target.store))
        opened = state.storage_options if options is None else options
        return await _open_clone(type(self).open, state, target_path, opened, filesystem, kwargs)
