"""Creating a table, a clone or a branch: its first version.

    round 1   LIST   ||  the transaction file  ||  uploads that the caller has not finished
    last      create the manifest, if there is no version yet

The commit loop (`commit_loop.py`) commits all later versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.commit.commit_counts import COMMITS
from lance_io.commit.commit_files import CommitFiles
from lance_io.commit.commit_request import CommitRequest, encode_next_manifest, report_version
from lance_io.commit.deciding_write import write_deciding
from lance_io.commit.handler import NewVersion, Taken
from lance_io.commit.latest import read_named
from lance_io.commit.target import CommittedVersion
from lance_io.errors import AlreadyExists, CommitUnknownError
from lance_io.plans.plan import RollBackOnError, Together
from lance_io.table.manifest.manifest import decode_manifest
from lance_io.table.transaction.named_files import named_files

if TYPE_CHECKING:
    from lance_io.commit.latest import VersionFile
    from lance_io.commit.target import CommitTarget
    from lance_io.plans.plan import Plan
    from lance_io.table.transaction.transaction import Transaction


def create_table(target: CommitTarget, request: CommitRequest) -> Plan[CommittedVersion]:
    """Commit the first version of a table, clone or branch. That of a clone or branch has the number of its source.

    Two rounds. Idempotent: the same request is applied once. Raises `AlreadyExists` if there is a table,
    `CommitUnknownError` if the outcome is unknown.
    """
    target.handler.check(target.location)
    files = request.files or CommitFiles()
    kept = {target.location.key(request.transaction.path)} if request.is_repeated else ()
    try:
        committed: CommittedVersion = yield RollBackOnError(
            _create(target, request, files), lambda _: files.roll_back(target.location.store, kept)
        )
    except CommitUnknownError as error:
        COMMITS.add(request.transaction.name, unknown=1)
        error.transaction = request.transaction
        raise
    if committed.attempts:
        report_version(target, request, committed)
    if committed.failure is not None:
        raise committed.failure
    return committed


def _create(target: CommitTarget, request: CommitRequest, files: CommitFiles) -> Plan[CommittedVersion]:
    location, transaction = target.location, request.transaction
    version = 1 if request.base is None else request.base.version
    file = encode_next_manifest(target, request.base, request, transaction, version=version)
    small = {location.key(transaction.path): file.transaction, **files.contents}
    plans = [
        *request.alongside,
        *files.puts(location.store, small, target.durability),
        target.handler.prepare(location),
    ]
    if request.listing is None:
        *_, versions = yield Together([*plans, target.handler.list_after(location, 0)])
    else:
        yield Together(plans)
        versions = request.listing.versions
    if versions:
        return (yield from _find_created(target, transaction, versions[0], version, files))
    files.check_named(location, lambda: named_files(transaction))
    new = NewVersion(version, target.scheme, file.data, transaction.uuid, target.durability)
    outcome = yield from write_deciding(target, new, files)
    if isinstance(outcome, Taken):
        raise _exists(target)
    return CommittedVersion(outcome.file, file.manifest, transaction, attempts=1, failure=outcome.failure)


def _find_created(
    target: CommitTarget, transaction: Transaction, first: VersionFile, version: int, files: CommitFiles
) -> Plan[CommittedVersion]:
    """The first version, if an earlier call with the same transaction created it. Raises `AlreadyExists` if not."""
    data = yield from read_named(target.location.store, first.key)
    manifest = decode_manifest(data)
    if first.version != version or manifest.transaction_file != transaction.file_name:
        raise _exists(target)
    files.outcome = "committed"
    return CommittedVersion(first, manifest, transaction, attempts=0)


def _exists(target: CommitTarget) -> AlreadyExists:
    return AlreadyExists(f"Dataset already exists: {target.location.uri}", path=target.location.uri)
