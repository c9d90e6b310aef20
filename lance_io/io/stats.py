"""What was asked for, what was read for it, and in how many rounds.

A round is a period with at least one request in flight, disjoint from the next: on a store with latency, rounds are
what the caller waits for. One that is only found out after an answer (an index, then the rows) costs another round;
a hundred requests at once cost one.

Every event is counted in several places at once: the statistics of the scheduler, those of its store, those of the
process, and every `io_stats()` block that the request was made in:

    with io_stats() as seen:
        dataset.take([1, 2, 3])
    seen.num_reads, seen.amplification

Synchronous reads are counted with `count_round`, asynchronous ones with `count_wanted`, `begin_read`, `end_read`.
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
    """Counters; read them at any time, they only grow.

    num_ranges       byte ranges asked for
    bytes_wanted     their lengths
    num_reads        requests sent to the store for them; what a disk cache answers counts until it has
    bytes_read       what those returned
    num_cached       reads that a disk cache answered, without a request
    bytes_cached     what those returned
    retries          how many requests were made again, as they failed or were late
    rounds           disjoint periods with a request in flight
    bytes_held_peak  most that was being fetched, or fetched and not yet taken by its consumer, at one moment
    queue_s          seconds, summed up, that requests waited before they were sent: for a place among those in flight,
                     for their turn where a bucket refuses requests, for a connection
    queue_s_max      the longest of these
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
    _is_sent: bool = field(default=False, repr=False)  # whether a request of this round was one

    @property
    def amplification(self) -> float:
        """Bytes read per byte wanted; 0 before anything was wanted."""
        return self.bytes_read / self.bytes_wanted if self.bytes_wanted else 0.0

    @property
    def in_flight(self) -> int:
        """Requests that are out right now."""
        return self._in_flight

    @property
    def bytes_held(self) -> int:
        """Bytes that are being fetched, or were and are not yet taken by their consumer, right now."""
        return self._bytes_held

    def snapshot(self) -> IoStats:
        """A copy that does not change any more."""
        with _lock:
            return replace(self, _in_flight=0, _bytes_held=0, _is_sent=False)


Sinks: TypeAlias = tuple[IoStats, ...]

_lock = threading.Lock()
_scopes: Final[contextvars.ContextVar[Sinks]] = contextvars.ContextVar("lance_io.io_stats", default=())
_process = IoStats()
_stores: dict[str, IoStats] = {}


def process_stats() -> IoStats:
    """What this process has read through `lance_io`, in all."""
    return _process


def bytes_read_counter() -> int:
    """Bytes that this process has read through `lance_io`."""
    return _process.bytes_read


def iops_counter() -> int:
    """Requests that this process has made to read them."""
    return _process.num_reads


def store_stats(identity: str) -> IoStats:
    """What this process has read from the store of this identity."""
    stats = _stores.get(identity)
    return stats if stats is not None else _stores.setdefault(identity, IoStats())


@contextlib.contextmanager
def io_stats() -> Iterator[IoStats]:
    """Count what is asked for inside the block, here or by what was started here (bytes held are not told apart)."""
    stats = IoStats()
    token = _scopes.set((*_scopes.get(), stats))
    try:
        yield stats
    finally:
        _scopes.reset(token)


def sinks(own: IoStats, identity: str) -> Sinks:
    """Where everything that a scheduler does counts: its own statistics, those of its store and of the process."""
    return (own, store_stats(identity), _process)


def sinks_now(identity: str, shared: IoScheduler | None = None) -> Sinks:
    """Where a synchronous read counts: its store, the process, and the `io_stats()` blocks around the caller.

    shared  what the reads of a session have in common, which counts, too
    """
    sinks = (store_stats(identity), _process, *_scopes.get())
    return sinks if shared is None else (*sinks, shared.stats)


def scopes() -> Sinks:
    """The `io_stats()` blocks around the caller."""
    return _scopes.get()


def join_sinks(parts: Sequence[Sinks]) -> Sinks:
    """Each statistics once, of several requests that share a read."""
    first = parts[0]
    if all(part == first for part in parts):
        return first
    return tuple(dict.fromkeys(stats for part in parts for stats in part))


def count_wanted(sinks: Sinks, num_ranges: int, bytes_wanted: int) -> None:
    """Ranges were asked for."""
    with _lock:
        for stats in sinks:
            stats.num_ranges += num_ranges
            stats.bytes_wanted += bytes_wanted


def begin_reads(reads: Iterable[Sinks]) -> None:
    """Requests go out together; where each of them counts."""
    with _lock:
        for sinks in reads:
            for stats in sinks:
                stats.num_reads += 1
                stats.rounds += stats._in_flight == 0
                stats._in_flight += 1


def count_retry(sinks: Sinks) -> None:
    """The store repeats a request that is in flight."""
    with _lock:
        for stats in sinks:
            stats.retries += 1


def end_reads(reads: Iterable[tuple[Sinks, int, float, bool]]) -> None:
    """Requests have been answered, have failed or were cancelled.

    reads  of each where it counts, bytes that came (0 for a failure), seconds that it had waited before it was sent,
           and whether a disk cache had it, so that there was no request
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
    """Reads were answered by a disk cache, without a request; of each where it counts, and its bytes."""
    with _lock:
        for sinks, num_bytes in reads:
            for stats in sinks:
                stats.num_cached += 1
                stats.bytes_cached += num_bytes


def count_round(
    sinks: Sinks, num_ranges: int, bytes_wanted: int, num_reads: int, bytes_read: int, bytes_held: int = 0
) -> None:
    """A synchronous driver asked for ranges and had them read, in one round.

    bytes_held  what it holds at this moment beyond what `count_held` was told
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
    """So many bytes more (or less) are in flight or waiting for their consumer."""
    with _lock:
        for stats in sinks:
            stats._bytes_held += delta_bytes
            stats.bytes_held_peak = max(stats.bytes_held_peak, stats._bytes_held)


def _after_fork() -> None:
    """In a forked child: totals start anew, since what the parent has in flight will never be answered here."""
    global _lock, _process
    _lock = threading.Lock()
    _process = IoStats()
    _stores.clear()


os.register_at_fork(after_in_child=_after_fork)
