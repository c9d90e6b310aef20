"""Spark: reads and writes beside Parquet, and beside a source that only hands over batches that are there.

    spark/read/TABLE/WHAT   all columns, one column, or the rows that pass a filter, into Spark's sink that drops rows
    spark/write/TABLE       Spark reads Parquet and writes a new table
    spark/tasks/N           all columns of the narrow table in N tasks
    spark/cores/TABLE       all columns with two cores, and with one
    spark/sockets/TABLE     the rows that pass a filter, over TCP as Spark comes, and over Unix sockets
    spark/large/SOCKETS     all columns of half a gigabyte, over either, each with its ceiling

`ceiling` is that other source (or a sink that drops what it gets): the same batches in the same tasks. What it needs is
Spark's part, which no source in Python can avoid. `tune_worker` are our queries with the option of that name, and
`tuned ceiling` the ceiling of these: in a session of their own, because what the option sets stays with Spark's
processes; all others are without.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.cases import (
    CEILING,
    ONE_CORE,
    OURS,
    PARQUET,
    TUNED_CEILING,
    TUNED_WORKER,
    UNIX_SOCKETS,
    Case,
    WrongAnswerError,
)
from benchmarks.sparkjobs import SparkProcess
from benchmarks.sparksource import keep_ready, ready_amounts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.measure import Sample, Turn
    from benchmarks.sparkjobs import Query, Sockets
    from benchmarks.tables import Tables

TABLES = ("spark_narrow", "spark_vectors")
LARGE_TABLE, LARGE_PARTITIONS = "spark_large", 8
SOCKETS: tuple[Sockets, ...] = ("tcp", "unix")
TASKS = (1, 2, 8, 32, 128)
MANY_TASKS_ROUNDS = {32: 3, 128: 1}  # of these a query takes seconds, which vary less
PARTITIONS = 4  # two for each core
WARM_ROUNDS = 8  # the virtual machine compiles for some twenty queries, which halves their time
CORES = 2
CEILING_GOAL = 0.9
ROUNDS_MAX = 9  # a query takes half a second
READ_ROUNDS_FACTOR = 16  # ratios of single rounds are spread over a quarter, and the goal is a tenth from the ceiling
READ_SECONDS = 20.0  # some ten rounds on a busy machine
FILTER = "number < 0.05"
VECTORS = {"vector.arrow.fixed-size-list.size": "256"}  # Parquet only knows lists
TUNED = {"tune_worker": "true"}
WRITES = {
    OURS: "lance_io", PARQUET: "parquet", CEILING: "ready", TUNED_WORKER: "lance_io", TUNED_CEILING: "ready",
}  # fmt: skip
READS: dict[str, dict[str, Any]] = {"all": {}, "id": {"columns": ["id"]}, "filter": {"filter": FILTER}}


class SparkTurns:
    """What the cases of one run share: the tables, and a process for each kind of session, started when needed."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.process = cache(self._started)

    def _started(self, cores: int, sockets: Sockets = "tcp", is_tuned: bool = False) -> SparkProcess:
        del is_tuned  # tells processes apart whose workers have been tuned by queries
        return SparkProcess(cores, self.tables.new_folder(), sockets)

    def tuned_process(self) -> SparkProcess:
        """The one for queries that tune its workers."""
        return self.process(CORES, "tcp", True)

    def reads(self, table: str, num_partitions: int, wanted: Mapping[str, Any]) -> dict[str, Query]:
        """The same read for each contender: by options for us, by Spark's plan for Parquet."""
        found = self.tables(table)
        options = {"num_partitions": str(num_partitions)}
        options |= {name: value if isinstance(value, str) else ",".join(value) for name, value in wanted.items()}
        ready = self.tables.new_folder()
        keep_ready(ready, {"path": found.lance_uri, **options})
        return {
            OURS: {"read": "lance_io", "options": options, "path": found.lance_uri},
            PARQUET: {"read": "parquet", "path": found.parquet_folder, **wanted},
            CEILING: {"read": "ready", "path": str(ready)},
        }

    def require_same(self, process: SparkProcess, queries: Mapping[str, Query]) -> None:
        """Raise `WrongAnswerError` unless all queries give the same rows; they are warm then."""
        answers = {who: process.ask({**query, "check": True}) for who, query in queries.items()}
        if any(answer != answers[OURS] for answer in answers.values()):
            raise WrongAnswerError(f"not the same rows: {answers}")
        for query in queries.values():
            process.ask(query)

    def turns(self, queries: Mapping[str, Query], warm_rounds: int = 0) -> dict[str, Turn]:
        """Turns of queries that read, and of ours and the ceiling with tuned workers, after some that do not count."""
        ours = queries[OURS]
        tuned: dict[str, Query] = {OURS: ours, TUNED_WORKER: {**ours, "options": {**ours["options"], **TUNED}}}
        if CEILING in queries:
            tuned[TUNED_CEILING] = queries[CEILING]
        made: dict[str, Turn] = {}
        for process, some in ((self.process(CORES), queries), (self.tuned_process(), tuned)):
            self.require_same(process, some)
            for _ in range(warm_rounds):
                for query in some.values():
                    process.ask(query)
            made |= {who: partial(_turn, process, query) for who, query in some.items() if who not in made}
        return made


def _short(table: str) -> str:
    return table.removeprefix("spark_")


def _turn(process: SparkProcess, query: Query, round_number: int) -> Sample:
    del round_number
    return process.sample(query)


# -- cases -----------------------------------------------------------------------------------------------------------


def read_case(spark: SparkTurns, table: str, what: str) -> Case:
    """A read beside both others."""

    amounts: dict[str, float] = {}

    def make() -> dict[str, Turn]:
        queries = spark.reads(table, PARTITIONS, READS[what])
        amounts.update(ready_amounts(Path(queries[CEILING]["path"])))
        return spark.turns(queries, WARM_ROUNDS)

    name = f"spark/read/{_short(table)}/{what}"
    return Case(
        name,
        make,
        ceiling_goal=CEILING_GOAL,
        rounds_factor=READ_ROUNDS_FACTOR,
        seconds=READ_SECONDS,
        amounts=amounts,
    )


def tasks_case(spark: SparkTurns, num_tasks: int) -> Case:
    """The same bytes in more tasks."""

    def make() -> dict[str, Turn]:
        queries = spark.reads("spark_narrow", num_tasks, {})
        return spark.turns({who: query for who, query in queries.items() if who != PARQUET})

    return Case(f"spark/tasks/{num_tasks}", make, rounds_max=MANY_TASKS_ROUNDS.get(num_tasks, ROUNDS_MAX))


def cores_case(spark: SparkTurns, table: str) -> Case:
    """Two processes with the same query."""

    def make() -> dict[str, Turn]:
        query = {OURS: spark.reads(table, PARTITIONS, {})[OURS]}
        one = spark.process(1)
        spark.require_same(one, query)
        return {**spark.turns(query), ONE_CORE: partial(_turn, one, query[OURS])}

    return Case(f"spark/cores/{_short(table)}", make, rounds_max=ROUNDS_MAX)


def sockets_case(spark: SparkTurns, table: str) -> Case:
    """Two processes with the same query, which differ in how Spark talks to its workers."""

    def make() -> dict[str, Turn]:
        query = {OURS: spark.reads(table, PARTITIONS, READS["filter"])[OURS]}
        unix = spark.process(CORES, "unix")
        for _ in range(3 * WARM_ROUNDS):  # it has only this query to become warm by
            spark.require_same(unix, query)
        return {**spark.turns(query, 3 * WARM_ROUNDS), UNIX_SOCKETS: partial(_turn, unix, query[OURS])}

    return Case(f"spark/sockets/{_short(table)}", make, rounds_max=ROUNDS_MAX)


def large_case(spark: SparkTurns, sockets: Sockets) -> Case:
    """A read that takes seconds, so that what a query costs once counts for little."""

    amounts: dict[str, float] = {}

    def make() -> dict[str, Turn]:
        queries = spark.reads(LARGE_TABLE, LARGE_PARTITIONS, {})
        amounts.update(ready_amounts(Path(queries[CEILING]["path"])))
        process = spark.process(CORES, sockets)
        compared = {who: queries[who] for who in (OURS, CEILING)}
        spark.require_same(process, compared)
        return {who: partial(_turn, process, query) for who, query in compared.items()}

    return Case(f"spark/large/{sockets}", make, ceiling_goal=CEILING_GOAL, rounds_max=ROUNDS_MAX, amounts=amounts)


def write_case(spark: SparkTurns, table: str) -> Case:
    """Parquet into a new table."""

    def make() -> dict[str, Turn]:
        process = spark.process(CORES)
        source: Query = {"read": "parquet", "path": spark.tables(table).parquet_folder}
        queries: dict[str, Query] = {who: {**source, "write": format_} for who, format_ in WRITES.items()}
        queries[OURS]["write_options"] = VECTORS if table == "spark_vectors" else {}
        queries[TUNED_WORKER]["write_options"] = {**queries[OURS]["write_options"], **TUNED}
        tuned = spark.tuned_process()

        def turn(who: str, round_number: int) -> Sample:
            del round_number
            return (tuned if who in (TUNED_WORKER, TUNED_CEILING) else process).sample(
                {**queries[who], "to": str(spark.tables.new_folder() / "table")}
            )

        to = str(spark.tables.new_folder() / "table")
        process.ask({**queries[OURS], "to": to})
        spark.require_same(process, {OURS: {"read": "lance_io", "path": to}, PARQUET: source})
        made: dict[str, Turn] = {who: partial(turn, who) for who in queries}
        for one in made.values():
            one(0)
        return made

    return Case(f"spark/write/{_short(table)}", make, rounds_max=ROUNDS_MAX)


def spark_cases(tables: Tables) -> Iterator[Case]:
    """Every case of Spark."""
    spark = SparkTurns(tables)
    for table in TABLES:
        for what in READS:
            yield read_case(spark, table, what)
        yield write_case(spark, table)
    for num_tasks in TASKS:
        yield tasks_case(spark, num_tasks)
    for table in TABLES:
        yield cores_case(spark, table)
        yield sockets_case(spark, table)
    for sockets in SOCKETS:
        yield large_case(spark, sockets)
