"""Whether a transaction is compatible with versions that were removed (the project's own decision 003).

Normally the transactions of the versions since a transaction's read version show what changed. A cleanup may have
removed these. Then only two manifests are left, the read version and the newest, and everything that the transaction
touches must be the same in both. This test accepts less often than the conflict matrix (`conflicts.py`), but never
wrongly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from lance_io.records import dataclass
from lance_io.table.manifest.paths import DATA
from lance_io.table.transaction import operations as ops
from lance_io.table.transaction.conflicts import touched_fragments
from lance_io.table.transaction.effects import effects_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lance_io.proto import table_pb2
    from lance_io.table.manifest.manifest import Manifest
    from lance_io.table.transaction.transaction import Transaction


def discontinuity(
    transaction: Transaction, made_for: Manifest | None, newest: Manifest, *, knows_rows: bool
) -> str | None:
    """The reason why a transaction may be incompatible; None if it certainly is compatible.

    made_for    the transaction's read version, None if that is removed, too
    knows_rows  whether the rows that it deletes are known, so that it can be merged with other deletions
    """
    rules = _RULES.get(type(transaction.operation))
    if rules is None:
        return "the fragments that it touches are unknown"
    if made_for is None:
        return "that version is gone, too" if rules else None
    pair = _Pair(made_for, newest, knows_rows)
    return next((reason for rule in rules if (reason := rule(pair, transaction.operation)) is not None), None)


def new_data_files(transaction: Transaction) -> list[str]:
    """Paths of the data files that a transaction adds to the table's own folder, relative to that folder."""
    return [f"{DATA}/{file.path}" for file in effects_of(transaction.operation).new_rows if file.base_id is None]


def data_files_in(transaction: Transaction, newest: Manifest) -> Literal["all", "some", "none"]:
    """Whether the newest version already has all, some or none of the data files that a transaction adds."""
    added = set(new_data_files(transaction))
    there = {f"{DATA}/{file.path}" for fragment in newest.message.fragments for file in fragment.files}
    missing = added - there
    return "none" if missing == added else "some" if missing else "all"


@dataclass(frozen=True)
class _Pair:
    """The read version of a transaction, and the newest version."""

    made_for: Manifest
    newest: Manifest
    knows_rows: bool

    @property
    def messages(self) -> tuple[table_pb2.Manifest, table_pb2.Manifest]:
        """The messages of both."""
        return self.made_for.message, self.newest.message

    def find_change(self, fragment_ids: Iterable[int], *, deletions: bool) -> str | None:
        """The first of some fragments with other files now, or with `deletions` other deleted rows; None for none."""
        before, now = ({fragment.id: fragment for fragment in message.fragments} for message in self.messages)
        for fragment_id in fragment_ids:
            if fragment_id not in before or not _same_files(before[fragment_id], now.get(fragment_id)):
                return f"fragment {fragment_id} has changed"
            if deletions and before[fragment_id].deletion_file != now[fragment_id].deletion_file:
                return f"rows of fragment {fragment_id} were deleted"
        return None


def _same_files(before: table_pb2.DataFragment, now: table_pb2.DataFragment | None) -> bool:
    return now is not None and before.files[:] == now.files[:]


# -- assumptions of operations ---------------------------------------------------------------------------------------


def _schema(pair: _Pair, _: Any) -> str | None:
    before, now = pair.messages
    return None if before.fields[:] == now.fields[:] else "the schema has changed"


def _same_table(pair: _Pair, _: Any) -> str | None:
    """A table that was overwritten has no fragment in common with its earlier versions."""
    before, now = pair.messages
    there = {fragment.id: fragment for fragment in now.fragments}
    if any(_same_files(fragment, there.get(fragment.id)) for fragment in before.fragments):
        return None
    return "no data of that version is left, so the table may have been overwritten"


def _find_touched(pair: _Pair, operation: Any) -> str | None:
    """The fragments that it changes; deletions of known rows can be merged with others."""
    touched = touched_fragments(operation)
    is_mergeable = pair.knows_rows and getattr(operation, "update_mode", "rewrite_rows") == "rewrite_rows"
    checked = effects_of(operation).removed if is_mergeable else touched
    return pair.find_change(touched, deletions=False) or pair.find_change(checked, deletions=True)


def _keys(_: _Pair, operation: ops.Update) -> str | None:
    return None if operation.inserted_rows is None else "rows of the same keys may have been inserted"


def _find_uncovered(pair: _Pair, operation: ops.CreateIndex) -> str | None:
    covered = [index.fragment_ids for index in operation.new_indices]
    if any(each is None for each in covered):
        return "it is not known which fragments the index covers"
    return pair.find_change(frozenset[int]().union(*(each or () for each in covered)), deletions=False)


def _indices(pair: _Pair, _: Any) -> str | None:
    before, now = pair.made_for, pair.newest
    unread = before.index_offset is not None and before.index_section is None
    return "the indices have changed" if unread or before.index_section != now.index_section else None


def _fragments(pair: _Pair, _: Any) -> str | None:
    before, now = pair.messages
    return None if before.fragments[:] == now.fragments[:] else "the fragments have changed"


def _settings(pair: _Pair, _: Any) -> str | None:
    before, now = (
        (message.config, message.table_metadata, message.schema_metadata, message.base_paths[:])
        for message in pair.messages
    )
    return None if before == now else "configuration, metadata or base paths have changed"


_RULES: Final[dict[type, tuple[Callable[[_Pair, Any], str | None], ...]]] = {
    ops.Append: (_schema, _same_table),
    ops.Delete: (_schema, _find_touched),
    ops.Overwrite: (),
    ops.CreateIndex: (_schema, _find_uncovered, _indices),
    ops.Rewrite: (_schema, _find_touched, _indices),
    ops.Merge: (_schema, _fragments, _indices),
    ops.Project: (_schema, _same_table),
    ops.Restore: (),
    ops.ReserveFragments: (),
    ops.Update: (_schema, _same_table, _keys, _find_touched),
    ops.UpdateConfig: (_schema, _settings),
    ops.DataReplacement: (_schema, _find_touched, _indices),
    ops.UpdateBases: (_settings,),
}
