"""What a cleanup may remove, and what it has removed: values that planning and removing share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.commit.pins import time_ns
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lance_io.plans.plan import Plan
    from lance_io.store.api import ObjectMeta
    from lance_io.store.url import Location
    from lance_io.table.manifest.manifest import Manifest
    from lance_io.table.transaction.garbage import CleanupPolicy, FileKind, References

    BlobsOf = Callable[[Manifest], Plan[set[str]]]


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
    seen_ns    when the youngest of all files was written that were looked at, by the store's clock, ns since the epoch
    versions   old versions
    files      other files, with their kind
    removed    what the old versions refer to, of what only this tells that it may go; and staging objects of no version
    unfinished paths of files that have not got their names yet
    root       the table's folder, where its tags and branches are
    branch     name of the branch that is cleaned, None for the main one
    kept_tags  versions that only a tag keeps
    num_young  how many versions only their age keeps
    blobs_of   gives the managed blobs that a version refers to
    has_other_names  whether there were manifests under two names, both of which go then
    """

    policy: CleanupPolicy
    newest: int
    seen_ns: int
    versions: tuple[OldVersion, ...]
    files: tuple[tuple[ObjectMeta, FileKind], ...]
    removed: References
    unfinished: frozenset[str]
    root: Location
    branch: str | None = None
    kept_tags: tuple[int, ...] = ()
    num_young: int = 0
    blobs_of: BlobsOf | None = None
    has_other_names: bool = False

    @property
    def stats(self) -> CleanupStats:
        """Sums over everything."""
        return count_removed(self.manifests, self.files, failed=0, num_young=self.num_young)

    @property
    def manifests(self) -> tuple[ObjectMeta, ...]:
        """The manifest files of the old versions."""
        return tuple(version.file for version in self.versions)


def count_removed(
    manifests: Sequence[ObjectMeta], files: Iterable[tuple[ObjectMeta, FileKind]], *, failed: int, num_young: int
) -> CleanupStats:
    """Sums over manifests and other files; failed: how many could not be removed, num_young: how many were spared."""
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
