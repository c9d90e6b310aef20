"""Removing old versions and what nobody refers to (rules: `table/garbage.py`).

    plan      tags, branches, every manifest, every file: what may go, and how much it is
    remove    manifests first, so that no version is left whose files are gone; then a look at versions that came
              meanwhile (one may have been restored); then files

A process that ends in between leaves files that nobody refers to, which a later cleanup removes when they are old.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lance_io.commit.latest import versions_prefix
from lance_io.commit.steps import List, Pause, Read, Remove, Together, ask
from lance_io.errors import FormatError, LanceError, UsageError
from lance_io.store.api import NAMES_DIRECTLY_BELOW
from lance_io.table.autoclean import auto_cleanup_policy
from lance_io.table.garbage import CleanupPolicy, FileKind, References, candidates, garbage, is_old, is_young
from lance_io.table.manifest import Manifest, decode_manifest
from lance_io.table.paths import (
    BRANCHES,
    DATA,
    DELETIONS,
    INDICES,
    TAGS,
    TRANSACTIONS,
    VERSIONS,
    parse_manifest_name,
)
from lance_io.table.refs import MAIN, branch_root, decode_branch, decode_tag, ref_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from lance_io.commit.steps import Plan
    from lance_io.commit.target import CommitTarget
    from lance_io.store.api import ObjectMeta
    from lance_io.store.url import Location

DELETES_AT_ONCE: Final = 1000
_READS_AT_ONCE: Final = 64
_FOLDERS: Final = (VERSIONS, DATA, DELETIONS, TRANSACTIONS, INDICES)
_WRITTEN_FOLDERS: Final = (VERSIONS, DELETIONS, TRANSACTIONS, TAGS, BRANCHES, DATA)

_logger = logging.getLogger(__name__)


class CleanupRefused(UsageError, OSError):
    """Tagged versions are among those that would be removed."""


@dataclass(frozen=True)
class CleanupStats:
    """What was removed, or would be.

    young_versions_kept  versions that would have gone, too, if they were older than ten minutes; not in pylance
    """

    bytes_removed: int = 0
    old_versions: int = 0
    data_files_removed: int = 0
    transaction_files_removed: int = 0
    index_files_removed: int = 0
    deletion_files_removed: int = 0
    failed_deletes: int = 0
    young_versions_kept: int = 0


@dataclass(frozen=True)
class CleanupPlan:
    """What may go.

    newest     number of the newest version when this was planned
    manifests  manifest files of old versions
    files      other files, with their kind
    kept_tags  versions that only a tag keeps
    num_young  how many versions only their age keeps
    """

    newest: int
    manifests: tuple[ObjectMeta, ...]
    files: tuple[tuple[ObjectMeta, FileKind], ...]
    kept_tags: tuple[int, ...] = ()
    num_young: int = 0

    @property
    def stats(self) -> CleanupStats:
        """Sums over everything."""
        return _stats(self.manifests, self.files, failed=0, num_young=self.num_young)


@dataclass
class _Held:
    """What tags and branches hold on to.

    tagged   versions with a tag; forked: versions that a branch left at
    files    what branches refer to
    """

    tagged: set[int] = field(default_factory=set)
    forked: set[int] = field(default_factory=set)
    files: References = field(default_factory=References)


@dataclass
class _SortedOut:
    """Versions that go and those that stay.

    kept, removed  what they refer to
    old            numbers of those that go; tagged: of those that stay only because of a tag
    num_young      how many stay only because they are young
    """

    kept: References
    removed: References = field(default_factory=References)
    old: set[int] = field(default_factory=set)
    tagged: set[int] = field(default_factory=set)
    num_young: int = 0

    def add(self, manifest: Manifest, held: _Held, *, asked_for: bool, young: bool) -> None:
        """Sort out one version."""
        version = manifest.version
        is_held = version in held.tagged or version in held.forked
        if asked_for and not young and not is_held:
            self.old.add(version)
            self.removed.add(manifest)
            return
        self.kept.add(manifest)
        if asked_for and not young and version in held.tagged:
            self.tagged.add(version)
        self.num_young += asked_for and young and not is_held


def plan_cleanup(
    target: CommitTarget,
    policy: CleanupPolicy,
    *,
    current: int | None = None,
    root: Location | None = None,
    branch: str | None = None,
) -> Plan[CleanupPlan]:
    """What a cleanup would remove; changes nothing.

    current  the version that the caller stands on, which stays with all newer ones; None for the newest
    root     the table's folder when `target` is one of its branches
    branch   the branch's name, None for the main one

    Raises `FormatError` for any manifest, tag or branch that cannot be read: nothing is removed on a guess. Raises
    `CleanupRefused` for tagged versions that would go, if the policy says so.
    """
    place = target.place
    yield from target.handler.find_latest(place)  # finishes what a writer left half done
    held = yield from _held(root or place, branch)
    listed: list[ObjectMeta] = yield List(place.store, versions_prefix(place.path))
    named = [(meta, name) for meta in listed if (name := parse_manifest_name(meta.name)) is not None]
    attached = {name.version: meta for meta, name in named if name.scheme != "detached"}
    now_ns = target.clock.time_ns()
    sorted_out = _SortedOut(kept=held.files)
    chosen = candidates(attached, policy, current=current)
    for start in range(0, len(named), _READS_AT_ONCE):  # never all manifests in memory
        keys = [meta.key for meta, _ in named[start : start + _READS_AT_ONCE]]
        for manifest in (yield from _read_keys(place, keys)):
            committed_ns = manifest.timestamp_ns
            asked_for = manifest.version in chosen and is_old(committed_ns, policy, now_ns=now_ns)
            young = is_young(committed_ns, policy, now_ns=now_ns)
            sorted_out.add(manifest, held, asked_for=asked_for, young=young)
    if sorted_out.tagged and policy.error_if_tagged:
        raise CleanupRefused(
            f"Cleanup error: versions {sorted(sorted_out.tagged)} would be removed, but have tags. Delete the "
            "tags, or pass error_if_tagged_old_versions=False to keep these versions",
            path=place.uri,
        )
    unfinished = yield from unfinished_files(place)
    files = (yield from _files(place)) | unfinished
    found = garbage(
        {path: _written_ns(meta.last_modified) for path, meta in files.items()},
        sorted_out.kept,
        sorted_out.removed,
        unfinished=unfinished,
        delete_unverified=policy.delete_unverified,
        now_ns=now_ns,
    )
    return CleanupPlan(
        newest=max(attached),
        manifests=tuple(attached[version] for version in sorted(sorted_out.old)),
        files=tuple((files[path], kind) for path, kind in found),
        kept_tags=tuple(sorted(sorted_out.tagged)),
        num_young=sorted_out.num_young,
    )


def run_cleanup(target: CommitTarget, plan: CleanupPlan, *, deletes_per_s: int | None = None) -> Plan[CleanupStats]:
    """Remove what was planned.

    deletes_per_s  at most so many files a second; None as fast as the store takes it
    """
    place = target.place
    _, failed = yield from _remove(place, plan.manifests, deletes_per_s)
    gone = [meta for meta in plan.manifests if meta.key not in failed]
    came = yield from target.handler.list_after(place, plan.newest)
    newer = References()
    for manifest in (yield from _read_keys(place, [file.key for file in came if file.version > plan.newest])):
        newer.add(manifest)
    depth = len(place.key("x")) - 1
    files = [(meta, kind) for meta, kind in plan.files if not newer.has(meta.key[depth:], kind)]
    if failed:  # these versions are still there
        files = [(meta, kind) for meta, kind in files if kind in ("temporary", "unfinished")]
    removed, failed_files = yield from _remove(place, [meta for meta, _ in files], deletes_per_s)
    done = [(meta, kind) for meta, kind in files if meta.key in removed]
    return _stats(gone, done, failed=len(failed) + len(failed_files), num_young=plan.num_young)


def auto_cleanup(
    target: CommitTarget, committed: Manifest, *, root: Location | None = None, branch: str | None = None
) -> Plan[CleanupStats | None]:
    """The cleanup that the table's config asks for after a commit; None when there was none.

    The version before the committed one stays, too, as with pylance: the writer stood on it when it committed.

    The commit has succeeded whatever happens here: errors are logged, never raised.
    """
    try:
        policy = auto_cleanup_policy(committed.config, committed.version)
        if policy is None:
            return None
        plan = yield from plan_cleanup(target, policy, current=committed.version - 1, root=root, branch=branch)
        return (yield from run_cleanup(target, plan))
    except LanceError as error:
        _logger.warning("version %d is committed, but the cleanup after it failed: %s", committed.version, error)
        return None


def _remove(place: Location, metas: Sequence[ObjectMeta], deletes_per_s: int | None) -> Plan[tuple[set[str], set[str]]]:
    """Remove objects; gives the keys that are gone, and those that are not."""
    keys = [meta.key for meta in metas]
    removed, failed = set[str](), set[str]()
    batch_size = min(deletes_per_s or DELETES_AT_ONCE, DELETES_AT_ONCE)
    for start in range(0, len(keys), batch_size):
        batch = tuple(keys[start : start + batch_size])
        if start and deletes_per_s is not None:
            yield Pause(batch_size / deletes_per_s)
        try:
            yield Remove(place.store, batch)
            removed.update(batch)
        except LanceError as error:
            _logger.warning("cleanup: %d files could not be removed: %s", len(batch), error)
            failed.update(batch)
    return removed, failed


def _stats(
    manifests: Sequence[ObjectMeta], files: Iterable[tuple[ObjectMeta, FileKind]], *, failed: int, num_young: int
) -> CleanupStats:
    files = list(files)
    num = {kind: sum(each == kind for _, each in files) for kind in ("data", "deletion", "transaction", "index")}
    return CleanupStats(
        bytes_removed=sum(meta.size_bytes for meta in manifests) + sum(meta.size_bytes for meta, _ in files),
        old_versions=len(manifests),
        data_files_removed=num["data"],
        transaction_files_removed=num["transaction"],
        index_files_removed=num["index"],
        deletion_files_removed=num["deletion"],
        failed_deletes=failed,
        young_versions_kept=num_young,
    )


# -- reading ---------------------------------------------------------------------------------------------------------


def _held(root: Location, branch: str | None) -> Plan[_Held]:
    held = _Held()
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
            folder = branch_root(root.path, name)
            listed: list[ObjectMeta] = yield List(root.store, versions_prefix(folder))
            metas = [meta for meta in listed if parse_manifest_name(meta.name) is not None]
            for manifest in (yield from _read_manifests(root, metas)):
                held.files.add(manifest, own_only=False)
    return held


def _read_refs(root: Location, metas: Sequence[ObjectMeta]) -> Plan[list[tuple[str, bytes]]]:
    named = [(name, meta.key) for meta in metas if (name := ref_name(meta.name)) is not None]
    found = []
    for name, key in named:
        found.append((name, bytes((yield Read(root.store, key)))))
    return found


def _read_manifests(place: Location, metas: Sequence[ObjectMeta]) -> Plan[list[Manifest]]:
    return (yield from _read_keys(place, [meta.key for meta in metas]))


def _read_keys(place: Location, keys: Sequence[str]) -> Plan[list[Manifest]]:
    """Manifests, a few at a time."""
    found: list[Manifest] = []
    for start in range(0, len(keys), _READS_AT_ONCE):
        plans = [_read_manifest(place, key) for key in keys[start : start + _READS_AT_ONCE]]
        found += yield Together(plans)
    return found


def _read_manifest(place: Location, key: str) -> Plan[Manifest]:
    data = yield Read(place.store, key)
    try:
        return decode_manifest(data)
    except FormatError as error:
        error.path = key
        raise


def unfinished_files(place: Location) -> Plan[dict[str, ObjectMeta]]:
    """What writers are making in a table's folders, or were when they died, by path; no requests where none can be."""
    prefix = place.store.capabilities.temporary_prefix
    if prefix is None:
        return {}
    entries: list[ObjectMeta] = yield List(place.store, place.key(DATA, ""), NAMES_DIRECTLY_BELOW)
    sidecars = [meta.key for meta in entries if meta.is_folder]
    folders = [place.key(folder, "") for folder in _WRITTEN_FOLDERS]
    return (yield from _below(place, [folder + prefix for folder in (*folders, *sidecars)]))


def _files(place: Location) -> Plan[dict[str, ObjectMeta]]:
    """Everything in the folders of a table, by path below its own."""
    return (yield from _below(place, [place.key(folder, "") for folder in _FOLDERS]))


def _below(place: Location, prefixes: Sequence[str]) -> Plan[dict[str, ObjectMeta]]:
    depth = len(place.key("x")) - 1
    listings: list[list[ObjectMeta]] = yield Together([ask(List(place.store, prefix)) for prefix in prefixes])
    return {meta.key[depth:]: meta for listing in listings for meta in listing if not meta.is_folder}


def _written_ns(time: datetime | None) -> int | None:
    return None if time is None else int(time.timestamp() * 1e9)
