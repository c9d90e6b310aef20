"""Reading: takes, scans, opening, importing, memory.

take/TABLE/N                N random rows of all columns, metadata warm, other rows each time
take/items                  an item of each of ten lists of 200,000 numbers, other ones each time
scan/TABLE/COLUMN/table     one column, or `all`, with `to_table()`
scan/TABLE/COLUMN/batches   the same, going through `to_batches()`
open/TABLE                  a new dataset with a new session, and one row of it (files are in the page cache)
import                      `import lance_io`, `import lance`, in a fresh interpreter
first/TABLE                 import, open and one row, in a fresh interpreter
memory/TABLE/FORM           highest resident size of a fresh process that scans, `batches` or `table`
growth/TABLE/FORM           how much of that came with the scan
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa

import lance_io
from benchmarks.cases import (
    OPENERS,
    OURS,
    PARQUET,
    PYLANCE,
    Case,
    fresh,
    in_process,
    open_ours,
    require_equal,
)
from benchmarks.tables import RECIPES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.measure import Operation, Turn
    from benchmarks.tables import BenchTable, Tables

TAKE_SIZES = (1, 10, 100, 1_000, 10_000)
TAKE_SETS = 32  # sets of random rows that a case goes round
NUM_LISTS, LIST_LENGTH = 10, 200_000
SCAN_FORMS = ("table", "batches")
TAKE_GOALS = {1: 1.0, 100: 3.0, 1_000: 3.0, 10_000: 3.0}
MEMORY_ROUNDS = 3  # what a process holds at most hardly differs from time to time
SCAN_GOAL, SCAN_PARQUET_GOAL, IMPORT_GOAL = 2.0, 1.0, 2.0


# -- takes ------------------------------------------------------------------------------------------------------------


def take_operation(dataset: Any, table: BenchTable, num_rows: int) -> Operation:
    """Take `num_rows` random rows, others each time, the same ones for every contender; metadata is warm.

    Rows are given as a list, which is what pylance documents and what it is fastest with.
    """
    rng = np.random.default_rng(seed=num_rows)
    sets = [rng.integers(0, table.num_rows, num_rows).tolist() for _ in range(TAKE_SETS)]
    dataset.take(np.linspace(0, table.num_rows - 1, 4 * table.num_fragments, dtype=np.int64).tolist())
    return lambda number: dataset.take(sets[number % TAKE_SETS])


def take_cases(tables: Tables, name: str) -> Iterator[Case]:
    """Takes of all sizes. Parquet answers for the table of five files only: it reads all of a row group."""
    for num_rows in TAKE_SIZES:
        contenders = [OURS, PYLANCE]
        if name == "five" and num_rows in (1, 100):
            contenders.append(PARQUET)

        def make(num_rows: int = num_rows, contenders: list[str] = contenders) -> dict[str, Turn]:
            table = tables(name)
            return in_process({who: take_operation(OPENERS[who](table), table, num_rows) for who in contenders})

        def ours(num_rows: int = num_rows) -> Operation:
            return take_operation(open_ours(tables(name)), tables(name), num_rows)

        yield Case(f"take/{name}/{num_rows}", make, goal=TAKE_GOALS.get(num_rows), profiled=ours)


def item_operation(dataset: Any) -> Operation:
    """Take an item of ten lists, another one each time."""
    numbers = np.random.default_rng(seed=5).integers(1, LIST_LENGTH + 1, TAKE_SETS).tolist()
    rows = list(range(NUM_LISTS))
    return lambda number: dataset.take(rows, columns={"x": f"numbers[{numbers[number % TAKE_SETS]}]"})


def item_case(tables: Tables) -> Case:
    """Items of long lists."""

    def written() -> str:
        uri = str(tables.new_folder() / "lists.lance")
        numbers = np.random.default_rng(seed=4).integers(0, 1 << 40, NUM_LISTS * LIST_LENGTH)
        ends = np.arange(NUM_LISTS + 1, dtype=np.int32) * LIST_LENGTH
        lance_io.write_dataset(pa.table({"numbers": pa.ListArray.from_arrays(ends, pa.array(numbers))}), uri)
        return uri

    def make() -> dict[str, Turn]:
        uri = written()
        opened = {OURS: lance_io.dataset(uri), PYLANCE: lance.dataset(uri)}
        return in_process({who: item_operation(dataset) for who, dataset in opened.items()})

    return Case("take/items", make, goal=1.0, profiled=lambda: item_operation(lance_io.dataset(written())))


# -- scans ------------------------------------------------------------------------------------------------------------


def scan_operation(dataset: Any, columns: list[str] | None, form: str) -> Operation:
    """Read `columns` (None: all) of every row, as one table or going through the batches."""
    if form == "table":
        return lambda number: dataset.to_table(columns=columns)

    def batches(number: int) -> None:
        for _ in dataset.to_batches(columns=columns):
            pass

    return batches


def scan_turns(table: BenchTable, columns: list[str] | None, form: str) -> dict[str, Turn]:
    """Turns of a scan. Batches are compared as the tables that they make."""
    datasets = {who: opener(table) for who, opener in OPENERS.items()}
    if form == "batches":
        require_equal({who: pa.Table.from_batches(ds.to_batches(columns=columns)) for who, ds in datasets.items()})
    operations = {who: scan_operation(dataset, columns, form) for who, dataset in datasets.items()}
    return in_process(operations, compare=form == "table")


def scan_cases(tables: Tables, name: str, columns: list[str]) -> Iterator[Case]:
    """Scans of each column and of all, in both forms."""
    for column in ("all", *columns):
        chosen = None if column == "all" else [column]
        for form in SCAN_FORMS:

            def make(chosen: list[str] | None = chosen, form: str = form) -> dict[str, Turn]:
                return scan_turns(tables(name), chosen, form)

            def ours(chosen: list[str] | None = chosen, form: str = form) -> Operation:
                return scan_operation(open_ours(tables(name)), chosen, form)

            yield Case(f"scan/{name}/{column}/{form}", make, "s", SCAN_GOAL, SCAN_PARQUET_GOAL, ours)


# -- opening ----------------------------------------------------------------------------------------------------------


def open_operation(opener: Callable[[BenchTable], Any], table: BenchTable) -> Operation:
    """Open the table with nothing known and take one row, another each time."""
    rows = np.random.default_rng(seed=3).integers(0, table.num_rows, TAKE_SETS).tolist()
    return lambda number: opener(table).take([rows[number % TAKE_SETS]])


def open_case(tables: Tables, name: str) -> Case:
    """Opening and one row, nothing cached but the files' bytes by the kernel."""

    def make() -> dict[str, Turn]:
        return in_process({who: open_operation(OPENERS[who], tables(name)) for who in (OURS, PYLANCE)})

    return Case(f"open/{name}", make, goal=1.0, profiled=lambda: open_operation(open_ours, tables(name)))


# -- fresh processes --------------------------------------------------------------------------------------------------


def import_case() -> Case:
    """Import time of the packages."""
    return Case("import", lambda: fresh("import", (OURS, PYLANCE), lambda _: ""), goal=IMPORT_GOAL)


def fresh_case(
    tables: Tables,
    name: str,
    what: str,
    case_name: str,
    unit: str,
    contenders: tuple[str, ...],
    rounds_max: int | None = None,
) -> Case:
    """A measurement of a fresh process that works on a table."""

    def path_of(who: str) -> str:
        table = tables(name)
        return table.parquet_folder if who == PARQUET else table.lance_uri

    return Case(case_name, lambda: fresh(what, contenders, path_of, unit == "s"), unit, goal=1.0, rounds_max=rounds_max)


def memory_cases(tables: Tables, name: str) -> Iterator[Case]:
    """Peak memory of scans."""
    for form in SCAN_FORMS[::-1]:
        for label, part in (("memory", "peak"), ("growth", "growth")):
            what, case_name = f"{part}-{form}", f"{label}/{name}/{form}"
            yield fresh_case(tables, name, what, case_name, "bytes", (OURS, PYLANCE, PARQUET), MEMORY_ROUNDS)


# -- all --------------------------------------------------------------------------------------------------------------


def read_cases(tables: Tables) -> Iterator[Case]:
    """Every case of reading, in the order of the report."""
    for name, recipe in RECIPES.items():
        if recipe.old_version is None:
            yield from take_cases(tables, name)
    yield item_case(tables)
    yield from scan_cases(tables, "five", RECIPES["five"].columns)
    yield from scan_cases(tables, "many", [])
    yield from scan_cases(tables, "vectors", [])
    yield open_case(tables, "five")
    yield open_case(tables, "many")
    yield import_case()
    yield fresh_case(tables, "five", "first", "first/five", "s", (OURS, PYLANCE))
    yield from memory_cases(tables, "five")
    yield from memory_cases(tables, "vectors")
