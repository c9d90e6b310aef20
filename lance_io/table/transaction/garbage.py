"""Which versions and files of a table may be removed (spec: commit, section 9).

A file is kept if a kept version refers to it. Otherwise it is removed if a removed version referred to it, or if it is
too old to belong to a running writer. A young file without references may belong to a running writer and stays, unless
the caller says that there is none. Even then notes and staging objects stay until they are old: other cleanups and
readers rely on them.

    data/<name>.lance            data files
    data/<name>/<id>.blob        sidecars: kept as long as their data file
    _blobs/<uuid>.blob           payloads managed by the table: kept as long as a description in a data file names them
    _deletions/*.arrow|bin       deletion files
    _transactions/*.txn          transactions
    _indices/<uuid>/...          indices
    _versions/.tmp* data/.tmp*           leftovers of crashed writers, also pylance's
    _versions/.probe-* .cleanup-*        notes of crashed writers and cleanups
    _versions/<manifest>-<uuid>  staging objects of commits through a database, if no row can point at them
    unfinished                   files without their final name (on the local disk), as the store reports them

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
UNVERIFIED_AGE_S: Final = 7 * 24 * 3600  # no commit takes longer
YOUNG_S: Final = 600  # a writer with a stale listing may still need versions younger than this
OLDER_THAN_S: Final = 14 * 24 * 3600
_TEMPORARY: Final = ".tmp"

FileKind = Literal["data", "deletion", "transaction", "index", "temporary", "unfinished"]


@dataclass(frozen=True)
class CleanupPolicy:
    """Which versions and files a cleanup may remove.

    older_than_s       versions committed longer ago; None, if the next two are also None: two weeks
    retain_versions    all but this many last versions
    versions           only these versions
    delete_unverified  also young files without references: only safe if no writer is running
    error_if_tagged    raise for tagged versions that would be removed, instead of keeping them silently
    young_s            always keep versions younger than this; None: ten minutes, or zero if the caller names versions
                       or sets `older_than_s` to zero
    """

    older_than_s: float | None = None
    retain_versions: int | None = None
    versions: frozenset[int] | None = None
    delete_unverified: bool = False
    error_if_tagged: bool = True
    young_s: float | None = None


@dataclass()
class References:
    """The files that some versions refer to, as paths below the table's folder; for indices the name of the folder."""

    files: set[str] = field(default_factory=set)
    indices: set[str] = field(default_factory=set)
    _known: set[tuple[bytes, bool]] = field(default_factory=set, repr=False)  # fragments already added

    def add(self, manifest: Manifest | FileNames, blobs: Iterable[str] = (), *, own_only: bool = True) -> None:
        """Add the files that a version refers to.

        blobs     managed blobs that its data files name
        own_only  leave out files below base paths; without, they count as the table's own, as a branch refers to the
                  files of its parent
        """
        self.files.update(blobs)
        fragments = None
        for index, message in enumerate(manifest.message.fragments[:]):
            known = message.SerializeToString(), own_only
            if known in self._known:  # a version shares most fragments with the previous one
                continue
            self._known.add(known)
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

    def take(self, others: References) -> None:
        """Move all references of `others` here. `others` skips the same fragments later: they are already here."""
        self.files |= others.files
        self.indices |= others.indices
        others.files.clear()
        others.indices.clear()

    def has(self, path: str, kind: FileKind) -> bool:
        """Whether a file is referred to."""
        if kind == "index":
            return path.split("/")[1] in self.indices
        return data_file_of(path) in self.files


def candidates(versions: Collection[int], policy: CleanupPolicy, *, current: int | None = None) -> set[int]:
    """The versions that may be removed if they are old enough; the newest always stays.

    current  the caller's version, which stays with all newer ones; None for the newest
    """
    ordered = sorted(versions)
    chosen = ordered[:-1]
    if policy.retain_versions is not None:
        chosen = chosen[: max(len(ordered) - policy.retain_versions, 0)]
    if current is not None:
        chosen = [version for version in chosen if version < current]
    return set(chosen) if policy.versions is None else set(chosen) & policy.versions


def is_young(timestamp_ns: int, policy: CleanupPolicy, *, now_ns: int) -> bool:
    """Whether a version with this commit time (ns since the epoch) is too young to be removed in any case."""
    young_s = policy.young_s
    if young_s is None:
        young_s = 0.0 if policy.versions is not None or policy.older_than_s == 0 else YOUNG_S
    return young_s > 0 and timestamp_ns > now_ns - young_s * NS  # zero must not depend on other writers' clocks


def is_old(timestamp_ns: int, policy: CleanupPolicy, *, now_ns: int) -> bool:
    """Whether a version with this commit time (ns since the epoch) is as old as the policy requires."""
    older_than_s = policy.older_than_s
    if older_than_s is None and policy.retain_versions is None and policy.versions is None:
        older_than_s = OLDER_THAN_S
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


def is_unsettled(path: str, files: Container[str], oldest: int) -> bool:
    """Whether it is a staging object of a version without a manifest, which a database row may point at.

    files   all files of the table
    oldest  number of the first version; earlier versions were removed
    """
    folder, _, name = path.partition("/")
    final = staged_for(name) if folder == VERSIONS else None
    if final is None or f"{VERSIONS}/{final}" in files:
        return False
    staged = parse_manifest_name(final)
    return staged is None or staged.version >= oldest


def data_file_of(path: str) -> str:
    """The path of a sidecar's data file; any other path unchanged."""
    is_sidecar = path.endswith(".blob") and path.startswith(f"{DATA}/")
    return f"{path.rpartition('/')[0]}.lance" if is_sidecar else path


def garbage(
    files: Mapping[str, int | None],
    kept: References,
    removed: References,
    *,
    unfinished: Container[str] = (),
    delete_unverified: bool,
    now_ns: int,
) -> Iterable[tuple[str, FileKind]]:
    """The files that may be removed, with their kind.

    files       write times by path (ns since the epoch), None if unknown
    unfinished  the files without their final name
    """
    for path, kind, is_sure in _unreferenced(
        files, kept, unfinished=unfinished, delete_unverified=delete_unverified, now_ns=now_ns
    ):
        if is_sure or removed.has(path, kind):
            yield path, kind


def unverified(
    files: Mapping[str, int | None],
    kept: References,
    *,
    unfinished: Container[str] = (),
    delete_unverified: bool,
    now_ns: int,
) -> dict[str, FileKind]:
    """The files that may be removed only if a removed version refers to them: young files without a kept reference.

    Arguments as for `garbage`.
    """
    unreferenced = _unreferenced(files, kept, unfinished=unfinished, delete_unverified=delete_unverified, now_ns=now_ns)
    return {path: kind for path, kind, is_sure in unreferenced if not is_sure}


def keys_of(files: Mapping[str, FileKind]) -> tuple[set[str], set[str]]:
    """Their names in `References`: paths of data files and others, and names of index folders."""
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
    """The files that no kept version refers to: path, kind, and whether it may be removed unconditionally."""
    oldest_ns = now_ns - UNVERIFIED_AGE_S * NS
    for path, written_ns in files.items():
        kind: FileKind | None = "unfinished" if path in unfinished else kind_of(path)
        if kind is None or kept.has(path, kind):
            continue
        is_old = written_ns is not None and written_ns < oldest_ns
        is_note = kind == "temporary" and not path.rpartition("/")[2].startswith(_TEMPORARY)
        yield path, kind, is_old or (delete_unverified and not is_note)
