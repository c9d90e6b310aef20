"""Tables of file versions 2.0 and 0.1, which pylance wrote until spring 2026 and reads to this day.

VERSION/take/TABLE/N                N random rows of all columns, metadata warm, other rows each time
VERSION/scan/TABLE/COLUMN/FORM      one column, or `all`, as in `reads`; beside it a bare read of the same bytes
VERSION/write/COLUMN                a table of a million rows (`all`, one column, the vectors); nothing is flushed
VERSION/write/all/8192              the same in batches of 8,192 rows instead of 1,024
VERSION/size/COLUMN                 bytes of the data files of the same tables
0.1/filter/sorted/COLUMNS           `to_table` of a thousandth of the rows, a range of `id`, by which they are sorted:
                                    exactly the batches that statistics admit are read, or the run ends
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from benchmarks import reads, writes
from benchmarks.cases import BARE, OPENERS, OURS, PYLANCE, Case, WrongAnswerError, in_process, open_ours
from benchmarks.filters import filter_operation
from benchmarks.measure import operations_per_turn, timed
from benchmarks.tables import RECIPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from benchmarks.measure import Operation, Turn
    from benchmarks.tables import BenchTable, Tables
    from benchmarks.writes import FileVersionName

LIBRARIES = (OURS, PYLANCE)
SCAN_GOALS: dict[FileVersionName, float] = {"2.0": 1.4, "0.1": 1.3}  # of all columns
DECODED_GOAL = 2.0  # of text and lists
BARE_GOAL = 1 / 1.3
TAKE_SIZES = (1, 100, 1_000, 10_000)
BARE_READ_BYTES = 8 << 20  # at once; as many as we read
BARE_THREADS = os.cpu_count() or 1
WRITTEN: dict[FileVersionName, tuple[str, ...]] = {"2.0": ("all", "text", "list", "vector"), "0.1": ("all", "vector")}


# -- reading ----------------------------------------------------------------------------------------------------------


def take_case(tables: Tables, version: FileVersionName, name: str, num_rows: int) -> Case:
    """Rows of all columns."""
    table_name = f"{name}_{version}"

    def make() -> dict[str, Turn]:
        table = tables(table_name)
        return in_process({who: reads.take_operation(OPENERS[who](table), table, num_rows) for who in LIBRARIES})

    def ours() -> Operation:
        return reads.take_operation(open_ours(tables(table_name)), tables(table_name), num_rows)

    return Case(f"{version}/take/{name}/{num_rows}", make, goal=reads.TAKE_GOALS[num_rows], profiled=ours)


def bare_read(dataset: Any, columns: list[str] | None) -> Operation:
    """Read what a scan of `columns` reads of the data files, into memory that nobody has used before."""
    plan = dataset.scanner(columns=columns).explain_io()
    wanted = sorted({request for one in plan.rounds for request in one.requests if request.key.endswith(".lance")})
    parts = [
        (f"/{key.lstrip('/')}", at, min(BARE_READ_BYTES, end - at))
        for key, start, end in wanted
        for at in range(start, end, BARE_READ_BYTES)
    ]
    files = {path: os.open(path, os.O_RDONLY) for path in {path for path, _, _ in parts}}
    threads = ThreadPoolExecutor(BARE_THREADS)
    return lambda number: [*threads.map(lambda part: os.pread(files[part[0]], part[2], part[1]), parts)]


def scan_case(tables: Tables, version: FileVersionName, name: str, column: str, form: str) -> Case:
    """One column, or all of them; the vectors are the only one of their table."""
    table_name, columns = f"{name}_{version}", None if column == "all" else [column]
    goal = SCAN_GOALS[version] if column == "all" else DECODED_GOAL if column in ("text", "list") else None

    def operation(dataset: Any) -> Operation:
        return reads.scan_operation(dataset, columns, form)

    def make() -> dict[str, Turn]:
        table = tables(table_name)
        datasets = {who: OPENERS[who](table) for who in LIBRARIES}
        if form == "batches":
            in_process({who: reads.scan_operation(dataset, columns, "table") for who, dataset in datasets.items()})
        made = in_process({who: operation(one) for who, one in datasets.items()}, compare=form == "table")
        bare = bare_read(datasets[OURS], columns)
        return {**made, BARE: timed(bare, operations_per_turn(bare))}

    def ours() -> Operation:
        return operation(open_ours(tables(table_name)))

    bare_goal = None if goal is None else BARE_GOAL
    return Case(f"{version}/scan/{name}/{column}/{form}", make, goal=goal, profiled=ours, bare_goal=bare_goal)


def sorted_case(tables: Tables, label: str, columns: list[str] | None) -> Case:
    """A range of a sorted column of version 0.1."""

    def condition(table: BenchTable) -> tuple[str, int, int]:
        start = table.num_rows // 3
        end = start + max(1, table.num_rows // 1000)
        return f"id >= {start} AND id < {end}", start, end

    def make() -> dict[str, Turn]:
        table = tables("sorted_0.1")
        sql, start, end = condition(table)
        datasets = {who: OPENERS[who](table) for who in LIBRARIES}
        require_batches(datasets[OURS], sql, start, end, table.num_rows)
        return in_process({who: filter_operation(one, sql, columns) for who, one in datasets.items()})

    def ours() -> Operation:
        table = tables("sorted_0.1")
        return filter_operation(open_ours(table), condition(table)[0], columns)

    return Case(f"0.1/filter/sorted/{label}", make, goal=1.0, profiled=ours)


def require_batches(dataset: Any, sql: str, start: int, end: int, num_rows: int) -> None:
    """Raise `WrongAnswerError` unless the batches with rows `start` to `end` are read, and no others."""
    group_rows = RECIPES["sorted_0.1"].group_rows
    counts: list[Any] = []
    dataset.scanner(filter=sql, scan_stats_callback=counts.append).to_table()
    found = counts[0].all_counts
    expected = -(-end // group_rows) - start // group_rows
    if found["batches_examined"] - found["batches_skipped"] != expected:
        raise WrongAnswerError(f"{found} of {-(-num_rows // group_rows)} batches; {expected} have rows that pass")


def read_cases(tables: Tables, version: FileVersionName, names: tuple[str, ...]) -> Iterator[Case]:
    """Takes of all tables, scans of single columns of the first."""
    for name in names:
        for num_rows in TAKE_SIZES:
            yield take_case(tables, version, name, num_rows)
    for name in names:
        columns = RECIPES[f"{name}_{version}"].columns if name == names[0] else []
        for column in ("all", *columns):
            for form in reads.SCAN_FORMS:
                yield scan_case(tables, version, name, column, form)


# -- writing ----------------------------------------------------------------------------------------------------------


def write_cases(tables: Tables, version: FileVersionName) -> Iterator[Case]:
    """Times, then sizes."""
    names = [(name, 1024) for name in WRITTEN[version]] + ([("all", 8192)] if version == "0.1" else [])
    for kind in ("write", "size"):
        for name, group_rows in names:
            label = name if group_rows == 1024 else f"{name}/{group_rows}"
            yield write_case(tables, version, f"{version}/{kind}/{label}", name, group_rows)


def write_case(tables: Tables, version: FileVersionName, case_name: str, name: str, group_rows: int) -> Case:
    """The time of a write, or the size of what is written."""
    sizes = case_name.split("/")[1] == "size"
    contenders = {who: writes.writers(version, group_rows=group_rows)[who] for who in LIBRARIES}

    def rows() -> pa.Table:
        table = tables.rows("vectors" if name == "vector" else "one")
        columns = table.column_names if name == "all" else [name]
        if version == "0.1" and name == "all":
            columns.remove("nullable")  # whose nulls that version loses
        return table.select(columns)

    def make() -> dict[str, Turn]:
        return writes.turns(tables, rows(), contenders, sizes=sizes)

    def ours() -> Operation:
        table, folder = rows(), tables.new_folder()
        return lambda number: writes.written(contenders[OURS], table, folder / str(number))

    if sizes:
        return Case(case_name, make, "bytes", writes.SIZE_GOAL, rounds_max=writes.SIZE_ROUNDS)
    return Case(case_name, make, goal=writes.TIME_GOAL, profiled=ours)


# -- all --------------------------------------------------------------------------------------------------------------


def old_version_cases(tables: Tables) -> Iterator[Case]:
    """Every case of both versions."""
    yield from read_cases(tables, "2.0", ("five", "many", "vectors"))
    yield from write_cases(tables, "2.0")
    yield from read_cases(tables, "0.1", ("five",))
    yield sorted_case(tables, "id", ["id"])
    yield sorted_case(tables, "all", None)
    yield from write_cases(tables, "0.1")
