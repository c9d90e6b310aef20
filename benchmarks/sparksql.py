"""SQL through Spark's JAR, beside Spark's own Parquet reader, in sessions of their own.

    sparksql/TABLE/select   three columns, into Spark's sink that drops rows
    sparksql/TABLE/percent  these columns of the hundredth of the rows that passes a predicate
    sparksql/TABLE/star     a join with two small tables, one of them filtered, and sums by their columns
    sparksql/TABLE/count    the number of all rows: at most 30 ms above Parquet
    sparksql/TABLE/slots    `select` with sixteen tasks at a time: at least 0.9 of the speed of two on the same cores
    sparksql/tasks          a hundred tasks of a row each: at most 10 ms for each above tasks of Spark itself

`allowance` is the time of Parquet, or of Spark itself, and the time that may come on top. `two slots` are our queries
with two tasks at a time. Statements that change tables are in `sparkchanges`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.cases import ALLOWANCE, OURS, PARQUET, TWO_SLOTS, Case, WrongAnswerError
from benchmarks.measure import Sample
from benchmarks.sparkchanges import spark_change_cases
from benchmarks.sparkjobs import SparkSessions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.measure import Turn
    from benchmarks.sparkjobs import Query, SparkProcess
    from benchmarks.tables import Tables

CORES: Final = 2
MANY_SLOTS: Final = 16
SLOTS_GOAL: Final = 0.9
COUNT_MORE_S: Final = 0.03
NUM_TASKS: Final = 100
TASK_MORE_S: Final = 0.01
ROUNDS_MAX: Final = 9
SECONDS: Final = 120.0  # for seven rounds of queries that take some seconds
WARM_ROUNDS: Final = {"select": 2, "percent": 4, "star": 4, "count": 12}  # short queries have the most to compile
TABLES: Final = {"narrow": "sql_narrow", "vectors": "sql_vectors"}
JOINED: Final = {"days": "sql_days", "shops": "sql_shops"}
QUERIES: Final = {
    "narrow": {
        "select": "select id, number, text from {facts}",
        "percent": "select id, number, text from {facts} where number < 0.01",
        "star": "select d.quarter, s.region, sum(f.units), count(*) from {facts} f join {days} d on f.day = d.day "
        "join {shops} s on f.shop = s.shop where d.quarter = 2 group by d.quarter, s.region",
        "count": "select count(*) from {facts}",
    },
    "vectors": {
        "select": "select id, number, vector from {facts}",
        "percent": "select id, number, vector from {facts} where number < 0.01",
        "star": "select d.quarter, s.region, max(f.vector[0]), count(*) from {facts} f join {days} d on f.day = d.day "
        "join {shops} s on f.shop = s.shop where d.quarter = 2 group by d.quarter, s.region",
        "count": "select count(*) from {facts}",
    },
}


class SqlTurns:
    """What the cases of one run share."""

    def __init__(self, tables: Tables, sessions: SparkSessions) -> None:
        self.tables, self.sessions = tables, sessions

    def queries(self, table: str, what: str) -> dict[str, Query]:
        """The same query for both contenders, over views that a session makes once."""
        names = {"facts": TABLES[table], **JOINED}
        text = QUERIES[table][what]
        named = {role: self.tables(name) for role, name in names.items() if f"{{{role}}}" in text}
        queries: dict[str, Query] = {}
        for who, format in ((OURS, "lance_io"), (PARQUET, "parquet")):
            views = {
                f"{stored.name}_{format}": {
                    "read": format,
                    "path": stored.lance_uri if who == OURS else stored.parquet_folder,
                }
                for stored in named.values()
            }
            roles = dict(zip(named, views, strict=True))
            queries[who] = {"sql": text.format(**roles), "views": views}
        return queries


def turn(process: SparkProcess, query: Query, more_s: float, round_number: int) -> Sample:
    """Run a query; its time, and `more_s`."""
    del round_number
    sample = process.sample(query)
    return Sample(sample.value + more_s, sample.cpu_s)


def warm(process: SparkProcess, queries: Mapping[str, Query], rounds: int) -> None:
    """Let contenders answer in turn, so that the virtual machine has compiled. Raises `WrongAnswerError`."""
    answers = [process.ask({**query, "check": True}) for query in queries.values()]
    if any(answer != answers[0] for answer in answers):
        raise WrongAnswerError(f"not the same rows: {dict(zip(queries, answers, strict=True))}")
    for _ in range(rounds):
        for query in queries.values():
            process.ask(query)


# -- cases -----------------------------------------------------------------------------------------------------------


def query_case(sql: SqlTurns, table: str, what: str) -> Case:
    """A query beside Parquet."""

    def make() -> dict[str, Turn]:
        queries, (process,) = sql.queries(table, what), sql.sessions(CORES)
        warm(process, queries, WARM_ROUNDS[what])
        return {who: partial(turn, process, query, 0.0) for who, query in queries.items()}

    name = f"sparksql/{table}/{what}"
    return Case(name, make, parquet_goal=1.0, rounds_max=ROUNDS_MAX, seconds=SECONDS)


def count_case(sql: SqlTurns, table: str) -> Case:
    """The number of rows, which takes both so little time that a ratio says nothing."""

    def make() -> dict[str, Turn]:
        queries, (process,) = sql.queries(table, "count"), sql.sessions(CORES)
        warm(process, queries, WARM_ROUNDS["count"])
        return {
            OURS: partial(turn, process, queries[OURS], 0.0),
            ALLOWANCE: partial(turn, process, queries[PARQUET], COUNT_MORE_S),
        }

    return Case(f"sparksql/{table}/count", make, peer_goals={ALLOWANCE: 1.0}, seconds=SECONDS)


def slots_case(sql: SqlTurns, table: str) -> Case:
    """The same query in two sessions."""

    def make() -> dict[str, Turn]:
        query = {OURS: sql.queries(table, "select")[OURS]}
        many, two = sql.sessions(MANY_SLOTS, CORES)
        for process in (many, two):
            warm(process, query, WARM_ROUNDS["select"])
        return {
            OURS: partial(turn, many, query[OURS], 0.0),
            TWO_SLOTS: partial(turn, two, query[OURS], 0.0),
        }

    name = f"sparksql/{table}/slots"
    return Case(name, make, peer_goals={TWO_SLOTS: SLOTS_GOAL}, rounds_max=ROUNDS_MAX, seconds=SECONDS)


def tasks_case(sql: SqlTurns) -> Case:
    """Tasks that have next to nothing to read."""

    def make() -> dict[str, Turn]:
        (process,), stored = sql.sessions(CORES), sql.tables("sql_days")
        options = {"num_partitions": str(NUM_TASKS)}
        views = {"few": {"read": "lance_io", "path": stored.lance_uri, "options": options}}
        queries: dict[str, Query] = {
            OURS: {"sql": "select day from few", "views": views},
            ALLOWANCE: {"sql": f"select cast(id as int) day from range(0, {stored.num_rows}, 1, {NUM_TASKS})"},
        }
        warm(process, queries, WARM_ROUNDS["star"])
        more_s = NUM_TASKS * TASK_MORE_S / CORES  # so many run at a time
        return {
            OURS: partial(turn, process, queries[OURS], 0.0),
            ALLOWANCE: partial(turn, process, queries[ALLOWANCE], more_s),
        }

    return Case("sparksql/tasks", make, peer_goals={ALLOWANCE: 1.0}, seconds=SECONDS)


def sql_cases(tables: Tables) -> Iterator[Case]:
    """Every query, and every statement that changes a table."""
    sessions = SparkSessions(tables)
    sql = SqlTurns(tables, sessions)
    for table in TABLES:
        for what in ("select", "percent", "star"):
            yield query_case(sql, table, what)
        yield count_case(sql, table)
        yield slots_case(sql, table)
    yield tasks_case(sql)
    yield from spark_change_cases(tables, sessions)
