"""Differences between two versions: `DatasetDelta`, with pylance's names, and `AsyncDatasetDelta`.

    inserted   rows created in between
    updated    rows of before that changed in between
    deleted    stable ids of rows of before that no longer exist

Rows and values are those of the open version, even if the later of the two versions is another one. Only tables with
stable row ids record when rows were created and changed; for other tables the result is empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io.changes.operations.convert import to_public
from lance_io.commit.manifest_reads import transaction_of
from lance_io.dataset.scanner import AsyncScanner, SyncScanner
from lance_io.errors import NotFound, UsageError
from lance_io.plans.plan import Together
from lance_io.plans.streams import shared, shared_async
from lance_io.reads.open_version import check_number, check_out
from lance_io.reads.rows.deletions_and_ids import load_row_columns
from lance_io.reads.run_plan import AsyncFace, SyncFace
from lance_io.reads.scan.scan_options import scan_options
from lance_io.reads.version.system_columns import CREATED_AT, ROW_ID, UPDATED_AT
from lance_io.redaction import hide_secrets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from lance_io.changes.operations.lance_operation import Transaction
    from lance_io.plans.plan import Plan
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.row_ids import U64Array

_IDS: Final = pa.schema([(ROW_ID, pa.uint64())])
_BATCH_ROWS: Final = 1 << 16
_READS_AT_ONCE: Final = 64


def version_range(
    state: DatasetState, compared_against: int | None, begin_version: int | None, end_version: int | None
) -> tuple[int, int]:
    """The versions to compare: the first excluded, the last included. Raises `UsageError` for a wrong choice of
    arguments.
    """
    if compared_against is not None:
        first, last = sorted((check_number(compared_against), state.manifest.version))
        return first, last
    if begin_version is None and end_version is None:
        raise UsageError("Must specify either compared_against or both begin_version and end_version")
    if begin_version is None or end_version is None:
        raise UsageError("Must specify both begin_version and end_version")
    return check_number(begin_version), check_number(end_version)


class _Delta:
    """Plans of a comparison, for both faces."""

    _state: DatasetState

    def __init__(self, state: DatasetState, begin: int, end: int) -> None:
        super().__init__(state)  # type: ignore[call-arg]
        self._begin, self._end = begin, end

    def _rows(self, condition: str) -> ScanOptions:
        """A scan of the rows that a condition holds for, with their system columns."""
        columns = [*self._state.arrow_schema.names, ROW_ID, CREATED_AT, UPDATED_AT]
        return scan_options(columns=columns, filter=condition if self._state.has_stable_row_ids else "false")

    @property
    def _inserted(self) -> ScanOptions:
        return self._rows(f"{CREATED_AT} > {self._begin} AND {CREATED_AT} <= {self._end}")

    @property
    def _updated(self) -> ScanOptions:
        changed = f"{UPDATED_AT} > {self._begin} AND {UPDATED_AT} <= {self._end}"
        return self._rows(f"{CREATED_AT} <= {self._begin} AND {changed}")

    def _transactions(self) -> Plan[list[Transaction]]:
        transactions: list[Transaction] = []
        for start in range(self._begin + 1, self._end + 1, _READS_AT_ONCE):
            versions = range(start, min(start + _READS_AT_ONCE, self._end + 1))
            transactions += yield Together([self._transaction(version) for version in versions])
        return transactions

    def _transaction(self, version: int) -> Plan[Transaction]:
        location = self._state.location
        try:
            stored = yield from transaction_of(location, self._state.session.handler(location), version)
        except NotFound as error:
            text = f"Version not found error: Can not find version {version}, which a cleanup may have removed"
            raise NotFound(text, path=location.uri) from error
        if stored is None:
            raise NotFound(f"the table no longer has the transaction of version {version}", path=location.uri)
        return to_public(stored)

    def _deleted(self) -> Plan[U64Array]:
        """Ids of the rows that no longer exist, ascending."""
        if self._begin > self._end:
            raise UsageError(f"begin version {self._begin} is newer than end version {self._end}")
        if self._begin == self._end or not self._begin:
            return np.zeros(0, dtype=np.uint64)
        before = yield from check_out(self._state, self._begin)
        after = yield from check_out(self._state, self._end)
        for state in (before, after):
            if not state.has_stable_row_ids:
                raise UsageError(
                    f"deleted row ids require stable row ids, version {state.manifest.version} does not use them"
                )
        same = _common_fragments(before, after)
        ids = yield from _live_ids(before, same)
        return np.setdiff1d(ids, (yield from _live_ids(after, same)))

    def __repr__(self) -> str:
        where = hide_secrets(self._state.location.uri)
        return f"<{type(self).__name__} of {where}, versions {self._begin} to {self._end}>"


def _common_fragments(before: DatasetState, after: DatasetState) -> set[int]:
    """Ids of the fragments with the same rows in both versions; an id belongs to one fragment only."""

    def content(state: DatasetState, fragment_index: int) -> Any:
        message = state.manifest.stored.fragments[fragment_index]
        return message.deletion_file.SerializeToString(), message.inline_row_ids

    return {
        fragment_id
        for fragment_id, fragment_index in before.fragment_index_by_id.items()
        if (other := after.fragment_index_by_id.get(fragment_id)) is not None
        and content(before, fragment_index) == content(after, other)
    }


def _live_ids(state: DatasetState, left_out: set[int]) -> Plan[U64Array]:
    """Ids of the rows that are not deleted, without those of the fragments `left_out`."""
    fragment_indexes = [
        fragment_index
        for fragment_id, fragment_index in state.fragment_index_by_id.items()
        if fragment_id not in left_out
    ]
    columns = yield from load_row_columns(state, fragment_indexes, [ROW_ID])
    parts = [np.zeros(0, dtype=np.uint64)]
    for fragment_index in fragment_indexes:
        ids = columns.lineages[fragment_index].row_ids.astype(np.uint64, copy=False)
        deleted = columns.live[fragment_index].deleted
        parts.append(ids if deleted is None else np.delete(ids, deleted))
    return np.concatenate(parts)


@shared
def _batches(ids: U64Array) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(ids), _BATCH_ROWS):
        yield pa.record_batch([pa.array(ids[start : start + _BATCH_ROWS])], schema=_IDS)


class DatasetDelta(_Delta, SyncFace):
    """Differences between two versions. `LanceDataset.delta` creates it.

    Args:
        state: State of the dataset.
        begin: First version, excluded.
        end: Last version, included.
    """

    def list_transactions(self) -> list[Transaction]:
        """List the transactions of the versions after the first up to the last, oldest first.

        Raises:
            ValueError: A version, or the record of its transaction, no longer exists.
        """
        return self._run(self._transactions())

    def get_inserted_rows(self) -> pa.RecordBatchReader:
        """Read the rows created in between, with `_rowid` and the versions that created and last changed them."""
        return SyncScanner._of(self._state, self._inserted).to_reader()

    def get_updated_rows(self) -> pa.RecordBatchReader:
        """Read the rows of before that changed in between, with the columns of `get_inserted_rows`."""
        return SyncScanner._of(self._state, self._updated).to_reader()

    def get_deleted_row_ids(self) -> pa.RecordBatchReader:
        """Read `_rowid` of the rows deleted in between, ascending. Both versions must exist.

        Raises:
            ValueError: The table has no stable row ids, a version does not exist, or the first version is newer than
                the last.
        """
        return pa.RecordBatchReader.from_batches(_IDS, _batches(self._run(self._deleted())))


class AsyncDatasetDelta(_Delta, AsyncFace):
    """Differences between two versions, awaitable. `AsyncDataset.delta` creates it.

    Args:
        state: State of the dataset.
        begin: First version, excluded.
        end: Last version, included.
    """

    async def list_transactions(self) -> list[Transaction]:
        """List the transactions. See `DatasetDelta.list_transactions`."""
        return await self._run(self._transactions())

    def get_inserted_rows(self) -> AsyncIterator[pa.RecordBatch]:
        """Read the rows created in between, batch by batch. See `DatasetDelta.get_inserted_rows`."""
        return AsyncScanner(self._state, self._inserted).to_batches()

    def get_updated_rows(self) -> AsyncIterator[pa.RecordBatch]:
        """Read the rows changed in between, batch by batch. See `DatasetDelta.get_updated_rows`."""
        return AsyncScanner(self._state, self._updated).to_batches()

    @shared_async
    async def get_deleted_row_ids(self) -> AsyncIterator[pa.RecordBatch]:
        """Read the ids of the deleted rows, batch by batch. See `DatasetDelta.get_deleted_row_ids`."""
        for batch in _batches(await self._run(self._deleted())):
            yield batch
