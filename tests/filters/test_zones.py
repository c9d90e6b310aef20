"""Which zones a filter may match, against the rows themselves: none that has a matching row is ever left out."""

from __future__ import annotations

import random
import struct
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lance_io.filters import compile_filter
from lance_io.filters.zones import ColumnZones, may_match, zone_columns

ZONES, ROWS = 12, 5  # rows of a zone
NEGATIVE_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8 << 48))[0]


def bounds(array: pa.Array) -> ColumnZones:
    """By definition: of each zone the least and greatest value that is neither null nor NaN."""
    least, greatest = [], []
    for zone in range(ZONES):
        values = array.slice(zone * ROWS, ROWS).drop_null()
        if pa.types.is_floating(array.type):
            values = values.filter(pc.invert(pc.is_nan(values)))
        found = pc.min_max(values).as_py()
        least.append(found["min"])
        greatest.append(found["max"])
    return ColumnZones(pa.array(least, array.type), pa.array(greatest, array.type))


def rows(dice: random.Random) -> pa.RecordBatch:
    numbers = sorted(dice.randrange(40) for _ in range(ZONES * ROWS))
    floats: list[Any] = [number / 2 for number in numbers]
    for _ in range(6):
        floats[dice.randrange(len(floats))] = dice.choice([float("nan"), NEGATIVE_NAN, float("inf"), 0.0, -0.0, None])
    texts = [None if dice.random() < 0.05 else f"t{number:02}" for number in numbers]
    members = [{"u": number, "v": f"v{number:02}"} for number in numbers]
    flags = [number > 20 for number in numbers]
    return pa.record_batch(
        {
            "i": pa.array([None if dice.random() < 0.05 else n for n in numbers], pa.int32()),
            "f": pa.array(floats, pa.float64()),
            "s": texts,
            "m": members,
            "b": flags,
        }
    )


def some_test(dice: random.Random) -> str:
    value = dice.randrange(-2, 42)
    op = dice.choice(["=", "!=", "<", "<=", ">", ">="])
    return dice.choice(
        [
            f"i {op} {value}",
            f"{value} {op} i",
            f"f {op} {value / 2}",
            f"s {op} 't{abs(value):02}'",
            f"m.u {op} {value}",
            f"m.v {op} 'v{abs(value):02}'",
            f"i in ({value}, {value + 3})",
            f"i not in ({value}, {value + 3})",
            f"f between {value / 2} and {value / 2 + 2}",
            f"i between {value} and {value + 4}",
            "i is null",
            "s is not null",
            "b",
            "not b",
            "b != true",
            f"i {op} null",
        ]
    )


def expression(dice: random.Random, depth: int) -> str:
    if depth == 0 or dice.random() < 0.3:
        return some_test(dice)
    match dice.randrange(3):
        case 0:
            return f"({expression(dice, depth - 1)} and {expression(dice, depth - 1)})"
        case 1:
            return f"({expression(dice, depth - 1)} or {expression(dice, depth - 1)})"
        case _:
            return f"(not {expression(dice, depth - 1)})"


@pytest.mark.parametrize("seed", range(12))
def test_no_matching_row_is_left_out(seed: int) -> None:
    dice = random.Random(seed)
    batch = rows(dice)
    members = batch.column("m")
    columns = {
        ("i",): batch.column("i"),
        ("f",): batch.column("f"),
        ("s",): batch.column("s"),
        ("b",): batch.column("b"),
    }
    columns |= {("m", "u"): members.field("u"), ("m", "v"): members.field("v")}
    known = {path: bounds(array) for path, array in columns.items() if dice.random() < 0.9}
    num_excluded = 0
    for _ in range(60):
        text = expression(dice, dice.randrange(4))
        predicate = compile_filter(text, batch.schema)
        matches = predicate.mask(batch).to_numpy(zero_copy_only=False).reshape(ZONES, ROWS).any(axis=1)
        may = may_match(predicate.expression, known, ZONES)
        assert not (matches & ~may).any(), text
        num_excluded += int((~may).sum())
    assert num_excluded > 60


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("i = 7", [False, True, False]),
        ("i < 5", [True, True, False]),
        ("i <= 4", [True, False, False]),
        ("i > 9", [False, False, True]),
        ("5 > i", [True, False, False]),
        ("not (i < 10)", [False, False, True]),
        ("i in (1, 12)", [True, False, True]),
        ("i < 2 or i > 12", [True, False, True]),
        ("i > 3 and i < 6", [True, True, False]),
        ("f > 9", [True, True, True]),  # NaN may be anywhere
        ("f = 9", [False, True, False]),
        ("f > 9 and f < 12", [False, False, True]),
        ("i = null", [False, False, False]),
        ("i is null", [True, True, True]),
        ("i + 1 = 7", [True, True, True]),
        ("i = 7 and i + 1 = 8", [True, True, True]),  # which might fail
        ("o = 7", [True, True, True]),
    ],
)
def test_exactly(text: str, kept: list[bool]) -> None:
    schema = pa.schema([("i", pa.int64()), ("f", pa.float64()), ("o", pa.int64())])
    integers = ColumnZones(pa.array([0, 5, 10]), pa.array([4, 9, 14]))
    if text == "i < 5":
        integers = ColumnZones(pa.array([0, None, 10]), pa.array([4, 9, 14]))  # nothing is known of the second's least
    floats = ColumnZones(integers.least.cast(pa.float64()), integers.greatest.cast(pa.float64()))
    expression = compile_filter(text, schema).expression
    assert may_match(expression, {("i",): integers, ("f",): floats}, 3).tolist() == kept
    assert may_match(expression, {}, 3).all() == (text != "i = null"), "null decides it without any column"


def test_columns_that_bounds_are_wanted_of() -> None:
    schema = pa.schema([("i", pa.int64()), ("s", pa.string()), ("n", pa.struct([("x", pa.int64())]))])
    wanted = {
        "i > 3 and s = 'x'": {("i",), ("s",)},
        "n.x in (1, 2)": {("n", "x")},
        "i is null": set(),
        "abs(i) = 2": set(),
        "i = 2 and abs(i) = 2": set(),
    }
    for text, columns in wanted.items():
        assert zone_columns(compile_filter(text, schema).expression) == columns
