"""Procedures whose executors or workers are killed, or whose tasks are overtaken, while they write to MinIO.

The answer to the first write of a task is held back until the blow, so it always strikes in the middle of the work.
"""

from __future__ import annotations

import sys
from random import Random
from typing import TYPE_CHECKING, Any, Final

import lance
import pytest

from tests.seeds import seed_of
from tests.spark.blows import BLOWS, WRITES, StruckTable, Victim, overtake, strike
from tests.spark.test_table_jobs import make_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers import S3Server
    from tests.spark.blows import HoldingProxy

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc, 127.0.0.2"),
]

FILE_ROWS: Final = 100
FOLDERS: Final = {"create_index": r"/_indices/", "compact": r"/data/", "add_columns": r"/data/"}
CALLS: Final = {
    "create_index": "create_index('t', 'id', 'BTREE', num_segments => 4)",
    "compact": "compact('t', target_rows_per_fragment => 300)",
    "add_columns": "add_columns('t', map('twice', 'id * 2'))",
}


class StruckCall(StruckTable):
    """A procedure on a table of twelve small fragments."""

    def begin(self, procedure: str) -> None:
        """Make the table again, and hold the first write of a task."""
        self.procedure = procedure
        lance.write_dataset(
            make_rows(0, 12 * FILE_ROWS),
            self.uri,
            mode="overwrite",
            max_rows_per_file=FILE_ROWS,
            storage_options=self.s3.options(),
        )
        self.before = self.open().version
        self.proxy.hold(WRITES, FOLDERS[procedure])

    def run(self) -> dict[str, Any]:
        """Call the procedure; the row that it gives."""
        (row,) = self.spark.sql(f"CALL {self.catalog}.system.{CALLS[self.procedure]}").collect()
        return row.asDict()

    def check(self, row: dict[str, Any]) -> None:
        """The table is that of one process, and nothing else is left."""
        dataset = lance.dataset(self.uri, storage_options=self.s3.options())
        assert dataset.version == row["version"] > self.before
        rows = dataset.to_table()
        expected = make_rows(0, 12 * FILE_ROWS)
        assert rows.select(expected.column_names).sort_by("id").equals(expected)
        if self.procedure == "create_index":
            assert row["segments"] == 4
            assert dataset.stats.index_stats("id_idx")["num_unindexed_rows"] == 0
            for number in (0, 377, 12 * FILE_ROWS - 1):
                assert dataset.to_table(filter=f"id = {number}")["id"].to_pylist() == [number]
        elif self.procedure == "compact":
            assert len(dataset.get_fragments()) == row["fragments_added"] == 4
        else:
            assert rows["twice"].to_pylist() == [2 * number for number in rows["id"].to_pylist()]
        self.check_nothing_is_left()


CASES = [(procedure, victim) for procedure in CALLS for victim in ("executor", "worker")]


@pytest.mark.parametrize(("procedure", "victim"), CASES if BLOWS else [("create_index", "worker")])
def test_killed_processes(
    cluster: SparkSession, s3: S3Server, holding: HoldingProxy, s3_uri: str, procedure: str, victim: Victim
) -> None:
    struck = StruckCall(cluster, s3, holding, f"{procedure}_{victim}", s3_uri)
    random = Random(seed_of(f"{procedure} {victim}"))
    for _ in range(max(1, BLOWS)):
        struck.begin(procedure)
        struck.check(strike(cluster, holding, struck.run, victim, random))


@pytest.mark.skipif(not BLOWS, reason="a cluster of its own: in the campaign only")
@pytest.mark.parametrize("procedure", CALLS)
def test_overtaken_tasks(
    overtaking: SparkSession, s3: S3Server, holding: HoldingProxy, s3_uri: str, procedure: str
) -> None:
    struck = StruckCall(overtaking, s3, holding, f"{procedure}_overtaken", s3_uri)
    for _ in range(BLOWS):
        struck.begin(procedure)
        struck.check(overtake(holding, struck.run))
