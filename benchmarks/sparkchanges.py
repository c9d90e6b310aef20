"""Statements that change tables through Spark's JAR, beside one process of pylance, and beside Parquet by Spark.

    sparksql/merge/CORES    a tenth of the rows of a table, and a hundredth as many new ones, by MERGE in so many tasks
    sparksql/compact        1,000 small files put together by the procedure
    sparksql/insert         1 GB of vectors from Parquet into an empty table
    sparksql/overwrite      one day of thirty replaced by a dynamic overwrite; pylance deletes and appends
    sparksql/bytes/WHAT     bytes of data files that each of them writes, with two tasks: at most 1.02 of pylance's

A turn works on a copy of the table (links to its files); the time is that of the statement, or of the call in this
process, which has a dataset and, for a merge, the new rows. Before, both do it once, and must leave the same rows.
Nothing is flushed, as by the others.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import lance
import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet

from benchmarks.cases import OURS, PARQUET, PYLANCE, Case, WrongAnswerError
from benchmarks.compaction import copy_of, small_files
from benchmarks.measure import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.measure import Turn
    from benchmarks.sparkjobs import SparkProcess, SparkSessions
    from benchmarks.tables import Tables

Work = Callable[[Path], Sample]
"""One change of the table in a folder."""

ROWS: Final = 5_000_000
FILES: Final = 5
SMALL_FILES: Final = 1_000
CORES: Final = 2
DAYS: Final = 30
INSERTED: Final = 2  # times the rows of `spark_large`: 1 GB
MERGE_GOALS: Final = {1: 0.7, 2: 1.0, 4: None}  # pylance's seconds over ours
INSERT_GOAL, BYTES_GOAL = 1.0, 1 / 1.02
ROUNDS_MAX: Final = 9
SECONDS: Final = 180.0  # for seven rounds of statements that take some seconds
MERGE: Final = (
    "MERGE INTO bench.`{table}` t USING parquet.`{source}` s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)
COMPACT: Final = "CALL bench.system.compact('{table}')"


@dataclass(frozen=True)
class Change:
    """A change of a table by several contenders.

    works    what Spark and pylance do with a copy of the table
    parquet  the same change by Spark in Parquet, which needs no copy
    """

    table: Path
    works: Mapping[str, Work]
    parquet: Mapping[str, Turn] = field(default_factory=dict)

    def turns(self, is_sized: bool) -> dict[str, Turn]:
        """Turns of all contenders. Raises `WrongAnswerError` unless Spark and pylance leave the same rows."""
        ours, theirs = (rows_after(self.table, who, self.works[who]) for who in (OURS, PYLANCE))
        if not ours.equals(theirs):
            raise WrongAnswerError(f"Spark leaves {ours.num_rows:,} rows in {self.table}, pylance {theirs.num_rows:,}")
        turns: dict[str, Turn] = {
            who: partial(changed, self.table, who, work, is_sized) for who, work in self.works.items()
        }
        return turns if is_sized else {**turns, **self.parquet}


def rows_after(path: Path, who: str, work: Work) -> pa.Table:
    """The rows of a copy of the table after a change."""
    copy = copy_of(path, -2, who)
    work(copy)
    rows = lance.dataset(copy).to_table()
    shutil.rmtree(copy)
    return rows.sort_by("id").combine_chunks()


def changed(path: Path, who: str, work: Work, is_sized: bool, number: int) -> Sample:
    """One change of a copy of a table; with `is_sized` the bytes that it has written count instead of the time."""
    copy = copy_of(path, number, who)
    before = {file.name for file in (copy / "data").iterdir()}
    sample = work(copy)
    written = sum(file.stat().st_size for file in (copy / "data").iterdir() if file.name not in before)
    shutil.rmtree(copy)
    return Sample(float(written), sample.cpu_s) if is_sized else sample


def by_spark(process: SparkProcess, statement: str, table: Path) -> Sample:
    """A statement on `{table}`."""
    return process.sample({"statement": statement.replace("{table}", str(table))})


def by_pylance(work: Callable[[lance.LanceDataset], object], table: Path) -> Sample:
    """A call of a dataset that is open."""
    ds = lance.dataset(table, session=lance.Session())
    cpu_before, started = time.process_time(), time.perf_counter()
    work(ds)
    return Sample(time.perf_counter() - started, time.process_time() - cpu_before)


# -- tables ----------------------------------------------------------------------------------------------------------


def sales(ids: np.ndarray[Any, np.dtype[np.int64]], seed: int) -> pa.Table:
    """Rows of some ids, the rest of which comes from the seed; but the day is that of the id."""
    rng = np.random.default_rng(seed)
    texts = pa.array(rng.integers(0, 1 << 40, len(ids))).cast(pa.string())
    days = (ids % DAYS).astype(np.int32)
    return pa.table({"id": ids, "number": rng.random(len(ids)), "day": days, "text": texts})


class Changes:
    """What the cases share: sessions and tables, each made when it is needed."""

    def __init__(self, tables: Tables, sessions: SparkSessions) -> None:
        self.tables, self.sessions = tables, sessions
        self.num_rows = max(FILES * DAYS, round(ROWS * tables.scale))
        self.table = cache(self._table)

    def _table(self) -> Path:
        path = self.tables.new_folder() / "t.lance"
        ds = lance.write_dataset(sales(np.arange(self.num_rows), 1), path, max_rows_per_file=-(-self.num_rows // FILES))
        ds.update_config({"lance.overwrite.columns": "day"})
        return path

    def kept(self, rows: pa.Table) -> Path:
        """Rows as a file of Parquet."""
        path = self.tables.new_folder() / "rows.parquet"
        pyarrow.parquet.write_table(rows, path)
        return path

    # -- changes -----------------------------------------------------------------------------------------------------

    def merge(self, cores: int) -> Change:
        """MERGE beside `merge_insert`."""
        old = np.arange(0, self.num_rows, 10)
        new = np.arange(self.num_rows, self.num_rows + len(old) // 10)
        rows = sales(np.concatenate([old, new]), 2)
        (process,) = self.sessions(cores)

        def merge(ds: lance.LanceDataset) -> None:
            ds.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)

        statement = MERGE.replace("{source}", str(self.kept(rows)))
        return Change(self.table(), {OURS: partial(by_spark, process, statement), PYLANCE: partial(by_pylance, merge)})

    def compact(self) -> Change:
        """The procedure beside the call."""
        (process,) = self.sessions(CORES)

        def compact(ds: lance.LanceDataset) -> None:
            ds.optimize.compact_files()

        works = {OURS: partial(by_spark, process, COMPACT), PYLANCE: partial(by_pylance, compact)}
        return Change(small_files(self.tables, SMALL_FILES), works)

    def insert(self) -> Change:
        """Rows of Parquet into a table, and into Parquet."""
        (process,), source = self.sessions(CORES), self.tables("spark_large").parquet_folder
        rows = " UNION ALL ".join([f"SELECT * FROM parquet.`{source}`"] * INSERTED)
        files = pyarrow.dataset.dataset([str(path) for path in sorted(Path(source).iterdir())] * INSERTED)
        path = self.tables.new_folder() / "t.lance"
        lance.write_dataset(files.schema.empty_table(), path)
        (path / "data").mkdir(exist_ok=True)

        def append(ds: lance.LanceDataset) -> None:
            lance.write_dataset(files.to_batches(), ds, schema=files.schema, mode="append")

        def parquet(number: int) -> Sample:
            del number
            folder = self.tables.new_folder()
            sample = process.sample({"statement": f"INSERT OVERWRITE DIRECTORY '{folder}' USING parquet {rows}"})
            shutil.rmtree(folder)
            return sample

        ours = partial(by_spark, process, f"INSERT INTO bench.`{{table}}` {rows}")
        return Change(path, {OURS: ours, PYLANCE: partial(by_pylance, append)}, {PARQUET: parquet})

    def overwrite(self) -> Change:
        """A day loaded again."""
        (process,), path = self.sessions(CORES), self.table()
        rows = sales(np.arange(0, self.num_rows, DAYS), 2)
        source, old = self.kept(rows), self.kept(lance.dataset(path).to_table())
        days = f"days USING parquet PARTITIONED BY (day) LOCATION '{self.tables.new_folder()}/days'"
        process.ask({"statement": "DROP TABLE IF EXISTS days"})
        process.ask({"statement": f"CREATE TABLE {days} AS SELECT id, number, text, day FROM parquet.`{old}`"})
        again = f"INSERT OVERWRITE days PARTITION (day) SELECT id, number, text, day FROM parquet.`{source}`"

        def replace(ds: lance.LanceDataset) -> None:
            ds.delete("day = 0")
            lance.write_dataset(rows, ds, mode="append")

        def parquet(number: int) -> Sample:
            del number
            return process.sample({"statement": again})

        statement = f"INSERT OVERWRITE bench.`{{table}}` SELECT id, number, day, text FROM parquet.`{source}`"
        ours = partial(by_spark, process, statement)
        return Change(path, {OURS: ours, PYLANCE: partial(by_pylance, replace)}, {PARQUET: parquet})


def spark_change_cases(tables: Tables, sessions: SparkSessions) -> Iterator[Case]:
    """Every case."""
    changes = Changes(tables, sessions)

    def case(name: str, change: Callable[[], Change], goal: float | None = None, parquet: float | None = None) -> Case:
        def make() -> dict[str, Turn]:
            return change().turns(is_sized=False)

        return Case(f"sparksql/{name}", make, goal=goal, parquet_goal=parquet, rounds_max=ROUNDS_MAX, seconds=SECONDS)

    def sized(name: str, change: Callable[[], Change]) -> Case:
        def make() -> dict[str, Turn]:
            return change().turns(is_sized=True)

        return Case(f"sparksql/bytes/{name}", make, "bytes", goal=BYTES_GOAL, rounds_max=1)

    for cores, goal in MERGE_GOALS.items():
        yield case(f"merge/{cores}", partial(changes.merge, cores), goal)
    yield case("compact", changes.compact)
    yield case("insert", changes.insert, parquet=INSERT_GOAL)
    yield case("overwrite", changes.overwrite)
    yield sized("merge", partial(changes.merge, CORES))
    for what in (changes.compact, changes.insert, changes.overwrite):
        yield sized(what.__name__, what)
