"""The plan and the statistics of a cleanup, which planning and removal share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.commit.pins import to_epoch_ns
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
    """Counts of the files and versions that a cleanup removed, or would remove.

    Attributes:
        bytes_removed: Total size of the removed files in bytes.
        old_versions: Removed versions.
        data_files_removed: Removed data files.
        transaction_files_removed: Removed transaction files.
        index_files_removed: Removed index files.
        deletion_files_removed: Removed deletion files.
        failed_deletes: Files that could not be removed.
        young_versions_kept: Versions kept only because they are younger than ten minutes; not in pylance.
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
class CandidateVersion:
    """A version that a cleanup may remove, if it is old enough.

    file          its manifest file
    committed_ns  latest possible commit time, ns since the epoch: by its writer's clock, or by the store's if the
                  manifest was not read
    """

    version: int
    file: ObjectMeta
    committed_ns: int

    @property
    def newest_ns(self) -> int:
        """Latest possible commit time, by its writer's clock or the store's."""
        return max(self.committed_ns, to_epoch_ns(self.file.last_modified) or 0)


@dataclass(frozen=True)
class CleanupPlan:
    """A planned cleanup.

    policy              the rules
    newest              number of the newest version at the time of planning
    newest_write_ns     write time of the youngest listed file, by the store's clock, ns since the epoch
    versions            old versions to remove
    files               other files to remove, with their kind
    removed_references  files that may go only because the removed versions refer to them, and dead staging objects
    unfinished          paths of files that do not have their final names yet
    root                the table's folder, which has its tags and branches
    branch              name of the cleaned branch, None for the main one
    kept_by_tag         numbers of versions kept only by a tag
    num_young           number of versions kept only by their age
    blobs_of            returns the managed blobs that a version refers to
    has_two_names       whether some manifests have two names; both are removed then
    """

    policy: CleanupPolicy
    newest: int
    newest_write_ns: int
    versions: tuple[CandidateVersion, ...]
    files: tuple[tuple[ObjectMeta, FileKind], ...]
    removed_references: References
    unfinished: frozenset[str]
    root: Location
    branch: str | None = None
    kept_by_tag: tuple[int, ...] = ()
    num_young: int = 0
    blobs_of: BlobsOf | None = None
    has_two_names: bool = False

    @property
    def stats(self) -> CleanupStats:
        """Statistics of the plan."""
        return count_removed(self.manifests, self.files, failed=0, num_young=self.num_young)

    @property
    def manifests(self) -> tuple[ObjectMeta, ...]:
        """The manifest files of the old versions."""
        return tuple(version.file for version in self.versions)


def count_removed(
    manifests: Sequence[ObjectMeta], files: Iterable[tuple[ObjectMeta, FileKind]], *, failed: int, num_young: int
) -> CleanupStats:
    """Statistics of removed manifests and other files.

    failed     number of files that could not be removed
    num_young  number of versions kept only by their age
    """
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
