"""Dates and timestamps of all units are compared as moments, whichever side is the coarser."""

from __future__ import annotations

import operator
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
import pyarrow.dataset as pads
import pytest

import lance_io

if TYPE_CHECKING:
    from collections.abc import Callable

DAY_NS: Final = 86_400 * 10**9
UNITS_NS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
TYPES: Final[dict[str, tuple[pa.DataType, int]]] = {
    "day": (pa.date32(), DAY_NS),
    "day_ms": (pa.date64(), 10**6),  # a day that need not begin at midnight
    **{unit: (pa.timestamp(unit), ns) for unit, ns in UNITS_NS.items()},
}
MOMENTS_NS: Final = [
    *(-DAY_NS, -500_000_000, 0, 1, 1_000, 10**6, 500 * 10**6, 10**9, 1_500 * 10**6, 1_500_001_001),
    *(DAY_NS, DAY_NS + 10**6, None),
]
OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}
PAIRS: Final = list(product(MOMENTS_NS, MOMENTS_NS))


def ticks(moment_ns: int | None, name: str) -> int | None:
    """A moment in the unit of a type, rounded down."""
    return None if moment_ns is None else moment_ns // TYPES[name][1]


def column(side: int, name: str) -> pa.Array:
    dtype = TYPES[name][0]
    return pa.array([ticks(pair[side], name) for pair in PAIRS], pa.int32() if name == "day" else pa.int64()).view(
        dtype
    )


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Every pair of moments, on the left and right side in every type."""
    columns = {f"{side}_{name}": column(at, name) for at, side in enumerate(("left", "right")) for name in TYPES}
    path = str(tmp_path_factory.mktemp("calendar") / "t.lance")
    lance.write_dataset(pa.table({"row": range(len(PAIRS)), **columns}), path)
    return path


@pytest.mark.parametrize("right", TYPES)
@pytest.mark.parametrize("left", TYPES)
def test_moments_are_compared(uri: str, left: str, right: str) -> None:
    """pylance rounds the finer of two timestamps to the unit of the coarser; it agrees wherever a date is one side."""
    ours, theirs = lance_io.dataset(uri), lance.dataset(uri)
    for sign, is_true in OPERATORS.items():
        expected = []
        for row, (first, second) in enumerate(PAIRS):
            a, b = ticks(first, left), ticks(second, right)
            if a is not None and b is not None and is_true(a * TYPES[left][1], b * TYPES[right][1]):
                expected.append(row)
        text = f"left_{left} {sign} right_{right}"
        assert ours.to_table(["row"], filter=text)["row"].to_pylist() == expected, text
        one, other = pads.field(f"left_{left}"), pads.field(f"right_{right}")
        expression = {"=": one == other, "!=": one != other, "<": one < other, ">=": one >= other}.get(sign)
        if expression is not None:
            assert ours.to_table(["row"], filter=expression)["row"].to_pylist() == expected, expression
        if "day" in left or "day" in right or left == right:
            assert theirs.to_table(["row"], filter=text)["row"].to_pylist() == expected, text
