"""`docs/cli.md` names what there is."""

from __future__ import annotations

import re
from pathlib import Path

from lance_io.cli.main import app

CHECKOUT = Path(__file__).resolve().parents[2]
CLI = (CHECKOUT / "docs" / "cli.md").read_text()


def test_every_command_is_described() -> None:
    described = [name.replace("-", "_") for name in re.findall(r"(?m)^    lance-io ([\w-]+) ", CLI)]
    assert {one.callback.__name__ for one in app.registered_commands if one.callback} <= set(described)
