"""Numbers that the planning of reads from a store uses."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import UsageError
from lance_io.limits import (
    KIB,
    MIB,
    TAIL_BYTES_CLOUD,
    TAIL_BYTES_CLOUD_MAX,
    TAIL_BYTES_LOCAL,
    WHOLE_FILE_BYTES_CLOUD,
    WHOLE_FILE_BYTES_LOCAL,
)
from lance_io.records import dataclass
from lance_io.store.costs import (
    CLIENT_GETS,
    EXPRESS_GETS,
    SIGNED_GETS,
    RequestCosts,
    has_cost_options,
    requests_within_descriptors,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class StoreProfile:
    """Numbers that the planning of reads from a store uses; those of cloud stores follow from `costs.py`.

    take_gap_bytes, scan_gap_bytes            ranges closer than this share a read, for takes and for scans
    take_read_bytes_max, scan_read_bytes_max  maximal size of a read that merges ranges
    split_bytes                               a longer range is read in several requests
    requests_start, requests_max              requests in flight: initially of a scan, and at most of everything
    tail_bytes, tail_bytes_max                bytes at a file's end that its first read fetches: the first number, or
                                              for large files with page indexes there a 256th of the file, at most the
                                              second number. Stores with latency have a larger second number
    whole_file_bytes                          files up to this size may be read whole
    hedge_percent                             late requests that may be repeated, per 100 reads
    max_requests_per_second                   for stores with a rate limit; 0 for none
    costs                                     costs of requests to the store; None if they are negligible
    """

    name: str
    take_gap_bytes: int
    scan_gap_bytes: int
    take_read_bytes_max: int
    scan_read_bytes_max: int
    split_bytes: int
    requests_start: int
    requests_max: int
    tail_bytes: int
    tail_bytes_max: int
    whole_file_bytes: int
    hedge_percent: int = 0
    max_requests_per_second: int = 0
    costs: RequestCosts | None = None

    def with_options(self, options: Mapping[str, str]) -> StoreProfile:
        """This profile with the fields that `options` names; `block_size` is pylance's `take_gap_bytes`.

        Cost options (`RequestCosts.with_options`) apply first: see `with_costs`.
        options  lower-case names to decimal texts; names that are no field are ignored. Raises `UsageError` for
                 a value that is no number of at least 0 (1 for `requests_*`, `*_max`, `split_bytes`, `tail_bytes`).
        """
        changes: dict[str, Any] = {}
        if not options:
            return self
        if has_cost_options(options):
            numbers = {name: text for name, text in options.items() if name in PROFILE_OPTIONS}
            return self.with_costs((self.costs or SIGNED_GETS).with_options(options)).with_options(numbers)
        if "block_size" in options:
            changes["take_gap_bytes"] = _whole_number("block_size", options["block_size"])
        for name in PROFILE_OPTIONS[1:]:
            if name in options:
                changes[name] = _whole_number(name, options[name])
        if not changes:
            return self
        return replace(self, **changes)._at_most(changes.get("requests_max", self.requests_max))

    def with_costs(self, costs: RequestCosts) -> StoreProfile:
        """This profile for a store with other costs, and the numbers that follow from them.

        A number stays if both costs give the same value, and all numbers stay if this profile has no costs.
        """
        before = self.costs
        if before is None:
            return replace(self, costs=costs)
        changes = {
            name: getattr(costs, number)
            for name, number in _FOLLOW.items()
            if getattr(costs, number) != getattr(before, number)
        }
        return replace(self, **changes, costs=costs)

    @property
    def connections_max(self) -> int:
        """Connections that are open at once: one for each request, and some for hedged requests."""
        return self.requests_max + -(-self.requests_max * self.hedge_percent // 100)

    def within_descriptors(self) -> StoreProfile:
        """This profile with its requests in flight limited by the file descriptors for their connections."""
        return self._at_most(requests_within_descriptors(self.requests_max))

    def _at_most(self, requests: int) -> StoreProfile:
        return replace(self, requests_start=min(self.requests_start, requests), requests_max=requests)


PROFILE_OPTIONS: Final = (
    "block_size",
    *(field.name for field in fields(StoreProfile) if field.name not in ("name", "costs")),
)
"""Storage options that set fields of a profile."""
_FOLLOW: Final = {  # field of a profile: property of its costs
    "take_gap_bytes": "take_gap_bytes",
    "scan_gap_bytes": "scan_gap_bytes",
    "take_read_bytes_max": "read_bytes_max",
    "scan_read_bytes_max": "read_bytes_max",
    "split_bytes": "read_bytes_max",
    "requests_start": "requests_start",
    "requests_max": "requests_max",
}
_MAY_BE_ZERO = frozenset(
    {"block_size", "take_gap_bytes", "scan_gap_bytes", "whole_file_bytes", "hedge_percent", "max_requests_per_second"}
)


def _whole_number(name: str, text: str) -> int:
    least = 0 if name in _MAY_BE_ZERO else 1
    if not str(text).isdecimal() or int(text) < least:
        raise UsageError(f"storage option {name}: expected a whole number of at least {least}, found {text!r}")
    return int(text)


LOCAL = StoreProfile(
    name="local",
    take_gap_bytes=4 * KIB,
    scan_gap_bytes=64 * KIB,
    take_read_bytes_max=4 * MIB,
    scan_read_bytes_max=8 * MIB,
    split_bytes=8 * MIB,
    requests_start=8,
    requests_max=32,
    tail_bytes=TAIL_BYTES_LOCAL,
    tail_bytes_max=TAIL_BYTES_LOCAL,
    whole_file_bytes=WHOLE_FILE_BYTES_LOCAL,
)
MEMORY = replace(LOCAL, name="memory", take_gap_bytes=0, scan_gap_bytes=0)
CLOUD = StoreProfile(
    name="cloud",
    **{name: getattr(SIGNED_GETS, number) for name, number in _FOLLOW.items()},
    tail_bytes=TAIL_BYTES_CLOUD,
    tail_bytes_max=TAIL_BYTES_CLOUD_MAX,
    whole_file_bytes=WHOLE_FILE_BYTES_CLOUD,
    hedge_percent=5,
    costs=SIGNED_GETS,
)
# A client that takes a millisecond of processor time per request.
SLOW_CLIENT = replace(CLOUD.with_costs(CLIENT_GETS), name="slow-client", hedge_percent=0)
# The same for a store whose bytes cost money. Eight requests in flight would keep that client busy at the promised
# latency; as no such bucket was measured, it has the number of the others.
S3_EXPRESS = replace(
    SLOW_CLIENT.with_costs(EXPRESS_GETS),
    name="s3-express",
    requests_start=SLOW_CLIENT.requests_start,
    requests_max=SLOW_CLIENT.requests_max,
)
