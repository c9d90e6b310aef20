"""Metrics of this process: requests to stores, caches, held bytes, commits, and the calls of the API.

    stop = lance_io.metrics.on_call(print)      prints a `CallMetrics` for every finished call
    lance_io.metrics.collect()                  returns all counters, as `Sample`s
    calls = lance_io.metrics.CallRecorder()     starts counting calls, for `prometheus_text`
    lance_io.metrics.prometheus_text(calls)     returns all metrics in the text format of Prometheus
    stop = lance_io.metrics.instrument()        exports all metrics to OpenTelemetry (`lance_io[otel]`)

Counters are always kept; calls are measured only while there is a watcher. The only labels are kinds of requests,
calls, operations and stores: metrics have no URIs, keys or credentials. After a fork the child's counters start at
zero. docs/operations.md explains each metric.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from lance_io.commit.commit_counts import COMMITS
from lance_io.io.cache import process_cache_stats
from lance_io.io.call_metrics import CallMetrics, on_call
from lance_io.io.stats import process_stats
from lance_io.records import dataclass
from lance_io.store.counters import CONNECTIONS, RENEWALS, process_operations
from lance_io.store.disk_cache.cache_counts import DISK_CACHES
from lance_io.store.first_bytes import FIRST_BYTES, SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

__all__ = ["METRICS", "CallMetrics", "CallRecorder", "Metric", "Sample", "collect", "instrument", "on_call"]
__all__ += ["prometheus_text"]

Kind = Literal["counter", "gauge", "histogram"]

ROUNDS: Final = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 16.0, 64.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """The definition of a metric.

    Attributes:
        name: Name in OpenTelemetry.
        kind: "counter" (only grows), "gauge" or "histogram".
        unit: "s", "By", or the counted objects in braces.
        text: Description in one line.
        labels: Names of its labels.
        bounds: Upper bounds of a histogram's buckets.
    """

    name: str
    kind: Kind
    unit: str
    text: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()

    @property
    def prometheus_name(self) -> str:
        """The name in Prometheus, by the rules of OpenTelemetry.

        Returns:
            The name with its unit, and with `_total` for counters.
        """
        unit = {"s": "_seconds", "By": "_bytes"}.get(self.unit, "")
        return self.name.replace(".", "_") + unit + ("_total" if self.kind == "counter" else "")


class Sample(NamedTuple):
    """The value of a metric.

    Attributes:
        metric: The metric.
        labels: Values of the metric's labels, in the order of its names.
        value: The value at the time of `collect`.
    """

    metric: Metric
    labels: tuple[str, ...]
    value: float


_OPERATION: Final = ("operation",)
_BY_OPERATION: Final = (  # with the field of `OperationCounts`
    (Metric("lance_io.requests", "counter", "{request}", "requests sent, by kind", _OPERATION), "requests"),
    (Metric("lance_io.transferred", "counter", "By", "bytes received or sent, by kind", _OPERATION), "num_bytes"),
    (Metric("lance_io.request.errors", "counter", "{request}", "requests failed or cancelled", _OPERATION), "errors"),
    (Metric("lance_io.retries", "counter", "{request}", "retries: requests failed or late", _OPERATION), "retries"),
    (Metric("lance_io.throttles", "counter", "{request}", "throttled requests", _OPERATION), "throttles"),
    (Metric("lance_io.hedges", "counter", "{request}", "retries of late requests", _OPERATION), "hedges"),
)
_OF_CONNECTIONS: Final = (  # with the field of `ConnectionCounts`
    (Metric("lance_io.connections.open", "gauge", "{connection}", "open connections"), "num_open"),
    (Metric("lance_io.connections.idle", "gauge", "{connection}", "open connections without a request"), "num_idle"),
    (Metric("lance_io.connections.opened", "counter", "{connection}", "connections opened so far"), "num_opened"),
    (Metric("lance_io.connections.handshake", "counter", "s", "time to open connections"), "handshake_s"),
)
_OF_READS: Final = (  # with the attribute of `IoStats`
    (Metric("lance_io.ranges", "counter", "{range}", "requested byte ranges"), "num_ranges"),
    (Metric("lance_io.wanted", "counter", "By", "requested bytes"), "bytes_wanted"),
    (Metric("lance_io.read", "counter", "By", "bytes read for them, gaps included"), "bytes_read"),
    (Metric("lance_io.rounds", "counter", "{round}", "periods with a read in flight"), "rounds"),
    (Metric("lance_io.queue", "counter", "s", "time that reads waited before they were sent"), "queue_s"),
    (Metric("lance_io.in_flight", "gauge", "{request}", "reads in flight"), "in_flight"),
    (Metric("lance_io.held", "gauge", "By", "bytes in flight, or fetched and not yet consumed"), "bytes_held"),
)
_OF_CACHES: Final = (  # with the field of `CacheStats`
    (Metric("lance_io.cache.hits", "counter", "{lookup}", "hits of the search caches"), "hits"),
    (Metric("lance_io.cache.misses", "counter", "{lookup}", "misses of the search caches"), "misses"),
    (Metric("lance_io.cache.evictions", "counter", "{entry}", "entries dropped to make room"), "evictions"),
    (Metric("lance_io.cache.size", "gauge", "By", "size of the search caches"), "bytes"),
    (Metric("lance_io.cache.limit", "gauge", "By", "capacity of the search caches"), "capacity_bytes"),
)
_OF_DISK_CACHES: Final = (  # with the field of `DiskCacheStats`
    (Metric("lance_io.disk_cache.hits", "counter", "{lookup}", "hits of disk caches"), "hits"),
    (Metric("lance_io.disk_cache.misses", "counter", "{lookup}", "misses of disk caches"), "misses"),
    (Metric("lance_io.disk_cache.found", "counter", "By", "bytes read from disk caches"), "bytes_found"),
    (Metric("lance_io.disk_cache.kept", "counter", "By", "bytes written to disk caches"), "bytes_kept"),
    (Metric("lance_io.disk_cache.dropped", "counter", "{copy}", "copies that were not written"), "dropped"),
    (Metric("lance_io.disk_cache.evictions", "counter", "{copy}", "copies removed to make room"), "evictions"),
    (Metric("lance_io.disk_cache.damaged", "counter", "{copy}", "copies and files that were damaged"), "damaged"),
    (Metric("lance_io.disk_cache.pauses", "counter", "{pause}", "pauses in the use of a disk cache"), "pauses"),
    (Metric("lance_io.disk_cache.size", "gauge", "By", "size of the disk caches"), "bytes"),
    (Metric("lance_io.disk_cache.limit", "gauge", "By", "capacity of the disk caches"), "capacity_bytes"),
)
_RENEWALS: Final = Metric(
    "lance_io.credential.renewals", "counter", "{renewal}", "renewals of credentials", ("store", "outcome")
)
_BY_COMMIT: Final = (  # with the field of `CommitCounts`
    (Metric("lance_io.commits", "counter", "{version}", "versions created, by operation", _OPERATION), "versions"),
    (
        Metric("lance_io.commit.races", "counter", "{attempt}", "attempts lost to other writers", _OPERATION),
        "races",
    ),
    (
        Metric("lance_io.commit.conflicts", "counter", "{commit}", "commits refused by a conflict", _OPERATION),
        "conflicts",
    ),
    (Metric("lance_io.commit.unknown", "counter", "{commit}", "commits without an answer", _OPERATION), "unknown"),
)
_OF_GROUPS: Final = (  # with the field of `GroupCounts`
    (Metric("lance_io.group.commits", "counter", "{version}", "versions created by group commits"), "versions"),
    (Metric("lance_io.group.appends", "counter", "{append}", "appends in these versions"), "appends"),
)
FIRST_BYTE: Final = Metric("lance_io.first_byte", "histogram", "s", "time to first byte of GETs", _OPERATION, SECONDS)
_CALL: Final = ("call",)
CALL_SECONDS: Final = Metric("lance_io.call.duration", "histogram", "s", "duration of calls", _CALL, SECONDS)
CALL_ROUNDS: Final = Metric("lance_io.call.rounds", "histogram", "{round}", "rounds of calls", _CALL, ROUNDS)
CALL_FAILURES: Final = Metric("lance_io.call.failures", "counter", "{call}", "calls that raised an error", _CALL)

METRICS: Final = (
    *(metric for metric, _ in (*_BY_OPERATION, *_OF_CONNECTIONS, *_OF_READS, *_OF_CACHES, *_OF_DISK_CACHES)),
    _RENEWALS,
    *(metric for metric, _ in (*_BY_COMMIT, *_OF_GROUPS)),
    FIRST_BYTE,
    CALL_SECONDS,
    CALL_ROUNDS,
    CALL_FAILURES,
)
"""All metrics; the last three are measured only while there is a watcher of calls."""


def collect() -> list[Sample]:
    """Read all counters and gauges of this process, except those of calls.

    Returns:
        A sample for each metric and its labels; no histograms.
    """
    operations, reads, caches = process_operations(), process_stats(), process_cache_stats()
    samples = [
        Sample(metric, (name,), getattr(counts, field))
        for metric, field in _BY_OPERATION
        for name, counts in operations.items()
    ]
    connections = CONNECTIONS.total()
    samples += [Sample(metric, (), getattr(connections, field)) for metric, field in _OF_CONNECTIONS]
    samples += [Sample(metric, (), getattr(reads, field)) for metric, field in _OF_READS]
    samples += [Sample(metric, (), getattr(caches, field)) for metric, field in _OF_CACHES]
    samples += [Sample(_RENEWALS, labels, count) for labels, count in RENEWALS.total().items()]
    disk_caches = DISK_CACHES.total()
    samples += [Sample(metric, (), getattr(disk_caches, field)) for metric, field in _OF_DISK_CACHES]
    samples += [
        Sample(metric, (name,), getattr(counts, field))
        for metric, field in _BY_COMMIT
        for name, counts in COMMITS.by_operation().items()
    ]
    groups = COMMITS.groups()
    samples += [Sample(metric, (), getattr(groups, field)) for metric, field in _OF_GROUPS]
    return samples


class CallRecorder:
    """Counts calls until `stop` is called: histograms of duration and rounds, and failures. Thread-safe.

    Attributes:
        stop: Function that ends the counting.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[tuple[Metric, str], list[float]] = {}  # for a histogram: its buckets, then the sum
        self.stop = on_call(self._note)

    def _note(self, metrics: CallMetrics) -> None:
        with self._lock:
            for metric, value in ((CALL_SECONDS, metrics.seconds), (CALL_ROUNDS, float(metrics.rounds))):
                numbers = self._of(metric, metrics.call)
                for number, bound in enumerate(metric.bounds):
                    numbers[number] += value <= bound
                numbers[-2] += 1
                numbers[-1] += value
            self._of(CALL_FAILURES, metrics.call)[-1] += metrics.failed

    def _of(self, metric: Metric, call: str) -> list[float]:
        size = len(metric.bounds) + 2 if metric.kind == "histogram" else 1
        return self._numbers.setdefault((metric, call), [0.0] * size)

    def lines(self) -> Iterator[tuple[Metric, str]]:
        """The counts in the text format of Prometheus.

        Yields:
            Each line with its metric.
        """
        with self._lock:
            known = [(metric, call, list(numbers)) for (metric, call), numbers in self._numbers.items()]
        for metric, call, numbers in known:
            name = metric.prometheus_name
            if metric.kind != "histogram":
                yield metric, f'{name}{{call="{call}"}} {numbers[0]:g}'
                continue
            for line in _histogram_lines(metric, f'call="{call}"', numbers):
                yield metric, line


def _histogram_lines(metric: Metric, label: str, numbers: Sequence[float]) -> Iterator[str]:
    """A histogram in the text format of Prometheus.

    numbers  counts up to each bound, the count of all, and the sum of the values
    """
    name = metric.prometheus_name
    for bound, count in zip((*metric.bounds, math.inf), numbers, strict=False):
        end = "+Inf" if math.isinf(bound) else f"{bound:g}"
        yield f'{name}_bucket{{{label},le="{end}"}} {count:.0f}'
    yield f"{name}_sum{{{label}}} {numbers[-1]!r}"
    yield f"{name}_count{{{label}}} {numbers[-2]:.0f}"


def prometheus_text(calls: CallRecorder | None = None) -> str:
    """Format all metrics for an HTTP handler, in the text format of Prometheus (version 0.0.4).

    Args:
        calls: Recorder whose counts of calls are included; None for no counts of calls.

    Returns:
        The text of the response.
    """
    lines: dict[Metric, list[str]] = {}
    for metric, labels, value in collect():
        text = ",".join(f'{name}="{label}"' for name, label in zip(metric.labels, labels, strict=True))
        label_text = f"{{{text}}}" if text else ""
        lines.setdefault(metric, []).append(f"{metric.prometheus_name}{label_text} {value!r}")
    lines[FIRST_BYTE] = [*_histogram_lines(FIRST_BYTE, 'operation="get"', FIRST_BYTES.total())]
    for metric, line in calls.lines() if calls is not None else ():
        lines.setdefault(metric, []).append(line)
    parts = []
    for metric, metric_lines in lines.items():
        name = metric.prometheus_name
        parts += [f"# HELP {name} {metric.text}", f"# TYPE {name} {metric.kind}", *metric_lines]
    return "\n".join(parts) + "\n"


def instrument(meter_provider: MeterProvider | None = None) -> Callable[[], None]:
    """Export all metrics to OpenTelemetry: counters and gauges when its reader collects, histograms as values arise.

    Args:
        meter_provider: Provider of the meter; None for the global one.

    Returns:
        A function that stops the histograms and the counter of failed calls. OpenTelemetry cannot remove observable
        instruments: they exist as long as their provider.

    Raises:
        ModuleNotFoundError: `opentelemetry-api` is not installed.
    """
    try:
        from opentelemetry import metrics as otel
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("metrics for OpenTelemetry need opentelemetry-api: lance_io[otel]") from error
    meter = otel.get_meter("lance_io", meter_provider=meter_provider)

    def observe(wanted: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observed(_: CallbackOptions) -> Iterable[Observation]:
            return [
                otel.Observation(value, dict(zip(metric.labels, labels, strict=True)))
                for metric, labels, value in collect()
                if metric is wanted
            ]

        return observed

    for metric in METRICS:
        make: Any = {
            "counter": meter.create_observable_counter,
            "gauge": meter.create_observable_gauge,
        }.get(metric.kind)
        if make is not None and metric is not CALL_FAILURES:
            make(metric.name, callbacks=[observe(metric)], unit=metric.unit, description=metric.text)
    seconds, rounds, first_byte = (
        meter.create_histogram(
            metric.name, unit=metric.unit, description=metric.text, explicit_bucket_boundaries_advisory=metric.bounds
        )
        for metric in (CALL_SECONDS, CALL_ROUNDS, FIRST_BYTE)
    )
    failures = meter.create_counter(CALL_FAILURES.name, unit=CALL_FAILURES.unit, description=CALL_FAILURES.text)

    def note(metrics: CallMetrics) -> None:
        labels = {"call": metrics.call}
        seconds.record(metrics.seconds, labels)
        rounds.record(metrics.rounds, labels)
        failures.add(int(metrics.failed), labels)

    stops = on_call(note), FIRST_BYTES.watch(lambda first_byte_s: first_byte.record(first_byte_s, {"operation": "get"}))

    def stop() -> None:
        for stop_one in stops:
            stop_one()

    return stop
