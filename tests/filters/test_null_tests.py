"""Null tests of what cannot be null: they are decided without computing it, so that it cannot fail, as in pylance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

import lance_io

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

FIELDS = [
    pa.field("a", pa.int64()),
    pa.field("n", pa.int64(), nullable=False),
    pa.field("t", pa.string()),
    pa.field("b", pa.bool_()),
    pa.field("row", pa.int64()),
]
NEVER_NULL = [
    "n / 0",
    "n % 0",
    "1 / 0",
    "cast(n / 0 as double)",
    "n / 0 > 1",
    "n / 0 between 1 and 2",
    "n / 0 in (1, 2)",
]
NEVER_NULL += ["n / 0 is distinct from 1", "coalesce(a, n / 0)", "a / 0 is null", "not (a / 0 is null)"]
NEVER_NULL += ["(a / 0 is null) and n / 0 = 1", "(a / 0 is null) = true"]
MAY_BE_NULL = [
    "a / 0",
    "cast(t as int)",
    "abs(n / 0)",
    "a / 0 in (1, 2)",
    "n / 0 in (1, null)",
    "(a / 0 is null) and b",
]
FORMS = [
    "({}) is null",
    "({}) is not null",
    "not (({}) is null)",
    "(({}) is null) is null",
    "(({}) is not null) is null",
]
FORMS += ["b or ({}) is null", "b and ({}) is not null", "(({}) is null) = (n = 1)"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three rows; one column has no nulls by its declaration."""
    made = tmp_path_factory.mktemp("nulls") / "t"
    values = {"a": [1, 2, None], "n": [0, 1, 2], "t": ["1", "x", None], "b": [True, None, False], "row": [0, 1, 2]}
    lance.write_dataset(pa.table(values, pa.schema(FIELDS)), made)
    return made


def outcome(compute: Callable[[], Any]) -> Any:
    """Rows, or that they cannot be computed."""
    try:
        return compute()["row"].to_pylist()
    except (ValueError, pa.ArrowInvalid):
        return "cannot be computed"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("text", [*NEVER_NULL, *MAY_BE_NULL])
def test_filters_give_what_pylance_gives(path: Path, text: str, form: str) -> None:
    expected, found = (
        outcome(lambda library=library: library.dataset(path).to_table(["row"], filter=form.format(text)))
        for library in (lance, lance_io)
    )
    assert found == expected
    assert text in MAY_BE_NULL or isinstance(found, list)


@pytest.mark.parametrize("text", ["(n / 0) is null", "((a / 0) is null) is null", "b or (n / 0) is not null"])
def test_columns_are_those_of_pylance(path: Path, text: str) -> None:
    expected, found = (library.dataset(path).to_table({"v": text, "row": "row"}) for library in (lance, lance_io))
    assert found == expected
    assert found.schema == expected.schema
