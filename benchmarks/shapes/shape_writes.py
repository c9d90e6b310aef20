"""Writes of many columns and few rows, and appends of many processes; nothing is flushed.

    shapes/write/COLUMNS     a new table of 1,000 rows of so many columns: int64, double, string in turns
    shapes/append/COLUMNS    the same rows appended by URI to a table of as many
    shapes/append/3000       3 rows appended to a table of 3,000 columns
    shapes/writers/8         eight processes append one row again and again to one table: seconds for one append of any

An append works on a copy of the table, whose files are links.
"""

from __future__ import annotations

import os
import shutil
import time
from functools import cache, partial
from typing import TYPE_CHECKING, Final

import lance
import pyarrow as pa

from benchmarks.cases import OURS, PYLANCE, Case, WrongAnswerError
from benchmarks.commits import appenders
from benchmarks.measure import Sample
from benchmarks.shapes.shape_tables import COLUMNS_MIN, wide_rows
from benchmarks.shares import append_together
from benchmarks.writes import VERSIONS, turns, writers, written

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.measure import Operation, Turn
    from benchmarks.tables import Tables

LIBRARIES: Final = (OURS, PYLANCE)
NUM_COLUMNS: Final = (30, 100, 300)
NUM_ROWS: Final = 1_000
MOST_COLUMNS, FEW_ROWS = 3_000, 3
APPENDS: Final = 4  # in a turn
GOAL: Final = 1.0
APPEND_LIMIT_S: Final = 0.25
ROUNDS_FACTOR: Final = 2  # turns are single writes of some milliseconds
MOST_ROUNDS: Final = 5
NUM_WRITERS: Final = 8
WRITERS_S, WRITERS_S_MIN, WRITERS_ROUNDS = 8.0, 1.0, 3


def rows_of(tables: Tables, num_columns: int, num_rows: int) -> pa.Table:
    """So many columns, which the scale of the run multiplies."""
    return wide_rows(range(max(COLUMNS_MIN, round(num_columns * tables.scale))), num_rows)


def write_case(tables: Tables, num_columns: int) -> Case:
    """A new table."""
    version = VERSIONS[-1]
    rows = cache(partial(rows_of, tables, num_columns, NUM_ROWS))

    def make() -> dict[str, Turn]:
        contenders = writers(version)
        return turns(tables, rows(), {who: contenders[who] for who in LIBRARIES})

    def ours() -> Operation:
        write, folder = writers(version)[OURS], tables.new_folder()
        return lambda number: written(write, rows(), folder / str(number))

    return Case(f"shapes/write/{num_columns}", make, goal=GOAL, rounds_factor=ROUNDS_FACTOR, profiled=ours)


def append_turn(who: str, rows: pa.Table, table: Path, number: int) -> Sample:
    """A copy of the table, and the appends; the time of one."""
    path = shutil.copytree(table, table.with_name(f"{who}-{number}"), copy_function=os.link)
    append = appenders("none")[who]
    cpu_before = time.process_time()
    started = time.perf_counter()
    for _ in range(APPENDS):
        append(rows, path)
    wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu_before
    if number < 0 and lance.dataset(path).to_table() != pa.concat_tables([rows] * (APPENDS + 1)):
        raise WrongAnswerError(f"pylance does not read what {who} has appended")
    shutil.rmtree(path)
    return Sample(wall_s / APPENDS, cpu_s / APPENDS)


def append_case(
    tables: Tables,
    num_columns: int,
    num_rows: int,
    goal: float | None,
    limit_s: float | None = None,
    rounds_max: int | None = None,
) -> Case:
    """Appends to a table that pylance has written."""

    def prepared() -> tuple[pa.Table, Path]:
        rows, path = rows_of(tables, num_columns, num_rows), tables.new_folder() / "before"
        lance.write_dataset(rows, path)
        return rows, path

    def make() -> dict[str, Turn]:
        rows, path = prepared()
        made: dict[str, Turn] = {who: partial(append_turn, who, rows, path) for who in LIBRARIES}
        for turn in made.values():
            turn(-1)
        return made

    def ours() -> Operation:
        rows, path = prepared()
        return partial(append_turn, OURS, rows, path)

    name = f"shapes/append/{num_columns}"
    return Case(name, make, goal=goal, limit_s=limit_s, rounds_max=rounds_max, profiled=ours)


def writers_turn(who: str, folder: Path, seconds: float, number: int) -> Sample:
    """Eight processes for some seconds."""
    said = append_together([who] * NUM_WRITERS, folder / f"{who}-{number}", seconds)
    num_appends = max(1, sum(each["appends"] for each in said))
    return Sample(seconds / num_appends, sum(each["cpu_s"] for each in said) / num_appends)


def writers_case(tables: Tables) -> Case:
    """Many processes of one library."""

    def make() -> dict[str, Turn]:
        folder, seconds = tables.new_folder(), max(WRITERS_S_MIN, WRITERS_S * min(1.0, tables.scale))
        return {who: partial(writers_turn, who, folder, seconds) for who in LIBRARIES}

    name = f"shapes/writers/{NUM_WRITERS}"
    return Case(name, make, goal=GOAL, rounds_max=WRITERS_ROUNDS, amounts={"commits": 1})


def shape_write_cases(tables: Tables) -> Iterator[Case]:
    """Every write."""
    for num_columns in NUM_COLUMNS:
        yield write_case(tables, num_columns)
    for num_columns in NUM_COLUMNS:
        yield append_case(tables, num_columns, NUM_ROWS, GOAL)
    yield append_case(tables, MOST_COLUMNS, FEW_ROWS, None, APPEND_LIMIT_S, MOST_ROUNDS)
    yield writers_case(tables)
