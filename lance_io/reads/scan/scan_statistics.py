"""Costs of reading: of one scan, reported at its end, and of a dataset since it was opened."""

from __future__ import annotations

import contextvars
import threading
import time
from contextlib import contextmanager, nullcontext
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lance_io.io import call_metrics, trace_events
from lance_io.io.stats import IoStats, io_stats
from lance_io.lazy_names import lazy_module
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from lance_io.reads.index import index_counts
    from lance_io.reads.scan.pipeline import ScanPlan
    from lance_io.store.api import ObjectStore
    from lance_io.store.counters import StatsSnapshot
else:
    index_counts = lazy_module("lance_io.reads.index.index_counts")  # for scans that are watched

T = TypeVar("T")
_END: Final = object()
LATE_COUNTS: Final = ("rows_first_stage", "late_rows_taken", "late_rows_read", "late_bytes_kept")


@dataclass(frozen=True)
class ScanStatistics:
    """Counts of one scan, excluding concurrent reads of the same store.

    Attributes:
        iops: Reads that went to the store.
        requests: The same as `iops`.
        bytes_read: Payload bytes of these reads.
        retries: Reads that were retried.
        indices_loaded: Segments of scalar indices that were opened, and not found in memory.
        parts_loaded: Parts of them that were read: pages of a BTREE, bitmaps of a value, lists of a trigram.
        index_comparisons: Values of these pages, and bitmaps, lists and zones, that were examined.
        index_cache_hits: Such parts that were found in memory.
        index_cache_misses: The same as `parts_loaded`.
        all_counts: "fragments_scanned", "ranges_scanned" (row ranges of fragments) and "rows_scanned" (live rows before
            the filter). With statistics of batches also "batches_examined" and "batches_skipped". With columns that
            are read after others also "rows_first_stage" (rows that pass the first stage of the filter),
            "late_rows_taken" and "late_rows_read" (rows whose late columns are looked up one by one, and rows of runs
            that are read whole), "late_bytes_kept" (bytes of late columns that came with the ends of files, when these
            were opened).
        all_times: "elapsed": nanoseconds from the request for the first row to the delivery of the last one.
    """

    iops: int
    requests: int
    bytes_read: int
    retries: int = 0
    indices_loaded: int = 0
    parts_loaded: int = 0
    index_comparisons: int = 0
    index_cache_hits: int = 0
    index_cache_misses: int = 0
    all_counts: dict[str, int] = field(default_factory=dict)
    all_times: dict[str, int] = field(default_factory=dict)


class ScanWatch:
    """Counts one scan while it runs."""

    def __init__(self) -> None:
        self._seen = IoStats()
        self._of_indices = index_counts.IndexCounts()
        self._started_ns = time.perf_counter_ns()
        self._counts = {"fragments_scanned": 0, "ranges_scanned": 0, "rows_scanned": 0}
        self._num_rows: int | None = None

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the reads made inside the block."""
        with io_stats() as self._seen, index_counts.counting_indices(self._of_indices):
            yield

    def record_plan(self, plan: ScanPlan) -> None:
        """Record the plan of the scan."""
        self._counts["fragments_scanned"] += len({span.fragment_index for span in plan.spans})
        self._counts["ranges_scanned"] += len(plan.spans)
        if plan.late or plan.second is not None:
            self._counts |= dict.fromkeys(LATE_COUNTS, 0)
        if plan.num_batches:
            self._counts["batches_examined"] = plan.num_batches
            self._counts["batches_skipped"] = plan.num_batches_skipped

    def record_rows(self, num_rows: int) -> None:
        """Record live rows that were read."""
        self._counts["rows_scanned"] += num_rows

    def record_first_stage(self, num_rows: int) -> None:
        """Record rows that passed the first stage of the filter, or its only one."""
        if "rows_first_stage" in self._counts:
            self._counts["rows_first_stage"] += num_rows

    def record_late(self, *, taken: int = 0, read: int = 0, kept_bytes: int = 0) -> None:
        """Record rows whose late columns are read, and bytes of these that were there before."""
        self._counts["late_rows_taken"] += taken
        self._counts["late_rows_read"] += read
        self._counts["late_bytes_kept"] += kept_bytes

    def record_output(self, num_rows: int) -> None:
        """Record that the whole result, with this number of rows, was delivered."""
        self._num_rows = num_rows

    def report(self, *, failed: bool) -> None:
        """Report the scan to metrics watchers, and a completed scan to trace listeners."""
        if trace_events.listeners and self._num_rows is not None:
            counts = self._seen.snapshot()
            numbers = {"iops": counts.num_reads, "requests": counts.num_reads, "bytes_read": counts.bytes_read}
            done = {"type": "plan_run", "plan_summary": "LanceRead", "output_rows": self._num_rows}
            trace_events.emit(trace_events.EXECUTION, {**done, **numbers, **self._index_numbers()})
        call_metrics.report("scan", (time.perf_counter_ns() - self._started_ns) / 1e9, self._seen, failed=failed)

    def _index_numbers(self) -> dict[str, int]:
        counts = self._of_indices
        return {
            "indices_loaded": counts.indices_loaded,
            "parts_loaded": counts.index_cache_misses,
            "index_comparisons": counts.index_comparisons,
            "index_cache_hits": counts.index_cache_hits,
            "index_cache_misses": counts.index_cache_misses,
        }

    @property
    def spent(self) -> tuple[int, int, int]:
        """Reads that went to the store, their bytes, and reads that a disk cache answered, so far."""
        return self._seen.num_reads, self._seen.bytes_read, self._seen.num_cached

    def statistics(self) -> ScanStatistics:
        """The counts so far."""
        elapsed_ns = time.perf_counter_ns() - self._started_ns
        seen = self._seen.snapshot()
        return ScanStatistics(
            seen.num_reads,
            seen.num_reads,
            seen.bytes_read,
            seen.retries,
            **self._index_numbers(),
            all_counts=dict(self._counts),
            all_times={"elapsed": elapsed_ns},
        )


def is_watched(callback: Callable[[ScanStatistics], Any] | None) -> bool:
    """Whether a callback, metrics watcher or trace listener wants the cost of a scan."""
    return callback is not None or bool(call_metrics.watchers) or bool(trace_events.listeners)


@contextmanager
def watch_scan(callback: Callable[[ScanStatistics], Any] | None) -> Iterator[ScanWatch | None]:
    """Report the cost of the scan inside the block to `callback`, metrics watchers and trace listeners, also if it ends
    early.

    Yields None if there is no listener.
    """
    if not is_watched(callback):
        yield None
        return
    watch, failed = ScanWatch(), False
    try:
        yield watch
    except Exception:
        failed = True
        raise
    finally:
        watch.report(failed=failed)
        if callback is not None:
            callback(watch.statistics())


def counting(watch: ScanWatch | None) -> AbstractContextManager[None]:
    """Count the reads made inside the block, if there is a watch. Use it in the thread or task that reads."""
    return nullcontext() if watch is None else watch.counting()


def count_items(watch: ScanWatch, items: Generator[T, None, None]) -> Generator[T, None, None]:
    """The items, counting the reads made while producing them, and not the consumer's reads in between."""
    context = contextvars.copy_context()  # generators have no context of their own
    block = watch.counting()
    context.run(block.__enter__)
    try:
        while (item := context.run(next, items, _END)) is not _END:
            yield item  # type: ignore[misc]
    finally:
        context.run(items.close)
        context.run(block.__exit__, None, None, None)


def counted(watch: ScanWatch, batches: Any) -> Iterator[pa.RecordBatch]:
    """The batches of a scan; records their number of rows at the end."""
    num_rows = 0
    try:
        for batch in batches:
            num_rows += batch.num_rows
            yield batch
        watch.record_output(num_rows)
    finally:
        batches.close()


# -- of a dataset ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IOStats:
    """Requests and bytes of a dataset's store since the dataset was opened, or since the last `io_stats_incremental`.

    Attributes:
        read_iops: Read requests.
        read_bytes: Bytes read.
        write_iops: Write requests.
        write_bytes: Bytes written.
    """

    read_iops: int
    read_bytes: int
    write_iops: int
    write_bytes: int


class IoMeter:
    """Counts a store from one moment on. Datasets that share a store (by a session) are counted together.

    store   the dataset's store
    before  the counters before it was opened; None for the current ones
    """

    def __init__(self, store: ObjectStore, before: StatsSnapshot | None = None) -> None:
        self._store = store
        self._before = store.stats.snapshot() if before is None else before
        self._lock = threading.Lock()

    def snapshot(self) -> IOStats:
        """Requests and bytes since the start, or since the last `incremental`."""
        return _pylance_counts(self._store.stats.snapshot() - self._before)

    def incremental(self) -> IOStats:
        """Requests and bytes since the last call; restarts the count."""
        with self._lock:  # each concurrent caller gets a disjoint count
            now = self._store.stats.snapshot()
            spent, self._before = now - self._before, now
        return _pylance_counts(spent)


def _pylance_counts(spent: StatsSnapshot) -> IOStats:
    reads = sum(spent[name].requests for name in ("get", "head", "list"))
    return IOStats(reads, spent.bytes_read, spent.requests - reads, spent.bytes_written)
