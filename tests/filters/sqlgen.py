"""Random tables and random text filters over them, for comparison with pylance."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

NUM_ROWS = 12
TYPES = {
    "a": pa.int64(),
    "b": pa.int64(),
    "i32": pa.int32(),
    "u8": pa.uint8(),
    "f": pa.float64(),
    "g": pa.float32(),
    "s": pa.string(),
    "t": pa.string(),
    "p": pa.bool_(),
    "q": pa.bool_(),
    "d": pa.date32(),
    "ts": pa.timestamp("us"),
    "dec": pa.decimal128(10, 2),
    "l": pa.list_(pa.int64()),
    "big": pa.uint64(),
    "Camel": pa.int64(),
    "n": pa.struct([("x", pa.int64()), ("y", pa.string())]),
}
TEXTS = ["", "a", "b", "ab", "A_b", "a%", "é", "x1", "12", "-3"]


def make_table(seed: int) -> pa.Table:
    """A table of `NUM_ROWS` rows with a column `row` and the columns of `TYPES`, a fifth of their values null."""
    rng = random.Random(seed)
    small = lambda: rng.choice([0, 1, 2, 3, -1, 5, 7, 100])  # noqa: E731
    day = lambda: dt.datetime(2024, rng.choice([1, 2, 12]), rng.randrange(1, 29), rng.choice([0, 12]))  # noqa: E731
    text = lambda: rng.choice(TEXTS)  # noqa: E731
    makers: dict[str, Callable[[], Any]] = {
        "a": lambda: rng.choice([small(), 2**62, -(2**63)]) if seed % 4 == 0 else small(),
        "b": small,
        "i32": lambda: rng.choice([small(), 2**31 - 1]),
        "u8": lambda: rng.choice([0, 1, 3, 255]),
        "f": lambda: rng.choice([0.0, -0.0, 0.5, 1.0, 2.5, -1.5, float("nan"), float("inf"), 100.0]),
        "g": lambda: rng.choice([0.0, 0.5, 1.0, 2.5, -1.5]),
        "s": text,
        "t": text,
        "p": lambda: rng.random() < 0.5,
        "q": lambda: rng.random() < 0.5,
        "d": lambda: day().date(),
        "ts": day,
        "dec": lambda: Decimal(rng.choice(["0.00", "1.00", "2.50", "-3.25", "100.00"])),
        "l": lambda: [rng.choice([1, 2, 3, None]) for _ in range(rng.randrange(4))],
        "big": lambda: rng.choice([0, 1, 3, 100, 2**40, 2**63 + 5]),
        "Camel": small,
        "n": lambda: {"x": rng.choice([None, small()]), "y": rng.choice([None, text()])},
    }
    columns = {
        name: pa.array([None if rng.random() < 0.2 else maker() for _ in range(NUM_ROWS)], TYPES[name])
        for name, maker in makers.items()
    }
    return pa.table({"row": range(NUM_ROWS), **columns})


def one_of(*texts: str) -> st.SearchStrategy[str]:
    return st.sampled_from(texts)


integer_literals = one_of("0", "1", "2", "3", "-1", "5", "100", "null")
text_literals = one_of("''", "'a'", "'ab'", "'A_b'", '"b"', "'é'", "'12'", "null")
days = one_of("d", "date '2024-01-15'", "cast(ts as date)", "date_trunc('month', ts)", "ts", "to_date('2024-02-02')")

integers = st.recursive(
    one_of("a", "b", "i32", "u8", "n.x", "l[1]", "l[-1]", "array_length(l)", "length(s)", "1", "2", "3"),
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, one_of("+", "-", "*"), inner),
        st.builds("{} / {}".format, inner, one_of("2", "3", "-7")),
        st.builds("{} % {}".format, inner, one_of("2", "3", "-7")),
        st.builds("-({})".format, one_of("b", "i32", "n.x", "length(t)")),
        st.builds("abs({})".format, one_of("b", "n.x", "i32", "3")),
        st.builds("coalesce({}, {})".format, inner, inner),
        st.builds("nullif({}, {})".format, inner, inner),
        st.builds("{}({}, {})".format, one_of("greatest", "least"), inner, inner),
        st.builds("cast({} as bigint)".format, one_of("b", "f / 0 is null", "p", "g", "d", "'12'", "dec")),
        st.builds("date_part('{}', {})".format, one_of("year", "month", "day", "doy", "dow", "hour"), days),
        st.builds("strpos({}, {})".format, one_of("s", "t"), one_of("s", "'a'", "'b'")),
    ),
    max_leaves=4,
)
floats = st.one_of(
    one_of("f", "g", "0.5", "1.0", "-1.5", "cast(b as double)", "sqrt(f)", "power(b, 2)", "round(f)", "dec"),
    st.builds("({} {} {})".format, one_of("f", "g", "0.5"), one_of("+", "-", "*", "/"), one_of("f", "g", "b", "2")),
    st.builds("coalesce({}, {})".format, one_of("f", "1.5"), one_of("f", "2.5")),
    st.builds("nanvl({}, {})".format, one_of("f"), one_of("1.0", "f")),
    st.builds("trunc({})".format, one_of("f", "f * 2")),
)
texts = st.recursive(
    one_of("s", "t", "n.y", "'a'", "'ab'", "cast(b as string)", "cast(p as string)", "cast(d as string)"),
    lambda inner: st.one_of(
        st.builds("{}({})".format, one_of("upper", "lower", "reverse", "btrim", "ltrim", "initcap"), inner),
        st.builds("({} || {})".format, inner, inner),
        st.builds("concat({}, {})".format, inner, one_of("b", "'x'", "s")),
        st.builds("coalesce({}, {})".format, inner, inner),
        st.builds("{}({}, {})".format, one_of("left", "right", "repeat"), inner, one_of("0", "1", "2", "-1")),
        st.builds("replace({}, 'a', {})".format, inner, one_of("'zz'", "''")),
        st.builds("{}({}, 3, 'x')".format, one_of("lpad", "rpad"), inner),
        st.builds("split_part({}, '_', {})".format, inner, one_of("1", "2", "-1")),
    ),
    max_leaves=3,
)
operators = one_of("=", "!=", "<>", "<", "<=", ">", ">=", "==", "is distinct from", "is not distinct from")
distinctions = one_of("is distinct from", "is not distinct from")
exact_types = one_of("int", "bigint", "smallint", "tinyint unsigned", "decimal(12, 2)", "decimal(5, 0)")
negatable = one_of("", "not ")
lists_of_integers = st.lists(integer_literals, min_size=1, max_size=5).map(", ".join)
lists_of_texts = st.lists(text_literals, min_size=1, max_size=5).map(", ".join)

simple = st.one_of(
    st.builds("{} {} {}".format, integers, operators, integers),
    st.builds("{} {} {}".format, one_of("a", "b", "i32", "u8", "n.x"), operators, integer_literals),
    st.builds("{} {} {}".format, integer_literals, operators, one_of("a", "b", "i32", "f", "dec")),
    st.builds("{} {} {}".format, floats, operators, floats),
    st.builds("{} {} {}".format, one_of("f", "g"), operators, one_of("0", "1", "2.5", "0.1", "-1.5")),
    st.builds("{} {} {}".format, texts, operators, texts),
    st.builds("{} {} {}".format, days, operators, days),
    st.builds(
        "{}(s, {})".format, one_of("starts_with", "ends_with", "contains"), one_of("'a'", "'b'", "''", "t", "null")
    ),
    st.builds("regexp_like({}, '{}')".format, texts, one_of("a", "^a", "b$", "[ab]+", "x\\d", "^$")),
    st.builds("array_has(l, {})".format, one_of("1", "2", "9", "b", "null")),
    st.builds("isnan({})".format, one_of("f", "g", "f * 0")),
    st.builds("{} {}between {} and {}".format, one_of("b", "a + 1", "i32"), negatable, integers, integer_literals),
    st.builds("f {}between {} and {}".format, negatable, one_of("0", "-1.5"), one_of("1", "2.5", "100")),
    st.builds("{} is {}null".format, st.one_of(integers, floats, texts, one_of("l", "n", "p")), negatable),
    st.builds(
        "{} {}{} '{}'".format, texts, negatable, one_of("like", "ilike"), one_of("a%", "%b", "_", "A\\_%", "%", "")
    ),
    st.builds("{} {} {}".format, one_of("A", "I32", "N.x", "cAMEL", "camel"), operators, integer_literals),
    st.builds("{} is {}null".format, one_of("A", "N", "P", "camel", "N.y"), negatable),
    st.builds("{} {}between {} and {}".format, one_of("1", "1.5", "null", "2 + 0"), negatable, integers, floats),
    st.builds("{} {} {}".format, one_of("a", "u8", "f", "s", "ts"), distinctions, one_of("1.5", "'1'", "300", "-1")),
    st.builds("cast({} as {}) {} {}".format, one_of("big", "b", "dec"), exact_types, operators, integer_literals),
    st.builds("cast(big as int) {}between {} and {}".format, negatable, one_of("0", "-1"), one_of("5", "null")),
    st.builds("try_cast(big as {}) {} {}".format, exact_types, operators, one_of("1", "5", "100")),
    st.builds("(null {} {}) is {}null".format, one_of("+", "-", "*", "/", "%"), one_of("a / 0", "b", "f"), negatable),
    st.builds("{} {} {}".format, one_of("null", "null + 1"), operators, one_of("a / 0", "b % 0", "a")),
    st.builds("({0} or ({1} and {0}))".format, one_of("b = 0", "s is null", "not p"), one_of("a / 0 = 1", "b > 1")),
    st.builds("({0} and ({0} or {1}))".format, one_of("b = 0", "s is null", "0 = b"), one_of("a / 0 = 1", "b > 1")),
    st.builds("({} {} a / 0 = 1)".format, one_of("true", "false", "1 = 2", "null"), one_of("and", "or")),
    one_of("p", "q", "not p", "p = q", "p != true", "p is true", "p is not false", "q is false", "true", "false"),
)

memberships = st.one_of(
    st.builds("{} {}in ({})".format, one_of("a", "b", "i32", "n.x", "b + 1", "abs(b)"), negatable, lists_of_integers),
    st.builds("f {}in ({})".format, negatable, one_of("0", "1, 2.5", "0.5, null", "0, 1, 2, 3, 100")),
    st.builds("{} {}in ({})".format, one_of("s", "t", "upper(s)"), negatable, lists_of_texts),
    st.builds("cast(big as int) {}in ({})".format, negatable, one_of("1", "1, null", "-1, 2", "0, 1, 2, 3")),
)

without_lists = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, one_of("and", "or", "AND", "Or"), inner),
        st.builds("{} {} {}".format, inner, one_of("and", "or"), inner),
        st.builds("not ({})".format, inner),
        st.builds("not {}".format, inner),
        st.builds("({}) is {}null".format, inner, negatable),
        st.builds("({}) = {}".format, inner, one_of("true", "p")),
        st.builds("coalesce({}, {})".format, inner, one_of("true", "p")),
    ),
    max_leaves=5,
)

comparisons_of_lists = st.builds(
    "array_has_{}(l, {})".format, one_of("any", "all"), one_of("[1]", "[1, 2]", "[9]", "l", "[b, 1]")
)

# one list at most: pylance makes one of two and forgets the nulls, `not (f in (1) and f in (2))` selects null there
conditions = st.one_of(
    without_lists,
    memberships,
    st.builds("not ({})".format, memberships),
    st.builds("({}) is {}null".format, memberships, negatable),
    st.builds("{} {} {}".format, memberships, one_of("and", "or"), without_lists),
    st.builds("{} {} ({})".format, without_lists, one_of("and", "or"), memberships),
    st.builds("coalesce({}, {})".format, memberships, one_of("true", "p")),
    st.builds("{} {} ({})".format, comparisons_of_lists, one_of("and", "or"), without_lists),
)
