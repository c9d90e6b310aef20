"""The model of what a request costs, the numbers that follow from it, and what descriptors allow."""

from __future__ import annotations

import math
import resource
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_io.errors import UsageError
from lance_io.limits import GIB, KIB, MIB
from lance_io.store.costs import (
    CLIENT_GETS,
    EXPRESS_GETS,
    SIGNED_GETS,
    STORE_COSTS,
    Prices,
    RequestCosts,
    costs_of,
    requests_within_descriptors,
)
from lance_io.store.profile import CLOUD, LOCAL, S3_EXPRESS, SLOW_CLIENT
from lance_io.store.s3.bucket import open_s3


def test_the_numbers_of_the_profiles() -> None:
    """As the documentation has them: a change of the model that moves one of them is meant."""
    numbers = [
        (one.requests_start, one.requests_max, one.take_gap_bytes, one.scan_gap_bytes, one.split_bytes)
        for one in (CLOUD, SLOW_CLIENT)
    ]
    assert numbers == [
        (64, 512, 64 * KIB, 1 * MIB, 16 * MIB),
        (32, 64, 512 * KIB, 1 * MIB, 16 * MIB),
    ]


@pytest.mark.parametrize("costs", [SIGNED_GETS, CLIENT_GETS])
def test_each_number_is_the_best_power_of_two(costs: RequestCosts) -> None:
    """Simulated from the costs alone: twice or half as much is worse."""

    def of_gap(gap_bytes: int, in_flight: int) -> tuple[float, float]:
        """Seconds that reading the gap costs, and those of another GET."""
        reading_s = gap_bytes * costs.processor_s_per_byte + gap_bytes / costs.network_bytes_per_s
        return reading_s, costs.processor_s + costs.latency_s / in_flight

    reading_s, asking_s = of_gap(costs.take_gap_bytes, costs.requests_max)
    assert 1 / math.sqrt(2) <= reading_s / asking_s <= math.sqrt(2)
    busy_s = costs.requests_max * costs.processor_s  # for a round of GETs, which takes twice the median latency
    assert 1 / math.sqrt(2) <= busy_s / (2 * costs.latency_s) <= math.sqrt(2)
    bytes_s = costs.read_bytes_max / costs.connection_bytes_per_s
    assert 0.09 <= costs.latency_s / (costs.latency_s + bytes_s) <= 0.18


@given(st.floats(0.1e-3, 1.0), st.floats(10e-6, 5e-3))
def test_a_scan_leaves_room_for_takes(latency_s: float, processor_s: float) -> None:
    costs = replace(SIGNED_GETS, latency_s=latency_s, processor_s=processor_s)
    assert 1 <= costs.requests_start <= max(1, costs.requests_max // 2)


# -- money -----------------------------------------------------------------------------------------------------------


def test_gaps_cost_no_more_than_the_request_that_they_save() -> None:
    """On S3 Express a GiB costs as much as 20,000 GETs, so 52 KiB as much as one; inside a region S3 has them free."""
    assert EXPRESS_GETS.prices.gap_bytes == pytest.approx(GIB / 20_000)
    assert (S3_EXPRESS.take_gap_bytes, S3_EXPRESS.scan_gap_bytes) == (64 * KIB, 64 * KIB)
    assert (S3_EXPRESS.requests_start, S3_EXPRESS.requests_max) == (32, 64)
    free = replace(EXPRESS_GETS, prices=Prices())
    assert (free.take_gap_bytes, free.scan_gap_bytes) == (512 * KIB, 256 * KIB)
    assert SIGNED_GETS.prices.gap_bytes == math.inf
    # Out of the region, at 2 cents a GiB: 0.4e-6 dollars are 21,475 bytes; from the network of a cloud, at 9: 4,772.
    for usd, gap_bytes in (("0.02", 16 * KIB), ("0.09", 4 * KIB)):
        profile = CLOUD.with_options({"read_usd_per_gib": usd})
        assert (profile.take_gap_bytes, profile.scan_gap_bytes) == (gap_bytes, gap_bytes)
        assert replace(profile, take_gap_bytes=64 * KIB, scan_gap_bytes=1 * MIB, costs=CLOUD.costs) == CLOUD
    assert CLOUD.with_options({"get_usd_per_million": "0", "read_usd_per_gib": "1"}).take_gap_bytes == 1


def test_time_of_a_round() -> None:
    """By hand, each bound by another of the four."""
    assert SIGNED_GETS.round_s([]) == 0
    assert SIGNED_GETS.round_s([8_500_000]) == pytest.approx(0.030 + 0.100)  # its connection
    assert SIGNED_GETS.round_s([0] * 1024) == pytest.approx(0.030 + 1024 * 120e-6)  # the processor
    assert SIGNED_GETS.round_s([16 * MIB] * 64) == pytest.approx(0.030 + 64 * 120e-6 + GIB * 1.4e-9)
    idle = replace(SIGNED_GETS, processor_s=1e-6, processor_s_per_byte=1e-12)
    assert idle.round_s([16 * MIB] * 64) == pytest.approx(0.030 + GIB / 1.25e9)  # the network
    few = replace(SIGNED_GETS, processor_s=1e-3, latency_s=0.100)  # 200 in flight, 256 as a power of two
    assert few.round_s([850_000] * 2560) == pytest.approx(
        max(0.100 + 2560 * 1e-3 + 2560 * 850_000 * 1.4e-9, 2560 * (0.1 + 0.01) / 256)
    )


def test_cost_of_reads() -> None:
    assert SIGNED_GETS.of_reads([]) == (0, 0)
    seconds, usd = SIGNED_GETS.of_reads([[100], [100, 8_500_000]])
    assert seconds == pytest.approx(0.030 + 120e-6 + 100 * 1.4e-9 + 0.130)
    assert usd == pytest.approx(3 * 0.4e-6)
    assert EXPRESS_GETS.of_reads([[GIB // 2], [GIB // 2]]).usd == pytest.approx(2 * 0.03e-6 + 0.0006)
    assert EXPRESS_GETS.prices.usd(puts=1000, lists=1000, bytes_written=GIB) == pytest.approx(2 * 0.00113 + 0.0032)
    assert STORE_COSTS["minio"].of_reads([[MIB]] * 7).usd == 0


def test_options_say_what_a_store_costs() -> None:
    assert CLOUD.with_options({"store_costs": "s3"}) == CLOUD
    for costs in STORE_COSTS.values():
        assert SIGNED_GETS.with_options({**costs.options(), "region": "x"}).options() == costs.options()
        assert SIGNED_GETS.with_options({"store_costs": costs.name}) is costs
    slow = CLOUD.with_options({"latency_ms": "60", "take_gap_bytes": "7"})
    assert (slow.requests_max, slow.take_gap_bytes, slow.tail_bytes) == (1024, 7, CLOUD.tail_bytes)
    assert CLOUD.with_options({"latency_ms": "60", "requests_max": "16"}).requests_start == 16
    local = LOCAL.with_options({"store_costs": "gcs"})  # its numbers are not of this model
    assert local == replace(LOCAL, costs=costs_of("gcs"))
    for options in ({"store_costs": "tape"}, {"latency_ms": "0"}, {"read_usd_per_gib": "-1"}, {"latency_ms": "nan"}):
        with pytest.raises(UsageError):
            CLOUD.with_options(options)


def test_what_buckets_cost_by_default() -> None:
    keys = {"access_key_id": "a", "secret_access_key": "b", "region": "us-east-1"}
    assert open_s3("bucket", keys).profile.costs == SIGNED_GETS
    assert open_s3("name--use1-az4--x-s3", keys).profile.costs == EXPRESS_GETS
    own = open_s3("bucket", {**keys, "endpoint": "https://minio.example"}).profile
    assert own == replace(open_s3("bucket", keys).profile, costs=STORE_COSTS["minio"])  # reads are planned as from S3


@pytest.mark.parametrize(
    ("requests", "descriptors", "expected"),
    [
        (512, 20_000, 512),
        (512, 1024, 512),  # what Linux gives
        (1024, 1024, 768),
        (512, 256, 192),  # what macOS gives
        (512, 4, 8),
        (4, 256, 4),
        (1024, resource.RLIM_INFINITY, 1024),
    ],
)
def test_descriptors_bound_what_is_in_flight(requests: int, descriptors: int, expected: int) -> None:
    assert requests_within_descriptors(requests, descriptors) == expected


def test_a_store_asks_for_the_descriptors_of_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"requests_max": "1024", "access_key_id": "a", "secret_access_key": "b"}
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (80, limits[1]))
    profile = open_s3("bucket", found).profile
    assert (profile.requests_start, profile.requests_max) == (60, 60)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100_000, limits[1]))
    assert open_s3("bucket", found).profile.requests_max == 1024
