"""Computed columns have the types and values of pylance, for columns of many types."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

import lance_io

if TYPE_CHECKING:
    from pathlib import Path

    from lance_io import LanceDataset

    Both = tuple[lance.LanceDataset, LanceDataset]

MONEY = [Decimal(one) if one else None for one in ("1.50", "-2.25", "", "999.99", "0.00", "-0.55", "7.00")]
WHOLE = [1, -2, None, 10**30, 0, -5, 7]
TEXTS = ["a", "-2", None, "Hello World", "", "7", "2024-01-02"]
TIMES = [1704164645123, -877, None, 123, 1728000000123, 86400123, 1709210096123]
TABLE = pa.table(
    {
        "i8": pa.array([1, -2, None, 127, 0, -128, 7], pa.int8()),
        "i32": pa.array([1, -2, None, 2**31 - 1, 0, -(2**31), 7], pa.int32()),
        "i64": pa.array([1, -2, None, 2**40, 0, -(2**40), 7], pa.int64()),
        "u64": pa.array([1, 2, None, 2**64 - 1, 0, 3, 7], pa.uint64()),
        "f32": pa.array([1.5, -2.25, None, 1e10, 0.0, float("nan"), 0.1], pa.float32()),
        "d5": pa.array(MONEY, pa.decimal128(5, 2)),
        "d20": pa.array(MONEY, pa.decimal128(20, 10)),
        "d38": pa.array([None if one is None else Decimal(one) for one in WHOLE], pa.decimal128(38, 0)),
        "d50": pa.array(MONEY, pa.decimal256(50, 2)),
        "s": TEXTS,
        "ls": pa.array(TEXTS, pa.large_string()),
        "bin": pa.array([one.encode() if one is not None else None for one in TEXTS]),
        "d": [dt.date(2024, 1, 1 + i) for i in range(6)] + [None],
        "ts": pa.array(TIMES, pa.timestamp("ms")),
        "tz": pa.array(TIMES, pa.timestamp("ms", "America/New_York")),
        "tm": pa.array([None if one is None else one % 86400000 for one in TIMES], pa.time32("ms")),
        "lf": pa.array([[1.5], [None], None, [], [3, 1, 3], [7], [0]], pa.list_(pa.float32())),
        "ll": pa.array([[1, 2], [None], None, [], [3, 1, 3], [7], [0]], pa.large_list(pa.int64())),
    }
)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    uri = str(tmp_path_factory.mktemp("types") / "t.lance")
    return lance.write_dataset(TABLE, uri), lance_io.dataset(uri)


def texts(listed: str) -> list[str]:
    return [one.strip() for line in listed.strip().splitlines() for one in line.split(";")]


def assert_same(text: str, both: Both) -> None:
    theirs, ours = (one.to_table(columns={"found": text})["found"].combine_chunks() for one in both)
    assert ours.type == theirs.type, text
    assert repr(ours.to_pylist()) == repr(theirs.to_pylist()), text  # NaN equals NaN, -0.0 is not 0.0


VALUES = """
    to_timestamp(d5); to_timestamp(d20); to_timestamp(d50)
    to_unixtime(ts); to_unixtime(tz); to_unixtime(d)
    string_to_array(s, ''); string_to_array(s, 'l'); regexp_count(s, 'l'); regexp_count(s, '')
    cast(d5 as string); cast(d20 as string); cast(d38 as string); cast(d50 as string); concat(d20, s)
    cast(arrow_cast(i32, 'Date64') as bigint); cast(arrow_cast(i64, 'Date64') as bigint)
"""
ARITHMETIC = """
    i8 % 1; i8 % -1; i32 % -1; 5 % (i8 + 1000); i32 % 3; u64 % 1; u64 % (u64 + 5); u64 % (i64 + 5); f32 % 1.5; 1.5 % f32
    d5 % 2; d5 % decimal(20,4) '0.3000'; d38 % 7; d50 % 2; d20 % decimal(38,10) '0.7'
    d5 + 1; d5 + i64; d38 + 1; d38 - d38; d38 + d5; d50 + 1; d50 - d38; 1 - d38; d38 + i8
    d38 * 1; d5 * d5; d20 * 1; d20 * d20; d20 * i64; d38 * d5; d50 * d50; d50 * d5; d50 * -1; u64 * i8; i64 * u64 * 2
    d5 / 3; d20 / 7; d38 / 3; d38 / decimal(10,2) '3.00'; d50 / 3; d5 / decimal(38,10) '3'; (d5 + 1) / (d5 + 5000)
    f32 + d5; d5 - f32; f32 * d38; f32 / decimal(10,2) '3.00'; d50 / f32; d5 % f32; f32 + i64
"""
ROUNDED = """
    round(d5); round(d5, 1); round(d5, -1); round(d5, -9); round(d5, 2); round(d5, 4); round(d5, null); round(d5, i32)
    round(d20); round(d20, 3); round(d38, 2); round(d38, -2); round(d50, 1); round(d50, i8)
"""
SHOWN = """
    reverse(i8); reverse(f32); reverse(d20); lpad(ts, 7); rpad(d5, 9, 'x'); regexp_match(d5, '9')
    translate(d, '0', 'o')
    find_in_set(i8, '7,1'); overlay(bin, 'x', 1); substr_index(d5, '.', 1); regexp_count(i32, '1')
    cast(left(ts, 4) as string)
    cast(right(bin, 2) as string); cast(regexp_replace(i32, '1', 'x') as string)
    date_part('isodow', d); date_part('isodow', ts); date_part('dow', d)
"""
LARGE = """
    initcap(ls); ltrim(ls); btrim(ls); rtrim(ls); lpad(ls, 4); rpad(ls, 4, 'x'); repeat(ls, 2); split_part(ls, 'l', 1)
    translate(ls, 'a', 'b'); string_to_array(ls, 'l'); octet_length(ls); bit_length(ls); strpos(ls, 'l')
    levenshtein(ls, 'a')
    array_append(ll, 1); array_prepend(1, ll); array_concat(ll, ll); array_remove(ll, 1); array_remove_all(ll, 3)
    array_replace(ll, 1, 2); array_replace_n(ll, 3, 2, 1); array_union(ll, ll); array_intersect(ll, ll)
    array_except(ll, ll)
    array_reverse(ll); array_pop_back(ll); array_pop_front(ll); array_slice(ll, 1, 1); array_resize(ll, 3)
    array_distinct(ll); array_sort(ll); array_append(lf, 1); array_sort(lf); octet_length(s); strpos(s, 'l')
"""


@pytest.mark.parametrize("text", [one for part in (VALUES, ARITHMETIC, ROUNDED, SHOWN, LARGE) for one in texts(part)])
def test_columns_are_the_peers(text: str, both: Both) -> None:
    assert_same(text, both)


@pytest.mark.parametrize(
    "text", ["d38 * d38", "d38 + d20", "d38 * 10000000000", "d38 / 0", "d50 % 0", "d38 % (d38 - d38)"]
)
def test_decimals_that_do_not_fit_are_errors(text: str, both: Both) -> None:
    for one in both:
        with pytest.raises(ValueError):
            one.to_table(columns={"found": text})


def test_quotients_of_decimals_are_exact(tmp_path: Path) -> None:
    above = [576478344489467900, 34902897112121328, 10141204801825835176789219999744, 79228162514264328797467705344, -1]
    below = [268443648, 1048576, 1024, 134217728, 3]
    table = pa.table(
        {
            "x": pa.array([Decimal(one) for one in above], pa.decimal128(34, 0)),
            "y": pa.array([Decimal(one) for one in below], pa.decimal128(20, 0)),
        }
    )
    both = lance.write_dataset(table, tmp_path / "t.lance"), lance_io.dataset(tmp_path / "t.lance")
    for text in ("x / y", "x % y", "x / 1024", "y / x"):
        assert_same(text, both)
