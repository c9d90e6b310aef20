"""`commit` and `commit_batch`, in plain code and awaitable: operations that somebody prepared become versions."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, cast

from lance_io import runtime
from lance_io.dataset.async_dataset import AsyncDataset
from lance_io.dataset.changes.commit_operation import commit_operation
from lance_io.dataset.changes.lance_operation import LanceOperation, Transaction, as_transaction
from lance_io.dataset.changes.uncancelled import finished
from lance_io.dataset.lance_dataset import dataset_class
from lance_io.dataset.write.write_arguments import check_known, check_not_here, write_target
from lance_io.errors import OperationError
from lance_io.plans.plan import drive_async, drive_sync
from lance_io.store.url import load_client
from lance_io.table.transaction.transaction import Transaction as StoredTransaction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.dataset.lance_dataset import LanceDataset
    from lance_io.dataset.version.session import Session
    from lance_io.dataset.version.state import DatasetState
    from lance_io.dataset.write.write_arguments import Destination
    from lance_io.plans.plan import Plan

COMMIT_TIMEOUT: Final = timedelta(minutes=30)


def commit(
    base_uri: Destination,
    operation: LanceOperation.BaseOperation | Transaction,
    read_version: int | None = None,
    commit_lock: Any = None,
    storage_options: Mapping[str, str] | None = None,
    enable_v2_manifest_paths: bool | None = None,
    detached: bool | None = False,
    max_retries: int = 20,
    *,
    commit_message: str | None = None,
    enable_stable_row_ids: bool | None = None,
    namespace_client: Any = None,
    table_id: list[str] | None = None,
    namespace_client_managed_versioning: bool = False,
    base_store_params: Any = None,
    commit_timeout: timedelta | None = COMMIT_TIMEOUT,
    session: Session | None = None,
) -> LanceDataset:
    """See `LanceDataset.commit`."""
    plan, is_sync = _commit(locals())
    return dataset_class()._of(drive_sync(plan) if is_sync else runtime.run(drive_async(plan)))


async def commit_async(
    base_uri: Destination, operation: Any, read_version: int | None = None, **options: Any
) -> AsyncDataset:
    """See `AsyncDataset.commit`."""
    check_known(options, commit)
    await load_client(base_uri)
    plan, _ = _commit({"base_uri": base_uri, "operation": operation, "read_version": read_version, **options})
    return AsyncDataset._of(await finished(plan))


def _commit(given: dict[str, Any]) -> tuple[Plan[DatasetState], bool]:
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
        max_retries=given.get("max_retries", 20),
        stable_row_ids=bool(given.get("enable_stable_row_ids")),
        timeout_seconds=None if timeout is None else timeout.total_seconds(),
        is_repeated=is_repeated,
    )
    return plan, target.answers_sync


def commit_batch(
    dest: Destination, transactions: Any, commit_lock: Any = None, storage_options: Any = None, **options: Any
) -> dict[str, Any]:
    """See `LanceDataset.commit_batch`."""
    merged = merged_appends(list(transactions))
    committed = commit(dest, merged, commit_lock=commit_lock, storage_options=storage_options, **options)
    return {"dataset": committed, "merged": merged}


def merged_appends(transactions: list[Transaction]) -> Transaction:
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
