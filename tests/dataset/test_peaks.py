"""How much memory calls take of values that compress well, each in a process of its own.

`LANCE_IO_PEAKS=full` makes tables as large as a campaign has them, of every file version, and more calls.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

CHECKOUT = Path(__file__).resolve().parents[2]
IS_FULL = os.environ.get("LANCE_IO_PEAKS") == "full"
LIMIT_MIB = 128 if IS_FULL else 64
SCAN_MIB = 320
DEFAULT_SCAN_MIB = 5 * 64 + 128  # batches of the default: given, next, being joined, and two being decoded
FILTERED_MIB = 64  # rows that pass wait for their batch once more
MORE_MIB = 128
CHANGE_MIB = 256
READS = (
    "scan",
    "scan of 8 rows a batch",
    "scan on a loop",
    "scan with a filter",
    "scan with a filter of values",
    "count_rows with a filter",
    "Spark task",
)
BLOBS = ("scan of blobs as bytes", "scan of blobs on a loop", "take of blobs")
TAKES = ("take", "take in no order")
CHANGES = ("update", "merge", "compaction", "new column")
OF_ALL_VERSIONS = ("scan", "count_rows with a filter", "merge")
EVERY_DAY = ("scan of 8 rows a batch", "Spark task", "take in no order", "merge")


class Values(NamedTuple):
    """The values of a table: how many, and MiB of each."""

    kind: str
    count: int
    mib: int
    version: str

    def __str__(self) -> str:
        return f"{self.count} {self.kind} of {self.mib} MiB, {self.version}"


def tables() -> list[Values]:
    if not IS_FULL:
        return [Values("texts", 480, 1, "2.1"), Values("texts", 8, 100, "2.1")]
    texts = [Values("texts", *size, version) for version in ("2.1", "2.0", "2.2") for size in ((800, 1), (12, 100))]
    return [*texts, Values("blobs", 400, 1, "2.1"), Values("blobs", 12, 100, "2.1")]


def calls(values: Values) -> tuple[str, ...]:
    if not IS_FULL:
        return EVERY_DAY if values.mib == 1 else ("take in no order", "new column")
    if values.kind == "blobs":
        return BLOBS
    if values.version != "2.1":
        return OF_ALL_VERSIONS
    asked = ("scan of 8 rows a batch",) if values.mib > 1 else ()  # which is kept to the row
    return tuple(call for call in (*READS, *TAKES, *CHANGES) if call not in asked)


def at_most_mib(values: Values, call: str, given_mib: int) -> int:
    """What a call may take above the opened table."""
    if call in TAKES or call == "take of blobs":
        return given_mib + MORE_MIB
    if call in CHANGES:
        return LIMIT_MIB + CHANGE_MIB + 2 * values.mib
    if values.mib > 1:
        return 3 * values.mib + MORE_MIB
    if "filter" in call:
        return DEFAULT_SCAN_MIB + FILTERED_MIB
    return DEFAULT_SCAN_MIB if call in ("scan", "scan on a loop") else SCAN_MIB


def run(*words: object) -> str:
    command = [sys.executable, "-m", "tests.dataset.peaks", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=CHECKOUT, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Values], str]:
    """Where a table is; each is made once, by another process."""

    @cache
    def make(values: Values) -> str:
        uri = str(tmp_path_factory.mktemp("peaks") / "t")
        run("make", uri, *values)
        return uri

    return make


@pytest.mark.parametrize(("values", "call"), [(values, call) for values in tables() for call in calls(values)], ids=str)
def test_peaks(
    made: Callable[[Values], str],
    tmp_path: Path,
    values: Values,
    call: str,
    request: pytest.FixtureRequest,
) -> None:
    """A scan, a take and a change hold what they may, whatever the values are compressed to."""
    uri = made(values)
    if call in CHANGES:
        uri = str(shutil.copytree(uri, tmp_path / "t"))
    found = json.loads(run(call, uri, values.count, LIMIT_MIB))
    at_most = at_most_mib(values, call, found["given"])
    request.node.user_properties.append(("measured", f"{values} | {call} | {found['grown']:,} MiB | {at_most:,} MiB"))
    if call in (*READS, *TAKES, "update", "merge"):
        assert found["rows"] == values.count
    if call in TAKES:
        assert found["given"] >= values.count * values.mib
    assert found["grown"] <= at_most
