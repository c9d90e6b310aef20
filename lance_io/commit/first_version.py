"""Creating a table, a clone or a branch: its first version.

    round 1   LIST   ||  the transaction file  ||  whatever the caller still uploads
    last      create the manifest, if there is no version yet

What follows is committed by the commit loop (`loop.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.commit.commit_counts import COMMITS
from lance_io.commit.commit_files import CommitFiles
from lance_io.commit.commit_request import CommitRequest, count_version, encode_next
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
    """Commit the first version of a table, or of a clone or branch, which has the number of what it is cloned from.

    Two rounds. Raises `AlreadyExists` when there is a table, `CommitUnknownError` when there is no telling; the same
    request made again is recognised.
    """
    target.handler.check(target.place)
    files = request.files or CommitFiles()
    kept = {target.place.key(request.transaction.path)} if request.is_repeated else ()
    try:
        committed: CommittedVersion = yield RollBackOnError(
            _create(target, request, files), lambda _: files.roll_back(target.place.store, kept)
        )
    except CommitUnknownError as error:
        COMMITS.add(request.transaction.name, unknown=1)
        error.transaction = request.transaction
        raise
    if committed.attempts:
        count_version(target, request, committed)
    if committed.failure is not None:
        raise committed.failure
    return committed


def _create(target: CommitTarget, request: CommitRequest, files: CommitFiles) -> Plan[CommittedVersion]:
    place, transaction = target.place, request.transaction
    version = 1 if request.base is None else request.base.version
    file = encode_next(target, request.base, request, transaction, version=version)
    small = {place.key(transaction.path): file.transaction, **files.contents}
    plans = [
        *request.alongside,
        *files.puts(place.store, small, target.durability),
        target.handler.prepare(place),
    ]
    if request.listing is None:
        *_, versions = yield Together([*plans, target.handler.list_after(place, 0)])
    else:
        yield Together(plans)
        versions = request.listing.versions
    if versions:
        return (yield from _find_created(target, transaction, versions[0], version, files))
    files.check_named(place, lambda: named_files(transaction))
    new = NewVersion(version, target.scheme, file.data, transaction.uuid, target.durability)
    outcome = yield from write_deciding(target, new, files)
    if isinstance(outcome, Taken):
        raise _exists(target)
    return CommittedVersion(outcome.file, file.manifest, transaction, attempts=1, failure=outcome.failure)


def _find_created(
    target: CommitTarget, transaction: Transaction, first: VersionFile, version: int, files: CommitFiles
) -> Plan[CommittedVersion]:
    """The first version, if an earlier call with the same transaction made it. Raises `AlreadyExists` if not."""
    data = yield from read_named(target.place.store, first.key)
    manifest = decode_manifest(data)
    if first.version != version or manifest.transaction_file != transaction.file_name:
        raise _exists(target)
    files.outcome = "committed"
    return CommittedVersion(first, manifest, transaction, attempts=0)


def _exists(target: CommitTarget) -> AlreadyExists:
    return AlreadyExists(f"Dataset already exists: {target.place.uri}", path=target.place.uri)
