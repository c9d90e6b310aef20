"""The functions of text filters: their names, what they take, and what computes them.

A function is defined with the kinds of its arguments, which the binder checks and converts to before it is called:

    text, bytes   strings; strings or byte strings      int, float   64-bit integers, 64-bit floats
    shown         anything, converted to a string       number       as it is
    real          32-bit floats as they are, other      reals        all as 32-bit floats, unless one is a 64-bit
                  numbers as 64-bit floats                           float or a decimal
    bool          conditions                            when         dates and timestamps
    exact         as `real`, but decimals as they are
    clock         these, and times of a day
    any           as it is                              same         values of one common type
    list          lists                                 item         of the type of the items of the list before it
    lists         lists whose items have one type       word         a string literal
    vector        lists of numbers, as 64-bit floats
    json          stored JSON documents
    steps         integers, or dates and an interval    span         an interval, or a string literal for one

A kind with `?` may be left out, one with `*` may be repeated. Functions get Arrow arrays, and scalars where the
argument is a literal, but never scalars only; they return an array. Null arguments give null unless said otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lance_io.filters.evaluate import compare
from lance_io.filters.functions import (
    date_arithmetic,
    dates,
    encodings,
    json_documents,
    list_edits,
    list_items,
    numbers,
    regex,
    structs,
    text,
    vectors,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.filters.evaluate import Value


@dataclass(frozen=True, slots=True)
class SqlFunction:
    """One function.

    kinds     of its arguments, as in the module's table
    compute   gives its values
    at_bind   the value is the same for all rows of a scan and is computed once, when the filter is compiled
    by_count  it takes the number of rows instead of values
    lazy      operands are computed only for rows that need them: `coalesce` or `nvl2`
    """

    kinds: tuple[str, ...]
    compute: Callable[..., Value]
    at_bind: bool = False
    by_count: bool = False
    lazy: str = ""

    @property
    def num_arguments(self) -> tuple[int, int | None]:
        """The smallest and the largest number of arguments; None for no limit."""
        least = sum(not kind.endswith(("?", "*")) for kind in self.kinds)
        return least, None if self.kinds and self.kinds[-1].endswith("*") else len(self.kinds)

    def kind(self, position: int) -> str:
        """The kind of the argument at a position, without its mark."""
        return self.kinds[min(position, len(self.kinds) - 1)].rstrip("?*")

    def run(self, values: list[Any], num_rows: int) -> Value:
        """The values of the function: a scalar when all arguments are scalars, else an array of `num_rows` items."""
        if self.by_count:
            return self.compute(num_rows)
        if not values or any(isinstance(value, pa.Array) for value in values):
            return self.compute(*values)
        words = [self.kind(i) in ("word", "span") for i in range(len(values))]
        return self.compute(*[v if word else pa.repeat(v, 1) for v, word in zip(values, words, strict=True)])[0]


def _null_if(value: Value, unwanted: Value) -> Value:
    return pc.if_else(pc.fill_null(compare("=", value, unwanted), False), pa.scalar(None, value.type), value)


def _value_if_not_null(tested: Value, given: Value, otherwise: Value) -> Value:
    return pc.if_else(pc.is_valid(tested), given, otherwise)


def _between(value: Value, low: Value, high: Value) -> Value:
    return pc.and_kleene(compare(">=", value, low), compare("<=", value, high))


def _distinct(left: Value, right: Value) -> Value:
    if pa.types.is_null(left.type):
        return pa.array([False] * len(left if isinstance(left, pa.Array) else right))
    equal = compare("=", left, right)
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.invert(pc.or_(pc.fill_null(equal, False), both_null))


def _extreme(op: str) -> Callable[..., Value]:
    def choose(*values: Value) -> Value:
        chosen = values[0]
        for value in values[1:]:
            better = pc.fill_null(compare(op, value, chosen), False)  # type: ignore[arg-type]
            chosen = pc.if_else(pc.or_(better, pc.is_null(chosen)), value, chosen)
        return chosen

    return choose


DECIMALS = {
    name: SqlFunction(("any", "any"), numbers.by_decimals(name))
    for name in ("add", "subtract", "multiply", "divide", "remainder")
}
"""Arithmetic of decimals, which has no names in texts."""

FUNCTIONS: dict[str, SqlFunction] = {}
"""Every function by its names, which are in lower case."""


def _define(names: str, kinds: str, compute: Callable[..., Value], **flags: Any) -> None:
    function = SqlFunction(tuple(kinds.split()), compute, **flags)
    for name in names.split():
        FUNCTIONS[name] = function


_define("coalesce", "same same*", pc.coalesce, lazy="coalesce")
_define("nvl ifnull", "same same", pc.coalesce, lazy="coalesce")
_define("nvl2", "any same same", _value_if_not_null, lazy="nvl2")
_define("nullif", "same same", _null_if)
_define("between", "same same same", _between)
_define("is_distinct", "same same", _distinct)
_define("greatest", "same same*", _extreme(">"))
_define("least", "same same*", _extreme("<"))

_define("upper", "text", pc.utf8_upper)
_define("lower", "text", pc.utf8_lower)
_define("reverse", "shown", pc.utf8_reverse)
_define("initcap", "text", text.capitalized)
_define("length char_length character_length", "shown", pc.utf8_length)
_define("octet_length", "bytes", text.num_bytes)
_define("bit_length", "bytes", text.num_bits)
_define("concat", "shown shown*", text.joined)
_define("concat_ws", "text shown*", text.joined_with)
_define("||", "shown shown", text.joined_strictly)
_define("like", "bytes text", text.matches_like)
_define("ilike", "bytes text", text.matches_like_ignoring_case)
_define("starts_with", "text text", text.starts_with)
_define("ends_with", "text text", text.ends_with)
_define("contains", "text text", text.contains)
_define("strpos instr position", "text text", text.position)
_define("replace", "text text text", text.replaced)
_define("translate", "shown text text", text.translated)
_define("left", "shown int", text.left)
_define("right", "shown int", text.right)
_define("substr substring", "text int int?", text.substring)
_define("lpad", "shown int text?", text.padded_left)
_define("rpad", "shown int text?", text.padded_right)
_define("ltrim", "text text?", text.trimmed_left)
_define("rtrim", "text text?", text.trimmed_right)
_define("btrim trim", "text text?", text.trimmed)
_define("repeat", "text int", text.repeated)
_define("split_part", "text text int", text.split_part)
_define("substr_index substring_index", "shown text int", text.substring_index)
_define("find_in_set", "shown text", text.find_in_set)
_define("levenshtein", "text text", text.edit_distance)
_define("ascii", "text", encodings.code_of_first)
_define("chr", "int", encodings.character)
_define("to_hex", "int", encodings.hexadecimal)
_define("md5", "bytes", encodings.md5)
_define("sha224", "bytes", encodings.sha224)
_define("sha256", "bytes", encodings.sha256)
_define("sha384", "bytes", encodings.sha384)
_define("sha512", "bytes", encodings.sha512)
_define("digest", "bytes word", encodings.digest)
_define("overlay", "shown text int int?", text.overlaid)
_define("contains_tokens", "text text", text.contains_tokens)
_define("uuid", "", structs.uuid, by_count=True)
_define("encode", "bytes word", encodings.encoded)
_define("decode", "text word", encodings.decoded)
_define("regexp_like", "text word word?", regex.matches_regex)
_define("regexp_match", "shown word word?", regex.regex_groups)
_define("string_to_array string_to_list", "text text", text.parts)
_define("regexp_instr", "text word", regex.position_of_regex)
_define("regexp_count", "shown word", regex.count_regex)
_define("regexp_replace", "shown word word word?", regex.replaced_regex)

_define("%", "same same", numbers.remainder)
_define("abs", "number", pc.abs_checked)
_define("power pow", "float float", pc.power)
_define("round", "exact int?", numbers.rounded)
_define("trunc", "real int?", numbers.truncated)
_define("floor", "real", pc.floor)
_define("ceil", "real", pc.ceil)
_define("log", "real real?", numbers.logarithm)
for _name in (
    "sin cos tan cot asin acos atan sinh cosh tanh asinh acosh atanh sqrt cbrt exp ln log2 log10 degrees radians signum"
).split():
    _define(_name, "real", numbers.by_kernel(_name))
_define("atan2", "reals reals", pc.atan2)
_define("isnan", "real", pc.is_nan)
_define("iszero", "real", numbers.is_zero)
_define("nanvl", "reals reals", numbers.first_number)
_define("gcd", "int int", numbers.greatest_common_divisor)
_define("lcm", "int int", numbers.least_common_multiple)
_define("factorial", "int", numbers.factorial)
_define("pi", "", numbers.pi, at_bind=True)
_define("random", "", numbers.random, by_count=True)

_same_layout = list_edits.in_same_layout
_define("array_has array_contains list_has list_contains", "list item", list_items.has)
_define("array_has_any list_has_any arrays_overlap", "lists lists", list_items.has_any)
_define("array_has_all list_has_all", "lists lists", list_items.has_all)
_define("array_length list_length", "list int?", list_items.length)
_define("cardinality", "any", structs.num_entries)
_define("empty array_empty list_empty", "list", list_items.is_empty)
_define("array_element array_extract list_element list_extract", "list int", list_items.element)
_define("make_array make_list", "same*", list_items.make)
_define("array_position array_indexof list_position list_indexof", "list item int?", list_edits.position)
_define("array_positions list_positions", "list item", list_edits.positions)
_define("array_append list_append array_push_back list_push_back", "list item", _same_layout(list_edits.appended))
_define("array_prepend list_prepend array_push_front list_push_front", "item list", _same_layout(list_edits.prepended))
_define("array_concat array_cat list_concat list_cat", "lists lists*", _same_layout(list_edits.concatenated))
_define("array_remove list_remove", "list item", _same_layout(list_edits.without_first))
_define("array_remove_n list_remove_n", "list item int", _same_layout(list_edits.without_some))
_define("array_remove_all list_remove_all", "list item", _same_layout(list_edits.without_all))
_define("array_replace list_replace", "list item item", _same_layout(list_edits.replaced_first))
_define("array_replace_n list_replace_n", "list item item int", _same_layout(list_edits.replaced_some))
_define("array_replace_all list_replace_all", "list item item", _same_layout(list_edits.replaced_all))
_define("array_union list_union", "lists lists", _same_layout(list_edits.union))
_define("array_intersect list_intersect", "lists lists", _same_layout(list_edits.intersection))
_define("array_except list_except", "lists lists", _same_layout(list_edits.difference))
_define("array_reverse list_reverse", "list", _same_layout(list_edits.backwards))
_define("array_pop_back list_pop_back", "list", _same_layout(list_edits.without_last_item))
_define("array_pop_front list_pop_front", "list", _same_layout(list_edits.without_first_item))
_define("array_slice list_slice", "list int int int?", _same_layout(list_edits.part))
_define("array_resize list_resize", "list int item?", _same_layout(list_edits.resized))
_define("array_repeat list_repeat", "any int", list_edits.repeated)
_define("array_any_value list_any_value", "list", list_edits.first_valid)
_define("arrays_zip list_zip", "list list*", list_edits.zipped)
_define("array_ndims list_ndims", "list", list_edits.num_dimensions)
_define("array_dims list_dims", "list", list_edits.dimensions)
_define("flatten", "list", list_edits.flattened)
_define("range", "steps steps? steps?", list_edits.numbers_below)
_define("generate_series", "steps steps? steps?", list_edits.numbers_up_to)
_define("array_to_string array_join list_to_string list_join", "list word word?", list_items.to_text)
_define("array_distinct list_distinct", "list", _same_layout(list_items.distinct))
_define("array_sort list_sort", "list word? word?", _same_layout(list_items.in_order))
_define("array_min list_min", "list", list_items.smallest)
_define("array_max list_max", "list", list_items.largest)
_define("array_distance list_distance", "vector vector", vectors.distance)
_define("inner_product dot_product", "vector vector", vectors.inner_product)
_define("cosine_distance", "vector vector", vectors.cosine_distance)
_define("array_normalize list_normalize", "vector", vectors.normalized)

_define("date_part datepart", "word clock", dates.part)
_define("date_trunc datetrunc", "word when", dates.truncated)
_define("to_date", "any word*", dates.to_date)
_define("to_timestamp", "any word*", dates.to_timestamp)
_define("to_timestamp_seconds from_unixtime", "any word*", dates.to_timestamp_seconds)
_define("to_timestamp_millis", "any word*", dates.to_timestamp_millis)
_define("to_timestamp_micros", "any word*", dates.to_timestamp_micros)
_define("to_timestamp_nanos", "any word*", dates.to_timestamp_nanos)
_define("to_unixtime", "any word*", dates.to_unixtime)
_define("to_time", "any word*", dates.to_time)
_define("to_char date_format", "clock word", dates.shown_as)
_define("make_date", "int int int", dates.make_date)
_define("make_time", "int int int", dates.make_time)
_define("to_local_time", "when", dates.to_local_time)
_define("date_bin", "span when when?", date_arithmetic.binned)
_define("+", "when any", date_arithmetic.later)  # of times and spans; what Arrow adds up is a `Call`
_define("-", "when any", date_arithmetic.earlier)
_define("now current_timestamp", "", dates.now, at_bind=True)
_define("current_date today", "", dates.today, at_bind=True)
_define("current_time", "", dates.time_of_day, at_bind=True)

_define("struct row", "any any*", structs.struct_of)
_define("named_struct", "any any*", structs.named_struct)
_define("map make_map", "any any", structs.map_of)
_define("map_keys", "any", structs.map_keys)
_define("map_values", "any", structs.map_values)
_define("map_entries", "any", structs.map_entries)
_define("map_extract element_at", "any any", structs.map_extract)
_define("arrow_cast", "any word", structs.cast_to_arrow)
_define("arrow_typeof", "any", structs.arrow_type)
_define("version", "", structs.version, at_bind=True)

_define("json_extract", "json shown", json_documents.extracted)
_define("json_exists", "json shown", json_documents.exists)
_define("json_get", "json shown", json_documents.got)
_define("json_get_string", "json shown", json_documents.got_string)
_define("json_get_int", "json shown", json_documents.got_integer)
_define("json_get_float", "json shown", json_documents.got_float)
_define("json_get_bool", "json shown", json_documents.got_boolean)
_define("json_array_contains", "json shown shown", json_documents.array_contains)
_define("json_array_length", "json shown", json_documents.array_length)
