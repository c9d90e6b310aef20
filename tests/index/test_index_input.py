"""Index files that contradict their entry or each other, and entries that fit no column: named errors, or not used."""

from __future__ import annotations

import shutil
import struct
import warnings
from typing import TYPE_CHECKING
from uuid import uuid4

import lance
import pyarrow as pa
import pytest
from lance.dataset import Index
from lance.file import LanceFileReader
from lance.indices import IndexConfig

import lance_io
from lance_io.codecs.roaring import decode_roaring, decode_runs
from lance_io.errors import FormatError, UnsupportedError
from lance_io.index.build.bloom_blocks import filter_of, value_hashes
from lance_io.index.details import Space
from lance_io.index.rows.tree_maps import decode_tree_map
from tests.index.test_damaged_indices import index_file, rewrite, with_column, without_sizes

if TYPE_CHECKING:
    from pathlib import Path

NUM_ROWS = 600


def write(folder: Path, kind: object, column: str = "i") -> Path:
    rows = pa.table({"i": range(NUM_ROWS), "j": range(7, NUM_ROWS + 7), "s": [f"s{row}" for row in range(NUM_ROWS)]})
    lance.write_dataset(rows, folder, max_rows_per_file=NUM_ROWS // 2)
    lance.dataset(folder).create_scalar_index(column, kind, name="the_index")
    return folder


def check_named(folder: Path, text: str, match: str | None = None) -> None:
    """The filter fails and names index and file; without the index it does not."""
    table = lance_io.dataset(folder)
    with pytest.raises((FormatError, UnsupportedError), match=match) as caught:
        table.to_table(filter=text)
    assert "'the_index'" in str(caught.value)
    assert ".lance" in str(caught.value)
    assert table.count_rows(text, use_scalar_index=False) == 1


@pytest.mark.parametrize("has_sizes", [True, False])
@pytest.mark.parametrize(
    ("kind", "other_kind", "name", "other_name"),
    [
        ("BTREE", "BTREE", "page_data", "page_lookup"),
        ("BTREE", "BTREE", "page_lookup", "page_data"),
        ("BTREE", "BITMAP", "page_lookup", "bitmap_page_lookup"),
        ("BITMAP", "BTREE", "bitmap_page_lookup", "page_data"),
        ("ZONEMAP", "BLOOMFILTER", "zonemap", "bloomfilter"),
        ("BLOOMFILTER", "ZONEMAP", "bloomfilter", "zonemap"),
    ],
)
def test_a_file_in_place_of_another(
    tmp_path: Path, kind: str, other_kind: str, name: str, other_name: str, has_sizes: bool
) -> None:
    """A file of the same index, or of an index of another kind; with and without its size in the manifest."""
    folder, other = write(tmp_path / "a", kind), write(tmp_path / "b", other_kind)
    shutil.copy(index_file(other, other_name), index_file(folder, name))
    if not has_sizes:
        without_sizes(folder)
    check_named(folder, "i = 5")


def test_pages_of_another_column(tmp_path: Path) -> None:
    """A page file of the same type and length holds other least and greatest values than the lookup names."""
    folder, other = write(tmp_path / "a", "BTREE", "i"), write(tmp_path / "b", "BTREE", "j")
    assert index_file(other, "page_data").stat().st_size == index_file(folder, "page_data").stat().st_size
    shutil.copy(index_file(other, "page_data"), index_file(folder, "page_data"))
    check_named(folder, "i = 5", "names other values as its least and greatest")


def test_roaring_of_impossible_size() -> None:
    """Nothing is allocated for containers that a bitmap claims and does not have; a value occurs once."""
    many = struct.pack("<II", 12346, 0xFFFFFFFF)
    twice = struct.pack("<IIHHIHH", 12346, 1, 0, 1, 16, 4, 4)
    descending = struct.pack("<IIHHIHH", 12346, 1, 0, 1, 16, 5, 4)
    same_key = struct.pack("<IIHHHHIIHH", 12346, 2, 3, 0, 3, 0, 24, 26, 1, 2)
    overlapping = struct.pack("<IBHHHHHHH", 12347, 1, 0, 5, 2, 4, 2, 5, 2)
    for data in (many, twice, descending, same_key, overlapping):
        for decode in (decode_roaring, decode_runs):
            with pytest.raises(FormatError, match="roaring"):
                decode(data)
        entry = struct.pack("<III", 1, 0, len(data)) + data
        with pytest.raises(FormatError, match="roaring"):
            decode_tree_map(entry, Space.ADDRESSES)


def test_filters_of_other_sizes(tmp_path: Path) -> None:
    """Each zone's filter may have a size of its own."""
    folder = write(tmp_path, IndexConfig("bloomfilter", {"number_of_items": 100, "probability": 0.01}))
    path = index_file(folder, "bloomfilter")
    zones = LanceFileReader(str(path)).read_all().to_table()
    values = pa.array(range(NUM_ROWS))
    filters, first = [], 0
    for number, length in enumerate(zones["zone_length"].to_pylist()):
        filters.append(filter_of(value_hashes(values.slice(first, length)), 32 * (1, 3, 8, 40)[number % 4]))
        first += length
    assert first == NUM_ROWS
    assert len(filters) > 4
    rewrite(path, with_column("bloom_filter_data", lambda _: filters))
    without_sizes(folder)
    table = lance_io.dataset(folder)
    assert "the_index(BloomFilter)" in table.scanner(filter="i = 5").explain_plan()
    assert [table.to_table(["i"], f"i = {key}")["i"].to_pylist() for key in range(0, NUM_ROWS, 7)] == [
        [key] for key in range(0, NUM_ROWS, 7)
    ]
    for key in (0, NUM_ROWS, -1):
        assert table.count_rows(f"i = {key}") == table.count_rows(f"i = {key}", use_scalar_index=False)


def test_an_index_of_a_column_that_is_gone(tmp_path: Path) -> None:
    """pylance commits such an entry, and then fails each filter. Here it is not used, and a warning says so once."""
    folder = write(tmp_path, "BTREE")
    table = lance.dataset(folder)
    url = ("/lance.table.BTreeIndexDetails", b"")
    entry = Index(str(uuid4()), "lost", [77], table.version, {0, 1}, 0, index_details=url)
    lance.LanceDataset.commit(str(folder), lance.LanceOperation.CreateIndex([entry], []), table.version)
    ours = lance_io.dataset(folder)
    with pytest.warns(UserWarning, match="'lost'.*field 77"):
        assert ours.to_table(["i"], "i = 5 AND j < 100")["i"].to_pylist() == [5]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ours.get("i", [6], ["j"])["j"].to_pylist() == [13]  # no second warning
    assert [index.name for index in ours.describe_indices()] == ["lost", "the_index"]
    ours.insert(pa.table({"i": [-3], "j": [-3], "s": ["new"]}))  # a commit of ours leaves the entry out
    assert [index.name for index in lance.dataset(folder).describe_indices()] == ["the_index"]
    assert lance.dataset(folder).count_rows("i IN (7, -3)") == ours.count_rows("i IN (7, -3)") == 2
