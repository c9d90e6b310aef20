"""The requests of a scan or take as a value: rounds of requests, to print, count and compare.

Requests of a round do not wait for each other. Files are independent, so round 1 of one file and round 1 of another are
the same round. A round with several purposes (one file is known already, another is not) is listed once for each
purpose, under one number.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from lance_io._kernels import plan_reads

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from lance_io.spans import Purpose, Ranges
    from lance_io.store.costs import Cost, RequestCosts
    from lance_io.store.profile import StoreProfile

UNBOUNDED: Final = 1 << 62
SHOWN_REQUESTS_MAX: Final = 12  # per round, in the text form
_PURPOSES: Final[tuple[Purpose, ...]] = ("metadata", "index", "data")
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class PlannedRequest(NamedTuple):
    """Bytes `start` to `end` of the object `key`, in one request."""

    key: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Round:
    """Concurrent requests of one purpose.

    Attributes:
        number: Number of the round, from 1.
        purpose: "metadata" (of table and files), "index" (location of the rows of a page) or "data".
        requests: The requests, by object and offset.
        wanted_bytes: Bytes needed; the other bytes lie in gaps between merged ranges.
    """

    number: int
    purpose: Purpose
    requests: tuple[PlannedRequest, ...]
    wanted_bytes: int

    @property
    def request_bytes(self) -> int:
        """Bytes of the requests."""
        return sum(end - start for _, start, end in self.requests)


@dataclass(frozen=True, slots=True)
class IoPlan:
    """The requests of a scan or take, in rounds.

    Attributes:
        rounds: Rounds, ascending by number.
        base: Common prefix of the keys, left out when the plan is printed.
        notes: Remarks on reads that depend on data.
        costs: Costs of requests in the store; None if they are negligible.
    """

    rounds: tuple[Round, ...]
    base: str = ""
    notes: tuple[str, ...] = ()
    costs: RequestCosts | None = None

    @property
    def num_rounds(self) -> int:
        """Number of round trips in sequence."""
        return max((io_round.number for io_round in self.rounds), default=0)

    @property
    def num_requests(self) -> int:
        """Requests of all rounds."""
        return sum(len(io_round.requests) for io_round in self.rounds)

    @property
    def num_bytes(self) -> int:
        """Bytes of all requests."""
        return sum(io_round.request_bytes for io_round in self.rounds)

    @property
    def wanted_bytes(self) -> int:
        """Bytes needed of them."""
        return sum(io_round.wanted_bytes for io_round in self.rounds)

    @property
    def cost(self) -> Cost | None:
        """Expected seconds until the last byte arrives, and US dollars; None without `costs`."""
        if self.costs is None:
            return None
        sizes: defaultdict[int, list[int]] = defaultdict(list)
        for io_round in self.rounds:
            sizes[io_round.number] += [end - start for _, start, end in io_round.requests]
        return self.costs.of_reads(list(sizes.values()))

    def short_key(self, key: str) -> str:
        """A key without the common prefix.

        Args:
            key: Key of an object.
        """
        return key.removeprefix(self.base).lstrip("/")

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain values, for JSON."""
        return {
            "num_rounds": self.num_rounds,
            "num_requests": self.num_requests,
            "num_bytes": self.num_bytes,
            "wanted_bytes": self.wanted_bytes,
            "cost": None if self.cost is None or self.costs is None else cost_report(self.cost, self.costs),
            "notes": list(self.notes),
            "rounds": [
                {
                    "number": io_round.number,
                    "purpose": io_round.purpose,
                    "num_requests": len(io_round.requests),
                    "request_bytes": io_round.request_bytes,
                    "wanted_bytes": io_round.wanted_bytes,
                    "requests": [
                        {"key": self.short_key(key), "start": start, "end": end}
                        for key, start, end in io_round.requests
                    ],
                }
                for io_round in self.rounds
            ],
        }

    def __str__(self) -> str:
        lines = []
        for io_round in self.rounds:
            lines.append(
                f"round {io_round.number}  {io_round.purpose:<8}  {count_of(len(io_round.requests), 'request')}, "
                f"{format_bytes(io_round.request_bytes)} ({format_bytes(io_round.wanted_bytes)} wanted)"
            )
            shown = io_round.requests[:SHOWN_REQUESTS_MAX]
            lines += [f"    {self.short_key(key)}  {start}-{end}" for key, start, end in shown]
            if len(io_round.requests) > len(shown):
                lines.append(f"    ... and {len(io_round.requests) - len(shown)} more")
        lines.append(
            f"total  {count_of(self.num_rounds, 'round')}, {count_of(self.num_requests, 'request')}, "
            f"{format_bytes(self.num_bytes)} ({format_bytes(self.wanted_bytes)} wanted)"
        )
        if self.cost is not None and self.costs is not None:
            lines.append(f"cost   {cost_text(cost_report(self.cost, self.costs))}")
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)


def count_of(count: int, noun: str) -> str:
    """A number with its noun: `1 request`, `1,200 requests`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def cost_report(cost: Cost, costs: RequestCosts) -> dict[str, Any]:
    """A cost as plain values, for JSON."""
    return {"store": costs.name, "seconds": cost.seconds, "usd": cost.usd}


def cost_text(report: dict[str, Any]) -> str:
    """A `cost_report` as text: `93.4 ms, $0.000002 ($2.00 a million times) on s3`."""
    usd = report["usd"]
    money = f"${usd:.2g} (${1e6 * usd:,.2f} a million times)" if usd else "no money"
    return f"{1000 * report['seconds']:,.4g} ms, {money} on {report['store']}"


def format_bytes(num_bytes: float) -> str:
    """A size as text: `512 B`, `1.5 MiB`."""
    unit = 0
    while num_bytes >= 1024 and unit < len(_UNITS) - 1:
        num_bytes /= 1024
        unit += 1
    return f"{num_bytes:.0f} B" if unit == 0 else f"{num_bytes:.1f} {_UNITS[unit]}"


@dataclass(frozen=True, slots=True)
class Merging:
    """Parameters for merging ranges into requests.

    gap_bytes           ranges closer than this share a request
    metadata_gap_bytes  the same for file metadata
    read_bytes_max      requests grow to this by merging, and longer ranges are cut
    apart               True when every page of a scan is read by itself, False when the pages of a file share requests
    """

    gap_bytes: int
    metadata_gap_bytes: int
    read_bytes_max: int
    apart: bool

    @classmethod
    def of(cls, profile: StoreProfile, kind: Literal["scan", "take"], *, now: bool) -> Merging:
        """The parameters of a store's profile: `now` in the caller's thread, else through the scheduler."""
        take = kind == "take"
        gap_bytes = profile.take_gap_bytes if take else profile.scan_gap_bytes
        if now:
            return cls(gap_bytes, profile.take_gap_bytes, UNBOUNDED, apart=not take)
        return cls(
            gap_bytes, gap_bytes, profile.take_read_bytes_max if take else profile.scan_read_bytes_max, apart=False
        )


class Ledger:
    """Collects requested ranges and merges them into requests at the end."""

    def __init__(self, merging: Merging) -> None:
        self.merging = merging
        self.notes: list[str] = []
        self._ranges: defaultdict[tuple[int, str, bool, Hashable, Merging | None], list[Ranges]] = defaultdict(list)

    def add(
        self, number: int, key: str, ranges: Ranges, group: Hashable = None, merging: Merging | None = None
    ) -> None:
        """Add ranges of an object, requested in round `number`; ranges of one group share requests.

        merging  parameters for merging these; None for those of the ledger at its end
        """
        self._ranges[number, key, ranges.purpose == "metadata", group, merging].append(ranges)

    def rounds(self) -> tuple[Round, ...]:
        """All requests, merged; empty ones are left out."""
        requests: defaultdict[tuple[int, Purpose], list[PlannedRequest]] = defaultdict(list)
        wanted: defaultdict[tuple[int, Purpose], int] = defaultdict(int)
        for (number, key, _, _, merging), asked in self._ranges.items():
            for ranges in asked:
                wanted[number, ranges.purpose] += ranges.num_bytes
            for purpose, start, end in self._merged(asked, merging or self.merging):
                requests[number, purpose].append(PlannedRequest(key, start, end))
        keys = sorted({*requests, *(key for key in wanted if wanted[key])}, key=_round_order)
        return tuple(
            Round(number, purpose, tuple(sorted(requests[number, purpose])), wanted[number, purpose])
            for number, purpose in keys
        )

    def _merged(self, asked: Sequence[Ranges], merging: Merging) -> Iterator[tuple[Purpose, int, int]]:
        is_metadata = asked[0].purpose == "metadata"
        gap = merging.metadata_gap_bytes if is_metadata else merging.gap_bytes
        wanted = [(ranges.purpose, ranges.starts, ranges.ends) for ranges in asked]
        reads, _, _ = plan_reads(wanted, gap, merging.read_bytes_max)
        for start, end, segments in reads:
            # a request that brings rows and other things counts as one for rows
            yield max((purpose for purpose, _, _, _ in segments), key=_PURPOSES.index), start, end


def _round_order(key: tuple[int, Purpose]) -> tuple[int, int]:
    return key[0], _PURPOSES.index(key[1])
