"""The JAR over Spark Connect: a client adds it to a running server, and queries it by SQL and by DataFrames."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

from tests.spark.sessions import CHECKOUT, spark_environment, spark_settings

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(600)

CLIENT = """
import json, sys
import lance_io.spark
import pyarrow as pa
from lance_io.errors import UsageError
from lance_io.spark import ops
from pyspark.sql import SparkSession
builder = SparkSession.builder.remote("local[2]")
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
assert type(spark).__module__.startswith("pyspark.sql.connect")
try:
    lance_io.spark.enable(spark, catalog="lance", path=sys.argv[2], storage={"aws_secret_access_key": "x"})
except UsageError as error:
    print("refused", "credential" in str(error))
for _ in range(2):
    lance_io.spark.enable(spark, catalog="lance", path=sys.argv[2])
counted = spark.sql("SELECT text, count(*) FROM lance.t WHERE id < 50 GROUP BY text ORDER BY text")
print([tuple(row) for row in counted.collect()])
print([tuple(row) for row in spark.sql("SELECT id, text FROM lance.t WHERE id = 77").collect()])
print([row.id for row in spark.sql("SELECT id FROM lance.t ORDER BY id DESC LIMIT 2").collect()])
print([tuple(row) for row in spark.sql("SELECT count(*), max(id) FROM lance.t VERSION AS OF 2").collect()])
print(spark.read.format("lance_io").load(sys.argv[2] + "/t.lance").where("text = 't1'").count())
print(spark.table("lance.t").filter("id IN (3, 4)").select("_rowid").toPandas()["_rowid"].tolist())
plan = spark.sql("SELECT id FROM lance.t WHERE id = 77")._explain_string()
print("columns [id]" in plan)
print(ops.create_index(spark, "lance.t", "text", "BITMAP", num_segments=1)["segments"])
print(ops.add_columns(spark, "lance.t", {"next": "id + 1"})["fragments"])
twice = lambda batch: pa.record_batch({"twice": pa.array([2 * id for id in batch["id"].to_pylist()])})
print(ops.add_columns(spark, "lance.t", twice, read_columns=["id"])["version"])
print(ops.optimize_indices(spark, "lance.t")["segments_added"], ops.compact(spark, "lance.t")["fragments_added"])
print([tuple(row) for row in spark.sql("SELECT sum(next), sum(twice) FROM lance.t WHERE text = 't1'").collect()])
spark.stop()
"""


def test_a_client_reads_by_sql(tmp_path: Path) -> None:
    warehouse = tmp_path / "tables"
    ids = range(100)
    data = lance.write_dataset(
        pa.table({"id": ids, "text": [f"t{number % 2}" for number in ids]}),
        str(warehouse / "t.lance"),
        max_rows_per_file=50,
    )
    data.create_scalar_index("id", "BTREE")
    settings = spark_settings(tmp_path)
    environment = {**os.environ, **spark_environment(tmp_path), "PYTHONPATH": str(CHECKOUT)}
    environment["SPARK_TESTING"] = "1"  # the server takes a free port, and the client finds it
    command = [sys.executable, "-c", CLIENT, json.dumps(settings), str(warehouse)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "refused True",
        "[('t0', 25), ('t1', 25)]",
        "[(77, 't1')]",
        "[99, 98]",
        "[(100, 99)]",
        "50",
        "[3, 4]",
        "True",
        "1",
        "2",
        "5",
        "0 1",
        f"[({sum(ids[1::2]) + 50}, {2 * sum(ids[1::2])})]",
    ]
