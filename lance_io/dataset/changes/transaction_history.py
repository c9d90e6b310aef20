"""Transactions that made the versions of a table (spec: commit, section 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.commit.latest import list_versions
from lance_io.commit.record import read_manifest, recorded_transaction
from lance_io.dataset.changes.convert import to_public
from lance_io.plans.plan import Together

if TYPE_CHECKING:
    from lance_io.commit.latest import VersionFile
    from lance_io.dataset.changes.lance_operation import Transaction as PublicTransaction
    from lance_io.dataset.version.state import DatasetState
    from lance_io.plans.plan import Plan
    from lance_io.store.url import Location
    from lance_io.table.transaction.transaction import Transaction


def read_transaction(state: DatasetState, version: int) -> Plan[PublicTransaction | None]:
    """See `LanceDataset.read_transaction`."""
    stored = yield from transaction_of(state, version)
    return None if stored is None else to_public(stored)


def get_transactions(state: DatasetState, count: int) -> Plan[list[PublicTransaction | None]]:
    """What made the newest versions, newest first."""
    location = state.location
    files = (yield from list_versions(location.store, location.path))[::-1][:count]
    found: list[Transaction | None] = yield Together([transaction_in(location, file) for file in files])
    return [None if stored is None else to_public(stored) for stored in found]


def transaction_of(state: DatasetState, version: int) -> Plan[Transaction | None]:
    """What made a version; None when no record of it is left. Raises `NotFound` for a version that is not there."""
    location = state.location
    file = yield from state.session.handler(location).find_version(location, version)
    return (yield from transaction_in(location, file))


def transaction_in(location: Location, file: VersionFile) -> Plan[Transaction | None]:
    """What made the version of a manifest file. Raises `NotFound` when the file is not there."""
    manifest, data = yield from read_manifest(location, file.key, file.version)
    return (yield from recorded_transaction(location, file.key, manifest, data))
