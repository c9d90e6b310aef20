"""Reads of datasets of many files that are open, their metadata warm; and memory.

shapes/warm/FILESxROWS/all, /id         `to_table` of all columns, or of one
shapes/warm/FILESxROWS/filter           all columns of the one row with `id = ...`
shapes/warm/FILESxROWS/take             100 random rows of all columns, others each time
shapes/growth/FILESxROWS                by how much a fresh process grows that goes through all batches
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from benchmarks.cases import OPENERS, OURS, PYLANCE, Case, fresh, in_process, open_ours
from benchmarks.filters import filter_operation
from benchmarks.reads import MEMORY_ROUNDS, scan_operation, take_operation
from benchmarks.shapes.shape_tables import NEWEST, shaped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measure import Operation, Turn
    from benchmarks.tables import BenchTable, Tables

LIBRARIES: Final = (OURS, PYLANCE)
TAKEN_ROWS: Final = 100
GOAL, TAKE_GOAL = 2.0, 3.0
MANY_GOAL, MANY_CPU_GOAL = 1.0, 2.0  # of 10,000 files
WARM: Final = {"64x1000": "64x1000", "1000x1000": f"1000x1000_{NEWEST}"}
ROUNDS: Final = {"64x1000": None, "1000x1000": 9, "10000x1": 3}


def warm_operation(what: str, dataset: Any, table: BenchTable) -> Operation:
    """What one turn does."""
    if what == "take":
        return take_operation(dataset, table, TAKEN_ROWS)
    if what == "filter":
        return filter_operation(dataset, f"id = {table.num_rows // 2}", None)
    return scan_operation(dataset, None if what == "all" else [what], "table")


def warm_case(
    tables: Tables,
    name: str,
    table_name: str,
    what: str,
    goal: float,
    cpu_goal: float | None = None,
    rounds_max: int | None = None,
) -> Case:
    """One question to an open dataset."""

    def make() -> dict[str, Turn]:
        table = shaped(tables, table_name)
        return in_process({who: warm_operation(what, OPENERS[who](table), table) for who in LIBRARIES})

    def ours() -> Operation:
        table = shaped(tables, table_name)
        return warm_operation(what, open_ours(table), table)

    case_name = f"shapes/warm/{name}/{what}"
    return Case(case_name, make, goal=goal, cpu_goal=cpu_goal, rounds_max=rounds_max, profiled=ours)


def warm_cases(tables: Tables) -> Iterator[Case]:
    """Every question, then memory."""
    for name, table_name in WARM.items():
        for what in ("all", "id", "filter"):
            yield warm_case(tables, name, table_name, what, GOAL, rounds_max=ROUNDS[name])
        yield warm_case(tables, name, table_name, "take", TAKE_GOAL)
    for what in ("all", "filter"):
        yield warm_case(tables, "10000x1", "10000x1", what, MANY_GOAL, MANY_CPU_GOAL, ROUNDS["10000x1"])
    make = partial(growth_turns, tables, WARM["1000x1000"])
    yield Case("shapes/growth/1000x1000", make, "bytes", 1.0, rounds_max=MEMORY_ROUNDS)


def growth_turns(tables: Tables, table_name: str) -> dict[str, Turn]:
    """Turns of fresh processes."""
    uri = shaped(tables, table_name).lance_uri
    return fresh("growth-batches", LIBRARIES, lambda who: uri)
