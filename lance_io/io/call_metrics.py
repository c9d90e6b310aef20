"""What each call of a user took, told to whoever watches: how long, how many rounds, requests and bytes.

Nobody watches unless asked to: then a call looks at an empty tuple, and that is all.

    if call_metrics.watchers:
        return watch_call(plan, work)
    return work()
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from lance_io.io.stats import IoStats, io_stats
from lance_io.records import dataclass
from lance_io.redaction import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CallMetrics:
    """One call that is over.

    call          "open", "take", "scan", "write" ...: see `CALLS`
    seconds       from its begin to its end; of a scan, what its consumer does between batches is part of it
    failed        whether it raised something; a scan that was left early did not
    rounds        how often it waited for a store (`IoStats.rounds`)
    num_requests  requests sent to read, or joined
    bytes_wanted, bytes_read  what was needed, and what came for it
    retries       requests that were made again
    queue_s       seconds, summed up, that its requests waited before they were sent
    """

    call: str
    seconds: float
    failed: bool
    rounds: int
    num_requests: int
    bytes_wanted: int
    bytes_read: int
    retries: int
    queue_s: float


Watcher: TypeAlias = "Callable[[CallMetrics], object]"

CALLS: Final = {  # by the plan that does it
    "open_steps": "open",
    "check_out": "checkout",
    "latest_of": "latest_version",
    "take_positions": "take",
    "take_row_ids": "take",
    "take_blobs": "take_blobs",
    "read_blobs": "take_blobs",
    "read_blob_ranges": "take_blobs",
    "_count": "count",
    "warm": "warm",
    "delete_rows": "delete",
    "truncate": "delete",
    "restore": "restore",
    "write_rows": "write",
    "write_new_fragments": "write_fragments",
    "append_in_group": "group_append",
    "commit_operation": "commit",
    "commit_steps": "commit",
    "update_rows": "update",
    "add_columns": "add_columns",
    "alter_columns": "alter_columns",
    "drop_columns": "drop_columns",
    "update_config": "update_metadata",
    "delete_config_keys": "update_metadata",
    "update_metadata": "update_metadata",
    "update_schema_metadata": "update_metadata",
    "update_field_metadata": "update_metadata",
    "create_tag": "tag",
    "update_tag": "tag",
    "delete_tag": "tag",
    "clean_up": "cleanup",
    "_drop": "drop",
}
OTHER: Final = "other"

watchers: tuple[Watcher, ...] = ()
_lock = threading.Lock()


def on_call(watcher: Watcher) -> Callable[[], None]:
    """Have `watcher` called with the `CallMetrics` of every call from now on; gives what ends that.

    It is called in the thread, or on the loop, of the caller, which waits for it. What it raises is logged.
    """
    global watchers
    with _lock:
        watchers = (*watchers, watcher)

    def stop() -> None:
        global watchers
        with _lock:
            watchers = tuple(one for one in watchers if one is not watcher)

    return stop


@contextlib.contextmanager
def count_call(plan: object) -> Iterator[None]:
    """Tell the watchers of the call inside the block.

    plan  what it runs, or the function that makes it: its name says which call this is
    """
    started, failed = time.perf_counter(), True
    with io_stats() as seen:
        try:
            yield
            failed = False
        finally:
            tell(CALLS.get(getattr(plan, "__name__", ""), OTHER), time.perf_counter() - started, seen, failed=failed)


def watch_call(plan: object, work: Callable[[], T]) -> T:
    """Do something as one call; see `count_call`."""
    with count_call(plan):
        return work()


def tell(call: str, seconds: float, seen: IoStats, *, failed: bool) -> None:
    """Tell the watchers of a call that is over.

    seen  what it read
    """
    told = CallMetrics(
        call,
        seconds,
        failed,
        seen.rounds,
        seen.num_reads,
        seen.bytes_wanted,
        seen.bytes_read,
        seen.retries,
        seen.queue_s,
    )
    for watcher in watchers:
        try:
            watcher(told)
        except Exception:  # whatever it is, the call is no part of it
            _logger.exception("a watcher of calls failed")
