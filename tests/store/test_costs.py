"""The model of what a request costs, the numbers that follow from it, and what descriptors allow."""

from __future__ import annotations

import math
import resource
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_io.limits import KIB, MIB
from lance_io.store.api import CLOUD, SLOW_CLIENT
from lance_io.store.costs import CLIENT_GETS, SIGNED_GETS, RequestCosts, requests_within_descriptors
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
