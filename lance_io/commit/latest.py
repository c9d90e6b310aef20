"""Which versions of a table are there, and where their manifests are (spec: table, section 3).

Each search is a plan (`plans/store_requests.py`); what a listing means is decided by plain functions over its entries.

How the newest version is found:

    ordered listing (S3, GCS, Azure)   V2 names count down, so the first V2 name of a short listing is the newest;
                                       a V1 name in front of it means that all must be listed
    local disk, memory                 the whole folder
    other stores without order         the hint file names a version that was the newest once; probe the next ones
                                       until one is missing. Whenever the hint is of no use, list the whole folder
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, cast

from lance_io.errors import FormatError, NotFound
from lance_io.plans.store_requests import Head, List, Read
from lance_io.records import dataclass
from lance_io.store.api import DIRECTLY_BELOW, NAMES_DIRECTLY_BELOW, Selection, offers_sync_reads
from lance_io.table.manifest.paths import (
    HINT_NAME,
    VERSIONS,
    ManifestName,
    NamingScheme,
    join,
    manifest_name,
    manifest_names,
    parse_manifest_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_io.plans.plan import Plan
    from lance_io.store.api import Buffer, ObjectMeta, ObjectStore

_FIRST_NAMES: Final = 16  # of an ordered listing: room for temporary files, whose names sort before digits
_FIRST_FILES: Final = 2  # the same where each file is looked at
_PROBES_MAX: Final = 1000  # versions behind the hint that are worth a request each rather than a listing


@dataclass(frozen=True, slots=True)
class VersionFile:
    """The manifest file of one version.

    version     number of the version, by the file's name
    scheme      how the file is named
    key         its key in the store
    size_bytes  its length
    etag        opaque version of its content, where the store has one
    """

    version: int
    scheme: NamingScheme
    key: str
    size_bytes: int
    etag: str | None = None


def find_latest(store: ObjectStore, root: str) -> Plan[VersionFile]:
    """The newest version of the table in the folder `root`.

    Raises `NotFound` when there is none, `FormatError` when files of both naming schemes lie there.
    """
    if not store.capabilities.ordered_list and not offers_sync_reads(store):
        newest = yield from _by_hint(store, root)
        if newest is not None:
            return newest
    listed = _nonempty((yield from _newest_first(store, root, None, describe=True)), root)
    described = yield from _describe_files(store, listed[-1:])
    return (described or (yield from list_versions(store, root)))[-1]


def list_versions(store: ObjectStore, root: str) -> Plan[list[VersionFile]]:
    """All versions of the table in `root` that are not detached, oldest first; one request.

    Raises as `find_latest` does.
    """
    listed = yield List(store, versions_prefix(root), DIRECTLY_BELOW)
    return _nonempty(sorted_versions(listed), root)


def list_after(store: ObjectStore, root: str, version: int) -> Plan[list[VersionFile]]:
    """The attached versions above `version`, oldest first, and the newest one in any case; empty without a table.

    On ordered stores one short listing, when few versions came since. Raises `FormatError` as `find_latest` does.
    """
    found = _above((yield from _newest_first(store, root, version, describe=False)), version)
    described = yield from _describe_files(store, found)
    if described is not None:
        return described
    return _above(sorted_versions((yield List(store, versions_prefix(root), DIRECTLY_BELOW))), version)


def _above(versions: list[VersionFile], version: int) -> list[VersionFile]:
    newer = [each for each in versions if each.version > version]
    return newer or versions[-1:]


def _newest_first(store: ObjectStore, root: str, after: int | None, *, describe: bool) -> Plan[list[VersionFile]]:
    """Versions up to the newest, oldest first: that one at least, with `after` also all above it; none without a table.

    describe  let the first listing say how long the files are, where it would have to look at each. It is short then:
              that saves the request for the newest one, but looks at others in vain
    """
    if store.capabilities.ordered_list:
        limit = _FIRST_FILES if describe and not store.capabilities.described_list else _FIRST_NAMES
        prefix = versions_prefix(root)
        # No folders are there as a rule: where all are told alike, the answer is shorter than one that sums them up.
        delimiter = None if store.capabilities.described_list else "/"
        asked = Selection(limit=limit, delimiter=delimiter, keys_only=not describe, plain_names=True)
        listed = yield List(store, prefix, asked)
        first = [meta for meta in listed if "/" not in meta.key[len(prefix) :]]
        found = newest_of_ordered(first, after)
        if found is not None:
            return found
        if len(listed) < limit:
            return sorted_versions(first)
    return sorted_versions((yield List(store, versions_prefix(root), NAMES_DIRECTLY_BELOW)))


def _describe_files(store: ObjectStore, files: list[VersionFile]) -> Plan[list[VersionFile] | None]:
    """The versions with their sizes and etags; None when one of them is not there (any more)."""
    if store.capabilities.described_list or all(file.size_bytes for file in files):
        return files
    described = []
    for file in files:
        meta = yield from _head(store, file.key)
        if meta is None:
            return None
        described.append(version_file(meta, ManifestName(file.scheme, file.version)))
    return described


def _nonempty(versions: list[VersionFile], root: str) -> list[VersionFile]:
    if not versions:
        raise NotFound(f"Dataset at path {root} was not found: it has no versions", path=root)
    return versions


def find_version(store: ObjectStore, root: str, version: int) -> Plan[VersionFile]:
    """The manifest file of one version, detached ones included; one or two requests.

    Raises `NotFound`.
    """
    for name in manifest_names(version):
        key = join(root, VERSIONS, name)
        meta = yield from _head(store, key)
        if meta is not None:
            return version_file(meta, cast("ManifestName", parse_manifest_name(name)))
    path = join(root, VERSIONS, manifest_names(version)[-1])
    raise NotFound(f"Dataset version {version} was not found: {path}", path=root)


def _by_hint(store: ObjectStore, root: str) -> Plan[VersionFile | None]:
    """The newest version by way of the hint file, None when the hint leads nowhere."""
    try:
        hint = decode_hint((yield Read(store, join(root, VERSIONS, HINT_NAME))))
        if hint is None:
            return None
        newest = yield from find_version(store, root, hint)
    except NotFound:
        return None
    for version in range(hint + 1, hint + 1 + _PROBES_MAX):
        name = ManifestName(newest.scheme, version)
        meta = yield from _head(store, join(root, VERSIONS, manifest_name(version, newest.scheme)))
        if meta is None:
            return newest
        newest = version_file(meta, name)
    return None


def _head(store: ObjectStore, key: str) -> Plan[ObjectMeta | None]:
    """What the store knows about an object, None when it is not there."""
    try:
        meta: ObjectMeta = yield Head(store, key)
    except NotFound:
        return None
    return meta


def versions_prefix(root: str) -> str:
    """Prefix of the keys of all manifests of the table in `root`."""
    return join(root, VERSIONS, "")


def decode_hint(data: Buffer) -> int | None:
    """The version in a hint file, None for anything that does not name a possible one: it is only a hint."""
    try:
        content = json.loads(bytes(data))
    except (ValueError, RecursionError):
        return None
    version = content.get("version") if isinstance(content, dict) else None
    return version if isinstance(version, int) and 0 < version < 1 << 63 else None


def newest_of_ordered(first: Iterable[ObjectMeta], after: int | None = None) -> list[VersionFile] | None:
    """The newest version, or with `after` also all others above that, given the first entries of an ordered listing.

    Oldest first. None when the entries do not tell.
    """
    found: list[VersionFile] = []
    for meta in first:
        name = _parse_attached(meta)
        if name is not None and name.scheme != "V2":
            return None
        if name is not None:
            found.append(version_file(meta, name))
            if after is None or name.version <= after + 1:
                return found[::-1]
    return None


def sorted_versions(entries: Iterable[ObjectMeta]) -> list[VersionFile]:
    """The attached versions among all entries of a `_versions` folder, oldest first.

    Raises `FormatError` when two naming schemes are mixed.
    """
    found = [version_file(meta, name) for meta in entries if (name := _parse_attached(meta)) is not None]
    if len({each.scheme for each in found}) > 1:
        raise FormatError(
            "Found multiple manifest naming schemes in the same directory: some manifests are named by version, some "
            "newest first. Use migrate_manifest_paths_v2 to rename them"
        )
    return sorted(found, key=lambda each: each.version)


def _parse_attached(meta: ObjectMeta) -> ManifestName | None:
    name = None if meta.is_folder else parse_manifest_name(meta.name)
    return None if name is None or name.scheme == "detached" else name


def version_file(meta: ObjectMeta, name: ManifestName) -> VersionFile:
    """The entry of a listing as a version."""
    return VersionFile(name.version, name.scheme, meta.key, meta.size_bytes, meta.etag)
