"""Files that jobs have left which were not committed, and the removal of those that no version refers to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lance_io.commit.latest import read_named
from lance_io.dataset.distributed.job_history import is_pending, transactions_after
from lance_io.dataset.distributed.task_files import is_of_job
from lance_io.dataset.distributed.write_job import job_digits, run_writes, write_target
from lance_io.errors import NotFound, UsageError
from lance_io.format.schema import BLOB_FOLDER
from lance_io.plans.plan import Together
from lance_io.plans.store_requests import List, Remove
from lance_io.reads.blobs.managed_blobs import ManagedBlobs
from lance_io.reads.version.state import DatasetState
from lance_io.reads.version.versions import manifest_in
from lance_io.table.manifest.flags import MANAGED_BLOBS
from lance_io.table.manifest.manifest import decode_manifest
from lance_io.table.manifest.paths import BRANCHES, DATA, VERSIONS, parse_manifest_name
from lance_io.table.transaction.garbage import data_file_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.changes.write.write_rows import WriteTarget
    from lance_io.dataset.distributed.table_place import TablePlace
    from lance_io.dataset.distributed.task_files import WrittenFiles
    from lance_io.dataset.distributed.write_job import WriteJob
    from lance_io.plans.plan import Plan
    from lance_io.store.api import ObjectMeta
    from lance_io.table.manifest.manifest import Manifest

_VERSIONS_AT_ONCE: Final = 64


# -- by what the tasks have said ---------------------------------------------------------------------------------------


def abort_write(place: TablePlace, job: WriteJob, written: Sequence[WrittenFiles]) -> str:
    """Remove the files of a job that failed; gives what was done, for the log.

    Engines may abort a job whose commit took effect, if the process died that made it. So nothing is removed when a
    version since the one that was read is the job's, or when its transaction is still there: then the commit ended
    without anybody knowing how. Raises what reading the table raises, and removes nothing then.
    """
    target = write_target(place)
    return run_writes(target, abort_steps(target, job, written))


def abort_steps(target: WriteTarget, job: WriteJob, written: Sequence[WrittenFiles]) -> Plan[str]:
    """The plan of `abort_write`."""
    paths = [path for one in written for path in one.paths]
    if not paths:
        return "aborted, no files to be removed"
    for version, transaction in (yield from transactions_after(target, job.read_version)):
        if transaction is not None and transaction.uuid == job.uuid:
            return f"was committed as version {version}, its files stay"
    if (yield from is_pending(target, job.uuid)):
        return "its commit was under way and may yet take effect: its files are left to cleanup"
    removed = yield from _remove_unreferenced(target, paths, job.read_version)
    return f"aborted, {removed} of {len(paths)} files removed"


def _remove_unreferenced(target: WriteTarget, paths: Sequence[str], read_version: int) -> Plan[int]:
    """Remove the files that no version since the one that was read refers to; gives how many.

    The version that a commit made may have been cleaned up meanwhile, while later ones refer to its files.
    """
    references = _References(target, blobs=any(map(_is_managed_blob, paths)))
    kept: set[str] = set()
    for version in (yield from target.handler.list_after(target.location, read_version)):
        kept |= yield from references.of((yield from manifest_in(target.location, version, target.session.cache)))
    left = [path for path in paths if data_file_of(path) not in kept]
    if left:
        yield Remove(target.location.store, tuple(target.location.key(path) for path in left))
    return len(left)


# -- by their names ----------------------------------------------------------------------------------------------------


def remove_job_files(place: TablePlace, job_id: str) -> list[str]:
    """Remove the data files of a job that no version refers to, and those of blobs; gives their paths.

    To be called when no task of the job runs any more. Lost attempts and killed tasks leave files; a file of the job
    is known by its name, and one that counts by the manifests, all of which are read, and managed blobs by what data
    files say of them.

    job_id   as it was given to the write, or as the transaction's property `lance_io.job` says
    Raises what reading the table raises: nothing is removed on a guess. `UsageError` for a table with branches.
    """
    target = write_target(place)
    return run_writes(target, _remove_by_name(target, job_digits(job_id)))


def _remove_by_name(target: WriteTarget, digits: str) -> Plan[list[str]]:
    place = target.location
    listed: list[ObjectMeta] = []
    for folder in (DATA, BLOB_FOLDER):
        listed += yield List(place.store, place.key(folder, ""))
    depth = len(place.key("x")) - 1
    paths = sorted(path for meta in listed if is_of_job(path := meta.key[depth:], digits))
    if not paths:
        return []
    branches: list[ObjectMeta] = yield List(place.store, place.key(BRANCHES, ""))
    if branches:
        raise UsageError("the table has branches, which may refer to these files; clean_up_old_versions looks at all")
    try:
        yield from target.handler.find_latest(place)  # finishes what a writer left half done
    except NotFound:
        pass  # files of a table that never came to be
    manifests: list[ObjectMeta] = yield List(place.store, place.key(VERSIONS, ""))
    keys = [meta.key for meta in manifests if parse_manifest_name(meta.name) is not None]  # detached versions as well
    references = _References(target, blobs=any(map(_is_managed_blob, paths)))
    kept: set[str] = set()
    for start in range(0, len(keys), _VERSIONS_AT_ONCE):
        some = keys[start : start + _VERSIONS_AT_ONCE]
        kept = kept.union(*(yield Together([references.of_version(key) for key in some])))
    paths = [path for path in paths if data_file_of(path) not in kept]
    if paths:
        yield Remove(place.store, tuple(place.key(path) for path in paths))
    return paths


class _References:
    """What versions refer to: data files, and files of managed blobs where these are asked for."""

    def __init__(self, target: WriteTarget, *, blobs: bool) -> None:
        self._target = target
        self._wants_blobs = blobs
        self._blobs: ManagedBlobs | None = None

    def of_version(self, key: str) -> Plan[set[str]]:
        """Paths that the manifest at a key refers to; none of one that was cleaned up meanwhile."""
        try:
            manifest = decode_manifest((yield from read_named(self._target.location.store, key)))
        except NotFound:
            return set()
        return (yield from self.of(manifest))

    def of(self, manifest: Manifest) -> Plan[set[str]]:
        """Paths below the table's folder."""
        found = {f"{DATA}/{one.path}" for fragment in manifest.fragments for one in fragment.files}
        if self._wants_blobs and manifest.reader_flags & MANAGED_BLOBS:
            found |= yield from self._managed(manifest).paths(manifest)
        return found

    def _managed(self, manifest: Manifest) -> ManagedBlobs:
        if self._blobs is None:
            target = self._target
            self._blobs = ManagedBlobs(
                DatasetState(
                    location=target.location,
                    root=target.root,
                    manifest=manifest,
                    session=target.session,
                    given_uri=target.given_uri,
                    storage_options=target.storage_options,
                )
            )
        return self._blobs


def _is_managed_blob(path: str) -> bool:
    return path.startswith(f"{BLOB_FOLDER}/")
