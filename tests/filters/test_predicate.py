"""Filters beyond what pylance takes: more types and functions, errors, the shape of the result, hostile bytes."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io.errors import BindError, UnsupportedError, UsageError
from lance_io.filters import PSEUDO_COLUMNS, compile_filter
from lance_io.filters.evaluate import compare
from lance_io.filters.expressions.expression_tree import And, Cast, Column, Comparison, In, IsNull, Literal, Not, Or
from lance_io.filters.syntax.arrow_expressions import from_arrow
from lance_io.filters.syntax.ipc_metadata import schema_metadata

F = pc.field
S = pc.scalar
NAN = float("nan")
TEXTS = ["a", "b", None, "", "a_b", "AB", "axb", "é"]
STRUCTS = [{"x": i, "y": t, "z": {"w": i / 2}} if i != 3 else None for i, t in enumerate(TEXTS)]
STRUCT_TYPE = pa.struct([("x", pa.int64()), ("y", pa.string()), ("z", pa.struct([("w", pa.float64())]))])
BATCH = pa.record_batch(
    {
        "a": pa.array(range(8), pa.int64()),
        "i8": pa.array([1, 2, None, -4, 5, 127, -128, 0], pa.int8()),
        "u8": pa.array([1, 2, None, 4, 5, 255, 0, 0], pa.uint8()),
        "u64": pa.array([1, 2, None, 4, 5, 2**64 - 1, 0, 0], pa.uint64()),
        "f": pa.array([1.0, NAN, 5.0, None, -NAN, -0.0, float("inf"), -float("inf")]),
        "f16": pa.array(np.array([1, np.nan, 5, 0, -np.nan, -0.0, np.inf, -np.inf], dtype=np.float16)),
        "s": pa.array(TEXTS),
        "ls": pa.array(TEXTS, pa.large_string()),
        "sv": pa.array(TEXTS, pa.string_view()),
        "dict": pa.array(TEXTS).dictionary_encode(),
        "b": pa.array([True, False, None, True, False, True, False, True]),
        "fsb": pa.array([b"aa", b"bb", None, b"cc", b"dd", b"ee", b"ff", b"gg"], pa.binary(2)),
        "d": pa.array([dt.date(2024, 1, day) if day != 3 else None for day in range(1, 9)]),
        "tsms": pa.array([dt.datetime(2024, 1, day, 12) for day in range(1, 9)], pa.timestamp("ms")),
        "t64": pa.array([dt.time(hour) if hour != 3 else None for hour in range(1, 9)], pa.time64("us")),
        "dur": pa.array([dt.timedelta(days) if days != 3 else None for days in range(1, 9)], pa.duration("us")),
        "dec": pa.array([Decimal(f"{i}.50") for i in range(8)], pa.decimal128(10, 2)),
        "n": pa.array(STRUCTS, STRUCT_TYPE),
        "l": pa.array([[1], [1, 2], None, [], [None], [5, 6, 7], [1, 9], [3]], pa.list_(pa.int64())),
        "nul": pa.nulls(8),
    }
)


def selected(expression: pc.Expression, batch: pa.RecordBatch = BATCH) -> list[int]:
    return compile_filter(expression, BATCH.schema).selection(batch).tolist()


def typed(value: Any, t: pa.DataType) -> pc.Expression:
    return pc.scalar(pa.scalar(value, t))


@pytest.mark.parametrize(
    "expression",
    [
        F("n", "x") > 1,
        F("n", "z", "w") > 1,
        F("n", "y") == "a",
        pc.struct_field(F("n"), "x") > 1,
        pc.struct_field(F("n"), [2, 0]) > 1,
        pc.struct_field(pc.if_else(F("a") > 1, F("n"), F("n")), ["z", "w"]) > 2,
        F("ls") == "a",
        F("ls") == F("s"),
        F("ls").isin(["a", "b"]),
        F("dict") == "a",
        F("dict").isin(["a"]),
        F("dict").is_null(),
        F("t64") > dt.time(4),
        F("dur") > dt.timedelta(4),
        F("fsb") == b"ee",
        F("fsb") > b"dd9",
        F("u8").isin([-1, 4]),
        F("u8") + 1 > 3,
        F("i8") + 300 > 300,
        F("a") * 1.5 > 3,
        F("a") + 0.5 > F("u8"),
        F("d") > dt.datetime(2024, 1, 3, 12),
        F("d") == typed(dt.date(2024, 1, 4), pa.date64()),
        F("tsms") >= dt.datetime(2024, 1, 4, 12, 0, 0, 1),
        F("tsms") > F("d"),
        F("dec") > Decimal("3.001"),
        F("dec") > F("a"),
        F("nul").is_null(),
        F("f").is_null(nan_is_null=True),
        F("a").cast(pa.int8()) > 3,
        F("a").cast("float64") / 2 == 1.5,
        F("a").cast(pa.string()).cast(pa.int16()) > 3,
        pc.is_finite(F("f")),
        pc.xor(F("b"), F("a") > 2),
        pc.and_not_kleene(F("b"), F("a") > 2),
        pc.true_unless_null(F("b")),
        pc.starts_with(F("s"), "A", ignore_case=True),
        pc.match_substring(F("s"), "A", ignore_case=True),
        pc.match_substring_regex(F("s"), "a.b"),
        pc.match_like(F("s"), "a_b"),
        pc.match_like(F("s"), r"a\_b"),
        pc.utf8_upper(F("s")) == "A_B",
        pc.utf8_lower(F("ls")) == "ab",
        pc.utf8_length(F("s")) == 1,
        pc.utf8_trim(F("s"), "a") == "xb",
        pc.utf8_slice_codeunits(F("s"), 1) == "_b",
        pc.binary_length(F("s")) == 2,
        pc.binary_join_element_wise(F("s"), "x", "") == "ax",
        pc.replace_substring(F("s"), "a", "z") == "z",
        pc.list_value_length(F("l")) > 1,
        pc.round(F("f"), 1) == 5,
        pc.floor(F("f")) == 5,
        pc.max_element_wise(F("a"), 4) > 4,
        pc.index_in(F("a"), pa.array([1, 2])) == 1,
        pc.year(F("d")) == 2024,
        pc.day(F("tsms")) > 3,
        pc.strftime(F("tsms"), "%d") == "04",
    ],
    ids=str,
)
def test_same_rows_as_pyarrow(expression: pc.Expression) -> None:
    """Where floats, nulls in lists and overflow play no role, pyarrow's own evaluation is the expectation."""
    table = pa.Table.from_batches([BATCH]).drop_columns("sv")  # string views cannot be filtered
    assert selected(expression) == table.filter(expression)["a"].to_pylist()


@pytest.mark.parametrize(
    ("expression", "rows"),
    [
        (F("f16") > 3, [1, 2, 6]),
        (F("f16") == F("f16"), list(range(8))),
        (F("f16") == typed(5, pa.float16()), [2]),
        (F("sv") > "a", [1, 4, 6, 7]),
        (F("u64") > 3, [3, 4, 5]),
        (F("u64") == typed(2**64 - 1, pa.uint64()), [5]),
        (F("u64") > F("a"), [0, 1, 3, 4, 5]),
        (F("a") > F("f"), [4, 5, 7]),
        (F("dec") == 3, []),
        (F("dec") * 2 == 7, [3]),
        (F("dec") > F("f"), [4, 5, 7]),
        (F("b") & S(None), []),
        (F("b") | S(None), [0, 3, 5, 7]),
        (S(None) == S(None), []),
        (F("nul") == F("nul"), []),
        (F("_rowid") > 3, [4, 5, 6, 7]),
        (F("_rowaddr") + 1 > F("a"), list(range(8))),
        (pc.modulo(F("a"), 3) == 1, [1, 4, 7]) if hasattr(pc, "modulo") else (F("a") == 1, [1]),
    ],
    ids=str,
)
def test_expected_rows(expression: pc.Expression, rows: list[int]) -> None:
    numbers = pa.array(range(8), pa.uint64())
    batch = BATCH.append_column("_rowid", numbers).append_column("_rowaddr", numbers)
    assert selected(expression, batch) == rows


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (F("zz") > 3, "No field named zz. Valid fields are a, i8,"),
        (F("A") > 3, "No field named A"),
        (F("n.x") > 3, "No field named `n.x`"),
        (F("n", "zz") > 3, "No field named n.zz. Valid fields of n are x, y, z."),
        (F("a", "x") > 3, "a is int64, not a struct"),
        (pc.struct_field(F("n"), [7]) > 1, "No field named"),
        (F("a"), "does not return a boolean"),
        (F("s"), "does not return a boolean"),
        (S(None), "does not return a boolean"),
        (F("a") & F("b"), "does not return a boolean"),
        (~F("a"), "does not return a boolean"),
        (F("a") > 1.5, "Received literal 1.5 and could not convert to literal of type int64"),
        (F("a") == 3.0, "Received literal 3.0"),
        (F("a") == "3", "Received literal '3'"),
        (F("i8") > 300, "Received literal 300"),
        (F("u8") > -1, "Received literal -1"),
        (F("b") == 1, "Received literal 1"),
        (F("d") > "2024-01-03", "Received literal '2024-01-03'"),
        (F("dec") > 3.1, "Received literal 3.1"),
        (F("_rowid") > -1, "Received literal -1"),
        (F("s") == F("a"), "mixes string and int64"),
        (F("n") == F("n"), "cannot be compared"),
        (F("s").isin([1]), "cannot look for int64 values in string"),
        (F("a").isin(["x"]), "x"),
        (F("l").isin([[1]]), "list<"),
        (pc.utf8_upper(F("a")) == "A", "utf8_upper does not take"),
        (F("l").cast(pa.int32()) > 1, "cannot cast"),
    ],
    ids=str,
)
def test_filters_that_do_not_fit(expression: pc.Expression, message: str) -> None:
    with pytest.raises(BindError) as caught:
        compile_filter(expression, BATCH.schema)
    assert message in str(caught.value)
    assert isinstance(caught.value, ValueError)


def _deep(levels: int) -> pc.Expression:
    expression = F("a")
    for _ in range(levels):
        expression = expression + 1
    return expression > 3


@pytest.mark.parametrize(
    ("filter", "message"),
    [
        (pc.Expression._call("no_such_function", [F("a")]), "no_such_function"),
        (pc.Expression._call("random", [], pc.RandomOptions()) > 2, "random"),
        (F(0) > 3, "by name"),
        (F("f").cast(pa.string()) == "5", "cannot cast f to string"),
        (F("a").cast(options=pc.CastOptions(pa.int8(), allow_int_overflow=True)) > 3, "allow_"),
        (_deep(500), "nested deeper"),
    ],
    ids=str,
)
def test_filters_that_cannot_be_rebuilt(filter: Any, message: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        compile_filter(filter, BATCH.schema)
    assert message in str(caught.value)


def test_a_filter_of_another_kind() -> None:
    with pytest.raises(UsageError, match="found bool"):
        compile_filter(True, BATCH.schema)


def test_tree() -> None:
    expression = (F("a") > 3) & ~F("n", "x").isin([1, None]) & (F("s").is_valid() | F("f").cast("int8").is_null())
    assert from_arrow(expression) == And(
        (
            Comparison(">", Column(("a",)), Literal(pa.scalar(3), adaptable=True)),
            Not(In(Column(("n", "x")), pa.array([1]), has_null=True)),
            Or((Not(IsNull(Column(("s",)))), IsNull(Cast(Column(("f",)), pa.int8())))),
        )
    )


def test_long_chains_are_flat() -> None:
    expression = F("a") == 0
    for value in range(1, 2000):
        expression = expression | (F("a") == value)
    assert selected(expression) == list(range(8))


def test_columns() -> None:
    predicate = compile_filter(
        (F("n", "z", "w") > 1) & (F("_rowid") > 3) & (F("a") > 1) & (F("n", "x") > 1) & (F("a") < 9), BATCH.schema
    )
    assert predicate.columns == ("n.z.w", "_rowid", "a", "n.x")
    assert predicate.paths == (("n", "z", "w"), ("_rowid",), ("a",), ("n", "x"))
    assert str(predicate) == "((n.z.w > 1.0) and (_rowid > 3) and (a > 1) and (n.x > 1) and (a < 9))"
    assert compile_filter(S(True), BATCH.schema).columns == ()
    dotted = compile_filter(F("n", "p.q") > 1, pa.schema([("n", pa.struct([("p.q", pa.int8())]))]))
    assert dotted.columns == ("n.`p.q`",)


def test_a_real_column_hides_a_pseudo_column() -> None:
    assert set(PSEUDO_COLUMNS) >= {"_rowid", "_rowaddr", "_rowoffset"}
    schema = pa.schema([("_rowid", pa.string())])
    batch = pa.record_batch({"_rowid": ["x", "y"]})
    assert compile_filter(F("_rowid") == "y", schema).selection(batch).tolist() == [1]


def test_pruned_structs() -> None:
    predicate = compile_filter(F("n", "z", "w") >= 3, BATCH.schema)
    pruned = pa.record_batch({"n": pa.array([{"z": {"w": 2.0}}, {"z": {"w": 3.0}}, {"z": None}, None])})
    assert predicate.selection(pruned).tolist() == [1]


def test_extension_types() -> None:
    key = b"0123456789abcdef"
    batch = pa.record_batch(
        {"u": pa.array([key, None, key[::-1]], pa.uuid()), "j": pa.array(["{}", "1", "2"], pa.json_())}
    )
    for expression in (
        F("u") == key,
        F("u") == pc.scalar(batch["u"][0]),
        F("u").isin([key]),
        F("u").isin(batch["u"].slice(0, 1)),
        F("j") == "{}",
    ):
        assert compile_filter(expression, batch.schema).selection(batch).tolist() == [0]
    assert compile_filter(F("u").is_null(), batch.schema).selection(batch).tolist() == [1]


def test_dictionary_literals() -> None:
    words = pa.array(["a", "b"]).dictionary_encode()
    assert selected(F("dict") == pc.scalar(words[1])) == [1]
    assert selected(F("s").isin(words)) == [0, 1]


@pytest.mark.parametrize("expression", [F("f") > 3, F("f").isin([0.0, None]), S(True), F("b") & (F("a") > 0)], ids=str)
def test_mask_of_slices(expression: pc.Expression) -> None:
    predicate = compile_filter(expression, BATCH.schema)
    whole = predicate.mask(BATCH).to_pylist()
    assert None not in whole
    for start in range(9):
        piece = BATCH.slice(start, 3)
        assert predicate.mask(piece).to_pylist() == whole[start : start + 3]
        assert predicate.selection(piece).dtype == np.int64


def _order(bits: int, width: int) -> int:
    """The place of a float's bit pattern in IEEE 754 total order."""
    sign = 1 << (width - 1)
    return ~bits + 2 * sign if bits & sign else bits | sign


patterns = st.lists(
    st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 1 << 63, 0x7FF8 << 48, 0xFFF8 << 48, 0x7FF8 << 48 | 1])),
    min_size=1,
    max_size=12,
)
OPERATORS = {
    "=": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
}


@settings(max_examples=100, deadline=None)
@given(left=patterns, right=patterns, nulls=st.integers(0, 2**12))
def test_total_order(left: list[int], right: list[int], nulls: int) -> None:
    count = min(len(left), len(right))
    mask = np.array([bool(nulls >> i & 1) for i in range(count)])
    for code, width in (("d", 64), ("f", 32)):
        integers = [[bits >> (64 - width) for bits in side[:count]] for side in (left, right)]
        floats = [np.array(side, dtype=f"u{width // 8}").view(code) for side in integers]
        arrays = [pa.array(floats[0], mask=mask), pa.array(floats[1])]
        for op, holds in OPERATORS.items():
            expected = [
                None if null else holds(_order(x, width), _order(y, width))
                for x, y, null in zip(*integers, mask, strict=True)
            ]
            assert compare(op, *arrays).to_pylist() == expected


def test_metadata_with_repeated_keys() -> None:
    pickled = bytes(((F("a") > 3) & (F("é", "x") == "it's")).__reduce__()[1][0])
    assert schema_metadata(pickled) == [
        ("call", "and_kleene"),
        ("call", "greater"),
        ("field_ref", "a"),
        ("literal", "0"),
        ("end", "greater"),
        ("call", "equal"),
        ("nested_field_ref", "2"),
        ("field_ref", "é"),
        ("field_ref", "x"),
        ("literal", "1"),
        ("end", "equal"),
        ("end", "and_kleene"),
    ]


def test_damaged_metadata() -> None:
    pickled = bytes((F("a") > 3).__reduce__()[1][0])
    (length,) = struct.unpack_from("<i", pickled, 12)
    random = np.random.default_rng(3)
    damaged = [pickled[:end] for end in range(16 + length)]
    for at, value in zip(random.integers(8, 16 + length, 2000), random.integers(0, 256, 2000), strict=True):
        damaged.append(pickled[:at] + bytes([value]) + pickled[at + 1 :])
    for data in damaged:
        try:
            schema_metadata(data)
        except ValueError:
            continue
