"""What the proxy's log says of an operation: counts, rounds, ranges. Pure functions over its records."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Range = tuple[str, int, int]
"""Key (with a slash and the bucket in front), first byte, and the one behind the last."""


@dataclass(frozen=True)
class Record:
    """One request. Times are microseconds since the start of the proxy; `proxy/src/ledger.rs` says more.

    range      bytes that were asked for; (0, 0) where the proxy passed the request on
    status     0: no answer
    in_flight  requests without a whole answer when this one came, itself included
    event      `throttled`, a fault, `left` (the client went away), or empty
    """

    method: str
    key: str
    range: tuple[int, int]
    status: int
    sent_bytes: int
    received_bytes: int
    from_us: int
    first_us: int
    until_us: int
    connection: int
    in_flight: int
    fast: bool
    event: str


def parse_log(text: str) -> tuple[list[Record], int]:
    """Records, and how many more there were than the proxy keeps."""
    told = json.loads(text)
    keys = told["keys"]
    at = {name: number for number, name in enumerate(told["fields"])}
    plain = [name for name in Record.__dataclass_fields__ if name not in ("key", "range")]
    records = [
        Record(
            key=keys[row[at["key"]]],
            range=(row[at["range_start"]], row[at["range_end"]]),
            **{name: row[at[name]] for name in plain},
        )
        for row in told["records"]
    ]
    return records, told["lost"]


@dataclass(frozen=True)
class Traffic:
    """Sums of a log.

    reads      GET, HEAD and LIST; the other requests are writes
    rounds     how long the chain of dependent ones is (`rounds`), where the latency is long beside what a client needs
               to send what belongs together
    busy_s     from the first request to the end of the last answer
    """

    requests: int
    reads: int
    rounds: int
    sent_bytes: int
    received_bytes: int
    in_flight_max: int
    connections: int
    busy_s: float
    events: dict[str, int]

    @classmethod
    def of(cls, records: Sequence[Record]) -> Traffic:
        """Of any number of records."""
        reads = sum(record.method in ("GET", "HEAD") for record in records)
        return cls(
            requests=len(records),
            reads=reads,
            rounds=rounds(records),
            sent_bytes=sum(record.sent_bytes for record in records),
            received_bytes=sum(record.received_bytes for record in records),
            in_flight_max=in_flight_max(records),
            connections=len({record.connection for record in records}),
            busy_s=(max(r.until_us for r in records) - min(r.from_us for r in records)) / 1e6 if records else 0.0,
            events=dict(Counter(record.event for record in records if record.event)),
        )


def rounds(records: Iterable[Record]) -> int:
    """How long the chain of dependent requests is: those for what all need, then those for one data file.

    A request begins a round if it came when those of the round before had been answered. Of several data files, which
    are read side by side and each as soon as it can be, the one with most rounds counts.
    """
    table: list[Record] = []
    files: dict[str, list[Record]] = {}
    for record in records:
        if "/data/" in record.key:
            files.setdefault(record.key, []).append(record)
        else:
            table.append(record)
    return _chain(table) + max(map(_chain, files.values()), default=0)


def _chain(records: Iterable[Record]) -> int:
    """The largest number of requests each of which came after the answer to the one before."""
    count, answered_us = 0, -1
    for record in sorted(records, key=lambda record: record.until_us):
        if record.from_us >= answered_us:
            count += 1
            answered_us = record.until_us
    return count


def in_flight_max(records: Iterable[Record]) -> int:
    """Most requests under way at the same moment."""
    moments = [(record.from_us, 1) for record in records] + [(record.until_us, -1) for record in records]
    most = now = 0
    for _, change in sorted(moments):  # at the same moment, ends come first
        now += change
        most = max(most, now)
    return most


def data_ranges(records: Iterable[Record]) -> list[Range]:
    """The ranges of data files that were fetched, each once (a hedge or a retry asks again), in the order of asking."""
    asked = (
        (record.key, *record.range)
        for record in sorted(records, key=lambda record: record.from_us)
        if record.method == "GET" and record.range != (0, 0)
    )
    return list(dict.fromkeys(asked))


def answered_per_second(records: Iterable[Record]) -> list[tuple[int, int]]:
    """For each second from the first request on: good answers that ended in it, and 503s."""
    ordered = list(records)
    if not ordered:
        return []
    start_us = min(record.from_us for record in ordered)
    seconds: list[tuple[int, int]] = [(0, 0)] * (
        (max(record.until_us for record in ordered) - start_us) // 1_000_000 + 1
    )
    for record in ordered:
        second = (record.until_us - start_us) // 1_000_000
        good, refused = seconds[second]
        seconds[second] = (good + (200 <= record.status < 300), refused + (record.status == 503))
    return seconds
