"""Changes of rows whose keys or conditions an index answers: the same rows as by a scan, and fewer bytes read."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.changes.merge import match_rows
from tests.index.test_index_rounds import NUM_ROWS, Bench

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lance_io.dataset.lance_dataset import AsyncDataset

KEYS = [5, 70_000, 150_000, 199_000, 10**7]  # the last one is new
SOURCE = pa.table({"id": KEYS, "value": [0.5] * len(KEYS), "cat": [0] * len(KEYS)})


def merge(*, by_index: bool) -> Any:
    async def call(table: AsyncDataset) -> Any:
        builder = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        return await builder.use_index(by_index).execute(SOURCE)

    return call


@pytest.fixture(scope="module")
def bench_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Bench]:
    """A maker of copies of a table in a bucket: a BTREE of keys, a BITMAP of categories, both over all rows."""
    folder = tmp_path_factory.mktemp("changed")
    rng = np.random.default_rng(7)
    rows = {"id": rng.permutation(NUM_ROWS), "value": rng.random(NUM_ROWS), "cat": rng.integers(0, 1000, NUM_ROWS)}
    table = lance.write_dataset(pa.table(rows), folder, max_rows_per_file=NUM_ROWS // 4)
    table.create_scalar_index("id", "BTREE")
    table.create_scalar_index("cat", "BITMAP")
    return lambda: Bench(folder)


def read_bytes(log: list[str], part: str) -> int:
    """Bytes that a part of the table gave: data or _indices."""
    ranges = [re.search(rf"^get \S*/{part}/\S* (\d+)-(\d+)$", line) for line in log]
    return sum(int(each[2]) - int(each[1]) for each in ranges if each)


def test_a_merge_of_few_keys_reads_their_pages_only(bench_of: Callable[[], Bench]) -> None:
    """Warm: one round for the pages of all keys, one for the rows' keys; then it writes."""
    (_, _, indexed), (_, again, _), (_, _, total) = bench_of().run(
        merge(by_index=True), merge(by_index=True), lambda table: table.count_rows("value = 0.5")
    )
    (_, scan, scanned), (_, _, scan_total) = bench_of().run(
        merge(by_index=False), lambda table: table.count_rows("value = 0.5")
    )
    assert indexed == scanned == {"num_inserted_rows": 1, "num_updated_rows": 4, "num_deleted_rows": 0}
    assert total == scan_total == 5
    assert not read_bytes(scan, "_indices")
    assert read_bytes(scan, "data") > NUM_ROWS * 2  # the keys, packed
    assert read_bytes(again, "data") < 1000  # the fragment of the first merge, which no index covers


def test_conditions_of_changes_are_answered_by_an_index(bench_of: Callable[[], Bench]) -> None:
    bench = bench_of()
    calls: list[tuple[Any, Any]] = [
        (lambda table: table.delete("id IN (5, 70000)"), {"num_deleted_rows": 2}),
        (lambda table: table.delete("cat = 7 AND id > 199990"), None),
        (lambda table: table.update({"value": "2.0"}, where="id = 150000"), {"num_rows_updated": 1}),
        (lambda table: table.count_rows("id > 100000 AND id < 100010"), 9),
    ]
    for (_, log, result), (_, expected) in zip(bench.run(*(call for call, _ in calls)), calls, strict=True):
        assert expected is None or result == expected
        assert read_bytes(log, "_indices")
        assert read_bytes(log, "data") < 400_000  # ends of four files, and the row; the columns have 4 MB


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP"])
@pytest.mark.parametrize("stable", [False, True])
def test_merges_give_the_rows_of_a_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, stable: bool
) -> None:
    """Repeated, deleted, updated, null and uncovered keys, each kind of clause, both faces."""
    monkeypatch.setattr(match_rows, "INDEXED_SHARE", 1)
    rng = np.random.default_rng(11)
    uri = str(tmp_path / "t")
    rows = pa.table({"k": pa.array([f"k{n}" for n in rng.integers(0, 300, 900)]), "v": range(900)})
    table = lance_io.write_dataset(rows.slice(0, 800), uri, max_rows_per_file=250, enable_stable_row_ids=stable)
    table.create_scalar_index("k", kind)
    table.insert(rows.slice(800))
    table.delete("v % 7 = 0")
    table.update({"k": "'k1'"}, where="v % 50 = 1")
    first = table.version
    source = pa.table({"k": ["k1", "k2", "new", None, "k250"], "v": [-1, -2, -3, -4, -5]})
    builders: list[Callable[[Any], Any]] = [
        lambda merging: merging.when_matched_update_all(),
        lambda merging: merging.when_matched_update_all().when_not_matched_insert_all(),
        lambda merging: merging.when_matched_update_all("target.v > 400"),
        lambda merging: merging.when_matched_delete(),
        lambda merging: merging.when_not_matched_insert_all(),
        lambda merging: merging.when_not_matched_by_source_delete("v < 300"),
    ]
    for number, build in enumerate(builders):
        outcomes = []
        for by_index in (True, False):
            opened = lance_io.dataset(uri, version=first)
            opened.restore()
            merging = build(opened.merge_insert("k")).use_index(by_index)
            plan = merging.analyze_plan(source)
            assert ("looked up by index k_idx" in plan) == (by_index and number < len(builders) - 1)
            counted = merging.execute(source) if number % 2 else asyncio.run(merged(uri, build, by_index, source))
            rows = lance_io.dataset(uri).to_table().sort_by([("v", "ascending"), ("k", "ascending")])
            outcomes.append((counted, rows.to_pylist()))
        assert outcomes[0] == outcomes[1]


async def merged(uri: str, build: Callable[[Any], Any], by_index: bool, source: pa.Table) -> Any:
    async with lance_io.AsyncDataset.open(uri) as table:
        return await build(table.merge_insert("k")).use_index(by_index).execute(source)
