"""`lance_io.dataset(...)`, which opens a table. Importing this module is cheap; the call loads the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta
    from os import PathLike

    from lance_io.dataset.lance_dataset import LanceDataset
    from lance_io.reads.version.session import Session

    Uri = str | PathLike[str]
    Ref = int | str | tuple[str | None, int | None]


def dataset(
    uri: Uri | None = None,
    version: Ref | None = None,
    asof: datetime | str | None = None,
    block_size: int | None = None,
    commit_lock: Any = None,
    index_cache_size: int | None = None,
    storage_options: Mapping[str, str] | None = None,
    default_scan_options: Mapping[str, Any] | None = None,
    metadata_cache_size_bytes: int | None = None,
    index_cache_size_bytes: int | None = None,
    read_params: Mapping[str, Any] | None = None,
    session: Session | None = None,
    namespace_client: Any = None,
    table_id: list[str] | None = None,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    timeout: float | timedelta | None = None,
    filesystem: Any = None,
    storage_options_provider: Any = None,
    memory_limit: int | None = None,
    max_decoded_bytes: int | None = None,
) -> LanceDataset:
    """Open a table.

    Args:
        uri: Local path, `file://`, `s3://`, `memory://` and other URIs.
        version: Number, tag, or `(branch, version)`; None for the newest. In a pair, a branch of None is "main", and a
            version of None is the newest.
        asof: Open the newest version committed at or before this time, as `versions()` shows it: a datetime, a pandas
            Timestamp or ISO text; local time if it has no zone. Applies to a branch with `version=(branch, None)`;
            ignored with any other version.
        block_size: Bytes. Ranges of a take share a read if the gap between them is smaller.
        commit_lock: Callable that returns a context manager for a version number, entered around each commit.
        index_cache_size: Accepted and deprecated; it has no effect.
        storage_options: Credentials and settings of the store; names in any case.
        default_scan_options: Defaults of scan keywords for scans of the dataset. Counts, takes, samples and scans of
            single fragments ignore them.
        metadata_cache_size_bytes: Maximum bytes of the cache of metadata and page indexes; 256 MiB by default.
        index_cache_size_bytes: Bound of the memory for indices, as for `Session`.
        read_params: `{"validate_on_decode": True}` raises `FormatError` for values that their type does not allow (text
            that is not UTF-8, decimals of too many digits, times beyond the end of the day). Other entries, such as
            `cache_repetition_index`, are accepted without effect: they save nothing in a bounded cache.
        session: Session that shares caches and stores with other datasets.
        namespace_client: Must be None; this release has no namespaces.
        table_id: Must be None; this release has no namespaces.
        base_store_params: Storage options by URI of a base path of the table; they replace `storage_options` there.
        timeout: Seconds, or a `timedelta`, that opening may take. Applies to opening only.
        filesystem: File system of fsspec or pyarrow, or store of obstore, on which `uri` is a path. It brings its own
            credentials.
        storage_options_provider: Object whose method `fetch_storage_options()` returns storage options; they override
            `storage_options`. With an entry `expires_at_millis`, it is called again before that time.
        memory_limit: Maximum bytes that a change of the table (`update`, merges, `optimize.compact_files`) holds in
            memory, for calls without a limit of their own; 512 MiB by default.
        max_decoded_bytes: Maximum bytes of one decoded value; larger values raise `ResourceLimitError`. None for the
            session's limit, or 2 GiB.

    Returns:
        The open version.

    Raises:
        ValueError: The table, version or tag does not exist, the scheme is unknown, or `uri` is missing.
        DeadlineExceeded: Opening takes longer than `timeout`.
        NotImplementedError: `namespace_client` or `table_id` is given.
    """
    from lance_io.dataset.lance_dataset import dataset_class
    from lance_io.store.provided_options import with_provider
    from lance_io.store.url import uri_on

    return dataset_class()(
        uri_on(filesystem, _uri(uri, namespace_client, table_id)),
        version,
        asof=asof,
        block_size=block_size,
        commit_lock=commit_lock,
        index_cache_size=index_cache_size,
        storage_options=with_provider(storage_options, storage_options_provider),
        default_scan_options=default_scan_options,
        metadata_cache_size_bytes=metadata_cache_size_bytes,
        index_cache_size_bytes=index_cache_size_bytes,
        read_params=read_params,
        session=session,
        base_store_params=base_store_params,
        timeout=timeout,
        memory_limit=memory_limit,
        max_decoded_bytes=max_decoded_bytes,
    )


def _uri(uri: Uri | None, namespace_client: Any, table_id: list[str] | None) -> Uri:
    from lance_io.errors import UnsupportedError, UsageError

    if namespace_client is not None or table_id is not None:
        raise UnsupportedError("namespaces are not part of this release; open the table by its uri")
    if uri is None:
        raise UsageError("uri must be given")
    return uri
