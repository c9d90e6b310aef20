"""Versions of a table, and their manifests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from lance_io.commit.latest import list_versions, missing_version, names_to_try
from lance_io.commit.manifest_reads import manifest_in_bytes, read_manifest
from lance_io.commit.put_absent import PutAbsentHandler
from lance_io.errors import LanceError, NotFound
from lance_io.lazy_names import lazy_module
from lance_io.plans.store_requests import FindCopy
from lance_io.table.manifest.manifest import Manifest, decode_summary, decode_time
from lance_io.table.manifest.paths import VERSIONS

if TYPE_CHECKING:
    from lance_io.commit.latest import VersionFile
    from lance_io.io.cache import SearchCache
    from lance_io.plans.plan import Plan
    from lance_io.reads.version import manifest_reads
    from lance_io.reads.version.session import Session
    from lance_io.store.api import Buffer
    from lance_io.store.url import Location
else:
    manifest_reads = lazy_module("lance_io.reads.version.manifest_reads")  # for lists of versions

MANIFEST_OVERHEAD = 8  # memory of a parsed manifest, relative to its file
TIME_BYTES: Final = 4096  # of the end of a manifest: its time, and entries after it, such as the table's configuration
TIME_ENTRY_BYTES: Final = 512  # of a cached time, with its key
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def latest_version(location: Location, session: Session) -> Plan[int]:
    """Number of the newest version; one listing."""
    return (yield from session.handler(location).find_latest(location)).version


def latest_manifest(location: Location, session: Session) -> Plan[Manifest]:
    """The newest version's manifest: one listing, one read; also a listing of one key, if the first was truncated.

    If the store's version tag matches the cached manifest, the read is saved.
    """
    handler = session.handler(location)
    _, manifest = yield from handler.find_latest_and(location, lambda file: manifest_in(location, file, session.cache))
    return manifest


def manifest_in(location: Location, file: VersionFile, cache: SearchCache) -> Plan[Manifest]:
    """The manifest in a file, from the cache or the store."""
    key = ("manifest", location.store.identity, file.key, file.etag)
    manifest: Manifest | None = None if file.etag is None else cache.get(key)
    if manifest is None:
        if file.etag is not None:
            manifest = yield from _copied_manifest(location, file.key, file.version, file.etag)
        if manifest is None:
            manifest, _ = yield from read_manifest(location, file.key, file.version, is_kept=True)
        cache_manifest(location, file, manifest, cache)
    return manifest


def _copied_manifest(location: Location, key: str, version: int, etag: str | None) -> Plan[Manifest | None]:
    """The manifest in a file from a copy on disk, if there is one; see `KeepsCopies`."""
    data: Buffer | None = yield FindCopy(location.store, key, etag)
    if data is None:
        return None
    try:
        return manifest_in_bytes(data, key, version)
    except LanceError:  # the copy is damaged; the original may be whole
        return None


def cache_manifest(location: Location, file: VersionFile, manifest: Manifest, cache: SearchCache) -> None:
    """Put a manifest into the cache, if its file has an etag."""
    if file.etag is not None:
        key = ("manifest", location.store.identity, file.key, file.etag)
        cache.put(key, manifest, MANIFEST_OVERHEAD * file.size_bytes)


def manifest_of(location: Location, version: int, session: Session) -> Plan[Manifest]:
    """The manifest of a version. Raises `NotFound` if it does not exist."""
    handler = session.handler(location)
    if not isinstance(handler, PutAbsentHandler):  # a database knows the key
        file = yield from handler.find_version(location, version)
        return (yield from manifest_in(location, file, session.cache))
    for name in names_to_try(version):
        key = location.key(VERSIONS, name)
        # A copy under the older name counts only if no object has the newer name.
        manifest = yield from _copied_manifest(location, key, version, None)
        if manifest is not None:
            return manifest
        try:
            manifest, _ = yield from read_manifest(location, key, version, is_kept=True)
        except NotFound:
            continue
        return manifest
    raise NotFound(missing_version(location.uri, version), path=location.uri)


def removed_by_cleanup(location: Location, version: int) -> Plan[str | None]:
    """A sentence for a version that a cleanup removed, with the oldest version left. None for any other number.

    Versions are numbered without gaps, and only a cleanup removes one. One listing.
    """
    left = [file.version for file in (yield from list_versions(location.store, location.path))]
    if version < 1 or version in left or version > left[-1]:
        return None
    return f"version {version} of {location.uri} was removed by a cleanup; the oldest one left is {left[0]}"


def all_summaries(location: Location, session: Session) -> Plan[list[tuple[int, datetime, dict[str, str]]]]:
    """`(version, commit time, totals)` of all versions, oldest first; reads every manifest, concurrently."""
    files = yield from list_versions(location.store, location.path)
    summaries: list[tuple[int, int, dict[str, str]]] = yield from manifest_reads.read_each(
        location, session, files, decode_summary
    )
    return [(version, time_of(timestamp_ns), totals) for version, timestamp_ns, totals in summaries]


def manifest_times(location: Location, session: Session) -> Plan[dict[int, datetime]]:
    """Commit times by version; reads the ends of all manifests, concurrently.

    A session reads each version once. If times increased with versions, bisection would suffice; but each writer has
    its own clock, and nothing in a table guarantees that these agree.
    """
    files = yield from list_versions(location.store, location.path)
    cached = {file.version: session.cache.get(_time_key(location, file)) for file in files}
    unknown = [file for file in files if cached[file.version] is None]
    times: dict[int, int] = {version: known for version, known in cached.items() if known is not None}
    read: list[int] = yield from manifest_reads.read_each(location, session, unknown, decode_time, TIME_BYTES)
    for file, timestamp_ns in zip(unknown, read, strict=True):
        times[file.version] = timestamp_ns
        if file.etag is not None:
            session.cache.put(_time_key(location, file), timestamp_ns, TIME_ENTRY_BYTES)
    return {file.version: time_of(times[file.version]) for file in files}


def _time_key(location: Location, file: VersionFile) -> tuple[str, str, str, str | None]:
    return ("manifest time", location.store.identity, file.key, file.etag)


def time_of(timestamp_ns: int) -> datetime:
    """The time of a commit in UTC, cut to microseconds."""
    return EPOCH + timedelta(microseconds=timestamp_ns // 1000)
