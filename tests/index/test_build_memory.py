"""The memory of builds whose rows take many times their limit, each in a process of its own.

`LANCE_IO_BUILD_ROWS=50000000` makes tables as large as a campaign has them, of numbers and of texts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
NUM_ROWS = int(os.environ.get("LANCE_IO_BUILD_ROWS") or 0)
IS_FULL = NUM_ROWS > 0
LIMIT_MIB = 256 if IS_FULL else 16
MORE_MIB = 144  # beside the limit: pages of the new file that are encoded and written, and rows that are scanned
TEXTS_SHARE = 0.4  # of the rows, in a table of texts
CASES = [("numbers", "BTREE"), ("numbers", "BITMAP"), ("texts", "BTREE")] if IS_FULL else [("numbers", "BITMAP")]


def run(*words: object) -> str:
    command = [sys.executable, "-m", "tests.index.build_peaks", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=CHECKOUT, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize(("values", "kind"), CASES)
def test_a_build_takes_its_limit_and_a_little(
    tmp_path: Path, values: str, kind: str, request: pytest.FixtureRequest
) -> None:
    """Of distinct values, of which a BITMAP has as many bitmaps."""
    num_rows = round(NUM_ROWS * TEXTS_SHARE) if values == "texts" else NUM_ROWS
    num_rows = num_rows or 200_000
    uri = str(tmp_path / "t")
    run("make", uri, values, num_rows)
    measured = json.loads(run(kind, uri, LIMIT_MIB))
    line = f"{kind} of {num_rows:,} {values}, {measured['cpu_s']:.0f} s of processor time | build"
    at_most = LIMIT_MIB + MORE_MIB
    request.node.user_properties.append(("measured", f"{line} | {measured['grown']:,} MiB | {at_most:,} MiB"))
    assert measured["is_right"]
    assert measured["grown"] <= at_most
