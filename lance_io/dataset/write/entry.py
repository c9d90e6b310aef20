"""`write_dataset`, `write_fragments`, `commit`: the functions that make tables, in plain code and awaitable.

Keywords are pylance's. Those that this release has no use for are refused when they ask for something, by name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, cast

from lance_io import runtime
from lance_io.dataset.aio import AsyncDataset
from lance_io.dataset.session import Session
from lance_io.dataset.steps import drive, drive_now
from lance_io.dataset.sync import LanceDataset
from lance_io.dataset.write.committing import commit_operation
from lance_io.dataset.write.datafiles import BYTES_PER_FILE, ROWS_PER_FILE, FileLimits
from lance_io.dataset.write.fragments import fragments_of, write_new_fragments
from lance_io.dataset.write.input import AsyncRows, Rows, async_rows_of, rows_of
from lance_io.dataset.write.operations import COMMIT_MESSAGE, LanceOperation, Transaction, as_transaction
from lance_io.dataset.write.rows import WriteOptions, WriteTarget, write_rows
from lance_io.errors import UnsupportedError, UsageError
from lance_io.file.writing import version_for_files
from lance_io.runtime.feeding import run_fed, wrap_fed
from lance_io.store.api import SyncReads, SyncWrites
from lance_io.table.fragment import FRAGMENT_ROWS_MAX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from os import PathLike

    import pyarrow as pa

    from lance_io.dataset.metadata import FragmentMetadata
    from lance_io.dataset.state import DatasetState
    from lance_io.dataset.steps import Plan
    from lance_io.dataset.write.fragments import NewFragments
    from lance_io.dataset.write.progress import FragmentWriteProgress
    from lance_io.store.api import Durability

    Destination = str | PathLike[str] | LanceDataset | AsyncDataset

# keywords of pylance that name what this release does not have, with the values that ask for nothing
_NOT_HERE: Final[dict[str, tuple[Any, ...]]] = {
    "initial_bases": (None,),
    "target_bases": (None,),
    "target_all_bases": (None, False),
    "base_store_params": (None,),
    "external_blob_mode": ("reference",),
    "allow_external_blob_outside_bases": (False,),
    "blob_pack_file_size_threshold": (None,),
    "namespace_client": (None,),
    "table_id": (None,),
    "namespace_client_managed_versioning": (False,),
}
COMMIT_TIMEOUT = timedelta(minutes=30)


def write_dataset(
    data_obj: Any,
    uri: Destination | None = None,
    schema: pa.Schema | None = None,
    mode: str = "create",
    *,
    max_rows_per_file: int = ROWS_PER_FILE,
    max_rows_per_group: int = 1024,
    max_bytes_per_file: int = BYTES_PER_FILE,
    data_cache_bytes: int | None = None,
    max_page_bytes: int | None = None,
    commit_lock: Any = None,
    progress: FragmentWriteProgress | None = None,
    storage_options: Mapping[str, str] | None = None,
    data_storage_version: str | None = None,
    use_legacy_format: bool | None = None,
    enable_v2_manifest_paths: bool = True,
    enable_stable_row_ids: bool = False,
    auto_cleanup_options: Mapping[str, int] | None = None,
    commit_message: str | None = None,
    transaction_properties: Mapping[str, str] | None = None,
    initial_bases: Any = None,
    target_bases: Any = None,
    target_all_bases: bool | None = None,
    base_store_params: Any = None,
    external_blob_mode: str = "reference",
    allow_external_blob_outside_bases: bool = False,
    blob_pack_file_size_threshold: int | None = None,
    namespace_client: Any = None,
    table_id: list[str] | None = None,
    session: Session | None = None,
    durability: Durability | None = None,
) -> LanceDataset:
    """Write rows to a table; gives the version that holds them.

    data_obj              a table, data frame, reader, dataset, scanner, dict of lists, list of dicts, or record batches
    uri                   where, or an open dataset (which stays at its version)
    schema                for data that carries none
    mode                  "create", "append" or "overwrite"; the last two create a table that is not there
    max_rows_per_file, max_bytes_per_file  when another data file, and with it another fragment, is begun
    max_page_bytes        leaf data of a page at most; data_cache_bytes: leaf data that may wait for its page
    commit_lock           callable that makes a context manager for a version number, entered around the commit
    progress              told of every fragment
    data_storage_version  file version, "2.1" or "2.2" ("stable"); by default the table's, for new tables "stable"
    enable_v2_manifest_paths  False names the manifests of a new table in the old way
    enable_stable_row_ids     of a new table
    auto_cleanup_options  {"interval": n, "older_than_seconds": s}: clean up at every n-th version
    commit_message, transaction_properties  stored with the transaction
    durability            of files on the local disk. "full" (the default) flushes everything that the new version
                          needs before it is visible, and its name before this returns: no loss of power takes it back
                          or damages it. "none" flushes nothing: a process may end at any point, but a machine that
                          fails may take this version and all later ones with it. None is what the storage option
                          `durability` says
    max_rows_per_group    accepted; it meant something to version 0.1

    Raises `OSError` for a table that is there (create), for rows that do not fit the table and for conflicts with
    other writers, `ValueError` for keywords that make no sense.
    """
    write = _write(locals())
    return write.run(rows_of(data_obj, schema), lambda rows: write_rows(write.target, rows, write.options))


async def write_dataset_async(
    data_obj: Any, uri: Destination | None = None, schema: pa.Schema | None = None, mode: str = "create", **options: Any
) -> AsyncDataset:
    """`write_dataset`, awaitable; `data_obj` may also be an asynchronous iterable of record batches."""
    write = _write({"uri": uri, "mode": mode, **options})
    rows = async_rows_of(data_obj, schema)
    return await write.run_async(rows, lambda rows: write_rows(write.target, rows, write.options))


@dataclass(frozen=True)
class _Write:
    """A write that has been checked."""

    target: WriteTarget
    options: WriteOptions

    @property
    def answers_now(self) -> bool:
        """Whether it can run in the caller's thread."""
        store = self.target.location.store
        return isinstance(store, SyncReads) and isinstance(store, SyncWrites) and self.target.handler.answers_now

    def run(self, rows: Rows, make: Callable[[Rows | AsyncRows], Plan[DatasetState]]) -> LanceDataset:
        if self.answers_now:
            return LanceDataset._of(drive_now(make(rows)))
        return LanceDataset._of(run_fed(rows.batches, lambda feed: drive(make(_fed(rows, feed)))))

    async def run_async(
        self, rows: Rows | AsyncRows, make: Callable[[Rows | AsyncRows], Plan[DatasetState]]
    ) -> AsyncDataset:
        batches = _on_this_loop(rows) if isinstance(rows, Rows) else rows.batches
        return AsyncDataset(await wrap_fed(batches, lambda feed: drive(make(_fed(rows, feed)))))


def _fed(rows: Rows | AsyncRows, feed: AsyncIterator[pa.RecordBatch]) -> AsyncRows:
    return AsyncRows(rows.schema, feed, rows.num_rows)


async def _on_this_loop(rows: Rows) -> AsyncIterator[pa.RecordBatch]:
    """Batches of plain iterators, made in a thread: they may read files or wait for databases."""
    import asyncio

    while (batch := await asyncio.to_thread(next, rows.batches, None)) is not None:
        yield batch


def _write(given: dict[str, Any]) -> _Write:
    """Check the keywords of a write."""
    _check_not_here(given)
    if given.get("use_legacy_format"):
        given["data_storage_version"] = given.get("data_storage_version") or "legacy"
    target = write_target(given["uri"], given.get("storage_options"), given.get("session"), given.get("commit_lock"))
    version = given.get("data_storage_version")
    options = WriteOptions(
        mode=given["mode"],
        version=None if version is None else version_for_files(version),
        limits=FileLimits(
            rows=given.get("max_rows_per_file", ROWS_PER_FILE),
            num_bytes=given.get("max_bytes_per_file", BYTES_PER_FILE),
            page_bytes=given.get("max_page_bytes"),
            cache_bytes=given.get("data_cache_bytes"),
        ),
        progress=given.get("progress"),
        scheme="V2" if given.get("enable_v2_manifest_paths", True) else "V1",
        stable_row_ids=given.get("enable_stable_row_ids", False),
        config=_cleanup_config(given.get("auto_cleanup_options")),
        properties=_properties(given.get("transaction_properties"), given.get("commit_message")),
        durability=given.get("durability"),
    )
    return _Write(target, options)


def _check_not_here(given: Mapping[str, Any]) -> None:
    for name, nothing in _NOT_HERE.items():
        if name in given and given[name] not in nothing:
            raise UnsupportedError(f"{name} is not part of this release")


def _properties(properties: Mapping[str, str] | None, message: str | None) -> dict[str, str]:
    return {**(properties or {}), **({} if message is None else {COMMIT_MESSAGE: message})}


def _cleanup_config(options: Mapping[str, int] | None) -> dict[str, str]:
    if options is None:
        return {}
    unknown = options.keys() - {"interval", "older_than_seconds"}
    if unknown or "interval" not in options:
        raise UsageError(f"auto_cleanup_options: expected interval and older_than_seconds, found {sorted(options)}")
    config = {"lance.auto_cleanup.interval": str(options["interval"])}
    if "older_than_seconds" in options:
        config["lance.auto_cleanup.older_than"] = f"{options['older_than_seconds']}s"
    return config


def write_target(
    uri: Destination | None,
    storage_options: Mapping[str, str] | None,
    session: Session | None = None,
    commit_lock: Any = None,
) -> WriteTarget:
    """Where to write: a place, or an open version. Raises `ValueError` for no place."""
    if uri is None:
        raise UsageError("Must specify 'uri': where the table is, or is to be")
    if isinstance(uri, (LanceDataset, AsyncDataset)):
        state = uri._state
        lock = commit_lock or state.commit_lock
        return WriteTarget(
            location=state.location,
            root=state.root,
            session=state.session,
            handler=state.session.handler(state.location, lock),
            given_uri=state.given_uri,
            storage_options=state.storage_options,
            manifest=state.manifest,
        )
    session = session or Session()
    location = session.locate(uri, dict(storage_options or {}))
    handler = session.handler(location, commit_lock)
    return WriteTarget(location, location, session, handler, str(uri), storage_options)


# -- fragments without a commit ----------------------------------------------------------------------------------------


def write_fragments(
    data: Any,
    dataset_uri: Destination,
    schema: pa.Schema | None = None,
    *,
    return_transaction: bool = False,
    mode: str = "append",
    max_rows_per_file: int = ROWS_PER_FILE,
    max_rows_per_group: int | None = 1024,
    max_bytes_per_file: int = BYTES_PER_FILE,
    data_cache_bytes: int | None = None,
    max_page_bytes: int | None = None,
    progress: FragmentWriteProgress | None = None,
    data_storage_version: str | None = None,
    use_legacy_format: bool | None = None,
    storage_options: Mapping[str, str] | None = None,
    enable_stable_row_ids: bool = False,
    target_bases: Any = None,
    target_all_bases: bool | None = None,
    initial_bases: Any = None,
    base_store_params: Any = None,
    external_blob_mode: str = "reference",
    allow_external_blob_outside_bases: bool = False,
    namespace_client: Any = None,
    table_id: list[str] | None = None,
    session: Session | None = None,
    durability: Durability | None = None,
) -> list[FragmentMetadata] | Transaction:
    """Write data files that no version refers to yet: what the tasks of a distributed write do.

    Keywords as for `write_dataset`. Gives the fragments, of id 0, to be committed with `LanceOperation.Append` or
    `Overwrite`; with `return_transaction` the transaction that would commit them.
    """
    written = _write_new({**locals(), "uri": dataset_uri}, data, schema)
    return written.transaction if return_transaction else fragments_of(written)


async def write_fragments_async(
    data: Any,
    dataset_uri: Destination,
    schema: pa.Schema | None = None,
    *,
    return_transaction: bool = False,
    mode: str = "append",
    **options: Any,
) -> list[FragmentMetadata] | Transaction:
    """`write_fragments`, awaitable; `data` may also be an asynchronous iterable of record batches."""
    written = await _write_new_async({"uri": dataset_uri, "mode": mode, **options}, data, schema)
    return written.transaction if return_transaction else fragments_of(written)


def write_fragment(
    dataset_uri: Destination, data: Any, fragment_id: int | None, schema: pa.Schema | None, **options: Any
) -> FragmentMetadata:
    """See `LanceFragment.create`."""
    return _only(fragments_of(_write_new(_one_file(dataset_uri, options), data, schema)), fragment_id)


async def write_fragment_async(
    dataset_uri: Destination, data: Any, fragment_id: int | None, schema: pa.Schema | None, **options: Any
) -> FragmentMetadata:
    """See `AsyncFragment.create`."""
    written = await _write_new_async(_one_file(dataset_uri, options), data, schema)
    return _only(fragments_of(written), fragment_id)


def _one_file(dataset_uri: Destination, options: dict[str, Any]) -> dict[str, Any]:
    return {**options, "uri": dataset_uri, "max_rows_per_file": FRAGMENT_ROWS_MAX, "max_bytes_per_file": 1 << 62}


def _only(fragments: list[FragmentMetadata], fragment_id: int | None) -> FragmentMetadata:
    if not fragments:
        raise UsageError("no rows: a fragment has at least one")
    return replace(fragments[0], id=fragment_id or 0)


def _write_new(given: dict[str, Any], data: Any, schema: pa.Schema | None) -> NewFragments:
    write = _write(given)
    rows = rows_of(data, schema)
    if write.answers_now:
        return drive_now(write_new_fragments(write.target, rows, write.options))
    return run_fed(rows.batches, lambda feed: drive(write_new_fragments(write.target, _fed(rows, feed), write.options)))


async def _write_new_async(given: dict[str, Any], data: Any, schema: pa.Schema | None) -> NewFragments:
    write = _write(given)
    rows = async_rows_of(data, schema)
    batches = _on_this_loop(rows) if isinstance(rows, Rows) else rows.batches
    return await wrap_fed(
        batches, lambda feed: drive(write_new_fragments(write.target, _fed(rows, feed), write.options))
    )


# -- commits ---------------------------------------------------------------------------------------------------------


def commit(
    base_uri: Destination,
    operation: LanceOperation.BaseOperation | Transaction,
    read_version: int | None = None,
    commit_lock: Any = None,
    storage_options: Mapping[str, str] | None = None,
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
    session: Session | None = None,
) -> LanceDataset:
    """See `LanceDataset.commit`."""
    plan, answers_now = _commit(locals())
    return LanceDataset._of(drive_now(plan) if answers_now else runtime.run(drive(plan)))


async def commit_async(base_uri: Destination, operation: Any, read_version: int | None = None, **options: Any) -> Any:
    """See `AsyncDataset.commit`."""
    plan, _ = _commit({"base_uri": base_uri, "operation": operation, "read_version": read_version, **options})
    return AsyncDataset(await runtime.wrap(drive(plan)))


def _commit(given: dict[str, Any]) -> tuple[Plan[DatasetState], bool]:
    _check_not_here(given)
    transaction = as_transaction(given["operation"], given.get("read_version"), given.get("commit_message"))
    target = write_target(
        given["base_uri"], given.get("storage_options"), given.get("session"), given.get("commit_lock")
    )
    timeout = given.get("commit_timeout", COMMIT_TIMEOUT)
    plan = commit_operation(
        target,
        transaction,
        scheme="V1" if given.get("enable_v2_manifest_paths") is False else "V2",
        detached=bool(given.get("detached")),
        max_retries=given.get("max_retries", 20),
        stable_row_ids=bool(given.get("enable_stable_row_ids")),
        timeout_seconds=None if timeout is None else timeout.total_seconds(),
    )
    write = _Write(target, WriteOptions())
    return plan, write.answers_now


def commit_batch(
    dest: Destination, transactions: Any, commit_lock: Any = None, storage_options: Any = None, **options: Any
) -> dict[str, Any]:
    """See `LanceDataset.commit_batch`."""
    merged = merged_appends(list(transactions))
    committed = commit(dest, merged, commit_lock=commit_lock, storage_options=storage_options, **options)
    return {"dataset": committed, "merged": merged}


def merged_appends(transactions: list[Transaction]) -> Transaction:
    """One append of the fragments of several. Raises `UsageError` for anything but appends."""
    if not transactions:
        raise UsageError("expected at least one transaction")
    if not all(isinstance(one.operation, LanceOperation.Append) for one in transactions):
        raise UnsupportedError("only Append transactions can be committed as a batch")
    fragments = [
        fragment for one in transactions for fragment in cast("LanceOperation.Append", one.operation).fragments
    ]
    properties: dict[str, str] = {}
    for one in transactions:
        properties |= one.transaction_properties or {}
    oldest = min(one.read_version for one in transactions)
    return replace(
        transactions[0],
        read_version=oldest,
        operation=LanceOperation.Append(fragments),
        transaction_properties=properties,
    )
