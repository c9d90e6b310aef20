"""Filters that differ only in their values: bound by the shape of another one as by their own text."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lance_io.errors import BindError
from lance_io.filters.compiled import FilterShape, compile_filter
from lance_io.filters.syntax.literal_shapes import shape_of
from tests.seeds import seeded

INTEGERS = {str(dtype): dtype for dtype in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64())}
OTHERS = {
    "text": pa.string(),
    "long": pa.large_string(),
    "double": pa.float64(),
    "bit": pa.bool_(),
    "day": pa.date32(),
    "moment": pa.timestamp("us"),
    "price": pa.decimal128(9, 2),
    "code": pa.dictionary(pa.int8(), pa.string()),
    "Mixed": pa.int16(),
    "st": pa.struct([("a", pa.int32()), ("t", pa.string())]),
}
SCHEMA = pa.schema([pa.field(name, dtype) for name, dtype in {**INTEGERS, **OTHERS}.items()])
NAMES = [*INTEGERS, *OTHERS, "st.a", "st.t", "MIXED", "_rowid", "not", "nothing"]


@pytest.mark.parametrize(
    ("text", "shape", "values"),
    [
        ("id = 77", "id = ?", (77,)),
        ("id=-77", "id=-?", (-77,)),
        (" a.b_1  <= 0 ", " a.b_1  <= ? ", (0,)),
        ("s = 'it is'", "s = '?'", ("it is",)),
        ("s > ''", "s > '?'", ("",)),
        ("id >= 10 AND id < 20", "id >= ? AND id < ?", (10, 20)),
        ("s = '7' and n = 8", "s = '?' and n = ?", ("7", 8)),
        ("id = 123456789012345678", "id = ?", (123456789012345678,)),
    ],
)
def test_shapes(text: str, shape: str, values: tuple[Any, ...]) -> None:
    assert shape_of(text) == (shape, values)


@pytest.mark.parametrize(
    "text",
    [
        "id = 1234567890123456789",
        "id = 007",
        "id = 7.0",
        "id = 7e1",
        "id = 0x7",
        "id = 7 limit 1",
        "id = 7;",
        "id = 1 OR id = 2",
        "id = 1 AND id = 2 AND id = 3",
        "id != 7",
        "id == 7",
        "7 = id",
        "id = other",
        "id = - 7",
        "id IN (7)",
        "not id = 7",
        "id + 1 = 7",
        "`id` = 7",
        "s = 'it''s'",
        "s = 'a;b'",
        's = "a"',
        "s = X'00'",
        "day = date '2024-01-01'",
        "lower(s) = 'a'",
        "s = 'a",
        "s = '" + "a" * 600 + "'",
        "",
    ],
)
def test_other_texts_have_no_shape(text: str) -> None:
    assert shape_of(text) is None


numbers = st.integers(0, 10**18) | st.integers(0, 260)
texts = st.text('ab1 _%?"', max_size=4) | st.text(max_size=3)
spaces = st.sampled_from(["", " "])
forms = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        spaces,
        st.sampled_from(["=", "<", "<=", ">", ">="]),
        spaces,
        st.sampled_from(["n", "-n", "t"]),
    ),
    min_size=1,
    max_size=2,
)


def filled_form(form: list[tuple[str, str, str, str, str]], data: st.DataObject) -> str:
    """A filter of a form with drawn values."""
    conditions = []
    for name, before, operator, behind, kind in form:
        literal = f"'{data.draw(texts)}'" if kind == "t" else f"{kind[:-1]}{data.draw(numbers)}"
        conditions.append(f"{name}{before}{operator}{behind}{literal}")
    return " AND ".join(conditions)


@seeded
@settings(max_examples=400, deadline=None)
@given(form=forms, data=st.data())
def test_a_filled_shape_is_the_bound_text(form: list[tuple[str, str, str, str, str]], data: st.DataObject) -> None:
    first, second = filled_form(form, data), filled_form(form, data)
    shaped, other = shape_of(first), shape_of(second)
    assume(shaped is not None and other is not None)
    assert shaped is not None and other is not None
    assume(shaped.shape == other.shape)
    try:
        predicate = compile_filter(first, SCHEMA)
    except BindError:
        return
    shape = FilterShape.of(predicate, shaped.values)
    filled = None if shape is None else shape.fill(other.values)
    if filled is not None:
        expected = compile_filter(second, SCHEMA)
        assert filled.expression == expected.expression
        assert (filled.paths, filled.columns) == (expected.paths, expected.columns)
        assert filled.cannot_fail == expected.cannot_fail


@pytest.mark.parametrize("name", [*INTEGERS])
def test_numbers_have_to_fit_their_column(name: str) -> None:
    dtype = INTEGERS[name]
    signed = name.startswith("int")
    most = (1 << dtype.bit_width - signed) - 1
    least = -most - 1 if signed else 0
    shape = FilterShape.of(compile_filter(f"{name} = 5", SCHEMA), (5,))
    assert shape is not None
    for value in (least, most):
        filled = shape.fill((value,))
        assert filled is not None
        assert filled.expression == compile_filter(f"{name} = {value}", SCHEMA).expression
    for value in (least - 1, most + 1):
        assert shape.fill((value,)) is None
        with pytest.raises(BindError):
            compile_filter(f"{name} = {value}", SCHEMA)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("long = 'a'", ("a",)),
        ("double = 5", (5,)),
        ("day = '2024-01-01'", ("2024-01-01",)),
        ("code = 'a'", ("a",)),
        ("price = 5", (5,)),
        ("int8 = 5", (6,)),
        ("int8 = 5", (5, 5)),
        ("int8 = 5 OR int8 = 6", (5, 6)),
        ("text = 'a' AND bit", ("a",)),
    ],
)
def test_other_filters_are_bound_by_their_text(text: str, values: tuple[Any, ...]) -> None:
    try:
        predicate = compile_filter(text, SCHEMA)
    except BindError:
        return
    assert FilterShape.of(predicate, values) is None
