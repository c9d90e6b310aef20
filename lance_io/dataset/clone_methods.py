"""The methods of datasets that concern where they lie: branches, clones, base paths, names of manifests.

Synchronous and asynchronous.
"""

from __future__ import annotations

from os import fspath
from typing import TYPE_CHECKING, Any

from lance_io.plans.lazy_module import later_plans
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
    from lance_io.changes.upkeep import migrate_names as namings
    from lance_io.reads.version.state import DatasetState
    from lance_io.store.url import Location

    Reference = int | str | tuple[str | None, int | None] | None
    Place = str | PathLike[str]
else:
    branch_plans = later_plans("lance_io.changes.upkeep.change_branches")
    changes = later_plans("lance_io.changes.edits.change_plans")
    clones = later_plans("lance_io.changes.upkeep.clone_tables")
    namings = later_plans("lance_io.changes.upkeep.migrate_names")


def _target(state: DatasetState, target_path: Place, options: Mapping[str, str] | None, filesystem: Any) -> Location:
    """Where a clone is to be, with the options of the table where it has none of its own."""
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
        """Let a branch leave a version; gives its first version, which has the same number. Nothing is copied.

        branch           name; may have parts, `team/try`
        reference        version of the branch that is open, tag, `(branch, version)` with None for "main" and for
                         "newest"; None for the version that is open
        storage_options  accepted; a branch lies in the table's folder

        Cleanups keep what a branch refers to. Raises `OSError` for a name that is taken or that no branch may have,
        and for a version that is not there.
        """
        state = self._run(branch_plans.create_branch(self._state, branch, reference))
        return type(self)._of(state)

    def add_bases(
        self, new_bases: Iterable[DatasetBasePath], transaction_properties: dict[str, str] | None = None
    ) -> Self:
        """Declare folders, also in other stores, that files may lie below: `target_bases` of a write names them.

        new_bases  each with a path that no other has, and a name that no other has

        Makes one version and moves the object there; gives the object. Raises `ValueError` for a name or path that is
        declared.
        """
        begun = self._state
        self._move_to(self._run(changes.add_bases(begun, new_bases, transaction_properties)), begun)
        return self

    def migrate_manifest_paths_v2(self) -> None:
        """Name the manifests of this branch as new tables do, so that the newest version is found at once.

        Others may read and write meanwhile with this library, of this release or later; pylance refuses the table until
        all is done, and its handles from before must not commit. What was interrupted, of either library, goes on when
        it is called again.

        Raises `FormatError` with both transactions where two manifests of one number differ, when all others have their
        new names; `CommitConflictError` (retryable) where a cleanup of these versions does not end.
        """
        self._run(namings.migrate_names(self._state))

    def shallow_clone(
        self,
        target_path: Place,
        reference: Reference,
        storage_options: dict[str, str] | None = None,
        *,
        filesystem: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Let another table begin with a version of this one, whose files stay where they are.

        target_path      where: path or URI of a table that is not there
        reference        as for `create_branch`
        storage_options  of the new table; None for those of this one
        filesystem       on which `target_path` is a path
        kwargs           for opening it, as for `lance_io.dataset`

        The files stay those of this table: a cleanup here that removes the version takes them from the clone. Tag the
        version to keep it. Raises `OSError` for a table that is there, and for a version that is not.
        """
        options = self._state.storage_options if storage_options is None else storage_options
        place = _target(self._state, target_path, storage_options, filesystem)
        plan = clones.shallow_clone(self._state, place, reference)
        run_sync(plan, answers_sync=self._state.answers_sync and offers_sync_writes(place.store))
        made: Self = _open_clone(type(self), self._state, target_path, options, filesystem, kwargs)
        return made

    def deep_clone(
        self,
        target_path: Place,
        reference: Reference,
        storage_options: dict[str, str] | None = None,
        *,
        filesystem: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Copy a version with its data, deletion and index files to a table of its own; as `shallow_clone`.

        Copies within one bucket are made by the store. A clone that fails leaves copies behind, which the next try
        writes again; the table is there when all of them are.
        """
        options = self._state.storage_options if storage_options is None else storage_options
        place = _target(self._state, target_path, storage_options, filesystem)
        plan = clones.deep_clone(self._state, place, reference)
        run_sync(plan, answers_sync=self._state.answers_sync and offers_sync_writes(place.store))
        made: Self = _open_clone(type(self), self._state, target_path, options, filesystem, kwargs)
        return made


def _open_clone(
    made: Any, state: DatasetState, target_path: Place, options: Any, filesystem: Any, kwargs: dict[str, Any]
) -> Any:
    given = {"session": state.session, **kwargs}
    return made(uri_on(filesystem, fspath(target_path)), storage_options=options, **given)


class AsyncDatasetClones(AsyncFace, DatasetProperties):
    """Branches and clones of `AsyncDataset`."""

    if TYPE_CHECKING:

        @classmethod
        def _of(cls, state: DatasetState) -> Self: ...

        @staticmethod
        def open(uri: Any, version: Any = None, **options: Any) -> Any: ...

    async def create_branch(
        self, branch: str, reference: Reference = None, storage_options: dict[str, str] | None = None
    ) -> Self:
        """Let a branch leave a version; see `LanceDataset.create_branch`."""
        plan = branch_plans.create_branch(self._state, branch, reference)
        return type(self)._of(await run_change(plan, answers_sync=self._state.answers_sync))

    async def delete_branch(self, branch: str) -> None:
        """Remove a branch; see `Branches.delete`."""
        plan = branch_plans.delete_branch(self._state, branch)
        await run_change(plan, answers_sync=self._state.answers_sync)

    async def replace_branch_metadata(self, branch: str, metadata: dict[str, str]) -> None:
        """Give a branch other metadata; see `Branches.replace_metadata`."""
        await self._run(branch_plans.replace_branch_metadata(self._state, branch, metadata))

    async def add_bases(
        self, new_bases: Iterable[DatasetBasePath], transaction_properties: dict[str, str] | None = None
    ) -> Self:
        """Declare folders that files may lie below; see `LanceDataset.add_bases`."""
        begun = self._state
        plan = changes.add_bases(begun, new_bases, transaction_properties)
        self._move_to(await run_change(plan, answers_sync=begun.answers_sync), begun)
        return self

    async def migrate_manifest_paths_v2(self) -> None:
        """Name the manifests as new tables do; see `LanceDataset.migrate_manifest_paths_v2`."""
        await run_change(namings.migrate_names(self._state), answers_sync=self._state.answers_sync)

    async def shallow_clone(
        self,
        target_path: Place,
        reference: Reference,
        storage_options: dict[str, str] | None = None,
        *,
        filesystem: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Let another table begin with a version of this one; see `LanceDataset.shallow_clone`."""
        how = "shallow_clone"
        made: Self = await self._clone(how, target_path, reference, storage_options, filesystem, kwargs)
        return made

    async def deep_clone(
        self,
        target_path: Place,
        reference: Reference,
        storage_options: dict[str, str] | None = None,
        *,
        filesystem: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Copy a version to a table of its own; see `LanceDataset.deep_clone`."""
        how = "deep_clone"
        made: Self = await self._clone(how, target_path, reference, storage_options, filesystem, kwargs)
        return made

    async def _clone(
        self, how: str, target_path: Place, reference: Reference, options: Any, filesystem: Any, kwargs: dict[str, Any]
    ) -> Any:
        await load_client(uri_on(filesystem, fspath(target_path)))
        state = self._state
        place = _target(state, target_path, options, filesystem)
        plan = getattr(clones, how)(state, place, reference)
        await run_change(plan, answers_sync=state.answers_sync and offers_sync_writes(place.store))
        opened = state.storage_options if options is None else options
        return await _open_clone(type(self).open, state, target_path, opened, filesystem, kwargs)
