"""Runs a rebase (`table/transaction/rebase.py`): reads the deletion files that it merges."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from lance_io.errors import CommitConflictError, FormatError
from lance_io.plans.plan import Together
from lance_io.plans.store_requests import Read
from lance_io.table.manifest.deletion_file import decode_deletions
from lance_io.table.manifest.paths import deletion_file_location
from lance_io.table.transaction.rebase import (
    Rebased,
    carry_changes,
    current_records,
    marked_fragments,
    merge_deletions,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.codecs.roaring import U32Array
    from lance_io.plans.plan import Plan
    from lance_io.store.url import Location
    from lance_io.table.manifest.fragment import Fragment
    from lance_io.table.manifest.manifest import Manifest
    from lance_io.table.transaction.transaction import Transaction


def rebase(
    location: Location,
    transaction: Transaction,
    made_on: Manifest | None,
    current: Manifest,
    affected: Mapping[int, U32Array] | None,
) -> Plan[Rebased]:
    """Rebase a Delete or Update from the version `made_on` onto `current`.

    affected  offsets of the rows that it deletes, by fragment. None if unknown: then no other transaction may have
              touched its fragments

    Raises `CommitConflictError` if another writer deleted one of these rows.
    """
    records = current_records(transaction, current)
    if affected is None or made_on is None:
        return Rebased(carry_changes(transaction, current, records), {})
    earlier = current_records(transaction, made_on)
    before = {fragment_id: fragment.deletion_file for fragment_id, fragment in earlier.items()}
    marked = marked_fragments(records, before)
    read: list[Any] = []
    if marked:
        read = yield Together([_read(location, fragment, current) for fragment in marked.values()])
    deleted = dict(zip(marked, read, strict=True))
    return merge_deletions(transaction, current, records, deleted, affected, lambda: secrets.randbits(64))


def _read(location: Location, fragment: Fragment, current: Manifest) -> Plan[U32Array]:
    file = fragment.deletion_file
    if file is None:
        raise CommitConflictError(
            f"the deletion file of fragment {fragment.id} was removed by a concurrent transaction. Please retry.",
            path=location.uri,
            retryable=True,
        )
    where = deletion_file_location(fragment.id, file, current.base_paths)
    if where.base is not None:
        raise CommitConflictError(
            f"the deletion file of fragment {fragment.id} lies below base path {where.base.id}, where it is not merged "
            "with that of a concurrent transaction. Please retry.",
            path=location.uri,
            retryable=True,
        )
    key = location.key(where.relative)
    data = yield Read(location.store, key)
    try:
        return decode_deletions(data, file, fragment.physical_rows)
    except FormatError as error:
        error.path = key
        raise
