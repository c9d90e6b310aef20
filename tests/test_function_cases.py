"""The benchmark of functions: each function has a case, whose expression is computed and gives what pylance gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.cases import open_ours, open_pylance
from benchmarks.functions import EXPRESSIONS, STAND_INS, UNLIKE, computing, require_same_values
from benchmarks.tables import RECIPES, BenchTable
from lance_io.filters.functions.function_registry import FUNCTIONS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> BenchTable:
    cache: Path = tmp_path_factory.mktemp("functions")
    return RECIPES["functions"].ready(cache, 0.001)


def test_every_function_has_a_case() -> None:
    first_names: dict[int, str] = {}
    for name, function in FUNCTIONS.items():
        first_names.setdefault(id(function), name)
    assert set(first_names.values()) == EXPRESSIONS.keys()


def test_what_stands_in_and_what_differs_are_cases() -> None:
    assert EXPRESSIONS.keys() >= UNLIKE >= STAND_INS.keys()


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_case_is_computed(name: str, table: BenchTable) -> None:
    ours = computing(open_ours(table), EXPRESSIONS[name])(0)
    assert ours.num_rows == table.num_rows
    theirs = computing(open_pylance(table), STAND_INS.get(name, EXPRESSIONS[name]))(0)
    assert theirs.num_rows == table.num_rows
    if name not in UNLIKE:
        require_same_values(ours, theirs)


@pytest.mark.parametrize("name", ["text", "other", "padded", "hex", "id", "shown", "clock", "document", "float"])
def test_values_are_all_different(name: str, table: BenchTable) -> None:
    column = open_ours(table).to_table([name])[name]
    distinct = len(set(column.to_pylist()))
    assert distinct == table.num_rows or (name == "clock" and distinct > table.num_rows * 0.99)
