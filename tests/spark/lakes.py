"""A catalog of the JAR for tests: statements, its tables as pylance sees them, and other writers at the same time."""

from __future__ import annotations

import re
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


class Lake:
    """The catalog: statements, and its tables as pylance sees them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements; the rows of the last."""
        rows = [[tuple(row) for row in self.spark.sql(text).collect()] for text in statements]
        return rows[-1]

    def peer(self, name: str) -> lance.LanceDataset:
        return lance.dataset(str(self.folder / f"{name}.lance"))

    def rows(self, name: str) -> list[dict[str, Any]]:
        return sorted(self.peer(name).to_table().to_pylist(), key=lambda row: (row["id"] is None, row["id"]))

    def files(self, name: str) -> set[str]:
        """Data files on disk."""
        return {path.name for path in (self.folder / f"{name}.lance" / "data").iterdir()}

    def live_files(self, name: str, version: int | None = None) -> set[str]:
        """Data files of a version, by default the newest."""
        peer = lance.dataset(str(self.folder / f"{name}.lance"), version=version)
        return {file.path for fragment in peer.get_fragments() for file in fragment.data_files()}


def operations(dataset: lance.LanceDataset) -> list[str]:
    """The operation of each version."""
    transactions = [dataset.read_transaction(version["version"]) for version in dataset.versions()]
    return [type(transaction.operation).__name__ for transaction in transactions]


def make_people(lake: Lake, name: str, *, stable: bool) -> lance.LanceDataset:
    """A table of the catalog, and the same table for pylance alone."""
    table = pa.table({"id": range(100), "name": [f"n{number % 9}" for number in range(100)], "x": [0.5] * 100})
    for path in (lake.folder / f"{name}.lance", lake.folder / "peers" / f"{name}.lance"):
        lance.write_dataset(table, str(path), max_rows_per_file=30, enable_stable_row_ids=stable)
    return lance.dataset(str(lake.folder / "peers" / f"{name}.lance"))


def run_beside(lake: Lake, name: str, statement: str, other: Callable[[], object]) -> None:
    """Run a statement whose tasks wait until another writer has committed.

    The source of the rows is a scan of a view whose rows come from a function in Python that makes the other commit.
    """
    flag = lake.folder / f"{name}.flag"

    def when_committed(_):  # PySpark would read the types of its arguments
        while not flag.exists():
            time.sleep(0.01)
        return True

    lake.spark.udf.register("when_committed", when_committed, "boolean")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(lake.sql, statement)
        try:
            wait_for_tasks(lake.spark, running)
            other()
        finally:
            flag.touch()
        running.result()


def wait_for_tasks(spark: SparkSession, running: Future[Any]) -> None:
    """Wait until a task of a statement runs: it has read the table's version."""
    tracker = spark.sparkContext.statusTracker()
    while not any(tracker.getStageInfo(stage).numActiveTasks for stage in tracker.getActiveStageIds()):
        if running.done():
            running.result()  # raises why it has no tasks
            raise AssertionError("the statement ended before the other writer began")
        time.sleep(0.01)


def cookbook() -> list[str]:
    """The statements of `docs/spark.md`, on tables of the catalog `lance`."""
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    block, *_ = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    return [text for text in block.split(";\n") if text.strip()]


def in_catalog(statement: str, catalog: str) -> str:
    """A statement of the page on tables of another catalog."""
    return re.sub(r"\blance\.(events|copy|other)\b", rf"{catalog}.\1", statement)


def check_cookbook(events: lance.LanceDataset) -> None:
    """The rows of `events` after all statements."""
    rows = {row["id"]: row for row in events.to_table().to_pylist()}
    assert rows.keys() == {1, 3, 4, 5, 6, 7, 8, 9}
    assert [rows[number]["text"] for number in (1, 3, 8)] == ["replaced", "again", "again"]
