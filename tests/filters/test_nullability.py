"""Whether computed columns may hold nulls: the field is pylance's, of columns with and without nulls."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io

if TYPE_CHECKING:
    from pathlib import Path

STRUCT = pa.struct([pa.field("x", pa.int64(), nullable=False), pa.field("y", pa.int64())])
SCHEMA = pa.schema(
    [
        pa.field(name, dtype, nullable=name in ("a", "s", "g", "q", "k", "su"))
        for name, dtype in {
            "a": pa.int64(),
            "n": pa.int64(),
            "s": pa.string(),
            "t": pa.string(),
            "f": pa.float64(),
            "g": pa.float64(),
            "p": pa.bool_(),
            "q": pa.bool_(),
            "d": pa.date32(),
            "ts": pa.timestamp("us"),
            "l": pa.list_(pa.int64()),
            "k": pa.list_(pa.int64()),
            "st": STRUCT,
            "su": STRUCT,
            "i": pa.int32(),
            "u": pa.uint64(),
            "m": pa.map_(pa.string(), pa.int64()),
        }.items()
    ]
)
FIRST: list[Any] = [1, 1, "x", "y", 0.5, 0.5, True, None, dt.date(2020, 1, 1), dt.datetime(2020, 1, 1), [1], None]
SECOND: list[Any] = [None, 2, None, "z", 1.0, None, False, True, dt.date(2020, 1, 2), dt.datetime(2020, 1, 3), [2], [1]]
ROWS = [
    [*FIRST, {"x": 1, "y": 2}, {"x": 1, "y": 2}, 1, 3, [("k", 1)]],
    [*SECOND, {"x": 1, "y": None}, None, 2, 4, [("k", None)]],
]
EXPRESSIONS = {
    "operators": """
        n + 1 ; n - a ; a + 1 ; -n ; -a ; - - n ; n % 2 ; a % 2 ; n / 2 ; n * 0 ; a * 0 ; u + 1 ; i + n ; i + u ;
        f / n ; n = 1 ; a = 1 ; n = a ; n = n ; a = a ; f > n ; i = n ; d < ts ; ts - ts ; st = st ; l = l ; k = k ;
        n between 1 and 2 ; a between 1 and 2 ; n between a and 2 ; 1 between n and a ; n not between 1 and 2 ;
        n in (1, 2) ; n in (1, 2, 3, 4, 5, 6) ; a in (1, 2) ; n not in (1, 2) ; n in (1, null) ; n in (a, 2) ;
        n in (n, 2) ; t in ('a', 'b') ; n = 1 and n = 2 ; n = 1 or n = 2 ; n = 1 and a = 2 ; a = 1 or n = 2 ; not p ;
        not q ; p and q ; p and true ; q and false ; q or true ; n = 1 and null ; p = true ; q = true ; not null ;
        n is distinct from a ; a is distinct from 1 ; n is distinct from 1 ; n is not distinct from n ;
        t like 'a%' ; s like 'a%' ; t not like 'a' ; t ilike 'a' ; t like s ; t || 'x' ; s || 'x' ; t || n ; s || t ;
        cast(n as decimal(10, 2)) * 2 ; cast(n as decimal(10, 2)) % 2 ; n + null ; null + 1 ; 1 ; null ; 1 = 1 ;
    """,
    "what is null": """
        a is null ; n is null ; a is not null ; not (a is null) ; n is null and a = 1 ; n is not null or a = 1 ;
        n is null or a = 1 ; n is not null and a = 1 ; not (n is null and a = 1) ; st is null or a = 1 ;
        su is null and n = 1 ; f = 1 and p is not null ; p is true ; q is true ; q is not false ; p is not true ;
        (n = 1) is true ; (a = 1) is true ;
    """,
    "conditions": """
        coalesce(a, 5) ; coalesce(a, n) ; coalesce(a, a) ; coalesce(n, a) ; coalesce(a, a, n) ; coalesce(null, n) ;
        coalesce(null, a) ; coalesce(1, a) ; nvl(a, n) ; nvl(a, 5) ; nvl(n, a) ; nvl(null, n) ; ifnull(a, 5) ;
        ifnull(a, a) ; nvl2(n, 1, 2) ; nvl2(a, 1, 2) ; nvl2(n, a, 2) ; nvl2(n, n, a) ; nvl2(a, n, n) ; nvl2(a, n, a) ;
        nvl2(null, n, a) ; nullif(n, 1) ; nullif(n, n) ; greatest(n, 1) ; least(n, a) ; coalesce(q, false) ;
        coalesce(q, true) ; coalesce(q, p) ; coalesce(p, q) ; coalesce(q, q, p) ; coalesce(a = 1, n = 1) ;
        nvl(q, false) ; not coalesce(q, false) ; coalesce(st, su) ; coalesce(k, l) ; coalesce(st.y, 0) ;
        coalesce(t like s, p) ; coalesce(cast(a as boolean), p) ; coalesce(a, 1) + n ; coalesce(su.x, n) ;
    """,
    "casts": """
        cast(n as string) ; cast(a as string) ; try_cast(n as string) ; try_cast(t as int) ; cast(u as int) ;
        n::double ; cast(ts as date) ; try_cast(n as bigint) ; cast(n as bigint) ; cast(null as int) ;
        try_cast('1' as int) ; arrow_cast(n, 'Int32') ; arrow_cast(a, 'Int32') ; cast(coalesce(a, 1) as string) || t ;
    """,
    "members and items": """
        st ; st.x ; st.y ; su.x ; su.y ; st.x + 1 ; su.x + 1 ; st['x'] ; get_field(st, 'x') ; st.x in (1, 2) ; l[1] ;
        k[1] ; l[1] = 1 ; array_length(l) ; array_has(l, 1) ; array_remove(l, 1) ; array_remove(k, 1) ;
        list_remove(l, 1) ; array_remove_n(l, 1, 2) ; array_remove_all(l, 1) ; array_replace(l, 1, 2) ; map_values(m) ;
        map_keys(m) ; make_array(n, 1) ; struct(n) ; named_struct('a', n) ; array_sort(l) ; array_append(l, 1) ;
    """,
    "functions": """
        round(n) ; round(f) ; round(a) ; round(f, i) ; round(coalesce(g, 1.0)) ; abs(n) ; sqrt(f) ; isnan(f) ; pi() ;
        isnan(f) or p ; regexp_like(t, 'a') ; regexp_like(s, 'a') ; regexp_match(t, 'a') ; concat(t, 'x') ; upper(t) ;
        upper('x') ; length(t) ; starts_with(t, 'a') ; starts_with(t, s) ; ends_with(t, 'a') ; contains(t, 'a') ;
        strpos(t, 'a') ; position(t, 'a') ; instr(t, 'a') ; strpos(t, s) ; concat_ws('-', t, t) ; to_hex(n) = '1' ;
        date_part('day', d) ; date_part('day', ts) + 1 ; datepart('day', d) ; date_trunc('day', ts) ; now() > ts ;
        datetrunc('day', ts) ; to_char(ts, '%Y') ; to_timestamp(n) ; current_date ; random() ; version() ; uuid() ;
        ts + arrow_cast('1 month', 'Interval(MonthDayNano)') ; date_part('day', to_timestamp(n)) ; md5(t) ;
    """,
}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    uri = str(tmp_path_factory.mktemp("nullability") / "t.lance")
    columns = [pa.array(values, field.type) for values, field in zip(zip(*ROWS, strict=True), SCHEMA, strict=True)]
    table = lance.write_dataset(pa.table(columns, schema=SCHEMA), uri, data_storage_version="2.2")
    return table, lance_io.dataset(uri)


@pytest.mark.parametrize("topic", EXPRESSIONS)
def test_as_in_pylance(topic: str, both: tuple[Any, Any]) -> None:
    texts = [text.strip() for text in EXPRESSIONS[topic].replace("\n", " ").split(" ;") if text.strip()]
    columns = {text: text for text in texts} | {"n": "n"}
    found, expected = (table.to_table(columns=columns).schema for table in reversed(both))
    assert {text: found.field(text).nullable for text in texts} == {
        text: expected.field(text).nullable for text in texts
    }


def test_added_columns_are_as_in_pylance(tmp_path: Path) -> None:
    rows = pa.table([[1, None], [1, 2]], schema=pa.schema([SCHEMA.field("a"), SCHEMA.field("n")]))
    columns = {"b": "coalesce(a, n)", "c": "n + 1", "d": "a + 1", "e": "n in (1, 3)", "g": "nvl2(a, n, a)"}
    found = []
    for library in (lance, lance_io):
        table = library.write_dataset(rows, str(tmp_path / library.__name__))
        table.add_columns(columns)
        found.append(table.to_table())
    assert found[1].schema == found[0].schema
    assert found[1].equals(found[0])


def test_a_pseudo_column_may_be_null(both: tuple[Any, Any]) -> None:
    assert both[1].to_table(columns={"v": "_rowid + 1"}).schema.field("v").nullable  # pylance has no such columns
