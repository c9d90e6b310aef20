"""Queries by scalar indices of `keyed`, which pylance built, and the builds themselves.

index/key, /keys     one column of the row of a key, and of the rows of 100 keys (BTREE), other keys each time
index/get            the same for one key, by `get`; pylance has filters only
index/range          of the rows of a thousandth of all keys, scattered (BTREE)
index/bitmap         of the rows of one of 100 categories
index/labels         of the rows whose list has a label, one of 50
index/build/KIND     the index of all rows: BTREE, BITMAP, LABEL_LIST, each on a copy of the table
"""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import lance
import numpy as np

import lance_io
from benchmarks.cases import OURS, PYLANCE, Case, build_case, in_process, open_ours, open_pylance
from benchmarks.tables import KEY_STEP, KEYS_END

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measure import Operation
    from benchmarks.tables import BenchTable, Tables

INDICES: Final = {"key": "BTREE", "category": "BITMAP", "labels": "LABEL_LIST"}
GOALS: Final = {"key": 1.5, "keys": 3.0, "range": 3.0, "bitmap": 2.0, "labels": 2.0, "get": 1.5}
CPU_GOALS: Final = {"BTREE": 0.8, "BITMAP": 1.0, "LABEL_LIST": 2.0}  # pylance's seconds over ours


def filter_text(name: str, number: int, num_rows: int) -> str:
    """The filter of a case, another one for each number."""
    dice = np.random.default_rng(number)
    keys = dice.integers(0, num_rows, 100 if name == "keys" else 1) * KEY_STEP % KEYS_END
    if name in ("key", "get"):
        return f"key = {keys[0]}"
    if name == "keys":
        return f"key IN ({', '.join(map(str, keys))})"
    if name == "range":
        first = int(dice.integers(0, KEYS_END - KEYS_END // 1000))
        return f"key >= {first} AND key < {first + KEYS_END // 1000}"
    return f"category = {number % 100}" if name == "bitmap" else f"array_has(labels, 'label {number % 50}')"


def query_operation(dataset: Any, name: str, num_rows: int) -> Operation:
    """Rows by an index; by `get` where the library has it."""

    def query(number: int) -> Any:
        text = filter_text(name, number, num_rows)
        if name == "get" and isinstance(dataset, lance_io.LanceDataset):
            return dataset.get("key", [int(text.rpartition(" ")[2])], ["value"])
        return dataset.to_table(columns=["value"], filter=text)

    return query


def indexed(table: BenchTable) -> BenchTable:
    """The table, with its indices: pylance builds those that are missing, once."""
    dataset = lance.dataset(table.lance_uri)
    present = {name for index in dataset.describe_indices() for name in index.field_names}
    for column, kind in INDICES.items():
        if column not in present:
            dataset.create_scalar_index(column, kind)
    return table


def query_case(tables: Tables, name: str) -> Case:
    """One kind of query."""

    def make() -> Any:
        table = indexed(tables("keyed"))
        datasets = {OURS: open_ours(table), PYLANCE: open_pylance(table)}
        return in_process({who: query_operation(each, name, table.num_rows) for who, each in datasets.items()})

    def ours() -> Operation:
        table = indexed(tables("keyed"))
        return query_operation(open_ours(table), name, table.num_rows)

    return Case(f"index/{name}", make, goal=GOALS[name], profiled=ours)


def build_operation(tables: Tables, library: Any, column: str) -> Operation:
    """Build an index on a copy of the table that has no other."""
    copy = str(tables.new_folder() / "table.lance")
    shutil.copytree(Path(tables("keyed").lance_uri), copy)
    for index in lance.dataset(copy).describe_indices():
        lance.dataset(copy).drop_index(index.name)

    def build(number: int) -> None:
        del number
        library.dataset(copy).create_scalar_index(column, INDICES[column], replace=True)

    return build


def index_cases(tables: Tables) -> Iterator[Case]:
    """Every query, and every build."""
    for name in GOALS:
        yield query_case(tables, name)
    for column, kind in INDICES.items():
        name = f"index/build/{kind.lower()}"
        operation = partial(build_operation, tables, column=column)
        yield build_case(name, operation, cpu_goal=CPU_GOALS[kind], rounds_max=5)
