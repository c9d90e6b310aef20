"""Removing old versions and what nobody refers to (rules: `table/transaction/garbage.py`).

    plan      tags, branches, listings of versions and files: what may go, and how much it is. A manifest is read only
              where the listing cannot decide: those that stay, those that may be younger than they look, and, where
              young files are left that nobody names, those that go
    announce  which versions go, so that nobody begins to build on them; then look again for tags, pins (`pins.py`) and
              branches, and how old the versions are by the store's clock, which that writing told: what is held on to
              or young stays
    remove    manifests first, so that no version is left whose files are gone; then files, and before each thousand of
              them a look at versions that came meanwhile: one may have been restored

Which blobs a table manages only its data files know, which are not read here: the caller tells, for tables that do.

A process that ends in between leaves files that nobody refers to, which a later cleanup removes when they are old. Any
number of cleanups may run at once: what another one has removed is passed over.
"""

from __future__ import annotations

import logging
from dataclasses import field
from typing import TYPE_CHECKING, Final, TypedDict, TypeVar

from lance_io.commit.latest import versions_prefix
from lance_io.commit.pins import announce, release, time_ns
from lance_io.errors import FormatError, LanceError, NotFound, UsageError
from lance_io.format.schema import BLOB_FOLDER
from lance_io.io import trace_events
from lance_io.plans.plan import Pause, Together, ask
from lance_io.plans.store_requests import List, Read, Remove
from lance_io.records import dataclass
from lance_io.store.api import NAMES_DIRECTLY_BELOW, ObjectMeta
from lance_io.table.manifest.flags import MANAGED_BLOBS
from lance_io.table.manifest.manifest import Manifest, decode_file_names, decode_manifest
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
from lance_io.table.transaction.auto_cleanup import auto_cleanup_policy, auto_cleanup_rate
from lance_io.table.transaction.garbage import (
    CleanupPolicy,
    FileKind,
    References,
    candidates,
    garbage,
    is_old,
    is_unsettled,
    is_young,
    keys_of,
    unverified,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    from lance_io.commit.pins import Intent
    from lance_io.commit.target import CommitTarget
    from lance_io.format.wire import Buffer
    from lance_io.plans.plan import Plan
    from lance_io.store.url import Location

    BlobsOf = Callable[[Manifest], Plan[set[str]]]
    Progress = Callable[[int, int | None], object]

T = TypeVar("T")

DELETES_AT_ONCE: Final = 1000
_ANNOUNCED_AT_ONCE: Final = 20_000  # versions: looking who holds on to some takes a listing of all on local disk
_ANNOUNCED_S: Final = 60  # how long removing what is announced at once may take at a given rate
_READS_AT_ONCE: Final = 64
_FOLDERS: Final = (DATA, DELETIONS, TRANSACTIONS, INDICES)
_WRITTEN_FOLDERS: Final = (VERSIONS, DELETIONS, TRANSACTIONS, TAGS, BRANCHES, DATA)

_logger = logging.getLogger(__name__)


class _Rules(TypedDict):
    unfinished: Container[str]
    delete_unverified: bool
    now_ns: int


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


@dataclass(frozen=True, slots=True)
class OldVersion:
    """A version that may go.

    file          its manifest file
    committed_ns  when it was committed at the latest, by its writer's clock, ns since the epoch; by the store's where
                  the manifest was not read
    """

    version: int
    file: ObjectMeta
    committed_ns: int

    @property
    def newest_ns(self) -> int:
        """When it was committed at the latest, by its writer's clock or the store's."""
        return max(self.committed_ns, time_ns(self.file.last_modified) or 0)


@dataclass(frozen=True)
class CleanupPlan:
    """What may go.

    policy     the rules
    newest     number of the newest version when this was planned
    versions   old versions
    files      other files, with their kind
    removed    what the old versions refer to, of what only this tells that it may go
    unfinished paths of files that have not got their names yet
    root       the table's folder, where its tags and branches are
    branch     name of the branch that is cleaned, None for the main one
    kept_tags  versions that only a tag keeps
    num_young  how many versions only their age keeps
    blobs_of   gives the managed blobs that a version refers to
    """

    policy: CleanupPolicy
    newest: int
    versions: tuple[OldVersion, ...]
    files: tuple[tuple[ObjectMeta, FileKind], ...]
    removed: References
    unfinished: frozenset[str]
    root: Location
    branch: str | None = None
    kept_tags: tuple[int, ...] = ()
    num_young: int = 0
    blobs_of: BlobsOf | None = None

    @property
    def stats(self) -> CleanupStats:
        """Sums over everything."""
        return _stats(self.manifests, self.files, failed=0, num_young=self.num_young)

    @property
    def manifests(self) -> tuple[ObjectMeta, ...]:
        """The manifest files of the old versions."""
        return tuple(version.file for version in self.versions)


@dataclass()
class _Held:
    """What tags and branches hold on to.

    tagged    versions with a tag; forked: versions that a branch left at
    branches  names of the other branches
    files     what these refer to
    """

    tagged: set[int] = field(default_factory=set)
    forked: set[int] = field(default_factory=set)
    branches: list[str] = field(default_factory=list)
    files: References = field(default_factory=References)

    def has(self, version: int) -> bool:
        """Whether a tag or branch names a version."""
        return version in self.tagged or version in self.forked


@dataclass()
class _SortedOut:
    """Versions that go and those that stay.

    kept           what those refer to that stay
    old            those that go; tagged: numbers of those that stay only because of a tag
    num_young      how many stay only because they are young
    """

    kept: References
    old: list[OldVersion] = field(default_factory=list)
    tagged: set[int] = field(default_factory=set)
    num_young: int = 0

    def keep(self, version: int, held: _Held, *, asked_for: bool, young: bool) -> None:
        """Count one that stays."""
        if asked_for and not young and version in held.tagged:
            self.tagged.add(version)
        self.num_young += asked_for and young and not held.has(version)


def plan_cleanup(
    target: CommitTarget,
    policy: CleanupPolicy,
    *,
    current: int | None = None,
    root: Location | None = None,
    branch: str | None = None,
    blobs_of: BlobsOf | None = None,
    progress: Progress | None = None,
) -> Plan[CleanupPlan]:
    """What a cleanup would remove; changes nothing.

    current  the version that the caller stands on, which stays with all newer ones; None for the newest
    root     the table's folder when `target` is one of its branches
    branch   the branch's name, None for the main one
    blobs_of gives the paths of the managed blobs that a version refers to; without, all of them stay
    progress is told how many versions are decided on, and how many there are

    Raises `FormatError` for any manifest, tag or branch that has to be read and cannot: nothing is removed on a guess.
    Raises `CleanupRefused` for tagged versions that would go, if the policy says so.
    """
    place = target.place
    yield from target.handler.find_latest(place)  # finishes what a writer left half done
    held = yield from _find_held(root or place, branch, blobs_of)
    listed: list[ObjectMeta] = yield List(place.store, versions_prefix(place.path))
    parsed = [(meta, parse_manifest_name(meta.name)) for meta in listed]
    named = [(meta, name) for meta, name in parsed if name is not None]
    attached = {name.version: meta for meta, name in named if name.scheme != "detached"}
    now_ns = target.clock.time_ns()
    sorted_out, manages_blobs = _SortedOut(kept=held.files), False
    chosen = candidates(attached, policy, current=current)
    undecided: list[ObjectMeta] = []
    for meta, name in named:
        version = name.version
        is_chosen = name.scheme != "detached" and version in chosen and not held.has(version)
        if is_chosen and _is_sure_to_go(meta, policy, now_ns):
            sorted_out.old.append(OldVersion(version, meta, time_ns(meta.last_modified) or 0))
        else:
            undecided.append(meta)
    num_sure = len(sorted_out.old)
    for start in range(0, len(undecided), _READS_AT_ONCE):  # never all manifests in memory
        if progress is not None:
            progress(num_sure + start, len(named))
        for meta, manifest in (
            yield from _read_manifests(place, undecided[start : start + _READS_AT_ONCE], decode_manifest)
        ):
            one = OldVersion(manifest.version, meta, manifest.timestamp_ns)
            asked_for = one.version in chosen and is_old(one.committed_ns, policy, now_ns=now_ns)
            young = is_young(one.newest_ns, policy, now_ns=now_ns)
            manages_blobs |= blobs_of is not None and _manages_blobs(manifest)
            if asked_for and not young and not held.has(one.version):
                sorted_out.old.append(one)
                continue
            sorted_out.kept.add(manifest, (yield from _blobs(blobs_of, manifest)))
            sorted_out.keep(one.version, held, asked_for=asked_for, young=young)
    if progress is not None:
        progress(len(named), len(named))
    if sorted_out.tagged and policy.error_if_tagged:
        raise CleanupRefused(
            f"Cleanup error: versions {sorted(sorted_out.tagged)} would be removed, but have tags. Delete the "
            "tags, or pass error_if_tagged_old_versions=False to keep these versions",
            path=place.uri,
        )
    unfinished = yield from unfinished_files(place, manages_blobs=manages_blobs)
    depth = len(place.key("x")) - 1
    there, oldest = {meta.key[depth:] for meta in listed}, min(attached)
    files = {meta.key[depth:]: meta for meta, name in parsed if name is None and not meta.is_folder}
    files |= (yield from _files(place, manages_blobs=manages_blobs)) | unfinished
    written = {
        path: time_ns(meta.last_modified) for path, meta in files.items() if not is_unsettled(path, there, oldest)
    }
    rules: _Rules = {"unfinished": unfinished, "delete_unverified": policy.delete_unverified, "now_ns": now_ns}
    unsure = unverified(written, sorted_out.kept, **rules)
    versions = tuple(sorted(sorted_out.old, key=lambda one: one.version))
    removed = yield from _verify(place, unsure, [one.file for one in versions], blobs_of)
    found = garbage(written, sorted_out.kept, removed, **rules)
    return CleanupPlan(
        policy,
        newest=max(attached),
        versions=versions,
        files=tuple((files[path], kind) for path, kind in found),
        removed=removed,
        unfinished=frozenset(unfinished),
        root=root or place,
        branch=branch,
        kept_tags=tuple(sorted(sorted_out.tagged)),
        num_young=sorted_out.num_young,
        blobs_of=blobs_of,
    )


def _is_sure_to_go(meta: ObjectMeta, policy: CleanupPolicy, now_ns: int) -> bool:
    """Whether a version that may go is old enough by the time of its manifest: it was committed before that."""
    written_ns = time_ns(meta.last_modified)
    if written_ns is None:
        return False
    return is_old(written_ns, policy, now_ns=now_ns) and not is_young(written_ns, policy, now_ns=now_ns)


def _verify(
    place: Location, unsure: Mapping[str, FileKind], manifests: Sequence[ObjectMeta], blobs_of: BlobsOf | None
) -> Plan[References]:
    """What of some files versions refer to; the newest are read first, and no more than it takes to know.

    manifests  of the versions, oldest first
    """
    named, found = References(), References()
    files, indices = keys_of(unsure)
    asks_blobs = any(path.startswith(f"{BLOB_FOLDER}/") for path in files)
    for end in range(len(manifests), 0, -_READS_AT_ONCE):
        if not files and not indices:
            break
        metas = manifests[max(0, end - _READS_AT_ONCE) : end]
        if asks_blobs:
            for _, manifest in (yield from _read_manifests(place, metas, decode_manifest)):
                found.add(manifest, (yield from _blobs(blobs_of, manifest)))
        else:
            for _, names in (yield from _read_manifests(place, metas, decode_file_names)):
                found.add(names)
        files -= found.files
        indices -= found.indices
        named.take(found)
    return named


def run_cleanup(
    target: CommitTarget, plan: CleanupPlan, *, deletes_per_s: int | None = None, progress: Progress | None = None
) -> Plan[CleanupStats]:
    """Remove what was planned, but for what somebody holds on to by now.

    deletes_per_s  at most so many files a second; None as fast as the store takes it
    progress       is told how many files are gone, and how many there are to go
    """
    if trace_events.listeners:
        trace_events.tell_dataset("cleaning", target.place.uri)
    if not plan.versions and not plan.files:
        return plan.stats
    removal = _Removal(target, plan, deletes_per_s, progress)
    yield from removal.remove_versions()
    yield from removal.remove_files()
    return removal.stats


class _Removal:
    """A cleanup that removes.

    newest          number of the newest version that was looked at
    newer           what versions refer to that came since the plan, or that are spared
    now_ns          the time by the store's clock, when it was asked last
    gone, removed   manifests and other files that are gone
    failed          keys of files that could not be removed
    """

    def __init__(
        self, target: CommitTarget, plan: CleanupPlan, deletes_per_s: int | None, progress: Progress | None = None
    ) -> None:
        self.target, self.place, self.plan = target, target.place, plan
        self.progress = progress
        self.deletes_per_s = deletes_per_s
        self.newest = plan.newest
        self.newer = References()
        self.now_ns = target.clock.time_ns()
        self.gone: list[ObjectMeta] = []
        self.removed: list[tuple[ObjectMeta, FileKind]] = []
        self.failed: set[str] = set()

    @property
    def stats(self) -> CleanupStats:
        """What was done."""
        return _stats(self.gone, self.removed, failed=len(self.failed), num_young=self.plan.num_young)

    # -- versions ----------------------------------------------------------------------------------------------------

    def remove_versions(self) -> Plan[None]:
        """Remove the manifests that nobody holds on to; where there are none, only learn the time from the store."""
        versions, rate = self.plan.versions, self.deletes_per_s
        size = _ANNOUNCED_AT_ONCE if rate is None else min(rate * _ANNOUNCED_S, DELETES_AT_ONCE)
        start = 0
        while True:
            batch = versions[start : start + size]
            intent = yield from announce(self.place, [one.version for one in batch], self.target.clock)
            try:
                start += yield from self._remove_announced(batch, intent)
            except Exception:
                yield from release(self.place, intent)
                raise
            yield from release(self.place, intent)
            if start >= len(versions):
                break

    def _remove_announced(self, batch: Sequence[OldVersion], intent: Intent) -> Plan[int]:
        """Remove versions while it is sure that nobody begins to build on them; gives how many were done with."""
        if intent.written_ns is not None:  # the store's clock, which all writers share; ours may be ahead of it
            self.now_ns = min(self.now_ns, intent.written_ns)
        if not batch:
            return 0
        held = yield from _find_held_versions(self.plan.root, self.plan.branch)
        spared = [one for one in batch if self._is_spared(one, held, intent)]
        for _, manifest in (yield from _read_manifests(self.place, [one.file for one in spared], decode_manifest)):
            self.newer.add(manifest, (yield from _blobs(self.plan.blobs_of, manifest)))
        kept = {one.version for one in spared}
        going = [one for one in batch if one.version not in kept]
        for number, part in enumerate(self._parts(going)):
            if not intent.is_fresh(self.target.clock):
                if number:
                    return batch.index(part[0])  # the others are announced anew
                self.failed.update(one.file.key for one in part)  # too slow to be sure of anything: another time
                continue
            gone = yield from self._remove([one.file for one in part])
            self.gone += gone
            if trace_events.listeners:
                trace_events.tell_files("delete", "manifest", [meta.key for meta in gone])
        return len(batch)

    def _is_spared(self, one: OldVersion, held: _Held, intent: Intent) -> bool:
        """Whether somebody holds on to a version, or it is younger than was thought."""
        if held.has(one.version) or one.version in intent.pinned:
            return True
        policy = self.plan.policy
        is_asked_for = is_old(one.committed_ns, policy, now_ns=self.now_ns)
        return not is_asked_for or is_young(one.newest_ns, policy, now_ns=self.now_ns)

    # -- files -------------------------------------------------------------------------------------------------------

    def remove_files(self) -> Plan[None]:
        """Remove the other files, unless manifests that refer to them stayed."""
        files = self.plan.files
        if self.failed:  # these versions are still there
            files = tuple((meta, kind) for meta, kind in files if kind in ("temporary", "unfinished"))
        # oldest first: a file system has these side by side, where names are in no order
        files = tuple(sorted(files, key=lambda one: time_ns(one[0].last_modified) or 0))
        kinds = {meta.key: kind for meta, kind in files}
        for part in self._parts([meta for meta, _ in files]):
            yield from self._look_for_newer()
            gone = yield from self._remove(self._still_garbage(part))
            self.removed += [(meta, kinds[meta.key]) for meta in gone]
            if trace_events.listeners:
                self._tell((meta.key, kinds[meta.key]) for meta in gone)

    def _tell(self, gone: Iterable[tuple[str, FileKind]]) -> None:
        """Tell who listens of files that are gone; those of other kinds pylance does not mention."""
        plan, skipped = self.plan, len(self.place.key("x")) - 1
        for key, kind in gone:
            if kind in ("data", "deletion", "index"):
                is_known = not plan.policy.delete_unverified and plan.removed.has(key[skipped:], kind)
                trace_events.tell_files("delete" if is_known else "delete_unverified", kind, [key])

    def _look_for_newer(self) -> Plan[None]:
        """Keep what versions refer to that came since the last look."""
        came = yield from self.target.handler.list_after(self.place, self.newest)
        new = [file for file in came if file.version > self.newest]
        keys = [ObjectMeta(file.key, file.size_bytes) for file in new]
        for start in range(0, len(keys), _READS_AT_ONCE):
            for _, manifest in (
                yield from _read_manifests(self.place, keys[start : start + _READS_AT_ONCE], decode_manifest)
            ):
                self.newer.add(manifest, (yield from _blobs(self.plan.blobs_of, manifest)))
        self.newest = max([self.newest, *(file.version for file in new)])

    def _still_garbage(self, metas: Sequence[ObjectMeta]) -> Sequence[ObjectMeta]:
        """The files that may still go, by what is known now and by the store's clock."""
        plan, skipped = self.plan, len(self.place.key("x")) - 1
        files = {meta.key[skipped:]: meta for meta in metas}
        found = garbage(
            {path: time_ns(meta.last_modified) for path, meta in files.items()},
            self.newer,
            plan.removed,
            unfinished=plan.unfinished,
            delete_unverified=plan.policy.delete_unverified,
            now_ns=self.now_ns,
        )
        return [files[path] for path, _ in found]

    # -- both --------------------------------------------------------------------------------------------------------

    def _parts(self, items: Sequence[T]) -> Iterator[Sequence[T]]:
        size = min(self.deletes_per_s or DELETES_AT_ONCE, DELETES_AT_ONCE)
        return (items[start : start + size] for start in range(0, len(items), size))

    def _remove(self, metas: Sequence[ObjectMeta]) -> Plan[Sequence[ObjectMeta]]:
        """Remove objects at the rate that was asked for; gives those that are gone."""
        keys = tuple(meta.key for meta in metas)
        if not keys:
            return ()
        if self.deletes_per_s is not None and (self.gone or self.removed or self.failed):
            yield Pause(len(keys) / self.deletes_per_s)
        try:
            yield Remove(self.place.store, keys)
        except LanceError as error:
            _logger.warning("cleanup: %d files could not be removed: %s", len(keys), error)
            self.failed.update(keys)
            return ()
        if self.progress is not None:
            done = len(self.gone) + len(self.removed) + len(keys)
            self.progress(done, len(self.plan.versions) + len(self.plan.files))
        return metas


def auto_cleanup(
    target: CommitTarget,
    committed: Manifest,
    *,
    root: Location | None = None,
    branch: str | None = None,
    blobs_of: BlobsOf | None = None,
) -> Plan[CleanupStats | None]:
    """The cleanup that the table's config asks for after a commit; None when there was none.

    The version before the committed one stays, too, as with pylance: the writer stood on it when it committed.

    The commit has succeeded whatever happens here: errors are logged, never raised.
    """
    try:
        policy = auto_cleanup_policy(committed.config, committed.version)
        if policy is None:
            return None
        current = committed.version - 1
        plan = yield from plan_cleanup(target, policy, current=current, root=root, branch=branch, blobs_of=blobs_of)
        rate = auto_cleanup_rate(committed.config)
        return (yield from run_cleanup(target, plan, deletes_per_s=rate))
    except LanceError as error:
        _logger.warning("version %d is committed, but the cleanup after it failed: %s", committed.version, error)
        return None


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


def _blobs(blobs_of: BlobsOf | None, manifest: Manifest) -> Plan[set[str]]:
    """The managed blobs that a version refers to, as far as somebody knows."""
    if blobs_of is None or not _manages_blobs(manifest):
        return set()
    return (yield from blobs_of(manifest))


def _manages_blobs(manifest: Manifest) -> bool:
    return bool(manifest.reader_flags & MANAGED_BLOBS)


def _find_held(root: Location, branch: str | None, blobs_of: BlobsOf | None) -> Plan[_Held]:
    """What tags and other branches hold on to."""
    held = yield from _find_held_versions(root, branch)
    for name in held.branches:
        folder = branch_root(root.path, name)
        listed: list[ObjectMeta] = yield List(root.store, versions_prefix(folder))
        metas = [meta for meta in listed if parse_manifest_name(meta.name) is not None]
        for start in range(0, len(metas), _READS_AT_ONCE):
            for _, manifest in (
                yield from _read_manifests(root, metas[start : start + _READS_AT_ONCE], decode_manifest)
            ):
                held.files.add(manifest, (yield from _blobs(blobs_of, manifest)), own_only=False)
    return held


def _find_held_versions(root: Location, branch: str | None) -> Plan[_Held]:
    """The versions of a branch that tags name and other branches left at, and the names of these."""
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
            held.branches.append(name)
    return held


def _read_refs(root: Location, metas: Sequence[ObjectMeta]) -> Plan[list[tuple[str, bytes]]]:
    named = [(name, meta.key) for meta in metas if (name := ref_name(meta.name)) is not None]
    found = []
    for start in range(0, len(named), _READS_AT_ONCE):
        part = named[start : start + _READS_AT_ONCE]
        read: list[bytes | None] = yield Together([_read_if_there(root, key) for _, key in part])
        found += [(name, data) for (name, _), data in zip(part, read, strict=True) if data is not None]
    return found


def _read_if_there(place: Location, key: str) -> Plan[bytes | None]:
    try:
        return bytes((yield Read(place.store, key)))
    except NotFound:
        return None  # it was removed since it was listed


def _read_manifests(
    place: Location, metas: Sequence[ObjectMeta], decode: Callable[[Buffer], T]
) -> Plan[list[tuple[ObjectMeta, T]]]:
    """Manifests side by side, without those that another cleanup has removed meanwhile."""
    if not metas:
        return []
    found: list[T | None] = yield Together([_read_manifest(place, meta.key, decode) for meta in metas])
    return [(meta, manifest) for meta, manifest in zip(metas, found, strict=True) if manifest is not None]


def _read_manifest(place: Location, key: str, decode: Callable[[Buffer], T]) -> Plan[T | None]:
    data = yield from _read_if_there(place, key)
    if data is None:
        return None
    try:
        return decode(data)
    except FormatError as error:
        error.path = key
        raise


def unfinished_files(place: Location, *, manages_blobs: bool = True) -> Plan[dict[str, ObjectMeta]]:
    """What writers are making in a table's folders, or were when they died, by path; no requests where none can be."""
    prefix = place.store.capabilities.temporary_prefix
    if prefix is None:
        return {}
    entries: list[ObjectMeta] = yield List(place.store, place.key(DATA, ""), NAMES_DIRECTLY_BELOW)
    sidecars = [meta.key for meta in entries if meta.is_folder]
    written = (*_WRITTEN_FOLDERS, *([BLOB_FOLDER] if manages_blobs else []))
    folders = [place.key(folder, "") for folder in written]
    return (yield from _below(place, [folder + prefix for folder in (*folders, *sidecars)]))


def _files(place: Location, *, manages_blobs: bool) -> Plan[dict[str, ObjectMeta]]:
    """Everything in the folders of a table but the one of its versions, by path below its own."""
    folders = (*_FOLDERS, *([BLOB_FOLDER] if manages_blobs else []))
    return (yield from _below(place, [place.key(folder, "") for folder in folders]))


def _below(place: Location, prefixes: Sequence[str]) -> Plan[dict[str, ObjectMeta]]:
    depth = len(place.key("x")) - 1
    listings: list[list[ObjectMeta]] = yield Together([ask(List(place.store, prefix)) for prefix in prefixes])
    return {meta.key[depth:]: meta for listing in listings for meta in listing if not meta.is_folder}
