"""What a request costs on a store in the cloud, and the numbers that follow: gaps, sizes of reads, requests in flight.

One model for all of them. A GET of n bytes takes

    latency + n / (bytes per second of a connection)        until its last byte is here, and
    processor time per GET + n x processor time per byte    of this process, however many are in flight.

Latency is shared by all that is in flight, processor time by nobody. Each property of `RequestCosts` says what follows
for one number of a `StoreProfile`; the powers of two next to the results are what the profiles have. Measured values
come from `python -m benchmarks.latency`; docs/decisions/004-concurrency.md has the reasons.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from lance_io.limits import MIB
from lance_io.records import dataclass
from lance_io.store.descriptors import descriptors_max

LATE_FACTOR: Final = 2.0  # answers come unevenly: filled for the median, a pipeline runs dry half of the time
LATENCY_SHARE_MAX: Final = 1 / 8  # of the time that the longest read takes
SCAN_READ_BYTES: Final = 1 * MIB  # what a scan reads at once where no neighbours share its read
DESCRIPTOR_SHARE: Final = 3 / 4  # of a process's file descriptors, for connections to one bucket
REQUESTS_LEAST: Final = 8  # in flight, however few descriptors there are


@dataclass(frozen=True, slots=True)
class RequestCosts:
    """A client and a store, as far as costs go.

    latency_s               from a request to the first byte of its answer: the median
    connection_bytes_per_s  what one connection brings, once bytes flow
    network_bytes_per_s     what all of them bring together
    processor_s             of this process for each GET: signing, sending, receiving, planning, delivering
    processor_s_per_byte    and for each byte: TLS, copies
    """

    latency_s: float
    connection_bytes_per_s: float
    network_bytes_per_s: float
    processor_s: float
    processor_s_per_byte: float

    @property
    def requests_max(self) -> int:
        """In flight at once, for a take, which needs everything at once: as many as keep a processor busy."""
        return _power_of_two(LATE_FACTOR * self.latency_s / self.processor_s)

    @property
    def requests_start(self) -> int:
        """In flight for a scan until it is seen that it could do with more: as many as fill the network.

        At most half of all, so that takes find room beside it.
        """
        read_s = self.latency_s + SCAN_READ_BYTES / self.connection_bytes_per_s
        filling = _power_of_two(self.network_bytes_per_s * read_s / SCAN_READ_BYTES)
        return max(1, min(filling, self.requests_max // 2))

    @property
    def take_gap_bytes(self) -> int:
        """The gap of a take that costs as much to read as the GET that it saves.

        The GET costs its processor time and its share of the latency, the gap processor time and the network's.
        """
        get_s = self.processor_s + self.latency_s / self.requests_max
        return _power_of_two(get_s / (self.processor_s_per_byte + 1 / self.network_bytes_per_s))

    @property
    def scan_gap_bytes(self) -> int:
        """The gap of a scan: half of what its connection would bring while another GET waits for its first byte.

        A scan has few connections and needs their bytes in order, so it is their time that counts.
        """
        return _power_of_two(self.latency_s * self.connection_bytes_per_s / 2)

    @property
    def read_bytes_max(self) -> int:
        """The longest read: of a longer one, latency is so small a part that two side by side are better."""
        return _power_of_two(self.latency_s * self.connection_bytes_per_s * (1 / LATENCY_SHARE_MAX - 1))


# S3 in the same region, 10 Gbit/s, TLS: 85 MB/s of a connection is Amazon's own figure.
SIGNED_GETS: Final = RequestCosts(
    latency_s=0.030,
    connection_bytes_per_s=85e6,
    network_bytes_per_s=1.25e9,
    processor_s=120e-6,
    processor_s_per_byte=1.4e-9,
)
# The same through aiobotocore, which needs a millisecond for a GET.
CLIENT_GETS: Final = replace(SIGNED_GETS, processor_s=1000e-6)


def requests_within_descriptors(requests: int, descriptors: int | None = None) -> int:
    """At most so many in flight that their connections leave a process enough file descriptors for all else.

    descriptors  as for `descriptors_max`
    """
    return min(requests, max(REQUESTS_LEAST, int(descriptors_max(descriptors) * DESCRIPTOR_SHARE)))


def _power_of_two(value: float) -> int:
    """The nearest one, by ratio."""
    return 1 << max(0, round(math.log2(value)))
