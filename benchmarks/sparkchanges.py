"""Statements that change tables through Spark's JAR, beside one process of pylance, and beside Parquet.

    spark/merge/CORES     a tenth of the rows of a table, and a tenth as many new ones, by MERGE in so many cores
    spark/merge/bytes     bytes of data files that this MERGE writes
    spark/compact/FILES   so many small files put together by the procedure
    spark/insert          rows of Parquet added to an empty table, beside the same into Parquet
    spark/overwrite       one day of thirty replaced by a dynamic overwrite, beside partitions of Parquet

A turn works on a copy of the table (links to its files); the time is that of the statement, or of the call in this
process, which has read the new rows before. Before, both do it once, and must leave the same rows.
"""

from __future__ import annotations

import shutil
import time
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet

from benchmarks.cases import OURS, PARQUET, PYLANCE, Case, WrongAnswerError
from benchmarks.compaction import copy_of, small_files
from benchmarks.measure import Sample
from benchmarks.sparkjobs import SparkProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from benchmarks.measure import Turn
    from benchmarks.tables import Tables

ROWS: Final = 5_000_000
FILES: Final = 5
SMALL_FILES: Final = 1_000
CORES: Final = 2
DAYS: Final = 30
INSERTED: Final = 2  # times the rows of `spark_large`: 1 GB
MERGE_GOALS: Final = {1: 0.7, 2: 1.0, 4: 1.0}
BYTES_GOAL, INSERT_GOAL = 1 / 1.02, 1.0
ROUNDS_MAX: Final = 5  # a statement takes seconds
MERGE: Final = (
    "MERGE INTO bench.`{table}` t USING parquet.`{source}` s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)
COMPACT: Final = "CALL bench.system.compact('{table}')"


def changed_rows(ids: np.ndarray[Any, np.dtype[np.int64]], seed: int) -> pa.Table:
    """Rows of some ids, the rest of which comes from the seed."""
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "id": ids,
            "number": rng.random(len(ids)),
            "day": (ids % DAYS).astype(np.int32),
            "text": [f"text {number}" for number in rng.integers(0, 1 << 40, len(ids))],
        }
    )


class Changes:
    """What the cases share: a process for each number of cores, and tables, each made when it is needed."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.process = cache(self._started)
        self.table = cache(self._table)
        self.source = cache(self._source)

    def _started(self, cores: int) -> SparkProcess:
        return SparkProcess(cores, self.tables.new_folder(), "tcp")

    @property
    def num_rows(self) -> int:
        """Rows of the large table."""
        return max(FILES * DAYS, round(ROWS * self.tables.scale))

    def _table(self) -> Path:
        path = self.tables.new_folder() / "t.lance"
        rows = changed_rows(np.arange(self.num_rows), 1)
        config = {"lance.overwrite.columns": "day"}
        lance.write_dataset(rows, path, max_rows_per_file=-(-self.num_rows // FILES)).update_config(config)
        return path

    def _source(self, what: str) -> Path:
        """Rows for `merge`, or for the `day` that is replaced."""
        num_rows = self.num_rows
        old = np.arange(0, num_rows, 10) if what == "merge" else np.arange(0, num_rows, DAYS)
        new = np.arange(num_rows, num_rows + len(old) // 10) if what == "merge" else np.arange(0)
        path = self.tables.new_folder() / "source.parquet"
        pyarrow.parquet.write_table(changed_rows(np.concatenate([old, new]), 2), path)
        return path


def written_bytes(table: Path, before: set[str]) -> int:
    """Bytes of the data files that were not there before."""
    return sum(file.stat().st_size for file in (table / "data").iterdir() if file.name not in before)


def changed(path: Path, who: str, work: Callable[[Path], Sample], is_sized: bool, number: int) -> Sample:
    """One change of a copy of a table."""
    copy = copy_of(path, number, who)
    before = {file.name for file in (copy / "data").iterdir()}
    sample = work(copy)
    num_bytes = written_bytes(copy, before)
    shutil.rmtree(copy)
    return Sample(float(num_bytes), sample.cpu_s) if is_sized else sample


def by_spark(process: SparkProcess, statement: str, source: Path | None, table: Path) -> Sample:
    """The statement."""
    return process.sample({"sql": statement.format(table=table, source=source)})


def by_pylance(work: Callable[[lance.LanceDataset], object], table: Path) -> Sample:
    """The call, of a table that is open."""
    ds = lance.dataset(table, session=lance.Session())
    cpu_before, started = time.process_time(), time.perf_counter()
    work(ds)
    return Sample(time.perf_counter() - started, time.process_time() - cpu_before)


def rows_after(path: Path, who: str, work: Callable[[Path], Sample]) -> pa.Table:
    """The rows of a copy of the table after a change."""
    copy = copy_of(path, -2, who)
    work(copy)
    rows = lance.dataset(copy).to_table().sort_by("id")
    shutil.rmtree(copy)
    return rows


def beside_pylance(path: Path, works: dict[str, Callable[[Path], Sample]], is_sized: bool = False) -> dict[str, Turn]:
    """Turns that change copies of a table, which leave the same rows."""
    if not rows_after(path, OURS, works[OURS]).equals(rows_after(path, PYLANCE, works[PYLANCE])):
        raise WrongAnswerError(f"Spark and pylance leave other rows in {path}")
    return {who: partial(changed, path, who, work, is_sized) for who, work in works.items()}


# -- cases -----------------------------------------------------------------------------------------------------------


def merge_case(changes: Changes, cores: int, *, is_sized: bool = False) -> Case:
    """MERGE beside `merge_insert`."""

    def make() -> dict[str, Turn]:
        source = changes.source("merge")
        rows = pyarrow.parquet.read_table(source)

        def merge(ds: lance.LanceDataset) -> None:
            ds.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)

        works = {OURS: partial(by_spark, changes.process(cores), MERGE, source), PYLANCE: partial(by_pylance, merge)}
        return beside_pylance(changes.table(), works, is_sized)

    if is_sized:
        return Case("spark/merge/bytes", make, "bytes", goal=BYTES_GOAL, rounds_max=1)
    return Case(f"spark/merge/{cores}", make, goal=MERGE_GOALS[cores], rounds_max=ROUNDS_MAX)


def compact_case(changes: Changes) -> Case:
    """The procedure beside the call."""

    def make() -> dict[str, Turn]:
        def compact(ds: lance.LanceDataset) -> None:
            ds.optimize.compact_files()

        works = {OURS: partial(by_spark, changes.process(CORES), COMPACT, None), PYLANCE: partial(by_pylance, compact)}
        return beside_pylance(small_files(changes.tables, SMALL_FILES), works)

    return Case(f"spark/compact/{SMALL_FILES}", make, rounds_max=ROUNDS_MAX)


def insert_case(changes: Changes) -> Case:
    """Rows of Parquet into a table, and into Parquet."""

    def make() -> dict[str, Turn]:
        process, source = changes.process(CORES), changes.tables("spark_large").parquet_folder
        rows = " UNION ALL ".join([f"SELECT * FROM parquet.`{source}`"] * INSERTED)
        vectors = "TBLPROPERTIES ('vector.arrow.fixed-size-list.size' = '256')"

        def ours(number: int) -> Sample:
            folder = changes.tables.new_folder()
            table = f"bench.`{folder}/t.lance`"
            before = f"CREATE TABLE {table} (id BIGINT, number DOUBLE, vector ARRAY<FLOAT>) {vectors}"
            sample = process.sample({"before": before, "sql": f"INSERT INTO {table} {rows}"})
            if number == 0:
                expected = INSERTED * lance.dataset(changes.tables("spark_large").lance_uri).count_rows()
                if lance.dataset(folder / "t.lance").count_rows() != expected:
                    raise WrongAnswerError(f"INSERT left other than {expected} rows")
            shutil.rmtree(folder)
            return sample

        def parquet(number: int) -> Sample:
            del number
            folder = changes.tables.new_folder()
            sample = process.sample({"sql": f"INSERT OVERWRITE DIRECTORY '{folder}/p' USING parquet {rows}"})
            shutil.rmtree(folder)
            return sample

        return {OURS: ours, PARQUET: parquet}

    return Case("spark/insert", make, parquet_goal=INSERT_GOAL, rounds_max=ROUNDS_MAX)


def overwrite_case(changes: Changes) -> Case:
    """A day loaded again."""

    def make() -> dict[str, Turn]:
        process, path = changes.process(CORES), changes.table()
        day = f"SELECT id, number, day, text FROM parquet.`{changes.source('day')}`"
        folder = changes.tables.new_folder() / "days"
        old = changes.tables.new_folder() / "old.parquet"
        pyarrow.parquet.write_table(lance.dataset(path).to_table(), old)
        columns = "id BIGINT, number DOUBLE, text STRING, day INT"
        create = f"CREATE TABLE days ({columns}) USING parquet PARTITIONED BY (day) LOCATION '{folder}'"
        for statement in (create, f"INSERT INTO days SELECT id, number, text, day FROM parquet.`{old}`"):
            process.ask({"sql": statement})
        dynamic = {"spark.sql.sources.partitionOverwriteMode": "dynamic"}

        def ours(table: Path) -> Sample:
            return process.sample({"sql": f"INSERT OVERWRITE bench.`{table}` {day}", "settings": dynamic})

        def parquet(number: int) -> Sample:
            del number
            rows = day.replace("day, text", "text, day")
            return process.sample({"sql": f"INSERT OVERWRITE days PARTITION (day) {rows}", "settings": dynamic})

        after = rows_after(path, OURS, ours)
        if after.num_rows != changes.num_rows or after.schema != lance.dataset(path).schema:
            raise WrongAnswerError(f"the overwrite left {after.num_rows} rows of {changes.num_rows}")
        return {OURS: partial(changed, path, OURS, ours, False), PARQUET: parquet}

    return Case("spark/overwrite", make, rounds_max=ROUNDS_MAX)


def spark_change_cases(tables: Tables) -> Iterator[Case]:
    """Every case."""
    changes = Changes(tables)
    for cores in MERGE_GOALS:
        yield merge_case(changes, cores)
    yield merge_case(changes, CORES, is_sized=True)
    yield compact_case(changes)
    yield insert_case(changes)
    yield overwrite_case(changes)
