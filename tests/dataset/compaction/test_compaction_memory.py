"""What a process grows by while it compacts: not much more than it may, whatever the size of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scripts.compaction_memory import MIB, make_table, measure

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 48 * MIB


@pytest.mark.parametrize("rows", ["vectors", "blobs"])
def test_a_compaction_keeps_to_its_limit(tmp_path: Path, rows: str) -> None:
    """The table has several times as many bytes."""
    folder = str(tmp_path / "t.lance")
    make_table(folder, rows, 256 * MIB, deletes=True)
    found = measure(folder, LIMIT, None)
    assert found["added"] == 1
    assert not found["pandas"]  # which takes 40 MB
    assert found["grown_bytes"] < LIMIT + 80 * MIB  # modules that are loaded, and what the allocator keeps
