"""Statements that change tables, over Spark Connect: a client's program; its tables as pylance sees them."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
import pytest

from tests.spark.lakes import check_cookbook, cookbook
from tests.spark.sessions import CHECKOUT, spark_environment, spark_settings
from tests.spark.test_jar_writing import TYPED

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(600)

STATEMENTS: Final = (
    "create table lance.t tblproperties ('lance.enable_stable_row_ids' = 'true') as "
    "select id, concat('n', id % 9) as name, 0.5D as x from range(0, 100, 1, 2)",
    "insert into lance.t values (200, 'new', 1.0), (201, null, null)",
    "update lance.t set name = concat(name, '!'), x = x + 1 where id < 50 and id % 2 = 0",
    "merge into lance.t t using (select id * 2 as id, 'merged' as name, 9.0D as x from range(45, 55)) s on t.id = s.id "
    "when matched and s.id = 98 then delete when matched then update set * when not matched then insert *",
    "delete from lance.t where id between 20 and 25",  # by the driver
    "delete from lance.t where length(name) = 2 and id % 10 = 3",  # by tasks
    "call lance.system.compact(table => 't')",
    f"create table lance.typed as select {', '.join(f'{sql} as {name}' for name, (sql, _, _) in TYPED.items())}",
    *cookbook(),
)
WRONG: Final = {
    "merge into lance.t t using (select 1 as id from range(2)) s on t.id = s.id when matched then update set x = 0": (
        "MERGE_CARDINALITY_VIOLATION"
    ),
    "create table lance.half as select id, 1 / (id - 7) as x from range(10)": "DIVIDE_BY_ZERO",
    "insert into lance.t select id, 'x', 1 / (id - 7) from range(10)": "DIVIDE_BY_ZERO",
    "create table lance.no (id int) tblproperties ('lance.nope' = '1')": "unknown property 'lance.nope'",
}
CLIENT: Final = """
import json, sys
import lance_io.spark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
builder = SparkSession.builder.remote("local[2]")
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
assert type(spark).__module__.startswith("pyspark.sql.connect")
lance_io.spark.enable(spark, catalog="lance", path=sys.argv[2])
for statement in json.loads(sys.argv[3]):
    spark.sql(statement)
for wrong in json.loads(sys.argv[4]):
    try:
        spark.sql(wrong).collect()
        print("no error")
    except PySparkException as error:
        print(str(error).replace("\\n", " "))
frame = spark.range(300, 303).withColumn("name", F.lit("frame")).withColumn("x", F.lit(2.0))
frame.writeTo("lance.t").append()
frame.write.saveAsTable("lance.framed")
frame.where("id = 301").writeTo("lance.framed").overwrite(F.col("id") == 302)
shown = "select properties['lance_io.result.statement'] from lance.t.history order by version"
print([statement for (statement,) in spark.sql(shown).collect()])
spark.stop()
"""


def expected() -> dict[int, tuple[str | None, float | None]]:
    """The rows after all statements, and those of a frame."""
    rows: dict[int, tuple[str | None, float | None]] = {id: (f"n{id % 9}", 0.5) for id in range(100)}
    rows |= {200: ("new", 1.0), 201: (None, None)}
    rows |= {id: (f"n{id % 9}!", 1.5) for id in range(0, 50, 2)}
    rows |= {id: ("merged", 9.0) for id in range(90, 110, 2)}
    gone = {98, *range(20, 26), *(id for id in range(3, 100, 10) if len(rows[id][0] or "") == 2)}
    rows = {id: row for id, row in rows.items() if id not in gone}
    return rows | {id: ("frame", 2.0) for id in range(300, 303)}


def test_a_client_writes_by_sql(tmp_path: Path) -> None:
    warehouse = tmp_path / "tables"
    environment = {**os.environ, **spark_environment(tmp_path), "PYTHONPATH": str(CHECKOUT)}
    environment["SPARK_TESTING"] = "1"  # the server takes a free port, and the client finds it
    settings = json.dumps(spark_settings(tmp_path))
    given = [settings, str(warehouse), json.dumps(STATEMENTS), json.dumps([*WRONG])]
    command = [sys.executable, "-c", CLIENT, *given]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    *errors, history = done.stdout.splitlines()
    for error, (wrong, text) in zip(errors, WRONG.items(), strict=True):
        assert text in error, (wrong, error)
    made = [statement for statement in ast.literal_eval(history) if statement is not None]
    assert made == ["CREATE", "INSERT", "UPDATE", "MERGE", "DELETE", "DELETE", "INSERT"]
    peer = lance.dataset(str(warehouse / "t.lance"))
    rows: list[dict[str, Any]] = peer.to_table(with_row_id=True).to_pylist()
    assert {row["id"]: (row["name"], row["x"]) for row in rows} == expected()
    assert len(rows) == len(expected())
    first = lance.dataset(peer.uri, version=1).to_table(columns=["id"], with_row_id=True).to_pylist()
    before = {row["id"]: row["_rowid"] for row in first}
    assert {row["id"]: row["_rowid"] for row in rows if row["id"] < 100} == {
        id: before[id] for id in expected() if id < 100
    }
    framed = lance.dataset(str(warehouse / "framed.lance")).to_table()
    assert sorted(framed["id"].to_pylist()) == [300, 301, 301]
    typed = lance.dataset(str(warehouse / "typed.lance")).to_table()
    assert typed.schema == pa.schema([(name, dtype) for name, (_, dtype, _) in TYPED.items()])
    assert typed.to_pylist() == [{name: value for name, (_, _, value) in TYPED.items()}]
    check_cookbook(lance.dataset(str(warehouse / "events.lance")))
    assert not (warehouse / "half.lance" / "_versions").exists()
    assert not (warehouse / "no.lance").exists()
