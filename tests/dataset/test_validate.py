"""`validate` finds what does not fit together, and nothing where everything does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import FormatError, NotFound

if TYPE_CHECKING:
    from pathlib import Path

ROWS = pa.table({"a": range(100), "s": [str(i) for i in range(100)]})


@pytest.fixture(params=[lance, lance_io], ids=["by pylance", "by us"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Two fragments, one with deleted rows, stable row ids."""
    path = tmp_path / "t"
    request.param.write_dataset(ROWS, str(path), max_rows_per_file=50, enable_stable_row_ids=True).delete("a < 10")
    return path


def data_files(table: Path) -> list[Path]:
    return [table / "data" / one.data_files()[0].path for one in lance_io.dataset(table).get_fragments()]


async def test_a_whole_table_is_valid(table: Path) -> None:
    ours = lance_io.dataset(table)
    ours.validate()
    for fragment in ours.get_fragments():
        fragment.validate()
    twin = await lance_io.AsyncDataset.open(table)
    await twin.validate()
    await twin.get_fragments()[0].validate()


def test_a_missing_data_file(table: Path) -> None:
    data_files(table)[1].unlink()
    with pytest.raises(NotFound, match="version 2 refers to a file that is not there"):
        lance_io.dataset(table).validate()
    lance_io.dataset(table).get_fragments()[0].validate()
    with pytest.raises(OSError, match="not there"):
        lance_io.dataset(table).get_fragments()[1].validate()


def test_a_missing_deletion_file(table: Path) -> None:
    next((table / "_deletions").iterdir()).unlink()
    with pytest.raises(NotFound, match="not there"):
        lance_io.dataset(table).validate()


def test_a_file_of_another_table(table: Path, tmp_path: Path) -> None:
    """The right name, the wrong rows."""
    target = data_files(table)[1]
    lance_io.write_dataset(ROWS, tmp_path / "other")
    target.write_bytes(data_files(tmp_path / "other")[0].read_bytes())
    with pytest.raises(FormatError):
        lance_io.dataset(table).validate()
