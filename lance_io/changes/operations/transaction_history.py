"""Transactions of the versions of a table, in their public form (spec: commit, section 2)."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from lance_io.changes.operations.convert import to_public
from lance_io.commit.latest import list_versions
from lance_io.commit.manifest_reads import transaction_in, transaction_of
from lance_io.plans.plan import Together

if TYPE_CHECKING:
    from lance_io.changes.operations.lance_operation import Transaction
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.transaction.transaction import Transaction as StoredTransaction


def read_transaction(state: DatasetState, version: int) -> Plan[Transaction | None]:
    """See `LanceDataset.read_transaction`."""
    location = state.location
    stored = yield from transaction_of(location, state.session.handler(location), version)
    return None if stored is None else to_public(stored)


def get_transactions(state: DatasetState, count: int) -> Plan[list[Transaction | None]]:
    """Transactions of the open version and those before it, newest first; see `LanceDataset.get_transactions`."""
    transactions = yield from stored_transactions(state, count)
    return [None if stored is None else to_public(stored) for stored in transactions]


def stored_transactions(state: DatasetState, count: int) -> Plan[list[StoredTransaction | None]]:
    """`get_transactions`, in their stored form.

    Raises `NotFound` if the open version is gone, `TypeError` and `OverflowError` for an invalid count.
    """
    location, newest = state.location, state.manifest.version
    listed = {file.version: file for file in (yield from list_versions(location.store, location.path))}
    if newest in listed:
        plans = [transaction_in(location, listed[newest])]
    else:  # a detached version, or one that is only in an external commit store yet
        plans = [transaction_of(location, state.session.handler(location), newest)]
    for version in range(newest - 1, newest - _check_count(count), -1):
        if version not in listed:
            break
        plans.append(transaction_in(location, listed[version]))
    transactions: list[StoredTransaction | None] = yield Together(plans)
    return transactions


def _check_count(count: Any) -> int:
    number = operator.index(count)
    if not 0 <= number < 1 << 64:
        raise OverflowError(f"recent_transactions: expected 0 to {(1 << 64) - 1}, found {number}")
    return number
