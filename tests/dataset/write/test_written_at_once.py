"""What changes hand to the writer at once: cut by the bytes of the values, whatever rows or files let expect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lance_io
from lance_io.changes.write.data_files import NewFiles
from lance_io.limits import KIB, MIB

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 16 * MIB
SHARE = LIMIT // 32
VALUE = 100 * KIB
NUM_ROWS = 600


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each batch that is written."""
    found: list[int] = []
    add = NewFiles.add

    def look(self: NewFiles, batch: pa.RecordBatch, **options: Any) -> Any:
        found.append(batch.nbytes)
        return add(self, batch, **options)

    monkeypatch.setattr(NewFiles, "add", look)
    return found


def text(number: int) -> str:
    """A long text that compresses well."""
    return f"{number:>{VALUE}}"


@pytest.mark.parametrize("mode", ["rewrite_rows", "rewrite_columns"])
def test_a_row_of_a_source_that_many_rows_match(tmp_path: Path, written: list[int], mode: str) -> None:
    keys = [row % 2 for row in range(NUM_ROWS)]
    rows = pa.table({"k": keys, "text": [""] * NUM_ROWS, "n": range(NUM_ROWS)})
    table = lance_io.write_dataset(rows, tmp_path / "t")
    written.clear()
    source = pa.table({"k": [0, 1], "text": [text(0), text(1)]})
    merge = table.merge_insert("k").when_matched_update_all().write_mode(mode)
    assert merge.execute(source, memory_limit=LIMIT)["num_updated_rows"] == NUM_ROWS
    found = lance_io.dataset(tmp_path / "t").to_table().sort_by("n")
    assert found.column("text").to_pylist() == [text(key) for key in keys]
    assert max(written) < 2 * SHARE + VALUE


def test_long_columns_that_a_source_lacks(tmp_path: Path, written: list[int]) -> None:
    texts = [text(row) for row in range(NUM_ROWS)]
    table = lance_io.write_dataset(pa.table({"k": range(NUM_ROWS), "n": [0] * NUM_ROWS, "text": texts}), tmp_path / "t")
    written.clear()
    source = pa.table({"k": range(NUM_ROWS - 1, -1, -1), "n": range(NUM_ROWS)})
    table.merge_insert("k").when_matched_update_all().write_mode("rewrite_rows").execute(source, memory_limit=LIMIT)
    found = lance_io.dataset(tmp_path / "t").to_table().sort_by("k")
    assert found.column("text").to_pylist() == texts
    assert max(written) < 2 * LIMIT // 16 + VALUE


def test_a_source_of_rows_of_very_different_sizes(tmp_path: Path, written: list[int]) -> None:
    """As many short ones as long ones before them are bytes: on average all of them are short."""
    texts = [text(row) if row < 200 else "short" for row in range(20_000)]
    table = lance_io.write_dataset(pa.table({"k": [-1], "text": [""]}), tmp_path / "t")
    written.clear()
    source = pa.table({"k": range(20_000), "text": texts})
    table.merge_insert("k").when_not_matched_insert_all().execute(source, memory_limit=LIMIT)
    assert lance_io.dataset(tmp_path / "t").count_rows() == 20_001
    assert max(written) < MIB + VALUE


def test_values_that_stand_for_deleted_rows(tmp_path: Path, written: list[int]) -> None:
    table = lance_io.write_dataset(pa.table({"k": range(NUM_ROWS)}), tmp_path / "t")
    table.delete(f"k not in (3, 200, {NUM_ROWS - 100})")
    values = [text(1), text(2), text(3)]
    table.add_columns(iter([pa.record_batch({"text": values})]), reader_schema=pa.schema([("text", pa.string())]))
    assert table.to_table().to_pydict() == {"k": [3, 200, NUM_ROWS - 100], "text": values}
    assert max(written) < 8 * MIB + VALUE
