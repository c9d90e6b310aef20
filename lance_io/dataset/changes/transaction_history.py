"""Transactions that made the versions of a table, as values of users (spec: commit, section 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.commit.latest import list_versions
from lance_io.commit.record import transaction_in, transaction_of
from lance_io.dataset.changes.convert import to_public
from lance_io.plans.plan import Together

if TYPE_CHECKING:
    from lance_io.dataset.changes.lance_operation import Transaction
    from lance_io.dataset.version.state import DatasetState
    from lance_io.plans.plan import Plan
    from lance_io.table.transaction.transaction import Transaction as StoredTransaction


def read_transaction(state: DatasetState, version: int) -> Plan[Transaction | None]:
    """See `LanceDataset.read_transaction`."""
    location = state.location
    stored = yield from transaction_of(location, state.session.handler(location), version)
    return None if stored is None else to_public(stored)


def get_transactions(state: DatasetState, count: int) -> Plan[list[Transaction | None]]:
    """What made the newest versions, newest first."""
    found = yield from stored_transactions(state, count)
    return [None if stored is None else to_public(stored) for stored in found]


def stored_transactions(state: DatasetState, count: int) -> Plan[list[StoredTransaction | None]]:
    """`get_transactions`, as they are stored."""
    location = state.location
    files = (yield from list_versions(location.store, location.path))[::-1][:count]
    found: list[StoredTransaction | None] = yield Together([transaction_in(location, file) for file in files])
    return found
