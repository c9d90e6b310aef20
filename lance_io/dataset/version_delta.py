"""What changed between two versions: `DatasetDelta`, with pylance's names, and `AsyncDatasetDelta`.

    inserted   rows that were created in between
    updated    rows that were there before, and changed in between
    deleted    stable ids of rows that were there before, and are not any more

Rows are those of the version that is open, whatever the later of the two is, and with its values. Only tables with
stable row ids know when rows were created and changed; of others nothing was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io.changes.operations.convert import to_public
from lance_io.commit.record import transaction_of
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
    """The versions that are compared: the first excluded, the last included.

    Raises `UsageError` unless one of the two ways to name them is taken.
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
    """What both faces have in common."""

    _state: DatasetState

    def __init__(self, state: DatasetState, begin: int, end: int) -> None:
        super().__init__(state)  # type: ignore[call-arg]
        self._begin, self._end = begin, end

    def _rows(self, condition: str) -> ScanOptions:
        """A scan of the rows that a condition holds for, with what is known of them."""
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
        found: list[Transaction] = []
        for start in range(self._begin + 1, self._end + 1, _READS_AT_ONCE):
            versions = range(start, min(start + _READS_AT_ONCE, self._end + 1))
            found += yield Together([self._transaction(version) for version in versions])
        return found

    def _transaction(self, version: int) -> Plan[Transaction]:
        location = self._state.location
        try:
            stored = yield from transaction_of(location, self._state.session.handler(location), version)
        except NotFound as error:
            text = f"Version not found error: Can not find version {version}, which a cleanup may have removed"
            raise NotFound(text, path=location.uri) from error
        if stored is None:
            raise NotFound(f"no record is left of what made version {version}", path=location.uri)
        return to_public(stored)

    def _deleted(self) -> Plan[U64Array]:
        """Ids of the rows that are not there any more, ascending."""
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
    """Ids of the fragments that have the same rows in both versions; an id is given to one fragment only."""

    def content(state: DatasetState, place: int) -> Any:
        message = state.manifest.stored.fragments[place]
        return message.deletion_file.SerializeToString(), message.inline_row_ids

    return {
        fragment_id
        for fragment_id, place in before.place_by_id.items()
        if (other := after.place_by_id.get(fragment_id)) is not None and content(before, place) == content(after, other)
    }


def _live_ids(state: DatasetState, left_out: set[int]) -> Plan[U64Array]:
    """Ids of the rows that are left, but for those of some fragments."""
    places = [place for fragment_id, place in state.place_by_id.items() if fragment_id not in left_out]
    found = yield from load_row_columns(state, places, [ROW_ID])
    parts = [np.zeros(0, dtype=np.uint64)]
    for place in places:
        ids = found.lineages[place].row_ids.astype(np.uint64, copy=False)
        deleted = found.live[place].deleted
        parts.append(ids if deleted is None else np.delete(ids, deleted))
    return np.concatenate(parts)


@shared
def _batches(ids: U64Array) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(ids), _BATCH_ROWS):
        yield pa.record_batch([pa.array(ids[start : start + _BATCH_ROWS])], schema=_IDS)


class DatasetDelta(_Delta, SyncFace):
    """What changed between two versions. Made by `LanceDataset.delta`."""

    def list_transactions(self) -> list[Transaction]:
        """What made the versions after the first up to the last, oldest first.

        Raises `ValueError` where one is gone.
        """
        return self._run(self._transactions())

    def get_inserted_rows(self) -> pa.RecordBatchReader:
        """The rows that were created in between, with `_rowid` and the versions that created and last changed them."""
        return SyncScanner._of(self._state, self._inserted).to_reader()

    def get_updated_rows(self) -> pa.RecordBatchReader:
        """The rows that were there before and changed in between, with the same columns."""
        return SyncScanner._of(self._state, self._updated).to_reader()

    def get_deleted_row_ids(self) -> pa.RecordBatchReader:
        """`_rowid` of the rows that went in between, ascending; needs both versions.

        Raises `ValueError` for tables without stable row ids, and for a version that is not there.
        """
        return pa.RecordBatchReader.from_batches(_IDS, _batches(self._run(self._deleted())))


class AsyncDatasetDelta(_Delta, AsyncFace):
    """The same, awaitable. Made by `AsyncDataset.delta`."""

    async def list_transactions(self) -> list[Transaction]:
        """See `DatasetDelta.list_transactions`."""
        return await self._run(self._transactions())

    def get_inserted_rows(self) -> AsyncIterator[pa.RecordBatch]:
        """See `DatasetDelta.get_inserted_rows`; batches, for `async for`."""
        return AsyncScanner(self._state, self._inserted).to_batches()

    def get_updated_rows(self) -> AsyncIterator[pa.RecordBatch]:
        """See `DatasetDelta.get_updated_rows`; batches, for `async for`."""
        return AsyncScanner(self._state, self._updated).to_batches()

    @shared_async
    async def get_deleted_row_ids(self) -> AsyncIterator[pa.RecordBatch]:
        """See `DatasetDelta.get_deleted_row_ids`; batches, for `async for`."""
        for batch in _batches(await self._run(self._deleted())):
            yield batch
