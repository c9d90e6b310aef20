"""Reads for a cleanup: manifests, tags and branches, and listings of a table's folders."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final, TypeVar

from lance_io.commit.latest import read_named, versions_prefix
from lance_io.errors import FormatError, NotFound
from lance_io.format.schema import BLOB_FOLDER
from lance_io.plans.plan import Together, ask
from lance_io.plans.store_requests import List
from lance_io.records import dataclass
from lance_io.store.api import NAMES_DIRECTLY_BELOW, ObjectMeta
from lance_io.table.manifest.flags import MANAGED_BLOBS
from lance_io.table.manifest.manifest import Manifest, decode_manifest
from lance_io.table.manifest.paths import (
    BRANCHES,
    DATA,
    DELETIONS,
    INDICES,
    TAGS,
    TRANSACTIONS,
    VERSIONS,
    parse_manifest_name,
)
from lance_io.table.manifest.refs import MAIN, branch_root, decode_branch, decode_tag, ref_name
from lance_io.table.transaction.garbage import References

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_io.commit.cleanups.cleanup_values import BlobsOf
    from lance_io.format.wire import Buffer
    from lance_io.plans.plan import Plan
    from lance_io.store.url import Location

T = TypeVar("T")

READS_AT_ONCE: Final = 64
_FOLDERS: Final = (DATA, DELETIONS, TRANSACTIONS, INDICES)
_WRITTEN_FOLDERS: Final = (VERSIONS, DELETIONS, TRANSACTIONS, TAGS, BRANCHES, DATA)


@dataclass()
class Held:
    """Versions and files that tags and branches keep.

    tagged    versions with a tag
    forked    versions at which a branch starts
    branches  names of the other branches
    files     files that the other branches refer to
    """

    tagged: set[int] = field(default_factory=set)
    forked: set[int] = field(default_factory=set)
    branches: list[str] = field(default_factory=list)
    files: References = field(default_factory=References)

    def has(self, version: int) -> bool:
        """Whether a tag or branch names a version."""
        return version in self.tagged or version in self.forked


def managed_blobs(blobs_of: BlobsOf | None, manifest: Manifest) -> Plan[set[str]]:
    """The managed blobs that a version refers to; empty without `blobs_of`."""
    if blobs_of is None or not has_managed_blobs(manifest):
        return set()
    return (yield from blobs_of(manifest))


def has_managed_blobs(manifest: Manifest) -> bool:
    return bool(manifest.reader_flags & MANAGED_BLOBS)


def find_held(root: Location, branch: str | None, blobs_of: BlobsOf | None) -> Plan[Held]:
    """Versions and files that tags and other branches keep."""
    held = yield from find_held_versions(root, branch)
    for name in held.branches:
        folder = branch_root(root.path, name)
        listed: list[ObjectMeta] = yield List(root.store, versions_prefix(folder))
        metas = [meta for meta in listed if parse_manifest_name(meta.name) is not None]
        for start in range(0, len(metas), READS_AT_ONCE):
            for _, manifest in (yield from read_manifests(root, metas[start : start + READS_AT_ONCE], decode_manifest)):
                held.files.add(manifest, (yield from managed_blobs(blobs_of, manifest)), own_only=False)
    return held


def find_held_versions(root: Location, branch: str | None) -> Plan[Held]:
    """The versions of a branch that have tags or at which other branches start, and the names of the other branches."""
    held = Held()
    this = None if branch == MAIN else branch
    tags: list[ObjectMeta] = yield List(root.store, root.key(TAGS, ""))
    for name, data in (yield from _read_refs(root, tags)):
        tag = decode_tag(data, name)
        if (None if tag.branch == MAIN else tag.branch) == this:
            held.tagged.add(tag.version)
    branches: list[ObjectMeta] = yield List(root.store, root.key(BRANCHES, ""))
    for name, data in (yield from _read_refs(root, branches)):
        parent = decode_branch(data, name)
        if (None if parent.parent_branch == MAIN else parent.parent_branch) == this:
            held.forked.add(parent.parent_version)
        if name != this:
            held.branches.append(name)
    return held


def _read_refs(root: Location, metas: Sequence[ObjectMeta]) -> Plan[list[tuple[str, bytes]]]:
    named = [(name, meta.key) for meta in metas if (name := ref_name(meta.name)) is not None]
    refs = []
    for start in range(0, len(named), READS_AT_ONCE):
        part = named[start : start + READS_AT_ONCE]
        contents: list[bytes | None] = yield Together([_read_if_exists(root, key) for _, key in part])
        refs += [(name, data) for (name, _), data in zip(part, contents, strict=True) if data is not None]
    return refs


def _read_if_exists(location: Location, key: str) -> Plan[bytes | None]:
    try:
        return bytes((yield from read_named(location.store, key)))
    except NotFound:
        return None  # it was removed since it was listed


def read_manifests(
    location: Location, metas: Sequence[ObjectMeta], decode: Callable[[Buffer], T]
) -> Plan[list[tuple[ObjectMeta, T]]]:
    """Read manifests concurrently; skips those that another cleanup has removed in the meantime."""
    if not metas:
        return []
    manifests: list[T | None] = yield Together([_read_manifest(location, meta.key, decode) for meta in metas])
    return [(meta, manifest) for meta, manifest in zip(metas, manifests, strict=True) if manifest is not None]


def _read_manifest(location: Location, key: str, decode: Callable[[Buffer], T]) -> Plan[T | None]:
    data = yield from _read_if_exists(location, key)
    if data is None:
        return None
    try:
        return decode(data)
    except FormatError as error:
        error.path = key
        raise


def unfinished_files(location: Location, *, manages_blobs: bool = True) -> Plan[dict[str, ObjectMeta]]:
    """Temporary files of live or dead writers in a table's folders, by path. No requests if the store has none."""
    prefix = location.store.capabilities.temporary_prefix
    if prefix is None:
        return {}
    entries: list[ObjectMeta] = yield List(location.store, location.key(DATA, ""), NAMES_DIRECTLY_BELOW)
    sidecars = [meta.key for meta in entries if meta.is_folder]
    written = (*_WRITTEN_FOLDERS, *([BLOB_FOLDER] if manages_blobs else []))
    folders = [location.key(folder, "") for folder in written]
    return (yield from _below(location, [folder + prefix for folder in (*folders, *sidecars)]))


def table_files(location: Location, *, manages_blobs: bool) -> Plan[dict[str, ObjectMeta]]:
    """All files in the folders of a table except that of its versions, by path relative to the table's folder."""
    folders = (*_FOLDERS, *([BLOB_FOLDER] if manages_blobs else []))
    return (yield from _below(location, [location.key(folder, "") for folder in folders]))


def _below(location: Location, prefixes: Sequence[str]) -> Plan[dict[str, ObjectMeta]]:
    depth = len(location.key("x")) - 1
    listings: list[list[ObjectMeta]] = yield Together([ask(List(location.store, prefix)) for prefix in prefixes])
    return {meta.key[depth:]: meta for listing in listings for meta in listing if not meta.is_folder}
