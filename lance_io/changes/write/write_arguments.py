"""Checked keywords of writes and commits. Refuses, by name, keywords of pylance that this release does not support."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypedDict

from lance_io.changes.write.data_files import BYTES_PER_FILE, ROWS_PER_FILE, FileLimits
from lance_io.changes.write.target_bases import TargetBases
from lance_io.changes.write.write_rows import WriteOptions, WriteTarget
from lance_io.errors import UnsupportedError, UsageError
from lance_io.file.write.writers import version_for_tables
from lance_io.lazy_names import lazy_module
from lance_io.limits import ROWS_PER_BATCH
from lance_io.reads.properties import DatasetProperties
from lance_io.reads.version.object_keys import branch_uri
from lance_io.reads.version.session import Session
from lance_io.records import dataclass
from lance_io.store.provided_options import gather_provider
from lance_io.store.storage_options import options_of
from lance_io.store.url import uri_on
from lance_io.table.transaction.transaction import COMMIT_MESSAGE_KEY

if TYPE_CHECKING:
    from collections.abc import Container, Mapping
    from os import PathLike

    from lance_io.changes.write import column_encodings
    from lance_io.table.transaction import auto_cleanup

    Destination = str | PathLike[str] | DatasetProperties
else:
    column_encodings = lazy_module("lance_io.changes.write.column_encodings")
    auto_cleanup = lazy_module("lance_io.table.transaction.auto_cleanup")

# keywords of pylance that this release does not support, with the values that leave the feature off
_UNSUPPORTED: Final[dict[str, tuple[Any, ...]]] = {
    "external_blob_mode": ("reference",),
    "blob_pack_file_size_threshold": (None,),
    "namespace_client": (None,),
    "table_id": (None,),
    "namespace_client_managed_versioning": (False,),
}

# keywords of `write_dataset`, for functions that pass them on
TABLE_KEYWORDS: Final = frozenset(
    (
        *("max_rows_per_file", "max_rows_per_group", "max_bytes_per_file", "data_cache_bytes", "max_page_bytes"),
        "max_decoded_bytes",
        *("commit_lock", "progress", "storage_options", "data_storage_version", "use_legacy_format"),
        *("enable_v2_manifest_paths", "enable_stable_row_ids", "auto_cleanup_options"),
        *("commit_message", "transaction_properties", "initial_bases", "target_bases", "target_all_bases"),
        *("base_store_params", "external_blob_mode", "allow_external_blob_outside_bases", "allow_null_loss"),
        *("blob_pack_file_size_threshold", "namespace_client", "table_id", "session", "durability", "filesystem"),
        *("group_commit", "skip_auto_cleanup", "storage_options_provider", "encodings"),
    )
)
CLEANUP_INTERVAL: Final = 20  # versions
CLEANUP_AGE: Final = "14days"


class AutoCleanupConfig(TypedDict, total=False):
    """Schedule of automatic cleanups: every `interval`-th version removes versions older than `older_than_seconds`.

    Defaults: every 20th version removes versions older than two weeks. Versions younger than ten minutes stay unless
    `older_than_seconds` is 0. The newest version and the one before it always stay.
    """

    interval: int
    older_than_seconds: int


@dataclass(frozen=True)
class Write:
    """Destination and options of a write."""

    target: WriteTarget
    options: WriteOptions

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Write:
        """From the keywords of `write_dataset`; missing keywords have their defaults.

        Raises `UnsupportedError` for keywords that this release does not support, `UsageError` for invalid values.
        """
        check_supported(given)
        given = gather_provider(given)
        version = given.get("data_storage_version")
        if given.get("use_legacy_format") is not None:
            warnings.warn(
                "use_legacy_format is deprecated, use data_storage_version instead", DeprecationWarning, stacklevel=4
            )
            if version is None and given["use_legacy_format"]:
                version = "legacy"
        target = write_target(
            given["uri"] if given.get("filesystem") is None else uri_on(given["filesystem"], given["uri"]),
            given.get("storage_options"),
            given.get("session"),
            given.get("commit_lock"),
            given.get("base_store_params"),
        )
        bases = TargetBases.of(*(given.get(f"{name}_bases") for name in ("initial", "target", "target_all")))
        target = replace(target, writes_bases=bases.are_given)
        limits = FileLimits(
            rows=_get_given(given, "max_rows_per_file", ROWS_PER_FILE),
            num_bytes=_get_given(given, "max_bytes_per_file", BYTES_PER_FILE),
            page_bytes=given.get("max_page_bytes"),
            value_bytes_max=given.get("max_decoded_bytes"),
            cache_bytes=given.get("data_cache_bytes"),
            blob_references=bool(given.get("allow_external_blob_outside_bases")),
            group_rows=_get_given(given, "max_rows_per_group", ROWS_PER_BATCH),
            allow_null_loss=bool(_get_given(given, "allow_null_loss", True)),
        )
        mode = str(_get_given(given, "mode", "create")).lower()
        options = WriteOptions(
            mode=mode,
            version=None if version is None else version_for_tables(version),
            limits=limits,
            progress=given.get("progress"),
            scheme="V2" if _get_given(given, "enable_v2_manifest_paths", True) else "V1",
            stable_row_ids=given.get("enable_stable_row_ids", False),
            config=_cleanup_config(given.get("auto_cleanup_options")),
            properties=_properties(given.get("transaction_properties"), given.get("commit_message")),
            durability=given.get("durability"),
            group_commit=bool(given.get("group_commit")),
            bases=bases,
            skip_auto_cleanup=bool(given.get("skip_auto_cleanup")),
            encodings=column_encodings.check_encodings(given["encodings"], mode) if given.get("encodings") else {},
        )
        return cls(target, options)


def check_known(given: Mapping[str, Any], known: Container[str], function: str) -> None:
    """Raise `TypeError`, as Python does, for a keyword that the function `function` does not have."""
    unknown = [name for name in given if name not in known]
    if unknown:
        raise TypeError(f"{function}() got an unexpected keyword argument {min(unknown)!r}")


def check_supported(given: Mapping[str, Any]) -> None:
    """Raise `UnsupportedError` for keywords that use a feature which this release does not support."""
    for name, nothing in _UNSUPPORTED.items():
        if name in given and given[name] not in nothing:
            raise UnsupportedError(f"{name} is not part of this release")


def _get_given(keywords: Mapping[str, Any], name: str, default: Any) -> Any:
    value = keywords.get(name)
    return default if value is None else value


def _properties(properties: Mapping[str, str] | None, message: str | None) -> dict[str, str]:
    return {**(properties or {}), **({} if message is None else {COMMIT_MESSAGE_KEY: message})}


def _cleanup_config(options: AutoCleanupConfig | None) -> dict[str, str]:
    if options is None:
        return {}
    unknown = options.keys() - AutoCleanupConfig.__annotations__.keys()
    if unknown:
        raise UsageError(f"auto_cleanup_options: expected interval and older_than_seconds, found {sorted(options)}")
    for name, value in options.items():  # an unreadable config would silently stop all cleanups
        if value is not None and not (isinstance(value, int) and value >= 0):
            raise UsageError(f"auto_cleanup_options: expected a whole number for {name}, found {value!r}")
    seconds = options.get("older_than_seconds")
    return {
        auto_cleanup.INTERVAL_KEY: str(int(_get_given(options, "interval", CLEANUP_INTERVAL))),
        auto_cleanup.OLDER_THAN_KEY: CLEANUP_AGE if seconds is None else f"{int(seconds)}s",
    }


def write_target(
    uri: Destination | None,
    storage_options: Mapping[str, str] | None,
    session: Session | None = None,
    commit_lock: Any = None,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
) -> WriteTarget:
    """The destination of a write, from a URI or an open dataset.

    Raises `ValueError` if `uri` is None, `RuntimeError` for a closed `AsyncDataset`.
    """
    if uri is None:
        raise UsageError("Must specify 'uri': the location of the table")
    if isinstance(uri, DatasetProperties):
        state = uri._state
        state.check_open()
        lock = commit_lock or state.commit_lock
        return WriteTarget(
            location=state.location,
            root=state.root,
            session=state.session,
            handler=state.session.handler(state.location, lock),
            given_uri=branch_uri(state.given_uri, state.location, state.root),
            storage_options=state.storage_options,
            manifest=state.manifest,
            base_store_params=base_store_params or state.base_store_params,
        )
    is_own = session is None
    if session is None:
        session = Session()
    location = session.locate(uri, options_of(storage_options))
    if is_own:
        session.linger()
    handler = session.handler(location, commit_lock)
    target = WriteTarget(location, location, session, handler, str(uri), storage_options)
    return target if base_store_params is None else replace(target, base_store_params=base_store_params)
