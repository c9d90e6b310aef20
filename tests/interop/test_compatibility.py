"""The compatibility page is what is found when everything on it is tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.compatibility import PAGE, PEER_DATASETS, made_page

if TYPE_CHECKING:
    from pathlib import Path


def test_the_page_is_what_was_tried(tmp_path: Path) -> None:
    """When this fails, run `python scripts/compatibility.py` and look at what changed."""
    page = made_page(tmp_path, PEER_DATASETS)
    assert page.splitlines() == PAGE.read_text().splitlines()
    assert "differs" not in page
    read_by_pylance = [line for line in page.splitlines() if line.startswith("|") and line.split(" | ")[2:3] == ["yes"]]
    assert len(read_by_pylance) > 10
    assert not [line for line in read_by_pylance if "FormatError" in line]
