"""Manifest files as they were committed, and the transactions that they record (spec: commit, section 2)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lance_io.commit.latest import newer_key, read_named
from lance_io.errors import FormatError, LanceError, NotFound
from lance_io.lazy_names import later
from lance_io.plans.store_requests import Read, ReadCopied
from lance_io.table.manifest.manifest import Manifest, Origin, decode_manifest, read_section
from lance_io.table.manifest.paths import transaction_path

if TYPE_CHECKING:
    from lance_io.commit.handler import CommitHandler
    from lance_io.commit.latest import VersionFile
    from lance_io.plans.plan import Plan
    from lance_io.store.api import Buffer
    from lance_io.store.url import Location
    from lance_io.table.transaction import transaction as transactions
    from lance_io.table.transaction.transaction import Transaction
else:
    transactions = later("lance_io.table.transaction.transaction")


def read_manifest(place: Location, key: str, version: int, *, is_kept: bool = False) -> Plan[tuple[Manifest, Buffer]]:
    """The manifest of a version and the bytes of its whole file.

    is_kept  whether a disk cache, if there is one, is to keep it

    A file that has been renamed since it was listed is found by its newer name. Raises `NotFound` when it is not there,
    `FormatError` for damage and for a manifest of another version than its name says.
    """
    data = yield from read_named(place.store, key, ReadCopied if is_kept else Read)
    return manifest_in_bytes(data, key, version), data


def manifest_in_bytes(data: Buffer, key: str, version: int) -> Manifest:
    """The manifest of a version in a file's bytes. Raises `FormatError` as `read_manifest`."""
    try:
        manifest = decode_manifest(data)
    except LanceError as error:
        error.path = key
        raise
    if manifest.version != version:
        raise FormatError(f"the manifest is of version {manifest.version}, its name of {version}", path=key)
    return manifest if newer_key(key) is None else replace(manifest, has_old_name=True)


def recorded_transaction(
    place: Location, key: str, origin: Manifest | Origin, data: Buffer
) -> Plan[Transaction | None]:
    """What made a version: from its manifest file, or from the file that this names; None when neither is there.

    key, origin, data  the manifest file's name, what it says, and all its bytes
    """
    try:
        if origin.transaction_offset is not None:
            return transactions.decode_transaction(read_section(data, origin.transaction_offset, what="transaction"))
        if not origin.transaction_file:
            return None
        key = place.key(transaction_path(origin.transaction_file))
        return transactions.decode_transaction((yield Read(place.store, key)))
    except NotFound:
        return None
    except LanceError as error:
        error.path = key
        raise


def transaction_in(place: Location, file: VersionFile) -> Plan[Transaction | None]:
    """What made the version of a manifest file. Raises `NotFound` when the file is not there."""
    manifest, data = yield from read_manifest(place, file.key, file.version)
    return (yield from recorded_transaction(place, file.key, manifest, data))


def transaction_of(place: Location, handler: CommitHandler, version: int) -> Plan[Transaction | None]:
    """What made a version; None when no record of it is left. Raises `NotFound` for a version that is not there."""
    return (yield from transaction_in(place, (yield from handler.find_version(place, version))))
