"""`LanceDataset`, a table version with pylance's names, and `AsyncDataset`, its awaitable twin.

`SyncDataset` holds the methods of `LanceDataset`, which also derives from `pyarrow.dataset.Dataset`. Importing that
module takes 0.2 s (`bases.py`), so the public class is built on first use. Until then `lance_io.dataset` returns an
`OpenedDataset`, whose `__class__` is `LanceDataset`.

Each asynchronous method is a coroutine that runs on the engine's loop; any loop can await it. Cancelling the caller
cancels the work on the engine. Leaving an `async for` over batches early (`break`, an exception, `aclose`) cancels the
reads under way.

The methods run plans of `changes/` and `reads/`. Row methods live in `row_methods.py`, version methods in
`version_methods.py`, methods that change the table in `change_methods.py`. An open dataset loads further modules on
demand.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypedDict, cast

from lance_io import runtime
from lance_io.dataset.change_methods import AsyncDatasetChanges, DatasetChanges
from lance_io.dataset.clone_methods import AsyncDatasetClones, DatasetClones
from lance_io.dataset.indices.key_methods import AsyncDatasetKeys, DatasetKeys
from lance_io.dataset.opening import Opening
from lance_io.dataset.row_methods import AsyncDatasetRows, DatasetRows
from lance_io.dataset.version_methods import AsyncDatasetVersions, DatasetVersions
from lance_io.errors import UsageError
from lance_io.lazy_names import lazy_module
from lance_io.limits import COMMIT_TIMEOUT
from lance_io.not_offered import DatasetNotOffered
from lance_io.reads.open_version import open_options, open_steps
from lance_io.reads.properties import DatasetProperties
from lance_io.reads.run_plan import run_async, run_sync
from lance_io.reads.scan.scan_statistics import IoMeter
from lance_io.redaction import hide_secrets
from lance_io.store.offers import offers_sync_reads
from lance_io.store.provided_options import gather_provider
from lance_io.store.url import load_client, uri_on

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import timedelta
    from os import PathLike
    from typing import Self

    from lance_io.changes.edits import commit_operation as commits
    from lance_io.changes.operations.lance_operation import LanceOperation, Transaction
    from lance_io.changes.write import run_write as writes
    from lance_io.dataset import bases
    from lance_io.dataset import fragment as fragments
    from lance_io.dataset import scanner as scanners
    from lance_io.dataset.fragment import AsyncFragment, LanceFragment
    from lance_io.io import scheduler
    from lance_io.reads.metadata import table_statistics
    from lance_io.reads.metadata.table_statistics import AsyncStats, LanceStats
    from lance_io.reads.open_version import Ref
    from lance_io.reads.run_plan import Timeout
    from lance_io.reads.version.state import DatasetState
else:
    bases = lazy_module("lance_io.dataset.bases")
    fragments = lazy_module("lance_io.dataset.fragment")
    scanners = lazy_module("lance_io.dataset.scanner")
    commits = lazy_module("lance_io.changes.edits.commit_operation")
    table_statistics = lazy_module("lance_io.reads.metadata.table_statistics")
    writes = lazy_module("lance_io.changes.write.run_write")
    scheduler = lazy_module("lance_io.io.scheduler")

# Modules that plain methods of `AsyncDataset` use. They are imported in advance, because the methods may run on a loop.
_USED_BY_FUNCTIONS: Final = (fragments.__name__, scanners.__name__, scheduler.__name__)


class _Dataset(DatasetProperties):
    """State shared by both faces of a dataset."""

    @classmethod
    def _of(cls, state: DatasetState, meter: IoMeter | None = None) -> Self:
        dataset: Self = cls.__new__(cls)
        dataset._state = state
        dataset._meter = meter or IoMeter(state.location.store)
        return dataset

    def _fragment_indexes(self, filter: Any) -> Sequence[int]:
        """Indexes of the fragments of `get_fragments`."""
        if filter is not None:
            raise UsageError("get_fragments() does not support filter yet")
        return self._state.all_fragment_indexes

    def __copy__(self) -> Self:
        return type(self)._of(self._state)


class BulkCommitResult(TypedDict):
    """Result of `LanceDataset.commit_batch`.

    Attributes:
        dataset: The new version.
        merged: The transaction that holds all the appends.
    """

    dataset: LanceDataset
    merged: Transaction


class SyncDataset(
    _Dataset, DatasetRows, DatasetKeys, DatasetChanges, DatasetClones, DatasetVersions, DatasetNotOffered
):
    """A snapshot of a table. It sees later commits only after `checkout_latest`.

    Args:
        uri: Location of the table; see `lance_io.dataset`.
        version: Number, tag or `(branch, version)`; None for the newest.
        timeout: Seconds, or a `timedelta`, that opening may take.
        options: Other keywords of `lance_io.dataset`.

    Raises:
        ValueError: The table, version or tag does not exist, or the scheme is unknown.
        DeadlineExceeded: Opening takes longer than `timeout`.
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
        """Row counts and bytes per field of this version."""
        return table_statistics.LanceStats(self._state)

    # -- fragments ---------------------------------------------------------------------------------------------------

    def get_fragments(self, filter: Any = None) -> list[LanceFragment]:
        """List the fragments in the order of the manifest. Reads nothing.

        Args:
            filter: Must be None.

        Returns:
            One `LanceFragment` for each fragment.

        Raises:
            ValueError: `filter` is not None.
        """
        return [fragments.LanceFragment._of(self._state, index) for index in self._fragment_indexes(filter)]

    def get_fragment(self, fragment_id: int) -> LanceFragment | None:
        """Look up a fragment by id. Reads nothing.

        Args:
            fragment_id: Id of the fragment.

        Returns:
            The fragment; None if no fragment has this id.

        Raises:
            TypeError: `fragment_id` is not an integer.
            OverflowError: `fragment_id` is negative.
            FormatError: Two fragments have this id.
        """
        fragment_index = self._state.fragment_index_of(fragment_id)
        return None if fragment_index is None else fragments.LanceFragment._of(self._state, fragment_index)

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
        """Commit a prepared operation as a new version.

        Args:
            base_uri: URI of the table, or an open dataset, which stays at its version.
            operation: An operation of `LanceOperation`, or a whole `Transaction`. Committing the same transaction again
                is recognised, also that of a `CommitUnknownError`.
            read_version: Version that the operation is based on. `Overwrite` and `Restore` need none.
            commit_lock: Callable that returns a context manager for a version number, entered around the commit.
            storage_options: Credentials and settings of the store.
            enable_v2_manifest_paths: False names the manifests of a new table in the V1 scheme.
            detached: Make a version outside of the sequence; only its number leads to it.
            max_retries: Maximum number of attempts. With 0, an `Overwrite` requires that `read_version` is still the
                newest version.
            commit_message: Message stored with the transaction.
            enable_stable_row_ids: Whether a new table has stable row ids.
            namespace_client: Must be None; this release has no namespaces.
            table_id: Must be None; this release has no namespaces.
            namespace_client_managed_versioning: Must be False; this release has no namespaces.
            base_store_params: Storage options of base paths, by path, instead of `storage_options`.
            commit_timeout: No attempt starts after this time.
            filesystem: File system of fsspec or pyarrow, or store of obstore, on which `base_uri` is a path.
            skip_auto_cleanup: True runs no cleanup after this commit, overriding the table's configuration.
            storage_options_provider: Provider of storage options; see `lance_io.dataset`.

        Returns:
            The new version.

        Raises:
            CommitConflictError: Changes of other writers conflict with the operation.
            CommitUnknownError: The store's answer is lost, and reading the table does not tell whether the version
                exists.
            OSError: The table does not exist and the operation is no `Overwrite`, or the operation does not fit the
                table or its files.
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
        """Commit several appends as one version.

        Args:
            dest: URI of the table, or an open dataset, which stays at its version.
            transactions: Appends, each a `Transaction`.
            commit_lock: Callable that returns a context manager for a version number, entered around the commit.
            storage_options: Credentials and settings of the store.
            enable_v2_manifest_paths: False names the manifests of a new table in the V1 scheme.
            detached: Make a version outside of the sequence; only its number leads to it.
            max_retries: Maximum number of attempts.
            base_store_params: Storage options of base paths, by path, instead of `storage_options`.
            commit_timeout: No attempt starts after this time.
            filesystem: File system of fsspec or pyarrow, or store of obstore, on which `dest` is a path.
            storage_options_provider: Provider of storage options; see `lance_io.dataset`.

        Returns:
            `{"dataset": the new version, "merged": the merged transaction}`.

        Raises:
            ValueError: There are no transactions, or one is no append. The error is also an `OSError`.
            CommitConflictError: Changes of other writers conflict with the appends.
        """
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
        """Not offered. Use `scanner(filter=...)`.

        Args:
            expression: Ignored.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("filter: use scanner(filter=...)")

    def join(self, *args: object, **kwargs: object) -> NoReturn:
        """Not offered. Call `to_table()` and join tables.

        Args:
            args: Ignored.
            kwargs: Ignored.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("join: use to_table() and join tables")

    def join_asof(self, *args: object, **kwargs: object) -> NoReturn:
        """Not offered. Call `to_table()` and join tables.

        Args:
            args: Ignored.
            kwargs: Ignored.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("join_asof: use to_table() and join tables")

    def sort_by(self, *args: object, **kwargs: object) -> NoReturn:
        """Not offered. Use `scanner(order_by=...)`.

        Args:
            args: Ignored.
            kwargs: Ignored.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("sort_by: use scanner(order_by=...)")

    def replace_schema(self, schema: object) -> NoReturn:
        """Not offered: a dataset has the schema of its table.

        Args:
            schema: Ignored.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("Cannot replace the schema of a dataset")

    @property
    def partition_expression(self) -> NoReturn:
        """Not offered: tables are not partitioned.

        Raises:
            NotImplementedError: Always.
        """
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
    # pyarrow's constructor expects a C++ dataset; this class overrides every inherited method
    public_class: type[LanceDataset] = bases.subclass(SyncDataset, bases.Dataset)
    return public_class


class OpenedDataset(SyncDataset):
    """A `LanceDataset` before pyarrow's dataset module is loaded.

    `isinstance` sees `LanceDataset`, because `__class__` builds and returns that class; only `type` shows the
    difference.
    """

    __class__ = property(lambda _: _lance_dataset())


def dataset_class() -> type[LanceDataset]:
    """The class of new datasets: the public one if pyarrow's dataset module or DuckDB is loaded already.

    DuckDB looks at `type`, not at `__class__`. It reads all columns of any other class, as a stream.
    """
    is_wanted = not sys.modules.keys().isdisjoint(("pyarrow._dataset", "duckdb"))
    return _lance_dataset() if is_wanted else cast("type[LanceDataset]", OpenedDataset)


def new_dataset(state: DatasetState) -> LanceDataset:
    """The dataset of a version that was opened or committed."""
    return dataset_class()._of(state)


class AsyncDataset(
    _Dataset,
    AsyncDatasetRows,
    AsyncDatasetKeys,
    AsyncDatasetChanges,
    AsyncDatasetClones,
    AsyncDatasetVersions,
    DatasetNotOffered,
):
    """A snapshot of a table. Open it with `AsyncDataset.open`, or wrap a `LanceDataset` with `AsyncDataset.of`.

    Raises:
        TypeError: Always, if you call the class: a constructor cannot be awaited.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        raise TypeError(
            "an AsyncDataset is opened by `await AsyncDataset.open(uri)` or `async with AsyncDataset.open(uri) as ds`, "
            "not by its class: a constructor cannot be awaited"
        )

    @staticmethod
    def open(
        uri: str | PathLike[str], version: Ref | None = None, *, timeout: Timeout = None, **options: Any
    ) -> Opening[AsyncDataset]:
        """Open a table, by `await` or `async with`.

        Args:
            uri: Location of the table; see `lance_io.dataset`.
            version: Number, tag or `(branch, version)`; None for the newest.
            timeout: Seconds, or a `timedelta`, that opening may take.
            options: Other keywords of `lance_io.dataset`.

        Returns:
            A coroutine of the dataset. `async with` closes the dataset at the end of the block.

        Raises:
            ValueError: The table, version or tag does not exist, or the scheme is unknown.
            DeadlineExceeded: Opening takes longer than `timeout`.
        """
        return Opening(partial(_open, uri, version, timeout, options))

    @classmethod
    def of(cls, dataset: LanceDataset) -> Self:
        """Wrap the version of a `LanceDataset`. Both share their caches.

        Args:
            dataset: An open dataset.

        Returns:
            The same version, awaitable.
        """
        runtime.load_modules_sync(*_USED_BY_FUNCTIONS)
        return cls._of(dataset._state)

    def to_sync(self) -> LanceDataset:
        """The same version as a `LanceDataset`, with shared caches. It stays open after `aclose`."""
        return new_dataset(replace(self._state, schedulers=None))

    async def aclose(self) -> None:
        """Cancel the reads under way, wait until they end and free their memory.

        Pending calls and iterators raise `RuntimeError`. So does each later call of this object, and of the objects
        that it returned, that reads or changes the table; such a call writes nothing. Objects made with
        `AsyncDataset.of` share the reads of their `LanceDataset`, which continue.
        """
        if self._state.schedulers is not None:
            await runtime.wrap(self._state.schedulers.aclose())
        self._state.release()

    # -- fragments ---------------------------------------------------------------------------------------------------

    def get_fragments(self, filter: Any = None) -> list[AsyncFragment]:
        """List the fragments. See `LanceDataset.get_fragments`."""
        return [fragments.AsyncFragment(self._state, index) for index in self._fragment_indexes(filter)]

    def get_fragment(self, fragment_id: int) -> AsyncFragment | None:
        """Look up a fragment by id. See `LanceDataset.get_fragment`."""
        fragment_index = self._state.fragment_index_of(fragment_id)
        return None if fragment_index is None else fragments.AsyncFragment(self._state, fragment_index)

    @property
    def stats(self) -> AsyncStats:
        """Row counts and bytes per field of this version."""
        return table_statistics.AsyncStats(self._state)

    # -- writes and commits -------------------------------------------------------------------------------------------

    @staticmethod
    async def write(
        data_obj: Any, uri: Any = None, schema: Any = None, mode: str = "create", **options: Any
    ) -> AsyncDataset:
        """Write rows to a table.

        Args:
            data_obj: Rows; see `lance_io.write_dataset`. Also an asynchronous iterable of record batches, which
                advances on the calling loop.
            uri: URI of the table, or an open dataset, which stays at its version.
            schema: Schema of `data_obj`, if the data carries none.
            mode: "create", "append" or "overwrite".
            options: Other keywords of `lance_io.write_dataset`.

        Returns:
            The new version.

        Raises:
            OSError: The table exists (mode "create"), or the rows do not fit the table, or another writer's changes
                conflict.
            ValueError: A keyword has an invalid value.
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
        """Commit a prepared operation as a new version. See `LanceDataset.commit`."""
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
        """Commit several appends as one version. See `LanceDataset.commit_batch`."""
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
