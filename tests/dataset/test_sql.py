"""SELECTs over a table: against pylance where the dialects agree, against DuckDB over the same rows in memory."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import duckdb
import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import EvaluationError, LanceError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

NUM_ROWS = 20_000


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four fragments with deletions."""
    path = str(tmp_path_factory.mktemp("sql") / "t")
    rows = pa.table(
        {
            "a": range(NUM_ROWS),
            "s": [f"s{i % 100}" for i in range(NUM_ROWS)],
            "x": [i * 0.5 if i % 7 else None for i in range(NUM_ROWS)],
            "st": [{"y": i % 3} for i in range(NUM_ROWS)],
        }
    )
    lance.write_dataset(rows, path, max_rows_per_file=5000).delete("a % 1000 = 1")
    return path


def table_of(query: Any) -> pa.Table:
    """What a query gives."""
    return query.to_stream_reader().read_all()


SHARED = [
    "SELECT count(*) AS n FROM dataset",
    "SELECT a, s FROM dataset WHERE a BETWEEN 990 AND 1005 ORDER BY a DESC",
    "SELECT s, sum(a) AS total, min(x) AS low FROM DATASET WHERE x > 100 GROUP BY s ORDER BY s LIMIT 5",
    "SELECT l.a FROM dataset l JOIN dataset r ON l.a = r.a + 1 WHERE r.s = 's5' AND l.a < 500 ORDER BY l.a",
    "WITH found AS (SELECT a FROM dataset WHERE x IS NULL) SELECT max(a) AS top FROM found",
    "SELECT a FROM dataset WHERE s LIKE 's1%' AND a IN (10, 11, 211, 999) ORDER BY a",
    "SELECT a FROM dataset WHERE a > 100000",
]


@pytest.mark.parametrize("text", SHARED)
def test_answers_are_those_of_pylance(uri: str, text: str) -> None:
    ours, theirs = (table_of(one.dataset(uri).sql(text).build()) for one in (lance_io, lance))
    assert ours.to_pydict() == theirs.to_pydict()


@pytest.mark.parametrize(
    "text",
    [
        "SELECT st.y, list(a)[1:3] AS first FROM dataset WHERE a < 50 GROUP BY st.y ORDER BY st.y",
        "FROM dataset SELECT a, row_number() OVER (ORDER BY x DESC) AS place WHERE a % 5000 = 2 ORDER BY a",
        "SELECT * EXCLUDE (st) FROM dataset WHERE x IS DISTINCT FROM 21 AND (a < 40 OR s = 's99') ORDER BY a LIMIT 30",
    ],
)
def test_the_dialect_is_that_of_duckdb(uri: str, text: str) -> None:
    dataset = lance.dataset(uri).to_table()
    expected = duckdb.sql(text).fetchall()
    del dataset
    ours = table_of(lance_io.dataset(uri).sql(text).build())
    assert [tuple(row.values()) for row in ours.to_pylist()] == expected


def test_columns_and_conditions_are_pushed_into_the_scan(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from lance_io.dataset.sql_query import SqlTable

    asked = []
    scanner = SqlTable.scanner

    def watched(self: Any, columns: Any = None, filter: Any = None, **others: Any) -> Any:
        asked.append((columns, str(filter)))
        return scanner(self, columns, filter, **others)

    monkeypatch.setattr(SqlTable, "scanner", watched)
    query = lance_io.dataset(uri).sql("SELECT sum(a) AS t FROM dataset WHERE s = 's5' AND a > 19000").build()
    assert asked == [], "building a query reads nothing"
    assert table_of(query).to_pydict() == {"t": [sum(range(19005, NUM_ROWS, 100))]}
    columns, condition = asked[-1]
    assert columns in (["a"], ["a", "s"])
    assert "a > 19000" in condition
    assert "s5" in condition


def test_row_columns_name_and_batches(uri: str) -> None:
    ours, theirs = (
        one.dataset(uri).sql("SELECT * FROM t WHERE a < 12 ORDER BY a").table_name("t").with_row_id().with_row_addr()
        for one in (lance_io, lance)
    )
    assert table_of(ours.build()).to_pydict() == table_of(theirs.build()).to_pydict()
    batches = lance_io.dataset(uri).sql("SELECT a FROM dataset").batch_size(2048).build().to_batch_records()
    assert max(batch.num_rows for batch in batches) <= 2048
    assert sum(batch.num_rows for batch in batches) == NUM_ROWS - 20


def test_bytes_of_batches(uri: str) -> None:
    """Sizes of single batches are each library's own; rows, and that batches are many, are not."""
    text = "SELECT a, s FROM dataset WHERE a < 9000"
    for limit_bytes, num_rows in ((4000, None), (4000, 50), (0, None)):
        sizes = []
        for one in (lance_io, lance):
            builder = one.dataset(uri).sql(text if limit_bytes else f"{text} LIMIT 20").batch_size_bytes(limit_bytes)
            if num_rows is not None:
                builder = builder.batch_size(num_rows)
            batches = builder.build().to_batch_records()
            sizes.append(sum(batch.num_rows for batch in batches))
            assert max(batch.num_rows for batch in batches) <= (num_rows or limit_bytes // 10 or 1)
        assert sizes[0] == sizes[1]
    ordered = lance_io.dataset(uri).sql("SELECT a FROM dataset ORDER BY a DESC").batch_size_bytes(800).build()
    assert {batch.num_rows for batch in ordered.to_batch_records()} <= {*range(101)}
    assert len(ordered.to_stream_reader().read_all()) == NUM_ROWS - 20


WRONG_OPTIONS = [
    ("batch_size", -1),
    ("batch_size", 0),
    ("batch_size", "x"),
    ("batch_size", 2.5),
    ("batch_size_bytes", -1),
    ("batch_size_bytes", None),
    ("blob_handling", "none"),
    ("blob_handling", 7),
    ("table_name", 7),
    ("table_name", "other"),
]


@pytest.mark.parametrize(("name", "value"), WRONG_OPTIONS)
def test_wrong_options_are_refused_as_by_pylance(uri: str, name: str, value: Any) -> None:
    kinds = []
    for one in (lance, lance_io):
        with pytest.raises((TypeError, ValueError, OverflowError)) as error:
            getattr(one.dataset(uri).sql("SELECT a FROM dataset"), name)(value).build().to_batch_records()
        kinds.append(next(kind for kind in (TypeError, ValueError, OverflowError) if isinstance(error.value, kind)))
    assert kinds[0] is kinds[1]


def test_classes_have_the_names_of_pylance(uri: str) -> None:
    for one in (lance_io, lance):
        module = sys.modules[f"{one.__name__}.dataset"]
        builder = one.dataset(uri).sql("SELECT 1 AS a")
        assert isinstance(builder, module.SqlQueryBuilder)
        assert isinstance(builder.table_name("t").build(), module.SqlQuery)


WRONG = [
    "selekt",
    "SELECT nope FROM dataset",
    "SELECT * FROM other",
    "SELECT _rowid FROM dataset",
    "DELETE FROM dataset",
    "SELECT 1; SELECT 2",
    "",
]


@pytest.mark.parametrize("text", WRONG)
def test_what_cannot_be_is_a_value_error_as_with_pylance(uri: str, text: str) -> None:
    with pytest.raises(ValueError):
        lance.dataset(uri).sql(text).build().to_batch_records()
    with pytest.raises(LanceError) as error:
        lance_io.dataset(uri).sql(text).build().to_batch_records()
    assert isinstance(error.value, ValueError)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_csv('{path}')",
        "SELECT * FROM '{path}'",
        "COPY (SELECT 1) TO '{path}.copy'",
        "ATTACH '{path}.db'",
        "SET enable_external_access = true",
        "INSTALL httpfs",
        "CREATE TABLE other AS SELECT 1",
        "SELECT * FROM secret",
    ],
)
def test_a_query_reads_nothing_but_the_table(uri: str, tmp_path: Path, text: str) -> None:
    secret = pa.table({"a": [1]})
    path = tmp_path / "secret.csv"
    path.write_text("a\n1\n")
    with pytest.raises((ValueError, OSError)):
        lance_io.dataset(uri).sql(text.format(path=path)).build().to_batch_records()
    assert [one.name for one in tmp_path.iterdir()] == ["secret.csv"]
    assert secret.num_rows == 1


def test_errors_of_rows_come_while_they_are_read(uri: str) -> None:
    query = lance_io.dataset(uri).sql("SELECT CAST(s AS INTEGER) FROM dataset").build()
    with pytest.raises(EvaluationError, match="SQL"):
        query.to_batch_records()
    with pytest.raises(TypeError):
        lance_io.dataset(uri).sql(7)
    with pytest.raises(UsageError):
        lance_io.dataset(uri).sql("SELECT 1").batch_size(0)


def test_from_a_coroutine(uri: str) -> None:
    async def work() -> list[int]:
        async with lance_io.AsyncDataset.open(uri) as table:
            built = table.sql("SELECT a FROM dataset WHERE a < 9 ORDER BY a").build()
            whole = [value for batch in await built.to_batch_records() for value in batch["a"].to_pylist()]
            assert whole == [value async for batch in built.to_stream_reader() for value in batch["a"].to_pylist()]
            async for _ in table.sql("SELECT a FROM dataset").batch_size(100).build().to_stream_reader():
                break
            return whole

    assert asyncio.run(work()) == [0, 2, 3, 4, 5, 6, 7, 8]


def test_a_missing_duckdb_is_named(uri: str) -> None:
    code = (
        "import sys; sys.modules['duckdb'] = None\n"
        "import lance_io\n"
        f"query = lance_io.dataset({uri!r}).sql('SELECT 1').build()\n"
        "try:\n    query.to_batch_records()\n"
        "except ModuleNotFoundError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "lance_io[sql]" in done.stdout
