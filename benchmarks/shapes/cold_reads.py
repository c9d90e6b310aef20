"""Reads of tables that the process has not opened yet; modules are loaded, and the files are in the page cache.

    shapes/wide/take/N, shapes/wide/scan/N    N columns of 5,000 in 3 files, of one row or of all; `all` columns
    shapes/cold/1000xROWS/VERSION/COLUMNS     all columns, or one, of 1,000 files
    shapes/cold/10000x1/all                   10,000 files of one row
    shapes/open/TABLE                         one row of a table of `benchmarks.tables`
    shapes/lag/...                            the same by the asynchronous interface: by how much another coroutine of
                                              the loop is late at most; the median of the rounds

Each turn is a process of its own, which has done the same to a small table before (`cold_probe`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.cases import OPENERS, OURS, PYLANCE, Case, measured_by, open_ours, require_equal
from benchmarks.shapes.cold_probe import ColdRead
from benchmarks.shapes.shape_tables import VERSIONS, shaped, small_shaped, spread_columns
from benchmarks.tables import RECIPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measure import Operation, Sample, Turn
    from benchmarks.tables import BenchTable, Tables

LIBRARIES: Final = (OURS, PYLANCE)
ROUNDS: Final = 5  # of processes, most of whose time is the start
SLOW_ROUNDS: Final = 3
OPEN_ROUNDS: Final = 9
SMALL_SCALE: Final = 1e-5
GOAL, SCAN_GOAL, CPU_GOAL = 1.0, 2.0, 2.0
LAG_LIMIT_S: Final = 0.005


@dataclass(frozen=True)
class Question:
    """What is asked of which table.

    columns  how many, or which one; None: all
    takes    one row instead of all
    """

    table: str
    columns: int | str | None = None
    takes: bool = False

    def find(self, tables: Tables) -> tuple[BenchTable, BenchTable]:
        """The table, and a small one of its kind."""
        if self.table in RECIPES:
            return tables(self.table), RECIPES[self.table].ready(tables.cache, SMALL_SCALE)
        return shaped(tables, self.table), small_shaped(tables, self.table)

    def reads(self, table: BenchTable, small: BenchTable) -> tuple[ColdRead, ColdRead]:
        """The read of each; the same columns."""
        columns = spread_columns(table.columns, self.columns) if isinstance(self.columns, int) else None
        if isinstance(self.columns, str):
            columns = [self.columns]
        rows = [one.num_rows // 2 if self.takes else None for one in (table, small)]
        return ColdRead(table.lance_uri, rows[0], columns), ColdRead(small.lance_uri, rows[1], columns)


def measure_cold(what: str, library: str, reads: tuple[ColdRead, ColdRead], round_number: int) -> Sample:
    """A turn in a fresh process."""
    del round_number
    return measured_by("benchmarks.shapes.cold_probe", what, library, *(read.as_text() for read in reads))


def cold_turns(tables: Tables, question: Question) -> dict[str, Turn]:
    """Turns of both libraries. Raises `WrongAnswerError` unless their answers are the same."""
    found = question.find(tables)
    reads = question.reads(*found)
    require_equal({who: reads[0].ask(OPENERS[who](found[0])) for who in LIBRARIES})
    return {who: partial(measure_cold, "time", who, reads) for who in LIBRARIES}


def lag_turns(tables: Tables, question: Question) -> dict[str, Turn]:
    """Turns of ours; what is answered is what `cold_turns` has compared."""
    return {OURS: partial(measure_cold, "lag", OURS, question.reads(*question.find(tables)))}


def cold_case(
    tables: Tables,
    name: str,
    question: Question,
    goal: float | None,
    cpu_goal: float | None = None,
    rounds_max: int = ROUNDS,
) -> Case:
    """A read of a table that is opened for it."""

    def ours() -> Operation:
        found = question.find(tables)
        read, _ = question.reads(*found)
        return lambda number: read.ask(open_ours(found[0]))

    make = partial(cold_turns, tables, question)
    return Case(f"shapes/{name}", make, goal=goal, cpu_goal=cpu_goal, rounds_max=rounds_max, profiled=ours)


def cold_cases(tables: Tables) -> Iterator[Case]:
    """Every read, then the lags."""
    take, few, everything = Question("wide", 2, takes=True), Question("wide", 3), Question("wide")
    yield cold_case(tables, "wide/take/2", take, GOAL)
    yield cold_case(tables, "wide/take/1", Question("wide", 1, takes=True), None, GOAL)
    yield cold_case(tables, "wide/scan/3", few, GOAL)
    yield cold_case(tables, "wide/scan/all", everything, SCAN_GOAL, rounds_max=SLOW_ROUNDS)
    lags = {"wide/take/2": take, "wide/scan/3": few, "wide/scan/all": everything}

    for num_rows in (100, 1_000):
        for version in VERSIONS:
            table = f"1000x{num_rows}_{version}"
            for label, columns in (("all", None), ("id", "id")):
                name, question = f"1000x{num_rows}/{version}/{label}", Question(table, columns)
                yield cold_case(tables, f"cold/{name}", question, GOAL, CPU_GOAL)
                if num_rows == 1_000:
                    lags[name] = question
    most = Question("10000x1")
    yield cold_case(tables, "cold/10000x1/all", most, GOAL, CPU_GOAL, SLOW_ROUNDS)
    lags["10000x1/all"] = most

    for table in ("five", "vectors", "many"):
        yield cold_case(tables, f"open/{table}", Question(table, takes=True), GOAL, GOAL, OPEN_ROUNDS)
    for name, question in lags.items():
        make = partial(lag_turns, tables, question)
        yield Case(f"shapes/lag/{name}", make, limit_s=LAG_LIMIT_S, rounds_max=SLOW_ROUNDS)
