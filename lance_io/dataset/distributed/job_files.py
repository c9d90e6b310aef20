"""Files of jobs that were not committed, and the removal of those that no version refers to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lance_io.commit.latest import read_named
from lance_io.dataset.distributed.job_history import is_pending, transactions_after
from lance_io.dataset.distributed.task_files import is_of_job
from lance_io.dataset.distributed.write_job import job_digits, run_writes, write_target
from lance_io.errors import NotFound, UsageError
from lance_io.file.write.uploads import remove_files
from lance_io.format.schema import BLOB_FOLDER
from lance_io.plans.plan import Together
from lance_io.plans.store_requests import List
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


# -- by the results of the tasks ---------------------------------------------------------------------------------------


def abort_write(
    place: TablePlace,  # plain: public parameter
    job: WriteJob,
    written: Sequence[WrittenFiles],
) -> str:
    """Remove the files of a failed job.

    An engine may abort a job whose commit took effect, if the committing process died. So nothing is removed if a
    version since the one that the job read belongs to the job, or if its transaction file still exists: then the
    outcome of the commit is unknown.

    Args:
        place: The table.
        job: The job.
        written: Files of the tasks that ended.

    Returns:
        A description of the outcome, for the log.

    Raises:
        OSError: The table cannot be read; nothing is removed then.
    """
    target = write_target(place)
    return run_writes(target, abort_steps(target, job, written))


def abort_steps(target: WriteTarget, job: WriteJob, written: Sequence[WrittenFiles]) -> Plan[str]:
    """Plan of `abort_write`."""
    paths = [path for task_files in written for path in task_files.paths]
    if not paths:
        return "aborted, no files to be removed"
    for version, transaction in (yield from transactions_after(target, job.read_version)):
        if transaction is not None and transaction.uuid == job.uuid:
            return f"was committed as version {version}, its files stay"
    if (yield from is_pending(target, job.uuid)):
        return "its commit was under way and may yet take effect: its files are left to cleanup"
    removed = yield from _remove_unreferenced(target, paths, job.read_version)
    return f"aborted, {removed} of {len(paths)} files removed"


def discard_files(place: TablePlace, written: WrittenFiles) -> None:  # plain: public parameter
    """Remove the files of one attempt of a task whose result never reaches the planner: no commit can refer to them.

    Args:
        place: The table.
        written: The files.

    Raises:
        OSError: The store fails.
    """
    target = write_target(place)
    run_writes(target, _remove(target, written.paths))


def _remove(target: WriteTarget, paths: Sequence[str]) -> Plan[None]:
    return remove_files(target.location.store, [target.location.key(path) for path in paths])


def _remove_unreferenced(target: WriteTarget, paths: Sequence[str], read_version: int) -> Plan[int]:
    """Remove the files that no version since the one that was read refers to, and count them.

    A cleanup may have removed the version of the commit while later versions refer to its files.
    """
    references = _References(target, blobs=any(map(_is_managed_blob, paths)))
    kept: set[str] = set()
    for version in (yield from target.handler.list_after(target.location, read_version)):
        kept |= yield from references.of((yield from manifest_in(target.location, version, target.session.cache)))
    left = [path for path in paths if data_file_of(path) not in kept]
    yield from _remove(target, left)
    return len(left)


# -- by their names ----------------------------------------------------------------------------------------------------


def remove_job_files(place: TablePlace, job_id: str) -> list[str]:  # plain: public parameter
    """Remove the data files and blob files of a job that no version refers to.

    Call it when no task of the job runs any more. Lost attempts and killed tasks leave files. The name of a file tells
    its job. All manifests are read for references; for managed blobs, the descriptions in data files as well.

    Args:
        place: The table.
        job_id: Id of the job, as given to the write, or as in the transaction's property `lance_io.job`.

    Returns:
        Paths of the removed files, relative to the table's folder.

    Raises:
        UsageError: The table has branches.
        OSError: The table cannot be read; nothing is removed then.
    """
    target = write_target(place)
    return run_writes(target, _remove_by_name(target, job_digits(job_id)))


def _remove_by_name(target: WriteTarget, digits: str) -> Plan[list[str]]:
    location = target.location
    listed: list[ObjectMeta] = []
    for folder in (DATA, BLOB_FOLDER):
        listed += yield List(location.store, location.key(folder, ""))
    depth = len(location.key("x")) - 1
    paths = sorted(path for meta in listed if is_of_job(path := meta.key[depth:], digits))
    if not paths:
        return []
    branches: list[ObjectMeta] = yield List(location.store, location.key(BRANCHES, ""))
    if branches:
        raise UsageError("the table has branches, which may refer to these files; cleanup_old_versions checks all")
    try:
        yield from target.handler.find_latest(location)  # completes an interrupted commit
    except NotFound:
        pass  # files of a table that was never created
    manifests: list[ObjectMeta] = yield List(location.store, location.key(VERSIONS, ""))
    keys = [meta.key for meta in manifests if parse_manifest_name(meta.name) is not None]  # includes detached versions
    references = _References(target, blobs=any(map(_is_managed_blob, paths)))
    kept: set[str] = set()
    for start in range(0, len(keys), _VERSIONS_AT_ONCE):
        some = keys[start : start + _VERSIONS_AT_ONCE]
        kept = kept.union(*(yield Together([references.of_version(key) for key in some])))
    paths = [path for path in paths if data_file_of(path) not in kept]
    yield from _remove(target, paths)
    return paths


class _References:
    """References of versions to data files and, if requested, to files of managed blobs."""

    def __init__(self, target: WriteTarget, *, blobs: bool) -> None:
        self._target = target
        self._wants_blobs = blobs
        self._blobs: ManagedBlobs | None = None

    def of_version(self, key: str) -> Plan[set[str]]:
        """Paths that the manifest at a key refers to; none if a cleanup removed it meanwhile."""
        try:
            manifest = decode_manifest((yield from read_named(self._target.location.store, key)))
        except NotFound:
            return set()
        return (yield from self.of(manifest))

    def of(self, manifest: Manifest) -> Plan[set[str]]:
        """Paths below the table's folder."""
        paths = {f"{DATA}/{file.path}" for fragment in manifest.fragments for file in fragment.files}
        if self._wants_blobs and manifest.reader_flags & MANAGED_BLOBS:
            paths |= yield from self._managed(manifest).paths(manifest)
        return paths

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
