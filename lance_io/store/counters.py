"""Counters of one store: requests, bytes, and the peak of requests in flight.

Cheap enough to be always on: one lock and a few additions per request. Safe from any thread, because the synchronous
path counts in the caller's thread while the engine thread counts its own.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from contextvars import ContextVar
from dataclasses import field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

from lance_io.records import dataclass
from lance_io.redaction import hide_secrets
from lance_io.store.forking import survive_fork

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lance_io.spans import Ranges
    from lance_io.store.offers import WantedRange

Operation = Literal["get", "head", "list", "put", "put_create", "part", "delete", "database"]
READS: frozenset[Operation] = frozenset({"get", "head", "list"})

on_retry: Final[ContextVar[Callable[[bool], None] | None]] = ContextVar("lance_io.store.on_retry", default=None)
"""Called whenever a store repeats a request of this context, with True for a hedged (late) one."""

on_cached: Final[ContextVar[Callable[[], None] | None]] = ContextVar("lance_io.store.on_cached", default=None)
"""Called when a disk cache answers a read of this context, without a request."""


class LoggedRequest(NamedTuple):
    """One entry of the log; `end` is -1 if the request has no end, `start` is -n for a suffix of n bytes."""

    operation: Operation
    key: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class OperationCounts:
    """Counts of one class of requests; `num_bytes` are payload bytes received (reads) or sent (writes).

    errors     requests that failed or were cancelled (the slower one of a hedged read), with any final outcome
    retries    requests that repeat a failed or a late one
    throttles  errors by which the store asked for fewer requests
    hedges     retries of requests that were only late
    """

    requests: int = 0
    num_bytes: int = 0
    errors: int = 0
    retries: int = 0
    throttles: int = 0
    hedges: int = 0

    def __sub__(self, earlier: OperationCounts) -> OperationCounts:
        return OperationCounts(
            self.requests - earlier.requests,
            self.num_bytes - earlier.num_bytes,
            self.errors - earlier.errors,
            self.retries - earlier.retries,
            self.throttles - earlier.throttles,
            self.hedges - earlier.hedges,
        )


_NONE = OperationCounts()


@dataclass(frozen=True, slots=True)
class StatsSnapshot:
    """The counters at one moment; `later - earlier` is the difference between the two."""

    operations: Mapping[Operation, OperationCounts] = field(default_factory=dict)
    in_flight_peak: int = 0

    def __getitem__(self, operation: Operation) -> OperationCounts:
        return self.operations.get(operation, _NONE)

    def __sub__(self, earlier: StatsSnapshot) -> StatsSnapshot:
        changed = {name: counts - earlier[name] for name, counts in self.operations.items()}
        return StatsSnapshot({name: c for name, c in changed.items() if c != _NONE}, self.in_flight_peak)

    @property
    def requests(self) -> int:
        """Requests of all classes, every attempt counted."""
        return sum(counts.requests for counts in self.operations.values())

    @property
    def bytes_read(self) -> int:
        """Payload bytes received."""
        return sum(counts.num_bytes for name, counts in self.operations.items() if name in READS)

    @property
    def bytes_written(self) -> int:
        """Payload bytes sent."""
        return sum(counts.num_bytes for name, counts in self.operations.items() if name not in READS)


class Tally:
    """Sums, by name, of counters whose owners come and go; the sums only grow.

    Counting costs nothing extra: the counters are read only for `total`.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a garbage collection inside of it may end an owner
        self._live: dict[int, Mapping[Any, list[Any]]] = {}
        self._past: dict[Any, list[Any]] = {}  # of dead owners; minus the counts from before a fork
        survive_fork(self)

    def start_over(self) -> None:
        """Begin at zero: counts from before a fork belong to the parent."""
        self._lock = threading.RLock()
        self._past = {name: [-number for number in numbers] for name, numbers in self._sum({}).items()}

    def follow(self, owner: object, numbers: Mapping[Any, list[Any]]) -> None:
        """Include `numbers`, which may grow, for as long as `owner` lives, and their final values for ever."""
        with self._lock:
            self._live[id(numbers)] = numbers
        weakref.finalize(owner, self._end, numbers).atexit = False

    def _end(self, numbers: Mapping[Any, list[Any]]) -> None:
        with self._lock:
            del self._live[id(numbers)]
            _add_up(self._past, numbers)

    def total(self) -> dict[Any, list[Any]]:
        """The numbers now."""
        with self._lock:
            return self._sum(self._past)

    def _sum(self, past: Mapping[Any, list[Any]]) -> dict[Any, list[Any]]:
        sums = {name: list(numbers) for name, numbers in past.items()}
        for numbers in list(self._live.values()):
            _add_up(sums, numbers)
        return sums


def _add_up(sums: dict[Any, list[Any]], numbers: Mapping[Any, list[Any]]) -> None:
    for name, values in list(numbers.items()):
        known = sums.get(name)
        sums[name] = list(values) if known is None else [a + b for a, b in zip(known, values, strict=True)]


_of_process: Final = Tally()


def process_operations() -> dict[Operation, OperationCounts]:
    """All requests of this process to stores, closed ones included; only grows."""
    return {name: OperationCounts(*numbers) for name, numbers in _of_process.total().items()}


class HasConnections(Protocol):
    """A pool of connections."""

    @property
    def num_open(self) -> int:
        """Connections, idle ones among them."""

    @property
    def num_idle(self) -> int:
        """Connections that carry no request."""


class ConnectionCounts(NamedTuple):
    """Connections of this process's own HTTP client.

    num_open, num_idle  now; idle ones are open
    num_opened          ever
    handshake_s         time for opening these, with TLS
    """

    num_open: int
    num_idle: int
    num_opened: int
    handshake_s: float


class ConnectionTally:
    """Counts connections of pools that come and go. Safe from any thread."""

    def __init__(self) -> None:
        self._pools: weakref.WeakSet[HasConnections] = weakref.WeakSet()
        self.start_over()
        survive_fork(self)

    def start_over(self) -> None:
        """Begin at zero: connections from before a fork belong to the parent."""
        self._lock = threading.RLock()  # a garbage collection inside of it may end a pool
        self._pools = weakref.WeakSet()
        self._num_opened, self._handshake_s = 0, 0.0

    def follow(self, pool: HasConnections) -> None:
        """Count the connections of a pool for as long as it lives."""
        with self._lock:
            self._pools.add(pool)

    def opened(self, handshake_s: float) -> None:
        """Count an opened connection, and the seconds of its handshake."""
        with self._lock:
            self._num_opened += 1
            self._handshake_s += handshake_s

    def total(self) -> ConnectionCounts:
        """The numbers now."""
        with self._lock:
            pools = list(self._pools)
            num_open, num_idle = sum(pool.num_open for pool in pools), sum(pool.num_idle for pool in pools)
            return ConnectionCounts(num_open, num_idle, self._num_opened, self._handshake_s)


CONNECTIONS: Final = ConnectionTally()


Outcome = Literal["renewed", "refused", "failed"]
OUTCOMES: Final[tuple[Outcome, ...]] = ("renewed", "refused", "failed")
WITH_CREDENTIALS: Final = ("s3", "dynamodb", "gs", "az")


class RenewalTally:
    """Counts renewals of credentials, by store and outcome. Safe from any thread.

    renewed  new credentials, before the old ones expired or after the store refused them
    refused  the store refuses them, and there are no others
    failed   the source of credentials raised an error
    """

    def __init__(self) -> None:
        self.start_over()
        survive_fork(self)

    def start_over(self) -> None:
        """Begin at zero."""
        self._lock = threading.Lock()
        self._counts = {(store, outcome): 0 for store in WITH_CREDENTIALS for outcome in OUTCOMES}

    def add(self, store: str, outcome: Outcome) -> None:
        """Count one renewal."""
        with self._lock:
            self._counts[store, outcome] += 1

    def total(self) -> dict[tuple[str, Outcome], int]:
        """The numbers now, zeros included."""
        with self._lock:
            return dict(self._counts)


RENEWALS: Final = RenewalTally()


class StoreStats:
    """Thread-safe counters of one store.

    log_max  how many of the latest requests `log` keeps; 0 keeps none
    """

    def __init__(self, log_max: int = 0) -> None:
        self._counts: dict[Operation, list[int]] = {}  # in the order of `OperationCounts`
        _of_process.follow(self, self._counts)
        self._in_flight_peak = 0
        self._log: deque[LoggedRequest] | None = deque(maxlen=log_max) if log_max else None
        self.start_over()
        survive_fork(self)

    def start_over(self) -> None:
        """New lock, nothing in flight (after a fork)."""
        self._lock = threading.Lock()
        self._in_flight = 0

    def count(self, operation: Operation, key: str, num_bytes: int, *, start: int = 0, end: int = -1) -> None:
        """Count one request that has already succeeded."""
        with self._lock:
            self._add(operation, 1, num_bytes, 0, 0)
            self._in_flight_peak = max(self._in_flight_peak, self._in_flight + 1)
            if self._log is not None:
                self._log.append(LoggedRequest(operation, key, start, end))

    def count_many(self, operation: Operation, requests: Sequence[tuple[str, int, int, int]]) -> None:
        """`count` for several requests: key, bytes, start and end of each."""
        if not requests:
            return
        with self._lock:
            self._add(operation, len(requests), sum([num_bytes for _, num_bytes, _, _ in requests]), 0, 0)
            self._in_flight_peak = max(self._in_flight_peak, self._in_flight + 1)
            if self._log is not None:
                self._log.extend([LoggedRequest(operation, key, start, end) for key, _, start, end in requests])

    def count_reads(self, key: str, num_reads: int, num_bytes: int, ranges: Ranges) -> None:
        """Count a batch of reads of one object; one log entry, from the first byte to the last."""
        with self._lock:
            self._add("get", num_reads, num_bytes, 0, 0)
            self._in_flight_peak = max(self._in_flight_peak, self._in_flight + 1)
            if self._log is not None and len(ranges):
                self._log.append(_logged(key, ranges))

    def count_joined(
        self, keys: Sequence[str], num_reads: int, num_bytes: int, ranges: Ranges, bounds: Sequence[int]
    ) -> None:
        """`count_reads` for several objects: object i has the ranges `bounds[i]` to `bounds[i + 1]`."""
        with self._lock:
            self._add("get", num_reads, num_bytes, 0, 0)
            self._in_flight_peak = max(self._in_flight_peak, self._in_flight + 1)
            if self._log is not None:
                parts = [ranges.part(first, end) for first, end in pairwise(bounds)]
                self._log.extend([_logged(key, part) for key, part in zip(keys, parts, strict=True) if len(part)])

    def begin(self, operation: Operation, key: str, start: int = 0, end: int = -1) -> None:
        """Count a request that is sent; exactly one `end` follows."""
        with self._lock:
            self._add(operation, 1, 0, 0, 0)
            self._in_flight += 1
            self._in_flight_peak = max(self._in_flight_peak, self._in_flight)
            if self._log is not None:
                self._log.append(LoggedRequest(operation, key, start, end))

    def begin_reads(self, wanted: Sequence[WantedRange]) -> None:
        """Count GETs that are sent; `end` follows, for each or for several of them."""
        with self._lock:
            self._add("get", len(wanted), 0, 0, 0)
            self._in_flight += len(wanted)
            self._in_flight_peak = max(self._in_flight_peak, self._in_flight)
            if self._log is not None:
                self._log.extend([LoggedRequest("get", request.key, request.start, request.end) for request in wanted])

    def end(self, operation: Operation, num_bytes: int = 0, *, failed: bool = False, num_requests: int = 1) -> None:
        """Requests that `begin` announced are over; `num_bytes` came back (or went out)."""
        with self._lock:
            self._add(operation, 0, num_bytes, num_requests if failed else 0, 0)
            self._in_flight -= num_requests

    def sent_again(self, operation: Operation) -> None:
        """Count a request that was sent again as its connection closed before the answer: not an attempt of its own."""
        with self._lock:
            self._add(operation, 1, 0, 0, 1)

    def throttled(self, operation: Operation) -> None:
        """Count that a failed request was throttled."""
        with self._lock:
            self._add(operation, 0, 0, 0, 0)
            self._counts[operation][4] += 1

    def error(self, operation: Operation) -> None:
        """Count a request that failed at once (nothing went out)."""
        with self._lock:
            self._add(operation, 1, 0, 1, 0)

    def retry(
        self, operation: Operation, *, late: bool = False, callback: Callable[[bool], None] | None = None
    ) -> None:
        """The next request of this class repeats a failed one, or one that is `late`.

        callback  called in place of the context's `on_retry`
        """
        with self._lock:
            self._add(operation, 0, 0, 0, 1)
            self._counts[operation][5] += late
        callback = callback or on_retry.get()
        if callback is not None:
            callback(late)

    def _add(self, operation: Operation, requests: int, num_bytes: int, errors: int, retries: int) -> None:
        counts = self._counts.get(operation)
        if counts is None:
            counts = self._counts[operation] = [0, 0, 0, 0, 0, 0]
        counts[0] += requests
        counts[1] += num_bytes
        counts[2] += errors
        counts[3] += retries

    @property
    def log(self) -> list[LoggedRequest]:
        """The latest requests, oldest first; empty unless `log_max` was given."""
        with self._lock:
            logged = list(self._log or ())
        return [
            request._replace(key=hide_secrets(request.key)) if "://" in request.key else request for request in logged
        ]

    @property
    def in_flight(self) -> int:
        """Requests in flight now."""
        return self._in_flight

    def snapshot(self) -> StatsSnapshot:
        """The counters now."""
        with self._lock:
            frozen = {name: OperationCounts(*counts) for name, counts in self._counts.items()}
            return StatsSnapshot(frozen, self._in_flight_peak)


def _logged(key: str, ranges: Ranges) -> LoggedRequest:
    """One entry for reads of one object, from the first byte to the last."""
    return LoggedRequest("get", key, int(ranges.starts.min()), int(ranges.ends.max()))
