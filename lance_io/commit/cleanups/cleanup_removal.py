"""Runs a planned cleanup; keeps versions and files that came into use since the plan. See `cleanup.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from lance_io.commit.cleanups.cleanup_reads import (
    READS_AT_ONCE,
    Held,
    find_held_versions,
    managed_blobs,
    read_manifests,
)
from lance_io.commit.cleanups.cleanup_values import CandidateVersion, CleanupPlan, CleanupStats, count_removed
from lance_io.commit.other_names import both_names
from lance_io.commit.pins import announce, pinned_versions, release, to_epoch_ns
from lance_io.errors import LanceError, StoreError
from lance_io.io import trace_events
from lance_io.plans.plan import Pause, Shielded
from lance_io.plans.store_requests import Put, Remove, RemoveEmptyFolders
from lance_io.redaction import get_logger
from lance_io.store.api import ObjectMeta
from lance_io.store.failures import StoreFull
from lance_io.store.offers import HoldsFolders
from lance_io.table.manifest.manifest import decode_manifest
from lance_io.table.transaction.garbage import (
    FileKind,
    References,
    find_removable_files,
    is_version_old_enough,
    is_version_protected,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    from lance_io.commit.pins import Intent
    from lance_io.commit.target import CommitTarget
    from lance_io.plans.plan import Plan

    Progress = Callable[[int, int | None], object]

T = TypeVar("T")

DELETES_AT_ONCE: Final = 1000
_ANNOUNCED_AT_ONCE: Final = 20_000  # versions: on local disk looking for pins lists the whole folder
_ANNOUNCED_S: Final = 60  # how long the removal of announced versions may take at a given rate

_logger = get_logger(__name__)


class Removal:
    """Removes the versions and files of a plan.

    newest          number of the newest version that was looked at
    newer           files of versions that are newer than the plan, or that are kept
    now_ns          time by the store's clock, when it was last read
    gone, removed   manifests and other files that are gone
    failed          keys of files that could not be removed
    is_short        whether the store had no room for a note
    """

    def __init__(
        self, target: CommitTarget, plan: CleanupPlan, deletes_per_s: int | None, progress: Progress | None = None
    ) -> None:
        self.target, self.location, self.plan = target, target.location, plan
        self.progress = progress
        self.deletes_per_s = deletes_per_s
        self.newest = plan.newest
        self.newer = References()
        self.now_ns = target.clock.time_ns()
        self.gone: list[ObjectMeta] = []
        self.removed: list[tuple[ObjectMeta, FileKind]] = []
        self.failed: set[str] = set()
        self.is_short = False

    @property
    def stats(self) -> CleanupStats:
        """Statistics of the removal."""
        return count_removed(self.gone, self.removed, failed=len(self.failed), num_young=self.plan.num_young)

    # -- versions ----------------------------------------------------------------------------------------------------

    def remove_versions(self) -> Plan[None]:
        """Remove the manifests that are not in use. Without any, only read the time of the store."""
        versions, rate = self.plan.versions, self.deletes_per_s
        size = _ANNOUNCED_AT_ONCE if rate is None else min(rate * _ANNOUNCED_S, DELETES_AT_ONCE)
        start, num_unannounced = 0, 1
        while True:
            batch = versions[start : start + size]
            intent = yield from self._announce(batch)
            if intent is None:
                batch = batch[:num_unannounced]
                num_unannounced = min(2 * num_unannounced, READS_AT_ONCE)
                yield from self._remove_unannounced(batch)
                start += len(batch)
            else:
                start += yield from self._remove_under(intent, batch)
            if start >= len(versions):
                break

    def _announce(self, batch: Sequence[CandidateVersion]) -> Plan[Intent | None]:
        """Announce the versions; None if the store has no room for the note, even after removing unnamed files."""
        versions = [old.version for old in batch]
        try:
            return (yield from announce(self.location, versions, self.target.clock))
        except StoreFull as error:
            _logger.info("no room to announce a cleanup: %s", error)
        if not self.is_short:
            self.is_short = True
            if self.location.store.scheme != "file":  # local disk uses this machine's clock
                self.now_ns = min(self.now_ns, self.plan.newest_write_ns)
            yield from self._remove_files(self._unnamed)
            try:
                return (yield from announce(self.location, versions, self.target.clock))
            except StoreFull:
                pass
        return None

    def _remove_under(self, intent: Intent, batch: Sequence[CandidateVersion]) -> Plan[int]:
        """Remove announced versions, then the note; returns the number of processed versions."""
        try:
            num_done = yield from self._remove_announced(batch, intent)
        except Exception:
            yield from release(self.location, intent)
            raise
        yield from release(self.location, intent)
        return num_done

    def _remove_unannounced(self, batch: Sequence[CandidateVersion]) -> Plan[None]:
        """Remove versions although the store has no room for a note.

        A writer that builds on a version pins it, then reads its manifest: after the manifest is gone, no writer can
        start to. A writer that started before has a pin, or has ended. So versions that are in use after the removal
        are put back, and keep their files.
        """
        versions = [old.version for old in batch]
        pinned = yield from pinned_versions(self.location, versions)
        held = yield from find_held_versions(self.plan.root, self.plan.branch)
        kept = [old for old in batch if self._is_in_use(old, held, pinned)]
        yield from self._keep(old.file for old in kept)
        going = [old for old in batch if old not in kept]
        copies = dict((yield from read_manifests(self.location, [old.file for old in going], bytes)))
        yield Shielded(self._remove_and_look_again(going, copies))

    def _remove_and_look_again(
        self, going: Sequence[CandidateVersion], copies: Mapping[ObjectMeta, bytes]
    ) -> Plan[None]:
        """Remove manifests, and put back those that a writer builds on. Must not be interrupted."""
        gone = yield from self._remove([old.file for old in going])
        pinned = yield from pinned_versions(self.location, [old.version for old in going])
        held = yield from find_held_versions(self.plan.root, self.plan.branch)
        in_use = [old for old in going if old.version in pinned or held.has(old.version)]
        restored = {old.file: copies[old.file] for old in in_use if old.file in copies}
        yield from self._put_back(restored)
        yield from self._keep(restored)
        self._count_gone([meta for meta in gone if meta not in restored])

    def _put_back(self, manifests: Mapping[ObjectMeta, bytes]) -> Plan[None]:
        for meta, data in manifests.items():
            try:
                yield Put(self.location.store, meta.key, data)
            except LanceError as error:
                raise StoreError(
                    "a pin or tag names this version, which was removed without an announcement, as the store was "
                    f"full; putting it back failed. Its files still exist: {error}",
                    path=meta.key,
                ) from error

    def _keep(self, manifests: Iterable[ObjectMeta]) -> Plan[None]:
        """Keep the files that some versions refer to."""
        for _, manifest in (yield from read_manifests(self.location, [*manifests], decode_manifest)):
            self.newer.add(manifest, (yield from managed_blobs(self.plan.blobs_of, manifest)))

    def _count_gone(self, gone: Sequence[ObjectMeta]) -> None:
        self.gone += gone
        if trace_events.listeners:
            trace_events.emit_files("delete", "manifest", [meta.key for meta in gone])

    def _remove_announced(self, batch: Sequence[CandidateVersion], intent: Intent) -> Plan[int]:
        """Remove versions while the announcement is valid; returns the number of processed versions."""
        if intent.written_ns is not None:  # all writers share the store's clock; ours may be ahead of it
            self.now_ns = min(self.now_ns, intent.written_ns)
        if not batch:
            return 0
        held = yield from find_held_versions(self.plan.root, self.plan.branch)
        kept = [old for old in batch if self._is_in_use(old, held, intent.pinned)]
        yield from self._keep(old.file for old in kept)
        kept_numbers = {old.version for old in kept}
        going = [old for old in batch if old.version not in kept_numbers]
        for number, part in enumerate(self._parts(going)):
            if not intent.is_fresh(self.target.clock):
                if number:
                    return batch.index(part[0])  # announce the others again
                self.failed.update(old.file.key for old in part)  # too slow for a valid announcement: leave them
                continue
            self._count_gone((yield from self._remove([old.file for old in part])))
        return len(batch)

    def _is_in_use(self, old: CandidateVersion, held: Held, pinned: Container[int]) -> bool:
        """Whether a tag, branch or pin names a version, or it is too young by the store's clock."""
        if held.has(old.version) or old.version in pinned:
            return True
        policy = self.plan.policy
        is_asked_for = is_version_old_enough(old.committed_ns, policy, now_ns=self.now_ns)
        return not is_asked_for or is_version_protected(old.newest_ns, policy, now_ns=self.now_ns)

    # -- files -------------------------------------------------------------------------------------------------------

    def remove_files(self) -> Plan[None]:
        """Remove the other files; only those that no version names if some manifests could not be removed."""
        yield from self._remove_files(self._unnamed if self.failed else self.plan.files)
        yield from self._remove_empty_folders()

    @property
    def _unnamed(self) -> Sequence[tuple[ObjectMeta, FileKind]]:
        """Files that no version can name."""
        return [(meta, kind) for meta, kind in self.plan.files if kind in ("temporary", "unfinished")]

    def _remove_files(self, files: Sequence[tuple[ObjectMeta, FileKind]]) -> Plan[None]:
        done = {meta.key for meta, _ in self.removed}
        files = [(meta, kind) for meta, kind in files if meta.key not in done]
        # oldest first: names are random, but files of about the same age are adjacent in a file system
        files.sort(key=lambda file: to_epoch_ns(file[0].last_modified) or 0)
        kinds = {meta.key: kind for meta, kind in files}
        for part in self._parts([meta for meta, _ in files]):
            yield from self._keep_newer()
            gone = yield from self._remove(self._still_garbage(part))
            self.removed += [(meta, kinds[meta.key]) for meta in gone]
            if trace_events.listeners:
                self._trace((meta.key, kinds[meta.key]) for meta in gone)

    def _remove_empty_folders(self) -> Plan[None]:
        """Remove the folders of indices and blobs whose files are gone, where a store keeps empty folders."""
        store, skipped = self.location.store, len(self.location.key("x")) - 1
        if not isinstance(store, HoldsFolders):
            return
        for folder in sorted({meta.key.rpartition("/")[0] for meta, _ in self.removed}):
            if "/" in folder[skipped:]:  # one of a single index or data file, not `_indices` or `data`
                yield RemoveEmptyFolders(store, folder)

    def _trace(self, gone: Iterable[tuple[str, FileKind]]) -> None:
        """Report removed files to trace listeners; only the kinds that pylance reports."""
        plan, skipped = self.plan, len(self.location.key("x")) - 1
        for key, kind in gone:
            if kind in ("data", "deletion", "index"):
                is_known = not plan.policy.delete_unverified and plan.removed_references.has(key[skipped:], kind)
                trace_events.emit_files("delete" if is_known else "delete_unverified", kind, [key])

    def _keep_newer(self) -> Plan[None]:
        """Keep the files of versions that are newer than those looked at before."""
        listed = yield from self.target.handler.list_after(self.location, self.newest)
        new = [file for file in listed if file.version > self.newest]
        keys = [ObjectMeta(file.key, file.size_bytes) for file in new]
        for start in range(0, len(keys), READS_AT_ONCE):
            for _, manifest in (
                yield from read_manifests(self.location, keys[start : start + READS_AT_ONCE], decode_manifest)
            ):
                self.newer.add(manifest, (yield from managed_blobs(self.plan.blobs_of, manifest)))
        self.newest = max([self.newest, *(file.version for file in new)])

    def _still_garbage(self, metas: Sequence[ObjectMeta]) -> Sequence[ObjectMeta]:
        """The files that are still garbage, given the newer versions and the store's clock."""
        plan, skipped = self.plan, len(self.location.key("x")) - 1
        files = {meta.key[skipped:]: meta for meta in metas}
        unused = find_removable_files(
            {path: to_epoch_ns(meta.last_modified) for path, meta in files.items()},
            self.newer,
            plan.removed_references,
            unfinished=plan.unfinished,
            delete_unverified=plan.policy.delete_unverified,
            now_ns=self.now_ns,
        )
        return [files[path] for path, _ in unused]

    # -- both --------------------------------------------------------------------------------------------------------

    def _parts(self, items: Sequence[T]) -> Iterator[Sequence[T]]:
        size = min(self.deletes_per_s or DELETES_AT_ONCE, DELETES_AT_ONCE)
        return (items[start : start + size] for start in range(0, len(items), size))

    def _remove(self, metas: Sequence[ObjectMeta]) -> Plan[Sequence[ObjectMeta]]:
        """Remove objects at the requested rate; returns those that are gone."""
        keys = tuple(meta.key for meta in metas)
        if not keys:
            return ()
        if self.deletes_per_s is not None and (self.gone or self.removed or self.failed):
            yield Pause(len(keys) / self.deletes_per_s)
        try:
            yield Remove(self.location.store, both_names(metas) if self.plan.has_two_names else keys)
        except LanceError as error:
            _logger.warning("cleanup: %d files could not be removed: %s", len(keys), error)
            self.failed.update(keys)
            return ()
        if self.progress is not None:
            done = len(self.gone) + len(self.removed) + len(keys)
            self.progress(done, len(self.plan.versions) + len(self.plan.files))
        return metas
