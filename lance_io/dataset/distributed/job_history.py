"""Traces of jobs in a table: the newest version, and transactions by job property or by uuid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lance_io.commit.manifest_reads import transaction_in
from lance_io.errors import NotFound
from lance_io.plans.plan import Together
from lance_io.plans.store_requests import List
from lance_io.reads.version.versions import latest_manifest
from lance_io.table.manifest.paths import TRANSACTIONS

if TYPE_CHECKING:
    from lance_io.changes.write.write_rows import WriteTarget
    from lance_io.commit.latest import VersionFile
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.session import Session
    from lance_io.store.api import ObjectMeta
    from lance_io.store.url import Location
    from lance_io.table.manifest.manifest import Manifest
    from lance_io.table.transaction.transaction import Transaction

JOB_PROPERTY: Final = "lance_io.job"  # property of a transaction: id of its job
_VERSIONS_AT_ONCE: Final = 8  # read concurrently while searching a job


def newest_manifest(location: Location, session: Session) -> Plan[Manifest | None]:
    """The newest version; None if there is no table."""
    try:
        return (yield from latest_manifest(location, session))
    except NotFound:
        return None


def find_job(target: WriteTarget, job_id: str, versions_max: int, after: int = 0) -> Plan[int | None]:
    """The version that a job committed; None if none of the newest `versions_max` above `after` belongs to it.

    Versions that a cleanup removed, and those without a recorded transaction, do not count.
    """
    versions = yield from target.handler.list_after(target.location, after)
    newest_first = [file for file in versions[::-1] if file.version > after][:versions_max]
    for start in range(0, len(newest_first), _VERSIONS_AT_ONCE):
        files = newest_first[start : start + _VERSIONS_AT_ONCE]
        transactions: list[Transaction | None] = yield Together(
            [_transaction_in(target.location, file) for file in files]
        )
        for file, transaction in zip(files, transactions, strict=True):
            if transaction is not None and transaction.properties.get(JOB_PROPERTY) == job_id:
                return file.version
    return None


def transactions_after(target: WriteTarget, version: int) -> Plan[list[tuple[int, Transaction | None]]]:
    """Numbers and transactions of the versions above `version`, oldest first; empty without a table."""
    versions = yield from target.handler.list_after(target.location, version)
    newer = [file for file in versions if file.version > version]
    transactions: list[tuple[int, Transaction | None]] = []
    for start in range(0, len(newer), _VERSIONS_AT_ONCE):
        files = newer[start : start + _VERSIONS_AT_ONCE]
        read = yield Together([_transaction_in(target.location, file) for file in files])
        transactions += [(file.version, transaction) for file, transaction in zip(files, read, strict=True)]
    return transactions


def _transaction_in(location: Location, file: VersionFile) -> Plan[Transaction | None]:
    """The transaction of a version; None if a cleanup removed the version or the record."""
    try:
        return (yield from transaction_in(location, file))
    except NotFound:
        return None


def is_pending(target: WriteTarget, uuid: str) -> Plan[bool]:
    """Whether the transaction file still exists: then a commit was under way and may yet take effect."""
    location = target.location
    listed: list[ObjectMeta] = yield List(location.store, location.key(TRANSACTIONS, ""))
    return any(meta.key.endswith(f"-{uuid}.txn") for meta in listed)
