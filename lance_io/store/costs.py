"""Cost model of requests to a cloud store, and the numbers that follow: gaps, sizes of reads, requests in flight.

One model for all stores. A GET of n bytes takes

    latency + n / (bytes per second of a connection)        until its last byte arrives, and
    processor time per GET + n x processor time per byte    of this process, however many are in flight,
    price per GET + n x price per byte                      of its user's money.

Requests in flight share the latency, but neither processor time nor money. Each property of `RequestCosts` explains
one number of a `StoreProfile`; the powers of two next to the results are the numbers of the profiles.
Time and money have no exchange rate here: a gap is read if that costs neither more time nor more money than the
GET that it saves. If bytes are free, as they are inside a region of most clouds, time alone decides.

Measured values come from `python -m benchmarks.latency`, those of your own bucket from `lance-io bench`;
docs/decisions/004-concurrency.md has the reasons, docs/costs.md the sources of prices and latencies.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lance_io.errors import UsageError
from lance_io.limits import GIB, MIB
from lance_io.records import dataclass
from lance_io.store.descriptors import descriptors_max

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LATE_FACTOR: Final = 2.0  # latency varies: a pipeline sized for the median runs dry half of the time
LATENCY_SHARE_MAX: Final = 1 / 8  # of the time of the longest read
SCAN_READ_BYTES: Final = 1 * MIB  # size of a scan's read without merged neighbours
DESCRIPTOR_SHARE: Final = 3 / 4  # of a process's file descriptors, for connections to one bucket
REQUESTS_LEAST: Final = 8  # in flight, however few descriptors there are


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a store in US dollars; a GiB is 2**30 bytes.

    get_usd_per_million   of GETs and HEADs
    put_usd_per_million   of PUTs, parts of uploads among them
    list_usd_per_million  of pages of listings
    read_usd_per_gib      of bytes that leave the store: retrieval, plus egress if they leave its region
    write_usd_per_gib     of bytes that are written
    """

    get_usd_per_million: float = 0.0
    put_usd_per_million: float = 0.0
    list_usd_per_million: float = 0.0
    read_usd_per_gib: float = 0.0
    write_usd_per_gib: float = 0.0

    @property
    def gap_bytes(self) -> float:
        """Bytes that cost as much as a GET; infinite if bytes are free."""
        if not self.read_usd_per_gib:
            return math.inf
        return self.get_usd_per_million / 1e6 / self.read_usd_per_gib * GIB

    def usd(
        self, *, gets: int = 0, puts: int = 0, lists: int = 0, bytes_read: int = 0, bytes_written: int = 0
    ) -> float:
        """Price of these requests and bytes in US dollars."""
        requests = gets * self.get_usd_per_million + puts * self.put_usd_per_million + lists * self.list_usd_per_million
        payload = bytes_read * self.read_usd_per_gib + bytes_written * self.write_usd_per_gib
        return requests / 1e6 + payload / GIB


FREE: Final = Prices()


class Cost(NamedTuple):
    """Expected cost of an operation on a store.

    seconds  until the last byte arrives, without decoding
    usd      for requests and bytes
    """

    seconds: float
    usd: float


@dataclass(frozen=True, slots=True)
class RequestCosts:
    """Costs of a client and a store.

    name                    of the store
    latency_s               median time from a request to the first byte of its answer
    connection_bytes_per_s  throughput of one connection, once bytes flow
    network_bytes_per_s     throughput of all of them together
    processor_s             of this process for each GET: signing, sending, receiving, planning, delivering
    processor_s_per_byte    of this process for each byte: TLS, copies
    prices                  of the store
    """

    name: str
    latency_s: float
    connection_bytes_per_s: float
    network_bytes_per_s: float
    processor_s: float
    processor_s_per_byte: float
    prices: Prices = FREE

    @property
    def requests_max(self) -> int:
        """Requests in flight of a take, which needs all its bytes at once: as many as keep a processor busy."""
        return _power_of_two(LATE_FACTOR * self.latency_s / self.processor_s)

    @property
    def requests_start(self) -> int:
        """Initial requests in flight of a scan: as many as saturate the network. The scan may raise the number later.

        At most half of `requests_max`, which leaves room for takes beside it.
        """
        read_s = self.latency_s + SCAN_READ_BYTES / self.connection_bytes_per_s
        filling = _power_of_two(self.network_bytes_per_s * read_s / SCAN_READ_BYTES)
        return max(1, min(filling, self.requests_max // 2))

    @property
    def take_gap_bytes(self) -> int:
        """The gap of a take that costs as much to read as the GET that it saves.

        The GET costs its processor time and its share of the latency, the gap costs processor time and network time.
        The gap never costs more money than the GET.
        """
        get_s = self.processor_s + self.latency_s / self.requests_max
        gap_bytes = get_s / (self.processor_s_per_byte + 1 / self.network_bytes_per_s)
        return _power_of_two(min(gap_bytes, self.prices.gap_bytes))

    @property
    def scan_gap_bytes(self) -> int:
        """The gap of a scan: half of the bytes that its connection transfers during the latency of another GET.

        A scan has few connections and needs their bytes in order, so connection time and money count.
        """
        return _power_of_two(min(self.latency_s * self.connection_bytes_per_s / 2, self.prices.gap_bytes))

    @property
    def read_bytes_max(self) -> int:
        """The longest read. In a longer one latency is so small a part that two concurrent reads are faster."""
        return _power_of_two(self.latency_s * self.connection_bytes_per_s * (1 / LATENCY_SHARE_MAX - 1))

    def round_s(self, sizes_bytes: Sequence[int]) -> float:
        """Seconds until the answers of concurrent GETs are complete; 0 for none.

        The maximum of four times: the largest answer, all answers over the available connections (`requests_max`),
        the network, the processor.
        sizes_bytes  of the answers
        """
        return self.requests_s(len(sizes_bytes), sum(sizes_bytes), max(sizes_bytes)) if sizes_bytes else 0.0

    def requests_s(self, number: int, num_bytes: float, largest_bytes: float) -> float:
        """The same for `number` GETs of `num_bytes` together, the largest of which is known."""
        waiting_s = number * self.latency_s + num_bytes / self.connection_bytes_per_s
        return max(
            self.latency_s + largest_bytes / self.connection_bytes_per_s,
            waiting_s / self.requests_max,
            self.latency_s + num_bytes / self.network_bytes_per_s,
            self.latency_s + number * self.processor_s + num_bytes * self.processor_s_per_byte,
        )

    def of_reads(self, rounds: Sequence[Sequence[int]]) -> Cost:
        """Cost of GETs in rounds, each of which waits for the one before.

        rounds  bytes of the answers
        """
        seconds = sum(map(self.round_s, rounds))
        return Cost(seconds, self.prices.usd(gets=sum(map(len, rounds)), bytes_read=sum(map(sum, rounds))))

    def with_options(self, options: Mapping[str, str]) -> RequestCosts:
        """These costs changed by `options`: `store_costs` selects other base costs, `COST_OPTIONS` single values.

        options  lower-case names to decimal texts; other names are ignored
        Raises `UsageError` for an unknown store, and for a value that is not a number (of at least 0 for a price, above
        0 for all else).
        """
        base = costs_of(options["store_costs"]) if "store_costs" in options else self
        times, prices = dict[str, Any](), dict[str, Any]()
        for name, (field_name, unit) in COST_OPTIONS.items():
            if name in options:
                is_price = field_name in _PRICES
                value = _number(name, options[name], may_be_zero=is_price)
                (prices if is_price else times)[field_name] = value * unit
        if not times and not prices:
            return base
        return replace(base, **times, prices=replace(base.prices, **prices))

    def options(self) -> dict[str, str]:
        """The options with which `with_options` returns these costs, from any base costs."""
        texts = {}
        for name, (field_name, unit) in COST_OPTIONS.items():
            value = getattr(self.prices if field_name in _PRICES else self, field_name)
            texts[name] = f"{value / unit:.6g}"
        return texts


_PRICES: Final = frozenset(field.name for field in fields(Prices))
COST_OPTIONS: Final[Mapping[str, tuple[str, float]]] = {
    "latency_ms": ("latency_s", 1e-3),
    "connection_mb_per_s": ("connection_bytes_per_s", 1e6),
    "network_mb_per_s": ("network_bytes_per_s", 1e6),
    "processor_us": ("processor_s", 1e-6),
    "processor_ns_per_byte": ("processor_s_per_byte", 1e-9),
    **{field.name: (field.name, 1.0) for field in fields(Prices)},
}
"""Storage options for a store's costs: the field that each of them sets, and its unit."""


def has_cost_options(options: Mapping[str, str]) -> bool:
    """Whether `options` has any that `RequestCosts.with_options` uses."""
    return "store_costs" in options or any(name in options for name in COST_OPTIONS)


def _number(name: str, text: str, *, may_be_zero: bool) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isfinite(value) and (value > 0 or (value == 0 and may_be_zero)):
        return value
    least = "of at least 0" if may_be_zero else "above 0"
    raise UsageError(f"storage option {name}: expected a number {least}, found {text!r}")


# S3 in the same region, 10 Gbit/s, TLS: 85 MB/s of a connection is Amazon's own figure. us-east-1; docs/costs.md.
SIGNED_GETS: Final = RequestCosts(
    name="s3",
    latency_s=0.030,
    connection_bytes_per_s=85e6,
    network_bytes_per_s=1.25e9,
    processor_s=120e-6,
    processor_s_per_byte=1.4e-9,
    prices=Prices(get_usd_per_million=0.4, put_usd_per_million=5.0, list_usd_per_million=5.0),
)
# The same through aiobotocore, which takes a millisecond for a GET.
CLIENT_GETS: Final = replace(SIGNED_GETS, processor_s=1000e-6)
# Directory buckets, in the same zone; they need aiobotocore. A GiB costs as much as 20,000 GETs.
EXPRESS_GETS: Final = replace(
    CLIENT_GETS,
    name="s3-express",
    latency_s=0.005,
    prices=Prices(
        get_usd_per_million=0.03,
        put_usd_per_million=1.13,
        list_usd_per_million=1.13,
        read_usd_per_gib=0.0006,
        write_usd_per_gib=0.0032,
    ),
)
GCS_GETS: Final = replace(SIGNED_GETS, name="gcs", latency_s=0.050)  # has the prices of S3
AZURE_GETS: Final = replace(
    SIGNED_GETS,
    name="azure",
    latency_s=0.020,
    prices=Prices(get_usd_per_million=0.44, put_usd_per_million=5.5, list_usd_per_million=5.5),
)
# A self-hosted server in the same network.
MINIO_GETS: Final = replace(SIGNED_GETS, name="minio", latency_s=0.005, prices=FREE)

STORE_COSTS: Final[Mapping[str, RequestCosts]] = {
    costs.name: costs for costs in (SIGNED_GETS, EXPRESS_GETS, GCS_GETS, AZURE_GETS, MINIO_GETS)
}
"""Stores with known costs, by their name in the option `store_costs`."""


def costs_of(store: str | RequestCosts) -> RequestCosts:
    """The costs of a store by its name. Raises `UsageError` for an unknown one."""
    if isinstance(store, RequestCosts):
        return store
    costs = STORE_COSTS.get(store)
    if costs is None:
        raise UsageError(f"expected a store with known costs ({', '.join(STORE_COSTS)}), found {store!r}")
    return costs


def requests_within_descriptors(requests: int, descriptors: int | None = None) -> int:
    """`requests`, limited so that their connections leave a process enough file descriptors for all else.

    descriptors  as for `descriptors_max`
    """
    return min(requests, max(REQUESTS_LEAST, int(descriptors_max(descriptors) * DESCRIPTOR_SHARE)))


def _power_of_two(value: float) -> int:
    """The nearest power of two, by ratio; 1 for smaller values."""
    return 1 << round(math.log2(max(1.0, value)))
