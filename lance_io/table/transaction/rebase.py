"""Bringing a transaction onto a version that is newer than the one it was made for (spec: commit, section 5).

Most need nothing: the manifest is built anew, and with it ids and row ids. A Delete or Update lists fragments with
their deletion files; where another writer deleted rows of the same fragment meanwhile, the two lists are merged, which
needs the current one to be read. That is the only question asked here, so the caller does the reading:

    adapt(...)                 the transaction after one that it goes together with
    marked_fragments(...)      which deletion files to read
    merge_deletions(...)       the transaction with merged ones, and their content
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lance_io.errors import CommitConflictError
from lance_io.records import dataclass
from lance_io.table.manifest.deletion_file import encode_deletions
from lance_io.table.manifest.fragment import DeletionFile
from lance_io.table.manifest.paths import deletion_file_place
from lance_io.table.transaction.index_coverage import without_fragments
from lance_io.table.transaction.operations import CreateIndex, Delete, Update

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lance_io.table.manifest.fragment import Fragment
    from lance_io.table.manifest.manifest import Manifest
    from lance_io.table.manifest.roaring import U32Array
    from lance_io.table.transaction.transaction import Transaction

_SHOWN_MAX = 5  # row addresses in an error


@dataclass(frozen=True)
class Rebased:
    """A transaction on a newer version.

    files  deletion files that have to be there before it is committed, by path below the table's folder
    """

    transaction: Transaction
    files: Mapping[str, bytes]


def adapt(mine: Transaction, other: Transaction) -> Transaction:
    """`mine`, to be committed after `other`; itself when that makes no difference.

    An index that was built while columns it is over were rewritten does not know the fragments that have new ones.
    """
    built, update = mine.operation, other.operation
    if not isinstance(built, CreateIndex) or not isinstance(update, Update) or update.update_mode != "rewrite_columns":
        return mine
    gone = {fragment.id for fragment in update.updated_fragments}
    indices = tuple(without_fragments(built.new_indices, update.fields_modified, gone))
    if indices == built.new_indices:
        return mine
    return mine.rebase(replace(built, new_indices=indices), mine.read_version)


def marked_fragments(
    transaction: Transaction, current: Manifest, base_files: Mapping[int, DeletionFile | None]
) -> dict[int, Fragment]:
    """The fragments, as they are now, that the transaction changes and of which others deleted rows meanwhile.

    base_files  by fragment, the deletion file that the transaction's own was made from
    """
    assert isinstance(transaction.operation, (Delete, Update))
    changed = {fragment.id for fragment in transaction.operation.updated_fragments}
    places = {fragment_id: place for place, fragment_id in enumerate(current.fragments.ids) if fragment_id in changed}
    now = {fragment_id: current.fragments[place] for fragment_id, place in places.items()}
    return {one: fragment for one, fragment in now.items() if fragment.deletion_file != base_files.get(one)}


def merge_deletions(
    transaction: Transaction,
    current: Manifest,
    marked: Mapping[int, Fragment],
    deleted: Mapping[int, U32Array],
    affected: Mapping[int, U32Array],
    new_id: Callable[[], int],
) -> Rebased:
    """The transaction on `current`.

    marked    fragments whose deletions are to be merged, as they are in `current`
    deleted   offsets that are deleted in them now
    affected  offsets that the transaction deletes
    new_id    gives a random u64, for the name of a deletion file

    Raises `CommitConflictError` (retryable) when both deleted one row.
    """
    operation = transaction.operation
    assert isinstance(operation, (Delete, Update))
    files: dict[str, bytes] = {}
    kept: list[Fragment] = []
    gone: list[int] = []
    for fragment in operation.updated_fragments:
        if fragment.id not in marked:
            kept.append(fragment)
            continue
        rows = _union(transaction, fragment.id, deleted[fragment.id], affected[fragment.id], current.version)
        if len(rows) == marked[fragment.id].physical_rows:
            gone.append(fragment.id)
            continue
        file = DeletionFile("bitmap", current.version, new_id(), len(rows), None)
        files[deletion_file_place(fragment.id, file, {}).relative] = encode_deletions(rows, "bitmap")
        kept.append(replace(marked[fragment.id], deletion_file=file))
    changed: Delete | Update
    if isinstance(operation, Delete):
        ids = (*operation.deleted_fragment_ids, *gone)
        changed = replace(operation, updated_fragments=tuple(kept), deleted_fragment_ids=ids)
    else:
        ids = (*operation.removed_fragment_ids, *gone)
        changed = replace(operation, updated_fragments=tuple(kept), removed_fragment_ids=ids)
    return Rebased(transaction.rebase(changed, current.version), files)


def _union(transaction: Transaction, fragment_id: int, deleted: U32Array, affected: U32Array, version: int) -> U32Array:
    rows = np.concatenate((deleted, affected))
    rows.sort(kind="stable")  # two runs, which it merges
    both = rows[1:][rows[1:] == rows[:-1]]
    if len(both):
        shown = ", ".join(str(fragment_id << 32 | row) for row in both[:_SHOWN_MAX].tolist())
        raise CommitConflictError(
            f"Retryable commit conflict for version {version}: This {transaction.name} transaction and a concurrent "
            f"one both modified rows at addresses {shown}{', ...' if len(both) > _SHOWN_MAX else ''}. Please retry.",
            retryable=True,
        )
    return rows.astype(np.uint32)
