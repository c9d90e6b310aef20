"""The crowd of `tests/interop/test_crowd.py` on a bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts import crowd
from tests.interop.test_crowd import MINUTES, SMALL

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_nothing_is_lost_in_a_crowd(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["--minutes", MINUTES] if MINUTES else SMALL
    status = crowd.main([*arguments, "--store", "minio", "--folder", str(tmp_path / "crowd")])
    assert status == 0, capfd.readouterr().out
