"""Statistics of reads: requested ranges, reads, bytes, and rounds.

A round is a period with at least one request in flight, disjoint from the next: on a store with latency, rounds
determine how long a caller waits. A request that depends on an earlier answer (an index, then the rows) costs another
round; a hundred concurrent requests cost one.

Every event counts in several statistics: those of the scheduler, of its store, of the process, and of every
`io_stats()` block around the request:

    with io_stats() as seen:
        dataset.take([1, 2, 3])
    seen.num_reads, seen.amplification

`count_round` counts synchronous reads; `count_wanted`, `begin_reads` and `end_reads` count asynchronous ones.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import threading
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lance_io.io.shared_limits import IoScheduler


@dataclass(slots=True, eq=False)
class IoStats:
    """Counters of reads. They only grow, and you can read them at any time.

    Attributes:
        num_ranges: Requested byte ranges.
        bytes_wanted: Total length of the requested ranges.
        num_reads: Requests sent to the store for them. A read that a disk cache answers counts here until the answer.
        bytes_read: Bytes that the store returned.
        num_cached: Reads that a disk cache answered, without a request.
        bytes_cached: Bytes that the disk cache returned.
        retries: Requests that were retried because they failed or were late.
        rounds: Disjoint periods with a request in flight.
        bytes_held_peak: Maximum number of bytes that were being fetched, or fetched and not yet consumed.
        queue_s: Total seconds that requests waited before they were sent: for a slot, for their turn at a throttled
            bucket, for a connection.
        queue_s_max: The longest of these waits, in seconds.
    """

    num_ranges: int = 0
    bytes_wanted: int = 0
    num_reads: int = 0
    bytes_read: int = 0
    num_cached: int = 0
    bytes_cached: int = 0
    retries: int = 0
    rounds: int = 0
    bytes_held_peak: int = 0
    queue_s: float = 0.0
    queue_s_max: float = 0.0
    _in_flight: int = field(default=0, repr=False)
    _bytes_held: int = field(default=0, repr=False)
    _is_sent: bool = field(default=False, repr=False)  # whether this round has a request that no disk cache answered

    @property
    def amplification(self) -> float:
        """The read amplification.

        Returns:
            Bytes read per byte wanted; 0 before the first range.
        """
        return self.bytes_read / self.bytes_wanted if self.bytes_wanted else 0.0

    @property
    def in_flight(self) -> int:
        """Requests in flight now.

        Returns:
            The number of requests.
        """
        return self._in_flight

    @property
    def bytes_held(self) -> int:
        """Bytes that are being fetched, or fetched and not yet consumed, now.

        Returns:
            The number of bytes.
        """
        return self._bytes_held

    def snapshot(self) -> IoStats:
        """Copy the counters.

        Returns:
            A copy that no longer changes.
        """
        with _lock:
            return replace(self, _in_flight=0, _bytes_held=0, _is_sent=False)


Sinks: TypeAlias = tuple[IoStats, ...]

_lock = threading.Lock()
_scopes: Final[contextvars.ContextVar[Sinks]] = contextvars.ContextVar("lance_io.io_stats", default=())
_process = IoStats()
_stores: dict[str, IoStats] = {}


def process_stats() -> IoStats:
    """Statistics of all reads of this process."""
    return _process


def bytes_read_counter() -> int:
    """Bytes that this process has read through `lance_io`.

    Returns:
        The number of bytes since the start of the process.
    """
    return _process.bytes_read


def iops_counter() -> int:
    """Read requests that this process has sent through `lance_io`.

    Returns:
        The number of requests since the start of the process.
    """
    return _process.num_reads


def store_stats(identity: str) -> IoStats:
    """Statistics of the reads of this process from the store of this identity."""
    stats = _stores.get(identity)
    return stats if stats is not None else _stores.setdefault(identity, IoStats())


@contextlib.contextmanager
def io_stats() -> Iterator[IoStats]:
    """Count the reads inside the block, including those of tasks started in it.

    Yields:
        Live counters of these reads. Bytes held by asynchronous reads are not attributed to blocks.
    """
    stats = IoStats()
    token = _scopes.set((*_scopes.get(), stats))
    try:
        yield stats
    finally:
        _scopes.reset(token)


def sinks(own: IoStats, identity: str) -> Sinks:
    """The statistics of a scheduler's reads: its own, those of its store and of the process."""
    return (own, store_stats(identity), _process)


def sinks_now(identity: str, shared: IoScheduler | None = None) -> Sinks:
    """The statistics of a synchronous read: its store, the process, and the `io_stats()` blocks around the caller.

    shared  the scheduler of the session, if any, which counts the read, too
    """
    sinks = (store_stats(identity), _process, *_scopes.get())
    return sinks if shared is None else (*sinks, shared.stats)


def scopes() -> Sinks:
    """The `io_stats()` blocks around the caller."""
    return _scopes.get()


def join_sinks(parts: Sequence[Sinks]) -> Sinks:
    """The statistics of a read that several requests share, without duplicates."""
    first = parts[0]
    if all(part == first for part in parts):
        return first
    return tuple(dict.fromkeys(stats for part in parts for stats in part))


def count_wanted(sinks: Sinks, num_ranges: int, bytes_wanted: int) -> None:
    """Count requested ranges."""
    with _lock:
        for stats in sinks:
            stats.num_ranges += num_ranges
            stats.bytes_wanted += bytes_wanted


def begin_reads(reads: Iterable[Sinks]) -> None:
    """Count requests that are sent together, given the statistics of each."""
    with _lock:
        for sinks in reads:
            for stats in sinks:
                stats.num_reads += 1
                stats.rounds += stats._in_flight == 0
                stats._in_flight += 1


def count_retry(sinks: Sinks) -> None:
    """Count the retry of a request in flight."""
    with _lock:
        for stats in sinks:
            stats.retries += 1


def end_reads(reads: Iterable[tuple[Sinks, int, float, bool]]) -> None:
    """Count requests that were answered, failed or were cancelled.

    reads  for each its statistics, received bytes (0 for a failure), seconds that it waited before it was sent, and
           whether a disk cache answered it, so that there was no request
    """
    with _lock:
        for sinks, num_bytes, queue_s, is_cached in reads:
            for stats in sinks:
                stats._in_flight -= 1
                if is_cached:
                    stats.num_reads -= 1
                    stats.num_cached += 1
                    stats.bytes_cached += num_bytes
                else:
                    stats._is_sent = True
                    stats.bytes_read += num_bytes
                stats.queue_s += queue_s
                if queue_s > stats.queue_s_max:
                    stats.queue_s_max = queue_s
                if not stats._in_flight:
                    stats.rounds -= not stats._is_sent
                    stats._is_sent = False


def count_cached(reads: Iterable[tuple[Sinks, int]]) -> None:
    """Count reads that a disk cache answered without a request, given the statistics and bytes of each."""
    with _lock:
        for sinks, num_bytes in reads:
            for stats in sinks:
                stats.num_cached += 1
                stats.bytes_cached += num_bytes


def count_round(
    sinks: Sinks, num_ranges: int, bytes_wanted: int, num_reads: int, bytes_read: int, bytes_held: int = 0
) -> None:
    """Count a finished round of synchronous reads.

    bytes_held  bytes that the caller holds now and has not reported to `count_held`
    """
    with _lock:
        for stats in sinks:
            stats.num_ranges += num_ranges
            stats.bytes_wanted += bytes_wanted
            stats.num_reads += num_reads
            stats.bytes_read += bytes_read
            stats.rounds += num_reads > 0 and stats._in_flight == 0
            stats.bytes_held_peak = max(stats.bytes_held_peak, stats._bytes_held + bytes_held)


def count_held(sinks: Sinks, delta_bytes: int) -> None:
    """Count bytes that are in flight or not yet consumed; negative when they are consumed."""
    with _lock:
        for stats in sinks:
            stats._bytes_held += delta_bytes
            stats.bytes_held_peak = max(stats.bytes_held_peak, stats._bytes_held)


def _after_fork() -> None:
    """In a forked child: reset the totals, since requests in flight end in the parent only."""
    global _lock, _process
    _lock = threading.Lock()
    _process = IoStats()
    _stores.clear()


os.register_at_fork(after_in_child=_after_fork)
