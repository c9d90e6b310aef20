"""Which versions of a table are there, and where their manifests are (spec: table, section 3).

Each search is a plan (`plans/store_requests.py`); what a listing means is decided by plain functions over its entries.

How the newest version is found:

    ordered listing (S3, GCS, Azure,   V2 names count down, so the first V2 name of a short listing is the newest of
    local disk, memory)                them. V1 names sort on both sides of V2 names: one in front means that all must
                                       be listed, and behind a listing that was cut one key tells whether there are any
    other stores without order         the hint file names a version that was the newest once; probe the next ones
                                       until one is missing under both of its names. Whenever the hint is of no use,
                                       list the whole folder

That one key is the first one behind all V2 names. A V1 name *among* V2 names would be of a version beyond the number
that the V2 names in front of it stand for, times ten; numbers have no such gaps. A local listing reads the whole folder
however short its answer is, and brings that key along; from other stores it is asked for beside reading the manifest.

A folder has names of both kinds while manifests are renamed, or after that was interrupted. The version of a number is
that of its V2 name, where it has both (`other_names.py`).
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from dataclasses import field
from typing import TYPE_CHECKING, Final, TypeVar, cast

from lance_io.commit.pins import RENAMING
from lance_io.errors import NotFound
from lance_io.plans.plan import Together
from lance_io.plans.store_requests import Head, List, Read
from lance_io.records import dataclass
from lance_io.store.api import DIRECTLY_BELOW, NAMES_DIRECTLY_BELOW, Selection
from lance_io.store.offers import offers_sync_reads
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
    from collections.abc import Callable, Iterable, Iterator

    from lance_io.plans.plan import Plan
    from lance_io.store.api import Buffer, ObjectMeta, ObjectStore

T = TypeVar("T")

_FIRST_NAMES: Final = 16  # of an ordered listing: room for temporary files, whose names sort before digits
_FIRST_FILES: Final = 2  # the same where each file is looked at
_PROBES_MAX: Final = 1000  # versions behind the hint that are worth a request each rather than a listing
_TABLES_MAX: Final = 1024  # of which it is known that all names are V2
_LAST_NEW_NAME: Final = manifest_name(0, "V2")  # no version has it, and all that have V2 names sort before it


@dataclass(frozen=True, slots=True)
class VersionFile:
    """The manifest file of one version.

    version     number of the version, by the file's name
    scheme      how the file is named
    key         its key in the store
    size_bytes  its length
    etag        opaque version of its content, where the store has one
    is_mixed    whether the listing that showed it had names of both kinds, or V1 names and the note of a renaming
    """

    version: int
    scheme: NamingScheme
    key: str
    size_bytes: int
    etag: str | None = None
    is_mixed: bool = field(default=False, compare=False)


class _OnlyNewNames:
    """Tables all of whose names were V2 when this process looked last.

    There is nothing left to rename then: no library of today makes V1 names there, but by a handle of the time before
    that knows nothing of other names. So a commit need not look for them each time; whoever opens a table does.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: OrderedDict[tuple[str, str], None] = OrderedDict()

    def note(self, store: ObjectStore, root: str, *, is_only: bool) -> None:
        """Note what was found."""
        key = store.identity, root
        with self._lock:
            self._tables.pop(key, None)
            if is_only:
                self._tables[key] = None
                if len(self._tables) > _TABLES_MAX:
                    self._tables.popitem(last=False)

    def has(self, store: ObjectStore, root: str) -> bool:
        """Whether a table is one of them."""
        return (store.identity, root) in self._tables


_ONLY_NEW: Final = _OnlyNewNames()


@dataclass(frozen=True, slots=True)
class _Newest:
    """The first versions of a listing.

    versions  up to the newest, oldest first
    is_sure   whether there may be no V1 names that it does not show
    """

    versions: list[VersionFile]
    is_sure: bool = True


def find_latest(store: ObjectStore, root: str) -> Plan[VersionFile]:
    """The newest version of the table in the folder `root`.

    Raises `NotFound` when there is none.
    """
    newest, _ = yield from find_latest_and(store, root, _nothing)
    return newest


def _nothing(_: VersionFile) -> Plan[None]:
    yield from ()


def find_latest_and(
    store: ObjectStore, root: str, use: Callable[[VersionFile], Plan[T]]
) -> Plan[tuple[VersionFile, T]]:
    """The newest version of the table in the folder `root`, and what `use` makes of it.

    use  what is to be done with it next, such as reading it. Where a short listing leaves a doubt it is removed beside
         that: `use` is asked a second time then if another version turns out to be the newest

    Raises `NotFound` when there is none, and what `use` raises.
    """
    is_sure, described = True, None
    if not store.capabilities.ordered_list and not offers_sync_reads(store):
        hinted = yield from _by_hint(store, root)
        described = None if hinted is None else [hinted]
    if described is None:
        found = yield from _newest_first(store, root, None, describe=True)
        described = yield from _describe_files(store, _nonempty(found.versions, root)[-1:])
        is_sure = found.is_sure
    if described is not None:
        try:
            if is_sure:
                return described[-1], (yield from use(described[-1]))
            used, is_only = yield Together([use(described[-1]), _has_only_new(store, root)])
            if is_only:
                return described[-1], used
        except NotFound:
            pass  # newer ones came, and it was cleaned up, or the table is gone
    newest = (yield from list_versions(store, root))[-1]
    return newest, (yield from use(newest))


def list_versions(store: ObjectStore, root: str) -> Plan[list[VersionFile]]:
    """All versions of the table in `root` that are not detached, oldest first; one request.

    Raises as `find_latest` does.
    """
    return _nonempty((yield from _list_all(store, root, DIRECTLY_BELOW)), root)


def _list_all(store: ObjectStore, root: str, asked: Selection) -> Plan[list[VersionFile]]:
    versions = sorted_versions((yield List(store, versions_prefix(root), asked)))
    _note_names(store, root, versions)
    return versions


def _note_names(store: ObjectStore, root: str, versions: list[VersionFile]) -> None:
    """Note how all versions of a table are named."""
    is_only = bool(versions) and all(file.scheme == "V2" and not file.is_mixed for file in versions)
    _ONLY_NEW.note(store, root, is_only=is_only)


def list_after(store: ObjectStore, root: str, version: int) -> Plan[list[VersionFile]]:
    """The attached versions above `version`, oldest first, and the newest one in any case; empty without a table.

    On ordered stores one short listing, when few versions came since.
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
    """Versions up to the newest: that one at least, with `after` also all above it; none without a table.

    describe  let the first listing say how long the files are, where it would have to look at each. It is short then:
              that saves the request for the newest one, but looks at others in vain
    """
    able = store.capabilities
    if able.ordered_list:
        limit = _FIRST_FILES if describe and not able.described_list else _FIRST_NAMES
        prefix = versions_prefix(root)
        # No folders are there as a rule: where all are told alike, the answer is shorter than one that sums them up.
        delimiter = None if able.described_list else "/"
        behind = prefix + _LAST_NEW_NAME if able.reads_whole_folders else None
        asked = Selection(None, limit, delimiter, keys_only=not describe, plain_names=True, also_behind=behind)
        listed: list[ObjectMeta] = yield List(store, prefix, asked)
        first = [meta for meta in listed[:limit] if "/" not in meta.key[len(prefix) :]]
        if len(listed) < limit:
            newest = newest_of_ordered(first, after) if _are_new_names(first) else None
            versions = sorted_versions(first) if newest is None else newest
            _note_names(store, root, versions)
            return _Newest(versions)
        found = newest_of_ordered(first, after)
        if found is not None and not able.reads_whole_folders:
            return _Newest(found, is_sure=False)
        if found is not None and not any(_may_be_old(meta, prefix) for meta in listed[limit:]):
            return _Newest(found)
    return _Newest((yield from _list_all(store, root, NAMES_DIRECTLY_BELOW)))


def _has_only_new(store: ObjectStore, root: str) -> Plan[bool]:
    """Whether there is no V1 name behind all V2 names, in an ordered store; one key."""
    prefix = versions_prefix(root)
    asked = Selection(start_after=prefix + _LAST_NEW_NAME, limit=1, keys_only=True, plain_names=True)
    behind: list[ObjectMeta] = yield List(store, prefix, asked)
    is_only = not any(_may_be_old(meta, prefix) for meta in behind)
    _ONLY_NEW.note(store, root, is_only=is_only)
    return is_only


def _may_be_old(meta: ObjectMeta, prefix: str) -> bool:
    """Whether a key is a V1 name, or V1 names may follow it: they begin with a digit."""
    return meta.key[len(prefix) :][:1] <= "9"


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
    """The manifest file of one version, detached ones included; one to three requests.

    Raises `NotFound`.
    """
    for name in names_in_turn(version):
        key = join(root, VERSIONS, name)
        meta = yield from _head(store, key)
        if meta is not None:
            return version_file(meta, cast("ManifestName", parse_manifest_name(name)))
    raise NotFound(missing_version(root, version), path=root)


def missing_version(root: str, version: int) -> str:
    """What is said of a version that a table does not have, as pylance says it.

    root  folder of the table, a key or a URI; what follows a `?` is no part of it
    """
    path = join(root.partition("?")[0], VERSIONS, manifest_names(version)[-1])
    return f"Dataset at path {path} was not found: Not found: {path}. Dataset version {version} was not found"


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
        heads = [_head(store, join(root, VERSIONS, name)) for name in manifest_names(version)]
        metas: list[ObjectMeta | None] = yield Together(heads)
        found = [meta for meta in metas if meta is not None]
        if not found:
            return newest
        newest = version_file(found[0], cast("ManifestName", parse_manifest_name(found[0].name)))
    return None


def names_in_turn(version: int) -> tuple[str, ...]:
    """The names under which to look for a manifest, one after the other.

    The newer one comes again behind the older one: the file may have been renamed meanwhile.
    """
    names = manifest_names(version)
    return (*names, names[0]) if len(names) > 1 else names


def read_named(store: ObjectStore, key: str, request: type[Read] = Read) -> Plan[Buffer]:
    """A manifest file, by its newer name where the older one has gone since it was listed. Raises `NotFound`."""
    try:
        return (yield request(store, key))
    except NotFound:
        newer = newer_key(key)
        if newer is None:
            raise
    return (yield request(store, newer))


def newer_key(key: str) -> str | None:
    """The key of a manifest under its V2 name; None for keys that are no V1 names."""
    folder, slash, last = key.rpartition("/")
    name = parse_manifest_name(last)
    if name is None or name.scheme != "V1":
        return None
    return f"{folder}{slash}{manifest_name(name.version, 'V2')}"


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

    Oldest first. None when the entries do not tell, as those that have V1 names among them.
    """
    first = list(first)
    if not _are_new_names(first) and any(name.scheme != "V2" for _, name in _attached(first)):
        return None
    found: list[VersionFile] = []
    for meta, name in _attached(first):
        found.append(version_file(meta, name))
        if after is None or name.version <= after + 1:
            return found[::-1]
    return None


def _are_new_names(first: list[ObjectMeta]) -> bool:
    """Whether no name among those of one folder can be a V1 name, which has fewer digits: to parse all takes longer."""
    begin = len(first[0].key) - len(first[0].name) if first else 0
    length = begin + len(_LAST_NEW_NAME)
    return all([len(meta.key) == length or meta.key[begin : begin + 1] > "9" for meta in first])


def sorted_versions(entries: Iterable[ObjectMeta]) -> list[VersionFile]:
    """The attached versions among all entries of a `_versions` folder, oldest first; V2 names where there are both."""
    entries = list(entries)
    named = list(_attached(entries))
    old = {name.version: (meta, name) for meta, name in named if name.scheme == "V1"}
    new = {name.version: (meta, name) for meta, name in named if name.scheme == "V2"}
    is_mixed = bool(old) and (bool(new) or any(meta.name.startswith(RENAMING) for meta in entries))
    versions = sorted((old | new).items())
    return [version_file(meta, name, is_mixed=is_mixed) for _, (meta, name) in versions]


def _attached(entries: Iterable[ObjectMeta]) -> Iterator[tuple[ObjectMeta, ManifestName]]:
    """The manifests among entries, but for those of detached versions."""
    for meta in entries:
        name = None if meta.is_folder else parse_manifest_name(meta.name)
        if name is not None and name.scheme != "detached":
            yield meta, name


def version_file(meta: ObjectMeta, name: ManifestName, *, is_mixed: bool = False) -> VersionFile:
    """The entry of a listing as a version."""
    return VersionFile(name.version, name.scheme, meta.key, meta.size_bytes, meta.etag, is_mixed)
