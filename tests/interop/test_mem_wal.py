"""Rows that only a MemWAL holds: neither library's scans see them, and what we do to the table leaves them to it."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

import lance_io
from tests.interop.comparing import LIBRARIES

if TYPE_CHECKING:
    from pathlib import Path


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.2"])
def test_rows_that_only_a_mem_wal_holds_are_not_seen_and_not_lost(tmp_path: Path, version: str) -> None:
    place = tmp_path / "t.lance"
    lance.write_dataset(pa.table({"i": range(5)}), place, data_storage_version=version)
    lance.dataset(place).initialize_mem_wal(unsharded=True)
    writer = lance.dataset(place).mem_wal_writer(str(uuid.uuid4()))
    writer.put(pa.table({"i": [7, 8]}))
    writer.close()
    held = content(place / "_mem_wal")
    assert any(name.endswith(".lance") for name in held)
    for library in LIBRARIES:
        table = library.dataset(str(place))
        assert table.count_rows() == 5 and table.to_table()["i"].to_pylist() == [0, 1, 2, 3, 4]
        assert table.to_table(filter="i >= 4")["i"].to_pylist() == [4]
    lance_io.write_dataset(pa.table({"i": [5]}), str(place), mode="append")
    table = lance_io.dataset(str(place))
    table.delete("i = 0")
    table.cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert content(place / "_mem_wal") == held
    for library in LIBRARIES:
        assert library.dataset(str(place)).to_table()["i"].to_pylist() == [1, 2, 3, 4, 5]
    indices = lance.dataset(place).describe_indices()
    assert [one.name for one in indices] == ["__lance_mem_wal"]
