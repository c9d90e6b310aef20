"""Commits of prepared operations, the second half of a distributed write: keywords and plan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa

from lance_io.changes.edits.committed_files import check_columns_of_files
from lance_io.changes.operations.convert import to_stored
from lance_io.changes.operations.lance_operation import LanceOperation, Transaction, as_transaction
from lance_io.changes.upkeep.remove_versions import after_commit
from lance_io.changes.write.write_arguments import check_known, check_supported, write_target
from lance_io.commit.commit_loop import commit
from lance_io.commit.commit_request import CommitRequest
from lance_io.commit.first_version import create_table
from lance_io.commit.target import TIMEOUT_S, Listing
from lance_io.errors import NotFound, OperationError
from lance_io.limits import COMMIT_TIMEOUT
from lance_io.reads.run_plan import run_change, run_sync
from lance_io.reads.version.versions import manifest_of
from lance_io.store.provided_options import gather_provider
from lance_io.store.url import load_client, uri_on
from lance_io.table.manifest.paths import is_detached
from lance_io.table.transaction.apply import Creation
from lance_io.table.transaction.operations import Overwrite
from lance_io.table.transaction.transaction import Transaction as StoredTransaction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.changes.write.write_rows import WriteTarget
    from lance_io.commit.latest import VersionFile
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.manifest import Manifest
    from lance_io.table.manifest.paths import NamingScheme

MAX_RETRIES: Final = 20


# keywords of `LanceDataset.commit`, and `session`
KEYWORDS: Final = frozenset(
    (
        *("base_uri", "operation", "read_version", "commit_lock", "storage_options", "enable_v2_manifest_paths"),
        *("detached", "max_retries", "commit_message", "enable_stable_row_ids", "namespace_client", "table_id"),
        *("namespace_client_managed_versioning", "base_store_params", "commit_timeout", "session", "filesystem"),
        *("skip_auto_cleanup", "storage_options_provider"),
    )
)


def run_commit(given: Mapping[str, Any]) -> DatasetState:
    """Commit an operation and wait for the new version; keywords as for `LanceDataset.commit`.

    session  shares caches with other tables
    """
    plan, answers_sync = _commit(given)
    return run_sync(plan, answers_sync=answers_sync)


async def run_commit_async(given: Mapping[str, Any]) -> DatasetState:
    """`run_commit` on any loop."""
    given = gather_provider(given)
    await load_client(given["base_uri"], given.get("storage_options"))
    plan, answers_sync = _commit(given)
    return await run_change(plan, answers_sync=answers_sync)


def _commit(given: Mapping[str, Any]) -> tuple[Plan[DatasetState], bool]:
    """The plan of a commit, and whether it can run in the caller's thread."""
    check_known(given, KEYWORDS, "commit")
    check_supported(given)
    given = gather_provider(given)
    transaction = given["operation"]
    is_repeated = not isinstance(transaction, LanceOperation.BaseOperation)
    if not isinstance(transaction, StoredTransaction):
        transaction = as_transaction(transaction, given.get("read_version"), given.get("commit_message"))
    target = write_target(
        uri_on(given.get("filesystem"), given["base_uri"]),
        given.get("storage_options"),
        given.get("session"),
        given.get("commit_lock"),
        given.get("base_store_params"),
    )
    timeout = given.get("commit_timeout", COMMIT_TIMEOUT)
    plan = commit_operation(
        target,
        transaction,
        scheme="V1" if given.get("enable_v2_manifest_paths") is False else "V2",
        detached=bool(given.get("detached")),
        max_retries=given.get("max_retries", MAX_RETRIES),
        stable_row_ids=bool(given.get("enable_stable_row_ids")),
        timeout_seconds=None if timeout is None else timeout.total_seconds(),
        is_repeated=is_repeated,
        skip_auto_cleanup=bool(given.get("skip_auto_cleanup")),
    )
    return plan, target.answers_sync


def batch_commit(given: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of the one commit that replaces several transactions; see `LanceDataset.commit_batch`."""
    others = {name: value for name, value in given.items() if name not in ("dest", "transactions")}
    return {"base_uri": given["dest"], "operation": _merge_appends([*given["transactions"]]), **others}


def _merge_appends(transactions: list[Transaction]) -> Transaction:
    """Merge several appends into one. Raises `OperationError` for other operations."""
    if not transactions:
        raise OperationError("expected at least one transaction")
    if not all(isinstance(transaction.operation, LanceOperation.Append) for transaction in transactions):
        raise OperationError("only Append transactions can be committed as a batch")
    fragments = [
        fragment
        for transaction in transactions
        for fragment in cast("LanceOperation.Append", transaction.operation).fragments
    ]
    properties: dict[str, str] = {}
    for transaction in transactions:
        properties |= transaction.transaction_properties or {}
    oldest = min(transaction.read_version for transaction in transactions)
    return replace(
        transactions[0],
        read_version=oldest,
        operation=LanceOperation.Append(fragments),
        transaction_properties=properties,
    )


# -- the plan ----------------------------------------------------------------------------------------------------------


def commit_operation(
    target: WriteTarget,
    transaction: Transaction | StoredTransaction,
    *,
    scheme: NamingScheme,
    detached: bool,
    max_retries: int,
    stable_row_ids: bool,
    timeout_seconds: float | None,
    is_repeated: bool = True,
    skip_auto_cleanup: bool = False,
) -> Plan[DatasetState]:
    """Commit a transaction to the table; an overwrite creates a missing table.

    is_repeated        whether it may have been committed before: then it is not committed again
    skip_auto_cleanup  whether no cleanup follows

    Raises as `commit` and `create_table` do, and, as pylance, `OperationError` for a detached version of a table with
    V1 manifest names.
    """
    base, listing = target.manifest, None
    where = target.commit_target(scheme)
    if base is None:
        taken_at = where.clock.monotonic()
        try:
            newest, base = yield from target.handler.find_latest_and(target.location, target.manifest_in)
        except NotFound as error:
            return (yield from _create(target, transaction, stable_row_ids, scheme, error))
        if newest.version == transaction.read_version:
            listing = Listing([newest], newest.version, taken_at)
    elif detached:
        newest = yield from target.handler.find_latest(target.location)
    if detached:
        base = yield from _detached_base(target, transaction, newest, base)
    elif is_detached(base.version) and not transaction.read_version:
        raise OperationError(
            f"version {base.version} is detached: no version can follow it. Commit on a checked-out version of the "
            "table, pass read_version, or pass detached=True"
        )
    stored = to_stored(transaction, base)
    request = CommitRequest(
        stored,
        base=base,
        alongside=check_columns_of_files(target, stored.operation, base),
        listing=listing,
        creation=Creation(None, stable_row_ids),
        max_retries=max_retries,
        timeout_s=TIMEOUT_S if timeout_seconds is None else timeout_seconds,
        detached=detached,
        is_repeated=is_repeated,
    )
    state = target.state((yield from commit(where, request)))
    if not detached and not skip_auto_cleanup:
        yield from after_commit(state)
    return state


def _detached_base(
    target: WriteTarget, transaction: Transaction | StoredTransaction, newest: VersionFile, at_hand: Manifest
) -> Plan[Manifest]:
    """The base version of a detached commit, as in pylance.

    at_hand  the version that the caller has open, else the newest

    It is the version that the caller has open. For a URI it is the newest one, or the detached one that the
    transaction read. A schema without field ids refers to the version that its transaction read, which is then the
    base.
    """
    if newest.scheme == "V1":
        uri = target.location.uri
        raise OperationError(f"Not supported: detached commits cannot be used with v1 manifest paths, as in {uri}")
    version = transaction.read_version
    is_made_for = _has_plain_schema(transaction.operation) or (target.manifest is None and is_detached(version))
    if version and is_made_for and at_hand.version != version:
        return (yield from manifest_of(target.location, version, target.session))
    return at_hand


def _has_plain_schema(operation: object) -> bool:
    """Whether the schema of an operation is a pyarrow schema, without field ids."""
    schema = getattr(operation, "schema", None) or getattr(operation, "new_schema", None)
    return isinstance(schema, pa.Schema)


def _create(
    target: WriteTarget,
    transaction: Transaction | StoredTransaction,
    stable_row_ids: bool,
    scheme: NamingScheme,
    missing: NotFound,
) -> Plan[DatasetState]:
    stored = to_stored(transaction, None)
    if not isinstance(stored.operation, Overwrite):
        raise NotFound(
            f"Dataset at path {target.given_uri} was not found: "
            "The dataset must already exist unless the operation is Overwrite",
            path=target.location.uri,
        ) from missing
    alongside = check_columns_of_files(target, stored.operation, None)
    creation = Creation(None, stable_row_ids)
    request = CommitRequest(stored, alongside=alongside, creation=creation, is_repeated=True)
    return target.state((yield from create_table(target.commit_target(scheme), request)))
