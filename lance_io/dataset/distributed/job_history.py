"""What jobs left in a table: its newest version, and their transactions, found by property or by identity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lance_io.commit.record import transaction_in
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

JOB_PROPERTY: Final = "lance_io.job"  # of transactions: the id of the job that made them
_VERSIONS_AT_ONCE: Final = 8  # that are read side by side while a job is searched


def newest_manifest(location: Location, session: Session) -> Plan[Manifest | None]:
    """The newest version, None where there is no table."""
    try:
        return (yield from latest_manifest(location, session))
    except NotFound:
        return None


def find_job(target: WriteTarget, job_id: str, versions_max: int, after: int = 0) -> Plan[int | None]:
    """The version that a job made, None when none of the newest `versions_max` above `after` is its.

    Versions that were cleaned up, and those whose transaction is no longer recorded, cannot be told.
    """
    versions = yield from target.handler.list_after(target.location, after)
    newest_first = [file for file in versions[::-1] if file.version > after][:versions_max]
    for start in range(0, len(newest_first), _VERSIONS_AT_ONCE):
        files = newest_first[start : start + _VERSIONS_AT_ONCE]
        found: list[Transaction | None] = yield Together([_transaction_in(target.location, file) for file in files])
        for file, transaction in zip(files, found, strict=True):
            if transaction is not None and transaction.properties.get(JOB_PROPERTY) == job_id:
                return file.version
    return None


def transactions_after(target: WriteTarget, version: int) -> Plan[list[tuple[int, Transaction | None]]]:
    """Numbers and transactions of the versions above `version`, oldest first; empty without a table."""
    versions = yield from target.handler.list_after(target.location, version)
    newer = [file for file in versions if file.version > version]
    found: list[tuple[int, Transaction | None]] = []
    for start in range(0, len(newer), _VERSIONS_AT_ONCE):
        files = newer[start : start + _VERSIONS_AT_ONCE]
        read = yield Together([_transaction_in(target.location, file) for file in files])
        found += [(file.version, transaction) for file, transaction in zip(files, read, strict=True)]
    return found


def _transaction_in(place: Location, file: VersionFile) -> Plan[Transaction | None]:
    """What made a version; None when it, or the record of what made it, was cleaned up."""
    try:
        return (yield from transaction_in(place, file))
    except NotFound:
        return None


def is_pending(target: WriteTarget, uuid: str) -> Plan[bool]:
    """Whether a transaction file was written and not removed: then a commit was under way and may yet take effect."""
    place = target.location
    listed: list[ObjectMeta] = yield List(place.store, place.key(TRANSACTIONS, ""))
    return any(meta.key.endswith(f"-{uuid}.txn") for meta in listed)
