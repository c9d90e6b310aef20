"""Vector search by IVF indices of `clusters`, which pylance built: ten rows near other rows each time, 20 partitions.

ivf/KIND          one caller: product codes of 16 bytes, vectors as they are, scalar codes
ivf/KIND/refine   a hundred candidates, whose exact distances are computed
ivf/KIND/callers  searches of 256 callers, of one process
ivf/build/KIND    the index, on a copy of the table: processor time
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import lance

from benchmarks.cases import OURS, PYLANCE, Case, build_case, in_process, open_ours, open_pylance, row_count
from benchmarks.tables import near_vectors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measure import Operation
    from benchmarks.tables import BenchTable, Tables

KINDS: Final[dict[str, dict[str, Any]]] = {"pq": {"num_sub_vectors": 16}, "flat": {}, "sq": {}}
SEARCHES: Final[dict[str, tuple[float, dict[str, Any]]]] = {"": (1.5, {}), "/refine": (1.5, {"refine_factor": 10})}
CALLERS_GOAL: Final = 3.0
NUM_CALLERS: Final = 256
BUILD_CPU_GOALS: Final = {"pq": 1.43, "flat": 1.0, "sq": 1.0}  # pylance's seconds over ours
PARTITION_ROWS: Final = 714


def search(dataset: Any, kind: str, number: int, asked: dict[str, Any]) -> int:
    """The number of rows of one search: distances are rounded differently."""
    nearest = {"column": f"v_{kind}", "q": near_vectors(number, 1)[0], "k": 10, "nprobes": 20, **asked}
    rows = dataset.to_table(columns=["_rowid"], nearest=nearest, disable_scoring_autoprojection=True)
    return int(rows.num_rows)


def search_operation(dataset: Any, kind: str, asked: dict[str, Any]) -> Operation:
    """One caller."""
    return lambda number: row_count(search(dataset, kind, number, asked))


def callers_operation(dataset: Any, kind: str) -> Operation:
    """As many searches as callers, at once."""
    pool = ThreadPoolExecutor(NUM_CALLERS)

    def search_all(number: int) -> Any:
        jobs = [pool.submit(search, dataset, kind, number * NUM_CALLERS + job, {}) for job in range(NUM_CALLERS)]
        return row_count(sum(job.result() for job in jobs))

    return search_all


def index_options(num_rows: int, kind: str) -> dict[str, Any]:
    """The arguments of a build."""
    return {"metric": "l2", "num_partitions": max(1, num_rows // PARTITION_ROWS), **KINDS[kind]}


def indexed(table: BenchTable) -> BenchTable:
    """The table, with an index of each kind: pylance builds them once."""
    present = {index.name for index in lance.dataset(table.lance_uri).describe_indices()}
    for kind in KINDS:
        if f"v_{kind}_idx" not in present:
            dataset = lance.dataset(table.lance_uri)
            dataset.create_index(f"v_{kind}", f"IVF_{kind.upper()}", **index_options(table.num_rows, kind))
    return table


def search_case(tables: Tables, kind: str, ending: str) -> Case:
    """One way to search by an index."""

    def operation(dataset: Any) -> Operation:
        if ending == "/callers":
            return callers_operation(dataset, kind)
        return search_operation(dataset, kind, SEARCHES[ending][1])

    def make() -> Any:
        table = indexed(tables("clusters"))
        datasets = {OURS: open_ours(table), PYLANCE: open_pylance(table)}
        return in_process({who: operation(dataset) for who, dataset in datasets.items()})

    def ours() -> Operation:
        return operation(open_ours(indexed(tables("clusters"))))

    goal = CALLERS_GOAL if ending == "/callers" else SEARCHES[ending][0]
    return Case(f"ivf/{kind}{ending}", make, goal=goal, profiled=ours)


def build_operation(tables: Tables, library: Any, kind: str) -> Operation:
    """Build an index on a copy of the table."""
    table, copy = tables("clusters"), str(tables.new_folder() / "table.lance")
    shutil.copytree(Path(table.lance_uri), copy)

    def build(number: int) -> None:
        del number
        options = index_options(table.num_rows, kind)
        library.dataset(copy).create_index(f"v_{kind}", f"IVF_{kind.upper()}", "built", replace=True, **options)

    return build


def vector_search_cases(tables: Tables) -> Iterator[Case]:
    """Every search, and every build."""
    for kind in KINDS:
        for ending in (*SEARCHES, "/callers"):
            yield search_case(tables, kind, ending)
    for kind in KINDS:
        operation = partial(build_operation, tables, kind=kind)
        yield build_case(f"ivf/build/{kind}", operation, cpu_goal=BUILD_CPU_GOALS[kind], rounds_max=3)
