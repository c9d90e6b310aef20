"""Cleanup: removes old versions and unreferenced files (spec: commit, section 9)."""

from __future__ import annotations

from dataclasses import field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lance_io.commit.cleanups.cleanup import auto_cleanup, plan_cleanup, run_cleanup
from lance_io.commit.target import CommitTarget
from lance_io.errors import BindError
from lance_io.lazy_names import lazy_module
from lance_io.limits import CLEANUP_FILES_SHOWN
from lance_io.records import dataclass
from lance_io.table.manifest.flags import MANAGED_BLOBS
from lance_io.table.transaction.garbage import CleanupPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.commit.cleanups.cleanup_values import CleanupPlan, CleanupStats
    from lance_io.plans.plan import Plan
    from lance_io.reads.blobs import managed_blobs
    from lance_io.reads.metadata.file_listing import Progress
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.manifest import Manifest
else:
    managed_blobs = lazy_module("lance_io.reads.blobs.managed_blobs")


@dataclass(frozen=True)
class CleanupExplanation:
    """The files that a cleanup would remove.

    Attributes:
        read_version: The open version, which is kept, like all newer ones.
        stats: Numbers of versions, files and bytes.
        candidate_files: Paths of the files, with `include_files`.
        candidate_files_truncated: Whether there are more files than `candidate_file_limit`.
        candidate_file_limit: Maximal number of paths.
        referenced_branches: Always empty: branches keep their files.
        warnings: Further information.
    """

    read_version: int
    stats: CleanupStats
    candidate_files: list[str] = field(default_factory=list)
    candidate_files_truncated: bool = False
    candidate_file_limit: int = CLEANUP_FILES_SHOWN
    referenced_branches: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def cleanup_policy(
    older_than: timedelta | None,
    retain_versions: int | None,
    *,
    delete_unverified: bool,
    error_if_tagged: bool,
    versions: list[int] | None,
) -> CleanupPolicy:
    """The policy of one cleanup.

    Raises `BindError` for an invalid number, and for an empty list of versions; `TypeError` for an age that is no
    timedelta.
    """
    if older_than is not None and not isinstance(older_than, timedelta):
        raise TypeError(f"older_than must be a timedelta, got {older_than!r}")
    if retain_versions is not None and retain_versions < 1:
        raise BindError(f"retain_versions must be greater than 0, got {retain_versions}")
    if versions is not None and not versions:
        raise BindError(
            "versions must not be empty when specified: list versions to remove, or pass None for all old ones"
        )
    return CleanupPolicy(
        older_than_s=None if older_than is None else older_than.total_seconds(),
        retain_versions=retain_versions,
        versions=None if versions is None else frozenset(versions),
        delete_unverified=delete_unverified,
        error_if_tagged=error_if_tagged,
    )


def clean_up(
    state: DatasetState, deletes_per_s: int | None, progress: Progress | None = None, **rules: Any
) -> Plan[CleanupStats]:
    """Remove versions and files by `rules`, the keywords of `cleanup_policy`.

    progress  called with the number of checked versions, then with the number of removed files and the total
    Raises `BindError` for a rate below 1.
    """
    policy = cleanup_policy(**rules)
    if deletes_per_s is not None and deletes_per_s < 1:
        raise BindError(f"delete_rate_limit must be greater than 0, got {deletes_per_s}")
    plan = yield from _plan(state, policy, progress)
    return (yield from run_cleanup(_target(state), plan, deletes_per_s=deletes_per_s, progress=progress))


def explain_cleanup(
    state: DatasetState, *, include_files: bool, max_files: int, **rules: Any
) -> Plan[CleanupExplanation]:
    """Explain `clean_up` with these rules."""
    plan = yield from _plan(state, cleanup_policy(**rules))
    depth = len(state.location.key("x")) - 1
    paths = [meta.key[depth:] for meta in (*plan.manifests, *(meta for meta, _ in plan.files))] if include_files else []
    warnings = [f"version {version} is kept because of a tag" for version in plan.kept_by_tag]
    if plan.num_young:
        warnings.append(young_versions_note(plan.num_young))
    return CleanupExplanation(
        read_version=state.manifest.version,
        stats=plan.stats,
        candidate_files=paths[:max_files],
        candidate_files_truncated=len(paths) > max_files,
        candidate_file_limit=max_files,
        warnings=warnings,
    )


def young_versions_note(count: int) -> str:
    """A warning about versions that are kept only because they are young."""
    return (
        f"{count:,} more version(s) are kept only because they are younger than ten minutes: pass older_than of zero, "
        "or their numbers, to remove them now"
    )


def _plan(state: DatasetState, policy: CleanupPolicy, progress: Progress | None = None) -> Plan[CleanupPlan]:
    manifest = state.manifest
    return plan_cleanup(
        _target(state),
        policy,
        current=manifest.version,
        root=state.root,
        branch=manifest.branch,
        blobs_of=_blobs_of(state),
        progress=progress,
    )


def _blobs_of(state: DatasetState) -> Callable[[Manifest], Plan[set[str]]] | None:
    """A function that returns the managed blobs of a version; None for tables without managed blobs."""
    if not state.manifest.reader_flags & MANAGED_BLOBS:
        return None

    return managed_blobs.ManagedBlobs(state).paths


def _target(state: DatasetState) -> CommitTarget:
    return CommitTarget(state.location, state.session.handler(state.location, state.commit_lock))


def after_commit(state: DatasetState) -> Plan[None]:
    """Clean up if the table's configuration schedules it for this version; never fails."""
    if state.manifest.config:
        root, branch = state.root, state.manifest.branch
        yield from auto_cleanup(_target(state), state.manifest, root=root, branch=branch, blobs_of=_blobs_of(state))
