"""Commits: small appends to a table on the local disk, alone and against others.

    commit/append/ROWS      one append by URI, nothing flushed to the disk, as pylance never does
    commit/held/ROWS        one append to the version that the last one gave
    commit/durable/ROWS     as append, with `durability="full"`, our default, against pylance without
    commit/writers/N        the time of a commit where N threads append to one table at once, nothing flushed

A turn makes a new table and appends to it `APPENDS` times; the time is that of one append, and the table is not part of
it. All rows must be there in the end.
"""

from __future__ import annotations

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa

import lance_io
from benchmarks.cases import OURS, PYLANCE, Case
from benchmarks.measure import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from benchmarks.measure import Operation, Turn
    from benchmarks.tables import Tables
    from lance_io.store.api import Durability

    Append = Callable[[Any, Any], Any]  # rows, and where to

APPENDS = 24
WRITERS = 8
ROWS = (1, 1_000)
GOAL = 1.0
CROWD_ROUNDS_FACTOR = 8  # who gets the interpreter is chance: quartiles of a ratio are a third apart


def small_rows(num_rows: int) -> pa.Table:
    """Rows of a number, a text and a double."""
    numbers = range(num_rows)
    texts, doubles = [f"row {number}" for number in numbers], [number / 2 for number in numbers]
    return pa.table({"id": pa.array(numbers, pa.int64()), "text": texts, "double": doubles})


def appenders(durability: Durability) -> dict[str, Append]:
    """How each contender appends."""
    return {
        OURS: lambda rows, table: lance_io.write_dataset(rows, table, mode="append", durability=durability),
        PYLANCE: lambda rows, table: lance.write_dataset(rows, table, mode="append"),
    }


def by_uri(append: Append, rows: pa.Table, path: Path) -> None:
    """Appends that each look for the newest version."""
    for _ in range(APPENDS):
        append(rows, path)


def held(append: Append, rows: pa.Table, path: Path) -> None:
    """Appends to the version that the last one gave."""
    table = append(rows, path)
    for _ in range(APPENDS - 1):
        table = append(rows, table)


def crowd(append: Append, rows: pa.Table, path: Path) -> None:
    """The same appends from several threads at once."""
    with ThreadPoolExecutor(WRITERS) as threads:
        for done in [threads.submit(append, rows, path) for _ in range(APPENDS)]:
            done.result()


def commit_turn(way: Callable[..., None], append: Append, rows: pa.Table, folder: Path, number: int) -> Sample:
    """A new table, and the appends."""
    path = folder / str(number)
    lance.write_dataset(rows, path)
    cpu_before = time.process_time()
    started = time.perf_counter()
    way(append, rows, path)
    wall_s = time.perf_counter() - started
    cpu_s = time.process_time() - cpu_before
    if lance.dataset(path).count_rows() != rows.num_rows * (APPENDS + 1):
        raise AssertionError("not every row is there once")
    shutil.rmtree(path)
    return Sample(wall_s / APPENDS, cpu_s / APPENDS)


def commit_case(
    tables: Tables,
    name: str,
    way: Callable[..., None],
    num_rows: int,
    goal: float | None,
    durability: Durability = "none",
    rounds_factor: int = 1,
) -> Case:
    """One way of appending."""

    def make() -> dict[str, Turn]:
        rows = small_rows(num_rows)
        contenders = appenders(durability)
        made: dict[str, Turn] = {
            who: partial(commit_turn, way, append, rows, tables.new_folder()) for who, append in contenders.items()
        }
        for turn in made.values():
            turn(-1)
        return made

    def ours() -> Operation:
        rows, folder = small_rows(num_rows), tables.new_folder()
        return lambda number: commit_turn(way, appenders(durability)[OURS], rows, folder, number)

    return Case(f"commit/{name}", make, goal=goal, rounds_factor=rounds_factor, profiled=ours, amounts={"commits": 1})


def commit_cases(tables: Tables) -> Iterator[Case]:
    """Every way of appending."""
    for num_rows in ROWS:
        yield commit_case(tables, f"append/{num_rows}", by_uri, num_rows, GOAL)
    yield commit_case(tables, "held/1", held, 1, GOAL)
    yield commit_case(tables, "durable/1", by_uri, 1, None, "full")
    yield commit_case(tables, f"writers/{WRITERS}", crowd, 1, GOAL, rounds_factor=CROWD_ROUNDS_FACTOR)
