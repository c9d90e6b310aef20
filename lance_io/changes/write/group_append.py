"""Group commit: appends of one process to one table that wait together become one version.

    caller    its rows, pulled and checked where it is  ->  joins the queue of the table, waits
    group     takes all that wait: rows of one schema into one data file, all files into one Append, one commit
    caller    the version that holds its rows, or what became of them

One group of a queue is under way at a time; whoever comes meanwhile is in the next one. So nothing waits for a clock,
and the slower the store, the larger the groups. A group is driven beside its callers (`begin_plan`), none of which it
belongs to: who is cancelled leaves it. Before the group has begun that is all. Afterwards the rows of others are with
its own; then it comes back when the group has ended, and only a group that all have left is cancelled.

What fails for one does not fail for others:

    rows that do not fit the table      their caller is told, before anything is written
    rows that cannot be encoded         halves are tried until it is known whose they are
    a conflict, callers having opened different versions    the callers of each version are committed by themselves
    what the store says                 it says to all

A queue is that of a table, as a caller reaches it (`_key`): what a transaction says, credentials, what makes versions
visible. `docs/writing.md` has what is promised.

    group_append   from rows that a caller gives to the version that holds them
    append_queues  who waits for which table, and when a group begins
    group_commit   one group: a version of its rows, or several where they do not go together
    group_version  what is written for one version
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

APPEND_BYTES_MAX: Final = 8 * MIB  # of rows that may share a file; more fill pages, and gain nothing by sharing one


def append_in_group(append: GroupAppend) -> Plan[DatasetState]:
    """Append rows together with whatever else waits; gives the version that holds them.

    Errors are those of `write_rows`.
    """
    append.target.handler.check(append.target.location)

    def leave(_: BaseException) -> Plan[None]:
        yield from GROUPS.leave(append)

    state: DatasetState = yield RollBackOnError(GROUPS.wait(append), leave)
    return state


class PulledRows:
    """Rows that were pulled out of what a caller has given.

    batches    so far
    num_bytes  of them, about
    is_all     whether that is all of them; otherwise they are too many to wait in memory, and not for a group
    """

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.num_bytes = 0
        self.is_all = False
        self._reserved_bytes = 0

    def pull(self, rows: Rows | AsyncRows) -> Plan[None]:
        """Pull batches, until these are all or too many."""
        is_held = isinstance(rows, Rows) and rows.is_held
        while (batch := (yield NextBatch(rows))) is not None:
            num_bytes = batch.get_total_buffer_size()
            if num_bytes > APPEND_BYTES_MAX:  # or a slice of something large
                num_bytes = batch.nbytes
            self.batches.append(batch)
            self.num_bytes += num_bytes
            if self.num_bytes > APPEND_BYTES_MAX or not (is_held or self._reserve(num_bytes)):
                return
        self.is_all = True

    def _reserve(self, num_bytes: int) -> bool:
        is_room = GROUPS.reserve(num_bytes)
        self._reserved_bytes += num_bytes * is_room
        return is_room

    def release(self) -> None:
        """They no longer wait."""
        num_bytes, self._reserved_bytes = self._reserved_bytes, 0
        GROUPS.release(num_bytes)
