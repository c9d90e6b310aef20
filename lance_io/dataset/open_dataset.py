"""`lance_io.dataset(...)`: the function that opens a table. Light to import; the rest is loaded by the call."""

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

    uri                   local path, `file://`, `s3://`, `memory://` ...
    version               number, tag, or `(branch, version)` where None is "main" and "newest"; None for the newest
    asof                  newest version that was committed at or before this time, as `versions()` shows it: a
                          datetime, a pandas Timestamp or ISO text, local time unless it has a zone. Of a branch
                          with `version=(branch, None)`; ignored with any other version
    block_size            bytes; ranges of a take closer than this share a read
    storage_options       credentials and settings of the store, names in any case
    default_scan_options  scan keywords for scans of the dataset that leave them open; counts, takes, samples
                          and scans of single fragments do not heed them
    metadata_cache_size_bytes  bound of the search cache (256 MiB)
    session               share caches and stores with other datasets
    base_store_params     storage options for base paths of the table, by their URI, instead of `storage_options`
    commit_lock           callable that makes a context manager for a version number, entered around every commit
    read_params           {"validate_on_decode": True} refuses values that their type has not (text that is no UTF-8,
                          decimals of too many digits, times behind the end of the day) with `FormatError`; other
                          entries are accepted: `cache_repetition_index` saves nothing in a cache that is bounded
    index_cache_size, index_cache_size_bytes  accepted; they matter to indices
    timeout               seconds, or a `timedelta`, that opening may take; then `DeadlineExceeded`. For opening only

    filesystem            of fsspec or pyarrow, or a store of obstore's: `uri` is a path on it, and what it takes to
                          reach it is part of it
    storage_options_provider  has a method `fetch_storage_options()` that gives storage options, which stand before
                          `storage_options`; with `expires_at_millis` among them it is asked again ahead of that
    memory_limit          bytes that a change of the table may hold where its call does not say: `update`, merges,
                          `optimize.compact_files`; 512 MiB unless said
    max_decoded_bytes     that one value may take once it is decoded; a larger one is refused with `ResourceLimitError`.
                          None for what the session says, or 2 GiB

    Raises `ValueError` for a table, version or tag that is not there, and for an unknown scheme.
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
