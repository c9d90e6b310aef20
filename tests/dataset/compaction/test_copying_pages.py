"""Compaction that copies pages: the same rows and fragments as pylance's, and what cannot be copied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.changes.compaction import copy_pages, rewrite_fragments
from lance_io.errors import FormatError
from lance_io.file.reader import LanceFileReader
from tests.dataset.compaction.test_compacting import LINEAGE, compact_both, layout, read_by, rows_of, write_table

if TYPE_CHECKING:
    from pathlib import Path

FORCE = {"compaction_mode": "force_binary_copy"}


def pages_of(path: Path) -> list[list[int]]:
    """Rows of the pages of each column of the first data file."""
    name = lance.dataset(str(path)).get_fragments()[0].metadata.files[0].path
    metadata = LanceFileReader(str(path / "data" / name)).metadata()
    return [[page.num_rows for page in column.pages] for column in metadata.columns]


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize(
    ("sizes", "target"), [([10] * 10, 30), ([30] * 3, 50), ([49] * 3, 50), ([7, 50, 20, 3, 3], 60)]
)
def test_the_same_as_pylance(tmp_path: Path, *, sizes: list[int], target: int, version: str, stable: bool) -> None:
    path, start = tmp_path / "t.lance", 0
    for number, size in enumerate(sizes):
        rows = rows_of(start, size)
        start += size
        lance.write_dataset(
            rows,
            str(path),
            mode="append" if number else "create",
            data_storage_version=version,
            enable_stable_row_ids=stable,
        )
    mine, theirs = compact_both(
        tmp_path, {**FORCE, "target_rows_per_fragment": target, "binary_copy_read_batch_bytes": 1}
    )
    assert layout(mine) == layout(theirs)
    for library in (lance, lance_io):
        assert read_by(library, mine).equals(read_by(library, theirs))
        assert read_by(library, mine, LINEAGE).equals(read_by(library, theirs, LINEAGE))
        picked = [(7 * number) % sum(sizes) for number in range(40)]
        assert library.dataset(str(mine)).take(picked, columns=["a", "l"]) == lance.dataset(str(theirs)).take(
            picked, columns=["a", "l"]
        )
    assert pages_of(mine)[0] == pages_of(theirs)[0]
    lance_io.dataset(str(mine)).validate()


def structs(start: int) -> pa.Table:
    """Structs in structs, in lists of which all or none have items, and without members."""
    numbers = range(start, start + 5)
    return pa.table(
        {
            "a": numbers,
            "st": [{"x": n, "in": {"z": [n], "s": str(n)}} for n in numbers],
            "ls": [[{"p": n, "q": {"r": str(n)}}] * (n % 4) for n in numbers],
            "none": pa.array([[]] * 5, pa.list_(pa.struct([("p", pa.struct([("q", pa.int8())]))]))),
            "empty": pa.array([{}] * 5, pa.struct([])),
        }
    )


def test_structs_of_version_2_0_are_counted_anew(tmp_path: Path) -> None:
    """A file has one page for all structs of a column; also of files that pylance has copied, whose counts differ."""
    path = tmp_path / "t.lance"
    for number in range(3):
        library = lance_io if number % 2 else lance
        library.write_dataset(
            structs(5 * number), str(path), mode="append" if number else "create", data_storage_version="2.0"
        )
    before = read_by(lance, path)
    mine, theirs = compact_both(tmp_path, FORCE)
    lance.write_dataset(structs(15), str(theirs), mode="append")
    again = read_by(lance, theirs)
    lance_io.dataset(str(theirs)).optimize.compact_files(**FORCE)
    for library in (lance, lance_io):
        assert read_by(library, mine).equals(before)
        assert read_by(library, theirs).equals(again)
        assert library.dataset(str(theirs)).take([19, 3, 12]).equals(again.take([19, 3, 12]))
    assert len(layout(theirs)) == 1
    assert [rows for rows in pages_of(mine) if len(rows) == 1][:4] == [[15], [15], [21], [21]]
    lance_io.dataset(str(mine)).validate()


def test_structs_of_another_number_than_rows_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.lance"
    for mode in ("create", "append"):
        lance.write_dataset(structs(0), str(path), mode=mode, data_storage_version="2.0")
    pages = copy_pages._pages

    def changed(file: Any) -> Any:
        return [(at, row, page._replace(num_rows=4) if at == 1 else page) for at, row, page in pages(file)]

    monkeypatch.setattr(copy_pages, "_pages", changed)
    with pytest.raises(FormatError, match="column 1: 4 rows in its pages; the file has 5"):
        lance_io.dataset(str(path)).optimize.compact_files(**FORCE)


def test_our_own_files_with_many_pages(tmp_path: Path) -> None:
    """Several pages a column, some of each kind of layout, of files that we have written."""
    drawn = np.random.default_rng(0)
    path = tmp_path / "t.lance"
    for number in range(3):
        rows = pa.table(
            {
                "a": drawn.integers(0, 1000, 20_000),
                "v": pa.FixedSizeListArray.from_arrays(pa.array(drawn.random(20_000 * 64, "f4")), 64),
                "s": [f"text {value}" * 20 for value in drawn.integers(0, 500, 20_000).tolist()],
                "n": pa.nulls(20_000, pa.int32()),
                "l": [[value] * (value % 4) for value in drawn.integers(0, 9, 20_000).tolist()],
            }
        )
        lance_io.write_dataset(rows, str(path), mode="append" if number else "create")
    before = read_by(lance, path)
    num_pages = sum(len(rows) for rows in pages_of(path))
    lance_io.dataset(str(path)).optimize.compact_files(**FORCE)
    assert sum(len(rows) for rows in pages_of(path)) == 3 * num_pages
    for library in (lance, lance_io):
        assert read_by(library, path).equals(before)
        assert library.dataset(str(path)).take([5, 59_999, 20_000]).equals(before.take([5, 59_999, 20_000]))
    assert len(layout(path)) == 1


def change(path: Path, how: str) -> None:
    ds = lance.dataset(str(path))
    match how:
        case "delete":
            ds.delete("a = 1")
        case "drop":
            ds.drop_columns(["b"])
        case "add":
            ds.add_columns({"z": "a + 1"})
        case "add nulls":
            ds.add_columns(pa.field("n", pa.int8()))
        case "rename":
            ds.alter_columns({"path": "a", "name": "q"})


@pytest.mark.parametrize("how", ["delete", "drop", "add", "add nulls", "rename"])
def test_what_cannot_be_copied_is_encoded_anew_or_refused(tmp_path: Path, how: str) -> None:
    path = tmp_path / "t.lance"
    write_table(path, [10] * 3)
    change(path, how)
    if how != "rename":
        for library in (lance, lance_io):
            with pytest.raises(OSError, match="binary copy is not supported"):
                library.dataset(str(path)).optimize.compact_files(**FORCE)
    mine, theirs = compact_both(tmp_path, {"compaction_mode": "try_binary_copy"})
    assert layout(mine) == layout(theirs)


@pytest.mark.parametrize("mode", ["try_binary_copy", "force_binary_copy"])
def test_nothing_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any) -> None:
    path = tmp_path / "t.lance"
    write_table(path, [10] * 3)

    def refuse(*_: Any) -> None:
        raise AssertionError("rows were scanned")

    monkeypatch.setattr(rewrite_fragments, "projected_batches", refuse)
    assert lance_io.dataset(str(path)).optimize.compact_files(compaction_mode=mode).fragments_added == 1
