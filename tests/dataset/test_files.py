"""Files of a table, listed and tracked, and sessions on fragments, against pylance."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.reads.metadata import file_listing as files
from lance_io.table.manifest.index_section import IndexMetadata

if TYPE_CHECKING:
    from pathlib import Path

ROWS = pa.table({"i": range(10), "s": list("abcdefghij")})


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Three versions with a deletion, a tag and an index."""
    uri = str(tmp_path / "table")
    lance.write_dataset(ROWS, uri, max_rows_per_file=5).delete("i = 1")
    lance.dataset(uri).create_scalar_index("i", "BTREE")
    lance.dataset(uri).tags.create("first", 1)
    return uri


def rows(reader: pa.RecordBatchReader) -> list[dict[str, object]]:
    return sorted(reader.read_all().to_pylist(), key=str)


def assert_files_alike(ours: lance_io.LanceDataset, theirs: lance.LanceDataset) -> None:
    assert ours.tracked_files().schema == theirs.tracked_files().schema
    assert rows(ours.tracked_files()) == rows(theirs.tracked_files())
    assert rows(ours.tracked_files(min_version=2)) == rows(theirs.tracked_files(min_version=2))
    assert ours.all_files().schema == theirs.all_files().schema
    assert rows(ours.all_files()) == rows(theirs.all_files())


def test_files_are_those_that_pylance_lists(uri: str, tmp_path: Path) -> None:
    theirs = lance.dataset(uri)
    ours = lance_io.dataset(uri)
    assert_files_alike(ours, theirs)
    assert ours.base_paths() == {}
    clone = theirs.shallow_clone(str(tmp_path / "clone"), 2)  # without the index, whose files pylance leaves out there
    mine = lance_io.dataset(clone.uri)
    assert_files_alike(mine, clone)
    (base,), (expected,) = mine.base_paths().values(), clone.base_paths().values()
    for name in ("id", "name", "path", "is_dataset_root"):
        assert getattr(base, name) == getattr(expected, name)


def test_manifests_are_read_some_at_a_time(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MANIFESTS_AT_ONCE", 2)
    table = lance_io.dataset(uri)
    told: list[tuple[int, int | None]] = []
    batches = list(table.tracked_files(progress=lambda *counts: told.append(counts)))
    assert told == [(2, 3), (3, 3)]
    assert [set(batch["version"].to_pylist()) for batch in batches] == [{3, 2}, {1}]

    async def later() -> tuple[list[pa.RecordBatch], pa.Table]:
        async with lance_io.AsyncDataset.open(uri) as later:
            return [batch async for batch in later.tracked_files()], (await later.all_files()).read_all()

    again, listed = asyncio.run(later())
    assert again == batches
    assert listed.equals(table.all_files().read_all())


def test_indices_that_do_not_name_their_files_are_listed(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lance_io.dataset(uri)
    expected = rows(table.tracked_files())
    monkeypatch.setattr(IndexMetadata, "file_paths", ())
    assert rows(table.tracked_files()) == expected
    assert sum(row["type"] == "index file" for row in expected) == 2


@pytest.mark.parametrize("columns", [None, ["s"], [], {"x": "i * 2"}], ids=str)
@pytest.mark.parametrize("with_row_address", [None, True])
def test_sessions_take_what_fragments_take(
    uri: str, columns: list[str] | dict[str, str] | None, with_row_address: bool | None
) -> None:
    (ours, *_), (theirs, *_) = lance_io.dataset(uri).get_fragments(), lance.dataset(uri).get_fragments()
    session = ours.open_session(columns, with_row_address)
    if not isinstance(columns, dict) and (columns != [] or with_row_address):
        peer = theirs.open_session(columns, with_row_address)
        assert session.take([0, 1, 3]).equals(peer.take([0, 1, 3]))
        assert session.take([2, 2]).equals(peer.take([2, 2]))
    shown = session.take([0, 1, 3])
    assert shown.column_names[: len(columns or ())] == list(columns or ())
    with pytest.raises(OSError, match="not strictly increasing"):
        session.take([2, 0])

    async def later() -> pa.Table:
        async with lance_io.AsyncDataset.open(uri) as table:
            fragment = table.get_fragments()[0]
            return await fragment.open_session(columns, with_row_address).take([0, 1, 3])

    assert asyncio.run(later()).equals(shown)
