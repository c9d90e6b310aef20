"""Reads committed manifest files and the transactions that they record (spec: commit, section 2)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lance_io.commit.latest import newer_key, read_named
from lance_io.errors import FormatError, LanceError, NotFound
from lance_io.lazy_names import lazy_module
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
    transactions = lazy_module("lance_io.table.transaction.transaction")


def read_manifest(
    location: Location, key: str, version: int, *, is_kept: bool = False
) -> Plan[tuple[Manifest, Buffer]]:
    """The manifest of a version and the bytes of its whole file.

    is_kept  whether a disk cache, if there is one, keeps it

    If the file was renamed since it was listed, it is read under its V2 name. Raises `NotFound` if it does not exist,
    `FormatError` if it is damaged or if its version is not that of its name.
    """
    data = yield from read_named(location.store, key, ReadCopied if is_kept else Read)
    return manifest_in_bytes(data, key, version), data


def manifest_in_bytes(data: Buffer, key: str, version: int) -> Manifest:
    """Decode the manifest of a version. Raises the `FormatError` of `read_manifest`."""
    try:
        manifest = decode_manifest(data)
    except LanceError as error:
        error.path = key
        raise
    if manifest.version != version:
        raise FormatError(f"the manifest is of version {manifest.version}, its name of {version}", path=key)
    return manifest if newer_key(key) is None else replace(manifest, has_old_name=True)


def recorded_transaction(
    location: Location, key: str, origin: Manifest | Origin, data: Buffer
) -> Plan[Transaction | None]:
    """The transaction of a version: from its manifest file or from the transaction file; None if neither has it.

    key, origin, data  key of the manifest file, its decoded content, and all its bytes
    """
    try:
        if origin.transaction_offset is not None:
            return transactions.decode_transaction(read_section(data, origin.transaction_offset, what="transaction"))
        if not origin.transaction_file:
            return None
        key = location.key(transaction_path(origin.transaction_file))
        return transactions.decode_transaction((yield Read(location.store, key)))
    except NotFound:
        return None
    except LanceError as error:
        error.path = key
        raise


def transaction_in(location: Location, file: VersionFile) -> Plan[Transaction | None]:
    """The transaction of a manifest file's version. Raises `NotFound` if the file does not exist."""
    manifest, data = yield from read_manifest(location, file.key, file.version)
    return (yield from recorded_transaction(location, file.key, manifest, data))


def transaction_of(location: Location, handler: CommitHandler, version: int) -> Plan[Transaction | None]:
    """The transaction of a version; None if no record of it is left. Raises `NotFound` if there is no such version."""
    return (yield from transaction_in(location, (yield from handler.find_version(location, version))))
