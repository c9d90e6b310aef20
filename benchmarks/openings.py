"""What it takes to begin with tables of many versions, fragments, columns and row ids.

    begin/versions       a list of all versions, of a table with a thousand fragments
    begin/asof           a new dataset at a time in the middle of them
    begin/count          the number of rows of an open table
    begin/row/SHAPE      a new dataset and one row of it: `fragments`, `columns`, `ids`, `history`
    begin/delete         rows of a thousand fragments deleted, flushed, against pylance, which flushes nothing

Tables are made by pylance for a run, whatever the scale.
"""

from __future__ import annotations

import shutil
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import lance
import numpy as np
import pyarrow as pa

import lance_io
from benchmarks.cases import OURS, PYLANCE, Case, in_process
from benchmarks.measure import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from benchmarks.measure import Operation, Turn
    from benchmarks.tables import Tables

LIBRARIES: Final[dict[str, Any]] = {OURS: lance_io, PYLANCE: lance}
VERSIONS: Final = 100
FRAGMENTS: Final = 1_000
COUNTS: Final = 100  # of rows, in one operation
GOAL: Final = 1.0


def many_versions(path: Path) -> None:
    """Versions of a table with many fragments."""
    table = lance.write_dataset(pa.table({"a": np.arange(FRAGMENTS)}), path, max_rows_per_file=1)
    for number in range(VERSIONS - 1):
        table.update_config({"number": str(number)})


def many_fragments(path: Path) -> None:
    """Ten thousand fragments of a row."""
    lance.write_dataset(pa.table({"a": np.arange(10_000)}), path, max_rows_per_file=1)


def many_columns(path: Path) -> None:
    """A thousand columns."""
    lance.write_dataset(pa.table({f"c{number}": np.arange(100) for number in range(1000)}), path)


def many_ids(path: Path) -> None:
    """Row ids of which rows were deleted here and there, which take some 200 kB of a manifest."""
    rows = pa.table({"a": np.arange(200_000)})
    table = lance.write_dataset(rows, path, enable_stable_row_ids=True, max_rows_per_file=100_000)
    for rest in range(3):
        table.delete(f"a % 7 = {rest}")
        table.optimize.compact_files(target_rows_per_fragment=300_000)


def long_history(path: Path) -> None:
    """A row each of many versions."""
    for number in range(300):
        lance.write_dataset(pa.table({"a": [number]}), path, mode="append" if number else "create")


SHAPES: Final[dict[str, tuple[Callable[[Path], None], list[str]]]] = {
    "fragments": (many_fragments, ["a"]),
    "columns": (many_columns, ["c500"]),
    "ids": (many_ids, ["a"]),
    "history": (long_history, ["a"]),
}


def listed(dataset: Any, _: int) -> pa.Table:
    """Versions and what is said of them, but for times: pylance rounds these."""
    found = dataset.versions()
    return pa.table(
        {"version": [one["version"] for one in found], "of": [sorted(one["metadata"].items()) for one in found]}
    )


def opened_at(library: Any, path: Path, moment: Any, _: int) -> pa.Table:
    """Which version a time means."""
    return pa.table({"version": [library.dataset(path, asof=moment).version]})


def counted(dataset: Any, _: int) -> pa.Table:
    """How many rows there are, asked often."""
    for _ in range(COUNTS):
        num_rows = dataset.count_rows()
    return pa.table({"rows": [num_rows]})


def opened_row(library: Any, path: Path, columns: list[str], number: int) -> pa.Table:
    """One row of a table that is opened for it."""
    dataset = library.dataset(path)
    found: pa.Table = dataset.take([number * 37 % 100], columns=columns)
    return found


def operations_of(what: str, path: Path) -> dict[str, Operation]:
    """What each library does."""
    many_versions(path)
    opened = {who: library.dataset(path) for who, library in LIBRARIES.items()}
    if what == "asof":
        moment = lance_io.dataset(path).versions()[VERSIONS // 2]["timestamp"]
        return {who: partial(opened_at, library, path, moment) for who, library in LIBRARIES.items()}
    work = {"versions": listed, "count": counted}[what]
    return {who: partial(work, dataset) for who, dataset in opened.items()}


def version_case(tables: Tables, what: str) -> Case:
    """One question about versions, or the rows of one."""

    def operations() -> dict[str, Operation]:
        return operations_of(what, tables.new_folder() / "t")

    make, profiled = (lambda: in_process(operations(), compare=what != "asof")), (lambda: operations()[OURS])
    return Case(f"begin/{what}", make, goal=GOAL, cpu_goal=GOAL, profiled=profiled)


def row_case(tables: Tables, shape: str) -> Case:
    """The first row of a table."""
    fill, columns = SHAPES[shape]

    def operations() -> dict[str, Operation]:
        path = tables.new_folder() / "t"
        fill(path)
        return {who: partial(opened_row, library, path, columns) for who, library in LIBRARIES.items()}

    return Case(
        f"begin/row/{shape}",
        lambda: in_process(operations()),
        goal=GOAL,
        cpu_goal=GOAL,
        profiled=lambda: operations()[OURS],
    )


def delete_turn(library: Any, folder: Path, number: int) -> Sample:
    """A new table, and the delete, which is what is measured."""
    path = folder / str(number)
    lance.write_dataset(pa.table({"a": np.arange(10 * FRAGMENTS)}), path, max_rows_per_file=10)
    table = library.dataset(path)
    cpu_before, started = time.process_time(), time.perf_counter()
    table.delete("a % 10 = 3")
    wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu_before
    if lance.dataset(path).count_rows() != 9 * FRAGMENTS:
        raise AssertionError("not every row that was to go is gone")
    shutil.rmtree(path)
    return Sample(wall_s, cpu_s)


def delete_case(tables: Tables) -> Case:
    """With all flushes, against pylance without any."""

    def make() -> dict[str, Turn]:
        return {who: partial(delete_turn, library, tables.new_folder()) for who, library in LIBRARIES.items()}

    return Case("begin/delete", make, profiled=lambda: partial(delete_turn, lance_io, tables.new_folder()))


def opening_cases(tables: Tables) -> Iterator[Case]:
    """All of them."""
    for what in ("versions", "asof", "count"):
        yield version_case(tables, what)
    for shape in SHAPES:
        yield row_case(tables, shape)
    yield delete_case(tables)
