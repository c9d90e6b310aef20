"""What filters may ask for at most: the last that is answered, and the first that is refused."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_io
from lance_io.errors import LanceError

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS: Final = pa.table({"a": [1, 2, 3], "s": ["x", "y", None], "l": [[1, 2], [3], None]})


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> lance_io.LanceDataset:
    return lance_io.write_dataset(ROWS, tmp_path_factory.mktemp("limits") / "t", durability="none")


def bracketed(count: int) -> str:
    return "(" * count + "a = 2" + ")" * count


def added(count: int) -> str:
    return "a" + " + 1" * count + f" = {count + 2}"


def negated(count: int) -> pc.Expression:
    value = pc.field("a")
    for _ in range(count):
        value = pc.negate(value)
    return value == (-2 if count % 2 else 2)


def of_lists(count: int) -> str:
    return f"arrow_cast(a, '{'List(' * count}Int64{')' * count}') is not null and a = 2"


CASES: Final[dict[str, tuple[Callable[[int], Any], int]]] = {
    "brackets": (bracketed, 48),
    "operators": (added, 99),
    "calls": (negated, 99),
    "types": (of_lists, 33),
    "factorial": (lambda number: f"factorial(a + {number - 2}) > 0 and a = 2", 20),
}


@pytest.mark.parametrize("name", CASES)
def test_the_first_beyond_a_limit_is_refused(table: lance_io.LanceDataset, name: str) -> None:
    make, last = CASES[name]
    wanted = "a = 2" if name == "factorial" else None
    source = table if wanted is None else lance_io.write_dataset(ROWS.slice(1, 1), table.uri + name, mode="overwrite")
    assert source.to_table(filter=make(last))["a"].to_pylist() == [2]
    with pytest.raises((LanceError, ValueError)):
        source.to_table(filter=make(last + 1))


@pytest.mark.parametrize(
    ("limit", "value", "answered", "refused"),
    [
        ("kernel_calls.TEXT_BYTES_MAX", 7, "lpad(s, 7) = '      y'", "lpad(s, 8) = '       y'"),
        ("kernel_calls.TEXT_BYTES_MAX", 7, "rpad(s, 7) = 'y      '", "rpad(s, 8) = 'y       '"),
        ("kernel_calls.TEXT_BYTES_MAX", 7, "repeat(s, 7) = 'yyyyyyy'", "repeat(s, 8) = 'yyyyyyyy'"),
        ("functions.list_pool.ITEMS_MAX", 9, "array_repeat(a, 3) = [2, 2, 2]", "array_repeat(a, 4) = [2, 2, 2, 2]"),
        (
            "functions.list_pool.ITEMS_MAX",
            6,
            "array_length(array_resize(l, 3)) = 3 and a = 2",
            "array_resize(l, 4) is null",
        ),
        (
            "functions.list_pool.ITEMS_MAX",
            6,
            "array_length(array_resize([1], 6)) = 6 and a = 2",
            "array_resize([1], 7) is null",
        ),
    ],
)
def test_limits_that_are_lowered(
    table: lance_io.LanceDataset, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, answered: str, refused: str
) -> None:
    module, _, name = limit.rpartition(".")
    monkeypatch.setattr(import_module(f"lance_io.filters.{module}"), name, value)
    assert table.to_table(filter=answered)["a"].to_pylist() == [2]
    with pytest.raises(LanceError):
        table.to_table(filter=refused)
