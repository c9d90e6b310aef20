"""The JAR over Spark Connect: a client adds it to a running server, and queries it by SQL and by DataFrames."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import lance
import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

import lance_io.spark
from lance_io.errors import UnsupportedError, UsageError
from lance_io.spark import sessions
from lance_io.spark.sessions import JAR
from tests.spark.sessions import CHECKOUT, spark_environment, spark_settings

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
shown = plan.partition("rows by index ")[2].splitlines()[:1]
print("columns [id]" in plan, "[id = 77]@id_idx(BTree)" in "".join(shown))
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
        "True True",
        "1",
        "2",
        "5",
        "0 1",
        f"[({sum(ids[1::2]) + 50}, {2 * sum(ids[1::2])})]",
    ]


def test_settings_alone_do_the_same(tmp_path: Path) -> None:
    """In `spark-sql`, where no program in Python runs."""
    lance.write_dataset(pa.table({"id": range(100)}), str(tmp_path / "t.lance"))
    own = {
        "spark.sql.catalogImplementation": "in-memory",
        "spark.jars": str(JAR),
        "spark.sql.catalog.lance": "lance_io.spark.Catalog",
        "spark.sql.catalog.lance.path": str(tmp_path),
        "spark.pyspark.python": sys.executable,
    }
    settings = [f"--conf={name}={text}" for name, text in {**spark_settings(tmp_path), **own}.items()]
    program = Path(pyspark.__file__).parent / "bin" / "spark-sql"
    command = [str(program), "--master=local[1]", *settings, "-e", "select sum(id) from lance.t where id < 10"]
    environment = {**os.environ, **spark_environment(tmp_path), "SPARK_HOME": str(program.parents[1])}
    environment.pop("PYSPARK_PYTHON")
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip().splitlines()[-1] == "45"


class Server:
    """A session of Connect whose server has its own mind."""

    version = "4.3.0"

    def addArtifacts(self, *paths: str) -> None:
        raise PermissionError("PERMISSION_DENIED: no JARs of clients")


Server.__module__ = "pyspark.sql.connect.session"


def test_a_server_that_takes_no_jars_is_explained() -> None:
    """Its administrator reads which settings do the same."""
    with pytest.raises(UsageError) as caught:
        lance_io.spark.enable(Server())
    text = str(caught.value)
    assert "its administrator adds lance_io.jar to spark.jars" in text
    assert "spark.sql.catalog.NAME=lance_io.spark.Catalog and spark.sql.catalog.NAME.path" in text
    assert "PERMISSION_DENIED: no JARs of clients" in text


def test_a_package_without_its_jar_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sessions, "JAR", tmp_path / "lance_io.jar")
    for call in (lambda: lance_io.spark.enable(Server()), lambda: lance_io.spark.configure(SparkSession.builder)):
        with pytest.raises(UsageError, match=r"lance_io\.jar is missing: the package was built without a JDK"):
            call()


@pytest.mark.parametrize("version", ["4.0.1", "3.5.7"])
def test_older_sparks_are_refused_by_name(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = rf"lance_io needs Spark 4\.1 or later; this is {re.escape(version)}: install"
    monkeypatch.setattr(Server, "version", version)
    with pytest.raises(UnsupportedError, match=refusal):
        lance_io.spark.enable(Server())
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(UnsupportedError, match=refusal):
        lance_io.spark.configure(SparkSession.builder)
