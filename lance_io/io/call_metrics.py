"""Metrics of each call of a user, passed to watchers: duration, rounds, requests and bytes.

Without watchers the overhead of a call is one look at an empty tuple.

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
    """Metrics of a finished call.

    Attributes:
        call: Kind of call: "open", "take", "scan", "write" ...; see `CALLS`.
        seconds: Duration; for a scan it includes the time that its consumer takes between batches.
        failed: Whether it raised an error; leaving a scan early is none.
        rounds: How often it waited for a store (`IoStats.rounds`).
        num_requests: Read requests, sent or joined.
        bytes_wanted: Bytes that it needed.
        bytes_read: Bytes that the store returned.
        retries: Requests that were retried.
        queue_s: Total seconds that its requests waited before they were sent.
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

CALLS: Final = {  # by the name of the plan
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
    """Register a watcher of calls.

    The watcher runs synchronously in the thread or on the loop of the caller. Its exceptions are logged.

    Args:
        watcher: Called with the `CallMetrics` of every finished call.

    Returns:
        A function that removes the watcher.
    """
    global watchers
    with _lock:
        watchers = (*watchers, watcher)

    def stop() -> None:
        global watchers
        with _lock:
            watchers = tuple(each for each in watchers if each is not watcher)

    return stop


@contextlib.contextmanager
def count_call(plan: object) -> Iterator[None]:
    """Report the call inside the block to the watchers.

    plan  its plan, or the function that returns the plan: its name selects the kind of call
    """
    started, failed = time.perf_counter(), True
    with io_stats() as seen:
        try:
            yield
            failed = False
        finally:
            report(CALLS.get(getattr(plan, "__name__", ""), OTHER), time.perf_counter() - started, seen, failed=failed)


def watch_call(plan: object, work: Callable[[], T]) -> T:
    """Run `work` as one call; see `count_call`."""
    with count_call(plan):
        return work()


def report(call: str, seconds: float, seen: IoStats, *, failed: bool) -> None:
    """Report a finished call to the watchers.

    seen  its reads
    """
    metrics = CallMetrics(
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
            watcher(metrics)
        except Exception:  # of any class: the call itself succeeded
            _logger.exception("a watcher of calls failed")
