"""Statements whose executors or workers are killed while they write to MinIO: a campaign.

As in `test_struck_calls`, the answer to a request of a task is held back until the blow. `LANCE_IO_SPARK_BLOWS` says
how often each case is struck.
"""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
import pyarrow.fs
import pytest

import lance_io
import lance_io.spark
from tests.seeds import seed_of
from tests.spark.test_struck_calls import BLOWS, WAIT_S, HeldWrites, victims

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.servers import S3Server

pytestmark = [
    pytest.mark.timeout(3600),
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc"),
    pytest.mark.skipif(not BLOWS, reason="minutes: in the campaign only"),
]

NUM_ROWS: Final = 1200
STATEMENTS: Final = {
    "insert": f"insert into {{lake}}.t select id + {NUM_ROWS}, 'new' from range(0, 400, 1, 4)",
    "create": "create table {lake}.made tblproperties ('lance.enable_stable_row_ids' = 'true') as "
    "select id, 'made' as text from range(0, 400, 1, 4)",
    "update": "update {lake}.t set text = 'changed' where id % 3 = 0",
    "merge": "merge into {lake}.t t using (select id * 2 as id, 'merged' as text from range(500, 700)) s "
    "on t.id = s.id when matched and s.id % 10 = 0 then delete when matched then update set * "
    "when not matched then insert *",
    "delete": "delete from {lake}.t where id % 7 = 3",
}


def expected(statement: str) -> dict[int, str]:
    """The rows after a statement."""
    rows = {id: "old" for id in range(NUM_ROWS)}
    if statement == "insert":
        return rows | {id + NUM_ROWS: "new" for id in range(400)}
    if statement == "create":
        return {id: "made" for id in range(400)}
    if statement == "update":
        return {id: text if id % 3 else "changed" for id, text in rows.items()}
    if statement == "merge":
        merged = {id: "merged" for id in range(1000, 1400, 2)}
        gone = {id for id in merged if id in rows and id % 10 == 0}
        return {id: text for id, text in (rows | merged).items() if id not in gone}
    return {id: text for id, text in rows.items() if id % 7 != 3}


class Struck:
    """A catalog whose store is behind the proxy."""

    def __init__(self, spark: SparkSession, s3: S3Server, proxy: HeldWrites, lake: str, root: str) -> None:
        self.spark, self.s3, self.proxy, self.lake, self.root = spark, s3, proxy, lake, root
        storage = s3.through(proxy.endpoint)
        lance_io.spark.enable(spark, catalog=lake, path=root, storage=storage, num_partitions=4)

    def begin(self, statement: str) -> None:
        """A table of twelve fragments, or none where the statement creates it."""
        self.statement = statement
        self.uri = f"{self.root}/{'made' if statement == 'create' else 't'}.lance"
        self.spark.sql(f"drop table if exists {self.lake}.made")
        table = pa.table({"id": range(NUM_ROWS), "text": ["old"] * NUM_ROWS})
        data = lance.write_dataset(
            table,
            f"{self.root}/t.lance",
            mode="overwrite",
            max_rows_per_file=100,
            enable_stable_row_ids=True,
            storage_options=self.s3.options(),
        )
        self.before = 0 if statement == "create" else data.version
        rows = data.to_table(columns=["id"], with_row_id=True)
        self.row_ids = dict(zip(rows["id"].to_pylist(), rows["_rowid"].to_pylist(), strict=True))

    def hold(self) -> None:
        """Hold the first request of a task."""
        if self.statement == "delete":  # its tasks write nothing
            self.proxy.hold(r"/t\.lance/data/", ("GET",))
        else:
            self.proxy.hold(r"\.lance/data/")

    def run(self) -> None:
        self.spark.sql(STATEMENTS[self.statement].format(lake=self.lake))

    def check(self) -> None:
        """The table is that of one process; a cleanup leaves the files of its version only."""
        peer = lance.dataset(self.uri, storage_options=self.s3.options())
        rows: list[dict[str, Any]] = peer.to_table(with_row_id=True).to_pylist()
        assert {row["id"]: row["text"] for row in rows} == expected(self.statement)
        assert len(rows) == len(expected(self.statement))
        assert peer.version == self.before + 1
        if self.statement != "create":
            kept = {row["id"]: row["_rowid"] for row in rows if row["id"] < NUM_ROWS}
            assert kept == {id: self.row_ids[id] for id in kept}
        data = lance_io.dataset(self.uri, storage_options=self.s3.options())
        data.cleanup_old_versions(timedelta(0), delete_unverified=True)
        live = {file.path for fragment in peer.get_fragments() for file in fragment.data_files()}
        store = pyarrow.fs.S3FileSystem(
            access_key=self.s3.user,
            secret_key=self.s3.secret,
            endpoint_override=self.s3.endpoint.removeprefix("http://"),
            scheme="http",
            region=self.s3.region,
        )
        entries = store.get_file_info(pyarrow.fs.FileSelector(f"{self.uri.removeprefix('s3://')}/data"))
        assert {entry.base_name for entry in entries} == live


@pytest.fixture(scope="module")
def held(s3: S3Server) -> Iterator[HeldWrites]:
    with HeldWrites(s3.endpoint) as proxy:
        yield proxy


@pytest.mark.parametrize("kind", ["executor", "worker"])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_killed_processes(
    cluster: SparkSession, s3: S3Server, held: HeldWrites, s3_uri: str, statement: str, kind: str
) -> None:
    struck = Struck(cluster, s3, held, f"lake_{statement}_{kind}", s3_uri)
    random = Random(seed_of(f"{statement} {kind}"))
    for _ in range(BLOWS):
        struck.begin(statement)
        cluster.sql(
            f"select count(*) from {struck.lake}.t where length(text) = 3"
        ).collect()  # all executors have a worker
        struck.hold()
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(struck.run)
            try:
                while not held.held.wait(0.1):
                    assert not running.done(), running.result()
                os.kill(random.choice(victims(cluster, kind)), signal.SIGKILL)
            finally:
                held.let_go()
            running.result(WAIT_S)
        struck.check()
