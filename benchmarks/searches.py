"""Vector search without an index: the rows of `vectors` that are nearest to other random vectors.

search/flat/METRIC     ten rows for one vector, by L2 or cosine distance
search/flat/batch      ten rows for each of 32 vectors
search/flat/prefilter  ten rows for one vector among the first third of the rows, by a filter
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from benchmarks.cases import OURS, PYLANCE, Case, in_process, open_ours, open_pylance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measure import Operation
    from benchmarks.tables import Tables

GOAL: Final = 1.2
DIM: Final = 128
NUM_QUERIES: Final = 32
SEARCHES: Final[dict[str, tuple[int, dict[str, Any]]]] = {  # queries, and more of what is asked for
    "l2": (1, {"metric": "l2"}),
    "cosine": (1, {"metric": "cosine"}),
    "batch": (NUM_QUERIES, {}),
    "prefilter": (1, {}),
}


def search_operation(dataset: Any, name: str) -> Operation:
    """Search for vectors that are others each time. The distances, which are rounded differently, are not shown."""
    num_queries, terms = SEARCHES[name]
    options: dict[str, Any] = {}
    if name == "prefilter":
        options = {"filter": f"_rowid < {dataset.count_rows() // 3}", "prefilter": True}

    def search(number: int) -> Any:
        queries = np.random.default_rng(number).standard_normal((num_queries, DIM), dtype=np.float32)
        nearest = {"column": "vector", "q": queries[0] if num_queries == 1 else queries, "k": 10, **terms}
        return dataset.to_table(columns=["_rowid"], nearest=nearest, disable_scoring_autoprojection=True, **options)

    return search


def search_case(tables: Tables, name: str) -> Case:
    """One way to search."""

    def make() -> Any:
        table = tables("vectors")
        datasets = {OURS: open_ours(table), PYLANCE: open_pylance(table)}
        return in_process({who: search_operation(dataset, name) for who, dataset in datasets.items()})

    def ours() -> Operation:
        return search_operation(open_ours(tables("vectors")), name)

    return Case(f"search/flat/{name}", make, goal=GOAL, profiled=ours)


def search_cases(tables: Tables) -> Iterator[Case]:
    """Every search."""
    for name in SEARCHES:
        yield search_case(tables, name)
