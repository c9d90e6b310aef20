"""Opening a table version: newest, by number, tag, branch or time.

    newest      LIST of `_versions/`, GET of the manifest: two requests, one after the other
    number      GET of the manifest under its V2 name, then under its V1 name
    tag         GET of the tag, then as a number on the tag's branch
    time        LIST, the ends of all manifests in one round (their timestamps are inside), GET of the manifest

All functions are plans; the caller picks the driver.
"""

from __future__ import annotations

import warnings
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from lance_io.errors import FormatError, LanceError, NotFound, StoreError, UsageError
from lance_io.io import trace_events
from lance_io.lazy_names import lazy_module
from lance_io.plans.store_requests import Read
from lance_io.reads.version.object_keys import branch_location, table_root
from lance_io.reads.version.row_counts import with_row_counts
from lance_io.reads.version.session import Session, check_decoded_bytes, check_size
from lance_io.reads.version.state import DatasetState
from lance_io.reads.version.timestamps import latest_at, local_time, moment
from lance_io.reads.version.versions import latest_manifest, latest_version, manifest_of, manifest_times
from lance_io.records import dataclass
from lance_io.store.storage_options import options_of
from lance_io.table.manifest.manifest import VERSION_MAX, Manifest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from os import PathLike

    from lance_io.plans.plan import Plan
    from lance_io.reads import memory_limit as limits
    from lance_io.reads.scan import scan_options
    from lance_io.store.url import Location
    from lance_io.table.manifest import refs
    from lance_io.table.manifest.refs import Tag

    Uri = str | PathLike[str]
else:
    limits = lazy_module("lance_io.reads.memory_limit")
    refs = lazy_module("lance_io.table.manifest.refs")
    scan_options = lazy_module("lance_io.reads.scan.scan_options")

Ref: TypeAlias = "int | str | tuple[str | None, int | None] | None"


@dataclass(frozen=True)
class OpenOptions:
    """The version to open, and options.

    location  the table's folder
    given_uri the URI as given
    version   number, tag, `(branch, version)` or None for the newest
    asof      the newest version committed at or before this time
    memory_limit  bytes that changes may hold; None for the default
    max_decoded_bytes  maximum bytes of a decoded value; None for the session's limit
    """

    location: Location
    given_uri: str
    version: Ref
    asof: datetime | None
    session: Session
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    default_scan_options: Mapping[str, Any] | None = None
    read_params: Mapping[str, Any] | None = None
    base_store_params: Mapping[str, Mapping[str, str]] | None = field(default=None, repr=False)
    commit_lock: Any = None
    memory_limit: int | None = None
    max_decoded_bytes: int | None = None


def open_options(
    uri: Uri,
    version: Ref = None,
    *,
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
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    metadata_cache_size: int | None = None,
    memory_limit: int | None = None,
    max_decoded_bytes: int | None = None,
) -> OpenOptions:
    """Check the keywords of `dataset` and `LanceDataset`. Cache sizes in entries are accepted and ignored."""
    if index_cache_size is not None:
        warnings.warn(
            "The 'index_cache_size' parameter is deprecated. Use 'index_cache_size_bytes' instead.",
            DeprecationWarning,
            stacklevel=3,
        )
    check_size("metadata_cache_size", metadata_cache_size, 0)
    if default_scan_options:
        scan_options.scan_options(**default_scan_options)
    if memory_limit is not None:
        limits.check_memory_limit(memory_limit)
    check_decoded_bytes(max_decoded_bytes)
    check_size("index_cache_size", index_cache_size, 0)
    check_size("index_cache_size_bytes", index_cache_size_bytes, 0)
    check_size("metadata_cache_size_bytes", metadata_cache_size_bytes, 0)
    is_own = session is None
    if session is None:
        session = Session(index_cache_size_bytes, metadata_cache_size_bytes)
    settings = options_of(storage_options)
    if block_size is not None:
        settings["block_size"] = str(block_size)
    location = session.locate(uri, settings)
    if is_own:
        session.linger()
    return OpenOptions(
        location=location,
        given_uri=str(uri),
        version=version,
        asof=None if asof is None else moment(asof),
        session=session,
        storage_options=storage_options,
        default_scan_options=default_scan_options,
        read_params=read_params,
        base_store_params=base_store_params,
        commit_lock=commit_lock,
        memory_limit=memory_limit,
        max_decoded_bytes=max_decoded_bytes,
    )


class VersionNotFound(NotFound, StoreError):
    """A version, tag or branch that the table does not have."""


class WrongReference(UsageError, OSError, TypeError):
    """A value that cannot name a version: no number, tag or pair of branch and number."""


def open_steps(options: OpenOptions) -> Plan[DatasetState]:
    """Open a table. Raises `ValueError` if the table, version or tag does not exist."""
    root = options.location
    try:
        location, manifest = yield from _resolve(root, root, options.version, options.session, options.asof)
    except LanceError:
        if trace_events.listeners:
            trace_events.emit_loading(root.uri, options.version, None)
        raise
    if trace_events.listeners:
        trace_events.emit_loading(root.uri, options.version, manifest.version)
    if location is root:
        root = table_root(root, manifest.branch)
    state = DatasetState(
        location=location,
        root=root,
        manifest=manifest,
        session=options.session,
        given_uri=options.given_uri,
        storage_options=options.storage_options,
        default_scan_options=options.default_scan_options,
        read_params=options.read_params,
        base_store_params=options.base_store_params,
        commit_lock=options.commit_lock,
        memory_limit=options.memory_limit,
        max_decoded_bytes=options.max_decoded_bytes,
    )
    return (yield from with_row_counts(state))


def check_out(state: DatasetState, ref: Ref) -> Plan[DatasetState]:
    """Another version of the same table; None is the newest of the open branch.

    Raises `OSError` (and `ValueError`) if it does not exist.
    """
    try:
        location, manifest = yield from _resolve(state.root, state.location, ref, state.session)
    except NotFound as error:
        raise VersionNotFound(error.message, path=error.path).copy_request_info(error) from error
    if manifest.version == state.manifest.version and location == state.location and ref is None:
        return state
    return (yield from with_row_counts(replace(state, location=location, manifest=manifest)))


def latest_of(state: DatasetState) -> Plan[int]:
    """Number of the newest version of the open branch."""
    return (yield from latest_version(state.location, state.session))


def _resolve(
    root: Location, current: Location, ref: Ref, session: Session, asof: datetime | None = None
) -> Plan[tuple[Location, Manifest]]:
    """Folder and manifest of the version that `ref` names; a bare number refers to the branch in `current`.

    asof  the newest version committed at or before this time
    """
    if isinstance(ref, str):
        tag = yield from tag_of(root, ref)
        ref = (tag.branch, tag.version)
    if isinstance(ref, tuple):
        if len(ref) != 2 or not isinstance(ref[0], (str, type(None))):
            raise WrongReference(f"expected (branch, version), with the name of a branch or None first, found {ref!r}")
        branch, version = ref
        current = branch_location(root, branch)
    else:
        version = ref
    if version is None and asof is not None:
        version = latest_at((yield from manifest_times(current, session)), asof)
        if version is None:
            raise UsageError(f"{local_time(asof)} is earlier than the first version of this dataset")
    if version is None:
        return current, (yield from latest_manifest(current, session))
    return current, (yield from manifest_of(current, check_number(version), session))


def check_number(version: Any) -> int:
    """Check a version number. Raises `WrongReference` for other values, `OverflowError` for numbers out of range."""
    if isinstance(version, bool) or not hasattr(version, "__index__"):
        raise WrongReference(
            f"version must be an integer or a string. Found {version!r} of type {type(version).__name__}; "
            "give a number, a tag, or (branch, number)"
        )
    number = version.__index__()
    if not 0 <= number <= VERSION_MAX:
        raise OverflowError(f"version {number} does not fit 64 bits, unsigned")
    return int(number)


def tag_of(root: Location, tag: str) -> Plan[Tag]:
    """Read a tag. Raises `NotFound` if it does not exist."""
    try:
        data = yield Read(root.store, root.key(refs.tag_path(tag)))
    except (NotFound, UsageError) as error:
        raise NotFound(f"Ref not found error: tag {tag} does not exist in {root.uri}", path=root.uri) from error
    try:
        return refs.decode_tag(data, tag)
    except FormatError as error:
        error.path = root.key(refs.tag_path(tag))
        raise
