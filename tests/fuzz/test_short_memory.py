"""A write that finds too little memory is a `MemoryError`, and the process goes on writing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.fuzz.campaign import ROOT
from tests.fuzz.short_memory import ENVIRONMENT, TABLES

if TYPE_CHECKING:
    from pathlib import Path

NO_MEMORY = {"MemoryError", "ArrowMemoryError", "_ArrayMemoryError"}


@pytest.mark.parametrize("name", TABLES)
def test_a_write_without_memory_is_a_memory_error(tmp_path: Path, name: str) -> None:
    command = [sys.executable, "-m", "tests.fuzz.short_memory", name, str(tmp_path)]
    environment = os.environ | ENVIRONMENT
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"ended with {done.returncode} after {done.stdout}: {done.stderr[-2000:]}"
    *short, last = [json.loads(line) for line in done.stdout.splitlines()]
    errors = {answer["error"] for answer in short} - {None}
    assert errors, "no write was short of memory"
    assert errors <= NO_MEMORY, short
    assert last == {"is_same": True}
