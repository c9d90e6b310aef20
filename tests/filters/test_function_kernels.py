"""Functions that kernels compute, over random columns: what pylance gives, whatever the rows, types and slices."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.filters import compile_column

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS: Final = 400
LETTERS: Final = [
    "a",
    "b",
    "ab",
    "B",
    " ",
    ",",
    "_",
    "1",
    "-",
    "é",
    "É",
    "ß",
    "ǆ",
    "İ",
    "漢",
    "e\u0301",
    "😀",
    "x",
    "xyz",
    "",
]
DICE: Final = random.Random(23)


def text(longest: int = 8) -> str:
    return "".join(DICE.choices(LETTERS, k=DICE.randrange(longest)))


def ascii_text() -> str:
    return "".join(DICE.choices(LETTERS[:9], k=DICE.randrange(9)))


def maybe(make: Callable[[], Any], share: float = 0.15) -> Any:
    return None if DICE.random() < share else make()


def column(make: Callable[[], Any], dtype: pa.DataType, share: float = 0.15) -> pa.Array:
    return pa.array([maybe(make, share) for _ in range(ROWS)], dtype)


def items(make: Callable[[], Any]) -> Callable[[], list[Any]]:
    return lambda: [maybe(make) for _ in range(DICE.choice([0, 0, 1, 2, 3, 5, 8, 30]))]


def a_float() -> float:
    return DICE.choice([0.0, -0.0, 1.5, -1.5, float("nan"), float("inf"), 2.25])


def document() -> str:
    def value(depth: int) -> Any:
        simple = [None, True, False, 0, -7, 300, 2.5, -2.5, 1e300, 99999999999, "", "a", "12", "TRUE", 'é\n"']
        kind = DICE.randrange(4 if depth < 3 else 2)
        if kind < 2:
            return DICE.choice(simple)
        inside = [value(depth + 1) for _ in range(DICE.randrange(4))]
        return inside if kind == 2 else dict(zip(DICE.sample("abcé0", len(inside)), inside, strict=True))

    return json.dumps(value(0), ensure_ascii=DICE.random() < 0.5)


def date_text() -> str:
    day = f"{DICE.randrange(1960, 2030)}-{DICE.randrange(1, 13):02}-{DICE.randrange(1, 29):02}"
    return day + DICE.choice(["", f" {DICE.randrange(24):02}:{DICE.randrange(60):02}:{DICE.randrange(60):02}"])


TABLE: Final = pa.table(
    {
        "row": pa.array(range(ROWS)),
        "s": column(text, pa.string()),
        "t": column(text, pa.string()),
        "u": column(ascii_text, pa.string(), 0),
        "big": column(text, pa.large_string()),
        "bin": column(lambda: DICE.randbytes(DICE.randrange(9)), pa.binary()),
        "none": pa.nulls(ROWS, pa.string()),
        "n": column(lambda: DICE.randrange(-3, 9), pa.int64()),
        "l": column(items(lambda: DICE.randrange(5)), pa.list_(pa.int64())),
        "k": column(items(lambda: DICE.randrange(5)), pa.list_(pa.int64())),
        "small": column(items(lambda: DICE.randrange(5)), pa.list_(pa.int8())),
        "u64": column(items(lambda: DICE.choice([0, 1, 2**63, 2**64 - 1])), pa.list_(pa.uint64())),
        "i64": column(items(lambda: DICE.choice([0, -(2**63), 2**63 - 1])), pa.list_(pa.int64())),
        "lf": column(items(a_float), pa.list_(pa.float64())),
        "ls": column(items(lambda: text(3)), pa.list_(pa.string())),
        "lb": column(items(lambda: DICE.random() < 0.5), pa.list_(pa.bool_())),
        "lt": column(items(lambda: DICE.randrange(5)), pa.list_(pa.timestamp("us"))),
        "ll": column(items(items(lambda: DICE.randrange(3))), pa.list_(pa.list_(pa.int64()))),
        "nol": pa.nulls(ROWS, pa.list_(pa.int64())),
        "when": column(date_text, pa.string()),
        "j": pa.array([maybe(document) for _ in range(ROWS)], pa.string()).cast(pa.json_()),
    }
)

TEXTS: Final = """
    initcap({s}) ; strpos({s}, 'b') ; strpos({s}, {t}) ; strpos({s}, '') ; starts_with({s}, {t}) ; ends_with({s}, {t}) ;
    contains({s}, {t}) ; replace({s}, {t}, 'X') ; replace({s}, 'a', {t}) ; translate({s}, 'aé漢b', 'x😀') ;
    translate({s}, 'ab', 'xy') ; translate({s}, {t}, 'xyz') ; left({s}, 2) ; left({s}, n) ; right({s}, 2) ;
    right({s}, n) ; left({s}, -1) ; right({s}, -1) ; left({s}, -9223372036854775807) ; lpad({s}, 6) ;
    lpad({s}, n, {t}) ; rpad({s}, 6, 'é-') ; rpad({s}, n, {t}) ; lpad({s}, 5, '') ; ltrim({s}) ; rtrim({s}) ;
    btrim({s}) ; btrim({s}, 'abé') ; ltrim({s}, {t}) ; rtrim({s}, {t}) ; repeat({s}, n) ; repeat({s}, 2) ;
    split_part({s}, 'b', 1) ; split_part({s}, 'b', -1) ; split_part({s}, 'ab', 2) ; split_part({s}, {t}, 1) ;
    substr_index({s}, 'b', 2) ; substr_index({s}, 'b', -2) ; substr_index({s}, {t}, n) ; substr_index({s}, 'ab', -1) ;
    find_in_set({s}, 'a,b,ab,') ; find_in_set('a', {s}) ; find_in_set({s}, {t}) ; levenshtein({s}, {t}) ;
    levenshtein({s}, 'abé') ; overlay({s}, 'X', 2) ; overlay({s}, {t}, 2, 1) ; overlay({s}, 'XYZ', n + 4, 0) ;
    contains_tokens({s}, 'ab x') ; string_to_array({s}, 'b') ; string_to_array({s}, '') ;
    ascii({s}) ; encode({s}, 'hex') ; encode({s}, 'base64') ; decode(encode({s}, 'hex'), 'hex') ;
    decode(encode({s}, 'base64'), 'base64') ; md5({s}) ; sha256({s}) ; digest({s}, 'blake3') ; digest({s}, 'blake2s') ;
    sha224({s}) ; sha384({s}) ; sha512({s}) ; digest({s}, 'blake2b') ; regexp_instr({s}, 'b')
"""
OTHER_TEXTS: Final = """
    chr(n + 70) ; to_hex(n) ; to_hex(row * 1000000007) ; to_hex(n * 1000000000000) ; md5(bin) ; sha256(bin) ;
    digest(bin, 'blake3') ; encode(bin, 'hex') ; encode(bin, 'base64') ; decode(s, 'hex') ; decode(u, 'base64') ;
    split_part(s, 'b', n) ; split_part(u, 'b', 0) ; lpad(s, 5000000000)
"""
LISTS: Final = """
    array_append({l}, {l}[1]) ; array_prepend({l}[1], {l}) ; array_concat({l}, {l}) ; array_position({l}, {l}[2]) ;
    array_positions({l}, {l}[1]) ; array_remove({l}, {l}[1]) ; array_remove_n({l}, {l}[1], 2) ;
    array_remove_all({l}, {l}[1]) ; array_replace({l}, {l}[1], {l}[2]) ; array_replace_n({l}, {l}[1], {l}[2], 2) ;
    array_replace_all({l}, {l}[1], {l}[2]) ; array_union({l}, array_reverse({l})) ; array_distinct({l}) ;
    array_except({l}, array_pop_front({l})) ; array_reverse({l}) ; array_pop_back({l}) ; array_pop_front({l}) ;
    array_slice({l}, 2, 4) ; array_slice({l}, n, 4) ; array_slice({l}, -3, -1) ; array_slice({l}, 1, 5, 2) ;
    array_resize({l}, 3) ; array_resize({l}, 3, {l}[1]) ; arrays_zip({l}, k) ; array_dims({l}) ; array_length({l}) ;
    array_repeat({l}, 2)
"""
SORTED: Final = """
    array_sort({l}) ; array_sort({l}, 'desc') ; array_sort({l}, 'asc', 'nulls last') ; array_min({l}) ; array_max({l}) ;
    array_sort({l}, 'desc', 'nulls last')
"""
TWO_LISTS: Final = """
    array_concat(l, k) ; array_union(l, k) ; array_intersect(l, k) ; array_intersect(k, l) ; array_except(l, k) ;
    array_append(l, n) ; array_position(l, n) ; array_remove(l, n) ; array_repeat(s, 2) ; array_repeat(n, n) ;
    array_concat(l, [1, 2]) ; array_intersect(l, [1, 2, 3]) ; array_intersect([1, 2, 3], l) ; flatten(ll) ;
    array_dims(ll) ; range(n) ; range(n, 5) ; range(5, n, -2) ; generate_series(n) ; generate_series(n, 5) ;
    generate_series(9, n, -3) ; range(n, n + 3, 2) ; map([row, row + 1], [n, 2]) ; map_extract(map([row], [n]), 3) ;
    map_extract(map([row % 2], [n]), 1.0) ; map_keys(map([row], [n])) ; map_values(map([row], [n])) ;
    array_append(nol, n) ; array_reverse(nol) ; array_union(nol, l) ; array_sort(nol) ; array_position(nol, 1)
"""
TIMES: Final = """
    to_timestamp(when) ; to_timestamp_seconds(when) ; to_timestamp_millis(when) ; to_timestamp_micros(when) ;
    to_timestamp(when, '%Y-%m-%d %H:%M:%S', '%Y-%m-%d') ; to_date(when) ; to_unixtime(when) ;
    to_date(left(when, 10), '%Y-%m-%d') ; to_time(substr(when, 12), '%H:%M:%S', '') ;
    to_char(to_timestamp(when), '%d.%m.%Y %H:%M') ; to_char(to_timestamp(when), '%Y %.3f %S') ;
    make_date(n + 2000, n + 4, n + 4) ; make_date(2000, n + 4, 29) ; make_date(2001, 2, n + 20) ;
    make_time(n + 3, n + 3, n + 3) ; to_date(when) + arrow_cast('1 month', 'Interval(MonthDayNano)') ;
    to_timestamp_micros(when) - arrow_cast('1 month 1 day 2 hours', 'Interval(MonthDayNano)')
"""
DOCUMENTS: Final = """
    json_extract(j, '$') ; json_extract(j, '$.a') ; json_extract(j, '$[0]') ; json_extract(j, '$[*]') ;
    json_extract(j, '$.*') ; json_extract(j, '$.a.b') ; json_extract(j, '$[last]') ; json_extract(j, '$[*].a') ;
    json_extract(j, '$["é"]') ; json_extract(j, '$[0, 1]') ; json_extract(j, '$.*[0]') ; json_exists(j, '$.a') ;
    json_exists(j, '$[1]') ; json_get(j, 'a') ; json_get(j, 'é') ; json_get(j, '0') ; json_get(j, '1') ;
    json_get(j, '') ; json_array_length(j, '$') ; json_array_length(j, '$.a') ; json_array_contains(j, '$', 'a') ;
    json_array_contains(j, '$', '0') ; json_array_contains(j, '$.a', 'true') ; json_array_contains(j, '$', '2.5') ;
    json_array_contains(j, '$', '[]') ; json_extract(j, '$.a ? (@ > 1)') ; json_extract(j, '$.**') ;
    json_get(j, s)
"""
NUMBERS: Final = ("a", "b", "0", "1", "é")


TAKES_NULL_FOR_EMPTY: Final = ("array_position", "array_replace")
"""What finds an empty list in pylance where a null one is wanted."""


def of(template: str, **names: str) -> list[str]:
    return [one.strip().format(**names) for one in template.replace("\n", " ").split(" ;") if one.strip()]


EXPRESSIONS: Final = {
    "texts": of(TEXTS, s="s", t="t"),
    "ASCII": of(TEXTS, s="u", t="u"),
    "some ASCII": of(TEXTS, s="u", t="s"),
    "large texts": of(TEXTS, s="big", t="t"),
    "no texts": of(TEXTS, s="none", t="t"),
    "texts beside none": of(TEXTS, s="s", t="none"),
    "other texts": of(OTHER_TEXTS),
    **{f"lists {name}": of(LISTS, l=name) for name in ("l", "small", "u64", "i64", "lf", "ls", "lb", "lt", "nol")},
    "lists of lists": [one for one in of(LISTS, l="ll") if not one.startswith(TAKES_NULL_FOR_EMPTY)],
    **{f"sorted {name}": of(SORTED, l=name) for name in ("l", "small", "u64", "i64", "lf", "ls", "lb", "lt")},
    "lists": of(TWO_LISTS),
    "times": of(TIMES),
    "documents": of(DOCUMENTS),
    **{
        f"members {kind}": [f"json_get_{kind}(j, '{key}')" for key in NUMBERS]
        for kind in ("string", "int", "float", "bool")
    },
}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    uri = str(tmp_path_factory.mktemp("kernels") / "t.lance")
    return lance.write_dataset(TABLE, uri, data_storage_version="2.2"), lance_io.dataset(uri)


def outcome(table: Any, expression: str, **scan: Any) -> str:
    try:
        found = table.to_table({"v": expression, "row": "row"}, **scan)["v"]
    except (ValueError, OSError):
        return "error"
    return repr(found.to_pylist())


@pytest.mark.parametrize("group", EXPRESSIONS)
def test_same_as_pylance(group: str, both: tuple[Any, Any]) -> None:
    theirs, ours = both
    for expression in EXPRESSIONS[group]:
        expected = outcome(theirs, expression)
        if expected != "error":
            assert (expression, outcome(ours, expression)) == (expression, expected)
            continue
        for row in range(0, ROWS, 13):  # one that fails spoils all
            scan = {"filter": f"row = {row}"}
            expected = outcome(theirs, expression, **scan)
            if expected != "error":  # what pylance fails to compute, may be computed: of a null nothing is too long
                assert (expression, outcome(ours, expression, **scan)) == (expression, expected)


@pytest.mark.parametrize("group", EXPRESSIONS)
@pytest.mark.parametrize(("start", "length"), [(0, 0), (7, 1), (130, 61)])
def test_slices_have_the_values_of_their_rows(group: str, start: int, length: int, both: tuple[Any, Any]) -> None:
    stored = both[1].to_table()
    batch = stored.combine_chunks().to_batches()[0]
    schema = both[1].schema
    for expression in EXPRESSIONS[group]:
        try:
            column = compile_column(expression, schema)
        except ValueError:
            continue
        names = {path[0] for path in column.paths}
        held = {name: batch.column(name) for name in names}
        held = {name: one.storage if isinstance(one, pa.ExtensionArray) else one for name, one in held.items()}
        try:
            whole = column.values(held, ROWS)
        except ValueError:
            continue
        part = column.values({name: one.slice(start, length) for name, one in held.items()}, length)
        assert (expression, repr(part.to_pylist())) == (expression, repr(whole.slice(start, length).to_pylist()))
        part.validate(full=True)
