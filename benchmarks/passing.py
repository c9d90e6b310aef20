"""Filters by how many rows pass, how these lie, how wide the other column is, and in how many files.

    late/WIDTH/FILES/LAYOUT/SHARE   all rows that pass: `WIDTH` bytes a row beside three keys (8, 100, 2k, 20k), in 1 or
                                    64 files; rows that pass are `sorted`, `clustered` or `scattered`; SHARE percent of
                                    them pass (0, 0.01, 1, 10, 50, 100), or `one`

`faster plan` is the faster of two plans that we can be told to run, all columns at once and each row that passes by
itself, and what a cell may take beside it: 0.3 ms on local disk.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.cases import FASTER, OURS, PYLANCE, Case, in_process, open_ours, open_pylance, require_equal
from benchmarks.measure import Sample, operations_per_turn
from benchmarks.tables import KEY_STEP, KEYS_END, RECIPES, Recipe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measure import Operation, Turn
    from benchmarks.tables import Tables

TABLE_ROWS: Final = {"8": 2_000_000, "100": 500_000, "2k": 32_000, "20k": 3_200}  # some 64 MB each, but for the first
VALUE_BYTES: Final = {"8": 8, "100": 100, "2k": 2_048, "20k": 20_480}
FILES: Final = (1, 64)
LAYOUTS: Final = ("sorted", "clustered", "scattered")
SHARES: Final = ("0", "one", "0.01", "1", "10", "50", "100")
CLUSTERS: Final = 50  # runs of rows that pass or do not pass together
PLAN_GOAL, PYLANCE_GOAL = 1 / 1.1, 1.0
LOCAL_MARGIN_S: Final = 0.0003
SECONDS: Final = 1.0  # of a cell


@dataclass(frozen=True)
class Cell:
    """One question.

    width   of a row beside its keys
    layout  of the rows that pass
    share   of the rows, in percent; "one" for a single row
    """

    width: str
    num_files: int
    layout: str
    share: str

    @property
    def name(self) -> str:
        """As in a pattern."""
        return f"late/{self.width}/{self.num_files}/{self.layout}/{self.share}"

    @property
    def table(self) -> str:
        """The name of its table."""
        return f"late_{self.width}_{self.num_files}"

    def where(self, num_rows: int) -> str:
        """The condition in a table of so many rows."""
        run_rows = cluster_rows(self.width)
        ends = {"sorted": num_rows, "clustered": KEYS_END * run_rows, "scattered": KEYS_END}
        if self.share == "one":
            key = keys_of(num_rows // 3, 1, run_rows)[self.layout][0]
            return f"{self.layout} = {key}"
        return f"{self.layout} < {round(ends[self.layout] * float(self.share) / 100)}"


CELLS: Final = tuple(Cell(*each) for each in product(TABLE_ROWS, FILES, LAYOUTS, SHARES))


def cluster_rows(width: str) -> int:
    """Rows of a run."""
    return TABLE_ROWS[width] // CLUSTERS


def keys_of(first_row: int, num_rows: int, run_rows: int) -> dict[str, np.ndarray[Any, np.dtype[np.int64]]]:
    """The three keys of some rows, each of which no two rows share."""
    rows = np.arange(first_row, first_row + num_rows)
    runs = rows // run_rows
    return {
        "sorted": rows,
        "clustered": runs * KEY_STEP % KEYS_END * run_rows + rows % run_rows,
        "scattered": rows * KEY_STEP % KEYS_END,
    }


def keyed_rows(first_row: int, num_rows: int, rng: np.random.Generator, *, width: str) -> pa.Table:
    """Rows with their keys and floats that take so many bytes."""
    columns: dict[str, Any] = dict(keys_of(first_row, num_rows, cluster_rows(width)))
    num_floats = VALUE_BYTES[width] // 4
    values = rng.standard_normal(num_rows * num_floats, dtype=np.float32)
    columns["rest"] = values.view(np.float64) if width == "8" else pa.FixedSizeListArray.from_arrays(values, num_floats)
    return pa.table(columns)


RECIPES.update(
    {
        recipe.name: recipe
        for width, num_files in product(TABLE_ROWS, FILES)
        for recipe in [
            Recipe(f"late_{width}_{num_files}", TABLE_ROWS[width], num_files, partial(keyed_rows, width=width))
        ]
    }
)


def faster_of(operations: list[Operation], often: int) -> Turn:
    """A turn of whichever operation takes less time in it, and the margin."""

    def turn(round_number: int) -> Sample:
        samples = []
        for operation in operations:
            cpu_before, started = time.process_time(), time.perf_counter()
            for number in range(often):
                operation(round_number * often + number)
            wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu_before
            samples.append(Sample(wall_s / often + LOCAL_MARGIN_S, cpu_s / often))
        return min(samples, key=lambda sample: sample.value)

    return turn


def cell_case(tables: Tables, cell: Cell) -> Case:
    """A cell on local disk."""

    def scan(dataset: Any, where: str, _: int, **options: Any) -> pa.Table:
        table: pa.Table = dataset.to_table(columns=[cell.layout, "rest"], filter=where, **options)
        return table

    def make() -> dict[str, Turn]:
        table = tables(cell.table)
        where, ours = cell.where(table.num_rows), open_ours(table)
        operations = {OURS: partial(scan, ours, where), PYLANCE: partial(scan, open_pylance(table), where)}
        plans: list[Operation] = [partial(scan, ours, where, late_materialization=late) for late in (False, True)]
        turns = in_process(operations)
        require_equal({OURS: operations[OURS](0), **{str(number): plan(0) for number, plan in enumerate(plans)}})
        often = max(operations_per_turn(plan) for plan in plans)
        return {**turns, FASTER: faster_of(plans, often)}

    def profiled() -> Operation:
        table = tables(cell.table)
        return partial(scan, open_ours(table), cell.where(table.num_rows))

    # Where few bytes are left, one round cannot be beaten by two.
    goal = None if cell.width == "8" else PYLANCE_GOAL
    return Case(cell.name, make, goal=goal, plan_goal=PLAN_GOAL, profiled=profiled, seconds=SECONDS)


def passing_cases(tables: Tables) -> Iterator[Case]:
    """Every cell."""
    for cell in CELLS:
        yield cell_case(tables, cell)
