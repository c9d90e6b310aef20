"""Which versions a table has, and their manifests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from lance_io.commit.latest import list_versions, missing_version, names_in_turn, read_named
from lance_io.commit.put_absent import PutAbsentHandler
from lance_io.commit.record import manifest_in_bytes, read_manifest
from lance_io.errors import LanceError, NotFound
from lance_io.plans.plan import Together
from lance_io.plans.store_requests import FindCopy
from lance_io.table.manifest.manifest import Manifest, decode_summary
from lance_io.table.manifest.paths import VERSIONS

if TYPE_CHECKING:
    from lance_io.commit.latest import VersionFile
    from lance_io.io.cache import SearchCache
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.session import Session
    from lance_io.store.api import Buffer
    from lance_io.store.url import Location

MANIFEST_OVERHEAD = 8  # a parsed manifest takes about so many times its size on disk
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def latest_version(location: Location, session: Session) -> Plan[int]:
    """Number of the newest version; one listing."""
    return (yield from session.handler(location).find_latest(location)).version


def latest_manifest(location: Location, session: Session) -> Plan[Manifest]:
    """The newest version's manifest: one listing, one read; beside that a listing of one key, if the first was cut.

    The read is saved when the store's version tag says that the cache holds this very object.
    """
    handler = session.handler(location)
    _, manifest = yield from handler.find_latest_and(location, lambda file: manifest_in(location, file, session.cache))
    return manifest


def manifest_in(location: Location, file: VersionFile, cache: SearchCache) -> Plan[Manifest]:
    """The manifest in a file, read unless the cache holds it."""
    key = ("manifest", location.store.identity, file.key, file.etag)
    manifest: Manifest | None = None if file.etag is None else cache.get(key)
    if manifest is None:
        if file.etag is not None:
            manifest = yield from _copied_manifest(location, file.key, file.version, file.etag)
        if manifest is None:
            manifest, _ = yield from read_manifest(location, file.key, file.version, is_kept=True)
        keep_manifest(location, file, manifest, cache)
    return manifest


def _copied_manifest(location: Location, key: str, version: int, etag: str | None) -> Plan[Manifest | None]:
    """The manifest in a file by a copy on disk, if there is one; see `KeepsCopies`."""
    data: Buffer | None = yield FindCopy(location.store, key, etag)
    if data is None:
        return None
    try:
        return manifest_in_bytes(data, key, version)
    except LanceError:  # it was damaged where it came from, and may be mended there
        return None


def keep_manifest(location: Location, file: VersionFile, manifest: Manifest, cache: SearchCache) -> None:
    """Put a manifest into the cache, if its file can be recognised."""
    if file.etag is not None:
        key = ("manifest", location.store.identity, file.key, file.etag)
        cache.put(key, manifest, MANIFEST_OVERHEAD * file.size_bytes)


def manifest_of(location: Location, version: int, session: Session) -> Plan[Manifest]:
    """The manifest of a version. Raises `NotFound` when there is none."""
    handler = session.handler(location)
    if not isinstance(handler, PutAbsentHandler):  # a database knows where it is
        file = yield from handler.find_version(location, version)
        return (yield from manifest_in(location, file, session.cache))
    for name in names_in_turn(version):
        key = location.key(VERSIONS, name)
        # A copy of an older name counts only where there is no newer one, which would be the version.
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
    """A sentence that says so of a version, and which is the oldest one left; None for one that is there or never was.

    Versions are numbered without gaps, and only a cleanup takes one away. One listing.
    """
    left = [file.version for file in (yield from list_versions(location.store, location.path))]
    if version < 1 or version in left or version > left[-1]:
        return None
    return f"version {version} of {location.uri} was removed by a cleanup; the oldest one left is {left[0]}"


def all_summaries(location: Location) -> Plan[list[tuple[int, datetime, dict[str, str]]]]:
    """`(version, commit time, totals)` of all versions, oldest first; reads every manifest."""
    files = yield from list_versions(location.store, location.path)
    found: list[Any] = yield Together([_summary(location, file.key) for file in files])
    return found


def _summary(location: Location, key: str) -> Plan[tuple[int, datetime, dict[str, str]]]:
    data = yield from read_named(location.store, key)
    try:
        version, timestamp_ns, totals = decode_summary(data)
    except LanceError as error:
        error.path = key
        raise
    return version, EPOCH + timedelta(microseconds=timestamp_ns // 1000), totals


def manifest_times(location: Location) -> Plan[dict[int, datetime]]:
    """Commit times by version; reads every manifest."""
    return {version: time for version, time, _ in (yield from all_summaries(location))}
