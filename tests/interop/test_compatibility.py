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
