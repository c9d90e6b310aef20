"""Spark sessions that reach their workers over Unix sockets (docs/spark.md, tuning), in a process of their own."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import lance
import pytest

from tests.spark.sessions import run_driver

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(600)

PROGRAM = """
import os, socket
from lance_io.spark import register

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
rows.write.format("lance_io").mode("append").save(sys.argv[2])
found = spark.read.format("lance_io").option("filter", "rest = 3").load(sys.argv[2])
print(json.dumps({
    "sockets": sorted(set().union(*spark.sparkContext.parallelize(range(2), 2).map(families).collect())),
    "ids": sorted(row["id"] for row in found.collect()),
}))
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="only Linux tells which files a process has open")
def test_reads_and_writes_over_unix_sockets(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    shown = run_driver(PROGRAM, tmp_path, uri, spark__python__unix__domain__socket__enabled="true")
    answer = json.loads(shown.splitlines()[-1])
    assert answer["sockets"] == ["AF_UNIX"]
    assert answer["ids"] == list(range(3, 1000, 7))
    assert lance.dataset(uri).count_rows("rest = 3") == len(answer["ids"])
