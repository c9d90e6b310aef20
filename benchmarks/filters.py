"""Scans with a filter, whose column is also among those that are wanted.

filter/five/SHARE/COLUMNS   `random < x` with x such that SHARE percent of the rows pass: 50, 1, 0.01; all columns, or
                            `id` alone
filter/five/text            `text LIKE '%ab%'` (some 0.5 percent of the rows), column `id`
filter/five/both/ORDER      `random < x` (0.01 percent) and the text's condition, written in either order, column `id`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from benchmarks.cases import OPENERS, PARQUET, Case, in_process, open_ours

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measure import Operation
    from benchmarks.tables import Tables

GOAL = 2.0
SHARES = ("50", "1", "0.01")  # percent
RANDOM_MIN, RANDOM_MAX = -(2**62), 2**62  # of the column `random`, which is uniform
COLUMNS: dict[str, list[str] | None] = {"all": None, "id": ["id"]}


def filter_operation(dataset: Any, condition: Any, columns: list[str] | None) -> Operation:
    """Read the rows that pass."""
    return lambda number: dataset.to_table(columns=columns, filter=condition)


def filter_case(tables: Tables, name: str, sql: str, expression: Any, columns: list[str] | None) -> Case:
    """One condition: as SQL text for the Lance readers, as an expression for Parquet."""

    def make() -> Any:
        table = tables("five")
        conditions = {who: expression if who == PARQUET else sql for who in OPENERS}
        datasets = {who: opener(table) for who, opener in OPENERS.items()}
        return in_process({who: filter_operation(ds, conditions[who], columns) for who, ds in datasets.items()})

    def ours() -> Operation:
        return filter_operation(open_ours(tables("five")), sql, columns)

    return Case(f"filter/five/{name}", make, goal=GOAL, profiled=ours)


def filter_cases(tables: Tables) -> Iterator[Case]:
    """Every condition."""
    for share in SHARES:
        below = RANDOM_MIN + round((RANDOM_MAX - RANDOM_MIN) * float(share) / 100)
        for label, columns in COLUMNS.items():
            expression = pc.field("random") < below
            yield filter_case(tables, f"{share}/{label}", f"random < {below}", expression, columns)
    below = RANDOM_MIN + round((RANDOM_MAX - RANDOM_MIN) * 0.0001)
    number = f"random < {below}", pc.field("random") < below
    text = "text LIKE '%ab%'", pc.match_like(pc.field("text"), "%ab%")
    for label, (first, second) in {"number_first": (number, text), "text_first": (text, number)}.items():
        yield filter_case(tables, f"both/{label}", f"{first[0]} AND {second[0]}", first[1] & second[1], ["id"])
    yield filter_case(tables, "text", "text LIKE '%ab%'", pc.match_like(pc.field("text"), "%ab%"), ["id"])
