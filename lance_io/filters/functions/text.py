"""Text functions of text filters. Positions and lengths count characters, from 1 where not said otherwise."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lance_io.filters.elementwise import by_value
from lance_io.filters.functions import text_search
from lance_io.filters.functions.function_registry import SqlFunctions
from lance_io.filters.kernel_calls import changed_texts, measured_texts, split_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_io.filters.elementwise import Value

_TEXT, _BOOL, _I32, _I64, _BYTES = pa.string(), pa.bool_(), pa.int32(), pa.int64(), pa.binary()
_SPACE = pa.scalar(" ")
_LIKE_CONTAINS = re.compile(r"%+([^%_\\]+)%+", re.DOTALL)


def _literal(value: Value) -> Any:
    """The value of a literal that is not null, else None."""
    return value.as_py() if isinstance(value, pa.Scalar) else None


def num_bytes(value: Value) -> Value:
    """Length in bytes, i32, of a large text i64."""
    return pc.cast(pc.binary_length(value), _as_count(value))


def num_bits(value: Value) -> Value:
    """Length in bits, i32, of a large text i64."""
    return pc.multiply(num_bytes(value), pa.scalar(8, _as_count(value)))


def _as_count(value: Value) -> pa.DataType:
    """Positions and lengths in a text: i64 in a large one."""
    return _I64 if pa.types.is_large_string(value.type) else _I32


def join_texts(*values: Value) -> Value:
    """One after the other; nulls are empty."""
    return pc.binary_join_element_wise(*values, _nothing(values), null_handling="replace", null_replacement="")


def join_strictly(left: Value, right: Value) -> Value:
    """One after the other; null if one of them is."""
    return pc.binary_join_element_wise(left, right, _nothing([left]))


def _nothing(like: Sequence[Value]) -> pa.Scalar:
    return pa.scalar("", like[0].type)


def join_with(separator: Value, *values: Value) -> Value:
    """One after the other with a separator between them; nulls are left out, and nothing but nulls is an empty text."""
    first, *others = values
    if first.null_count if isinstance(first, pa.Array) else not first.is_valid:
        # Arrow's kernel makes no row at all where every text is null: the array would be too short.
        none_valid = pc.invert(pc.is_valid(pc.coalesce(*values)))
        first = pc.if_else(none_valid, _nothing(values), first)
    return pc.binary_join_element_wise(first, *others, separator, null_handling="skip")


def _like_regex(pattern: str) -> str:
    """LIKE as a regular expression: `%` any text, `_` any character, a backslash makes the next one ordinary."""
    parts = re.findall(r"\\?.", pattern, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    return "".join(wild.get(part) or re.escape(part[1:] if len(part) == 2 else part) for part in parts)


def _matches(value: Value, pattern: Value, ignore_case: bool) -> Value:
    wanted = _literal(pattern)
    if wanted is not None and not ignore_case and (part := _LIKE_CONTAINS.fullmatch(wanted)):
        return text_search.contains(value, part[1])
    if wanted is not None and not wanted.endswith("\\"):
        return pc.match_like(value, wanted, ignore_case=ignore_case)
    flags = re.DOTALL | (re.IGNORECASE if ignore_case else 0)

    def one(text: str, like: str) -> bool:
        return re.fullmatch(_like_regex(like), text, flags) is not None

    return by_value(one, _BOOL, value, pattern)


def matches_like(value: Value, pattern: Value) -> Value:
    """LIKE."""
    return _matches(value, pattern, ignore_case=False)


def matches_like_ignoring_case(value: Value, pattern: Value) -> Value:
    """ILIKE."""
    return _matches(value, pattern, ignore_case=True)


def _part_test(kernel: Callable[..., Value], function: str) -> Callable[[Value, Value], Value]:
    def test(value: Value, wanted: Value) -> Value:
        literal = _literal(wanted)
        return measured_texts(function, _BOOL, value, wanted) if literal is None else kernel(value, literal)

    return test


starts_with = _part_test(pc.starts_with, "starts_with")
ends_with = _part_test(pc.ends_with, "ends_with")
contains = _part_test(text_search.contains, "contains")


def position(value: Value, wanted: Value) -> pa.Array:
    """Where a text occurs first, i32, in a large text i64; 0 if it does not."""
    return measured_texts("position", _as_count(value), value, wanted)


def replace(value: Value, old: Value, new: Value) -> Value:
    """Every occurrence of a text by another."""
    before, after = _literal(old), _literal(new)
    if before and after is not None:
        return pc.replace_substring(value, before, after)
    return changed_texts("replace", _TEXT, value, old, new)


def translate(value: Value, old: Value, new: Value) -> pa.Array:
    """Characters by those at the same places of `new`; those without a counterpart are dropped."""
    return changed_texts("translate", value.type, value, old, new)


def left(value: Value, count: Value) -> Value:
    """The first characters; with a negative count all but the last."""
    return changed_texts("left", _TEXT, value, count)


def right(value: Value, count: Value) -> pa.Array:
    """The last characters; with a negative count all but the first."""
    return changed_texts("right", _TEXT, value, count)


def substring(value: Value, start: Value, count: Value | None = None) -> pa.Array:
    """From a position on, at most `count` characters. Raises pa.ArrowInvalid for a negative count."""
    return changed_texts("substring", _TEXT, *([value, start] if count is None else [value, start, count]))


def _padded(function: str) -> Callable[..., pa.Array]:
    def pad(value: Value, width: Value, fill: Value | None = None) -> pa.Array:
        return changed_texts(function, value.type, value, width, _SPACE if fill is None else fill)

    return pad


pad_left, pad_right = _padded("pad_left"), _padded("pad_right")  # filled up to a width, or cut to it


def _trimmed(function: str) -> Callable[..., pa.Array]:
    def trim(value: Value, characters: Value | None = None) -> pa.Array:
        return changed_texts(function, value.type, value, _SPACE if characters is None else characters)

    return trim


trim, trim_left, trim_right = _trimmed("trim"), _trimmed("trim_left"), _trimmed("trim_right")  # spaces, or any of some


def repeat(value: Value, count: Value) -> pa.Array:
    """Several times one after the other; empty for a count below 1."""
    return changed_texts("repeat", value.type, value, count)


def split_part(value: Value, separator: Value, number: Value) -> pa.Array:
    """The part with a number, counted from the end when negative; empty when there is none."""
    return changed_texts("split_part", value.type, value, separator, number)


def parts(value: Value, separator: Value) -> pa.Array:
    """The list of the parts between separators; none for an empty text."""
    return split_texts(value, separator)


def substring_index(value: Value, separator: Value, count: Value) -> pa.Array:
    """What stands in front of the n-th separator, or behind the n-th from the end when negative."""
    return changed_texts("substring_index", _TEXT, value, separator, count)


def find_in_set(value: Value, texts: Value) -> pa.Array:
    """The position in a list of texts joined by commas, i32; 0 if it is not there."""
    return measured_texts("find_in_set", _I32, value, texts)


def edit_distance(left_text: Value, right_text: Value) -> pa.Array:
    """How many characters to insert, drop or replace to get from one text to the other, i32."""
    return measured_texts("edit_distance", _as_count(left_text), left_text, right_text)


def capitalize(value: Value) -> pa.Array:
    """Words, which are runs of letters and digits, with a capital letter in front and small ones behind it."""
    return changed_texts("capitalize", value.type, value)


def overlaid(value: Value, new: Value, start: Value, count: Value | None = None) -> pa.Array:
    """With `new` in place of `count` characters from a position on, else of as many as it has."""
    return changed_texts("overlay", _TEXT, *([value, new, start] if count is None else [value, new, start, count]))


def contains_tokens(value: Value, wanted: Value) -> pa.Array:
    """Whether all words of the second text, which are runs of letters and digits, are words of the first."""
    return measured_texts("contains_tokens", _BOOL, value, wanted)


FUNCTIONS = SqlFunctions()
FUNCTIONS.define("upper", "text", pc.utf8_upper)
FUNCTIONS.define("lower", "text", pc.utf8_lower)
FUNCTIONS.define("reverse", "shown", pc.utf8_reverse)
FUNCTIONS.define("initcap", "text", capitalize)
FUNCTIONS.define("length char_length character_length", "shown", pc.utf8_length)
FUNCTIONS.define("octet_length", "bytes", num_bytes)
FUNCTIONS.define("bit_length", "bytes", num_bits)
FUNCTIONS.define("concat", "shown shown*", join_texts)
FUNCTIONS.define("concat_ws", "text shown*", join_with)
FUNCTIONS.define("||", "shown shown", join_strictly)
FUNCTIONS.define("like", "bytes text", matches_like)
FUNCTIONS.define("ilike", "bytes text", matches_like_ignoring_case)
FUNCTIONS.define("starts_with", "text text", starts_with)
FUNCTIONS.define("ends_with", "text text", ends_with)
FUNCTIONS.define("contains", "text text", contains)
FUNCTIONS.define("strpos instr position", "text text", position)
FUNCTIONS.define("replace", "text text text", replace)
FUNCTIONS.define("translate", "shown text text", translate)
FUNCTIONS.define("left", "shown int", left)
FUNCTIONS.define("right", "shown int", right)
FUNCTIONS.define("substr substring", "text int int?", substring)
FUNCTIONS.define("lpad", "shown int text?", pad_left)
FUNCTIONS.define("rpad", "shown int text?", pad_right)
FUNCTIONS.define("ltrim", "text text?", trim_left)
FUNCTIONS.define("rtrim", "text text?", trim_right)
FUNCTIONS.define("btrim trim", "text text?", trim)
FUNCTIONS.define("repeat", "text int", repeat)
FUNCTIONS.define("split_part", "text text int", split_part)
FUNCTIONS.define("substr_index substring_index", "shown text int", substring_index)
FUNCTIONS.define("find_in_set", "shown text", find_in_set)
FUNCTIONS.define("levenshtein", "text text", edit_distance)
FUNCTIONS.define("overlay", "shown text int int?", overlaid)
FUNCTIONS.define("contains_tokens", "text text", contains_tokens)
FUNCTIONS.define("string_to_array string_to_list", "text text", parts)
