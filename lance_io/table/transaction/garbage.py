"""Which versions and files of a table may be removed (spec: commit, section 9).

A file is kept if a kept version refers to it. Of the others those are removed which a removed version referred to, and
those that are so old that no writer can still be about to commit them. A young file that nobody refers to may belong to
a writer under way, and stays, unless the caller says that there is none. Notes and staging objects stay even then until
they are old: they are what other cleanups and readers go by.

    data/<name>.lance            data files
    data/<name>/<id>.blob        sidecars: they live as long as their data file
    _blobs/<uuid>.blob           payloads that the table manages: as long as a description in some data file names them
    _deletions/*.arrow|bin       deletion files
    _transactions/*.txn          transactions
    _indices/<uuid>/...          indices
    _versions/.tmp* data/.tmp*           what writers that died left behind, pylance's too
    _versions/.probe-* .cleanup-*        notes of writers and cleanups that died
    _versions/<manifest>-<uuid>  staging objects of commits through a database, when no row can point at them
    unfinished                   as the store tells: files that have not got their names yet (on the local disk)

Paths are relative to the table's folder. Everything else in the folder is none of our business.
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
    data_file_place,
    deletion_file_place,
    parse_manifest_name,
    staged_for,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Mapping

    from lance_io.table.manifest.manifest import FileNames, Manifest

NS: Final = 1_000_000_000
UNVERIFIED_AGE_S: Final = 7 * 24 * 3600  # no commit takes longer than that
YOUNG_S: Final = 600  # versions that a stale listing of some writer may still need to meet
OLDER_THAN_S: Final = 14 * 24 * 3600
_TEMPORARY: Final = ".tmp"

FileKind = Literal["data", "deletion", "transaction", "index", "temporary", "unfinished"]


@dataclass(frozen=True)
class CleanupPolicy:
    """What may go.

    older_than_s       versions committed longer ago; None with the other two None: two weeks
    retain_versions    all but the last so many
    versions           only these
    delete_unverified  also young files that no version refers to: only when no writer is under way
    error_if_tagged    complain about tagged versions that would go, instead of keeping them silently
    young_s            versions younger than this are kept in any case; None: ten minutes, or nothing if the caller
                       says otherwise by naming versions or by an `older_than_s` of zero
    """

    older_than_s: float | None = None
    retain_versions: int | None = None
    versions: frozenset[int] | None = None
    delete_unverified: bool = False
    error_if_tagged: bool = True
    young_s: float | None = None


@dataclass()
class References:
    """What some versions refer to, as paths below the table's folder; of indices the folder's name."""

    files: set[str] = field(default_factory=set)
    indices: set[str] = field(default_factory=set)
    _known: set[tuple[bytes, bool]] = field(default_factory=set, repr=False)  # fragments that were added

    def add(self, manifest: Manifest | FileNames, blobs: Iterable[str] = (), *, own_only: bool = True) -> None:
        """Add what a version refers to.

        blobs     managed blobs that its data files name
        own_only  leave out what lies below base paths; without, such files count as if they were the table's own, which
                  is how a branch refers to the files of its parent
        """
        self.files.update(blobs)
        fragments = None
        for place, message in enumerate(manifest.message.fragments[:]):
            known = message.SerializeToString(), own_only
            if known in self._known:  # versions share most fragments with the one before
                continue
            self._known.add(known)
            fragments = fragments or manifest.fragments
            fragment = fragments[place]
            for file in fragment.files:
                if file.base_id is None or not own_only:
                    relative = data_file_place(file, manifest.base_paths).relative
                    self.files.add(relative if relative.startswith(f"{DATA}/") else f"{DATA}/{relative}")
            deletion = fragment.deletion_file
            if deletion is not None and (deletion.base_id is None or not own_only):
                self.files.add(deletion_file_place(fragment.id, deletion, manifest.base_paths).relative)
        if manifest.transaction_file:
            self.files.add(f"{TRANSACTIONS}/{manifest.transaction_file}")
        if manifest.index_section is not None:
            self.indices.update(index.uuid for index in decode_indices(manifest.index_section))

    def take(self, others: References) -> None:
        """Have what others have, which have nothing then: what they will be told of again is with these already."""
        self.files |= others.files
        self.indices |= others.indices
        others.files.clear()
        others.indices.clear()

    def has(self, path: str, kind: FileKind) -> bool:
        """Whether a file is among them."""
        if kind == "index":
            return path.split("/")[1] in self.indices
        return data_file_of(path) in self.files


def candidates(versions: Collection[int], policy: CleanupPolicy, *, current: int | None = None) -> set[int]:
    """The versions that may go if they are old enough; the newest always stays.

    current  the version that the caller stands on, which stays with all newer ones; None for the newest
    """
    ordered = sorted(versions)
    chosen = ordered[:-1]
    if policy.retain_versions is not None:
        chosen = chosen[: max(len(ordered) - policy.retain_versions, 0)]
    if current is not None:
        chosen = [version for version in chosen if version < current]
    return set(chosen) if policy.versions is None else set(chosen) & policy.versions


def is_young(timestamp_ns: int, policy: CleanupPolicy, *, now_ns: int) -> bool:
    """Whether a version that was committed at a time (ns since the epoch) is too young to go in any case."""
    young_s = policy.young_s
    if young_s is None:
        young_s = 0.0 if policy.versions is not None or policy.older_than_s == 0 else YOUNG_S
    return young_s > 0 and timestamp_ns > now_ns - young_s * NS  # zero: whatever the clocks of other writers say


def is_old(timestamp_ns: int, policy: CleanupPolicy, *, now_ns: int) -> bool:
    """Whether a version that was committed at a time (ns since the epoch) is as old as the caller asks."""
    older_than_s = policy.older_than_s
    if older_than_s is None and policy.retain_versions is None and policy.versions is None:
        older_than_s = OLDER_THAN_S
    return not older_than_s or timestamp_ns < now_ns - older_than_s * NS


def kind_of(path: str) -> FileKind | None:
    """What a file in a table's folder is; None for files that are not ours to remove."""
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
    """Whether it is a staging object of a version that has no manifest: a row may point at it.

    files   everything that is there
    oldest  number of the first version; those before it were removed
    """
    folder, _, name = path.partition("/")
    final = staged_for(name) if folder == VERSIONS else None
    if final is None or f"{VERSIONS}/{final}" in files:
        return False
    staged = parse_manifest_name(final)
    return staged is None or staged.version >= oldest


def data_file_of(path: str) -> str:
    """The path of the data file that a sidecar belongs to; any other path itself."""
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
    """The files that may go, with their kind.

    files       by path, when they were written (ns since the epoch), None when nobody knows
    unfinished  those of them that have not got their names yet
    """
    for path, kind, is_sure in _unnamed(
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
    """The files that may go only if a removed version refers to them: young, and named by no version that stays.

    Arguments as for `garbage`.
    """
    found = _unnamed(files, kept, unfinished=unfinished, delete_unverified=delete_unverified, now_ns=now_ns)
    return {path: kind for path, kind, is_sure in found if not is_sure}


def keys_of(files: Mapping[str, FileKind]) -> tuple[set[str], set[str]]:
    """What `References` call them: paths of data files and others, and names of index folders."""
    indices = {path.split("/")[1] for path, kind in files.items() if kind == "index"}
    return {data_file_of(path) for path, kind in files.items() if kind != "index"}, indices


def _unnamed(
    files: Mapping[str, int | None],
    kept: References,
    *,
    unfinished: Container[str],
    delete_unverified: bool,
    now_ns: int,
) -> Iterator[tuple[str, FileKind, bool]]:
    """The files that no version names which stays, with their kind, and whether they may go whatever names them."""
    oldest_ns = now_ns - UNVERIFIED_AGE_S * NS
    for path, written_ns in files.items():
        kind: FileKind | None = "unfinished" if path in unfinished else kind_of(path)
        if kind is None or kept.has(path, kind):
            continue
        is_old = written_ns is not None and written_ns < oldest_ns
        is_note = kind == "temporary" and not path.rpartition("/")[2].startswith(_TEMPORARY)
        yield path, kind, is_old or (delete_unverified and not is_note)
