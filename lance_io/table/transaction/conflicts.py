"""Whether two changes of a table are compatible (spec: commit, section 4).

Each row of the matrix is the transaction to commit, each column a transaction committed since its read version.

    .  compatible
    R  retryable conflict: repeating the change on the newest version may help
    I  incompatible: repeating the change would undo the other transaction
    other letters name the rules below; of several rules, the first that is not `ok` decides

FR of a change are the fragments it touches: changed, removed, rewritten, or given other data files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from lance_io.errors import CommitConflictError
from lance_io.table.manifest.index_section import FRAGMENT_REUSE, MEM_WAL, IndexMetadata
from lance_io.table.transaction import operations as ops
from lance_io.table.transaction.effects import effects_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lance_io.table.manifest.fragment import Fragment
    from lance_io.table.transaction.transaction import Transaction

Verdict = Literal["ok", "retryable", "incompatible"]
OK: Final = "ok"
RETRYABLE: Final = "retryable"
INCOMPATIBLE: Final = "incompatible"

MATRIX: Final = """
                   A   D   U   O   CI  RW  M   P   RS  RF  UC  DR  MW  UB  CL
Append             .   .   .   I   .   .   n   n   I   .   .   .   I   .   .
Delete             .   r   r   I   .   f   R   .   I   .   .   f   I   .   .
Update             k   r   rk  I   .   f   R   n   I   .   .   f   s   .   .
Overwrite          .   .   .   cR  .   .   .   .   .   .   c   .   I   .   .
CreateIndex        .   .   .   I   x   b   l   .   I   .   .   d   I   .   .
Rewrite            .   f   f   I   b   f   R   .   I   .   .   f   .   .   .
Merge              R   R   R   I   l   R   R   I   I   .   g   R   I   .   .
Project            n   .   n   I   .   .   R   R   I   .   .   n   I   .   .
Restore            .   .   .   .   .   .   .   .   .   .   h   .   I   .   .
ReserveFragments   .   .   .   I   .   .   .   .   I   .   .   .   .   .   .
UpdateConfig       .   .   .   m   .   .   g   .   h   .   c   .   .   .   .
DataReplacement    .   e   w   I   d   f   R   np  I   .   .   v   I   .   .
UpdateMemWalState  I   I   s   I   s   .   I   I   I   .   .   I   s   .   I
UpdateBases        .   .   .   .   .   .   .   .   .   .   .   .   .   u   .
Clone              .   .   .   .   .   .   .   .   .   .   .   .   .   .   .
"""


def check_conflict(mine: Transaction, other: Transaction, *, version: int, knows_rows: bool) -> None:
    """Raise `CommitConflictError` unless `mine` can be committed after `other`, which created `version`.

    knows_rows  whether the deleted rows of `mine` are known, so that it can be merged with other deletions of the same
                fragments; `rebase.py` then finds rows that both deleted
    """
    verdict = judge(mine, other, knows_rows=knows_rows)
    if verdict == OK:
        return
    if verdict == RETRYABLE:
        text = (
            f"Retryable commit conflict for version {version}: This {mine.name} transaction was preempted by "
            f"concurrent transaction {other.name} at version {version}. Please retry."
        )
    else:
        lost = _lost_target(mine.operation, other.operation)
        if lost is None:
            why = f"This {mine.name} transaction is incompatible with concurrent transaction {other.name}"
        else:
            why = f"{lost} by concurrent {other.name}"
        text = f"Incompatible transaction: {why} at version {version}."
    raise CommitConflictError(text, retryable=verdict == RETRYABLE)


def _lost_target(mine: ops.Operation, other: ops.Operation) -> str | None:
    """The data that can no longer be replaced, in pylance's words; None if that is not the reason."""
    if not isinstance(mine, ops.DataReplacement):
        return None
    gone = effects_of(other).removed
    for group in mine.replacements:
        if group.fragment_id in gone:
            return f"DataReplacement target fragment {group.fragment_id} was removed"
        kept = other.schema.by_id.keys() if isinstance(other, ops.Project) else group.new_file.fields
        dropped = sorted(set(group.new_file.fields).difference(kept))
        if dropped:
            return f"DataReplacement target field {dropped[0]} in fragment {group.fragment_id} was dropped"
    return None


def judge(mine: Transaction, other: Transaction, *, knows_rows: bool = False) -> Verdict:
    """The verdict of the matrix for two transactions."""
    rules = _RULES.get((mine.name, other.name))
    if rules is None:  # one operation is unknown to this release
        return INCOMPATIBLE
    verdicts = (_judge(rule, mine, other, knows_rows) for rule in rules)
    return next((verdict for verdict in verdicts if verdict != OK), OK)


def _judge(rule: str, mine: Transaction, other: Transaction, knows_rows: bool) -> Verdict:
    if rule == "R":
        return RETRYABLE
    if rule == "I":
        return INCOMPATIBLE
    if rule == "r":
        return _rows(mine.operation, other.operation, knows_rows)
    if rule == "s":
        return _log(mine, other)
    return _NOTES[rule](mine.operation, other.operation)


def _parse(matrix: str) -> dict[tuple[str, str], str]:
    lines = [line.split() for line in matrix.strip().splitlines()]
    names = [line[0] for line in lines[1:]]
    return {
        (line[0], other): cell.replace(".", "")
        for line in lines[1:]
        for other, cell in zip(names, line[1:], strict=True)
    }


_RULES: Final = _parse(MATRIX)


# -- touched fragments -----------------------------------------------------------------------------------------------


def _ids(fragments: Iterable[Fragment]) -> frozenset[int]:
    return frozenset(fragment.id for fragment in fragments)


def touched_fragments(operation: ops.Operation) -> frozenset[int]:
    """The fragments that a change touches: FR in the module's text."""
    effects = effects_of(operation)
    return effects.removed.union(_ids(effects.changed), (group.fragment_id for group in effects.replaced))


def _replaced_fields(operation: ops.DataReplacement) -> frozenset[int]:
    return frozenset(field_id for group in operation.replacements for field_id in group.new_file.fields)


# -- rules -----------------------------------------------------------------------------------------------------------


def _fragments(mine: ops.Operation, other: ops.Operation) -> Verdict:
    """f: both touched the same fragment."""
    return OK if touched_fragments(mine).isdisjoint(touched_fragments(other)) else RETRYABLE


def _rows(mine: ops.Operation, other: ops.Operation, knows_rows: bool) -> Verdict:
    """r: both deleted rows of the same fragment. That can be merged if the rows are known and nothing else changed."""
    common = touched_fragments(mine) & touched_fragments(other)
    if not common:
        return OK
    if not knows_rows or common & (effects_of(mine).removed | effects_of(other).removed):
        return RETRYABLE
    assert isinstance(mine, (ops.Delete, ops.Update)) and isinstance(other, (ops.Delete, ops.Update))
    files = {fragment.id: fragment.files for fragment in mine.updated_fragments}
    same = all(files[fragment.id] == fragment.files for fragment in other.updated_fragments if fragment.id in common)
    return OK if same else RETRYABLE


def _keys(mine: ops.Operation, other: ops.Operation) -> Verdict:
    """k: mine inserted rows whose keys must be unique, and the other one added rows."""
    assert isinstance(mine, ops.Update)
    keys = mine.inserted_rows
    if keys is None:
        return OK
    others = other.inserted_rows if isinstance(other, ops.Update) else None
    if others is None or keys.field_ids != others.field_ids or _may_share_key(keys, others):
        return RETRYABLE
    return OK


def _may_share_key(left: ops.KeyFilter, right: ops.KeyFilter) -> bool:
    """Whether two filters may have a key in common. Filters of different kinds cannot be compared, so they may."""
    if left.hashes is not None and right.hashes is not None:
        return not left.hashes.isdisjoint(right.hashes)
    same = (left.num_bits, left.num_items, left.probability) == (right.num_bits, right.num_items, right.probability)
    if left.hashes is not None or right.hashes is not None or not same:
        return True
    return bool(int.from_bytes(left.bitmap, "little") & int.from_bytes(right.bitmap, "little"))


def _nullability(mine: ops.Operation, other: ops.Operation) -> Verdict:
    """n: rows written for the old schema may not fit the new schema."""
    changes = [each for each in (mine, other) if isinstance(each, (ops.Merge, ops.Project))]
    return OK if all(change.preserves_nullability for change in changes) else RETRYABLE


def _config(mine: ops.Operation, other: ops.Operation) -> Verdict:
    """c: one sets a config key that the other sets or deletes, or both change the same metadata."""
    if not _config_keys_free(mine, other):
        return INCOMPATIBLE
    if isinstance(mine, ops.UpdateConfig) and isinstance(other, ops.UpdateConfig):
        both_schema = mine.schema_metadata_updates is not None and other.schema_metadata_updates is not None
        both_fields = not mine.field_metadata_updates.keys().isdisjoint(other.field_metadata_updates)
        if both_schema or both_fields or _same_key(mine.table_metadata_updates, other.table_metadata_updates):
            return INCOMPATIBLE
    return OK


def _config_keys_free(mine: ops.Operation, other: ops.Operation) -> bool:
    ours, theirs = _config_map(mine), _config_map(other)
    if ours is None or theirs is None:
        return True
    return ours.upserted.isdisjoint(theirs.updates) and theirs.upserted.isdisjoint(ours.updates)


def _config_map(operation: ops.Operation) -> ops.UpdateMap | None:
    if isinstance(operation, ops.Overwrite):
        return ops.UpdateMap(dict(operation.config_upsert_values)) if operation.config_upsert_values else None
    assert isinstance(operation, ops.UpdateConfig)
    return operation.config_updates


def _same_key(left: ops.UpdateMap | None, right: ops.UpdateMap | None) -> bool:
    if left is None or right is None:
        return False
    return left.replace or right.replace or not left.updates.keys().isdisjoint(right.updates)


def _metadata_of_old(mine: ops.Operation, other: ops.Operation) -> Verdict:
    """m: mine changes metadata of a schema, or config keys, that the other one replaced."""
    assert isinstance(mine, ops.UpdateConfig)
    return OK if not mine.changes_schema and _config_keys_free(mine, other) else INCOMPATIBLE


def _schema_metadata(mine: ops.Operation, other: ops.Operation) -> Verdict:
    """g: one changes metadata inside of the schema, the other one has a new schema."""
    changes = [each for each in (mine, other) if isinstance(each, ops.UpdateConfig)]
    return RETRYABLE if any(change.changes_schema for change in changes) else OK


def _restored_metadata(mine: ops.Operation, other: ops.Operation) -> Verdict:
    """h: one changes metadata inside of the schema, the other one restores an old schema."""
    return OK if _schema_metadata(mine, other) == OK else INCOMPATIBLE


def _check_replace_delete(mine: ops.Operation, other: ops.Operation) -> Verdict:
    """e: a fragment whose data mine replaces is gone."""
    return OK if touched_fragments(mine).isdisjoint(effects_of(other).removed) else INCOMPATIBLE


def _check_replace_update(mine: ops.Operation, other: ops.Operation) -> Verdict:
    """w: a fragment whose data mine replaces is gone, or its rows were moved, or these fields were rewritten."""
    assert isinstance(mine, ops.DataReplacement) and isinstance(other, ops.Update)
    targets = touched_fragments(mine)
    if not targets.isdisjoint(other.removed_fragment_ids):
        return INCOMPATIBLE
    if targets.isdisjoint(_ids(other.updated_fragments)):
        return OK
    moved = other.update_mode == "rewrite_rows" and bool(other.new_fragments)
    return RETRYABLE if moved or not _replaced_fields(mine).isdisjoint(other.fields_modified) else OK


def _replaced_twice(mine: ops.Operation, other: ops.Operation) -> Verdict:
    """v: both replace the data of the same field in the same fragment."""
    assert isinstance(mine, ops.DataReplacement) and isinstance(other, ops.DataReplacement)
    overlap = any(
        ours.fragment_id == theirs.fragment_id and not set(ours.new_file.fields).isdisjoint(theirs.new_file.fields)
        for ours in mine.replacements
        for theirs in other.replacements
    )
    return RETRYABLE if overlap else OK


def _check_replace_index(mine: ops.Operation, other: ops.Operation) -> Verdict:
    """d: one built an index over a field whose data the other one replaced."""
    pair = (mine, other)
    fields = frozenset[int]().union(*(_replaced_fields(each) for each in pair if isinstance(each, ops.DataReplacement)))
    indices = [index for each in pair if isinstance(each, ops.CreateIndex) for index in each.new_indices]
    return RETRYABLE if any(not fields.isdisjoint(index.fields) for index in indices) else OK


def _check_replace_drop(mine: ops.Operation, other: ops.Operation) -> Verdict:
    """p: a field whose data mine replaces is no longer in the schema."""
    assert isinstance(mine, ops.DataReplacement) and isinstance(other, ops.Project)
    return OK if _replaced_fields(mine) <= other.schema.by_id.keys() else INCOMPATIBLE


def _check_rewrite_index(mine: ops.Operation, other: ops.Operation) -> Verdict:
    """b: one built an index over rows that the other one moved. Mine may record the moves of whole groups instead."""
    if isinstance(mine, ops.Rewrite) and mine.moved_rows is not None and mine.defers:
        assert isinstance(other, ops.CreateIndex)
        groups = [_ids(group.old_fragments) for group in mine.groups]
        covered = [index.fragment_ids for index in other.new_indices]
        split = any(ids is None or any(group & ids and not group <= ids for group in groups) for ids in covered)
        return RETRYABLE if split else OK
    pair = (mine, other)
    moved = frozenset[int]().union(*(effects_of(each).removed for each in pair if isinstance(each, ops.Rewrite)))
    indices = [index for each in pair if isinstance(each, ops.CreateIndex) for index in each.new_indices]
    overlap = any(index.fragment_ids is None or not moved.isdisjoint(index.fragment_ids) for index in indices)
    return RETRYABLE if moved and overlap else OK


def _check_merge_log(mine: ops.Operation, other: ops.Operation) -> Verdict:
    """l: one lists all fragments, and the other one begins a write-ahead log, or ends it."""
    indices = [each for each in (mine, other) if isinstance(each, ops.CreateIndex)]
    names = (_names(each.new_indices) | _names(each.removed_indices) for each in indices)
    return RETRYABLE if any(MEM_WAL in each for each in names) else OK


def _indices(mine: ops.Operation, other: ops.Operation) -> Verdict:
    """x: both built an index of the same name, or one removed segments that the other one builds on."""
    assert isinstance(mine, ops.CreateIndex) and isinstance(other, ops.CreateIndex)
    names, others = _names(mine.new_indices), _names(other.new_indices)
    system = {FRAGMENT_REUSE, MEM_WAL}
    touch = system & (names | _names(mine.removed_indices)) & (others | _names(other.removed_indices))
    crossed = names & _names(other.removed_indices) or others & _names(mine.removed_indices)
    return RETRYABLE if names & others or touch or crossed else OK


def _names(indices: Iterable[IndexMetadata]) -> set[str]:
    return {index.name for index in indices}


def _bases(mine: ops.Operation, other: ops.Operation) -> Verdict:
    """u: both declared the same base path."""
    assert isinstance(mine, ops.UpdateBases) and isinstance(other, ops.UpdateBases)
    overlap = any(
        (ours.id and ours.id == theirs.id) or (ours.name and ours.name == theirs.name) or ours.path == theirs.path
        for ours in mine.new_bases
        for theirs in other.new_bases
    )
    return INCOMPATIBLE if overlap else OK


def _log(mine: Transaction, other: Transaction) -> Verdict:
    """s: both took a step of the write-ahead log. The steps are not decoded, so any two may be the same."""
    return RETRYABLE if _steps_log(mine) and _steps_log(other) else OK


def _steps_log(transaction: Transaction) -> bool:
    operation = transaction.operation
    if isinstance(operation, ops.CreateIndex):
        return MEM_WAL in _names(operation.new_indices) | _names(operation.removed_indices)
    if isinstance(operation, ops.Update):
        return transaction.message is not None and bool(transaction.message.update.compacted_sstables)
    return isinstance(operation, ops.UpdateMemWalState)


_NOTES: Final[dict[str, Callable[[ops.Operation, ops.Operation], Verdict]]] = {
    "f": _fragments,
    "k": _keys,
    "n": _nullability,
    "c": _config,
    "m": _metadata_of_old,
    "g": _schema_metadata,
    "h": _restored_metadata,
    "e": _check_replace_delete,
    "w": _check_replace_update,
    "v": _replaced_twice,
    "d": _check_replace_index,
    "p": _check_replace_drop,
    "b": _check_rewrite_index,
    "x": _indices,
    "l": _check_merge_log,
    "u": _bases,
}
