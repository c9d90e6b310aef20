"""Transactions that made the versions of a table (spec: commit, section 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.commit.latest import list_versions
from lance_io.commit.steps import Read, Together
from lance_io.errors import LanceError, NotFound
from lance_io.table.manifest import decode_manifest, read_section
from lance_io.table.paths import transaction_path
from lance_io.table.transaction import Transaction, decode_transaction

if TYPE_CHECKING:
    from lance_io.commit.steps import Plan
    from lance_io.dataset.state import DatasetState
    from lance_io.store.url import Location


def transaction_of(state: DatasetState, version: int) -> Plan[Transaction | None]:
    """What made a version; None when no record of it is left. Raises `NotFound` for a version that is not there."""
    location = state.location
    file = yield from state.session.handler(location).find_version(location, version)
    return (yield from _read(location, file.key))


def recent_transactions(location: Location, count: int) -> Plan[list[Transaction | None]]:
    """What made the newest versions, newest first."""
    files = (yield from list_versions(location.store, location.path))[::-1][:count]
    found: list[Transaction | None] = yield Together([_read(location, file.key) for file in files])
    return found


def _read(location: Location, key: str) -> Plan[Transaction | None]:
    data = yield Read(location.store, key)
    try:
        manifest = decode_manifest(data)
        if manifest.transaction_offset is not None:
            return decode_transaction(read_section(data, manifest.transaction_offset, what="transaction"))
    except LanceError as error:
        error.path = key
        raise
    if not manifest.transaction_file:
        return None
    try:
        data = yield Read(location.store, location.key(transaction_path(manifest.transaction_file)))
    except NotFound:
        return None
    return decode_transaction(data)
