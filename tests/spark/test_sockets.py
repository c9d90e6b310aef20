"""Spark sessions that reach their workers over Unix sockets (docs/spark.md, tuning), in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import lance
import pytest

from tests.spark.sessions import spark_environment, spark_settings

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(600)

PROGRAM = """
import json, os, socket, sys
from pyspark.sql import SparkSession
from lance_io.spark import register

builder = SparkSession.builder.master("local[2]")
for name, value in json.loads(sys.argv[2]).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
register(spark)

def families(_):
    found = set()
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            with socket.socket(fileno=os.dup(fd)) as one:
                found.add(one.family.name)
        except OSError:
            pass
    return found

rows = spark.range(0, 1000, numPartitions=4).selectExpr("id", "id % 7 as rest")
rows.write.format("lance_io").mode("append").save(sys.argv[1])
found = spark.read.format("lance_io").option("filter", "rest = 3").load(sys.argv[1])
print(json.dumps({
    "sockets": sorted(set().union(*spark.sparkContext.parallelize(range(2), 2).map(families).collect())),
    "ids": sorted(row["id"] for row in found.collect()),
}))
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="only Linux tells which files a process has open")
def test_reads_and_writes_over_unix_sockets(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    settings = spark_settings(tmp_path, spark__python__unix__domain__socket__enabled="true")
    environment = {**os.environ, **spark_environment(tmp_path)}
    command = [sys.executable, "-c", PROGRAM, uri, json.dumps(settings)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["sockets"] == ["AF_UNIX"]
    assert answer["ids"] == list(range(3, 1000, 7))
    assert lance.dataset(uri).count_rows("rest = 3") == len(answer["ids"])
