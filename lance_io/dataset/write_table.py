"""`write_dataset`: rows that somebody hands over become a version of a table. Keywords are pylance's."""

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
    """Write rows to a table; gives the version that holds them.

    data_obj              a table, data frame, lazy frame, reader, dataset, scanner, dict of lists, list of dicts,
                          record batches, an array of two dimensions (a column "vector"), or a local file in CSV,
                          Parquet or Arrow: a `pathlib.Path`, or its name with the ending of one
    uri                   where, or an open dataset (which stays at its version)
    schema                for data that carries none
    mode                  "create", "append" or "overwrite"; the last two create a table that is not there
    max_rows_per_file, max_bytes_per_file  when another data file (a fragment) is begun: at these rows,
                          or about these bytes as they are stored, but not before 1,024 rows or a page of 4 MiB
    max_page_bytes        leaf data of a page at most; data_cache_bytes: leaf data that may wait for its page
    max_decoded_bytes     that one value may have, 2 GiB by default, but for blobs: `ResourceLimitError` for a larger
                          one, which readers refuse, too, unless they are given more
    commit_lock           callable that makes a context manager for a version number, entered around the commit
    progress              told of every fragment
    data_storage_version  file version, "0.1" ("legacy"), "2.1" or "2.2" ("stable"); by default the table's, for new
                          tables "stable"
    enable_v2_manifest_paths  False names the manifests of a new table in the old way
    enable_stable_row_ids     of a new table
    auto_cleanup_options  {"interval": n, "older_than_seconds": s}: clean up at every n-th version
    skip_auto_cleanup     no cleanup follows this write, whatever the table's configuration says
    commit_message, transaction_properties  stored with the transaction
    initial_bases         `DatasetBasePath`s that a new table declares: folders that its files may lie below, also in
                          other stores
    target_bases          names or paths of base paths that data files go to, in turn; None for the table's own folder
    target_all_bases      to the table's own folder and all base paths in turn
    base_store_params     storage options of base paths, by their path, instead of `storage_options`
    allow_external_blob_outside_bases  store blobs that are URIs as they are; otherwise they are refused
    durability            of files on the local disk. "full" (the default) flushes everything that the new version
                          needs before it is visible, and its name before this returns: no loss of power takes it back
                          or damages it. "none" flushes nothing: a process may end at any point, but a machine that
                          fails may take this version and all later ones with it. None is what the storage option
                          `durability` says
    filesystem            of fsspec or pyarrow, or a store of obstore's, on which `uri` is a path
    storage_options_provider  has a method `fetch_storage_options()`, as for `dataset`
    group_commit          of appends only: those of this process that wait for the table at the same time become one
                          version, with one data file for rows of one schema. Each caller gets the version that holds
                          its rows, all of them or none, whatever happens to those of others
    encodings             an `Encoding` by column or member of a new schema: `{"x": Encoding(compression="zstd")}`. It
                          becomes metadata of the field, so that appends and compactions keep to it
    max_rows_per_group    rows of a batch in files of version 0.1
    allow_null_loss       such files hold no nulls but those of strings: others are written as zeros, empty lists and
                          the like, and a `UserWarning` names their columns. False refuses them

    Raises `OSError` for a table that is there (create), for rows that do not fit the table and for conflicts with
    other writers, `ValueError` for keywords that make no sense.
    """
    return new_dataset(run_table_write(Write.of(locals()), data_obj, schema))
