"""What a scan cost: counted by the store, reported when the scan is over."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_io.dataset.options import ScanOptions
    from lance_io.dataset.state import DatasetState
    from lance_io.store.api import StatsSnapshot


@dataclass(frozen=True)
class ScanStatistics:
    """Counts of one scan. Requests of other users of the same store at the same time are counted with them.

    iops, requests  reads that went to the store
    bytes_read      payload bytes they brought
    """

    iops: int
    requests: int
    bytes_read: int
    indices_loaded: int = 0
    parts_loaded: int = 0
    index_comparisons: int = 0
    index_cache_hits: int = 0
    index_cache_misses: int = 0
    all_counts: dict[str, int] = field(default_factory=dict)
    all_times: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class IOStats:
    """Requests and bytes of a dataset's store since it was opened, or since they were last asked for."""

    read_iops: int
    read_bytes: int
    write_iops: int
    write_bytes: int


def io_stats(spent: StatsSnapshot) -> IOStats:
    """The counters of a store under pylance's names."""
    reads = sum(spent[name].requests for name in ("get", "head", "list"))
    return IOStats(reads, spent.bytes_read, spent.requests - reads, spent.bytes_written)


@contextmanager
def watched(state: DatasetState, options: ScanOptions) -> Iterator[None]:
    """Call the scan's callback with what the store counted inside the block; also when the block ends early."""
    callback = options.scan_stats_callback
    if callback is None:
        yield
        return
    before = state.location.store.stats.snapshot()
    try:
        yield
    finally:
        spent = state.location.store.stats.snapshot() - before
        callback(ScanStatistics(spent.requests, spent.requests, spent.bytes_read))
