"""Statements of the JAR on real executors and MinIO, with workers that are killed; read back by pylance."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pytest

import lance_io.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers import S3Server

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

NUM_ROWS = 20_000


@pytest.fixture(scope="module")
def root(cluster: SparkSession, s3: S3Server) -> str:
    """The folder of the catalog `lake`, on MinIO."""
    path = f"s3://{s3.bucket}/test-spark-lake"
    lance_io.spark.enable(cluster, catalog="lake", path=path, storage=s3.options(), num_partitions=3)
    return path


def kill_once(flag: str) -> bool:
    """Kill the worker behind the JVM of the task that calls this first; true for all."""
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return True
    pid = os.getpid()
    while pid > 1:  # this process, the daemon of Spark's workers, the virtual machine
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                command = (entry / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if parent == pid and b"lance_io.spark.worker" in command:
                os.kill(int(entry.name), signal.SIGKILL)
                return True
    raise AssertionError("there is no worker to kill")


def test_statements_on_executors(cluster: SparkSession, root: str, s3: S3Server, tmp_path: Path) -> None:
    """CTAS and MERGE lose a worker each, and give the rows that they give without."""

    def peer(name: str) -> lance.LanceDataset:
        return lance.dataset(f"{root}/{name}.lance", storage_options=s3.options())

    def sql(text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in cluster.sql(text).collect()]

    cluster.udf.register("kills", lambda name, number: number % 5000 != 4999 or kill_once(name), "boolean")
    sql("drop table if exists lake.facts")
    made = f"from range(0, {NUM_ROWS}, 1, 4) where kills('{tmp_path}/create', id)"
    sql(
        "create table lake.facts tblproperties ('lance.enable_stable_row_ids' = 'true') "
        f"as select id, id % 100 as day, repeat('x', 50) as text {made}"
    )
    assert (tmp_path / "create").exists()
    assert peer("facts").version == 1
    assert sorted(peer("facts").to_table(columns=["id"])["id"].to_pylist()) == list(range(NUM_ROWS))
    sql(f"insert into lake.facts select id + {NUM_ROWS}, 7, 'new' from range(0, {NUM_ROWS}, 1, 4)")
    assert (peer("facts").version, peer("facts").count_rows()) == (2, 2 * NUM_ROWS)
    before = dict(zip(*peer("facts").to_table(columns=["id"], with_row_id=True).to_pydict().values(), strict=True))
    sql("update lake.facts set text = 'u' where id % 10 = 9")
    assert peer("facts").count_rows("text = 'u'") == 2 * NUM_ROWS // 10
    sql("delete from lake.facts where id % 4 = 3")
    sql(
        f"merge into lake.facts t using (select id * 2 as id {made.replace('create', 'merge')}) s on t.id = s.id "
        f"when matched and t.id < 1000 then delete when matched then update set text = 'm' "
        f"when not matched then insert (id, text) values (s.id, 'i')"
    )
    assert (tmp_path / "merge").exists()
    assert peer("facts").version == 5
    expected = {id for id in range(2 * NUM_ROWS) if id % 4 != 3 and not (id % 2 == 0 and id < 1000)}
    rows = peer("facts").to_table(columns=["id", "text"], with_row_id=True)
    assert sorted(rows["id"].to_pylist()) == sorted(expected)
    assert rows.filter(rows["text"].is_valid()).num_rows == rows.num_rows
    ids = dict(zip(rows["id"].to_pylist(), rows["_rowid"].to_pylist(), strict=True))
    assert all(before[id] == ids[id] for id in ids)
    sql("call lake.system.compact('facts')")
    assert len(peer("facts").get_fragments()) == 1
    assert peer("facts").to_table(columns=["id"], with_row_id=True).num_rows == len(expected)
    assert sql("select count(*), count(distinct id) from lake.facts") == [(len(expected), len(expected))]
