"""What a scan or a take asks of a store, as a value: rounds of requests, to be printed, counted and compared.

A round is what goes out without waiting for anything else of the same round. Files go side by side, so round 1 of one
file and round 1 of another are the same round. A round with several purposes (one file is known already, another is
not) is listed once per purpose, under one number.
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
    """Requests of one purpose that go out together.

    number        of the round, from 1
    purpose       "metadata" (of table and files), "index" (where the rows of a page lie) or "data"
    requests      by object and offset
    wanted_bytes  what is needed of them; the rest lies in the gaps between merged ranges
    """

    number: int
    purpose: Purpose
    requests: tuple[PlannedRequest, ...]
    wanted_bytes: int

    @property
    def request_bytes(self) -> int:
        """Bytes that the requests bring."""
        return sum(end - start for _, start, end in self.requests)


@dataclass(frozen=True, slots=True)
class IoPlan:
    """The requests of a scan or take, in rounds.

    rounds  ascending by number
    base    what the keys have in common, left out when the plan is printed
    notes   what the plan cannot know without reading data, in words
    costs   of requests to the store that it is for; None where they are nothing to speak of
    """

    rounds: tuple[Round, ...]
    base: str = ""
    notes: tuple[str, ...] = ()
    costs: RequestCosts | None = None

    @property
    def num_rounds(self) -> int:
        """How often something waits for an answer before it can ask on."""
        return max((one.number for one in self.rounds), default=0)

    @property
    def num_requests(self) -> int:
        """Requests of all rounds."""
        return sum(len(one.requests) for one in self.rounds)

    @property
    def num_bytes(self) -> int:
        """Bytes that they bring."""
        return sum(one.request_bytes for one in self.rounds)

    @property
    def wanted_bytes(self) -> int:
        """Bytes that are needed of them."""
        return sum(one.wanted_bytes for one in self.rounds)

    @property
    def cost(self) -> Cost | None:
        """Seconds until the last byte is here, and US dollars, as its store is expected to be; None without `costs`."""
        if self.costs is None:
            return None
        sizes: defaultdict[int, list[int]] = defaultdict(list)
        for one in self.rounds:
            sizes[one.number] += [end - start for _, start, end in one.requests]
        return self.costs.of_reads(list(sizes.values()))

    def short_key(self, key: str) -> str:
        """A key without what all keys have in common."""
        return key.removeprefix(self.base).lstrip("/")

    def to_dict(self) -> dict[str, Any]:
        """The plan in plain values, for JSON."""
        return {
            "num_rounds": self.num_rounds,
            "num_requests": self.num_requests,
            "num_bytes": self.num_bytes,
            "wanted_bytes": self.wanted_bytes,
            "cost": None if self.cost is None or self.costs is None else cost_report(self.cost, self.costs),
            "notes": list(self.notes),
            "rounds": [
                {
                    "number": one.number,
                    "purpose": one.purpose,
                    "num_requests": len(one.requests),
                    "request_bytes": one.request_bytes,
                    "wanted_bytes": one.wanted_bytes,
                    "requests": [
                        {"key": self.short_key(key), "start": start, "end": end} for key, start, end in one.requests
                    ],
                }
                for one in self.rounds
            ],
        }

    def __str__(self) -> str:
        lines = []
        for one in self.rounds:
            lines.append(
                f"round {one.number}  {one.purpose:<8}  {count_of(len(one.requests), 'request')}, "
                f"{format_bytes(one.request_bytes)} ({format_bytes(one.wanted_bytes)} wanted)"
            )
            shown = one.requests[:SHOWN_REQUESTS_MAX]
            lines += [f"    {self.short_key(key)}  {start}-{end}" for key, start, end in shown]
            if len(one.requests) > len(shown):
                lines.append(f"    ... and {len(one.requests) - len(shown)} more")
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
    """What something costs in plain values, for JSON."""
    return {"store": costs.name, "seconds": cost.seconds, "usd": cost.usd}


def cost_text(report: dict[str, Any]) -> str:
    """A `cost_report` for people: `93.4 ms, $0.000002 ($2.00 a million times) on s3`."""
    usd = report["usd"]
    money = f"${usd:.2g} (${1e6 * usd:,.2f} a million times)" if usd else "no money"
    return f"{1000 * report['seconds']:,.4g} ms, {money} on {report['store']}"


def format_bytes(num_bytes: float) -> str:
    """A size for people: `512 B`, `1.5 MiB`."""
    unit = 0
    while num_bytes >= 1024 and unit < len(_UNITS) - 1:
        num_bytes /= 1024
        unit += 1
    return f"{num_bytes:.0f} B" if unit == 0 else f"{num_bytes:.1f} {_UNITS[unit]}"


@dataclass(frozen=True, slots=True)
class Merging:
    """By which numbers ranges become requests.

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
        """As a store of this profile is read: `now` in the caller's thread, else through the scheduler."""
        take = kind == "take"
        gap_bytes = profile.take_gap_bytes if take else profile.scan_gap_bytes
        if now:
            return cls(gap_bytes, profile.take_gap_bytes, UNBOUNDED, apart=not take)
        return cls(
            gap_bytes, gap_bytes, profile.take_read_bytes_max if take else profile.scan_read_bytes_max, apart=False
        )


class Ledger:
    """Collects ranges as they are asked for, and merges them into requests at the end.

    merging  how
    """

    def __init__(self, merging: Merging) -> None:
        self.merging = merging
        self.notes: list[str] = []
        self._asked: defaultdict[tuple[int, str, bool, Hashable], list[Ranges]] = defaultdict(list)

    def add(self, number: int, key: str, ranges: Ranges, group: Hashable = None) -> None:
        """Ranges of an object, asked for in round `number`; those of one group share requests."""
        self._asked[number, key, ranges.purpose == "metadata", group].append(ranges)

    def rounds(self) -> tuple[Round, ...]:
        """Everything that was asked for, merged; what is empty is left out."""
        requests: defaultdict[tuple[int, Purpose], list[PlannedRequest]] = defaultdict(list)
        wanted: defaultdict[tuple[int, Purpose], int] = defaultdict(int)
        for (number, key, _, _), asked in self._asked.items():
            for ranges in asked:
                wanted[number, ranges.purpose] += ranges.num_bytes
            for purpose, start, end in self._merged(asked):
                requests[number, purpose].append(PlannedRequest(key, start, end))
        keys = sorted({*requests, *(key for key in wanted if wanted[key])}, key=_round_order)
        return tuple(
            Round(number, purpose, tuple(sorted(requests[number, purpose])), wanted[number, purpose])
            for number, purpose in keys
        )

    def _merged(self, asked: Sequence[Ranges]) -> Iterator[tuple[Purpose, int, int]]:
        is_metadata = asked[0].purpose == "metadata"
        gap = self.merging.metadata_gap_bytes if is_metadata else self.merging.gap_bytes
        wanted = [(ranges.purpose, ranges.starts, ranges.ends) for ranges in asked]
        reads, _, _ = plan_reads(wanted, gap, self.merging.read_bytes_max)
        for start, end, segments in reads:
            # a request that brings rows among other things is one for rows
            yield max((purpose for purpose, _, _, _ in segments), key=_PURPOSES.index), start, end


def _round_order(key: tuple[int, Purpose]) -> tuple[int, int]:
    return key[0], _PURPOSES.index(key[1])
