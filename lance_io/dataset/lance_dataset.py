"""One table version, open: `LanceDataset`, with pylance's names, and `AsyncDataset`, which is the same, awaitable.

`SyncDataset` has the methods of `LanceDataset`, which is that and a `pyarrow.dataset.Dataset`, whose module takes 0.2 s
to load (`bases.py`): the class is made when it is first asked for. `lance_io.dataset` gives an `OpenedDataset` where
nothing has loaded that module yet, which is a `LanceDataset` to all who ask.

Every asynchronous method is a coroutine that runs on the engine's loop, whatever loop awaits it; cancelling the caller
cancels it there. `async for` over batches that ends early (`break`, an exception, `aclose`) cancels the reads under
way.

The methods run plans of `changes/` and `reads/`: those that give rows are in `row_methods.py`, those that change the
table in `change_methods.py`. Modules that an open dataset does not need are loaded when a method needs them.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypedDict, cast

import pyarrow as pa

from lance_io import runtime
from lance_io.dataset.change_methods import AsyncDatasetChanges, DatasetChanges
from lance_io.dataset.clone_methods import AsyncDatasetClones, DatasetClones
from lance_io.dataset.opening import Opening
from lance_io.dataset.row_methods import AsyncDatasetRows, DatasetRows
from lance_io.errors import UsageError
from lance_io.lazy_names import later
from lance_io.limits import COMMIT_TIMEOUT
from lance_io.not_offered import DatasetNotOffered
from lance_io.plans.lazy_module import later_plans
from lance_io.plans.streams import shared, shared_async
from lance_io.reads.open_version import check_out, latest_of, open_options, open_steps
from lance_io.reads.properties import DatasetProperties
from lance_io.reads.run_plan import run, run_async, run_sync
from lance_io.reads.scan.scan_statistics import IoMeter
from lance_io.redaction import hide_secrets
from lance_io.store.offers import offers_sync_reads
from lance_io.store.provided_options import gather_provider
from lance_io.store.url import load_client, uri_on

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
    from datetime import timedelta
    from os import PathLike
    from typing import Self

    from lance_io.changes.edits import commit_operation as commits
    from lance_io.changes.operations.lance_operation import LanceOperation, Transaction
    from lance_io.changes.write import run_write as writes
    from lance_io.dataset import bases, tags_and_branches
    from lance_io.dataset import fragment as fragments
    from lance_io.dataset import scanner as scanners
    from lance_io.dataset import version_delta as deltas
    from lance_io.dataset.fragment import AsyncFragment, LanceFragment
    from lance_io.dataset.tags_and_branches import Branches, Tags
    from lance_io.dataset.version_delta import AsyncDatasetDelta, DatasetDelta
    from lance_io.io import scheduler
    from lance_io.reads.checks import validation
    from lance_io.reads.metadata import describe, file_listing, table_statistics
    from lance_io.reads.metadata.describe import Version, VersionRef
    from lance_io.reads.metadata.file_listing import Progress
    from lance_io.reads.metadata.table_statistics import AsyncStats, LanceStats
    from lance_io.reads.open_version import Ref
    from lance_io.reads.run_plan import Timeout
    from lance_io.reads.version.state import DatasetState
else:
    bases = later("lance_io.dataset.bases")
    fragments = later("lance_io.dataset.fragment")
    scanners = later("lance_io.dataset.scanner")
    commits = later("lance_io.changes.edits.commit_operation")
    deltas = later("lance_io.dataset.version_delta")
    describe = later_plans("lance_io.reads.metadata.describe")
    file_listing = later_plans("lance_io.reads.metadata.file_listing")
    table_statistics = later("lance_io.reads.metadata.table_statistics")
    tags_and_branches = later_plans("lance_io.dataset.tags_and_branches")
    validation = later_plans("lance_io.reads.checks.validation")
    writes = later("lance_io.changes.write.run_write")
    scheduler = later("lance_io.io.scheduler")

# what methods of `AsyncDataset` use that are no coroutines, imported before they are called: they may be on a loop
_USED_BY_FUNCTIONS: Final = (fragments.__name__, scanners.__name__, scheduler.__name__)


class _Dataset(DatasetProperties):
    """What both faces of a dataset have in common."""

    @classmethod
    def _of(cls, state: DatasetState, meter: IoMeter | None = None) -> Self:
        dataset: Self = cls.__new__(cls)
        dataset._state = state
        dataset._meter = meter or IoMeter(state.location.store)
        return dataset

    def _places(self, filter: Any) -> Sequence[int]:
        """Places of the fragments, as `get_fragments` gives them."""
        if filter is not None:
            raise UsageError("get_fragments() does not support filter yet")
        return self._state.all_places

    def __copy__(self) -> Self:
        return type(self)._of(self._state)


class BulkCommitResult(TypedDict):
    """What `LanceDataset.commit_batch` gives.

    dataset  the new version
    merged   the operation that it is, of all that were given
    """

    dataset: LanceDataset
    merged: Transaction


class SyncDataset(_Dataset, DatasetRows, DatasetChanges, DatasetClones, DatasetNotOffered):
    """A snapshot of a table: it does not see later commits until `checkout_latest`.

    Parameters as for `lance_io.dataset`.
    """

    def __init__(
        self, uri: str | PathLike[str], version: Ref | None = None, *, timeout: Timeout = None, **options: Any
    ) -> None:
        checked = open_options(uri, version, **options)
        self._meter = IoMeter(checked.location.store)
        answers_sync = offers_sync_reads(checked.location.store)
        super().__init__(run_sync(open_steps(checked), timeout, answers_sync=answers_sync))

    @property
    def stats(self) -> LanceStats:
        """Statistics of the table."""
        return table_statistics.LanceStats(self._state)

    # -- versions ----------------------------------------------------------------------------------------------------

    @property
    def latest_version(self) -> int:
        """Number of the newest version of the branch, asked from the store now."""
        return self._run(latest_of(self._state))

    def versions(self) -> list[Version]:
        """All versions of the branch, oldest first; reads every manifest."""
        return self._run(describe.describe_versions(self._state.location, self._state.session))

    def version_refs(self) -> list[VersionRef]:
        """Numbers of all versions of the branch, oldest first; one listing."""
        return self._run(describe.version_refs(self._state.location))

    def all_files(self) -> pa.RecordBatchReader:
        """All files below the table's folder, with size and time: `base_uri`, `path`, `size_bytes`, `last_modified`."""
        return self._run(file_listing.all_files(self._state))

    def tracked_files(
        self, *, min_version: int | None = None, progress: Progress | None = None
    ) -> pa.RecordBatchReader:
        """The files that the versions of the branch refer to: `version`, `base_uri`, `path`, `type`.

        min_version  only versions from this one on
        progress     told (versions read, versions in all) now and then
        """

        @shared
        def batches(state: DatasetState) -> Iterator[pa.RecordBatch]:
            for portion in run(state, file_listing.tracked_versions(state, min_version)):
                yield run(state, file_listing.tracked_files(state, portion))
                portion.tell(progress)

        return pa.RecordBatchReader.from_batches(file_listing.TRACKED_FILES, batches(self._state))

    def checkout_version(self, version: Ref, *, timeout: Timeout = None) -> Self:
        """Another version, tag or `(branch, version)` of the same table, as a new object."""
        meter = IoMeter(self._state.location.store)
        return type(self)._of(self._run(check_out(self._state, version), timeout), meter)

    def checkout_latest(self, *, timeout: Timeout = None) -> None:
        """Move this object to the newest version of its branch."""
        begun = self._state
        self._move_to(self._run(check_out(begun, None), timeout), begun)

    @property
    def tags(self) -> Tags:
        """The table's tags."""
        return tags_and_branches.Tags(self._state)

    @property
    def branches(self) -> Branches:
        """The table's branches."""
        return tags_and_branches.Branches(self._state)

    def delta(
        self,
        compared_against: int | None = None,
        *,
        begin_version: int | None = None,
        end_version: int | None = None,
    ) -> DatasetDelta:
        """What changed after one version, up to another: rows inserted, updated and deleted, and transactions.

        compared_against  the version to compare this one with, an older or a newer one; or
        begin_version, end_version  two versions of the branch

        Rows come as they are in this version. Raises `ValueError` unless one of the two ways is taken.
        """
        chosen = deltas.version_range(self._state, compared_against, begin_version, end_version)
        return deltas.DatasetDelta(self._state, *chosen)

    # -- fragments ---------------------------------------------------------------------------------------------------

    def get_fragments(self, filter: Any = None) -> list[LanceFragment]:
        """The fragments, in the order of the manifest."""
        return [fragments.LanceFragment._of(self._state, place) for place in self._places(filter)]

    def get_fragment(self, fragment_id: int) -> LanceFragment | None:
        """The fragment with this id, or None."""
        place = self._state.place_of(fragment_id)
        return None if place is None else fragments.LanceFragment._of(self._state, place)

    def validate(self) -> None:
        """Check that all files of the version are there, those of blobs, too, and agree with the manifest.

        Reads metadata and descriptions of blobs, no rows.

        Raises `FormatError` for what does not agree, `OSError` for a file that is missing.
        """
        self._run(validation.validate(self._state, self._state.all_places))

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
        filesystem: Any = None,
        skip_auto_cleanup: bool = False,
        storage_options_provider: Any = None,
    ) -> LanceDataset:
        """Commit an operation that was prepared somewhere; gives the version that it makes.

        base_uri      the table, or an open dataset (which stays at its version)
        operation     one of `LanceOperation`, or a whole `Transaction`: committing the same one again is recognised,
                      also that of a `CommitUnknownError`
        read_version  version that the operation was made for; not needed for `Overwrite` and `Restore`
        detached      make a version outside of the sequence, which only its number finds
        max_retries   attempts at most; 0 with an `Overwrite`: `read_version` must still be the newest
        commit_timeout  no further attempt after this time
        filesystem    of fsspec or pyarrow, or a store of obstore's, on which `base_uri` is a path
        skip_auto_cleanup  no cleanup follows, whatever the table's configuration says
        storage_options_provider  as for `dataset`

        Raises `CommitConflictError` for changes of other writers that do not go together with it, `OSError` when
        there is no table and the operation is no `Overwrite`, and for one that does not fit the table or its files.
        """
        return new_dataset(commits.run_commit(locals()))

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
        *,
        filesystem: Any = None,
        storage_options_provider: Any = None,
    ) -> BulkCommitResult:
        """Commit several appends as one; gives `{"dataset": ..., "merged": ...}`."""
        given = commits.batch_commit(locals())
        return {"dataset": new_dataset(commits.run_commit(given)), "merged": given["operation"]}

    # -- interop -----------------------------------------------------------------------------------------------------

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._scan().__arrow_c_stream__(requested_schema)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._of, (self._state,)

    def __repr__(self) -> str:
        return f"<LanceDataset {hide_secrets(self._state.location.uri)} version {self.version}>"

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    # -- inherited from pyarrow and not offered ----------------------------------------------------------------------

    def filter(self, expression: object) -> NoReturn:
        """Not offered; use `scanner(filter=...)`."""
        raise NotImplementedError("filter: use scanner(filter=...)")

    def join(self, *args: object, **kwargs: object) -> NoReturn:
        """Not offered; join tables."""
        raise NotImplementedError("join: use to_table() and join tables")

    def join_asof(self, *args: object, **kwargs: object) -> NoReturn:
        """Not offered; join tables."""
        raise NotImplementedError("join_asof: use to_table() and join tables")

    def sort_by(self, *args: object, **kwargs: object) -> NoReturn:
        """Not offered; use `scanner(order_by=...)`."""
        raise NotImplementedError("sort_by: use scanner(order_by=...)")

    def replace_schema(self, schema: object) -> NoReturn:
        """Not offered: the schema is the table's."""
        raise NotImplementedError("Cannot replace the schema of a dataset")

    @property
    def partition_expression(self) -> NoReturn:
        """Not offered: tables are not partitioned."""
        raise NotImplementedError("partitioning not yet supported")

    def _get_fragments(self, filter: Any) -> Iterator[LanceFragment]:
        return iter(self.get_fragments(filter))

    def _scanner_options(self, options: Mapping[str, Any]) -> NoReturn:
        raise NotImplementedError("use scanner()")

    def _scan_options(self, *args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError("use scanner()")


if TYPE_CHECKING:

    class LanceDataset(SyncDataset, bases.Dataset):  # type: ignore[misc]
        """A snapshot of a table; see `SyncDataset`."""


def __getattr__(name: str) -> Any:
    if name == "LanceDataset":
        return _lance_dataset()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _lance_dataset() -> type[LanceDataset]:
    # pyarrow's constructor would want a C++ dataset; every inherited method is overridden
    made: type[LanceDataset] = bases.subclass(SyncDataset, bases.Dataset)
    return made


class OpenedDataset(SyncDataset):
    """A `LanceDataset` that has not loaded pyarrow's dataset module.

    Asked for its class, as by `isinstance`, it names `LanceDataset`, which loads that; only `type` tells them apart.
    """

    __class__ = property(lambda _: _lance_dataset())


def dataset_class() -> type[LanceDataset]:
    """The class of new datasets: an actual subclass of pyarrow's where that is loaded already, or DuckDB is.

    DuckDB looks at the type, not at the class that it names: of others it reads all columns, as a stream.
    """
    is_wanted = not sys.modules.keys().isdisjoint(("pyarrow._dataset", "duckdb"))
    return _lance_dataset() if is_wanted else cast("type[LanceDataset]", OpenedDataset)


def new_dataset(state: DatasetState) -> LanceDataset:
    """The dataset of a version that was opened or made."""
    return dataset_class()._of(state)


class AsyncDataset(_Dataset, AsyncDatasetRows, AsyncDatasetChanges, AsyncDatasetClones, DatasetNotOffered):
    """A snapshot of a table version. Made by `AsyncDataset.open`, or from a `LanceDataset` by `AsyncDataset.of`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        raise TypeError(
            "an AsyncDataset is opened by `await AsyncDataset.open(uri)` or `async with AsyncDataset.open(uri) as ds`, "
            "not by its class: a constructor cannot be awaited"
        )

    @staticmethod
    def open(
        uri: str | PathLike[str], version: Ref | None = None, *, timeout: Timeout = None, **options: Any
    ) -> Opening[AsyncDataset]:
        """Open a table; keywords as for `lance_io.dataset`. A coroutine, which `async with` takes too."""
        return Opening(partial(_open, uri, version, timeout, options))

    @classmethod
    def of(cls, dataset: LanceDataset) -> Self:
        """The same table version as a `LanceDataset`, sharing its caches."""
        runtime.load_modules_sync(*_USED_BY_FUNCTIONS)
        return cls._of(dataset._state)

    def to_sync(self) -> LanceDataset:
        """The same table version for plain code, sharing the caches; it outlives this object's `aclose`."""
        return new_dataset(replace(self._state, schedulers=None))

    async def aclose(self) -> None:
        """Cancel the reads under way, of calls and of batches, wait until they have ended and free what they hold.

        Those who await them, and those who read on, get a `RuntimeError`, and so does every later call that reads or
        changes the table, of this object and of whatever came from it: nothing is written. Of a dataset that was made
        by `of` all go on: they are also those of the `LanceDataset`.
        """
        if self._state.schedulers is not None:
            await runtime.wrap(self._state.schedulers.aclose())
        self._state.release()

    # -- versions ----------------------------------------------------------------------------------------------------

    async def latest_version(self) -> int:
        """Number of the newest version of the branch."""
        return await self._run(latest_of(self._state))

    async def versions(self) -> list[Version]:
        """All versions of the branch, oldest first; reads every manifest."""
        return await self._run(describe.describe_versions(self._state.location, self._state.session))

    async def all_files(self) -> pa.RecordBatchReader:
        """See `LanceDataset.all_files`."""
        return await self._run(file_listing.all_files(self._state))

    @shared_async
    async def tracked_files(
        self, *, min_version: int | None = None, progress: Progress | None = None
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `LanceDataset.tracked_files`; batch by batch, for `async for`."""
        state = self._state
        for portion in await self._run(file_listing.tracked_versions(state, min_version)):
            yield await self._run(file_listing.tracked_files(state, portion))
            portion.tell(progress)

    async def version_refs(self) -> list[VersionRef]:
        """Numbers of all versions of the branch, oldest first."""
        return await self._run(describe.version_refs(self._state.location))

    async def tags(self) -> dict[str, Any]:
        """The table's tags by name."""
        return await self._run(tags_and_branches.list_tags(self._state))

    async def branches(self) -> dict[str, Any]:
        """The table's branches by name."""
        return await self._run(tags_and_branches.list_branches(self._state))

    async def checkout_version(self, version: Ref, *, timeout: Timeout = None) -> AsyncDataset:
        """Another version, tag or `(branch, version)` of the same table, as a new object."""
        meter = IoMeter(self._state.location.store)
        return type(self)._of(await self._run(check_out(self._state, version), timeout), meter)

    async def checkout_latest(self, *, timeout: Timeout = None) -> None:
        """Move this object to the newest version of its branch."""
        begun = self._state
        self._move_to(await self._run(check_out(begun, None), timeout), begun)

    def delta(
        self,
        compared_against: int | None = None,
        *,
        begin_version: int | None = None,
        end_version: int | None = None,
    ) -> AsyncDatasetDelta:
        """What changed after one version, up to another; see `LanceDataset.delta`."""
        chosen = deltas.version_range(self._state, compared_against, begin_version, end_version)
        return deltas.AsyncDatasetDelta(self._state, *chosen)

    # -- fragments ---------------------------------------------------------------------------------------------------

    def get_fragments(self, filter: Any = None) -> list[AsyncFragment]:
        """The fragments, in the order of the manifest; nothing is read."""
        return [fragments.AsyncFragment(self._state, place) for place in self._places(filter)]

    def get_fragment(self, fragment_id: int) -> AsyncFragment | None:
        """The fragment with this id, or None."""
        place = self._state.place_of(fragment_id)
        return None if place is None else fragments.AsyncFragment(self._state, place)

    async def validate(self) -> None:
        """Check that all files of the version are there and agree with the manifest; see `LanceDataset.validate`."""
        await self._run(validation.validate(self._state, self._state.all_places))

    @property
    def stats(self) -> AsyncStats:
        """Statistics of the table."""
        return table_statistics.AsyncStats(self._state)

    # -- writes and commits -------------------------------------------------------------------------------------------

    @staticmethod
    async def write(
        data_obj: Any, uri: Any = None, schema: Any = None, mode: str = "create", **options: Any
    ) -> AsyncDataset:
        """Write rows to a table; keywords as for `write_dataset`.

        data_obj  also an asynchronous iterable of record batches, which is advanced on the calling loop
        """
        await runtime.load_modules(writes.__name__, *_USED_BY_FUNCTIONS)
        return AsyncDataset._of(_closing(await writes.write_table_async(data_obj, uri, schema, mode, **options)))

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
        given = {name: value for name, value in locals().items() if name != "options"}
        await runtime.load_modules(commits.__name__, *_USED_BY_FUNCTIONS)
        return AsyncDataset._of(_closing(await commits.run_commit_async({**given, **options})))

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
        *,
        filesystem: Any = None,
        storage_options_provider: Any = None,
    ) -> dict[str, Any]:
        """Commit several appends as one; see `LanceDataset.commit_batch`."""
        given = locals()
        await runtime.load_modules(commits.__name__, *_USED_BY_FUNCTIONS)
        given = commits.batch_commit(given)
        state = _closing(await commits.run_commit_async(given))
        return {"dataset": AsyncDataset._of(state), "merged": given["operation"]}

    # -- interop -----------------------------------------------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self._state, self._state.schedulers is not None)

    def __repr__(self) -> str:
        return f"<AsyncDataset {hide_secrets(self._state.location.uri)} version {self.version}>"


async def _open(uri: str | PathLike[str], version: Ref, timeout: Timeout, options: dict[str, Any]) -> AsyncDataset:
    await runtime.load_modules("lance_io.commit.table_location", *_USED_BY_FUNCTIONS)
    uri = uri_on(options.pop("filesystem", None), uri)
    options = gather_provider(options)
    await load_client(uri, options.get("storage_options"))
    checked = open_options(uri, version, **options)
    meter = IoMeter(checked.location.store)
    answers_sync = offers_sync_reads(checked.location.store)
    state = await run_async(open_steps(checked), timeout, answers_sync=answers_sync)
    return AsyncDataset._of(_closing(state), meter)


def _closing(state: DatasetState) -> DatasetState:
    """The state of a dataset whose `aclose` ends its reads."""
    return replace(state, schedulers=scheduler.OpenSchedulers("the dataset"))


def _unpickled(cls: type[AsyncDataset], state: DatasetState, is_closing: bool) -> AsyncDataset:
    return cls._of(_closing(state) if is_closing else state)
