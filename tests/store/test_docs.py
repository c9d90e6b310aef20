"""`docs/storage.md` and `docs/clouds.md` name the options that there are, with their defaults."""

from __future__ import annotations

import re
from pathlib import Path

from lance_io.limits import MIB
from lance_io.store import storage_options
from lance_io.store.azure import container_options
from lance_io.store.cloud import client_options
from lance_io.store.costs import COST_OPTIONS
from lance_io.store.gcs import gcs_options
from lance_io.store.profile import CLOUD, LOCAL, PROFILE_OPTIONS
from lance_io.store.s3 import bucket_options
from lance_io.store.upload import PART_BYTES, PARTS_IN_FLIGHT

DOCS = Path(__file__).resolve().parents[2] / "docs"
DOCUMENT = "\n".join((DOCS / name).read_text() for name in ("storage.md", "clouds.md"))
READ = r'(?:source|_endpoint)\.(?:text|switch|seconds|whole_number)\("(\w+)"'


def named(*sections: str) -> set[str]:
    """The options in the first columns of the tables of these sections."""
    return {
        name
        for section in sections
        for row in re.findall(r"(?m)^\| (`[^|]*) \|", section)
        for name in re.findall(r"`(\w+)`", row)
    }


SECTIONS = {text.partition("\n")[0]: text for text in DOCUMENT.split("\n## ")}
GENERAL = {*PROFILE_OPTIONS, *COST_OPTIONS, "store_costs", "durability"}
NAMED = named(SECTIONS["Options"])


def test_every_number_of_a_profile_is_named() -> None:
    assert NAMED == GENERAL


def test_every_option_of_s3_is_named_and_no_other() -> None:
    source = "".join(Path(module.__file__).read_text() for module in (bucket_options, client_options))
    read = {*re.findall(READ, source), *bucket_options.CONTAINER_OPTIONS}
    assert named(SECTIONS["S3"]) == read - {"fast_get"} and "`fast_get`" in SECTIONS["S3"]  # it has no effect any more


def test_every_option_of_azure_is_named_and_no_other() -> None:
    read = set(re.findall(READ, Path(container_options.__file__).read_text()))
    assert read <= named(SECTIONS["Azure"])
    aliases = {alias for names in container_options._ALIASES.values() for alias in names}
    assert not named(SECTIONS["Azure"]) - aliases


def test_every_option_of_google_is_named_and_no_other() -> None:
    read = set(re.findall(READ, Path(gcs_options.__file__).read_text()))
    aliases = {alias for names in gcs_options._ALIASES.values() for alias in names}
    assert read | aliases == named(SECTIONS["Google Cloud Storage"])


def test_defaults() -> None:
    parsed = bucket_options.parse_s3("bucket", {}, {})
    assert (parsed.connect_timeout_s, parsed.request_timeout_s, parsed.download_retries) == (5, 30, None)
    assert (parsed.retry.attempts_max - 1, parsed.retry.total_s, parsed.user_agent) == (7, 120, "lance_io")
    assert storage_options.durability({}) == "full"
    assert (LOCAL.hedge_percent, CLOUD.hedge_percent, LOCAL.split_bytes, CLOUD.split_bytes) == (0, 5, 8 * MIB, 16 * MIB)
    assert (LOCAL.requests_start, LOCAL.requests_max, CLOUD.requests_start, CLOUD.requests_max) == (8, 32, 64, 512)
    assert (PART_BYTES, PARTS_IN_FLIGHT) == (16 * MIB, 8)
