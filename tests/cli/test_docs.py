"""`docs/cli.md` names what there is; the code of the pages on writing, and the tour's, runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from lance_io.cli.main import app

CHECKOUT = Path(__file__).resolve().parents[2]
WRITING = [(CHECKOUT / "docs" / f"{name}.md").read_text() for name in ("writing", "changing", "commits", "upkeep")]
CLI = (CHECKOUT / "docs" / "cli.md").read_text()
TOUR = (CHECKOUT / "docs" / "tour.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", "".join([*WRITING, TOUR]), flags=re.DOTALL)
BLOCKS = [code for code in PYTHON if "write" in code and "spark" not in code]  # that one: tests/spark/test_pipeline.py


@pytest.mark.parametrize("block", range(len(BLOCKS)))
def test_blocks_run(block: int, tmp_path: Path) -> None:
    assert len(BLOCKS) == 5
    code = BLOCKS[block].replace("/tmp/", f"{tmp_path}/")
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_command_is_described() -> None:
    described = [name.replace("-", "_") for name in re.findall(r"(?m)^    lance-io ([\w-]+) ", CLI)]
    assert {one.callback.__name__ for one in app.registered_commands if one.callback} <= set(described)
