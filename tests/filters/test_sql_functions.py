"""Functions of text filters on lists, structs, maps, JSON and types: values, types and errors are those of pylance."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import BindError
from lance_io.filters import compile_filter
from lance_io.filters.expressions.casts import parse_interval
from lance_io.filters.functions.arrow_types import parse_type, type_name
from lance_io.filters.functions.json_path import select

if TYPE_CHECKING:
    from lance_io import LanceDataset

JSON = [
    '{"a":1,"b":"x","c":[1,"two",3.5,null,true,[2,3],{"w":1}],"d":{"e":{"f":-7}},"n":null,"t":true,"fl":2.5,"s":"12"}',
    '[1,2,"x",{"k":1}]',
    '"text"',
    "5",
    "null",
    '{"a":"1","b":2,"c":["x"],"t":"TRUE","fl":"-2.5","":3,"0":5}',
    None,
    "{}",
    '{"a":1.9,"b":true,"c":[],"t":false,"fl":7,"s":"a\\n\\"\\u00e9\\u0001/\\\\"}',
    '{"a":99999999999,"b":[1],"c":"x","a.b":8,"x y":9,"v":[{"w":1},{"w":2}]}',
]
ROWS = len(JSON)
POINTS = [((i * 7919) % 1009 - 500) / 97 for i in range(15 * ROWS + 50)]
TABLE = pa.table(
    {
        "row": pa.array(range(ROWS)),
        "b": pa.array([1, 2, 3, None, 5, 6, 7, 8, 9, -1], pa.int64()),
        "f": [1.5, 2.5, float("nan"), None, 0.0, -0.0, 1.0, 2.0, 3.0, 4.0],
        "s": ["a", "b", None, "ab", "", "c", "a", "2", "x", "a b"],
        "p": [*[True, False, None] * 3, True],
        "l": pa.array([[1, 2], [3], [], None, [1, None, 1], [2, 2], [5, 6, 7], [1], [-1], [9]], pa.list_(pa.int64())),
        "ls": [["a", "b"], ["b"], [], None, ["a", None], ["c"], ["x"], ["y"], [""], ["z"]],
        "ll": [[[1, 2], [3]], [], None, [[], None], [[4]], [[5, None]], [[1]], [[2]], [[3]], [[7]]],
        "lf": [[0.0], [-0.0], [float("nan")], None, [1.5, None], [], [2.0], [3.0], [4.0], [5.0]],
        "fl": pa.array([[1, 2]] * 9 + [[3, None]], pa.list_(pa.int32(), 2)),
        "n": [{"x": i, "y": str(i)} for i in range(ROWS)],
        "m": pa.array(
            [[("k", 1)], [], [("k", None), ("j", 2)], None] + [[("i", 3)]] * 6, pa.map_(pa.string(), pa.int64())
        ),
        "d": [dt.date(2024, 1, 1 + i) for i in range(ROWS)],
        "ts": pa.array([dt.datetime(2024, 1, 1 + i, i, 6 * i, 5 * i) for i in range(ROWS)], pa.timestamp("us")),
        "tz": pa.array([dt.datetime(2024, 1, 1 + i, i) for i in range(ROWS)], pa.timestamp("us", "UTC")),
        "berlin": pa.array(
            [dt.datetime(2024, 3, 29 + i // 4, 22 + i % 2, 59, 59) for i in range(ROWS)],
            pa.timestamp("us", "Europe/Berlin"),
        ),
        "v": pa.FixedSizeListArray.from_arrays(pa.array(POINTS[:150], pa.float32()), 15),
        "w": pa.array([None if i == 3 else POINTS[15 * i + 50 : 15 * i + 65] for i in range(ROWS)]),
        "bin": pa.array([b"x", b"y", None] * 3 + [b"z"], pa.binary()),
        "j": pa.array(JSON, pa.json_()),
    }
)

COLUMNS = {
    "joined texts": """
        concat_ws('-', s, s) ; concat_ws('-', s) ; concat_ws('-', s, b) ; concat_ws(s, b, f) ; concat_ws(s, 'x', 'y') ;
        concat_ws(NULL, s, b) ; concat_ws('-', nullif(row, row), s) ;
    """,
    "json paths": """
        json_extract(j, '$.a') ; json_extract(j, 'a') ; json_extract(j, '') ; json_extract(j, '$') ;
        json_extract(j, '0') ;
        json_extract(j, '$.c[*]') ; json_extract(j, '$.c[1, 3]') ; json_extract(j, '$.c[last]') ;
        json_extract(j, '$.c[last-1]') ; json_extract(j, '$.v[*].w') ; json_extract(j, '$.*') ;
        json_extract(j, '$[2]') ;
        json_extract(j, '$."a.b"') ; json_extract(j, '$["x y"]') ; json_extract(j, '$.**.w') ;
        json_extract(j, '$:d.e') ;
        json_extract(j, '$.c[*] ? (@ > 1)') ; json_extract(j, '$.d ? (@.e.f < 0 && @.e.f != 1)') ;
        json_extract(j, '$.v[*] ? (@.w == 2 || @.w == 3)') ; json_extract(j, '$.d ? (exists(@.e))') ;
        json_extract(j, '$.b ? (@ starts with "x")') ; json_extract(j, '$.a == 1') ; json_extract(j, null) ;
        json_extract(j, '$..w') ; json_extract(j, '$[') ; json_extract(j, 'a b') ; json_extract(j, '$v') ;
        json_extract(s, '$.a') ; json_extract(bin, 'a') ; json_extract(j) ; json_exists(j, '$.n') ;
        json_exists(j, '$.c[4]') ; json_exists(j, '$.c ? (@ == 1)') ; json_exists(j, '$.a > 5') ; json_exists(j, '(') ;
    """,
    "json values": """
        json_get(j, 'a') ; json_get(j, 0) ; json_get(j, '0') ; json_get(j, '-1') ; json_get(json_get(j, 'd'), 'e') ;
        json_get_string(json_get(j, 'd'), 'e') ; json_get_string(j, 'a') ; json_get_string(j, 'b') ;
        json_get_string(j, 't') ; json_get_string(j, 'n') ; json_get_string(j, 's') ; json_get_int(j, 'a') ;
        json_get_int(j, 'fl') ; json_get_int(j, 's') ; json_get_int(j, 'b') ; json_get_float(j, 'fl') ;
        json_get_float(j, 'a') ; json_get_float(j, 'c') ; json_get_bool(j, 't') ; json_get_bool(j, 'a') ;
        json_get_int(json_get(json_get(j, 'd'), 'e'), 'f') ; json_array_length(j, '$.c') ; json_array_length(j, '$') ;
        json_array_length(j, '$.v[*]') ; json_array_contains(j, '$.c', 'two') ; json_array_contains(j, '$.c', '3.5') ;
        json_array_contains(j, '$.c', 'null') ; json_array_contains(j, '$.c', '[2,3]') ;
        json_array_contains(j, '$', 1) ;
        json_array_contains(j, '$.a', '1') ; json_array_contains(j, '$.c', '"two"') ; json_array_contains(j, '$.c', s) ;
    """,
    "items added and dropped": """
        array_append(l, 4) ; array_append(l, b) ; array_append(l, null) ; array_append(l, 1.5) ; array_append(ls, s) ;
        array_append(l, 'x') ; list_push_back(ll, [b]) ; array_append(fl, 9) ; array_prepend(b, l) ;
        array_prepend('x', ls) ; array_concat(l, l) ; array_concat(l, [1.5]) ; array_concat(l, l, [b]) ;
        array_concat(ll, ll) ; array_cat(l, fl) ; array_concat(l, []) ; array_concat(b, l) ; array_remove(l, 1) ;
        array_remove(l, b) ; array_remove(l, null) ; array_remove(ls, 'a') ; array_remove_n(l, 1, 2) ;
        array_remove_all(l, 1) ; array_replace(l, 1, b) ; array_replace(l, null, 9) ; array_replace_n(l, 1, 9, 1) ;
        array_replace_all(l, 1, null) ; array_union(l, [1, 9]) ; array_intersect(l, [1, 9]) ; array_except(l, [1]) ;
        array_union(l, null) ; array_reverse(l) ; array_pop_back(l) ; array_pop_front(ls) ; array_repeat(b, 2) ;
        array_repeat(l, b) ; array_resize(l, 2) ; array_resize(l, 3, b) ; array_resize(l, -1) ; array_slice(l, 2, 3) ;
        array_slice(l, -2, -1) ; array_slice(l, 1, 3, 2) ; array_slice(l, 3, 1, -1) ; array_slice(l, b, b) ;
        flatten(ll) ; flatten(l) ; flatten([[b], [1]]) ; flatten(b) ; array_any_value(l) ; arrays_zip(l, ls) ;
        array_dims(ll) ; array_ndims(ll) ; array_remove(lf, 0.0) ; array_remove(ll, [4]) ;
    """,
    "positions and series": """
        array_position(l, 1) ; array_position(l, null) ; array_position(l, b) ; array_position([1, 2, b, 1], 1, 3) ;
        array_position([1, 2, b], 1, 2) ; array_position(l, 1, 2) ; array_position(l, 1, 0) ; array_positions(l, 1) ;
        array_positions(l, null) ; array_position(ll, [3]) ; range(b) ; range(1, b) ; range(b, 0, -2) ; range(b, b, 0) ;
        generate_series(b) ; generate_series(b, 9, 3) ; range(s) ; range(d, date '2024-01-12', interval '3 days') ;
        generate_series(d, date '2024-01-04', interval '1 day') ; generate_series(d, d, 1) ;
        range(d, date '2024-01-04') ;
        generate_series(ts, timestamp '2024-01-05', interval '1 day') ;
        range(ts, timestamp '2024-01-05', interval '36 hours') ;
        generate_series(d, date '2024-03-30', interval '1 month') ;
    """,
    "structs and maps": """
        struct(b, s) ; row(b) ; struct() ; struct(b, s).c1 ; named_struct('x', b, 'y', s) ; named_struct('x', b)['x'] ;
        named_struct('x') ; named_struct(s, b) ; named_struct('', b) ; map([row], [b]) ; map([row, row + 1], [b, 2]) ;
        map([s], [b]) ; map([row, row], [b, b]) ; map(make_array(row), l) ; map_keys(m) ; map_values(m) ;
        map_entries(m) ;
        map_extract(m, 'k') ; element_at(m, s) ; map_keys(map([row], [b])) ; cardinality(m) ; map_keys(l) ;
    """,
    "types": """
        arrow_cast(b, 'Int32') ; arrow_cast(b, 'Utf8') ; arrow_cast(b, 'LargeUtf8') ; arrow_cast(b, 'Utf8View') ;
        arrow_cast(b, 'Decimal128(10, 2)') ; arrow_cast(b, 'Decimal32(5,2)') ; arrow_cast(b, 'UInt8') ;
        arrow_cast(ts, 'Date32') ; arrow_cast(ts, 'Timestamp(Millisecond, None)') ; arrow_cast(ts, 'Timestamp(ns)') ;
        arrow_cast(ts, 'Timestamp(Second, Some("UTC"))') ; arrow_cast(ts, 'Timestamp(µs, "+02:00")') ;
        arrow_cast(l, 'List(Int32)') ; arrow_cast(l, 'LargeList(nullable Int32)') ; arrow_cast(b, 'List(Int64)') ;
        arrow_cast(null, 'List(Int64)') ; arrow_cast(null, 'FixedSizeList(1 x Int64)') ; arrow_cast(null, 'Int32') ;
        arrow_cast(b, 'List(List(Int64))') ; arrow_cast(b, 'LargeList(List(Utf8))') ;
        arrow_cast(fl, 'FixedSizeList(2 x Int64)') ; arrow_cast(s, 'Binary') ;
        arrow_cast(s, 'Dictionary(Int32, Utf8)') ;
        arrow_cast(b, 'Duration(Second)') ; arrow_cast(b, 'Time32(Second)') ; arrow_cast(ts, 'Time64(ns)') ;
        arrow_cast(n, 'Struct("x": Int32, "y": Utf8)') ; arrow_cast(f, 'Float16') ; arrow_cast(b, 'Nosuch') ;
        arrow_cast(b, 'int32') ; arrow_cast(b, s) ; arrow_cast(s, 'Int32') ; arrow_cast(p, 'Utf8') ;
        arrow_typeof(b) ; arrow_typeof(l) ; arrow_typeof(ts) ; arrow_typeof(tz) ; arrow_typeof(n) ; arrow_typeof(m) ;
        arrow_typeof(fl) ; arrow_typeof(j) ; arrow_typeof(struct(b)) ; arrow_typeof(arrow_cast(b, 'Duration(ms)')) ;
        arrow_typeof(arrow_cast(s, 'Dictionary(Int32, Utf8)')) ; arrow_typeof(arrow_cast(b, 'Decimal256(40, 2)')) ;
        cast(l as string) ; concat(l, s) ; s || l ;
    """,
    "times and digests": """
        date_bin('1 day', ts) ; date_bin('15 minutes', ts) ; date_bin('1 hour 30 minutes', ts) ;
        date_bin('-1 hour', ts) ;
        date_bin('15 minutes', ts, timestamp '2024-01-01 00:05:00') ; date_bin('2 weeks', d) ; date_bin('1 hour', tz) ;
        date_bin(interval '1 hour', ts) ; date_bin(interval '1 hour', tz) ; date_bin(interval '1 month', ts) ;
        date_bin('1 month', ts, timestamp '2024-01-03 00:00:00') ; date_bin('0 hour', ts) ; date_bin('x', ts) ;
        date_bin(1, ts) ; date_bin('1 hour', ts, ts) ; date_bin(interval '500 milliseconds', ts) ; to_local_time(tz) ;
        make_time(row, 1, 2) ; make_time(b, 1, 2) ; digest(s, 'md5') ; digest(s, 'sha224') ; digest(s, 'sha512') ;
        digest(s, 'blake2s') ; digest(bin, 'blake2b') ; digest(s, 'blake3') ; digest(s, 'sha1') ; digest(b, 'md5') ;
        digest(s, s) ; overlay(s, 'xyz', 2) ; overlay(s, 'x', 2, 0) ; contains_tokens(s, 'a') ;
        length(concat(s, uuid())) ;
    """,
    "times by patterns": """
        to_timestamp(concat('2024-01-0', row, ' 05:06'), '%Y-%m-%d %H:%M') ;
        to_date(concat('0', row + 1, '/02/2024'), '%d/%m/%Y') ; to_date(s, '%d') ; to_date(d, '%Y') ;
        to_timestamp(concat('2024-01-31T01:02:03.', row), '%Y-%m-%dT%H:%M:%S%.f') ;
        to_timestamp(concat('2024-01-31T01:02:03.', row), '%Y-%m-%dT%H:%M:%S.%f') ;
        to_timestamp(concat('2024-01-31T01:02:03 +0', row, '00'), '%FT%T %z') ;
        to_timestamp(concat('2024-01-31T01:02:03+0', row, ':00'), '%+') ;
        to_timestamp(concat('JAN ', row + 1, ' 69 12:02 am'), '%b %d %y %I:%M %p') ;
        to_timestamp(concat('January ', row + 1, ', 2024 01:02 pM'), '%B %d, %Y %l:%M %P') ;
        to_timestamp(concat('January ', row + 1, ', 2024'), '%b %d, %Y') ;
        to_timestamp(concat('2024 ', row + 1), '%Y %j') ;
        to_timestamp(concat('17066', row), '%s') ; to_timestamp(concat('2024-01-0', row + 1, ' 01'), '%Y-%m-%d %H') ;
        to_timestamp(concat('2024-0', row + 1), '%Y-%m') ; to_timestamp(concat('2024-02-2', row), '%Y-%m-%d') ;
        to_timestamp(concat('2024-01-01 01:02 x', row), '%F %R') ; to_timestamp(concat('  2024-1-', row + 1), '%F') ;
        to_timestamp(concat('Monday 2024-01-0', row + 1), '%A %F') ; to_timestamp(concat('2024', row), '%Q') ;
        to_timestamp(concat('2024-01-31', '  01:02:0', row), '%F %T', '%F') ;
        to_timestamp(concat('2024-01-31', '01:02:0', row), '%F %T') ;
        to_timestamp(concat('2024-01-31 01:02:0', row, ' UTC'), '%F %T %Z') ;
        to_timestamp_millis(concat('1960-01-31 01:02:0', row, '.123456789'), '%F %T%.f') ;
        to_timestamp_seconds(concat('1960-01-31 01:02:0', row, '.123456789'), '%F %T%.f') ;
        to_timestamp_micros(concat('1960-01-31 01:02:0', row, '.1234567891'), '%F %T%.9f') ;
        to_timestamp_nanos(concat('1960-01-31 01:02:0', row, '123'), '%F %T%3f') ;
        to_timestamp(concat('20240101010', row), '%Y%m%d%H%M') ; to_timestamp(concat('100%1 200', row), '100%%%j %Y') ;
        to_timestamp(row, '%Y') ; to_timestamp(concat('2024-01-31t01:02:0', row), '%FT%T') ;
        to_timestamp(concat('2024-01-31 2', row, ':00'), '%F %H:%M') ;
        to_timestamp(concat('1500-01-0', row + 1), '%F') ;
        to_unixtime(concat('2024-01-0', row + 1), '%F') ; to_unixtime(row) ; to_unixtime(d) ;
        to_unixtime(concat('2024-02-1', row)) ; to_unixtime(p) ;
        to_time(ts) ; to_time(tz) ; to_time(s) ; to_time(row) ; to_time(d) ; to_time(concat('0', row, ':30')) ;
        to_time(concat('0', row, ':30:20.5')) ; to_time(concat('1:0', row, ' PM'), '%H', '%I:%M %p') ;
        to_time(concat('0', row), '%H') ; to_time(nullif(s, s), '%H') ;
    """,
    "moved times": """
        d + arrow_cast('1 month', 'Interval(MonthDayNano)') ; arrow_cast('1 month', 'Interval(MonthDayNano)') + d ;
        ts - arrow_cast('1 month 3 days 1 nanosecond', 'Interval(MonthDayNano)') ;
        d + arrow_cast('25 hours', 'Interval(MonthDayNano)') ; d - arrow_cast('1 hour', 'Interval(MonthDayNano)') ;
        d - arrow_cast('-13 months 1 week', 'Interval(MonthDayNano)') ;
        tz + arrow_cast('1 day 2 hours', 'Interval(MonthDayNano)') ;
        berlin + arrow_cast('1 day', 'Interval(MonthDayNano)') ;
        berlin + arrow_cast('24 hours', 'Interval(MonthDayNano)') ;
        berlin - arrow_cast('1 month', 'Interval(MonthDayNano)') ;
        d + arrow_cast(concat(coalesce(b, 4), ' month'), 'Interval(MonthDayNano)') ;
        ts - arrow_cast(concat(row, ' months 1 day'), 'Interval(MonthDayNano)') ;
        arrow_cast('1 month', 'Interval(MonthDayNano)') - d ; row + arrow_cast('1 month', 'Interval(MonthDayNano)') ;
        d + arrow_cast('100000000 months', 'Interval(MonthDayNano)') ;
        ts + arrow_cast('100000000 months', 'Interval(MonthDayNano)') ;
        ts - d ; d - ts ; d - d ; ts - ts ;
    """,
    "vectors": """
        array_distance(v, w) ; list_distance(w, v) ; array_distance(v, make_array(1.0, 2.0, 3.0)) ;
        array_distance(l, l) ;
        array_distance(l, lf) ; array_distance(v, [1.0]) ; array_distance(lf, lf) ; array_distance(ls, ls) ;
        array_distance(fl, fl) ; array_distance(s, s) ; array_distance(b, b) ; array_distance(ll, ll) ;
        cosine_distance(v, w) ; cosine_distance(l, l) ; cosine_distance(v, [1.0]) ; cosine_distance(w, null) ;
        inner_product(v, w) ; dot_product(l, l) ; dot_product(lf, lf) ; inner_product(v, [null]) ; inner_product(v, 3) ;
        array_normalize(v) ; list_normalize(l) ; array_normalize(lf) ; array_normalize(fl) ; array_normalize(s) ;
        array_normalize(arrow_cast(l, 'LargeList(Float32)')) ; array_distance(l, [null]) ; cosine_distance(l, [null]) ;
    """,
    "comparisons": """
        l < [2] ; l > [1, 1] ; l <= l ; l >= [1] ; ls < ['b'] ; n < n ; ll < ll ; fl < fl ; l between [1] and [2] ;
        lf < [1.0] ; lf = lf ; lf > [0.0] ; l != l ; n = n ; greatest(l, [2]) ; least(l, [2]) ; l is distinct from [3] ;
    """,
    "operands that are not needed": """
        coalesce(b, 10 / (b - 1)) ; coalesce(s, cast(s as int)) ; coalesce(p, 1 / (b - b) = 1) ; coalesce(b, 1 / 0) ;
        nvl(b, 10 / (b - b)) ; ifnull(b, row) ; nvl2(b, b, 10 / (b - b)) ; nvl2(b, 10 / (b - 1), 1) ;
        coalesce(null, b) ;
        coalesce(l, [1]) ; coalesce(n, n) ; nvl2(s, l, [row / (b - b)]) ; coalesce(p, b / (row - 2) > 0) ;
    """,
}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[lance.LanceDataset, LanceDataset]:
    uri = str(tmp_path_factory.mktemp("functions") / "t.lance")
    return lance.write_dataset(TABLE, uri, data_storage_version="2.2"), lance_io.dataset(uri)


def outcome(table: Any, text: str) -> tuple[str, str]:
    """The type and the values of a computed column, in a form that can be compared, or an error."""
    try:
        found = table.to_table(columns={"v": text, "row": "row"})["v"]
    except ValueError:  # pylance raises it while planning or while computing, whichever comes first
        return "error", ""
    return str(found.type), repr(found.to_pylist())


@pytest.mark.parametrize("topic", COLUMNS)
def test_same_as_peer(topic: str, both: tuple[lance.LanceDataset, LanceDataset]) -> None:
    theirs, ours = both
    texts = [text.strip() for text in COLUMNS[topic].replace("\n", " ").split(" ;") if text.strip()]
    found = {text: outcome(ours, text) for text in texts}
    expected = {text: outcome(theirs, text) for text in texts}
    assert found == expected


def test_intervals_as_literals(both: tuple[lance.LanceDataset, LanceDataset]) -> None:
    theirs, ours = both  # pylance wants a cast around them
    for text in ("d + {}", "ts - {}", "{} + tz", "d < ts + {}", "date '2024-02-29' - {} < d"):
        found = outcome(ours, text.format("interval '1 month'"))
        assert found == outcome(theirs, text.format("arrow_cast('1 month', 'Interval(MonthDayNano)')"))


def test_the_version_is_ours(both: tuple[lance.LanceDataset, LanceDataset]) -> None:
    assert set(both[1].to_table(columns={"v": "version()", "row": "row"})["v"].to_pylist()) == {
        f"lance_io {lance_io.__version__}"
    }


def test_dates_before_1970_are_those_of_their_time(both: tuple[lance.LanceDataset, LanceDataset]) -> None:
    text = "to_date(concat('1960-01-01 1', row, ':00'), '%F %H:%M')"
    assert set(both[1].to_table(columns={"v": text, "row": "row"})["v"].to_pylist()) == {dt.date(1960, 1, 1)}
    assert set(both[0].to_table(columns={"v": text, "row": "row"})["v"].to_pylist()) == {dt.date(1960, 1, 2)}


def test_paths_with_ranges() -> None:
    assert select('{"c":[1,[2],"x"]}', "$.c[0 to 1]") == ["1", "[2]"]  # pylance hangs there
    assert select('{"c":[1,[2],"x"]}', "$.c[1 to last]") == ["[2]", '"x"']


def test_as_filters(both: tuple[lance.LanceDataset, LanceDataset]) -> None:
    theirs, ours = both
    for text in (
        "json_extract(j, '$.a') = '1'",
        "json_get_int(json_get(j, 'd'), 'e') = 1 or json_exists(j, '$.t')",
        "json_exists(j, '$.a') and json_get_float(j, 'a') > 1",
        "j is null",
        "array_append(l, 1) = [3, 1]",
        "arrow_cast(current_time(), 'Utf8') > s",
    ):
        wanted = None
        try:
            wanted = theirs.to_table(["row"], filter=text)["row"].to_pylist()
        except ValueError:
            with pytest.raises(ValueError):
                ours.to_table(["row"], filter=text)
        if wanted is not None:
            assert ours.to_table(["row"], filter=text)["row"].to_pylist() == wanted


def test_uuids_are_random(both: tuple[lance.LanceDataset, LanceDataset]) -> None:
    found = both[1].to_table({"u": "uuid()", "row": "row"})["u"].to_pylist()
    assert len(set(found)) == ROWS
    assert {uuid.UUID(one).version for one in found} == {4}


@pytest.mark.parametrize("length", [0, 1, 64, 65, 1024, 1025, 2048, 5000])
def test_blake3(length: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    data = bytes(i % 251 for i in range(length))
    uri = str(tmp_path_factory.mktemp("b3") / "t.lance")
    theirs = lance.write_dataset(pa.table({"x": [data], "k": [1]}), uri)
    columns = {"v": "digest(x, 'blake3')"}
    assert lance_io.dataset(uri).to_table(columns).equals(theirs.to_table(columns))


@pytest.mark.parametrize("column", TABLE.schema.names[:-1])
def test_type_names(column: str) -> None:
    t = TABLE.schema.field(column).type
    if not pa.types.is_map(t):
        assert parse_type(type_name(t)) == t


@pytest.mark.parametrize("text", ["", "(", "List(", "List(Int32))", "Timestamp(x)", "Decimal128(99, 2)", "List(" * 99])
def test_names_that_are_no_types(text: str) -> None:
    with pytest.raises(BindError, match="Unsupported type"):
        parse_type(text)


@pytest.mark.parametrize("text", ["", "1", "day", "1 fortnight", "9" * 30 + " days", "1 day x", "99999999999 months"])
def test_texts_that_are_no_intervals(text: str) -> None:
    with pytest.raises(pa.ArrowInvalid, match="interval"):
        parse_interval(text)


@pytest.mark.parametrize(
    "text",
    [
        "cardinality(range(b * 4000000000000)) > 1",
        "empty(array_repeat(b, 4000000000))",
        "empty(array_resize(l, 1 + b * 4000000000))",
    ],
)
def test_lists_without_bounds(text: str) -> None:
    rows = TABLE.select(["b", "l"]).slice(0, 2).combine_chunks().to_batches()[0]
    with pytest.raises(pa.ArrowInvalid):
        compile_filter(text, rows.schema).mask(rows)
