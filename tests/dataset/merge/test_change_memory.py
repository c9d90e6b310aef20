"""What a process grows by while it updates rows or merges a stream: little more than it was allowed, of any table.

`LANCE_IO_CHANGE_MEMORY_MIB` is the size of the tables.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from scripts.change_memory import measure

if TYPE_CHECKING:
    from pathlib import Path

SIZE_MIB = int(os.environ.get("LANCE_IO_CHANGE_MEMORY_MIB", "96"))
FULL = 1024  # from here on every kind under both limits
BESIDE_MIB = 256  # what a writer fills, and the interpreter
CASES = [("update", "rows"), ("merge", "rows"), ("patch", "rows"), ("merge", "vectors"), ("merge", "blobs")]
MORE = [("update", "vectors"), ("update", "blobs"), ("patch", "vectors")]


@pytest.mark.parametrize("limit_mib", [64] if SIZE_MIB < FULL else [128, 512])
@pytest.mark.parametrize(("change", "kind"), CASES if SIZE_MIB < FULL else CASES + MORE)
def test_changes_keep_to_their_limit(tmp_path: Path, change: str, kind: str, limit_mib: int) -> None:
    found = measure(change, kind, SIZE_MIB, limit_mib, folder=str(tmp_path))
    assert found["grown"] <= limit_mib + (BESIDE_MIB if SIZE_MIB >= FULL else BESIDE_MIB // 2), found


@pytest.mark.parametrize(("change", "kind"), [("column", "zeros"), ("merge", "texts")])
def test_values_that_compress_well_count_decoded(tmp_path: Path, change: str, kind: str) -> None:
    """Files of some kilobytes; what batches had by their bytes was the whole table."""
    found = measure(change, kind, max(SIZE_MIB, 320), 64, folder=str(tmp_path))
    assert found["grown"] <= 64 + BESIDE_MIB - 32, found


@pytest.mark.skipif(SIZE_MIB >= FULL, reason="one size")
def test_a_source_on_disk_stays_there(tmp_path: Path) -> None:
    """410 MiB for a tenth of the rows of a table that is a hundredth of that."""
    found = measure("merge", "sparse", 4096, 64, folder=str(tmp_path))
    assert found["grown"] <= 64 + BESIDE_MIB // 2, found
