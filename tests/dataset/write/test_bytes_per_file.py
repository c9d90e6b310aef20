"""`max_bytes_per_file` counts bytes as they are stored; compaction by it comes to rest. pylance says what is there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io

if TYPE_CHECKING:
    from pathlib import Path

KIB, MIB = 1 << 10, 1 << 20
VERSIONS = ["2.0", "2.1", "2.2"]


def files(uri: Path) -> list[tuple[int, int]]:
    """Rows and bytes of each file, in the order of the table."""
    found = []
    for fragment in lance.dataset(uri).get_fragments():
        (file,) = fragment.data_files()
        size_bytes = (uri / "data" / file.path).stat().st_size
        assert size_bytes == file.file_size_bytes
        found.append((fragment.physical_rows, size_bytes))
    return found


def narrow(num_rows: int, num_columns: int = 20) -> pa.Table:
    """Numbers of which an eighth of the bytes is stored."""
    rng = np.random.default_rng(num_rows)
    return pa.table({f"c{at}": rng.integers(0, 256, num_rows) for at in range(num_columns)})


def noise(num_rows: int, row_bytes: int) -> pa.Table:
    rng = np.random.default_rng(num_rows)
    return pa.table({"x": pa.array([rng.bytes(row_bytes) for _ in range(num_rows)])})


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_that_compress_make_as_many_files_as_those_of_pylance(tmp_path: Path, version: str) -> None:
    rows = pa.table({f"c{at}": [f"one of {row % 9} values" for row in range(50_000)] for at in range(8)})
    if version != "2.0":
        rows = narrow(50_000)
    for library in (lance, lance_io):
        uri = tmp_path / library.__name__
        library.write_dataset(rows, uri, max_bytes_per_file=5 * MIB, data_storage_version=version)
        assert len(files(uri)) == 1, "8 MB of rows take less than the limit"
        assert rows.nbytes > 7 * MIB
    assert lance.dataset(tmp_path / "lance_io").to_table().equals(rows)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("chunk", [50_000, 3_000, 200])
def test_files_end_at_their_stored_bytes(tmp_path: Path, version: str, chunk: int) -> None:
    rows = narrow(50_000, 4)
    half = rows.set_column(0, "c0", pa.array([[row % 7] * (row % 5) for row in range(rows.num_rows)]))
    for number, table in enumerate((rows, half)):
        whole, uri = tmp_path / f"whole {number}", tmp_path / f"parts {number}"
        lance_io.write_dataset(table, whole, data_storage_version=version)
        limit = files(whole)[0][1] // 4
        batches = table.to_reader(max_chunksize=chunk)
        lance_io.write_dataset(batches, uri, max_bytes_per_file=limit, data_storage_version=version)
        sizes = [num_bytes for _, num_bytes in files(uri)]
        assert all(0.9 * limit <= size <= 1.2 * limit for size in sizes[:-1]) and sizes[-1] <= 1.2 * limit, sizes
        assert lance.dataset(uri).to_table().equals(table)


def test_the_same_for_an_asynchronous_write_and_an_append(tmp_path: Path) -> None:
    rows = narrow(25_000, 4)
    asyncio.run(lance_io.AsyncDataset.write(rows, str(tmp_path), max_bytes_per_file=64 * KIB))
    lance_io.write_dataset(rows, tmp_path, mode="append", max_bytes_per_file=64 * KIB)
    found = files(tmp_path)
    assert len(found) == 4
    assert [num_bytes >= 57 * KIB for _, num_bytes in found] == [True, False] * 2
    assert lance.dataset(tmp_path).to_table().equals(pa.concat_tables([rows, rows]).combine_chunks())


@pytest.mark.parametrize("version", VERSIONS)
def test_incompressible_rows_stay_near_the_limit(tmp_path: Path, version: str) -> None:
    rows = noise(40_000, 100)
    lance_io.write_dataset(rows, tmp_path, max_bytes_per_file=MIB, data_storage_version=version)
    sizes = [num_bytes for _, num_bytes in files(tmp_path)]
    assert len(sizes) == 4 and max(sizes) <= 1.1 * MIB
    assert lance.dataset(tmp_path).to_table().equals(rows)


def test_rows_that_cease_to_compress(tmp_path: Path) -> None:
    """What was learned of the first rows is wrong for the others: their pages say so."""
    rng = np.random.default_rng(1)
    x = np.concatenate([np.zeros(2_000_000, np.int64), rng.integers(-(1 << 62), 1 << 62, 3_000_000)])
    lance_io.write_dataset(pa.table({"x": x}), tmp_path, max_rows_per_file=1 << 30, max_bytes_per_file=4 * MIB)
    sizes = [num_bytes for _, num_bytes in files(tmp_path)]
    assert max(sizes) <= 12.5 * MIB
    assert all(size <= 4.6 * MIB for size in sizes[1:])
    assert all(size >= 3.6 * MIB for size in sizes[:-1])


@pytest.mark.parametrize("version", ["0.1", *VERSIONS])
@pytest.mark.parametrize("limit", [1, 1024])
def test_no_limit_makes_files_of_a_few_rows(tmp_path: Path, limit: int, version: str) -> None:
    rows = narrow(10_000, 2)
    lance_io.write_dataset(rows, tmp_path, max_bytes_per_file=limit, data_storage_version=version)
    found = files(tmp_path)
    assert all(num_rows >= 1024 for num_rows, _ in found[:-1])
    assert lance.dataset(tmp_path).to_table().equals(rows)


def test_a_page_full_of_a_few_rows_ends_a_file(tmp_path: Path) -> None:
    rows = noise(60, 300_000)
    lance_io.write_dataset(rows, tmp_path, max_bytes_per_file=MIB)
    found = files(tmp_path)
    assert [num_rows for num_rows, _ in found] == [28, 28, 4], "a full page, and the row that found it so"
    assert lance.dataset(tmp_path).to_table().equals(rows)


# -- compaction -------------------------------------------------------------------------------------------------------


def random_table(uri: Path, seed: int, version: str, *, num_fragments: int = 12) -> pa.Table:
    rng = np.random.default_rng(seed)
    for number in range(num_fragments):
        num_rows = int(rng.integers(1, 4_000))
        rows = pa.table({"x": rng.integers(0, 1 << 16, num_rows), "s": [f"row {at}" for at in range(num_rows)]})
        mode = "append" if number else "create"
        lance_io.write_dataset(rows, uri, mode=mode, data_storage_version=version, durability="none")
    return lance.dataset(uri).to_table()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("limit", [1, 20 * KIB, 60 * KIB, MIB])
@pytest.mark.parametrize("mode", ["reencode", "try_binary_copy"])
def test_compaction_comes_to_rest(tmp_path: Path, seed: int, limit: int, mode: Any) -> None:
    rows = random_table(tmp_path, seed, ["0.1", *VERSIONS][seed])
    table = lance_io.dataset(tmp_path)
    options: dict[str, Any] = {"max_bytes_per_file": limit, "compaction_mode": mode}
    table.optimize.compact_files(**options)
    version, found = table.version, files(tmp_path)
    assert len(found) <= 12
    assert lance.dataset(tmp_path).to_table().sort_by([("x", "ascending"), ("s", "ascending")]) == rows.sort_by(
        [("x", "ascending"), ("s", "ascending")]
    )
    again = table.optimize.compact_files(**options)
    assert (again.fragments_removed, again.fragments_added, table.version) == (0, 0, version)
    lance_io.write_dataset(rows.slice(0, 100), tmp_path, mode="append")
    table = lance_io.dataset(tmp_path)
    table.optimize.compact_files(**options)
    version = table.version
    table.optimize.compact_files(**options)
    assert table.version == version


def test_compaction_joins_only_what_is_below_the_limit(tmp_path: Path) -> None:
    rows = noise(6_000, 100)
    sizes = [3_000, 300, 300, 2_000, 400]
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    for start, num_rows in zip(starts, sizes, strict=True):
        lance_io.write_dataset(rows.slice(start, num_rows), tmp_path, mode="append" if start else "create")
    table = lance_io.dataset(tmp_path)
    table.optimize.compact_files(max_bytes_per_file=200_000)
    assert [num_rows for num_rows, _ in files(tmp_path)] == [3_000, 2_000, 1_000]
    assert lance.dataset(tmp_path).count_rows() == 6_000
