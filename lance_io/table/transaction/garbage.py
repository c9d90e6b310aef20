"""Which versions and files of a table may be removed (spec: commit, section 9).

Three ages decide. For versions: `older_than_s` and `young_s` of the policy, or their defaults. For files:
`ABANDONED_FILE_AGE_S`. An older file cannot belong to a running writer, and is called abandoned.

A file that a kept version refers to is kept. Any other file is removed if a removed version refers to it, or if it is
abandoned. A younger file without references may belong to a running writer and is kept, unless the caller says that no
writer is running. Even then two kinds of files are kept until they are abandoned: the notes by which running cleanups
and writers see one another, and staging objects, which a reader may be about to copy.

    data/<name>.lance            data files
    data/<name>/<id>.blob        sidecars: kept as long as their data file
    _blobs/<uuid>.blob           blobs that the table manages: kept as long as a row of a data file refers to them
    _deletions/*.arrow|bin       deletion files
    _transactions/*.txn          transactions
    _indices/<uuid>/...          indices
    _versions/.tmp* data/.tmp*           leftovers of crashed writers, also pylance's
    _versions/.probe-* .cleanup-*        notes of writers and cleanups, which remove them unless they crash
    _versions/<manifest>-<uuid>  staging objects of commits through a database, if no row of the database can point
                                 at them

One kind has no pattern: `unfinished` are local files that have no final name yet. The store lists them.
Paths are relative to the table's folder. Other files in the folder are left alone.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final, Literal

from lance_io.format.schema import BLOB_FOLDER
from lance_io.records import dataclass
from lance_io.table.manifest.index_section import decode_indices
from lance_io.table.manifest.paths import (
    DATA,
    DELETIONS,
    INDICES,
    TRANSACTIONS,
    VERSIONS,
    data_file_location,
    deletion_file_location,
    parse_manifest_name,
    staged_for,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Mapping

    from lance_io.table.manifest.manifest import FileNames, Manifest

NS: Final = 1_000_000_000
ABANDONED_FILE_AGE_S: Final = 7 * 24 * 3600  # no writer holds files longer before it commits them
PROTECTED_VERSION_AGE_S: Final = 600  # a writer with a stale listing may still need younger versions
DEFAULT_OLDER_THAN_S: Final = 14 * 24 * 3600
_TEMPORARY: Final = ".tmp"

FileKind = Literal["data", "deletion", "transaction", "index", "temporary", "unfinished"]


@dataclass(frozen=True)
class CleanupPolicy:
    """Which versions and files a cleanup may remove.

    older_than_s       Only versions that were committed at least this many seconds ago are removed. None is two weeks
                       if the next two are also None, otherwise zero.
    retain_versions    This many of the last versions are kept.
    versions           Only these versions are removed; None for all.
    delete_unverified  Younger files without references are also removed. This is only safe if no writer is running.
    error_if_tagged    Tagged versions that would be removed are an error, instead of being kept silently.
    young_s            Versions younger than this many seconds are kept in any case. None is ten minutes, but zero if
                       `versions` is given or `older_than_s` is zero.
    """

    older_than_s: float | None = None
    retain_versions: int | None = None
    versions: frozenset[int] | None = None
    delete_unverified: bool = False
    error_if_tagged: bool = True
    young_s: float | None = None


@dataclass()
class References:
    """The files that some versions refer to.

    files    paths relative to the table's folder
    indices  uuids of indices: each is the name of the folder with the index's files
    """

    files: set[str] = field(default_factory=set)
    indices: set[str] = field(default_factory=set)
    _added_fragments: set[tuple[bytes, bool]] = field(default_factory=set, repr=False)  # messages, and `own_only`

    def add(self, manifest: Manifest | FileNames, blobs: Iterable[str] = (), *, own_only: bool = True) -> None:
        """Add the files that a version refers to.

        blobs     paths of the managed blobs that rows of its data files refer to
        own_only  whether to leave out files below base paths. If False, such files count as the table's own: a branch
                  has its parent as base path.
        """
        self.files.update(blobs)
        fragments = None
        for index, message in enumerate(manifest.message.fragments[:]):
            fragment_key = message.SerializeToString(), own_only
            if fragment_key in self._added_fragments:  # a version shares most fragments with the previous one
                continue
            self._added_fragments.add(fragment_key)
            fragments = fragments or manifest.fragments
            fragment = fragments[index]
            for file in fragment.files:
                if file.base_id is None or not own_only:
                    relative = data_file_location(file, manifest.base_paths).relative
                    self.files.add(relative if relative.startswith(f"{DATA}/") else f"{DATA}/{relative}")
            deletion = fragment.deletion_file
            if deletion is not None and (deletion.base_id is None or not own_only):
                self.files.add(deletion_file_location(fragment.id, deletion, manifest.base_paths).relative)
        if manifest.transaction_file:
            self.files.add(f"{TRANSACTIONS}/{manifest.transaction_file}")
        if manifest.index_section is not None:
            self.indices.update(index.uuid for index in decode_indices(manifest.index_section))

    def move_from(self, others: References) -> None:
        """Move all references out of `others`. A later `others.add` adds only fragments that `others` never had."""
        self.files |= others.files
        self.indices |= others.indices
        others.files.clear()
        others.indices.clear()

    def has(self, path: str, kind: FileKind) -> bool:
        """Whether one of the references is to this file."""
        if kind == "index":
            return path.split("/")[1] in self.indices
        return data_file_of(path) in self.files


def candidate_versions(versions: Collection[int], policy: CleanupPolicy, *, current: int | None = None) -> set[int]:
    """The versions that the policy may remove, whatever their age; never the newest.

    current  version that the caller has open; it and all newer ones are no candidates. None for the newest
    """
    ordered = sorted(versions)
    chosen = ordered[:-1]
    if policy.retain_versions is not None:
        chosen = chosen[: max(len(ordered) - policy.retain_versions, 0)]
    if current is not None:
        chosen = [version for version in chosen if version < current]
    return set(chosen) if policy.versions is None else set(chosen) & policy.versions


def is_version_protected(timestamp_ns: int, policy: CleanupPolicy, *, now_ns: int) -> bool:
    """Whether a version with this commit time (ns since the epoch) is kept in any case, as younger than `young_s`."""
    young_s = policy.young_s
    if young_s is None:
        young_s = 0.0 if policy.versions is not None or policy.older_than_s == 0 else PROTECTED_VERSION_AGE_S
    return young_s > 0 and timestamp_ns > now_ns - young_s * NS  # for zero, False even if the writer's clock is ahead


def is_version_old_enough(timestamp_ns: int, policy: CleanupPolicy, *, now_ns: int) -> bool:
    """Whether a version with this commit time (ns since the epoch) is as old as `older_than_s` requires."""
    older_than_s = policy.older_than_s
    if older_than_s is None and policy.retain_versions is None and policy.versions is None:
        older_than_s = DEFAULT_OLDER_THAN_S
    return not older_than_s or timestamp_ns < now_ns - older_than_s * NS


def kind_of(path: str) -> FileKind | None:
    """The kind of a file in a table's folder; None for files that a cleanup must not remove."""
    folder, _, rest = path.partition("/")
    if folder == DATA and ((rest.endswith(".lance") and "/" not in rest) or (rest.endswith(".blob") and "/" in rest)):
        return "data"
    if folder in (DATA, VERSIONS) and rest.startswith(_TEMPORARY):
        return "temporary"
    if folder == BLOB_FOLDER and rest.endswith(".blob") and "/" not in rest:
        return "data"
    if folder == DELETIONS and rest.endswith((".arrow", ".bin")) and "/" not in rest:
        return "deletion"
    if folder == TRANSACTIONS and rest.endswith(".txn") and "/" not in rest:
        return "transaction"
    if folder == INDICES and "/" in rest:
        return "index"
    if folder == VERSIONS and (rest.startswith((".probe-", ".cleanup-")) or staged_for(rest) is not None):
        return "temporary"
    return None


def is_staged_without_manifest(path: str, version_files: Container[str], oldest: int) -> bool:
    """Whether a file is a staging object of a version without a manifest, so a row of a database may point at it.

    version_files  paths of the files in `_versions/`, which has the manifests
    oldest         number of the oldest version; staging objects of older ones are left from removed versions
    """
    folder, _, name = path.partition("/")
    final = staged_for(name) if folder == VERSIONS else None
    if final is None or f"{VERSIONS}/{final}" in version_files:
        return False
    staged = parse_manifest_name(final)
    return staged is None or staged.version >= oldest


def data_file_of(path: str) -> str:
    """The path of a sidecar's data file; any other path unchanged."""
    is_sidecar = path.endswith(".blob") and path.startswith(f"{DATA}/")
    return f"{path.rpartition('/')[0]}.lance" if is_sidecar else path


def find_removable_files(
    files: Mapping[str, int | None],
    kept: References,
    removed: References,
    *,
    unfinished: Container[str] = (),
    delete_unverified: bool,
    now_ns: int,
) -> Iterable[tuple[str, FileKind]]:
    """The files that may be removed, with their kinds.

    files              write times by path (ns since the epoch), None if unknown
    kept               references of kept versions
    removed            references of removed versions
    unfinished         paths of the files without their final names
    delete_unverified  as in `CleanupPolicy`
    """
    for path, kind, needs_reference in _unreferenced(
        files, kept, unfinished=unfinished, delete_unverified=delete_unverified, now_ns=now_ns
    ):
        if not needs_reference or removed.has(path, kind):
            yield path, kind


def find_unverified_files(
    files: Mapping[str, int | None],
    kept: References,
    *,
    unfinished: Container[str] = (),
    delete_unverified: bool,
    now_ns: int,
) -> dict[str, FileKind]:
    """The files that may be removed only if a removed version refers to them: not abandoned, and no kept reference.

    Arguments as for `find_removable_files`.
    """
    unreferenced = _unreferenced(files, kept, unfinished=unfinished, delete_unverified=delete_unverified, now_ns=now_ns)
    return {path: kind for path, kind, needs_reference in unreferenced if needs_reference}


def reference_keys_of(files: Mapping[str, FileKind]) -> tuple[set[str], set[str]]:
    """The entries that `References` has for these files: paths in `References.files`, uuids in `References.indices`."""
    indices = {path.split("/")[1] for path, kind in files.items() if kind == "index"}
    return {data_file_of(path) for path, kind in files.items() if kind != "index"}, indices


def _unreferenced(
    files: Mapping[str, int | None],
    kept: References,
    *,
    unfinished: Container[str],
    delete_unverified: bool,
    now_ns: int,
) -> Iterator[tuple[str, FileKind, bool]]:
    """The files that no kept version refers to.

    Each comes as path, kind, and whether it may be removed only if a removed version refers to it.
    """
    newest_abandoned_ns = now_ns - ABANDONED_FILE_AGE_S * NS
    for path, written_ns in files.items():
        kind: FileKind | None = "unfinished" if path in unfinished else kind_of(path)
        if kind is None or kept.has(path, kind):
            continue
        is_abandoned = written_ns is not None and written_ns < newest_abandoned_ns
        is_note_or_staged = kind == "temporary" and not path.rpartition("/")[2].startswith(_TEMPORARY)
        yield path, kind, not (is_abandoned or (delete_unverified and not is_note_or_staged))
