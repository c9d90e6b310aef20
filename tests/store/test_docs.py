"""`docs/storage.md` names the options that there are, with their defaults."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from lance_io.limits import MIB
from lance_io.store import storage_options
from lance_io.store.api import CLOUD, LOCAL, StoreProfile
from lance_io.store.cloud import client_options
from lance_io.store.s3 import bucket_options
from lance_io.store.upload import PART_BYTES, PARTS_IN_FLIGHT

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "storage.md").read_text()
NAMED = {name for row in re.findall(r"(?m)^\| (`[^|]*) \|", DOCUMENT) for name in re.findall(r"`(\w+)`", row)}


def test_every_number_of_a_profile_is_named() -> None:
    assert {field.name for field in fields(StoreProfile)} - {"name"} <= NAMED


def test_every_option_of_s3_is_named_and_no_other() -> None:
    source = "".join(Path(module.__file__).read_text() for module in (bucket_options, client_options))
    read = set(re.findall(r'(?:found|_endpoint)\.(?:text|switch|seconds|whole_number)\("(\w+)"', source))
    profile = {field.name for field in fields(StoreProfile)} | {"block_size", "durability"}
    assert NAMED - profile == read


def test_defaults() -> None:
    parsed = bucket_options.parse_s3("bucket", {}, {})
    assert (parsed.connect_timeout_s, parsed.request_timeout_s, parsed.download_retries) == (5, 30, None)
    assert (parsed.retry.attempts_max - 1, parsed.retry.total_s, parsed.user_agent) == (7, 120, "lance_io")
    assert storage_options.durability({}) == "full"
    assert (LOCAL.hedge_percent, CLOUD.hedge_percent, LOCAL.split_bytes, CLOUD.split_bytes) == (0, 5, 8 * MIB, 16 * MIB)
    assert (LOCAL.requests_start, LOCAL.requests_max, CLOUD.requests_start, CLOUD.requests_max) == (8, 32, 64, 512)
    assert (PART_BYTES, PARTS_IN_FLIGHT) == (16 * MIB, 8)
