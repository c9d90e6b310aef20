"""Finds the versions of a table and their manifests (spec: table, section 3).

Each search is a plan (`plans/store_requests.py`); plain functions interpret the entries of listings.

How the newest version is found:

    ordered listing (S3, GCS, Azure,   V2 names count down, so the first V2 name of a short listing is the newest V2
    local disk, memory)                version. V1 names sort on both sides of V2 names: a V1 name in front requires a
                                       full listing; after a truncated listing one key shows whether any V1 names exist
    other stores without order         the hint file names a version that was the newest once; probe the next numbers
                                       until one is missing under both of its names. If the hint does not help, list
                                       the whole folder

That one key is the first one behind all V2 names. A V1 name *among* V2 names would belong to a version number more
than ten times that of the V2 names in front of it; version numbers have no such gaps. A local listing reads the whole
folder anyway and returns that key, too; other stores list it while the manifest is read.

A folder has names of both schemes while manifests are renamed, or after an interrupted renaming. If a number has both
names, its V2 name counts (`other_names.py`).
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from dataclasses import field
from typing import TYPE_CHECKING, Final, TypeVar, cast

from lance_io.errors import NotFound
from lance_io.plans.plan import Together
from lance_io.plans.store_requests import Head, List, Read
from lance_io.records import dataclass
from lance_io.store.api import DIRECTLY_BELOW, NAMES_DIRECTLY_BELOW, Selection
from lance_io.store.offers import offers_sync_reads
from lance_io.table.manifest.paths import (
    HINT_NAME,
    RENAMING,
    VERSIONS,
    ManifestName,
    NamingScheme,
    join,
    manifest_name,
    manifest_names,
    parse_manifest_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lance_io.plans.plan import Plan
    from lance_io.store.api import Buffer, ObjectMeta, ObjectStore

T = TypeVar("T")

_FIRST_NAMES: Final = 16  # of an ordered listing: room for temporary files, whose names sort before digits
_FIRST_FILES: Final = 2  # the same if the store looks at each file
_PROBES_MAX: Final = 1000  # versions newer than the hint to probe before a listing is cheaper
_TABLES_MAX: Final = 1024  # tables remembered as having V2 names only
_LAST_NEW_NAME: Final = manifest_name(0, "V2")  # no version has this name; all V2 names sort before it


@dataclass(frozen=True, slots=True)
class VersionFile:
    """The manifest file of one version.

    version     number of the version, by the file's name
    scheme      naming scheme of the file
    key         its key in the store
    size_bytes  its length
    etag        opaque version of its content, if the store has one
    is_mixed    whether its listing had names of both schemes, or V1 names and the note of a renaming
    """

    version: int
    scheme: NamingScheme
    key: str
    size_bytes: int
    etag: str | None = None
    is_mixed: bool = field(default=False, compare=False)


class _TablesWithNewNames:
    """Tables that had only V2 names when this process last listed them.

    Their manifests need no renaming, and current libraries create no V1 names there, except through a handle opened
    before the renaming. So a commit need not look for V1 names each time; opening a table does.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: OrderedDict[tuple[str, str], None] = OrderedDict()

    def note(self, store: ObjectStore, root: str, *, is_only: bool) -> None:
        """Remember whether a table has only V2 names."""
        key = store.identity, root
        with self._lock:
            self._tables.pop(key, None)
            if is_only:
                self._tables[key] = None
                if len(self._tables) > _TABLES_MAX:
                    self._tables.popitem(last=False)

    def has(self, store: ObjectStore, root: str) -> bool:
        """Whether a table had only V2 names when it was last listed."""
        return (store.identity, root) in self._tables


_ONLY_NEW: Final = _TablesWithNewNames()


@dataclass(frozen=True, slots=True)
class _Newest:
    """The first versions of a listing.

    versions  up to the newest, oldest first
    is_sure   whether no V1 names can exist that it does not show
    """

    versions: list[VersionFile]
    is_sure: bool = True


def find_latest(store: ObjectStore, root: str) -> Plan[VersionFile]:
    """The newest version of the table in the folder `root`.

    Raises `NotFound` if there is none.
    """
    newest, _ = yield from find_latest_and(store, root, _nothing)
    return newest


def _nothing(_: VersionFile) -> Plan[None]:
    yield from ()


def find_latest_and(
    store: ObjectStore, root: str, use: Callable[[VersionFile], Plan[T]]
) -> Plan[tuple[VersionFile, T]]:
    """The newest version of the table in the folder `root`, and the result of `use`.

    use  the next step with the version, such as reading it. If a short listing cannot exclude V1 names, they are looked
         for concurrently with this step; it runs a second time if that shows a newer version

    Raises `NotFound` if there is none, and the errors of `use`.
    """
    is_sure, described = True, None
    if not store.capabilities.ordered_list and not offers_sync_reads(store):
        hinted = yield from _by_hint(store, root)
        described = None if hinted is None else [hinted]
    if described is None:
        listed = yield from _newest_first(store, root, None, describe=True)
        described = yield from _describe_files(store, _nonempty(listed.versions, root)[-1:])
        is_sure = listed.is_sure
    if described is not None:
        try:
            if is_sure:
                return described[-1], (yield from use(described[-1]))
            used, is_only = yield Together([use(described[-1]), _has_only_new(store, root)])
            if is_only:
                return described[-1], used
        except NotFound:
            pass  # newer versions exist, and a cleanup removed this one; or the table is gone
    newest = (yield from list_versions(store, root))[-1]
    return newest, (yield from use(newest))


def list_versions(store: ObjectStore, root: str) -> Plan[list[VersionFile]]:
    """All versions of the table in `root` that are not detached, oldest first; one request.

    Raises as `find_latest` does.
    """
    return _nonempty((yield from _list_all(store, root, DIRECTLY_BELOW)), root)


def _list_all(store: ObjectStore, root: str, selection: Selection) -> Plan[list[VersionFile]]:
    versions = sorted_versions((yield List(store, versions_prefix(root), selection)))
    _note_names(store, root, versions)
    return versions


def _note_names(store: ObjectStore, root: str, versions: list[VersionFile]) -> None:
    """Remember the naming scheme of a fully listed table."""
    is_only = bool(versions) and all(file.scheme == "V2" and not file.is_mixed for file in versions)
    _ONLY_NEW.note(store, root, is_only=is_only)


def list_after(store: ObjectStore, root: str, version: int) -> Plan[list[VersionFile]]:
    """The attached versions above `version`, oldest first, and the newest in any case; empty if there is no table.

    On ordered stores one short listing, if few versions are newer.
    """
    newest = yield from _newest_first(store, root, version, describe=False)
    is_sure = newest.is_sure or (_ONLY_NEW.has(store, root) and newest.versions[-1].version >= version)
    is_sure = is_sure or (yield from _has_only_new(store, root))
    if is_sure:
        described = yield from _describe_files(store, _above(newest.versions, version))
        if described is not None:
            return described
    return _above((yield from _list_all(store, root, DIRECTLY_BELOW)), version)


def _above(versions: list[VersionFile], version: int) -> list[VersionFile]:
    newer = [each for each in versions if each.version > version]
    return newer or versions[-1:]


def _newest_first(store: ObjectStore, root: str, after: int | None, *, describe: bool) -> Plan[_Newest]:
    """Versions up to the newest: at least that one, with `after` also all above `after`; empty if there is no table.

    describe  let the first listing return file sizes even if the store has to look at each file. That saves a request
              for the newest one, but looks at other files in vain, so the listing is shorter
    """
    able = store.capabilities
    if able.ordered_list:
        limit = _FIRST_FILES if describe and not able.described_list else _FIRST_NAMES
        prefix = versions_prefix(root)
        # There are rarely folders: if the store describes all entries, a listing without delimiter is shorter.
        delimiter = None if able.described_list else "/"
        behind = prefix + _LAST_NEW_NAME if able.reads_whole_folders else None
        selection = Selection(None, limit, delimiter, keys_only=not describe, plain_names=True, also_behind=behind)
        listed: list[ObjectMeta] = yield List(store, prefix, selection)
        begin = len(prefix)
        first = [meta for meta in listed[:limit] if "/" not in meta.key[begin:]]
        if len(listed) < limit:
            versions = newest_of_ordered(first, after) or sorted_versions(first)
            _note_names(store, root, versions)
            return _Newest(versions)
        newest = newest_of_ordered(first, after)
        if newest is not None and not able.reads_whole_folders:
            return _Newest(newest, is_sure=False)
        if newest is not None and not any(_may_be_old(meta, prefix) for meta in listed[limit:]):
            return _Newest(newest)
    return _Newest((yield from _list_all(store, root, NAMES_DIRECTLY_BELOW)))


def _has_only_new(store: ObjectStore, root: str) -> Plan[bool]:
    """Whether an ordered store has no V1 name behind all V2 names; lists one key."""
    prefix = versions_prefix(root)
    selection = Selection(start_after=prefix + _LAST_NEW_NAME, limit=1, keys_only=True, plain_names=True)
    behind: list[ObjectMeta] = yield List(store, prefix, selection)
    is_only = not any(_may_be_old(meta, prefix) for meta in behind)
    _ONLY_NEW.note(store, root, is_only=is_only)
    return is_only


def _may_be_old(meta: ObjectMeta, prefix: str) -> bool:
    """Whether a key is a V1 name, or V1 names may follow it: they start with a digit."""
    return meta.key[len(prefix) :][:1] <= "9"


def _describe_files(store: ObjectStore, files: list[VersionFile]) -> Plan[list[VersionFile] | None]:
    """The versions with their sizes and etags; None if one of them does not exist (any more)."""
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
    """The manifest file of one version, detached ones included; one to three requests.

    Raises `NotFound`.
    """
    for name in names_to_try(version):
        key = join(root, VERSIONS, name)
        meta = yield from _head(store, key)
        if meta is not None:
            return version_file(meta, cast("ManifestName", parse_manifest_name(name)))
    raise NotFound(missing_version(root, version), path=root)


def missing_version(root: str, version: int) -> str:
    """The error text for a version that a table does not have, in pylance's wording.

    root  folder of the table, a key or a URI; anything after a `?` is ignored
    """
    path = join(root.partition("?")[0], VERSIONS, manifest_names(version)[-1])
    return f"Dataset at path {path} was not found: Not found: {path}. Dataset version {version} was not found"


def _by_hint(store: ObjectStore, root: str) -> Plan[VersionFile | None]:
    """The newest version by the hint file, None if the hint does not help."""
    try:
        hint = decode_hint((yield Read(store, join(root, VERSIONS, HINT_NAME))))
        if hint is None:
            return None
        newest = yield from find_version(store, root, hint)
    except NotFound:
        return None
    for version in range(hint + 1, hint + 1 + _PROBES_MAX):
        heads = [_head(store, join(root, VERSIONS, name)) for name in manifest_names(version)]
        metas: list[ObjectMeta | None] = yield Together(heads)
        existing = [meta for meta in metas if meta is not None]
        if not existing:
            return newest
        newest = version_file(existing[0], cast("ManifestName", parse_manifest_name(existing[0].name)))
    return None


def names_to_try(version: int) -> tuple[str, ...]:
    """The names under which to look for a manifest, in this order.

    The V2 name comes again after the V1 name: the file may be renamed in between.
    """
    names = manifest_names(version)
    return (*names, names[0]) if len(names) > 1 else names


def read_named(store: ObjectStore, key: str, request: type[Read] = Read) -> Plan[Buffer]:
    """A manifest file; by its V2 name if its V1 name is gone since the listing. Raises `NotFound`."""
    try:
        return (yield request(store, key))
    except NotFound:
        newer = newer_key(key)
        if newer is None:
            raise
    return (yield request(store, newer))


def newer_key(key: str) -> str | None:
    """The V2 key for the V1 key of a manifest; None for other keys."""
    folder, slash, last = key.rpartition("/")
    name = parse_manifest_name(last)
    if name is None or name.scheme != "V1":
        return None
    return f"{folder}{slash}{manifest_name(name.version, 'V2')}"


def _head(store: ObjectStore, key: str) -> Plan[ObjectMeta | None]:
    """Metadata of an object, None if it does not exist."""
    try:
        meta: ObjectMeta = yield Head(store, key)
    except NotFound:
        return None
    return meta


def versions_prefix(root: str) -> str:
    """Prefix of the keys of all manifests of the table in `root`."""
    return join(root, VERSIONS, "")


def decode_hint(data: Buffer) -> int | None:
    """The version in a hint file; None if the file names no possible version (it is only a hint)."""
    try:
        content = json.loads(bytes(data))
    except (ValueError, RecursionError):
        return None
    version = content.get("version") if isinstance(content, dict) else None
    return version if isinstance(version, int) and 0 < version < 1 << 63 else None


def newest_of_ordered(first: Sequence[ObjectMeta], after: int | None = None) -> list[VersionFile] | None:
    """The newest version, or with `after` all versions above that, by the first entries of an ordered listing.

    Oldest first. None if the entries do not suffice, for example if V1 names are among them.
    """
    if _has_old_name_behind(first):
        return None
    versions: list[VersionFile] = []
    for meta, name in _attached(first):
        if name.scheme != "V2":
            return None
        versions.append(version_file(meta, name))
        if after is None or name.version <= after + 1:
            return versions[::-1]
    return None


def _has_old_name_behind(first: Sequence[ObjectMeta]) -> bool:
    """Whether a name behind all V2 names, in the order of a listing, may be a V1 name."""
    begin = len(first[0].key) - len(first[0].name) if first else 0
    for meta in reversed(first):
        name = meta.key[begin:]
        if name <= _LAST_NEW_NAME:
            return False
        if name[:1] <= "9":
            return True
    return False


def sorted_versions(entries: Iterable[ObjectMeta]) -> list[VersionFile]:
    """The attached versions among all entries of a `_versions` folder, oldest first; by V2 names if there are both."""
    entries = list(entries)
    named = list(_attached(entries))
    old = {name.version: (meta, name) for meta, name in named if name.scheme == "V1"}
    new = {name.version: (meta, name) for meta, name in named if name.scheme == "V2"}
    is_mixed = bool(old) and (bool(new) or any(meta.name.startswith(RENAMING) for meta in entries))
    versions = sorted((old | new).items())
    return [version_file(meta, name, is_mixed=is_mixed) for _, (meta, name) in versions]


def _attached(entries: Iterable[ObjectMeta]) -> Iterator[tuple[ObjectMeta, ManifestName]]:
    """The manifests among entries, except those of detached versions."""
    for meta in entries:
        name = None if meta.is_folder else parse_manifest_name(meta.name)
        if name is not None and name.scheme != "detached":
            yield meta, name


def version_file(meta: ObjectMeta, name: ManifestName, *, is_mixed: bool = False) -> VersionFile:
    """The entry of a listing as a version."""
    return VersionFile(name.version, name.scheme, meta.key, meta.size_bytes, meta.etag, is_mixed)
