"""`LanceDataset.sql`: a limit without order or aggregate is the scan's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import lance_io

if TYPE_CHECKING:
    from pathlib import Path

NUM_ROWS = 100_000


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    rng = np.random.default_rng(3)
    rows = pa.table(
        {
            "a": np.arange(NUM_ROWS),
            "b": rng.random(NUM_ROWS),
            "s": [f"s{number % 1000:04d}" for number in range(NUM_ROWS)],
            "l": [[number] * (number % 3) for number in range(NUM_ROWS)],
        }
    )
    path = str(tmp_path_factory.mktemp("tables") / "t")
    lance_io.write_dataset(rows, path, max_rows_per_file=60_000).delete("a % 10 = 3")
    return path


def spent(table: Any, text: str) -> tuple[list[Any], int]:
    """Rows of the result, and bytes that were read."""
    table.io_stats_incremental()
    found = [row for batch in table.sql(text).build().to_batch_records() for row in batch.to_pylist()]
    return found, table.io_stats_incremental().read_bytes


PUSHED: list[tuple[str, dict[str, Any]]] = [
    ("select * from dataset limit 2", {"limit": 2}),
    ("SELECT * FROM dataset LIMIT 1+1", {"limit": 2}),
    ("select a + 1 as x, s from dataset limit 3 offset 7", {"columns": ["a", "s"], "limit": 10}),
    ("select 1 as one from dataset limit 4", {"columns": ["a"], "limit": 4}),
    ("with x as (select a, b from dataset) select b from x limit 2 -- all", {"columns": ["b"], "limit": 2}),
    ("select a from (select * from dataset limit 5) order by a desc limit 2", {"columns": ["a"], "limit": 5}),
    ("select count(*) as n from (select a from dataset limit 5)", {"columns": ["a"], "limit": 5}),
    ("select s from dataset limit 30000", {"columns": ["s"], "limit": 30_000}),
]


@pytest.mark.parametrize(("text", "scan"), PUSHED)
def test_a_limit_is_pushed_into_the_scan(uri: str, text: str, scan: dict[str, Any]) -> None:
    table = lance_io.dataset(uri)
    dataset = table.to_table()  # noqa: F841  # DuckDB finds it by its name
    expected = duckdb.sql(text).to_arrow_table().to_pylist()
    fresh = lance_io.dataset(uri)
    fresh.io_stats_incremental()
    fresh.scanner(**scan).to_reader().read_all()
    allowed = fresh.io_stats_incremental().read_bytes
    assert spent(lance_io.dataset(uri), text) == (expected, allowed)


def test_a_limit_stops_a_filtered_scan(tmp_path: Path) -> None:
    """How far reads ran ahead of the rows that passed depends on time, so the bound is a part of the whole scan."""
    path = str(tmp_path / "t")
    lance_io.write_dataset(pa.table({"a": np.arange(100_000)}), path, max_rows_per_file=1000)
    whole = lance_io.dataset(path)
    whole.io_stats_incremental()
    assert whole.to_table(filter="a > 50").num_rows == 99_949
    num_bytes = whole.io_stats_incremental().read_bytes
    found, spent_bytes = spent(lance_io.dataset(path), "select a from dataset where a > 50 limit 3")
    assert found == [{"a": 51}, {"a": 52}, {"a": 53}]
    assert spent_bytes < num_bytes / 2


KEPT = [
    "select a from dataset order by b limit 2",
    "select count(*) as n from dataset limit 2",
    "select s, max(a) as m from dataset group by s order by s limit 2",
    "select unnest(l) as x from dataset limit 5",
    "select distinct s from dataset order by s limit 3",
    "select a from dataset where a % 7 = 6 limit 3",
    "select x.a from dataset x join dataset y on x.a = y.a + 90000 order by x.a limit 3",
    "select a, (select max(a) from dataset) as m from dataset limit 2",
    "select a from dataset where a < 2 union all select a from dataset where a > 99997 limit 10",
    "select a, row_number() over () as n from dataset limit 3",
    "select count(*) as n from (select a from dataset limit 10%)",
    "select a from dataset limit (select 3)",
    "select a from dataset limit 0",
    "select count(*) as n from (select a from dataset limit 9223372036854775807)",
    "select count(*) as n from (select a from dataset limit 9223372036854775807 offset 9)",
]


@pytest.mark.parametrize("text", KEPT)
def test_any_other_limit_gives_the_rows_that_duckdb_means(uri: str, text: str) -> None:
    dataset = lance_io.dataset(uri).to_table()  # noqa: F841  # DuckDB finds it by its name
    expected = duckdb.sql(text).to_arrow_table().to_pylist()
    assert spent(lance_io.dataset(uri), text)[0] == expected


def test_options_of_the_query_hold_with_a_limit(uri: str) -> None:
    query = lance_io.dataset(uri).sql("select * from t limit 9").table_name("t").with_row_id().batch_size(4).build()
    batches = query.to_batch_records()
    assert [len(batch) for batch in batches] == [4, 4, 1]
    assert pa.Table.from_batches(batches)["_rowid"].to_pylist() == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert query.to_stream_reader().read_all().num_rows == 9  # it may be run again
    explained = lance_io.dataset(uri).sql("EXPLAIN select * from dataset limit 9").build().to_batch_records()
    assert "Limit: 9" in str(explained[0].to_pylist())


def test_from_a_coroutine(uri: str, tmp_path: Path) -> None:
    async def work() -> tuple[int, int]:
        async with lance_io.AsyncDataset.open(uri) as table:
            table.io_stats_incremental()
            batches = await table.sql("select * from dataset limit 2").build().to_batch_records()
            return sum(map(len, batches)), table.io_stats_incremental().read_bytes

    num_rows, num_bytes = asyncio.run(work())
    assert num_rows == 2
    assert num_bytes == spent(lance_io.dataset(uri), "select * from dataset limit 2")[1]
