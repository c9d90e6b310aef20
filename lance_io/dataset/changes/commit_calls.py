"""Commits of operations that somebody prepared: their keywords, checked, and the version that they make."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from lance_io.dataset.changes.change_methods import COMMIT_TIMEOUT
from lance_io.dataset.changes.commit_operation import commit_operation
from lance_io.dataset.changes.lance_operation import LanceOperation, Transaction, as_transaction
from lance_io.dataset.run_plan import run_change, run_sync
from lance_io.dataset.write.write_arguments import check_known, check_not_here, write_target
from lance_io.errors import OperationError
from lance_io.store.url import load_client
from lance_io.table.transaction.transaction import Transaction as StoredTransaction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.dataset.version.state import DatasetState
    from lance_io.plans.plan import Plan

MAX_RETRIES: Final = 20

# those of `LanceDataset.commit`, and `session`
KEYWORDS: Final = frozenset(
    (
        *("base_uri", "operation", "read_version", "commit_lock", "storage_options", "enable_v2_manifest_paths"),
        *("detached", "max_retries", "commit_message", "enable_stable_row_ids", "namespace_client", "table_id"),
        *("namespace_client_managed_versioning", "base_store_params", "commit_timeout", "session"),
    )
)


def commit(given: Mapping[str, Any]) -> DatasetState:
    """Commit an operation and wait for the version that it makes; keywords as for `LanceDataset.commit`.

    session  shares caches with other tables
    """
    plan, answers_sync = _commit(given)
    return run_sync(plan, answers_sync=answers_sync)


async def commit_async(given: Mapping[str, Any]) -> DatasetState:
    """`commit` on any loop."""
    await load_client(given["base_uri"])
    plan, answers_sync = _commit(given)
    return await run_change(plan, answers_sync=answers_sync)


def _commit(given: Mapping[str, Any]) -> tuple[Plan[DatasetState], bool]:
    """The plan, and whether it can run in the caller's thread."""
    check_known(given, KEYWORDS, "commit")
    check_not_here(given)
    transaction = given["operation"]
    is_repeated = not isinstance(transaction, LanceOperation.BaseOperation)
    if not isinstance(transaction, StoredTransaction):
        transaction = as_transaction(transaction, given.get("read_version"), given.get("commit_message"))
    target = write_target(
        given["base_uri"], given.get("storage_options"), given.get("session"), given.get("commit_lock")
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
    )
    return plan, target.answers_sync


def batch_commit(given: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of the commit that stands for those of several transactions; see `LanceDataset.commit_batch`."""
    others = {name: value for name, value in given.items() if name not in ("dest", "transactions")}
    return {"base_uri": given["dest"], "operation": _merge_appends([*given["transactions"]]), **others}


def _merge_appends(transactions: list[Transaction]) -> Transaction:
    """One append of the fragments of several. Raises `OperationError` for anything but appends."""
    if not transactions:
        raise OperationError("expected at least one transaction")
    if not all(isinstance(one.operation, LanceOperation.Append) for one in transactions):
        raise OperationError("only Append transactions can be committed as a batch")
    fragments = [
        fragment for one in transactions for fragment in cast("LanceOperation.Append", one.operation).fragments
    ]
    properties: dict[str, str] = {}
    for one in transactions:
        properties |= one.transaction_properties or {}
    oldest = min(one.read_version for one in transactions)
    return replace(
        transactions[0],
        read_version=oldest,
        operation=LanceOperation.Append(fragments),
        transaction_properties=properties,
    )
