"""Bringing a transaction onto a version that is newer than the one it was made for (spec: commit, section 5).

Most need nothing: the manifest is built anew, and with it ids and row ids. A Delete or Update lists whole records of
fragments, which were true of one version only. What it changes in them goes into the records of the newest version:
another deletion file, and columns that were written anew. Where another writer deleted rows of the same fragment
meanwhile, the two lists are merged, which needs the current one to be read. That is the only question asked here, so
the caller does the reading:

    adapt(...)                 the transaction after one that it goes together with
    current_records(...)       the fragments that it changes, as they are now
    marked_fragments(...)      of these, whose deletion files to read
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
from lance_io.table.manifest.paths import deletion_file_place
from lance_io.table.transaction.draft import TOMBSTONE
from lance_io.table.transaction.index_coverage import without_fragments
from lance_io.table.transaction.operations import CreateIndex, Delete, Update

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lance_io.table.manifest.fragment import DataFile, Fragment
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
    if not isinstance(built, CreateIndex) or not isinstance(update, Update) or not update.fields_modified:
        return mine
    gone = {fragment.id for fragment in update.updated_fragments}
    indices = tuple(without_fragments(built.new_indices, update.fields_modified, gone))
    if indices == built.new_indices:
        return mine
    return mine.rebase(replace(built, new_indices=indices), mine.read_version)


def current_records(transaction: Transaction, current: Manifest) -> dict[int, Fragment]:
    """By id, the fragments that a Delete or Update changes, as they are in a version; those that are there."""
    assert isinstance(transaction.operation, (Delete, Update))
    changed = {fragment.id for fragment in transaction.operation.updated_fragments}
    places = [place for place, fragment_id in enumerate(current.fragments.ids) if fragment_id in changed]
    return {fragment.id: fragment for fragment in (current.fragments[place] for place in places)}


def marked_fragments(
    records: Mapping[int, Fragment], base_files: Mapping[int, DeletionFile | None]
) -> dict[int, Fragment]:
    """Of some fragments, as they are now, those of which others deleted rows meanwhile.

    base_files  by fragment, the deletion file that the transaction's own was made from
    """
    return {one: fragment for one, fragment in records.items() if fragment.deletion_file != base_files.get(one)}


def carry_changes(transaction: Transaction, current: Manifest, records: Mapping[int, Fragment]) -> Transaction:
    """A Delete or Update on `current`, of whose fragments others have deleted no rows.

    records  its fragments, as they are in `current`
    """
    operation = transaction.operation
    assert isinstance(operation, (Delete, Update))
    live = _live_fields(current)
    changed = tuple(_carry(transaction, one, records.get(one.id), live) for one in operation.updated_fragments)
    return transaction.rebase(replace(operation, updated_fragments=changed), current.version)


def merge_deletions(
    transaction: Transaction,
    current: Manifest,
    records: Mapping[int, Fragment],
    deleted: Mapping[int, U32Array],
    affected: Mapping[int, U32Array],
    new_id: Callable[[], int],
) -> Rebased:
    """The transaction on `current`.

    records   the fragments that it changes, as they are in `current`
    deleted   by fragment, the offsets that are deleted in it now, where others deleted rows meanwhile
    affected  offsets that the transaction deletes
    new_id    gives a random u64, for the name of a deletion file

    Raises `CommitConflictError` (retryable) when both deleted one row.
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
        files[deletion_file_place(fragment.id, file, {}).relative] = encode_deletions(rows, "bitmap")
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
    """Ids of the fields that files of a version may hold: those of its schema, and of row ids and versions."""
    return frozenset(field.id for field in current.schema.walk()) | LINEAGE_NAMES.keys()


def _carry(transaction: Transaction, mine: Fragment, now: Fragment | None, live: frozenset[int]) -> Fragment:
    """The newest record of a fragment, with what the transaction changes in it."""
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
    """The newest files, in which columns die that the transaction has written anew; then the files that it adds.

    A file goes of which it has written all columns. A file of the transaction's record that is not there any more has
    lost its last column meanwhile, and so has a new file of such a column.
    """
    if mine.files == now.files:
        return now.files
    own = {(file.base_id, file.path): file for file in mine.files}
    there = {(file.base_id, file.path): file for file in now.files}
    added = [file for key, file in own.items() if key not in there and not live.isdisjoint(file.fields)]
    written = {one for file in added for one in file.fields}
    kept = []
    for key, file in there.items():
        if key in own:
            kept.append(_with_dead(file, own[key]))
        elif not live.intersection(file.fields) <= written:
            raise _changed_meanwhile(transaction, mine.id, "it was given other data files")
    return (*kept, *added)


def _with_dead(now: DataFile, mine: DataFile) -> DataFile:
    """A file in which those columns are dead that are dead in another record of it."""
    if len(now.fields) != len(mine.fields) or TOMBSTONE not in mine.fields:
        return now
    pairs = zip(now.fields, mine.fields, strict=True)
    return replace(now, fields=tuple(TOMBSTONE if own == TOMBSTONE else one for one, own in pairs))


def _changed_meanwhile(transaction: Transaction, fragment_id: int, how: str) -> CommitConflictError:
    return CommitConflictError(
        f"This {transaction.name} transaction changes fragment {fragment_id}, and {how} by a concurrent transaction. "
        "Please retry.",
        retryable=True,
    )


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
