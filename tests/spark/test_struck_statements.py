"""Statements that change tables on MinIO, whose executors or workers are killed, or whose tasks are overtaken.

The answer to a read or the first write of a task is held back until the blow, so it always strikes in the middle of the
work. A task that waits for a write has Spark's consent to commit, so no other attempt overtakes it: those that are
overtaken wait for a read.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Final

import lance
import pyarrow as pa
import pytest

from tests.seeds import seed_of
from tests.spark.blows import BLOWS, READS, WRITES, StruckTable, Victim, overtake, strike

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers import S3Server
    from tests.spark.blows import HoldingProxy

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc, 127.0.0.2"),
]

OLD: Final = {id: "old" for id in range(1200)}
GIVEN: Final = {id: "given" for id in range(1000, 1800, 2)}
FILE_ROWS: Final = 100
TASKS: Final = 4
STATEMENTS: Final = {
    "insert": "insert into {lake}.t select id + 1000, text from {lake}.given",
    "create": "create table {lake}.made tblproperties ('lance.enable_stable_row_ids' = 'true') as "
    "select * from {lake}.given",
    "update": "update {lake}.t set text = 'changed' where id % 3 = 0",
    "merge": "merge into {lake}.t t using {lake}.given s on t.id = s.id when matched and s.id % 10 = 0 then delete "
    "when matched then update set * when not matched then insert *",
    "delete": "delete from {lake}.t where id % 7 = 3",
}
EXPECTED: Final = {
    "insert": OLD | {id + 1000: text for id, text in GIVEN.items()},
    "create": GIVEN,
    "update": {id: text if id % 3 else "changed" for id, text in OLD.items()},
    "merge": {id: text for id, text in (OLD | GIVEN).items() if not (id in OLD and id in GIVEN and id % 10 == 0)},
    "delete": {id: text for id, text in OLD.items() if id % 7 != 3},
}
DATA: Final = r"\.lance/data/"


class StruckStatement(StruckTable):
    """A statement on a table of twelve fragments, with rows of another one of four."""

    def begin(self, statement: str) -> None:
        """Make the tables again, but for the one that the statement creates."""
        self.statement = statement
        self.uri = f"{self.root}/{'made' if statement == 'create' else 't'}.lance"
        self.spark.sql(f"drop table if exists {self.catalog}.made")
        self.write("given", GIVEN)
        table = self.write("t", OLD)
        self.before = 0 if statement == "create" else table.version
        rows = table.to_table(columns=["id"], with_row_id=True)
        self.row_ids = dict(zip(rows["id"].to_pylist(), rows["_rowid"].to_pylist(), strict=True))

    def write(self, name: str, rows: dict[int, str]) -> lance.LanceDataset:
        """Write a table, over the one that is there."""
        return lance.write_dataset(
            pa.table({"id": [*rows], "text": [*rows.values()]}),
            f"{self.root}/{name}.lance",
            mode="overwrite",
            max_rows_per_file=FILE_ROWS,
            enable_stable_row_ids=True,
            storage_options=self.s3.options(),
        )

    def run(self) -> None:
        self.spark.sql(STATEMENTS[self.statement].format(lake=self.catalog))

    def check(self) -> None:
        """The table is that of one process, in one version."""
        peer = lance.dataset(self.uri, storage_options=self.s3.options())
        rows = peer.to_table(with_row_id=True).to_pylist()
        assert sorted((row["id"], row["text"]) for row in rows) == sorted(EXPECTED[self.statement].items())
        assert peer.version == self.before + 1
        ids = {row["id"]: row["_rowid"] for row in rows}
        assert len({*ids.values()}) == len(rows)
        if self.statement != "create":
            assert {id: ids[id] for id in ids if id in OLD} == {id: self.row_ids[id] for id in ids if id in OLD}

    def clean_up(self) -> None:
        """Remove what lost attempts have left, and old versions."""
        self.open().cleanup_old_versions(timedelta(0), delete_unverified=True)


CASES = [(statement, victim) for statement in STATEMENTS for victim in ("executor", "worker")]


@pytest.mark.parametrize(("statement", "victim"), CASES if BLOWS else [("merge", "worker")])
def test_killed_processes(
    cluster: SparkSession, s3: S3Server, holding: HoldingProxy, s3_uri: str, statement: str, victim: Victim
) -> None:
    struck = StruckStatement(cluster, s3, holding, f"{statement}_{victim}", s3_uri, num_partitions=TASKS)
    random = Random(seed_of(f"{statement} {victim}"))
    for _ in range(max(1, BLOWS)):
        struck.begin(statement)
        # the tasks of a DELETE write nothing
        holding.hold(READS if statement == "delete" else random.choice([READS, WRITES]), DATA)
        strike(cluster, holding, struck.run, victim, random)
        struck.check()
        struck.clean_up()
        struck.check_nothing_is_left()


@pytest.mark.skipif(not BLOWS, reason="a cluster of its own: in the campaign only")
@pytest.mark.parametrize("statement", STATEMENTS)
def test_overtaken_tasks(
    overtaking: SparkSession, s3: S3Server, holding: HoldingProxy, s3_uri: str, statement: str
) -> None:
    struck = StruckStatement(overtaking, s3, holding, f"{statement}_overtaken", s3_uri, num_partitions=TASKS)
    for _ in range(BLOWS):
        struck.begin(statement)
        holding.hold(READS, DATA)
        overtake(holding, struck.run)
        struck.check()
        struck.check_nothing_is_left()
        struck.clean_up()
