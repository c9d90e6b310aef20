"""Removing old versions and unreferenced files (rules: `table/transaction/garbage.py`).

    plan      list tags, branches, versions and files, and decide which may be removed. A manifest is read only if the
              listing cannot decide: those that stay, those that may be younger than they look, and, if there are young
              unreferenced files, those that are removed
    announce  announce the versions to remove, so that no writer starts to build on them; then look again for tags, pins
              (`pins.py`) and branches, and check the ages by the store's clock, which the written note shows: versions
              that are held or young stay
    remove    manifests first, so that no version is left whose files are gone; then files, with a look at newer
              versions before each thousand of them: one may be a restored version

Only data files name the managed blobs of a table, and a cleanup does not read them: the caller provides `blobs_of`.

A process that dies in between leaves unreferenced files, which a later cleanup removes when they are old. Any number of
cleanups may run concurrently: files that another one has removed are skipped.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, TypedDict

from lance_io.commit.cleanups.cleanup_reads import (
    READS_AT_ONCE,
    Held,
    find_held,
    has_managed_blobs,
    managed_blobs,
    read_manifests,
    table_files,
    unfinished_files,
)
from lance_io.commit.cleanups.cleanup_removal import Removal
from lance_io.commit.cleanups.cleanup_values import CleanupPlan, CleanupStats, OldVersion
from lance_io.commit.latest import versions_prefix
from lance_io.commit.other_names import without_duplicate_names
from lance_io.commit.pins import time_ns
from lance_io.errors import LanceError, UsageError
from lance_io.format.schema import BLOB_FOLDER
from lance_io.io import trace_events
from lance_io.plans.store_requests import List
from lance_io.records import dataclass
from lance_io.redaction import get_logger
from lance_io.table.manifest.manifest import Manifest, decode_file_names, decode_manifest
from lance_io.table.manifest.paths import VERSIONS, parse_manifest_name, staged_for
from lance_io.table.transaction.auto_cleanup import auto_cleanup_policy, auto_cleanup_rate
from lance_io.table.transaction.garbage import (
    CleanupPolicy,
    FileKind,
    References,
    candidate_versions,
    find_removable_files,
    find_unverified_files,
    is_staged_without_manifest,
    is_version_old_enough,
    is_version_protected,
    reference_keys_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from lance_io.commit.cleanups.cleanup_values import BlobsOf
    from lance_io.commit.handler import StagedObjects
    from lance_io.commit.target import CommitTarget
    from lance_io.plans.plan import Plan
    from lance_io.store.api import ObjectMeta
    from lance_io.store.url import Location
    from lance_io.table.manifest.paths import ManifestName

    Progress = Callable[[int, int | None], object]

_logger = get_logger(__name__)


class _Rules(TypedDict):
    unfinished: Container[str]
    delete_unverified: bool
    now_ns: int


class CleanupRefused(UsageError, OSError):
    """Tagged versions are among those that would be removed."""


@dataclass()
class _SortedVersions:
    """Versions sorted into those to remove and those that stay.

    kept           files that the remaining versions refer to
    old            versions to remove
    tagged         numbers of versions that stay only because of a tag
    num_young      number of versions that stay only because they are young
    manages_blobs  whether a version whose manifest was read has managed blobs
    """

    kept: References
    old: list[OldVersion] = field(default_factory=list)
    tagged: set[int] = field(default_factory=set)
    num_young: int = 0
    manages_blobs: bool = False

    def keep(self, version: int, held: Held, *, asked_for: bool, young: bool) -> None:
        """Count a version that stays."""
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
    """Plan a cleanup; changes nothing.

    current  the version that the caller has open; it stays, with all newer ones. None for the newest
    root     the table's folder if `target` is one of its branches
    branch   the branch's name, None for the main one
    blobs_of returns the paths of the managed blobs that a version refers to; without it, all blobs stay
    progress called with the number of decided versions and the number of versions

    Raises `FormatError` for any damaged manifest, tag or branch: nothing is removed on a guess. Raises `CleanupRefused`
    if tagged versions would be removed and the policy forbids that.
    """
    location = target.location
    yield from target.handler.find_latest(location)  # completes a commit that its writer left half done
    held = yield from find_held(root or location, branch, blobs_of)
    versions = yield from _Listed.load(location)
    now_ns = target.clock.time_ns()
    sorted_out = yield from _sort_versions(location, policy, versions, held, current, now_ns, blobs_of, progress)
    if sorted_out.tagged and policy.error_if_tagged:
        raise CleanupRefused(
            f"Cleanup error: versions {sorted(sorted_out.tagged)} would be removed, but have tags. Delete the "
            "tags, or pass error_if_tagged_old_versions=False to keep these versions",
            path=location.uri,
        )
    old = tuple(sorted(sorted_out.old, key=lambda version: version.version))
    manages_blobs = sorted_out.manages_blobs
    unfinished = yield from unfinished_files(location, manages_blobs=manages_blobs)
    depth = len(location.key("x")) - 1
    files = {meta.key[depth:]: meta for meta, name in versions.parsed if name is None and not meta.is_folder}
    files |= (yield from table_files(location, manages_blobs=manages_blobs)) | unfinished
    staged = yield from _sort_staged(target, files)
    paths, oldest = {meta.key[depth:] for meta, _ in versions.parsed}, min(versions.attached)
    written = {
        path: time_ns(meta.last_modified)
        for path, meta in files.items()
        if not is_staged_without_manifest(path, paths, oldest) or (staged is not None and meta.key not in staged.named)
    }
    rules: _Rules = {"unfinished": unfinished, "delete_unverified": policy.delete_unverified, "now_ns": now_ns}
    unsure = find_unverified_files(written, sorted_out.kept, **rules)
    removed = yield from _verify(location, unsure, [version.file for version in old], blobs_of)
    if staged is not None:
        removed.files |= {key[depth:] for key in staged.dead}
    return CleanupPlan(
        policy,
        newest=max(versions.attached),
        seen_ns=max(time_ns(meta.last_modified) or 0 for meta in (*versions.metas, *files.values())),
        versions=old,
        files=tuple(
            (files[path], kind) for path, kind in find_removable_files(written, sorted_out.kept, removed, **rules)
        ),
        removed=removed,
        unfinished=frozenset(unfinished),
        root=root or location,
        branch=branch,
        kept_tags=tuple(sorted(sorted_out.tagged)),
        num_young=sorted_out.num_young,
        blobs_of=blobs_of,
        has_other_names=versions.has_other_names,
    )


@dataclass(frozen=True, slots=True)
class _Listed:
    """The files in the folder of versions.

    parsed    all files with their parsed names, None for files that are no manifests
    named     manifests, one per version
    attached  these by version, without detached ones
    """

    parsed: Sequence[tuple[ObjectMeta, ManifestName | None]]
    named: Sequence[tuple[ObjectMeta, ManifestName]]
    attached: Mapping[int, ObjectMeta]

    @classmethod
    def load(cls, location: Location) -> Plan[_Listed]:
        """List the folder."""
        metas: list[ObjectMeta] = yield List(location.store, versions_prefix(location.path))
        parsed = [(meta, parse_manifest_name(meta.name)) for meta in metas]
        named = without_duplicate_names((meta, name) for meta, name in parsed if name is not None)
        return cls(parsed, named, {name.version: meta for meta, name in named if name.scheme != "detached"})

    @property
    def metas(self) -> list[ObjectMeta]:
        """All files."""
        return [meta for meta, _ in self.parsed]

    @property
    def has_other_names(self) -> bool:
        """Whether a version has two names."""
        return len(self.named) < sum(name is not None for _, name in self.parsed)


def _sort_versions(
    location: Location,
    policy: CleanupPolicy,
    versions: _Listed,
    held: Held,
    current: int | None,
    now_ns: int,
    blobs_of: BlobsOf | None,
    progress: Progress | None,
) -> Plan[_SortedVersions]:
    """Sort the versions; reads manifests if the listing cannot decide. Parameters as for `plan_cleanup`."""
    sorted_out = _SortedVersions(kept=held.files)
    chosen = candidate_versions(versions.attached, policy, current=current)
    undecided: list[ObjectMeta] = []
    for meta, name in versions.named:
        version = name.version
        is_chosen = name.scheme != "detached" and version in chosen and not held.has(version)
        if is_chosen and _is_sure_to_go(meta, policy, now_ns):
            sorted_out.old.append(OldVersion(version, meta, time_ns(meta.last_modified) or 0))
        else:
            undecided.append(meta)
    num_sure, num_named = len(sorted_out.old), len(versions.named)
    for start in range(0, len(undecided), READS_AT_ONCE):  # never all manifests in memory
        if progress is not None:
            progress(num_sure + start, num_named)
        metas = undecided[start : start + READS_AT_ONCE]
        for meta, manifest in (yield from read_manifests(location, metas, decode_manifest)):
            old = OldVersion(manifest.version, meta, manifest.timestamp_ns)
            asked_for = old.version in chosen and is_version_old_enough(old.committed_ns, policy, now_ns=now_ns)
            young = is_version_protected(old.newest_ns, policy, now_ns=now_ns)
            sorted_out.manages_blobs |= blobs_of is not None and has_managed_blobs(manifest)
            if asked_for and not young and not held.has(old.version):
                sorted_out.old.append(old)
                continue
            sorted_out.kept.add(manifest, (yield from managed_blobs(blobs_of, manifest)))
            sorted_out.keep(old.version, held, asked_for=asked_for, young=young)
    if progress is not None:
        progress(num_named, num_named)
    return sorted_out


def _sort_staged(target: CommitTarget, files: Mapping[str, ObjectMeta]) -> Plan[StagedObjects | None]:
    """Sort the staging objects among the files (by path). Makes no requests if there are none."""
    staged = []
    for path, meta in files.items():
        final = staged_for(meta.name) if path.startswith(f"{VERSIONS}/") else None
        name = None if final is None else parse_manifest_name(final)
        if name is not None:
            staged.append((name.version, meta.key))
    return (yield from target.handler.sort_staged(target.location, staged)) if staged else None


def _is_sure_to_go(meta: ObjectMeta, policy: CleanupPolicy, now_ns: int) -> bool:
    """Whether a version is old enough by the write time of its manifest, which is not before the commit."""
    written_ns = time_ns(meta.last_modified)
    if written_ns is None:
        return False
    return is_version_old_enough(written_ns, policy, now_ns=now_ns) and not is_version_protected(
        written_ns, policy, now_ns=now_ns
    )


def _verify(
    location: Location, unsure: Mapping[str, FileKind], manifests: Sequence[ObjectMeta], blobs_of: BlobsOf | None
) -> Plan[References]:
    """The references of versions to some files. Reads the newest versions first, and stops as soon as all are known.

    manifests  manifests of the versions, oldest first
    """
    named, references = References(), References()
    files, indices = reference_keys_of(unsure)
    asks_blobs = any(path.startswith(f"{BLOB_FOLDER}/") for path in files)
    for end in range(len(manifests), 0, -READS_AT_ONCE):
        if not files and not indices:
            break
        metas = manifests[max(0, end - READS_AT_ONCE) : end]
        if asks_blobs:
            for _, manifest in (yield from read_manifests(location, metas, decode_manifest)):
                references.add(manifest, (yield from managed_blobs(blobs_of, manifest)))
        else:
            for _, names in (yield from read_manifests(location, metas, decode_file_names)):
                references.add(names)
        files -= references.files
        indices -= references.indices
        named.move_from(references)
    return named


def run_cleanup(
    target: CommitTarget, plan: CleanupPlan, *, deletes_per_s: int | None = None, progress: Progress | None = None
) -> Plan[CleanupStats]:
    """Run a planned cleanup; keeps versions and files that came into use since.

    deletes_per_s  upper bound of deleted files per second; None for no limit
    progress       called with the number of removed files and the number of files to remove
    """
    if trace_events.listeners:
        trace_events.emit_dataset("cleaning", target.location.uri)
    if not plan.versions and not plan.files:
        return plan.stats
    removal = Removal(target, plan, deletes_per_s, progress)
    yield from removal.remove_versions()
    yield from removal.remove_files()
    return removal.stats


def auto_cleanup(
    target: CommitTarget,
    committed: Manifest,
    *,
    root: Location | None = None,
    branch: str | None = None,
    blobs_of: BlobsOf | None = None,
) -> Plan[CleanupStats | None]:
    """Run the cleanup that the table's config requests after a commit; None if it requests none.

    The version before the committed one stays, too, as with pylance: the writer had it open when it committed.

    The commit has already succeeded: errors of any class are logged, never raised. Only a cancellation is raised, as
    between any two steps of a call.
    """
    try:
        policy = auto_cleanup_policy(committed.config, committed.version)
        if policy is None:
            return None
        current = committed.version - 1
        plan = yield from plan_cleanup(target, policy, current=current, root=root, branch=branch, blobs_of=blobs_of)
        rate = auto_cleanup_rate(committed.config)
        return (yield from run_cleanup(target, plan, deletes_per_s=rate))
    except Exception as error:
        _logger.warning(
            "version %d is committed, but the cleanup after it failed: %s: %s",
            committed.version,
            type(error).__name__,
            error,
            exc_info=not isinstance(error, LanceError),  # unexpected
        )
        return None
