"""Filters and computed columns over vectors of vectors give the rows of pylance, in every fragment and batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
import pytest

import lance_io

if TYPE_CHECKING:
    from pathlib import Path

SQUARE: Final = pa.list_(pa.list_(pa.float32(), 2), 2)
NUM_ROWS: Final = 10


def _square(i: int) -> list[list[float]]:
    return [[i, i + 0.5], [i + 100, i + 100.5]]


COLUMNS: Final = {
    "square": pa.array([_square(i) for i in range(NUM_ROWS)], SQUARE),
    "squares": pa.array([[_square(i), _square(i + 1)] if i != 6 else None for i in range(NUM_ROWS)], pa.list_(SQUARE)),
    "parts": pa.array(
        [[None if i == 4 else {"s": _square(i), "k": i}, {"s": None, "k": None}] for i in range(NUM_ROWS)],
        pa.list_(pa.struct([("s", SQUARE), ("k", pa.int32())])),
    ),
    "part": pa.array([{"s": _square(i)} for i in range(NUM_ROWS)], pa.struct([("s", SQUARE)])),
}
# The braces stand for a column of lists or vectors. Pylance compares none of them whose items are nested themselves.
COMPUTED: Final = (
    *("{0}[1]", "{0}[2]", "{0}[-1]", "{0}[id % 3]", "make_array({0}[1], {0}[2])", "coalesce({0}[1], {0}[2])"),
    *("array_append({0}, {0}[1])", "array_repeat({0}[1], 2)", "array_any_value({0})", "named_struct('a', {0}[1])"),
    *("array_slice({0}, 2, 2)", "array_reverse({0})", "array_concat({0}, {0})", "array_pop_front({0})"),
    *("array_resize({0}, 3)", "nvl2({0}[1], {0}[2], {0}[1])"),
)
FILTERS: Final = (
    *("square[1][1] = 4", "array_has(square[1], 4) or id = 3", "array_has_any(square[-1], [104.5, 101])"),
    *("squares[1][1][1] = 4", "squares[2][2][2] >= 105.5 or id = 1", "array_has(squares[1][2], 103)"),
    *("part.s[2][1] = 105", "parts[1] is null", "10 / (id - 20) < -0.6 and square[1][1] > 5"),
    *("id > 1 and 10 / (id + 1) > 1 and squares[1][1][1] >= 4", "10 / (id + 1) > 1 or array_has(part.s[1], 9)"),
)


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vectors") / "t.lance"
    table = pa.table({"id": range(NUM_ROWS), **COLUMNS})
    lance.write_dataset(table, path, max_rows_per_file=4, data_storage_version="2.2")
    return path


def _same(uri: Path, **options: Any) -> None:
    ours, theirs = (library.dataset(uri).to_table(**options) for library in (lance_io, lance))
    assert ours.to_pylist() == theirs.to_pylist()


@pytest.mark.parametrize("text", COMPUTED)
@pytest.mark.parametrize("column", ["square", "squares", "parts", "part.s"])
def test_computed_columns(column: str, text: str, uri: Path) -> None:
    columns = {"v": text.format(column), "id": "id"}
    for options in ({}, {"limit": 3, "offset": 5}, {"filter": "id % 2 = 1"}, {"batch_size": 2}):
        _same(uri, columns=columns, **options)


@pytest.mark.parametrize("text", FILTERS)
def test_filters(text: str, uri: Path) -> None:
    for options in ({}, {"batch_size": 2}, {"limit": 2, "offset": 1}):
        _same(uri, filter=text, **options)


def test_functions_that_compare_vectors(uri: Path) -> None:
    """Pylance refuses them: held against the values in Python."""
    table = lance_io.dataset(uri)
    texts = {
        "position": "array_position(squares, squares[2])",
        "left": "array_remove(squares, squares[1])",
        "has": "array_has(squares, squares[2])",
        "other": "nullif(squares[1], squares[2])",
        "inner": "array_has(square, square[2])",
    }
    rows = COLUMNS["squares"].to_pylist()
    assert table.to_table(columns=texts).to_pydict() == {
        "position": [row and 2 for row in rows],
        "left": [row and row[1:] for row in rows],
        "has": [row and True for row in rows],
        "other": [row and row[0] for row in rows],
        "inner": [True] * NUM_ROWS,
    }
