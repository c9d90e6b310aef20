"""Rebases a transaction onto a version newer than its read version (spec: commit, section 5).

Most transactions need nothing: building the manifest again assigns ids and row ids. A Delete or Update lists complete
records of fragments, which belong to its read version. Its changes (another deletion file, rewritten columns) are
copied into the records of the newest version. If another writer deleted rows of the same fragment meanwhile, the two
lists are merged, which needs the current list. The caller reads it, so that nothing here does I/O:

    adapt(...)                 the transaction after a compatible one
    current_records(...)       the fragments that it changes, in the newest version
    marked_fragments(...)      those of them whose deletion files to read
    carry_changes(...)         the transaction with its changes in these records
    merge_deletions(...)       the same with merged deletions, and their content
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lance_io.errors import CommitConflictError
from lance_io.format.schema import LINEAGE_NAMES
from lance_io.records import dataclass
from lance_io.table.manifest.deletion_file import encode_deletions
from lance_io.table.manifest.fragment import DeletionFile
from lance_io.table.manifest.paths import deletion_file_location
from lance_io.table.transaction.draft import TOMBSTONE
from lance_io.table.transaction.index_coverage import without_fragments
from lance_io.table.transaction.operations import CreateIndex, Delete, Update

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lance_io.codecs.roaring import U32Array
    from lance_io.table.manifest.fragment import DataFile, Fragment
    from lance_io.table.manifest.manifest import Manifest
    from lance_io.table.transaction.transaction import Transaction

_SHOWN_MAX = 5  # row addresses in an error


@dataclass(frozen=True)
class Rebased:
    """A transaction on a newer version.

    files  deletion files to write before it is committed, by path below the table's folder
    """

    transaction: Transaction
    files: Mapping[str, bytes]


def adapt(mine: Transaction, other: Transaction) -> Transaction:
    """`mine`, to be committed after `other`; `mine` itself if that makes no difference.

    An index that was built while its columns were rewritten does not cover the fragments with the new columns.
    """
    built, update = mine.operation, other.operation
    if not isinstance(built, CreateIndex) or not isinstance(update, Update) or not update.fields_modified:
        return mine
    gone = {fragment.id for fragment in update.updated_fragments}
    indices = tuple(without_fragments(built.new_indices, update.fields_modified, gone))
    if indices == built.new_indices:
        return mine
    return mine.rebase(replace(built, new_indices=indices), mine.read_version)


def current_records(transaction: Transaction, current: Manifest) -> dict[int, Fragment]:
    """The fragments that a Delete or Update changes, as they are in `current`, by id; without removed ones."""
    assert isinstance(transaction.operation, (Delete, Update))
    changed = {fragment.id for fragment in transaction.operation.updated_fragments}
    indices = [index for index, fragment_id in enumerate(current.fragments.ids) if fragment_id in changed]
    return {fragment.id: fragment for fragment in (current.fragments[index] for index in indices)}


def marked_fragments(
    records: Mapping[int, Fragment], base_files: Mapping[int, DeletionFile | None]
) -> dict[int, Fragment]:
    """The fragments of `records` in which other writers deleted rows meanwhile.

    records     fragments as they are now, by id
    base_files  by fragment, the deletion file that the transaction's own is based on
    """
    return {
        fragment_id: fragment
        for fragment_id, fragment in records.items()
        if fragment.deletion_file != base_files.get(fragment_id)
    }


def carry_changes(transaction: Transaction, current: Manifest, records: Mapping[int, Fragment]) -> Transaction:
    """A Delete or Update rebased on `current`, if other writers deleted no rows of its fragments.

    records  its fragments, as they are in `current`
    """
    operation = transaction.operation
    assert isinstance(operation, (Delete, Update))
    live = _live_fields(current)
    changed = tuple(
        _carry(transaction, fragment, records.get(fragment.id), live) for fragment in operation.updated_fragments
    )
    return transaction.rebase(replace(operation, updated_fragments=changed), current.version)


def merge_deletions(
    transaction: Transaction,
    current: Manifest,
    records: Mapping[int, Fragment],
    deleted: Mapping[int, U32Array],
    affected: Mapping[int, U32Array],
    new_id: Callable[[], int],
) -> Rebased:
    """The transaction rebased on `current`, with merged deletions.

    records   the fragments that it changes, as they are in `current`
    deleted   by fragment, the currently deleted offsets, where other writers deleted rows meanwhile
    affected  by fragment, the offsets that the transaction deletes
    new_id    returns a random u64, for the name of a deletion file

    Raises `CommitConflictError` (retryable) if both deleted the same row.
    """
    operation = transaction.operation
    assert isinstance(operation, (Delete, Update))
    files: dict[str, bytes] = {}
    kept: list[Fragment] = []
    gone: list[int] = []
    live = _live_fields(current)
    for fragment in operation.updated_fragments:
        carried = _carry(transaction, fragment, records.get(fragment.id), live)
        if fragment.id not in deleted:
            kept.append(carried)
            continue
        rows = _union(transaction, fragment.id, deleted[fragment.id], affected[fragment.id], current.version)
        if len(rows) == carried.physical_rows:
            gone.append(fragment.id)
            continue
        file = DeletionFile("bitmap", current.version, new_id(), len(rows), None)
        files[deletion_file_location(fragment.id, file, {}).relative] = encode_deletions(rows, "bitmap")
        kept.append(replace(carried, deletion_file=file))
    changed: Delete | Update
    if isinstance(operation, Delete):
        ids = (*operation.deleted_fragment_ids, *gone)
        changed = replace(operation, updated_fragments=tuple(kept), deleted_fragment_ids=ids)
    else:
        ids = (*operation.removed_fragment_ids, *gone)
        changed = replace(operation, updated_fragments=tuple(kept), removed_fragment_ids=ids)
    return Rebased(transaction.rebase(changed, current.version), files)


def _live_fields(current: Manifest) -> frozenset[int]:
    """Ids of the fields that files of a version may have: the schema's fields, row ids and row versions."""
    return frozenset(field.id for field in current.schema.walk()) | LINEAGE_NAMES.keys()


def _carry(transaction: Transaction, mine: Fragment, now: Fragment | None, live: frozenset[int]) -> Fragment:
    """The newest record of a fragment, with the transaction's changes."""
    if now is None:
        raise _changed_meanwhile(transaction, mine.id, "it was removed")
    return replace(
        now,
        files=_carried_files(transaction, mine, now, live),
        deletion_file=mine.deletion_file,
        physical_rows=now.physical_rows or mine.physical_rows,  # old releases did not say it
    )


def _carried_files(
    transaction: Transaction, mine: Fragment, now: Fragment, live: frozenset[int]
) -> tuple[DataFile, ...]:
    """The newest files, with columns that the transaction rewrote marked as dead, then the files that it adds.

    A file whose columns were all rewritten is dropped. A file of the transaction's record that no longer exists has
    lost its last column meanwhile; so has a new file of only such columns.
    """
    if mine.files == now.files:
        return now.files
    own = {(file.base_id, file.path): file for file in mine.files}
    there = {(file.base_id, file.path): file for file in now.files}
    added = [file for key, file in own.items() if key not in there and not live.isdisjoint(file.fields)]
    written = {field_id for file in added for field_id in file.fields}
    kept = []
    for key, file in there.items():
        if key in own:
            kept.append(_with_dead(file, own[key]))
        elif not live.intersection(file.fields) <= written:
            raise _changed_meanwhile(transaction, mine.id, "it was given other data files")
    return (*kept, *added)


def _with_dead(now: DataFile, mine: DataFile) -> DataFile:
    """The file `now`, with the columns dead that are dead in `mine`, another record of it."""
    if len(now.fields) != len(mine.fields) or TOMBSTONE not in mine.fields:
        return now
    pairs = zip(now.fields, mine.fields, strict=True)
    return replace(now, fields=tuple(TOMBSTONE if own == TOMBSTONE else field_id for field_id, own in pairs))


def _changed_meanwhile(transaction: Transaction, fragment_id: int, how: str) -> CommitConflictError:
    return CommitConflictError(
        f"This {transaction.name} transaction changes fragment {fragment_id}, and {how} by a concurrent transaction. "
        "Please retry.",
        retryable=True,
    )


def _union(transaction: Transaction, fragment_id: int, deleted: U32Array, affected: U32Array, version: int) -> U32Array:
    rows = np.concatenate((deleted, affected))
    rows.sort(kind="stable")  # merges the two sorted runs
    both = rows[1:][rows[1:] == rows[:-1]]
    if len(both):
        shown = ", ".join(str(fragment_id << 32 | row) for row in both[:_SHOWN_MAX].tolist())
        raise CommitConflictError(
            f"Retryable commit conflict for version {version}: This {transaction.name} transaction and a concurrent "
            f"one both modified rows at addresses {shown}{', ...' if len(both) > _SHOWN_MAX else ''}. Please retry.",
            retryable=True,
        )
    return rows.astype(np.uint32)
