"""Cleanup: removes old versions and unreferenced files (rules: `table/transaction/garbage.py`).

    plan      List tags, branches, versions and files, and decide which versions and files may be removed. Read the
              manifests of versions that stay, or whose age the listing leaves open. If there are young
              unreferenced files, also read the manifests of the versions to remove.
    announce  Write a note with the versions to remove, so that no writer starts to build on them. Then look again for
              tags, branches and pins (`pins.py`), and check ages again: the write time of the note is the current time
              by the store's clock. Versions that are in use or young stay.
    remove    Remove manifests first, so that no version is left whose files are gone. Then remove files, a thousand
              at a time. Before each thousand, read the manifests that writers have committed meanwhile: a restored
              version may refer to the files.

The managed blobs of a table are named only in its data files, which a cleanup does not read. The caller's function
`blobs_of` finds them.

If the process dies during a cleanup, unreferenced files are left; a later cleanup removes the files when they are old.
Any number of cleanups may run concurrently: a cleanup skips files that another cleanup has removed.
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
from lance_io.commit.cleanups.cleanup_values import CandidateVersion, CleanupPlan, CleanupStats
from lance_io.commit.latest import versions_prefix
from lance_io.commit.other_names import without_duplicate_names
from lance_io.commit.pins import to_epoch_ns
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


class _GarbageRules(TypedDict):
    """Arguments that `find_removable_files` and `find_unverified_files` share; see the former."""

    unfinished: Container[str]
    delete_unverified: bool
    now_ns: int


class CleanupRefused(UsageError, OSError):
    """A cleanup would remove tagged versions, and its policy forbids that."""


@dataclass()
class _VersionDecisions:
    """Which versions a cleanup removes, and which stay.

    kept_references  the files that the versions that stay refer to
    to_remove        the versions to remove
    kept_by_tag      numbers of versions that stay only because of a tag
    num_young        count of versions that the policy selects and that stay because they are young: a second rule
                     protects versions of the last minutes (`is_version_protected`)
    manages_blobs    whether a version whose manifest was read has managed blobs
    """

    kept_references: References
    to_remove: list[CandidateVersion] = field(default_factory=list)
    kept_by_tag: set[int] = field(default_factory=set)
    num_young: int = 0
    manages_blobs: bool = False

    def count_kept(self, version: int, held: Held, *, is_selected: bool, is_too_young: bool) -> None:
        """Count a version that stays, if only a tag or its age keeps it.

        is_selected  whether the policy selects the version for removal
        """
        if is_selected and not is_too_young and version in held.tagged:
            self.kept_by_tag.add(version)
        self.num_young += is_selected and is_too_young and not held.has(version)


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
    """Plan a cleanup; removes nothing.

    target    the table or branch to clean
    current   number of the version that the caller has open. This version and all newer ones stay; None for the newest
    root      the table's folder, which has its tags and branches; None if it is the folder of `target`
    branch    name of the branch that `target` is, None for the main branch
    blobs_of  finds the paths of the managed blobs that a version refers to; without it, all managed blobs stay
    progress  called with two counts: how many versions are decided so far, and how many there are

    Raises `FormatError` for any damaged manifest, tag or branch, because its references are unknown. Raises
    `CleanupRefused` if tagged versions would be removed and the policy forbids that.
    """
    location = target.location
    yield from target.handler.find_latest(location)  # finishes a commit whose writer died halfway
    held = yield from find_held(root or location, branch, blobs_of)
    versions = yield from _VersionFolder.load(location)
    now_ns = target.clock.time_ns()
    decisions = yield from _decide_versions(location, policy, versions, held, current, now_ns, blobs_of, progress)
    if decisions.kept_by_tag and policy.error_if_tagged:
        raise CleanupRefused(
            f"Cleanup error: versions {sorted(decisions.kept_by_tag)} would be removed, but have tags. Delete the "
            "tags, or pass error_if_tagged_old_versions=False to keep these versions",
            path=location.uri,
        )
    to_remove = tuple(sorted(decisions.to_remove, key=lambda candidate: candidate.version))
    manages_blobs = decisions.manages_blobs
    unfinished = yield from unfinished_files(location, manages_blobs=manages_blobs)
    prefix_length = len(location.key("x")) - 1  # of the keys below the table's folder
    others = [meta for meta, name in versions.entries if name is None and not meta.is_folder]
    files = {meta.key[prefix_length:]: meta for meta in others}
    files |= (yield from table_files(location, manages_blobs=manages_blobs)) | unfinished
    staging = yield from _classify_staging_objects(target, files)
    version_paths = {meta.key[prefix_length:] for meta, _ in versions.entries}
    oldest = min(versions.attached)
    write_times_ns = {
        path: to_epoch_ns(meta.last_modified)
        for path, meta in files.items()
        if not is_staged_without_manifest(path, version_paths, oldest)
        or (staging is not None and meta.key not in staging.named)
    }
    rules: _GarbageRules = {"unfinished": unfinished, "delete_unverified": policy.delete_unverified, "now_ns": now_ns}
    young_files = find_unverified_files(write_times_ns, decisions.kept_references, **rules)
    manifests = [candidate.file for candidate in to_remove]
    removed_references = yield from _find_references(location, young_files, manifests, blobs_of)
    if staging is not None:
        removed_references.files |= {key[prefix_length:] for key in staging.dead}
    removable = find_removable_files(write_times_ns, decisions.kept_references, removed_references, **rules)
    return CleanupPlan(
        policy,
        newest=max(versions.attached),
        newest_write_ns=max(to_epoch_ns(meta.last_modified) or 0 for meta in (*versions.metas, *files.values())),
        versions=to_remove,
        files=tuple((files[path], kind) for path, kind in removable),
        removed_references=removed_references,
        unfinished=frozenset(unfinished),
        root=root or location,
        branch=branch,
        kept_by_tag=tuple(sorted(decisions.kept_by_tag)),
        num_young=decisions.num_young,
        blobs_of=blobs_of,
        has_two_names=versions.has_two_names,
    )


@dataclass(frozen=True, slots=True)
class _VersionFolder:
    """A listing of the folder `_versions`, with parsed file names.

    entries    all files, each with its name as a manifest; None for a file that is no manifest
    manifests  the manifest files, one per version even if the version has two names
    attached   the manifest files by version number, without detached versions, which are not part of the history
    """

    entries: Sequence[tuple[ObjectMeta, ManifestName | None]]
    manifests: Sequence[tuple[ObjectMeta, ManifestName]]
    attached: Mapping[int, ObjectMeta]

    @classmethod
    def load(cls, location: Location) -> Plan[_VersionFolder]:
        """List the folder."""
        metas: list[ObjectMeta] = yield List(location.store, versions_prefix(location.path))
        entries = [(meta, parse_manifest_name(meta.name)) for meta in metas]
        manifests = without_duplicate_names((meta, name) for meta, name in entries if name is not None)
        attached = {name.version: meta for meta, name in manifests if name.scheme != "detached"}
        return cls(entries, manifests, attached)

    @property
    def metas(self) -> list[ObjectMeta]:
        """All files."""
        return [meta for meta, _ in self.entries]

    @property
    def has_two_names(self) -> bool:
        """Whether some version has manifest files under both of its names, V1 and V2."""
        return len(self.manifests) < sum(name is not None for _, name in self.entries)


def _decide_versions(
    location: Location,
    policy: CleanupPolicy,
    versions: _VersionFolder,
    held: Held,
    current: int | None,
    now_ns: int,
    blobs_of: BlobsOf | None,
    progress: Progress | None,
) -> Plan[_VersionDecisions]:
    """Decide which versions are removed. Reads manifests only where the listing cannot decide.

    Parameters: see `plan_cleanup`.
    """
    decisions = _VersionDecisions(kept_references=held.files)
    selected = candidate_versions(versions.attached, policy, current=current)
    undecided: list[ObjectMeta] = []
    for meta, name in versions.manifests:
        version = name.version
        is_candidate = name.scheme != "detached" and version in selected and not held.has(version)
        if is_candidate and _is_surely_removable(meta, policy, now_ns):
            decisions.to_remove.append(CandidateVersion(version, meta, to_epoch_ns(meta.last_modified) or 0))
        else:
            undecided.append(meta)
    num_decided, num_versions = len(decisions.to_remove), len(versions.manifests)
    for start in range(0, len(undecided), READS_AT_ONCE):  # bounds the manifests in memory
        if progress is not None:
            progress(num_decided + start, num_versions)
        metas = undecided[start : start + READS_AT_ONCE]
        for meta, manifest in (yield from read_manifests(location, metas, decode_manifest)):
            candidate = CandidateVersion(manifest.version, meta, manifest.timestamp_ns)
            version = candidate.version
            is_selected = version in selected and is_version_old_enough(candidate.committed_ns, policy, now_ns=now_ns)
            is_too_young = is_version_protected(candidate.newest_ns, policy, now_ns=now_ns)
            decisions.manages_blobs |= blobs_of is not None and has_managed_blobs(manifest)
            if is_selected and not is_too_young and not held.has(version):
                decisions.to_remove.append(candidate)
                continue
            decisions.kept_references.add(manifest, (yield from managed_blobs(blobs_of, manifest)))
            decisions.count_kept(version, held, is_selected=is_selected, is_too_young=is_too_young)
    if progress is not None:
        progress(num_versions, num_versions)
    return decisions


def _classify_staging_objects(target: CommitTarget, files: Mapping[str, ObjectMeta]) -> Plan[StagedObjects | None]:
    """Find the staging objects of commits among the files, and ask the commit handler which of them are in use.

    files  by path below the table's folder
    Returns None, without a request, if there are no staging objects.
    """
    staged = []
    for path, meta in files.items():
        final_name = staged_for(meta.name) if path.startswith(f"{VERSIONS}/") else None
        parsed_name = None if final_name is None else parse_manifest_name(final_name)
        if parsed_name is not None:
            staged.append((parsed_name.version, meta.key))
    return (yield from target.handler.classify_staged(target.location, staged)) if staged else None


def _is_surely_removable(meta: ObjectMeta, policy: CleanupPolicy, now_ns: int) -> bool:
    """Whether the listing alone shows that a version is old enough to be removed.

    The write time of a manifest is an upper bound of the commit time of its version.
    """
    written_ns = to_epoch_ns(meta.last_modified)
    if written_ns is None:
        return False
    return is_version_old_enough(written_ns, policy, now_ns=now_ns) and not is_version_protected(
        written_ns, policy, now_ns=now_ns
    )


def _find_references(
    location: Location, young_files: Mapping[str, FileKind], manifests: Sequence[ObjectMeta], blobs_of: BlobsOf | None
) -> Plan[References]:
    """Find out which young files the versions to remove refer to. A young file to which none of them refers must stay.

    Reads the newest versions first, and stops as soon as a reference to each young file is found. The result may also
    contain references to other files.

    manifests  manifest files of the versions to remove, oldest first
    """
    all_references, references = References(), References()
    files, indices = reference_keys_of(young_files)
    has_blobs = any(path.startswith(f"{BLOB_FOLDER}/") for path in files)
    for end in range(len(manifests), 0, -READS_AT_ONCE):
        if not files and not indices:
            break
        metas = manifests[max(0, end - READS_AT_ONCE) : end]
        if has_blobs:
            for _, manifest in (yield from read_manifests(location, metas, decode_manifest)):
                references.add(manifest, (yield from managed_blobs(blobs_of, manifest)))
        else:
            for _, names in (yield from read_manifests(location, metas, decode_file_names)):
                references.add(names)
        files -= references.files
        indices -= references.indices
        all_references.move_from(references)
    return all_references


def run_cleanup(
    target: CommitTarget, plan: CleanupPlan, *, deletes_per_s: int | None = None, progress: Progress | None = None
) -> Plan[CleanupStats]:
    """Run a planned cleanup. Versions and files that came into use after the planning stay.

    deletes_per_s  upper bound of removed files per second; None for no limit
    progress       called with two counts: how many files and manifests are removed so far, and how many will be
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
    """Run the cleanup that the table's config requests after a commit; returns None if the config requests none.

    The version before the committed one stays, too, as with pylance: the writer had it open when it committed.

    Errors of any class are logged and not raised, because the commit has already succeeded. Only a cancellation of the
    call is raised.

    committed  manifest of the version that the commit has created
    Other parameters: see `plan_cleanup`.
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
            exc_info=not isinstance(error, LanceError),  # other errors indicate a bug: log the stack trace
        )
        return None
