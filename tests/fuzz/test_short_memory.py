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


NUM_PROCESSES = 4


@pytest.mark.parametrize("part", range(NUM_PROCESSES))
def test_a_write_without_memory_is_a_memory_error(tmp_path: Path, part: int) -> None:
    names = list(TABLES)[part::NUM_PROCESSES]
    command = [sys.executable, "-m", "tests.fuzz.short_memory", str(tmp_path), *names]
    environment = os.environ | ENVIRONMENT
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"ended with {done.returncode} after {done.stdout}: {done.stderr[-2000:]}"
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["name"] for answer in answers] == names
    for answer in answers:
        errors = set(answer["errors"]) - {None}
        assert errors, f"no write of {answer['name']} was short of memory"
        assert errors <= NO_MEMORY, answer
        assert answer["is_same"], answer
