"""Functions of filters as computed columns, each over a table in which all values are different.

functions/NAME   processor time of one scan that computes the function

A function that runs once for each distinct value, or that is fast only where values come again, is not fast here. Names
of one function have one case, under the first. `tests/test_function_cases.py` fails where a function has none.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from benchmarks.cases import OPENERS, OURS, PYLANCE, Case, WrongAnswerError, open_ours
from benchmarks.measure import Sample, operations_per_turn, timed

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from benchmarks.measure import Operation, Turn
    from benchmarks.tables import Tables

GOAL: Final = 0.5  # times better: at most twice pylance's processor time
ROUNDS_MAX: Final = 7  # there are many functions

EXPRESSIONS: Final = {
    # any value
    "coalesce": "coalesce(nullable, id)",
    "nvl": "nvl(nullable, id)",
    "nvl2": "nvl2(nullable, id, small)",
    "nullif": "nullif(small, 3)",
    "between": "id between 1000 and 90000",
    "is_distinct": "nullable is distinct from id",
    "is_not_distinct": "nullable is not distinct from id",
    "greatest": "greatest(nullable, id, small)",
    "least": "least(nullable, id, small)",
    # text
    "upper": "upper(text)",
    "lower": "lower(text)",
    "reverse": "reverse(text)",
    "initcap": "initcap(text)",
    "length": "length(text)",
    "octet_length": "octet_length(text)",
    "bit_length": "bit_length(text)",
    "concat": "concat(text, '-', other)",
    "concat_ws": "concat_ws('-', text, other)",
    "||": "text || other",
    "like": "text like '%ab%c%'",
    "ilike": "text ilike '%ab%'",
    "starts_with": "starts_with(text, other)",
    "ends_with": "ends_with(text, other)",
    "contains": "contains(text, other)",
    "strpos": "strpos(text, 'e')",
    "replace": "replace(text, 'e', 'ee')",
    "translate": "translate(text, 'abc', 'xy')",
    "left": "left(text, small)",
    "right": "right(text, 5)",
    "substr": "substr(text, 3, 5)",
    "lpad": "lpad(text, 32, '*')",
    "rpad": "rpad(text, 32, '*')",
    "ltrim": "ltrim(padded)",
    "rtrim": "rtrim(padded)",
    "btrim": "btrim(padded)",
    "repeat": "repeat(text, 3)",
    "split_part": "split_part(text, ' ', 2)",
    "substr_index": "substr_index(text, ' ', 2)",
    "find_in_set": "find_in_set(text, 'a,b,c')",
    "levenshtein": "levenshtein(text, other)",
    "overlay": "overlay(text, 'xyz', 3, 2)",
    "contains_tokens": "contains_tokens(text, 'ab cd')",
    "string_to_array": "string_to_array(text, ' ')",
    "ascii": "ascii(text)",
    "chr": "chr(small + 65)",
    "to_hex": "to_hex(id)",
    "encode": "encode(text, 'base64')",
    "decode": "decode(hex, 'hex')",
    "md5": "md5(text)",
    "sha224": "sha224(text)",
    "sha256": "sha256(text)",
    "sha384": "sha384(text)",
    "sha512": "sha512(text)",
    "digest": "digest(text, 'blake3')",
    "regexp_like": "regexp_like(text, 'a[b-e]')",
    "regexp_match": "regexp_match(text, '([a-z]+) ([a-z]+)')",
    "regexp_instr": "regexp_instr(text, 'a[b-e]')",
    "regexp_count": "regexp_count(text, '[aeiou]')",
    "regexp_replace": "regexp_replace(text, '[aeiou]', '-', 'g')",
    "uuid": "uuid()",
    # numbers
    "%": "id % 7",
    "abs": "abs(id)",
    "power": "power(float, 2)",
    "round": "round(float, 2)",
    "trunc": "trunc(float, 2)",
    "floor": "floor(float)",
    "ceil": "ceil(float)",
    **{
        name: f"{name}(float)"
        for name in (
            "log sin cos tan cot asin acos atan sinh cosh tanh asinh atanh sqrt cbrt exp ln log2 log10 degrees radians"
            " signum isnan iszero"
        ).split()
    },
    "acosh": "acosh(float + 1)",
    "atan2": "atan2(float, float)",
    "nanvl": "nanvl(float, 1.5)",
    "gcd": "gcd(id, 360)",
    "lcm": "lcm(id, small + 1)",
    "factorial": "factorial(small)",
    "pi": "pi() + float",
    "random": "random()",
    # lists
    "array_has": "array_has(list, small)",
    "array_has_any": "array_has_any(list, list2)",
    "array_has_all": "array_has_all(list, list2)",
    "array_length": "array_length(list)",
    "cardinality": "cardinality(list)",
    "empty": "empty(list)",
    "array_element": "array_element(list, 2)",
    "make_array": "make_array(id, small)",
    "array_ndims": "array_ndims(list)",
    "array_dims": "array_dims(nested)",
    "array_to_string": "array_to_string(list, ',')",
    "array_distinct": "array_distinct(list)",
    "array_sort": "array_sort(list)",
    "array_min": "array_min(list)",
    "array_max": "array_max(list)",
    "array_position": "array_position(list, small)",
    "array_positions": "array_positions(list, small)",
    "array_append": "array_append(list, id)",
    "array_prepend": "array_prepend(id, list)",
    "array_concat": "array_concat(list, list2)",
    "array_remove": "array_remove(list, small)",
    "array_remove_n": "array_remove_n(list, small, 2)",
    "array_remove_all": "array_remove_all(list, small)",
    "array_replace": "array_replace(list, small, 100)",
    "array_replace_n": "array_replace_n(list, small, 100, 2)",
    "array_replace_all": "array_replace_all(list, small, 100)",
    "array_union": "array_union(list, list2)",
    "array_intersect": "array_intersect(list, list2)",
    "array_except": "array_except(list, list2)",
    "array_reverse": "array_reverse(list)",
    "array_pop_back": "array_pop_back(list)",
    "array_pop_front": "array_pop_front(list)",
    "array_slice": "array_slice(list, 2, 4)",
    "array_resize": "array_resize(list, 4, 0)",
    "array_repeat": "array_repeat(id, small)",
    "array_any_value": "array_any_value(array_append(list, id))",
    "arrays_zip": "arrays_zip(list, list2)",
    "flatten": "flatten(nested)",
    "range": "range(small)",
    "generate_series": "generate_series(1, small)",
    "array_distance": "array_distance(vector, vector2)",
    "inner_product": "inner_product(vector, vector2)",
    "cosine_distance": "cosine_distance(vector, vector2)",
    "array_normalize": "array_normalize(vector)",
    # dates and times
    "date_part": "date_part('month', time)",
    "date_trunc": "date_trunc('hour', time)",
    "to_date": "to_date(shown)",
    "to_timestamp": "to_timestamp(shown)",
    "to_timestamp_seconds": "to_timestamp_seconds(shown)",
    "to_timestamp_millis": "to_timestamp_millis(shown, '%Y-%m-%d %H:%M:%S')",
    "to_timestamp_micros": "to_timestamp_micros(shown)",
    "to_timestamp_nanos": "to_timestamp_nanos(shown)",
    "to_unixtime": "to_unixtime(shown)",
    "to_time": "to_time(clock)",
    "to_char": "to_char(time, '%d.%m.%Y %H:%M')",
    "make_date": "make_date(small + 2000, small + 1, small + 1)",
    "make_time": "make_time(small, small + 1, small + 1)",
    "to_local_time": "to_local_time(time)",
    "now": "now()",
    "current_date": "current_date()",
    "current_time": "current_time()",
    "date_bin": "date_bin('15 minutes', time)",
    "+": "day + interval '1 month'",
    "-": "day - interval '1 month'",
    # structs, maps and types
    "struct": "struct(id, text)",
    "named_struct": "named_struct('a', id, 'b', text)",
    "map": "map(make_array(text, other), make_array(id, small))",
    "map_keys": "map_keys(pairs)",
    "map_values": "map_values(pairs)",
    "map_entries": "map_entries(pairs)",
    "map_extract": "map_extract(pairs, 'b')",
    "arrow_cast": "arrow_cast(id, 'Utf8')",
    "arrow_typeof": "arrow_typeof(id)",
    "version": "version()",
    # JSON
    "json_extract": "json_extract(document, '$.tags[0]')",
    "json_exists": "json_exists(document, '$.tags[0]')",
    "json_get": "json_get(document, 'tags')",
    "json_get_string": "json_get_string(document, 'name')",
    "json_get_int": "json_get_int(document, 'id')",
    "json_get_float": "json_get_float(document, 'price')",
    "json_get_bool": "json_get_bool(document, 'ok')",
    "json_array_contains": "json_array_contains(document, '$.tags', 'b')",
    "json_array_length": "json_array_length(document, '$.tags')",
}
"""What is computed for each function, by the first of its names."""

STAND_INS: Final = {
    "substr": "left(text, 5)",
    "floor": "trunc(float)",
    "ceil": "trunc(float)",
    "+": "arrow_cast(day, 'Timestamp(ns)') + arrow_cast('1 month', 'Interval(MonthDayNano)')",
    "-": "arrow_cast(day, 'Timestamp(ns)') - arrow_cast('1 month', 'Interval(MonthDayNano)')",
}
"""What pylance computes instead, where it lacks the function."""

WITHOUT_COLUMNS: Final = frozenset({"uuid", "random", "now", "current_date", "current_time", "version"})
UNLIKE: Final = WITHOUT_COLUMNS | STAND_INS.keys() | {"asinh", "acosh"}
"""Functions whose values differ: by their meaning, by what stands in for them, in the last bit."""


def computing(dataset: Any, expression: str) -> Operation:
    """Scan the table for one computed column, with another one where it reads none: pylance wants one to be read."""
    columns = {"value": expression}
    if "(" in expression and expression.split("(")[0] in WITHOUT_COLUMNS:
        columns["id"] = "id"
    return lambda number: dataset.to_table(columns=columns)


def function_cases(tables: Tables) -> Iterator[Case]:
    """A case for each function."""
    for name, expression in EXPRESSIONS.items():
        yield _case(tables, name, expression)


def _case(tables: Tables, name: str, expression: str) -> Case:
    def make() -> dict[str, Turn]:
        table = tables("functions")
        asked = {OURS: expression, PYLANCE: STAND_INS.get(name, expression)}
        scans = {who: computing(OPENERS[who](table), asked[who]) for who in asked}
        if name not in UNLIKE:
            require_same_values(scans[OURS](0), scans[PYLANCE](0))
        often = max(operations_per_turn(scan) for scan in scans.values())
        return {who: partial(_processor_time, timed(scan, often)) for who, scan in scans.items()}

    def ours() -> Operation:
        return computing(open_ours(tables("functions")), expression)

    return Case(f"functions/{name}", make, goal=GOAL, profiled=ours, rounds_max=ROUNDS_MAX)


def _processor_time(turn: Turn, number: int) -> Sample:
    sample = turn(number)
    return Sample(sample.cpu_s, sample.cpu_s)


def require_same_values(ours: pa.Table, theirs: pa.Table) -> None:
    """Raise `WrongAnswerError` unless both have the same values, whatever the widths of their types."""
    expected, found = theirs["value"].combine_chunks(), ours["value"].combine_chunks()
    if expected.type != found.type:
        expected = expected.cast(found.type)
    if not found.equals(expected):
        raise WrongAnswerError(f"pylance computes other values than lance_io: {found[:3]} and {expected[:3]}")
