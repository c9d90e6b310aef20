"""Ratchets: the structure of the package may become simpler, and not more tangled, without a decision.

A bound is raised only in a commit of its own that says what for. Where a count is below its bound, the test names the
number to write, so that bounds move down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import lance_io
from tests import house

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILE_LINES_MAX = 600
LONGER_FILES: dict[str, int] = {}
FUNCTION_LINES_MAX = 60
LONGER_FUNCTIONS: dict[str, int] = {}
FOLDER_MODULES_MAX = 23
HIDDEN_IMPORTS_MAX = 27
IMPORT_DEPTH_MAX = 21
WALKS_MAX = {"take": 62, "scan": 206, "filter": 263, "append": 580}  # a tenth more: other Pythons count otherwise


def check(count: int, bound: int, name: str) -> None:
    """Compare a count with its bound, which has to be written down again when the count has become smaller."""
    assert count == bound, f"{name} is {count}, its bound {bound}: simplify where it is more, write {count} where less"


def test_files_are_short() -> None:
    lines = {str(path.relative_to(house.PACKAGE)): path.read_text().count("\n") for path in house.modules().values()}
    assert {name: count for name, count in lines.items() if count > FILE_LINES_MAX} == LONGER_FILES


def test_functions_are_short() -> None:
    lengths = [pair for path in house.modules().values() for pair in house.functions(path)]
    assert {name: count for name, count in lengths if count > FUNCTION_LINES_MAX} == LONGER_FUNCTIONS


def test_folders_can_be_overseen() -> None:
    check(max(house.folder_sizes().values()), FOLDER_MODULES_MAX, "the largest folder")


def test_imports_stand_at_the_top() -> None:
    check(
        sum(one.num_hidden for one in house.imports().values()),
        HIDDEN_IMPORTS_MAX,
        "the number of imports in functions",
    )


def test_chains_of_imports_are_short() -> None:
    check(house.depth({name: each.top for name, each in house.imports().items()}), IMPORT_DEPTH_MAX, "the import depth")


def test_no_folder_is_in_a_circle() -> None:
    """Counting imports at the top, in functions and by `lazy_module`."""
    graph = {name: each.top | each.hidden | each.lazy for name, each in house.imports().items()}
    assert not house.in_circles(house.folder_graph(graph))


def test_a_circle_would_be_seen() -> None:
    assert house.in_circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}) == {"a", "b", "c", "d"}


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Callable[[], object]]:
    """Calls on a table on local disk, all made once before."""
    folder: Path = tmp_path_factory.mktemp("walks")
    table = pa.table({"id": np.arange(200_000), "price": np.random.default_rng(0).random(200_000)})
    table = table.append_column("s", pa.array([f"x{row % 977}" for row in range(200_000)]))
    data = lance_io.write_dataset(table, folder / "t.lance")
    calls: dict[str, Callable[[], object]] = {
        "take": lambda: data.take([8, 150_001, 10], columns=["id", "s"]),
        "scan": lambda: list(data.to_batches(columns=["price"])),
        "filter": lambda: data.to_table(columns=["id"], filter="price > 0.5"),
        "append": lambda: lance_io.write_dataset(table.slice(0, 3), folder / "t.lance", mode="append"),
    }
    for call in calls.values():
        call()
    return calls


@pytest.mark.parametrize("name", WALKS_MAX)
def test_calls_change_modules_seldom(name: str, calls: dict[str, Callable[[], object]]) -> None:
    """Threads take turns differently each time: the least of five."""
    assert min(house.module_changes(calls[name]) for _ in range(5)) <= WALKS_MAX[name]
