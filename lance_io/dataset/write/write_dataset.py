"""`write_dataset` and `write_fragments`, in plain code and awaitable: rows that somebody hands over become files.

Keywords are pylance's. Rows are pulled where the caller is: in its thread, or on its loop.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from lance_io.dataset.async_dataset import AsyncDataset
from lance_io.dataset.lance_dataset import dataset_class
from lance_io.dataset.write.data_files import BYTES_PER_FILE, ROWS_PER_FILE
from lance_io.dataset.write.input_data import AsyncRows, Rows, async_rows_of, rows_of
from lance_io.dataset.write.uncommitted_fragments import fragments_of, write_new_fragments
from lance_io.dataset.write.write_arguments import Write, check_known
from lance_io.dataset.write.write_rows import write_rows
from lance_io.errors import OperationError
from lance_io.file.row_indices import count
from lance_io.plans.plan import drive_async, drive_sync
from lance_io.runtime import in_thread
from lance_io.runtime.feeding import run_fed, wrap_fed
from lance_io.store.url import load_client
from lance_io.table.manifest.fragment import FRAGMENT_ROWS_MAX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    import pyarrow as pa

    from lance_io.dataset.changes.lance_operation import Transaction
    from lance_io.dataset.lance_dataset import LanceDataset
    from lance_io.dataset.version.fragment_metadata import FragmentMetadata
    from lance_io.dataset.version.session import Session
    from lance_io.dataset.write.uncommitted_fragments import NewFragments
    from lance_io.dataset.write.write_arguments import AutoCleanupConfig, Destination
    from lance_io.dataset.write.write_progress import FragmentWriteProgress
    from lance_io.plans.plan import Plan
    from lance_io.store.api import Durability

T = TypeVar("T")


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
    auto_cleanup_options: AutoCleanupConfig | None = None,
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
    allow_external_blob_outside_bases  store blobs that are URIs as they are; otherwise they are refused
    durability            of files on the local disk. "full" (the default) flushes everything that the new version
                          needs before it is visible, and its name before this returns: no loss of power takes it back
                          or damages it. "none" flushes nothing: a process may end at any point, but a machine that
                          fails may take this version and all later ones with it. None is what the storage option
                          `durability` says
    max_rows_per_group    accepted; it meant something to version 0.1

    Raises `OSError` for a table that is there (create), for rows that do not fit the table and for conflicts with
    other writers, `ValueError` for keywords that make no sense.
    """
    write = Write.of(locals())
    return dataset_class()._of(_run(write, data_obj, schema, write_rows))


async def write_dataset_async(
    data_obj: Any, uri: Destination | None = None, schema: pa.Schema | None = None, mode: str = "create", **options: Any
) -> AsyncDataset:
    """`write_dataset`, awaitable; `data_obj` may also be an asynchronous iterable of record batches."""
    check_known(options, write_dataset)
    await load_client(uri)
    write = Write.of({"uri": uri, "mode": mode, **options})
    return AsyncDataset._of(await _run_async(write, data_obj, schema, write_rows))


def _run(write: Write, data: Any, schema: pa.Schema | None, make: Callable[..., Plan[T]]) -> T:
    """Run the plan that `make` gives for target, rows and options."""
    rows = rows_of(data, schema)
    if write.target.answers_sync:
        return drive_sync(make(write.target, rows, write.options))
    return run_fed(rows.batches, lambda feed: drive_async(make(write.target, _fed(rows, feed), write.options)))


async def _run_async(write: Write, data: Any, schema: pa.Schema | None, make: Callable[..., Plan[T]]) -> T:
    """`_run` on any loop."""
    rows = await async_rows_of(data, schema)
    batches = _on_this_loop(rows) if isinstance(rows, Rows) else rows.batches
    return await wrap_fed(batches, lambda feed: drive_async(make(write.target, _fed(rows, feed), write.options)))


def _fed(rows: Rows | AsyncRows, feed: AsyncIterator[pa.RecordBatch]) -> AsyncRows:
    return AsyncRows(rows.schema, feed, rows.num_rows)


async def _on_this_loop(rows: Rows) -> AsyncIterator[pa.RecordBatch]:
    """Batches of plain iterators, made in a thread: they may read files or wait for databases."""
    while (batch := await in_thread(next, rows.batches, None)) is not None:
        yield batch


# -- fragments without a commit --------------------------------------------------------------------------------------


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
    write = Write.of({**locals(), "uri": dataset_uri})
    written = _run(write, data, schema, write_new_fragments)
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
    check_known(options, write_fragments)
    await load_client(dataset_uri)
    write = Write.of({"uri": dataset_uri, "mode": mode, **options})
    written = await _run_async(write, data, schema, write_new_fragments)
    return written.transaction if return_transaction else fragments_of(written)


def write_fragment(
    dataset_uri: Destination, data: Any, fragment_id: int | None, schema: pa.Schema | None, **options: Any
) -> FragmentMetadata:
    """See `LanceFragment.create`."""
    number = _fragment_number(fragment_id)
    return _only(_run(_one_file(dataset_uri, options), data, schema, write_new_fragments), number)


async def write_fragment_async(
    dataset_uri: Destination, data: Any, fragment_id: int | None, schema: pa.Schema | None, **options: Any
) -> FragmentMetadata:
    """See `AsyncFragment.create`."""
    await load_client(dataset_uri)
    number, write = _fragment_number(fragment_id), _one_file(dataset_uri, options)
    return _only(await _run_async(write, data, schema, write_new_fragments), number)


def _one_file(dataset_uri: Destination, options: dict[str, Any]) -> Write:
    check_known(options, write_fragments)
    unbounded = {"max_rows_per_file": FRAGMENT_ROWS_MAX, "max_bytes_per_file": 1 << 62}
    return Write.of({**options, "uri": dataset_uri, **unbounded})


def _fragment_number(fragment_id: int | None) -> int:
    """The id of a new fragment. Raises `TypeError` and `OverflowError` for what is none."""
    number = 0 if fragment_id is None else count(fragment_id)
    if number >= 1 << 64:
        raise OverflowError("int too big to convert")
    return number


def _only(written: NewFragments, fragment_id: int) -> FragmentMetadata:
    fragments = fragments_of(written)
    if not fragments:
        raise OperationError("no rows: a fragment has at least one")
    return replace(fragments[0], id=fragment_id)
