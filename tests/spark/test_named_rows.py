"""Scans whose rows indices name: planned once, read by tasks that know no index; compared with pylance."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa
import pytest

from lance_io.dataset.distributed import TablePlace, TableVersion, named_rows
from lance_io.errors import FormatError

if TYPE_CHECKING:
    from pathlib import Path

    from lance_io.dataset.distributed.scan_parts import PlannedParts
    from lance_io.dataset.distributed.table_scan import TableScan

NUM_ROWS = 4000


@pytest.fixture(scope="module", params=["addresses", "stable ids", "moved"])
def uri(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four covered fragments with deleted rows, and one that no index covers; of several histories."""
    path = str(tmp_path_factory.mktemp("indexed") / "t.lance")
    ids = np.random.default_rng(5).permutation(NUM_ROWS)
    table = pa.table(
        {
            "id": ids,
            "cat": pa.array([None if number % 13 == 0 else number % 7 for number in range(NUM_ROWS)]),
            "text": [f"text {number % 50}" for number in range(NUM_ROWS)],
            "time": np.arange(NUM_ROWS),
        }
    )
    stable = request.param == "stable ids"
    data = lance.write_dataset(table, path, max_rows_per_file=1000, enable_stable_row_ids=stable)
    data.create_scalar_index("id", "BTREE")
    data.create_scalar_index("cat", "BITMAP")
    data.create_scalar_index("time", "ZONEMAP")
    data.delete("id % 11 = 3")
    if request.param == "moved":
        data.optimize.compact_files(defer_index_remap=True, target_rows_per_fragment=2000)
    lance.write_dataset(table.slice(0, 500), path, mode="append")
    if stable:
        lance.dataset(path).update({"cat": "9"}, where="id < 20")
    return path


def plan(
    uri: str, filter: str, num_parts: int | None = None, **more: int
) -> tuple[TableVersion, TableScan, PlannedParts]:
    version = TableVersion.open(TablePlace.of_process(uri, {}))
    scan = version.scan(filter=filter, **more)
    return version, scan, version.plan_parts(scan, part_bytes=1 << 13, num_parts=num_parts)


FILTERS = [
    ("id = 5", "id_idx"),
    ("id IN (5, 3, 900, 3999)", "id_idx"),
    ("id = 99999", "id_idx"),
    ("cat = 3", "cat_idx"),
    ("cat != 3", "cat_idx"),
    ("cat IS NULL", "cat_idx"),
    ("cat = 9", "cat_idx"),
    ("id < 900 AND text = 'text 7'", "id_idx"),
    ("id < 100 OR cat = 2", "cat_idx"),
    ("time BETWEEN 100 AND 120", "time_idx"),
    ("text = 'text 7'", None),
]


@pytest.mark.parametrize(("filter", "index"), FILTERS)
def test_tasks_read_the_rows_of_a_scan_in_order(uri: str, filter: str, index: str | None) -> None:
    expected = lance.dataset(uri).to_table(filter=filter)
    for num_parts in (None, 1, 5):
        version, scan, planned = plan(uri, filter, num_parts)
        place = TablePlace.of_process(uri, {})
        sent = [pickle.loads(pickle.dumps((scan, part))) for part in planned.parts]
        batches = [batch for scan, part in sent for batch in scan.read(place, part, batch_bytes=1 << 20)]
        rows = pa.Table.from_batches(batches, version.schema_of(scan))
        assert rows.combine_chunks().equals(expected.combine_chunks())
        assert sum(version.live_rows(planned.parts)) >= expected.num_rows
        if index is not None and planned.index is not None:  # a zone map covers no moved fragment
            assert index in planned.index
        assert len(planned.parts) == num_parts or num_parts is None


def test_tasks_have_only_the_rows_of_indices_and_of_fragments_that_none_covers(uri: str) -> None:
    _, _, planned = plan(uri, "id = 700 AND text != 'x'", 1)
    (part,) = planned.parts
    pairs = [*zip(part.ranges, part.named, strict=True)]
    assert [rows for (_, _, rows), named in pairs if named is not None] in ([1], [])  # the row, if it is not deleted
    examined = [rows for (_, _, rows), named in pairs if named is None]
    assert 500 <= sum(examined) < 520  # those of the append, and of the update
    assert planned.num_rows is None
    assert not part.is_exact


def test_a_limit_counts_rows_of_all_fragments(uri: str) -> None:
    for limit in (0, 3, 10_000):
        _, scan, planned = plan(uri, "cat = 3", limit=limit)
        place = TablePlace.of_process(uri, {})
        assert len(planned.parts) == 1
        batches = [*scan.read(place, planned.parts[0], batch_bytes=1 << 20)]
        expected = lance.dataset(uri).to_table(filter="cat = 3", limit=limit)
        assert pa.Table.from_batches(batches, expected.schema).combine_chunks().equals(expected.combine_chunks())


def test_the_planner_asks_no_index_that_it_would_read_whole(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a conjunction it asks the others."""
    monkeypatch.setattr(named_rows, "INDEX_ROWS_MAX", 1000)
    assert plan(uri, "id >= 0")[2].index is None
    index = plan(uri, "id >= 0 AND cat IN (1, 2)")[2].index
    assert index is None or ("cat_idx" in index and "id_idx" not in index)


def test_a_damaged_index_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(100)}), path).create_scalar_index("id", "BTREE")
    for file in (tmp_path / "t.lance" / "_indices").rglob("page_data.lance"):
        file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(FormatError, match="id_idx"):
        plan(path, "id = 5")
