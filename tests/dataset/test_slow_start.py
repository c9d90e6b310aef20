"""Streams that engines take: they begin with one batch, and read ahead with what is taken."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import duckdb
import fsspec
import lance
import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pytest

import lance_io
from lance_io.file.scan.slow_start import SlowStart
from lance_io.store.profile import LOCAL

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NUM_ROWS = 40_000
BATCH = 1024
VERSIONS = ["0.1", "2.0", "2.1", "2.2"]


def rows(version: str) -> pa.Table:
    rng = np.random.default_rng(7)
    numbers = rng.integers(0, 1 << 40, NUM_ROWS)
    columns: dict[str, Any] = {
        "a": numbers,
        "s": [f"user-{number}" for number in numbers.tolist()],
        "v": pa.FixedSizeListArray.from_arrays(pa.array(rng.random(8 * NUM_ROWS, dtype=np.float32)), 8),
        "n": pa.array([{"p": i if i % 3 else None} for i in range(NUM_ROWS)]),
    }
    if version != "0.1":
        columns["l"] = pa.array([[{"x": i, "y": str(i)}] * (i % 3) if i % 7 else None for i in range(NUM_ROWS)])
    return pa.table(columns)


@pytest.fixture(scope="module")
def uris(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("tables")
    found = {}
    for version in VERSIONS:
        found[version] = str(folder / version)
        lance.write_dataset(rows(version), found[version], max_rows_per_file=30_000, data_storage_version=version)
        lance.dataset(found[version]).delete("a % 1000 < 3")
    return found


def opened(uri: str, is_waited_for: bool) -> Any:
    """On local disk, in the caller's thread; or through another library, on the engine's loop."""
    return lance_io.dataset(uri, filesystem=fsspec.filesystem("file") if is_waited_for else None)


def num_read(table: Any, work: Callable[[], object]) -> int:
    """Bytes that were read, once nothing is under way any more."""
    table.io_stats_incremental()
    work()
    gc.collect()
    return int(table.io_stats_incremental().read_bytes)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_waited_for", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"batch_size": BATCH}, {"filter": "a % 3 = 0", "batch_size": BATCH}, {"limit": 35_000, "offset": 7}]
)
def test_rows_and_batches_are_those_of_any_scan(
    uris: dict[str, str], version: str, is_waited_for: bool, options: dict[str, Any]
) -> None:
    table = opened(uris[version], is_waited_for)
    expected = lance.dataset(uris[version]).to_table(**options)
    found = [*table.scanner(**options).to_reader()]
    assert pa.Table.from_batches(found).equals(expected.select(found[0].schema.names))
    assert [len(one) for one in found] == [len(one) for one in table.to_batches(**options)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_waited_for", [False, True])
def test_a_full_stream_reads_no_more_than_any_scan(uris: dict[str, str], version: str, is_waited_for: bool) -> None:
    table = opened(uris[version], is_waited_for)
    scanned = num_read(table, lambda: [*table.to_batches(batch_size=BATCH)])
    again = opened(uris[version], is_waited_for)
    spent = num_read(again, lambda: again.scanner(batch_size=BATCH).to_reader().read_all())
    assert spent <= scanned + 7 * LOCAL.scan_gap_bytes  # which are read over


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("is_waited_for", [False, True])
def test_two_rows_for_duckdb_read_a_batch_and_what_is_ahead(
    uris: dict[str, str], version: str, is_waited_for: bool
) -> None:
    """One batch is taken, two are ahead; on the loop one more is finished, and eight ahead of that begun at most."""
    table = opened(uris[version], is_waited_for)
    found: list[Any] = []

    def query() -> None:
        given = table.scanner(batch_size=BATCH)  # noqa: F841  # DuckDB finds it by its name
        found.extend(duckdb.sql("select * from given limit 2").fetchall())

    spent = num_read(table, query)
    assert len(found) == 2
    reference = opened(uris[version], is_waited_for)
    num_batches = 11 if is_waited_for else 3
    allowed = num_read(reference, lambda: reference.to_table(limit=num_batches * BATCH))
    whole = num_read(reference, reference.to_table)
    assert spent <= allowed + whole // 50  # tables of chunks, and chunks that two pieces share
    assert spent < whole * (0.7 if is_waited_for else 0.25)


@pytest.mark.parametrize("is_waited_for", [False, True])
def test_files_are_opened_as_rows_are_taken(tmp_path: Path, is_waited_for: bool) -> None:
    uri = str(tmp_path / "many")
    lance_io.write_dataset(pa.table({"a": np.random.default_rng(1).random(200_000)}), uri, max_rows_per_file=2000)
    table = opened(uri, is_waited_for)
    first = table.scanner(batch_size=2000).to_reader()
    table.io_stats_incremental()
    assert first.read_next_batch().num_rows == 2000
    first.close()
    gc.collect()
    assert table.io_stats_incremental().read_bytes < 12 * 2000 * 8 + 12 * 2048
    again = opened(uri, is_waited_for).scanner(batch_size=2000).to_reader()
    assert again.read_all() == table.to_table()


def test_what_is_ahead_doubles_with_every_batch_until_it_is_bounded_by_what_was_given() -> None:
    start = SlowStart([(None, 0, 10_000_000)], 1000, LOCAL)  # type: ignore[list-item]
    begun = []
    for rows_given in (0, 1024, 2 * 1024, 4 * 1024, 4 * 1024, 64 * 1024):
        start.consumed(rows_given)
        low, high = 0, 10_000_000
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if start.allows(0, middle) else (low, middle)
        begun.append(low // 1024)
    assert begun == [1, 3, 3 + 8, 7 + 7 * 7, 11 + 7 * 11, 75 + 7 * 75]
