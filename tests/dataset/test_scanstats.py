"""What a scan and a dataset say they have read: compared with pylance, with the store's log, and between drivers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_io
from lance_io.io.stats import io_stats

if TYPE_CHECKING:
    from pathlib import Path

    from lance_io.dataset import ScanStatistics


def statistics(table: Any, **options: Any) -> ScanStatistics:
    """What the callback of a scan is told."""
    told: list[ScanStatistics] = []
    table.scanner(**options, scan_stats_callback=told.append).to_table()
    (one,) = told
    return one


def test_opening_is_part_of_the_counts(mixed_uri: str) -> None:
    table = lance_io.dataset(mixed_uri)
    opened = table.io_stats_snapshot()
    assert (opened.read_iops, opened.write_iops) == (2, 0)  # listing and manifest
    assert opened.read_bytes > 0
    assert table.io_stats_incremental() == opened
    assert table.io_stats_incremental().read_iops == table.io_stats_snapshot().read_iops == 0
    table.to_table()
    spent = table.io_stats_snapshot()
    assert spent.read_iops > 0
    expected = lance.dataset(mixed_uri)
    expected.io_stats_incremental()
    expected.to_table()
    assert spent.read_bytes <= expected.io_stats_snapshot().read_bytes
    assert table.checkout_version(1).io_stats_snapshot().read_iops == 1


def test_counters_of_the_process_grow_by_what_is_read(mixed_uri: str) -> None:
    table = lance_io.dataset(mixed_uri)
    before = lance_io.iops_counter(), lance_io.bytes_read_counter()
    with io_stats() as seen:
        table.take([1, 50])
        table.to_table()
    assert seen.num_reads > 0
    assert (lance_io.iops_counter() - before[0], lance_io.bytes_read_counter() - before[1]) == (
        seen.num_reads,
        seen.bytes_read,
    )


async def test_the_asynchronous_dataset_counts_the_same(mixed_uri: str) -> None:
    table, sync = await lance_io.AsyncDataset.open(mixed_uri), lance_io.dataset(mixed_uri)
    assert table.io_stats_snapshot() == table.io_stats_incremental() == sync.io_stats_incremental()
    assert (await table.checkout_version(1)).io_stats_snapshot().read_iops == 1


@pytest.mark.parametrize("options", [{}, {"filter": pc.field("doubled") > 100}, {"order_by": ["s"], "limit": 3}])
async def test_only_the_scan_is_counted(mixed_uri: str, options: dict[str, Any]) -> None:
    alone = statistics(lance_io.dataset(mixed_uri), **options)
    assert alone.requests == alone.iops > 0
    assert alone.bytes_read > 0
    assert alone.all_counts == {"fragments_scanned": 4, "ranges_scanned": 4, "rows_scanned": 93}

    disturbed: list[ScanStatistics] = []
    table = lance_io.dataset(mixed_uri)
    other = table.checkout_version(1)
    for _ in table.to_batches(**options, batch_size=1000, scan_stats_callback=disturbed.append):
        other.to_table()  # the same store, the same thread, in the middle of the scan
    later: list[ScanStatistics] = []
    async for _ in (await lance_io.AsyncDataset.open(mixed_uri)).to_batches(
        **options, batch_size=1000, scan_stats_callback=later.append
    ):
        other.to_table()
    assert len(disturbed) == len(later) == 1
    assert disturbed[0].all_counts == later[0].all_counts == alone.all_counts
    assert disturbed[0].bytes_read <= alone.bytes_read  # less: the other version's metadata is shared
    assert other.io_stats_snapshot().read_bytes > disturbed[0].bytes_read


def test_counts_are_what_the_store_answered(mixed_uri: str) -> None:
    table = lance_io.dataset(mixed_uri)
    before = table._state.location.store.stats.snapshot()
    found = statistics(table)
    spent = table._state.location.store.stats.snapshot() - before
    assert (found.iops, found.bytes_read) == (spent.requests, spent.bytes_read)
    assert found.all_times["elapsed"] > 0
    assert "requests=0" not in table.scanner(["s"]).analyze_plan()


ANALYZED: dict[str, dict[str, Any]] = {
    "all": {},
    "a column": {"columns": ["i"]},
    "a filter": {"filter": "i > 3"},
    "a filter that nothing passes": {"filter": "i < 0"},
    "a filter of another column": {"columns": ["i"], "filter": "s = 's4'"},
    "a limit": {"limit": 3},
    "a limit and an offset": {"limit": 3, "offset": 5},
    "row ids": {"columns": [], "with_row_id": True},
}


def numbers_of(text: str) -> dict[str, int]:
    """The counts of the read that saw the most rows; pylance has two of them where it fetches columns late."""
    reads = [
        {name: int(number) for name, number in re.findall(r"(\w+_scanned|iops|requests)=(\d+)", metrics)}
        for metrics in re.findall(r"metrics=\[(.*?)\]", text)
        if "rows_scanned" in metrics
    ]
    return max(reads, key=lambda one: one["rows_scanned"])


@pytest.mark.parametrize("name", ANALYZED)
async def test_analyzed_plans_tell_what_those_of_pylance_tell(tmp_path: Path, name: str) -> None:
    options = ANALYZED[name]
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"i": range(20), "s": [f"s{i}" for i in range(20)]}), uri, max_rows_per_file=5)
    lance.dataset(uri).delete("i in (3, 7, 8) or i > 14")
    expected = numbers_of(lance.dataset(uri).scanner(**options).analyze_plan())
    table, twin = lance_io.dataset(uri), await lance_io.AsyncDataset.open(uri)
    heard: list[ScanStatistics] = []
    text = table.scanner(**options, scan_stats_callback=heard.append).analyze_plan()
    found = numbers_of(text)
    assert found == numbers_of(await twin.scanner(**options).analyze_plan())
    for each in ("rows_scanned", "fragments_scanned"):
        assert found[each] == expected[each], each
    if "filter" not in options:
        assert f"output_rows={found['rows_scanned']}" in text
    (one,) = heard  # whoever listens to the scan hears of it, too
    assert found["requests"] == found["iops"] == one.requests and f"bytes_read={one.bytes_read}," in text
    if "limit" not in options:
        counted = table.scanner(**options).analyze_plan(count_rows=True)
        assert counted == await twin.scanner(**options).analyze_plan(count_rows=True)
        assert numbers_of(counted)["rows_scanned"] == (expected["rows_scanned"] if "filter" in options else 0)


def test_an_early_end_is_reported_once(mixed_uri: str) -> None:
    told: list[ScanStatistics] = []
    batches = lance_io.dataset(mixed_uri).to_batches(["s"], batch_size=1, scan_stats_callback=told.append)
    next(batches)
    assert told == []
    batches.close()  # type: ignore[attr-defined]
    assert len(told) == 1


def test_deleted_rows_at_the_edges_cost_no_requests(tmp_path: Path) -> None:
    columns = pa.table(
        {"i": range(6000), "s": [f"s{i}" for i in range(6000)], "l": [[i] * (i % 3) for i in range(6000)]}
    )
    table = lance.write_dataset(columns, str(tmp_path / "edges.lance"))
    table.delete("i in (0, 1, 5999)")
    whole = statistics(lance_io.dataset(table.uri, version=1))
    trimmed = statistics(lance_io.dataset(table.uri))
    assert trimmed.requests == whole.requests + 1  # the deletion file
    assert trimmed.all_counts["rows_scanned"] == 5997
    assert lance_io.dataset(table.uri).to_table() == table.to_table()
    assert statistics(lance_io.dataset(table.uri), offset=1, limit=5300).requests == trimmed.requests
    fewer = statistics(lance_io.dataset(table.uri), offset=1, limit=3000)
    assert fewer.bytes_read < trimmed.bytes_read
