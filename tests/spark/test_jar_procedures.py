"""Procedures of the JAR's catalog, by SQL and by `lance_io.spark.ops`: Spark jobs that commit once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException

import lance_io
import lance_io.spark
from lance_io.errors import UsageError
from lance_io.spark import ops
from tests.spark.sessions import TASK_ERRORS
from tests.spark.test_table_jobs import DIM, FRAGMENTS, ROWS, answers, make_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)

PARAMETERS = {
    "compact": "target_rows_per_fragment, max_bytes_per_file, materialize_deletions, num_threads",
    "cleanup": "older_than_days, retain_versions, delete_unverified",
    "create_index": "column, index_type, name, replace, options, num_segments",
    "drop_index": "name",
    "optimize_indices": "name, num_indices_to_merge, retrain, memory_limit, num_segments",
    "add_columns": "columns, function",
    "rollback": "version",
    "create_tag": "tag, version",
    "drop_tag": "tag",
    "create_branch": "branch, version",
    "drop_branch": "branch",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """The folder of the catalog `works`."""
    path = tmp_path_factory.mktemp("works")
    lance_io.spark.enable(spark, catalog="works", path=str(path))
    return path


@pytest.fixture
def uri(folder: Path, request: pytest.FixtureRequest) -> str:
    """A table of six fragments, called as the test."""
    uri = str(folder / f"{request.node.name}.lance")
    lance.write_dataset(make_rows(), uri, max_rows_per_file=ROWS)
    return uri


def run(spark: SparkSession, text: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in spark.sql(text).collect()]


def num_tasks(spark: SparkSession, group: str) -> int:
    """Tasks of the jobs of a group."""
    tracker = spark.sparkContext.statusTracker()
    stages = [stage for job in tracker.getJobIdsForGroup(group) for stage in tracker.getJobInfo(job).stageIds]
    return sum(tracker.getStageInfo(stage).numCompletedTasks for stage in stages)


def test_indices_are_built_by_tasks(spark: SparkSession, uri: str) -> None:
    """Four tasks each, by SQL and by function; the answers are those of one process."""
    table, twin = Path(uri).stem, f"{uri.removesuffix('.lance')}_twin.lance"
    mine = lance_io.write_dataset(lance.dataset(uri).to_table(), twin, max_rows_per_file=ROWS)
    mine.create_scalar_index("id", "BTREE")
    mine.create_scalar_index("text", "INVERTED", with_position=True)
    mine.create_index("v", "IVF_PQ", num_partitions=5, num_sub_vectors=4, num_bits=4, sample_rate=40)
    context = spark.sparkContext
    context.setJobGroup("indices", "three indices")
    named = f"table => '{table}', column => 'id', index_type => 'btree', num_segments => 4"
    (row,) = run(spark, f"CALL works.system.create_index({named})")
    assert (row["version"], row["name"], row["segments"]) == (2, "id_idx", 4)
    assert num_tasks(spark, "indices") == 4
    assert context.getLocalProperty("spark.job.description") == "three indices"
    options = "map('with_position', 'true')"
    run(spark, f"CALL works.system.create_index('{table}', 'text', 'INVERTED', 'words', false, {options}, 4)")
    of_vectors = {"num_partitions": 5, "num_sub_vectors": 4, "num_bits": 4, "sample_rate": 40}
    row = ops.create_index(spark, f"works.{table}", "v", "ivf_pq", options=of_vectors, num_segments=4)
    assert (row["version"], row["name"], row["segments"]) == (4, "v_idx", 4)
    assert num_tasks(spark, "indices") == 12
    indices = {index.name: len(index.segments) for index in lance_io.dataset(uri).describe_indices()}
    assert indices == {"id_idx": 4, "words": 4, "v_idx": 4}
    for kind in ("BTREE", "INVERTED", "IVF_PQ"):
        assert [*answers(uri, kind)] == [*answers(twin, kind)]
    # a few more rows, and all indices cover them
    lance.write_dataset(make_rows(5000, 300), uri, mode="append", max_rows_per_file=100)
    row = ops.optimize_indices(spark, f"works.{table}", num_indices_to_merge=0)
    assert (row["version"], row["segments_removed"], row["segments_added"]) == (6, 0, 3)
    (row,) = run(spark, f"CALL works.system.optimize_indices('{table}', name => 'id_idx', retrain => true)")
    assert (row["version"], row["segments_removed"], row["segments_added"]) == (7, 5, 1)
    stats = lance.dataset(uri).stats
    assert [stats.index_stats(name)["num_unindexed_rows"] for name in indices] == [0, 0, 0]
    assert ops.optimize_indices(spark, f"works.{table}")["version"] == 7  # nothing to do, no version
    for text, error in (
        (f"CALL works.system.create_index('{table}', 'id', 'BTREE', replace => false)", "already exists"),
        (f"CALL works.system.create_index('{table}', 'nope', 'BTREE')", "nope"),
        (f"CALL works.system.create_index('{table}', 'id', 'IVF_PQ')", "id must be"),
        (f"CALL works.system.create_index('{table}', 'id', 'BTREE', num_segments => 0)", "at least 1"),
        (f"CALL works.system.optimize_indices('{table}', name => 'id_idx', memory_limit => 1)", "16 MiB"),
    ):
        with pytest.raises(TASK_ERRORS, match=error):
            run(spark, text)
    assert lance.dataset(uri).version == 7


def test_columns_are_added_by_tasks(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    table = f"works.{Path(uri).stem}"
    before = lance.dataset(uri).to_table()
    row = ops.add_columns(spark, table, {"total": "id + day", "quoted": "'it''s'"})
    assert (row["version"], row["fragments"]) == (2, FRAGMENTS)
    factor = 3  # travels with the function

    def norms(batch: pa.RecordBatch) -> pa.RecordBatch:
        vectors = batch["v"].flatten().to_numpy().reshape(-1, DIM)
        return pa.record_batch({"norm": (vectors**2).sum(axis=1) * factor})

    ops.add_columns(spark, table, norms, read_columns=["v"], batch_size=50)
    ops.add_columns(
        spark,
        table,
        lambda frame: frame.assign(words=frame["text"].str.split().str.len().astype("int32"))[["words"]],
        pandas=True,
        output_schema=pa.schema({"words": pa.int32()}),
    )
    rows = lance.dataset(uri).to_table()
    assert rows.select(before.column_names) == before
    assert rows["total"].to_pylist() == [row["id"] + row["day"] for row in before.select(["id", "day"]).to_pylist()]
    vectors = before["v"].combine_chunks().flatten().to_numpy().reshape(-1, DIM)
    np.testing.assert_allclose(rows["norm"].to_numpy(), (vectors**2).sum(axis=1) * 3, rtol=1e-6)
    assert rows.schema.field("words").type == pa.int32() and set(rows["words"].to_pylist()) == {5}
    assert run(spark, f"SELECT sum(words) AS n FROM {table}") == [{"n": 5 * FRAGMENTS * ROWS}]
    files = sorted(path.name for path in Path(uri, "data").iterdir())
    done = tmp_path / "failed"

    def fails(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows and batch["id"][0].as_py() >= 5 * ROWS:
            done.touch()
            raise ValueError("no such number")
        return pa.record_batch({"z": batch["id"]})

    with pytest.raises(TASK_ERRORS, match="no such number"):
        ops.add_columns(spark, table, fails, output_schema=pa.schema({"z": pa.int64()}))
    assert done.exists()
    assert sorted(path.name for path in Path(uri, "data").iterdir()) == files  # those of all tasks are gone
    for given, error in (({"total": "id"}, "total"), ({"bad": "nope + 1"}, "nope"), ({}, "at least one expression")):
        with pytest.raises(TASK_ERRORS, match=error):
            ops.add_columns(spark, table, given)
    with pytest.raises(UsageError, match="go with a function"):
        ops.add_columns(spark, table, {"x": "id"}, pandas=True)
    with pytest.raises(AnalysisException, match="expected columns"):
        run(spark, f"CALL works.system.add_columns('{table.partition('.')[2]}')")
    assert lance.dataset(uri).version == 4


def test_procedures_are_shown_and_described(spark: SparkSession, uri: str) -> None:
    shown = run(spark, "SHOW PROCEDURES IN works.system")
    assert {row["procedure_name"] for row in shown} == {*PARAMETERS}
    assert all(row["namespace"] == ["system"] for row in shown)
    for name, parameters in PARAMETERS.items():
        described = " ".join(
            str(value) for row in run(spark, f"DESCRIBE PROCEDURE works.system.{name}") for value in row.values()
        )
        assert name in described and f"parameters: table, {parameters}" in described, described
    with pytest.raises(PySparkException, match="there is no procedure"):
        run(spark, "DESCRIBE PROCEDURE works.system.nope")


def test_explain_runs_nothing(spark: SparkSession, uri: str) -> None:
    """Explained by position, run by name; the table with its namespace, too."""
    table = Path(uri).stem
    lance.dataset(uri).create_scalar_index("day", "BITMAP")
    lance.dataset(uri).tags.create("kept", 1)
    lance.dataset(uri).create_branch("side", 1)
    before = sorted(str(path) for path in Path(uri).rglob("*"))
    calls = {
        "compact": ("", ", target_rows_per_fragment => 5000"),
        "cleanup": (", 0", ", older_than_days => 0"),
        "create_index": (", 'id', 'BTREE'", ", index_type => 'BTREE', column => 'id'"),
        "drop_index": (", 'day_idx'", ", name => 'day_idx'"),
        "optimize_indices": ("", ", retrain => true"),
        "add_columns": (", map('x', 'id')", ", columns => map('x', 'id')"),
        "rollback": (", 1", ", version => 1"),
        "create_tag": (", 'new', 1", ", tag => 'new'"),
        "drop_tag": (", 'kept'", ", tag => 'kept'"),
        "create_branch": (", 'new', 1", ", branch => 'new'"),
        "drop_branch": (", 'side'", ", branch => 'side'"),
    }
    assert {*calls} == {*PARAMETERS}
    for name, (by_position, _) in calls.items():
        (row,) = run(spark, f"EXPLAIN CALL works.system.{name}('{table}'{by_position})")
        assert re.search(rf"(?i)call.*{name}", row["plan"]), row["plan"]
    assert sorted(str(path) for path in Path(uri).rglob("*")) == before
    # the same calls, run: each does what its name says, and gives a row
    for name, (_, by_name) in calls.items():
        (row,) = run(spark, f"CALL works.system.{name}(table => 'default.{table}'{by_name})")
        assert row, name
    for call, error in (
        ("compact()", "table"),
        ("compact(NULL)", "expected a name"),
        ("compact('no_such_table')", "no_such_table"),
        ("rollback('x', 'y', 'z')", "(?i)argument|parameter"),
        (f"rollback('{table}', nope => 1)", "nope"),
    ):
        with pytest.raises(TASK_ERRORS, match=error):
            run(spark, f"CALL works.system.{call}")
