"""`write_dataset`: write rows as a version of a table, with pylance's keywords."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.changes.write.data_files import BYTES_PER_FILE, ROWS_PER_FILE
from lance_io.changes.write.run_write import run_table_write
from lance_io.changes.write.write_arguments import Write
from lance_io.dataset.lance_dataset import new_dataset

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from lance_io.changes.write.column_encodings import Encoding
    from lance_io.changes.write.write_arguments import AutoCleanupConfig, Destination
    from lance_io.changes.write.write_progress import FragmentWriteProgress
    from lance_io.dataset.lance_dataset import LanceDataset
    from lance_io.reads.version.session import Session
    from lance_io.store.api import Durability


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
    max_decoded_bytes: int | None = None,
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
    allow_null_loss: bool = True,
    blob_pack_file_size_threshold: int | None = None,
    namespace_client: Any = None,
    table_id: list[str] | None = None,
    session: Session | None = None,
    durability: Durability | None = None,
    filesystem: Any = None,
    group_commit: bool = False,
    skip_auto_cleanup: bool = False,
    storage_options_provider: Any = None,
    encodings: Mapping[str, Encoding] | None = None,
) -> LanceDataset:
    """Write rows to a table.

    Args:
        data_obj: A table, data frame, lazy frame, reader, dataset, scanner, dict of lists, list of dicts, record
            batches, two-dimensional array (column "vector"), or a local CSV, Parquet or Arrow file (a `pathlib.Path`,
            or a name with that extension).
        uri: URI of the table, or an open dataset, which stays at its version.
        schema: Schema of `data_obj`, if the data carries none.
        mode: "create", "append" or "overwrite". The last two create a missing table.
        max_rows_per_file: Rows at which the next data file (a fragment) starts.
        max_rows_per_group: Rows of a batch, in files of version 0.1.
        max_bytes_per_file: Approximate stored bytes at which the next data file starts, but not before 1,024 rows or a
            page of 4 MiB.
        data_cache_bytes: Maximum bytes of leaf data that wait for their page.
        max_page_bytes: Maximum bytes of leaf data in a page.
        max_decoded_bytes: Maximum bytes of one value, 2 GiB by default; blobs are exempt. Larger values raise
            `ResourceLimitError`. Readers have the same default limit.
        commit_lock: Callable that returns a context manager for a version number, entered around the commit.
        progress: Receives each new fragment.
        storage_options: Credentials and settings of the store.
        data_storage_version: File version: "0.1" ("legacy"), "2.1" or "2.2" ("stable"). None for the table's; "stable"
            for new tables.
        use_legacy_format: Deprecated; True means `data_storage_version="legacy"`.
        enable_v2_manifest_paths: False names the manifests of a new table in the V1 scheme.
        enable_stable_row_ids: Whether a new table has stable row ids.
        auto_cleanup_options: `{"interval": n, "older_than_seconds": s}`: clean up at every n-th version.
        commit_message: Message stored with the transaction.
        transaction_properties: Properties stored with the transaction.
        initial_bases: `DatasetBasePath`s that a new table declares: folders for its files, possibly in other stores.
        target_bases: Names or paths of base paths that receive the data files in turn; None for the table's own folder.
        target_all_bases: True distributes data files over the table's own folder and all base paths in turn.
        base_store_params: Storage options of base paths, by path, instead of `storage_options`.
        external_blob_mode: Must be "reference".
        allow_external_blob_outside_bases: True stores blobs that are URIs outside of all base paths; False refuses
            them.
        allow_null_loss: Files of version 0.1 hold nulls of strings only. True writes other nulls as zeros, empty lists
            and the like, and a `UserWarning` names the columns; False refuses them.
        blob_pack_file_size_threshold: Must be None.
        namespace_client: Must be None; this release has no namespaces.
        table_id: Must be None; this release has no namespaces.
        session: Session that shares caches and stores.
        durability: For files on the local disk. "full" (the default) flushes all files of the new version before it
            becomes visible, and its name before this call returns: no power loss undoes or damages it. "none" flushes
            nothing: processes may end at any point, but a machine failure may lose this version and all later ones.
            None for the storage option `durability`.
        filesystem: File system of fsspec or pyarrow, or store of obstore, on which `uri` is a path.
        group_commit: For appends. Appends of this process that wait for the table at the same time become one version,
            with one data file for rows of one schema. Each caller gets the version that holds its rows, all or none,
            independent of the other callers' outcome.
        skip_auto_cleanup: True runs no cleanup after this write, overriding the table's configuration.
        storage_options_provider: Provider of storage options; see `lance_io.dataset`.
        encodings: An `Encoding` by column or member of a new schema: `{"x": Encoding(compression="zstd")}`. It is
            stored as metadata of the field, so appends and compactions keep it.

    Returns:
        The version that holds the rows.

    Raises:
        OSError: The table exists (mode "create"), the rows do not fit the table, or another writer's changes conflict.
        ValueError: A keyword has an invalid value.
    """
    return new_dataset(run_table_write(Write.of(locals()), data_obj, schema))
