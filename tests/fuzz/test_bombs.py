"""Small files that decode to much give right rows or an error by name, and never end the process.

`LANCE_IO_BOMBS=full` makes them as large as a campaign has them, with 512 MiB of address space to read them in.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.fuzz.bombs import BOMBS, make_bomb, read_bomb
from tests.fuzz.campaign import ROOT

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

IS_FULL = os.environ.get("LANCE_IO_BOMBS") == "full"
EXTRA_MIB = 512
QUICK_SECONDS = 10  # of processor time: what counts, takes a row, or gives the first batch
CASES = [(name, version) for name, (*_, versions) in BOMBS.items() for version in versions]


def read_apart(path: Path, extra_mib: int) -> list[dict[str, Any]]:
    """What a process of its own finds with so much memory; it must come to its end by itself."""
    command = [sys.executable, "-m", "tests.fuzz.bombs", str(path), str(extra_mib)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"ended with {done.returncode} after {done.stdout}: {done.stderr[-2000:]}"
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(("name", "version"), CASES)
def test_a_bomb_gives_right_rows_or_an_error_by_name(tmp_path: Path, name: str, version: str) -> None:
    path = tmp_path / "bomb.lance"
    make_bomb(path, name, version, is_full=IS_FULL)
    found = read_apart(path, EXTRA_MIB)
    print(name, version, found)
    assert {one["way"] for one in found} == {"count", "take", "first", "scan"}
    assert not any(one.get("error") in ("FormatError", "UnsupportedError") for one in found), "nothing is wrong with it"
    assert "found" in found[0], "counting decodes nothing"
    if IS_FULL:
        assert all(one["seconds"] < QUICK_SECONDS for one in found[:3])
        return
    expected = json.loads(json.dumps(read_bomb(path, None)))
    assert [one.get("found") for one in found] == [one["found"] for one in expected]


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("zstd", "2.1"),
        ("lz4", "2.2"),
        ("list", "2.2"),
        ("list of lists", "2.1"),
        ("constant", "2.2"),
        pytest.param(
            "list",
            "2.0",
            marks=pytest.mark.xfail(reason="glibc ends a process whose new thread finds no memory for its own data"),
        ),
    ],
)
def test_memory_that_is_not_there_is_a_memory_error(tmp_path: Path, name: str, version: str) -> None:
    """Neither the end of the process nor a finding about the file."""
    path = tmp_path / "bomb.lance"
    make_bomb(path, name, version, is_full=False)
    for extra_mib in (1, 6, 12, 24):
        errors = [one["error"] for one in read_apart(path, extra_mib) if "error" in one]
        assert set(errors) <= {"MemoryError", "ArrowMemoryError", "_ArrayMemoryError"}, (extra_mib, errors)
