"""Declared keys under changes of field metadata: set once, they stay (spec: table, section 2.5).

A table gets its primary key, and its clustering key, when it is made or by one change of metadata. From then on only a
whole new schema (Overwrite, Merge, Project) brings another one, since what was written relied on the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lance_io.errors import OperationError
from lance_io.format.keys import (
    CLUSTERING_KEY_POSITION,
    PRIMARY_KEY,
    PRIMARY_KEY_POSITION,
    check_primary_key,
    declared_clustering_key,
    declared_primary_key,
)
from lance_io.format.schema_messages import decode_schema, put_keys, stored_primary_key

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lance_io.proto import file_pb2
    from lance_io.table.transaction.operations import UpdateMap


@dataclass(frozen=True)
class _Key:
    """name, hint: for messages. entries: the metadata that declare it."""

    name: str
    entries: frozenset[str]
    hint: str


_PRIMARY: Final = _Key("primary key", frozenset({PRIMARY_KEY, PRIMARY_KEY_POSITION}), "Give a position, or 'true'")
_CLUSTERING: Final = _Key("clustering key", frozenset({CLUSTERING_KEY_POSITION}), "Give a position, from '1' on")


def settle_keys(fields: Sequence[file_pb2.Field], updates: Mapping[int, UpdateMap]) -> None:
    """Store the keys that the metadata of updated fields declare now, if they may.

    fields   all fields of the table, with their new metadata and as yet the old keys
    updates  what changed, by field id

    Raises `OperationError` for another key than the one that the table has, and for entries that make none;
    `PrimaryKeyError` for a primary key that cannot be.
    """
    named = {name for update in updates.values() for name in update.updates}
    changed = [field for field in fields if field.id in updates]
    primary = {field.id: stored_primary_key(field) for field in fields}
    new_primary = primary | {field.id: declared_primary_key(field.metadata) for field in changed}
    _check(_PRIMARY, named, had=_any(primary), has=_any(new_primary), changes=new_primary != primary)
    clustering = {field.id: field.unenforced_clustering_key_position or None for field in fields}
    declared = {field.id: declared_clustering_key(field.metadata) for field in changed}
    new_clustering = clustering | {field_id: position or None for field_id, position in declared.items()}
    # position 0 may be declared although nothing is stored for it
    has_clustering = _any(new_clustering) or _any(declared)
    _check(_CLUSTERING, named, had=_any(clustering), has=has_clustering, changes=new_clustering != clustering)
    for field in changed:
        put_keys(field, new_primary[field.id], new_clustering[field.id])
    if new_primary != primary:
        check_primary_key(decode_schema(fields, {}))


def _any(positions: Mapping[int, int | None]) -> bool:
    return any(position is not None for position in positions.values())


def _check(key: _Key, named: Collection[str], *, had: bool, has: bool, changes: bool) -> None:
    """Raise unless updates of the entries `named` may do this to a key.

    had, has: whether any field was part of it before, and whether any is now. changes: whether anything differs.
    """
    given = sorted(key.entries.intersection(named))
    if had and (given or changes):
        raise OperationError(
            f"the unenforced {key.name} is a reserved key and cannot be changed once set: leave "
            f"{' and '.join(sorted(key.entries))} out of the updates, and do not replace all metadata of its fields"
        )
    if given and not has:
        raise OperationError(
            f"the unenforced {key.name} is a reserved key and cannot be set to an invalid value: with these "
            f"{' and '.join(given)} no field is part of it. {key.hint}"
        )
