"""`docs/storage.md` names the options that there are, with their defaults."""

from __future__ import annotations

import re
from pathlib import Path

from lance_io.limits import MIB
from lance_io.store import storage_options
from lance_io.store.api import CLOUD, LOCAL, PROFILE_OPTIONS
from lance_io.store.costs import COST_OPTIONS
from lance_io.store.s3 import bucket_options
from lance_io.store.upload import PART_BYTES, PARTS_IN_FLIGHT

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "storage.md").read_text()
NAMED = {name for row in re.findall(r"(?m)^\| (`[^|]*) \|", DOCUMENT) for name in re.findall(r"`(\w+)`", row)}


def test_every_number_of_a_profile_is_named() -> None:
    assert {*PROFILE_OPTIONS, *COST_OPTIONS, "store_costs"} <= NAMED


def test_every_option_of_s3_is_named_and_no_other() -> None:
    source = Path(bucket_options.__file__).read_text()
    read = set(re.findall(r'(?:found|_endpoint)\.(?:text|switch|seconds|whole_number)\("(\w+)"', source))
    assert NAMED - {*PROFILE_OPTIONS, *COST_OPTIONS, "store_costs", "durability"} == read


def test_defaults() -> None:
    parsed = bucket_options.parse_s3("bucket", {}, {})
    assert (parsed.connect_timeout_s, parsed.request_timeout_s, parsed.download_retries) == (5, 30, None)
    assert (parsed.retry.attempts_max - 1, parsed.retry.total_s, parsed.user_agent) == (7, 120, "lance_io")
    assert storage_options.durability({}) == "full"
    assert (LOCAL.hedge_percent, CLOUD.hedge_percent, LOCAL.split_bytes, CLOUD.split_bytes) == (0, 5, 8 * MIB, 16 * MIB)
    assert (LOCAL.requests_start, LOCAL.requests_max, CLOUD.requests_start, CLOUD.requests_max) == (8, 32, 64, 512)
    assert (PART_BYTES, PARTS_IN_FLIGHT) == (16 * MIB, 8)
