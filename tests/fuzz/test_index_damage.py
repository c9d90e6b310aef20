"""Damaged index files: rows of the table, or an error that names the index and the file; and never other rows of a key.

`LANCE_IO_FUZZ_CASES` and `LANCE_IO_SEED` as in `tests/fuzz/test_campaign.py`. A finding is run again by
`python -m tests.fuzz.worker SPECIMENS SEED CASE CASE+1`.
"""

from __future__ import annotations

import os
import random
import shutil
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileReader, LanceFileWriter

import lance_io
from lance_io.errors import FormatError, UnsupportedError
from tests.fuzz import indexed_vectors
from tests.fuzz.campaign import report_text, run_cases, run_parts
from tests.fuzz.indexed import (
    INDEX_NAME,
    KINDS,
    by_index,
    damage_index_file,
    index_files,
    is_seen,
    make_indexed_specimens,
    rows_in_order,
    without_index,
)

if TYPE_CHECKING:
    from pathlib import Path

CASES = int(os.environ.get("LANCE_IO_FUZZ_CASES", "80"))
SEED = int(os.environ.get("LANCE_IO_SEED", "1"))
pytestmark = pytest.mark.timeout(120 + CASES if CASES <= 1000 else 0)


@pytest.fixture(scope="module")
def specimens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("specimens") / "indexed"
    make_indexed_specimens(folder)
    return folder


def test_random_damage_of_indices_is_rows_or_a_named_error(specimens: Path) -> None:
    reports = (run_parts if CASES > 1000 else run_cases)(specimens, SEED, 0, CASES)
    text = report_text(reports, SEED)
    print(text)
    assert len(reports) == CASES
    assert not any(report["findings"] for report in reports), text
    assert all(report["read"] for report in reports), "a scan without the index always answers"
    refused = sum(bool(report["errors"]) for report in reports)
    assert CASES // 5 < refused < CASES, "the damage is too harmless, or nothing but damage is seen"


def test_random_damage_of_indices_of_vectors_is_rows_or_a_named_error(tmp_path: Path) -> None:
    folder, count = tmp_path / "vectors", CASES // 2
    indexed_vectors.make_vector_specimens(folder)
    reports = (run_parts if CASES > 1000 else run_cases)(folder, SEED, 0, count)
    text = report_text(reports, SEED)
    print(text)
    assert len(reports) == count
    assert not any(report["findings"] for report in reports), text
    assert all(report["read"] for report in reports), "a search without the index always answers"
    refused = sum(bool(report["errors"]) for report in reports)
    assert count // 5 < refused < count, "the damage is too harmless, or nothing but damage is seen"


@pytest.mark.parametrize("rows", ["addresses", "ids"])
@pytest.mark.parametrize("builder", ["theirs", "ours"])
@pytest.mark.parametrize("kind", KINDS)
def test_cut_index_files_never_give_other_rows(
    specimens: Path, tmp_path: Path, kind: str, builder: str, rows: str
) -> None:
    """Every length at full size; a few here."""
    whole = specimens / "tables" / f"{kind}-{builder}-{rows}.lance"
    text = KINDS[kind][2][0]
    expected = rows_in_order(lance_io.dataset(whole), without_index(text))
    num_refused = 0
    for victim in index_files(whole):
        data = victim.read_bytes()
        lengths = range(len(data)) if CASES > 1000 else [0, 1, len(data) // 3, len(data) - 41, len(data) - 1]
        for length in lengths:
            copy = tmp_path / f"{victim.stem}-{length}.lance"  # a cache knows a file by its name
            shutil.copytree(whole, copy, copy_function=os.link)
            target = copy / victim.relative_to(whole)
            target.unlink()
            target.write_bytes(data[:length])
            table = lance_io.dataset(copy)
            try:
                rows = rows_in_order(table, by_index(kind, text))
                assert rows == expected, f"{victim.name} cut to {length} of {len(data)} bytes"
            except (FormatError, UnsupportedError) as error:
                num_refused += 1
                assert INDEX_NAME in str(error)
                assert victim.name in str(error)
            assert rows_in_order(table, without_index(text)) == expected
            shutil.rmtree(copy)
    assert num_refused >= len(index_files(whole)) * 4


def test_files_of_other_lengths_are_drawn() -> None:
    data = bytes(5000)
    texts = [damage_index_file(data + b"\0\0\2\0LANC", random.Random(seed)) for seed in range(60)]
    assert sum(is_seen(each.what) for each in texts) > 5


def test_a_look_up_gives_no_rows_of_other_keys(tmp_path: Path) -> None:
    """Row numbers that changed places are well-formed; only the keys of the rows show it."""
    lance.write_dataset(pa.table({"k": range(500)}), tmp_path).create_scalar_index("k", "BTREE", name=INDEX_NAME)
    (path,) = tmp_path.glob("_indices/*/page_data.lance")
    rows, size = LanceFileReader(str(path)).read_all().to_table().replace_schema_metadata(None), path.stat().st_size
    swapped = rows.set_column(1, rows.field(1), rows["ids"].take(list(range(500))[::-1]))
    path.unlink()
    with LanceFileWriter(str(path), rows.schema, version="2.2") as writer:
        writer.write_batch(swapped.combine_chunks())
    assert path.stat().st_size == size
    table = lance_io.dataset(tmp_path)
    with pytest.raises(FormatError, match="the key 495, which was not looked up") as caught:
        table.get("k", [4])
    assert INDEX_NAME in str(caught.value)
    assert "page_data.lance" in str(caught.value)
    assert table.to_table(filter="k = 4", use_scalar_index=False)["k"].to_pylist() == [4]
