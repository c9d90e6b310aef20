"""Group commit: appends of one process that wait for the same table become one version.

    caller    pulls and checks its rows in its thread or loop  ->  joins the queue of the table, waits
    group     takes all waiting appends: rows of one schema share a data file, all files share one Append, one commit
    caller    gets the version that holds its rows, or its error

One group of a queue runs at a time; appends that arrive meanwhile form the next group. So no append waits for a timer,
and slower stores get larger groups. A group runs independently of its callers (`begin_plan`):

    an append is cancelled before its group starts     it leaves the queue and writes nothing
    an append is cancelled while its group runs        the caller returns when the group has ended
    all appends of a running group are cancelled       the group is cancelled

Errors are isolated:

    rows that do not fit the table      only their append fails, before anything is written
    rows that cannot be encoded         the group is bisected; only the failing append fails
    a conflict, with different base versions    the appends of each base version are committed separately
    an error of the store               all appends of the group fail

Appends share a queue if they agree in everything of `_key`: table, credentials, commit handler, durability and
transaction properties. `docs/commits.md` documents the guarantees.

    group_append   one append: from the caller's rows to the version that holds them
    append_queues  queues of waiting appends; starts groups
    group_commit   one group: one version, or several if the base versions are incompatible
    group_version  files and commit of one version
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lance_io.changes.write.append_queues import GROUPS
from lance_io.changes.write.data_files import NextBatch
from lance_io.changes.write.input_data import Rows
from lance_io.limits import MIB
from lance_io.plans.plan import RollBackOnError

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_io.changes.write.group_version import GroupAppend
    from lance_io.changes.write.input_data import AsyncRows
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState

APPEND_BYTES_MAX: Final = 8 * MIB  # of rows that may share a file; more rows fill pages by themselves


def append_in_group(append: GroupAppend) -> Plan[DatasetState]:
    """Append rows in a group commit; returns the version that holds them. Raises as `write_rows` does."""
    append.target.handler.check(append.target.location)

    def leave(_: BaseException) -> Plan[None]:
        yield from GROUPS.leave(append)

    state: DatasetState = yield RollBackOnError(GROUPS.wait(append), leave)
    return state


class PulledRows:
    """Batches pulled from the caller's data.

    batches    batches pulled so far
    num_bytes  their approximate size
    is_complete     whether the data ended; otherwise it is too large to wait in memory and joins no group
    """

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.num_bytes = 0
        self.is_complete = False
        self._reserved_bytes = 0

    def pull(self, rows: Rows | AsyncRows) -> Plan[None]:
        """Pull batches until the data ends or reaches `APPEND_BYTES_MAX`."""
        is_held = isinstance(rows, Rows) and rows.is_held
        while (batch := (yield NextBatch(rows))) is not None:
            num_bytes = batch.get_total_buffer_size()
            if num_bytes > APPEND_BYTES_MAX:  # it may be a slice of a larger buffer
                num_bytes = batch.nbytes
            self.batches.append(batch)
            self.num_bytes += num_bytes
            if self.num_bytes > APPEND_BYTES_MAX or not (is_held or self._reserve(num_bytes)):
                return
        self.is_complete = True

    def _reserve(self, num_bytes: int) -> bool:
        is_room = GROUPS.reserve(num_bytes)
        self._reserved_bytes += num_bytes * is_room
        return is_room

    def release(self) -> None:
        """Release the reserved memory."""
        num_bytes, self._reserved_bytes = self._reserved_bytes, 0
        GROUPS.release(num_bytes)
